"""Nearest rows by a numeric target, found by sorting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskfs.kernels.statistics.moments import Moments, column_moments, row_blocks

COMPARED_ENTRIES = 2**20
"""Candidates that are sorted at a time."""


@dataclass(frozen=True, eq=False)
class SortedTargets:
    """Rows with a known target, sorted by it.

    Attributes
    ----------
    values
        Shape (n_labeled,), float64, ascending.
    ascending, descending
        Shape (n_labeled,): row numbers by target, smallest or largest first. Equal targets are ordered by row number in
        both, so that the best of a long run of ties are the first ones from either side.
    scale
        Divisor of differences: the population standard deviation, weighted if rows have weights, or 1.
    """

    values: np.ndarray
    ascending: np.ndarray
    descending: np.ndarray
    scale: float

    @classmethod
    def of(
        cls, target: np.ndarray, dtype: np.dtype[np.generic], weights: np.ndarray | None = None, *, standardize: bool
    ) -> SortedTargets:
        """Sort the rows whose target is known.

        Parameters
        ----------
        target
            Shape (n_samples,), float64; NaN if unknown.
        dtype
            Dtype of row numbers.
        weights
            Frequency weights, shape (n_samples,), float64; None for 1 each.
        standardize
            Whether to measure differences in standard deviations of the known targets.
        """
        rows = np.flatnonzero(~np.isnan(target)).astype(dtype)
        scale = 1.0
        if standardize:
            moments = known_moments(target[rows], None if weights is None else weights[rows])
            scale = float(np.sqrt(moments.variance[0]))  # the caller checks that it is finite and positive
        return cls.of_rows(target[rows], rows, scale)

    @classmethod
    def of_rows(cls, values: np.ndarray, rows: np.ndarray, scale: float) -> SortedTargets:
        """Sort known targets, shape (n_labeled,), float64, of some rows, whose numbers are ascending."""
        order = np.argsort(values, kind="stable")
        values, ascending = values[order], rows[order]
        del order
        return cls(values, ascending, ascending[np.argsort(-values, kind="stable")], scale)

    def nearest(self, target: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the k nearest rows of some rows whose target is known.

        Differences of the original targets are divided by the scale, so that integers tie exactly. Ties are ordered by
        row number. Only the first k rows of a run of equal targets can be among the nearest, so a row costs O(k log k +
        log n_labeled) whatever the ties.

        Parameters
        ----------
        target, rows
            Targets, float64, and numbers of the rows, shape (n_rows,), all among those that were sorted.
        k
            Number of neighbors, the row itself excluded.

        Returns
        -------
        indices, lengths
            Shape (n_rows, k), nearest first; -1 and inf beyond the number of other rows. A length is the absolute
            difference of targets in units of the scale, float64.
        """
        indices = np.empty((rows.size, k), self.ascending.dtype)
        lengths = np.empty((rows.size, k))
        for block in row_blocks(rows.size, max(1, COMPARED_ENTRIES // (3 * k + 1))):
            indices[block], lengths[block] = self._nearest(target[block], rows[block], k)
        return indices, lengths

    def _nearest(self, target: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        size = self.values.size
        first = np.searchsorted(self.values, target, side="left")
        last = np.searchsorted(self.values, target, side="right")
        n_rows = target.size
        indices = np.empty((n_rows, 3 * k + 1), self.ascending.dtype)
        lengths = np.empty((n_rows, 3 * k + 1))
        # rows of the same target, of greater ones, and of smaller ones, each k best first
        same = first[:, None] + np.arange(k + 1)
        indices[:, : k + 1] = self.ascending.take(same, mode="clip")
        lengths[:, : k + 1] = np.where((same < last[:, None]) & (indices[:, : k + 1] != rows[:, None]), 0.0, np.inf)
        above = last[:, None] + np.arange(k)
        indices[:, k + 1 : 2 * k + 1] = self.ascending.take(above, mode="clip")
        lengths[:, k + 1 : 2 * k + 1] = self._lengths(above, self.values.take(above, mode="clip") - target[:, None])
        below = (size - first)[:, None] + np.arange(k)
        indices[:, 2 * k + 1 :] = self.descending.take(below, mode="clip")
        mirrored = self.values.take(np.maximum(size - 1 - below, 0))
        lengths[:, 2 * k + 1 :] = self._lengths(below, target[:, None] - mirrored)
        return first_by_length(indices, lengths, k)

    def _lengths(self, place: np.ndarray, difference: np.ndarray) -> np.ndarray:
        return np.where(place < self.values.size, difference / self.scale, np.inf)


def known_moments(values: np.ndarray, weights: np.ndarray | None) -> Moments:
    """Return the moments of known targets, shape (n_labeled,), float64, as of one column; they may overflow."""
    with np.errstate(over="ignore", invalid="ignore"):
        return column_moments(values[:, None], weights)


Place = tuple[float, int]
"""Target and number of a row."""


class TargetRange:
    """Known targets of a range, and those of other rows that may be among the nearest to them.

    Parameters
    ----------
    start, stop
        First row of the range in the order of targets, in which equal ones are ordered by row number, and the first one
        behind it.
    k
        Number of neighbors, the row itself excluded.
    """

    def __init__(self, start: Place, stop: Place, k: int) -> None:
        self._start, self._stop = start, stop
        self._own: list[tuple[np.ndarray, np.ndarray]] = [(np.empty(0), np.empty(0, np.int64))]
        self._tied = [_First(k + 1), _First(k + 1)]  # of a run of equal targets only the first can be among the nearest
        self._beyond = [_First(k), _First(k)]

    def add(self, values: np.ndarray, rows: np.ndarray) -> None:
        """Add targets, shape (n_rows,), float64, of rows, int64, ascending and higher than those before."""
        (low, first), (high, end) = self._start, self._stop
        begun = (values > low) | ((values == low) & (rows >= first))
        ended = (values < high) | ((values == high) & (rows < end))
        is_inside = begun & ended
        self._own.append((values[is_inside], rows[is_inside]))
        for tied_rows, marked in zip(self._tied, ((values == low) & ~begun, (values == high) & ~ended), strict=True):
            tied_rows.add(values[marked], rows[marked], np.zeros(np.count_nonzero(marked)))
        below, above = values < low, values > high
        self._beyond[0].add(values[below], rows[below], -values[below])
        self._beyond[1].add(values[above], rows[above], values[above])

    def sorted(self, scale: float) -> tuple[np.ndarray, np.ndarray, SortedTargets]:
        """Return targets and rows of the range, by row number, and the rows among which their nearest are."""
        values, rows = map(np.concatenate, zip(*self._own, strict=True))
        beside = [(neighbors.values, neighbors.rows) for neighbors in (*self._tied, *self._beyond)]
        every, numbers = map(np.concatenate, zip((values, rows), *beside, strict=True))
        order = np.argsort(numbers)
        return values, rows, SortedTargets.of_rows(every[order], numbers[order], scale)


class _First:
    """The first `size` rows of a stream by a key, equal ones by row number."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.values, self.keys, self.rows = np.empty(0), np.empty(0), np.empty(0, np.int64)

    def add(self, values: np.ndarray, rows: np.ndarray, keys: np.ndarray) -> None:
        if self.keys.size == self._size:
            nearer = keys < self.keys[-1]
            values, rows, keys = values[nearer], rows[nearer], keys[nearer]
        keys = np.concatenate([self.keys, keys])
        order = np.argsort(keys, kind="stable")[: self._size]
        self.keys = keys[order]
        self.values = np.concatenate([self.values, values])[order]
        self.rows = np.concatenate([self.rows, rows])[order]


def first_by_length(indices: np.ndarray, lengths: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k shortest entries of each row in order, ties by row number; -1 if the length is inf.

    Parameters
    ----------
    indices, lengths
        Row numbers and their distances, shape (n_rows, n_entries), n_entries >= k; inf for entries to ignore.
    k
        Entries to keep.
    """
    order = np.lexsort((indices, lengths), axis=-1)[:, :k]
    lengths = np.take_along_axis(lengths, order, axis=1)
    return np.where(lengths < np.inf, np.take_along_axis(indices, order, axis=1), -1), lengths
