"""X in the arrays of an HDF5 file or a Zarr group: one dense array, or the three of a sparse matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.sources.checks import block_dtype, check_shape, shorten_names
from daskfs.sources.csc import CscRows
from daskfs.sources.csr import CSR_PARTS, CsrParts, Part
from daskfs.storage import StoragePath

READ_BYTES = 4 << 20
"""Rows are read and converted so many bytes at a time, or a chunk at a time where that is more."""
ENCODINGS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}


class Array(Part, Protocol):
    """An array in a file or a folder, read in parts."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Shape of what is compressed together, None for values that lie in one piece."""
        ...

    @property
    def held_bytes(self) -> int:
        """What reading takes beside the values asked for: a chunk as stored, and decoded."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]: ...

    @property
    def dimensions(self) -> tuple[str | None, ...]:
        """Names of the dimensions; None for one without."""
        ...

    def __getitem__(self, selection: Any, /) -> np.ndarray: ...

    def fill(self, out: np.ndarray, start: int) -> None:
        """Fill an array with the rows from `start` on, converted to its type."""
        ...


@dataclass(frozen=True)
class InPlace:
    """A Zarr array whose chunks may be read as tiles."""

    path: StoragePath
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]


class Matrix(Protocol):
    """X, read by ranges of rows."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the blocks handed on."""
        ...

    @property
    def is_sparse(self) -> bool: ...

    @property
    def nnz(self) -> int | None: ...

    @property
    def row_multiple(self) -> int:
        """Rows read most cheaply in one go."""
        ...

    @property
    def held_bytes(self) -> int:
        """What reading takes, however few rows."""
        ...

    @property
    def place(self) -> InPlace | None: ...

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features), of `dtype`."""
        ...


class DenseMatrix:
    """A dense array with two dimensions.

    Parameters
    ----------
    array
        The array.
    transposed
        Its second dimension goes along the rows of X.
    decode
        Turns values as stored into those of X, of the type `dtype`.
    dtype
        Of X as `decode` makes it.
    place
        Where it lies, if it may serve in place.
    """

    is_sparse = False
    nnz = None

    def __init__(
        self,
        array: Array,
        *,
        transposed: bool = False,
        decode: Callable[[np.ndarray], np.ndarray] | None = None,
        dtype: np.dtype[Any] | None = None,
        place: InPlace | None = None,
    ) -> None:
        rows, columns = check_shape(array.shape, array.where)
        if array.dtype.kind == "O":
            raise InputError(f"{array.where} holds text or objects; X must hold real numbers.")
        self._array, self._transposed, self._decode = array, transposed, decode
        self.shape = (columns, rows) if transposed else (rows, columns)
        self.dtype = block_dtype(array.dtype if dtype is None else dtype, array.where)
        self.place = None if transposed or decode is not None else place
        chunks = array.chunks or (1, 1)
        self.row_multiple = max(1, min(chunks[1 if transposed else 0], self.shape[0]))
        self._height = max(1, min(chunks[0], rows))
        self.held_bytes = array.held_bytes + READ_BYTES

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop``, shape (stop - start, n_features)."""
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        if self._transposed:
            for begin, end in self._parts(0, self.shape[1], stop - start):
                out[:, begin:end] = self._decoded(self._array[begin:end, start:stop]).T
        else:
            for begin, end in self._parts(start, stop, self.shape[1]):
                part = out[begin - start : end - start]
                if self._decode is None:
                    self._array.fill(part, begin)
                else:
                    part[...] = self._decoded(self._array[begin:end])
        return out

    def _decoded(self, values: np.ndarray) -> np.ndarray:
        return values if self._decode is None else self._decode(values)

    def _parts(self, start: int, stop: int, width: int) -> list[tuple[int, int]]:
        """Cut a range along the array's first dimension into parts that end where chunks do."""
        row_bytes = max(1, width * self._array.dtype.itemsize)
        step = max(1, READ_BYTES // row_bytes // self._height) * self._height
        bounds = [start, *range(start - start % step + step, stop, step), stop]
        return [(begin, end) for begin, end in itertools.pairwise(bounds) if begin < end]


class Folder(Protocol):
    """A group of arrays and groups, wherever it lies. Names are paths with slashes; the empty name is the group."""

    @property
    def where(self) -> str:
        """What messages call it."""
        ...

    def members(self, name: str = "") -> tuple[str, ...]:
        """Return the names of what lies directly in a group, sorted; nothing for what is no group."""
        ...

    def arrays(self) -> dict[str, int]:
        """Return the names of the arrays directly in the folder, sorted, each with its number of dimensions."""
        ...

    def is_group(self, name: str) -> bool:
        """Return whether there is a group of this name."""
        ...

    def array(self, name: str) -> Array | None:
        """Return an array, None where there is none of this name."""
        ...

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array or a group."""
        ...

    def identity(self, arrays: tuple[str, ...], selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return what tells one state of some arrays from another, and what was selected; JSON-able."""
        ...


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of the arrays of a sparse matrix in a group."""
    return tuple(f"{name}/{part}" if name else part for part in CSR_PARTS[:3])


def is_sparse_group(folder: Folder, name: str) -> bool:
    """Return whether a group holds the parts of a sparse matrix."""
    return folder.is_group(name) and all(folder.array(path) is not None for path in parts_of(name))


def sparse_matrix(folder: Folder, name: str) -> CsrParts | CscRows:
    """Open a sparse matrix in a group: ``data``, ``indices``, ``indptr``, and its shape as an attribute or a dataset.

    Whether rows or columns are compressed is what the group says of itself as AnnData does, or else what the length of
    ``indptr`` tells; rows where it tells nothing.
    """
    where = f"{folder.where}:{name}" if name else folder.where
    attributes = folder.attributes(name)
    data, indices, indptr = (_part(folder, path) for path in parts_of(name))
    shape = check_shape(_shape(folder, name, attributes, where), where)
    stated = attributes.get("encoding-type", attributes.get("h5sparse_format"))
    if stated is None:
        by_columns = shape[0] != shape[1] and indptr.shape == (shape[1] + 1,)
    elif _text(stated) in ENCODINGS:
        by_columns = ENCODINGS[_text(stated)] == "csc"
    else:
        raise InputError(f"{where} is encoded as {_text(stated)!r}; X can be one of {shorten_names(tuple(ENCODINGS))}.")
    made = CscRows if by_columns else CsrParts
    return made(where, shape, data, indices, indptr)


def _part(folder: Folder, path: str) -> Array:
    found = folder.array(path)
    if found is None:
        raise InputError(f"{folder.where}:{path} is no array; the parts of a sparse matrix are.")
    return found


def _shape(folder: Folder, name: str, attributes: Mapping[str, Any], where: str) -> tuple[int, ...]:
    stated: Any = attributes.get("shape", attributes.get("h5sparse_shape"))
    if stated is None:
        found = folder.array(f"{name}/shape" if name else "shape")
        stated = None if found is None else found[:]
    sides = None if stated is None else np.asarray(stated).ravel()
    if sides is None or sides.dtype.kind not in "iu":
        raise InputError(
            f"{where} does not say how many columns its matrix has: give it an attribute or a dataset 'shape', two "
            "whole numbers."
        )
    return tuple(int(size) for size in sides)


def _text(value: Any) -> str:
    value = value.item() if isinstance(value, np.ndarray) and value.size == 1 else value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
