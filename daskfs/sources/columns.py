"""Conversion of Arrow columns of labels and names to NumPy vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources.cells import DECIMAL_POINT, NonNumeric, Numerals, numbers_of, trimmed

ROWS_AT_ONCE = 2**20
"""Rows per block, and most rows of a column that is read only once."""


class TextColumn:
    """A column of text, read as int64, else as float64, else as text.

    `read` starts a pass over it: Arrow arrays of text. The first pass finds out what all cells are.
    """

    def __init__(self, read: Callable[[], Iterator[Any]], numerals: Numerals = DECIMAL_POINT) -> None:
        self._read, self._numerals, self._kind, self._few = read, numerals, "", list[Any]()

    def __call__(self) -> Iterator[np.ndarray]:
        """Yield arrays of shape (n,); missing values are NaN among floats, and otherwise ``None`` among objects."""
        if not self._kind:
            self._kind = self._find_kind()
        few, self._few = self._few, []
        for part in few or map(trimmed, self._read()):
            if self._kind == "null":
                yield np.full(len(part), None, dtype=object)
            elif self._kind == "float64":
                yield arrow_to_labels(numbers_of(part, self._numerals), "")
            else:
                yield arrow_to_labels(part.cast(self._kind), "")

    def _find_kind(self) -> str:
        """Return the Arrow type of all cells: null, int64, float64 or string; keep the parts if all are few rows."""
        kind, few, size = "null", list[Any](), 0
        for part in map(trimmed, self._read()):
            size += len(part)
            few = [*few, part] if size <= ROWS_AT_ONCE else []
            if part.null_count == len(part):
                continue
            # Numbers first: the integer parser also takes hexadecimal text, which may be a class name.
            if isinstance(numbers_of(part, self._numerals), NonNumeric):
                return "string"
            try:
                if kind != "float64":
                    part.cast("int64")
                    kind = "int64"
            except ValueError:  # of Arrow
                kind = "float64"
        self._few = few
        return kind


def plain_type(kind: Any) -> Any:
    """Return the Arrow type of the values of a column, which may be encoded by a dictionary."""
    import pyarrow as pa

    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(column: Any) -> Any:
    """Return a (chunked) Arrow array without dictionaries, and decimals as int64 or the nearest float64."""
    import pyarrow as pa

    kind = plain_type(column.type)
    if not pa.types.is_decimal(kind):
        return column if column.type == kind else column.cast(kind)
    # by way of text: the cast to numbers does not round to the nearest
    text = column.cast(kind).cast(pa.decimal256(kind.precision, kind.scale)).cast(pa.string())
    if kind.scale <= 0:
        with contextlib.suppress(pa.ArrowInvalid):  # wider than int64
            return text.cast(pa.int64())
    return text.cast(pa.float64())


def arrow_to_names(column: Any, where: str) -> np.ndarray:
    """Convert a (chunked) Arrow array of text, integers or dates to text, object, shape (n,), None if missing.

    Floats and nested types raise :class:`InputError`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = plain_type(column.type)
    if pa.types.is_floating(kind) or pa.types.is_nested(kind):
        msg = f"{where} has type {kind}; names of rows are text or whole numbers."
        raise InputError(msg)
    try:
        text = pc.utf8_trim_whitespace(column.cast(kind).cast(pa.string()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"{where} has type {kind}, which is no text: {error}"
        raise InputError(msg) from error
    return np.asarray(text.to_numpy(zero_copy_only=False), dtype=object)


def arrow_to_labels(column: Any, where: str) -> np.ndarray:
    """Convert a (chunked) Arrow array of numbers, booleans, text or dates to a vector, shape (n,).

    Rows with equal text share one object. Missing values become NaN among floats, NaT among dates and ``None``
    otherwise. Any other type raises :class:`InputError`.
    """
    import pyarrow as pa

    if isinstance(column, pa.Array):
        column = pa.chunked_array([column])
    column = plain(column)
    kind = column.type
    if pa.types.is_floating(kind):
        return np.asarray(column.cast(pa.float64()).to_numpy())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):  # in UTC if it has a time zone
        return np.asarray(column.to_numpy())
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        if column.null_count == 0:
            return np.asarray(column.to_numpy())
    elif not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        msg = f"{where} has type {kind}; labels must be numbers or text."
        raise InputError(msg)
    encoded = column.dictionary_encode().combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.concat_arrays(encoded.chunks)
    try:
        values = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    except UnicodeDecodeError as error:  # Parquet is read without a look at its text
        msg = f"{where} holds text that is not valid Unicode: {error}."
        raise InputError(msg) from error
    return np.asarray(values[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def in_rows(n_rows: int, read: Callable[[slice], np.ndarray], rows_at_once: int | None = None) -> Iterator[np.ndarray]:
    """Yield ``read(rows)`` for consecutive slices of up to `rows_at_once` rows, by default 2**20."""
    return map(read, row_blocks(n_rows, rows_at_once or ROWS_AT_ONCE))


def with_first_rows(parts: Iterable[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield each part of a column with the number of its first row."""
    row = 0
    for part in parts:
        yield row, part
        row += len(part)


def in_blocks(parts: Iterable[np.ndarray], n_rows: int = ROWS_AT_ONCE) -> Iterator[np.ndarray]:
    """Regroup arrays of shape (n,) and one dtype into arrays of `n_rows` rows; the last one may be shorter."""
    waiting, size = list[np.ndarray](), 0
    for part in parts:
        while size + len(part) >= n_rows:
            first, part = part[: n_rows - size], part[n_rows - size :]
            yield np.concatenate([*waiting, first])
            waiting, size = [], 0
        waiting.append(part)
        size += len(part)
    if size:
        yield np.concatenate(waiting)
