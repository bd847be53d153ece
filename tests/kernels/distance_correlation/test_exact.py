"""Distance correlations from the distances of all pairs of rows, and their products with vectors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs.kernels.distance_correlation.exact import (
    DistanceSum,
    bias_corrected,
    distance_columns,
    exact_correlations,
    exact_deviations,
    shares_of,
)
from tests.cases import each
from tests.kernels.distance_correlation.test_histograms import marginals
from tests.reference import distance as reference


def matrix(X: np.ndarray, weights: np.ndarray | None = None, *, corrected: bool = False) -> np.ndarray:
    shares = shares_of(weights, len(X))
    columns = distance_columns(X.T, shares)
    squared = exact_correlations(columns, None, shares)
    if not corrected:
        return squared
    total = float(len(X)) if weights is None else float(weights.sum())
    deviations = exact_deviations(columns, columns, shares)
    return bias_corrected(squared, deviations, (columns.mean, columns.mean), total)


def products(X: np.ndarray, v: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    shares = shares_of(weights, len(X))
    values = distance_columns(X.T, shares).values
    total = DistanceSum(shares)
    for start in range(0, len(v), 7):
        total.add(values[start : start + 7], v[start : start + 7])
    total.close()
    return total.products(values)


def mixed(seed: int, n: int) -> np.ndarray:
    """Columns of every kind, Cauchy ones, a constant and a copy among them."""
    rng = np.random.default_rng(seed)
    X = marginals(seed, n)
    return np.column_stack([X, rng.standard_cauchy((n, 2)), np.full(n, 0.1), 3 - 2 * X[:, 0]])


@each("corrected", [False, True])
def test_equals_the_definition(corrected: bool) -> None:
    X = mixed(0, 160)
    expected = reference.distance_correlations(X, bias_corrected=corrected)
    np.testing.assert_allclose(matrix(X, corrected=corrected), expected, atol=1e-11)


@pytest.mark.long
@each("n", [60, 700])
def test_equals_dcor(n: int) -> None:
    import dcor  # which compiles some at its import

    X = mixed(1, n)[:, [0, 1, 2, 3, 4, 12, 20]]
    V, U = matrix(X), matrix(X, corrected=True)
    for i, j in zip(*np.triu_indices(X.shape[1]), strict=True):
        assert V[i, j] == pytest.approx(dcor.distance_correlation_sqr(X[:, i], X[:, j], method="naive"), abs=1e-10)
        expected = max(dcor.u_distance_correlation_sqr(X[:, i], X[:, j], method="naive"), 0.0)
        assert U[i, j] == pytest.approx(expected, abs=1e-10)


def test_columns_with_others_are_part_of_the_matrix() -> None:
    X, shares = mixed(2, 120), shares_of(None, 120)
    columns = distance_columns(X.T, shares)
    whole = exact_correlations(columns, None, shares)
    part = exact_correlations(columns.part(slice(3, 9)), columns.part(slice(9, 24)), shares)
    np.testing.assert_allclose(part, whole[3:9, 9:24], atol=1e-14)
    np.testing.assert_array_equal(whole, whole.T)


@each("corrected", [False, True])
def test_weights_count_rows(corrected: bool) -> None:
    X, weights = mixed(3, 150), np.random.default_rng(0).integers(1, 4, 150)
    weighted = matrix(X, weights.astype(np.float64), corrected=corrected)
    np.testing.assert_allclose(weighted, matrix(np.repeat(X, weights, axis=0), corrected=corrected), atol=1e-11)


def test_correction_takes_the_bias_of_independent_columns() -> None:
    X = np.random.default_rng(4).normal(size=(50, 40))
    apart = np.triu_indices(40, 1)
    assert matrix(X)[apart].mean() > 0.05
    assert matrix(X, corrected=True)[apart].mean() < 0.02


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(4, 40), st.floats(1e-3, 1e3), st.sampled_from([0.0, -1e8]))
def test_affine_maps_and_the_order_of_rows_change_nothing(seed: int, n: int, scale: float, offset: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-8, 9, size=(n, 4)) / 8
    moved = np.ldexp(X, int(np.log2(scale))) * [-1, 1, 1, -1] + offset
    for corrected in (False, True):
        found = matrix(X, corrected=corrected)
        np.testing.assert_allclose(matrix(moved[rng.permutation(n)], corrected=corrected), found, atol=1e-6)
        assert (found >= -1e-12).all()
        assert (found <= 1 + 1e-9).all()


class TestProducts:
    @each("weighted", [False, True])
    def test_are_those_of_the_matrix(self, weighted: bool) -> None:
        rng = np.random.default_rng(5)
        X = mixed(5, 200)
        weights = rng.integers(1, 4, 200).astype(np.float64) if weighted else None
        v = rng.normal(size=X.shape[1:])
        v[::4] = 0.0
        np.testing.assert_allclose(products(X, v, weights), matrix(X, weights) @ v, atol=1e-11)

    def test_of_few_values_and_of_many_are_the_same(self) -> None:
        rng = np.random.default_rng(6)
        X = rng.integers(0, 9, size=(90, 6)).astype(np.float64)
        blurred = X + 1e-9 * rng.random(X.shape)
        v = rng.random(6)
        np.testing.assert_allclose(products(X, v), products(blurred, v), atol=1e-6)

    def test_of_nothing(self) -> None:
        X = mixed(7, 40)
        np.testing.assert_array_equal(products(X, np.zeros(X.shape[1])), 0.0)
