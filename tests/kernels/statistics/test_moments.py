"""Moments against NumPy in extended precision, and the claims on order and merging that scoring rests on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import DTypeLike, NDArray

from daskfs.kernels.statistics import moments as kernel
from daskfs.kernels.statistics.moments import (
    ROW_BLOCK,
    CenteredSums,
    Moments,
    cell_rows,
    class_moments,
    column_moments,
    column_sums,
    merge_moments,
    merge_tree,
    row_blocks,
    rows_at_once,
    target_moments,
    tree_moments,
    weighted_column_sums,
    weighted_deviation,
)
from tests.cases import each

FloatArray = NDArray[np.float64]


def extended_moments(F: NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """Mean and sum of squared deviations by column, in 80-bit arithmetic."""
    exact = np.asarray(F).astype(np.longdouble)
    mean = exact.mean(axis=0)
    return mean.astype(np.float64), ((exact - mean) ** 2).sum(axis=0).astype(np.float64)


def offset_columns(n: int = 3000, offset: float = 1e8) -> FloatArray:
    return np.random.default_rng(0).normal(size=(n, 5)) * [1.0, 1.0, 10.0, 0.1, 100.0] + offset


class TestColumnMoments:
    @each("offset", [0.0, 1e4, 1e8, -1e8])
    def test_an_offset_costs_no_digit(self, offset: float) -> None:
        F = offset_columns(offset=offset)
        moments = column_moments(F)
        mean, m2 = extended_moments(F)
        np.testing.assert_allclose(moments.mean, mean, rtol=4e-16, atol=1e-14)
        np.testing.assert_allclose(moments.m2, m2, rtol=1e-12)
        np.testing.assert_allclose(moments.variance, m2 / len(F), rtol=1e-12)

    def test_one_pass_would_fail_on_the_same_data(self) -> None:
        """So the test above can fail: the textbook formula has no digit left at an offset of 1e8."""
        F = offset_columns()
        naive = (F**2).mean(axis=0) - F.mean(axis=0) ** 2
        assert (np.abs(naive / column_moments(F).variance - 1) > 1e-4).all()

    def test_more_rows_than_one_block(self) -> None:
        F = offset_columns(n=2 * ROW_BLOCK + 17)
        mean, m2 = extended_moments(F)
        moments = column_moments(F)
        np.testing.assert_allclose(moments.mean, mean, rtol=4e-16)
        np.testing.assert_allclose(moments.m2, m2, rtol=1e-12)
        np.testing.assert_array_equal([moments.minimum, moments.maximum], [F.min(axis=0), F.max(axis=0)])

    def test_wide_band_is_cut_into_fewer_rows_with_the_same_moments(self) -> None:
        F = np.random.default_rng(1).normal(size=(100, 200_000 // 100)) + 1e6
        assert rows_at_once(10**6) < 100
        mean, m2 = extended_moments(F)
        moments = column_moments(F)
        np.testing.assert_allclose(moments.mean, mean, rtol=4e-16)
        np.testing.assert_allclose(moments.m2, m2, rtol=1e-12)

    @each("dtype", [np.uint8, np.int8, np.int16, np.uint16, np.int64, np.bool_, np.float16, np.float32])
    def test_narrow_types_never_wrap(self, dtype: DTypeLike) -> None:
        """Sums and deviations leave the range of each type many times over."""
        values = np.random.default_rng(2).integers(0, 2 if dtype is np.bool_ else 128, size=(5000, 3))
        F = values.astype(dtype)
        moments = column_moments(F)
        mean, m2 = extended_moments(values)
        np.testing.assert_allclose(moments.mean, mean, rtol=1e-15)
        np.testing.assert_allclose(moments.m2, m2, rtol=1e-12)
        sparse = column_moments(sp.csr_matrix(F if dtype is not np.float16 else F.astype(np.float32)))
        np.testing.assert_allclose(sparse.m2, m2, rtol=1e-12)

    @each("value", [0.1, 1e8 + 0.1, -1e-30, 1e30])
    @each("n", [1, 3, 7, 1000])
    def test_constant_column(self, value: float, n: int) -> None:
        moments = column_moments(np.full((n, 2), value))
        assert moments.is_constant.all()
        np.testing.assert_array_equal(moments.variance, 0.0)
        np.testing.assert_array_equal(moments.mean, value)

    def test_nearly_constant_column_is_not_constant(self) -> None:
        F = np.full((100, 1), 1e8)
        F[3] = np.nextafter(1e8, np.inf)
        moments = column_moments(F)
        assert not moments.is_constant[0]
        np.testing.assert_allclose(moments.m2, 0.99 * 2.0**-52, rtol=1e-12)

    def test_read_only_input(self) -> None:
        F = offset_columns(50)
        expected = column_moments(F)
        F.setflags(write=False)
        np.testing.assert_array_equal(column_moments(F).m2, expected.m2)

    def test_fortran_order_and_views(self) -> None:
        F = offset_columns(500)
        expected = extended_moments(F)[1]
        for view in (np.asfortranarray(F), np.repeat(F, 2, axis=0)[::2], np.repeat(F, 2, axis=1)[:, ::2]):
            np.testing.assert_allclose(column_moments(view).m2, expected, rtol=1e-12)


class TestSparseMoments:
    def test_equals_dense(self) -> None:
        rng = np.random.default_rng(3)
        F = rng.normal(size=(400, 30)) * (rng.uniform(size=(400, 30)) < 0.2)
        sparse, dense = column_moments(sp.csr_matrix(F)), column_moments(F)
        for name in ("mean", "m2", "minimum", "maximum"):
            np.testing.assert_allclose(getattr(sparse, name), getattr(dense, name), rtol=1e-12, atol=1e-15)

    def test_full_columns_with_an_offset(self) -> None:
        F = offset_columns()
        moments = column_moments(sp.csr_matrix(F))
        np.testing.assert_allclose(moments.m2, extended_moments(F)[1], rtol=1e-9)

    def test_implicit_zeros_count_for_minimum_maximum_and_constancy(self) -> None:
        F = np.array([[0.0, 5.0, -2.0, 3.0, 0.0], [0.0, 5.0, -1.0, 3.0, 7.0], [0.0, 5.0, -3.0, 0.0, 7.0]])
        moments = column_moments(sp.csr_matrix(F))
        np.testing.assert_array_equal(moments.minimum, F.min(axis=0))
        np.testing.assert_array_equal(moments.maximum, F.max(axis=0))
        np.testing.assert_array_equal(moments.is_constant, [True, True, False, False, False])

    def test_stored_zeros_are_values_like_others(self) -> None:
        F = sp.csr_matrix((np.array([0.0, 4.0, 0.0]), ([0, 1, 2], [0, 0, 1])), shape=(3, 2))
        moments = column_moments(F)
        np.testing.assert_array_equal([moments.minimum, moments.maximum], [[0.0, 0.0], [4.0, 0.0]])
        np.testing.assert_array_equal(moments.is_constant, [False, True])

    def test_the_matrix_is_not_changed(self) -> None:
        F = sp.csr_matrix((np.array([3.0, 1.0]), np.array([1, 0]), np.array([0, 2])), shape=(1, 2))
        column_moments(F)
        np.testing.assert_array_equal(F.indices, [1, 0])


def weighted_columns(form: str) -> tuple[Any, FloatArray]:
    """Return columns of which one is constant on the rows that count, and another one missing or 0, and weights."""
    rng = np.random.default_rng(9)
    weights = rng.integers(0, 4, size=3000).astype(np.float64)
    F = offset_columns(offset=30.0)
    F[:, 1] = np.where(weights > 0, 0.1, F[:, 1])
    if "sparse" in form:
        F[rng.random(F.shape) < 0.7] = 0.0
    if "missing" in form:
        F[rng.random(F.shape) < 0.2] = np.nan
        F[weights > 0, 2] = np.nan
    return sp.csr_matrix(F) if "sparse" in form else F, weights


@pytest.mark.parametrize("form", ["dense", "missing", "sparse", "sparse, missing"])
class TestWeights:
    def test_whole_weights_are_repeated_rows(self, form: str) -> None:
        F, weights = weighted_columns(form)
        expected = column_moments(F[np.repeat(np.arange(len(weights)), weights.astype(int))])
        for moments in (column_moments(F, weights), tree_moments(F, weights)):
            np.testing.assert_array_equal(moments.count, expected.count)
            np.testing.assert_array_equal(moments.is_constant, expected.is_constant)
            assert_close(moments, dataclasses.replace(expected, count=moments.count))
        assert expected.is_constant.tolist() == [False, "sparse" not in form, "missing" in form, False, False]

    def test_ones_are_no_weights_to_the_bit(self, form: str) -> None:
        F, weights = weighted_columns(form)
        for name, value in vars(tree_moments(F)).items():
            np.testing.assert_array_equal(getattr(tree_moments(F, np.ones(len(weights))), name), value, err_msg=name)

    def test_no_row_counts(self, form: str) -> None:
        F, weights = weighted_columns(form)
        part, nothing = tree_moments(F, weights), tree_moments(F, np.zeros(len(weights)))
        assert not np.any(nothing.count)
        assert nothing.is_constant.all()
        for name, value in vars(merge_moments(nothing, part)).items():
            np.testing.assert_array_equal(value, getattr(part, name), err_msg=name)


def assert_close(a: Moments, b: Moments) -> None:
    assert np.all(a.count == b.count)
    np.testing.assert_allclose(a.mean, b.mean, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(a.m2, b.m2, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(a.minimum, b.minimum)
    np.testing.assert_array_equal(a.maximum, b.maximum)


class TestMerge:
    values = hnp.arrays(np.float64, st.tuples(st.integers(3, 40), st.just(2)), elements=st.floats(-100, 100, width=32))

    @given(values, st.data())
    def test_parts_in_any_grouping_give_the_whole(self, F: FloatArray, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(F)))
        second = data.draw(st.integers(first, len(F)))
        a, b, c = (column_moments(part) for part in (F[:first], F[first:second], F[second:]))
        whole = column_moments(F)
        assert_close(merge_moments(merge_moments(a, b), c), whole)
        assert_close(merge_moments(a, merge_moments(b, c)), whole)
        assert_close(merge_moments(c, merge_moments(b, a)), whole)

    def test_empty_part_is_the_identity_to_the_last_bit(self) -> None:
        part, empty = column_moments(offset_columns(100)), column_moments(np.empty((0, 5)))
        for merged in (merge_moments(part, empty), merge_moments(empty, part)):
            for name in ("count", "mean", "m2", "minimum", "maximum"):
                np.testing.assert_array_equal(getattr(merged, name), getattr(part, name))
        assert merge_moments(empty, empty).count == 0

    def test_many_small_parts_with_an_offset(self) -> None:
        F = offset_columns()
        merged = column_moments(F[:0])
        for rows in row_blocks(len(F), 37):
            merged = merge_moments(merged, column_moments(F[rows]))
        np.testing.assert_allclose(merged.m2, extended_moments(F)[1], rtol=1e-6)
        np.testing.assert_allclose(merged.variance[0], 1.0, rtol=0.1)


class TestWeightedColumnSums:
    @each("n", [1, 2, 3, 8, 1024, 1500])
    def test_bits_do_not_depend_on_width_or_position(self, n: int) -> None:
        rng = np.random.default_rng(4)
        column, weights, others = rng.normal(size=n), rng.uniform(size=n), rng.normal(size=(n, 64))
        expected = weighted_column_sums(weights, np.ascontiguousarray(np.stack([column, column], axis=1)))[0]
        for width in range(1, 65):
            for position in {0, width // 2, width - 1}:
                panel = np.ascontiguousarray(others[:, :width])
                panel[:, position] = column
                assert weighted_column_sums(weights, panel)[position] == expected, (width, position)

    def test_value(self) -> None:
        rng = np.random.default_rng(5)
        A, weights = rng.normal(size=(1000, 7)), rng.normal(size=1000)
        np.testing.assert_allclose(weighted_column_sums(weights, A), weights @ A, rtol=1e-11)
        np.testing.assert_allclose(column_sums(A), A.sum(axis=0), rtol=1e-11)

    @each("function", [column_moments, lambda F: weighted_deviation(F, np.linspace(0, 1, len(F)))])
    def test_bits_of_what_is_built_on_it(self, function: Callable[[FloatArray], object]) -> None:
        F = offset_columns(2000, offset=3.0)

        def bits(result: Any) -> FloatArray:
            parts = (result.mean, result.rest, result.m2) if isinstance(result, Moments) else result
            return np.vstack(parts)

        whole = bits(function(F))
        for start in range(5):
            for stop in range(start + 1, 6):
                panel = np.ascontiguousarray(F[:, start:stop])
                np.testing.assert_array_equal(bits(function(panel)), whole[:, start:stop])


class TestWeightedDeviation:
    @each("offset", [0.0, 1e8])
    def test_extended_precision(self, offset: float) -> None:
        F, weights = offset_columns(offset=offset), np.random.default_rng(6).uniform(size=3000)
        weights[::7] = 0.0
        exact, w = F.astype(np.longdouble), weights.astype(np.longdouble)
        mean = w @ exact / w.sum()
        squares = w @ (exact - mean) ** 2
        found_mean, found = weighted_deviation(F, weights)
        np.testing.assert_allclose((found_mean[0] - mean) + found_mean[1], 0.0, atol=1e-9)
        np.testing.assert_allclose(found, squares.astype(np.float64), rtol=1e-12)

    def test_unit_weights_are_the_moments(self) -> None:
        F = offset_columns(200)
        mean, squares = weighted_deviation(F, np.ones(200))
        np.testing.assert_allclose(squares, column_moments(F).m2, rtol=1e-13)
        np.testing.assert_allclose(mean[0], column_moments(F).mean, rtol=1e-15)

    def test_unsigned_and_read_only(self) -> None:
        F = np.random.default_rng(7).integers(0, 256, size=(300, 4)).astype(np.uint8)
        F.setflags(write=False)
        weights = np.linspace(1, 2, 300)
        weights.setflags(write=False)
        for found, expected in zip(
            weighted_deviation(F, weights), weighted_deviation(F.astype(float), weights), strict=True
        ):
            np.testing.assert_array_equal(found, expected)


class TestCenteredSums:
    @staticmethod
    def sums(F: FloatArray, weights: FloatArray, size: int = 700) -> CenteredSums:
        found = CenteredSums(column_moments(F).mean, len(weights))
        for rows in row_blocks(len(F), size):
            found.add(F[rows], weights[:, rows])
        return found

    @each("offset", [0.0, 1e8])
    def test_every_weighting_has_its_own_deviation(self, offset: float) -> None:
        F, weights = offset_columns(offset=offset), np.random.default_rng(9).uniform(size=(3, 3000))
        weights[1, ::3] = 0.0
        means, squares, far = self.sums(F, weights).result()
        assert not far.any()
        for row, weight in enumerate(weights):
            mean, expected = weighted_deviation(F, weight)
            np.testing.assert_allclose(means[0, row], mean[0], rtol=4e-16, atol=1e-13)
            np.testing.assert_allclose(squares[row], expected, rtol=1e-12)
            alone = self.sums(F, weights[row : row + 1]).result()
            np.testing.assert_array_equal([*means[:, row], squares[row]], [*alone[0][:, 0], alone[1][0]])

    def test_a_mean_far_from_the_center_is_named(self) -> None:
        """Rows that count lie at 1e8 in one column; taken from the mean of all, their deviations have no digit left."""
        F, weights = np.random.default_rng(10).normal(size=(3000, 3)), np.zeros((1, 3000))
        weights[0, :300] = 1.0
        F[:300, 1] += 1e8
        _, squares, far = self.sums(F, weights).result()
        assert far.tolist() == [[False, True, False]]
        exact = extended_moments(F[:300])[1]
        assert abs(squares[0, 1] / exact[1] - 1) > 1e-3
        np.testing.assert_allclose(weighted_deviation(F, weights[0])[1], exact, rtol=1e-12)

    def test_without_weights(self) -> None:
        means, squares, far = self.sums(np.eye(4), np.zeros((1, 4))).result()
        assert np.isfinite(means).all()
        np.testing.assert_array_equal([squares, far], 0.0)


class TestClassAndTargetMoments:
    def test_numbers_of_rows_stand_for_a_copy_of_them(self) -> None:
        """To the bit, with more of them than one block."""
        F = offset_columns(3 * ROW_BLOCK).astype(np.float32)
        rng = np.random.default_rng(11)
        rows = np.flatnonzero(rng.uniform(size=len(F)) < 0.6)
        weights, target = rng.uniform(size=(2, rows.size))
        for known in (None, weights):
            for found, copied in (
                (column_moments(F, known, rows=rows), column_moments(F[rows], known)),
                (target_moments(F, target, known, rows=rows), target_moments(F[rows], target, known)),
            ):
                for name, value in vars(copied).items():
                    np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)

    def test_each_class_alone(self) -> None:
        F, codes = offset_columns(300), np.random.default_rng(8).integers(-1, 3, size=300)
        moments = class_moments(F, codes, 4)
        np.testing.assert_array_equal(moments.counts, [(codes == c).sum() for c in range(4)])
        for code in range(3):
            mean, m2 = extended_moments(F[codes == code])
            first = F[codes == 0].astype(np.longdouble).mean(axis=0)
            np.testing.assert_allclose(moments.shifts[code], (mean - first).astype(float), rtol=1e-9, atol=1e-8)
            np.testing.assert_allclose(moments.m2[code], m2, rtol=1e-12)

    def test_class_constant_scatter_is_exactly_zero(self) -> None:
        moments = class_moments(np.repeat([[0.1], [0.7]], 7, axis=0), np.repeat([0, 1], 7), 2)
        np.testing.assert_array_equal(moments.m2, 0.0)

    @each("offset", [0.0, 1e8])
    def test_comoment(self, offset: float) -> None:
        F, target = offset_columns(2000, offset), np.random.default_rng(9).normal(size=2000) + offset
        exact, y = F.astype(np.longdouble), target.astype(np.longdouble)
        expected = (y - y.mean()) @ (exact - exact.mean(axis=0))
        moments = target_moments(F, target)
        scale = np.sqrt(moments.m2 * moments.target_m2)
        np.testing.assert_allclose(moments.comoment / scale, (expected / scale).astype(float), atol=1e-9)
        np.testing.assert_allclose(moments.target_m2, float(((y - y.mean()) ** 2).sum()), rtol=1e-9)


class TestTree:
    """Moments of bands merge to the same bits for every height of bands that a plan may choose."""

    @each("width", [3, 700])
    @each("sparse", [False, True])
    def test_any_height_gives_the_same_bits(self, width: int, sparse: bool) -> None:
        cell = cell_rows(width, sparse=sparse)
        n_rows = min(9 * cell + cell // 3, 200_000)
        F = np.random.default_rng(0).standard_normal((n_rows, width)) * 3 + 100
        if sparse:
            F[np.random.default_rng(1).random(F.shape) < 0.7] = 0.0
        X = sp.csr_matrix(F) if sparse else F
        whole = tree_moments(X)
        np.testing.assert_allclose(whole.mean, F.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(whole.variance, F.var(axis=0), rtol=1e-11)
        for height in (cell, 2 * cell, 8 * cell):
            bands = merge_tree([tree_moments(X[start : start + height]) for start in range(0, n_rows, height)])
            np.testing.assert_array_equal(bands.mean, whole.mean)
            np.testing.assert_array_equal(bands.m2, whole.m2)

    @pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.int16, marks=pytest.mark.long)])
    @settings(max_examples=40, deadline=None)
    @given(
        n_rows=st.integers(1, 700),
        width=st.integers(1, 20),
        share=st.sampled_from([0.0, 0.02, 0.4, 1.0]),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_compiled_cells_have_the_same_bits(
        self, dtype: DTypeLike, n_rows: int, width: int, share: float, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        F = np.where(rng.random((n_rows, width)) < share, rng.normal(3, 40, (n_rows, width)), 0).astype(dtype)
        X = sp.csr_matrix(F)
        X.data[: X.nnz // 5] = 0  # stored
        expected = tree_moments(X)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kernel, "COMPILED_CELLS", 0)
            found = tree_moments(X)
        for name, value in vars(expected).items():
            np.testing.assert_array_equal(getattr(found, name), value, err_msg=name)

    def test_values_that_compiled_cells_do_not_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Missing ones, and two entries of one place, which are one value."""
        missing = sp.csr_matrix(np.array([[np.nan, 1.0], [0.0, 2.0]]))
        twice = sp.csr_matrix((np.array([1.0, 2.0, 5.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
        expected = [tree_moments(X) for X in (missing, twice)]
        monkeypatch.setattr(kernel, "COMPILED_CELLS", 0)
        for X, whole in zip((missing, twice), expected, strict=True):
            np.testing.assert_array_equal(tree_moments(X).mean, whole.mean)
        np.testing.assert_array_equal(expected[1].mean, [2.5, 1.5])

    def test_cells_follow_from_the_width_alone(self) -> None:
        for width in (1, 7, 64, 1000, 10**6):
            rows = cell_rows(width, sparse=False)
            assert rows & (rows - 1) == 0
            assert rows == 1 or rows * width <= 2**17
