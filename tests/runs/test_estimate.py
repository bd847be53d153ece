"""Estimates of time: how the seconds of parts are scaled, and what ``daskfs plan --estimate`` shows of a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import estimate_job
from daskfs.criteria.slab import SCORE_STAGE
from daskfs.graph.neighbors import NEIGHBORS_STAGE
from daskfs.graph.partitioned_search import BUILD_STAGE
from daskfs.job.job import load_job
from daskfs.runs import estimate
from daskfs.runs.estimate import Measured, _in_form_of, _in_turn, _scale_seconds, _stage_seconds, _work
from daskfs.runs.status import planned_run
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from tests.cli.command import daskfs, refused
from tests.execution.runs import write_job


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "SAMPLE_ROWS", 800)
    monkeypatch.setattr(estimate, "FIRST_ROWS", 100)
    monkeypatch.setattr(estimate, "PART_GROUP_ROWS", 100)


def job_file(folder: Path, n_samples: int = 4000, **blocks: Any) -> Path:
    source = f"synthetic:mixture?n_samples={n_samples}&n_features=24&n_classes=3"
    own = {"evaluate": None, "cluster": {"workers": 0}, **blocks}
    return write_job(folder, source, **own)


def staged(kind: StageKind[Any] = SCORE_STAGE, n_units: int = 1, **own: Any) -> Stage:
    return Stage.of(kind, own.pop("name", kind.name), n_units, StageParameters(), (), **own)


@pytest.mark.parametrize(("each", "work"), [(0.5, 3.0), (0.0, 2.0), (4.0, 0.0)])
def test_seconds_are_those_of_units_and_of_work(each: float, work: float) -> None:
    """Found from parts of other sizes exactly, if a stage takes a time for each unit and one for its rows."""
    parts = [Measured(n, float(rows), 2, 2 * (each * n + work * rows)) for n, rows in ((1, 10), (3, 40))]
    found = _scale_seconds(staged(n_units=50), 1000, parts)
    assert found.seconds == pytest.approx(2 * (50 * each + 1000 * work))
    assert (found.n_units, found.rounds) == (50, 2)


def test_one_part_is_scaled_by_its_work() -> None:
    exact = staged(NEIGHBORS_STAGE, 4)
    assert _scale_seconds(exact, 3000, [Measured(2, _work(exact, 1000), 1, 7.0)]).seconds == pytest.approx(63.0)


def test_stages_follow_each_other_unless_they_begin_with_an_earlier_one() -> None:
    a, b, c = (staged(name=name) for name in "abc")
    beside = staged(name="beside", begins_with="a")
    assert _in_turn([a, b, c], [1, 2, 3]) == 6
    assert _in_turn([a, beside, b, c], [4, 1, 2, 3]) == 9
    assert _in_turn([a, beside, b, c], [4, 7, 2, 3]) == 12
    assert _in_turn([a, b, c, beside], [1, 2, 3, 20]) == 20


@pytest.mark.parametrize(
    ("n_units", "bandwidth", "bound", "seconds"),
    [
        (1, None, "one unit", 2.0),
        (3, None, "few units", 2.0),
        (9, None, "computing", 6.0),
        (9, 10, "storage", 12.0),
        (100_000, 10**9, "computing", 50_000.0),
    ],
)
def test_what_a_stage_is_bound_by(n_units: int, bandwidth: int | None, bound: str, seconds: float) -> None:
    stage = staged(n_units=n_units, bytes_read=100, bytes_written=20)
    found = _stage_seconds(stage, Measured(n_units, 1.0, 1, 2.0 * n_units), 4, bandwidth)
    assert (found["bound"], found["seconds"]) == (bound, pytest.approx(seconds))
    quick = _stage_seconds(stage, Measured(n_units, 1.0, 1, 0.0), 4, None)
    assert (quick["bound"], quick["seconds"]) == ("driver", pytest.approx(n_units * estimate.DRIVER_SECONDS))


def test_a_part_has_the_groups_and_slabs_of_the_whole(tmp_path: Path) -> None:
    def planned(n_samples: int) -> dict[str, Stage]:
        cluster = {"workers": 2, "memory_limit": "2GiB"}
        job = load_job(job_file(tmp_path, n_samples, cluster=cluster, graph={"engine": "cells", "n_neighbors": 5}))
        return {stage.name.partition("-")[0]: stage for stage in planned_run(job).stages}

    whole, part = planned(20_000_000), planned(20_000)
    for name in ("build", "score"):
        assert part[name].n_units < whole[name].n_units
        adapted = _in_form_of(whole[name], part[name], 200_000)
        assert adapted.n_units == whole[name].n_units
        assert adapted.is_of(BUILD_STAGE, SCORE_STAGE)


@pytest.mark.usefixtures("small_parts")
def test_estimate_of_more_rows_than_are_ranked(tmp_path: Path) -> None:
    job = job_file(tmp_path, graph={"engine": "cells", "n_neighbors": 5}, methods=["LaplacianScore", "FisherScore"])
    found = estimate_job(load_job(job))
    assert found["estimate"]["rows"] == 800
    assert {stage["stage"] for stage in found["stages"]} >= {"ingest", "build-euclidean", "score", "rank"}
    assert all(np.isfinite(stage["seconds"]) and stage["seconds"] > 0 for stage in found["stages"])
    assert found["estimate"]["seconds"] > found["estimate"]["start_seconds"] > 0
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("n_samples", [600, 4000])
@pytest.mark.usefixtures("small_parts")
def test_estimate_with_an_evaluation(tmp_path: Path, n_samples: int) -> None:
    """Of data that are ranked whole, and of more."""
    evaluate = {"n_selected": [4], "n_splits": 2, "max_samples": 300, "setting": "both"}
    found = estimate_job(load_job(job_file(tmp_path, n_samples, methods=["VarianceScore"], evaluate=evaluate)))
    seconds = {stage["stage"]: stage["seconds"] for stage in found["stages"]}
    assert seconds["select"] > 0
    assert seconds["evaluate"] > 0


def test_table_of_an_estimate(tmp_path: Path) -> None:
    """Of data that are ranked whole: they are few."""
    job = job_file(tmp_path, 300, methods=["VarianceScore"])
    outcome = daskfs("plan", job, "--estimate", "--bandwidth", "1kB")
    assert outcome.err.count("estimate: ranking 300 of 300 rows") == outcome.err.count("\n") == 1
    lines = outcome.out.splitlines()
    rows = {line.split()[0]: line for line in lines[1:]}
    assert rows["stage"].endswith("bound by")
    assert rows["ingest"].endswith("storage")
    assert rows["ingest"].rindex("storage") == rows["stage"].rindex("bound by")
    assert rows["estimate:"].endswith("with one process, storage of 0 MiB/s; measured here on 300 of 300 rows")
    assert "bound by" not in daskfs("plan", job).out


def test_jobs_that_are_not_estimated(tmp_path: Path) -> None:
    representation = {"use_rep": "sklearn:iris"}
    refused(daskfs("plan", job_file(tmp_path, graph=representation), "--estimate"), 2, "graph.use_rep", "leave it out")
    refused(daskfs("plan", job_file(tmp_path), "--bandwidth", "1GB"), 2, "--bandwidth is for --estimate")
    refused(daskfs("plan", job_file(tmp_path), "--estimate", "--bandwidth", "fast"), 2, "--bandwidth", "'fast'")
