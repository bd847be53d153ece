"""Rankings combined: against SciPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from daskfs.kernels.aggregate import combine_ranks, rank_agreement, shared_ranks
from daskfs.kernels.order import Direction
from tests.cases import each

NAN = np.nan


@each("direction", ["ascending", "descending"])
def test_equal_values_share_their_ranks(direction: Direction) -> None:
    rng = np.random.default_rng(1)
    values = rng.integers(0, 6, 40).astype(np.float64)
    values[[3, 7]] = np.nan
    known = ~np.isnan(values)
    found = shared_ranks(values, direction)
    expected = stats.rankdata(values[known] if direction == "ascending" else -values[known])
    np.testing.assert_array_equal(found[known], expected)
    assert np.isnan(found[~known]).all()


def test_the_median_leads_then_the_mean_then_the_number() -> None:
    ranks = np.array([[1.0, 2, 3, 4, 5], [1, 3, 2, 4, 5], [5, 2, 1, 4, 3]])
    median, mean, count, place = combine_ranks(ranks)
    np.testing.assert_array_equal(median, np.median(ranks, axis=0))
    np.testing.assert_array_equal(mean, ranks.mean(axis=0))
    np.testing.assert_array_equal(count, 3)
    np.testing.assert_array_equal(place, [1, 3, 2, 4, 5])  # the second and the third have one median
    np.testing.assert_array_equal(combine_ranks(np.array([[2.0, 2, 1], [1, 1, 2]]))[3], [1, 2, 3])


def test_a_feature_that_is_left_out_has_the_worst_rank_there() -> None:
    ranks = np.array([[1.0, 2, NAN, NAN], [NAN, 1, 2, NAN], [NAN, 2, 1, NAN]])
    median, mean, count, place = combine_ranks(ranks)
    np.testing.assert_array_equal(median, [4, 2, 2, NAN])
    np.testing.assert_array_equal(mean, [3, 5 / 3, 7 / 3, NAN])
    np.testing.assert_array_equal(count, [1, 3, 2, 0])
    np.testing.assert_array_equal(place, [3, 1, 2, NAN])


def test_the_order_of_rankings_changes_no_bit() -> None:
    ranks = np.random.default_rng(2).permuted(np.tile(np.arange(1.0, 30), (7, 1)), axis=1)
    ranks[2, :4] = np.nan
    assert combine_ranks(ranks).tobytes() == combine_ranks(ranks[::-1]).tobytes()


def test_agreement_is_that_of_scipy() -> None:
    rng = np.random.default_rng(3)
    ranks = np.stack([stats.rankdata(rng.integers(0, 9, 25)) for _ in range(4)])
    ranks[1, 3] = np.nan
    correlations, concordance = rank_agreement(ranks)
    kept = np.delete(ranks, 3, axis=1)
    np.testing.assert_allclose(correlations, stats.spearmanr(kept, axis=1).statistic, atol=1e-12)
    assert concordance is not None
    mean = (correlations.sum() - 4) / 12
    own = np.stack([stats.rankdata(row) for row in kept])
    spread = own.var(axis=1).sum()
    assert concordance == pytest.approx(own.sum(axis=0).var() / (4 * spread), abs=1e-12)
    assert -1 <= mean <= 1
    assert rank_agreement(np.tile(np.arange(5.0), (3, 1)))[1] == pytest.approx(1)


@each("ranks", [np.full((2, 3), NAN), np.array([[1.0, 2]]), np.ones((2, 1)), np.ones((2, 4))])
def test_agreement_of_what_tells_nothing_is_none(ranks: np.ndarray) -> None:
    assert rank_agreement(ranks)[1] is None
