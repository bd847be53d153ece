"""Part of a finished tile store as a source: some of its columns, or the rows of one batch.

Exports of reduced data and tiles of a batch are ordinary conversions of such a source: planned, resumed, checked and
run by workers. Columns stay in the order of X.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import JobError, nearest
from daskfs.kernels.blocks import Block
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources import Source, SourceInfo, SourceSpec, open_source
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.columns import ROWS_AT_ONCE
from daskfs.sources.labels import NONE
from daskfs.sources.multifile import PartSizes
from daskfs.sources.row_names import in_stretches
from daskfs.sources.sample_columns import as_checked
from daskfs.sources.some_rows import SomeRows
from daskfs.sources.state import TILES
from daskfs.sources.stored_column import StoredColumn
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.addresses import url_of
from daskfs.store.context import label_counts_of, open_tiles, sample_column_of
from daskfs.store.row_names import has_row_names, stretches_of
from daskfs.store.shape import Shape, rows_within
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles, read_tile_info


def columns_to_text(columns: np.ndarray, n_features: int) -> str:
    """Encode column indices, shape (n_columns,), int, as short text for units; see :func:`columns_from_text`."""
    chosen = np.zeros(n_features, dtype=bool)
    chosen[columns] = True
    return base64.b85encode(zlib.compress(np.packbits(chosen).tobytes(), 9)).decode()


def columns_from_text(text: str, n_features: int) -> np.ndarray:
    """Decode column indices, shape (n_columns,), ascending, int64."""
    bits = np.frombuffer(zlib.decompress(base64.b85decode(text)), np.uint8)
    return np.flatnonzero(np.unpackbits(bits, count=n_features))


def part_spec(tiles: Tiles, address: str, **part: Any) -> SourceSpec:
    """Return the spec of a part of a tile store, with the names of its labels and per-sample columns.

    The `part` is `columns`, or `only_batch`, whose rows no longer have a batch; :func:`open_part_or_source` finds the
    store by its `address`.
    """
    present: dict[str, Any] = {
        name: layout.SAMPLE_COLUMN.format(name) for name in _sample_columns(tiles, part.get("only_batch"))
    }
    labels = None if tiles.info.task is None else layout.LABELS
    return SourceSpec(source=address, labels=labels, missing=tiles.missing_policy, unlabeled=NONE, **present, **part)


def _sample_columns(tiles: Tiles, only_batch: str | None) -> tuple[str, ...]:
    """Return the names of the per-sample columns of a part."""
    left_out = () if only_batch is None else ("batch",)
    return tuple(name for name in SAMPLE_COLUMNS if tiles.info.facts.get(name) is not None and name not in left_out)


def open_part_or_source(spec: SourceSpec, part_sizes: PartSizes | None = None, where: str = "/") -> Source:
    """Open the source of a spec: a part of a tile store, or as :func:`daskfs.sources.open_source` does.

    Only some of its rows if it has more than ``spec.max_samples``. `where` is the store whose plan has the spec, from
    which a part is addressed.
    """
    source = TilePart(spec, url_of(spec.source, where)) if spec.is_part else open_source(spec, part_sizes)
    if spec.max_samples is None or source.info.n_samples <= spec.max_samples:
        return source
    return SomeRows(source, spec.max_samples)


def lazy_columns(url: str, columns: np.ndarray) -> Any:
    """Return some columns of a tile store, in the given order, as a dask array of one chunk for each band."""
    import dask.array as da
    from dask.delayed import delayed

    shape = open_tiles(url).shape
    empty = np.empty((0, 0), shape.dtype)
    meta = sp.csr_matrix(empty) if shape.is_sparse else empty
    array_of: Any = da.from_delayed  # has no types
    arrays = []
    for band in row_blocks(shape.n_samples, shape.tile_rows):
        block = delayed(_read_columns)(url, columns, band.start, band.stop)
        arrays.append(array_of(block, (band.stop - band.start, columns.size), meta=meta))
    return da.concatenate(arrays)  # type: ignore[no-untyped-call]


def _read_columns(url: str, columns: np.ndarray, start: int, stop: int) -> Block:
    tiles = open_tiles(url)
    part = TilePart(part_spec(tiles, url, columns=columns_to_text(columns, tiles.shape.n_features)), url)
    return part.read_rows(start, stop)[:, np.argsort(np.argsort(columns))]


def rows_of_batch(tiles: Tiles, name: str) -> np.ndarray:
    """Return the rows of a batch, shape (n_rows,), ascending, int64; raise :class:`JobError` for an unknown batch."""
    described = tiles.info.facts.get("batch")
    if described is None:
        msg = f"data.only_batch is '{name}', and {tiles.store.url} has no batches: convert the data with --batch."
        raise JobError(msg)
    names = described["names"]
    if name not in names:
        msg = f"data.only_batch is '{name}', and no batch of {tiles.store.url} has that name.{nearest(name, names)}"
        raise JobError(msg)
    codes = sample_column_of(tiles, "batch")
    assert codes is not None
    return np.flatnonzero(codes == names.index(name))


class TilePart(Source):
    """Some columns, or some rows, of a finished tile store.

    In the spec `columns` is the text of :func:`columns_to_text`, and `only_batch` the name of a batch.
    """

    def __init__(self, spec: SourceSpec, url: str) -> None:
        self._url, self._batch = url, spec.only_batch
        is_of_run = spec.source != url  # by a relative address: of the run that a batch belongs to
        self._tiles = tiles = open_tiles(url, is_own=is_of_run).unfilled()
        shape = tiles.shape
        self._columns = None if spec.columns is None else columns_from_text(spec.columns, shape.n_features)
        self._rows = None if spec.only_batch is None else rows_of_batch(tiles, spec.only_batch)
        self._sample_columns = _sample_columns(tiles, spec.only_batch)
        self.info = SourceInfo(
            n_samples=shape.n_samples if self._rows is None else self._rows.size,
            n_features=shape.n_features if self._columns is None else self._columns.size,
            dtype=np.dtype(shape.dtype),
            is_sparse=shape.is_sparse,
            feature_names=self._names(),
            identity={"kind": TILES, "fingerprint": tiles.info.fingerprint},
            nnz=self._nnz(),
            row_multiple=shape.tile_rows if self._rows is None else 1,
            has_labels=self._has_labels(),
            sample_columns=self._sample_columns,
            has_row_names=has_row_names(tiles),
        )
        self.reading_bytes = _reading_bytes(shape) + (0 if self._rows is None else 17 * shape.n_samples)
        """Peak bytes of a read in addition to the returned rows and those of one band."""

    def _names(self) -> tuple[str, ...] | None:
        """Return the feature names; chosen columns keep generated names, as their indices change."""
        names = self._tiles.feature_names()
        if self._columns is not None:
            return tuple(names[column] for column in self._columns)
        return tuple(names) if self._tiles.info.facts["named"] else None

    def _nnz(self) -> int | None:
        shape = self._tiles.shape
        if not shape.is_sparse:
            return None
        if self._columns is not None:
            return int(self._tiles.column_moments()["nonzero"][self._columns].sum())
        n_rows = shape.n_samples if self._rows is None else self._rows.size
        return (shape.nnz or 0) * n_rows // shape.n_samples

    def _has_labels(self) -> bool:
        whole, *of_batches = label_counts_of(self._tiles)
        if whole is None or self._batch is None:
            return whole is not None and whole.n_labeled > 0
        counts = of_batches[self._tiles.info.facts["batch"]["names"].index(self._batch)]
        return counts is not None and counts.n_labeled > 0

    def identity_now(self) -> dict[str, Any]:
        """Return the ``info.identity`` of the tiles as they are now."""
        info = read_tile_info(Store(as_path(self._url)))
        return {"kind": TILES, "fingerprint": None if info is None else info.fingerprint}

    def _read_rows(self, start: int, stop: int) -> Block:
        if self.info.is_sparse:
            return sp.vstack([block for _, block in self._blocks(start, stop)], format="csr")
        out = np.empty((stop - start, self.info.n_features), self.info.dtype)
        for first, block in self._blocks(start, stop):
            out[first - start : first - start + block.shape[0]] = block
        return out

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[int, Block]]:
        """Yield rows band by band, each block with the index of its first row here; skip bands without chosen rows."""
        tiles, shape = self._tiles, self._tiles.shape
        for band in row_blocks(shape.n_samples, shape.tile_rows):
            if self._rows is None:
                inside, chosen = slice(max(band.start, start), min(band.stop, stop)), None
                first = inside.start
            else:
                first, last = np.clip(np.searchsorted(self._rows, [band.start, band.stop]), start, stop).tolist()
                rows_wanted = self._rows[first:last]
                inside = slice(*(rows_wanted[[0, -1]] + [0, 1]).tolist()) if rows_wanted.size else slice(0, 0)
                chosen = np.isin(np.arange(inside.start, inside.stop), rows_wanted, assume_unique=True)
            if inside.start >= inside.stop:
                continue
            if self._columns is not None and not shape.is_sparse:
                for rows, block in tiles.column_blocks(self._columns, inside):
                    yield rows.start, block
                continue
            for _, block in tiles.aligned_rows(inside, shape.tile_rows, None, chosen):
                yield first, block if self._columns is None else block[:, self._columns]

    def labels_column(self) -> StoredColumn | None:
        """Return the labels; None if no row has a label.

        These are class names, dtype object, ``None`` where unlabeled, or float64 targets.
        """
        info = self._tiles.info
        if not self.info.has_labels:
            return None

        def read(rows: slice) -> np.ndarray:
            labels = self._tiles.labels(rows)
            assert labels is not None
            if labels.task == "regression":
                return labels.values
            return np.array([*labels.classes, None], dtype=object)[labels.values]

        return StoredColumn(self.info.n_samples, f"{info.source}:labels", "labels", lambda: self._select_rows(read))

    def sample_column(self, name: str) -> StoredColumn | None:
        """Return a per-sample column, as checked in its source; None if there is none."""
        if name not in self._sample_columns:
            return None
        info = self._tiles.info

        def read(rows: slice) -> np.ndarray:
            values = sample_column_of(self._tiles, name, rows)
            assert values is not None
            return as_checked(name, values, info.facts[name])

        return StoredColumn(self.info.n_samples, f"{info.source}:{name}", name, lambda: self._select_rows(read))

    def _select_rows(self, read: Callable[[slice], np.ndarray]) -> Iterator[np.ndarray]:
        """Yield the values of the chosen rows, some at a time."""
        for rows in row_blocks(self._tiles.shape.n_samples, ROWS_AT_ONCE):
            if self._rows is None:
                yield read(rows)
            elif (rows_here := rows_within(self._rows, rows)).size:
                yield read(rows)[rows_here - rows.start]

    def read_row_names(self) -> Iterator[np.ndarray] | None:
        """Return an iterator over the row names, UTF-8 in a dtype ``S``, some at a time; None if rows have no names."""
        if not has_row_names(self._tiles):
            return None
        return stretches_of(self._tiles) if self._rows is None else in_stretches(self._names_of(self._rows))

    def _names_of(self, rows: np.ndarray) -> Iterator[list[bytes]]:
        start = 0
        for names in stretches_of(self._tiles):
            first, last = np.searchsorted(rows, [start, start + names.size])
            yield names[rows[first:last] - start].tolist()
            start += names.size


def _reading_bytes(shape: Shape) -> int:
    """Return the bytes of a tile, stored and decoded; of a sparse band by columns, by rows and as chosen columns."""
    if not shape.is_sparse:
        return 2 * shape.tile_rows * shape.tile_columns * shape.itemsize
    return 4 * ((shape.nnz or 0) // shape.n_bands * 2 * (shape.itemsize + 4) + 8 * shape.n_features)
