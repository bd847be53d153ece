"""Distance correlation from binned columns, against the definition with its (n, n) matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from daskfs.kernels.distance_correlation.histograms import BINS, bin_column, distance_correlations_with
from tests.reference import greedy as reference


def distance_correlation(
    columns: np.ndarray, weights: np.ndarray | None = None, *, n_bins: int = BINS, squared: bool = False
) -> np.ndarray:
    """Return the distance correlations of all pairs of columns, shape (m, m)."""
    found = [bin_column(column, n_bins, weights) for column in columns.T]
    result = np.eye(len(found))
    for i, column in enumerate(found):
        result[i, :i] = result[:i, i] = distance_correlations_with(column, found[:i], weights, squared=squared)
    return result


def defined(X: np.ndarray, squared: bool = False) -> np.ndarray:
    values = np.eye(X.shape[1])
    for i, j in zip(*np.triu_indices(X.shape[1], 1), strict=True):
        values[i, j] = values[j, i] = reference.distance_correlation(X[:, i], X[:, j])
    return values ** (2 if squared else 1)


def marginals(seed: int, n: int) -> np.ndarray:
    """Dependent columns: uniform, normal, t with 2 degrees of freedom, binary, zero-inflated Poisson; four of each."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 2))
    columns = []
    for k in range(20):
        z = common[:, k % 2] * (k % 4) / 2 + rng.normal(size=n)
        z /= z.std()
        columns.append(
            [
                lambda z: norm.cdf(z),
                lambda z: z,
                lambda z: student.ppf(norm.cdf(z), 2),
                lambda z: (z > 0.5).astype(float),
                lambda z: np.where(rng.random(n) < 0.5, 0, rng.poisson(np.exp(z / 2))),
            ][k % 5](z)
        )
    return np.column_stack(columns)


def test_within_what_is_promised() -> None:
    X = marginals(0, 800)
    truth = defined(X, squared=True)
    error = np.abs(distance_correlation(X, squared=True) - truth)
    assert error.max() < 1.5e-3
    assert error.mean() < 1.4e-4
    assert np.abs(distance_correlation(X) - np.sqrt(truth)).max() < 2e-3


def test_exact_where_values_are_few() -> None:
    rng = np.random.default_rng(5)
    a = rng.integers(0, 128, 700)
    X = np.column_stack([a, (a + rng.integers(0, 9, 700)) % 100, a > 60, rng.choice([-1e3, 0.1, 7.25], 700), a**2 % 50])
    np.testing.assert_allclose(distance_correlation(X.astype(np.float64)), defined(X.astype(np.float64)), atol=1e-12)


def test_of_two_binary_columns_it_is_the_correlation() -> None:
    rng = np.random.default_rng(6)
    a = rng.random(400) < 0.3
    X = np.column_stack([a, a ^ (rng.random(400) < 0.2)]).astype(np.float64)
    assert distance_correlation(X)[0, 1] == pytest.approx(abs(np.corrcoef(X, rowvar=False)[0, 1]), abs=1e-13)  # type: ignore[index]


def test_sees_what_correlation_does_not() -> None:
    a = np.linspace(-1, 1, 1001)
    X = np.column_stack([a, a**2])
    assert abs(np.corrcoef(X, rowvar=False)[0, 1]) < 1e-12  # type: ignore[index]
    assert distance_correlation(X)[0, 1] > 0.4


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([1e-6, 1.0, 1e6]), st.sampled_from([0.0, 1e8]))
def test_scale_and_offset_change_nothing(seed: int, n: int, scale: float, offset: float) -> None:
    X = np.random.default_rng(seed).integers(-8, 9, size=(n, 3)) / 8
    moved = X * max(scale, 1.0 if offset else scale) + offset
    np.testing.assert_allclose(distance_correlation(moved), distance_correlation(X), atol=1e-6)


def test_weights_count_rows() -> None:
    rng = np.random.default_rng(8)
    X, weights = marginals(2, 600)[:, :6], rng.integers(1, 4, 600)
    weighted = distance_correlation(X, weights.astype(np.float64))
    np.testing.assert_allclose(weighted, distance_correlation(np.repeat(X, weights, axis=0)), atol=1e-12)


def test_constant_columns_resemble_none() -> None:
    X = np.column_stack([np.full(50, 0.1), np.arange(50.0), np.arange(50.0) * 2])
    np.testing.assert_allclose(distance_correlation(X), [[1, 0, 0], [0, 1, 1], [0, 1, 1]], atol=1e-13)


def test_at_most_so_many_bins() -> None:
    values = np.random.default_rng(9).standard_cauchy(5000)
    for n_bins in (2, 16, 128):
        column = bin_column(values, n_bins)
        assert 1 < column.steps.size + 1 <= n_bins
        assert column.codes.dtype == np.uint8
        order = np.argsort(values)
        assert (np.diff(column.codes[order].astype(int)) >= 0).all()
