"""Tiles: how X is cut, and the stages that fill a tile store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.kernels.columnhash import N_HASHES
from daskfs.plan.stages import PROCESS_BYTES, USABLE, MiB, Stage, fingerprinted
from daskfs.scores.rowpasses import block_rows
from daskfs.store.rownames import STRETCH_BYTES
from daskfs.store.tiles import Shape, sample_rows, sparse_chunk

MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
SLAB_BYTES = 256 * MiB
MIN_PARALLEL = 8
ROW_BYTES = 256
"""What a band takes for each row beside its values while the row is sent to groups."""
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, more often than parallel work is worth."""
BESIDE_BYTES = {"weights": 60, "groups": 220, "times": 300, "batch": 260}
"""What a row of a column beside X takes while it is read: groups as text of which a few rows share each, times as text
of which each is another.
"""


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


def plan_ingest(
    shape: Shape, parameters: Mapping[str, Any], write_x: bool, source_rows: int, reading_bytes: int = 0
) -> tuple[Stage, ...]:
    """Stages that fill a tile store.

    Parameters
    ----------
    shape, parameters, write_x
        What is filled.
    source_rows
        What the source holds beside the rows that it hands on, at most.
    reading_bytes
        What it takes for reading them where that is more.
    """
    band = band_bytes(shape)
    source = source_rows * shape.n_features * shape.itemsize
    if shape.is_sparse:
        source = source_rows * (shape.nnz or 0) // shape.n_samples * (shape.itemsize + 4)
    transient = 4 * tile_bytes(shape) if write_x else 0
    if shape.is_sparse:
        transient = 5 * band
    peak = PROCESS_BYTES + 2 * band + 2 * source + reading_bytes + transient + conversion_bytes(shape.n_features)
    moments = shape.n_bands * (6 + N_HASHES) * shape.n_features * 8
    of_rows = 16 * shape.n_bands * shape.tile_rows  # norms and sums of rows, whole chunks
    written = (shape.x_bytes if write_x else 0) + moments + of_rows
    written += sample_rows(shape).size * -(-shape.x_bytes // shape.n_samples)
    beside = [size for name, size in BESIDE_BYTES.items() if parameters["source"].get(name) is not None]
    columns = 1 + len(beside)  # labels, and columns beside X
    labels = PROCESS_BYTES + 400 * shape.n_features + (60 + sum(beside)) * shape.n_samples
    names = parameters["row_names"]
    labels += STRETCH_BYTES if names else 0
    known = moments + of_rows
    filling: tuple[Stage, ...] = ()
    if parameters["source"]["missing"] != "refuse":  # what is known is taken of the tiles, when their means are known
        seen = 32 * shape.n_bands * shape.n_features
        reading = PROCESS_BYTES + 3 * band + 4 * tile_bytes(shape) + conversion_bytes(shape.n_features)
        reading += 3 * band if shape.is_sparse else 0
        closing = PROCESS_BYTES + 1000 * shape.n_features
        filled = 16 * shape.n_features
        again = 2 * shape.n_bands * filled  # by every unit, which asks whether there is something to fill first
        filling = (
            Stage("fill", "fill", 1, parameters, closing, seen, filled),
            Stage("facts", "facts", shape.n_bands, parameters, reading, chunk_bytes(shape) + again, known),
        )
        written += seen - known
    stages = (
        Stage("labels", "labels", 1, parameters, labels, 0, (8 * columns + 32 * names) * shape.n_samples),
        Stage("ingest", "ingest", shape.n_bands, parameters, peak, shape.x_bytes, written),
        *filling,
        Stage(
            "columns",
            "columns",
            1,
            parameters,
            PROCESS_BYTES + 500 * shape.n_features + 60 * shape.n_samples,
            moments + 8 * shape.n_samples + (filling[0].bytes_written if filling else 0),
            48 * shape.n_features,
        ),
    )
    return fingerprinted(stages, str(parameters["fingerprint"]))


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


def reading_bytes(shape: Shape, part_rows: int) -> int:
    """Return what a pass takes at once: the rows of a part or of two bands, a tile as stored, decoded and as the rows
    that count, and a block of rows that lies in two bands, scaled, and centered.
    """
    rows, part_rows = block_rows(shape), min(part_rows, 2 * shape.tile_rows)
    if shape.is_sparse:
        per_row = -(-(shape.nnz or 0) // shape.n_samples)
        return 2 * band_bytes(shape) + part_rows * per_row * (shape.itemsize + 4) + 3 * (8 + 4) * per_row * rows
    tile = shape.tile_rows * shape.tile_columns * shape.itemsize
    return (part_rows * shape.itemsize + rows * (2 * shape.itemsize + 16)) * shape.n_features + 3 * tile
