"""Nearest rows by a numeric target, found by sorting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from daskfs.kernels.statistics.moments import row_blocks

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
        rows = np.flatnonzero(~np.isnan(target))
        values = target[rows]
        order = np.argsort(values, kind="stable")
        values = values[order]
        ascending = rows[order].astype(dtype)
        del rows, order
        own = None if weights is None else weights[ascending]
        descending = ascending[np.argsort(-values, kind="stable")]
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for a scale that is not finite
            scale = _deviation(values, own) if standardize and values.size else 1.0
        return cls(values, ascending, descending, scale)

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
        for some in row_blocks(rows.size, max(1, COMPARED_ENTRIES // (3 * k + 1))):
            indices[some], lengths[some] = self._nearest(target[some], rows[some], k)
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


def _deviation(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Return the population standard deviation, weighted if there are weights."""
    mean = np.average(values, weights=weights)
    return float(np.sqrt(np.average((values - mean) ** 2, weights=weights)))


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
