"""Compiled passes that keep the nearest candidates of rows, and the nearest centers.

Notes
-----
Candidates of a row are ordered by squared distance, then number, and the nearest ones are kept: the lists depend on
the pairs that were offered, not on their order. A pair must be offered once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from daskfs.kernels.compiled import compiled

STEP = 32
"""Products that are compared with the reach of both rows by vector instructions, before any pair is looked at."""
PRODUCT_ERROR = 1 / 64
"""Maximum relative error of squared distances taken from products; others are measured."""
SLACK = 1 + 2.0**-10
"""Factor that covers the rounding of a reach, and of the products of rows within it."""


@compiled
def _insert(squares: np.ndarray, names: np.ndarray, square: float, name: int) -> bool:
    """Insert a candidate into the list of a row, shape (width,), from which the last one falls out."""
    place = squares.shape[0] - 1
    if square > squares[place] or (square == squares[place] and name > names[place]):
        return False
    while place > 0 and square <= squares[place - 1]:
        if square == squares[place - 1] and name > names[place - 1]:
            break
        squares[place], names[place] = squares[place - 1], names[place - 1]
        place -= 1
    squares[place], names[place] = square, name
    return True


@compiled
def _limit(reach: float, scale: float, error: float, most: float) -> float:
    """Return an upper bound on the product of a row with any row within its reach."""
    return min(reach * scale * SLACK + 3 * error, most)


@compiled
def _is_settled(squares: np.ndarray, names: np.ndarray, name: int) -> bool:
    """Return whether a list holds as many rows at no distance as it can, of lower numbers."""
    return squares[-1] <= 0 and name > names[-1]


class Bounds(NamedTuple):
    """Squared distances of rows a and b.

    `products` are squared distances times `scale`, or lower bounds on them, shape (n_a, n_b), float32 or float64.
    `half_widths` is half the distance from lower to upper bounds, of the same shape and dtype; (0, 0) where `products`
    are no bounds.
    """

    products: np.ndarray
    half_widths: np.ndarray
    scale: float


class Side(NamedTuple):
    """Rows of one side of the pairs, each array of shape (n_rows,).

    `members` are their numbers, int64; `errors` their terms of the maximum error of a product, float64; `takes` says
    whether they take candidates, bool. `met` is a cell in which a row has met the rows that probe it, int64; -1 for
    none.
    """

    members: np.ndarray
    errors: np.ndarray
    takes: np.ndarray
    met: np.ndarray


class Lists(NamedTuple):
    """Nearest candidates of all members: `squares` and `names`, shape (n_members, width), float64 and int32.

    Member i probes ``cell[starts[i]:starts[i + 1]]``, int64 and int32.
    """

    squares: np.ndarray
    names: np.ndarray
    starts: np.ndarray
    cell: np.ndarray


@compiled
def _limits(side: Side, lists: Lists, scale: float, most: float) -> np.ndarray:
    """Return the largest product of each row with a candidate that its list may take; -most if it takes none."""
    limits = np.full(side.members.shape[0], -most)
    for i in range(limits.shape[0]):
        if side.takes[i]:
            limits[i] = _limit(lists.squares[side.members[i], -1], scale, side.errors[i], most)
    return limits


@compiled
def _near(row: np.ndarray, limit: float, limits: np.ndarray, near: np.ndarray) -> int:
    """Find the products of a row within `limit` or, entry by entry, within `limits`; return how many there are.

    `near` takes their places.
    """
    is_any_near, n_near = np.uint32(0), 0
    for place in range(row.shape[0]):  # without a branch: by vector instructions
        is_any_near |= np.uint32((row[place] <= limit) | (row[place] <= limits[place]))
    if is_any_near:
        for place in range(row.shape[0]):  # without a branch, which would be guessed wrong
            near[n_near] = place
            n_near += int((row[place] <= limit) | (row[place] <= limits[place]))
    return n_near


@compiled
def _have_met(lists: Lists, met: int, other: int) -> bool:
    """Return whether a member probes the cell `met`; False for -1."""
    for place in range(lists.starts[other], lists.starts[other + 1]):  # noqa: SIM110 - numba compiles no any()
        if lists.cell[place] == met:
            return True
    return False


@compiled
def offer_products(bounds: Bounds, first: int, a: Side, b: Side, lists: Lists, doubtful: np.ndarray) -> tuple[int, int]:
    """Offer pairs of rows to the lists of both by their products, and note those whose distance is in doubt.

    Rows of `a` before `first` have been offered. `doubtful`, shape (n, 2), int64, n >= n_b, is room for pairs in doubt,
    by their places in `a` and `b`. Returns the first row that was not offered, for lack of this room, and the number of
    pairs in doubt.
    """
    products, scale = bounds.products, bounds.scale
    (n_a, n_b), most = products.shape, np.finfo(products.dtype).max
    of_a = _limits(a, lists, scale, most).astype(products.dtype)
    of_b = _limits(b, lists, scale, most).astype(products.dtype)
    near, n_doubtful = np.empty(STEP, np.int64), 0
    for i in range(first, n_a):
        if doubtful.shape[0] - n_doubtful < n_b:
            return i, n_doubtful
        row = a.members[i]
        for start in range(0, n_b, STEP):
            stop = min(start + STEP, n_b)
            for place in near[: _near(products[i, start:stop], of_a[i], of_b[start:stop], near)]:
                j, other = start + place, b.members[start + place]
                if other == row or _have_met(lists, a.met[i], other):
                    continue
                near_a, near_b = products[i, j] <= of_a[i], products[i, j] <= of_b[j]
                error, square = a.errors[i] + b.errors[j], np.float64(products[i, j])
                if bounds.half_widths.shape[0]:
                    error += bounds.half_widths[i, j]
                    square += bounds.half_widths[i, j]
                if not square * PRODUCT_ERROR > error:
                    if (near_a and not _is_settled(lists.squares[row], lists.names[row], other)) or (
                        near_b and not _is_settled(lists.squares[other], lists.names[other], row)
                    ):
                        doubtful[n_doubtful] = i, j
                        n_doubtful += 1
                    continue
                if near_a and _insert(lists.squares[row], lists.names[row], square / scale, other):
                    of_a[i] = _limit(lists.squares[row, -1], scale, a.errors[i], most)
                if near_b and _insert(lists.squares[other], lists.names[other], square / scale, row):
                    of_b[j] = _limit(lists.squares[other, -1], scale, b.errors[j], most)
    return n_a, n_doubtful


@compiled
def nearest_centers(
    squares: np.ndarray, limits: np.ndarray, sizes: np.ndarray, least: float, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest centers of rows within a limit, nearest first, ties by number.

    Parameters
    ----------
    squares
        Squared distances, shape (n_rows, n_centers), float32, without NaN.
    limits
        Maximum squared distance of each row, shape (n_rows,), float32.
    sizes, least
        A row whose centers hold fewer than `least` rows gets the nearest centers without a limit; `sizes` has shape
        (n_centers,), float64.
    count
        Maximum number of centers of a row.

    Returns
    -------
    indices, values
        Centers and their squared distances, shape (n_rows, count), int32 and float32; padded with -1 and inf. There are
        fewer columns if there are fewer centers.
    """
    n_rows, n_centers = squares.shape
    count = min(count, n_centers)
    indices, values = np.empty((n_rows, count), np.int32), np.empty((n_rows, count), np.float32)
    for i in range(squares.shape[0]):
        limit, n_found, n_rows_held = limits[i], 0, -1.0
        while n_rows_held < least:
            n_found, n_rows_held = 0, 0.0
            for start in range(0, n_centers, STEP):
                part, is_any_near = squares[i, start : min(start + STEP, n_centers)], np.uint32(0)
                for place in range(part.shape[0]):  # without a branch: by vector instructions
                    is_any_near |= np.uint32(part[place] <= limit)
                if not is_any_near:
                    continue
                for j in range(start, start + part.shape[0]):
                    square = squares[i, j]
                    if not square <= limit or (n_found == count and square == values[i, count - 1]):
                        continue
                    n_found = min(n_found + 1, count)
                    place = n_found - 1
                    while place > 0 and square < values[i, place - 1]:
                        values[i, place], indices[i, place] = values[i, place - 1], indices[i, place - 1]
                        place -= 1
                    values[i, place], indices[i, place] = square, j
                    if n_found == count:
                        limit = values[i, count - 1]
            for place in range(n_found):
                n_rows_held += sizes[indices[i, place]]
            if n_found == count:
                break
            limit = np.float32(np.inf)
        values[i, n_found:], indices[i, n_found:] = np.inf, -1
    return indices, values


