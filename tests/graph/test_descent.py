"""NN-descent: its lists are exact in what they say, and nearly complete."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from daskfs import LaplacianScore, knn_graph
from daskfs.graph.knn import KNNGraph
from daskfs.graph.projection import Space, fitted_space
from daskfs.kernels.neighbors.descent_lists import descent_lists
from daskfs.kernels.neighbors.descent_search import descent_neighbors
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import measured_squares, metric_distances, metric_rows, prepare_rows

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


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 900),
    m=st.integers(1, 6),
    n_values=st.sampled_from([1, 2, 5, 10**6]),
    k=st.integers(1, 12),
    metric=st.sampled_from(["euclidean", "cosine"]),
    scale=st.sampled_from([1e-12, 1.0, 1e9]),
)
def test_lists_are_full_and_true(n: int, m: int, n_values: int, k: int, metric: Metric, scale: float) -> None:
    """Of equal rows as well, which trees cannot tell apart, and of those at a point far away."""
    rng = np.random.default_rng(0)
    X = scale * rng.integers(0, n_values, (n, m)).astype(float)
    X[: n // 3] += 1e3 * scale
    space = fitted_space(X, metric, None, n, k, k, 0)
    indices, distances = descent_neighbors(X, metric, k, space.sketch(X), 0, 5.0, 0)
    n_found = min(k, n - 1)
    assert (indices[:, n_found:] == -1).all()
    assert np.isinf(distances[:, n_found:]).all()
    indices, distances = indices[:, :n_found], distances[:, :n_found]
    assert ((indices >= 0) & (indices != np.arange(n)[:, None])).all()
    assert all(np.unique(row).size == n_found for row in indices)
    assert (np.diff(distances, axis=1) >= -1e-9 * distances[:, 1:]).all()  # but for ties
    rows = metric_rows(X, metric)
    squares = measured_squares(rows, np.repeat(np.arange(n), n_found), rows, indices.ravel())
    np.testing.assert_allclose(metric_distances(squares, rows).reshape(n, n_found), distances)


@pytest.mark.parametrize("rest", [0.0, 0.5])
def test_nearly_all_neighbors_where_the_dimension_is_low(rest: float) -> None:
    """By the rest of the rows, too, which adds to all distances of a row."""
    rng = np.random.default_rng(0)
    rows = (rng.standard_normal((6000, 6)) @ rng.standard_normal((6, 16))).astype(np.float32)
    rows = np.hstack([rows, rest * rng.random((6000, 1), dtype=np.float32)])
    found, squares = descent_lists(rows, 15, 14, 0)
    asked = np.arange(0, 6000, 20)
    exact = ((rows[asked, None, :-1] - rows[:, :-1]) ** 2).sum(axis=2) + rows[asked, -1:] + rows[:, -1]
    exact[np.arange(asked.size), asked] = np.inf
    farthest = np.sort(exact, axis=1)[:, 9:10]
    np.testing.assert_allclose(squares[asked], np.take_along_axis(exact, found[asked], axis=1), rtol=1e-3, atol=1e-4)
    assert (squares[asked, :10] <= farthest * (1 + 1e-5)).mean() > 0.99
