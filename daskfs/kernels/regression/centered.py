"""Products with rows whose columns are centered and scaled; sparse rows stay sparse.

Scales go into what rows are multiplied with, and into what comes out: nothing is done to the rows but to center them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import is_sparse

BLOCK_VALUES = 2**18
SPARSE_ROWS = 2**14
FAR = 1e3
"""Scaled means above which a sparse column loses digits when its mean comes off after sums."""


def rows_per_block(n_features: int, values_per_row: int | None = None) -> int:
    """Return the rows that are centered together: a power of two, that the size of the data alone decides.

    From 64 to 4096 dense rows. Of sparse rows, with so many values in each, up to 16,384, as each block also takes the
    time of its sums.
    """
    most, values = (4096, n_features) if values_per_row is None else (SPARSE_ROWS, values_per_row)
    return 1 << (max(64, min(most, BLOCK_VALUES // max(values, 1))).bit_length() - 1)


class CenteredRows:
    """Z = (X - mean) diag(scale), for one block of rows after the other.

    Parameters
    ----------
    mean, scale
        Shape (n_features,), float64.
    """

    def __init__(self, mean: np.ndarray, scale: np.ndarray) -> None:
        self._mean, self._scale = mean, scale
        self._room = np.empty((0, mean.size))
        self._block: np.ndarray | sp.csr_matrix = self._room
        self._far = np.flatnonzero(np.abs(mean) * scale > FAR)
        self._left = mean

    def take(self, X: np.ndarray | sp.csr_matrix) -> None:
        """Make X the block, shape (n_rows, n_features), any real dtype, dense or CSR; the one before is gone."""
        if is_sparse(X):
            values = X.astype(np.float64)
            if self._far.size:
                self._center_full_columns(values)
            self._block = values
            return
        if X.shape[0] > self._room.shape[0]:
            self._room = np.empty(X.shape)
        # in two steps: one that converts while it subtracts takes half as long again
        self._block = self._room[: X.shape[0]]
        self._block[...] = X
        self._block -= self._mean

    def taken(self, X: np.ndarray) -> np.ndarray:
        """Return Z of some dense rows, shape (n_rows, n_features); the next rows overwrite it."""
        self.take(X)
        block = self._block
        assert isinstance(block, np.ndarray)
        block *= self._scale
        return block

    def _center_full_columns(self, block: sp.csr_matrix) -> None:
        """Center what lies far from 0 and has no zeros, as hardly anything else lies far from 0 by its spread."""
        counts = np.bincount(block.indices, minlength=self._mean.size)
        full = self._far[counts[self._far] == block.shape[0]]
        taken = np.zeros_like(self._mean)
        taken[full] = self._mean[full]
        block.data -= taken[block.indices]
        self._left = self._mean - taken

    def products(self, W: np.ndarray) -> Callable[[], np.ndarray]:
        """Return what gives Z W of the block, shape (n_rows, n_columns)."""
        scaled = self._scale[:, None] * W
        return lambda: np.asarray(
            self._block @ scaled - self._left @ scaled if is_sparse(self._block) else self._block @ scaled
        )

    def cross(self, Y: np.ndarray) -> np.ndarray:
        """Return (X - mean)'Y of the block, shape (n_features, n_columns); its rows times the scale are those of Z'Y,
        also after blocks have been added up.
        """
        if is_sparse(self._block):
            return np.asarray(self._block.T @ Y - np.multiply.outer(self._left, Y.sum(axis=0)))
        return np.asarray(self._block.T @ Y)

    def scaled(self, sums: np.ndarray) -> np.ndarray:
        """Return sums of :meth:`cross`, shape (..., n_features, n_columns), times the scale."""
        return sums * self._scale[:, None]
