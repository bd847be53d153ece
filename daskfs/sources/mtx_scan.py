"""The header of a Matrix Market file, and the rows and columns in each range of its lines, found in one pass.

Arrow parses the lines, range by range. SciPy's reader is not used, because that of SciPy 1.17 crashes the process on
some damaged files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import first_line
from daskfs.sources.lines import read_lines, refuse_other_encodings
from daskfs.storage import StoragePath

SCAN_BYTES = 1 << 20
SCANS_KEPT = 32
HEADER_BYTES = 1 << 20
BANNER = b"%%MatrixMarket"
FIELDS = ("real", "double", "integer", "unsigned-integer", "pattern")
INDICES, VALUES = ("row", "column"), ("value",)

Format = Literal["coordinate", "array"]


@dataclass(frozen=True)
class MtxHeader:
    """The header of a file.

    Attributes
    ----------
    format
        "coordinate": a line per stored entry; or "array": a line per value, column by column.
    has_values
        Whether entries have values; if not, all are 1.
    n_rows, n_columns
        Shape of the matrix in the file.
    n_entries
        Number of lines of entries.
    size
        Bytes before the entries.
    """

    format: Format
    has_values: bool
    n_rows: int
    n_columns: int
    n_entries: int
    size: int


@dataclass(frozen=True, eq=False)
class MtxScan:
    """The layout of a file.

    Attributes
    ----------
    header
        The header.
    starts
        Offsets of ranges of whole lines, and the end of the last one, integers.
    entries
        Number of the first entry of each range, and the number of entries, integers.
    rows, columns
        Lowest and highest row and column of each range, from 0, int64, shape (n_ranges, 2).
    """

    header: MtxHeader
    starts: np.ndarray
    entries: np.ndarray
    rows: np.ndarray
    columns: np.ndarray


@lru_cache(maxsize=SCANS_KEPT)
def scan(path: StoragePath, size: int, mtime_ns: int) -> MtxScan:
    """Scan the file at `path`; the result is cached per process and file state (`size` and `mtime_ns`).

    A file with another number of entries than its header says raises :class:`InputError`.
    """
    del mtime_ns
    header = read_header(path)
    starts, entries = [header.size], [0]
    rows, columns = [], []
    for offset, block in read_lines(path, size, header.size, SCAN_BYTES):
        row, column = parse_places(path, header, block, entries[-1])
        if row.size:
            rows.append((int(row.min()), int(row.max())))
            columns.append((int(column.min()), int(column.max())))
            starts.append(offset + len(block))
            entries.append(entries[-1] + row.size)
    if entries[-1] != header.n_entries:
        msg = f"{path} is damaged: it has {entries[-1]} entries, and says that it has {header.n_entries}."
        raise InputError(msg)
    shape = (len(rows), 2)
    return MtxScan(
        header,
        np.array(starts),
        np.array(entries),
        np.array(rows, dtype=np.int64).reshape(shape),
        np.array(columns, dtype=np.int64).reshape(shape),
    )


def read_header(path: StoragePath) -> MtxHeader:
    """Read the lines before the entries; raise :class:`InputError` for another format or an unsupported matrix."""
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    refuse_other_encodings(head[:4], path)
    lines = head.splitlines(keepends=True)
    words = lines[0].split() if lines else []
    if not words or words[0].lower() != BANNER.lower() or len(words) != 5:
        msg = f"{path} is no Matrix Market file, whose first line begins with %%MatrixMarket matrix."
        raise InputError(msg)
    kind, form, field, symmetry = (word.decode("utf-8", "replace").lower() for word in words[1:])
    if kind != "matrix" or form not in ("coordinate", "array"):
        msg = f"{path} holds a {kind} {form}; X must be a matrix, coordinate or array."
        raise InputError(msg)
    if field not in FIELDS or (field == "pattern" and form == "array"):
        msg = f"{path} has {field} values; X must hold real numbers: {', '.join(FIELDS)}."
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
    found: Format = "coordinate" if form == "coordinate" else "array"
    return MtxHeader(found, field != "pattern", shape[0], shape[1], n_entries, size)


def parse(path: StoragePath, header: MtxHeader, data: bytes, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and columns, from 0, int64, and values, float64, each of shape (n,), of the entries in some lines.

    Parameters
    ----------
    path
        The file, for messages.
    header
        Header of the file.
    data
        Whole lines of entries.
    first
        Number of the first entry in `data`.
    """
    if header.format == "array":
        (values,) = _columns(path, data, VALUES, VALUES, first)
        return *_places_in_array(header, first, len(values)), values
    names = INDICES + VALUES if header.has_values else INDICES
    row, column, *given = _columns(path, data, names, names, first)
    row, column = _checked(path, header, row, column, first)
    return row, column, given[0] if given else np.ones(len(row))


def parse_places(path: StoragePath, header: MtxHeader, data: bytes, first: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns as :func:`parse` does, without the values."""
    if header.format == "array":
        return _places_in_array(header, first, len(_columns(path, data, VALUES, VALUES, first)[0]))
    row, column = _columns(path, data, INDICES + VALUES if header.has_values else INDICES, INDICES, first)
    return _checked(path, header, row, column, first)


def _places_in_array(header: MtxHeader, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    places, height = np.arange(first, first + count), max(header.n_rows, 1)
    return places % height, places // height


def _checked(
    path: StoragePath, header: MtxHeader, row: np.ndarray, column: np.ndarray, first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Convert 1-based indices to 0-based ones; raise :class:`InputError` for one out of bounds."""
    for indices, size in ((row, header.n_rows), (column, header.n_columns)):
        if indices.size and (indices.min() < 1 or indices.max() > size):
            at = int(np.flatnonzero((indices < 1) | (indices > size))[0])
            msg = (
                f"{path}: entry {first + at} (the first is 0) is of row {int(row[at])} and column {int(column[at])}, "
                f"counted from 1, and the matrix has {header.n_rows} rows and {header.n_columns} columns."
            )
            raise InputError(msg)
    return row - 1, column - 1


def _columns(
    path: StoragePath, data: bytes, names: tuple[str, ...], wanted: tuple[str, ...], first: int
) -> list[np.ndarray]:
    """Return the `wanted` columns of some lines, separated by any whitespace."""
    import pyarrow as pa

    try:
        table = _table(data, names, wanted)
    except pa.ArrowInvalid:
        even = re.sub(rb"[ \t\r]*\n[ \t\r]*", b"\n", re.sub(rb"[ \t\r]+", b" ", data)).strip()
        try:
            table = _table(even + b"\n", names, wanted)
        except pa.ArrowInvalid as error:
            message = re.sub(r"Row #(\d+): ", "", first_line(error))
            msg = f"{path} cannot be read from entry {first} (the first is 0) on: {message}"
            raise InputError(msg) from error
    return [table.column(name).to_numpy() for name in wanted]


def _table(data: bytes, names: tuple[str, ...], wanted: tuple[str, ...]) -> Any:
    import pyarrow as pa
    import pyarrow.csv

    types = {name: pa.float64() if name in VALUES else pa.int64() for name in wanted}
    if not data.strip():
        return pa.table({name: pa.array([], types[name]) for name in wanted})
    table = pyarrow.csv.read_csv(
        pa.BufferReader(data),
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(names), use_threads=False, block_size=max(1024, len(data) + 1)
        ),
        parse_options=pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, include_columns=list(wanted), null_values=["nan", "NaN", "NAN"]
        ),
    )
    if any(table.column(name).null_count for name in wanted if name in INDICES):
        msg = "a row or a column that is no number"
        raise pa.ArrowInvalid(msg)
    return table
