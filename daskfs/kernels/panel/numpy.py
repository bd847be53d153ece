"""Passes over a panel in NumPy, for small inputs.

:mod:`daskfs.kernels.panel.numba` has the same functions. Both make the same additions to every column in the same
order, so their results are bit-identical.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

EDGE_BLOCK = 1024
CACHE_LINE = 64
SPARSE_SHARE = 1 / 16
"""Maximum share of values that are not 0 where edges visit these values only."""
ROW_MARK_BYTES = 16
"""Bytes that say which values of a row are not 0."""


class SparsePanel(NamedTuple):
    """Values of a panel of at most 64 columns that are not 0, row by row.

    Attributes
    ----------
    rows
        Shape (n_rows, 2), uint64: a bit for each column with such a value, and the number of values before the row.
    values
        Shape (n_values,), dtype of the panel.
    """

    rows: np.ndarray
    values: np.ndarray


class EdgeSums(NamedTuple):
    """Sums over the edges whose ends both have a value, for each weighting and column.

    Attributes
    ----------
    sums
        Shape (4, n_weightings, width), float64: sums of w (f_i - f_j)**2, of w, of w (d_i + d_j), and of w (d_i**2 +
        d_j**2), where d are deviations from a center.
    low, high
        Smallest and largest value at the end of an edge of positive weight, shape (n_weightings, width), float64; inf
        and -inf if there is none.
    """

    sums: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def add(self, other: EdgeSums) -> None:
        """Add the sums over other edges, in place."""
        self.sums[...] += other.sums
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)


def no_edge_sums(n_weightings: int, width: int) -> EdgeSums:
    """Return the sums over no edge."""
    shape = n_weightings, width
    return EdgeSums(np.zeros((4, *shape)), np.full(shape, np.inf), np.full(shape, -np.inf))


def weighted_column_sums(weights: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Return ``weights @ A``, summed row by row.

    Parameters
    ----------
    weights
        Shape (n_rows,), float64.
    A
        Shape (n_rows, width), float64.

    Returns
    -------
    numpy.ndarray
        Shape (width,), float64.

    Notes
    -----
    BLAS and NumPy's pairwise summation choose the order of additions by the width of the array, and by the order of its
    memory. This form makes the same additions to each column in the same order: scores do not depend on the blocking.
    """
    A = np.ascontiguousarray(A)
    if A.shape[1] == 1:  # einsum folds a single column into one pairwise sum
        return np.einsum("e,ec->c", weights, np.repeat(A, 2, axis=1))[:1]
    return np.einsum("e,ec->c", weights, A)


def column_sums(A: np.ndarray) -> np.ndarray:
    """Return the sums over rows of A, (n_rows, width), float64, as :func:`weighted_column_sums` adds them."""
    return weighted_column_sums(np.ones(A.shape[0]), A)


