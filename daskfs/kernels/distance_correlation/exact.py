"""Distance correlations from the distances of all pairs of rows, computed a block of rows at a time.

Notes
-----
Let A be the matrix of distances |x_a - x_b|, minus its row and column means, plus its mean. The squared distance
covariance of two columns is the mean product of the entries of their matrices (Székely, Rizzo and Bakirov 2007,
Definition 4), so correlations are cosines of vectors of n x n entries.

The product of the correlation matrix with a vector v needs no single correlation: it is the cosine of each column's
matrix with the sum of all matrices times v.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskfs.kernels.distance_correlation.histograms import mean_distances
from daskfs.kernels.statistics.comoments import mirror_blocks
from daskfs.kernels.statistics.moments import row_blocks

DISTANCES_AT_ONCE = 2**14
SMALLEST_SPAN = 2.0**-1000
FEW_VALUES = 9
"""Most values of a column for which products by steps are faster than products by distances."""


@dataclass(frozen=True)
class DistanceColumns:
    """Columns and their mean distances.

    Attributes
    ----------
    values
        Shape (n_columns, n_rows), float64: each column minus its first value, divided by the norm of its centered
        distances; zeros for a constant column.
    means
        Shape (n_columns, n_rows), float64: mean distance of these values from each row.
    mean
        Shape (n_columns,), float64: mean of `means` over the rows.
    """

    values: np.ndarray
    means: np.ndarray
    mean: np.ndarray

    def part(self, columns: slice) -> DistanceColumns:
        """Return some of the columns."""
        return DistanceColumns(self.values[columns], self.means[columns], self.mean[columns])


def shares_of(weights: np.ndarray | None, n_rows: int) -> np.ndarray:
    """Return the share of each row in the total weight, shape (n_rows,), float64; equal shares without weights."""
    return np.full(n_rows, 1.0 / n_rows) if weights is None else weights / weights.sum()


def distance_columns(values: np.ndarray, shares: np.ndarray) -> DistanceColumns:
    """Divide columns by the norm of their centered distances.

    Parameters
    ----------
    values
        Shape (n_columns, n_rows), any real dtype, finite.
    shares
        Share of each row in all rows, shape (n_rows,), float64, above 0.
    """
    scaled = values.astype(np.float64, order="C")  # C order fixes the order of the sums along rows
    scaled -= scaled[:, :1].copy()  # an offset of 1e8 would cost the differences digits
    span = scaled.max(axis=1) - scaled.min(axis=1)
    if (tiny := span < SMALLEST_SPAN).any():  # the inverse would overflow
        scaled[tiny] *= 2.0**60
        span[tiny] *= 2.0**60
    scaled *= np.divide(1.0, span, out=np.zeros_like(span), where=span > 0)[:, None]
    order = np.argsort(scaled, axis=1, kind="stable")
    means = np.empty_like(scaled)
    np.put_along_axis(means, order, mean_distances(np.take_along_axis(scaled, order, axis=1), shares[order]), axis=1)
    mean = np.sum(means * shares, axis=1)
    # the mean of the squared distances is twice the variance
    variance = _variance(scaled, np.sum(scaled * shares, axis=1), shares)
    norm = np.sqrt(np.maximum(2.0 * (variance - _variance(means, mean, shares)) - mean**2, 0.0))
    inverse = np.divide(1.0, norm, out=np.zeros_like(norm), where=norm > 0)
    means *= inverse[:, None]
    scaled *= inverse[:, None]
    return DistanceColumns(scaled, means, mean * inverse)


def _variance(values: np.ndarray, mean: np.ndarray, shares: np.ndarray) -> np.ndarray:
    deviations = values - mean[:, None]
    np.multiply(deviations, deviations, out=deviations)
    deviations *= shares
    return np.asarray(deviations.sum(axis=1))


def _blocks(n_rows: int) -> list[slice]:
    return list(row_blocks(n_rows, max(1, DISTANCES_AT_ONCE // n_rows)))


def exact_correlations(left: DistanceColumns, right: DistanceColumns | None, shares: np.ndarray) -> np.ndarray:
    """Return the squared distance correlations of all pairs of columns, shape (n_left, n_right), float64.

    With `right` None, those of the left columns with each other. Constant columns have zeros. `shares` has shape
    (n_rows,).
    """
    roots, n_rows = np.sqrt(shares), shares.size
    others = left if right is None else right
    result = np.zeros((left.mean.size, others.mean.size))
    for rows in _blocks(n_rows):
        ours = _center_distances(left, rows, roots)
        theirs = ours if right is None else _center_distances(others, rows, roots)
        result += ours @ theirs.T
    return result


def _center_distances(columns: DistanceColumns, rows: slice, roots: np.ndarray) -> np.ndarray:
    """Return centered distances of some rows to all, times the roots of their shares, shape (n_columns, n_pairs)."""
    centered = np.abs(columns.values[:, rows, None] - columns.values[:, None, :])
    centered -= columns.means[:, rows, None]
    centered -= (columns.means - columns.mean[:, None])[:, None, :]
    centered *= roots[rows, None] * roots
    return centered.reshape(columns.mean.size, -1)


def bias_corrected(
    squared: np.ndarray,
    deviations: tuple[np.ndarray, np.ndarray, np.ndarray],
    means: tuple[np.ndarray, np.ndarray],
    total: float,
) -> np.ndarray:
    """Return ratios of U-statistics, 0 where negative, for squared distance correlations of V-statistics.

    With a and b the mean distances from each row, over the norms of the centered distances, dcov²_U over both norms is
    n / (n - 3) (dcor²_V - 4 cov(a, b) / (n - 2) - mean(a) mean(b) / (n - 1)), from Székely and Rizzo (2014), Eq. 2.

    Parameters
    ----------
    squared
        Shape (n_left, n_right), float64, as the result.
    deviations
        cov(a, b), shape (n_left, n_right), var(a), (n_left,), and var(b), (n_right,); float64.
    means
        Mean distances of the columns, (n_left,) and (n_right,), float64; 0 for constant columns.
    total
        Number of rows, or the sum of their weights; above 3.
    """
    covariance, *variances = deviations
    roots = []
    for variance, mean in zip(variances, means, strict=True):
        ratio = (mean > 0) - 4.0 * variance / (total - 2.0) - mean**2 / (total - 1.0)
        roots.append(np.sqrt(np.where(ratio > 1e-12, ratio, np.inf)))
    ratio = squared - covariance * (4.0 / (total - 2.0)) - np.multiply.outer(*means) / (total - 1.0)
    return np.maximum(ratio, 0.0) / np.multiply.outer(*roots)


def exact_deviations(
    left: DistanceColumns, right: DistanceColumns, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the `deviations` of :func:`bias_corrected`: cov(a, b), var(a) and var(b), float64."""
    a, b = (columns.means - columns.mean[:, None] for columns in (left, right))
    return (a * shares) @ b.T, (a * a) @ shares, (b * b) @ shares


