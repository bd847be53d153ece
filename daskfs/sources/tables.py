"""X as the numeric columns of a table: one file, or the concatenated parts of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.run_warning import CHANGES, RunWarning
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import block_dtype, check_shape, file_identity, refuse_options, shorten_names
from daskfs.sources.columns import TextColumn, arrow_to_labels, arrow_to_names, plain_type
from daskfs.sources.csv_table import CsvTable
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.multifile import FileParts, PartSizes
from daskfs.sources.parquet import ParquetTable
from daskfs.sources.resolve import NON_NUMERIC, resolve_columns, resolve_feature_names
from daskfs.storage import StoragePath

PARQUET_ENDINGS = (".parquet", ".pq")
OPENED_AT_ONCE = 8
"""Objects whose footers or headers are requested concurrently."""

Table = CsvTable | ParquetTable
Result = TypeVar("Result")


def open_table(path: StoragePath, spec: SourceSpec) -> Table:
    """Open the table in a file, whose ending gives the format."""
    if path.suffix.lower() not in PARQUET_ENDINGS:
        return CsvTable(path, spec.delimiter, spec.decimal, [str(value) for value in spec.missing_values])
    refuse_options(spec, "exclude")
    return ParquetTable(path)


class TableSource(LabeledSource):
    """The feature columns of a table.

    Blocks are float32 if all feature columns are; of the columns' common integer type if that has at most 16 bits and
    no value is missing; and float64 otherwise, as for all text tables.

    Parameters
    ----------
    spec
        An index that pandas wrote is no feature: it is the row names, unless the spec names others.
    parts
        The files, with the same columns in the same order, some maybe without rows; None for the one at `path`.
    part_sizes
        Sizes of these files, which are opened when they are read; None to open all of them now.

    Attributes
    ----------
    left_out
        Columns that "non-numeric" leaves out.
    """

    def __init__(
        self, spec: SourceSpec, path: StoragePath, parts: FileParts | None = None, part_sizes: PartSizes | None = None
    ) -> None:
        refuse_options(spec, "exclude", "delimiter", "decimal")
        self.parts = parts
        self._files = [path] if parts is None else files_of(parts)
        self._first = first = open_table(self._files[0], spec)
        self._columns = first.columns
        columns = self._columns
        index = [name for name in first.index_columns if name not in spec.exclude]
        names = next((name for name in index if first.can_name_rows(columns.index(name))), None)
        super().__init__(spec, "column", labels=columns, columns=columns, row_names=columns, default_row_names=names)
        used = {ref.name for ref in self.refs if ref.inside}
        spec = spec.with_keys(exclude=(*spec.exclude, *(name for name in index if name not in used)))
        self._texts, self._spec, self._tables = dict[str, TextColumn](), spec, {0: first}
        self._features = resolve_columns(spec, self._columns, self.refs)
        self.left_out: tuple[str, ...] = ()
        if NON_NUMERIC in spec.exclude and NON_NUMERIC not in columns:
            other = {number for number, _ in first.non_numeric(self._features)}
            empty = [number for number in self._features if number not in other]
            for place in range(len(self._files)):
                empty = self._table(place).empty(empty) if empty else empty
            other |= {*empty} if any(table.n_rows for table in self._tables.values()) else set()
            self._features = [number for number in self._features if number not in other]
            self.left_out = tuple(columns[number] for number in sorted(other))
            if not self._features:
                msg = f"{path} has no feature column left: no column holds numbers but those that data names."
                raise InputError(msg)
        if isinstance(first, CsvTable):
            first.check_features(self._features)
        row_multiple = first.row_multiple
        if part_sizes is None:
            sizes = self._of_all(lambda table: (table.n_rows, table.row_multiple, table.dtypes(self._features)))
            n_rows, row_multiples, dtypes = zip(*sizes, strict=True)
            row_multiple = max(row_multiples)
            part_sizes = PartSizes(n_rows, common_dtype(set().union(*dtypes), str(path)).name)
        self.part_sizes = None if parts is None else part_sizes
        self._offsets = np.cumsum([0, *part_sizes.n_rows])
        if first.kind == "csv" and not self._offsets[-1]:
            msg = f"{path} has a header but no rows."
            raise InputError(msg)
        shape = check_shape((int(self._offsets[-1]), len(self._features)), str(path))
        identity = file_identity(first.kind, path) if parts is None else parts.identity()
        identity = {**identity, "columns": self._features}
        feature_names = resolve_feature_names(spec, shape[1], own_names=[self._columns[i] for i in self._features])
        self.info = self.describe(shape, part_sizes.dtype, feature_names, identity, row_multiple=row_multiple)

    def verify(self) -> list[RunWarning]:
        """Return a warning that names the columns that "non-numeric" leaves out, and hints on columns of groups."""
        return left_out_warnings(self.left_out) + self.group_hints(self._columns)

    def _table(self, number: int) -> Table:
        """Return a table, opened at its first use."""
        if number not in self._tables:
            table, first = open_table(self._files[number], self._spec), self._first
            _check_columns(table, first)
            table.columns = first.columns  # of many tables with equal names only one copy is kept
            self._tables[number] = table
        return self._tables[number]

    def _of_all(self, function: Callable[[Table], Result]) -> list[Result]:
        """Return a function of each table, called when it has just been opened."""
        numbers = range(len(self._files))
        if not self._first.path.is_remote:
            return [function(self._table(number)) for number in numbers]
        with ThreadPoolExecutor(OPENED_AT_ONCE) as threads:
            return list(threads.map(lambda number: function(self._table(number)), numbers))

    def _all_tables(self) -> list[Table]:
        return self._of_all(lambda table: table)

    def unchanged_rows(self, planned: Mapping[str, Any], n_rows: int) -> int:
        """Return `n_rows` if the first parts are those of `planned`, an earlier identity; else :class:`InputError`."""
        assert self.parts is not None
        n_parts = planned["n_parts"]
        first = {**self.info.identity, **self.parts.first(n_parts).identity()}
        if first != planned:
            msg = (
                f"the first {n_parts} files of {self.parts.where}, in the order of their names, are not the unchanged "
                f"{n_parts} files of before; new files go behind them."
            )
            raise InputError(msg)
        return n_rows

    def changed_file(self, rows: slice) -> str | None:
        """Return the first part with some of these rows that was changed or removed, or None."""
        assert self.parts is not None
        first, last = np.searchsorted(self._offsets, [rows.start, rows.stop - 1], side="right") - 1
        return self.parts.changed_file(self._files[first : last + 1])

    def _read_rows(self, start: int, stop: int) -> Block:
        out = np.empty((stop - start, self.info.n_features), dtype=self.info.dtype)
        overlaps = np.maximum(self._offsets[:-1], start) < np.minimum(self._offsets[1:], stop)
        for number in np.flatnonzero(overlaps).tolist():
            before = int(self._offsets[number])
            begin, end = max(start, before), min(stop, int(self._offsets[number + 1]))
            self._table(number).fill(self._features, begin - before, out[begin - start : end - start])
        return out

    def _read_names(self, name: str) -> Iterator[np.ndarray]:
        number = self._columns.index(name)
        for table in self._all_tables():
            for part in table.column_parts(number):
                yield arrow_to_names(part, f"{table.path}:{name}")

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        number, first, tables = self._columns.index(name), self._first, self._all_tables()

        def parts() -> Iterator[Any]:
            return (part for table in tables for part in table.column_parts(number))

        if isinstance(first, CsvTable):
            return self._texts.setdefault(name, TextColumn(parts, first.numerals))()
        kind = first.column_type(number)
        for table in tables[1:]:
            assert isinstance(table, ParquetTable)
            other = table.column_type(number)
            kind = kind if other == kind else _common_type(kind, other, table, name)
        return (arrow_to_labels(part.cast(kind), f"{first.path}:{name}") for part in parts())


def files_of(parts: FileParts) -> list[StoragePath]:
    """Return the parts without the empty files, which text tables without a header may be."""
    files = [file for file, (size, _) in parts.states.items() if size or file.suffix.lower() in PARQUET_ENDINGS]
    if not files:
        msg = f"{parts.where} has only empty files."
        raise InputError(msg)
    return files


def _common_type(kind: Any, other: Any, table: Table, name: str) -> Any:
    """Return the Arrow type that holds the values of both types."""
    import pyarrow as pa

    empty = [pa.table({name: pa.array([], plain_type(one))}) for one in (kind, other)]
    try:
        return pa.concat_tables(empty, promote_options="permissive").schema.field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        msg = f"{table.path}: column {name!r} has type {other}, and {kind} in files before: write one type into all."
        raise InputError(msg) from error


def _check_columns(table: Table, first: Table) -> None:
    """Raise unless a part has the columns of the first one; the message names one that differs."""
    if table.columns == first.columns:
        return
    strange = [name for name in table.columns if name not in first.columns]
    lacking = [name for name in first.columns if name not in table.columns]
    if lacking:
        what = f"has no column {lacking[0]!r}"
    elif strange:
        what = f"has a column {strange[0]!r} more"
    else:
        pairs = zip(table.columns, first.columns, strict=False)
        place = next((i for i, (first_name, other) in enumerate(pairs) if first_name != other), len(first.columns))
        what = f"has its columns in another order, or twice, from column {place} on"
    msg = f"{table.path} {what}, unlike {first.path}: parts of one table have the same columns."
    raise InputError(msg)


LEFT_OUT = "columns left out"
"""Kind of the warning about columns that are no features."""


def left_out_warnings(names: tuple[str, ...]) -> list[RunWarning]:
    """Return the warning that names the columns that "non-numeric" leaves out, if any."""
    text = f"these columns hold no numbers, and are left out: {shorten_names(names)}"
    return [RunWarning(LEFT_OUT, CHANGES, text, names)] if names else []


def common_dtype(dtypes: set[np.dtype[Any]], where: str) -> np.dtype[Any]:
    """Return the dtype in which columns of some dtypes are read together."""
    if all(dtype.kind in "iu" for dtype in dtypes):
        return block_dtype(np.result_type(*dtypes), where)
    return np.dtype(np.float32) if dtypes == {np.dtype(np.float32)} else np.dtype(np.float64)
