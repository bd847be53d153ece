"""Compiled passes that keep the nearest candidates of rows, and the nearest centers.

Notes
-----
Candidates of a row are ordered by squared distance, then number, and the nearest ones are kept: the lists depend on
the pairs that were offered, not on their order. A pair must be offered once.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from daskfs.kernels.compiled import compiled

STEP = 32
"""Products that are compared with the reach of both rows by vector instructions, before any pair is looked at."""
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
def _is_settled(squares: np.ndarray, names: np.ndarray, row: int, name: int) -> bool:
    """Return whether a list holds as many rows at no distance as it can, of lower numbers."""
    return squares[row, -1] <= 0 and name > names[row, -1]


@compiled
def offer_products(
    products: np.ndarray,
    half_widths: np.ndarray,
    first: int,
    a: np.ndarray,
    b: np.ndarray,
    a_error: np.ndarray,
    b_error: np.ndarray,
    scale: float,
    doubt: float,
    a_takes: np.ndarray,
    b_takes: bool,
    a_met: np.ndarray,
    probes: np.ndarray,
    squares: np.ndarray,
    names: np.ndarray,
    doubtful: np.ndarray,
) -> tuple[int, int]:
    """Offer pairs of rows to the lists of both by their products, and note those whose distance is in doubt.

    Parameters
    ----------
    products
        Squared distances times `scale`, or lower bounds on them, shape (n_a, n_b), float32 or float64.
    half_widths
        Half the distance from lower to upper bounds, same shape; shape (0, 0) where `products` are no bounds.
    first
        First row of `products`; rows before it have been offered.
    a, b
        Numbers of the rows, shapes (n_a,) and (n_b,), int64.
    a_error, b_error
        Terms of the maximum error of a product, shapes (n_a,) and (n_b,), float64.
    doubt
        A pair is in doubt if its product is at most this many times its error.
    a_takes, b_takes
        Whether a row of `a`, shape (n_a,), bool, and those of `b` take candidates.
    a_met
        Cell in which a row of `a` has met the rows that probe it, shape (n_a,), int64; -1 for none.
    probes
        Bitmap of the cells that each row probes, shape (n_rows, n_bytes), uint8.
    squares, names
        Lists, shape (n_rows, width), float64 and int32.
    doubtful
        Room for pairs in doubt, by their places in `a` and `b`: shape (n, 2), int64, n >= n_b.

    Returns
    -------
    int, int
        First row that was not offered, for lack of room for pairs in doubt, and the number of these pairs.
    """
    n_a, n_b = products.shape
    last, most = squares.shape[1] - 1, np.finfo(products.dtype).max
    limits = np.full(n_b + 1, -most, products.dtype)  # that of the row of `a` is the last one
    if b_takes:
        for j in range(n_b):
            limits[j] = _limit(squares[b[j], last], scale, b_error[j], most)
    near, n_doubtful = np.empty(STEP, np.uint32), 0
    for i in range(first, n_a):
        if doubtful.shape[0] - n_doubtful < n_b:
            return i, n_doubtful
        row, takes = a[i], a_takes[i]
        limits[n_b] = _limit(squares[row, last], scale, a_error[i], most) if takes else -most
        for start in range(0, n_b, STEP):
            limit, of_b = limits[n_b], limits[start : min(start + STEP, n_b)]
            part, is_any_near = products[i, start : start + of_b.shape[0]], np.uint32(0)
            for place in range(of_b.shape[0]):  # without a branch: by vector instructions
                is_any_near |= np.uint32((part[place] <= limit) | (part[place] <= of_b[place]))
            if not is_any_near:
                continue
            n_near = 0
            for place in range(of_b.shape[0]):  # without a branch, which would be guessed wrong
                near[n_near] = start + place
                n_near += np.uint32((part[place] <= limit) | (part[place] <= of_b[place]))
            for j in near[:n_near]:
                near_a, near_b, other = products[i, j] <= limits[n_b], products[i, j] <= limits[j], b[j]
                if not (near_a or near_b) or other == row:
                    continue
                met = a_met[i]
                if met >= 0 and probes[other, met >> 3] >> (met & 7) & 1:
                    continue
                error = a_error[i] + b_error[j]
                square = np.float64(products[i, j])
                if half_widths.shape[0]:
                    error += half_widths[i, j]
                    square += half_widths[i, j]
                if not square > doubt * error:
                    if (near_a and not _is_settled(squares, names, row, other)) or (
                        near_b and not _is_settled(squares, names, other, row)
                    ):
                        doubtful[n_doubtful, 0], doubtful[n_doubtful, 1] = i, j
                        n_doubtful += 1
                    continue
                if near_a and _insert(squares[row], names[row], square / scale, other):
                    limits[n_b] = _limit(squares[row, last], scale, a_error[i], most)
                if near_b and _insert(squares[other], names[other], square / scale, row):
                    limits[j] = _limit(squares[other, last], scale, b_error[j], most)
    return n_a, n_doubtful


@compiled
def nearest_centers(
    squares: np.ndarray,
    limits: np.ndarray,
    sizes: np.ndarray,
    least: float,
    indices: np.ndarray,
    values: np.ndarray,
) -> None:
    """Find the nearest centers of rows within a limit, nearest first, ties by number.

    Parameters
    ----------
    squares
        Squared distances, shape (n_rows, n_centers), float32, finite.
    limits
        Maximum squared distance of each row, shape (n_rows,), float32.
    sizes, least
        A row whose centers hold fewer than `least` rows gets the nearest centers without a limit; `sizes` has shape
        (n_centers,), float64.
    indices, values
        Where to write the centers and their squared distances, shape (n_rows, count), int32 and float32; padded with
        -1 and inf.
    """
    n_centers, count = squares.shape[1], indices.shape[1]
    for i in range(squares.shape[0]):
        limit, n_found, held = limits[i], 0, -1.0
        while held < least:
            n_found, held = 0, 0.0
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
                held += sizes[indices[i, place]]
            if n_found == min(count, n_centers):
                break
            limit = np.float32(np.inf)
        values[i, n_found:], indices[i, n_found:] = np.inf, -1


@compiled
def offer_pairs(
    a: np.ndarray,
    b: np.ndarray,
    lengths: np.ndarray,
    a_takes: np.ndarray,
    b_takes: bool,
    squares: np.ndarray,
    names: np.ndarray,
) -> None:
    """Offer pairs of rows at known squared distances, shape (n_pairs,), float64, to the lists of both."""
    for pair in range(a.shape[0]):
        if a_takes[pair]:
            _insert(squares[a[pair]], names[a[pair]], lengths[pair], b[pair])
        if b_takes:
            _insert(squares[b[pair]], names[b[pair]], lengths[pair], a[pair])


@partial(compiled, fastmath={"reassoc", "nsz"})  # as NumPy does, vector instructions add in an order of their own
def pair_squares(a: np.ndarray, a_index: np.ndarray, b: np.ndarray, b_index: np.ndarray, squares: np.ndarray) -> None:
    """Compute the squared distances of pairs of dense rows, shape (n_pairs,), float64, from their differences."""
    for pair in range(a_index.shape[0]):
        tail, head, total = a[a_index[pair]], b[b_index[pair]], 0.0
        for j in range(tail.shape[0]):
            difference = np.float64(tail[j]) - np.float64(head[j])
            total += difference * difference
        squares[pair] = total
