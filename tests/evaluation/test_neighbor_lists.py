"""Lists that folds take from one search among all rows in use are those of a search within each fold, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import make_job
from daskfs.evaluation import neighbor_lists
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.runs import evaluation
from daskfs.runs.plan import plan_run
from daskfs.runs.tiles import plan_tiles
from daskfs.stages.cost import Workers
from tests.execution.runs import run_here, write_job

N_ROWS = 240


def matrix(kind: str) -> np.ndarray | sp.csr_matrix:
    """Return rows of which many have equal, or nearly equal, distances in all but the first kind."""
    rng = np.random.default_rng(7)
    counts = rng.poisson(0.6, (N_ROWS, 9))
    if kind == "any":
        return rng.normal(size=(N_ROWS, 12))
    if kind == "copies":
        return np.asarray(rng.normal(size=(30, 4))[rng.integers(0, 30, N_ROWS)])
    if kind == "counts":
        return counts.astype(np.float32)
    if kind == "sparse counts":
        return sp.csr_matrix(counts.astype(np.float64))
    # all about as far from each other: squares differ by steps about as large as ties, whose chains end at other rows
    return np.diag(1 + rng.permutation(2 * N_ROWS)[:N_ROWS] * 2.0**-41)


def lists_of_folds(folder: Path, kind: str, blocks: dict[str, Any], evaluate: dict[str, Any]) -> dict[str, np.ndarray]:
    """Run a job, and return the neighbor lists of its folds by file and name."""
    folder.mkdir()
    X, rng = matrix(kind), np.random.default_rng(1)
    if sp.issparse(X):
        sp.save_npz(folder / "X.npz", X)
    else:
        np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", np.where(rng.random(N_ROWS) < 0.9, rng.integers(0, 3, N_ROWS), -1))
    np.save(folder / "groups.npy", rng.integers(0, 40, N_ROWS))
    data = {"labels": str(folder / "y.npy")} | {name: str(folder / f"{name}.npy") for name in blocks.pop("with", ())}
    data["source"] = str(folder / ("X.npz" if sp.issparse(X) else "X.npy"))
    settings = {"n_selected": [2], "baselines": False, "n_splits": 4, **evaluate}
    methods = [{"name": "LaplacianScore", "label": f"L{k}", "n_neighbors": k} for k in (4, 7)]
    run_here(write_job(folder, data["source"], methods=methods, evaluate=settings, data=data, **blocks))
    files = sorted((folder / "run/evaluation/lists").glob("*.npz"))
    assert len(files) == settings["n_splits"] * settings.get("n_repeats", 1)
    return {f"{file.name} {name}": values for file in files for name, values in np.load(file).items()}


@pytest.mark.parametrize(
    ("blocks", "evaluate"),
    [
        ({}, {}),
        ({"graph": {"metric": "cosine"}}, {"n_repeats": 2}),
        ({"transform": {"graph": "unit"}, "with": ["groups"]}, {}),
        ({"transform": {"graph": "total=10+log1p"}}, {"max_samples": 150}),
    ],
    ids=["as they are", "cosine, twice", "unit, in groups", "logarithms, of some rows"],
)
@pytest.mark.parametrize("kind", ["any", "copies", "counts", "sparse counts", "nearly equal"])
def test_lists_are_those_of_a_search_in_the_fold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, blocks: dict[str, Any], evaluate: dict[str, Any]
) -> None:
    if kind in ("any", "copies", "nearly equal") and "transform" in blocks:
        blocks = {**blocks, "transform": {"graph": "unit"}}  # logarithms are of no negative values
    narrowed: list[str] = []
    sizes: list[int] = []
    narrow = neighbor_lists._narrow_lists

    def counting(queries: Any, *others: Any) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(queries.n_rows)
        return exact_neighbors(queries, *others)

    def noting(*args: Any) -> tuple[np.ndarray, np.ndarray]:
        narrowed.append(args[2])
        return narrow(*args)

    monkeypatch.setattr(neighbor_lists, "_narrow_lists", noting)
    monkeypatch.setattr(neighbor_lists, "exact_neighbors", counting)
    shared = lists_of_folds(tmp_path / "shared", kind, dict(blocks), evaluate)
    assert len(narrowed) == 4 * evaluate.get("n_repeats", 1)
    if kind == "any":  # few rows are searched twice
        assert max(sizes[1:], default=0) < 0.2 * N_ROWS
    monkeypatch.setattr(evaluation, "_shared_lists", lambda *_: ())
    each = lists_of_folds(tmp_path / "each", kind, dict(blocks), evaluate)
    assert len(narrowed) == 4 * evaluate.get("n_repeats", 1)
    assert shared.keys() == each.keys()
    for name, values in each.items():
        np.testing.assert_array_equal(shared[name], values, err_msg=name, strict=True)


@pytest.mark.parametrize(
    ("blocks", "evaluate"),
    [
        ({"transform": {"graph": "zscore"}}, {}),
        ({"transform": {"graph": "pca=3"}}, {}),
        ({"transform": {"graph": "total"}}, {}),
        ({"graph": {"metric": "true_angular"}}, {}),
        ({"graph": {"metric": "direct_cosine"}}, {}),
        ({"graph": {"engine": "cells"}}, {}),
        ({"graph": {"engine": "descent"}}, {}),
        ({}, {"n_classes": [2]}),
        ({}, {"setting": "transductive", "labels": [0.5]}),
        ({}, {"n_splits": 2}),
    ],
)
def test_what_depends_on_other_rows_is_searched_in_each_fold(blocks: dict[str, Any], evaluate: dict[str, Any]) -> None:
    """Test rows would show in a graph of training rows."""
    source = "synthetic:mixture?n_samples=300&n_features=12&n_classes=3&n_informative=4&seed=1"

    def stages(**own: Any) -> list[str]:
        job = make_job({"data": {"source": source}, "methods": ["LaplacianScore"], "output": {"path": "never"}, **own})
        tiles = plan_tiles(job.data, "never/tiles", Workers(2**32))
        return [stage.name for stage in plan_run(job, tiles, "classification", Workers(2**32)).stages]

    assert "evaluation-candidates" in stages(transform={"graph": None})
    assert "evaluation-candidates" not in stages(**{"transform": {"graph": None}, **blocks}, evaluate=evaluate or {})
