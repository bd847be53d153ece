"""Labels of samples, as the kernels and the store hold them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

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
        own = self.values[rows]
        if self.task == "regression":
            return replace(self, values=own)
        codes, places = np.unique(own, return_inverse=True)
        present = codes[codes >= 0]
        values = (places - int(np.count_nonzero(codes < 0))).astype(own.dtype)
        return Labels(self.task, np.maximum(values, -1), tuple(self.classes[code] for code in present))

    def counted(self, weights: np.ndarray | None) -> Labels:
        """Return the labels with rows of weight 0 unlabeled, or `self`. `weights` has shape (n_samples,)."""
        if weights is None or weights.all():
            return self
        missing = -1 if self.task == "classification" else np.nan
        return replace(self, values=np.where(weights > 0, self.values, missing).astype(self.values.dtype, copy=False))
