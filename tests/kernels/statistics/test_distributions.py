"""Sorted columns against SciPy, counting value by value, and rows written out as often as they count."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import DTypeLike, NDArray
from scipy.stats import ks_2samp

from daskfs.kernels.statistics import distributions as module
from daskfs.kernels.statistics.contingency import information_gain
from daskfs.kernels.statistics.distributions import Distributions, distributions, sorted_columns
from tests.cases import each
from tests.reference.distributions import bins_of, kolmogorov_smirnov

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int32]


def columns(n: int, width: int = 4, n_classes: int = 2) -> tuple[FloatArray, IntArray]:
    """Columns that differ between classes, the last with many ties, and codes with -1."""
    rng = np.random.default_rng(n)
    codes = rng.integers(-1, n_classes, size=n).astype(np.int32)
    codes[:n_classes] = np.arange(n_classes)
    F = rng.normal(size=(n, width)) + np.linspace(0, 0.5, width) * codes[:, None]
    F[:, -1] = np.round(F[:, -1])
    return F, codes


def tables_by_counting(F: FloatArray, codes: IntArray, n_classes: int, n_bins: int) -> FloatArray:
    known = codes >= 0
    tables = np.zeros((n_classes, n_bins, F.shape[1]))
    for column, values in enumerate(F[known].T):
        np.add.at(tables[:, :, column], (codes[known], bins_of(values, n_bins)), 1.0)
    return tables


def by_scipy(a: FloatArray, b: FloatArray) -> float:
    """The statistic; of few values SciPy has no asymptotic probability, and so not even that."""
    return float(ks_2samp(a, b, method="exact" if min(len(a), len(b)) < 10 else "asymp").statistic)


def binned(F: np.ndarray, codes: IntArray, n_bins: int, weights: FloatArray | None = None) -> FloatArray:
    """Tables of the classes that have rows against bins, shape (n_classes, n_bins, width)."""
    return np.concatenate([block.binned(n_bins)[0] for _, block in sorted_columns(F, codes, weights, n_bins)], axis=2)


def assert_same(a: Distributions, b: Distributions, rtol: float = 0.0) -> None:
    np.testing.assert_allclose(a.distance, b.distance, rtol=rtol)
    np.testing.assert_array_equal(a.threshold, b.threshold)
    np.testing.assert_array_equal(a.is_constant, b.is_constant)
    for n_bins, gains in a.gains.items():
        np.testing.assert_allclose(gains, b.gains[n_bins], rtol=rtol, atol=rtol)
        np.testing.assert_array_equal(a.edges[n_bins], b.edges[n_bins])


class TestDistance:
    @each("n", [2, 3, 10, 333, 20_000])
    def test_scipy_of_two_classes(self, n: int) -> None:
        F, codes = columns(n)
        expected = np.array([by_scipy(f[codes == 0], f[codes == 1]) for f in F.T])
        found = distributions(F, codes)
        expected[found.is_constant] = np.nan
        np.testing.assert_allclose(found.distance, expected, rtol=1e-12)

    @each("n_classes", [3, 7, 30])
    @each("n", [60, 500, 5000])
    def test_scipy_of_all_pairs(self, n: int, n_classes: int) -> None:
        F, codes = columns(n, n_classes=n_classes)
        pairs = list(itertools.combinations(range(n_classes), 2))
        for f, found in zip(F.T, distributions(F, codes).distance, strict=True):
            if len(pairs) * n > 10**6:  # all of them would take long: the largest difference over classes, by SciPy's
                values = np.unique(f[codes >= 0])
                shares = [
                    np.searchsorted(np.sort(f[codes == c]), values, "right") / (codes == c).sum() for c in range(30)
                ]
                expected = np.ptp(shares, axis=0).max()
            else:
                expected = max(by_scipy(f[codes == a], f[codes == b]) for a, b in pairs)
            assert found == pytest.approx(expected, rel=1e-12)

    @given(
        hnp.arrays(np.float64, st.tuples(st.integers(2, 25), st.just(3)), elements=st.integers(-3, 3)),
        st.integers(2, 5),
        st.integers(0, 2**32 - 1),
    )
    def test_value_by_value(self, F: FloatArray, n_classes: int, seed: int) -> None:
        codes = np.random.default_rng(seed).integers(-1, n_classes, size=len(F)).astype(np.int32)
        codes[:2] = [0, n_classes - 1]
        found = distributions(F, codes, (2, 5))
        np.testing.assert_allclose(found.distance, kolmogorov_smirnov(F, codes), rtol=1e-12)
        for n_bins in (2, 5):
            expected = tables_by_counting(F, codes, n_classes, n_bins)
            has_rows = expected.any(axis=(1, 2))
            np.testing.assert_array_equal(binned(F, codes, n_bins), expected[has_rows])
            np.testing.assert_array_equal(found.gains[n_bins], information_gain(expected))

    @each("n_classes", [2, 5])
    def test_threshold_is_the_first_value_that_reaches_the_distance(self, n_classes: int) -> None:
        F, codes = columns(400, n_classes=n_classes)
        found = distributions(F, codes)
        for f, distance, threshold in zip(F.T, found.distance, found.threshold, strict=True):
            values = np.unique(f[codes >= 0])
            shares = [[(f[codes == c] <= v).mean() for v in values] for c in range(n_classes)]
            apart = np.ptp(shares, axis=0)
            assert threshold == values[np.argmax(apart >= distance * (1 - 1e-12))]

    def test_parted_alike_and_constant(self) -> None:
        codes = np.array([0, 1, 0, 1, -1], dtype=np.int32)
        F = np.array([[0.0, 1, 5, -0.0], [3, 1, 5, 0.0], [1, 2, 5, 0.0], [4, 2, 5, -0.0], [9, 9, 9, 9]])
        found = distributions(F, codes, (2,))
        np.testing.assert_array_equal(found.distance, [1.0, 0.0, np.nan, np.nan])
        np.testing.assert_array_equal(found.threshold, [1.0, 1.0, np.nan, np.nan])
        np.testing.assert_array_equal(found.is_constant, [False, False, True, True])

    def test_a_class_without_rows_has_no_say(self) -> None:
        F, codes = columns(200)
        wider = np.where(codes == 1, 3, codes).astype(np.int32)
        np.testing.assert_array_equal(distributions(F, wider).distance, distributions(F, codes).distance)

    def test_left_out(self) -> None:
        F, codes = columns(50)
        found = distributions(F, codes, (3,), distances=False)
        assert np.isnan(found.distance).all()
        np.testing.assert_array_equal(found.gains[3], distributions(F, codes, (3,)).gains[3])


class TestBins:
    @each("n", [2, 9, 10, 11, 95, 100, 1234])
    @each("n_bins", [2, 3, 10, 50])
    def test_without_ties_bins_differ_by_one_row(self, n: int, n_bins: int) -> None:
        codes = np.arange(n, dtype=np.int32) % 2
        F = np.random.default_rng(n).permutation(n).astype(np.float64)[:, None]
        sizes = binned(F, codes, n_bins).sum(axis=0)[:, 0]
        assert sizes.sum() == n
        assert np.ptp(sizes) <= 1

    @each("share", [0.001, 0.3, 0.5, 0.999])
    @each("n_bins", [2, 10, 17])
    def test_two_values_are_two_bins(self, share: float, n_bins: int) -> None:
        rng = np.random.default_rng(0)
        present = np.arange(5000) < 5000 * share
        codes = rng.integers(0, 3, size=5000).astype(np.int32)
        found = distributions(present[:, None].astype(np.uint8), codes, (n_bins,))
        table = binned(present[:, None], codes, n_bins)[:, :, 0]
        in_use = table.sum(axis=0) > 0
        expected = [[((codes == c) & (present == p)).sum() for p in (False, True)] for c in range(3)]
        np.testing.assert_array_equal(table[:, in_use], expected)
        np.testing.assert_array_equal(found.edges[n_bins][:, 0], [1.0] + [np.nan] * (n_bins - 2))

    def test_edges_say_the_bin_of_each_value(self) -> None:
        F, codes = columns(700, width=6)
        F[:, 2] = np.round(F[:, 2] * 2)
        F[:, 3] = 1.5
        found = distributions(F, codes, (7,))
        known = codes >= 0
        for f, edges, table in zip(F.T, found.edges[7].T, binned(F, codes, 7).transpose(2, 0, 1), strict=True):
            used = edges[~np.isnan(edges)]
            assert (np.diff(used) > 0).all()
            assert np.isnan(edges[used.size :]).all()
            numbers = np.searchsorted(used, f[known], side="right")
            sizes = table.sum(axis=0)
            np.testing.assert_array_equal(np.bincount(numbers), sizes[sizes > 0])

    def test_no_class_without_its_rows(self) -> None:
        F, codes = columns(300, n_classes=4)
        tables = binned(F, codes, 5)
        expected = np.bincount(codes[codes >= 0], minlength=4)
        np.testing.assert_array_equal(tables.sum(axis=1), np.repeat(expected[:, None], 4, axis=1))


class TestWeights:
    @each("n_classes", [2, 4])
    def test_whole_weights_are_repeated_rows(self, n_classes: int) -> None:
        F, codes = columns(500, n_classes=n_classes)
        weights = np.random.default_rng(1).integers(0, 4, size=500).astype(np.float64)
        counted = np.where(weights > 0, codes, -1)
        rows = np.repeat(np.arange(500), weights.astype(int))
        expected = distributions(F[rows], codes[rows], (3, 10))
        assert_same(distributions(F, counted, (3, 10), weights), expected)

    @each("factor", [0.1, 1 / 3, 1e-9, 1e9, 2.0])
    @each("n_classes", [2, 4])
    def test_their_scale_does_not_matter(self, factor: float, n_classes: int) -> None:
        F, codes = columns(600, n_classes=n_classes)
        codes = np.maximum(codes, 0)
        found = distributions(F, codes, (2, 10), np.full(600, factor))
        expected = distributions(F, codes, (2, 10))
        np.testing.assert_allclose(found.distance, expected.distance, rtol=1e-11)
        for n_bins in (2, 10):
            table = binned(F, codes, n_bins, np.full(600, factor))
            np.testing.assert_allclose(table, factor * binned(F, codes, n_bins), rtol=1e-11)
            np.testing.assert_array_equal(found.edges[n_bins], expected.edges[n_bins])


@pytest.mark.parametrize("n_classes", [2, 6])
@pytest.mark.parametrize("weighted", [False, True])
class TestBits:
    """The same for every panel, block and order of rows."""

    def example(self, n_classes: int, weighted: bool) -> tuple[FloatArray, IntArray, FloatArray | None]:
        F, codes = columns(300, width=40, n_classes=n_classes)
        F[:, ::3] = np.round(F[:, ::3])
        return F, codes, np.random.default_rng(2).uniform(0.1, 3, size=300) if weighted else None

    def test_width(self, n_classes: int, weighted: bool) -> None:
        F, codes, weights = self.example(n_classes, weighted)
        whole = distributions(F, codes, (10,), weights)
        for start, stop in ((0, 1), (3, 5), (20, 40), (39, 40)):
            part = distributions(F[:, start:stop], codes, (10,), weights)
            np.testing.assert_array_equal(part.distance, whole.distance[start:stop])
            np.testing.assert_array_equal(part.threshold, whole.threshold[start:stop])
            np.testing.assert_array_equal(part.gains[10], whole.gains[10][start:stop])
            np.testing.assert_array_equal(part.edges[10], whole.edges[10][:, start:stop])

    def test_blocks(self, n_classes: int, weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        F, codes, weights = self.example(n_classes, weighted)
        whole = distributions(F, codes, (10,), weights)
        for values, table in ((1, 1), (700, 50), (10**6, 10**6)):
            monkeypatch.setattr(module, "SORTED_VALUES", values)
            monkeypatch.setattr(module, "TABLE_VALUES", table)
            assert_same(distributions(F, codes, (10,), weights), whole)

    def test_order_of_rows(self, n_classes: int, weighted: bool) -> None:
        F, codes, weights = self.example(n_classes, weighted)
        order = np.random.default_rng(3).permutation(300)
        shuffled = None if weights is None else weights[order]
        found = distributions(F[order], codes[order], (10,), shuffled)
        assert_same(found, distributions(F, codes, (10,), weights), rtol=1e-12 if weighted else 0.0)


@each("dtype", [np.uint8, np.int16, np.float32, np.bool_, ">f8"])
def test_other_types_and_read_only(dtype: DTypeLike) -> None:
    F, codes = columns(400)
    F = np.round(F + 5).clip(0, 1 if dtype is np.bool_ else 100).astype(dtype)
    F.setflags(write=False)
    expected = distributions(F.astype(np.float64), codes, (5,))
    assert_same(distributions(F, codes, (5,)), expected)


@each("n_classes", [2, 300])
def test_float32_is_sorted_like_float64(n_classes: int) -> None:
    """Signs, both zeros, subnormal numbers and the largest ones; with weights of 1, which take another way."""
    rng = np.random.default_rng(5)
    scale = np.array([1e-42, 1e-3, 1.0, 3e38])
    F = (rng.uniform(-1, 1, size=(1000, 4)) * scale).astype(np.float32)
    F[::3] = np.round(F[::3])
    F[::7], F[1::7] = 0.0, -0.0
    codes = rng.integers(-1, n_classes, size=1000).astype(np.int32)
    expected = distributions(F.astype(np.float64), codes, (4, 10))
    assert_same(distributions(F, codes, (4, 10)), expected)
    assert_same(distributions(F, codes, (4, 10), np.ones(1000)), expected)


def test_an_offset_costs_no_digit() -> None:
    F, codes = columns(500)
    F = np.round(F * 64) / 64
    shifted = distributions(F + 2**26, codes, (10,))
    plain = distributions(F, codes, (10,))
    np.testing.assert_array_equal(shifted.distance, plain.distance)
    np.testing.assert_array_equal(shifted.gains[10], plain.gains[10])
    np.testing.assert_array_equal(shifted.threshold, plain.threshold + 2**26)
