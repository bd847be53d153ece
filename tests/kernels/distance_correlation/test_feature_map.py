"""Distance correlations from few components of the distance kernels of binned columns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs.kernels.distance_correlation.exact import distance_columns, exact_correlations, shares_of
from daskfs.kernels.distance_correlation.feature_map import (
    CodeGram,
    feature_map,
    most_components,
    squares_by_column,
    with_lost_traces,
)
from daskfs.kernels.distance_correlation.histograms import bin_column, pair_distance_correlation
from tests.cases import each
from tests.kernels.distance_correlation.test_histograms import marginals
from tests.reference import distance as reference


def matrix(X: np.ndarray, n_components: int = 8, weights: np.ndarray | None = None) -> np.ndarray:
    columns = [bin_column(column, 128, weights) for column in X.T]
    maps = [feature_map(column, n_components) for column in columns]
    gram = CodeGram([one.table for one in maps])
    total = float(len(X)) if weights is None else float(weights.sum())
    gram.add([[column.codes for column in columns]], weights)
    squared = squares_by_column(gram.result() / total, [m.table for m in maps], [m.table for m in maps])
    return with_lost_traces(squared, maps, maps, total)


def exact(X: np.ndarray) -> np.ndarray:
    """Return what test_distancegram.py holds equal to the definition, in less time than that takes."""
    shares = shares_of(None, len(X))
    return exact_correlations(distance_columns(X.T, shares), None, shares)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_within_what_is_promised(seed: int) -> None:
    X = marginals(seed, 2000)
    truth = exact(X)
    error = np.abs(matrix(X) - truth)
    assert error.max() <= 0.005
    assert error.mean() <= 0.0002
    half = np.abs(matrix(X, 4) - truth)
    assert half.max() <= 0.007
    assert half.mean() <= 0.0003


def test_heavier_tails() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 1)) + rng.normal(size=(2000, 8))
    tails = np.column_stack([np.exp(1.5 * z), rng.standard_t(1.5, (2000, 4)) + z[:, :4], np.sinh(3 * z[:, 4:])])
    error = np.abs(matrix(tails) - exact(tails))
    assert error.max() <= 0.01
    assert error.mean() <= 0.001


def test_all_components_are_the_correlation_of_the_bins() -> None:
    X = marginals(1, 500)
    columns = [bin_column(column) for column in X.T]
    expected = [[pair_distance_correlation(a, b) for b in columns] for a in columns]
    np.testing.assert_allclose(matrix(X, 64), expected, atol=1e-12)


def test_exact_where_values_are_few() -> None:
    rng = np.random.default_rng(2)
    a = rng.integers(0, 17, 400)
    columns = [a, a > 3, rng.choice([-1e6, 0.0, 0.25], 400), (a + rng.integers(0, 5, 400)) % 16, rng.random(400) < 0.01]
    X = np.column_stack(columns).astype(np.float64)
    np.testing.assert_allclose(matrix(X), reference.distance_correlations(X), atol=1e-12)
    assert np.corrcoef(X[:, 1], X[:, 4])[0, 1] ** 2 == pytest.approx(matrix(X)[1, 4], abs=1e-13)


class TestComponents:
    def test_no_more_than_there_are(self) -> None:
        for n_values, expected in ((1, 1), (2, 1), (5, 4), (17, 16)):
            found = feature_map(bin_column(np.arange(200.0) % n_values), 8)
            assert found.table.shape == (expected, n_values)
            assert found.error == 0

    def test_more_for_heavy_tails(self) -> None:
        rng = np.random.default_rng(3)
        counts = [feature_map(bin_column(x), 8).table.shape[0] for x in (rng.random(3000), rng.standard_t(1.5, 3000))]
        assert counts[0] == 8
        assert 8 < counts[1] <= most_components(8)

    def test_are_orthogonal_and_centered_and_of_norm_1(self) -> None:
        column = bin_column(np.random.default_rng(4).normal(size=1000))
        found = feature_map(column, 8)
        values = found.table[:, column.codes]
        np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=1e-9)
        products = values @ values.T / 1000
        np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-9)
        assert np.sum(products**2) == pytest.approx(1.0)
        assert found.trace == pytest.approx(np.trace(products))
        assert found.trace < found.mean

    def test_constant(self) -> None:
        found = feature_map(bin_column(np.full(9, 0.3)), 8)
        np.testing.assert_array_equal(found.table, 0.0)
        assert (found.mean, found.variance, found.error) == (0.0, 0.0, 0.0)


@each("n_components", [2, 8])
def test_error_is_bounded_by_the_angles(n_components: int) -> None:
    rng = np.random.default_rng(5)
    X = np.column_stack([marginals(5, 700)[:, :10], rng.standard_cauchy((700, 4)), np.exp(2 * rng.normal(size=700))])
    maps = [feature_map(bin_column(column), n_components) for column in X.T]
    error = np.array([one.error for one in maps])
    lost = np.multiply.outer([m.mean for m in maps], [m.mean for m in maps]) / len(X)
    found = np.abs(matrix(X, n_components) - reference.distance_correlations(X))
    assert (found <= np.add.outer(error, error) + lost).all()
    assert found.max() > 1e-4  # so that the bound has something to bound


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(2, 300), st.sampled_from([0.0, 1e8]))
def test_affine_maps_and_the_order_of_rows_change_nothing(seed: int, n: int, offset: float) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-300, 301, size=(n, 3)) / 8
    found = matrix(X)
    np.testing.assert_allclose(matrix((4 * X * [-1, 1, -1] + offset)[rng.permutation(n)]), found, atol=1e-2)
    np.testing.assert_allclose(matrix(4 * X[rng.permutation(n)] + offset), found, atol=1e-9)
    np.testing.assert_allclose(found, found.T, atol=1e-14)
    assert (found >= 0).all()
    assert (found <= 1 + 1e-12).all()


def test_weights_count_rows() -> None:
    X, weights = marginals(6, 500), np.random.default_rng(1).integers(1, 4, 500)
    found = matrix(X, weights=weights.astype(np.float64))
    np.testing.assert_allclose(found, matrix(np.repeat(X, weights, axis=0)), atol=1e-9)


class TestSinglePrecision:
    def test_only_of_what_is_not_precise(self) -> None:
        X = marginals(7, 3000)
        columns = [bin_column(column) for column in X.T]
        order = np.argsort([feature_map(column, 8).error > 0 for column in columns], kind="stable")
        columns = [columns[k] for k in order]
        tables, codes = [feature_map(c, 8).table for c in columns], [c.codes for c in columns]
        double, mixed, halves = CodeGram(tables), CodeGram(tables, None, (8, 8)), CodeGram(tables, tables, (8, 8))
        for gram, sides in ((double, [codes]), (mixed, [codes]), (halves, [codes, codes])):
            gram.add(sides)
        n_precise = sum(len(table) for table in tables[:8])
        whole, rough = double.result() / 3000, mixed.result() / 3000
        np.testing.assert_allclose(rough[:n_precise, :n_precise], whole[:n_precise, :n_precise], rtol=0, atol=1e-15)
        np.testing.assert_allclose(rough, whole, atol=1e-6)
        assert np.abs(rough - whole).max() > 1e-12
        np.testing.assert_allclose(halves.result() / 3000, rough, atol=1e-7)

    def test_rows_in_pieces(self) -> None:
        X = marginals(8, 2500)[:, :6]
        columns = [bin_column(column) for column in X.T]
        tables = [feature_map(column, 4).table for column in columns]
        whole, pieces = CodeGram(tables), CodeGram(tables)
        whole.add([[c.codes for c in columns]])
        for part in (slice(0, 2048), slice(2048, 2500)):
            pieces.add([[c.codes[part] for c in columns]])
        np.testing.assert_array_equal(whole.result(), pieces.result())
