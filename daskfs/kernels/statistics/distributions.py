"""Class distributions of columns, from one sort per column.

They give distances between classes, and tables of classes against bins of equal frequency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt

import numpy as np

from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.statistics.contingency import information_gain
from daskfs.kernels.statistics.moments import row_blocks

SORTED_VALUES = 2**16
"""Values sorted and summed at a time: the working arrays stay in cache."""
SORT_BYTES = 96
"""Bytes per row to sort a long column, in addition to a copy of the panel's counted rows."""
SIGN = np.uint32(1 << 31)
GATHERED_COLUMNS = 16
"""Columns copied out of a panel at a time: a row of them is one or two cache lines."""
LEAST_STEP = 4
TABLE_VALUES = 2**18
"""Values of distribution functions that are evaluated at a time."""
ROUND_OFF = 1e-12
"""A share of the rows this little below a multiple of 1 / n_bins counts as that multiple."""


@dataclass(frozen=True)
class Distributions:
    """Class distances and information gains of the columns of a panel.

    Attributes
    ----------
    distance
        Shape (width,), float64: the largest difference between the distribution functions of two classes; NaN for a
        constant column, or if not requested.
    threshold
        Shape (width,), float64: the first value at which that difference is reached.
    gains
        By number of bins: information gain of the bin in bits, shape (width,), float64.
    edges
        By number of bins: shape (n_bins - 1, width), as in :meth:`SortedColumns.binned`.
    is_constant
        Shape (width,), bool.
    counts
        Rows or weight of each class that has any, float64.
    """

    distance: np.ndarray
    threshold: np.ndarray
    gains: dict[int, np.ndarray]
    edges: dict[int, np.ndarray]
    is_constant: np.ndarray
    counts: np.ndarray


def distributions(
    F: np.ndarray,
    codes: np.ndarray,
    bins: Sequence[int] = (),
    weights: np.ndarray | None = None,
    *,
    distances: bool = True,
) -> Distributions:
    """Compare the class distributions of each column, from one sort per column.

    Parameters
    ----------
    F, codes, weights
        As in :func:`sorted_columns`.
    bins
        Numbers of bins to cut columns into, each at least 2.
    distances
        Whether to find the largest distance between distribution functions.
    """
    width = F.shape[1]
    result = Distributions(
        np.full(width, np.nan),
        np.full(width, np.nan),
        {n_bins: np.zeros(width) for n_bins in bins},
        {n_bins: np.full((n_bins - 1, width), np.nan) for n_bins in bins},
        np.zeros(width, dtype=bool),
        class_counts(codes, weights),
    )
    for place, block in sorted_columns(F, codes, weights, max(bins, default=1)):
        result.is_constant[place] = block.is_constant
        if distances:
            result.distance[place], result.threshold[place] = block.distances()
        for n_bins in bins:
            tables, result.edges[n_bins][:, place] = block.binned(n_bins)
            result.gains[n_bins][place] = information_gain(tables)
    return result


