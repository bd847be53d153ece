"""A run that is killed and started again ends with the same bytes and repeats only what was in flight."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.execution.runs import (
    command,
    kill,
    n_planned_units,
    records,
    run,
    started,
    wait_for_units,
    worker_processes,
    write_job,
)

pytestmark = pytest.mark.cluster

SOURCE = "synthetic:mixture?n_samples=20000&n_features=128&n_classes=4&n_informative=16&seed=3"
EVALUATE = {"n_selected": [4, 8, 16], "max_samples": 1500}
MOMENTS = [("ingest", 1), ("neighbors", 2), ("score", 2), ("evaluate", 2)]
OUTPUTS = ("ranking.csv", "selected_features.csv", "evaluation.csv")


def make_job(folder: Path) -> Path:
    methods = ["LaplacianScore", "FisherScore", "VarianceScore"]
    return write_job(folder, SOURCE, methods=methods, evaluate=EVALUATE)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run(make_job(folder))
    return folder / "run"


def assert_goes_on(folder: Path, job: Path, stage: str, n_units: int) -> None:
    """Kill the driver when so many units of a stage are done, and run again: no recorded unit runs twice."""
    with started(job) as process:
        wait_for_units(process, stage, n_units)
        kill(process)
    assert not (folder / "report.html").exists()
    before = records(folder)
    assert len(before) >= n_units
    result = run(job)
    after = records(folder)
    assert {name: after[name] for name in before} == before, "a recorded unit ran again"
    assert sum(result["recomputed"].values()) == n_planned_units(folder) - len(before)


def assert_gets_by(folder: Path, job: Path, stage: str, n_units: int) -> None:
    """Kill a worker when so many units of a stage are done: the run ends well, and every unit is done once."""
    with started(job) as process:
        wait_for_units(process, stage, n_units)
        worker_processes(process)[0].send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    reported = [(event["stage"], event["unit"]) for event in events]
    assert len(reported) == len(set(reported)) == n_planned_units(folder)


@pytest.mark.parametrize(("stage", "n_units"), MOMENTS)
def test_killed_driver(undisturbed: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    assert_goes_on(tmp_path / "run", make_job(tmp_path), stage, n_units)
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.parametrize(("stage", "n_units"), MOMENTS[1:])
def test_killed_worker(undisturbed: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    assert_gets_by(tmp_path / "run", make_job(tmp_path), stage, n_units)
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()


def test_terminated_driver_says_75_and_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with started(job) as process:
        wait_for_units(process, "neighbors", 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 75, errors
    assert "SIGTERM" in errors
    run(job)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == (undisturbed / "ranking.csv").read_bytes()


@pytest.mark.parametrize(("workers", "threads"), [(0, 1), (0, 3), (1, 1), (1, 2)])
def test_same_bytes_for_any_number_of_workers(undisturbed: Path, tmp_path: Path, workers: int, threads: int) -> None:
    job = make_job(tmp_path)
    run(
        job,
        "--set",
        f"cluster.workers={workers}",
        "--set",
        f"cluster.threads={threads}",
        "--set",
        "cluster.memory_limit=3GiB",
    )
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()


def test_damaged_outputs_are_made_again(undisturbed: Path, tmp_path: Path) -> None:
    """A deleted chunk, a truncated chunk and a record without its data: exactly the units behind them run again."""
    job = make_job(tmp_path)
    run(job)
    folder = tmp_path / "run"
    (folder / "tiles/X/c/0/3").unlink()
    chunk = folder / "scores/LaplacianScore/c/0/2"
    chunk.write_bytes(chunk.read_bytes()[:-20])
    (folder / "evaluation/results/4.json").unlink()
    result = run(job)
    assert result["recomputed"] == {"ingest": 1, "score": 1, "evaluate": 1}
    for name in OUTPUTS:
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


def test_damage_of_the_same_size_is_found_and_made_again(undisturbed: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    run(job)
    folder = tmp_path / "run"
    ranking = folder / "ranking.csv"
    ranking.write_bytes(ranking.read_bytes().replace(b"0.", b"1.", 1))
    chunk = folder / "knn/euclidean/distances/c/1/0"
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    (folder / "records/edges-summary-euclidean-5/000000.json").unlink()
    failed = subprocess.run(command("run", job, "-q"), capture_output=True, text=True, check=False)
    assert failed.returncode == 3
    assert "c/1/0" in failed.stderr
    assert "It was removed" in failed.stderr
    result = run(job)
    assert result["recomputed"]["neighbors-euclidean"] == 1
    assert result["recomputed"]["rank"] == 1
    for name in OUTPUTS:
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


# --------------------------------------------------------------------------- an approximate search
GROUPED = "synthetic:mixture?n_samples=21000&n_features=40&n_classes=4&n_informative=16&seed=3"
GROUPED_MOMENTS = [("cells", 1), ("assign", 2), ("build", 2), ("merge", 2), ("recall", 1)]


def grouped_job(folder: Path, **blocks: object) -> Path:
    graph = {"engine": "cells"}
    return write_job(folder, GROUPED, methods=["LaplacianScore"], graph=graph, evaluate=None, **blocks)


def graph_files(folder: Path) -> dict[str, bytes]:
    """Everything that a search leaves, and the ranking that stands on it."""
    found = {str(path.relative_to(folder)): path for path in (folder / "knn").rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in {**found, "ranking": folder / "ranking.csv"}.items()}


def spilled_files(folder: Path) -> list[Path]:
    return [path for path in (folder / "spill").rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a run with an approximate search that nobody disturbed."""
    folder = tmp_path_factory.mktemp("grouped")
    run(grouped_job(folder, cluster={"workers": 0}))
    return folder / "run"


