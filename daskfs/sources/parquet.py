"""Columns of a Parquet file, read in ranges of rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from daskfs.kernels.digits import as_floats, mark_spelled
from daskfs.sources.cells import DECIMAL_POINT
from daskfs.sources.checks import block_dtype, not_numbers, read_error
from daskfs.sources.columns import plain, plain_type
from daskfs.storage import StoragePath
from daskfs.storage.file_cache import cached_by_file

PANDAS_INDEX = "__index_level_0__"
"""Name that pandas gives to an index without one."""
FOOTERS_KEPT = 4
BATCH_BYTES = 8 << 20
# Each batch has a cost per column that fewer rows would not amortize.
LEAST_BATCH_ROWS = 1024
LABEL_BATCH_ROWS = 1 << 16


@cached_by_file(FOOTERS_KEPT)
def _footer(path: StoragePath) -> Any:
    """Read row groups and schema, of few files, since those of a wide table take megabytes, and long to convert."""
    with _open_file(path, None) as file:
        return file.metadata, file.schema_arrow


@contextmanager
def _open_file(path: StoragePath, footer: Any) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet

    # object stores have a high latency: fetch the wanted parts of a row group in few requests
    is_object = path.is_remote
    with ExitStack() as stack:
        opened = stack.enter_context(path.open("rb", buffering=0)) if is_object else path
        try:
            file = pyarrow.parquet.ParquetFile(opened, metadata=footer, pre_buffer=is_object)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise read_error(path, error, "is truncated or not a Parquet file") from error
        yield stack.enter_context(file)


def _index_of_pandas(schema: Any) -> list[Any]:
    """Return the names of the columns that pandas wrote from an index; none of what is not as pandas writes it."""
    try:
        metadata = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))
    except ValueError:
        return []
    index = metadata.get("index_columns") if isinstance(metadata, dict) else None
    return index if isinstance(index, list) else []


def _is_empty(cells: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    is_missing = pc.is_null(cells, nan_is_null=pa.types.is_floating(cells.type))
    return bool(pc.all(is_missing, min_count=0).as_py())


def numbers_of_column(column: Any) -> np.ndarray:
    """Return the values of an Arrow array of numbers, shape (n_rows,), NaN where missing."""
    import pyarrow as pa

    cells, column = column, plain(column)
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    if column.null_count and pa.types.is_integer(column.type):
        is_missing = np.asarray(column.is_null())
        return np.where(is_missing, np.nan, as_floats(np.asarray(column.fill_null(0))))
    if pa.types.is_null(column.type):
        column = column.cast(pa.float64())
    values = np.asarray(column)
    if pa.types.is_decimal(plain_type(cells.type)) and values.dtype.kind == "f":
        values = values.copy()
        mark_spelled(values, cells.to_pylist)
    return values


class ParquetTable:
    """A Parquet file, read row group by row group in batches; nulls become NaN.

    Integer columns of at most 16 bits keep their dtype if no value is missing.

    Attributes
    ----------
    columns, index_columns
        Names of all columns, and of those that pandas wrote from an index.
    n_rows, row_multiple
        Number of rows in all row groups, and in the largest one.
    """

    kind = "parquet"
    numerals = DECIMAL_POINT

    def __init__(self, path: StoragePath) -> None:
        self.path = path
        self._status = path.stat()
        groups, schema = self._layout()
        self.columns: tuple[str, ...] = tuple(schema.names)
        named = _index_of_pandas(schema)
        self.index_columns = tuple(name for name in self.columns if name in named or name == PANDAS_INDEX)
        sizes = [groups.row_group(index).num_rows for index in range(groups.num_row_groups)]
        self._offsets = np.cumsum([0, *sizes])
        self.n_rows, self.row_multiple = sum(sizes), max([1, *sizes])

    def dtypes(self, columns: Sequence[int]) -> set[np.dtype[Any]]:
        """Return the block dtypes of some columns; float64 for integers with possible nulls.

        A column that is not numeric raises :class:`InputError`.
        """
        if wrong := self.non_numeric(columns):
            raise not_numbers(str(self.path), [(self.columns[index], holds) for index, holds in wrong])
        dtypes = {self._column_dtype(self._layout()[1].field(index)) for index in columns}
        if any(dtype.kind in "iu" for dtype in dtypes) and self._may_have_nulls(columns):
            dtypes.add(np.dtype(np.float64))
        return dtypes

    def non_numeric(self, columns: Sequence[int]) -> list[tuple[int, str]]:
        """Return the columns whose type is not numeric, each with what it holds."""
        import pyarrow as pa

        refused, kinds, schema = [], pa.types, self._layout()[1]
        of = kinds.is_floating, kinds.is_integer, kinds.is_boolean, kinds.is_null, kinds.is_decimal
        for index in columns:
            kind = plain_type(schema.field(index).type)
            if not any(one(kind) for one in of):
                is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
                refused.append((index, "holds text" if is_text else f"holds type {kind}"))
        return refused

    def empty(self, columns: Sequence[int]) -> list[int]:
        """Return the columns in which every value is null or NaN, as footers say, or else the values."""
        left, groups = list(columns), self._layout()[0]
        if groups.num_columns == len(self.columns):  # no nested ones
            for group in map(groups.row_group, range(groups.num_row_groups)):
                statistics = ((column, group.column(column).statistics) for column in left)
                left = [column for column, one in statistics if one is None or not one.has_min_max]
        return [column for column in left if all(map(_is_empty, self.column_parts(column)))]

    def can_name_rows(self, column: int) -> bool:
        """Return whether a column is of text, whole numbers or dates."""
        import pyarrow as pa

        kind = plain_type(self.column_type(column))
        return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))

    def fill(self, columns: Sequence[int], start: int, out: np.ndarray) -> None:
        """Read rows from `start` on into `out`, shape (n_rows, len(columns))."""
        stop = start + len(out)
        # Arrow takes at most 8 bytes per cell of a batch.
        batch_rows = max(LEAST_BATCH_ROWS, BATCH_BYTES // (8 * max(1, len(columns))))
        for first, batch in self._batches(columns, start, stop, batch_rows):
            last = first + len(batch[0])
            begin, end = max(start, first), min(stop, last)
            for position, column in enumerate(batch):
                values = numbers_of_column(column[begin - first : end - first])
                out[begin - start : end - start, position] = as_floats(values, out.dtype)

    def parts(self) -> Iterator[list[Any]]:
        """Return an iterator over all columns as Arrow arrays, one list for each batch of rows."""
        rows = max(LEAST_BATCH_ROWS, BATCH_BYTES // (8 * len(self.columns)))
        return (columns for _, columns in self._batches(range(len(self.columns)), 0, self.n_rows, rows))

    def column_type(self, column: int) -> Any:
        """Return the Arrow type of a column."""
        return self._layout()[1].field(column).type

    def column_parts(self, column: int) -> Iterator[Any]:
        """Return an iterator over one column as Arrow arrays, one for each batch of rows."""
        return (columns[0] for _, columns in self._batches([column], 0, self.n_rows, LABEL_BATCH_ROWS))

    def _layout(self) -> Any:
        return _footer(self.path, status=self._status)

    def _batches(self, columns: Sequence[int], start: int, stop: int, batch_rows: int) -> Any:
        """Yield (first row, columns) for the batches that overlap rows ``start:stop``."""
        import pyarrow as pa

        column_names = {self.columns[column] for column in columns}
        try:
            with _open_file(self.path, self._layout()[0]) as file:
                for group in range(len(self._offsets) - 1):
                    first, group_stop = int(self._offsets[group]), int(self._offsets[group + 1])
                    if group_stop <= start or first >= stop:
                        continue
                    for batch in file.iter_batches(batch_rows, [group], sorted(column_names), use_threads=False):
                        if first < stop and first + batch.num_rows > start:
                            yield first, self._pick(batch, columns)
                        first += batch.num_rows
                        if first >= stop:
                            break
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise read_error(self.path, error, "is damaged") from error

    def _pick(self, batch: Any, columns: Sequence[int]) -> list[Any]:
        # Arrow selects by name: a repeated name selects both columns, and "a" also selects "a.b".
        places: dict[str, list[int]] = {}
        for place, name in enumerate(batch.schema.names):
            places.setdefault(name, []).append(place)
        if len(places) == batch.num_columns:
            return [batch.column(places[self.columns[column]][0]) for column in columns]
        place_of = {column: places[name].pop(0) for column, name in enumerate(self.columns) if name in places}
        return [batch.column(place_of[column]) for column in columns]

    def _column_dtype(self, field: Any) -> np.dtype[Any]:
        import pyarrow as pa

        kind = plain_type(field.type)
        if pa.types.is_null(kind) or pa.types.is_decimal(kind):
            return np.dtype(np.float64)
        return block_dtype(np.dtype(kind.to_pandas_dtype()), f"{self.path}:{field.name}")

    def _may_have_nulls(self, columns: Sequence[int]) -> bool:
        footer, schema = self._layout()
        names = {self.columns[index] for index in columns if schema.field(index).nullable}
        groups = map(footer.row_group, range(footer.num_row_groups))
        chunks = (group.column(index) for group in groups for index in range(footer.num_columns))
        statistics = (chunk.statistics for chunk in chunks if chunk.path_in_schema in names)
        return any(one is None or not one.has_null_count or one.null_count for one in statistics)
