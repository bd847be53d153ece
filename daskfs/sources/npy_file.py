"""Rows of an ``.npy`` payload by positioned reads, from a file or an object store.

The file is not memory-mapped: mapped pages count as memory of the worker and could get it killed, although the kernel
may drop them.
"""

from __future__ import annotations

import io
import threading
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats
from daskfs.sources.checks import check_text
from daskfs.sources.columns import in_rows
from daskfs.sources.unpacked import ScratchFile
from daskfs.storage import Fill, StoragePath, first_line

NPY_BUFFER_BYTES = 4 << 20
PAGE_BYTES = 4096
# NumPy refuses headers of more than 10 000 characters, so a valid one fits into this.
NPY_HEADER_BYTES = 16 << 10
# Errors that NumPy raises if the text of a header is damaged.
HEADER_ERRORS = (ValueError, TypeError, SyntaxError, tokenize.TokenError)
HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_PARSING = threading.Lock()
"""NumPy parses headers with ``ast``, which fails in several threads at a time (python/cpython#106905)."""


@dataclass(frozen=True)
class FileRange:
    """Bytes ``offset:offset + size`` of the file at `path`, which is opened for each read."""

    path: StoragePath
    offset: int
    size: int

    def reading(self) -> AbstractContextManager[Fill]:
        """Return a context manager that opens the file and yields its :data:`daskfs.storage.Fill`."""
        return self.path.open_ranges()


def whole_file(path: StoragePath) -> FileRange:
    """Return the location of a plain ``.npy`` file."""
    return FileRange(path, 0, path.stat().st_size)


class NpyFile:
    """An array in ``.npy`` format, read by ranges along its first axis.

    Parameters
    ----------
    location
        The payload, header included.
    where
        Name in messages, for example ``"X.npz:data"``.

    Attributes
    ----------
    shape, dtype, fortran_order
        As the header states them.
    row_multiple
        Cheapest number of rows per read: 1, or a page of each column in Fortran order.
    """

    held_bytes = 0
    is_sparse = False
    nnz = None

    def __init__(self, location: FileRange | ScratchFile, where: str) -> None:
        self._location, self.where = location, where
        head = np.empty(min(NPY_HEADER_BYTES, location.size), np.uint8)
        with location.reading() as fill:
            self._fill(fill, [(location.offset, head)])
        self.shape, self.fortran_order, self.dtype, header_size = parse_header(head.tobytes(), where)
        self.row_multiple = max(1, PAGE_BYTES // max(1, self.dtype.itemsize)) if self.fortran_order else 1
        self._data_offset = location.offset + header_size
        needed = int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize
        present = location.size - header_size
        if present < needed:
            msg = (
                f"{where} is truncated: an array of shape {self.shape} and dtype {self.dtype} takes {needed} "
                f"bytes, there are {present}."
            )
            raise InputError(msg)

    def read(self, start: int, stop: int, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        """Return ``array[start:stop]`` in C order, converted to `dtype` (by default the file's, native)."""
        target = dtype if dtype is not None else self.dtype.newbyteorder("=")
        out = np.empty((stop - start, *self.shape[1:]), dtype=target)
        with self._location.reading() as fill:
            if self.fortran_order and len(self.shape) > 1:
                self._fill_by_columns(fill, start, out)
            else:
                self._fill_by_rows(fill, start, out)
        check_text(out, self.where, start)
        return out

    def read_all(self) -> np.ndarray:
        """Return the whole array in its dtype, for small members such as labels; a scalar gets shape (1,)."""
        return self.read(0, next(iter(self.shape), 1))

    def in_parts(self, rows_at_once: int | None = None) -> Iterator[np.ndarray]:
        """Yield the whole array as :meth:`read_all` returns it, in parts as :func:`~daskfs.sources.columns.in_rows`."""
        return in_rows(next(iter(self.shape), 1), lambda rows: self.read(rows.start, rows.stop), rows_at_once)

    def _fill_by_rows(self, fill: Fill, start: int, out: np.ndarray) -> None:
        flat = out.reshape(-1)
        offset = self._data_offset + start * int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize
        if flat.dtype == self.dtype:
            self._fill(fill, [(offset, flat)])
            return
        step = max(1, NPY_BUFFER_BYTES // max(1, self.dtype.itemsize))
        buffer = np.empty(min(step, flat.size), dtype=self.dtype)
        for first in range(0, flat.size, step):
            part = buffer[: min(step, flat.size - first)]
            self._fill(fill, [(offset + first * self.dtype.itemsize, part)])
            flat[first : first + part.size] = as_floats(part, out.dtype)

    def _fill_by_columns(self, fill: Fill, start: int, out: np.ndarray) -> None:
        if len(self.shape) != 2:
            msg = f"{self.where} has shape {self.shape} in Fortran order; only matrices can be read so."
            raise InputError(msg)
        n_rows, n_columns = out.shape
        # Transpose several columns at once: writing a single one touches a cache line for each row.
        group = max(1, min(n_columns, NPY_BUFFER_BYTES // max(1, n_rows * self.dtype.itemsize)))
        buffer = np.empty((group, n_rows), dtype=self.dtype)
        for first in range(0, n_columns, group):
            part = buffer[: min(group, n_columns - first)]
            items = (column * self.shape[0] + start for column in range(first, first + len(part)))
            offsets = (self._data_offset + item * self.dtype.itemsize for item in items)
            self._fill(fill, zip(offsets, part, strict=True))
            out[:, first : first + len(part)] = as_floats(part, out.dtype).T

    def _fill(self, fill: Fill, parts: Iterable[tuple[int, np.ndarray]]) -> None:
        try:
            fill((offset, values.view(np.uint8).data) for offset, values in parts if values.nbytes)
        except EOFError as error:
            msg = f"{self.where} is truncated: it ended while it was being read."
            raise InputError(msg) from error


def parse_header(head: bytes, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, Fortran order, dtype and length of a header; :class:`InputError` if it is damaged or of objects."""
    stream = io.BytesIO(head)
    try:
        version = np.lib.format.read_magic(stream)
        if version in HEADER_READERS:
            with _PARSING:
                shape, fortran_order, dtype = HEADER_READERS[version](stream)
    except HEADER_ERRORS as error:
        msg = f"{where} is truncated or not in .npy format: {first_line(error)}"
        raise InputError(msg) from error
    if version not in HEADER_READERS:
        msg = f"{where} is in .npy version {version}, which only structured arrays need; save numbers."
        raise InputError(msg)
    if dtype.hasobject:
        msg = f"{where} holds Python objects (dtype object), which are never unpickled; save plain values."
        raise InputError(msg)
    return tuple(int(size) for size in shape), bool(fortran_order), dtype, stream.tell()
