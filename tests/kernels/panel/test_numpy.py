"""The Laplacian quadratic form over edges against f'Lf with a dense Laplacian."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike, NDArray

from daskfs.kernels.panel.numpy import EDGE_BLOCK, edge_sums, observed_edge_sums
from tests.cases import each

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def random_edges(n: int, n_edges: int, n_weightings: int = 1) -> tuple[IntArray, IntArray, FloatArray]:
    """Distinct undirected edges."""
    rng = np.random.default_rng(n_edges)
    rows, columns = np.triu_indices(n, k=1)
    chosen = rng.choice(rows.size, size=n_edges, replace=False)
    flip = rng.uniform(size=n_edges) < 0.5
    source = np.where(flip, rows[chosen], columns[chosen])
    target = np.where(flip, columns[chosen], rows[chosen])
    return source, target, rng.uniform(size=(n_weightings, n_edges))


def dense_form(F: FloatArray, source: IntArray, target: IntArray, weights: FloatArray) -> FloatArray:
    S = np.zeros((len(F), len(F)))
    S[source, target] = S[target, source] = weights
    L = np.diag(S.sum(axis=1)) - S
    return np.array([f @ L @ f for f in F.T])


@each("n_edges", [1, 50, EDGE_BLOCK, 3 * EDGE_BLOCK + 5])
def test_dense_laplacian(n_edges: int) -> None:
    source, target, weights = random_edges(100, n_edges)
    F = np.random.default_rng(0).normal(size=(100, 6))
    expected = dense_form(F, source, target, weights[0])
    np.testing.assert_allclose(edge_sums(F, source, target, weights)[0], expected, rtol=1e-10)


def test_an_offset_costs_no_digit() -> None:
    source, target, weights = random_edges(100, 300)
    F = np.random.default_rng(1).integers(-1000, 1000, size=(100, 4)) / 8
    plain, shifted = edge_sums(F, source, target, weights), edge_sums(F + 1e8, source, target, weights)
    np.testing.assert_array_equal(plain, shifted)


def test_exactly_zero_where_a_column_is_constant_on_each_component() -> None:
    source, target = np.array([0, 1, 3, 4]), np.array([1, 2, 4, 5])
    F = np.array([[0.1, 1.0]] * 3 + [[1e8 + 0.3, 2.0]] * 2 + [[1e8 + 0.3, 5.0]])
    sums = edge_sums(F, source, target, np.array([[0.3, 0.7, 0.11, 0.9]]))
    assert sums[0, 0] == 0.0
    assert sums[0, 1] == 0.9 * 9.0


def test_several_weightings_at_once_are_each_alone() -> None:
    source, target, weights = random_edges(100, 2500, n_weightings=4)
    F = np.random.default_rng(2).normal(size=(100, 9))
    together = edge_sums(F, source, target, weights)
    for row in range(4):
        np.testing.assert_array_equal(edge_sums(F, source, target, weights[row : row + 1])[0], together[row])
    assert len({tuple(row) for row in together}) == 4


def test_bits_do_not_depend_on_the_panel() -> None:
    source, target, weights = random_edges(100, 2500, n_weightings=2)
    F = np.random.default_rng(3).normal(size=(100, 64))
    whole = edge_sums(F, source, target, weights)
    for width in range(1, 65):
        panel = np.ascontiguousarray(F[:, 64 - width :])
        np.testing.assert_array_equal(edge_sums(panel, source, target, weights), whole[:, 64 - width :])


def test_direction_of_an_edge_does_not_matter() -> None:
    source, target, weights = random_edges(100, 2500)
    F = np.random.default_rng(4).normal(size=(100, 3))
    np.testing.assert_array_equal(edge_sums(F, source, target, weights), edge_sums(F, target, source, weights))


@each("dtype", [np.uint8, np.int8, np.int16, np.bool_, np.float16, np.float32])
def test_narrow_types_never_wrap(dtype: DTypeLike) -> None:
    source, target, weights = random_edges(60, 900)
    F = np.random.default_rng(5).integers(0, 2 if dtype is np.bool_ else 128, size=(60, 3)).astype(dtype)
    if dtype is np.uint8:
        F += np.uint8(100)
    F.setflags(write=False)
    found = edge_sums(F, source, target, weights)
    np.testing.assert_array_equal(found, edge_sums(F.astype(np.float64), source, target, weights))


def test_no_edges() -> None:
    nothing = np.empty(0, dtype=np.int64)
    np.testing.assert_array_equal(edge_sums(np.ones((3, 2)), nothing, nothing, np.empty((1, 0))), np.zeros((1, 2)))


@each("n_edges", [1, 50, EDGE_BLOCK, 3 * EDGE_BLOCK + 5])
def test_edges_between_rows_that_have_a_value(n_edges: int) -> None:
    """Column by column: the Laplacian, the degrees and the ends of the graph without the other rows."""
    source, target, weights = random_edges(100, n_edges, 2)
    weights[1] *= np.random.default_rng(1).random(n_edges) < 0.5
    F = np.random.default_rng(0).normal(size=(100, 6))
    F[np.random.default_rng(2).random(F.shape) < 0.3] = np.nan
    F[:, 5] = np.nan
    center = np.arange(6.0)
    found = observed_edge_sums(F, center, source, target, weights)
    for row, weight in enumerate(weights):
        for column, f in enumerate(F.T):
            here = ~np.isnan(f)
            S = np.zeros((100, 100))
            S[source, target] = S[target, source] = weight
            S, own = S[here][:, here], f[here]
            degrees, deviation = S.sum(axis=1), own - center[column]
            expected = (
                own @ (np.diag(degrees) - S) @ own,
                degrees.sum() / 2,
                degrees @ deviation,
                degrees @ deviation**2,
            )
            np.testing.assert_allclose(found.sums[:, row, column], expected, rtol=1e-10, atol=1e-10)
            ends = own[degrees > 0]
            assert found.low[row, column] == ends.min(initial=np.inf)
            assert found.high[row, column] == ends.max(initial=-np.inf)
