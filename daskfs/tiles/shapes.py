"""How X is cut into tiles, and the bytes of its parts."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.statistics.moments import ROW_BLOCK
from daskfs.stages.cost import HALF_WORD, PROCESS_BYTES, USABLE, WORD, Array, Cost, Held, MiB, Objects, total
from daskfs.store.tiles import Shape, sparse_chunk

MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
SLAB_BYTES = 256 * MiB
"""What a slab or band may fill where nobody knows the memory of a worker."""
SLABS_PER_WORKER = 3
"""Slabs or bands that fit what a worker has beyond its process: one, and what is copied of it."""
MIN_PARALLEL = 8
WANTED_TILES = 64
WANTED_SPARSE_BANDS = 16
"""Where X is so large that tiles are more than the smallest, and less than the largest."""
SENT_ROW_BYTES = 256
"""What a band takes for each row beside its values while the row is sent to groups."""
NARROW_ROWS = 2**20
"""Rows that a band of narrow rows may have whatever they take beside their values."""
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, more often than parallel work is worth."""
ALIGNED_COLUMNS = 8
"""Tiles that are wider have a multiple of so many columns: a cache line of float64."""
FEW_CHUNKS = 64
"""So many chunks are opened soon, however small they are."""
REORDERED_COPIES = 5
"""Copies of a sparse band, at least, that are held while its entries go from the order of rows to that of columns."""
CONVERTED_COLUMNS = 512
"""Blocks that are converted to float64 have 8192 rows up to this width, and fewer rows beyond it."""
FILL_ROWS = 2
"""What stands for missing values of each column, and how many it has."""


def slab_budget(memory_limit: int | None) -> int:
    """Return the bytes that one slab or band may fill: a third of what a worker has beyond its process."""
    if memory_limit is None:
        return SLAB_BYTES
    return max(int((USABLE * memory_limit - PROCESS_BYTES) / SLABS_PER_WORKER), MiB)


