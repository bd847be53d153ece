"""X, labels and per-sample columns as named arrays of an HDF5 file or Zarr group, plain or of xarray or NetCDF."""

from __future__ import annotations

from pathlib import PurePosixPath

import numpy as np

from daskfs.errors import InputError, nearest
from daskfs.sources.base import SAMPLE_COLUMNS, SourceSpec
from daskfs.sources.cf import decoding_of
from daskfs.sources.checks import shorten_names, unknown_name
from daskfs.sources.group_source import Columns, GroupContents
from daskfs.sources.matrices import DenseMatrix, Folder, Matrix, SourceArray, is_sparse_group, parts_of, sparse_matrix


def variable_contents(spec: SourceSpec, folder: Folder) -> GroupContents:
    """Find X, its labels, per-sample columns and names.

    X is the dense array or sparse-matrix group that ``data.array`` names; else ``X``; else the only candidate, which
    for variables of xarray and NetCDF is the one with the dimensions ``data.dims``. Labels and per-sample columns are
    one-dimensional arrays. Names of features and rows are the text array named like their dimension.
    """
    variable = _Variables(spec, folder)
    name = variable.find_matrix()
    array = folder.array(name)
    rows = Columns(variable.columns, variable.read)
    if array is None:
        if spec.dims is not None:
            msg = f"data.dims names dimensions, and {folder.where}:{name} is a sparse matrix without names."
            raise InputError(msg)
        matrix: Matrix = sparse_matrix(folder, name)
        return GroupContents(folder, matrix, parts_of(name), rows, rows)
    transposed = _is_transposed(array, spec)
    decode = decoding_of(array)
    matrix = DenseMatrix(array, transposed=transposed, decode=decode, dtype=None if decode is None else decode.dtype)
    along_rows, along = reversed(array.dimensions) if transposed else array.dimensions
    columns = Columns(variable.columns, variable.read_names)
    row_names = variable.names_along(along_rows, matrix.shape[0])
    if (called := variable.names_along(along, matrix.shape[1])) is None:
        return GroupContents(folder, matrix, (name,), rows, columns, row_names=row_names)
    names = tuple(str(name) for name in variable.read(called))
    return GroupContents(folder, matrix, (name,), rows, columns, names, (called,), row_names)


class _Variables:
    def __init__(self, spec: SourceSpec, folder: Folder) -> None:
        self._spec, self._folder = spec, folder
        self._is_array = folder.array("") is not None
        self._members = () if self._is_array else folder.members()
        self._arrays = {} if self._is_array else folder.arrays()
        named = [getattr(spec, key) for key in ("labels", "feature_names", "row_names", *SAMPLE_COLUMNS)]
        arrays = (*self._arrays, None)
        deeper = [name for name in named if name not in arrays and _is_below(name) and folder.array(name) is not None]
        self.columns = (*self._arrays, *deeper)

    def find_matrix(self) -> str:
        """Return the name of the array or group that holds X."""
        spec, folder = self._spec, self._folder
        if self._is_array:
            return ""
        if spec.array is not None:
            if folder.array(spec.array) is None and not is_sparse_group(folder, spec.array):
                raise unknown_name(spec.array, "array", self._candidates() or self._members, folder.where)
            return spec.array
        if folder.array("X") is not None or is_sparse_group(folder, "X"):
            return "X"
        matrices = self._candidates()
        if spec.dims is not None:
            dims = sorted(spec.dims)
            of_dims = [name for name in matrices if sorted(map(str, self._dimensions(name))) == dims]
            matrices = tuple(of_dims) or matrices
        if len(matrices) == 1:
            return matrices[0]
        if not matrices and is_sparse_group(folder, ""):
            return ""
        msg = (
            f"{folder.where} holds {len(matrices)} two-dimensional arrays or sparse matrices, none called 'X'; it has "
            f"{shorten_names(self._members)}. Name the matrix by data.array."
        )
        raise InputError(msg)

    def _candidates(self) -> tuple[str, ...]:
        groups = [name for name in self._members if name not in self._arrays and is_sparse_group(self._folder, name)]
        return (*(name for name, n_dimensions in self._arrays.items() if n_dimensions == 2), *groups)

    def _dimensions(self, name: str) -> tuple[str | None, ...]:
        array = self._folder.array(name)
        return () if array is None else array.dimensions

    def names_along(self, dimension: str | None, count: int) -> str | None:
        """Return the name of the text array of shape (count,) that is called like `dimension`; None without one."""
        array = self._folder.array(dimension) if dimension is not None and dimension in self._arrays else None
        has_names = array is not None and array.shape == (count,) and array.dtype.kind in "OUST"
        return dimension if has_names else None

    def read(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Return the decoded values of an array, one per row or feature, or those of `rows`."""
        if (array := self._folder.array(name)) is None:
            raise unknown_name(name, "member", self.columns, self._folder.where)
        if len(array.shape) > 1 and array.shape[1:] != (1,):  # X itself may be named, and must not be loaded
            msg = f"{array.where} has shape {array.shape}; one value for each row or feature is needed."
            raise InputError(msg)
        values = array[...] if not array.shape else array[rows]
        decode = decoding_of(array)
        return values if decode is None else decode.of_column(values)

    def read_names(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Return feature names; a numeric coordinate of the dimension counts as text, in an object array."""
        values = self.read(name, rows)
        array = self._folder.array(name)
        is_coordinate = array is not None and array.dimensions == (PurePosixPath(name).name,)
        return values.astype(str).astype(object) if is_coordinate and values.dtype.kind in "iuf" else values


def _is_below(name: str) -> bool:
    return ".." not in PurePosixPath(name).parts and not name.startswith("/")


def _is_transposed(array: SourceArray, spec: SourceSpec) -> bool:
    """Return whether the array's second dimension is the rows of X."""
    if spec.dims is None or array.dimensions == tuple(spec.dims):
        return False
    if array.dimensions == tuple(reversed(spec.dims)):
        return True
    named = [name for name in array.dimensions if name is not None]
    if not named:
        msg = f"data.dims names dimensions, and those of {array.where} have no names: leave it out."
        raise InputError(msg)
    wrong = next((name for name in spec.dims if name not in named), named[0])
    msg = (
        f"data.dims is {shorten_names(spec.dims)}, and {array.where} has the dimensions {shorten_names(named)}: X "
        f"is a variable of two dimensions.{nearest(wrong, tuple(named))}"
    )
    raise InputError(msg)
