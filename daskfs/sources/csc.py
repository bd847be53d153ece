"""Row ranges of a CSC matrix, whose entries each process sorts by row once.

The entries of a row are spread over the whole matrix. One pass in bounded memory writes them, in buckets of consecutive
rows, to a temporary file in TMPDIR, from which bands are read. The file has the size of the uncompressed matrix, and is
deleted when the process ends.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, index_dtype, stack_blocks
from daskfs.sources.csr import Part, SparseParts, canonical
from daskfs.sources.unpacked import ScratchFile

BUCKET_BYTES = 16 << 20
"""Target size of a bucket."""
MOST_BUCKETS = 1 << 12
ENTRIES_AT_ONCE = 1 << 18
WAITING_BYTES = 32 << 20
"""Maximum bytes of entries, over all buckets, that wait to be written."""


class CscRows(SparseParts):
    """A CSC matrix in three arrays, read in ranges of rows; `row_multiple` is the number of rows per bucket."""

    def __init__(self, where: str, shape: tuple[int, int], data: Part, indices: Part, indptr: Part) -> None:
        super().__init__(where, shape, data, indices, indptr)
        if indptr.shape[0] != shape[1] + 1 or indices.shape[0] != self.nnz:
            msg = (
                f"{where}: indptr has {indptr.shape[0]} values and there are {indices.shape[0]} indices, but "
                f"{shape[1]} columns and {self.nnz} values need {shape[1] + 1} and as many as values."
            )
            raise InputError(msg)
        rows, columns = map(index_dtype, shape)
        self._entry = np.dtype([("row", rows), ("column", columns), ("value", self.dtype)])
        n_buckets = min(max(1, -(-self.nnz * self._entry.itemsize // BUCKET_BYTES)), MOST_BUCKETS, shape[0])
        self.row_multiple = -(-shape[0] // n_buckets)
        # the pass holds entries as read and sorted; a read holds those of a bucket twice, and their order
        passing = WAITING_BYTES + 8 * ENTRIES_AT_ONCE * self._entry.itemsize
        self.held_bytes += 16 * shape[1] + max(passing, 4 * BUCKET_BYTES)
        self._lock = threading.Lock()
        self._ordered: _Buckets | None = None

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features), with sorted and unique indices."""
        with self._lock:  # else each thread of a worker would write the file
            if self._ordered is None:
                self._ordered = self._in_order()
            buckets = self._ordered
        step = self.row_multiple
        blocks = [self._rows(buckets, number, start, stop) for number in range(start // step, -(-stop // step))]
        return stack_blocks(blocks or [sp.csr_matrix((stop - start, self.shape[1]), dtype=self.dtype)])

    def _rows(self, buckets: _Buckets, number: int, start: int, stop: int) -> sp.csr_matrix:
        first = max(start, number * self.row_multiple)
        last = min(stop, (number + 1) * self.row_multiple)
        entries = buckets.read(number)
        if last - first < self.row_multiple:
            entries = entries[(entries["row"] >= first) & (entries["row"] < last)]
        # a stable sort keeps the columns of a row ascending
        within = entries["row"] - first
        entries = entries[np.argsort(within.astype(np.min_scalar_type(self.row_multiple)), kind="stable")]
        starts = np.concatenate(([0], np.cumsum(np.bincount(within, minlength=last - first))))
        kind = index_dtype(max(self.shape[1], len(entries)))
        parts: Any = (np.ascontiguousarray(entries["value"]), entries["column"].astype(kind), starts.astype(kind))
        return canonical(sp.csr_matrix(parts, shape=(last - first, self.shape[1])), self._where)

    def _in_order(self) -> _Buckets:
        indptr = self._indptr.read(0, self.shape[1] + 1, np.dtype(np.int64))
        if np.any(np.diff(indptr) < 0) or (indptr[0], indptr[-1]) != (0, self.nnz):
            msg = f"{self._where}: indptr does not increase from 0 to {self.nnz}; the file is damaged."
            raise InputError(msg)
        buckets = _Buckets(-(-self.shape[0] // self.row_multiple), self._entry, self._where)
        for start in range(0, self.nnz, ENTRIES_AT_ONCE):
            stop = min(start + ENTRIES_AT_ONCE, self.nnz)
            entries = np.empty(stop - start, self._entry)
            rows = self._indices.read(start, stop)
            if int(rows.min()) < 0 or int(rows.max()) >= self.shape[0]:
                wrong = rows[(rows < 0) | (rows >= self.shape[0])][0]
                msg = f"{self._where}: a value lies in row {int(wrong)}, but the matrix has {self.shape[0]} rows."
                raise InputError(msg)
            first, last = np.searchsorted(indptr, [start, stop - 1], side="right") - 1
            counts = np.diff(np.clip(indptr[first : last + 2], start, stop))
            entries["row"], entries["column"] = rows, np.repeat(np.arange(first, last + 1), counts)
            entries["value"] = self._data.read(start, stop, self.dtype)
            buckets.add(entries, rows // self.row_multiple)
        buckets.flush()
        return buckets


class _Buckets:
    """Entries in an unnamed temporary file, sorted into buckets; the file is deleted with this object."""

    def __init__(self, count: int, entry: np.dtype[Any], where: str) -> None:
        self._entry = entry
        rows = f"the rows of {where}, whose columns are compressed,"
        self._file = ScratchFile(f"{rows} could not be brought into order in", "save the matrix as CSR")
        self._waiting: list[list[np.ndarray]] = [[] for _ in range(count)]
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self._n_waiting = 0

    def add(self, entries: np.ndarray, buckets: np.ndarray) -> None:
        """Add `entries`, structured, shape (n,), to the `buckets` of the given numbers, integers, shape (n,)."""
        order = np.argsort(buckets.astype(np.uint16), kind="stable")  # NumPy sorts uint16 by radix sort
        entries, buckets = entries[order], buckets[order]
        bounds = [0, *(np.flatnonzero(np.diff(buckets)) + 1), len(buckets)]
        for start, stop in itertools.pairwise(bounds):
            self._waiting[int(buckets[start])].append(entries[start:stop].copy())
        self._n_waiting += entries.nbytes
        if self._n_waiting >= WAITING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered entries; a failed write raises :class:`InputError`."""
        for waiting, places in zip(self._waiting, self._places, strict=True):
            if waiting:
                places.append((self._file.size, sum(len(part) for part in waiting)))
                for part in waiting:
                    self._file.append(part.view(np.uint8).data)
                waiting.clear()
        self._n_waiting = 0

    def read(self, bucket: int) -> np.ndarray:
        """Return the entries of a bucket, structured, shape (n,), in the order in which they were added."""
        places = self._places[bucket]
        out = np.empty(sum(count for _, count in places), self._entry)
        bounds = np.cumsum([0, *(count for _, count in places)])
        views = [out[a:b].view(np.uint8).data for a, b in itertools.pairwise(bounds)]
        with self._file.reading() as fill:
            fill((offset, view) for (offset, _), view in zip(places, views, strict=True))
        return out