def plan_shape(
    n_samples: int, n_features: int, dtype: str, nnz: int | None, memory_limit: int | None, row_multiple: int = 1
) -> Shape:
    """Choose the tiles of a matrix.

    Tiles are at most 64 MiB; a slab of one tile column and a band of one tile row fit the slab budget; and when X is
    large enough to matter there are at least eight of each, so that several workers have something to do. Where that
    can be, a band has no fewer rows than the source reads in one go (`row_multiple`): each would be read for several.
    """
    itemsize = np.dtype(dtype).itemsize
    budget = slab_budget(memory_limit)
    if nnz is not None:
        entries = nnz * entry_bytes(itemsize)
        per_row = max(1, entries // max(n_samples, 1))
        most = min(MAX_TILE_BYTES, budget // REORDERED_COPIES)
        target = int(np.clip(entries // WANTED_SPARSE_BANDS, MIN_TILE_BYTES, max(MIN_TILE_BYTES, most)))
        together = min(row_multiple, n_samples // MIN_PARALLEL, most // per_row)
        rows = _band_rows(max(target // per_row, together), n_samples)
        columns = min(n_features, max(1, min(budget // (n_samples * itemsize), -(-n_features // MIN_PARALLEL))))
        return Shape(n_samples, n_features, dtype, True, nnz, rows, columns)
    x_bytes = n_samples * n_features * itemsize
    columns = n_features
    if x_bytes > MIN_TILE_BYTES:
        n_slabs = min(MIN_PARALLEL, max(1, n_features // MIN_SLAB_COLUMNS))
        columns = -(-n_features // n_slabs)
    columns = max(1, min(columns, budget // (n_samples * itemsize)))
    if columns > ALIGNED_COLUMNS:
        columns -= columns % ALIGNED_COLUMNS
    target = int(np.clip(x_bytes // WANTED_TILES, MIN_TILE_BYTES, MAX_TILE_BYTES))
    fitting = budget // (n_features * itemsize)
    # of narrow rows it is not the values that fill a worker, but what is known of each row
    fitting = min(fitting, max(NARROW_ROWS, budget // (n_features * itemsize + SENT_ROW_BYTES)))
    together = min(row_multiple, n_samples // MIN_PARALLEL, MAX_TILE_BYTES // (columns * itemsize))
    rows = _band_rows(min(max(target // (columns * itemsize), together), fitting), n_samples)
    return Shape(n_samples, n_features, dtype, False, None, rows, columns)


def _band_rows(wanted: int, n_samples: int) -> int:
    """Round the rows of a band down to a power of two, so that moments merge to the same bits whatever the memory
    is.
    """
    return n_samples if wanted >= n_samples else 1 << max(0, max(wanted, 1).bit_length() - 1)


def serves_in_place(
    n_samples: int, chunks: tuple[int, int], n_features: int, dtype: str, memory_limit: int | None
) -> bool:
    """Return whether a Zarr array can be read where it lies.

    A slab of one chunk column and a band of one chunk row must fit the slab budget, one chunk must not exceed two
    tiles, and chunks must not be so small that opening them dominates.
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
    """Return bands of X in memory: of sparse X the entries, as columns and as the rows that are made of these."""
    if not shape.is_sparse:
        return (Array("bands of X", (copies, shape.tile_rows, shape.n_features), shape.dtype),)
    entries = (copies, 2, -(-(shape.nnz or 0) // shape.n_bands))
    return (
        Array("values of sparse bands, by column and by row", entries, shape.dtype),
        Array("rows and columns of these", entries, "int32"),
        Array("where columns of sparse bands begin", (copies, shape.n_features), "int64"),
    )


def tile_cost(shape: Shape, copies: int = 1) -> Cost:
    """Return decoded tiles: of sparse X a band for each, and its columns of one slab, dense."""
    if not shape.is_sparse:
        return (Array("tiles of X", (copies, shape.tile_rows, shape.tile_columns), shape.dtype),)
    columns = min(shape.tile_columns, shape.n_features)
    return *band_cost(shape, copies), Array("dense tiles", (copies, shape.tile_rows, columns), shape.dtype)


def conversion_cost(width: int, copies: int = 1) -> Cost:
    """Return the blocks that moments and norms work on."""
    shape = 3 * copies, ROW_BLOCK, min(max(width, 1), CONVERTED_COLUMNS)
    return (Array("float64 blocks of rows, for moments and norms", shape),)


def rows_held(name: str, shape: Shape, n_rows: int, copies: int = 1) -> Held:
    """Return some rows of X, as stored; sparse ones of mean length."""
    if shape.is_sparse:
        return Objects(name, copies * n_rows, row_bytes(shape))
    return Array(name, (copies, n_rows, shape.n_features), shape.dtype)


def band_bytes(shape: Shape) -> int:
    """Bytes of one band in memory."""
    return total(band_cost(shape))


def tile_bytes(shape: Shape) -> int:
    """Bytes of one decoded tile."""
    return total(tile_cost(shape))


def conversion_bytes(width: int) -> int:
    """Bytes of the float64 blocks that moments and norms work on."""
    return total(conversion_cost(width))


def entry_bytes(itemsize: int) -> int:
    """Bytes of one entry of sparse X: a value, and the number of its row or column."""
    return itemsize + HALF_WORD


def row_bytes(shape: Shape) -> int:
    """Bytes of one row of X as stored; the mean of sparse ones."""
    return -(-shape.x_bytes // shape.n_samples)


def fill_bytes(shape: Shape) -> int:
    """Bytes of what stands for missing values, as stored."""
    return FILL_ROWS * WORD * shape.n_features


def chunk_bytes(shape: Shape) -> int:
    """Return the bytes of X in whole tiles, which is what reading all of it counts."""
    if shape.is_sparse:
        return shape.x_bytes
    n_columns = -(-shape.n_features // shape.tile_columns) * shape.tile_columns
    return n_columns * shape.n_bands * shape.tile_rows * shape.itemsize


def slabs_bytes(shape: Shape, columns: int) -> int:
    """Return the bytes of X that reading it slab by slab counts: whole tiles, or of sparse X whole chunks of the values
    in each band, and where its columns begin.
    """
    if not shape.is_sparse:
        return chunk_bytes(shape)
    per_band = -(-(shape.nnz or 0) // shape.n_bands)
    of_slab = min(per_band * columns // shape.n_features + sparse_chunk(per_band, shape.n_features), per_band)
    starts = WORD * (shape.n_features + 1)
    return -(-shape.n_features // columns) * shape.n_bands * (of_slab * entry_bytes(shape.itemsize) + starts)
