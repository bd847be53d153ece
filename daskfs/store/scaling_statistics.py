"""Statistics of rows and columns for the steps of a scaling, and values rescaled by them.

The tile store holds unweighted row norms, row sums and column moments. The run store holds statistics for later steps
of a chain and for z-scores of weighted rows, from one more pass (:mod:`daskfs.tiles.transforms`). The median of "total"
and the fill values are facts of the tiles, so unweighted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.scaling import (
    ColumnScale,
    RowScale,
    Scaling,
    Steps,
    chain_of,
    ends_with,
    half_of,
    inverse_or_zero,
    median_sum,
    row_factors,
    row_norms,
    row_sums,
    scale_rows,
    steps_of,
    without_columns,
)
from daskfs.store import layout
from daskfs.store.readers import Reader
from daskfs.store.shape import Shape
from daskfs.store.store import Store

TOTALS = (1e-60, 1e60)
"""Total variances of rows whose principal components are found."""


@dataclass(eq=False)
class TileStatistics:
    """Statistics of columns and rows in a tile store, and the store of the run that reads it: base of tiles."""

    store: Store
    run: Store
    info: Any
    shape: Shape
    reader: Reader

    def column_moments(self) -> dict[str, np.ndarray]:
        """Return mean, variance, minimum, maximum and non-zero count of each column, each (n_features,), float64."""
        table = self.store.open(layout.COLUMNS)[...]
        return dict(zip(layout.COLUMN_ROWS, table, strict=True))

    def feature_names(self) -> list[str]:
        """Return the feature names; ``x0, x1, ...`` if the source has none."""
        read = self.store.need_json if self.info.facts.get("named") else self.store.read_json
        names: list[str] | None = read(layout.FEATURE_NAMES, list)
        return names if names is not None else [f"x{i}" for i in range(self.shape.n_features)]


class Scales:
    """Scalings by the statistics of tiles; these hold their scales, so here are the statistics alone.

    In a cycle of references, X in memory would stay there until garbage is collected.
    """

    def __init__(self, tiles: TileStatistics) -> None:
        self._tiles = tiles
        self._checked: set[Scaling] = set()

    def of_columns(self, scaling: Scaling) -> ColumnScale | None:
        """Return mean and population standard deviation of each column before the step "zscore".

        Each has shape (n_features,), float64, weighted if rows have weights; None if the scaling has no such step.
        """
        steps = self._steps(scaling)
        if steps.last != "zscore":
            return None
        mean, variance, rest = self._moments(scaling, steps.first)
        return ColumnScale(mean, np.sqrt(variance), rest)

    def _moments(self, scaling: Scaling, first: Scaling | None) -> Iterable[np.ndarray]:
        """Return mean, variance and rest of each column after the steps `first` of a scaling."""
        if first is None and not self.is_weighted:
            moments = self._tiles.column_moments()
            return moments["mean"], moments["variance"], moments["rest"]
        return np.asarray(self._tiles.run.open(layout.TRANSFORM_COLUMNS.format(scaling))[...])

    def of_components(self, scaling: Scaling) -> tuple[np.ndarray, np.ndarray, float]:
        """Return means, factors and the total variance of columns for a scaling that ends with "pca".

        Means are of the values after the steps before "zscore", in two parts, shape (2, n_features), factors those of
        "zscore" (1 without that step), shape (n_features,), float64. The total is the sum of the variances of the
        columns so scaled.
        """
        chain = chain_of(scaling)
        if ends_with(chain, "zscore"):
            columns = self.of_columns(str(chain))
            assert columns is not None
            means = np.stack([columns.mean, columns.rest])
            return means, inverse_or_zero(columns.std), float(np.count_nonzero(columns.std))
        mean, variance, rest = self._moments(scaling, chain)
        total = float(variance.sum())
        if total and not TOTALS[0] < total < TOTALS[1]:
            msg = f"rows of variance {total:.3g} have no principal components in float32. Rescale the data: zscore+pca."
            raise InputError(msg)
        return np.stack([mean, rest]), np.ones_like(mean), total

    @cached_property
    def is_weighted(self) -> bool:
        """Whether rows have weights, of the tiles or given for the run."""
        weights_of_run = self._tiles.run.read_json(layout.SAMPLE_COLUMN_JSON.format("weights"))
        return weights_of_run is not None or self._tiles.info.facts.get("weights") is not None

    def of_rows(self, scaling: Scaling, rows: slice, *, whole: bool = False) -> RowScale:
        """Return the scale of some rows.

        For `whole` rows only stored sums and norms are read; the rest is computed from their values.
        """
        steps, norms = self._steps(scaling), None
        if steps.last == "unit" and steps.first is None:
            norms = self._tiles.store.open(layout.ROW_NORMS)[rows]
        elif steps.last == "unit" and not whole:
            norms = self._tiles.run.open(layout.TRANSFORM_NORMS.format(scaling))[rows]
        if steps.total is None:
            return RowScale(None, norms)
        sums = self._tiles.store.open(layout.ROW_SUMS)[rows]
        return RowScale(row_factors(sums, self._target(steps)), norms)

    def of_block(self, scaling: Scaling, block: Block) -> RowScale:
        """Return the scale of a block of whole rows from any source, shape (n_rows, n_features), by its values."""
        steps = self._steps(scaling)
        return RowScale() if steps.total is None else RowScale(row_factors(row_sums(block), self._target(steps)))

    def _target(self, steps: Steps) -> float:
        assert steps.total is not None
        return self._median_sum if steps.total == "median" else float(steps.total)

    @cached_property
    def _median_sum(self) -> float:
        stored = self._tiles.info.facts.get("median_sum")
        if stored is not None:
            return float(stored)
        return median_sum(lambda: iter([self._tiles.store.open(layout.ROW_SUMS)[...]]))

    def rescaled(self, block: Block, scaling: Scaling | None) -> Block:
        """Return a rescaled float64 copy of whole rows, shape (n_rows, n_features), from any source.

        Without scaling, return the rows themselves.
        """
        if scaling is None:
            return block
        block = self.of_half(block, scaling)
        return scale_rows(block, scaling, self.of_columns(scaling), self.of_block(scaling, block))

    def of_half(self, block: Block, scaling: Scaling) -> Block:
        """Return whole rows with zeros in the columns that are not of the scaling's half; unchanged if it has none."""
        half = half_of(scaling)
        return block if half is None else without_columns(block, self._halves[half] == 0)

    @cached_property
    def _halves(self) -> np.ndarray:
        """Whether each column makes the graph of either half, shape (3, n_features), uint8."""
        return np.asarray(self._tiles.run.open(layout.HALVES)[...])

    def of_part(self, block: Block, columns: np.ndarray, scaling: Scaling | None) -> np.ndarray:
        """Return some columns of whole rows, rescaled, shape (n_rows, n_columns), dense, float64."""
        part = block[:, columns]
        values = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        if scaling is None:
            return values
        scale = self.of_columns(scaling)
        if scale is not None:
            scale = scale.part(columns)
        of_rows = self.of_block(scaling, block)
        if ends_with(scaling, "unit"):
            first = steps_of(scaling).first
            norms = row_norms(block if first is None else scale_rows(block, first, None, of_rows))
            of_rows = RowScale(of_rows.factors, norms)
        return np.asarray(scale_rows(values, scaling, scale, of_rows))

    def of_panels(
        self, panels: Sequence[np.ndarray], numbers: Sequence[np.ndarray], scaling: Scaling | None
    ) -> list[np.ndarray]:
        """Return rescaled float64 copies of panels, shapes (n_samples, width), with column indices `numbers`.

        Without scaling, return the panels themselves.
        """
        if scaling is None:
            return list(panels)
        columns = self.of_columns(scaling)
        rows = self.of_rows(scaling, slice(0, self._tiles.shape.n_samples))
        scaled = []
        for panel, own_columns in zip(panels, numbers, strict=True):
            panel_columns = None if columns is None else columns.part(own_columns)
            scaled.append(np.asarray(scale_rows(panel, scaling, panel_columns, rows)))
        return scaled

    def _steps(self, scaling: Scaling) -> Steps:
        self.check(scaling)
        return steps_of(scaling)

    def check(self, scaling: Scaling) -> None:
        """Raise :class:`InputError` if the scaling is undefined for a value of X, naming its column and rows."""
        steps = steps_of(scaling)
        if scaling in self._checked or not (steps.total or steps.log1p):
            return
        minimum = self._minimum
        bad = np.flatnonzero(minimum < 0 if steps.total else minimum <= -1)
        if bad.size:
            column = int(bad[0])
            what = "'total' needs values of 0 or more" if steps.total else "'log1p' is log(1 + x), for values above -1"
            name = self._tiles.feature_names()[column]
            more = f", and so have {bad.size - 1} more columns" if bad.size > 1 else ""
            msg = (
                f"scaling '{scaling}': {what}; column {column} ('{name}') has {minimum[column]:g} in "
                f"{self._place_of(column, minimum[column])}{more}. Choose another scaling, or leave such columns out."
            )
            raise InputError(msg)
        self._checked.add(scaling)

    @cached_property
    def _minimum(self) -> np.ndarray:
        matrix = self._tiles.reader.matrix
        if matrix is None:
            return self._tiles.column_moments()["minimum"]
        lowest = matrix.min(axis=0)
        return np.asarray(lowest.todense() if sp.issparse(lowest) else lowest, np.float64).ravel()

    def _place_of(self, column: int, value: float) -> str:
        tiles = self._tiles
        if tiles.reader.matrix is not None:
            values = tiles.reader.matrix[:, [column]]
            return f"row {np.flatnonzero((values.toarray() if is_sparse(values) else values) == value)[0]}"
        partials, lowest = tiles.store.open(layout.PARTIALS), layout.PARTIAL_ROWS.index("minimum")
        for index in range(tiles.shape.n_bands):
            if partials[index : index + 1][0, lowest, column] == value:
                break
        rows = tiles.shape.band(index)
        return f"rows {rows.start}:{rows.stop}"
