"""Tile shapes of X, and sizes of tiles, bands and slabs.

A band is all columns of some rows, one row of tiles; a slab is all rows of some columns.
"""

from __future__ import annotations

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.statistics.moments import ROW_BLOCK, compiles_tree
from daskfs.sources.checks import MOST_FEATURES
from daskfs.stages.cost import (
    COMPILED,
    HALF_WORD,
    MIN_UNITS,
    PROCESS_BYTES,
    UNITS_PER_THREAD,
    USABLE,
    WORD,
    Array,
    Cost,
    Held,
    MiB,
    Objects,
    total,
)
from daskfs.store.shape import Shape, sparse_chunk

MOST_ROWS = 2**40
"""More than memory allows: a unit that scores a column holds tens of bytes a row."""
MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
TABLE_ROWS = 1024
"""Rows of which a table of columns takes about as long to decode a part as to decode all."""
SLAB_BYTES = 256 * MiB
"""Bytes of a slab or band if the memory limit of a worker is unknown."""
SLABS_PER_WORKER = 3
"""Slabs or bands that fit a worker in addition to the bare process: one, and its copies."""
WANTED_TILES = 64
WANTED_SPARSE_BANDS = 16
"""Number of tiles or sparse bands to aim at, within the minimum and maximum tile size."""
SENT_ROW_BYTES = 256
"""Bytes per row of a band, in addition to its values, while rows are assigned to groups."""
NARROW_ROWS = 2**20
"""Rows that a band may have regardless of `SENT_ROW_BYTES`."""
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, too often to pay off in parallelism."""
ALIGNED_COLUMNS = 8
"""Wider tiles have a multiple of this many columns: a cache line of float64."""
FEW_CHUNKS = 64
"""Number of chunks that can be opened quickly, however small they are."""
REORDERED_COPIES = 5
"""Least number of copies of a sparse band held while it is converted from row to column order."""
CONVERTED_COLUMNS = 512
"""Blocks for conversion to float64 have 8192 rows up to this width, and fewer rows above it."""
FILL_ROWS = 2
"""Stored rows: fill value and number of missing values of each column."""


def slab_budget(memory_limit: int | None) -> int:
    """Return the maximum bytes of a slab or band: a third of a worker's usable memory beyond the bare process."""
    if memory_limit is None:
        return SLAB_BYTES
    return max(int((USABLE * memory_limit - PROCESS_BYTES) / SLABS_PER_WORKER), MiB)