# ------------------------------------------------------------------------------ matrix-free products
class DistanceSum:
    """The weighted sum of the centered distances of many columns, an (n_rows, n_rows) matrix.

    Parameters
    ----------
    shares
        Share of each row in all rows, shape (n_rows,), float64.

    Notes
    -----
    A distance is the sum of the steps between neighboring values on the way. With z = 1 for rows above a step, each
    step contributes its size times (z_a - z_b)², which is -2 z_a z_b once centered. So columns of few values are summed
    by matrix products.
    """

    def __init__(self, shares: np.ndarray) -> None:
        self._shares = shares
        self._sum = np.zeros((shares.size, shares.size))

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Add columns.

        Parameters
        ----------
        values
            As in :class:`DistanceColumns`, shape (n_columns, n_rows), float64.
        weights
            Weight of each column, shape (n_columns,), float64; columns of weight 0 cost nothing.
        """
        used = np.flatnonzero(weights)
        values, weights = values[used], weights[used]
        steps = _Steps(values)
        if steps.above.size:
            self._sum += (steps.above * (-2.0 * weights[steps.column] * steps.size)[:, None]).T @ steps.above
        values, weights = values[steps.others], weights[steps.others]
        for rows in _blocks(self._shares.size):
            block = self._sum[rows, rows.start :]  # the lower triangle follows by symmetry
            part = np.empty_like(block)
            for column, weight in zip(values, weights, strict=True):
                np.subtract.outer(column[rows], column[rows.start :], out=part)
                np.abs(part, out=part)
                part *= weight
                block += part

    def close(self) -> None:
        """Center the sum and multiply rows and columns by their shares; nothing may be added afterwards."""
        total, shares = self._sum, self._shares
        mirror_blocks(total, row_blocks(shares.size, 64))
        means = total @ shares
        mean = np.sum(means * shares)
        total -= means[:, None]
        total -= means - mean
        total *= shares[:, None]
        total *= shares

    def products(self, values: np.ndarray) -> np.ndarray:
        """Return the products of the centered distances of columns with the closed sum, shape (n_columns,), float64.

        `values` are as in :meth:`add`.
        """
        products = np.zeros(len(values))
        steps = _Steps(values)
        if steps.above.size:
            forms = np.einsum("sa,sa->s", steps.above @ self._sum, steps.above)
            np.add.at(products, steps.column, -2.0 * steps.size * forms)
        for rows in _blocks(self._shares.size):
            block = self._sum[rows, rows.start :]
            # each pair of rows counts twice, a row with itself adds 0; the sum is centered, so distances
            # need not be
            part = np.empty_like(block)
            n_own = rows.stop - rows.start
            for place in steps.others:
                column = values[place]
                np.subtract.outer(column[rows], column[rows.start :], out=part)
                np.abs(part, out=part)
                part *= block
                products[place] += float(part[:, :n_own].sum()) + 2.0 * float(part[:, n_own:].sum())
        return products


class _Steps:
    """Steps between neighboring values, of the columns with few values.

    `column` is the column of each step and `size` its length; `above`, shape (n_steps, n_rows), float64, is 1 where a
    row is above a step. `others` are the columns with many values.
    """

    def __init__(self, values: np.ndarray) -> None:
        ordered = np.sort(values, axis=1)
        gaps = np.diff(ordered, axis=1)
        few = np.count_nonzero(gaps, axis=1) < FEW_VALUES
        self.others = np.flatnonzero(~few)
        self.column, places = np.nonzero((gaps > 0) & few[:, None])
        self.size = gaps[self.column, places]
        threshold = ordered[self.column, places]
        del ordered, gaps
        self.above = (values[self.column] > threshold[:, None]).astype(np.float64)
