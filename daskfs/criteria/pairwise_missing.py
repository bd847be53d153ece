"""Panels of a slab, and the rows that have a value in each column.

Under ``data.missing: pairwise`` a feature is scored from the rows that have it. Columns with the same missing rows form
a group, scored on the other rows with their labels and weights, so no statistic handles missing values. Graph sums are
taken by column while the edges stream (:mod:`daskfs.criteria.laplacian_forms`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from daskfs.criteria.criterion import Criterion
from daskfs.criteria.statistics import SeenColumns, Statistics
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.store.tiles import Tiles


@dataclass(frozen=True)
class Group:
    """Columns of a panel that have values in the same rows, with the statistics computed so far.

    `columns` are indices in the panel, ascending, int64, and `marks` the rows that have them, as packed bits, uint8;
    None for all. `counts` says whether any of these rows counts. `n_distinct` is the number of distinct labels of those
    that count: 0, 1, or 2 for more than one.
    """

    columns: np.ndarray
    marks: np.ndarray | None
    counts: bool
    n_distinct: int
    statistics: Statistics = field(default_factory=Statistics)

    def seen(self, panel: SeenColumns) -> SeenColumns:
        """Return the rows that have these columns of a panel."""
        if self.marks is None:
            return replace(panel, statistics=self.statistics)
        rows, labels, weights = _marked_rows(self.marks, len(panel.values)), panel.labels, panel.weights
        return replace(
            panel,
            numbers=panel.numbers[self.columns],
            values=np.ascontiguousarray(panel.values[rows[:, None], self.columns]),
            labels=None if labels is None else replace(labels, values=labels.values[rows]),
            weights=None if weights is None else weights[rows],
            statistics=self.statistics,
        )

    def serves(self, criterion: Criterion) -> bool:
        """Return whether a criterion can score the columns: rows count, and have enough labels."""
        enough_labels = not criterion.needs_labels or self.n_distinct >= (1 if criterion.one_class_serves else 2)
        return self.counts and enough_labels


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


def cut_panels(
    tiles: Tiles, start: int, stop: int, labels: Labels | None, weights: np.ndarray | None, n_distinct: int
) -> list[Panel]:
    """Return the panels of columns ``start:stop``, those of one slab.

    `tiles` are from :meth:`Tiles.as_counted`, `labels` those of the rows that count, None if the panels need none.
    `weights`, shape (n_samples,), float64, are how many rows each row counts for, None for one each. `n_distinct` is
    the number of distinct labels of all rows that count, as in :class:`Group`.
    """
    parts = tiles.read_panels(start, stop)
    n_missing = tiles.n_missing()[start:stop] if tiles.is_pairwise else np.zeros(stop - start, np.int64)
    counts = weights is None or bool(weights.any())
    panels: list[Panel] = []
    while parts:
        values, first = parts.pop(0), sum(panel.numbers.size for panel in panels)
        lacks = n_missing[first : first + values.shape[1]] > 0
        for chosen in (~lacks, lacks):
            if chosen.any():
                part = values if chosen.all() else np.ascontiguousarray(values[:, chosen])
                whole = Group(np.arange(part.shape[1]), None, counts, n_distinct)
                groups = tuple(_groups(part, labels, weights)) if chosen is lacks else (whole,)
                panels.append(Panel(start + first + np.flatnonzero(chosen), part, groups))
    return panels


def _groups(values: np.ndarray, labels: Labels | None, weights: np.ndarray | None) -> Iterator[Group]:
    """Yield the columns of a panel by the rows that have them."""
    all_marks = np.concatenate([np.packbits(~np.isnan(values[rows]), axis=0) for rows in row_blocks(len(values))])
    columns: dict[bytes, list[int]] = {}
    for column in range(values.shape[1]):
        columns.setdefault(all_marks[:, column].tobytes(), []).append(column)
    for packed, positions in columns.items():
        marks = np.frombuffer(packed, np.uint8)
        rows, n_distinct = _marked_rows(marks, len(values)), 0
        if labels is not None:
            n_distinct = LabelCounts.of(replace(labels, values=labels.values[rows])).n_distinct
        counts = marks.any() if weights is None else weights[rows].any()
        yield Group(np.array(positions), marks, bool(counts), n_distinct)


def _marked_rows(marks: np.ndarray, n_samples: int) -> np.ndarray:
    return np.flatnonzero(np.unpackbits(marks, count=n_samples))
