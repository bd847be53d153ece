"""X as one ``.npy`` file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import (
    block_dtype,
    check_range,
    check_shape,
    file_identity,
    refuse_options,
    unknown_name,
)
from daskfs.sources.npy_file import NpyFile, whole_file
from daskfs.sources.resolve import resolve_feature_names, resolve_labels
from daskfs.sources.row_names import RowNames
from daskfs.sources.sample_columns import SampleColumns
from daskfs.storage import StoragePath

PAGE_BYTES = 4096


def cheap_rows(array: NpyFile) -> int:
    """Return the cheapest number of rows per read: 1, or a page of each column in Fortran order."""
    return max(1, PAGE_BYTES // array.dtype.itemsize) if array.fortran_order else 1


class NpySource:
    """A dense matrix in an ``.npy`` file. Labels and feature names can only come from other files."""

    def __init__(self, spec: SourceSpec, path: StoragePath) -> None:
        refuse_options(spec)
        self._array = NpyFile(whole_file(path), str(path))
        n_samples, n_features = check_shape(self._array.shape, str(path))
        self._labels = resolve_labels(spec, (), "member")
        self._beside = SampleColumns(spec, (), "member")
        self._row_names = RowNames(spec)
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=block_dtype(self._array.dtype, str(path)),
            is_sparse=False,
            feature_names=resolve_feature_names(spec, n_features),
            identity=file_identity("npy", path),
            row_multiple=cheap_rows(self._array),
            has_labels=self._labels is not None,
            beside=self._beside.names,
            has_row_names=bool(self._row_names.refs),
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features), dtype ``info.dtype``."""
        check_range(start, stop, self.info.n_samples)
        return self._array.read(start, stop, self.info.dtype)

    def read_labels(self) -> np.ndarray | None:
        """Return the labels as stored, shape (n_samples,), from the file that ``spec.labels`` names."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._no_member)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return a checked per-sample column, shape (n_samples,), or None if the spec names none."""
        return self._beside.read(name, self.info.n_samples, self._no_member)

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as an iterator over arrays of dtype ``S``, or None if there are none."""
        return self._row_names.read(self.info.n_samples)

    def _no_member(self, name: str) -> np.ndarray:
        raise unknown_name(name, "member", (), self._array.where)
