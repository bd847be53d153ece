"""Values of a source that the user says mean missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.sources.stored_column import Source, StoredColumn, WrappedSource
from daskfs.sources.values import as_number, decoded


class Marked(WrappedSource):
    """A source in which some values mean missing ones: NaN in X, unlabeled rows, no value of a per-sample column.

    Parameters
    ----------
    source
        The source. Words in features of a text table are its own to read.
    missing_values
        Words and numbers; a word that spells a number is one, too.

    Raises
    ------
    InputError
        For 0 in sparse X, which is all that is not stored.
    """

    def __init__(self, source: Source, missing_values: Sequence[str | float]) -> None:
        super().__init__(source)
        self.times_read, info = getattr(source, "times_read", None), source.info
        self._words = {str(value).strip() for value in missing_values}
        self._numbers = sorted({number for value in missing_values if (number := as_number(value)) is not None})
        if info.is_sparse and 0 in self._numbers:
            msg = "data.missing_values has 0, and X is sparse: 0 is the value of all entries that are not stored."
            raise InputError(msg)
        dtype = info.dtype if info.dtype.kind == "f" or not self._numbers else np.dtype(np.float64)
        self.info = dataclasses.replace(info, dtype=dtype)

    def _read_rows(self, start: int, stop: int) -> Block:
        block = self.whole.read_rows(start, stop)
        if not self._numbers:
            return block
        block = block.astype(self.info.dtype, copy=False)  # sources return arrays of their own
        values = block.data if is_sparse(block) else block
        for number in self._numbers:
            values[values == number] = np.nan
        return block

    def _parts_from(self, column: StoredColumn) -> Iterator[np.ndarray]:
        return map(self._unmark, column.parts())

    def _unmark(self, values: np.ndarray) -> np.ndarray:
        if values.dtype.kind == "M":
            return values
        if values.dtype.kind in "OUS":
            is_marked = np.fromiter(map(self._is_marked, values), bool, values.size)
        else:
            is_marked = np.isin(values, self._numbers)
        if not is_marked.any():
            return values
        values = values.astype(np.float64 if values.dtype.kind == "f" else object)
        values[is_marked] = np.nan if values.dtype.kind == "f" else None
        return values

    def _is_marked(self, value: object) -> bool:
        text = decoded(value)
        return str(text).strip() in self._words or (not isinstance(text, str) and as_number(text) in self._numbers)


def unmarked(source: Source | None) -> Source | None:
    """Return the source in which values are marked, or a source as it is."""
    return source.whole if isinstance(source, Marked) else source
