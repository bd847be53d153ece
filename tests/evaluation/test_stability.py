"""Stability: pairs counted one by one, random selections, rankings that are cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs.evaluation import stability
from daskfs.evaluation.stability import jaccard_index, kuncheva_index, rank_intervals, selection_frequency
from tests.reference import evaluation as reference

rankings = st.integers(2, 9).flatmap(
    lambda d: st.lists(st.permutations(range(d)).map(np.array), min_size=2, max_size=6).map(lambda orders: (d, orders))
)


@given(rankings, st.data())
def test_indices_against_pairs(case: tuple[int, list[np.ndarray]], data: st.DataObject) -> None:
    d, orders = case
    k = data.draw(st.integers(1, d))
    selections = [order[:k].tolist() for order in orders]
    if k < d:
        assert kuncheva_index(orders, k, d) == pytest.approx(reference.kuncheva_index(selections, d), abs=1e-12)
    else:
        assert kuncheva_index(orders, k, d) is None
    assert jaccard_index(orders, k) == pytest.approx(reference.jaccard_index(selections), abs=1e-12)
    frequency = selection_frequency(orders, k, d)
    assert frequency.tolist() == [sum(f in s for s in selections) / len(orders) for f in range(d)]


def test_more_rankings_than_are_compared_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(30)[:9] for _ in range(23)]
    expected = jaccard_index(orders, 7)
    monkeypatch.setattr(stability, "RANKINGS_AT_ONCE", 5)
    assert jaccard_index(orders, 7) == expected
    assert expected == pytest.approx(reference.jaccard_index([order[:7].tolist() for order in orders]), abs=1e-12)


def test_extremes() -> None:
    same = [np.arange(10)] * 4
    assert kuncheva_index(same, 3, 10) == 1.0
    assert jaccard_index(same, 3) == 1.0
    apart = [np.arange(5), np.arange(5, 10)]
    assert kuncheva_index(apart, 5, 10) == -1.0
    assert jaccard_index(apart, 5) == 0.0
    assert jaccard_index([np.arange(4), np.arange(4)[::-1]], 4) == 1.0


def test_one_ranking_agrees_with_none() -> None:
    order = [np.arange(6)]
    assert kuncheva_index(order, 2, 6) is None
    assert jaccard_index(order, 2) is None
    assert selection_frequency(order, 2, 6).tolist() == [1, 1, 0, 0, 0, 0]


@pytest.mark.parametrize("orders", [[], [np.arange(5), np.arange(2)]])
def test_rankings_that_are_too_short_are_refused(orders: list[np.ndarray]) -> None:
    with pytest.raises(ValueError, match=r"rankings should list 3 features"):
        selection_frequency(orders, 3, 6)


def test_random_selections_of_many_features() -> None:
    """500 rankings of 1,000 features: what chance gives, corrected and not."""
    rng = np.random.default_rng(0)
    orders = [rng.permutation(1000) for _ in range(500)]
    assert kuncheva_index(orders, 100, 1000) == pytest.approx(0.0, abs=1e-3)
    assert jaccard_index(orders, 100) == pytest.approx(100 / 1900, abs=1e-3)
    intervals = rank_intervals(orders, 1000)
    assert intervals.mean.mean() == 500.5
    assert np.abs(intervals.low - 50).max() < 60
    assert intervals.depth is None


@given(rankings, st.data())
def test_rank_intervals_against_one_feature_at_a_time(case: tuple[int, list[np.ndarray]], data: st.DataObject) -> None:
    d, orders = case
    orders = [order[: data.draw(st.integers(1, d))] for order in orders]
    level = data.draw(st.sampled_from([0.5, 0.9]))
    found = rank_intervals(orders, d, level)
    ranks = np.array([[reference.rank_of(f, order.tolist()) for f in range(d)] for order in orders])
    np.testing.assert_allclose(found.mean, ranks.mean(axis=0))
    np.testing.assert_allclose(found.low, np.quantile(ranks, (1 - level) / 2, axis=0))
    np.testing.assert_allclose(found.high, np.quantile(ranks, (1 + level) / 2, axis=0))
    assert found.is_cut.tolist() == [any(f not in order for order in orders) for f in range(d)]
    depth = min(order.size for order in orders)
    assert found.depth == (depth if depth < d else None)


def test_rank_intervals_of_more_features_than_fit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(40)[:25] for _ in range(6)]
    expected = rank_intervals(orders, 40)
    monkeypatch.setattr(stability, "RANKS_AT_ONCE", 50)
    found = rank_intervals(orders, 40)
    for name in ("mean", "low", "high", "is_cut"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.depth == 25


def test_no_ranking_has_no_intervals() -> None:
    with pytest.raises(ValueError, match="there is no ranking"):
        rank_intervals([], 5)
