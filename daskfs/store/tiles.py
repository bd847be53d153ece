"""Reads of X in tiles, in memory or in place: rows for the graph, columns for the scores."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import StoreError
from daskfs.kernels.blocks import is_sparse, stack_blocks
from daskfs.kernels.labels import Labels, Task
from daskfs.kernels.missing import fill_missing
from daskfs.kernels.scaling import (
    RowScale,
    Scaling,
    ends_with,
    half_of,
    row_norms,
    scale_rows,
    steps_of,
    without_columns,
)
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.arrays import Array, ChunkedArray, open_foreign
from daskfs.store.scaling_statistics import Scales, TileStatistics
from daskfs.store.store import Store

PANEL_WIDTH = 64
"""Columns that are scored together; 64 float64 values are eight cache lines, the unit of one gather."""
GATHERED = 4096
"""Rows per block of :meth:`Tiles.column_blocks`."""


@dataclass(frozen=True)
class Shape:
    """Shape of X and of its tiles. For sparse X `tile_columns` is the width of a slab; its bands hold all columns."""

    n_samples: int
    n_features: int
    dtype: str
    is_sparse: bool
    nnz: int | None
    tile_rows: int
    tile_columns: int

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return int(np.dtype(self.dtype).itemsize)

    @property
    def n_bands(self) -> int:
        """Number of tile rows."""
        return -(-self.n_samples // self.tile_rows)

    @property
    def x_bytes(self) -> int:
        """Bytes of X as stored, before compression."""
        if self.is_sparse:
            return (self.nnz or 0) * (self.itemsize + 4) + self.n_bands * (self.n_features + 1) * 8
        return self.n_samples * self.n_features * self.itemsize

    def band(self, index: int) -> slice:
        """Return the rows of one band."""
        return slice(index * self.tile_rows, min((index + 1) * self.tile_rows, self.n_samples))


CHUNK_VALUES = (2**14, 2**20)
CHUNK_COLUMNS = 256


def sparse_chunk(nnz: int, n_features: int) -> int:
    """Return the number of values per chunk of a sparse band: those of about 256 columns."""
    return int(np.clip(nnz * CHUNK_COLUMNS // max(n_features, 1), *CHUNK_VALUES))


SAMPLE_ROWS = (2**14, 2**20)
SAMPLE_BYTES = 2**28
SAMPLE_SHARE = 8


def sample_rows(shape: Shape) -> np.ndarray:
    """Return the row sample for the partition of space into cells, shape (n_sampled,), ascending, int64.

    One row in eight, between 16,384 and 1,048,576 but within 256 MiB, one from each of as many stretches of equal
    length, so that sorted rows are represented evenly. Only the size of the data determines the sample.
    """
    x_bytes = (shape.nnz or 0) * (shape.itemsize + 4) if shape.is_sparse else shape.x_bytes
    row_bytes = max(1, x_bytes // max(shape.n_samples, 1))
    fitting = max(256, SAMPLE_BYTES // row_bytes)
    count = int(np.clip(shape.n_samples // SAMPLE_SHARE, SAMPLE_ROWS[0], SAMPLE_ROWS[1]))
    count = min(count, fitting, shape.n_samples)
    return spread_rows(shape.n_samples, count)


def spread_rows(n_rows: int, count: int) -> np.ndarray:
    """Return `count` rows, one from each of as many stretches of equal length, shape (count,), ascending, int64.

    Both numbers alone determine them.
    """
    number = np.arange(count + 1, dtype=np.int64)
    length, left = divmod(n_rows, max(count, 1))
    starts = number * length + number * left // max(count, 1)  # number * n_rows could exceed an int64
    generator = np.random.default_rng(n_rows)
    return starts[:-1] + np.floor(generator.random(count) * np.diff(starts)).astype(np.int64)


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
    matrix
        X if it is in memory, (n_samples, n_features) array or CSR matrix, NaN where values are missing; it is never
        written to.

    Notes
    -----
    Reads return the column means for missing values; :meth:`unfilled` gives tiles that return NaN. Statistics of
    columns and rows, and so every scaling, are of the filled values under the policy "mean", and of the observed values
    under "pairwise".
    """

    def __init__(self, store: Store, info: TileInfo, matrix: np.ndarray | sp.csr_matrix | None = None) -> None:
        self.store = store
        self.info = info
        self.shape = info.shape
        self.run = store
        self.scales = Scales(self)
        self._given = matrix
        self._x: Array | None = None

    @cached_property
    def matrix(self) -> np.ndarray | sp.csr_matrix | None:
        """X if it is in memory, filled at first use; with NaN in unfilled tiles."""
        if self._given is None or not self._is_incomplete:
            return self._given
        filled: np.ndarray | sp.csr_matrix = fill_missing(self._given.copy(), self.store.open(layout.FILL)[0])
        return filled

    @cached_property
    def _columns_of_matrix(self) -> sp.csc_matrix | None:
        return self.matrix.tocsc() if is_sparse(self.matrix) else None

    @cached_property
    def _fill(self) -> np.ndarray | None:
        """Fill value of each column, shape (n_features,); None if no value is missing or the tiles are unfilled."""
        return self.store.open(layout.FILL)[0] if self._is_incomplete and self._given is None else None

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
        tiles._fill = None
        if self._is_incomplete and self._given is not None:
            tiles.matrix = self._given
            tiles.__dict__.pop("_columns_of_matrix", None)
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
        tiles.run, tiles.scales = run, Scales(tiles)
        tiles.__dict__.pop("_halves", None)  # of another run
        return tiles

    # ---------------------------------------------------------------- statistics
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

    # ------------------------------------------------------------------- reading
    def sample(self, scaling: Scaling | None = None) -> np.ndarray | sp.csr_matrix:
        """Return the rows of :func:`sample_rows`, shape (n_sampled, n_features), dense or CSR.

        They are float64 when scaled, else as stored.
        """
        numbers = sample_rows(self.shape)
        if self.matrix is not None:
            return self.rescaled(self.matrix[numbers], scaling)
        bands = [i for i in range(self.shape.n_bands) if _sampled(numbers, self.shape.band(i)).size]
        return self.rescaled(stack_blocks([self.sampled_band(i) for i in bands]), scaling)

    def sampled_band(self, index: int) -> np.ndarray | sp.csr_matrix:
        """Return the sampled rows of one band that has any, as stored."""
        if not self.shape.is_sparse:
            return self._filled(self.store.open(layout.SAMPLE.format(index, "values"))[...])
        data, indices, indptr = (
            self.store.open(layout.SAMPLE.format(index, part))[...] for part in ("data", "indices", "indptr")
        )
        rows = sp.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, self.shape.n_features))
        return self._filled(rows)

    def sampled_columns(
        self, columns: np.ndarray, count: int, scaling: Scaling | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return some columns of some of the sampled rows, spread evenly over these.

        Parameters
        ----------
        columns
            Column indices, shape (n_columns,), ascending.
        count
            Maximum number of rows.
        scaling
            Scaling of the whole rows.

        Returns
        -------
        rows, values
            Row indices, shape (n_rows,), ascending, int64; and values, shape (n_rows, n_columns), dense, float64.
        """
        numbers = sample_rows(self.shape)
        rows = numbers[spread_rows(numbers.size, min(count, numbers.size))]
        parts = []
        for i in range(self.shape.n_bands) if self.matrix is None else ():
            own, wanted = _sampled(numbers, self.shape.band(i)), _sampled(rows, self.shape.band(i))
            if wanted.size:
                block = self.sampled_band(i)[np.searchsorted(own, wanted)]
                parts.append(self._columns_of(block, columns, scaling))
        if self.matrix is not None:
            parts.append(self._columns_of(self.matrix[rows], columns, scaling))
        return rows, np.concatenate(parts)

    def _columns_of(
        self, block: np.ndarray | sp.csr_matrix, columns: np.ndarray, scaling: Scaling | None
    ) -> np.ndarray:
        part = block[:, columns]
        values = (part.toarray() if is_sparse(part) else part).astype(np.float64)
        if scaling is None:
            return values
        scale = self.scales.of_columns(scaling)
        if scale is not None:
            scale = scale.part(columns)
        return np.asarray(scale_rows(values, scaling, scale, self._scale_of_whole(block, scaling)))

    def _scale_of_whole(self, block: np.ndarray | sp.csr_matrix, scaling: Scaling) -> RowScale:
        """Return the scale of whole rows, to rescale some of their columns."""
        found = self.scales.of_block(scaling, block)
        if not ends_with(scaling, "unit"):
            return found
        first = steps_of(scaling).first
        return RowScale(found.factors, row_norms(block if first is None else scale_rows(block, first, None, found)))

    def rescaled(self, block: np.ndarray | sp.csr_matrix, scaling: Scaling | None) -> np.ndarray | sp.csr_matrix:
        """Return a rescaled float64 copy of whole rows, shape (n_rows, n_features), from any source.

        Without scaling, return the rows themselves.
        """
        if scaling is None:
            return block
        block = self.of_half(block, scaling)
        return scale_rows(block, scaling, self.scales.of_columns(scaling), self.scales.of_block(scaling, block))

    def of_half(self, block: np.ndarray | sp.csr_matrix, scaling: Scaling) -> np.ndarray | sp.csr_matrix:
        """Return whole rows with zeros in the columns that are not of the scaling's half; unchanged if it has none."""
        half = half_of(scaling)
        return block if half is None else without_columns(block, self._halves[half] == 0)

    @cached_property
    def _halves(self) -> np.ndarray:
        """Whether each column makes the graph of either half, shape (3, n_features), uint8."""
        return np.asarray(self.run.open(layout.HALVES)[...])

    def read_rows(self, rows: slice, scaling: Scaling | None = None) -> np.ndarray | sp.csr_matrix:
        """Return rows, shape (n_rows, n_features), dense in C order or CSR; float64 when scaled, else as stored."""
        block = stack_blocks([*self._sparse_rows(rows)]) if self.shape.is_sparse else self._dense_rows(rows)
        if scaling is None:
            return block
        if half_of(scaling) is not None:  # stored sums and norms are of all columns
            return self.rescaled(block, scaling)
        scale = self.scales.of_rows(scaling, rows, whole=True)
        return scale_rows(block, scaling, self.scales.of_columns(scaling), scale)

    def aligned_rows(
        self, rows: slice, height: int, scaling: Scaling | None = None, chosen: np.ndarray | None = None
    ) -> Iterator[tuple[slice, np.ndarray | sp.csr_matrix]]:
        """Yield row ranges and blocks of whole rows, dense or CSR, as stored, or float64 when scaled.

        Ranges end at multiples of `height`, whatever the height of bands; blocks hold their rows where `chosen`, shape
        (rows,), is True. Each band is read once; dense blocks are views of its chosen rows. A step "zscore" is left to
        the caller.
        """
        waiting: list[np.ndarray | sp.csr_matrix] = []
        start = rows.start
        for high, block in self._cut_rows(rows, height, chosen):
            waiting.append(block)
            if high % height and high != rows.stop:
                waiting[-1] = block.copy()  # a view would keep the band
                continue
            part, whole = slice(start, high), stack_blocks(waiting)
            waiting, start = [], high
            if scaling is not None:
                if half_of(scaling) is not None:  # stored sums and norms are of all columns
                    whole = self.of_half(whole, scaling)
                    scale = self.scales.of_block(scaling, whole)
                else:
                    scale = self.scales.of_rows(scaling, part, whole=True)
                    if chosen is not None:
                        scale = scale.part(chosen[part.start - rows.start : part.stop - rows.start])
                whole = scale_rows(whole, scaling, None, scale)
            yield part, whole

    def _cut_rows(
        self, rows: slice, height: int, chosen: np.ndarray | None
    ) -> Iterator[tuple[int, np.ndarray | sp.csr_matrix]]:
        """Yield the end and the chosen rows of blocks that end with a band or at a multiple of `height`."""
        for band in row_blocks(self.shape.n_samples, self.shape.tile_rows):
            inside = slice(max(band.start, rows.start), min(band.stop, rows.stop))
            if inside.start >= inside.stop:
                continue
            cuts = _cuts(inside, height)
            if self.matrix is not None:
                for low, high in itertools.pairwise(cuts):
                    own = None if chosen is None else chosen[low - rows.start : high - rows.start]
                    part = self.matrix[low:high]
                    yield high, part if own is None or own.all() else part[own]
                continue
            own = None if chosen is None else chosen[inside.start - rows.start : inside.stop - rows.start]
            block = self._band_rows(inside, own)
            places = np.array(cuts) - inside.start
            if own is not None:
                places = np.concatenate([[0], np.cumsum(own)])[places]
            for high, (first, last) in zip(cuts[1:], itertools.pairwise(places), strict=True):
                yield high, block[first:last]
            del block  # before the next one is read

    def _band_rows(self, rows: slice, chosen: np.ndarray | None) -> np.ndarray | sp.csr_matrix:
        """Return the chosen rows of a range within one band, as stored.

        A dense read holds at most one tile of other rows.
        """
        if self.shape.is_sparse:
            block = self.read_rows(rows)
            return block if chosen is None or chosen.all() else block[chosen]
        return self._dense_rows(rows, None if chosen is None or chosen.all() else chosen)

    def read_panels(self, start: int, stop: int) -> list[np.ndarray]:
        """Return columns ``start:stop`` of all rows, as stored, in C-ordered panels of at most 64 columns.

        At most one slab of a sparse X is densified here. The peak memory beyond the panels, shapes (n_samples, width),
        is one tile, and for sparse X its entries.
        """
        cuts = [(p, min(p + PANEL_WIDTH, stop)) for p in range(start, stop, PANEL_WIDTH)]
        panels = [np.empty((self.shape.n_samples, q - p), self.shape.dtype) for p, q in cuts]
        for band in row_blocks(self.shape.n_samples, self.shape.tile_rows):
            for first in range(start, stop, self.shape.tile_columns):
                last = min(first + self.shape.tile_columns, stop)
                block = self._stored_block(band, first, last)
                for (p, q), panel in zip(cuts, panels, strict=True):
                    low, high = max(p, first), min(q, last)
                    if low < high:
                        part = block[:, low - first : high - first]
                        panel[band, low - p : high - p] = part.toarray() if is_sparse(part) else part
        return panels

    def scaled_panels(
        self, panels: Sequence[np.ndarray], numbers: Sequence[np.ndarray], scaling: Scaling | None
    ) -> list[np.ndarray]:
        """Return rescaled float64 copies of panels, shapes (n_samples, width), with column indices `numbers`.

        Without scaling, return the panels themselves.
        """
        if scaling is None:
            return list(panels)
        columns = self.scales.of_columns(scaling)
        rows = self.scales.of_rows(scaling, slice(0, self.shape.n_samples))
        scaled = []
        for panel, own_columns in zip(panels, numbers, strict=True):
            own = None if columns is None else columns.part(own_columns)
            scaled.append(np.asarray(scale_rows(panel, scaling, own, rows)))
        return scaled

    def read_columns(self, columns: np.ndarray, rows: np.ndarray, start: int, stop: int) -> np.ndarray:
        """Return columns within ``start:stop`` of some sorted rows, shape (rows, columns), dense, as stored."""
        result = np.empty((rows.size, columns.size), self.shape.dtype)
        for band in row_blocks(self.shape.n_samples, self.shape.tile_rows):
            low, high = np.searchsorted(rows, [band.start, band.stop])
            if low < high:
                stored = self._stored_block(band, start, stop)
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
        for band in row_blocks(self.shape.n_samples, self.shape.tile_rows):
            inside = slice(max(band.start, rows.start), min(band.stop, rows.stop))
            if inside.start >= inside.stop:
                continue
            scale = RowScale() if scaling is None else self.scales.of_rows(scaling, inside)
            for part, block in self._gathered(columns, inside, band):
                own = scale.part(slice(part.start - inside.start, part.stop - inside.start))
                yield part, block if scaling is None else np.asarray(scale_rows(block, scaling, None, own))

    def _gathered(self, columns: np.ndarray, rows: slice, band: slice) -> Iterator[tuple[slice, np.ndarray]]:
        steps = [slice(start, stop) for start, stop in itertools.pairwise(_cuts(rows, GATHERED))]
        if self.matrix is not None:
            X = self.matrix if self._columns_of_matrix is None else self._columns_of_matrix[:, columns].tocsr()
            for step in steps:
                yield step, X[step].toarray() if is_sparse(X) else X[step][:, columns]
        elif self.shape.is_sparse:
            whole = self._sparse_band(band.start // self.shape.tile_rows, 0, self.shape.n_features)
            X = whole[:, columns].tocsr()
            for step in steps:
                yield step, X[step.start - band.start : step.stop - band.start].toarray()
        else:
            block = np.empty((rows.stop - rows.start, columns.size), self.shape.dtype)
            for tile in row_blocks(self.shape.n_features, self.shape.tile_columns):
                wanted = np.flatnonzero((columns >= tile.start) & (columns < tile.stop))
                if wanted.size:
                    block[:, wanted] = self._tile(rows, tile)[:, columns[wanted] - tile.start]
            for step in steps:
                yield step, block[step.start - rows.start : step.stop - rows.start]

    def _dense_rows(self, rows: slice, chosen: np.ndarray | None = None) -> np.ndarray:
        if self.matrix is not None:
            return np.ascontiguousarray(self.matrix[rows])
        n_rows = rows.stop - rows.start if chosen is None else int(np.count_nonzero(chosen))
        block = np.empty((n_rows, self.shape.n_features), self.shape.dtype)
        # one tile at a time: Zarr would decode ten concurrently, and each needs memory
        for columns in row_blocks(self.shape.n_features, self.shape.tile_columns):
            tile = self._tile(rows, columns)
            block[:, columns] = tile if chosen is None else tile[chosen]
            del tile
        return block

    def _tile(self, rows: slice, columns: slice) -> np.ndarray:
        return self._filled(self._dense()[rows, columns], columns)

    def _filled(self, block: Any, columns: slice = slice(None)) -> Any:
        return block if self._fill is None else fill_missing(block, self._fill[columns])

    def _dense(self) -> Array:
        if self.matrix is not None:
            return self.matrix
        if self._x is None:
            if self.info.x_path is None:
                self._x = self.store.open(layout.X)
            else:
                path = as_path(self.info.x_path)
                self._x = ChunkedArray(path, open_foreign(path), foreign=True)
        return self._x

    def _stored_block(self, band: slice, start: int, stop: int) -> np.ndarray | sp.csc_matrix:
        """Return one band of columns ``start:stop``, dense or CSC."""
        if not self.shape.is_sparse:
            return self._tile(band, slice(start, stop))
        if self._columns_of_matrix is not None:
            return self._columns_of_matrix[:, start:stop][band]
        return self._sparse_band(band.start // self.shape.tile_rows, start, stop)

    def _sparse_rows(self, rows: slice) -> Iterator[sp.csr_matrix]:
        if self.matrix is not None:
            yield self.matrix[rows]
            return
        first, last = rows.start // self.shape.tile_rows, -(-rows.stop // self.shape.tile_rows)
        for index in range(first, last):
            band = self.shape.band(index)
            matrix = self._sparse_band(index, 0, self.shape.n_features).tocsr()
            yield matrix[max(rows.start - band.start, 0) : rows.stop - band.start]

    def _sparse_band(self, index: int, start: int, stop: int) -> sp.csc_matrix:
        band = self.shape.band(index)
        indptr = self.store.open(layout.SPARSE_INDPTR.format(index))[start : stop + 1]
        entries = slice(int(indptr[0]), int(indptr[-1]))
        if entries.start == entries.stop:
            return sp.csc_matrix((band.stop - band.start, stop - start), dtype=self.shape.dtype)
        data = self.store.open(layout.SPARSE_DATA.format(index))[entries]
        rows = self.store.open(layout.SPARSE_INDICES.format(index))[entries]
        shape = band.stop - band.start, stop - start
        return self._filled(sp.csc_matrix((data, rows, indptr - indptr[0]), shape=shape), slice(start, stop))


def _cuts(rows: slice, height: int) -> list[int]:
    """Return the start and stop of rows, and the multiples of `height` in between, ascending."""
    return [rows.start, *range((rows.start // height + 1) * height, rows.stop, height), rows.stop]


def _sampled(numbers: np.ndarray, band: slice) -> np.ndarray:
    return numbers[slice(*np.searchsorted(numbers, [band.start, band.stop]))]


def write_sample(store: Store, shape: Shape, index: int, block: np.ndarray | sp.csr_matrix) -> None:
    """Store the sampled rows of one band, given as `block`, shape (n_rows, n_features), dense or CSR."""
    band = shape.band(index)
    rows = block[_sampled(sample_rows(shape), band) - band.start]
    if not is_sparse(rows):
        store.put_array(layout.SAMPLE.format(index, "values"), rows)
        return
    store.put_array(layout.SAMPLE.format(index, "data"), rows.data.astype(shape.dtype))
    store.put_array(layout.SAMPLE.format(index, "indices"), rows.indices.astype(np.int32))
    store.put_array(layout.SAMPLE.format(index, "indptr"), rows.indptr.astype(np.int64))


def read_tile_info(store: Store) -> TileInfo | None:
    """Read ``tiles.json``, None if it is missing; raise :class:`StoreError` for another format version or damage."""
    raw = store.read_json(layout.TILES_JSON)
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
