"""The labels, per-sample columns and row names that sources share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.resolve import resolve_labels
from daskfs.sources.row_names import RowNames
from daskfs.sources.sample_columns import SampleColumns


class LabeledSource:
    """Base class of sources: labels, per-sample columns and row names, as the spec names them.

    A source sets `info`, with ``**self.named`` among its values, and reads columns of its own in `_read_column`.

    Parameters
    ----------
    spec
        Description of the data.
    kind
        Noun for one of the source's own columns in messages: ``"column"`` or ``"member"``.
    labels, columns, row_names
        Own columns that labels, per-sample columns and row names may be in; others are in files of their own.
    default_labels, default_row_names
        The own column for a spec that names none; None if the source has none.
    """

    info: SourceInfo

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
        self._labels = resolve_labels(spec, labels, kind, default_labels)
        self._beside = SampleColumns(spec, columns, kind)
        self._row_names = RowNames(spec, row_names, kind, default_row_names)

    @property
    def named(self) -> dict[str, Any]:
        """The fields of :class:`SourceInfo` that say what the spec names."""
        return {
            "has_labels": self._labels is not None,
            "beside": self._beside.names,
            "has_row_names": bool(self._row_names.refs),
        }

    def read_labels(self) -> np.ndarray | None:
        """Return the labels as stored, shape (n_samples,), or None if there are none."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._read_labels)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return a checked per-sample column, shape (n_samples,), or None if the spec names none."""
        return self._beside.read(name, self.info.n_samples, self._read_column)

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as an iterator over arrays of dtype ``S``, or None if there are none."""
        return self._row_names.read(self.info.n_samples, self._read_names)

    def _read_labels(self, name: str) -> np.ndarray:
        """Return an own column of labels, shape (n_samples,)."""
        return self._read_column(name)

    def _read_column(self, name: str) -> np.ndarray:
        """Return an own column, shape (n_samples,)."""
        raise AssertionError(name)

    def _read_names(self, name: str) -> Iterator[np.ndarray]:
        """Yield an own column of names in parts."""
        raise AssertionError(name)
