"""Columns of a scanned text table, which Arrow parses one byte range at a time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.sources.checks import first_line
from daskfs.sources.columns import MISSING_CELLS, text_to_labels
from daskfs.sources.csv_scan import CsvScan, scan
from daskfs.sources.lines import read_range
from daskfs.storage import StoragePath

TRUE_CELLS, FALSE_CELLS = ("true", "True", "TRUE"), ("false", "False", "FALSE")


# The header of a .txt table decides between tabs and commas.
DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": None}


class CsvTable:
    """A ``.csv``, ``.tsv`` or ``.txt`` table with a header line, parsed in ranges of rows.

    Values are float64, and missing cells NaN.

    Attributes
    ----------
    layout
        Result of the scan of the file.
    """

    kind = "csv"

    def __init__(self, path: StoragePath) -> None:
        self.path = path
        status = path.stat()
        self.state = (status.st_size, status.st_mtime_ns)
        self.layout: CsvScan = scan(path, *self.state, DELIMITERS[path.suffix.lower()])
        # Columns of true/false in the ranges read so far; these are not parsed as numbers first.
        self._boolean: set[int] = set()

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.layout.columns

    @property
    def n_rows(self) -> int:
        """Number of rows below the header."""
        return self.layout.n_rows

    @property
    def row_multiple(self) -> int:
        """Number of rows parsed at a time."""
        return max(1, min(self.layout.stride, self.layout.n_rows))

    def share_columns(self, columns: tuple[str, ...]) -> None:
        """Share the equal names of another table, so that many tables hold one copy."""
        self.layout = dataclasses.replace(self.layout, columns=columns)

    def dtypes(self, columns: Sequence[int]) -> set[np.dtype[Any]]:
        """Return the block dtypes of some columns: always float64."""
        del columns
        return {np.dtype(np.float64)}

    def check_features(self, columns: Sequence[int]) -> None:
        """Raise :class:`InputError` if a feature column has no name in the header."""
        unnamed = [column for column in columns if self.columns[column] == ""]
        if unnamed:
            msg = (
                f"{self.path}: column {unnamed[0]} has no name, as when a table is written with its row index; give it "
                "a name, or put '' in data.exclude."
            )
            raise InputError(msg)

    def fill(self, columns: Sequence[int], start: int, out: np.ndarray) -> None:
        """Parse rows from `start` on into `out`, shape (n_rows, len(columns))."""
        stop = start + len(out)
        for first, last, data in self._ranges(start, stop):
            table = self._parse_numbers(columns, first, last, data)
            begin, end = max(start, first), min(stop, last)
            for position, column in enumerate(table):
                out[begin - start : end - start, position] = column[begin - first : end - first]

    def read_column(self, column: int) -> Any:
        """Return one column as a chunked Arrow array of text."""
        import pyarrow as pa

        chunks = [chunk for part in self.column_parts(column) for chunk in part.chunks]
        return pa.chunked_array(chunks, type=pa.string())

    def column_parts(self, column: int) -> Iterator[Any]:
        """Yield one column as chunked Arrow arrays of text, one for each parsed range."""
        import pyarrow as pa

        for first, last, data in self._ranges(0, self.layout.n_rows):
            yield self._parse([column], {column: pa.string()}, first, last, data).column(0)

    def read_text_labels(self, column: int) -> np.ndarray:
        """Return one column, shape (n_rows,), as integers, else as floats, else as text."""
        return text_to_labels(self.read_column(column))

    def _ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, np.ndarray]]:
        layout = self.layout
        if start == stop:
            return
        for index in range(start // layout.stride, (stop - 1) // layout.stride + 1):
            data = read_range(self.path, int(layout.starts[index]), int(layout.starts[index + 1]))
            first = index * layout.stride
            yield first, min(first + layout.stride, layout.n_rows), data

    def _parse_numbers(self, columns: Sequence[int], first: int, last: int, data: np.ndarray) -> list[np.ndarray]:
        import pyarrow as pa

        types = {column: pa.bool_() if column in self._boolean else pa.float64() for column in columns}
        try:
            table = self._parse(columns, types, first, last, data)
        except _CellError:
            # Some cell is not a number: read the range as text to find columns of true/false.
            text = self._parse(columns, dict.fromkeys(columns, pa.string()), first, last, data)
            return [
                self._to_numbers(text.column(position), column, first, last) for position, column in enumerate(columns)
            ]
        return [np.asarray(column.cast(pa.float64()).to_numpy()) for column in table.columns]

    def _to_numbers(self, cells: Any, column: int, first: int, last: int) -> np.ndarray:
        import pyarrow as pa
        import pyarrow.compute as pc

        trimmed = pc.utf8_trim_whitespace(cells)
        truth = pc.is_in(trimmed, value_set=pa.array([*TRUE_CELLS, *FALSE_CELLS]))
        if pc.any(truth).as_py():
            if pc.all(pc.or_(truth, trimmed.is_null())).as_py():
                self._boolean.add(column)
            is_true = pc.is_in(trimmed, value_set=pa.array(TRUE_CELLS))
            trimmed = pc.if_else(truth, pc.if_else(is_true, "1", "0"), trimmed)
        try:
            return np.asarray(trimmed.cast(pa.float64()).to_numpy())
        except pa.ArrowInvalid:
            wrong = ((row, cell) for row, cell in enumerate(trimmed.to_pylist()) if not _is_cell(cell))
            row, value = next(wrong, (0, "?"))
        msg = (
            f"{self.path}: column {self.layout.columns[column]!r} has text in rows {first}:{last}, such as "
            f"{value[:40]!r} in row {first + row}. Put the column in data.exclude, or encode it as numbers."
        )
        raise InputError(msg)

    def _parse(self, columns: Sequence[int], types: dict[int, Any], first: int, last: int, data: np.ndarray) -> Any:
        import pyarrow as pa
        import pyarrow.csv

        # Arrow finds columns by name, but names in a file may repeat.
        names = [str(index) for index in range(len(self.layout.columns))]
        try:
            table = pyarrow.csv.read_csv(
                pa.BufferReader(data),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, use_threads=False, block_size=max(1024, len(data) + 1)
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.layout.delimiter, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=[str(column) for column in columns],
                    column_types={str(column): kind for column, kind in types.items()},
                    null_values=list(MISSING_CELLS),
                    strings_can_be_null=True,
                ),
            )
        except pa.ArrowInvalid as error:
            raise self._explained(error, first) from error
        if table.num_rows != last - first:
            msg = (
                f"{self.path}: rows {first}:{last} were read as {table.num_rows} rows; look for stray "
                "double quotes or carriage returns there."
            )
            raise InputError(msg)
        return table

    def _explained(self, error: Exception, first: int) -> Exception:
        message = first_line(error)
        if cells := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
            row, expected, found = (int(number) for number in cells.groups())
            return InputError(
                f"{self.path}: row {first + row - 1} (the first below the header is 0) has {found} cells, "
                f"the header has {expected}."
            )
        if "invalid UTF8" in message:
            return InputError(f"{self.path} is not in UTF-8: {message}")
        if "conversion error" in message:
            return _CellError(message)
        return InputError(f"{self.path} cannot be read from row {first} on: {message}")


class _CellError(Exception):
    """A cell could not be converted to the requested type."""


def _is_cell(cell: str | None) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return "_" not in (cell or "")
