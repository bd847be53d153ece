"""Row ranges of a CSR matrix kept as the three arrays ``data``, ``indices`` and ``indptr``."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.sources.checks import block_dtype, check_shape
from daskfs.sources.npyfile import NpyFile
from daskfs.sources.zipped import NpzFile

CSR_PARTS = ("data", "indices", "indptr", "shape")


class CsrParts:
    """The CSR matrix in the members of an ``.npz`` file, also as ``scipy.sparse.save_npz`` writes it.

    Attributes
    ----------
    shape
        (n_samples, n_features).
    dtype
        That of the blocks handed on.
    nnz
        Number of stored values.
    """

    def __init__(self, npz: NpzFile) -> None:
        self._path = str(npz.path)
        if "format" in npz.members:
            self._check_format(npz.open("format"))
        self.shape = check_shape(npz.open("shape").read_all().tolist(), f"{npz.path}:shape")
        self._data, self._indices, self._indptr = (npz.open(part) for part in CSR_PARTS[:3])
        self.dtype = block_dtype(self._data.dtype, self._data.where)
        for part in (self._indices, self._indptr):
            if part.dtype.kind not in "iu":
                raise InputError(f"{part.where} has dtype {part.dtype}; a CSR matrix needs integers there.")
        for part in (self._data, self._indices, self._indptr):
            if len(part.shape) != 1:
                raise InputError(f"{part.where} has shape {part.shape}; the parts of a CSR matrix have one dimension.")
        self.nnz = self._data.shape[0]
        self._check_lengths()

    def _check_format(self, member: NpyFile) -> None:
        value = member.read_all()[0]
        name = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
        if name != "csr":
            raise InputError(
                f"{self._path} holds a sparse matrix in {name} format, whose rows cannot be read in ranges; "
                "save X.tocsr() instead."
            )

    def _check_lengths(self) -> None:
        n_samples = self.shape[0]
        if self._indptr.shape[0] != n_samples + 1:
            raise InputError(
                f"{self._path}: indptr has {self._indptr.shape[0]} values, but {n_samples} rows need {n_samples + 1}."
            )
        ends = [int(self._indptr.read(row, row + 1)[0]) for row in (0, n_samples)]
        if ends != [0, self.nnz] or self._indices.shape[0] != self.nnz:
            raise InputError(
                f"{self._path}: indptr runs from {ends[0]} to {ends[1]}, but there are "
                f"{self._indices.shape[0]} indices and {self.nnz} values."
            )

    def read_rows(self, start: int, stop: int) -> sp.csr_matrix:
        """Return rows ``start:stop``, shape (stop - start, n_features), with sorted and unique indices."""
        indptr = self._indptr.read(start, stop + 1, np.dtype(np.int64))
        first, last = int(indptr[0]), int(indptr[-1])
        if np.any(np.diff(indptr) < 0) or first < 0 or last > self.nnz:
            raise InputError(f"{self._path}: indptr does not increase within rows {start}:{stop}; the file is damaged.")
        indices = self._indices.read(first, last)
        indptr -= first
        self._check_indices(indices, indptr, start)
        kind = np.dtype(np.int32 if max(self.shape[1], last - first) < 2**31 else np.int64)
        data = self._data.read(first, last, self.dtype)
        parts: Any = (data, indices.astype(kind, copy=False), indptr.astype(kind, copy=False))
        return canonical(sp.csr_matrix(parts, shape=(stop - start, self.shape[1])), self._path)

    def _check_indices(self, indices: np.ndarray, indptr: np.ndarray, start: int) -> None:
        if indices.size == 0 or (int(indices.min()) >= 0 and int(indices.max()) < self.shape[1]):
            return
        position = int(np.flatnonzero((indices < 0) | (indices >= self.shape[1]))[0])
        row = start + int(np.searchsorted(indptr, position, side="right")) - 1
        raise InputError(
            f"{self._path}: row {row} has a value in column {int(indices[position])}, but the matrix has "
            f"{self.shape[1]} columns."
        )


def canonical(matrix: sp.csr_matrix, where: str) -> sp.csr_matrix:
    """Sort the indices of each row and add up duplicates, in place where the type allows it."""
    if matrix.has_canonical_format:
        return matrix
    if matrix.dtype.kind == "f":
        matrix.sum_duplicates()
        return matrix
    # Sums of small integers may leave their type, which would wrap around without a word.
    wide = matrix.astype(np.float64)
    wide.sum_duplicates()
    limits = np.iinfo(matrix.dtype)
    if wide.nnz and not limits.min <= wide.data.min() <= wide.data.max() <= limits.max:
        raise InputError(f"{where}: duplicate entries add up to more than {matrix.dtype} holds; save floats.")
    return sp.csr_matrix(wide.astype(matrix.dtype))
