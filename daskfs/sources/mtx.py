"""X as a Matrix Market file, coordinate or array.

If the entries of a file are sorted by the rows of X, each band reads only its own range of bytes. Otherwise every band
reads each range that may hold its rows; for unsorted entries, that is the whole file.

Arrow parses the lines, range by range. SciPy's reader is not used, because that of SciPy 1.17 crashes the process on
some damaged files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.kernels.digits import mark_spelled
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import check_shape, file_identity, refuse_options
from daskfs.sources.csr import canonical
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.lines import SCANS_KEPT, LineRanges, cut_lines, refuse_other_encodings
from daskfs.sources.resolve import resolve_feature_names
from daskfs.storage import StoragePath, first_line
from daskfs.storage.file_cache import cached_by_file

SCAN_BYTES = 1 << 20
MTX_HEADER_BYTES = 1 << 20
MTX_FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
INDICES, VALUES = ("row", "column"), ("value",)


@dataclass(frozen=True)
class MtxHeader:
    """The header of a file of `size` bytes, which `n_entries` lines follow.

    Attributes
    ----------
    is_sparse
        Whether each line is a stored entry ("coordinate"), or a value, column by column ("array").
    has_values
        Whether entries have values; if not, all are 1.
    """

    is_sparse: bool
    has_values: bool
    shape: tuple[int, ...]
    n_entries: int
    size: int


@cached_by_file(SCANS_KEPT)
def scan(path: StoragePath) -> tuple[MtxHeader, LineRanges, np.ndarray]:
    """Read the header and parse all lines once.

    Returns the header, the ranges of lines, and the lowest and highest row and column of each range, from 0, int64,
    shape (n_ranges, 2, 2). A file with another number of entries than its header says raises :class:`InputError`.
    """
    header = _read_header(path)
    bounds = list[list[tuple[int, int]]]()

    def count(lines: bytes, first: int) -> int:
        places = parse(path, header, lines, first, with_values=False)[:2]
        if places[0].size:
            bounds.append([(int(indices.min()), int(indices.max())) for indices in places])
        return int(places[0].size)

    ranges = cut_lines(path, path.stat().st_size, header.size, SCAN_BYTES, count)
    if ranges.n_rows != header.n_entries:
        msg = f"{path} is damaged: it has {ranges.n_rows} entries, and says that it has {header.n_entries}."
        raise InputError(msg)
    return header, ranges, np.array(bounds, dtype=np.int64).reshape(-1, 2, 2)


class MtxSource(LabeledSource):
    """A matrix in Matrix Market format, float64: CSR rows for a coordinate file, dense ones for an array file.

    With ``spec.transpose`` the columns of the file are the rows of X, as for the features x cells of single-cell
    programs. Duplicate entries are added. Labels and names can only come from other files.
    """

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec, "transpose")
        self._path, self._transposed = path, spec.transpose
        self._header, self._ranges, bounds = scan(path)
        header = self._header
        super().__init__(spec)
        self._bounds = bounds[:, 1 if spec.transpose else 0]
        shape = check_shape(header.shape[::-1] if spec.transpose else header.shape, str(path))
        names, identity = resolve_feature_names(spec, shape[1]), file_identity("mtx", path, transpose=spec.transpose)
        nnz = header.n_entries if header.is_sparse else None
        self.info = self.describe(shape, np.float64, names, identity, nnz)

    def times_read(self, band_rows: int) -> float:
        """Return the mean number of times that bands of `band_rows` rows read a byte of the file; 1 if it is sorted."""
        if np.all(self._bounds[1:, 0] >= self._bounds[:-1, 1]):
            return 1.0
        weights = self._ranges.ends - self._ranges.starts
        bands = self._bounds // band_rows
        return float(np.sum(weights * (bands[:, 1] - bands[:, 0] + 1)) / max(int(weights.sum()), 1))

    def _read_rows(self, start: int, stop: int) -> Block:
        shape = (stop - start, self.info.n_features)
        if not self.info.is_sparse:
            out = np.zeros(shape)
            for rows, columns, values in self._entries(start, stop):
                out[rows, columns] = values
            return out
        entries = list(self._entries(start, stop))
        if not entries:
            return sp.csr_matrix(shape, dtype=np.float64)
        rows, columns, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        return canonical(sp.coo_matrix((values, (rows, columns)), shape=shape).tocsr(), str(self._path))

    def _entries(self, start: int, stop: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield (row - start, column, value) of the entries in rows ``start:stop``, in the order of the file."""
        ranges = np.flatnonzero((self._bounds[:, 0] < stop) & (self._bounds[:, 1] >= start))
        for first, _, data in self._ranges.read(ranges):
            rows, columns, values = parse(self._path, self._header, data.tobytes(), first)
            if self._transposed:
                rows, columns = columns, rows
            is_inside = (rows >= start) & (rows < stop)
            # int32 suffices for the rows of a band, and for features (MOST_FEATURES)
            yield (rows[is_inside] - start).astype(np.int32), columns[is_inside].astype(np.int32), values[is_inside]


