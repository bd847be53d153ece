"""The labels, per-sample columns and row names that sources share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.run_warning import HINT, RunWarning
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.column_profile import GROUPS, ColumnProfile, as_cells, is_named_like
from daskfs.sources.resolve import LabelRef, resolve_column, resolve_sample_columns
from daskfs.sources.row_names import read_row_names
from daskfs.sources.stored_column import Source, StoredColumn

MOST_GROUPS = 10_000
"""Distinct values of a column that are counted to see whether it looks like groups."""


class LabeledSource(Source):
    """Base class of sources: labels, per-sample columns and row names, as the spec names them.

    A source sets `info`, as :meth:`describe` returns it, and reads columns of its own in `_column_in_parts`.

    Parameters
    ----------
    kind
        Noun for one of the source's own columns in messages: ``"column"`` or ``"member"``.
    labels, columns, row_names
        Own columns that labels, per-sample columns and row names may be in; others are in files of their own.
    default_labels, default_row_names
        The own column for a spec that names none; None if the source has none.
    """

    def __init__(
        self,
        spec: SourceSpec,
        kind: str = "member",
        *,
        labels: Sequence[str] = (),
        columns: Sequence[str] = (),
        row_names: Sequence[str] = (),
        default_labels: str | None = None,
        default_row_names: str | None = None,
    ) -> None:
        self._labels = resolve_column(spec, "labels", labels, kind, default_labels)
        self._sample_columns = resolve_sample_columns(spec, columns, kind)
        self._row_names = resolve_column(spec, "row_names", row_names, kind, default_row_names)

    @property
    def refs(self) -> list[LabelRef]:
        """The references to labels, per-sample columns and row names."""
        return [ref for ref in (self._labels, *self._sample_columns.values(), self._row_names) if ref is not None]

    def describe(
        self,
        shape: tuple[int, int],
        dtype: Any,
        feature_names: tuple[str, ...] | None,
        identity: Mapping[str, Any],
        nnz: int | None = None,
        row_multiple: int = 1,
    ) -> SourceInfo:
        """Return the facts about this source, which is sparse if it has an `nnz`."""
        return SourceInfo(
            *shape,
            np.dtype(dtype),
            nnz is not None,
            feature_names,
            identity,
            nnz,
            row_multiple,
            has_labels=self._labels is not None,
            sample_columns=tuple(self._sample_columns),
            has_row_names=self._row_names is not None,
        )

    def group_hints(self, columns: Iterable[str]) -> list[RunWarning]:
        """Return a hint for each of some own columns that looks like groups of rows and that no key names.

        Without groups, folds may put rows of one donor or plate on both sides.
        """
        named, hints = {ref.name for ref in self.refs}, []
        if "groups" in self._sample_columns or "times" in self._sample_columns:  # by one of which folds go
            return []
        for name in columns:
            if name in named or not is_named_like(name, GROUPS):
                continue
            profile = ColumnProfile(name, MOST_GROUPS)
            with suppress(InputError):  # an unreadable column that no key names
                for values in self._column_in_parts(name):
                    profile.add(as_cells(values))
            if profile.looks_like() == "group":
                text = f"column {name!r} looks like groups of rows: keep each in one fold (--set data.groups={name})"
                hints.append(RunWarning("groups", HINT, text, (name,)))
        return hints

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, or None if there are none."""
        return None if self._labels is None else self._labels.column(self.info.n_samples, self._labels_in_parts)

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return a per-sample column, or None if the spec names none."""
        ref = self._sample_columns.get(name)
        return None if ref is None else ref.column(self.info.n_samples, self._column_in_parts)

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as an iterator over arrays of dtype ``S``, or None if there are none."""
        ref = self._row_names
        return None if ref is None else read_row_names(ref, self.info.n_samples, self._read_names)

    def _labels_in_parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield an own column of labels in parts."""
        return self._column_in_parts(name)

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield an own column in parts, arrays of shape (n_rows,)."""
        raise AssertionError(name)

    def _read_names(self, name: str) -> Iterator[np.ndarray]:
        """Yield an own column of names in parts."""
        raise AssertionError(name)
