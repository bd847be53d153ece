"""Compiled moments of the columns of sparse rows, cell by cell, merged as a tree.

Additions must not be contracted or reordered (no ``fastmath``): each column gets those of
:func:`daskfs.kernels.statistics.moments.column_moments` and :func:`daskfs.kernels.statistics.moments.merge_moments`.
"""

from __future__ import annotations

import numpy as np

from daskfs.kernels.compiled import compiled

MEAN, M2, MINIMUM, MAXIMUM, REST = range(5)


@compiled
def _cell(
    data: np.ndarray, indices: np.ndarray, start: int, stop: int, n_rows: int, counts: np.ndarray, moments: np.ndarray
) -> None:
    """Find the moments of `n_rows` rows, whose entries are ``start:stop``; `counts` are those of the columns."""
    counts[:], moments[MEAN], moments[M2], moments[REST] = 0, 0.0, 0.0, 0.0
    moments[MINIMUM], moments[MAXIMUM] = np.inf, -np.inf
    for e in range(start, stop):
        j, x = indices[e], np.float64(data[e])
        counts[j] += 1
        moments[MEAN, j] += x
        moments[MINIMUM, j] = min(moments[MINIMUM, j], x)
        moments[MAXIMUM, j] = max(moments[MAXIMUM, j], x)
    for j in range(counts.shape[0]):
        if counts[j] < n_rows:
            moments[MINIMUM, j] = min(moments[MINIMUM, j], 0.0)
            moments[MAXIMUM, j] = max(moments[MAXIMUM, j], 0.0)
        moments[MEAN, j] = min(max(moments[MEAN, j] / n_rows, moments[MINIMUM, j]), moments[MAXIMUM, j])
    for e in range(start, stop):
        j = indices[e]
        x = np.float64(data[e]) - moments[MEAN, j]
        moments[M2, j] += x * x
        moments[REST, j] += x
    for j in range(counts.shape[0]):
        n_zeros, mean = n_rows - counts[j], moments[MEAN, j]
        correction = (moments[REST, j] - n_zeros * mean) / n_rows
        moments[M2, j] = max(moments[M2, j] + n_zeros * (mean * mean) - n_rows * (correction * correction), 0.0)
        moments[MEAN, j] = mean + correction
        moments[REST, j] = correction - (moments[MEAN, j] - mean)


@compiled
def _merge(a: np.ndarray, b: np.ndarray, n_a: float, n_b: float) -> None:
    """Merge the moments of `n_b` rows into those of the `n_a` rows before them."""
    share, factor = n_b / (n_a + n_b), n_a * n_b / (n_a + n_b)
    for j in range(a.shape[1]):
        mean, gap, rest = a[MEAN, j], b[MEAN, j] - a[MEAN, j], b[REST, j] - a[REST, j]
        delta, step = gap + rest, gap * share
        a[MEAN, j] = mean + step
        a[REST, j] = a[REST, j] + rest * share + (step - (a[MEAN, j] - mean))
        a[M2, j] = a[M2, j] + b[M2, j] + delta * delta * factor
        a[MINIMUM, j] = min(a[MINIMUM, j], b[MINIMUM, j])
        a[MAXIMUM, j] = max(a[MAXIMUM, j], b[MAXIMUM, j])


@compiled
def sparse_tree(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, width: int, cell: int) -> np.ndarray:
    """Return the moments of each column, rows as numbered above, shape (5, width), float64.

    Parameters
    ----------
    data, indices, indptr
        Rows in CSR without NaN and without entries of the same place.
    width
        Number of columns.
    cell
        Rows of a cell.
    """
    n_rows = indptr.shape[0] - 1
    n_levels = 2
    while cell << (n_levels - 2) < n_rows:
        n_levels += 1
    waiting, counts = np.empty((n_levels, 5, width)), np.empty(width, np.int64)
    heights, sizes = np.empty(n_levels, np.int64), np.empty(n_levels)
    n_waiting = 0
    for first in range(0, n_rows, cell):
        last = min(first + cell, n_rows)
        _cell(data, indices, indptr[first], indptr[last], last - first, counts, waiting[n_waiting])
        heights[n_waiting], sizes[n_waiting] = 0, last - first
        while n_waiting and (heights[n_waiting - 1] == heights[n_waiting]):
            n_waiting -= 1
            _merge(waiting[n_waiting], waiting[n_waiting + 1], sizes[n_waiting], sizes[n_waiting + 1])
            heights[n_waiting] += 1
            sizes[n_waiting] += sizes[n_waiting + 1]
        n_waiting += 1
    while n_waiting > 1:
        n_waiting -= 1
        _merge(waiting[n_waiting - 1], waiting[n_waiting], sizes[n_waiting - 1], sizes[n_waiting])
        sizes[n_waiting - 1] += sizes[n_waiting]
    return waiting[0].copy()
