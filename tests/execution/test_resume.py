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


@pytest.mark.parametrize(("stage", "n_units"), MOMENTS)
def test_killed_driver(undisturbed: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    job = make_job(tmp_path)
    with started(job) as process:
        wait_for_units(process, stage, n_units)
        kill(process)
    assert not (tmp_path / "run" / "report.html").exists()
    before = records(tmp_path / "run")
    assert len(before) >= n_units
    result = run(job)
    after = records(tmp_path / "run")
    assert {name: after[name] for name in before} == before, "a recorded unit ran again"
    assert sum(result["recomputed"].values()) == n_planned_units(tmp_path / "run") - len(before)
    for name in OUTPUTS:
        assert (tmp_path / "run" / name).read_bytes() == (undisturbed / name).read_bytes()


@pytest.mark.parametrize(("stage", "n_units"), MOMENTS[1:])
def test_killed_worker(undisturbed: Path, tmp_path: Path, stage: str, n_units: int) -> None:
    with started(make_job(tmp_path)) as process:
        wait_for_units(process, stage, n_units)
        worker_processes(process)[0].send_signal(signal.SIGKILL)
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    reported = [(event["stage"], event["unit"]) for event in events]
    assert len(reported) == len(set(reported)) == n_planned_units(tmp_path / "run")
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
