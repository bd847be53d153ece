"""X, labels and per-sample columns as members of one HDF5 file or Zarr group, for all layouts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.run_warning import CHANGES, RunWarning
from daskfs.sources.base import SourceSpec
from daskfs.sources.columns import in_rows
from daskfs.sources.csr import CsrParts
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.matrices import DenseMatrix, Folder, Matrix
from daskfs.sources.resolve import resolve_feature_names
from daskfs.sources.row_names import NAMES_AT_ONCE
from daskfs.sources.zarr_array import ZarrFolder


@dataclass(frozen=True)
class Columns:
    """Columns with one value per row of X, or per feature.

    Parameters
    ----------
    read
        Reads a column by its name, or some of its rows by a slice, shape (n_rows,).
    kind
        Noun for a column in messages.
    arrays_of
        Returns the names of the arrays that hold a column.
    """

    names: tuple[str, ...]
    read: Callable[..., np.ndarray]
    kind: str = "member"
    arrays_of: Callable[[str], tuple[str, ...]] = lambda name: (name,)


@dataclass(frozen=True)
class GroupContents:
    """The contents that a layout finds in a folder: X, and the names of the arrays that hold it.

    Parameters
    ----------
    rows
        Columns that can be labels or per-sample columns.
    columns
        Columns that ``data.feature_names`` may name.
    names, name_arrays
        Feature names, or None, and the names of the arrays that hold them.
    row_names
        The column in `rows` with the row names, or None.
    """

    folder: Folder
    matrix: Matrix
    arrays: tuple[str, ...]
    rows: Columns
    columns: Columns
    names: tuple[str, ...] | None = None
    name_arrays: tuple[str, ...] = ()
    row_names: str | None = None


class MemberSource(LabeledSource):
    """X in a member of an HDF5 file or a Zarr group, dense or sparse.

    Attributes
    ----------
    in_place
        X if it is a Zarr array that can be read as tiles, neither transposed nor decoded; else None.
    reading_bytes
        Memory of a read in bytes, independent of its number of rows.
    """

    def __init__(self, spec: SourceSpec, contents: GroupContents) -> None:
        self._contents, self._matrix = contents, contents.matrix
        matrix, own, features = contents.matrix, contents.rows.names, contents.columns
        super().__init__(
            spec, contents.rows.kind, labels=own, columns=own, row_names=own, default_row_names=contents.row_names
        )
        arrays = [*contents.arrays]
        for ref in self.refs:
            arrays += contents.rows.arrays_of(ref.name) if ref.inside else ()
        if spec.feature_names is None:
            arrays += contents.name_arrays
        elif spec.feature_names in features.names:
            arrays += features.arrays_of(spec.feature_names)
        self._arrays = tuple(dict.fromkeys(arrays))
        self._selection = {"array": spec.array, "dims": None if spec.dims is None else list(spec.dims)}
        self.reading_bytes = matrix.held_bytes
        self.in_place = matrix.place if isinstance(matrix, DenseMatrix) else None
        shape = matrix.shape
        names = resolve_feature_names(spec, shape[1], contents.names, features.names, features.read, features.kind)
        self.info = self.describe(shape, matrix.dtype, names, self.identity_now(), matrix.nnz, matrix.row_multiple)

    def identity_now(self) -> dict[str, Any]:
        """Return the current value of ``info.identity``."""
        return self._contents.folder.identity(self._arrays, self._selection)

    def unchanged_rows(self, planned: Mapping[str, Any], n_rows: int) -> int:
        """Return the number of the first `n_rows` rows that are unchanged since `planned`, an earlier identity.

        Rows whose chunks hold new rows too are not. :class:`InputError` if more than the number of rows changed.
        """
        matrix, folder, arrays = self._matrix, self._contents.folder, self._contents.arrays
        assert isinstance(folder, ZarrFolder)
        if isinstance(matrix, DenseMatrix):
            return folder.unchanged(arrays[:1], planned, axis=matrix.row_axis)[0]
        if not isinstance(matrix, CsrParts):
            msg = f"{folder.where} is stored by column: rows cannot be added at its end."
            raise InputError(msg)
        n_values, n_indices, n_starts = folder.unchanged(arrays[:3], planned)
        starts = folder.need(arrays[2])
        ends = range(1, min(n_starts - 1, n_rows) + 1)
        return bisect_right(ends, min(n_values, n_indices), key=lambda row: int(starts.read(row, row + 1)[0]))

    def _read_rows(self, start: int, stop: int) -> Block:
        return self._matrix.read_rows(start, stop)

    def verify(self) -> list[RunWarning]:
        """Return warnings about absent chunks of a Zarr group, and hints on columns of groups."""
        arrays = [self._contents.folder.array(name) for name in self._arrays]
        texts = [array.absence() for array in arrays if array is not None]
        absent = [RunWarning("absent chunks", CHANGES, text) for text in texts if text is not None]
        return absent + self.group_hints(self._contents.rows.names)

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        n_samples, folder = self.info.n_samples, self._contents.folder
        for path in self._contents.rows.arrays_of(name):
            if (array := folder.array(path)) is not None:
                array.absence(of_column=True)
        yield from in_rows(n_samples, lambda rows: self._contents.rows.read(name, rows))
        if len(self._contents.rows.read(name, slice(n_samples, n_samples + 1))):  # to be refused
            yield self._contents.rows.read(name, slice(n_samples, None))

    def _read_names(self, name: str) -> Iterator[np.ndarray]:
        return in_rows(self.info.n_samples, lambda rows: self._contents.rows.read(name, rows), NAMES_AT_ONCE)
