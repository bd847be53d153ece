"""SVMRFE over landmarks against machines of all rows: how far its criteria and its rankings are from theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

from daskfs import SVMRFE
from daskfs.criteria.svmrfe.elimination import draw_landmarks
from tests.benchmarks.svm import first_criteria, weston, with_few_labels

N_FEATURES = 52
GAMMA = 1.0 / N_FEATURES


def nearness(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's rho."""
    return float(spearmanr(a, b)[0])


def test_half_of_the_landmarks_have_a_label() -> None:
    labeled, others = np.arange(0, 100), np.arange(100, 1000)
    for n_labeled, n_others, count, expected in (
        (100, 900, 40, (20, 20)),
        (100, 900, 41, (21, 20)),
        (10, 900, 40, (10, 30)),  # all of them
        (100, 5, 40, (35, 5)),
        (100, 0, 40, (40, 0)),
        (3, 2, 40, (3, 2)),
    ):
        found = draw_landmarks(labeled[:n_labeled], others[:n_others], count, 0)
        assert tuple(part.size for part in found) == expected
        assert all(np.unique(part).size == part.size for part in found)
        again = draw_landmarks(labeled[:n_labeled], others[:n_others], count, 0)
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(again))
    one, other = (draw_landmarks(labeled, others, 40, seed) for seed in (0, 1))
    assert set(one[0]) != set(other[0])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_laplacian_machines_over_landmarks_are_near_the_exact_ones(seed: int) -> None:
    """Of 400 rows with 60 labels, twice as many landmarks as labels. What the graph changes they change too: they are
    nearer to the exact Laplacian machine than the exact plain one is; and the nearer, the more of them there are.
    """
    X, y, _, _ = weston(400, seed)
    codes = with_few_labels(y, 60, seed)
    graph: dict[str, Any] = {"laplacian": True, "gamma": GAMMA}
    exact, ranked = first_criteria(X, codes, large_n="exact", **graph), SVMRFE(2, large_n="exact", **graph)
    assert ranked.fit(X, codes).get_support(indices=True).tolist() == [0, 1]
    plain = nearness(first_criteria(X, codes, large_n="exact", gamma=GAMMA), exact)
    for count, first, ranking in ((120, 0.85, 0.6), (240, 0.9, 0.75)):
        marks: dict[str, Any] = {"large_n": "landmarks", "n_landmarks": count, **graph}
        near = nearness(first_criteria(X, codes, **marks), exact)
        found = SVMRFE(2, **marks).fit(X, codes)
        assert near >= max(first, plain)
        assert nearness(found.ranking_, ranked.ranking_) >= ranking
        assert found.get_support(indices=True).tolist() == [0, 1]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])
def test_plain_machines_keep_what_is_relevant(seed: int) -> None:
    """Of 5,000 rows, with half the landmarks of the default and with these; methods.md, 5.3."""
    for n_landmarks in (100, 200):
        marks: dict[str, Any] = {"large_n": "landmarks", "n_landmarks": n_landmarks, "random_state": seed}
        X, y, _, _ = weston(5000, seed)
        assert SVMRFE(2, gamma=GAMMA, **marks).fit(X, y).get_support(indices=True).tolist() == [0, 1]
