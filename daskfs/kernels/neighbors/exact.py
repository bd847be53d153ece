"""Exact nearest neighbors of some rows among others.

Notes
-----
One matrix product bounds every distance; only pairs that may be among the k nearest are then measured in float64, from
differences of the rows. So the result is exact whatever the offset of the data, while nearly all the work is a float32
product. Neighbors whose squared distances agree to 40 bits are tied and ordered by row number: round-off, the order of
columns or a sparse representation cannot change the graph.

For rows with missing values (NaN), bounds and distances are those of :mod:`daskfs.kernels.neighbors.distance_bounds`
and :mod:`daskfs.kernels.neighbors.rows`. Rows that share no column are not neighbors.
"""

from __future__ import annotations

import numpy as np

from daskfs.kernels.neighbors.distance_bounds import (
    IncompleteProducts,
    Products,
    float32_serves,
    narrow_bounds,
    tile_buffer,
    tile_rows,
    wide_bounds,
    wide_rows,
)
from daskfs.kernels.neighbors.metrics import ANGLES
from daskfs.kernels.neighbors.rows import UNIT_ROW_NOISE, Rows, measured_squares, metric_distances, squared_distances
from daskfs.kernels.statistics.moments import row_blocks

TIE_BITS = 40
CLOSE_BOUNDS = 1e-9
"""With very many candidates, squared distances whose bounds agree to this share of them are tied."""
MAX_TIES = 1024
"""Maximum number of rows tied at the k-th distance that are measured, lowest row numbers first."""


