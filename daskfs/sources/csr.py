"""Row ranges of a CSR matrix stored as the arrays ``data``, ``indices`` and ``indptr``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import index_dtype
from daskfs.sources.checks import block_dtype
from daskfs.sources.hdf5 import Hdf5Array
from daskfs.sources.npy_file import NpyFile
from daskfs.sources.zarr_array import ZarrMember

CSR_PARTS = ("data", "indices", "indptr", "shape")

Part = NpyFile | Hdf5Array | ZarrMember
"""An array that is read in ranges along its first axis."""


class SparseParts:
    """A sparse matrix in three arrays, all vectors and the indices integers; else :class:`InputError` is raised.

    The arrays are as in SciPy; indices may be unsorted, and duplicate entries are added.

    Attributes
    ----------
    shape
        (n_samples, n_features).
    dtype, nnz
        Dtype of the blocks, and number of stored values.
    row_multiple
        Cheapest number of rows per read.
    held_bytes
        Memory of a read in bytes, independent of its number of rows.
    """

    is_sparse = True
    row_multiple = 1

    def __init__(self, where: str, shape: tuple[int, int], data: Part, indices: Part, indptr: Part) -> None:
        self._where, self.shape = where, shape
        self._data, self._indices, self._indptr = data, indices, indptr
        for part in (indices, indptr):
            if part.dtype.kind not in "iu":
                msg = f"{part.where} has dtype {part.dtype}; a sparse matrix needs integers there."
                raise InputError(msg)
        for part in (data, indices, indptr):
            if len(part.shape) != 1:
                msg = f"{part.where} has shape {part.shape}; the parts of a sparse matrix have one dimension."
                raise InputError(msg)
        self.dtype = block_dtype(data.dtype, data.where)
        self.nnz = int(data.shape[0])
        self.held_bytes = sum(part.held_bytes for part in (data, indices, indptr))


class CsrParts(SparseParts):
    """A CSR matrix in three arrays."""

    def __init__(self, where: str, shape: tuple[int, int], data: Part, indices: Part, indptr: Part) -> None:
        super().__init__(where, shape, data, indices, indptr)
        n_samples = shape[0]
        if indptr.shape[0] != n_samples + 1:
            msg = f"{where}: indptr has {indptr.shape[0]} values, but {n_samples} rows need {n_samples + 1}."
            raise InputError(msg)
        ends = [int(indptr.read(row, row + 1)[0]) for row in (0, n_samples)]
        if ends != [0, self.nnz] or indices.shape[0] != self.nnz:
            msg = (
                f"{where}: indptr runs from {ends[0]} to {ends[1]}, but there are "
                f"{indices.shape[0]} indices and {self.nnz} values."
            )
            raise InputError(msg)

    def read_rows(self, start: int, stop: int) -> sp.csr_matrix:
        """Return rows ``start:stop``, shape (stop - start, n_features), with sorted and unique indices."""
        indptr = self._indptr.read(start, stop + 1, np.dtype(np.int64))
        first, last = int(indptr[0]), int(indptr[-1])
        if np.any(np.diff(indptr) < 0) or first < 0 or last > self.nnz:
            msg = f"{self._where}: indptr does not increase within rows {start}:{stop}; the file is damaged."
            raise InputError(msg)
        indices = self._indices.read(first, last)
        indptr -= first
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= self.shape[1]):
            position = int(np.flatnonzero((indices < 0) | (indices >= self.shape[1]))[0])
            row = start + int(np.searchsorted(indptr, position, side="right")) - 1
            msg = (
                f"{self._where}: row {row} has a value in column {int(indices[position])}, but the matrix has "
                f"{self.shape[1]} columns."
            )
            raise InputError(msg)
        kind = index_dtype(max(self.shape[1], last - first))
        data = self._data.read(first, last, self.dtype)
        parts: Any = (data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False))
        return canonical(sp.csr_matrix(parts, shape=(stop - start, self.shape[1])), self._where)


def canonical(matrix: sp.csr_matrix, where: str) -> sp.csr_matrix:
    """Sort the indices of each row and add duplicates, in place for floats.

    A sum of integers that exceeds their dtype raises :class:`InputError`.
    """
    if matrix.has_canonical_format:
        return matrix
    if matrix.dtype.kind == "f":
        matrix.sum_duplicates()
        return matrix
    # Sums of small integers may exceed their dtype, and would wrap around silently.
    wide = matrix.astype(np.float64)
    wide.sum_duplicates()
    limits = np.iinfo(matrix.dtype)
    if wide.nnz and not limits.min <= wide.data.min() <= wide.data.max() <= limits.max:
        msg = f"{where}: duplicate entries add up to more than {matrix.dtype} holds; save floats."
        raise InputError(msg)
    return sp.csr_matrix(wide.astype(matrix.dtype))
