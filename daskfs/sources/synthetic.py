"""Generated data of any size, such as ``synthetic:mixture?n_samples=300000&n_features=64``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError, nearest
from daskfs.kernels.blocks import Block, stack_blocks
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import refuse_options, shorten_names
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.resolve import resolve_feature_names
from daskfs.sources.stored_column import StoredColumn
from daskfs.sources.synthetic_models import (
    DRAWN_ROWS,
    LowRank,
    Mixture,
    Model,
    Nonlinear,
    SparseCounts,
    parse_parameters,
)

SYNTHETIC_SCHEME = "synthetic:"
MODELS: dict[str, type[Mixture] | type[LowRank] | type[SparseCounts] | type[Nonlinear]] = {
    "mixture": Mixture,
    "lowrank": LowRank,
    "sparse": SparseCounts,
    "nonlinear": Nonlinear,
}


class SyntheticSource(LabeledSource):
    """Generated rows, drawn when they are read; equal parameters give equal rows.

    Parameters
    ----------
    spec
        ``source`` is ``synthetic:`` and one of

        - ``mixture?n_samples=10000&n_features=64&n_classes=8&n_informative=16&seed=0``
        - ``lowrank?n_samples=10000&n_features=64&rank=10&noise=0.1&seed=0``
        - ``sparse?n_samples=10000&n_features=10000&density=0.002&n_classes=4&n_informative=64&seed=0``
        - ``nonlinear?n_samples=10000&n_features=52&seed=0``

        where the parameters shown are the defaults.
    """

    def __init__(self, spec: SourceSpec) -> None:
        refuse_options(spec)
        kind, _, text = spec.source.removeprefix(SYNTHETIC_SCHEME).partition("?")
        where = f"{SYNTHETIC_SCHEME}{kind}"
        if kind not in MODELS:
            msg = f"there is no {where!r}; there are {shorten_names(tuple(MODELS))}.{nearest(kind, tuple(MODELS))}"
            raise InputError(msg)
        values = parse_parameters(text, MODELS[kind].parameters, where)
        self._model: Model = MODELS[kind](values, where)
        super().__init__(spec, "column", labels=("target",), default_labels="target")
        n_samples, n_features = int(values["n_samples"]), int(values["n_features"])
        names = resolve_feature_names(spec, n_features, own_names=self._model.feature_names)
        per_row = getattr(self._model, "values_per_row", None)
        nnz = None if per_row is None else round(n_samples * per_row)
        identity = {"kind": where, "version": 1, **values}
        self.info = self.describe((n_samples, n_features), np.float32, names, identity, nnz, DRAWN_ROWS)

    def _read_rows(self, start: int, stop: int) -> Block:
        if self.info.is_sparse:
            parts = [self._model.rows(*block) for block in _blocks(start, stop)]
            return stack_blocks(parts or [sp.csr_matrix((0, self.info.n_features), dtype=self.info.dtype)])
        out = np.empty((stop - start, self.info.n_features), dtype=self.info.dtype)
        row = 0
        for block, first, last in _blocks(start, stop):
            out[row : row + last - first] = self._model.rows(block, first, last)
            row += last - first
        return out

    def labels_column(self) -> StoredColumn | None:
        """Return the labels, which can be read by rows if they are the source's own."""
        column = super().labels_column()
        is_own = column is not None and self._labels is not None and self._labels.inside
        return dataclasses.replace(column, read_rows=self._labels_of) if column is not None and is_own else column

    def _labels_of(self, rows: slice) -> np.ndarray:
        return np.concatenate([self._model.labels(i)[first:last] for i, first, last in _blocks(rows.start, rows.stop)])

    def _column_in_parts(self, name: str) -> Iterator[np.ndarray]:
        del name
        return (self._model.labels(block)[first:last] for block, first, last in _blocks(0, self.info.n_samples))


def _blocks(start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Yield (block, first row, end row) within each block that rows ``start:stop`` overlap."""
    for block in range(start // DRAWN_ROWS, -(-stop // DRAWN_ROWS)):
        first = max(start - block * DRAWN_ROWS, 0)
        last = min(stop - block * DRAWN_ROWS, DRAWN_ROWS)
        if first < last:
            yield block, first, last
