"""Products with centered and scaled rows; sparse rows stay sparse.

Scales are applied to the factors and results of products, so dense rows are only centered.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, is_sparse

CENTERED_VALUES = 2**18
SPARSE_ROWS = 2**14
FAR_MEAN = 1e3
"""Scaled means above which a sparse column loses digits if its mean is subtracted after the sums."""


def rows_per_block(n_features: int, values_per_row: int | None = None) -> int:
    """Return the number of rows centered together: a power of two that depends on the size of the data only.

    It is 64 to 4096 for dense rows. For sparse rows, with `values_per_row` stored values each, it is up to 16,384, as
    each block also costs its sums.
    """
    most, values = (4096, n_features) if values_per_row is None else (SPARSE_ROWS, values_per_row)
    return 1 << (max(64, min(most, CENTERED_VALUES // max(values, 1))).bit_length() - 1)


class CenteredRows:
    """Z = (X - mean) diag(scale), for one block of rows at a time.

    Parameters
    ----------
    mean, scale
        Shape (n_features,), float64; means may be in two parts, shape (2, n_features).
    """

    def __init__(self, mean: np.ndarray, scale: np.ndarray) -> None:
        self._parts, self._scale = np.atleast_2d(mean), scale
        self._mean = mean = self._parts[0]
        self._room = np.empty((0, mean.size))
        self._block: Block = self._room
        self._far = np.flatnonzero(np.abs(mean) * scale > FAR_MEAN)
        self._left = mean

    def take(self, X: Block) -> None:
        """Make X, shape (n_rows, n_features), any real dtype, dense or CSR, the current block."""
        if is_sparse(X):
            values = X.astype(np.float64)
            if self._far.size:
                self._center_full_columns(values)
            self._block = values
            return
        if X.shape[0] > self._room.shape[0]:
            self._room = np.empty(X.shape)
        # in two steps: converting while subtracting takes 1.5 times as long
        self._block = self._room[: X.shape[0]]
        self._block[...] = X
        for part in self._parts:
            self._block -= part

    def taken(self, X: np.ndarray) -> np.ndarray:
        """Return Z of dense rows, shape (n_rows, n_features), float64; the next block overwrites it."""
        self.take(X)
        block = self._block
        assert isinstance(block, np.ndarray)
        block *= self._scale
        return block

    def _center_full_columns(self, block: sp.csr_matrix) -> None:
        """Center the columns far from 0 that store every value; few others are far from 0 relative to their spread."""
        counts = np.bincount(block.indices, minlength=self._mean.size)
        full = self._far[counts[self._far] == block.shape[0]]
        taken = np.zeros_like(self._parts)
        taken[:, full] = self._parts[:, full]
        for part in taken:
            block.data -= part[block.indices]
        self._left = self._mean - taken[0]

    def products(self, W: np.ndarray) -> Callable[[], np.ndarray]:
        """Return a function that computes Z W of the current block, shape (n_rows, n_columns), float64.

        W has shape (n_features, n_columns).
        """
        scaled = self._scale[:, None] * W
        return lambda: np.asarray(
            self._block @ scaled - self._left @ scaled if is_sparse(self._block) else self._block @ scaled
        )

    def cross(self, Y: np.ndarray) -> np.ndarray:
        """Return (X - mean)'Y of the block, shape (n_features, n_columns), float64, for Y of shape (n_rows, n_columns).

        Its rows times the scale are those of Z'Y, also after summing over blocks.
        """
        if is_sparse(self._block):
            return np.asarray(self._block.T @ Y - np.multiply.outer(self._left, Y.sum(axis=0)))
        return np.asarray(self._block.T @ Y)

    def scaled(self, sums: np.ndarray) -> np.ndarray:
        """Return sums of :meth:`cross`, shape (..., n_features, n_columns), times the scale."""
        return sums * self._scale[:, None]
