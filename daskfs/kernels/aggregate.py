"""Aggregation of several rankings of the same features."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.order import Direction


def shared_ranks(values: np.ndarray, direction: Direction) -> np.ndarray:
    """Return the rank of each feature, 1 = best; ties share the mean of their ranks.

    Parameters
    ----------
    values
        Shape (n_features,), float64; NaN for an unranked feature.
    direction
        "ascending" if the smallest value is best, "descending" if the largest is.

    Returns
    -------
    numpy.ndarray
        Shape (n_features,), float64, NaN where `values` is.
    """
    ranks = np.full(values.size, np.nan)
    places = np.flatnonzero(~np.isnan(values))
    _, place, counts = np.unique(values[places], return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean = last - (counts - 1) / 2
    ranks[places] = (mean if direction == "ascending" else places.size + 1 - mean)[place]
    return ranks


def combine_ranks(ranks: np.ndarray) -> np.ndarray:
    """Aggregate rankings by the median rank of each feature.

    A feature missing from a ranking gets the worst rank there, n_features, so that a good rank in few rankings is worth
    no more than one in many. Equal medians are ordered by mean rank, then by feature number.

    Parameters
    ----------
    ranks
        Shape (n_rankings, n_features), float64, 1 = best; NaN for a feature that the ranking leaves out.

    Returns
    -------
    numpy.ndarray
        Shape (4, n_features), float64: median rank, mean rank, number of rankings with the feature, and rank in the
        aggregate, 1 = best. A feature in no ranking has NaN, NaN, 0, NaN.
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
    """Return Spearman's correlation of each pair of rankings, and Kendall's coefficient of concordance.

    Parameters
    ----------
    ranks
        As in :func:`combine_ranks`; features that any ranking leaves out are ignored.

    Returns
    -------
    correlations
        Shape (n_rankings, n_rankings), float64; NaN for a ranking that ties all features.
    concordance
        1 if all rankings agree, 0 if the rank sums are as even as possible; None for fewer than two features or
        rankings, or if every ranking ties all features.
    """
    ranks = ranks[:, ~np.isnan(ranks).any(axis=0)]
    n_rankings, n_features = ranks.shape
    correlations = np.full((n_rankings, n_rankings), np.nan)
    if n_features < 2:
        return correlations, None
    shared = np.stack([shared_ranks(row, "ascending") for row in ranks])
    centered = shared - shared.mean(axis=1, keepdims=True)
    norms = np.sqrt((centered**2).sum(axis=1))
    differ = norms > 0
    unit = centered[differ] / norms[differ, None]
    correlations[np.ix_(differ, differ)] = np.clip(unit @ unit.T, -1.0, 1.0)
    if n_rankings < 2 or not differ.any():
        return correlations, None
    sums = centered.sum(axis=0)
    return correlations, float((sums**2).sum() / (n_rankings * (norms**2).sum()))
