"""Compiled passes of a search by random trees and NN-descent."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from daskfs.kernels.compiled import compiled

PART_ROWS = 256
"""Maximum number of rows of a part of a tree."""
N_TREES = 6
MAX_PASSES = 12
FEW_CHANGES = 0.02
"""Passes end when they change at most this share of the entries."""
_NONE = np.uint64(2**64 - 1)
_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)


class DescentLists(NamedTuple):
    """Nearest rows so far, each array of shape (n_rows, width).

    `squares`, float32, are squared distances in ascending order, inf where there is no neighbor yet; `names`, int32,
    the numbers of the rows; `is_new`, bool, says whether a neighbor has not been compared with others of the list yet.
    """

    squares: np.ndarray
    names: np.ndarray
    is_new: np.ndarray


def descent_lists(
    rows: np.ndarray, width: int, n_linked: int, seed: int, n_candidates: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Find the nearest rows of each row, approximately.

    Parameters
    ----------
    rows
        Shape (n_rows, n_columns + 1), float32, finite, C order. The last column is no coordinate: its values in both
        rows are added to their squared distance.
    width
        Number of rows to search.
    n_linked
        Maximum numbers of new and of old neighbors of a row that a pass compares with each other.
    seed
        Seed of the trees, and of the choice of neighbors that are compared.
    n_candidates
        Number of rows to find; more than `width` are taken from the lists of the rows in a list.

    Returns
    -------
    indices, squares
        Shape (n_rows, max(width, n_candidates)), int32 and float32, nearest first; -1 and inf where there are fewer.
    """
    order, bounds = _split_rows(rows, PART_ROWS, _state(seed, 0))
    rows = rows[order]  # near rows are near in memory, too
    shape = (len(rows), width)
    lists = DescentLists(np.full(shape, np.inf, np.float32), np.full(shape, -1, np.int32), np.zeros(shape, np.bool_))
    _offer_parts(rows, np.arange(len(rows), dtype=np.int32), bounds, lists)
    if len(bounds) > 1:
        for tree in range(1, N_TREES):
            members, bounds = _split_rows(rows, PART_ROWS, _state(seed, tree))
            _offer_parts(rows, members, bounds, lists)
        for number in range(MAX_PASSES):
            new, old = _links(lists, n_linked, _state(seed, N_TREES + number))
            if _compare_linked(rows, new, old, lists) <= FEW_CHANGES * lists.names.size:
                break
    if n_candidates > width:
        lists = _widen_lists(rows, lists, n_candidates)
    indices, squares = np.empty_like(lists.names), np.empty_like(lists.squares)
    indices[order] = np.where(lists.names >= 0, order[lists.names], -1)
    squares[order] = lists.squares
    return indices, squares


def _state(seed: int, number: int) -> np.uint64:
    return np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0]


def _offer_parts(rows: np.ndarray, order: np.ndarray, bounds: np.ndarray, lists: DescentLists) -> None:
    """Offer all pairs of rows of each part of a tree to the lists of both."""
    for start, stop in bounds:
        members = order[start:stop]
        part = rows[members, :-1]
        part -= part.mean(axis=0)  # else rounding hides the differences of rows that are far from the origin
        half = (np.einsum("ij,ij->i", part, part) + rows[members, -1]) / 2
        _offer_products(part @ part.T, half, members, lists)


