"""NN-descent: its lists are exact in what they say, and nearly complete."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from daskfs import LaplacianScore, knn_graph
from daskfs.graph.knn import KNNGraph
from daskfs.graph.projection import Space
from daskfs.kernels.neighbors.descent_search import descent_neighbors
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import Metric, prepare_rows

pytestmark = pytest.mark.long

FloatArray = NDArray[np.float64]


def digits() -> FloatArray:
    return np.asarray(load_digits().data[:1500], dtype=np.float64)


def approximate(X: FloatArray | sp.csr_matrix, metric: Metric = "euclidean", seed: int = 0) -> KNNGraph:
    return knn_graph(X, 10, metric=metric, engine="descent", random_state=seed)


def assert_sound(graph: KNNGraph, X: FloatArray, metric: Metric) -> None:
    """Exact distances, nearest first with ties by number, no row in its own list, none twice."""
    for row in range(0, len(X), 7):
        listed = graph.indices[row]
        assert row not in listed
        assert np.unique(listed).size == listed.size
        if metric == "euclidean":
            expected = np.sqrt(((X[listed] - X[row]) ** 2).sum(axis=1))
        else:
            cosines = X[listed] @ X[row] / np.linalg.norm(X[listed], axis=1) / np.linalg.norm(X[row])
            expected = 1 - cosines
        np.testing.assert_allclose(graph.distances[row], expected, rtol=1e-9, atol=1e-14)
        rounded = np.round(graph.distances[row], 11)
        assert np.lexsort((listed, rounded)).tolist() == list(range(10))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_recall_and_soundness_on_digits(metric: Metric, sparse: bool) -> None:
    X = digits()
    graph = approximate(sp.csr_matrix(X) if sparse else X, metric)
    exact = knn_graph(X, 10, metric=metric, engine="exact")
    assert_sound(graph, X, metric)
    reached = graph.distances <= exact.distances[:, -1:] * (1 + 1e-9)
    assert reached.mean() >= 0.95
    assert graph.recall is not None
    assert abs(graph.recall - reached.mean()) < 0.02


def test_same_seed_same_lists() -> None:
    X = digits()
    first, again, other = approximate(X, seed=3), approximate(X, seed=3), approximate(X, seed=4)
    np.testing.assert_array_equal(first.indices, again.indices)
    np.testing.assert_array_equal(first.distances, again.distances)
    assert first.recall == again.recall
    assert other.recall is not None
    assert other.recall >= 0.95


def test_rows_of_zeros_under_cosine() -> None:
    X = digits()
    X[[0, 700, 1499]] = 0.0
    graph = approximate(X, "cosine")
    np.testing.assert_array_equal(graph.indices[0], np.arange(1, 11))
    np.testing.assert_array_equal(graph.indices[1499], np.arange(10))
    np.testing.assert_allclose(graph.distances[[0, 700, 1499]], 1.0, rtol=4e-16)


def test_an_offset_costs_nothing() -> None:
    X = digits()
    exact = knn_graph(X, 10, engine="exact")
    graph = approximate(X + 1e8)
    assert (graph.distances <= exact.distances[:, -1:] * (1 + 1e-6)).mean() >= 0.95


def test_scores_on_it_are_near_those_on_the_exact_graph() -> None:
    X = digits()
    found = LaplacianScore(n_neighbors=10, graph=approximate(X)).fit(X).scores_
    exact = LaplacianScore(n_neighbors=10).fit(X).scores_
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_allclose(found, exact, rtol=0.02)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_groups_of_few_rows(n: int, metric: Metric, sparse: bool) -> None:
    """All others, in the order of an exhaustive search."""
    X = np.random.default_rng(0).normal(size=(n, 4))
    rows = sp.csr_matrix(X) if sparse else X
    found = descent_neighbors(rows, metric, n - 1, Space(metric, 0).sketch(rows), 0, 4.0, 0)
    base = prepare_rows(X, metric)
    expected = exact_neighbors(base, np.arange(n), base, 0, n - 1) if n > 1 else (np.empty((1, 0)),) * 2
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_candidates_from_a_sketch_are_measured(sparse: bool) -> None:
    """Eight directions of rows that have little beside them."""
    generator = np.random.default_rng(0)
    latent = generator.normal(size=(1500, 8))
    X = np.hstack([latent, 0.05 * generator.normal(size=(1500, 40))])
    sketch = np.hstack([latent, (X[:, 8:] ** 2).sum(axis=1, keepdims=True)]).astype(np.float32)
    indices, distances = descent_neighbors(sp.csr_matrix(X) if sparse else X, "euclidean", 10, sketch, 26, 8.0, 0)
    base = prepare_rows(X, "euclidean")
    _, exact = exact_neighbors(base, np.arange(1500), base, 0, 10)
    assert (distances <= exact[:, -1:] * (1 + 1e-9)).mean() > 0.95
    assert_sound(KNNGraph(indices, distances, "euclidean"), X, "euclidean")