def _read_header(path: StoragePath) -> MtxHeader:
    """Read the lines before the entries; raise :class:`InputError` for another format or an unsupported matrix."""
    with path.open("rb") as file:
        head = file.read(MTX_HEADER_BYTES)
    refuse_other_encodings(head[:4], path)
    lines = head.splitlines(keepends=True)
    words = lines[0].split() if lines else []
    if len(words) != 5 or words[0].lower() != b"%%matrixmarket":
        msg = f"{path} is no Matrix Market file, whose first line begins with %%MatrixMarket matrix."
        raise InputError(msg)
    kind, form, field, symmetry = (word.decode("utf-8", "replace").lower() for word in words[1:])
    if kind != "matrix" or form not in ("coordinate", "array"):
        msg = f"{path} holds a {kind} {form}; X must be a matrix, coordinate or array."
        raise InputError(msg)
    if field not in MTX_FIELDS or (field == "pattern" and form == "array"):
        msg = f"{path} has {field} values; X must hold real numbers: {', '.join(MTX_FIELDS)}."
        raise InputError(msg)
    if symmetry != "general":
        msg = f"{path} is {symmetry}, so that half of the entries stand for all; save it as a general matrix."
        raise InputError(msg)
    size = 0
    for line in lines:
        size += len(line)
        if line.strip() and not line.startswith(b"%"):
            break
    else:
        msg = f"{path} has no line with the shape of its matrix."
        raise InputError(msg)
    try:
        shape = tuple(int(word) for word in line.split())
    except ValueError:
        shape = ()
    if len(shape) != (3 if form == "coordinate" else 2) or min(shape) < 0:
        msg = f"{path}: {line[:80].decode('utf-8', 'replace').strip()!r} is not the shape of a matrix."
        raise InputError(msg)
    n_entries = shape[2] if form == "coordinate" else shape[0] * shape[1]
    return MtxHeader(form == "coordinate", field != "pattern", shape[:2], n_entries, size)


def parse(
    path: StoragePath, header: MtxHeader, data: bytes, first: int, *, with_values: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and columns, from 0, int64, and values, float64, each of shape (n,), of the entries in some lines.

    `data` are whole lines, whose first entry has the number `first`. Without `with_values` the values of a coordinate
    file are not parsed, and 1.
    """
    if not header.is_sparse:
        (values,) = _columns(path, data, VALUES, VALUES, first)
        places, height = np.arange(first, first + len(values)), max(header.shape[0], 1)
        return places % height, places // height, values
    names = INDICES + VALUES if header.has_values else INDICES
    row, column, *entry_values = _columns(path, data, names, names if with_values else INDICES, first)
    for indices, size in zip((row, column), header.shape, strict=True):
        if indices.size and (indices.min() < 1 or indices.max() > size):
            at = int(np.flatnonzero((indices < 1) | (indices > size))[0])
            msg = (
                f"{path}: entry {first + at} (the first is 0) is of row {int(row[at])} and column {int(column[at])}, "
                f"counted from 1, and the matrix has {header.shape[0]} rows and {header.shape[1]} columns."
            )
            raise InputError(msg)
    return row - 1, column - 1, entry_values[0] if entry_values else np.ones(len(row))


def _columns(
    path: StoragePath, data: bytes, names: tuple[str, ...], chosen_names: tuple[str, ...], first: int
) -> list[np.ndarray]:
    """Return the `chosen_names` columns of some lines, separated by any whitespace."""
    try:
        table = _table(data, names, chosen_names)
    except pa.ArrowInvalid:
        data = re.sub(rb"[ \t\r]*\n[ \t\r]*", b"\n", re.sub(rb"[ \t\r]+", b" ", data)).strip() + b"\n"
        try:
            table = _table(data, names, chosen_names)
        except pa.ArrowInvalid as error:
            message = re.sub(r"Row #(\d+): ", "", first_line(error))
            msg = f"{path} cannot be read from entry {first} (the first is 0) on: {message}"
            raise InputError(msg) from error
    column_by_name = {name: table.column(name).to_numpy() for name in chosen_names}
    for name in {*VALUES} & {*chosen_names}:
        column_by_name[name] = column_by_name[name].copy()
        mark_spelled(column_by_name[name], lambda: _table(data, names, VALUES, pa.string()).column(0).to_pylist())
    return list(column_by_name.values())


def _table(data: bytes, names: tuple[str, ...], chosen_names: tuple[str, ...], kind: Any = None) -> Any:
    types = {name: kind or pa.float64() if name in VALUES else pa.int64() for name in chosen_names}
    if not data.strip():
        return pa.table({name: pa.array([], types[name]) for name in chosen_names})
    reading = pyarrow.csv.ReadOptions(column_names=list(names), use_threads=False, block_size=max(1024, len(data) + 1))
    cutting = pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True)
    conversion = pyarrow.csv.ConvertOptions(
        column_types=types, include_columns=list(chosen_names), null_values=["nan", "NaN", "NAN"]
    )
    table = pyarrow.csv.read_csv(pa.BufferReader(data), reading, cutting, conversion)
    if any(table.column(name).null_count for name in chosen_names if name in INDICES):
        msg = "a row or a column that is no number"
        raise pa.ArrowInvalid(msg)
    return table
