"""Subgraph of a precomputed graph induced by a subset of rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from daskfs.graph.edges import given_blocks
from daskfs.graph.partition import block_rows, open_lists
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.store import layout
from daskfs.store.store import Store


def induced_lists(store: Store, name: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbor lists of a subset of rows, without neighbors outside it, from those of all rows in the store.

    `rows` are ascending row numbers, shape (n_rows,), int64. Indices and distances have shape (n_rows, k), int32 or
    int64 positions in `rows`, and float64; nearest first, padded with -1 and inf.
    """
    indices, distances = open_lists(store, name)
    n_samples, k = indices.shape
    place = np.full(n_samples, -1, dtype=indices.dtype)
    place[rows] = np.arange(rows.size)
    induced = np.empty((rows.size, k), dtype=indices.dtype)
    lengths = np.empty((rows.size, k))
    for block in row_blocks(n_samples, block_rows(n_samples)):
        part = slice(*np.searchsorted(rows, [block.start, block.stop]))
        if part.start == part.stop:
            continue
        at = rows[part] - block.start
        listed = indices[block][at]
        others = np.where(listed >= 0, place[listed], -1)
        order = np.argsort(others < 0, axis=1, kind="stable")
        induced[part] = np.take_along_axis(others, order, axis=1)
        lengths[part] = np.take_along_axis(np.where(others >= 0, distances[block][at], np.inf), order, axis=1)
    return induced, lengths


def induced_matrix(store: Store, rows: np.ndarray) -> sp.csr_matrix:
    """Return the weights between `rows` (see :func:`induced_lists`) of the precomputed matrix in the store.

    Shape (n_rows, n_rows), float64, symmetric.
    """
    diagonal = store.open(layout.GIVEN_DIAGONAL)[...]
    place = np.full(diagonal.size, -1)
    place[rows] = np.arange(rows.size)
    loops = np.flatnonzero(diagonal[rows])
    parts = [(loops, loops, diagonal[rows][loops])]
    for source, target, weight in given_blocks(store):
        low, high = place[source], place[target]
        inside = (low >= 0) & (high >= 0)
        parts += [(low[inside], high[inside], weight[inside]), (high[inside], low[inside], weight[inside])]
    ends, others, weights = (np.concatenate(values) for values in zip(*parts, strict=True))
    return sp.csr_matrix((weights, (ends, others)), shape=(rows.size, rows.size))