def plan_shape(
    n_samples: int,
    n_features: int,
    dtype: str,
    nnz: int | None,
    memory_limit: int | None,
    row_multiple: int = 1,
    n_units: int = MIN_UNITS,
) -> Shape:
    """Choose the tile shape of a matrix.

    Tiles are at most 64 MiB; a slab of one tile column and a band of one tile row fit the slab budget. For parallelism,
    a large X has `n_units` bands, and slabs of at most an `n_units`-th of its columns, rounded up; no slabs narrower
    than 32 columns for that. If possible, a band has at least the number of rows that the source reads at once
    (`row_multiple`); otherwise the source would read them again for each band. Few rows that it reads only as a whole
    are one band of up to 64 MiB.

    :class:`InputError` if there are too many rows or columns for the numbers that daskfs stores.
    """
    if n_samples > MOST_ROWS or n_features > MOST_FEATURES:
        msg = f"X has {n_samples} rows and {n_features} columns: there may be up to {MOST_ROWS} and {MOST_FEATURES}."
        raise InputError(msg)
    itemsize = np.dtype(dtype).itemsize
    budget = slab_budget(memory_limit)
    if nnz is not None:
        entries = nnz * entry_bytes(itemsize)
        per_row = max(1, entries // max(n_samples, 1))
        most = min(MAX_TILE_BYTES, budget // REORDERED_COPIES)
        # one for each thread, as every slab reads from every band where its columns begin
        n_bands = max(WANTED_SPARSE_BANDS, n_units // UNITS_PER_THREAD)
        target = int(np.clip(entries // n_bands, MIN_TILE_BYTES, max(MIN_TILE_BYTES, most)))
        together = min(row_multiple, n_samples // n_units, most // per_row)
        rows = _band_rows(max(target // per_row, together), n_samples)
        columns = min(n_features, max(1, min(budget // (n_samples * itemsize), slab_width(n_features, n_units))))
        return Shape(n_samples, n_features, dtype, is_sparse=True, nnz=nnz, tile_rows=rows, tile_columns=columns)
    x_bytes = n_samples * n_features * itemsize
    columns = n_features
    if x_bytes > MIN_TILE_BYTES:
        n_slabs = min(n_units, max(1, n_features // MIN_SLAB_COLUMNS))
        columns = -(-n_features // n_slabs)
    columns = max(1, min(columns, budget // (n_samples * itemsize)))
    if columns > ALIGNED_COLUMNS:
        columns -= columns % ALIGNED_COLUMNS
    target = int(np.clip(x_bytes // WANTED_TILES, MIN_TILE_BYTES, MAX_TILE_BYTES))
    fitting = budget // (n_features * itemsize)
    # for narrow rows, per-row overhead takes more memory than the values
    fitting = min(fitting, max(NARROW_ROWS, budget // (n_features * itemsize + SENT_ROW_BYTES)))
    is_whole = n_samples <= min(row_multiple, TABLE_ROWS) and x_bytes <= MAX_TILE_BYTES
    least = n_samples if is_whole else n_samples // n_units
    fitting = min(fitting, max(least, MIN_TILE_BYTES // (columns * itemsize)))
    together = min(row_multiple, least, MAX_TILE_BYTES // (columns * itemsize))
    rows = _band_rows(min(max(target // (columns * itemsize), together), fitting), n_samples)
    return Shape(n_samples, n_features, dtype, is_sparse=False, nnz=None, tile_rows=rows, tile_columns=columns)


def slab_width(n_features: int, n_units: int) -> int:
    """Return the columns of the slabs of a large X, of which there are `n_units` unless they were too narrow."""
    return min(-(-n_features // MIN_UNITS), max(MIN_SLAB_COLUMNS, -(-n_features // n_units)))


def _band_rows(n_rows: int, n_samples: int) -> int:
    """Round the rows of a band down to a power of two, so that merged moments do not depend on memory, to the bit."""
    return n_samples if n_rows >= n_samples else 1 << max(0, max(n_rows, 1).bit_length() - 1)


def serves_in_place(
    n_samples: int, chunks: tuple[int, int], n_features: int, dtype: str, memory_limit: int | None
) -> bool:
    """Return whether a Zarr array can be used in place.

    A slab of one chunk column and a band of one chunk row must fit the slab budget, a chunk must not exceed the size of
    two tiles, and chunks must not be so small that opening them dominates.
    """
    itemsize = np.dtype(dtype).itemsize
    budget = slab_budget(memory_limit)
    rows, columns = min(chunks[0], n_samples), min(chunks[1], n_features)
    chunk_bytes = rows * columns * itemsize
    x_bytes = n_samples * n_features * itemsize
    return (
        n_samples * columns * itemsize <= budget
        and rows * n_features * itemsize <= budget
        and chunk_bytes <= 2 * MAX_TILE_BYTES
        and (chunk_bytes >= MIN_TILE_BYTES // 4 or x_bytes // max(chunk_bytes, 1) <= FEW_CHUNKS)
    )


def band_cost(shape: Shape, copies: int = 1) -> Cost:
    """Return the memory cost of bands of X; for sparse X, of the entries in CSC and CSR."""
    if not shape.is_sparse:
        return (Array("bands of X", (copies, shape.tile_rows, shape.n_features), shape.dtype),)
    entries = (copies, 2, -(-(shape.nnz or 0) // shape.n_bands))
    return (
        Array("values of sparse bands, by column and by row", entries, shape.dtype),
        Array("rows and columns of these", entries, "int32"),
        Array("where columns of sparse bands begin", (copies, shape.n_features), "int64"),
    )


def tile_cost(shape: Shape, copies: int = 1) -> Cost:
    """Return the memory cost of decoded tiles; for sparse X, of a band and its dense columns of one slab."""
    if not shape.is_sparse:
        return (Array("tiles of X", (copies, shape.tile_rows, shape.tile_columns), shape.dtype),)
    columns = min(shape.tile_columns, shape.n_features)
    return *band_cost(shape, copies), Array("dense tiles", (copies, shape.tile_rows, columns), shape.dtype)


def conversion_cost(width: int, copies: int = 1) -> Cost:
    """Return the memory cost of the float64 blocks for moments and norms."""
    shape = 3 * copies, ROW_BLOCK, min(max(width, 1), CONVERTED_COLUMNS)
    return (Array("float64 blocks of rows, for moments and norms", shape),)


def moments_cost(shape: Shape, n_rows: int) -> Cost:
    """Return the memory cost of moments of all columns from `n_rows` rows at a time."""
    is_compiled = shape.is_sparse and compiles_tree(n_rows, shape.n_features)
    return (*conversion_cost(shape.n_features), *((COMPILED,) if is_compiled else ()))


def rows_held(name: str, shape: Shape, n_rows: int, copies: int = 1) -> Held:
    """Return the memory cost of rows of X as stored; sparse rows have mean length."""
    if shape.is_sparse:
        return Objects(name, copies * n_rows, row_bytes(shape))
    return Array(name, (copies, n_rows, shape.n_features), shape.dtype)


def band_bytes(shape: Shape) -> int:
    """Return the bytes of one band in memory."""
    return total(band_cost(shape))


def tile_bytes(shape: Shape) -> int:
    """Return the bytes of one decoded tile."""
    return total(tile_cost(shape))


def conversion_bytes(width: int) -> int:
    """Return the bytes of the float64 blocks for moments and norms."""
    return total(conversion_cost(width))


def entry_bytes(itemsize: int) -> int:
    """Return the bytes of one entry of sparse X: a value, and its row or column index."""
    return itemsize + HALF_WORD


def row_bytes(shape: Shape) -> int:
    """Return the bytes of one row of X as stored; the mean for sparse X."""
    return -(-shape.x_bytes // shape.n_samples)


def fill_bytes(shape: Shape) -> int:
    """Return the bytes of the stored fill values and counts."""
    return FILL_ROWS * WORD * shape.n_features


def chunk_bytes(shape: Shape) -> int:
    """Return the bytes read for all of X, in whole tiles."""
    if shape.is_sparse:
        return shape.x_bytes
    n_columns = -(-shape.n_features // shape.tile_columns) * shape.tile_columns
    return n_columns * shape.n_bands * shape.tile_rows * shape.itemsize


def slabs_bytes(shape: Shape, columns: int) -> int:
    """Return the bytes read for all of X slab by slab.

    Tiles are read whole; of sparse X, whole chunks of the values in each band, and the column pointers.
    """
    if not shape.is_sparse:
        return chunk_bytes(shape)
    per_band = -(-(shape.nnz or 0) // shape.n_bands)
    of_slab = min(per_band * columns // shape.n_features + sparse_chunk(per_band, shape.n_features), per_band)
    starts = WORD * (shape.n_features + 1)
    return -(-shape.n_features // columns) * shape.n_bands * (of_slab * entry_bytes(shape.itemsize) + starts)
