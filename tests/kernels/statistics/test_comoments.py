"""Co-moments: exact under offsets, to the bit the same for every cut of the rows, and right when merged."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs.kernels.statistics.comoments import (
    PRODUCT_ROWS,
    Comoments,
    ComomentSum,
    correlations,
    merge_comoments,
    stretch_rows,
)
from tests.cases import each

RNG = np.random.default_rng(11)


def summed(X: np.ndarray, heights: list[int] | None = None, weights: np.ndarray | None = None) -> Comoments:
    """Co-moments of rows that come in blocks of some heights."""
    total = ComomentSum(X.shape[1], X.shape[0])
    start = 0
    for height in [*(heights or []), X.shape[0]]:
        rows = slice(start, start + height)
        total.add(X[rows], None if weights is None else weights[rows])
        start += height
    return total.result()


def mixed(n: int, width: int) -> np.ndarray:
    """Columns that depend on each other, of very different scales."""
    X = RNG.normal(size=(n, width)) @ RNG.normal(size=(width, width))
    return X * 10.0 ** RNG.integers(-3, 4, width)


@each("shape", [(1, 1), (2, 3), (70, 9), (4096, 8), (5000, 130), (9000, 3)])
def test_like_numpy(shape: tuple[int, int]) -> None:
    X = mixed(*shape)
    found = summed(X)
    centered = X - X.mean(axis=0)
    scale = np.sqrt(np.multiply.outer((centered**2).sum(axis=0), (centered**2).sum(axis=0))) + 1e-300
    assert found.total == shape[0]
    np.testing.assert_allclose(found.mean.sum(axis=0), X.mean(axis=0), rtol=1e-12, atol=1e-12 * np.abs(X).max())
    np.testing.assert_allclose(found.matrix / scale, centered.T @ centered / scale, atol=1e-13)
    np.testing.assert_array_equal(found.matrix, found.matrix.T)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 3000), max_size=8), st.booleans())
def test_no_cut_of_the_rows_changes_a_bit(heights: list[int], weighted: bool) -> None:
    X = np.random.default_rng(3).normal(size=(9001, 3))
    weights = np.random.default_rng(4).uniform(0, 2, 9001) if weighted else None
    cut, whole = summed(X, heights, weights), summed(X, None, weights)
    np.testing.assert_array_equal(cut.matrix, whole.matrix)
    np.testing.assert_array_equal(cut.mean, whole.mean)


def test_offsets_cost_nothing() -> None:
    X = RNG.normal(size=(6000, 3)) @ RNG.normal(size=(3, 6)) + RNG.normal(size=(6000, 6))
    found = correlations(summed(X + 1e8))
    # adding 1e8 rounds the values themselves; the same rounding without the offset is the truth
    np.testing.assert_allclose(found, np.corrcoef((X + 1e8) - 1e8, rowvar=False), atol=1e-12)


def test_first_rows_far_from_all_others() -> None:
    X = mixed(20_000, 4)
    X[:PRODUCT_ROWS] += 1e6
    np.testing.assert_allclose(correlations(summed(X)), np.corrcoef(X, rowvar=False), atol=1e-12)


@each("dtype", [np.float32, np.uint8, np.int16, bool])
def test_types_are_widened_first(dtype: type[np.generic]) -> None:
    X = np.where(RNG.random((300, 5)) < 0.4, 0, RNG.integers(0, 200, size=(300, 5))).astype(dtype)
    np.testing.assert_allclose(correlations(summed(X)), np.corrcoef(X.astype(np.float64), rowvar=False), atol=1e-13)


def test_weights_count_rows() -> None:
    X, weights = mixed(5000, 5), RNG.integers(0, 4, 5000)
    weighted, repeated = summed(X, None, weights.astype(np.float64)), summed(np.repeat(X, weights, axis=0))
    assert weighted.total == repeated.total
    np.testing.assert_allclose(weighted.mean.sum(axis=0), repeated.mean.sum(axis=0), rtol=1e-9)
    np.testing.assert_allclose(weighted.matrix, repeated.matrix, rtol=1e-9, atol=1e-9 * repeated.matrix.max())


def test_rows_of_weight_zero_only() -> None:
    nothing = summed(mixed(10, 3), None, np.zeros(10))
    assert nothing.total == 0
    other = summed(mixed(20, 3))
    assert merge_comoments(nothing, other) is other
    assert merge_comoments(other, nothing) is other


def test_merged_parts_are_the_whole() -> None:
    X = mixed(7000, 5) + 1e5
    parts = [summed(X[:100]), summed(X[100:5000]), summed(X[5000:])]
    merged = merge_comoments(merge_comoments(parts[0], parts[1]), parts[2])
    whole = summed(X)
    np.testing.assert_allclose(merged.mean.sum(axis=0), whole.mean.sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(correlations(merged), correlations(whole), atol=1e-11)


def test_constant_columns_go_with_none() -> None:
    X = mixed(500, 3)
    X[:, 1] = 0.1 + 1e8
    found = correlations(summed(X))
    np.testing.assert_array_equal(found[1], [0.0, 1.0, 0.0])
    assert np.isfinite(found).all()


def test_copies_correlate_fully() -> None:
    a = RNG.normal(size=4000)
    found = correlations(summed(np.column_stack([a, a, -3 * a + 7])))
    np.testing.assert_allclose(np.abs(found), 1.0, atol=1e-14)
    assert np.abs(found).max() <= 1.0


@given(st.integers(1, 10**10))
def test_stretches_follow_from_the_rows_alone(n: int) -> None:
    height = stretch_rows(n)
    assert height & (height - 1) == 0
    assert -(-n // height) <= 64
    assert height % PRODUCT_ROWS == 0
