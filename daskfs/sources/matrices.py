"""X in an HDF5 file or Zarr group: one dense array, or the three arrays of a sparse matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats
from daskfs.sources.checks import block_dtype, check_shape, shorten_names
from daskfs.sources.csc import CscRows
from daskfs.sources.csr import CSR_PARTS, CsrParts
from daskfs.sources.hdf5 import Hdf5Array, Hdf5Folder, text_of
from daskfs.sources.zarr_array import ZarrFolder, ZarrMember

READ_BYTES = 4 << 20
"""Bytes of rows that are read and converted at a time, unless a chunk is larger."""
ENCODINGS = {"csr_matrix": "csr", "csc_matrix": "csc", "csr": "csr", "csc": "csc"}

SourceArray = Hdf5Array | ZarrMember
Folder = Hdf5Folder | ZarrFolder


class DenseMatrix:
    """A dense array with two dimensions.

    Parameters
    ----------
    transposed
        Whether the array's second dimension is the rows of X.
    decode, dtype
        Converts stored values to those of X, of this dtype.

    Attributes
    ----------
    shape, dtype, row_multiple, held_bytes
        As of :class:`daskfs.sources.csr.SparseParts`.
    place
        The Zarr array, if its chunks may be read as tiles; else None.
    row_axis
        Dimension of the array along the rows of X.
    """

    is_sparse = False
    nnz = None

    def __init__(
        self,
        array: SourceArray,
        *,
        transposed: bool = False,
        decode: Callable[[np.ndarray], np.ndarray] | None = None,
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        rows, columns = check_shape(array.shape, array.where)
        if array.dtype.kind == "O":
            msg = f"{array.where} holds text or objects; X must hold real numbers."
            raise InputError(msg)
        self._array, self._transposed, self._decode = array, transposed, decode
        self.shape = (columns, rows) if transposed else (rows, columns)
        self.dtype = block_dtype(array.dtype if dtype is None else dtype, array.where)
        is_plain = not transposed and decode is None
        self.place = array if is_plain and isinstance(array, ZarrMember) else None
        chunks = array.chunks or (1, 1)
        self.row_axis = 1 if transposed else 0
        self.row_multiple = max(1, min(chunks[self.row_axis], self.shape[0]))
        self._height = max(1, min(chunks[0], rows))
        self.held_bytes = array.held_bytes + READ_BYTES

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Return rows ``start:stop``, shape (stop - start, n_features), of `dtype`."""
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        if self._transposed:
            for begin, end in self._parts(0, self.shape[1], stop - start):
                out[:, begin:end] = self._decode_values(self._array[begin:end, start:stop]).T
        else:
            for begin, end in self._parts(start, stop, self.shape[1]):
                part = out[begin - start : end - start]
                if self._decode is None:
                    self._array.fill(part, begin)
                else:
                    part[...] = self._decode_values(self._array[begin:end])
        return out

    def _decode_values(self, values: np.ndarray) -> np.ndarray:
        return as_floats(values, self.dtype) if self._decode is None else self._decode(values)

    def _parts(self, start: int, stop: int, width: int) -> list[tuple[int, int]]:
        """Cut a range along the array's first dimension into parts that end where chunks do."""
        row_bytes = max(1, width * self._array.dtype.itemsize)
        step = max(1, READ_BYTES // row_bytes // self._height) * self._height
        bounds = [start, *range(start - start % step + step, stop, step), stop]
        return [(begin, end) for begin, end in itertools.pairwise(bounds) if begin < end]


Matrix = DenseMatrix | CsrParts | CscRows


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


def matrix_part(folder: Folder, path: str) -> SourceArray:
    """Return one of the arrays of a sparse matrix; :class:`InputError` if there is none of that name."""
    if (part := folder.array(path)) is None:
        msg = f"{folder.where}:{path} is no array; the parts of a sparse matrix are."
        raise InputError(msg)
    return part


def stated_shape(folder: Folder, name: str, attributes: Mapping[str, Any], where: str) -> tuple[int, ...]:
    """Return the shape of a sparse matrix in a group, an attribute or dataset; :class:`InputError` if there is none."""
    stated: Any = attributes.get("shape", attributes.get("h5sparse_shape"))
    if stated is None:
        array = folder.array(f"{name}/shape" if name else "shape")
        stated = None if array is None else array[:]
    sides = np.asarray(stated).ravel()
    if sides.dtype.kind not in "iu":
        msg = (
            f"{where} does not say how many columns its matrix has: give it an attribute or a dataset 'shape', two "
            "whole numbers."
        )
        raise InputError(msg)
    return tuple(int(size) for size in sides)
