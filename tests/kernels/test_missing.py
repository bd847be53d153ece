"""Means in the place of missing values, against NumPy; dense against sparse; whatever the cut of the rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from daskfs.kernels.missing import fill_missing, filled_by_means, has_missing, merge_observed, observe
from daskfs.kernels.scaling import row_norms, row_sums, scale_rows
from daskfs.kernels.statistics.moments import column_moments, merge_moments, merge_tree, tree_moments
from tests.cases import each


def holes(n: int = 3000, d: int = 7, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return multiples of 1/8 with zeros and NaN, whose sums are exact."""
    rng = np.random.default_rng(0)
    X = rng.integers(-40, 90, (n, d)) / 8
    X[rng.random(X.shape) < 0.3] = 0
    X[rng.random(X.shape) < 0.2] = np.nan
    X[:, 3] = np.where(np.isnan(X[:, 3]), np.nan, 0.1)
    return X.astype(dtype)


def as_csr(X: np.ndarray) -> sp.csr_matrix:
    return sp.csr_matrix(X)  # NaN is stored


@each("dtype", [np.float64, np.float32])
@each("form", [np.array, as_csr, np.asfortranarray])
def test_means(form: object, dtype: DTypeLike) -> None:
    X = holes(dtype=dtype)
    means = np.nanmean(X.astype(np.float64), axis=0).astype(dtype)
    means[3] = X[~np.isnan(X[:, 3]), 3][0]  # equal values are their own mean, whatever their sum is rounded to
    expected = np.where(np.isnan(X), means, X)
    found = filled_by_means(form(X))  # type: ignore[operator]
    values = found.toarray() if sp.issparse(found) else found
    assert values.dtype == X.dtype
    assert values.tobytes() == expected.tobytes()


@each("height", [1024, 2048])
@each("form", [np.array, as_csr])
def test_bits_do_not_depend_on_bands(form: object, height: int) -> None:
    X = holes(5000) * 0.1
    whole = observe(form(X))  # type: ignore[operator]
    parts = [observe(form(X[start : start + height])) for start in range(0, 5000, height)]  # type: ignore[operator]
    found = merge_tree(parts, merge_observed)
    for name in ("missing", "total", "minimum", "maximum"):
        assert getattr(found, name).tobytes() == getattr(whole, name).tobytes(), name


@each("form", [np.array, as_csr])
def test_sums_and_extremes_of_observed_values(form: object) -> None:
    """Zeros that are not stored are values; a column may have none but stored ones, or only negative ones."""
    X = holes(50)
    X[:, 0], X[:, 1], X[:, 2] = -1 - np.abs(X[:, 0]), 1 + np.abs(X[:, 1]), np.nan
    found = observe(form(X))  # type: ignore[operator]
    np.testing.assert_array_equal(found.missing, np.isnan(X).sum(axis=0))
    np.testing.assert_array_equal(found.total, np.nansum(X, axis=0))
    np.testing.assert_array_equal(found.minimum, np.where(np.isnan(X), np.inf, X).min(axis=0))
    np.testing.assert_array_equal(found.maximum, np.where(np.isnan(X), -np.inf, X).max(axis=0))


def test_a_column_without_a_value_is_filled_with_zero() -> None:
    X = np.array([[np.nan, 1.0], [np.nan, np.nan]])
    np.testing.assert_array_equal(filled_by_means(X.copy()), [[0, 1], [0, 1]])
    np.testing.assert_array_equal(filled_by_means(as_csr(X)).toarray(), [[0, 1], [0, 1]])


def test_columns_of_csc() -> None:
    X = holes(50)
    found = fill_missing(sp.csc_matrix(X), np.arange(7.0)).toarray()
    np.testing.assert_array_equal(found, np.where(np.isnan(X), np.arange(7.0), X))


def test_what_must_not_be_changed_is_copied() -> None:
    X = holes(50)
    X.setflags(write=False)
    assert not has_missing(filled_by_means(X))
    assert has_missing(X)
    whole = np.ones((3, 2))
    assert filled_by_means(whole) is whole
    assert not has_missing(np.ones((2, 2), dtype=np.int8))


@each("dtype", [np.float64, np.float32])
@each("form", [np.array, as_csr])
def test_moments_of_what_is_there(form: object, dtype: DTypeLike) -> None:
    """Each column's are those that it has without the rows that lack it; of dense ones to the bit."""
    X = (holes(20_000) * 0.1 + 1e3).astype(dtype)
    X[:, 5], X[:, 6] = np.nan, np.arange(20_000) % 7
    found = column_moments(form(X))  # type: ignore[operator]
    for column in range(7):
        own = X[~np.isnan(X[:, column]), column][:, None]
        expected = column_moments(own)
        assert np.asarray(found.count)[column] == len(own)
        assert found.is_constant[column] == (column in (3, 5))
        for name in ("mean", "m2", "minimum", "maximum", "variance"):
            value = getattr(found, name)[column]
            if column == 5:
                assert value == {"minimum": np.inf, "maximum": -np.inf}.get(name, 0.0)
            elif form is np.array and column == 6:
                assert value == getattr(expected, name)[0]
            else:
                np.testing.assert_allclose(value, getattr(expected, name)[0], rtol=1e-9, atol=1e-6, err_msg=name)
    assert [extreme[5] for extreme in found.extremes] == [0.0, 0.0]


@each("height", [1024, 4096])
@each("form", [np.array, as_csr])
def test_bits_of_observed_moments_do_not_depend_on_bands(form: object, height: int) -> None:
    X = holes(5000) * 0.1
    X[:2048, 2] = np.nan
    X[:, 5] = np.nan
    X[:, 0] = np.nan_to_num(X[:, 0])
    whole = tree_moments(form(X))  # type: ignore[operator]
    parts = [tree_moments(form(X[start : start + height])) for start in range(0, 5000, height)]  # type: ignore[operator]
    found = merge_tree(parts, merge_moments)
    complete = tree_moments(form(np.nan_to_num(X)))  # type: ignore[operator]
    for name in ("count", "mean", "m2", "minimum", "maximum"):
        assert np.asarray(getattr(found, name)).tobytes() == np.asarray(getattr(whole, name)).tobytes(), name
        if name != "count":
            assert getattr(whole, name)[0] == getattr(complete, name)[0], name
    np.testing.assert_allclose(whole.variance[:5], np.nanvar(X[:, :5], axis=0), rtol=1e-12, atol=1e-20)


@each("form", [np.array, as_csr])
def test_rows_are_measured_by_what_is_there(form: object) -> None:
    X = np.abs(holes(300))
    X[4] = np.nan
    zeros = np.nan_to_num(X)
    np.testing.assert_array_equal(row_norms(form(X)), row_norms(form(zeros)))  # type: ignore[operator]
    np.testing.assert_array_equal(row_sums(form(X)), row_sums(form(zeros)))  # type: ignore[operator]
    unit = scale_rows(form(X), "unit")  # type: ignore[operator]
    unit = unit.toarray() if sp.issparse(unit) else unit
    np.testing.assert_array_equal(np.isnan(unit), np.isnan(X))
    np.testing.assert_allclose(np.nansum(unit**2, axis=1), np.where(np.arange(300) == 4, 0.0, 1.0), rtol=1e-12)
