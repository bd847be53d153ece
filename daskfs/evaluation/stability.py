"""Stability of selections over folds, draws of labels and subsets of classes.

A ranking is a list of features, best first; its first `n_selected` features are its selection. No function takes time
in n_features times the number of pairs of rankings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

RANKS_AT_ONCE = 2**21
"""Ranks held at a time: of all rankings for a block of features."""
RANKINGS_AT_ONCE = 256
"""Rankings that are compared with all others at a time."""


def selection_frequency(orders: Sequence[np.ndarray], n_selected: int, n_features: int) -> np.ndarray:
    """Return the share of the rankings that have each feature among their first `n_selected`.

    Parameters
    ----------
    orders
        Features of each ranking, best first; m integer arrays of shape (n_ranked,), at least `n_selected` long.
    n_features
        Number of features that were ranked.

    Returns
    -------
    ndarray
        Shape (n_features,), float64, in [0, 1].

    Raises
    ------
    ValueError
        Without a ranking, or for one with fewer than `n_selected` features.
    """
    return np.bincount(_selections(orders, n_selected).ravel(), minlength=n_features) / len(orders)


def kuncheva_index(orders: Sequence[np.ndarray], n_selected: int, n_features: int) -> float | None:
    """Return the mean consistency index over all pairs of selections.

    For two selections of k out of d features that share r of them it is (r d - k^2) / (k (d - k)), Eq. 2 of [1]_: 1 for
    the same features, about 0 for random selections, always above -1. The mean over pairs follows from the counts: a
    feature in c selections is shared by c (c - 1) / 2 pairs.

    Parameters
    ----------
    orders, n_selected, n_features
        As for :func:`selection_frequency`; ``ValueError`` for a ranking with fewer than `n_selected` features.

    Returns
    -------
    float or None
        None for fewer than two rankings, and if all features are selected (0 / 0).

    References
    ----------
    .. [1] Kuncheva (2007), "A stability index for feature selection", Artificial Intelligence and Applications.
    """
    if len(orders) < 2 or n_selected >= n_features:
        return None
    counts = np.bincount(_selections(orders, n_selected).ravel(), minlength=n_features)
    pairs = len(orders) * (len(orders) - 1)
    shared = float((counts * (counts - 1)).sum()) / pairs
    return (shared * n_features - n_selected**2) / (n_selected * (n_features - n_selected))


def jaccard_index(orders: Sequence[np.ndarray], n_selected: int) -> float | None:
    """Return the mean Jaccard index over all pairs of selections: features in both over features in either.

    It is not corrected for chance: random selections of k out of d features reach about k / (2 d - k).

    Parameters
    ----------
    orders, n_selected
        As for :func:`kuncheva_index`.

    Returns
    -------
    float or None
        In [0, 1]; None for fewer than two rankings.
    """
    if len(orders) < 2:
        return None
    selections = _selections(orders, n_selected)
    m = len(selections)
    names, places = np.unique(selections, return_inverse=True)
    rows = np.repeat(np.arange(m), n_selected)
    member = sp.csr_array((np.ones(rows.size, dtype=np.int32), (rows, places.ravel())), shape=(m, names.size))
    n_pairs = np.zeros(n_selected + 1, dtype=np.int64)  # by number of shared features; pairs that share none add 0
    for start in range(0, m, RANKINGS_AT_ONCE):
        shared = (member[start : start + RANKINGS_AT_ONCE] @ member.T).tocoo()
        n_pairs += np.bincount(shared.data[shared.row + start < shared.col], minlength=n_selected + 1)
    r = np.arange(n_selected + 1)
    return float((n_pairs * (r / (2 * n_selected - r))).sum() / (m * (m - 1) / 2))


@dataclass(frozen=True)
class RankIntervals:
    """Ranks of each feature over several rankings.

    `mean`, `low` and `high` have shape (n_features,), float64: the mean rank, from 1, and the bounds of the rank
    interval. `is_cut`, shape (n_features,), bool, marks features whose values are only bounds: some truncated ranking
    does not list them. `depth` is the length of the shortest ranking, None if it lists all features.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    is_cut: np.ndarray
    depth: int | None


def rank_intervals(orders: Sequence[np.ndarray], n_features: int, level: float = 0.9) -> RankIntervals:
    """Return the mean rank of each feature and the interval that contains a share `level` of its ranks.

    Parameters
    ----------
    orders
        Features of each ranking, best first; integer arrays of shape (n_ranked,). A ranking may be truncated: a feature
        that it does not list has rank n_ranked + 1 there.
    level
        Share of the rankings within the interval, in (0, 1); its ends are the quantiles at (1 - level) / 2 and
        (1 + level) / 2, interpolated linearly.

    Raises
    ------
    ValueError
        Without a ranking.
    """
    if not orders:
        msg = "there is no ranking"
        raise ValueError(msg)
    m, lengths = len(orders), [len(order) for order in orders]
    features = np.concatenate([np.asarray(order, dtype=np.int64) for order in orders])
    ranking = np.repeat(np.arange(m), lengths)
    ranks = np.concatenate([np.arange(1.0, length + 1) for length in lengths])
    by_feature = np.argsort(features, kind="stable")
    features, ranking, ranks = features[by_feature], ranking[by_feature], ranks[by_feature]
    result = np.empty((3, n_features))
    step = max(1, RANKS_AT_ONCE // m)
    for start in range(0, n_features, step):
        stop = min(start + step, n_features)
        inside = slice(*np.searchsorted(features, [start, stop]))
        table = np.repeat(np.add(lengths, 1.0)[:, None], stop - start, axis=1)
        table[ranking[inside], features[inside] - start] = ranks[inside]
        result[0, start:stop] = table.mean(axis=0)
        result[1:, start:stop] = np.quantile(table, [(1 - level) / 2, (1 + level) / 2], axis=0)
    is_cut = np.bincount(features, minlength=n_features) < m
    mean, low, high = result
    return RankIntervals(mean, low, high, is_cut, min(lengths) if min(lengths) < n_features else None)


def _selections(orders: Sequence[np.ndarray], n_selected: int) -> np.ndarray:
    """Return the first features of each ranking, shape (n_rankings, n_selected), int64."""
    if not orders or min(len(order) for order in orders) < n_selected:
        msg = f"each of {len(orders)} rankings should list {n_selected} features at least"
        raise ValueError(msg)
    return np.stack([np.asarray(order[:n_selected], dtype=np.int64) for order in orders])
