"""A job that was refused, corrected, and run again: what was not scored gives way, and nothing else does."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import run_job
from daskfs.errors import RunStoppedError
from daskfs.job.job import load_job
from daskfs.stages.stage import Stage
from daskfs.storage import LocalPath
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cli.command import N_SAMPLES, basic_job, daskfs, labels, matrix, refused, write_job
from tests.execution.runs import Stop, write_document

pytestmark = pytest.mark.cluster

USAGE, INPUT, CLUSTER = 2, 3, 4
Job = dict[str, Any]


def with_nan() -> np.ndarray:
    X = matrix()
    X[7, 2] = np.nan
    return X


def nan(folder: Path) -> tuple[Job, Job, str]:
    job = basic_job(folder)
    np.save(folder / "X.npy", with_nan())
    return job, {**job, "data": {**job["data"], "missing": "mean"}}, "data.missing: refuse -> mean"


def text_column(folder: Path) -> tuple[Job, Job, str]:
    rows = [f"{i % 7},{'left' if i % 2 else 'right'},{i % 5},{i % 3}" for i in range(N_SAMPLES)]
    (folder / "X.csv").write_text("\n".join(["a,side,b,y", *rows]))
    job = {**basic_job(folder), "data": {"source": str(folder / "X.csv"), "labels": "y"}}
    return job, {**job, "data": {**job["data"], "exclude": ["side"]}}, 'data.exclude: [] -> ["side"]'


def criterion_of_classes(folder: Path) -> tuple[Job, Job, str]:
    job = basic_job(folder)
    np.save(folder / "y.npy", labels() + 0.5)
    return job, {**job, "methods": ["VarianceScore", "PearsonScore"]}, "methods.1.name: FisherScore -> PearsonScore"


def without_records(folder: Path) -> dict[str, bytes]:
    """Return every file of a run that holds no times, by name."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    timed = (layout.EVENTS, layout.RUN_JSON, layout.REPORT_HTML, *layout.OWNERSHIP, "records")
    found = {name: path.read_bytes() for name, path in files.items() if not any(part in name for part in timed)}
    for name in (name for name in found if name.endswith(layout.PLAN_JSON)):
        found[name] = json.dumps(json.loads(found[name]) | {"written": ""}).encode()  # in which epoch
    return found


def ran_afresh(folder: Path, job: Job) -> dict[str, bytes]:
    """Return the files of a run of a job in a directory that was empty, with its paths as those of ``run``."""
    job = {**job, "output": {"path": str(folder / "new")}}
    assert daskfs("run", write_job(folder, job), "-q").code == 0
    return {
        name: data.replace(f"{folder}/new".encode(), f"{folder}/run".encode())
        for name, data in without_records(folder / "new").items()
    }


