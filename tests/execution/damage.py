"""Damaging the files of a run, every kind of them, in every way that disks and people do."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import open_run
from daskfs.errors import StoreError
from daskfs.execution.progress import Silent
from daskfs.stages.stage import Stage
from tests.cli.command import daskfs, refused
from tests.execution.runs import records, write_job

N_SAMPLES, N_FEATURES = 4500, 96
METHODS = [
    "LaplacianScore",
    "FisherScore",
    "SSelect",
    {"name": "RLSR", "max_iter": 3},
    {"name": "SVMRFE", "step": 0.9},
]
EVALUATE = {"setting": "transductive", "n_selected": [4], "max_samples": 300, "models": ["knn"]}
OUTPUTS = ("ranking.csv", "selected_features.csv", "evaluation.csv", "ranking.parquet", "evaluation_summary.csv")


def write_data(folder: Path) -> Path:
    """Write X.npz: X in three slabs and two bands, labels of every fifteenth row, weights and names."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, N_SAMPLES)
    X = rng.standard_normal((N_SAMPLES, N_FEATURES))
    X[:, :8] += classes[:, None]
    y = np.where(np.arange(N_SAMPLES) % 15 == 0, classes, -1)
    names = np.array([f"f{i}" for i in range(N_FEATURES)])
    np.savez(folder / "X.npz", X=X, y=y, w=rng.integers(1, 3, N_SAMPLES), names=names)
    return folder / "X.npz"


def storage_job(folder: Path, **blocks: Any) -> Path:
    """Write data and a job whose run leaves files of almost every kind."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"source": str(write_data(folder)), "labels": "y", "weights": "w", "feature_names": "names"}
    job = {"data": data, "methods": METHODS, "cluster": {"workers": 0}, "evaluate": EVALUATE, **blocks}
    return write_job(folder, "", **job)


def run_quietly(job: Path, *arguments: object) -> dict[str, Any]:
    """Run a job in this process and return what ``--json`` prints."""
    outcome = daskfs("run", job, "--json", "-q", *arguments)
    assert outcome.code == 0, outcome.err
    result: dict[str, Any] = outcome.json
    return result


def verified(folder: Path | str, *arguments: object) -> dict[str, Any]:
    """Return what ``daskfs verify --json`` prints; its exit code says whether there are problems."""
    outcome = daskfs("verify", folder, "--json", "-q", *arguments)
    result: dict[str, Any] = outcome.json
    assert (outcome.code, bool(outcome.err)) == ((3, True) if result["problems"] else (0, False)), outcome.err
    return result


def status_of(run: Path | str) -> dict[str, Any]:
    """Return what ``daskfs status --json`` prints, after comparing it with what all others say of an unfinished run."""
    outcome, shown = daskfs("status", run, "--json"), daskfs("status", run)
    status: dict[str, Any] = outcome.json
    assert (outcome.code, shown.code, outcome.err, shown.err) == (0, 0, "", "")
    assert shown.out.splitlines()[0] == f"{run}: {status['state']}"
    assert status["state"].startswith(status["status"])
    for name, batch in status["batches"].items():
        (line,) = [line for line in shown.out.splitlines() if line.startswith(f"batch {name}")]
        assert line.endswith(f", {batch['status']}")
    words = f"the run in {run} is not finished ({status['state']}): 'daskfs status {run}' shows how far it is"
    refused(daskfs("report", run), 3, words)
    refused(daskfs("export", run, f"{run}.npz"), 3, words)
    with pytest.raises(StoreError) as caught:
        open_run(run)
    assert words in str(caught.value)
    checked = verified(run)
    assert checked["status"] == status["status"]
    is_told = any(f"is not finished: {status['state']}" in note for note in checked["notes"])
    is_running = any("a process is running" in note for note in checked["notes"])
    assert (is_told, is_running) == (status["status"] != "running", status["status"] == "running")
    return status


def kind_of(name: str) -> str:
    """Return what files of one kind have in common: their name without the numbers of chunks, units and bands."""
    return re.sub(r"(?<=[/-])\d+(?=[./-]|$)", "#", name)


def one_of_each_kind(folder: Path) -> dict[str, Path]:
    """Return a file of each kind that a run's records name, by kind: the last one, which lies at an edge."""
    found: dict[str, Path] = {}
    for where, record in records(folder).items():
        root = folder / where.rpartition(f"/{record['stage']}/")[0]
        for name in (*record["chunks"], *record["objects"]):
            if (root / name).exists():
                found[kind_of(str((root / name).relative_to(folder)))] = root / name
    return found


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def delete(path: Path) -> None:
    path.unlink()


def make_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def overwrite_by_a_neighbor(path: Path) -> None:
    """Put another whole file in its place: one of the same size if there is any, from as near as there is one."""
    own = path.read_bytes()
    others: list[Path] = []
    for folder in list(path.parents)[:6]:
        others = others or sorted(p for p in folder.rglob("*") if p.is_file() and p.read_bytes() not in (own, b""))
    same_size = [p for p in others if p.stat().st_size == len(own)]
    shutil.copyfile((same_size or others)[0], path)


WAYS: dict[str, Callable[[Path], None]] = {
    "truncated": truncate,
    "flipped": flip,
    "emptied": empty,
    "deleted": delete,
    "directory": make_directory,
    "neighbor": overwrite_by_a_neighbor,
}


class Damage(Silent):
    """Damages files when a unit is done, and keeps what is said.

    Parameters
    ----------
    moments
        By stage and unit: what to do, once.
    """

    def __init__(self, moments: dict[tuple[str, int], Callable[[], None]]) -> None:
        self.moments = moments
        self.said: list[str] = []

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del facts
        act = self.moments.pop((stage.name, unit), None)
        if act is not None:
            act()

    def message(self, text: str) -> None:
        self.said.append(text)
