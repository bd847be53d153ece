"""Text tables, scanned once for ranges of rows, which Arrow parses one at a time."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import column_extremes
from daskfs.kernels.digits import LIMIT, mark_spelled
from daskfs.sources.cells import MISSING_CELLS, NonNumeric, Numerals, trimmed, values_of
from daskfs.sources.checks import not_numbers, shorten_names, unknown_name
from daskfs.sources.lines import NEWLINE, SCANS_KEPT, LineRanges, RowText, read_range, text_blocks, text_size
from daskfs.sources.multifile import table_ending
from daskfs.sources.values import as_number
from daskfs.storage import StoragePath, first_line
from daskfs.storage.file_cache import cached_by_file

CSV_SCAN_BYTES = 4 << 20
RANGE_BYTES = 8 << 20
LEAST_RANGE_ROWS = 256
"""Rows of a range unless these take eight times RANGE_BYTES, because each column of a range takes some time."""
RETURN, QUOTE, POINT = ord("\r"), ord('"'), ord(".")
UNNAMED_INDEX = ""
"""Name that pandas and R give to the column of row names, which is the first."""
DELIMITERS = (",", "\t", ";")
"""Characters between cells; without a choice, the one of these that cuts the header into the most names."""
DECIMAL_COMMA = r"^[-+]?[0-9]*,[0-9]+(?:[eE][-+]?[0-9]+)?$"
"""A number with a decimal comma, for a regular expression."""
HEAD_BYTES = 1 << 16
"""Bytes after the header in which decimal signs are looked for."""


@dataclass(frozen=True, eq=False)
class CsvScan:
    """The layout of a text table.

    `ranges` are those of the rows below the header, without blank lines at the end, whose number is `trailing_blank`.
    """

    columns: tuple[str, ...]
    delimiter: str
    numerals: Numerals
    trailing_blank: int
    ranges: LineRanges


@cached_by_file(SCANS_KEPT)
def scan(path: StoragePath, delimiter: str | None, decimal: str | None) -> CsvScan:
    """Scan the table at `path`, of the given `delimiter` and `decimal`; None to find out.

    An empty or malformed file raises :class:`InputError`.
    """
    size = text_size(path)
    if size == 0:
        msg = f"{path} is empty."
        raise InputError(msg)
    n_quotes = 0
    position, last_byte = 0, 0  # of the block, and the byte before it
    end, n_blank = 0, 0  # of the last value, and the number of newlines after it
    begin, previous = None, 0  # of the first row, and of the row that goes on into the block
    n_lines, first_blank = 0, None  # rows that have ended, and the first blank one
    stride = 0  # rows per range
    starts: list[np.ndarray] = []
    for block in text_blocks(path, size, CSV_SCAN_BYTES):
        data = np.frombuffer(block, dtype=np.uint8)
        newlines = np.flatnonzero(data == NEWLINE)
        quotes = np.flatnonzero(data == QUOTE)
        if len(quotes) or n_quotes % 2:  # newlines within quotes end no row
            newlines = newlines[(np.searchsorted(quotes, newlines) + n_quotes) % 2 == 0]
            n_quotes += len(quotes)
        written = len(data) if data[-1] not in (NEWLINE, RETURN) else len(bytes(block).rstrip(b"\r\n"))
        if written:
            end, n_blank = position + written, 0
        n_blank += len(newlines) - int(np.searchsorted(newlines, written))
        if begin is None and len(newlines):
            begin = previous = position + int(newlines[0]) + 1
            newlines = newlines[1:]
        if len(newlines):
            nexts = newlines + (position + 1)
            lengths = np.diff(nexts, prepend=previous)
            fitting = int(RANGE_BYTES / (int(lengths.sum()) / len(lengths)))
            stride = stride or max(1, fitting, min(LEAST_RANGE_ROWS, 8 * fitting))
            before = np.where(newlines > 0, data[newlines - 1], last_byte)
            blank = np.flatnonzero((lengths == 1) | ((lengths == 2) & (before == RETURN)))
            if first_blank is None and len(blank):
                first_blank = n_lines + int(blank[0])
            n_lines += len(nexts)
            starts.append(nexts[np.arange(n_lines - len(nexts) + 1, n_lines + 1) % stride == 0])
            previous = int(nexts[-1])
        position += len(data)
        last_byte = int(data[-1])
    if n_quotes % 2:
        msg = f'{path} has an odd number of double quotes ("), so a quoted cell never ends.'
        raise InputError(msg)
    begin = position if begin is None else begin
    delimiter, columns = _parse_header(read_range(path, 0, begin).tobytes(), delimiter, path)
    numerals = Numerals(decimal) if decimal else _numerals_of(path, begin, size, delimiter)
    n_rows = n_lines - n_blank + 1 if end > begin else 0
    if len(columns) > 1 and first_blank is not None and first_blank < n_rows:
        msg = f"{path}: row {first_blank} (the first below the header is 0) is a blank line."
        raise InputError(msg)
    offsets = np.concatenate(([begin], *starts)).astype(np.int64)
    offsets = np.append(offsets[offsets < end], max(begin, end))
    firsts = np.minimum(np.arange(len(offsets)) * max(1, stride), n_rows)
    trailing_blank = max(0, n_blank - bool(n_rows))  # the first newline after the last value ends its row
    return CsvScan(columns, delimiter, numerals, trailing_blank, LineRanges(path, offsets[:-1], offsets[1:], firsts))


def _numerals_of(path: StoragePath, start: int, size: int, delimiter: str) -> Numerals:
    """Return the numerals of a table by the cells behind its header, which ends at `start`."""
    stop = min(start + HEAD_BYTES, size)
    text = read_range(path, start, stop).tobytes().decode("utf-8", "replace")
    cells = [cell.strip(' "') for line in text.splitlines() for cell in line.split(delimiter)]
    return Numerals.of_table(cells if stop == size else cells[:-1])  # the last one may be cut


def _parse_header(header: bytes, delimiter: str | None, path: StoragePath) -> tuple[str, tuple[str, ...]]:
    try:
        text = header.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        msg = f"{path}: the header line is not text in UTF-8 ({error.reason})."
        raise InputError(msg) from error
    if (place := next((place for place, sign in enumerate(text) if sign in "\0\r"), -1)) >= 0:
        sign = "a NUL character" if text[place] == "\0" else "a carriage return without a line feed"
        msg = f"{path}: the header line holds {sign} at character {place}: the file is damaged, or no table of text."
        raise InputError(msg)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # by another sign a wide header is one cell
    try:
        cells_by_delimiter = {
            one: next(csv.reader(io.StringIO(text, newline=""), delimiter=one), [])
            for one in ([delimiter] if delimiter else DELIMITERS)
        }
        delimiter, cells = max(cells_by_delimiter.items(), key=lambda item: len(item[1]))
    except csv.Error as error:
        msg = f"{path}: the header line cannot be read: {error}"
        raise InputError(msg) from error
    columns = tuple(cell.strip() for cell in cells)
    if not columns:
        msg = f"{path} starts with a blank line; the first line must hold the column names."
        raise InputError(msg)
    if all(as_number(name) is not None for name in columns):
        msg = f"{path}: the first line holds only numbers; a header line with column names is needed."
        raise InputError(msg)
    return delimiter, columns


class CsvTable:
    """A ``.csv``, ``.tsv`` or ``.txt`` table with a header line, parsed in ranges of rows; maybe compressed by gzip.

    Values are float64, and missing cells NaN.

    Parameters
    ----------
    delimiter
        Character between cells; None for a tab in a ``.tsv`` file, else what fits the header.
    decimal
        Decimal point or comma; None for what cells settle that can mean one thing only, a point if there are none.
    missing_cells
        Cells that are missing beside the empty ones and those of :data:`~daskfs.sources.cells.MISSING_CELLS`.

    Attributes
    ----------
    columns, index_columns
        Names of all columns, and of the one that pandas wrote from an index.
    trailing_blank
        Number of blank lines after the last row.
    """

    kind = "csv"

    def __init__(
        self,
        path: StoragePath,
        delimiter: str | None = None,
        decimal: str | None = None,
        missing_cells: Sequence[str] = (),
    ) -> None:
        self.path, self._missing = path, [*MISSING_CELLS, *missing_cells]
        if delimiter is None and table_ending(path) == ".tsv":
            delimiter = "\t"
        layout = scan(path, delimiter, decimal)
        self.columns, self.trailing_blank = layout.columns, layout.trailing_blank
        self.index_columns = self.columns[:1] if self.columns[0] == UNNAMED_INDEX else ()
        self._delimiter, self.numerals, self._ranges = layout.delimiter, layout.numerals, layout.ranges
        self.n_rows, self.row_multiple = layout.ranges.n_rows, layout.ranges.row_multiple
        # Columns of true/false in the ranges read so far; these are not parsed as numbers first.
        self._boolean: set[int] = set()

    def find_column(self, name: str | None) -> int:
        """Return the index of a column, for None of the only one; else raise :class:`InputError`."""
        if name is None and len(self.columns) > 1:
            msg = f"{self.path} has columns {shorten_names(self.columns)}; name one as '{self.path}:column'."
            raise InputError(msg)
        if name is not None and name not in self.columns:
            raise unknown_name(name, "column", self.columns, str(self.path))
        return 0 if name is None else self.columns.index(name)

    def dtypes(self, columns: Sequence[int]) -> set[np.dtype[Any]]:
        """Return the block dtypes of some columns: always float64."""
        del columns
        return {np.dtype(np.float64)}

    def can_name_rows(self, column: int) -> bool:
        """Return True: any text can."""
        del column
        return True

    def check_features(self, columns: Sequence[int]) -> None:
        """Raise :class:`InputError` if a feature column has no name in the header."""
        if unnamed := [column for column in columns if self.columns[column] == ""]:
            msg = (
                f"{self.path}: column {unnamed[0]} has no name, as when a table is written with its row index; give it "
                "a name, or put '' in data.exclude."
            )
            raise InputError(msg)

    def non_numeric(self, columns: Sequence[int]) -> list[tuple[int, str]]:
        """Return the columns of text in the first range of rows, each with what it holds.

        Those of which more than half of the cells are numbers are no text, but faulty.
        """
        for rows in self._ranges.overlapping(0, min(1, self.n_rows)):
            odds = {column: odd for column, odd in self._from_text(columns, rows) if isinstance(odd, NonNumeric)}
            return [(column, _holds(odd, rows)) for column, odd in odds.items() if not odd.is_rare]
        return []

    def empty(self, columns: Sequence[int]) -> list[int]:
        """Return the columns in which every cell is missing."""
        left = list(columns)
        for rows in self._ranges.overlapping(0, self.n_rows):
            text = self._parse(left, rows).columns if left else []
            left = [column for column, cells in zip(left, text, strict=True) if _is_empty(cells, self._missing)]
        return left

    def fill(self, columns: Sequence[int], start: int, out: np.ndarray) -> None:
        """Parse rows from `start` on into `out`, shape (n_rows, len(columns))."""
        stop = start + len(out)
        for rows in self._ranges.overlapping(start, stop):
            first, last, _ = rows
            begin, end = max(start, first), min(stop, last)
            values = out[begin - start : end - start]
            for position, column in enumerate(self._parse_numbers(columns, rows)):
                values[:, position] = column[begin - first : end - first]
            lowest, highest = column_extremes(values)  # copies no rows
            if large := np.flatnonzero(np.fmax(highest, -lowest) >= LIMIT).tolist():
                text = self._parse([columns[position] for position in large], rows)
                for position, cells in zip(large, text.columns, strict=True):
                    mark_spelled(values[:, position], cells.slice(begin - first, end - begin).to_pylist)

    def parts(self) -> Iterator[list[Any]]:
        """Yield all columns as chunked Arrow arrays, range by range: of numbers or booleans, else of text."""
        columns, numbers = range(len(self.columns)), set[int]()
        for rows in self._ranges.overlapping(0, self.n_rows):
            try:
                part = self._parse(columns, rows, dict.fromkeys(numbers, "float64")).columns
            except _CellError:
                numbers.clear()
                part = self._parse(columns, rows).columns
            for column in {*columns} - numbers:
                cells = trimmed(part[column], self._missing)
                values = values_of(cells, self.numerals)
                part[column] = cells if isinstance(values, NonNumeric) else values
                if self.numerals.is_sure and part[column].type == "float64":
                    numbers.add(column)
            yield part

    def column_parts(self, column: int) -> Iterator[Any]:
        """Yield one column as chunked Arrow arrays of text, one for each parsed range."""
        for rows in self._ranges.overlapping(0, self.n_rows):
            yield self._parse([column], rows).column(0)

    def _parse_numbers(self, columns: Sequence[int], rows: RowText) -> list[np.ndarray]:
        if self.numerals.is_sure or not (rows[2] == POINT).any():
            types = {column: "bool" if column in self._boolean else "float64" for column in columns}
            with contextlib.suppress(_CellError):
                return [column.cast("float64").to_numpy() for column in self._parse(columns, rows, types).columns]
        values = list(self._from_text(columns, rows))
        if odds := [(column, odd) for column, odd in values if isinstance(odd, NonNumeric)]:
            wrong = [(self.columns[column], _holds(odd, rows)) for column, odd in odds]
            markers = [odd.text for _, odd in odds if odd.is_rare and not odd.is_grouped]
            raise not_numbers(str(self.path), wrong, markers)
        self._boolean.update(column for column, cells in values if cells.type == "bool")
        return [cells.cast("float64").to_numpy() for _, cells in values]

    def _from_text(self, columns: Sequence[int], rows: RowText) -> Iterator[tuple[int, Any]]:
        """Yield each column with its values, an Arrow array, or the cells of it that are no numbers."""
        for column, cells in zip(columns, self._parse(columns, rows).columns, strict=True):
            yield column, values_of(trimmed(cells, self._missing), self.numerals)

    def _parse(self, columns: Sequence[int], rows: RowText, types: Mapping[int, str] | None = None) -> Any:
        """Return columns as an Arrow table, of text where `types` has no other type."""
        import pyarrow as pa
        import pyarrow.csv

        first, last, data = rows
        # Arrow finds columns by name, but names in a file may repeat.
        names = [str(index) for index in range(len(self.columns))]
        reading = pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(1024, len(data) + 1))
        cutting = pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False)
        conversion = pyarrow.csv.ConvertOptions(
            include_columns=[str(column) for column in columns],
            column_types={str(column): (types or {}).get(column, "string") for column in columns},
            null_values=self._missing,
            strings_can_be_null=True,
            decimal_point=self.numerals.decimal,
        )
        try:
            table = pyarrow.csv.read_csv(pa.BufferReader(data), reading, cutting, conversion)
        except pa.ArrowInvalid as error:
            raise self._explain_error(error, first) from error
        if table.num_rows != last - first:
            msg = (
                f"{self.path}: rows {first}:{last} were read as {table.num_rows} rows; look for stray "
                "double quotes or carriage returns there."
            )
            raise InputError(msg)
        return table

    def _explain_error(self, error: Exception, first: int) -> Exception:
        message = first_line(error)
        if cells := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            row, expected, n_cells = (int(number) for number in cells.groups())
            return InputError(
                f"{self.path}: row {first + row - 1} (the first below the header is 0) has {n_cells} cells, "
                f"the header has {expected}."
            )
        if "invalid UTF8" in message:
            return InputError(f"{self.path} is not in UTF-8: {message}")
        if "conversion error" in message:
            return _CellError(message)
        return InputError(f"{self.path} cannot be read from row {first} on: {message}")


def _is_empty(cells: Any, missing: Sequence[str]) -> bool:
    # the first cell says no for nearly all columns
    return not len(trimmed(cells[:1], missing).drop_null()) and not len(trimmed(cells, missing).drop_null())


class _CellError(Exception):
    """A cell could not be converted to the requested type."""


def _holds(odd: NonNumeric, rows: RowText) -> str:
    first, last, _ = rows
    count = f"{odd.count} of {odd.n_present} cells of rows {first}:{last}"
    hint = " (set data.decimal to a comma if it is one)" if re.match(DECIMAL_COMMA, odd.text) else ""
    if odd.is_grouped:
        hint = " (its sign may separate thousands or decimals: set data.decimal, or remove separators of thousands)"
    return f"has text in {count}, such as {odd.text[:40]!r} in row {first + odd.row}{hint}"
