"""Labels of samples, as the kernels and the store hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

Task = Literal["classification", "regression"]


@dataclass(frozen=True)
class Labels:
    """Labels of all samples.

    `values` has shape (n_samples,): int32 class codes with -1 for unlabeled samples, or float64 targets with NaN for
    them. `classes` are the class names by code.
    """

    task: Task
    values: np.ndarray
    classes: tuple[str, ...] = ()

    @property
    def is_labeled(self) -> np.ndarray:
        """True where the label is known, shape (n_samples,), bool."""
        return self.values >= 0 if self.task == "classification" else ~np.isnan(self.values)

    def of_rows(self, rows: np.ndarray) -> Labels:
        """Return the labels of some rows, with only the classes that they have, as an estimator would find them."""
        row_values = self.values[rows]
        if self.task == "regression":
            return replace(self, values=row_values)
        codes, places = np.unique(row_values, return_inverse=True)
        present = codes[codes >= 0]
        values = (places - int(np.count_nonzero(codes < 0))).astype(row_values.dtype)
        return Labels(self.task, np.maximum(values, -1), tuple(self.classes[code] for code in present))

    def counted(self, weights: np.ndarray | None) -> Labels:
        """Return the labels with rows of weight 0 unlabeled, or `self`. `weights` has shape (n_samples,)."""
        if weights is None or weights.all():
            return self
        missing = -1 if self.task == "classification" else np.nan
        return replace(self, values=np.where(weights > 0, self.values, missing).astype(self.values.dtype, copy=False))


@dataclass(frozen=True)
class LabelCounts:
    """Facts about labels that checks and reports need instead of the labels.

    Attributes
    ----------
    n_samples, n_labeled, n_counted
        Number of rows, of labeled rows, and of those among these whose weight is above 0.
    is_varied
        Whether the labels of the last differ.
    by_class
        Number of labeled rows of each class; empty for targets.
    target
        Minimum, maximum and mean of the known targets; None for classes, and if no target is known.
    """

    task: Task
    classes: tuple[str, ...]
    n_samples: int
    n_labeled: int
    n_counted: int
    is_varied: bool
    by_class: tuple[int, ...]
    target: tuple[float, float, float] | None

    @property
    def n_distinct(self) -> int:
        """Number of distinct labels of the rows that count: 0, 1, or 2 for more than one."""
        return 1 + self.is_varied if self.n_counted else 0

    @classmethod
    def of(cls, labels: Labels, weights: np.ndarray | None = None) -> LabelCounts:
        """Count labels; `weights`, shape (n_samples,), float64, or None if every row counts for one."""
        counter = LabelCounter(labels.task, labels.classes)
        counter.add(labels.values, weights)
        return counter.counts()

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> LabelCounts:
        """Rebuild counts from the JSON of their :func:`dataclasses.asdict`."""
        named: dict[str, Any] = {k: tuple(value) if isinstance(value, list) else value for k, value in raw.items()}
        return cls(**named)


class LabelCounter:
    """Counts labels, some rows at a time."""

    def __init__(self, task: Task, classes: tuple[str, ...]) -> None:
        self._task, self._classes = task, classes
        self._n_samples = self._n_labeled = self._n_counted = 0
        self._by_class = np.zeros(len(classes), dtype=np.int64)
        self._ends, self._counted_ends, self._total = (np.inf, -np.inf), (np.inf, -np.inf), 0.0

    def add(self, values: np.ndarray, weights: np.ndarray | None) -> None:
        """Count the labels of some rows, shape (n_rows,), with their weights."""
        is_labeled = Labels(self._task, values).is_labeled
        labels = values[is_labeled]
        counted = labels if weights is None else values[is_labeled & (weights > 0)]
        self._n_samples += values.size
        self._n_labeled += labels.size
        self._n_counted += counted.size
        self._counted_ends = _wider(self._counted_ends, counted)
        if self._classes:
            self._by_class += np.bincount(labels, minlength=self._by_class.size)
        else:
            self._ends = _wider(self._ends, labels)
            self._total += float(labels.sum())

    def counts(self) -> LabelCounts:
        """Return the counts of all rows so far."""
        has_target = self._task == "regression" and self._n_labeled
        return LabelCounts(
            self._task,
            self._classes,
            self._n_samples,
            self._n_labeled,
            self._n_counted,
            self._counted_ends[0] < self._counted_ends[1],
            tuple(self._by_class.tolist()),
            (*self._ends, self._total / self._n_labeled) if has_target else None,
        )


def _wider(ends: tuple[float, float], values: np.ndarray) -> tuple[float, float]:
    if not values.size:
        return ends
    return min(ends[0], float(values.min())), max(ends[1], float(values.max()))
