"""Picking one feature after the other: by relevance less redundancy, and down a ranking past what is redundant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

ROUND_OFF = 1e-12
"""Criteria that differ by less are equal: rounding decides nothing."""


@dataclass(frozen=True)
class GreedyPicks:
    """All candidates in the order of their picks, shape (n_candidates,), int64, with the criterion's value and the mean
    redundancy at each pick, float64.
    """

    order: np.ndarray
    score: np.ndarray
    redundancy: np.ndarray


def pick_greedily(relevance: np.ndarray, redundancy: np.ndarray) -> GreedyPicks:
    """Pick the most relevant candidate, then time and again the one of largest relevance less its mean redundancy with
    those picked before, until none is left.

    Parameters
    ----------
    relevance
        Shape (n_candidates,), finite.
    redundancy
        Of each pair, shape (n_candidates, n_candidates), symmetric.

    Notes
    -----
    One sum over the picks is kept for each candidate, so that a step costs one row of the matrix. Of candidates that
    are equal but for rounding the first is picked.
    """
    count = relevance.shape[0]
    order, scores, shares = np.empty(count, dtype=np.int64), np.empty(count), np.zeros(count)
    sums = np.zeros(count)
    is_left = np.ones(count, dtype=bool)
    for step in range(count):
        mean = sums / max(step, 1)
        value = np.where(is_left, relevance - mean, -np.inf)
        pick = int(np.argmax(value >= value.max() - ROUND_OFF))
        order[step], scores[step], shares[step] = pick, value[pick], mean[pick]
        is_left[pick] = False
        sums += redundancy[pick]
    return GreedyPicks(order, scores, shares)


def pick_apart(order: np.ndarray, weight: np.ndarray, similarities: Callable[[int], np.ndarray]) -> np.ndarray:
    """Pick time and again the feature of largest weight_j (1 - largest similarity with those picked before).

    Parameters
    ----------
    order
        Features to pick, in the order in which equal ones are picked, int64.
    weight
        Of all features, shape (n_features,), not negative.
    similarities
        ``similarities(feature)`` returns those of all features with one, in [0, 1], shape (n_features,).

    Returns
    -------
    The features in the order of their picks.
    """
    left = order.copy()
    nearest = np.zeros(weight.size)
    picks = np.empty_like(order)
    for step in range(order.size):
        value = weight[left] * (1.0 - nearest[left])
        place = int(np.argmax(value >= value.max() - ROUND_OFF * weight[order[0]]))
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
    """Walk down a ranking and keep what is not redundant with anything kept before.

    Parameters
    ----------
    order
        Features to walk through, best first.
    similarity
        ``similarity(feature, kept)`` returns values in [0, 1], one for each kept feature; None for no such filter.
    threshold
        A feature is redundant with a kept one when their similarity exceeds it.
    kept_first
        Features that are kept whatever they resemble, before all others; they count in their groups.
    groups, max_per_group
        Name of the group of a feature, for those that are in one, and how many of one group are kept.

    Returns
    -------
    kept
        Features, in the order in which they were kept.
    passed
        Of each other feature of `order` why it was passed over: ("group", -1, NaN) when its group was full, else
        ("redundant", feature, value) with the kept feature that it resembles most, the earliest of equals.
    """
    kept = list(kept_first)
    chosen = set(kept)
    passed: dict[int, tuple[str, int, float]] = {}
    members: dict[str, int] = {}
    groups = groups or {}
    for feature in kept:
        if feature in groups:
            members[groups[feature]] = members.get(groups[feature], 0) + 1
    for feature in order:
        if feature in chosen:
            continue
        group = groups.get(feature)
        if group is not None and max_per_group is not None and members.get(group, 0) >= max_per_group:
            passed[feature] = ("group", -1, float("nan"))
            continue
        if similarity is not None and kept:
            values = similarity(feature, kept)
            largest = float(values.max())
            if largest > threshold:
                nearest = int(np.argmax(values >= largest - ROUND_OFF))
                passed[feature] = ("redundant", kept[nearest], float(values[nearest]))
                continue
        kept.append(feature)
        if group is not None:
            members[group] = members.get(group, 0) + 1
    return kept, passed
