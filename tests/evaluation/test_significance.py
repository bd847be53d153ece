"""Intervals, paired differences and ranks over data sets, against formulas, SciPy and published figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from daskfs.evaluation.significance import (
    average_ranks,
    friedman,
    indistinguishable_groups,
    mean_interval,
    nemenyi,
    paired_difference,
    rank_table,
)
from tests.reference import evaluation as reference

DEMSAR = (3.143, 2.000, 2.893, 1.964)
"""Table 6 of Demsar (2006): average ranks of four variants of C4.5 over 14 data sets."""


class TestMeanInterval:
    def test_without_replicates_the_variance_is_corrected(self) -> None:
        values = np.random.default_rng(0).normal(0.8, 0.05, 50)
        found = mean_interval(values, np.zeros(50), 0.2, 0.9)
        assert (found.low, found.high) == pytest.approx(reference.corrected_interval(values.tolist(), 20, 80, 0.9))
        assert found.mean == pytest.approx(values.mean())
        assert (found.n_values, found.n_replicates) == (50, 1)

    def test_with_replicates_their_means_count(self) -> None:
        rng = np.random.default_rng(1)
        values, replicates = rng.normal(size=60), np.repeat([3, 8, 5, 11], [10, 20, 5, 25])
        means = np.array([values[replicates == name].mean() for name in (3, 5, 8, 11)])
        found = mean_interval(values, replicates, 0.2)
        low, high = stats.t.interval(0.95, 3, means.mean(), stats.sem(means))
        assert (found.mean, found.low, found.high) == pytest.approx((means.mean(), low, high))
        assert (found.n_values, found.n_replicates) == (60, 4)

    def test_it_covers_the_mean_of_correlated_folds_more_often_than_the_plain_one(self) -> None:
        """Values that share a part of variance 1/4, as splits of one data set do."""
        rng = np.random.default_rng(2)
        corrected = plain = 0
        for _ in range(300):
            values = rng.normal(0, 0.5) + rng.normal(size=20)
            found = mean_interval(values, np.zeros(20), 0.2)
            corrected += found.low <= 0 <= found.high
            naive = mean_interval(values, np.zeros(20), 0.0)
            plain += naive.low <= 0 <= naive.high
        assert plain < 0.75 * 300 < 0.9 * 300 < corrected

    def test_one_value_none_and_equal_ones(self) -> None:
        one = mean_interval(np.array([0.7]), np.array([0]), 0.2)
        assert one.mean == 0.7
        assert np.isnan([one.low, one.high]).all()
        assert np.isnan(mean_interval(np.array([]), np.array([]), 0.2).mean)
        equal = mean_interval(np.full(7, 0.1), np.zeros(7), 0.2)
        assert (equal.mean, equal.low, equal.high) == (0.1, 0.1, 0.1)

    def test_undefined_values_are_left_out(self) -> None:
        values = np.array([0.5, np.nan, 0.7, 0.9])
        found = mean_interval(values, np.zeros(4), 0.2)
        assert found == mean_interval(values[[0, 2, 3]], np.zeros(3), 0.2)
        only = mean_interval(values, np.array([0, 1, 0, 0]), 0.2)
        assert (only.n_replicates, only.n_values) == (1, 3)


class TestPairedDifference:
    def test_replicates_against_scipy(self) -> None:
        rng = np.random.default_rng(0)
        a, b = rng.normal(size=12), rng.normal(size=12)
        found = paired_difference(a, b, np.arange(12), 0.2)
        peer = stats.ttest_rel(a, b)
        interval = peer.confidence_interval(0.95)
        assert (found.mean, found.low, found.high) == pytest.approx(((a - b).mean(), interval.low, interval.high))
        assert found.p_value == pytest.approx(peer.pvalue)
        assert found.n_pairs == 12

    def test_one_replicate_against_the_formula(self) -> None:
        rng = np.random.default_rng(1)
        a, b = rng.normal(0.3, 1, 30), rng.normal(size=30)
        found = paired_difference(a, b, np.zeros(30), 1 / 3)
        assert (found.low, found.high) == pytest.approx(reference.corrected_interval((a - b).tolist(), 1, 2, 0.95))
        level = 1 - found.p_value  # the interval that just touches 0
        touching = reference.corrected_interval((a - b).tolist(), 1, 2, level)
        assert min(map(abs, touching)) == pytest.approx(0.0, abs=1e-9)

    @pytest.mark.parametrize(("shift", "p"), [(0.0, 1.0), (0.25, 0.0)])
    @pytest.mark.parametrize("replicates", [np.zeros(6), np.arange(6)])
    def test_equal_differences(self, shift: float, p: float, replicates: np.ndarray) -> None:
        b = np.array([0.5, 0.75, 1.0, 0.0, 0.25, 0.5])
        found = paired_difference(b + shift, b, replicates, 0.2)
        assert (found.mean, found.low, found.high, found.p_value) == (shift, shift, shift, p)

    def test_one_pair_and_missing_ones(self) -> None:
        one = paired_difference(np.array([0.5, np.nan]), np.array([0.25, 0.5]), np.zeros(2), 0.2)
        assert (one.mean, one.n_pairs) == (0.25, 1)
        assert np.isnan([one.low, one.high, one.p_value]).all()


class TestRanks:
    def test_figures_of_the_paper(self) -> None:
        """What the tables below are held against gives its chi-square, 9.28, and its F, 3.69."""
        assert reference.friedman(DEMSAR, 14) == pytest.approx((9.28, 3.69), abs=0.01)

    def test_average_ranks(self) -> None:
        table = np.array([[0.9, 0.8, 0.8, 0.7], [0.6, 0.7, 0.5, 0.8]])
        found = average_ranks(table, ("a", "b", "c", "d"))
        assert found.methods == ("a", "b", "d", "c")
        assert found.ranks.tolist() == [2.0, 2.25, 2.5, 3.25]
        assert (found.n_sets, found.notes) == (2, ())
        assert rank_table(table, higher_is_better=False).tolist() == [[4, 2.5, 2.5, 1], [2, 3, 1, 4]]

    def test_critical_differences_of_the_paper(self) -> None:
        assert nemenyi(4, 14) == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
        assert nemenyi(4, 14) == pytest.approx(1.25, abs=0.005)
        assert nemenyi(4, 14, 0.1) == pytest.approx(1.12, abs=0.005)
        q = [nemenyi(k, 1) / np.sqrt(k * (k + 1) / 6) for k in range(2, 11)]
        np.testing.assert_allclose(q, [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164], atol=1e-3)
        q = [nemenyi(k, 1, 0.1) / np.sqrt(k * (k + 1) / 6) for k in range(2, 11)]
        np.testing.assert_allclose(q, [1.645, 2.052, 2.291, 2.459, 2.589, 2.693, 2.780, 2.855, 2.920], atol=1e-3)

    @given(hnp.arrays(np.float64, (6, 4), elements=st.integers(0, 3).map(float)))
    def test_ties_against_scipy(self, table: np.ndarray) -> None:
        found = friedman(table)
        if (np.ptp(table, axis=1) == 0).all():
            assert (found.chi_square, found.p_chi_square, found.f, found.p_f) == (0.0, 1.0, 0.0, 1.0)
            return
        peer = stats.friedmanchisquare(*table.T)
        assert found.chi_square == pytest.approx(peer.statistic, abs=1e-9)
        assert found.p_chi_square == pytest.approx(peer.pvalue, abs=1e-9)
        assert friedman(-table).chi_square == pytest.approx(found.chi_square, abs=1e-9)

    @given(st.permutations(range(20)).map(lambda p: np.array(p, dtype=np.float64).reshape(5, 4)))
    def test_without_ties_against_the_formulas(self, table: np.ndarray) -> None:
        ranks = reference.average_ranks(table.tolist())
        chi_square, f = reference.friedman(ranks, 5)
        found = friedman(table)
        assert rank_table(table).mean(axis=0).tolist() == pytest.approx(ranks)
        assert found.chi_square == pytest.approx(chi_square, abs=1e-9)
        assert found.f == pytest.approx(f, rel=1e-6, abs=1e-9)
        assert found.p_f == pytest.approx(stats.f.sf(f, 3, 12), abs=1e-9)

    def test_the_same_ranks_everywhere(self) -> None:
        found = friedman(np.tile([0.1, 0.2, 0.3], (5, 1)))
        assert found.chi_square == pytest.approx(10.0)
        assert found.f == np.inf
        assert found.p_f == 0.0

    def test_methods_with_gaps_are_dropped_and_named(self) -> None:
        table = np.array([[0.1, np.nan, 0.3], [0.5, 0.9, 0.5]])
        found = average_ranks(table, ("a", "b", "c"))
        assert found.methods == ("c", "a")
        assert found.ranks.tolist() == [1.25, 1.75]
        assert found.notes == ("b has no value on 1 of 2 data sets and is not ranked.",)
        assert average_ranks(table, ("a", "b", "c"), higher_is_better=False).methods == ("a", "c")

    def test_too_small_tables_are_refused(self) -> None:
        for table in (np.ones((1, 4)), np.ones((4, 1)), np.array([[0.1, np.nan], [1, 2]])):
            with pytest.raises(ValueError, match="two data sets and two methods"):
                friedman(table)
        for sizes in ((1, 5), (3, 0)):
            with pytest.raises(ValueError, match="two methods at least"):
                nemenyi(*sizes)

    @pytest.mark.parametrize(
        ("ranks", "width", "groups"),
        [
            ([1.964, 2.0, 2.893, 3.143], 1.12, [(0, 2), (2, 3)]),
            ([1.0, 2.0, 3.0], 0.5, []),
            ([1.0, 2.0, 3.0], 5.0, [(0, 2)]),
            ([1.0, 1.5, 2.0, 2.5], 1.0, [(0, 2), (1, 3)]),
            ([2.0, 2.0], 0.0, [(0, 1)]),
        ],
    )
    def test_groups_that_do_not_differ(self, ranks: list[float], width: float, groups: list[tuple[int, int]]) -> None:
        assert indistinguishable_groups(np.array(ranks), width) == groups
