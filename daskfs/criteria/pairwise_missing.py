"""Panels of a slab, and the rows that have a value in each column.

Under ``data.missing: pairwise`` a feature is scored from the rows that have it. Columns with the same missing rows form
a group, scored on the other rows with their labels and weights, so no statistic handles missing values. Graph sums are
taken by column while the edges stream (:mod:`daskfs.criteria.laplacian_forms`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from daskfs.criteria.registry import Criterion, enough_labels
from daskfs.criteria.statistics import Need, Statistic
from daskfs.kernels.labels import Labels
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.store.tiles import Tiles


class ObservedRows(NamedTuple):
    """Rows that have a value of some columns: values, shape (n_rows, width), labels and weights, (n_rows,)."""

    values: np.ndarray
    labels: Labels | None
    weights: np.ndarray | None


@dataclass(frozen=True)
class Group:
    """Columns of a panel that have values in the same rows, with their statistics.

    Attributes
    ----------
    columns
        Indices in the panel, ascending, int64.
    marks
        Rows that have them, as packed bits, uint8; None for all.
    counts
        Whether any of these rows counts.
    known
        Smallest and largest label of these rows that count; empty if none has one.
    statistics
        Statistics computed so far.
    """

    columns: np.ndarray
    marks: np.ndarray | None
    counts: bool
    known: np.ndarray
    statistics: dict[Need, Statistic] = field(default_factory=dict)

    def seen(self, values: np.ndarray, labels: Labels | None, weights: np.ndarray | None) -> ObservedRows:
        """Return the rows that have these columns of a panel; values (n_samples, width), weights (n_samples,)."""
        if self.marks is None:
            return ObservedRows(values, labels, weights)
        rows = _marked_rows(self.marks, len(values))
        own = np.ascontiguousarray(values[rows[:, None], self.columns])
        return ObservedRows(own, _labels_of(labels, rows), None if weights is None else weights[rows])

    def serves(self, criterion: Criterion) -> bool:
        """Return whether a criterion can score the columns: rows count, and have enough labels."""
        return self.counts and enough_labels(criterion, self.known)


@dataclass(frozen=True)
class Panel:
    """Columns that are scored together: feature numbers, int64, and values, shape (n_samples, width).

    Either every column has a missing value, or none has.
    """

    numbers: np.ndarray
    values: np.ndarray
    groups: tuple[Group, ...]

    @property
    def is_complete(self) -> bool:
        """True if no value is missing."""
        return self.groups[0].marks is None


def cut_panels(tiles: Tiles, start: int, stop: int, labels: Labels | None, weights: np.ndarray | None) -> list[Panel]:
    """Return the panels of columns ``start:stop``.

    Parameters
    ----------
    tiles
        Tiles from :meth:`Tiles.as_counted`.
    start, stop
        Columns of one slab.
    labels
        Labels of the rows that count; None if no method needs them.
    weights
        Shape (n_samples,), float64: how many rows each row counts for; None for one each.
    """
    parts = tiles.read_panels(start, stop)
    n_missing = tiles.n_missing()[start:stop] if tiles.is_pairwise else np.zeros(stop - start, np.int64)
    found: list[Panel] = []
    while parts:
        values, first = parts.pop(0), sum(panel.numbers.size for panel in found)
        lacks = n_missing[first : first + values.shape[1]] > 0
        for chosen in (~lacks, lacks):
            if chosen.any():
                own = values if chosen.all() else np.ascontiguousarray(values[:, chosen])
                marks = _marks(own) if chosen is lacks else {None: np.arange(own.shape[1])}
                groups = tuple(_group(columns, packed, len(own), labels, weights) for packed, columns in marks.items())
                found.append(Panel(start + first + np.flatnonzero(chosen), own, groups))
    return found


def _marks(values: np.ndarray) -> dict[bytes | None, np.ndarray]:
    """Return the columns of a panel, grouped by the packed marks of the rows that have them."""
    marks = np.concatenate([np.packbits(~np.isnan(values[rows]), axis=0) for rows in row_blocks(len(values))])
    columns: dict[bytes | None, list[int]] = {}
    for column in range(values.shape[1]):
        columns.setdefault(marks[:, column].tobytes(), []).append(column)
    return {packed: np.array(own) for packed, own in columns.items()}


def _group(
    columns: np.ndarray, packed: bytes | None, n_samples: int, labels: Labels | None, weights: np.ndarray | None
) -> Group:
    marks = None if packed is None else np.frombuffer(packed, np.uint8)
    rows = slice(n_samples) if marks is None else _marked_rows(marks, n_samples)
    own, known = _labels_of(labels, rows), np.empty(0)
    if own is not None and (is_labeled := own.is_labeled).any():
        values = own.values[is_labeled]
        known = np.array([values.min(), values.max()])
    counted = marks if weights is None else weights[rows]
    return Group(columns, marks, counted is None or bool(np.any(counted)), known)


def _marked_rows(marks: np.ndarray, n_samples: int) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(marks, count=n_samples))


def _labels_of(labels: Labels | None, rows: np.ndarray | slice) -> Labels | None:
    """Return the labels of some rows, keeping all class names."""
    return None if labels is None else replace(labels, values=labels.values[rows])
