"""Every criterion: given the same graph, tiles, workers and the order of tasks change no bit of any score."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
import zarr

from daskfs import knn_graph, make_job, run_job
from daskfs.execution import waves
from daskfs.kernels.labels import Task
from daskfs.methods.registry import criteria
from tests.execution.runs import run, write_job

N_SAMPLES, N_FEATURES = 1200, 150
ITERATED, ROUNDS = ("RLSR", "SSUFS", "DSSFS"), 8
"""Methods whose rows and solutions take turns, and how often here."""
TASKS: tuple[Task, ...] = ("classification", "regression")
TILES = {"one tile": (N_SAMPLES, N_FEATURES), "columns": (N_SAMPLES, 41), "bands": (256, N_FEATURES), "both": (512, 64)}


def counts() -> np.ndarray:
    """Return whole numbers, mostly 0, whose first columns hang on the row's class; one column is constant."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, (N_SAMPLES, N_FEATURES)).astype(np.float32)
    X[:, :20] += (np.arange(N_SAMPLES) % 3)[:, None] * rng.poisson(0.5, (N_SAMPLES, 20))
    X[:, -1] = 3
    return X


def target(task: Task) -> np.ndarray:
    known = np.random.default_rng(1).random(N_SAMPLES) < 0.15
    if task == "classification":
        return np.where(known, np.arange(N_SAMPLES) % 3, -1)
    X = counts()
    return np.where(known, X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.1 * X[:, 2], np.nan)


def methods(task: Task) -> list[Any]:
    every: list[Any] = [name for name, criterion in criteria().items() if task in criterion.tasks]
    if task == "regression":
        return every
    every = [{"name": name, "max_iter": ROUNDS, "gamma": 20} if name in ITERATED else name for name in every]
    solvers = [
        {"name": "RLSR", "label": solver, "solver": solver, "max_iter": rounds, "gamma": 20}
        for solver, rounds in (("woodbury", ROUNDS), ("cg", 1))
    ]
    return [*every, {"name": "SSelect", "label": "auto", "trade_off": "auto"}, *solvers]


def job_of(folder: Path, source: Path, task: Task, workers: int = 0) -> Path:
    data = {"source": str(source), "labels": "y" if source.suffix == ".npz" else str(folder.parent / f"{task}.npy")}
    return write_job(
        folder,
        "replaced",
        data={**data, "task": task},
        transform={"graph": "zscore"},
        graph={"n_neighbors": 7, "precomputed": str(folder.parent / "graph.zarr")},
        methods=methods(task),
        evaluate=None,
        cluster={"workers": workers},
    )


def scores(folder: Path) -> dict[str, np.ndarray]:
    """Return the whole table of every method."""
    found = {path.name: zarr.open_array(path)[...] for path in (folder / "run" / "scores").iterdir()}
    assert found
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data in several forms, a graph, and scores of the plainest run for each task."""
    folder = tmp_path_factory.mktemp("same")
    X = counts()
    knn_graph(X, 70, graph_scaling="zscore").save(folder / "graph.zarr")
    for name, chunks in TILES.items():
        zarr.create_array(folder / f"{name}.zarr", shape=X.shape, dtype=X.dtype, chunks=chunks)[...] = X
    sparse = sp.csr_matrix(X)
    parts = {"data": sparse.data, "indices": sparse.indices, "indptr": sparse.indptr, "shape": sparse.shape}
    for task in TASKS:
        np.save(folder / f"{task}.npy", target(task))
        np.savez(folder / f"sparse-{task}.npz", y=target(task), **parts)
        run(job_of(folder / f"plain-{task}", folder / "one tile.zarr", task))
    return folder


def assert_same_bits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for label, table in expected.items():
        assert found[label].tobytes() == table.tobytes(), label


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tiles", [name for name in TILES if name != "one tile"])
def test_tiles(here: Path, tiles: str, task: Task) -> None:
    folder = here / f"{tiles}-{task}"
    run(job_of(folder, here / f"{tiles}.zarr", task))
    assert_same_bits(scores(folder), scores(here / f"plain-{task}"))
    shutil.rmtree(folder)


@pytest.mark.cluster
@pytest.mark.parametrize("task", TASKS)
def test_workers(here: Path, task: Task) -> None:
    folder = here / f"workers-{task}"
    run(job_of(folder, here / "both.zarr", task, workers=2))
    assert_same_bits(scores(folder), scores(here / f"plain-{task}"))


@pytest.mark.parametrize("task", TASKS)
def test_order_of_tasks(here: Path, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = here / f"backwards-{task}"
    forwards = waves.run_unit
    turned: list[tuple[str, int]] = []

    def backwards(context: Any, stage: Any, unit: int) -> dict[str, Any]:
        number, place = divmod(unit, stage.n_units)
        other = number * stage.n_units + stage.n_units - 1 - place
        turned.append((stage.name, other))
        return forwards(context, stage, other)

    monkeypatch.setattr(waves, "run_unit", backwards)
    path = job_of(folder, here / "both.zarr", task)
    run_job(make_job(yaml.safe_load(path.read_text())))
    assert any(unit > 0 for stage, unit in turned if stage == "score")
    assert_same_bits(scores(folder), scores(here / f"plain-{task}"))


@pytest.mark.parametrize("task", TASKS)
def test_sparse_rows(here: Path, task: Task) -> None:
    folder = here / f"sparse-{task}"
    run(job_of(folder, here / f"sparse-{task}.npz", task))
    dense = scores(here / f"plain-{task}")
    for label, table in scores(folder).items():
        # conjugate gradients that stop early amplify rounding up to what they leave: a change of X in the last bit does
        # as much, and Cholesky factors keep to 1e-10
        tolerance = 1e-5 if label == "cg" else 1e-10
        np.testing.assert_allclose(table, dense[label], rtol=tolerance, atol=tolerance, err_msg=label)
