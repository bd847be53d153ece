"""Some rows of a source, for a look at data that take long."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import numpy as np

from daskfs.kernels.blocks import Block, stack_blocks
from daskfs.sources.stored_column import Source, StoredColumn, WrappedSource

MAX_RANGES = 8
"""Stretches that the rows are taken from. More of them read more of a source that is compressed in large chunks."""


class SomeRows(WrappedSource):
    """`n_samples` rows of a source, which has more, in stretches of equal length that are spread evenly over it.

    Which rows these are depends on the two numbers of rows alone.
    """

    def __init__(self, source: Source, n_samples: int) -> None:
        super().__init__(source)
        info, n_stretches = source.info, min(MAX_RANGES, n_samples)
        cuts = [i * n_samples // n_stretches for i in range(n_stretches + 1)]
        shifts = [i * (info.n_samples - n_samples) // max(n_stretches - 1, 1) for i in range(n_stretches)]
        # first row here, and first and last row there
        self._stretches = [(a, a + s, b + s) for a, b, s in zip(cuts[:-1], cuts[1:], shifts, strict=True)]
        nnz = None if info.nnz is None else info.nnz * n_samples // info.n_samples
        self.info = dataclasses.replace(info, n_samples=n_samples, nnz=nnz)

    def _read_rows(self, start: int, stop: int) -> Block:
        blocks = [self.whole.read_rows(rows.start, rows.stop) for rows in self.rows_of(slice(start, stop))]
        return stack_blocks(blocks) if blocks else self.whole.read_rows(0, 0)

    def rows_of(self, rows: slice) -> list[slice]:
        """Return the rows of the whole source that some of these are."""
        return [
            slice(first + max(rows.start - here, 0), min(last, first + rows.stop - here))
            for here, first, last in self._stretches
            if rows.start < here + last - first and here < rows.stop
        ]

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the names of these rows, or None if rows have no names."""
        names = self.whole.read_row_names()
        return None if names is None else self._select_rows(names)

    def _parts_from(self, column: StoredColumn) -> Iterator[np.ndarray]:
        if (read_rows := column.read_rows) is None:
            return self._select_rows(column.parts())
        return (read_rows(slice(first, last)) for _, first, last in self._stretches)

    def _select_rows(self, parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the values of these rows from those of all rows, both some at a time."""
        start = 0
        for values in parts:
            for _, first, last in self._stretches:
                if first < start + len(values) and start < last:
                    yield values[max(first - start, 0) : last - start]
            start += len(values)
