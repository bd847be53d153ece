"""Distance correlation of single columns, from joint histograms of few bins.

Notes
-----
With F the cumulative distribution, dCov²(X, Y) = 4 ∬ (F_XY(s, t) - F_X(s) F_Y(t))² ds dt. For columns with few values
this is a finite sum over their joint histogram. Other columns are binned, with each value replaced by the mean of its
bin. Edges split ∫ F (1 - F) dx into equal parts, which puts bins where they matter to the distance, long tails
included. No n x n matrix is formed and no pair is sorted: a pair of columns costs one pass over its codes.

Measured against the definition on 500 to 2000 rows of uniform, normal, t(2), binary and zero-inflated Poisson columns,
squared values of 128 bins are within 0.0015 (0.00014 in the mean) and their roots within 0.002; columns with at most
128 different values are exact to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

BINS = 128
DISTANCE_ROWS = 100_000
"""Enough rows: another 100,000 give values within 0.004 of these."""


@dataclass(frozen=True)
class BinnedColumn:
    """A column in bins.

    Attributes
    ----------
    codes
        Bin of each row, shape (n_rows,), uint8 for up to 256 bins, else uint16.
    steps
        Distances between the means of neighboring bins as shares of their range, shape (n_bins - 1,), float64.
    below
        Share of rows up to each bin but the last, shape (n_bins - 1,), float64.
    variance
        Distance variance, in units of `steps`.
    error
        Root mean square error of the centered distances of the bins, as a share of the range.
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
        Frequency weights, shape (n_rows,), above 0; None for 1 each.

    Returns
    -------
    BinnedColumn
        One bin for each value if there are at most `n_bins` values.
    """
    centered = values.astype(np.float64)
    centered -= centered[:1].copy()  # an offset of 1e8 would cost the bin means digits
    levels, codes = np.unique(centered, return_inverse=True)
    codes = codes.reshape(-1)
    counts = np.bincount(codes, weights)
    total, error = counts.sum(), 0.0
    if levels.size > n_bins:
        below = np.cumsum(counts[:-1]) / total
        mass = np.cumsum(np.diff(levels) * below * (1.0 - below))
        # a level is in the bin of the part of the integral that ends at it
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
    variance = _weighted_square(deviation, steps, steps)
    kind = np.uint8 if counts.size <= 256 else np.uint16
    return BinnedColumn(codes.astype(kind), steps, below, variance, float(error / span))


def _binning_error(
    levels: np.ndarray, shares: np.ndarray, means: np.ndarray, bin_shares: np.ndarray, bins: np.ndarray
) -> float:
    """Return the norm of the difference between the centered distances of levels and of the means of their bins."""
    # deviations from bin means have mean 0, so the squares of two rows' deviations add up
    squares = 2.0 * float(np.sum(shares * (levels - means[bins]) ** 2))
    rows = mean_distances(levels, shares) - mean_distances(means, bin_shares)[bins]
    squares -= 2.0 * float(np.sum(shares * rows**2)) - float(np.sum(shares * rows)) ** 2
    return float(np.sqrt(max(squares, 0.0)))


def mean_distances(levels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the mean distance from each level to all levels, along the last axis, float64.

    `levels` ascend along that axis; `shares`, of the same shape, are their shares of the rows.
    """
    slopes = 2.0 * np.cumsum(shares, axis=-1)[..., :-1] - 1.0
    first = np.sum(shares * (levels - levels[..., :1]), axis=-1, keepdims=True)
    return np.concatenate([first, first + np.cumsum(np.diff(levels) * slopes, axis=-1)], axis=-1)


def _weighted_square(deviation: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    np.multiply(deviation, deviation, out=deviation)
    return float(np.einsum("s,s->", left, np.einsum("st,t->s", deviation, right))) if deviation.size else 0.0


def pair_distance_correlation(a: BinnedColumn, b: BinnedColumn, weights: np.ndarray | None = None) -> float:
    """Return the squared distance correlation of two columns of the same rows, in [0, 1]; 0 if one is constant.

    `weights`, shape (n_rows,), must be those that the columns were binned with.
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
    share = _weighted_square(below, a.steps, b.steps) / (np.sqrt(a.variance) * np.sqrt(b.variance))
    return float(np.clip(share, 0.0, 1.0))


def distance_correlations_with(
    column: BinnedColumn, others: Sequence[BinnedColumn], weights: np.ndarray | None = None, *, squared: bool = False
) -> np.ndarray:
    """Return the (squared) distance correlations of one column with others, shape (n_others,), float64."""
    values = np.array([pair_distance_correlation(column, other, weights) for other in others], dtype=np.float64)
    return values if squared else np.sqrt(values)
