"""Offsets of the rows of a text table, found in one pass over its bytes."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.lines import NEWLINE, refuse_other_encodings
from daskfs.storage import StoragePath, blocks_ahead

SCAN_BYTES = 4 << 20
RANGE_BYTES = 8 << 20
SCANS_KEPT = 32
RETURN, QUOTE = ord("\r"), ord('"')


@dataclass(frozen=True, eq=False)
class CsvScan:
    """The layout of a text table.

    Attributes
    ----------
    columns
        Names in the header.
    delimiter
        Character between cells.
    n_rows
        Number of rows below the header, without trailing blank lines.
    trailing_blank
        Number of blank lines after the last row.
    stride
        Number of rows between known offsets.
    starts
        Offsets of rows 0, stride, 2 stride, ... and of the end of the last row, int64.
    """

    columns: tuple[str, ...]
    delimiter: str
    n_rows: int
    trailing_blank: int
    stride: int
    starts: np.ndarray


@lru_cache(maxsize=SCANS_KEPT)
def scan(path: StoragePath, size: int, mtime_ns: int, delimiter: str | None) -> CsvScan:
    """Scan the table at `path`; the result is cached per process and file state.

    Parameters
    ----------
    path
        The file.
    size, mtime_ns
        State of the file, so that a rewritten file is scanned again.
    delimiter
        Character between cells; ``None`` for a tab if the header has one, else a comma.

    Raises
    ------
    InputError
        If the file is empty or malformed.
    """
    del mtime_ns
    if size == 0:
        msg = f"{path} is empty."
        raise InputError(msg)
    scanner = _Scanner()
    for number, block in enumerate(blocks_ahead(path, size, SCAN_BYTES)):
        if number == 0:
            refuse_other_encodings(bytes(block[:4]), path)
        scanner.feed(np.frombuffer(block, dtype=np.uint8))
    if scanner.in_quotes:
        msg = f'{path} has an odd number of double quotes ("), so a quoted cell never ends.'
        raise InputError(msg)
    with path.open("rb", buffering=0) as file:
        header = file.read(size if scanner.data_start is None else scanner.data_start)
    delimiter, columns = _parse_header(header, delimiter, path)
    return scanner.result(path, delimiter, columns)


class _Scanner:
    """State of the scan between blocks of bytes."""

    def __init__(self) -> None:
        self.data_start: int | None = None
        self.in_quotes = False
        self._position = 0
        self._newlines = 0
        self._stride = 0
        self._starts: list[np.ndarray] = []
        self._last_value = -1
        self._newlines_after_last = 0
        self._previous = -1
        self._first_blank: int | None = None
        self._last_byte = 0

    def feed(self, block: np.ndarray) -> None:
        """Scan the next bytes of the file, uint8, shape (n_bytes,)."""
        newlines = self._row_ends(block)
        self._note_end(block, newlines)
        ends = newlines + self._position
        if self.data_start is None and len(ends):
            self.data_start = self._previous = int(ends[0]) + 1
            newlines, ends = newlines[1:], ends[1:]
        if self.data_start is not None and len(ends):
            self._note_rows(block, newlines, ends)
        self._position += len(block)
        self._last_byte = int(block[-1])

    def _row_ends(self, block: np.ndarray) -> np.ndarray:
        newlines = np.flatnonzero(block == NEWLINE)
        quotes = np.flatnonzero(block == QUOTE)
        if len(quotes) or self.in_quotes:
            inside = (np.searchsorted(quotes, newlines) + self.in_quotes) % 2 == 1
            newlines = newlines[~inside]
            self.in_quotes = (len(quotes) + self.in_quotes) % 2 == 1
        return newlines

    def _note_end(self, block: np.ndarray, newlines: np.ndarray) -> None:
        last = len(block) - 1
        if block[last] in (NEWLINE, RETURN):
            values = np.flatnonzero((block != NEWLINE) & (block != RETURN))
            last = int(values[-1]) if len(values) else -1
        if last >= 0:
            self._last_value = self._position + last
            self._newlines_after_last = 0
        self._newlines_after_last += int(len(newlines) - np.searchsorted(newlines, last))

    def _note_rows(self, block: np.ndarray, newlines: np.ndarray, ends: np.ndarray) -> None:
        begins = np.concatenate(([self._previous], ends[:-1] + 1))
        lengths = ends - begins
        before = np.where(newlines > 0, block[newlines - 1], self._last_byte)
        blank = np.flatnonzero((lengths == 0) | ((lengths == 1) & (before == RETURN)))
        if self._first_blank is None and len(blank):
            self._first_blank = self._newlines + int(blank[0])
        if not self._stride:
            mean = (int(ends[-1]) + 1 - self._previous) / len(ends)
            self._stride = max(1, int(RANGE_BYTES / mean))
        rows = self._newlines + 1 + np.arange(len(ends))
        self._starts.append(ends[rows % self._stride == 0] + 1)
        self._newlines += len(ends)
        self._previous = int(ends[-1]) + 1

    def result(self, path: StoragePath, delimiter: str, columns: tuple[str, ...]) -> CsvScan:
        """Return the layout after all bytes were fed."""
        if self.data_start is None:
            self.data_start = self._position
        if self._last_value < self.data_start:
            n_rows, end = 0, self.data_start
        else:
            n_rows, end = self._newlines - self._newlines_after_last + 1, self._last_value + 1
        if len(columns) > 1 and self._first_blank is not None and self._first_blank < n_rows:
            msg = f"{path}: row {self._first_blank} (the first below the header is 0) is a blank line."
            raise InputError(msg)
        starts = np.concatenate(([self.data_start], *self._starts)).astype(np.int64)
        starts = np.append(starts[starts < end], end)
        starts.flags.writeable = False
        # The first newline after the last value ends its row.
        trailing = max(0, self._newlines_after_last - (1 if n_rows else 0))
        return CsvScan(columns, delimiter, n_rows, trailing, self._stride or 1, starts)


def _parse_header(header: bytes, delimiter: str | None, path: StoragePath) -> tuple[str, tuple[str, ...]]:
    try:
        text = header.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        msg = f"{path}: the header line is not text in UTF-8 ({error.reason})."
        raise InputError(msg) from error
    if delimiter is None:
        delimiter = "\t" if "\t" in text else ","
    try:
        cells = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error as error:
        msg = f"{path}: the header line cannot be read: {error}"
        raise InputError(msg) from error
    columns = tuple(cell.strip() for cell in cells)
    if not columns:
        msg = f"{path} starts with a blank line; the first line must hold the column names."
        raise InputError(msg)
    if all(_is_number(name) for name in columns):
        msg = f"{path}: the first line holds only numbers; a header line with column names is needed."
        raise InputError(msg)
    return delimiter, columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
