"""Nearest neighbors of the rows of one group, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from daskfs.kernels.blocks import Block
from daskfs.kernels.neighbors.distance_bounds import tile_bounds, tile_rows
from daskfs.kernels.neighbors.exact import exact_neighbors, order_with_ties
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import (
    Rows,
    measured_squares,
    metric_distances,
    metric_rows,
    prepare_rows,
    prepare_sketch,
)
from daskfs.kernels.statistics.moments import row_blocks

if TYPE_CHECKING:  # importing it imports numba
    from daskfs.kernels.neighbors.nearest_lists import Lists

SPARE = 6
"""Candidates kept beyond the k nearest, because float32 products order them only approximately."""
DOUBTFUL_PAIRS = 2**14
"""Pairs that are measured at a time."""
MEASURED_ROWS = 4096


def cell_neighbors(
    X: Block,
    metric: Metric,
    is_home: np.ndarray,
    starts: np.ndarray,
    cell: np.ndarray,
    k: int,
    sketch: np.ndarray | None = None,
    width: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest rows of every member of a group among the rows that it meets in cells.

    A member meets the rows at home in the cells that it probes, and a row at home meets the members that probe its
    cell. Pairs are compared by float32 products; the best few of each row are then measured in float64.

    Parameters
    ----------
    X
        Rows of the members, dense or CSR, (n_members, n_columns), by row number; under "euclidean" with NaN for missing
        values.
    metric
        Metric of lengths or angles (:mod:`daskfs.kernels.neighbors.metrics`).
    is_home
        True for members at home in the group; the others are visitors. Shape (n_members,), bool.
    starts, cell
        Cells that member i probes, nearest first: ``cell[starts[i]:starts[i + 1]]``. The first one of a member at home
        is its home.
    k
        Number of neighbors.
    sketch
        Rows of fewer columns, shape (n_members, n_components + 1), float32, compared instead of `X`, which is then only
        measured. The last column is the squared length of the rest of the row.
    width
        Number of candidates per row that are measured; by default a few more than `k`.

    Returns
    -------
    indices, distances
        Shape (n_members, k), int64 positions in `X` and float64, nearest first, ties by position; -1 and inf if there
        are fewer.
    """
    compared: Block = X if sketch is None else sketch

    def prepared(members: np.ndarray, like: Rows | None = None) -> Rows:
        if sketch is not None:
            return prepare_sketch(compared[members], like)
        return prepare_rows(compared[members], metric, like)

    # numba takes half a second to load, which exact searches do without
    from daskfs.kernels.neighbors.nearest_lists import PRODUCT_ERROR, Lists

    n_members = is_home.size
    first = cell[starts[:-1]]
    home = np.where(is_home, first, -1).astype(np.int64)
    n_cells = int(cell.max()) + 1
    probing = np.repeat(np.arange(n_members), np.diff(starts))
    order = np.argsort(cell, kind="stable")
    members_of = np.split(probing[order], np.searchsorted(cell[order], np.arange(1, n_cells)))
    shape = n_members, width or k + SPARE
    squares, names = np.full(shape, np.inf), np.full(shape, -1, np.int32)
    lists = Lists(squares, names, np.asarray(starts, np.int64), np.asarray(cell, np.int32))
    for number, members in enumerate(members_of):
        base, guests = members[home[members] == number], members[first[members] == number]
        if base.size:
            rows = prepared(base)
            queries = rows if guests.size == base.size else prepared(guests, rows)
            nothing_met = np.full(guests.size, -1)
            _offer(lists, queries, guests, np.ones(guests.size, np.bool_), nothing_met, rows, base, base_takes=False)
    for number, members in enumerate(members_of):
        is_base = home[members] == number
        base, others = members[is_base], members[~is_base]
        if base.size and others.size:
            rows = prepared(base)
            # members whose first cell this is have searched its rows; its rows have searched those at home only
            searches = first[others] != number
            # a pair that meets in two cells is taken from the lower-numbered one
            met = np.where(home[others] < number, home[others], -1)
            _offer(lists, prepared(others, rows), others, searches, met, rows, base, base_takes=True)
    if sketch is None:  # then squares have a relative error of at most PRODUCT_ERROR, and few need be measured
        # with a relative error e, a length may be the shorter one if it is up to 1 + 3 e times the other
        names[squares > squares[:, [min(k, names.shape[1]) - 1]] * (1 + 3 * PRODUCT_ERROR)] = -1
    return nearest_measured(metric_rows(X, metric), names, k)


