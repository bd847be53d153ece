"""Interface of sources, with their labels and per-sample columns as stored, read some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from daskfs.kernels.blocks import Block
from daskfs.run_warning import RunWarning
from daskfs.sources.base import SourceInfo
from daskfs.sources.checks import check_label_column, check_length, check_values
from daskfs.sources.columns import ROWS_AT_ONCE
from daskfs.sources.sample_columns import SAMPLE_COLUMN_KINDS, whole
from daskfs.sources.values import as_column


@dataclass(frozen=True)
class StoredColumn:
    """Labels or a per-sample column, as stored.

    Parameters
    ----------
    origin
        File and name of the column, for messages.
    what
        "labels", or the key of a per-sample column.
    read
        Starts a pass over the values: arrays of shape (n_rows,) or (n_rows, 1), some rows at a time and in order.
    read_rows
        Reads the values of some rows; None if they are found by a pass alone.
    """

    n_samples: int
    origin: str
    what: str
    read: Callable[[], Iterator[np.ndarray]]
    read_rows: Callable[[slice], np.ndarray] | None = None

    def parts(self) -> Iterator[np.ndarray]:
        """Yield the values, shape (n_rows,), some rows at a time: all at once if they are at most 2**20.

        Dtypes may differ if values are missing in some parts only. :class:`InputError` for a wrong number or type.
        """
        if self.n_samples <= ROWS_AT_ONCE:
            yield self.whole
            return
        count = 0
        for part in map(as_column, self.read()):
            values = check_values(part, self.origin, self.what)
            count += len(values)
            if count <= self.n_samples and len(values):
                yield values
        check_length(count, self.n_samples, self.origin, self.what)

    @cached_property
    def whole(self) -> np.ndarray:
        """All values, shape (n_samples,)."""
        parts = list(map(as_column, self.read())) or [np.empty(0, dtype=object)]
        values = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return check_label_column(values, self.n_samples, self.origin, self.what)


class Source:
    """A reader of data in one format, whose rows can be read by range, any number of times, from any process."""

    info: SourceInfo

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop`` as a C-ordered (stop - start, n_features) array or CSR matrix of ``info.dtype``.

        Values are not checked (NaN stays NaN), the range is (``ValueError``). A read may hold only these rows in
        memory, and at most one unit of the format around them (a row group, a chunk).
        """
        if not 0 <= start <= stop <= self.info.n_samples:
            msg = f"rows {start}:{stop} are not a range within 0:{self.info.n_samples}"
            raise ValueError(msg)
        return self._read_rows(start, stop)

    def _read_rows(self, start: int, stop: int) -> Block:
        """Return some rows, which the source has, as :meth:`read_rows` does."""
        raise NotImplementedError

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, or None if there are none."""
        raise NotImplementedError

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return the per-sample column of a key in :data:`~daskfs.sources.base.SAMPLE_COLUMNS`, or None."""
        raise NotImplementedError

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as :func:`daskfs.sources.row_names.read_row_names` does, or None if there are none."""
        raise NotImplementedError

    def verify(self) -> list[RunWarning]:
        """Check once what reads of rows cannot tell, and return warnings; :class:`InputError` for damage."""
        return []  # reads of rows find all damage that there is a checksum for

    def read_labels(self) -> np.ndarray | None:
        """Return the labels as stored, shape (n_samples,), or None if there are none."""
        column = self.labels_column()
        return None if column is None else column.whole

    def read_sample_column(self, name: str) -> np.ndarray | None:
        """Return a checked per-sample column, shape (n_samples,), or None if the source has none."""
        if (column := self.sample_column(name)) is None:
            return None
        return whole(SAMPLE_COLUMN_KINDS[name], column.whole, column.n_samples, column.origin, name)


class WrappedSource(Source):
    """A source whose rows or values are made from those of another, `whole`."""

    def __init__(self, source: Source) -> None:
        self.whole, self.info = source, source.info
        self.part_sizes = getattr(source, "part_sizes", None)
        self.reading_bytes = getattr(source, "reading_bytes", 0)

    def verify(self) -> list[RunWarning]:
        """Check the other source."""
        return self.whole.verify()

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, or None if there are none."""
        return self._made_from(self.whole.labels_column())

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return a per-sample column, or None if there is none."""
        return self._made_from(self.whole.sample_column(name))

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the names of the rows of the other source, or None if they have none."""
        return self.whole.read_row_names()

    def _made_from(self, column: StoredColumn | None) -> StoredColumn | None:
        if column is None:
            return None
        return StoredColumn(self.info.n_samples, column.origin, column.what, lambda: self._parts_from(column))

    def _parts_from(self, column: StoredColumn) -> Iterator[np.ndarray]:
        """Yield the values of a column of the other source as they are here."""
        raise NotImplementedError
