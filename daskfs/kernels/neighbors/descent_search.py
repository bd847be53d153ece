"""Nearest neighbors of the rows of one group by random trees and NN-descent, daskfs's own or pynndescent's.

Notes
-----
Each tree halves the rows until parts are small, and all pairs of a part are compared: a few trees find some two thirds
of the neighbors. Then neighbors of neighbors are compared until hardly any list changes (Dong, Moses and Li, 2011).
A start from random lists takes more passes, and one from cells is trapped: their lists hold each other's rows only.

Where the intrinsic dimension is low, this compares several times fewer pairs than a search by cells. Where it is high,
it misses more neighbors, and more of them the more rows there are.

pynndescent compiles its search in every process (32 s, version 0.7.0), as numba does not cache a function that takes
the distance as an argument. It runs on one thread, so that its lists depend on the seed alone, and one search at a
time: numba's "workqueue" ends a process in which two threads begin parallel work at once.
"""

from __future__ import annotations

import warnings
from threading import Lock

import numpy as np

from daskfs.kernels.blocks import Block
from daskfs.kernels.neighbors.cell_search import nearest_measured
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import Metric, split_metric
from daskfs.kernels.neighbors.rows import Rows, metric_rows, prepare_rows

LEAST_SPARE = 4
"""Minimum number of neighbors that are kept beyond the k nearest."""
SPARED_DIMENSION = 8.0
"""Intrinsic dimension beyond which another neighbor is kept for each further one."""
LINKED = (14, 20)
"""Minimum and maximum number of new neighbors of a row that a pass compares."""

ROWS_PER_NEIGHBOR = 8
"""Rows per neighbor that pynndescent finds up to which all pairs are compared instead."""
_SEARCHING = Lock()


def list_width(k: int, dimension: float) -> int:
    """Return the length of the lists that find k neighbors of rows of an intrinsic dimension."""
    return k + int(np.clip(np.ceil(dimension - SPARED_DIMENSION), LEAST_SPARE, max(10, k)))


def n_linked(dimension: float) -> int:
    """Return the maximum number of new neighbors of a row that a pass compares."""
    return int(np.clip(np.ceil(dimension + 10 - SPARED_DIMENSION), *LINKED))


def descent_neighbors(
    X: Block, metric: Metric, k: int, sketch: np.ndarray, width: int, dimension: float, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find neighbors by NN-descent, in the order of :func:`~daskfs.kernels.neighbors.exact.exact_neighbors`.

    Parameters
    ----------
    X
        Rows of the group, shape (n_rows, n_features), dense or CSR, in which the nearest candidates are measured.
    metric
        Metric of lengths or angles (:mod:`daskfs.kernels.neighbors.metrics`). Under angles a row without a direction
        is at distance 1 from everything, and gets the rows of the lowest numbers.
    k
        Number of neighbors.
    sketch
        Rows that are compared, shape (n_rows, n_components + 1), float32. The last column is the squared length of the
        rest of the row.
    width
        Minimum number of candidates per row that are measured.
    dimension
        Intrinsic dimension of the rows.
    random_state
        Seed.

    Returns
    -------
    indices, distances
        Shape (n_rows, k), int64 and float64; padded with -1 and inf.
    """
    # numba takes half a second to load, which exact searches do without
    from daskfs.kernels.neighbors.descent_lists import descent_lists

    names, _ = descent_lists(sketch, list_width(k, dimension), n_linked(dimension), random_state, width)
    return _measure_lists(metric_rows(X, metric), names, k)


def foreign_width(k: int) -> int:
    """Return the number of neighbors that pynndescent finds, of which the k nearest are kept.

    For k = 10 the recall of 50,000 rows was .962, .988 and .998 with 15, 20 and 30 (manhattan, 100 clusters, 64
    columns), .897, .960 and .988 (chebyshev, the same).
    """
    return max(20, 3 * k)


def pynndescent_neighbors(
    X: Block, metric: Metric, k: int, shifted: Block, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find neighbors by pynndescent; arguments and results are those of :func:`descent_neighbors`.

    `shifted`, shape of `X`, float32, are rows that pynndescent compares by Euclidean distances where the metric follows
    from these.
    """
    rows, width = metric_rows(X, metric), foreign_width(k)
    if rows.n_rows <= ROWS_PER_NEIGHBOR * width:
        base = prepare_rows(X, metric)
        return exact_neighbors(base, np.arange(rows.n_rows), base, 0, k)
    from pynndescent import NNDescent

    name, arguments = ("euclidean", {}) if rows.is_own else split_metric(metric)
    with _SEARCHING, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to correctly find n_neighbors", UserWarning)
        search = NNDescent(
            shifted if rows.is_own else rows.values,
            metric=name,
            metric_kwds=arguments,
            n_neighbors=width,
            n_jobs=1,
            random_state=random_state,
        )
    names = search.neighbor_graph[0]
    return _measure_lists(rows, np.where(names == np.arange(rows.n_rows)[:, None], -1, names), k)


def _measure_lists(rows: Rows, names: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    if rows.is_zero is not None:  # all others are at the same distance
        zero, others = np.flatnonzero(rows.is_zero), np.arange(min(names.shape[1], rows.n_rows - 1))
        names[zero] = -1
        names[zero, : others.size] = others + (others >= zero[:, None])
    return nearest_measured(rows, names, k)
