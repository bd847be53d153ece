"""Greedy picks and the walk down a ranking, against their definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskfs.kernels.greedy import filter_redundant, pick_apart, pick_greedily
from tests.cases import each
from tests.reference import greedy as reference


@each("absolute", [True, False])
@each("seed", range(4))
def test_picks_as_defined(seed: int, absolute: bool) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 12)) + rng.normal(size=(60, 12))
    relevance = rng.uniform(0 if absolute else -1, 1, 12)
    correlation = np.asarray(np.corrcoef(X, rowvar=False))
    picks = pick_greedily(relevance, np.abs(correlation) if absolute else correlation)
    expected, values = reference.rrpc(X, relevance, absolute=absolute)
    assert picks.order.tolist() == expected
    np.testing.assert_allclose(picks.score, values, atol=1e-13)
    np.testing.assert_allclose(picks.score, relevance[picks.order] - picks.redundancy, atol=1e-15)
    assert picks.redundancy[0] == 0


def test_equal_but_for_rounding_is_equal() -> None:
    relevance = np.array([0.5, 0.7, 0.7 + 1e-15, 0.1])
    redundancy = np.eye(4)
    assert pick_greedily(relevance, redundancy).order.tolist() == [1, 2, 0, 3]


def test_nothing_and_one() -> None:
    assert pick_greedily(np.empty(0), np.empty((0, 0))).order.size == 0
    one = pick_greedily(np.array([0.3]), np.eye(1))
    assert (one.order.tolist(), one.score.tolist()) == ([0], [0.3])


def table(similarity: np.ndarray) -> object:
    return lambda feature, kept: similarity[feature, list(kept)]


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0.01, 0.99))
def test_walk_as_defined(seed: int, count: int, threshold: float) -> None:
    rng = np.random.default_rng(seed)
    similarity = rng.uniform(size=(count, count))
    similarity = np.maximum(similarity, similarity.T)
    order = rng.permutation(count).tolist()
    kept, passed = filter_redundant(order, lambda f, k: similarity[f, list(k)], threshold)
    assert kept == reference.walk(order, similarity, threshold)
    assert set(kept) | set(passed) == set(order)
    for feature, (why, other, value) in passed.items():
        before = [k for k in kept if order.index(k) < order.index(feature)]
        assert why == "redundant"
        assert value == similarity[feature, other] == similarity[feature, before].max() > threshold


class TestLists:
    similarity = np.array([[1, 0.95, 0, 0], [0.95, 1, 0, 0], [0, 0, 1, 0.99], [0, 0, 0.99, 1.0]])

    def compare(self, feature: int, kept: Sequence[int]) -> np.ndarray:
        return self.similarity[feature, list(kept)]

    def test_kept_first_whatever_they_resemble(self) -> None:
        kept, passed = filter_redundant([0, 1, 2, 3], self.compare, 0.9, [3, 2])
        assert kept == [3, 2, 0]
        assert passed == {1: ("redundant", 0, 0.95)}

    def test_exactly_the_threshold_is_kept(self) -> None:
        assert filter_redundant([0, 1, 2, 3], self.compare, 0.95)[0] == [0, 1, 2]

    def test_groups_fill_up(self) -> None:
        groups = {0: "a", 1: "a", 2: "a", 3: "b"}
        kept, passed = filter_redundant([0, 1, 2, 3], None, 0.5, groups=groups, max_per_group=2)
        assert kept == [0, 1, 3]
        assert passed[2][0] == "group"

    def test_what_is_kept_first_counts_in_its_group(self) -> None:
        groups = {0: "a", 1: "a", 2: "a"}
        kept, _ = filter_redundant([0, 1, 2, 3], None, 0.5, [2, 1], groups, 1)
        assert kept == [2, 1, 3]

    def test_a_redundant_feature_takes_no_place_in_its_group(self) -> None:
        kept, _ = filter_redundant([0, 1, 2, 3], self.compare, 0.9, groups={1: "a", 2: "a"}, max_per_group=1)
        assert kept == [0, 2]


def apart(order: list[int], weight: np.ndarray, similarity: np.ndarray) -> list[int]:
    """Pick argmax weight_j (1 - max s_ij) over picks i, until none is left; rounding decides nothing."""
    left, picks = list(order), list[int]()
    while left:
        values = [weight[j] * (1 - max((similarity[j, i] for i in picks), default=0.0)) for j in left]
        picks.append(left.pop(next(p for p, v in enumerate(values) if v >= max(values) - 1e-12 * weight[order[0]])))
    return picks


@given(st.integers(0, 10**6), st.integers(1, 20))
def test_picks_apart_as_defined(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    similarity = np.maximum(*(lambda s: (s, s.T))(rng.uniform(size=(count + 3, count + 3)).round(1)))
    np.fill_diagonal(similarity, 1.0)
    weight = rng.uniform(size=count + 3).round(1)
    order = np.argsort(-weight, kind="stable")[:count]
    found = pick_apart(order, weight, lambda feature: similarity[feature])
    assert found.tolist() == apart(order.tolist(), weight, similarity)


def test_copies_come_last_in_their_order() -> None:
    similarity = np.kron(np.ones((3, 3)), np.eye(2))  # 0, 2 and 4 are copies, and 1, 3 and 5
    weight = np.array([0.3, 0.1, 0.3, 0.1, 0.3, 0.1])
    order = np.array([0, 2, 4, 1, 3, 5])
    assert pick_apart(order, weight, lambda feature: similarity[feature]).tolist() == [0, 1, 2, 4, 3, 5]
    assert pick_apart(order[:0], weight, lambda feature: similarity[feature]).size == 0
