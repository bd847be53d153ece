"""The four ways a block of X may be rescaled on the fly: none, z-score, unit rows, log1p."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.moments import row_blocks, rows_at_once

Scaling = Literal["zscore", "unit", "log1p"]
SCALINGS: tuple[Scaling, ...] = ("zscore", "unit", "log1p")


@dataclass(frozen=True)
class ColumnScale:
    """Mean and population standard deviation of each column, shape (n_features,), float64."""

    mean: np.ndarray
    std: np.ndarray

    def part(self, start: int, stop: int) -> ColumnScale:
        """Return the scale of columns ``start:stop``."""
        return ColumnScale(self.mean[start:stop], self.std[start:stop])


def inverse_or_zero(values: np.ndarray) -> np.ndarray:
    """Return 1 / values, and 0 where a value is 0 (a constant column, an all-zero row)."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def row_norms(X: np.ndarray | sp.csr_matrix) -> np.ndarray:
    """Return the Euclidean norm of each row, shape (n_rows,), float64; scaled so that no square over- or underflows."""
    if is_sparse(X):
        values = X.astype(np.float64)
        largest = np.asarray(abs(values).max(axis=1).todense()).ravel() if values.nnz else np.zeros(X.shape[0])
        scaled = sp.diags_array(inverse_or_zero(largest)) @ values
        return largest * np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    norms = np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], rows_at_once(X.shape[1])):
        values = X[rows].astype(np.float64)
        largest = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
        values *= inverse_or_zero(largest)[:, None]
        norms[rows] = largest * np.sqrt(np.einsum("ij,ij->i", values, values))
    return norms


def scale_rows(
    X: np.ndarray | sp.csr_matrix, scaling: Scaling, columns: ColumnScale | None, norms: np.ndarray | None
) -> np.ndarray | sp.csr_matrix:
    """Return a rescaled copy of a block, float64.

    Parameters
    ----------
    X
        Dense (n_rows, n_columns) array or CSR matrix.
    scaling
        "zscore" subtracts the column mean and divides by the population standard deviation (constant columns become 0);
        a sparse block is only divided, which leaves every distance and every score difference the same. "unit" divides
        rows by their norm (zero rows stay 0). "log1p" is log(1 + x), for values above -1; :class:`InputError` for
        others.
    columns
        Needed for "zscore": of the columns of this block.
    norms
        Needed for "unit": norms of the whole rows, shape (n_rows,).
    """
    if scaling == "log1p":
        values = X.astype(np.float64)
        _refuse_without_logarithm(values)
        if is_sparse(values):
            np.log1p(values.data, out=values.data)
            return values
        return np.log1p(values, out=values)
    if scaling == "unit":
        assert norms is not None
        inverse = inverse_or_zero(norms)
        return sp.csr_matrix(sp.diags_array(inverse) @ X) if is_sparse(X) else X * inverse[:, None]
    assert columns is not None
    inverse = inverse_or_zero(columns.std)
    if is_sparse(X):
        return sp.csr_matrix(X.astype(np.float64) @ sp.diags_array(inverse))
    return (X.astype(np.float64) - columns.mean) * inverse


def _refuse_without_logarithm(X: np.ndarray | sp.csr_matrix) -> None:
    smallest = X.min() if X.shape[0] and X.shape[1] else 0.0
    if smallest <= -1:
        msg = f"scaling 'log1p' is log(1 + x) and needs values above -1; X has {float(smallest):g}."
        raise InputError(msg)
