"""Greedy selection by relevance minus redundancy, and a redundancy filter down a ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

TIED_CRITERIA = 1e-12
"""Criteria that differ by no more than this are ties: rounding must not decide."""


@dataclass(frozen=True)
class GreedyPicks:
    """All candidates in pick order.

    `order` is int64; `score`, the criterion's value, and `redundancy`, the mean redundancy at each pick, are float64.
    All have shape (n_candidates,).
    """

    order: np.ndarray
    score: np.ndarray
    redundancy: np.ndarray


def pick_greedily(relevance: np.ndarray, redundancy: np.ndarray) -> GreedyPicks:
    """Rank all candidates greedily by relevance minus mean redundancy with the candidates already picked.

    Parameters
    ----------
    relevance
        Shape (n_candidates,), float64, finite.
    redundancy
        Redundancy of each pair, shape (n_candidates, n_candidates), float64, symmetric.

    Notes
    -----
    A running sum over the picks is kept for each candidate, so a step reads one row of the matrix. Ties within
    :data:`TIED_CRITERIA` go to the lowest-numbered candidate.
    """
    count = relevance.shape[0]
    order, scores, shares = np.empty(count, dtype=np.int64), np.empty(count), np.zeros(count)
    sums = np.zeros(count)
    is_left = np.ones(count, dtype=bool)
    for step in range(count):
        mean = sums / max(step, 1)
        value = np.where(is_left, relevance - mean, -np.inf)
        pick = int(np.argmax(value >= value.max() - TIED_CRITERIA))
        order[step], scores[step], shares[step] = pick, value[pick], mean[pick]
        is_left[pick] = False
        sums += redundancy[pick]
    return GreedyPicks(order, scores, shares)


def pick_apart(order: np.ndarray, weight: np.ndarray, similarities: Callable[[int], np.ndarray]) -> np.ndarray:
    """Rank features greedily by weight_j (1 - largest similarity to the features already picked).

    Parameters
    ----------
    order
        Features to rank, shape (n_candidates,), int64; ties go to the earlier one.
    weight
        Weights of all features, shape (n_features,), float64, non-negative.
    similarities
        ``similarities(feature)`` returns the similarity of every feature to that one, in [0, 1], shape (n_features,).

    Returns
    -------
    The features in pick order, shape (n_candidates,), int64.
    """
    left = order.copy()
    nearest = np.zeros(weight.size)
    picks = np.empty_like(order)
    for step in range(order.size):
        value = weight[left] * (1.0 - nearest[left])
        place = int(np.argmax(value >= value.max() - TIED_CRITERIA * weight[order[0]]))
        picks[step] = left[place]
        left = np.delete(left, place)
        if left.size:
            np.maximum(nearest, similarities(int(picks[step])), out=nearest)
    return picks


def filter_redundant(
    order: Sequence[int],
    similarity: Callable[[int, Sequence[int]], np.ndarray] | None,
    threshold: float,
    kept_first: Sequence[int] = (),
    groups: Mapping[int, str] | None = None,
    max_per_group: int | None = None,
) -> tuple[list[int], dict[int, tuple[str, int, float]]]:
    """Walk down a ranking and keep each feature that is not redundant with a feature kept before it.

    Parameters
    ----------
    order
        Features, best first.
    similarity
        ``similarity(feature, kept)`` returns the similarity to each kept feature, in [0, 1]; None disables this filter.
    threshold
        A feature is redundant with a kept one if their similarity exceeds it.
    kept_first
        Features kept first, whatever their similarity; they count in their groups.
    groups, max_per_group
        Group name of each grouped feature, and the maximum number of features kept per group.

    Returns
    -------
    kept
        Features in the order in which they were kept.
    passed
        Reason for each dropped feature of `order`: ("group", -1, NaN) if its group was full, else ("redundant",
        feature, value) with the most similar kept feature; ties go to the one kept first.
    """
    kept_features = list(kept_first)
    chosen = set(kept_features)
    passed: dict[int, tuple[str, int, float]] = {}
    groups = groups or {}
    members = Counter(groups[feature] for feature in kept_features if feature in groups)
    for feature in order:
        if feature in chosen:
            continue
        group = groups.get(feature)
        if group is not None and max_per_group is not None and members[group] >= max_per_group:
            passed[feature] = ("group", -1, float("nan"))
            continue
        if similarity is not None and kept_features:
            values = similarity(feature, kept_features)
            largest = float(values.max())
            if largest > threshold:
                nearest = int(np.argmax(values >= largest - TIED_CRITERIA))
                passed[feature] = ("redundant", kept_features[nearest], float(values[nearest]))
                continue
        kept_features.append(feature)
        if group is not None:
            members[group] += 1
    return kept_features, passed
