"""Addresses in the files of a run lead to its own tiles, or are refused."""

from __future__ import annotations

import pytest

from daskfs.errors import StoreError
from daskfs.store.addresses import address_of, url_of

RUNS = ["/runs/one", "s3://bucket/runs/one"]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("name", [".", "tiles", "a/tiles"])
def test_an_address_within_a_run_moves_with_it(run: str, name: str) -> None:
    tiles = run if name == "." else f"{run}/{name}"
    address = address_of(tiles, run)
    assert url_of(address, run) == tiles
    assert url_of(address, f"{run}-moved") == tiles.replace(run, f"{run}-moved")


@pytest.mark.parametrize("run", RUNS)
def test_the_run_of_a_batch_names_tiles_of_the_outer_run(run: str) -> None:
    batch = f"{run}/batches/b"
    address = address_of(f"{run}/tiles", batch)
    assert address == "../../tiles"
    assert url_of(address, batch) == f"{run}/tiles"


@pytest.mark.parametrize("where", [*RUNS, "/runs/one/batches/b", "/"])
@pytest.mark.parametrize("address", ["../x", "../../../../../../x", "a/../../x", "..", "", "a//b"])
def test_an_address_that_leads_elsewhere_is_refused(address: str, where: str) -> None:
    with pytest.raises(StoreError, match="no tile store of its run"):
        url_of(address, where)


def test_tiles_elsewhere_are_named_by_their_url() -> None:
    assert address_of("/data/tiles", "/runs/one") == "/data/tiles"
    assert url_of("/data/tiles", "/runs/one") == "/data/tiles"
