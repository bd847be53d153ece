"""Rows that a neighbor search compares: those of X, their principal components, or another representation of them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from daskfs.graph.spec import GraphSpec
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.store import layout
from daskfs.store.arrays import StoredArray
from daskfs.store.context import Context
from daskfs.store.readers import DenseReader
from daskfs.store.shape import Shape, rows_within, sample_rows
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles
from daskfs.tiles.row_partitions import SMALLEST_STRETCH


def searched_shape(shape: Shape, spec: GraphSpec) -> Shape:
    """Return the shape of the rows that a search compares, for X of the given shape."""
    if spec.rep_columns is not None:
        width, dtype = spec.rep_columns, spec.rep_dtype
    elif spec.n_components is not None:
        width, dtype = min(spec.n_components, shape.n_samples, shape.n_features), "float32"
    else:
        return shape
    return Shape(
        shape.n_samples,
        width,
        dtype,
        is_sparse=False,
        nnz=None,
        tile_rows=min(shape.n_samples, SMALLEST_STRETCH),  # bands begin where passes over the rows cut these
        tile_columns=width,
    )


def searched_tiles(context: Context, spec: GraphSpec) -> Tiles:
    """Return the tiles of the rows that a search compares, with NaN for missing values that are not filled."""
    tiles = context.tiles
    if spec.own_rows is not None:
        shape = searched_shape(tiles.shape, spec)
        facts = {name: fact for name, fact in tiles.info.facts.items() if name != "missing"}
        info = replace(tiles.info, shape=shape, facts=facts)
        return Tiles(tiles.run, info, OwnRowsReader(tiles.run, shape, spec.own_rows))
    return tiles.unfilled() if tiles.is_pairwise else tiles


class OwnRowsReader(DenseReader):
    """Reader of rows that are compared instead of those of X, from the run store."""

    def __init__(self, run: Store, shape: Shape, name: str) -> None:
        super().__init__(run, shape, None, is_incomplete=False)
        self._name = name

    @cached_property
    def array(self) -> StoredArray:
        """The rows as stored, shape (n_samples, n_features)."""
        return self.store.open(layout.OWN_ROWS.format(self._name))

    def _sampled_band(self, index: int) -> np.ndarray:
        return self.store.open(layout.OWN_SAMPLE.format(self._name, index))[...]


def read_own_rows(store: Store, name: str, rows: np.ndarray) -> np.ndarray:
    """Return some of the stored rows, by ascending numbers, shape (n_rows, n_columns); one band is read at a time."""
    return read_listed(store.open(layout.OWN_ROWS.format(name)), rows, SMALLEST_STRETCH)


def read_listed(array: StoredArray, rows: np.ndarray, height: int) -> np.ndarray:
    """Return some rows of a stored table, by ascending numbers, read by blocks of `height` rows that have any."""
    table = np.empty((rows.size, array.shape[1]), array.dtype)
    for block in row_blocks(array.shape[0], height):
        part = slice(*np.searchsorted(rows, [block.start, block.stop]))
        if part.start < part.stop:
            table[part] = array[block][rows[part] - block.start]
    return table


def create_own_rows(store: Store, name: str, shape: Shape) -> None:
    """Create the array of the rows of a shape that :func:`searched_shape` returned."""
    chunks = (shape.tile_rows, shape.n_features)
    store.create(layout.OWN_ROWS.format(name), (shape.n_samples, shape.n_features), shape.dtype, chunks)


def put_own_rows(store: Store, name: str, shape: Shape, start: int, rows: np.ndarray) -> None:
    """Store rows from number `start`, whole bands, shape (n_rows, n_columns), and those of them in the sample."""
    array, sampled = store.open(layout.OWN_ROWS.format(name)), sample_rows(shape)
    for part in row_blocks(len(rows), shape.tile_rows):
        band = slice(start + part.start, start + part.stop)
        array[band] = rows[part]
        chosen = rows_within(sampled, band) - band.start
        if chosen.size:
            store.put_array(layout.OWN_SAMPLE.format(name, band.start // shape.tile_rows), rows[part][chosen])
