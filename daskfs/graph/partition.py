"""Partitioning of a neighbor search into units.

In an exact search every unit holds all rows and queries one block of them. An approximate search distributes the rows
over groups, one unit each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from daskfs.graph.projection import COMPONENT_CHOICES
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import Block, index_dtype
from daskfs.kernels.neighbors.cell_search import SPARE
from daskfs.kernels.neighbors.cells import BLOCK_ROWS, MAX_PROBES, cell_rows
from daskfs.kernels.neighbors.descent_search import foreign_width, list_width, n_linked
from daskfs.kernels.neighbors.metrics import LENGTHS
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import Array, Cost, fullest, total
from daskfs.store import layout
from daskfs.store.arrays import StoredArray
from daskfs.store.shape import Shape, sample_rows
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles

PROJECTED_WIDTHS = (2, 8)
"""Candidates per requested neighbor in a projection: without missing values, and if means replace them. With 4000 rows
of 5000 columns, 128 components and 5, 20 and 50 % missing, 2 candidates lead to a recall of 99, 95 and 50 %; for 20 and
50 % missing, 4 lead to 98 and 60 %, 8 to 99 and 76 %."""
SAMPLED_PER_CELL = 8
GROUP_ROWS = 50_000
LEAST_GROUPS = 8
GROUP_BYTES = 2**28
MANY_GROUPS = 32
"""Above this number group sizes grow with the data, since each additional group costs copies of border rows."""
LARGEST_GROUP = 4.5
"""Rows of the largest group with visitors, relative to the mean group size: 1.5 for uneven sizes, 3 copies of a row."""
STEP_ROWS = (BLOCK_ROWS, 8 * BLOCK_ROWS)
STEP_BYTES = 2**26
ASSIGN_UNITS = 8
ASSIGN_BYTES = 2**26
PIECE_BYTES = 2**22
"""Bytes of the spilled rows of a group that are written and read at a time."""
MERGE_ROWS = 2**20
MERGED_ENTRIES = 2**20
"""List entries per group that are merged at a time."""
PLANNED_VISITS, FOUND_COPIES = 3, 3
"""Groups with lists of the same row, and copies of these lists until they are merged."""
MERGED_COPIES = 5 * 5
"""Lists per row while those of five groups are merged: as found, concatenated, their order, sorted, and a mask of
distinct ones."""
MOST_MEMBERS = 2**31 - 1
"""Rows within a group have numbers of 32 bits."""
MIN_BLOCK_ROWS = 4096
MAX_BLOCK_ROWS = 2**16


def block_rows(n_samples: int) -> int:
    """Return the rows per chunk of the graph's arrays, and per block of streamed edges.

    Edge sums are taken block by block, so the block size depends on n_samples alone, not on workers or memory.
    """
    height = 1 << max(0, (n_samples // 16 - 1).bit_length())
    return int(np.clip(height, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS))


def create_list_arrays(store: Store, name: str, n_samples: int, k: int) -> None:
    """Create the arrays of neighbor lists of length k: indices (int32 or int64) and distances (float64)."""
    chunks = (block_rows(n_samples), k)
    store.create(layout.KNN_INDICES.format(name), (n_samples, k), index_dtype(n_samples), chunks)
    store.create(layout.KNN_DISTANCES.format(name), (n_samples, k), np.float64, chunks)


def open_lists(store: Store, name: str) -> tuple[StoredArray, StoredArray]:
    """Return the arrays of neighbor lists: indices and distances, shape (n_samples, k)."""
    return store.open(layout.KNN_INDICES.format(name)), store.open(layout.KNN_DISTANCES.format(name))


def put_lists(store: Store, name: str, rows: slice, indices: np.ndarray, distances: np.ndarray) -> None:
    """Write the lists of some rows, shape (n_rows, k) each."""
    for array, part in zip(open_lists(store, name), (indices, distances), strict=True):
        array[rows] = part


def step_rows(shape: Shape) -> int:
    """Return the number of rows that are compared with centers and queries at a time.

    They are whole blocks of the kernel, fewer for wide rows, and at most the rows of a band.
    """
    fitting = STEP_BYTES * shape.n_samples // max(shape.x_bytes, 1)
    height = int(np.clip(fitting, *STEP_ROWS))
    return min(height - height % BLOCK_ROWS, shape.tile_rows)


def spilled_rows(shape: Shape) -> int:
    """Return the number of spilled rows that are written and read at a time."""
    return max(1, PIECE_BYTES * shape.n_samples // max(shape.x_bytes, 1))


def search_units(n_samples: int) -> list[slice]:
    """Return the queries of each unit of an exact search: one block of rows."""
    return list(row_blocks(n_samples, block_rows(n_samples)))


def rows_at_a_merge(k: int) -> int:
    """Return the number of rows whose lists of length k are merged at a time."""
    return max(1, MERGED_ENTRIES // k)


@dataclass(frozen=True)
class Partitioning:
    """Distribution of the rows of an approximate search over units.

    Attributes
    ----------
    n_groups, n_cells
        Number of groups of rows, one "build" unit each, and of cells over all groups.
    bands_per_unit
        Bands that one "assign" unit assigns to groups.
    max_members
        Most rows of a group that are searched at once; a larger group is searched in parts.
    blocks_per_unit
        Blocks of rows whose lists one "merge" unit merges.
    """

    n_groups: int
    n_cells: int
    bands_per_unit: int
    max_members: int
    blocks_per_unit: int

    def assign_units(self, shape: Shape) -> int:
        """Return the number of "assign" units."""
        return -(-shape.n_bands // self.bands_per_unit)

    def assigned(self, shape: Shape, unit: int) -> list[slice]:
        """Return the bands of one "assign" unit."""
        first = unit * self.bands_per_unit
        return [shape.band(i) for i in range(first, min(first + self.bands_per_unit, shape.n_bands))]

    def merged(self, n_samples: int, unit: int) -> slice:
        """Return the rows whose lists one "merge" unit merges; the first unit has the most."""
        size = self.blocks_per_unit * block_rows(n_samples)
        return slice(unit * size, min((unit + 1) * size, n_samples))

    def merge_units(self, n_samples: int) -> int:
        """Return the number of "merge" units."""
        return -(-n_samples // (self.blocks_per_unit * block_rows(n_samples)))


def largest_block(n_samples: int) -> int:
    """Return the number of rows of the largest block."""
    return min(block_rows(n_samples), n_samples)


def member_bytes(shape: Shape, spec: GraphSpec, k: int) -> int:
    """Return the bytes per row of a group during its search."""
    return total(member_cost(shape, spec, k, 1))


def member_cost(shape: Shape, spec: GraphSpec, k: int, n_members: int, *, pairwise: bool = False) -> Cost:
    """Return the memory cost of a group's rows during its search: values, projection and lists."""
    if spec.engine == "pynndescent":
        columns = shape.n_features if not shape.is_sparse else 3 * ((shape.nnz or 0) // max(shape.n_samples, 1) + 1)
        return (  # a fit to the peaks of its rows, heaps, candidates and updates
            *_member_rows(shape, spec, n_members),
            Array("rows as searched, and as measured", (3, n_members, columns), "float32"),
            Array("heaps, candidates and marks", (n_members, foreign_width(k), 33), "int8"),
            Array("leaves of trees", (24, n_members), "int32"),
            Array("rows and distances that are found", (4, n_members, k)),
        )
    width = search_width(spec, k, pairwise=pairwise)
    by_cells = (
        *((_compared_rows(shape, spec, n_members, 1),) if spec.projection else ()),
        Array("candidates", (n_members, width), "int32"),
        Array("how far they are", (n_members, width)),
        Array("which of them are too far to be measured", (n_members, width), "bool"),
        Array("cells that rows look into, stretched and in order", (3, n_members, MAX_PROBES), "int32"),
    )
    longest = max(list_width(k, np.inf), search_width(spec, k))
    by_descent = (
        _compared_rows(shape, spec, n_members, 2),
        Array("neighbors so far, wider, and as returned", (3, n_members, longest), "int32"),
        Array("how far they are", (3, n_members, longest), "float32"),
        Array("which of them are new", (n_members, longest), "bool"),
        Array("neighbors that are compared, new and old", (2, n_members, n_linked(np.inf)), "uint64"),
        Array("order of a tree, and keys", (3, n_members), "float32"),
    )
    may_descend = spec.engine == "descent" or (spec.engine == "cells" and not shape.is_sparse)
    return (
        *_member_rows(shape, spec, n_members),
        Array("rows that are found", (n_members, k), "int64"),
        Array("distances that are found", (n_members, k)),
        *(fullest(by_cells, by_descent) if may_descend else by_cells),
    )


def _compared_rows(shape: Shape, spec: GraphSpec, n_members: int, copies: int) -> Array:
    """Return the memory cost of rows in the space in which they are compared."""
    columns = projected_columns(spec) or (COMPONENT_CHOICES[-1] if shape.is_sparse else shape.n_features)
    return Array("rows as compared", (copies, n_members, columns + 1), "float32")


def _member_rows(shape: Shape, spec: GraphSpec, n_members: int) -> Cost:
    """Return the memory cost of rows, and of unit rows under cosine."""
    copies = 1 if spec.metric in LENGTHS else 2
    dtype = str(graph_dtype(np.dtype(shape.dtype), spec.read_scaling))
    values: tuple[int, ...] = (copies, n_members, shape.n_features)
    rows: Cost = (Array("rows of a group", values, dtype),)
    if shape.is_sparse:
        nnz = n_members * ((shape.nnz or 0) // max(shape.n_samples, 1))
        values = (copies, nnz)
        begins = Array("where they begin", (2 * copies, n_members), "int64")
        rows = (*sparse_values("rows of a group, run by run and as one", 2 * copies, nnz, dtype), begins)
    if spec.read_scaling is not None:
        rows += (Array("these before they are rescaled", values, shape.dtype),)
    return rows


def sparse_values(name: str, copies: int, nnz: int, dtype: str) -> Cost:
    """Return the memory cost of the values and column indices of sparse rows."""
    return Array(f"values of {name}", (copies, nnz), dtype), Array(f"columns of {name}", (copies, nnz), "int32")


def lists_cost(name: str, copies: int, n_rows: int, k: int, n_samples: int) -> Cost:
    """Return the memory cost of stored neighbor lists: row numbers and distances."""
    shape = (copies, n_rows, k)
    return Array(f"{name}: rows", shape, str(index_dtype(n_samples))), Array(f"{name}: distances", shape)


def found_lists(n_samples: int, n_rows: int, k: int) -> Cost:
    """Return the memory cost of rows' lists from all groups: as read, concatenated, and a copy."""
    return lists_cost("lists of each group", FOUND_COPIES * PLANNED_VISITS, n_rows, k, n_samples)


def merged_lists(n_samples: int, n_rows: int, k: int) -> Cost:
    """Return the memory cost of merging the lists of rows from several groups."""
    return lists_cost("lists that are put in order", MERGED_COPIES, n_rows, k, n_samples)


def partition_rows(
    shape: Shape, spec: GraphSpec, k: int, available: int | None, *, pairwise: bool = False
) -> Partitioning:
    """Distribute the rows of an approximate search over units.

    The numbers of groups and cells follow from the size of the data, so that the graph does not depend on worker
    memory; only if the largest group would not fit `available` bytes, there are more groups. `pairwise` means that
    values may be missing, which needs more memory.
    """
    n = shape.n_samples
    row_bytes = total(member_cost(shape, spec, k, 1, pairwise=pairwise))
    n_groups = -(-n * member_bytes(shape, spec, k) // GROUP_BYTES)
    if n_groups > MANY_GROUPS:
        n_groups = int(MANY_GROUPS * np.sqrt(n_groups / MANY_GROUPS))
    n_groups = max(n_groups, min(LEAST_GROUPS, n // GROUP_ROWS), 1)
    sampled = sample_rows(shape).size
    if available is not None:
        n_groups = max(n_groups, int(np.ceil(LARGEST_GROUP * (n * row_bytes) / max(available, row_bytes))))
    n_groups = int(min(n_groups, max(1, sampled // 64)))
    n_cells = int(np.clip(n // cell_rows(k), n_groups, max(n_groups, sampled // SAMPLED_PER_CELL)))
    max_members = min(max(16 * k, int(LARGEST_GROUP * n / n_groups)), MOST_MEMBERS)
    size = block_rows(n)
    blocks = min(-(-n // size // ASSIGN_UNITS), MERGE_ROWS // size)
    if available is not None:
        max_members = max(16 * k, min(max_members, available // row_bytes))
        block, ordered = (total(cost(n, size, 1)) for cost in (found_lists, merged_lists))  # one is merged at a time
        blocks = min(blocks, (available // k - ordered) // block)
    bands = max(1, min(shape.n_bands // ASSIGN_UNITS, ASSIGN_BYTES * shape.n_bands // max(shape.x_bytes, 1)))
    return Partitioning(n_groups, n_cells, bands, max_members, max(1, blocks))


def projected_columns(spec: GraphSpec) -> int:
    """Return the maximum number of columns of a projection, 0 for none."""
    if spec.projection is None:
        return 0
    return spec.projection if isinstance(spec.projection, int) else COMPONENT_CHOICES[-1]


def search_width(spec: GraphSpec, k: int, *, pairwise: bool = False) -> int:
    """Return the number of candidates per row whose distances are computed: more for projected or incomplete rows."""
    if spec.projection is None:
        return k + SPARE
    return (PROJECTED_WIDTHS[1] if pairwise else PROJECTED_WIDTHS[0]) * k + SPARE


def graph_dtype(stored: np.dtype[np.generic], scaling: Scaling | None) -> np.dtype[np.generic]:
    """Return the dtype of rows in graph space: as stored, float64 once rescaled so that ties survive the rescaling."""
    return stored if scaling is None else np.dtype(np.float64)


def read_members(tiles: Tiles, members: slice, scaling: Scaling | None) -> Block:
    """Return the rows `members` in graph space, read one band at a time.

    Shape (n_rows, n_features), dense in C order or CSR, dtype as :func:`graph_dtype`.
    """
    dtype = graph_dtype(np.dtype(tiles.shape.dtype), scaling)
    cuts = [rows for _, rows in tiles.shape.bands(members)]
    if tiles.shape.is_sparse:
        return sp.vstack([tiles.read_rows(rows, scaling).astype(dtype) for rows in cuts], format="csr")
    result = np.empty((members.stop - members.start, tiles.shape.n_features), dtype)
    for rows in cuts:
        result[rows.start - members.start : rows.stop - members.start] = tiles.read_rows(rows, scaling)
    return result
