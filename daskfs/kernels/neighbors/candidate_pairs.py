"""Pairs of nearby rows, with squared distances from matrix products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.neighbors.distance_bounds import Bounds, float32_serves, narrow_bounds, tile_buffer, wide_bounds
from daskfs.kernels.neighbors.exact import entries, exact_neighbors
from daskfs.kernels.neighbors.rows import Rows, measured_squares

PRODUCT_ERROR = 1 / 64
"""Maximum relative error of squared distances taken from products."""
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, candidates and squared distances, one entry per pair."""
NO_ENTRIES: Entries = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def nearest_pairs(queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return pairs of each query with its `k` nearest base rows, and perhaps some more.

    Parameters
    ----------
    queries, base
        Rows, prepared alike; at most :func:`~daskfs.kernels.neighbors.distance_bounds.tile_rows` queries.
    own
        Index of each query in the base, -1 if it is not there, shape (n_queries,), int64.
    k
        Number of neighbors.

    Returns
    -------
    rows, candidates, squares
        Indices in `queries` and `base`, int64, and squared distances of the metric's rows from the float32 product,
        float64; those dominated by its rounding error are measured.
    """
    bounds = _tile_bounds(queries, base)
    wanted = bounds.nearest(own, min(k, base.n_rows))
    row, candidate = entries(wanted)
    crowded = NO_ENTRIES
    if row.size > (2 * k + 64) * queries.n_rows:
        crowded = _crowded(wanted, queries, own, base, k)
        row, candidate = entries(wanted)
    return _joined([crowded, (row, candidate, _pair_squares(bounds, queries, row, base, candidate))])


def close_pairs(a: Rows, a_reach: np.ndarray, b: Rows, b_reach: np.ndarray, k: int) -> tuple[Entries, Entries]:
    """Return the pairs that are within reach of either row.

    Parameters
    ----------
    a, b
        Disjoint rows; `a` prepared ``like`` `b`, at most :func:`~daskfs.kernels.neighbors.distance_bounds.tile_rows` of
        them.
    a_reach, b_reach
        Squared distance (of the metric's rows) up to which a row takes candidates, shape (n_rows,), float64; negative
        for a row that takes none.
    k
        A row with very many candidates within reach gets its `k` nearest only.

    Returns
    -------
    of_a, of_b
        Entries of the rows of `a`, with candidates in `b`, and vice versa; squared distances as in
        :func:`nearest_pairs`.
    """
    bounds, square_scale = _tile_bounds(a, b), b.scale**2
    wanted_a, wanted_b = bounds.within(a_reach * square_scale, b_reach * square_scale)
    i, j = entries(wanted_a | wanted_b)
    of_a, of_b = NO_ENTRIES, NO_ENTRIES
    crowded = i.size > (2 * k + 64) * (a.n_rows + b.n_rows)
    if crowded:
        wanted_a[a_reach < 0] = False
        wanted_b[:, b_reach < 0] = False
        of_a = _crowded(wanted_a, a, np.full(a.n_rows, -1), b, k)
        of_b = _crowded(wanted_b.T, b, np.full(b.n_rows, -1), a, k)
        i, j = entries(wanted_a | wanted_b)
    squares = _pair_squares(bounds, a, i, b, j)
    forward, backward = squares <= a_reach[i], squares <= b_reach[j]
    if crowded:  # rows that already have their k nearest must not get them again by pairs that the other row wants
        forward &= wanted_a[i, j]
        backward &= wanted_b[i, j]
    of_a = _joined([of_a, (i[forward], j[forward], squares[forward])])
    return of_a, _joined([of_b, (j[backward], i[backward], squares[backward])])


def _tile_bounds(tile: Rows, base: Rows) -> Bounds:
    if float32_serves(tile, base):
        return narrow_bounds(tile, base, tile_buffer(tile, base, tile.n_rows))
    return wide_bounds(tile, base)


def _pair_squares(bounds: Bounds, a: Rows, i: np.ndarray, b: Rows, j: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs from their products, measured if rounding exceeds PRODUCT_ERROR."""
    squares, error = bounds.squares(i, j)
    squares /= b.scale**2
    drowned = np.flatnonzero(squares * b.scale**2 <= error / PRODUCT_ERROR)
    if drowned.size:
        squares[drowned] = measured_squares(a, i[drowned], b, j[drowned])
    return squares


def _crowded(wanted: np.ndarray, queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return the k nearest of rows with very many candidates, and clear their rows of `wanted`."""
    rows = np.flatnonzero(np.count_nonzero(wanted, axis=1) > 4 * k + 64)
    if not rows.size:
        return NO_ENTRIES
    wanted[rows] = False
    indices, distances = exact_neighbors(queries.part(rows), own[rows], base, 0, k)
    found = indices >= 0
    query = np.broadcast_to(rows[:, None], found.shape)[found]
    squares = distances[found] * 2 if base.metric == "cosine" else distances[found] ** 2
    return query, indices[found], squares


def _joined(parts: Sequence[Entries]) -> Entries:
    if len(parts) == 1:
        return parts[0]
    rows, candidates, squares = zip(*parts, strict=True)
    return np.concatenate(rows), np.concatenate(candidates), np.concatenate(squares)
