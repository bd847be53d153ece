"""The name of a file is not its state: one file under two real paths goes on, another file behind a link does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from daskfs.sources import SourceSpec, open_source
from daskfs.sources.state import SourceState, changed_file, may_be_rewritten, source_state, turned_link
from tests.cli.command import basic_job, daskfs, refused, write_job

from .writers import KINDS, labels, matrix


def turn(link: Path, target: Path) -> None:
    link.unlink()
    link.symlink_to(target)


@pytest.fixture
def link(tmp_path: Path) -> Path:
    """A link to an empty folder, as /data of a site."""
    (tmp_path / "scratch1").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "scratch1")
    return tmp_path / "data"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_source_behind_a_link(kind: Any, link: Path, tmp_path: Path) -> None:
    name = kind.write(link, matrix(), labels())
    spec = SourceSpec(source=str(link / name), **kind.fields(link))
    planned = source_state(spec, open_source(spec))
    shutil.copytree(tmp_path / "scratch1", tmp_path / "copy")  # with its times
    (tmp_path / "scratch1").rename(tmp_path / "scratch2")
    turn(link, tmp_path / "scratch2")
    now = source_state(spec, open_source(spec))
    assert now != planned
    assert now.contents() == planned.contents()
    assert changed_file(spec, planned) is None
    assert turned_link(planned, now) is None
    turn(link, tmp_path / "copy")
    assert changed_file(spec, planned) == turned_link(planned, source_state(spec, open_source(spec))) == spec.source


@pytest.mark.parametrize(
    ("now", "is_turned"),
    [
        (("/a", 1, 7), False),
        (("/a", 1, 8), False),  # restored from a copy
        (("/b", 1, 7), False),  # renamed
        (("/b", 2, 7), False),  # mounted on another machine
        (("/b", 2, 8), False),
        (("/b", 1, 8), True),
    ],
)
def test_only_another_file_of_the_same_device_is_another_one(now: tuple[str, int, int], is_turned: bool) -> None:
    planned, found = (SourceState({}, {}, {"X": (*place, 0)}) for place in (("/a", 1, 7), now))
    assert turned_link(planned, found) == ("X" if is_turned else None)
    assert may_be_rewritten(planned, found) == (now[2] != 7)
    assert may_be_rewritten(found, SourceState({}, {}, {"X": (*now, 1)}))


@pytest.mark.parametrize("data", ["X.npy", "y.npy"], ids=["source", "labels"])
def test_a_run_goes_on_where_its_data_have_another_path(data: str, link: Path, tmp_path: Path) -> None:
    basic_job(tmp_path)
    for path in ("X.npy", "y.npy"):
        shutil.move(tmp_path / path, link / path)
    others = {key: str(link / name) for key, name in (("source", "X.npy"), ("labels", "y.npy"))}
    job = write_job(tmp_path, basic_job(tmp_path, data=others))
    assert daskfs("run", job, "-q").code == 0
    shutil.copytree(tmp_path / "scratch1", tmp_path / "copy")
    (tmp_path / "scratch1").rename(tmp_path / "scratch2")
    turn(link, tmp_path / "scratch2")
    again = daskfs("run", job, "-q", "--json")
    assert (again.code, again.json["recomputed"]) == (0, {})
    (tmp_path / "scratch2" / data).unlink()
    (tmp_path / "scratch2" / data).symlink_to(tmp_path / "copy" / data)
    refused(daskfs("run", job, "-q"), 3, "changed since the run")
