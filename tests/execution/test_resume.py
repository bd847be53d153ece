"""A run that is stopped, or damaged, and started again ends with the same bytes and repeats only what is missing. Kills
at every stage are in :mod:`tests.execution.test_kills`.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from daskfs.stages.kind import name_of
from tests.cli.command import daskfs
from tests.events import read_events
from tests.execution.runs import (
    HERE,
    lose_record,
    n_planned_units,
    run,
    run_here,
    started,
    wait_for_units,
    worker_processes,
    write_job,
)

pytestmark = [pytest.mark.cluster, pytest.mark.long]

SOURCE = "synthetic:mixture?n_samples=16500&n_features=128&n_classes=4&n_informative=16&seed=3"
EVALUATE = {"setting": "transductive", "n_selected": [4, 8, 16], "max_samples": 1500}
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


def test_killed_worker(undisturbed: Path, tmp_path: Path) -> None:
    """The run ends well, and every unit is done once."""
    folder = tmp_path / "run"
    with started(make_job(tmp_path)) as process:
        wait_for_units(process, "neighbors", 2)
        worker_processes(process)[0].send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    reported = [(event["stage"], event["unit"]) for event in read_events(folder)]
    assert len(reported) == len(set(reported)) == n_planned_units(folder)
    for name in OUTPUTS:
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


def test_terminated_driver_says_75_and_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with started(job) as process:
        wait_for_units(process, "neighbors", 1)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 75, errors
    assert "SIGTERM" in errors
    run_here(job)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == (undisturbed / "ranking.csv").read_bytes()


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Job of a finished run, of no worker and one thread, whose outputs tests damage and make again."""
    job = make_job(tmp_path_factory.mktemp("repaired"))
    run_here(job)
    return job


def test_same_bytes_without_workers(undisturbed: Path, repaired: Path) -> None:
    for name in OUTPUTS:
        assert (repaired.parent / "run" / name).read_bytes() == (undisturbed / name).read_bytes()


def test_damaged_outputs_are_made_again(undisturbed: Path, repaired: Path) -> None:
    """A deleted chunk, a truncated chunk and a lost record: exactly the units behind them run again."""
    job, folder = repaired, repaired.parent / "run"
    (folder / "tiles/X/c/0/3").unlink()
    chunk = folder / "scores/LaplacianScore/c/0/2"
    chunk.write_bytes(chunk.read_bytes()[:-20])
    lose_record(folder, "evaluate", 4)
    result = run_here(job)
    assert result["recomputed"] == {"ingest": 1, "score": 1, "evaluate": 1}
    for name in OUTPUTS:
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


def test_damage_of_the_same_size_is_found_and_made_again(undisturbed: Path, repaired: Path) -> None:
    job, folder = repaired, repaired.parent / "run"
    ranking = folder / "ranking.csv"
    ranking.write_bytes(ranking.read_bytes().replace(b"0.", b"1.", 1))
    shard = folder / "edges/euclidean-5/of/0-0.bin"
    content = bytearray(shard.read_bytes())
    content[100] ^= 1
    shard.write_bytes(content)
    lose_record(folder, "edges-summary-euclidean-5", 0)
    outcome = daskfs("run", job, "--json", *HERE)
    assert outcome.code == 0
    assert f"{shard} is damaged" in outcome.err
    assert outcome.json["recomputed"] == {"edges-euclidean-5": 1, "edges-summary-euclidean-5": 1, "rank": 1}
    for name in OUTPUTS:
        assert (folder / name).read_bytes() == (undisturbed / name).read_bytes()


# --------------------------------------------------------------------------- an approximate search
GROUPED = "synthetic:mixture?n_samples=21000&n_features=40&n_classes=4&n_informative=16&seed=3"
SEARCH = {"cells", "assign", "build", "merge", "recall"}


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
    run_here(grouped_job(folder, cluster={"workers": 0}))
    return folder / "run"


class TestFinishedApproximateSearch:
    """What is left to do in a finished run, before and after some of it is lost."""

    @pytest.fixture
    def folder(self, grouped: Path) -> Path:
        """The run; each test leaves it as it was."""
        return grouped

    def again(self, folder: Path) -> dict[str, int]:
        """Run the job again and return how many units ran, by the kind of their stage."""
        recomputed: dict[str, int] = run_here(folder.parent / "job.yaml")["recomputed"]
        return {name.partition("-")[0]: count for name, count in recomputed.items()}

    def planned(self, folder: Path) -> dict[str, int]:
        stages = json.loads((folder / "plan.json").read_text())["stages"]
        return {name_of(stage["kind"]): stage["n_units"] for stage in stages}

    def test_nothing_is_left(self, folder: Path) -> None:
        assert not spilled_files(folder)
        status = daskfs("status", folder, "--json").json
        assert status["status"] == "done"
        assert {stage["stage"].partition("-")[0] for stage in status["stages"]} >= SEARCH
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

    def test_damaged_lists_are_found_and_made_again(self, folder: Path) -> None:
        before = graph_files(folder)
        chunk = folder / "knn/euclidean/indices/c/2/0"
        content = bytearray(chunk.read_bytes())
        content[100] ^= 1
        chunk.write_bytes(content)
        for record in folder.glob("records/edges-euclidean-*/*.json"):
            record.unlink()
        assert self.again(folder)["merge"] == 1
        assert graph_files(folder) == before