def order_with_ties(squares: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Return the order of each row's entries by squared distance, then candidate; all arrays are (n_rows, n_entries).

    Consecutive squared distances of one row within 2**-40 are tied, so that round-off never decides. Rounding each to
    40 bits would not suffice: two such values can be on either side of a rounding boundary.
    """
    order = np.argsort(squares, axis=1, kind="stable")
    lengths, names = np.take_along_axis(squares, order, axis=1), np.take_along_axis(candidates, order, axis=1)
    tied = (lengths[:, 1:] <= lengths[:, :-1] + np.abs(lengths[:, :-1]) * 2.0**-TIE_BITS) & np.isfinite(lengths[:, 1:])
    wrong = np.flatnonzero((tied & (names[:, 1:] < names[:, :-1])).any(axis=1))
    if wrong.size:
        group = np.zeros((wrong.size, squares.shape[1]), dtype=np.int64)
        np.cumsum(~tied[wrong], axis=1, out=group[:, 1:])
        row = np.repeat(np.arange(wrong.size), squares.shape[1])
        by_name = np.lexsort((names[wrong].ravel(), group.ravel(), row)).reshape(group.shape)
        order[wrong] = order[wrong].ravel()[by_name]
    return order


def exact_neighbors(
    queries: Rows, query_ids: np.ndarray, base: Rows, base_start: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the `k` nearest rows of `base` for each query.

    Parameters
    ----------
    queries
        Rows to find neighbors for, prepared ``like`` the base (or a part of it).
    query_ids
        Row numbers of the queries, shape (n_queries,), int64. A query is not its own neighbor.
    base
        Rows to search; row i has the number ``base_start + i``.
    base_start
        Number of the first base row.
    k
        Number of neighbors.

    Returns
    -------
    indices, distances
        Shape (n_queries, k), int64 and float64, nearest first, ties by row number. If the base has fewer than k other
        rows, or fewer that share a column with the query, the rest is -1 and inf.
    """
    indices = np.full((queries.n_rows, k), -1, dtype=np.int64)
    distances = np.full((queries.n_rows, k), np.inf)
    width = min(k, base.n_rows)
    per_tile = min(tile_rows(queries, base), queries.n_rows)
    buffer = tile_buffer(queries, base, per_tile) if float32_serves(queries, base) else None
    for rows in row_blocks(queries.n_rows, per_tile):
        indices[rows, :width], distances[rows, :width] = _tile_neighbors(
            queries.part(rows), query_ids[rows] - base_start, base, base_start, width, buffer
        )
    return indices, distances


def _tile_neighbors(
    queries: Rows, own_positions: np.ndarray, base: Rows, base_start: int, k: int, buffer: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    query, candidate = _candidates(queries, base, own_positions, k, buffer)
    squares = measured_squares(queries, query, base, candidate)
    n_found = np.bincount(query, minlength=queries.n_rows)
    width = max(int(n_found.max(initial=0)), k)
    place = np.arange(query.size) - np.repeat(np.cumsum(n_found) - n_found, n_found)
    lengths = np.full((queries.n_rows, width), np.inf)
    names = np.full((queries.n_rows, width), -1, dtype=np.int64)
    lengths[query, place], names[query, place] = squares, candidate + base_start
    best = order_with_ties(lengths, names)[:, :k]
    return np.take_along_axis(names, best, axis=1), metric_distances(np.take_along_axis(lengths, best, axis=1), base)


def _candidates(
    queries: Rows, base: Rows, own_positions: np.ndarray, k: int, buffer: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs (query, base row), sorted by both, that include the k nearest other rows of every query.

    Without a `buffer` for float32 products the bounds are float64. Queries with too many candidates in float32 are
    bounded again in float64.
    """
    if buffer is None:
        return entries(_nearest_wide(queries, base, own_positions, k))
    mask = narrow_bounds(queries, base, buffer).nearest(own_positions, k)
    query, candidate = entries(mask)
    loose = np.flatnonzero(np.bincount(query, minlength=queries.n_rows) > 4 * k + 64)
    if loose.size:
        mask[loose] = _nearest_wide(queries.part(loose), base, own_positions[loose], k)
        query, candidate = entries(mask)
    return query, candidate


def entries(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row and column indices, int64, of the True entries of a mask, in order."""
    row, column = np.divmod(np.flatnonzero(mask), mask.shape[1])
    return row, column


def _nearest_wide(queries: Rows, base: Rows, own_positions: np.ndarray, k: int) -> np.ndarray:
    """Bound in float64, some of the queries at a time, to take no more memory than float32 does."""
    parts = row_blocks(queries.n_rows, wide_rows(queries, base))
    return np.concatenate([_wide_part(queries.part(rows), base, own_positions[rows], k) for rows in parts])


def _wide_part(queries: Rows, base: Rows, own_positions: np.ndarray, k: int) -> np.ndarray:
    bounds = wide_bounds(queries, base)
    mask = bounds.nearest(own_positions, k)
    crowded = np.flatnonzero(np.count_nonzero(mask, axis=1) > k + MAX_TIES)
    for row in crowded:
        candidates = np.flatnonzero(mask[row])
        pruned = _prune_candidates(bounds, queries, int(row), base, candidates, k)
        mask[row] = False
        mask[row, pruned] = True
    return mask


def _prune_candidates(
    bounds: Products | IncompleteProducts, queries: Rows, row: int, base: Rows, candidates: np.ndarray, k: int
) -> np.ndarray:
    """Reduce candidates to those surely nearer than the k-th and the lowest-numbered of those tied with it.

    If the bounds are too loose to show a tie, the candidates are measured.
    """
    squares, width = bounds.squares(row, candidates)
    lower, bound = squares - width, float(np.partition(squares + width, k - 1)[k - 1])
    if not 4 * width.max() <= CLOSE_BOUNDS * bound < np.inf:
        candidates, lower = _exact_distances(queries, row, base, candidates, k)
        bound = float(np.partition(lower, k - 1)[k - 1])
        width = np.full(candidates.size, bound * 2.0**-TIE_BITS)
    nearer = lower + 4 * width < bound
    tied = ~nearer & (lower <= bound + width)
    return np.concatenate([candidates[nearer], candidates[tied][:MAX_TIES]])


def _exact_distances(
    queries: Rows, row: int, base: Rows, candidates: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return candidates and their squared distances, up to the first chunk that completes k at distance 0."""
    zero = UNIT_ROW_NOISE if base.metric in ANGLES else 0.0
    squares = np.empty(0)
    while squares.size < candidates.size and np.count_nonzero(squares <= zero) < k:
        part = candidates[squares.size : squares.size + 4 * MAX_TIES]
        squares = np.concatenate([squares, squared_distances(queries, np.full(part.size, row), base, part)])
    return candidates[: squares.size], squares