def _offer(
    lists: Lists,
    queries: Rows,
    asked_members: np.ndarray,
    asked_takes: np.ndarray,
    asked_met: np.ndarray,
    base: Rows,
    base_members: np.ndarray,
    *,
    base_takes: bool,
) -> None:
    """Offer all pairs of two sets of rows to those of them that take candidates.

    `queries` are prepared ``like`` `base`; the numbers of both are `asked_members` and `base_members`, int64. Whether
    they take candidates say `asked_takes`, shape (n_asked,), bool, and `base_takes`. `asked_met`, shape (n_asked,),
    int64, is the cell in which a row has met the members that probe it; -1 for none.
    """
    from daskfs.kernels.neighbors.nearest_lists import Bounds, Side, offer_pairs, offer_products

    doubtful = np.empty((DOUBTFUL_PAIRS + base.n_rows, 2), np.int64)
    takes, met = np.full(base.n_rows, base_takes), np.full(base.n_rows, -1)
    for tile in row_blocks(queries.n_rows, tile_rows(queries, base)):
        rows = queries.part(tile)
        products, half_widths, errors = tile_bounds(rows, base).as_products()
        bounds = Bounds(products, half_widths, base.scale**2)
        a = Side(asked_members[tile], errors[0], asked_takes[tile], asked_met[tile])
        b = Side(base_members, errors[1], takes, met)
        start = 0
        while start < rows.n_rows:
            start, n_doubtful = offer_products(bounds, start, a, b, lists, doubtful)
            i, j = doubtful[:n_doubtful].T
            squares = measured_squares(rows, i, base, j, compiles=True)
            offer_pairs(a.members[i], b.members[j], squares, a.takes[i], b.takes[j], lists)


def fill_short_lists(X: Block, metric: Metric, is_home: np.ndarray, indices: np.ndarray, distances: np.ndarray) -> None:
    """Search all members exactly for rows at home whose lists are short, in place.

    A cell around a few rows of the sample may hold hardly any others, and rows that probe no other cell meet too few.

    Parameters
    ----------
    X, metric, is_home
        As for :func:`cell_neighbors`, without missing values.
    indices, distances
        Its result.
    """
    k = indices.shape[1]
    short = np.flatnonzero(is_home & (indices[:, min(k, is_home.size - 1) - 1] < 0))
    if not short.size:
        return
    names, squares = np.full((short.size, k), -1), np.full((short.size, k), np.inf)
    for block in row_blocks(is_home.size, MEASURED_ROWS):
        base = prepare_rows(X[block], metric)
        exact_lists = exact_neighbors(prepare_rows(X[short], metric, base), short, base, block.start, k)
        names, squares = nearest_distinct(np.hstack([names, exact_lists[0]]), np.hstack([squares, exact_lists[1]]), k)
    indices[short], distances[short] = names, squares


def nearest_measured(rows: Rows, names: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Measure candidates in float64 and return the k nearest, ties by number.

    `names`, the numbers of each row's candidates, has shape (n_rows, width), int, with -1 for none. The results have
    shape (n_rows, k), int64 and float64; -1 and inf if there are fewer.
    """
    indices, distances = np.full((rows.n_rows, k), -1, dtype=np.int64), np.full((rows.n_rows, k), np.inf)
    for block in row_blocks(rows.n_rows, MEASURED_ROWS):
        candidates = names[block].astype(np.int64)
        query, column = np.nonzero(candidates >= 0)
        squares = np.full(candidates.shape, np.inf)
        nearest = candidates[query, column]
        squares[query, column] = measured_squares(rows, query + block.start, rows, nearest, compiles=True)
        order = order_with_ties(squares, candidates)[:, :k]
        squares = np.take_along_axis(squares, order, axis=1)
        n_found = order.shape[1]
        distances[block, :n_found] = metric_distances(squares, rows)
        indices[block, :n_found] = np.where(np.isfinite(squares), np.take_along_axis(candidates, order, axis=1), -1)
    return indices, distances


def nearest_distinct(names: np.ndarray, squares: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest distinct entries of each row, ties by name; -1 and inf if there are fewer.

    `names`, int, and `squares`, float64, have shape (n_rows, n_entries), the results (n_rows, k). Repeated entries must
    have the same distance.
    """
    order = order_with_ties(squares, names)
    squares, names = np.take_along_axis(squares, order, axis=1), np.take_along_axis(names, order, axis=1)
    is_kept = np.isfinite(squares)
    is_kept[:, 1:] &= names[:, 1:] != names[:, :-1]
    place = np.cumsum(is_kept, axis=1) - 1
    is_kept &= place < k
    nearest = np.full((len(names), k), -1, dtype=names.dtype), np.full((len(names), k), np.inf)
    row, column = np.nonzero(is_kept)
    at = row, place[row, column]
    nearest[0][at], nearest[1][at] = names[row, column], squares[row, column]
    return nearest
