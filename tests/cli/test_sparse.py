"""Sparse data end to end through the command line: what every criterion makes of CSR tiles it makes of dense ones."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.criteria.registry import criteria
from daskfs.kernels.labels import Task
from daskfs.runs import tiles as planned_tiles
from daskfs.tiles.shapes import plan_shape

from .command import daskfs, rows_of, write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 420, 14
SETTINGS: dict[str, dict[str, Any]] = {
    "SVMRFE": {"step": 0.5, "n_singly": 2},
    **{name: {"max_iter": 10} for name in ("RLSR", "DSSFS", "SSUFS")},
}


def methods_for(task: Task) -> list[dict[str, Any]]:
    """Return every registered criterion that the task allows, so that new ones come by themselves."""
    return [{"name": name, **SETTINGS.get(name, {})} for name, one in criteria().items() if task in one.tasks]


@cache
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, two thirds of them 0, with a constant column; classes and a target of which a few are known."""
    rng = np.random.default_rng(4)
    classes = np.arange(N_SAMPLES) % 3
    rates = rng.uniform(0.1, 0.8, (3, N_FEATURES)) * np.linspace(1, 3, N_FEATURES)
    X = (rng.poisson(rates[classes]) * rng.uniform(0.5, 2, (N_SAMPLES, N_FEATURES))).astype(np.float32)
    X[:, 5] = 0
    known = rng.random(N_SAMPLES) < 0.3
    target = X[:, 0] + 2 * X[:, 3] + rng.normal(size=N_SAMPLES)
    return X, np.where(known, classes, -1), np.where(known, target, np.nan)


def run(folder: Path, form: str, task: Task, graph: dict[str, Any]) -> Path:
    """Run a job on one form of the data; return the directory of the run."""
    X, classes, target = data()
    source = folder / ("X.npy" if form == "dense" else f"{form}.npz")
    np.save(source, X) if form == "dense" else sp.save_npz(source, sp.csr_matrix(X).asformat(form))
    np.save(folder / "y.npy", classes if task == "classification" else target)
    output = folder / form
    job = {
        "data": {"source": str(source), "labels": str(folder / "y.npy"), "task": task},
        "methods": methods_for(task),
        "graph": {"n_neighbors": 5, **graph},
        "select": {"n_features": 6, "redundancy": {"threshold": 0.8}},
        "evaluate": {"n_selected": 4, "n_splits": 2, "models": ["knn"]},
        "cluster": {"workers": 0},
        "output": {"path": str(output)},
    }
    outcome = daskfs("run", write_job(folder, job), "-q", "--json")
    assert outcome.code == 0, outcome.err
    return output


@pytest.mark.parametrize("task", [pytest.param("classification", marks=pytest.mark.long), "regression"])
@pytest.mark.parametrize("engine", ["exact", pytest.param("cells", marks=pytest.mark.long)])
def test_rankings_of_sparse_tiles_are_those_of_dense_ones(
    tmp_path: Path, engine: str, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores up to rounding, the order to the place, notes and evaluation to the letter."""
    monkeypatch.setattr(
        planned_tiles,
        "plan_shape",
        lambda *given: dataclasses.replace(plan_shape(*given), tile_rows=128, tile_columns=6),
    )
    graph = {"engine": engine, "recall": 0.999} if engine == "cells" else {"engine": engine}
    sparse, dense = (run(tmp_path, form, task, graph) for form in ("csr", "dense"))
    rankings = [rows_of(folder / "ranking.csv") for folder in (sparse, dense)]
    keys = ("method", "rank", "feature", "note")
    orders = [[[row[key] for key in keys] for row in ranking] for ranking in rankings]
    assert orders[0] == orders[1]
    assert {row["method"] for row in rankings[0]} == {method["name"] for method in methods_for(task)}
    for one, other in zip(*rankings, strict=True):
        if one["score"] or other["score"]:
            assert float(one["score"]) == pytest.approx(float(other["score"]), rel=1e-6, abs=1e-9), one
    for name in ("selected_features.csv", "evaluation.csv"):
        tables = [[{**row, "score": ""} for row in rows_of(folder / name)] for folder in (sparse, dense)]
        assert tables[0] == tables[1], name
        assert tables[0]