# ------------------------------------------------------------------------------------ trees
@compiled
def _split_rows(rows: np.ndarray, most: int, state: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Halve rows by their products with the difference of two of them, drawn at random, until parts are small.

    Returns the rows in the order of the parts, shape (n_rows,), int32, and first and last plus one of each part,
    (n_parts, 2), int64.
    """
    n_rows, n_columns = rows.shape[0], rows.shape[1] - 1
    order = np.arange(n_rows).astype(np.int32)
    keys, direction = np.empty(n_rows, np.float32), np.empty(n_columns, np.float32)
    parts, n_parts = np.empty((2 + 2 * n_rows // max(most // 2, 1), 2), np.int64), 0
    stack, depth = np.empty((64, 2), np.int64), 1
    stack[0] = 0, n_rows
    while depth:
        depth -= 1
        start, stop = stack[depth]
        if stop - start <= most:
            parts[n_parts] = start, stop
            n_parts += 1
            continue
        n_here = np.uint64(stop - start)
        state = _next_state(state)
        a = order[start + np.int64((state >> _HALF) % n_here)]
        state = _next_state(state)
        b = order[start + np.int64((state >> _HALF) % n_here)]
        for j in range(n_columns):
            direction[j] = rows[a, j] - rows[b, j]
        for place in range(start, stop):
            keys[place] = _product(rows[order[place]], direction)
        middle = (start + stop) // 2
        _split(keys, order, start, stop, middle)
        stack[depth] = middle, stop
        stack[depth + 1] = start, middle
        depth += 2
    return order, parts[:n_parts]


@compiled
def _next_state(state: np.uint64) -> np.uint64:
    """Return the next state of a linear congruential generator modulo 2**64 (Knuth's MMIX)."""
    return state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@partial(compiled, fastmath={"reassoc", "nsz", "contract"})  # by vector instructions
def _product(row: np.ndarray, direction: np.ndarray) -> np.float32:
    total = np.float32(0)
    for j in range(direction.shape[0]):
        total += row[j] * direction[j]
    return total


@compiled
def _split(keys: np.ndarray, order: np.ndarray, start: int, stop: int, middle: int) -> None:
    """Put the smallest keys, and their entries of `order`, before the place `middle` (Hoare's selection)."""
    first, last = start, stop - 1
    while first < last:
        pivot, low, high = keys[(first + last) // 2], first, last
        while low <= high:
            while keys[low] < pivot:
                low += 1
            while keys[high] > pivot:
                high -= 1
            if low <= high:
                keys[low], keys[high] = keys[high], keys[low]
                order[low], order[high] = order[high], order[low]
                low, high = low + 1, high - 1
        if middle <= high:
            last = high
        elif middle >= low:
            first = low
        else:
            return


# ------------------------------------------------------------------------------------ lists
@compiled
def _insert(squares: np.ndarray, names: np.ndarray, is_new: np.ndarray, square: float, name: int) -> bool:
    """Insert a neighbor nearer than the last one of a list, which falls out; False if it is listed."""
    for place in range(names.shape[0]):
        if names[place] == name:
            return False
    place = names.shape[0] - 1
    while place > 0 and square < squares[place - 1]:
        squares[place], names[place], is_new[place] = squares[place - 1], names[place - 1], is_new[place - 1]
        place -= 1
    squares[place], names[place], is_new[place] = square, name, True
    return True


@compiled
def _offer_products(products: np.ndarray, half: np.ndarray, members: np.ndarray, lists: DescentLists) -> None:
    """Offer all pairs of some rows, by their products and half their squared lengths, to the lists of both."""
    squares, names, is_new = lists
    near = np.empty(members.shape[0], np.int64)
    for i in range(members.shape[0]):
        row, n_near = members[i], 0
        limit = half[i] - squares[row, -1] / np.float32(2)
        for j in range(members.shape[0]):  # without a branch, which would be guessed wrong
            near[n_near] = j
            n_near += int(products[i, j] - half[j] > limit)
        for j in near[:n_near]:
            square = max(np.float32(2) * (half[i] + half[j] - products[i, j]), np.float32(0))
            if j != i and square < squares[row, -1]:
                _insert(squares[row], names[row], is_new[row], square, members[j])


# ---------------------------------------------------------------------------------- descent
@compiled
def _pair_hash(a: int, b: int, state: np.uint64) -> np.uint64:
    """Return a pseudorandom number below 2**32 of a pair of rows, in either order."""
    pair = (np.uint64(min(a, b)) << _HALF) | np.uint64(max(a, b))
    mixed = (pair ^ state) * np.uint64(0x9E3779B97F4A7C15)  # as splitmix64 does
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed >> _HALF


@compiled
def _draw(keys: np.ndarray, key: np.uint64) -> None:
    """Insert a key into the smallest ones of a row, ascending; one that is there is left out."""
    place = keys.shape[0]
    while place > 0 and key < keys[place - 1]:
        place -= 1
    if place == keys.shape[0] or (place > 0 and keys[place - 1] == key):
        return
    for i in range(keys.shape[0] - 1, place, -1):
        keys[i] = keys[i - 1]
    keys[place] = key


@compiled
def _links(lists: DescentLists, most: int, state: np.uint64) -> tuple[np.ndarray, np.ndarray]:
    """Draw new and old neighbors of each row, in either direction, at most `most` of each; those drawn become old.

    Returns keys, shape (n_rows, most), uint64, the low half of which is the number of a neighbor; ``_NONE`` where there
    are fewer.
    """
    n_rows, width = lists.names.shape
    new, old = np.full((n_rows, most), _NONE), np.full((n_rows, most), _NONE)
    for row in range(n_rows):
        for place in range(width):
            other = lists.names[row, place]
            if other >= 0:
                drawn = _pair_hash(row, other, state) << _HALF
                keys = new if lists.is_new[row, place] else old
                _draw(keys[row], drawn | np.uint64(other))
                _draw(keys[other], drawn | np.uint64(row))
    for row in range(n_rows):
        for place in range(width):
            if lists.is_new[row, place]:
                other = lists.names[row, place]
                key = (_pair_hash(row, other, state) << _HALF) | np.uint64(other)
                lists.is_new[row, place] = key > new[row, -1]
    return new, old


@compiled
def _unpack(keys: np.ndarray, names: np.ndarray) -> int:
    """Write the row numbers of drawn keys; return how many there are."""
    for i in range(keys.shape[0]):
        if keys[i] == _NONE:
            return i
        names[i] = np.int64(keys[i] & _LOW)
    return keys.shape[0]


@partial(compiled, fastmath={"reassoc", "nsz", "contract"})  # by vector instructions
def _square(a: np.ndarray, b: np.ndarray) -> np.float32:
    last, total = a.shape[0] - 1, np.float32(0)
    for j in range(last):
        difference = a[j] - b[j]
        total += difference * difference
    return total + (a[last] + b[last])


@compiled
def _compare_linked(rows: np.ndarray, new: np.ndarray, old: np.ndarray, lists: DescentLists) -> int:
    """Compare the new neighbors of each row with each other and with the old ones; return how many are inserted."""
    squares, names, is_new = lists
    n_inserted, linked = 0, np.empty(new.shape[1] + old.shape[1], np.int64)
    for row in range(new.shape[0]):
        n_new = _unpack(new[row], linked)
        n_linked = n_new + _unpack(old[row], linked[n_new:]) if n_new else 0
        for i in range(n_new):
            a = linked[i]
            of_a = rows[a]
            for j in range(i + 1, n_linked):
                b = linked[j]
                square = _square(of_a, rows[b])
                if square < squares[a, -1] and a != b:
                    n_inserted += int(_insert(squares[a], names[a], is_new[a], square, b))
                if square < squares[b, -1] and a != b:
                    n_inserted += int(_insert(squares[b], names[b], is_new[b], square, a))
    return n_inserted


@compiled
def _widen_lists(rows: np.ndarray, lists: DescentLists, width: int) -> DescentLists:
    """Return longer lists, of the rows in the list of each row and in their lists."""
    n_rows, n_listed = lists.names.shape
    squares, names = np.full((n_rows, width), np.float32(np.inf)), np.full((n_rows, width), np.int32(-1))
    is_new = np.zeros((n_rows, width), np.bool_)
    squares[:, :n_listed], names[:, :n_listed] = lists.squares, lists.names
    seen_by = np.full(n_rows, -1, np.int64)
    for row in range(n_rows):
        seen_by[row] = row
        of_row = rows[row]
        for name in lists.names[row]:
            if name >= 0:
                seen_by[name] = row
        for middle in lists.names[row]:
            if middle < 0:
                break
            for name in lists.names[middle]:
                if name < 0:
                    break
                if seen_by[name] != row:
                    seen_by[name] = row
                    square = _square(of_row, rows[name])
                    if square < squares[row, -1]:
                        _insert(squares[row], names[row], is_new[row], square, name)
    return DescentLists(squares, names, is_new)
