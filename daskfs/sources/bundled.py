"""The data sets that scikit-learn ships with its code; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError, nearest
from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceInfo, SourceSpec
from daskfs.sources.checks import block_dtype, check_range, check_shape, refuse_options, shorten_names
from daskfs.sources.resolve import resolve_feature_names, resolve_labels
from daskfs.sources.row_names import RowNames
from daskfs.sources.sample_columns import SampleColumns

SCHEME = "sklearn:"
BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")


class BundledSource:
    """A data set such as ``sklearn:digits`` in memory, labeled with class numbers or a regression target."""

    def __init__(self, spec: SourceSpec) -> None:
        refuse_options(spec)
        name = spec.source.removeprefix(SCHEME)
        if name not in BUNDLED:
            msg = (
                f"scikit-learn ships no data set {name!r} that daskfs knows; there are {shorten_names(BUNDLED)}."
                f"{nearest(name, BUNDLED)}"
            )
            raise InputError(msg)
        import sklearn.datasets

        bunch: Any = getattr(sklearn.datasets, f"load_{name}")()
        self._X: np.ndarray = np.ascontiguousarray(bunch.data)
        self._target: np.ndarray = np.asarray(bunch.target)
        self._labels = resolve_labels(spec, ("target",), "column", default="target")
        self._beside = SampleColumns(spec, (), "column")
        self._row_names = RowNames(spec)
        n_samples, n_features = check_shape(self._X.shape, spec.source)
        self.info = SourceInfo(
            n_samples=n_samples,
            n_features=n_features,
            dtype=block_dtype(self._X.dtype, spec.source),
            is_sparse=False,
            feature_names=resolve_feature_names(
                spec, n_features, own=[str(feature) for feature in bunch.feature_names]
            ),
            identity={"kind": "sklearn", "name": name},
            has_labels=True,
            beside=self._beside.names,
            has_row_names=bool(self._row_names.refs),
        )

    def read_rows(self, start: int, stop: int) -> Block:
        """Return rows ``start:stop``, shape (stop - start, n_features), dtype ``info.dtype``."""
        check_range(start, stop, self.info.n_samples)
        return self._X[start:stop].astype(self.info.dtype)

    def read_labels(self) -> np.ndarray | None:
        """Return the labels as stored, shape (n_samples,)."""
        return None if self._labels is None else self._labels.read(self.info.n_samples, self._read_target)

    def read_beside(self, name: str) -> np.ndarray | None:
        """Return a checked per-sample column, shape (n_samples,), or None if the spec names none."""
        return self._beside.read(name, self.info.n_samples, self._read_target)

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return the row names as an iterator over arrays of dtype ``S``, or None if there are none."""
        return self._row_names.read(self.info.n_samples)

    def _read_target(self, name: str) -> np.ndarray:
        del name
        return self._target