@pytest.mark.parametrize("mistake", [nan, text_column, criterion_of_classes])
def test_a_corrected_job_takes_over_the_directory_of_the_one_refused(
    tmp_path: Path, mistake: Callable[[Path], tuple[Job, Job, str]]
) -> None:
    wrong, right, change = mistake(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    (tmp_path / "run" / "mine.txt").write_text("mine")
    outcome = daskfs("run", write_job(tmp_path, right), "--json")
    assert outcome.code == 0, outcome.err
    note = f"{tmp_path}/run holds a run of another job; these keys differ: {change}. Nothing was scored in it: "
    assert [note in line for line in outcome.err.splitlines()].count(True) == 1
    assert json.loads((tmp_path / "run/run.json").read_text())["job"] == load_job(tmp_path / "job.yaml").identity()
    assert daskfs("verify", tmp_path / "run", "-q", "--json").json["left_over"] == []
    assert (tmp_path / "run" / "mine.txt").read_text() == "mine"
    (tmp_path / "run" / "mine.txt").unlink()
    assert without_records(tmp_path / "run") == ran_afresh(tmp_path, right)
    refused(daskfs("run", write_job(tmp_path, wrong), "-q"), INPUT, "holds a run of another job", "--overwrite")


def test_complete_tiles_of_the_same_data_stay(tmp_path: Path) -> None:
    wrong, right, _ = criterion_of_classes(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    before = {path: path.stat() for path in (tmp_path / "run/tiles").rglob("c/**/*")}
    outcome = daskfs("run", write_job(tmp_path, right), "--json", "--set", "cluster.memory_limit=800MiB")
    assert "this run takes over the directory and its tiles.\n" in outcome.err
    assert outcome.json["recomputed"] == {"score": 1, "rank": 1}
    assert before
    assert {path: path.stat().st_mtime_ns for path in before} == {p: s.st_mtime_ns for p, s in before.items()}


@pytest.mark.parametrize("change", ["missing", "task", "copy"])
def test_tiles_of_other_data_or_read_otherwise_are_made_again(tmp_path: Path, change: str) -> None:
    wrong, right, _ = criterion_of_classes(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    np.save(tmp_path / "copy.npy", matrix())
    keys = {"missing": {"missing": "mean"}, "task": {"task": "regression"}, "copy": {"source": f"{tmp_path}/copy.npy"}}
    right["data"] = {**right["data"], **keys[change]}
    outcome = daskfs("run", write_job(tmp_path, right), "--json")
    assert outcome.err.count("this run takes over the directory.\n") == 1
    assert {"labels", "ingest", "columns", "score", "rank"} <= outcome.json["recomputed"].keys()
    assert without_records(tmp_path / "run") == ran_afresh(tmp_path, right)


def test_tiles_that_are_another_store_are_not_touched(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    np.save(tmp_path / "y.npy", labels() + 0.5)
    tiles = [tmp_path / "a.zarr", tmp_path / "b.zarr"]
    for path in tiles:
        assert daskfs("convert", tmp_path / "X.npy", path, "--labels", tmp_path / "y.npy", "--workers", 0).code == 0
    job["data"] = {"source": str(tiles[0])}
    assert daskfs("run", write_job(tmp_path, job), "-q").code == INPUT
    before = [without_records(path) for path in tiles]
    job |= {"data": {"source": str(tiles[1])}, "methods": ["VarianceScore"]}
    outcome = daskfs("run", write_job(tmp_path, job), "--json")
    assert outcome.json["recomputed"] == {"score": 1, "rank": 1}
    assert json.loads((tmp_path / "run/plan.json").read_text())["tiles_url"] == str(tiles[1])
    assert [without_records(path) for path in tiles] == before
    own = ("--set", f"data.source={tmp_path}/own/tiles", "--set", f"output.path={tmp_path}/own")
    (tmp_path / "own/tiles").mkdir(parents=True)
    refused(daskfs("run", tmp_path / "job.yaml", "-q", *own), USAGE, "data.source", "lies in output.path")


@pytest.mark.parametrize("file", ["data", "graph"])
def test_a_corrected_file_under_the_same_job(tmp_path: Path, file: str) -> None:
    job, _, _ = nan(tmp_path)
    if file == "graph":
        np.save(tmp_path / "X.npy", matrix())
        job |= {"methods": ["LaplacianScore"], "graph": {"precomputed": str(tmp_path / "S.npz")}}
        ring = sp.csr_matrix(np.roll(np.eye(N_SAMPLES), 1, axis=0) + np.roll(np.eye(N_SAMPLES), -1, axis=0))
        sp.save_npz(tmp_path / "S.npz", ring * np.nan)
    path = write_job(tmp_path, job)
    assert daskfs("run", path, "-q").code == INPUT
    if file == "graph":
        sp.save_npz(tmp_path / "S.npz", ring)
    else:
        np.save(tmp_path / "X.npy", matrix())
    changed = tmp_path / ("S.npz" if file == "graph" else "X.npy")
    os.utime(changed, ns=(1, 1))
    outcome = daskfs("run", path, "--json")
    assert outcome.code == 0, outcome.err
    assert f"{changed} changed since the run in {tmp_path}/run began. Nothing was scored in it: " in outcome.err
    assert ("ingest" in outcome.json["recomputed"]) == (file == "data")
    assert without_records(tmp_path / "run") == ran_afresh(tmp_path, job)
    os.utime(changed, ns=(2, 2))
    refused(daskfs("run", path, "-q"), INPUT, f"{changed} changed since the run", "--overwrite")


def test_a_run_of_another_daskfs_gives_way_too(tmp_path: Path) -> None:
    wrong, right, _ = criterion_of_classes(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    manifest = json.loads((tmp_path / "run/run.json").read_text())
    manifest |= {"daskfs_version": "0.0.1", "tiles": {"of": "old"}}
    write_document(tmp_path / "run/run.json", manifest)
    outcome = daskfs("run", write_job(tmp_path, right))
    assert outcome.code == 0, outcome.err
    assert "was begun by daskfs 0.0.1, this is " in outcome.err
    assert without_records(tmp_path / "run") == ran_afresh(tmp_path, right)


# ----------------------------------------------------------------------------------------------- what does not give way
class StopAt(Stop):
    """Stops a run at the n-th unit of stages of one name, as runs over batches have them too."""

    def __init__(self, stage: str, times: int = 1) -> None:
        super().__init__(stage, 0)
        self.left = times

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        stage = replace(stage, name=stage.name.partition(" of batch ")[0])
        self.left -= stage.name == self.stage
        if self.left == 0:
            super().unit_done(stage, unit, facts)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a run, but who has its lock."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != layout.LOCK}


@pytest.mark.parametrize("stage", ["neighbors-euclidean", "score", "rank"])
def test_what_was_found_after_the_tiles_is_not_lost(tmp_path: Path, stage: str) -> None:
    job = basic_job(tmp_path, methods=["LaplacianScore", "FisherScore"])
    with pytest.raises(RunStoppedError):
        run_job(load_job(write_job(tmp_path, job)), StopAt(stage))
    before = files_of(tmp_path / "run")
    other = write_job(tmp_path, {**job, "methods": ["FisherScore"]})
    refused(daskfs("run", other, "-q"), INPUT, "holds a run of another job", "methods: ", "--overwrite")
    os.utime(tmp_path / "X.npy", ns=(1, 1))
    refused(daskfs("run", write_job(tmp_path, job), "-q"), INPUT, "X.npy changed since the run", "--overwrite")
    assert files_of(tmp_path / "run") == before


def test_a_finished_run_whose_records_are_gone_is_not_lost(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    shutil.rmtree(tmp_path / "run/records")
    before = files_of(tmp_path / "run")
    other = write_job(tmp_path, {**job, "methods": ["FisherScore"]})
    refused(daskfs("run", other, "-q"), INPUT, "holds a run of another job", "--overwrite")
    assert files_of(tmp_path / "run") == before


@pytest.mark.parametrize(("stage", "times"), [("ingest", 1), ("ingest", 2), ("score", 1)])
def test_a_stopped_run_gives_way_until_a_batch_has_scores(tmp_path: Path, stage: str, times: int) -> None:
    job = basic_job(tmp_path)
    (tmp_path / "batch.txt").write_text("\n".join("ab"[i % 2] for i in range(N_SAMPLES)))
    job["data"]["batch"] = str(tmp_path / "batch.txt")
    with pytest.raises(RunStoppedError):
        run_job(load_job(write_job(tmp_path, job)), StopAt(stage, times))
    before = files_of(tmp_path / "run")
    right = {**job, "methods": ["FisherScore"]}
    outcome = daskfs("run", write_job(tmp_path, right), "--json")
    if stage == "score":
        refused(outcome, INPUT, "holds a run of another job", "methods: ")
        assert files_of(tmp_path / "run") == before
        return
    assert outcome.code == 0, outcome.err
    assert "ingest" not in outcome.json["recomputed"]
    assert outcome.json["recomputed"]["batch a, ingest"] == 1
    new, found = ran_afresh(tmp_path, right), without_records(tmp_path / "run")
    assert (found.keys(), found["ranking.csv"]) == (new.keys(), new["ranking.csv"])


def test_nothing_is_taken_over_in_use_or_by_a_job_that_cannot_run(tmp_path: Path) -> None:
    wrong, right, _ = nan(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    before = files_of(tmp_path / "run")
    with (tmp_path / "run" / layout.LOCK).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        at_once = ("--set", "cluster.wait_seconds=.1")
        held_by = "another daskfs process is running in"
        refused(daskfs("run", write_job(tmp_path, right), "-q", *at_once), CLUSTER, held_by)
    path = write_job(tmp_path, {**right, "select": {"n_features": 99}})
    refused(daskfs("run", path, "-q"), USAGE, "select.n_features is 99")
    assert files_of(tmp_path / "run") == before


# --------------------------------------------------------------------------------------------------------------- kills
class Killed(BaseException):
    """Ends a process between two steps."""


@pytest.mark.parametrize(
    ("mistake", "point"),
    [
        (nan, layout.TILES_DIR),
        (nan, layout.RUN_JSON),
        (criterion_of_classes, layout.PLAN_JSON),
        (criterion_of_classes, layout.RUN_JSON),
    ],
)
def test_a_kill_while_a_directory_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Path], tuple[Job, Job, str]], point: str
) -> None:
    wrong, right, _ = mistake(tmp_path)
    assert daskfs("run", write_job(tmp_path, wrong), "-q").code == INPUT
    manifest = (tmp_path / "run/run.json").read_bytes()

    remove = LocalPath.remove

    def remove_some(path: LocalPath) -> None:
        if path.name == point:
            remove(path / "labels" if path.is_dir() else path)
            raise Killed
        remove(path)

    def write_none(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(LocalPath, "remove", remove_some)
        patched.setattr(Store, "write_json", write_none)
        with pytest.raises(Killed):
            daskfs("run", write_job(tmp_path, right), "-q")
    assert (tmp_path / "run/run.json").read_bytes() == manifest
    again = shutil.copytree(tmp_path / "run", tmp_path / "copy")
    outcome = daskfs("run", write_job(tmp_path, right), "-q")
    assert outcome.code == 0, outcome.err
    assert without_records(tmp_path / "run") == ran_afresh(tmp_path, right)
    # the job before goes on from there too, to where it was refused
    shutil.rmtree(tmp_path / "run")
    again.rename(tmp_path / "run")
    outcome = daskfs("run", write_job(tmp_path, wrong), "-q")
    before, _, file = json.loads(manifest)["error"].rpartition("(")  # each failure has a file of its own
    assert (outcome.code, outcome.err.rpartition("(")[0]) == (INPUT, f"daskfs: {before}")
    assert "failures" in file


def test_a_run_is_started_over_beside_other_files(tmp_path: Path) -> None:
    """Which stay, whether or not the run before was finished."""
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert daskfs("run", job, "-q", "--overwrite").code == 0
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
