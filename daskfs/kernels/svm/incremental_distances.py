"""Squared distances between rows, updated as columns are removed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.threads import one_thread

KEPT_DISTANCE_ROWS = 512
FRESH = 1e-3
"""Share of the last full computation below which distances are recomputed: subtraction keeps rounding errors."""


class KeptSquares:
    """Squared distances between rows in the remaining columns, shape (n_rows, n_rows), float64.

    Columns are removed in steps, which every process applies in the same order, so the bits do not depend on where and
    when it began. A step subtracts the distances in its columns; if little remains of the last full computation, all
    distances are recomputed.

    Parameters
    ----------
    X
        Centered rows, shape (n_rows, n_columns), float64.
    """

    def __init__(self, X: np.ndarray) -> None:
        self._X = X
        self._spread = np.einsum("ij,ij->j", X, X)
        self._left = np.ones(X.shape[1], dtype=bool)
        self.n_steps = 0
        self._made = float(self._spread.sum())
        self.values = np.zeros((X.shape[0], X.shape[0]))
        self._add(self._left, 1.0)

    def advance(self, steps: Sequence[np.ndarray]) -> None:
        """Remove columns: `steps` are all steps so far, as column indices; those already applied are skipped."""
        for gone in steps[self.n_steps :]:
            self._left[gone] = False
            self.n_steps += 1
            left = float(self._spread[self._left].sum())
            if left < FRESH * self._made:
                self.values[...] = 0.0
                self._made = left
                self._add(self._left, 1.0)
            else:
                self._add(np.unique(gone), -1.0)

    def _add(self, columns: np.ndarray, sign: float) -> None:
        part = self._X[:, columns]
        with one_thread():
            for rows in row_blocks(len(part), KEPT_DISTANCE_ROWS):
                block = self.values[rows]
                block += sign * squared_distances(part[rows], part)
                np.maximum(block, 0.0, out=block)
        np.fill_diagonal(self.values, 0.0)


def squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return the squared distances of centered rows, shape (n_a, n_b), float64; rounding may make them negative."""
    squares = A @ (-2.0 * B.T)
    squares += np.einsum("ij,ij->i", A, A)[:, None]
    squares += np.einsum("ij,ij->i", B, B)
    return squares