def sorted_columns(
    F: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None, n_bins: int = 1
) -> Iterator[tuple[slice, SortedColumns]]:
    """Yield blocks of columns, sorted over the labeled rows, with their column slices.

    Parameters
    ----------
    F
        Panel, shape (n_rows, width), any real dtype, finite.
    codes
        Shape (n_rows,), class codes from 0; -1 for rows to ignore. At least one row must count.
    weights
        Frequency weights, shape (n_rows,), float64; None for 1 each. Rows of weight 0 must have code -1.
    n_bins
        The largest number of bins that columns will be cut into; it limits the columns per block.

    Notes
    -----
    Sums run along each column in sorted order, so no bit depends on the other columns. Counts are exact for integer
    weights. A block holds at most 2**16 values, or one column.
    """
    rows, counts = np.flatnonzero(codes >= 0), class_counts(codes, weights)
    row_codes = codes[rows]
    numbers = np.cumsum(np.bincount(row_codes) > 0) - 1
    of_rows = numbers.astype(np.min_scalar_type(counts.size))[row_codes]
    of_weights = None if weights is None else weights[rows]
    at_once = max(1, SORTED_VALUES // max(rows.size, counts.size * n_bins))
    for block in row_blocks(F.shape[1], max(GATHERED_COLUMNS, at_once)):
        gathered = np.ascontiguousarray(F[rows, block].T)
        for columns in row_blocks(gathered.shape[0], at_once):
            place = slice(block.start + columns.start, block.start + columns.stop)
            yield place, SortedColumns(gathered[columns], of_rows, counts, of_weights)


def class_counts(codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return the rows, or their weight, of each class that has any, float64; parameters of :func:`sorted_columns`."""
    is_labeled = codes >= 0
    counts = np.bincount(codes[is_labeled], None if weights is None else weights[is_labeled])
    return counts[np.bincount(codes[is_labeled]) > 0].astype(np.float64)


class SortedColumns:
    """A block of columns, each sorted, shape (n_columns, n_rows).

    Parameters
    ----------
    columns
        Shape (n_columns, n_rows), any real dtype.
    codes
        Shape (n_rows,), unsigned: class of each row, each class with at least one row.
    counts
        Number of rows of each class, shape (n_classes,), float64.
    weights
        Frequency weights, shape (n_rows,), float64, positive; None for 1 each.
    """

    def __init__(self, columns: np.ndarray, codes: np.ndarray, counts: np.ndarray, weights: np.ndarray | None) -> None:
        self.weights = None
        if columns.dtype == np.float32 and weights is None:
            self.values, self.codes = _sorted_together(columns, codes)
        else:
            # NumPy sorts short integers by radix
            order = np.argsort(columns, axis=1, kind="stable" if columns.dtype.itemsize <= 2 else None)
            self.codes = codes.take(order)
            if weights is not None:
                self.weights = weights.take(order)
            if columns.shape[0] > 1:
                order += np.arange(columns.shape[0])[:, None] * columns.shape[1]
            self.values = columns.reshape(-1).take(order)
        self.counts = counts
        self.is_constant = self.values[:, 0] == self.values[:, -1]
        is_last = np.ones(self.values.shape, dtype=bool)
        np.not_equal(self.values[:, 1:], self.values[:, :-1], out=is_last[:, :-1])
        self.ends = np.flatnonzero(is_last)
        """Index of the last value of each run of equal values, in the flattened block."""
        self.n_runs = np.count_nonzero(is_last, axis=1)
        self.first = np.concatenate([[0], np.cumsum(self.n_runs)[:-1]])
        """First run of each column."""
        self.index = index_dtype(columns.size)
        self.column = np.repeat(np.arange(columns.shape[0], dtype=self.index), self.n_runs)
        """Column of each run."""

    def _of_runs(self, of_columns: np.ndarray) -> np.ndarray:
        """Repeat per-column values for each run of the column; a single value is left to broadcast."""
        return of_columns if of_columns.size == 1 else of_columns.repeat(self.n_runs)

    def _of_values(self, of_runs: np.ndarray) -> np.ndarray:
        """Repeat per-run values for each value of the run."""
        return of_runs.repeat(np.diff(self.ends, prepend=-1))

    def _count_rows(self, cells: np.ndarray, n_cells: int) -> np.ndarray:
        """Return the number of rows in each cell, float64."""
        weights = None if self.weights is None else self.weights.reshape(-1)
        return np.bincount(cells, weights, minlength=n_cells).astype(np.float64)

    def distances(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest distance between two class distribution functions, and the first value that reaches it.

        Both have shape (n_columns,), float64; NaN for a constant column.
        """
        if self.counts.size == 1:
            distance, run = np.zeros(self.first.size), self.first
        else:
            distance, run = self._of_two() if self.counts.size == 2 else self._of_many()
        threshold = self.values.reshape(-1)[self.ends[run]].astype(np.float64) + 0.0  # no -0.0
        return np.where(self.is_constant, np.nan, distance), np.where(self.is_constant, np.nan, threshold)

    def _of_two(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest distance between two distribution functions, and the run that reaches it."""
        one, other = self.counts
        # multiplied by both counts: integers if the weights are
        steps = np.array([other, -one]).take(self.codes)
        if self.weights is not None:
            steps *= self.weights
        np.cumsum(steps, axis=1, out=steps)
        apart = steps.reshape(-1)[self.ends]
        del steps
        np.abs(apart, out=apart)
        distance = np.maximum.reduceat(apart, self.first)
        return distance / (one * other), self._first_run(apart, distance)

    def _first_run(self, values: np.ndarray, value_of_column: np.ndarray) -> np.ndarray:
        """Return the first run of each column whose value equals the column's `value_of_column`."""
        runs = np.flatnonzero(values == self._of_runs(value_of_column))
        return runs[np.searchsorted(runs, self.first)]

    def _of_many(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest distance between any two distribution functions, and the run that reaches it.

        The distance is the largest function minus the smallest. They are first evaluated in steps of sqrt(n_rows) / 4
        runs. Within a step the largest is at most its value after the step, and the smallest at least its value before
        it, which rules out all but a few stretches.
        """
        n_columns, n_rows = self.values.shape
        stride = max(LEAST_STEP, isqrt(n_rows) // 4)
        n_steps = -(-int(self.n_runs.max()) // stride)
        step, place = np.divmod((np.arange(self.ends.size) - self._of_runs(self.first)).astype(self.index), stride)
        cells = self._of_values(self.column.astype(np.intp) * (self.counts.size * n_steps) + step)
        cells += np.multiply(self.codes.reshape(-1), n_steps, dtype=np.intp)
        shape = (n_columns, self.counts.size, n_steps)
        after = np.cumsum(self._count_rows(cells, int(np.prod(shape))).reshape(shape), axis=2)
        del cells
        before = np.concatenate([np.zeros_like(after[:, :, :1]), after[:, :, :-1]], axis=2)
        scale = self.counts[:, None]
        high = (after / scale).max(axis=1)
        least = (high - (after / scale).min(axis=1)).max(axis=1)
        may_reach = high - (before / scale).min(axis=1) >= least[:, None] - ROUND_OFF
        chosen = np.flatnonzero(may_reach[self.column, step])
        spread = np.full(self.ends.size, -1.0)
        stretch = (np.cumsum(may_reach) - 1)[self.column[chosen] * n_steps + step[chosen]]
        self._fill(spread, chosen, stretch, place[chosen], before.transpose(0, 2, 1)[may_reach])
        distance = np.maximum.reduceat(spread, self.first)
        return distance, self._first_run(spread, distance)

    def _fill(
        self, spread: np.ndarray, chosen: np.ndarray, stretch: np.ndarray, place: np.ndarray, base: np.ndarray
    ) -> None:
        """Write the largest minus the smallest distribution function after the runs `chosen`, ascending, into `spread`.

        `stretch`, ascending, and `place` are the stretch of each of these runs and its index within the stretch; `base`
        are the counts before each stretch, shape (n_stretches, n_classes).
        """
        lengths = np.diff(self.ends, prepend=-1)[chosen]
        starts = self.ends[chosen] - lengths + 1
        width = int(place.max()) + 1
        n_classes = self.counts.size
        for block in row_blocks(base.shape[0], max(1, TABLE_VALUES // (n_classes * width))):
            entries = slice(*np.searchsorted(stretch, [block.start, block.stop]))
            sizes = lengths[entries]
            within = np.arange(sizes.sum()) - (np.cumsum(sizes) - sizes).repeat(sizes)
            members = starts[entries].repeat(sizes) + within
            row = stretch[entries] - block.start
            cells = (row * (n_classes * width) + place[entries]).repeat(sizes)
            cells += np.multiply(self.codes.reshape(-1)[members], width, dtype=np.intp)
            weights = None if self.weights is None else self.weights.reshape(-1)[members]
            shape = (block.stop - block.start, n_classes, width)
            table = np.bincount(cells, weights, minlength=int(np.prod(shape))).reshape(shape)
            reached = (base[block, :, None] + np.cumsum(table, axis=2)) / self.counts[:, None]
            spread[chosen[entries]] = (reached.max(axis=1) - reached.min(axis=1))[row, place[entries]]

    def binned(self, n_bins: int) -> tuple[np.ndarray, np.ndarray]:
        """Return tables of classes against bins of equal frequency, and the edges of the bins.

        A value v is in bin ``floor(n_bins * (n(< v) + n(v) / 2) / n)``, where n counts rows: the bin of its mid-rank.
        Equal values share a bin, the bins of a column without ties differ by at most one row, and a column of two
        values has two bins whatever their frequencies.

        Returns
        -------
        tables
            Shape (n_classes, n_bins, n_columns), float64.
        edges
            Shape (n_bins - 1, n_columns), float64: the least value of each bin in use but the first, ascending, then
            NaN.
        """
        n_columns, n_rows = self.values.shape
        if self.weights is None:
            upto = (self.ends - self.column * n_rows + 1).astype(np.float64)
        else:
            upto = np.cumsum(self.weights, axis=1).reshape(-1)[self.ends]
        middle = upto.copy()
        middle[1:] += upto[:-1]
        middle[self.first] = upto[self.first]
        middle *= n_bins * (1 + ROUND_OFF)
        middle /= self._of_runs(2 * upto[self.first + self.n_runs - 1])
        del upto
        places = np.minimum(middle, n_bins - 1, out=middle).astype(self.index)
        del middle
        places += n_bins * self.column
        n_classes = self.counts.size
        cells = self._of_values(places.astype(np.intp) * n_classes)
        cells += self.codes.reshape(-1)
        table = self._count_rows(cells, n_columns * n_bins * n_classes).reshape(n_columns, n_bins, n_classes)
        opens = places != np.roll(places, 1)
        opens[self.first] = False
        runs = np.flatnonzero(opens)
        of_run = self.column[runs]
        number = np.arange(runs.size) - np.searchsorted(of_run, np.arange(n_columns))[of_run]
        edges = np.full((n_bins - 1, n_columns), np.nan)
        edges[number, of_run] = self.values.reshape(-1)[self.ends[runs]] + 0.0
        return table.transpose(2, 1, 0), edges


def _sorted_together(values: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sort each row of float32 values, and return the codes in the same order.

    One sort of integers that hold value and code takes half the time of an argsort, and needs no gather.
    """
    bits = values.view(np.uint32)
    # as integers, floats are in order once the sign bit of positive ones and all bits of negative ones are flipped
    keys = (bits ^ (_spread_sign(bits) | SIGN)).astype(np.uint64)
    keys <<= 32
    keys |= codes
    keys.sort(axis=1)
    of_keys = keys.astype(codes.dtype)
    keys >>= 32
    bits = keys.astype(np.uint32)
    bits ^= ~_spread_sign(bits) | SIGN
    return bits.view(np.float32), of_keys


def _spread_sign(bits: np.ndarray) -> np.ndarray:
    """Return all bits set where the sign bit is set, else 0."""
    return (bits.view(np.int32) >> 31).view(np.uint32)
