"""Passes over a panel, and the choice between their NumPy and their compiled version."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np

from daskfs.kernels.panel import numpy as plain
from daskfs.kernels.panel.numpy import EdgeSums, SparsePanel

COMPILED_VALUES = 2**24
"""Values of X from which on compiling pays: below, NumPy takes less time than loading numba."""


class Passes(Protocol):
    """Interface of both versions; see :mod:`daskfs.kernels.panel.numpy`."""

    def weighted_sums(self, F: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return ``weights @ F``, shape (n_weightings, width), float64; F is (n_rows, width)."""

    def deviation_sums(self, F: np.ndarray, center: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weighted sums of deviations from `center` and of their squares, (n_weightings, width), float64."""

    def power_sums(self, F: np.ndarray, center: np.ndarray, factor: np.ndarray) -> np.ndarray:
        """Return the sums of powers 2, 3, 4 and 6 of ``(F - center[0] - center[1]) * factor``, (4, width), float64."""

    def extremes(self, F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the smallest and the largest value of each column, each of shape (width,), float64."""

    def compressed(self, F: np.ndarray) -> SparsePanel | None:
        """Return the values that are not 0, if edges should visit them alone; else None."""

    def edge_sums(
        self,
        F: np.ndarray,
        source: np.ndarray,
        target: np.ndarray,
        weights: np.ndarray,
        sparse: SparsePanel | None = None,
    ) -> np.ndarray:
        """Return the sums over edges of ``w * (f[source] - f[target])**2``, (n_weightings, width), float64."""

    def observed_edge_sums(
        self, F: np.ndarray, center: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray
    ) -> EdgeSums:
        """Return the terms of quadratic forms over the edges whose ends both have a value, column by column."""


PLAIN: Passes = plain


def compiles(n_values: int, dtype: np.dtype[Any]) -> bool:
    """Return whether X of `n_values` values is scored by compiled passes.

    The size of the whole of X decides, not that of a panel or a slab, so the choice depends on the data alone.
    """
    return n_values >= COMPILED_VALUES and dtype.kind in "fiu" and dtype != np.float16


def passes_for(n_values: int, dtype: np.dtype[Any]) -> Passes:
    """Return the passes for panels of X, by its number of values and its dtype."""
    if not compiles(n_values, dtype):
        return PLAIN
    return cast("Passes", import_module("daskfs.kernels.panel.numba"))
