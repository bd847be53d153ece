"""Names of the rows of X, which are read in blocks because there is one for each row."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import split_reference
from daskfs.sources.columns import arrow_to_names
from daskfs.sources.csv_table import CsvTable
from daskfs.sources.label_files import TextLines, array_in_file
from daskfs.sources.resolve import LabelRef
from daskfs.storage import StoragePath

NAMES_AT_ONCE = 2**15
MAX_NAME_BYTES = 512
"""Maximum size of a name in UTF-8, which bounds the memory of a block of names."""
ANOTHER = "name others by data.row_names"


def read_row_names(ref: LabelRef, n_samples: int, parts_of: Callable[[str], Iterator[Any]]) -> Iterator[np.ndarray]:
    """Yield row names in UTF-8 and in order, as arrays of dtype ``S`` and shape (32,768,); the last may be shorter.

    `parts_of` yields the values of a column or member of the source, some rows at a time and in order.

    Raises
    ------
    InputError
        If a name is missing, longer than 512 bytes or not text (names the row), or the number of names is not
        `n_samples`; only the kind of a file is checked before iteration.
    """
    parts = parts_of(ref.name) if ref.inside else _parts_of_file(ref.name)
    return _check_count(_utf8_names(parts, ref.origin), n_samples, ref.origin)


def in_stretches(parts: Iterable[Iterable[bytes]]) -> Iterator[np.ndarray]:
    """Regroup names into arrays of dtype ``S``, shape (32,768,); the last one may be shorter."""
    names = itertools.chain.from_iterable(parts)
    while stretch := list(itertools.islice(names, NAMES_AT_ONCE)):
        yield np.array(stretch, dtype=np.bytes_)


def _check_count(parts: Iterator[list[bytes]], n_samples: int, origin: str) -> Iterator[np.ndarray]:
    count = 0
    for names in in_stretches(parts):
        count += names.size
        if count <= n_samples:
            yield names
    if count != n_samples:
        msg = f"{origin} has {count} names of rows, X has {n_samples} rows: {ANOTHER}."
        raise InputError(msg)


# ------------------------------------------------------------------ names
def _utf8_names(parts: Iterator[Any], origin: str) -> Iterator[list[bytes]]:
    """Yield the checked names of each part in UTF-8."""
    row = 0
    for part in parts:
        values = _values(part, origin)
        names = _all_encoded(values)
        if names is None:  # one by one, to find the faulty row
            names = [_name(value, row + place, origin) for place, value in enumerate(values)]
        row += len(names)
        yield names


def _all_encoded(values: list[Any]) -> list[bytes] | None:
    """Return the names in UTF-8 if all are valid text, or all valid bytes, else None."""
    if not values:
        return []
    try:
        joined = b"\0".join(values) if isinstance(values[0], bytes) else "\0".join(values).encode()
        joined.decode()
    except (TypeError, UnicodeError):
        return None
    names = joined.split(b"\0")
    return names if len(names) == len(values) and max(map(len, names)) <= MAX_NAME_BYTES else None


def _values(part: Any, origin: str) -> list[Any]:
    """Return text, bytes or None for each value; whole numbers and dates become text."""
    if isinstance(part, list):
        return part
    values = np.asarray(part)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or values.dtype.kind not in "USTOiuM":
        msg = (
            f"{origin} has shape {values.shape} and dtype {values.dtype}; names of rows are text or whole numbers, one "
            f"for each row: {ANOTHER}."
        )
        raise InputError(msg)
    if values.dtype.kind == "M":
        return [None if text == "NaT" else text for text in np.datetime_as_string(values).tolist()]
    return list((values.astype(str) if values.dtype.kind in "iu" else values).tolist())


def _name(value: Any, row: int, origin: str) -> bytes:
    if value is None or value != value:
        msg = f"{origin} has no name in row {row}: give every row one, or {ANOTHER}."
        raise InputError(msg)
    try:
        name = value if isinstance(value, bytes) else str(value).encode()
        name.decode()
    except UnicodeError as error:
        msg = f"{origin} has a name in row {row} that is not valid Unicode: {error.reason}."  # type: ignore[attr-defined]
        raise InputError(msg) from error
    is_long = len(name) > MAX_NAME_BYTES
    if is_long or b"\0" in name:
        what = f"{len(name)} bytes, more than {MAX_NAME_BYTES}" if is_long else "a character of code 0"
        msg = f"{origin} has a name in row {row} with {what}: {ANOTHER}."
        raise InputError(msg)
    return name


# ------------------------------------------------------------------ separate files
def _parts_of_file(reference: str) -> Iterator[Any]:
    """Yield blocks of the names in a file.

    The file is an ``.npy`` array or ``.npz`` member, a column of a ``.csv`` table with a header, or else lines of text,
    whose first tab-separated column, or the one of the given number, holds the names.
    """
    if (file_and_member := split_reference(reference)) is None:
        msg = f"data.row_names is {reference!r}: there is no such file."
        raise InputError(msg)
    path, member = file_and_member
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return array_in_file(path, member).in_parts(NAMES_AT_ONCE)
    if suffix == ".csv":
        table = CsvTable(path)
        number = table.find_column(member)
        return (arrow_to_names(part, f"{path}:{table.columns[number]}") for part in table.column_parts(number))
    return _parts_of_lines(path, member)


def _parts_of_lines(path: StoragePath, column: str | None) -> Iterator[list[str | None]]:
    number = 1 if column is None else int(column) if column.isdigit() else 0
    if number < 1:
        msg = f"data.row_names: {path} is text, whose columns between tabs have numbers, not {column!r}."
        raise InputError(msg)

    def name_of(line: str) -> str:
        cells = line.rstrip("\r\n").split("\t")
        return cells[number - 1].strip() if len(cells) >= number else ""

    return TextLines(path, name_of, "a text file in UTF-8 with one name of a row a line").parts()
