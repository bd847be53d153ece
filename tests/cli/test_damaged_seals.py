"""Seals hold what the records say: they are made again from these, and nothing waits for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from daskfs import load_job, open_run, run_job
from daskfs.errors import RunStoppedError
from tests.cli.command import daskfs
from tests.cli.test_moved_runs import job_of, tables, write_data
from tests.execution.runs import Stop

pytestmark = pytest.mark.cluster


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "flipped": flip,
    "deleted": Path.unlink,
    "a directory": replace_by_directory,
}
WHICH = {"the index": "*.seals", "the last seal": "rank/*.seal", "all seals": "*/*.seal"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seals")
    write_data(folder)
    assert daskfs("run", job_of(folder, folder / "run", "graph"), "-q").code == 0
    return folder


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("store", [".", "tiles"])
def test_seals_of_a_finished_run(finished: Path, tmp_path: Path, how: str, which: str, store: str) -> None:
    run = shutil.copytree(finished / "run", tmp_path / "run")
    job = job_of(finished, run, "graph")
    assert daskfs("run", job, "-q").code == 0
    pattern = WHICH[which].replace("rank", "columns") if store == "tiles" else WHICH[which]
    paths = sorted((run / store / "records").glob(pattern))
    assert paths
    for path in paths:
        DAMAGES[how](path)
    expected = tables(run)
    verified = daskfs("verify", run, "-q", "--json").json
    assert verified["status"] == "done"
    assert {problem["path"] for problem in verified["problems"]} == set(map(str, paths))
    for verb in (("status", run), ("report", run), ("export", run, tmp_path / "t.npz", "--overwrite", "-q")):
        outcome = daskfs(*verb)
        assert outcome.code == 0, outcome.err
    assert open_run(run).best is None
    assert len(open_run(run).ranking) == 16
    outcome = daskfs("run", job, "-q", "--json")
    assert (outcome.code, outcome.json["recomputed"]) == (0, {}), outcome.err
    assert tables(run) == expected
    assert daskfs("verify", run, "-q", "--json").json["problems"] == []


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("how", DAMAGES)
def test_seals_of_a_run_that_was_stopped(tmp_path: Path, how: str, which: str) -> None:
    write_data(tmp_path)
    clean, run = tmp_path / "clean", tmp_path / "run"
    assert daskfs("run", job_of(tmp_path, clean, "graph"), "-q").code == 0
    job = job_of(tmp_path, run, "graph")
    with pytest.raises(RunStoppedError):
        run_job(load_job(job), Stop("score", 0))
    for path in sorted((run / "records").glob(WHICH[which].replace("rank", "edges"))):
        DAMAGES[how](path)
    assert daskfs("status", run).code == 0
    assert "Traceback" not in daskfs("verify", run, "-q").err
    outcome = daskfs("run", job, "-q")
    assert outcome.code == 0, outcome.err
    assert tables(run) == tables(clean)
    assert daskfs("verify", run, "-q", "--json").json["problems"] == []
