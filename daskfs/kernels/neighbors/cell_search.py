"""Nearest neighbors of the rows of one group, cell by cell."""

from __future__ import annotations

import math

import numpy as np

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.neighbors.candidate_pairs import PRODUCT_ERROR, close_pairs, nearest_pairs
from daskfs.kernels.neighbors.distance_bounds import tile_rows
from daskfs.kernels.neighbors.exact import order_with_ties
from daskfs.kernels.neighbors.rows import (
    Metric,
    Rows,
    measured_squares,
    metric_distances,
    metric_rows,
    prepare_rows,
    prepare_sketch,
)
from daskfs.kernels.statistics.moments import row_blocks

SPARE = 6
"""Candidates kept beyond the k nearest, because float32 products order them only approximately."""
PENDING_PER_ROW = 32
"""Pending candidates per row before a merge."""
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
        "euclidean" or "cosine".
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

    n_members = is_home.size
    first = cell[starts[:-1]]
    home = np.where(is_home, first, -1)
    n_cells = int(cell.max()) + 1
    probing = np.repeat(np.arange(n_members), np.diff(starts))
    order = np.argsort(cell, kind="stable")
    lookers = np.split(probing[order], np.searchsorted(cell[order], np.arange(1, n_cells)))
    best = _Best(n_members, width or k + SPARE, _length_unit(compared, metric if sketch is None else "euclidean"))
    for number, members in enumerate(lookers):
        base, asked = members[home[members] == number], members[first[members] == number]
        if base.size:
            rows = prepared(base)
            place = np.minimum(np.searchsorted(base, asked), base.size - 1)
            own = np.where(base[place] == asked, place, -1)
            queries = rows if asked.size == base.size else prepared(asked, rows)
            for tile in row_blocks(asked.size, tile_rows(queries, rows)):
                row, candidate, squares = nearest_pairs(queries.part(tile), own[tile], rows, best.width)
                best.offer(asked[tile][row], base[candidate], squares)
    best.merge()
    looks = _Looks(n_members, n_cells, probing, cell)
    for number, members in enumerate(lookers):
        is_base = home[members] == number
        base, others = members[is_base], members[~is_base]
        if not base.size or not others.size:
            continue
        rows = prepared(base)
        queries = prepared(others, rows)
        for tile in row_blocks(others.size, tile_rows(queries, rows)):
            asked = others[tile]
            # members whose first cell this is have searched its rows; its rows have searched those at home only
            reach = np.where(first[asked] == number, -1.0, best.reach[asked])
            of_asked, of_base = close_pairs(queries.part(tile), reach, rows, best.reach[base], best.width)
            earlier = (home[asked] >= 0) & (home[asked] < number)
            for (row, candidate, squares), at_asked, at_base in ((of_asked, 0, 1), (of_base, 1, 0)):
                pair = row, candidate
                other, own_row = asked[pair[at_asked]], base[pair[at_base]]
                # a pair that meets in two cells is taken from the lower-numbered one
                met = np.flatnonzero(earlier[pair[at_asked]])
                new = np.ones(row.size, dtype=bool)
                new[met] = ~looks(own_row[met], home[other[met]])
                both = other[new], own_row[new]
                best.offer(both[at_asked], both[at_base], squares[new])
    best.merge()
    return best.measured(X, metric, k, are_close=sketch is None)


def _length_unit(X: Block, metric: Metric) -> float:
    """Return a power of two that scales squared distances to the upper end of float32's range.

    Without it, those of ordinary rows would vanish next to outliers.
    """
    values = X.data if is_sparse(X) else X
    if metric == "cosine" or values.size == 0:
        return 1.0
    largest = max(abs(float(np.fmax.reduce(values, axis=None))), abs(float(np.fmin.reduce(values, axis=None))))
    if np.isnan(largest):
        return 1.0
    exponent = 2 * math.frexp(largest)[1] + int(X.shape[1]).bit_length() + 2  # |a - b|**2 <= 4 n_columns largest**2
    return 2.0 ** min(126 - exponent, 1000)


