"""Rows that a neighbor search compares: those of X, or their principal components."""

from __future__ import annotations

import numpy as np

from daskfs.graph.spec import GraphSpec
from daskfs.store import layout
from daskfs.store.arrays import Array
from daskfs.store.context import Context
from daskfs.store.tiles import Shape, Tiles
from daskfs.tiles.row_partitions import SMALLEST_STRETCH


def searched_shape(shape: Shape, spec: GraphSpec) -> Shape:
    """Return the shape of the rows that a search compares, for X of the given shape."""
    wanted = spec.n_components
    if wanted is None:
        return shape
    width = min(wanted, shape.n_samples, shape.n_features)
    return Shape(
        shape.n_samples,
        width,
        "float32",
        is_sparse=False,
        nnz=None,
        tile_rows=min(shape.n_samples, SMALLEST_STRETCH),  # bands begin where passes over the rows cut these
        tile_columns=width,
    )


def searched_tiles(context: Context, spec: GraphSpec) -> Tiles:
    """Return the tiles of the rows that a search compares, with NaN for missing values that are not filled."""
    tiles = context.tiles
    if spec.n_components is not None:
        return ProjectedTiles(tiles, spec)
    return tiles.unfilled() if tiles.is_pairwise else tiles


class ProjectedTiles(Tiles):
    """Rows of X in their principal components, from the run store of `tiles`."""

    def __init__(self, tiles: Tiles, spec: GraphSpec) -> None:
        super().__init__(tiles.run, tiles.info)
        self.shape = searched_shape(tiles.shape, spec)
        self._name = spec.scaling

    @property
    def _is_incomplete(self) -> bool:
        return False

    def _dense(self) -> Array:
        return self.store.open(layout.PCA_ROWS.format(self._name))

    def _sampled_band(self, index: int) -> np.ndarray:
        return self.store.open(layout.PCA_SAMPLE.format(self._name, index))[...]
