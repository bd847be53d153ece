"""Scalings of a block: values, dense against sparse, and rows whose squares leave the range of float64."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray
from sklearn.preprocessing import normalize

from daskfs.kernels.scaling import (
    ColumnScale,
    RowScale,
    Scaling,
    inverse_or_zero,
    median_sum,
    row_factors,
    row_norms,
    row_sums,
    scale_rows,
)
from daskfs.kernels.statistics.moments import column_moments
from tests.cases import each

FloatArray = NDArray[np.float64]


def sparse_values(n: int = 80, d: int = 9) -> FloatArray:
    rng = np.random.default_rng(0)
    return rng.uniform(0.1, 5.0, size=(n, d)) * (rng.uniform(size=(n, d)) < 0.4)


def scale_of(X: FloatArray) -> ColumnScale:
    moments = column_moments(X)
    return ColumnScale(moments.mean, np.sqrt(moments.variance), np.asarray(moments.rest))


class TestRowNorms:
    @each("size", [1.0, 1e-300, 1e300, 1e-160, 1e160])
    def test_squares_neither_overflow_nor_underflow(self, size: float) -> None:
        X = sparse_values()
        expected = np.sqrt((X**2).sum(axis=1)) * size
        np.testing.assert_allclose(row_norms(X * size), expected, rtol=1e-14)
        np.testing.assert_allclose(row_norms(sp.csr_matrix(X * size)), expected, rtol=1e-14)

    def test_negative_values_and_rows_of_zeros(self) -> None:
        X = np.array([[-3.0, 4.0], [0.0, 0.0], [-1e200, 0.0]])
        np.testing.assert_array_equal(row_norms(X), [5.0, 0.0, 1e200])
        np.testing.assert_array_equal(row_norms(sp.csr_matrix(X)), [5.0, 0.0, 1e200])
        np.testing.assert_array_equal(row_norms(sp.csr_matrix((2, 2))), [0.0, 0.0])

    @each("dtype", [np.uint8, np.int8, np.int16, np.bool_, np.float32])
    def test_narrow_types_never_wrap(self, dtype: DTypeLike) -> None:
        X = np.random.default_rng(1).integers(0, 2 if dtype is np.bool_ else 128, size=(50, 40)).astype(dtype)
        expected = np.sqrt((X.astype(np.float64) ** 2).sum(axis=1))
        np.testing.assert_allclose(row_norms(X), expected, rtol=1e-14)
        np.testing.assert_allclose(row_norms(sp.csr_matrix(X)), expected, rtol=1e-14)

    def test_lowest_integer(self) -> None:
        """The magnitude of -128 is not an int8."""
        X = np.array([[-128, 0]], dtype=np.int8)
        assert row_norms(X)[0] == row_norms(sp.csr_matrix(X))[0] == 128.0


class TestScaleRows:
    def test_zscore(self) -> None:
        X = np.random.default_rng(2).normal(size=(70, 4)) * 3 + 1e6
        X[:, 2] = 0.1
        scaled = scale_rows(X, "zscore", scale_of(X))
        np.testing.assert_allclose(scaled.mean(axis=0), 0.0, atol=1e-9)
        np.testing.assert_allclose(scaled.std(axis=0), [1, 1, 0, 1], rtol=1e-9)
        np.testing.assert_array_equal(scaled[:, 2], 0.0)

    def test_sparse_zscore_keeps_differences_of_rows(self) -> None:
        X = sparse_values()
        dense = scale_rows(X, "zscore", scale_of(X))
        sparse = scale_rows(sp.csr_matrix(X), "zscore", scale_of(X)).toarray()
        np.testing.assert_allclose(sparse - sparse[0], dense - dense[0], atol=1e-13)

    @each("dtype", [np.float64, np.float32, np.uint8])
    def test_unit(self, dtype: DTypeLike) -> None:
        X = (sparse_values() * 40).astype(dtype)
        X[3] = 0
        expected = normalize(X.astype(np.float64))
        for block in (X, sp.csr_matrix(X)):
            scaled = scale_rows(block, "unit", None, RowScale(None, row_norms(X)))
            values = scaled.toarray() if sp.issparse(scaled) else scaled
            assert values.dtype == np.float64
            np.testing.assert_allclose(values, expected, rtol=1e-14)

    @each("dtype", [np.float64, np.float32, np.uint8, np.int16])
    def test_log1p(self, dtype: DTypeLike) -> None:
        X = (sparse_values() * 40).astype(dtype)
        expected = np.log1p(X.astype(np.float64))
        np.testing.assert_array_equal(scale_rows(X, "log1p"), expected)
        np.testing.assert_array_equal(scale_rows(sp.csr_matrix(X), "log1p").toarray(), expected)

    @each("scaling", ["zscore", "unit", "log1p"])
    def test_input_is_left_alone(self, scaling: Scaling) -> None:
        X = sparse_values()
        X.setflags(write=False)
        sparse = sp.csr_matrix(X)
        sparse.data.setflags(write=False)
        for block in (X, sparse):
            scale_rows(block, scaling, scale_of(X), RowScale(None, row_norms(X)))
        np.testing.assert_array_equal(sparse.toarray(), X)


class TestTotals:
    @each("dtype", [np.float64, np.float32, np.uint8])
    def test_sums(self, dtype: DTypeLike) -> None:
        X = (sparse_values() * 40).astype(dtype)
        expected = X.astype(np.float64).sum(axis=1)
        for block in (X, sp.csr_matrix(X), np.asfortranarray(X)):
            np.testing.assert_allclose(row_sums(block), expected, rtol=1e-14)

    def test_sums_do_not_depend_on_the_rows_beside(self) -> None:
        X = np.random.default_rng(0).random((3000, 37), dtype=np.float32)
        whole = row_sums(X)
        for rows in (slice(5, 6), slice(100, 2900), slice(2999, 3000)):
            assert row_sums(X[rows]).tobytes() == whole[rows].tobytes()

    def test_rows_add_up_to_the_target(self) -> None:
        X = sparse_values()
        X[3] = 0
        factors = row_factors(row_sums(X), 100.0)
        for block in (X, sp.csr_matrix(X)):
            sums = row_sums(scale_rows(block, "total=100", None, RowScale(factors)))
            np.testing.assert_allclose(sums, np.where(X.any(axis=1), 100, 0), rtol=1e-14)

    def test_median_is_of_rows_that_are_not_zero(self) -> None:
        assert median_sum(lambda: iter(np.split(np.array([0.0, 0.0, -1.0, 2.0, 4.0]), [4]))) == 3.0
        assert median_sum(lambda: iter([np.zeros(3)])) == 1.0

    def test_norms_are_taken_of_whole_rows(self) -> None:
        X = sparse_values()
        scaled = scale_rows(X, "log1p+unit")
        np.testing.assert_allclose(scaled, normalize(np.log1p(X)), rtol=1e-14)


def test_inverse_of_zero_is_zero() -> None:
    np.testing.assert_array_equal(inverse_or_zero(np.array([0.0, 4.0, 0.5])), [0.0, 0.25, 2.0])


def test_part_of_a_scale() -> None:
    part = ColumnScale(np.arange(5.0), np.arange(5.0) + 10, np.arange(5.0) + 20).part(slice(1, 3))
    np.testing.assert_array_equal([part.mean, part.std, part.rest], [[1, 2], [11, 12], [21, 22]])