def weighted_sums(F: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return ``weights @ F``, summed row by row, shape (n_weightings, width), float64.

    F are rows of a panel, shape (n_rows, width), C order, any real dtype; `weights`, (n_weightings, n_rows), float64.
    """
    values = np.ascontiguousarray(F, dtype=np.float64)
    return np.stack([weighted_column_sums(weight, values) for weight in weights])


def power_sums(F: np.ndarray, center: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Return the sums of the powers 2, 3, 4 and 6 of ``(F - center[0] - center[1]) * factor``, (4, width), float64.

    F is as in :func:`weighted_sums`; `center`, in two parts, and `factor` have shapes (2, width) and (width,), float64.
    """
    deviation = F.astype(np.float64)
    deviation -= center[0]
    deviation -= center[1]
    deviation *= factor
    square = deviation * deviation
    np.multiply(deviation, square, out=deviation)
    powers = square, deviation, square * square, deviation * deviation
    return np.stack([column_sums(power) for power in powers])


def deviation_sums(F: np.ndarray, center: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted sums of deviations from a center, and of their squares, (n_weightings, width), float64.

    F and `weights` are as in :func:`weighted_sums`; `center` has shape (width,), float64.
    """
    deviation = F.astype(np.float64)
    deviation -= center
    sums = np.stack([weighted_column_sums(weight, deviation) for weight in weights])
    np.multiply(deviation, deviation, out=deviation)
    return sums, np.stack([weighted_column_sums(weight, deviation) for weight in weights])


def extremes(F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value of each column, shape (width,), float64. F has at least one row."""
    return F.min(axis=0).astype(np.float64), F.max(axis=0).astype(np.float64)


def compressed(F: np.ndarray) -> SparsePanel | None:
    """Return None: these passes visit every value."""
    del F
    return None


def edge_sums(
    F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, sparse: SparsePanel | None = None
) -> np.ndarray:
    """Return, for each weighting and column, the sum over edges of ``w * (f[source] - f[target])**2``.

    With every undirected edge given once this is f'Lf, the numerator of He, Cai and Niyogi (2005), Eq. 1. Computed from
    differences, it is never negative, exactly 0 for a column that is constant on every component, and as exact for a
    column with mean 1e8 as for a centered one.

    Parameters
    ----------
    F
        Panel, shape (n_samples, width), C order, any real dtype.
    source, target
        Rows joined by each edge, shape (n_edges,), integer.
    weights
        Shape (n_weightings, n_edges), float64.
    sparse
        Result of :func:`compressed` for F.

    Returns
    -------
    numpy.ndarray
        Shape (n_weightings, width), float64.

    Notes
    -----
    Edges are processed in blocks of 1024, small enough for the gathered blocks to stay in cache. Buffers are allocated
    once, because Dask's nannies make glibc return every freed block, and faulting it in again costs more than the sums.
    One gathered difference serves all weightings, so a further weighting costs one multiply-add per edge and column,
    not another gather.
    """
    del sparse
    sums = np.zeros((weights.shape[0], F.shape[1]))
    tails = np.empty((EDGE_BLOCK, F.shape[1]), F.dtype)
    heads = np.empty_like(tails)
    differences = np.empty((EDGE_BLOCK, F.shape[1]))
    for start in range(0, source.shape[0], EDGE_BLOCK):
        edges = slice(start, min(start + EDGE_BLOCK, source.shape[0]))
        n_edges = edges.stop - edges.start
        tail, head, difference = tails[:n_edges], heads[:n_edges], differences[:n_edges]
        F.take(source[edges], axis=0, out=tail, mode="clip")  # mode "raise" would go through a copy
        F.take(target[edges], axis=0, out=head, mode="clip")
        np.subtract(tail, head, out=difference, dtype=np.float64)
        np.multiply(difference, difference, out=difference)
        for row, weight in enumerate(weights[:, edges]):
            sums[row] += weighted_column_sums(weight, difference)
    return sums


def observed_edge_sums(
    F: np.ndarray, center: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> EdgeSums:
    """Return the terms of quadratic forms over the edges whose ends both have a value, column by column.

    Degrees count these edges only, so that sums over rows by degree are sums over edges: each edge adds its weight to
    both ends.

    Parameters
    ----------
    F
        Panel, shape (n_samples, width), C order, float; NaN where a value is missing.
    center
        Shape (width,), float64: origin of the deviations.
    source, target, weights
        As in :func:`edge_sums`.
    """
    total = no_edge_sums(weights.shape[0], F.shape[1])
    for start in range(0, source.shape[0], EDGE_BLOCK):
        edges = slice(start, start + EDGE_BLOCK)
        tail, head = (F.take(ends[edges], axis=0).astype(np.float64) for ends in (source, target))
        difference = tail - head
        gone = np.isnan(difference)
        low, high = np.minimum(tail, head), np.maximum(tail, head)
        low[gone], high[gone] = np.inf, -np.inf
        tail -= center
        head -= center
        terms = (difference * difference, (~gone).astype(np.float64), tail + head, tail * tail + head * head)
        for term, sums in zip(terms, total.sums, strict=True):
            term[gone] = 0.0
            for row, weight in enumerate(weights[:, edges]):
                sums[row] += weighted_column_sums(weight, term)
        for row, weight in enumerate(weights[:, edges]):
            counted = weight > 0
            np.minimum(total.low[row], low.min(axis=0, where=counted[:, None], initial=np.inf), out=total.low[row])
            np.maximum(total.high[row], high.max(axis=0, where=counted[:, None], initial=-np.inf), out=total.high[row])
    return total
