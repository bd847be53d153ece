"""Sizes of a neighbor search, and memory costs that its stages share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from daskfs.graph.partition import PIECE_BYTES, SAMPLED_PER_CELL, Partitioning, graph_dtype, projected_columns
from daskfs.graph.projection import COMPONENT_CHOICES, FORCED_FEATURES, LANDMARKS, SPARSE_COMPONENTS, directions
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.cells import LARGE_CELL
from daskfs.kernels.neighbors.distance_bounds import TILE_BYTES, TILE_ROWS, part_rows
from daskfs.kernels.neighbors.metrics import is_own
from daskfs.stages.cost import HALF_WORD, WORD, Array, Cost, Objects, fullest
from daskfs.store.shape import Shape, sample_rows
from daskfs.tiles.shapes import conversion_bytes, row_bytes

RECALL_ROWS = 500
"""Number of rows whose lists are compared with an exhaustive search."""


@dataclass(frozen=True)
class Search:
    """Sizes of an approximate search for lists of length `k`.

    Of the groups that a row visits (`copies_per_row`), and the cells that it probes in each (`cells_per_copy`), numbers
    are estimates before the run. `pairwise` means that values may be missing, and distances are over the columns that
    both rows have.
    """

    shape: Shape
    spec: GraphSpec
    k: int
    copies_per_row: float
    cells_per_copy: int
    pairwise: bool = False

    @property
    def n_copies(self) -> int:
        """Number of rows of all groups, including visitors."""
        return int(self.copies_per_row * self.shape.n_samples)

    @cached_property
    def n_sampled(self) -> int:
        """Number of rows of the sample from which cells are cut."""
        return sample_rows(self.shape).size

    @property
    def n_asked(self) -> int:
        """Number of queries for the recall."""
        return min(RECALL_ROWS, self.n_sampled)

    @property
    def columns(self) -> int:
        """Maximum number of columns in which cells are cut."""
        shape, components = self.shape, self.spec.projection
        if not is_own(self.spec.metric, is_sparse=shape.is_sparse):
            return LANDMARKS
        columns = components if isinstance(components, int) else shape.n_features
        if shape.is_sparse:
            return min(columns, SPARSE_COMPONENTS)
        is_forced = components == "auto" and shape.n_features > FORCED_FEATURES
        return min(columns, COMPONENT_CHOICES[-1]) if is_forced else columns

    @property
    def n_directions(self) -> int:
        """Maximum number of directions that rows are projected onto."""
        if self.shape.is_sparse:
            return directions(self.shape.n_features, self.spec.projection)
        return projected_columns(self.spec)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of rows in graph space."""
        return graph_dtype(np.dtype(self.shape.dtype), self.spec.read_scaling)

    @property
    def spilled_bytes(self) -> int:
        """Bytes of the rows of all groups, each with its number and the cells it probes."""
        return self.n_copies * (row_bytes(self.shape) + WORD + HALF_WORD * self.cells_per_copy)

    @property
    def found_bytes(self) -> int:
        """Bytes of the lists of all groups, each with its row number."""
        return self.n_copies * (WORD + (index_dtype(self.shape.n_samples).itemsize + WORD) * self.k)

    @property
    def compared_row_bytes(self) -> int:
        """Bytes of a row in graph space."""
        return row_bytes(self.shape) * self.dtype.itemsize // self.shape.itemsize


def products_cost(shape: Shape, n_base: int) -> Cost:
    """Return the memory cost of bounding distances of queries to `n_base` rows by matrix products.

    A product has as many queries as a tile fits, but at least the fewest that pay.
    """
    copies, dtype = (2, "float64") if shape.is_sparse else (1, "float32")  # sparse products are transposed
    tile = min(TILE_BYTES // HALF_WORD, TILE_ROWS[1] * n_base)
    fewest = TILE_ROWS[0], n_base
    return fullest(
        (Array("products, what is sorted of them, marks, and products in float64", (4, tile), "float32"),),
        (
            Array("products of the fewest queries", (copies, *fewest), dtype),
            Array("their marks", fewest, "bool"),
            Array("products of one query in float64, and what is sorted of them", (2, n_base)),
        ),
    )


def conversion_cost(shape: Shape) -> Cost:
    """Return the memory cost of blocks of rows for conversion to another dtype."""
    return (Objects("blocks of rows in float64", 1, conversion_bytes(shape.n_features)),)


def incomplete_cost(shape: Shape, n_base: int) -> Cost:
    """Return the additional memory cost of comparing rows with missing values with `n_base` others."""
    if shape.is_sparse:
        return (Objects("norms, numbers of shared columns, and bounds", 3, TILE_BYTES),)
    columns = shape.n_features
    tile = int(np.clip(TILE_BYTES // max(HALF_WORD * n_base, 2 * WORD * columns), *TILE_ROWS))
    part = part_rows(tile, columns)
    return (
        Array("both bounds in the place of one product", (2, min(TILE_BYTES // WORD, tile * n_base))),
        Array("marks and squares of rows", (6, tile + part, columns)),
        Array("what is known of their pairs", (6, tile, part)),
    )


def group_cost(search: Search) -> Cost:
    """Return the memory cost of searching a group, excluding its rows."""
    return (
        Objects("pieces that are read", 4, PIECE_BYTES),
        Objects("products of a tile, what is sorted of them, and marks", 3, TILE_BYTES),
        Array("centers", (-(-search.n_sampled // SAMPLED_PER_CELL), search.columns), "float32"),
        *(incomplete_cost(search.shape, LARGE_CELL) if search.pairwise else ()),
    )


def centers_cost(search: Search, plan: Partitioning, copies: int) -> Cost:
    """Return the memory cost of cell and group centers, their multiples for the product, and directions."""
    centers = (copies, 2, plan.n_cells + plan.n_groups, search.columns)
    turned = (copies, search.shape.n_features, search.n_directions)
    return (
        Array("centers of cells and groups, and their multiples", centers, "float32"),
        Array("directions that rows are turned onto", turned, "float32"),
    )
