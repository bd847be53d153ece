"""Detection of missing values (NaN) in X, and imputation by column means.

Means are unweighted means of the observed values, rounded to the dtype of X. Sums follow the merge tree of
:mod:`daskfs.kernels.statistics.moments`, so the bits do not depend on how rows are split into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.statistics.moments import cell_rows, merge_tree, row_blocks


@dataclass(frozen=True)
class Observed:
    """Statistics of the observed (non-NaN) values of each column, shape (width,) each, float64.

    `missing` counts the NaN values and `total` sums the others. A column without observed values has minimum inf and
    maximum -inf.
    """

    missing: np.ndarray
    total: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray

    def values(self, n_rows: int, dtype: np.dtype[Any]) -> np.ndarray:
        """Return the imputation value of each column, shape (width,), float64.

        It is the mean of the observed values, clipped to their range and rounded to `dtype`; 0 for a column without
        any.
        """
        count = n_rows - self.missing
        mean = np.divide(self.total, count, out=np.zeros_like(self.total), where=count > 0)
        is_observed = count > 0
        mean[is_observed] = np.clip(mean[is_observed], self.minimum[is_observed], self.maximum[is_observed])
        return mean.astype(dtype).astype(np.float64)


def merge_observed(a: Observed, b: Observed) -> Observed:
    """Merge the statistics of two disjoint sets of rows."""
    return Observed(
        a.missing + b.missing,
        a.total + b.total,
        np.minimum(a.minimum, b.minimum),
        np.maximum(a.maximum, b.maximum),
    )


def observe(X: Block) -> Observed:
    """Compute the statistics of X, shape (n_rows, width): dense, or CSR without duplicate entries."""
    size = cell_rows(X.shape[1], sparse=is_sparse(X))
    cells = row_blocks(X.shape[0], size) if X.shape[0] else [slice(0, 0)]
    return merge_tree((_observed_cell(X[rows]) for rows in cells), merge_observed)


def _observed_cell(X: Block) -> Observed:
    n_rows, width = X.shape
    if is_sparse(X):
        gone = np.isnan(X.data)
        columns, values = X.indices[~gone], X.data[~gone].astype(np.float64)
        lowest = np.where(np.bincount(X.indices, minlength=width) < n_rows, 0.0, np.inf)  # implicit zeros
        highest = -lowest
        np.minimum.at(lowest, columns, values)
        np.maximum.at(highest, columns, values)
        missing = np.bincount(X.indices[gone], minlength=width).astype(np.float64)
        return Observed(missing, np.bincount(columns, values, minlength=width), lowest, highest)
    values = np.array(X, np.float64, order="C")
    gone = np.isnan(values)
    values[gone] = 0.0
    total = values.sum(axis=0)
    values[gone] = np.inf
    lowest = values.min(axis=0, initial=np.inf)
    values[gone] = -np.inf
    return Observed(gone.sum(axis=0, dtype=np.float64), total, lowest, values.max(axis=0, initial=-np.inf))


def has_missing(X: Block) -> bool:
    """Return whether any value is NaN."""
    values = X.data if is_sparse(X) else X
    return values.dtype.kind == "f" and values.size > 0 and bool(np.isnan(values.max()))


def fill_missing(X: Any, values: np.ndarray) -> Any:
    """Replace NaN in X, a dense array, CSR or CSC matrix, by the value of its column, shape (width,), and return X.

    X is changed in place; read-only data are copied first.
    """
    if not sp.issparse(X):
        X = X if X.flags.writeable else X.copy()
        np.copyto(X, values.astype(X.dtype), where=np.isnan(X))
        return X
    gone = np.flatnonzero(np.isnan(X.data))
    if gone.size:
        by_column = X.format == "csc"
        columns = np.searchsorted(X.indptr, gone, side="right") - 1 if by_column else X.indices[gone]
        X.data = X.data if X.data.flags.writeable else X.data.copy()
        X.data[gone] = values[columns]
    return X


def filled_by_means(X: Block) -> Block:
    """Replace NaN in X, dense or CSR, by the means of its own columns, and return X.

    X is changed in place; read-only data are copied first.
    """
    if not has_missing(X):
        return X
    filled: Block = fill_missing(X, observe(X).values(X.shape[0], X.dtype))
    return filled
