"""Squared distances between rows that are kept while columns leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from daskfs.kernels.threads import one_thread

BLOCK_ROWS = 512
FRESH = 1e-3
"""Share of the squared distances from which on what is left of them is made anew: subtraction leaves the rounding of
what has gone.
"""


class KeptSquares:
    """Squared distances between rows in the columns that are left, shape (n_rows, n_rows), float64.

    Columns leave in steps, which every process takes in the same order whenever it begins, so that bits do not depend
    on where and since when the distances are kept. What a step takes away is made of its columns alone; where little is
    left of what there was when the matrix was last made as a whole, it is made as a whole again.

    Parameters
    ----------
    X
        Centered rows, shape (n_rows, n_columns), float64.
    """

    def __init__(self, X: np.ndarray) -> None:
        self._X = X
        self._spread = np.einsum("ij,ij->j", X, X)
        self._left = np.ones(X.shape[1], dtype=bool)
        self._n_steps = 0
        self._made = float(self._spread.sum())
        self.values = np.zeros((X.shape[0], X.shape[0]))
        self._add(self._left, 1.0)

    @property
    def n_steps(self) -> int:
        """How many steps have been taken."""
        return self._n_steps

    def advance(self, steps: Sequence[np.ndarray]) -> None:
        """Let columns leave: all steps so far, of which those that were taken before are skipped."""
        for gone in steps[self._n_steps :]:
            self._left[gone] = False
            self._n_steps += 1
            left = float(self._spread[self._left].sum())
            if left < FRESH * self._made:
                self.values[...] = 0.0
                self._made = left
                self._add(self._left, 1.0)
            else:
                mask = np.zeros(self._left.size, dtype=bool)
                mask[gone] = True
                self._add(mask, -1.0)

    def _add(self, columns: np.ndarray, sign: float) -> None:
        part = self._X[:, columns]
        with one_thread():
            for start in range(0, len(part), BLOCK_ROWS):
                rows = slice(start, start + BLOCK_ROWS)
                block = self.values[rows]
                block += sign * squared_distances(part[rows], part)
                np.maximum(block, 0.0, out=block)
        np.fill_diagonal(self.values, 0.0)


def squared_distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return squared distances of centered rows, shape (n_a, n_b), at least 0 but for what rounding leaves."""
    squares = A @ (-2.0 * B.T)
    squares += np.einsum("ij,ij->i", A, A)[:, None]
    squares += np.einsum("ij,ij->i", B, B)
    return squares
