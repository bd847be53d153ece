"""Values of a source that the user says mean missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.sources.base import Source
from daskfs.sources.stored_column import StoredColumn, WholeColumns


class Marked(WholeColumns):
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
        self.whole, info = source, source.info
        self._words = {str(value).strip() for value in missing_values}
        self._numbers = sorted({number for value in missing_values if (number := _number(value)) is not None})
        if info.is_sparse and 0 in self._numbers:
            msg = "data.missing_values has 0, and X is sparse: 0 is the value of all entries that are not stored."
            raise InputError(msg)
        dtype = info.dtype if info.dtype.kind == "f" or not self._numbers else np.dtype(np.float64)
        self.info = dataclasses.replace(info, dtype=dtype)

    def __getattr__(self, name: str) -> Any:
        """Return what only some sources have, such as the sizes of parts."""
        return getattr(self.whole, name)

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, NaN where values are marked."""
        block = self.whole.read_rows(start, stop)
        if not self._numbers:
            return block
        block = block.astype(self.info.dtype, copy=False)  # sources return arrays of their own
        values = block.data if is_sparse(block) else block
        for number in self._numbers:
            values[values == number] = np.nan
        return block

    def verify(self) -> list[str]:
        """Check the source."""
        return self.whole.verify()

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, None where they are marked; None if there are none."""
        return self._marked(self.whole.labels_column())

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return a per-sample column, None where its values are marked; None if there is none."""
        return self._marked(self.whole.sample_column(name))

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as they are."""
        return self.whole.read_row_names()

    def _marked(self, column: StoredColumn | None) -> StoredColumn | None:
        if column is None:
            return None
        read = column.parts
        return StoredColumn(column.n_samples, column.origin, column.what, lambda: map(self._unmarked, read()))

    def _unmarked(self, values: np.ndarray) -> np.ndarray:
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
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return str(text).strip() in self._words or (not isinstance(text, str) and _number(text) in self._numbers)


def unmarked(source: Source | None) -> Source | None:
    """Return the source in which values are marked, or a source as it is."""
    return source.whole if isinstance(source, Marked) else source


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
