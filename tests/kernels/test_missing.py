"""Means in the place of missing values, against NumPy; dense against sparse; whatever the cut of the rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import DTypeLike

from daskfs.kernels.missing import fill_missing, filled_by_means, has_missing, merge_observed, observed
from daskfs.kernels.moments import merge_tree


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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [np.array, as_csr, np.asfortranarray])
def test_means(form: object, dtype: DTypeLike) -> None:
    X = holes(dtype=dtype)
    means = np.nanmean(X.astype(np.float64), axis=0).astype(dtype)
    means[3] = X[~np.isnan(X[:, 3]), 3][0]  # equal values are their own mean, whatever their sum is rounded to
    expected = np.where(np.isnan(X), means, X)
    found = filled_by_means(form(X))  # type: ignore[operator]
    values = found.toarray() if sp.issparse(found) else found
    assert values.dtype == X.dtype
    assert values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("height", [1024, 2048])
@pytest.mark.parametrize("form", [np.array, as_csr])
def test_bits_do_not_depend_on_bands(form: object, height: int) -> None:
    X = holes(5000) * 0.1
    whole = observed(form(X))  # type: ignore[operator]
    parts = [observed(form(X[start : start + height])) for start in range(0, 5000, height)]  # type: ignore[operator]
    found = merge_tree(parts, merge_observed)
    for name in ("missing", "total", "minimum", "maximum"):
        assert getattr(found, name).tobytes() == getattr(whole, name).tobytes(), name


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
