"""Several rankings of the same features as one."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.order import Direction


def shared_ranks(values: np.ndarray, direction: Direction) -> np.ndarray:
    """Return the rank of each feature, 1 for the best; equal values share the mean of their ranks.

    Parameters
    ----------
    values
        Shape (n_features,), NaN for a feature that has no rank.
    direction
        Whether small values are good ("ascending") or large ones.

    Returns
    -------
    numpy.ndarray
        Shape (n_features,), float64, NaN where `values` is.
    """
    ranks = np.full(values.size, np.nan)
    known = np.flatnonzero(~np.isnan(values))
    _, place, counts = np.unique(values[known], return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    ranks[known] = (mean if direction == "ascending" else known.size + 1 - mean)[place]
    return ranks


def combine_ranks(ranks: np.ndarray) -> np.ndarray:
    """Return what rankings come to together: the median of each feature's ranks.

    A feature that a ranking leaves out has the worst rank there, the number of features, so that a good rank in few
    rankings is worth no more than one in many. Equal medians go by the mean rank, and equal means by the number of the
    feature. One that every ranking leaves out has none.

    Parameters
    ----------
    ranks
        Shape (n_rankings, n_features), 1 for the best, NaN for a feature that a ranking leaves out.

    Returns
    -------
    numpy.ndarray
        Shape (4, n_features), float64: median rank, mean rank, in how many rankings the feature is, and its place in
        the order of all, 1 for the first. NaN, of the third row 0, for features that no ranking has.
    """
    n_rankings, n_features = ranks.shape
    count = np.count_nonzero(~np.isnan(ranks), axis=0)
    filled = np.where(np.isnan(ranks), float(n_features), ranks)
    filled.sort(axis=0)
    median = (filled[(n_rankings - 1) // 2] + filled[n_rankings // 2]) / 2
    mean = filled.sum(axis=0) / n_rankings  # halves add up exactly, in any order
    median[count == 0] = mean[count == 0] = np.nan
    place = np.full(n_features, np.nan)
    order = np.lexsort((np.arange(n_features), mean, median))[: int(np.count_nonzero(count))]
    place[order] = np.arange(1, order.size + 1)
    return np.stack([median, mean, count.astype(np.float64), place])


def rank_agreement(ranks: np.ndarray) -> tuple[np.ndarray, float | None]:
    """Return how alike rankings are: Spearman's correlation of each two, and Kendall's coefficient of concordance.

    Parameters
    ----------
    ranks
        As :func:`combine_ranks` takes them; features that any ranking leaves out do not count.

    Returns
    -------
    correlations
        Shape (n_rankings, n_rankings), NaN where a ranking tells no feature from another.
    concordance
        1 where all agree, 0 where the ranks' sums are as even as can be; None for less than two features or rankings.
    """
    ranks = ranks[:, ~np.isnan(ranks).any(axis=0)]
    n_rankings, n_features = ranks.shape
    correlations = np.full((n_rankings, n_rankings), np.nan)
    if n_features < 2:
        return correlations, None
    own = np.stack([shared_ranks(row, "ascending") for row in ranks])
    centered = own - own.mean(axis=1, keepdims=True)
    norms = np.sqrt((centered**2).sum(axis=1))
    differ = norms > 0
    unit = centered[differ] / norms[differ, None]
    correlations[np.ix_(differ, differ)] = np.clip(unit @ unit.T, -1.0, 1.0)
    if n_rankings < 2 or not differ.any():
        return correlations, None
    sums = centered.sum(axis=0)
    return correlations, float((sums**2).sum() / (n_rankings * (norms**2).sum()))
