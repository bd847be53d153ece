"""Approximate neighbors of all rows of a group by NN-descent (pynndescent), with exact distances."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.neighbors.exact import order_with_ties
from daskfs.kernels.neighbors.rows import Metric, Rows, measured_squares, metric_distances, metric_rows, prepare_rows

_NUMBA_PARALLEL = threading.Lock()
"""numba's workqueue layer aborts the process when two threads enter parallel regions, so builds are serialized."""

PAIRS_AT_ONCE = 2**18
PROJECTED_KEPT = 3
"""Candidates per requested neighbor if rows are searched in a projection."""
MOST_CANDIDATES = 60
"""Maximum number of neighbors of a row that pynndescent compares with each other."""
UPDATED_ROWS = 2**14
"""Rows per batch of such comparisons."""


def list_length(k: int) -> int:
    """Return the list length of NN-descent, without the row itself: it needs more than k to find k well."""
    return max(15, 2 * k)


def compile_descent(sparse: bool) -> None:  # noqa: FBT001 - WarmUp calls it with its one argument
    """Run a tiny search on dense or sparse rows to trigger compilation."""
    rows = np.random.default_rng(0).random((300, 4), dtype=np.float32)
    _search(sp.csr_matrix(rows) if sparse else rows, 5, 0)


def descent_neighbors(
    X: np.ndarray | sp.csr_matrix, metric: Metric, k: int, random_state: int, sketch: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Find neighbors by NN-descent, in the order of :func:`~daskfs.kernels.neighbors.exact.exact_neighbors`.

    Parameters
    ----------
    X
        Rows of the group, shape (n_rows, n_features), dense or CSR.
    metric
        Under "cosine" the search runs on unit rows. All-zero rows are at distance 1 from everything: they are excluded
        from the search and get the lowest-numbered other rows.
    k
        Number of neighbors, less than the number of rows.
    sketch
        Projected rows, (n_rows, n_components + 1) float32, that are searched instead of `X` for three times as many
        candidates; `X` then only serves to compute distances. The last column is not used.
    random_state
        Seed. The result also depends on the number of numba threads, which is fixed at one.

    Returns
    -------
    indices, distances
        Shape (n_rows, k), int64 and float64; padded with -1 and inf.
    """
    rows = prepare_rows(X, metric) if sketch is None else metric_rows(X, metric)
    operand = rows.operand if sketch is None else sketch[:, :-1]
    if sketch is None and not is_sparse(operand):
        operand = operand[:, :-2]
    searched = np.arange(rows.n_rows) if rows.is_zero is None else np.flatnonzero(~rows.is_zero)
    indices = np.full((rows.n_rows, k), -1, dtype=np.int64)
    distances = np.full((rows.n_rows, k), np.inf)
    if searched.size > k:
        kept = k if sketch is None else min(PROJECTED_KEPT * k, searched.size - 1)
        found = _search(operand if searched.size == rows.n_rows else operand[searched], kept, random_state)
        for start in range(0, searched.size, max(1, PAIRS_AT_ONCE // found.shape[1])):
            part = slice(start, start + max(1, PAIRS_AT_ONCE // found.shape[1]))
            candidates = np.where(found[part] >= 0, searched[found[part]], -1)
            indices[searched[part]], distances[searched[part]] = _ordered(rows, searched[part], candidates, k)
    left = np.setdiff1d(np.arange(rows.n_rows), searched) if searched.size > k else np.arange(rows.n_rows)
    for row in left:
        others = np.delete(np.arange(min(k + 1, rows.n_rows)), row) if row <= k else np.arange(k)
        indices[row], distances[row] = _ordered(rows, np.array([row]), others[None, :], k)
    return indices, distances


def _search(operand: np.ndarray | sp.csr_matrix, k: int, random_state: int) -> np.ndarray:
    from pynndescent import NNDescent

    data = operand.astype(np.float32) if is_sparse(operand) else np.require(operand, np.float32, ["C", "W"])
    if is_sparse(data):
        data.sort_indices()
    n_neighbors = min(list_length(k) + 1, data.shape[0])
    with _NUMBA_PARALLEL, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the recall estimate covers lists that could not be filled
        index = NNDescent(data, metric="euclidean", n_neighbors=n_neighbors, random_state=random_state, n_jobs=1)
        found, _ = index.neighbor_graph
    return np.asarray(found, dtype=np.int64)


def _ordered(rows: Rows, queries: np.ndarray, candidates: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute exact distances of candidates, drop the row itself and padding, keep the k nearest by distance, index."""
    candidates = np.sort(candidates, axis=1)
    query = np.repeat(queries, candidates.shape[1])
    flat = candidates.ravel()
    squares = np.full(candidates.shape, np.inf)
    valid = (flat >= 0) & (flat != query)
    squares[valid.reshape(squares.shape)] = measured_squares(rows, query[valid], rows, flat[valid])
    best = order_with_ties(squares, candidates)[:, :k]
    squares = np.take_along_axis(squares, best, axis=1)
    indices = np.full((queries.size, k), -1, dtype=np.int64)
    distances = np.full((queries.size, k), np.inf)
    indices[:, : best.shape[1]] = np.where(np.isfinite(squares), np.take_along_axis(candidates, best, axis=1), -1)
    distances[:, : best.shape[1]] = metric_distances(squares, rows.metric)
    return indices, distances
