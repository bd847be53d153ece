"""Graphs of data with missing values through the command line, under data.missing: pairwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics.pairwise import nan_euclidean_distances

from daskfs.store import layout
from daskfs.store.store import Store

from .command import Outcome, daskfs, refused, write_job

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES, K = 300, 6, 4


def holes() -> np.ndarray:
    """Return rows of which one lacks every value, and two have only what the others lack."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_SAMPLES, N_FEATURES)) * np.arange(1, N_FEATURES + 1)
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 5] = np.nan
    X[[7, 8, 20], :5] = np.nan
    X[[7, 8], 5] = [1.0, 2.5]
    return X


def job(folder: Path, X: Any, output: str = "run", **blocks: Any) -> Path:
    source = folder / ("X.npz" if sp.issparse(X) else "X.npy")
    if sp.issparse(X):
        sp.save_npz(source, X)
    else:
        np.save(source, X)
    whole = {
        "data": {"source": str(source), "missing": "pairwise"},
        "graph": {"n_neighbors": K},
        "methods": ["LaplacianScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / output)},
    }
    return write_job(folder, {**whole, **blocks})


def ran(path: Path) -> Outcome:
    outcome = daskfs("run", path, "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    return outcome


def lists_of(run: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    store = Store(run)
    indices, distances = (store.open(array.format(name))[...] for array in (layout.KNN_INDICES, layout.KNN_DISTANCES))
    return indices, distances


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("engine", ["exact", "cells"])
@pytest.mark.parametrize("scaling", [None, "zscore"])
def test_distances_of_scikit_learn(tmp_path: Path, scaling: str | None, engine: str, sparse: bool) -> None:
    X = holes()
    graph = {"n_neighbors": K, "engine": engine}
    path = job(tmp_path, sp.csr_matrix(X) if sparse else X, graph=graph, transform={"graph": scaling})
    outcome = ran(path)
    name = "euclidean" if scaling is None else "euclidean-zscore"
    indices, distances = lists_of(tmp_path / "run", name)
    Z = X if scaling is None else (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
    expected = nan_euclidean_distances(Z)
    expected[np.isnan(expected)] = np.inf
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :K], rtol=1e-6, atol=1e-7)
    listed = indices >= 0
    row, place = np.nonzero(listed)
    np.testing.assert_allclose(distances[row, place], expected[row, indices[row, place]], rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(listed.sum(axis=1)[[7, 8, 20, 0]], [1, 1, 0, K])
    (found,) = json.loads((tmp_path / "run" / "run.json").read_text())["graphs"]
    assert (found["n_short"], found["n_isolated"]) == (3, 1)
    assert f"3 rows have fewer than {K} neighbors: too few others have a feature in common" in "\n".join(
        one["text"] for one in outcome.json["warnings"]
    )
    assert "3 rows have fewer than" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_the_same_ranking_on_the_graph_of_another_run(tmp_path: Path) -> None:
    """Lists with fewer neighbors than were asked for serve as a graph from outside."""
    ran(job(tmp_path, holes()))
    ran(job(tmp_path, holes(), "again", graph={"precomputed": str(tmp_path / "run"), "n_neighbors": K}))
    rankings = [(tmp_path / folder / "ranking.csv").read_bytes() for folder in ("run", "again")]
    assert rankings[0] == rankings[1]


@pytest.mark.parametrize(
    ("graph", "parts"),
    [
        ({"metric": "cosine"}, ("graph.metric is cosine", "set graph.metric: euclidean", "data.missing: mean")),
        ({"engine": "descent"}, ("graph.engine is descent", "auto, exact or cells", "data.missing: mean")),
    ],
)
def test_what_is_not_searched_is_refused_before_any_work(
    tmp_path: Path, graph: dict[str, Any], parts: tuple[str, ...]
) -> None:
    path = job(tmp_path, holes(), graph=graph)
    for command in ("plan", "run"):
        refused(daskfs(command, path), 2, *parts)
    assert not (tmp_path / "run" / "tiles" / "records").exists()


def test_no_two_rows_share_a_feature(tmp_path: Path) -> None:
    X = np.full((12, 12), np.nan)
    X[np.arange(12), np.arange(12)] = 1.0
    refused(daskfs("run", job(tmp_path, X), "--quiet"), 3, "the graph has no edges: no two rows share a feature")
