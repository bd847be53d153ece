"""Reads of X in tiles, in memory or in place: rows for the graph, columns for the scores."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskfs.errors import StoreError
from daskfs.kernels.blocks import Block, is_sparse, stack_blocks
from daskfs.kernels.labels import Labels, Task
from daskfs.kernels.scaling import RowScale, Scaling, half_of, scale_rows
from daskfs.store import layout
from daskfs.store.readers import DenseReader, Reader, SparseReader
from daskfs.store.scaling_statistics import Scales, TileStatistics
from daskfs.store.shape import Shape, rows_within, sample_rows, spread_rows
from daskfs.store.store import Store

PANEL_WIDTH = 64
"""Columns that are scored together; 64 float64 values are eight cache lines, the unit of one gather."""


@dataclass(frozen=True)
class TileInfo:
    """Content of ``tiles.json``. `x_path` is set if X is a Zarr array used in place."""

    shape: Shape
    fingerprint: str
    source: str
    x_path: str | None = None
    task: Task | None = None
    classes: tuple[str, ...] = ()
    format_version: int = layout.FORMAT_VERSION
    facts: dict[str, Any] = field(default_factory=dict)


class Tiles(TileStatistics):
    """X with its column moments, row norms and labels.

    Parameters
    ----------
    store
        The tile store; for an in-memory matrix, a store in memory with its moments and norms.
    info
        Shape and identity.
    reader
        Reader of values other than those that the store and `info` name, such as of a matrix in memory.

    Notes
    -----
    Reads return the column means for missing values; :meth:`unfilled` gives tiles that return NaN. Statistics of
    columns and rows, and so every scaling, are of the filled values under the policy "mean", and of the observed values
    under "pairwise".
    """

    def __init__(self, store: Store, info: TileInfo, reader: Reader | None = None) -> None:
        self.info = info
        if reader is None and info.shape.is_sparse:
            reader = SparseReader(store, info.shape, is_incomplete=self._is_incomplete)
        elif reader is None:
            reader = DenseReader(store, info.shape, info.x_path, is_incomplete=self._is_incomplete)
        super().__init__(store, store, info, info.shape, reader)
        self.scales = self._own_scales()

    def _own_scales(self) -> Scales:
        return Scales(TileStatistics(self.store, self.run, self.info, self.shape, self.reader))

    @property
    def _is_incomplete(self) -> bool:
        missing = self.info.facts.get("missing")
        return missing is not None and bool(missing["total"])

    @property
    def missing_policy(self) -> str:
        """Policy for missing values: "refuse", "mean" or "pairwise"."""
        return str((self.info.facts.get("missing") or {"policy": "refuse"})["policy"])

    @property
    def is_pairwise(self) -> bool:
        """Whether values are missing and not filled.

        Features are then scored from the rows that have a value, and distances use the columns that both rows have.
        """
        return self._is_incomplete and self.missing_policy == "pairwise"

    def n_missing(self) -> np.ndarray:
        """Return the number of missing values of each column, shape (n_features,), int64."""
        if not self._is_incomplete:
            return np.zeros(self.shape.n_features, np.int64)
        return self.store.open(layout.FILL)[1].astype(np.int64)

    def unfilled(self) -> Tiles:
        """Return the same tiles with NaN where values are missing. Statistics of columns and rows stay."""
        tiles = copy.copy(self)
        tiles.reader = self.reader.unfilled()
        return tiles

    def as_counted(self) -> Tiles:
        """Return the same tiles with the values that statistics are of and features are scored from.

        Missing values are NaN under the policy "pairwise", else their fill values.
        """
        return self.unfilled() if self.is_pairwise else self

    def constant_notes(self) -> np.ndarray:
        """Return the reasons why no method can score a column of X: text, shape (n_features,), empty where one can."""
        notes = np.where(self.constant_columns(), "constant feature", "")
        if self._is_incomplete:
            notes[self.n_missing() == self.shape.n_samples] = "no value known"
        return notes

    def read_by(self, run: Store) -> Tiles:
        """Return the same tiles for a run, whose store holds the statistics of rescaled values."""
        tiles = copy.copy(self)
        tiles.run = run
        tiles.scales = tiles._own_scales()
        return tiles

    def constant_columns(self) -> np.ndarray:
        """Return True where all values of a column are the same, shape (n_features,), bool."""
        moments = self.column_moments()
        return np.equal(moments["minimum"], moments["maximum"])

    def first_equal(self) -> np.ndarray:
        """Return the first feature with the same values as each, shape (n_features,), int64.

        A constant one maps to itself. Not available for a matrix in memory.
        """
        return np.asarray(self.store.open(layout.FIRST_EQUAL)[...])

    def labels(self, rows: slice = slice(None)) -> Labels | None:
        """Return the labels of some rows, None if the data have none."""
        if self.info.task is None:
            return None
        return Labels(self.info.task, self.store.open(layout.LABELS)[rows], self.info.classes)

    def sample(self, scaling: Scaling | None = None) -> Block:
        """Return the rows of :func:`sample_rows`, shape (n_sampled, n_features), dense or CSR.

        They are float64 when scaled, else as stored.
        """
        return self.scales.rescaled(stack_blocks([*self.reader.sampled(sample_rows(self.shape))]), scaling)

    def sampled_columns(
        self, columns: np.ndarray, count: int, scaling: Scaling | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return at most `count` of the sampled rows, spread evenly over these, and some of their columns.

        Columns are indices, shape (n_columns,), ascending; `scaling` is that of whole rows. Rows are indices, shape
        (n_rows,), ascending, int64; values have shape (n_rows, n_columns), dense, float64.
        """
        numbers = sample_rows(self.shape)
        rows = numbers[spread_rows(numbers.size, min(count, numbers.size))]
        blocks = self.reader.sampled(rows)
        return rows, np.concatenate([self.scales.of_part(block, columns, scaling) for block in blocks])

    def read_rows(self, rows: slice, scaling: Scaling | None = None) -> Block:
        """Return rows, shape (n_rows, n_features), dense in C order or CSR; float64 when scaled, else as stored."""
        block = self.reader.rows(rows)
        if scaling is None:
            return block
        if half_of(scaling) is not None:  # stored sums and norms are of all columns
            return self.scales.rescaled(block, scaling)
        scale = self.scales.of_rows(scaling, rows, whole=True)
        return scale_rows(block, scaling, self.scales.of_columns(scaling), scale)

    def aligned_rows(
        self, rows: slice, height: int, scaling: Scaling | None = None, chosen: np.ndarray | None = None
    ) -> Iterator[tuple[slice, Block]]:
        """Yield row ranges and blocks of whole rows, dense or CSR, as stored, or float64 when scaled.

        Ranges end at multiples of `height`, whatever the height of bands; blocks hold their rows where `chosen`, shape
        (rows,), is True. Each band is read once; dense blocks are views of its chosen rows. A step "zscore" is left to
        the caller.
        """
        waiting: list[Block] = []
        start = rows.start
        for high, block in self.reader.pieces(rows, height, chosen):
            waiting.append(block)
            if high % height and high != rows.stop:
                waiting[-1] = block.copy()  # a view would keep the band
                continue
            part, whole = slice(start, high), stack_blocks(waiting)
            waiting, start = [], high
            if scaling is not None:
                if half_of(scaling) is not None:  # stored sums and norms are of all columns
                    whole = self.scales.of_half(whole, scaling)
                    scale = self.scales.of_block(scaling, whole)
                else:
                    scale = self.scales.of_rows(scaling, part, whole=True)
                    if chosen is not None:
                        scale = scale.part(chosen[part.start - rows.start : part.stop - rows.start])
                whole = scale_rows(whole, scaling, None, scale)
            yield part, whole

    def read_panels(self, start: int, stop: int) -> list[np.ndarray]:
        """Return columns ``start:stop`` of all rows, as stored, in C-ordered panels of at most 64 columns.

        At most one slab of a sparse X is densified here. The peak memory beyond the panels, shapes (n_samples, width),
        is one tile, and for sparse X its entries.
        """
        cuts = [(p, min(p + PANEL_WIDTH, stop)) for p in range(start, stop, PANEL_WIDTH)]
        panels = [np.empty((self.shape.n_samples, q - p), self.shape.dtype) for p, q in cuts]
        for index, band in self.shape.bands(slice(0, self.shape.n_samples)):
            for first in range(start, stop, self.shape.tile_columns):
                last = min(first + self.shape.tile_columns, stop)
                block = self.reader.columns(index, first, last)
                for (p, q), panel in zip(cuts, panels, strict=True):
                    low, high = max(p, first), min(q, last)
                    if low < high:
                        part = block[:, low - first : high - first]
                        panel[band, low - p : high - p] = part.toarray() if is_sparse(part) else part
        return panels

    def read_columns(self, columns: np.ndarray, rows: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Return columns within ``start:stop`` of some sorted rows, shape (rows, columns), dense, as stored."""
        result = np.empty((rows.size, columns.size), self.shape.dtype)
        for index, band in self.shape.bands(slice(0, self.shape.n_samples)):
            low, high = np.searchsorted(rows, [band.start, band.stop])
            if low < high:
                stored = self.reader.columns(index, start, stop)
                block = np.asarray(stored.toarray() if is_sparse(stored) else stored)
                result[low:high] = block[(rows[low:high] - band.start)[:, None], (columns - start)[None, :]]
        return result

    def column_blocks(
        self, columns: np.ndarray, rows: slice, scaling: Scaling | None = None
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield row ranges and the values of some columns, shape (n_rows, n_columns), dense.

        Values are as stored, or float64 when scaled. Each band is read once; no block crosses a multiple of 4096 rows.
        A step "zscore" is left to the caller.
        """
        for index, inside in self.shape.bands(rows):
            scale = RowScale() if scaling is None else self.scales.of_rows(scaling, inside)
            for part, block in self.reader.gathered(columns, inside, index):
                block_scale = scale.part(slice(part.start - inside.start, part.stop - inside.start))
                yield part, block if scaling is None else np.asarray(scale_rows(block, scaling, None, block_scale))


def write_sample(store: Store, shape: Shape, index: int, block: Block) -> None:
    """Store the sampled rows of one band, given as `block`, shape (n_rows, n_features), dense or CSR."""
    band = shape.band(index)
    rows = block[rows_within(sample_rows(shape), band) - band.start]
    if not is_sparse(rows):
        store.put_array(layout.SAMPLE.format(index, "values"), rows)
        return
    store.put_array(layout.SAMPLE.format(index, "data"), rows.data.astype(shape.dtype))
    store.put_array(layout.SAMPLE.format(index, "indices"), rows.indices.astype(np.int32))
    store.put_array(layout.SAMPLE.format(index, "indptr"), rows.indptr.astype(np.int64))


def read_tile_info(store: Store, *, is_expected: bool = False) -> TileInfo | None:
    """Read ``tiles.json``, None if it is missing; raise :class:`StoreError` for another format version or damage."""
    if not is_expected and store.root is not None and not store.path(layout.TILES_JSON).is_there():
        return None  # its unit runs again
    raw = store.read_json(layout.TILES_JSON, is_expected=is_expected)
    if raw is None:
        return None
    if (version := raw.get("format_version")) != layout.FORMAT_VERSION:
        msg = (
            f"{store.url}/{layout.TILES_JSON} has format version {version!r}, this daskfs reads version "
            f"{layout.FORMAT_VERSION}: convert the source again into a new store."
        )
        raise StoreError(msg)
    try:
        return TileInfo(**{**raw, "shape": Shape(**raw["shape"]), "classes": tuple(raw["classes"])})
    except (TypeError, KeyError) as error:
        msg = f"{store.url}/{layout.TILES_JSON} is damaged: {error}"
        raise StoreError(msg) from error
