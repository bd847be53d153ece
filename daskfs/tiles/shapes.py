"""How X is cut into tiles, and the bytes of its parts."""

from __future__ import annotations

import numpy as np

from daskfs.stages.cost import PROCESS_BYTES, USABLE, MiB
from daskfs.store.tiles import Shape, sparse_chunk

MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
SLAB_BYTES = 256 * MiB
MIN_PARALLEL = 8
ROW_BYTES = 256
"""What a band takes for each row beside its values while the row is sent to groups."""
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, more often than parallel work is worth."""


def slab_budget(memory_limit: int | None) -> int:
    """Return the bytes that one slab or band may fill: a third of what a worker has beyond its process."""
    if memory_limit is None:
        return SLAB_BYTES
    return max(int((USABLE * memory_limit - PROCESS_BYTES) / 3), MiB)


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
        per_row = max(1, nnz * (itemsize + 4) // max(n_samples, 1))
        # converting a band between row and column order takes five times its bytes and more
        target = int(
            np.clip(nnz * (itemsize + 4) // 16, MIN_TILE_BYTES, max(MIN_TILE_BYTES, min(MAX_TILE_BYTES, budget // 5)))
        )
        together = min(row_multiple, n_samples // MIN_PARALLEL, min(MAX_TILE_BYTES, budget // 5) // per_row)
        rows = _band_rows(max(target // per_row, together), n_samples)
        columns = min(n_features, max(1, min(budget // (n_samples * itemsize), -(-n_features // MIN_PARALLEL))))
        return Shape(n_samples, n_features, dtype, True, nnz, rows, columns)
    total = n_samples * n_features * itemsize
    columns = n_features
    if total > MIN_TILE_BYTES:
        n_slabs = min(MIN_PARALLEL, max(1, n_features // MIN_SLAB_COLUMNS))
        columns = -(-n_features // n_slabs)
    columns = max(1, min(columns, budget // (n_samples * itemsize)))
    if columns > 8:
        columns -= columns % 8
    target = int(np.clip(total // 64, MIN_TILE_BYTES, MAX_TILE_BYTES))
    fitting = budget // (n_features * itemsize)
    # of narrow rows it is not the values that fill a worker, but what is known of each row
    fitting = min(fitting, max(2**20, budget // (n_features * itemsize + ROW_BYTES)))
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
    total = n_samples * n_features * itemsize
    return (
        n_samples * columns * itemsize <= budget
        and rows * n_features * itemsize <= budget
        and chunk_bytes <= 2 * MAX_TILE_BYTES
        and (chunk_bytes >= MIN_TILE_BYTES // 4 or total // max(chunk_bytes, 1) <= 64)
    )


def band_bytes(shape: Shape) -> int:
    """Bytes of one band in memory."""
    if shape.is_sparse:
        return (shape.nnz or 0) * (shape.itemsize + 4) // shape.n_bands * 2 + shape.n_features * 8
    return shape.tile_rows * shape.n_features * shape.itemsize


def tile_bytes(shape: Shape) -> int:
    """Bytes of one decoded tile."""
    if shape.is_sparse:
        return band_bytes(shape) + shape.tile_rows * min(shape.tile_columns, shape.n_features) * shape.itemsize
    return shape.tile_rows * shape.tile_columns * shape.itemsize


def conversion_bytes(width: int) -> int:
    """Bytes of the float64 blocks that moments and norms work on."""
    return 3 * 8 * 8192 * min(max(width, 1), 512)


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
    starts = 8 * (shape.n_features + 1)
    return -(-shape.n_features // columns) * shape.n_bands * (of_slab * (shape.itemsize + 4) + starts)
