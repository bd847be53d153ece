"""Compiled passes over a panel, for inputs that take longer than loading numba.

Notes
-----
Additions must not be contracted or reordered (no ``fastmath``): each column gets the additions of
:mod:`daskfs.kernels.panel.numpy` in the same order, and vector instructions run across columns. Rows and edges are
processed four at a time, so that a running sum is loaded and stored once for four.

The cost of an edge is gathering the rows of neighbors. The row at its far end is prefetched `AHEAD` edges early;
without that, a processor waits for most of them if neighbors are scattered over a panel larger than the caches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from daskfs.kernels.compiled import compiled
from daskfs.kernels.panel.numpy import EDGE_BLOCK, EdgeSums, no_edge_sums

AHEAD = 16
"""Edges between the prefetch of a row and its use: enough for memory to answer, few enough to stay in a near cache."""
CACHE_LINE = 64


def _prefetched(typing_context: Any, values: Any, index: Any) -> Any:
    """Prefetch the cache line of one value of a flat array."""
    del typing_context

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = builder.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
        builder.call(function, [address, flag(0), flag(3), flag(1)])  # read, high locality, data
        return context.get_dummy_value()

    return types.void(values, index), generate


_prefetch: Any = intrinsic(_prefetched)


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
            _prefetch(flat, j)


@compiled
def _edge_sums(
    F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray, block: int, sums: np.ndarray
) -> None:
    width, n_edges = F.shape[1], source.shape[0]
    flat = F.reshape(-1)
    square, partial = np.empty((4, width)), np.empty_like(sums)
    for start in range(0, n_edges, block):
        stop = min(start + block, n_edges)
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
def _observed_edge_sums(  # noqa: PLR0913 - compiled functions take arrays
    F: np.ndarray,
    center: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    weights: np.ndarray,
    block: int,
    sums: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    width, n_edges = F.shape[1], source.shape[0]
    flat = F.reshape(-1)
    square, present, deviation, spread = (
        np.empty((4, width)),
        np.empty((4, width)),
        np.empty((4, width)),
        np.empty((4, width)),
    )
    partial = np.empty_like(sums)
    for start in range(0, n_edges, block):
        stop = min(start + block, n_edges)
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
            _add(partial[0], weights, e, n, square, 0)
            _add(partial[1], weights, e, n, present, 0)
            _add(partial[2], weights, e, n, deviation, 0)
            _add(partial[3], weights, e, n, spread, 0)
        sums += partial


def _ordered(values: np.ndarray, dtype: Any = None) -> np.ndarray:
    """Return values in C order, so that every function is compiled for one layout."""
    return np.ascontiguousarray(values, dtype=dtype)


def weighted_sums(F: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Run :func:`daskfs.kernels.panel.numpy.weighted_sums` compiled."""
    sums = np.zeros((weights.shape[0], F.shape[1]))
    _weighted_sums(_ordered(F), _ordered(weights), sums)
    return sums


def deviation_sums(F: np.ndarray, center: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run :func:`daskfs.kernels.panel.numpy.deviation_sums` compiled."""
    sums, squares = np.zeros((2, weights.shape[0], F.shape[1]))
    _deviation_sums(_ordered(F), center, _ordered(weights), sums, squares)
    return sums, squares


def extremes(F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run :func:`daskfs.kernels.panel.numpy.extremes` compiled."""
    low, high = F[0].copy(), F[0].copy()
    _extremes(_ordered(F), low, high)
    return low.astype(np.float64), high.astype(np.float64)


def edge_sums(F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Run :func:`daskfs.kernels.panel.numpy.edge_sums` compiled."""
    sums = np.zeros((weights.shape[0], F.shape[1]))
    _edge_sums(_ordered(F), _ordered(source, np.int64), _ordered(target, np.int64), _ordered(weights), EDGE_BLOCK, sums)
    return sums


def observed_edge_sums(
    F: np.ndarray, center: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray
) -> EdgeSums:
    """Run :func:`daskfs.kernels.panel.numpy.observed_edge_sums` compiled."""
    found = no_edge_sums(weights.shape[0], F.shape[1])
    ends = _ordered(source, np.int64), _ordered(target, np.int64)
    _observed_edge_sums(_ordered(F), center, *ends, _ordered(weights), EDGE_BLOCK, found.sums, found.low, found.high)
    return found