@compiled
def offer_pairs(
    a: np.ndarray, b: np.ndarray, squares: np.ndarray, a_takes: np.ndarray, b_takes: np.ndarray, lists: Lists
) -> None:
    """Offer pairs of members a and b at known squared distances to the lists of those that take them.

    Shapes (n_pairs,); the squares are float64.
    """
    for pair in range(a.shape[0]):
        if a_takes[pair]:
            _insert(lists.squares[a[pair]], lists.names[a[pair]], squares[pair], b[pair])
        if b_takes[pair]:
            _insert(lists.squares[b[pair]], lists.names[b[pair]], squares[pair], a[pair])


@partial(compiled, fastmath={"reassoc", "nsz"})  # as NumPy does, vector instructions add in an order of their own
def pair_squares(a: np.ndarray, a_index: np.ndarray, b: np.ndarray, b_index: np.ndarray, squares: np.ndarray) -> None:
    """Compute the squared distances of pairs of dense rows, shape (n_pairs,), float64, from their differences."""
    for pair in range(a_index.shape[0]):
        tail, head, total = a[a_index[pair]], b[b_index[pair]], 0.0
        for j in range(tail.shape[0]):
            difference = np.float64(tail[j]) - np.float64(head[j])
            total += difference * difference
        squares[pair] = total
