"""X in an HDF5 file or Zarr group: one dense array, or the three arrays of a sparse matrix."""

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
from daskfs.sources.hdf5 import text_of
from daskfs.storage import StoragePath

READ_BYTES = 4 << 20
"""Bytes of rows that are read and converted at a time, unless a chunk is larger."""
ENCODINGS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}


class Array(Part, Protocol):
    """An array in a file or folder that is read in parts."""

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """Chunk shape; None for a contiguous array."""
        ...

    @property
    def held_bytes(self) -> int:
        """Memory of a read in bytes in addition to the values: one chunk, stored and decoded."""
        ...

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Attributes of the array."""
        ...

    @property
    def dimensions(self) -> tuple[str | None, ...]:
        """Names of the dimensions; None for an unnamed one."""
        ...

    def __getitem__(self, selection: Any, /) -> np.ndarray: ...

    def fill(self, out: np.ndarray, start: int) -> None:
        """Read the rows from `start` on into `out`, shape (n_rows, ...), converted to its dtype."""
        ...


@dataclass(frozen=True)
class InPlace:
    """A Zarr array whose chunks may be read as tiles."""

    path: StoragePath
    chunks: tuple[int, ...]
    dtype: np.dtype[Any]


class Matrix(Protocol):
    """X, read in ranges of rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of X, (n_samples, n_features)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the blocks."""
        ...

    @property
    def is_sparse(self) -> bool:
        """Whether blocks are CSR matrices."""
        ...

    @property
    def nnz(self) -> int | None:
        """Number of values that a sparse matrix stores; None for a dense one."""
        ...

    @property
    def row_multiple(self) -> int:
        """Cheapest number of rows per read."""
        ...

    @property
    def held_bytes(self) -> int:
        """Memory of a read in bytes, independent of its number of rows."""
        ...

    @property
    def place(self) -> InPlace | None:
        """The Zarr array, if its chunks may be read as tiles; else None."""
        ...

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
        Whether the array's second dimension is the rows of X.
    decode
        Converts stored values to those of X.
    dtype
        Dtype of decoded values.
    place
        The Zarr array, if its chunks may be read as tiles.
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
            msg = f"{array.where} holds text or objects; X must hold real numbers."
            raise InputError(msg)
        self._array, self._transposed, self._decode = array, transposed, decode
        self.shape = (columns, rows) if transposed else (rows, columns)
        self.dtype = block_dtype(array.dtype if dtype is None else dtype, array.where)
        self.place = None if transposed or decode is not None else place
        chunks = array.chunks or (1, 1)
        self.row_multiple = max(1, min(chunks[1 if transposed else 0], self.shape[0]))
        self._height = max(1, min(chunks[0], rows))
        self.held_bytes = array.held_bytes + READ_BYTES

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop``, shape (stop - start, n_features), of `dtype`."""
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
    """A group of arrays and groups in a file or store. Names are paths with slashes, empty for the group itself."""

    @property
    def where(self) -> str:
        """Name in messages."""
        ...

    def members(self, name: str = "") -> tuple[str, ...]:
        """Return the sorted names of the direct members of a group; none if `name` is not a group."""
        ...

    def arrays(self) -> dict[str, int]:
        """Return the number of dimensions of each array directly in the folder, by sorted name."""
        ...

    def is_group(self, name: str) -> bool:
        """Return whether `name` is a group."""
        ...

    def array(self, name: str) -> Array | None:
        """Return the array `name`, or None if there is none."""
        ...

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of an array or a group."""
        ...

    def identity(self, arrays: tuple[str, ...], selection: Mapping[str, Any]) -> dict[str, Any]:
        """Return the state of `arrays` and the selection, JSON-able, for change detection."""
        ...


def parts_of(name: str) -> tuple[str, ...]:
    """Return the names of the three arrays of a sparse matrix in a group."""
    return tuple(f"{name}/{part}" if name else part for part in CSR_PARTS[:3])


def is_sparse_group(folder: Folder, name: str) -> bool:
    """Return whether `name` is a group with the three arrays of a sparse matrix."""
    return folder.is_group(name) and all(folder.array(path) is not None for path in parts_of(name))


def sparse_matrix(folder: Folder, name: str) -> CsrParts | CscRows:
    """Open a sparse matrix in a group: ``data``, ``indices``, ``indptr``, and its shape as an attribute or dataset.

    Whether it is CSR or CSC follows from the group's encoding attribute, as in AnnData, or else from the length of
    ``indptr``; CSR if that is ambiguous. An unknown encoding raises :class:`InputError`.
    """
    where = f"{folder.where}:{name}" if name else folder.where
    attributes = folder.attributes(name)
    data, indices, indptr = (matrix_part(folder, path) for path in parts_of(name))
    shape = check_shape(stated_shape(folder, name, attributes, where), where)
    stated = attributes.get("encoding-type", attributes.get("h5sparse_format"))
    if stated is None:
        by_columns = shape[0] != shape[1] and indptr.shape == (shape[1] + 1,)
    elif text_of(stated) in ENCODINGS:
        by_columns = ENCODINGS[text_of(stated)] == "csc"
    else:
        msg = f"{where} is encoded as {text_of(stated)!r}; X can be one of {shorten_names(tuple(ENCODINGS))}."
        raise InputError(msg)
    made = CscRows if by_columns else CsrParts
    return made(where, shape, data, indices, indptr)


def matrix_part(folder: Folder, path: str) -> Array:
    """Return one of the arrays of a sparse matrix; :class:`InputError` if there is none of that name."""
    found = folder.array(path)
    if found is None:
        msg = f"{folder.where}:{path} is no array; the parts of a sparse matrix are."
        raise InputError(msg)
    return found


def stated_shape(folder: Folder, name: str, attributes: Mapping[str, Any], where: str) -> tuple[int, ...]:
    """Return the shape of a sparse matrix in a group, an attribute or dataset; :class:`InputError` if there is none."""
    stated: Any = attributes.get("shape", attributes.get("h5sparse_shape"))
    if stated is None:
        found = folder.array(f"{name}/shape" if name else "shape")
        stated = None if found is None else found[:]
    sides = None if stated is None else np.asarray(stated).ravel()
    if sides is None or sides.dtype.kind not in "iu":
        msg = (
            f"{where} does not say how many columns its matrix has: give it an attribute or a dataset 'shape', two "
            "whole numbers."
        )
        raise InputError(msg)
    return tuple(int(size) for size in sides)
