"""X as the number columns of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.places import ObjectPath, Place
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.beside import Beside
from daskfs.sources.checks import (
    block_dtype,
    check_range,
    check_shape,
    file_identity,
    first_line,
    refuse_options,
)
from daskfs.sources.columns import arrow_to_labels
from daskfs.sources.resolve import resolve_columns, resolve_feature_names, resolve_labels

BATCH_BYTES = 8 << 20
# Each batch costs a step for each column, which fewer rows would not repay.
LEAST_BATCH_ROWS = 1024
LABEL_BATCH_ROWS = 1 << 16


class ParquetSource:
    """The feature columns of a Parquet file, read row group by row group in batches; nulls become NaN.

    The blocks are float32 when all feature columns are, of the columns' common integer type when that has at
    most 16 bits and no value is missing, and float64 otherwise.
    """

    def __init__(self, spec: SourceSpec, path: Place) -> None:
        refuse_options(spec, exclude=True)
        self._path = path
        self._metadata: Any = None
        with self._open() as file:
            self._metadata = file.metadata
            dtype = self._read_layout(spec, file)
        n_samples, n_features = check_shape((int(self._offsets[-1]), len(self._features)), str(path))
        names = [self._columns[index] for index in self._features]
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=dtype,
            is_sparse=False,
            feature_names=resolve_feature_names(spec, n_features, own=names),
            identity=file_identity("parquet", path, columns=self._features),
            row_multiple=max(1, int(self._offsets[1])),
            has_labels=self._labels is not None,
            beside=self._beside.names,
        )

    def _read_layout(self, spec: SourceSpec, file: Any) -> np.dtype[Any]:
        metadata = file.metadata
        self._columns: tuple[str, ...] = tuple(file.schema_arrow.names)
        self._labels = resolve_labels(spec, self._columns, "column")
        self._beside = Beside(spec, self._columns, "column")
        self._features = resolve_columns(spec, self._columns, self._labels, *self._beside.refs)
        sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
        self._offsets = np.cumsum([0, *sizes])
        return self._common_dtype(file)

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features)."""
        check_range(start, stop, self.info.n_samples)
        out = np.empty((stop - start, self.info.n_features), dtype=self.info.dtype)
        # Arrow holds a number of at most 8 bytes for each cell of a batch.
        batch_rows = max(LEAST_BATCH_ROWS, BATCH_BYTES // (8 * self.info.n_features))
        for first, columns in self._batches(self._features, start, stop, batch_rows):
            last = first + len(columns[0])
            begin, end = max(start, first), min(stop, last)
            for position, column in enumerate(columns):
                out[begin - start : end - start, position] = self._numbers(column[begin - first : end - first])
        return out

    def read_labels(self) -> np.ndarray | None:
        """Return the labels, shape (n_samples,), from the column or file that ``spec.labels`` names."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._read_column)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return one of the columns beside X, shape (n_samples,), as the spec names it; None when it names none."""
        return self._beside.read(name, self.info.n_samples, self._read_column)

    def _read_column(self, name: str) -> np.ndarray:
        import pyarrow as pa

        batches = self._batches([self._columns.index(name)], 0, self.info.n_samples, LABEL_BATCH_ROWS)
        return arrow_to_labels(pa.chunked_array([columns[0] for _, columns in batches]), f"{self._path}:{name}")

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet

        # the parts of a row group that are wanted come in few requests, where each takes its time
        is_object = isinstance(self._path, ObjectPath)
        with ExitStack() as stack:
            opened = stack.enter_context(self._path.open("rb", buffering=0)) if is_object else self._path
            try:
                file = pyarrow.parquet.ParquetFile(opened, metadata=self._metadata, pre_buffer=is_object)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise self._refused(error, "is truncated or not a Parquet file") from error
            yield stack.enter_context(file)

    def _refused(self, error: Exception, what: str) -> Exception:
        """Return what an error in reading means: an object that was not handed out is not damaged."""
        if isinstance(error, OSError) and isinstance(self._path, ObjectPath) and error.errno is not None:
            return error
        return InputError(f"{self._path} {what}: {first_line(error)}")

    def _batches(self, columns: Sequence[int], start: int, stop: int, batch_rows: int) -> Any:
        """Yield (first row, columns) for the batches that reach into rows ``start:stop``."""
        import pyarrow as pa

        wanted = {self._columns[column] for column in columns}
        try:
            with self._open() as file:
                for group in range(len(self._offsets) - 1):
                    first, group_stop = int(self._offsets[group]), int(self._offsets[group + 1])
                    if group_stop <= start or first >= stop:
                        continue
                    for batch in file.iter_batches(batch_rows, [group], sorted(wanted), use_threads=False):
                        if first < stop and first + batch.num_rows > start:
                            yield first, self._pick(batch, columns)
                        first += batch.num_rows
                        if first >= stop:
                            break
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._refused(error, "is damaged") from error

    def _pick(self, batch: Any, columns: Sequence[int]) -> list[Any]:
        # Arrow selects by name: a name that occurs twice brings both columns, and "a" also brings "a.b".
        places = {
            name: batch.schema.get_all_field_indices(name) for name in {self._columns[column] for column in columns}
        }
        picked = []
        for column in columns:
            name = self._columns[column]
            nth = self._columns[:column].count(name) if len(places[name]) > 1 else 0
            picked.append(batch.column(places[name][nth]))
        return picked

    def _numbers(self, column: Any) -> np.ndarray:
        import pyarrow as pa

        if pa.types.is_boolean(column.type):
            column = column.cast(pa.uint8())
        if column.null_count and not pa.types.is_floating(column.type):
            column = column.cast(pa.float64(), safe=False)
        return np.asarray(column.to_numpy(zero_copy_only=False))

    def _common_dtype(self, file: Any) -> np.dtype[Any]:
        kinds: set[np.dtype[Any]] = set()
        for index in self._features:
            kinds.add(self._column_dtype(file.schema_arrow.field(index)))
        if all(kind.kind in "iu" for kind in kinds):
            common = block_dtype(np.result_type(*kinds), str(self._path))
            return np.dtype(np.float64) if self._may_have_nulls(file) else common
        return np.dtype(np.float32) if kinds == {np.dtype(np.float32)} else np.dtype(np.float64)

    def _column_dtype(self, field: Any) -> np.dtype[Any]:
        import pyarrow as pa

        kind = field.type
        if pa.types.is_null(kind):
            return np.dtype(np.float64)
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return block_dtype(np.dtype(kind.to_pandas_dtype()), f"{self._path}:{field.name}")
        what = "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else f"type {kind}"
        raise InputError(
            f"{self._path}: column {field.name!r} holds {what}. Put the column in data.exclude, or "
            "encode it as numbers."
        )

    def _may_have_nulls(self, file: Any) -> bool:
        schema, metadata = file.schema_arrow, file.metadata
        nullable = {name for name in schema.names if schema.field(schema.get_all_field_indices(name)[0]).nullable}
        wanted = {self._columns[index] for index in self._features} & nullable
        for group in range(metadata.num_row_groups):
            for index in range(metadata.num_columns):
                column = metadata.row_group(group).column(index)
                if column.path_in_schema not in wanted:
                    continue
                statistics = column.statistics
                if statistics is None or not statistics.has_null_count or statistics.null_count:
                    return True
        return False