@pytest.mark.parametrize(
    ("stage", "n_units"),
    [pytest.param(*moment, marks=() if moment[0] == "build" else pytest.mark.long) for moment in GROUPED_MOMENTS],
)
def test_killed_driver_of_an_approximate_search(grouped: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    assert_goes_on(tmp_path / "run", grouped_job(tmp_path), stage, n_units)
    assert graph_files(tmp_path / "run") == graph_files(grouped)
    assert not spilled_files(tmp_path / "run")


@pytest.mark.long
@pytest.mark.parametrize(("stage", "n_units"), GROUPED_MOMENTS)
def test_killed_worker_of_an_approximate_search(grouped: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    assert_gets_by(tmp_path / "run", grouped_job(tmp_path), stage, n_units)
    assert graph_files(tmp_path / "run") == graph_files(grouped)
    assert not spilled_files(tmp_path / "run")


class TestFinishedApproximateSearch:
    """What is left to do in a finished run, before and after some of it is lost."""

    @pytest.fixture
    def folder(self, grouped: Path) -> Path:
        """The run; each test leaves it as it was."""
        return grouped

    def again(self, folder: Path) -> dict[str, int]:
        """Run the job again and return how many units ran, by the kind of their stage."""
        recomputed: dict[str, int] = run(folder.parent / "job.yaml")["recomputed"]
        return {name.partition("-")[0]: count for name, count in recomputed.items()}

    def planned(self, folder: Path) -> dict[str, int]:
        stages = json.loads((folder / "plan.json").read_text())["stages"]
        return {stage["function"]: stage["n_units"] for stage in stages}

    def test_nothing_is_left(self, folder: Path) -> None:
        assert not spilled_files(folder)
        status = json.loads(
            subprocess.run(command("status", folder, "--json"), capture_output=True, text=True, check=True).stdout
        )
        assert status["status"] == "done"
        assert {stage["stage"].partition("-")[0] for stage in status["stages"]} >= {name for name, _ in GROUPED_MOMENTS}
        assert all(stage["done"] == stage["units"] for stage in status["stages"])
        assert self.again(folder) == {}

    def test_lists_that_are_lost_are_found_again(self, folder: Path) -> None:
        """The spilled rows are gone, so that all groups are searched again, but only the lost lists are merged."""
        before = graph_files(folder)
        (folder / "knn/euclidean/indices/c/1/0").unlink()
        units = self.planned(folder)
        assert self.again(folder) == {"assign": units["assign"], "build": units["build"], "merge": 1}
        assert graph_files(folder) == before
        assert not spilled_files(folder)
        assert self.again(folder) == {}

    def test_lost_cells_are_cut_again(self, folder: Path) -> None:
        """To the same bytes: what followed from them stays."""
        before = graph_files(folder)
        (folder / "knn/euclidean/cells/cell_centers/c/0/0").unlink()
        assert self.again(folder) == {"cells": 1}
        assert graph_files(folder) == before

    @pytest.mark.long
    def test_damaged_lists_are_found_and_made_again(self, folder: Path) -> None:
        before = graph_files(folder)
        chunk = folder / "knn/euclidean/indices/c/2/0"
        content = bytearray(chunk.read_bytes())
        content[100] ^= 1
        chunk.write_bytes(content)
        for record in folder.glob("records/edges-euclidean-*/*.json"):
            record.unlink()
        failed = subprocess.run(
            command("run", folder.parent / "job.yaml", "-q"), capture_output=True, text=True, check=False
        )
        assert failed.returncode == 3
        assert "c/2/0" in failed.stderr
        assert self.again(folder)["merge"] == 1
        assert graph_files(folder) == before
