"""X as a member of an ``.npz`` file, or as a sparse matrix written by ``scipy.sparse.save_npz``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.run_warning import RunWarning
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import block_dtype, check_shape, file_identity, refuse_options, shorten_names
from daskfs.sources.csc import CscRows
from daskfs.sources.csr import CSR_PARTS, CsrParts
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.npy_file import NpyFile
from daskfs.sources.resolve import resolve_feature_names
from daskfs.sources.row_names import NAMES_AT_ONCE
from daskfs.sources.values import decoded
from daskfs.sources.zipped import NpzFile
from daskfs.storage import StoragePath


class NpzSource(LabeledSource):
    """The dense member that ``spec.array`` names, else ``X``, else a CSR or CSC matrix.

    A read takes `reading_bytes` whatever its number of rows.
    """

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec, "array")
        npz = self._npz = NpzFile(path)
        members = npz.members
        super().__init__(spec, labels=members, columns=members, row_names=members)
        self._matrix, member = self._open_matrix(spec)
        self._members = CSR_PARTS[:3] if self._matrix.is_sparse else (member,)
        matrix, where = self._matrix, f"{path}:{member}"
        shape, dtype = check_shape(matrix.shape, where), block_dtype(matrix.dtype, where)
        self.reading_bytes = matrix.held_bytes
        names = resolve_feature_names(spec, shape[1], None, members, lambda name: npz.open_checked(name).read_all())
        identity = file_identity("npz", path, array=member)
        self.info = self.describe(shape, dtype, names, identity, matrix.nnz, matrix.row_multiple)

    def _open_matrix(self, spec: SourceSpec) -> tuple[NpyFile | CsrParts | CscRows, str]:
        members = self._npz.members
        if spec.array is not None:
            return self._npz.open(spec.array), spec.array
        if "X" in members:
            return self._npz.open("X"), "X"
        if "format" in members or all(part in members for part in CSR_PARTS):
            return _sparse_matrix(self._npz), "csr"
        msg = (
            f"{self._npz.path} has neither a member 'X' nor the CSR parts {', '.join(CSR_PARTS)}; it has "
            f"{shorten_names(members)}. Name the matrix by data.array."
        )
        raise InputError(msg)

    def _read_rows(self, start: int, stop: int) -> Block:
        if isinstance(self._matrix, NpyFile):
            return self._matrix.read(start, stop, self.info.dtype)
        return self._matrix.read_rows(start, stop)

    def verify(self) -> list[RunWarning]:
        """Compare the checksums of the members that hold X, by a pass over those that are stored, at 1 GB/s or more."""
        for member in self._members:
            self._npz.open_checked(member)
        return []

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        return self._npz.open_checked(name).in_parts()

    def _read_names(self, name: str) -> Iterator[np.ndarray]:
        return self._npz.open_checked(name).in_parts(NAMES_AT_ONCE)


def _sparse_matrix(npz: NpzFile) -> CsrParts | CscRows:
    form = str(decoded(npz.open_checked("format").read_all()[0])) if "format" in npz.members else "csr"
    if form not in ("csr", "csc"):
        msg = (
            f"{npz.path} holds a sparse matrix in {form} format, whose rows cannot be read in ranges; "
            "save X.tocsr() instead."
        )
        raise InputError(msg)
    shape = check_shape(npz.open_checked("shape").read_all().tolist(), f"{npz.path}:shape")
    parts = (npz.open(part) for part in CSR_PARTS[:3])
    return (CsrParts if form == "csr" else CscRows)(str(npz.path), shape, *parts)
