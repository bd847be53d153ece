"""Distance correlation of single columns, from joint histograms of few bins.

With F the cumulative distribution, dCov²(X, Y) = 4 ∬ (F_XY(s, t) - F_X(s) F_Y(t))² ds dt. Of columns with few values
this is a finite sum over their joint histogram; columns with more are cut into bins, each value standing for the mean
of its bin. Edges split ∫ F (1 - F) dx into equal parts, which spends bins where they matter to the distance, long tails
included. So no n x n matrix is made, and no pair is sorted: a pair costs one pass over its codes.

Measured against the definition on 500 to 2000 rows of uniform, normal, t(2), binary and zero-inflated Poisson columns,
values of 128 bins are within 0.0015 of the squared ones (0.00014 in the mean) and within 0.002 of their roots; columns
with at most 128 different values are exact to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 128
DISTANCE_ROWS = 100_000
"""Rows that are enough: another 100,000 give values within 0.004 of these."""


@dataclass(frozen=True)
class BinnedColumn:
    """A column in bins: `codes`, shape (n_rows,), uint8 for up to 256 bins; `steps`, shape (n_bins - 1,), the distances
    between the means of neighboring bins as shares of their range; `below`, shape (n_bins - 1,), the share of rows up
    to each of these bins; `variance`, the distance variance to match; `error`, the norm (root of the mean square) of
    what the centered distances of the rows differ from those of their bins, as a share of the range.
    """

    codes: np.ndarray
    steps: np.ndarray
    below: np.ndarray
    variance: float
    error: float = 0.0


def bin_column(values: np.ndarray, n_bins: int = BINS, weights: np.ndarray | None = None) -> BinnedColumn:
    """Cut a column into at most `n_bins` bins.

    Parameters
    ----------
    values
        Shape (n_rows,), any real dtype, finite.
    n_bins
        From 2 to 65,536.
    weights
        How many rows each row counts for, shape (n_rows,), above 0; None for one each.

    Returns
    -------
    BinnedColumn
        One bin for each value where there are at most `n_bins` of these.
    """
    centered = values.astype(np.float64)
    centered -= centered[:1].copy()  # an offset of 1e8 would cost the means of the bins their digits
    levels, codes = np.unique(centered, return_inverse=True)
    codes = codes.reshape(-1)
    counts = np.bincount(codes, weights)
    total, error = counts.sum(), 0.0
    if levels.size > n_bins:
        below = np.cumsum(counts[:-1]) / total
        mass = np.cumsum(np.diff(levels) * below * (1.0 - below))
        # a level is in the bin of the part of the integral that ends with it
        bins = np.concatenate([[0], np.minimum(mass / mass[-1] * n_bins, n_bins - 1).astype(np.int64)])
        _, bins = np.unique(bins, return_inverse=True)
        sums = np.bincount(bins, weights=levels * counts)
        inner, counts = counts, np.bincount(bins, weights=counts)
        codes, means = bins[codes], sums / counts
        error = _binning_error(levels, inner / total, means, counts / total, bins)
        levels = means
    steps = np.diff(levels)
    span = max(float(levels[-1] - levels[0]), np.finfo(np.float64).tiny)
    steps /= span
    below = np.cumsum(counts)[:-1] / total
    # F_XX(s, t) - F(s) F(t) = min - product
    deviation = np.minimum.outer(below, below) - np.multiply.outer(below, below)
    variance = _weighted(deviation, steps, steps)
    kind = np.uint8 if counts.size <= 256 else np.uint16
    return BinnedColumn(codes.astype(kind), steps, below, variance, float(error / span))


def _binning_error(
    levels: np.ndarray, shares: np.ndarray, means: np.ndarray, bin_shares: np.ndarray, bins: np.ndarray
) -> float:
    """Return the norm of what the centered distances between levels differ from those between the means of their
    bins.
    """
    # deviations from the means of bins have no mean, so that the squares of those of two rows add up
    squares = 2.0 * float(np.sum(shares * (levels - means[bins]) ** 2))
    rows = mean_distances(levels, shares) - mean_distances(means, bin_shares)[bins]
    squares -= 2.0 * float(np.sum(shares * rows**2)) - float(np.sum(shares * rows)) ** 2
    return float(np.sqrt(max(squares, 0.0)))


def mean_distances(levels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the mean distance from each level to all, along the last axis; levels ascend there."""
    slopes = 2.0 * np.cumsum(shares, axis=-1)[..., :-1] - 1.0
    first = np.sum(shares * (levels - levels[..., :1]), axis=-1, keepdims=True)
    return np.concatenate([first, first + np.cumsum(np.diff(levels) * slopes, axis=-1)], axis=-1)


def _weighted(deviation: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    np.multiply(deviation, deviation, out=deviation)
    return float(np.einsum("s,s->", left, np.einsum("st,t->s", deviation, right))) if deviation.size else 0.0


def pair_distance_correlation(a: BinnedColumn, b: BinnedColumn, weights: np.ndarray | None = None) -> float:
    """Return the squared distance correlation of two columns of the same rows, in [0, 1]; 0 where one is constant. The
    weights are those that the columns were cut with.
    """
    if a.variance <= 0 or b.variance <= 0:
        return 0.0
    rows, columns = a.below.size + 1, b.below.size + 1
    pairs = np.multiply(a.codes, columns, dtype=np.intp)
    pairs += b.codes
    joint = np.bincount(pairs, weights, minlength=rows * columns).reshape(rows, columns)
    total = a.codes.shape[0] if weights is None else weights.sum()
    below = joint.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] / total
    below -= np.multiply.outer(a.below, b.below)
    share = _weighted(below, a.steps, b.steps) / (np.sqrt(a.variance) * np.sqrt(b.variance))
    return float(np.clip(share, 0.0, 1.0))


def distance_correlations_with(
    column: BinnedColumn, others: Sequence[BinnedColumn], weights: np.ndarray | None = None, *, squared: bool = False
) -> np.ndarray:
    """Return the distance correlations of one column with each of some others, shape (n_others,), float64."""
    values = np.array([pair_distance_correlation(column, other, weights) for other in others], dtype=np.float64)
    return values if squared else np.sqrt(values)
