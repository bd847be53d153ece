"""Pairs of rows that are near each other, with their squared distances as products give them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.neighbors.distance_bounds import Bounds, float32_serves, narrow_bounds, tile_buffer, wide_bounds
from daskfs.kernels.neighbors.exact import entries, exact_neighbors
from daskfs.kernels.neighbors.rows import Rows, measured_squares

PRODUCT_ERROR = 1 / 64
"""Share that squared distances taken from products may be off."""
Entries = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Rows, candidates and squared distances, one entry per pair."""
NO_ENTRIES: Entries = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def nearest_pairs(queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return, for each query, pairs with its `k` nearest rows of the base and perhaps some more.

    Parameters
    ----------
    queries, base
        Rows, prepared alike; :func:`~daskfs.kernels.neighbors.distance_bounds.tile_rows` queries at most.
    own
        Place in the base of each query, -1 where it is not there, shape (n_queries,).
    k
        Number of neighbours wanted.

    Returns
    -------
    rows, candidates, squares
        Positions in `queries` and `base`, and squared distances of the metric's rows as the float32 product gives them;
        those that would drown in its rounding are measured.
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
    """Return the pairs that lie within reach of either row.

    Parameters
    ----------
    a, b
        Rows that have none in common; `a` prepared ``like`` `b`,
        :func:`~daskfs.kernels.neighbors.distance_bounds.tile_rows` of them at most.
    a_reach, b_reach
        Squared distance (of the metric's rows) beyond which a row has no use for another, shape (n_rows,); negative for
        a row that has no use for any.
    k
        A row of which very many lie within reach gets its `k` nearest.

    Returns
    -------
    of_a, of_b
        What rows of `a` found in `b`, and the other way round; squared distances as in :func:`nearest_pairs`.
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
    if crowded:  # rows that have their k nearest by now must not get them again with pairs that the other row wants
        forward &= wanted_a[i, j]
        backward &= wanted_b[i, j]
    of_a = _joined([of_a, (i[forward], j[forward], squares[forward])])
    return of_a, _joined([of_b, (j[backward], i[backward], squares[backward])])


def _tile_bounds(tile: Rows, base: Rows) -> Bounds:
    if float32_serves(tile, base):
        return narrow_bounds(tile, base, tile_buffer(tile, base, tile.n_rows))
    return wide_bounds(tile, base)


def _pair_squares(bounds: Bounds, a: Rows, i: np.ndarray, b: Rows, j: np.ndarray) -> np.ndarray:
    """Return squared distances of pairs from their products, measured where rounding is more than PRODUCT_ERROR."""
    squares, error = bounds.squares(i, j)
    squares /= b.scale**2
    drowned = np.flatnonzero(squares * b.scale**2 <= error / PRODUCT_ERROR)
    if drowned.size:
        squares[drowned] = measured_squares(a, i[drowned], b, j[drowned])
    return squares


def _crowded(wanted: np.ndarray, queries: Rows, own: np.ndarray, base: Rows, k: int) -> Entries:
    """Return the k nearest of rows that want very many, and clear what they want."""
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
