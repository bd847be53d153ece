"""Exports of runs in an object store, and into one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from daskfs.storage import as_path
from daskfs.store.context import open_tiles
from tests.cli.command import basic_job, refused, write_job
from tests.cli.command import daskfs as call
from tests.optional import anndata

pytestmark = pytest.mark.platforms

METHOD = "VarianceScore"


@pytest.fixture
def run(bucket: str, tmp_path: Path) -> str:
    """URL of a finished run."""
    url = f"{bucket}/run"
    outcome = call(
        "run", write_job(tmp_path, basic_job(tmp_path, methods=[METHOD])), "-q", "--set", f"output.path={url}"
    )
    assert outcome.code == 0, outcome.err
    return url


def export(*arguments: object) -> None:
    outcome = call("export", *arguments, "-q")
    assert outcome.code == 0, outcome.err


def test_everything_goes_to_urls(run: str, bucket: str, tmp_path: Path) -> None:
    export(run, f"{bucket}/t.parquet")
    with as_path(f"{bucket}/t.parquet").open("rb") as file:
        assert pq.read_table(file)["name"].to_pylist() == ["x0", "x1", "x2", "x3"]
    X = np.load(tmp_path / "X.npy")
    export(run, f"{bucket}/x.zarr", "--data", METHOD)
    group: Any = zarr.open_group(as_path(f"{bucket}/x.zarr").zarr_store(), mode="r")
    columns = [int(str(name)[1:]) for name in group["name"][...]]
    np.testing.assert_array_equal(group["X"][...], X[:, columns])
    export(run, f"{bucket}/x.tiles", "--data", METHOD, "--to", "tiles")
    np.testing.assert_array_equal(open_tiles(f"{bucket}/x.tiles").read_rows(slice(0, 30)), X[:, columns])
    export(run, f"{bucket}/a.zarr", "--data", METHOD, "--to", "anndata")
    group = zarr.open_group(as_path(f"{bucket}/a.zarr").zarr_store(), mode="r")
    np.testing.assert_array_equal(anndata.io.read_elem(group["X"]), X[:, columns])
    refused(call("export", run, f"{bucket}/t.parquet"), 2, "t.parquet exists")
    export(run, f"{bucket}/x.zarr", "--overwrite")
    assert "X" not in zarr.open_group(as_path(f"{bucket}/x.zarr").zarr_store(), mode="r")


def test_rankings_come_into_a_group_in_a_bucket(run: str, bucket: str) -> None:
    export(run, f"{bucket}/a.zarr", "--to", "anndata")
    export(run, "--into", f"{bucket}/a.zarr")
    group = zarr.open_group(as_path(f"{bucket}/a.zarr").zarr_store(), mode="r")
    frame = anndata.io.read_elem(group["var"])
    assert frame.columns.tolist() == [f"{prefix}_{METHOD}" for prefix in ("rank", "score", "selected")]
    assert frame.index.tolist() == ["x0", "x1", "x2", "x3"]
    assert sorted(frame[f"rank_{METHOD}"]) == [1, 2, 3, 4]
    assert METHOD in anndata.io.read_elem(group["uns/daskfs/methods"])
    refused(call("export", run, "--into", f"{bucket}/a.h5ad"), 2, "object store")
