"""Jobs of SVMRFE whose route the memory of a worker decides: what is planned stays, whatever the memory is later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daskfs import make_job as make_loaded
from daskfs import run_job
from daskfs.errors import MemoryPlanError, RunStoppedError
from daskfs.execution.progress import Silent
from daskfs.job.job import Job
from daskfs.runs.status import plan_job
from daskfs.stages.stage import Stage
from tests.execution.runs import write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_LABELED = 20_000, 1500
LITTLE, MUCH = "500MiB", "1GiB"
METHODS = [{"name": "SVMRFE", "step": 0.7, "n_singly": 2, "n_landmarks": 20, "C": 1.0}]


class Stop(Silent):
    """Stops a run when a stage has done some units."""

    def __init__(self, stage: str, count: int) -> None:
        self.stage, self.count = stage, count

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del unit, facts
        self.count -= stage.name.startswith(self.stage)
        if self.count == 0:
            msg = "stopped."
            raise RunStoppedError(msg)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with X.npy and y.npy, of whose rows some have a label: more than may be trained with in little memory."""
    folder, rng = tmp_path_factory.mktemp("routes"), np.random.default_rng(0)
    X = rng.normal(size=(N_SAMPLES, 6)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    y[N_LABELED:] = -1
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    return folder


def job_of(data: Path, folder: Path, limit: str, methods: list[dict[str, Any]] = METHODS) -> Job:
    source = {"source": str(data / "X.npy"), "labels": str(data / "y.npy"), "task": "classification"}
    cluster = {"workers": 0, "memory_limit": limit}
    path = write_job(folder, "replaced", data=source, methods=methods, cluster=cluster, evaluate=None)
    return make_loaded(yaml.safe_load(path.read_text()))


def route_of(folder: Path) -> str:
    (path,) = (folder / "run/solutions").glob("*/elimination.json")
    return str(json.loads(path.read_text())["route"])


def planned_route(job: Job) -> str:
    (found,) = plan_job(job)["eliminations"]
    return str(found["route"])


def test_memory_decides_and_the_plan_says_so(data: Path, tmp_path: Path) -> None:
    """Once labels are counted: before, they may all be there."""
    for limit, route in ((LITTLE, "landmarks"), (MUCH, "exact")):
        job = job_of(data, tmp_path / limit, limit)
        assert planned_route(job) == "landmarks"
        run_job(job)
        assert route_of(tmp_path / limit) == planned_route(job) == route


def test_stopped_run_keeps_its_route(data: Path, tmp_path: Path) -> None:
    run_job(job_of(data, tmp_path / "whole", LITTLE))
    with pytest.raises(RunStoppedError):
        run_job(job_of(data, tmp_path / "stopped", LITTLE), Stop("svm-sums", 2))
    more = job_of(data, tmp_path / "stopped", MUCH)
    assert planned_route(more) == "landmarks"
    run_job(more)
    assert route_of(tmp_path / "stopped") == "landmarks"
    names = ("ranking.csv", "solutions/SVMRFE/elimination.json")
    for name in names:
        assert (tmp_path / "stopped/run" / name).read_bytes() == (tmp_path / "whole/run" / name).read_bytes()


def test_stopped_run_that_fits_no_more_says_what_it_takes(data: Path, tmp_path: Path) -> None:
    with pytest.raises(RunStoppedError):
        run_job(job_of(data, tmp_path, MUCH), Stop("svm-judge", 1))
    with pytest.raises(MemoryPlanError, match=r"stage svm-judge needs .* large_n 'landmarks' takes as much memory"):
        run_job(job_of(data, tmp_path, LITTLE))
    run_job(job_of(data, tmp_path, MUCH))
    assert route_of(tmp_path) == "exact"


def test_bounds_of_few_rows_among_many_are_not_refused(data: Path, tmp_path: Path) -> None:
    """20,000 labeled rows would take 16 GB, and nobody knows how many there are before they are read."""
    bound = [{**METHODS[0], "criterion": "rmb", "slack": "frozen"}]
    run_job(job_of(data, tmp_path, MUCH, bound))
    assert route_of(tmp_path) == "exact"
