"""The data sets that scikit-learn ships with its code; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError, nearest
from daskfs.kernels.blocks import Block
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import block_dtype, check_shape, refuse_options, shorten_names
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.resolve import resolve_feature_names

SKLEARN_SCHEME = "sklearn:"
BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
IMAGE_SHAPES = {f"{SKLEARN_SCHEME}digits": (8, 8)}
"""Rows and columns of the images whose pixels are the features of a source."""


class BundledSource(LabeledSource):
    """A data set such as ``sklearn:digits`` in memory, labeled with class numbers or a regression target."""

    def __init__(self, spec: SourceSpec) -> None:
        refuse_options(spec)
        name = spec.source.removeprefix(SKLEARN_SCHEME)
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
        super().__init__(spec, "column", labels=("target",), default_labels="target")
        shape, dtype = check_shape(self._X.shape, spec.source), block_dtype(self._X.dtype, spec.source)
        names = resolve_feature_names(spec, shape[1], own_names=[str(feature) for feature in bunch.feature_names])
        self.info = self.describe(shape, dtype, names, {"kind": "sklearn", "name": name})

    def _read_rows(self, start: int, stop: int) -> Block:
        return self._X[start:stop].astype(self.info.dtype)

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        del name
        yield self._target
