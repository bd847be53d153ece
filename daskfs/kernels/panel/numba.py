"""Compiled passes over a panel, for inputs that take longer than loading numba.

Notes
-----
Additions must not be contracted or reordered (no ``fastmath``): each column gets the additions of
:mod:`daskfs.kernels.panel.numpy` in the same order, and vector instructions run across columns. Rows and edges are
processed four at a time, so that a running sum is loaded and stored once for four.

The cost of an edge is gathering the rows of neighbors. The row at its far end is prefetched `AHEAD` edges early;
without that, a processor waits for most of them if neighbors are scattered over a panel larger than the caches.

Arrays are passed in C order, so that every function is compiled for one layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from daskfs.kernels.compiled import compiled, prefetch
from daskfs.kernels.panel.numpy import CACHE_LINE, EDGE_BLOCK, SPARSE_SHARE, EdgeSums, SparsePanel, no_edge_sums

AHEAD = 16
"""Edges between the prefetch of a row and its use: enough for memory to answer, few enough to stay in a near cache."""


def _trailing_zeros(_typing_context: Any, _bits: Any) -> Any:
    """Return the number of zeros below the lowest bit that is set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


_lowest: Any = intrinsic(_trailing_zeros)


@compiled
def _add(totals: np.ndarray, weights: np.ndarray, at: int, n: int, values: np.ndarray, first: int) -> None:
    """Add `n` rows of values, at most four, with the weights from index `at` on."""
    for w in range(totals.shape[0]):
        if n == 4:
            a, b, c, d = weights[w, at], weights[w, at + 1], weights[w, at + 2], weights[w, at + 3]
            for j in range(totals.shape[1]):
                two = (totals[w, j] + a * np.float64(values[first, j])) + b * np.float64(values[first + 1, j])
                totals[w, j] = (two + c * np.float64(values[first + 2, j])) + d * np.float64(values[first + 3, j])
        else:
            for i in range(n):
                for j in range(totals.shape[1]):
                    totals[w, j] += weights[w, at + i] * np.float64(values[first + i, j])


@compiled
def _weighted_sums(F: np.ndarray, weights: np.ndarray, sums: np.ndarray) -> None:
    for r in range(0, F.shape[0], 4):
        _add(sums, weights, r, min(4, F.shape[0] - r), F, r)


@compiled
def _deviation_sums(
    F: np.ndarray, center: np.ndarray, weights: np.ndarray, sums: np.ndarray, squares: np.ndarray
) -> None:
    n_rows, width = F.shape
    deviation, square = np.empty((4, width)), np.empty((4, width))
    for r in range(0, n_rows, 4):
        n = min(4, n_rows - r)
        for i in range(n):
            for j in range(width):
                x = np.float64(F[r + i, j]) - center[j]
                deviation[i, j] = x
                square[i, j] = x * x
        _add(sums, weights, r, n, deviation, 0)
        _add(squares, weights, r, n, square, 0)


@compiled
def _power_sums(F: np.ndarray, center: np.ndarray, factor: np.ndarray, sums: np.ndarray) -> None:
    n_rows, width = F.shape
    for r in range(0, n_rows - n_rows % 4, 4):
        for j in range(width):
            low, left, scale = center[0, j], center[1, j], factor[j]
            x0, x1 = (np.float64(F[r, j]) - low - left) * scale, (np.float64(F[r + 1, j]) - low - left) * scale
            x2, x3 = (np.float64(F[r + 2, j]) - low - left) * scale, (np.float64(F[r + 3, j]) - low - left) * scale
            y0, y1, y2, y3 = x0 * x0, x1 * x1, x2 * x2, x3 * x3
            z0, z1, z2, z3 = x0 * y0, x1 * y1, x2 * y2, x3 * y3
            sums[0, j] = sums[0, j] + y0 + y1 + y2 + y3
            sums[1, j] = sums[1, j] + z0 + z1 + z2 + z3
            sums[2, j] = sums[2, j] + y0 * y0 + y1 * y1 + y2 * y2 + y3 * y3
            sums[3, j] = sums[3, j] + z0 * z0 + z1 * z1 + z2 * z2 + z3 * z3
    for r in range(n_rows - n_rows % 4, n_rows):
        for j in range(width):
            x = (np.float64(F[r, j]) - center[0, j] - center[1, j]) * factor[j]
            y = x * x
            z = x * y
            sums[0, j] += y
            sums[1, j] += z
            sums[2, j] += y * y
            sums[3, j] += z * z


