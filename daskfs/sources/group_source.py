"""X and what lies beside it as members of one HDF5 file or Zarr group: what all layouts of such members share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import check_range
from daskfs.sources.matrices import Folder, Matrix
from daskfs.sources.resolve import LabelRef, resolve_feature_names, resolve_labels
from daskfs.sources.row_names import RowNames, in_slices
from daskfs.sources.sample_columns import SampleColumns
from daskfs.storage import StoragePath


class ColumnReader(Protocol):
    """Reads a column, or some of its values."""

    def __call__(self, name: str, rows: slice = slice(None), /) -> np.ndarray: ...


def same(name: str) -> tuple[str, ...]:
    """Return a name as the only one."""
    return (name,)


@dataclass(frozen=True)
class Columns:
    """What has one value for each row of X, or for each column.

    Parameters
    ----------
    names
        What they are called.
    read
        Reads one.
    kind
        What messages call one.
    arrays_of
        Returns the arrays that hold one.
    """

    names: tuple[str, ...]
    read: ColumnReader
    kind: str = "member"
    arrays_of: Callable[[str], tuple[str, ...]] = same


@dataclass(frozen=True)
class Contents:
    """What a layout finds in a folder.

    Parameters
    ----------
    folder
        The folder.
    matrix
        X.
    arrays
        Those that hold X.
    rows
        What labels and columns beside X may name.
    columns
        What ``data.feature_names`` may name; None for nothing.
    names
        Names of the features, None where nothing says them.
    name_arrays
        Those that hold `names`.
    row_names
        Of `rows`, what the rows of X are called; None where nothing says it.
    """

    folder: Folder
    matrix: Matrix
    arrays: tuple[str, ...]
    rows: Columns
    columns: Columns | None = None
    names: tuple[str, ...] | None = None
    name_arrays: tuple[str, ...] = ()
    row_names: str | None = None


class MemberSource:
    """X in a member of an HDF5 file or a Zarr group, dense or sparse.

    Attributes
    ----------
    array_path, chunks, stored_dtype
        Of X where it is a Zarr array that may serve in place, with rows as rows and values as they are; else None.
    reading_bytes
        What reading takes, however few rows.
    """

    def __init__(self, spec: SourceSpec, contents: Contents) -> None:
        self._matrix, self._contents = contents.matrix, contents
        matrix = contents.matrix
        self._labels = resolve_labels(spec, contents.rows.names, contents.rows.kind)
        self._beside = SampleColumns(spec, contents.rows.names, contents.rows.kind)
        self._row_names = RowNames(spec, contents.rows.names, contents.rows.kind, contents.row_names)
        self._arrays = self._arrays_read(spec)
        self._selection = {"array": spec.array, "dims": None if spec.dims is None else list(spec.dims)}
        self.reading_bytes = matrix.held_bytes
        named = contents.columns
        n_samples, n_features = matrix.shape
        place = matrix.place
        self.array_path: StoragePath | None = None if place is None else place.path
        self.chunks: tuple[int, ...] | None = None if place is None else place.chunks
        self.stored_dtype: np.dtype[Any] | None = None if place is None else place.dtype
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=matrix.dtype,
            is_sparse=matrix.is_sparse,
            feature_names=resolve_feature_names(
                spec,
                n_features,
                own=contents.names,
                members=() if named is None else named.names,
                read_member=None if named is None else named.read,
                kind="" if named is None else named.kind,
            ),
            identity=self.identity_now(),
            nnz=matrix.nnz,
            row_multiple=matrix.row_multiple,
            has_labels=self._labels is not None,
            beside=self._beside.names,
            has_row_names=bool(self._row_names.refs),
        )
        if self.info.feature_names is not None and len(self.info.feature_names) != n_features:
            raise InputError(
                f"{contents.folder.where} has {len(self.info.feature_names)} names, X has {n_features} columns."
            )

    def _arrays_read(self, spec: SourceSpec) -> tuple[str, ...]:
        contents = self._contents
        named = (self._labels, *self._beside.refs, *self._row_names.refs)
        refs = [ref for ref in named if isinstance(ref, LabelRef) and ref.inside]
        found = [*contents.arrays, *(name for ref in refs for name in contents.rows.arrays_of(ref.name))]
        if spec.feature_names is None:
            found += contents.name_arrays
        elif contents.columns is not None and spec.feature_names in contents.columns.names:
            found += contents.columns.arrays_of(spec.feature_names)
        return tuple(dict.fromkeys(found))

    def identity_now(self) -> dict[str, Any]:
        """Return what ``info.identity`` would be, were the source opened now."""
        return self._contents.folder.identity(self._arrays, self._selection)

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop`` as an array or CSR matrix of shape (stop - start, n_features)."""
        check_range(start, stop, self.info.n_samples)
        return self._matrix.read_rows(start, stop)

    def read_labels(self) -> np.ndarray | None:
        """Return the labels, shape (n_samples,), from the member or file that ``spec.labels`` names."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._contents.rows.read)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return one of the columns beside X, shape (n_samples,), as the spec names it; None when it names none."""
        return self._beside.read(name, self.info.n_samples, self._contents.rows.read)

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return what the rows are called, some of them at a time; None where nothing says it."""
        n_samples, read = self.info.n_samples, self._contents.rows.read
        return self._row_names.read(n_samples, lambda name: in_slices(n_samples, lambda rows: read(name, rows)))
