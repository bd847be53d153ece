"""A source in memory, for tests of what wraps or reads any source."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.digits import as_floats
from daskfs.sources.base import SourceInfo
from daskfs.sources.checks import block_dtype, check_label_column, check_shape
from daskfs.sources.csr import canonical
from daskfs.sources.sample_columns import check_weights
from daskfs.sources.stored_column import Source, StoredColumn

HASHED_ROWS_BYTES = 16 << 20


class ArraySource(Source):
    """An array or CSR matrix as a source.

    Parameters
    ----------
    X
        Real numbers, shape (n_samples, n_features). Not copied; other sparse formats are converted to CSR.
    y
        Labels, shape (n_samples,).
    feature_names
        One for each column.
    weights
        Number of rows that each row counts for, shape (n_samples,).
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        feature_names: Sequence[str] | None = None,
        weights: Any = None,
    ) -> None:
        sparse = bool(is_sparse(X))
        self._X: Block = canonical(sp.csr_matrix(X), "X") if sparse else np.asarray(X)
        n_samples, n_features = check_shape(self._X.shape, "X")
        self._y = None if y is None else check_label_column(y, n_samples, "y")
        self._weights = None if weights is None else check_weights(weights, n_samples, "weights")
        if feature_names is not None and len(feature_names) != n_features:
            msg = f"feature_names has {len(feature_names)} names, X has {n_features} columns."
            raise InputError(msg)
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=block_dtype(self._X.dtype, "X"),
            is_sparse=sparse,
            feature_names=None if feature_names is None else tuple(str(name) for name in feature_names),
            identity={
                "kind": "memory",
                "shape": [n_samples, n_features],
                "dtype": str(self._X.dtype),
                "digest": _digest(self._X),
            },
            nnz=None if isinstance(self._X, np.ndarray) else int(self._X.nnz),
            has_labels=self._y is not None,
            sample_columns=() if weights is None else ("weights",),
        )

    def _read_rows(self, start: int, stop: int) -> Block:
        if isinstance(self._X, np.ndarray):
            return np.ascontiguousarray(as_floats(self._X[start:stop], self.info.dtype))
        part = self._X[start:stop]
        return sp.csr_matrix((as_floats(part.data, self.info.dtype), part.indices, part.indptr), shape=part.shape)

    def labels_column(self) -> StoredColumn | None:
        """Return the labels."""
        y = self._y
        return None if y is None else StoredColumn(self.info.n_samples, "y", "labels", lambda: iter([y]))

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return the weights for "weights"; None for other columns."""
        w = self._weights
        if name != "weights" or w is None:
            return None
        return StoredColumn(self.info.n_samples, name, name, lambda: iter([w]))

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return None, since rows in memory have no names."""
        return None


def _digest(X: Block) -> str:
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(X, np.ndarray):
        step = max(1, HASHED_ROWS_BYTES // max(1, X.shape[1] * X.itemsize))
        for first in range(0, len(X), step):
            digest.update(np.ascontiguousarray(X[first : first + step]).reshape(-1).view(np.uint8).data)
    else:
        for part in (X.indptr, X.indices, X.data):
            digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return digest.hexdigest()