class _Looks:
    """Bitmap of the cells that each member probes."""

    def __init__(self, n_members: int, n_cells: int, member: np.ndarray, cell: np.ndarray) -> None:
        self._bits = np.zeros((n_members, -(-n_cells // 8)), np.uint8)
        np.bitwise_or.at(self._bits, (member, cell >> 3), (1 << (cell & 7)).astype(np.uint8))

    def __call__(self, member: np.ndarray, cell: np.ndarray) -> np.ndarray:
        return (self._bits[member, cell >> 3] >> (cell & 7).astype(np.uint8)) & 1 == 1


class _Best:
    """The nearest candidates so far of every member.

    An entry is one 64-bit key: member, leading bits of the squared distance times `unit`, candidate. Sorting keys sorts
    entries.
    """

    def __init__(self, n_members: int, width: int, unit: float) -> None:
        self.width = width
        self._unit = unit
        self.reach = np.full(n_members, np.inf)
        self._name_bits = np.uint64(max(1, int(n_members - 1).bit_length()))
        self._length_bits = np.uint64(min(31, 64 - 2 * int(self._name_bits)))
        self._error = PRODUCT_ERROR + 2.0 ** (8 - int(self._length_bits))  # eight bits are the exponent
        self._keys = np.empty(0, np.uint64)
        self._waiting: list[np.ndarray] = []
        self._n_waiting = 0

    def offer(self, rows: np.ndarray, candidates: np.ndarray, squares: np.ndarray) -> None:
        """Add candidates of rows, with their squared distances."""
        lengths = (np.maximum(squares, 0) * self._unit).astype(np.float32).view(np.uint32).astype(np.uint64)
        keys = rows.astype(np.uint64) << self._length_bits
        keys |= lengths >> (np.uint64(31) - self._length_bits)
        keys <<= self._name_bits
        keys |= candidates.astype(np.uint64)
        self._waiting.append(keys)
        self._n_waiting += keys.size
        if self._n_waiting > PENDING_PER_ROW * self.reach.size:
            self.merge()

    def merge(self) -> None:
        """Keep the nearest of the pending and the kept candidates, and lower the reach of rows."""
        keys = np.concatenate([self._keys, *self._waiting])
        self._waiting, self._n_waiting = [], 0
        keys.sort()
        row, place = self._places(keys)
        self._keys = keys[place < self.width]
        last = np.flatnonzero(place == self.width - 1)
        self.reach[row[last]] = self._lengths(keys[last]) / self._unit

    def _lengths(self, keys: np.ndarray) -> np.ndarray:
        """Return the smallest number above the length of each key that its bits can represent, in `unit`."""
        length = (keys >> self._name_bits) & ((np.uint64(1) << self._length_bits) - np.uint64(1))
        bits = (length + np.uint64(1)) << (np.uint64(31) - self._length_bits)
        return bits.astype(np.uint32).view(np.float32).astype(np.float64)

    def _places(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        row = (keys >> (self._length_bits + self._name_bits)).astype(np.int64)
        counts = np.bincount(row, minlength=self.reach.size)
        return row, np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)

    def measured(self, X: Block, metric: Metric, k: int, *, are_close: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest by measured distance.

        With `are_close`, offered lengths have a relative error of at most :data:`PRODUCT_ERROR`, and only candidates
        that may be among the nearest are measured.
        """
        n_members = self.reach.size
        names = np.full((n_members, self.width), -1, dtype=np.int64)
        row, place = self._places(self._keys)
        keys = self._keys
        if are_close:
            lengths = np.full((n_members, self.width), np.inf)
            lengths[row, place] = self._lengths(keys)
            # with a relative error e, a length may be the shorter one if it is up to 1 + 3 e times the other
            limit = lengths[:, min(k, self.width) - 1] * (1 + 3 * self._error) + np.finfo(np.float32).tiny
            kept = lengths[row, place] <= limit[row]
            keys, row, place = keys[kept], row[kept], place[kept]
        names[row, place] = keys & ((np.uint64(1) << self._name_bits) - np.uint64(1))
        indices = np.full((n_members, k), -1, dtype=np.int64)
        distances = np.full((n_members, k), np.inf)
        rows = metric_rows(X, metric)
        for block in row_blocks(n_members, MEASURED_ROWS):
            found = names[block]
            query, column = np.nonzero(found >= 0)
            squares = np.full(found.shape, np.inf)
            squares[query, column] = measured_squares(rows, query + block.start, rows, found[query, column])
            order = order_with_ties(squares, found)[:, :k]
            squares = np.take_along_axis(squares, order, axis=1)
            distances[block] = metric_distances(squares, metric)
            indices[block] = np.where(np.isfinite(squares), np.take_along_axis(found, order, axis=1), -1)
        return indices, distances


def nearest_distinct(names: np.ndarray, squares: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k nearest distinct entries of each row, ties by name; -1 and inf if there are fewer.

    `names`, int, and `squares`, float64, have shape (n_rows, n_entries), the results (n_rows, k). Repeated entries must
    have the same distance.
    """
    order = order_with_ties(squares, names)
    squares, names = np.take_along_axis(squares, order, axis=1), np.take_along_axis(names, order, axis=1)
    kept = np.isfinite(squares)
    kept[:, 1:] &= names[:, 1:] != names[:, :-1]
    place = np.cumsum(kept, axis=1) - 1
    kept &= place < k
    found = np.full((len(names), k), -1, dtype=names.dtype), np.full((len(names), k), np.inf)
    row, column = np.nonzero(kept)
    at = row, place[row, column]
    found[0][at], found[1][at] = names[row, column], squares[row, column]
    return found