@compiled
def _extremes(F: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    n_rows, width = F.shape
    whole = n_rows - n_rows % 8
    for r in range(0, whole, 8):
        for j in range(width):
            a, b = low[j], high[j]
            for i in range(8):
                x = F[r + i, j]
                a = x if x < a else a
                b = x if x > b else b
            low[j], high[j] = a, b
    for r in range(whole, n_rows):
        for j in range(width):
            low[j], high[j] = min(low[j], F[r, j]), max(high[j], F[r, j])


@compiled
def _ask(flat: np.ndarray, width: int, target: np.ndarray, first: int) -> None:
    """Prefetch the rows at the far ends of four edges."""
    line = max(1, CACHE_LINE // flat.itemsize)
    for coming in range(first, min(first + 4, target.shape[0])):
        for j in range(target[coming] * width, (target[coming] + 1) * width, line):
            prefetch(flat, j)


@compiled
def _edge_sums(F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, sums: np.ndarray) -> None:
    width, n_edges = F.shape[1], source.shape[0]
    flat = F.reshape(-1)
    square, partial = np.empty((4, width)), np.empty_like(sums)
    for start in range(0, n_edges, EDGE_BLOCK):
        stop = min(start + EDGE_BLOCK, n_edges)
        partial[:] = 0.0
        for e in range(start, stop, 4):
            _ask(flat, width, target, e + AHEAD)
            n = min(4, stop - e)
            for i in range(n):
                tail, head = source[e + i], target[e + i]
                for j in range(width):
                    x = np.float64(F[tail, j]) - np.float64(F[head, j])
                    square[i, j] = x * x
            _add(partial, weights, e, n, square, 0)
        sums += partial


@compiled
def _is_sparse(F: np.ndarray, most: int) -> bool:
    """Return whether at most `most` values are not 0."""
    total = 0
    for r in range(F.shape[0]):
        for j in range(F.shape[1]):
            total += F[r, j] != 0
        if total > most:
            return False
    return True


@compiled
def _mark(F: np.ndarray, rows: np.ndarray) -> int:
    """Set one bit for each value of a row that is not 0, and the number of bits before it; return that of all rows."""
    total = 0
    for r in range(F.shape[0]):
        bits = np.uint64(0)
        rows[r, 1] = total
        for j in range(F.shape[1]):
            if F[r, j] != 0:
                bits |= np.uint64(1) << np.uint64(j)
                total += 1
        rows[r, 0] = bits
    return total


@compiled
def _gather(F: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Put the marked values of all rows one after the other."""
    for r in range(F.shape[0]):
        left, at = rows[r, 0], np.int64(rows[r, 1])
        while left != 0:
            values[at] = F[r, np.int64(_lowest(left))]
            left &= left - np.uint64(1)
            at += 1


@compiled
def _sparse_edge_sums(
    rows: np.ndarray, values: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, sums: np.ndarray
) -> None:
    """Add what :func:`_edge_sums` adds, without the columns that are 0 at both ends: 0 changes no sum."""
    n_edges, one, flat = source.shape[0], np.uint64(1), rows.reshape(-1)
    partial = np.empty_like(sums)
    for start in range(0, n_edges, EDGE_BLOCK):
        stop = min(start + EDGE_BLOCK, n_edges)
        partial[:] = 0.0
        for e in range(start, stop):
            if e + 2 * AHEAD < n_edges:
                prefetch(flat, 2 * target[e + 2 * AHEAD])
                coming = np.int64(rows[target[e + AHEAD], 1])
                if coming < values.shape[0]:
                    prefetch(values, coming)
            tail, head = source[e], target[e]
            tails, heads = rows[tail, 0], rows[head, 0]
            t, h, left = np.int64(rows[tail, 1]), np.int64(rows[head, 1]), tails | heads
            while left != 0:
                rest = left & (left - one)
                bit = left ^ rest
                a, b = 0.0, 0.0
                if tails & bit:
                    a = np.float64(values[t])
                    t += 1
                if heads & bit:
                    b = np.float64(values[h])
                    h += 1
                j, x = np.int64(_lowest(left)), a - b
                for w in range(weights.shape[0]):
                    partial[w, j] += weights[w, e] * (x * x)
                left = rest
        sums += partial


@compiled
def _observed_edge_sums(
    F: np.ndarray, center: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, total: EdgeSums
) -> None:
    sums, low, high = total
    width, n_edges = F.shape[1], source.shape[0]
    flat = F.reshape(-1)
    terms = np.empty((4, 4, width))
    square, present, deviation, spread = terms[0], terms[1], terms[2], terms[3]
    partial = np.empty_like(sums)
    for start in range(0, n_edges, EDGE_BLOCK):
        stop = min(start + EDGE_BLOCK, n_edges)
        partial[:] = 0.0
        for e in range(start, stop, 4):
            _ask(flat, width, target, e + AHEAD)
            n = min(4, stop - e)
            for i in range(n):
                tail, head = source[e + i], target[e + i]
                for j in range(width):
                    a, b = np.float64(F[tail, j]), np.float64(F[head, j])
                    x = a - b
                    here = x == x  # not NaN
                    da, db = a - center[j], b - center[j]
                    square[i, j] = x * x if here else 0.0
                    present[i, j] = 1.0 if here else 0.0
                    deviation[i, j] = da + db if here else 0.0
                    spread[i, j] = da * da + db * db if here else 0.0
                for w in range(weights.shape[0]):
                    if weights[w, e + i] > 0:
                        for j in range(width):
                            if present[i, j] > 0:
                                a, b = np.float64(F[tail, j]), np.float64(F[head, j])
                                low[w, j] = min(low[w, j], min(a, b))
                                high[w, j] = max(high[w, j], max(a, b))
            for t in range(4):
                _add(partial[t], weights, e, n, terms[t], 0)
        sums += partial


def weighted_sums(F: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Run :func:`daskfs.kernels.panel.numpy.weighted_sums` compiled."""
    sums = np.zeros((weights.shape[0], F.shape[1]))
    _weighted_sums(np.ascontiguousarray(F), np.ascontiguousarray(weights), sums)
    return sums


def deviation_sums(F: np.ndarray, center: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run :func:`daskfs.kernels.panel.numpy.deviation_sums` compiled."""
    sums, squares = np.zeros((2, weights.shape[0], F.shape[1]))
    _deviation_sums(np.ascontiguousarray(F), center, np.ascontiguousarray(weights), sums, squares)
    return sums, squares


def power_sums(F: np.ndarray, center: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Run :func:`daskfs.kernels.panel.numpy.power_sums` compiled."""
    sums = np.zeros((4, F.shape[1]))
    _power_sums(np.ascontiguousarray(F), center, factor, sums)
    return sums


def extremes(F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run :func:`daskfs.kernels.panel.numpy.extremes` compiled."""
    low, high = F[0].copy(), F[0].copy()
    _extremes(np.ascontiguousarray(F), low, high)
    return low.astype(np.float64), high.astype(np.float64)


def compressed(F: np.ndarray) -> SparsePanel | None:
    """Return the values of a panel that are not 0, by which edges visit them alone; None if they are many.

    Panels have at most 64 columns. Rows of one cache line are as near as their marks.
    """
    F = np.ascontiguousarray(F)
    if F.shape[1] * F.itemsize <= CACHE_LINE or not _is_sparse(F, int(SPARSE_SHARE * F.size)):
        return None
    rows = np.empty((F.shape[0], 2), np.uint64)
    values = np.empty(_mark(F, rows), F.dtype)
    _gather(F, rows, values)
    return SparsePanel(rows, values)


def edge_sums(
    F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, sparse: SparsePanel | None = None
) -> np.ndarray:
    """Run :func:`daskfs.kernels.panel.numpy.edge_sums` compiled; `sparse` is :func:`compressed` of F."""
    sums = np.zeros((weights.shape[0], F.shape[1]))
    ends = np.ascontiguousarray(source, np.int64), np.ascontiguousarray(target, np.int64)
    weights = np.ascontiguousarray(weights)
    if sparse is None:
        _edge_sums(np.ascontiguousarray(F), *ends, weights, sums)
    else:
        _sparse_edge_sums(sparse.rows, sparse.values, *ends, weights, sums)
    return sums


def observed_edge_sums(
    F: np.ndarray, center: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> EdgeSums:
    """Run :func:`daskfs.kernels.panel.numpy.observed_edge_sums` compiled."""
    total = no_edge_sums(weights.shape[0], F.shape[1])
    ends = np.ascontiguousarray(source, np.int64), np.ascontiguousarray(target, np.int64)
    F, weights = np.ascontiguousarray(F), np.ascontiguousarray(weights)
    _observed_edge_sums(F, center, *ends, weights, total)
    return total
