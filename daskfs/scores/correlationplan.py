"""Plan of the distance correlations of all features with each other: which stages, at which size."""

from __future__ import annotations

from dataclasses import asdict

from daskfs.kernels.correlationspec import CorrelationSpec
from daskfs.kernels.distance import BINS
from daskfs.kernels.distancegram import DISTANCES_AT_ONCE
from daskfs.kernels.distancemap import PRODUCT_ROWS, PRODUCT_WIDTH, most_components
from daskfs.kernels.scaling import row_statistics
from daskfs.scores.distances import (
    BLOCK_FEATURES,
    CODE_COLUMNS,
    CODE_ROWS,
    CORRELATE_STAGE,
    DISTANCE_MAPS_STAGE,
    DISTANCE_VALUES_STAGE,
    FACTS,
    HELD_BYTES,
    VALUE_BYTES,
    block_pairs,
    feature_blocks,
    matrix_bytes,
    value_bytes,
)
from daskfs.stages.cost import Cost, Fixed, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import tile_bytes

ARRAY_BYTES = 8192
"""What an open array takes in a process, and the page that the allocator adds to each block that is held."""


def plan_correlation(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost) -> list[Stage]:
    """Stages of the distance correlations of all features with each other.

    Parameters
    ----------
    shape
        Of X.
    spec
        Which correlations; "auto" is settled here.
    slab_columns
        How many features one unit bins or scales.
    process
        What the process of a unit takes before it starts.

    Raises
    ------
    InputError
        Where they cannot be had so: see :meth:`CorrelationSpec.resolved`.
    """
    spec = spec.resolved(shape)
    parameters = {"correlation": asdict(spec), "slab_columns": slab_columns}
    rows, mapped = spec.rows_used(shape.n_samples), spec.correlation == "feature_map"
    own, n_units = min(slab_columns, shape.n_features), -(-shape.n_features // slab_columns)
    stored = _feature_bytes(spec, rows)
    # a band, the rows in use as they are and rescaled, and what is written of them
    peak = total(process) + 3 * shape.tile_rows * own * shape.itemsize + 3 * tile_bytes(shape) + 24 * shape.n_samples
    peak += own * (rows * (shape.itemsize + (16 if spec.felt else 0)) + stored)
    peak += 20 * CODE_COLUMNS * min(rows, CODE_ROWS) * (1 if mapped else 8)
    # the sort of a column; or some columns and their mean distances
    peak += 100 * rows + 20 * 8 * BINS**2 if mapped else 48 * CODE_COLUMNS * rows + 5 * 8 * max(rows, DISTANCES_AT_ONCE)
    read = shape.x_bytes + 8 * shape.n_samples * n_units * row_statistics(spec.felt)
    written = _touched(slice(0, shape.n_features), slab_columns, shape.n_features) * stored
    if spec.correlation == "matrix_free":
        return [
            Stage.of(
                DISTANCE_VALUES_STAGE,
                f"distances-{spec.name}",
                n_units,
                parameters,
                (Fixed("rest", peak),),
                bytes_read=read,
                bytes_written=written,
            )
        ]
    done = f"correlations-{spec.name}"
    first = Stage.of(
        DISTANCE_MAPS_STAGE if mapped else DISTANCE_VALUES_STAGE,
        f"distances-{spec.name}",
        n_units,
        parameters,
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=written,
        needed_until=done,
    )
    return [first, _plan_blocks(shape, spec, slab_columns, process, done)]


def _feature_bytes(spec: CorrelationSpec, rows: int) -> int:
    """Bytes of what is stored of one feature, whole chunks of rows."""
    rows = rows if rows <= CODE_ROWS else -(-rows // CODE_ROWS) * CODE_ROWS
    if spec.correlation == "feature_map":
        return rows + 8 * BINS * (most_components(spec.n_components) + 1) + 8 * FACTS
    return 8 * rows + 8 * FACTS


def _plan_blocks(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost, name: str) -> Stage:
    """Stage that makes the matrix, block by block."""
    n_features, rows = shape.n_features, spec.rows_used(shape.n_samples)
    blocks, pairs = feature_blocks(spec, n_features), block_pairs(spec, n_features)
    widths = [block.stop - block.start for block in blocks]
    two = 2 * widths[0]
    peak = total(process) + 24 * shape.n_samples + 6 * 8 * widths[0] ** 2
    if spec.correlation == "feature_map":
        count = most_components(spec.n_components)
        tables = 3 * two * 8 * BINS * (count + 1)
        codes = 2 * two * min(rows, CODE_ROWS) + 3 * CODE_COLUMNS * min(rows, CODE_ROWS)
        looked_up = (3 * widths[0] + two) * count * 8 * min(PRODUCT_ROWS, rows)
        sums = 8 * (widths[0] * count) ** 2 + 8 * widths[0] ** 2 * (count + 2) + 8 * 4 * PRODUCT_WIDTH**2
        peak += tables + codes + looked_up + sums
    else:
        peak += 8 * two * (6 * rows + 3 * max(rows, DISTANCES_AT_ONCE)) + 16 * max(rows, DISTANCES_AT_ONCE)
    feature = _feature_bytes(spec, rows)
    touched = [_touched(block, slab_columns, n_features) for block in blocks]
    read = feature * sum(touched[i] + (touched[j] if i != j else 0) for i, j in pairs)
    read += 16 * FACTS * slab_columns * len(pairs)
    written = 8 * sum(widths[i] * widths[j] for i, j in pairs) + 8 * FACTS * n_features
    parameters = {"correlation": asdict(spec)}
    clears = layout.DISTANCES_OF.format(spec.name)
    return Stage.of(
        CORRELATE_STAGE,
        name,
        len(pairs),
        parameters,
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=written,
        clears=clears,
    )


def _touched(features: slice, slab_columns: int, n_features: int) -> int:
    """Return the features of the chunks that some features lie in, whole chunks."""
    count = 0
    for start in range(features.start // slab_columns * slab_columns, features.stop, slab_columns):
        slab = min(start + slab_columns, n_features) - start
        first, last = max(features.start - start, 0), min(features.stop - start, slab)
        chunk = min(CODE_COLUMNS, slab)
        count += (-(-last // chunk) - first // chunk) * chunk
    return count


def read_bytes(shape: Shape, spec: CorrelationSpec) -> int:
    """Return what reading them once takes."""
    spec = spec.resolved(shape)
    if spec.correlation == "matrix_free":
        return value_bytes(shape.n_features, spec.rows_used(shape.n_samples))
    return matrix_bytes(spec, shape.n_features)


def held_bytes(shape: Shape, spec: CorrelationSpec) -> int:
    """Return what :class:`daskfs.scores.distances.FeatureCorrelations` takes in the process of a unit that has it."""
    spec = spec.resolved(shape)
    if spec.correlation == "matrix_free":
        n_rows = spec.rows_used(shape.n_samples)
        values = value_bytes(shape.n_features, n_rows)
        return (
            (values if values <= HELD_BYTES else 0)
            + 3 * 8 * n_rows**2
            + 48 * max(VALUE_BYTES, 8 * CODE_COLUMNS * n_rows)
            + 24 * shape.n_samples
            + 32 * shape.n_features
        )
    blocks = matrix_bytes(spec, shape.n_features)
    handles = ARRAY_BYTES * len(block_pairs(spec, shape.n_features))
    return (blocks if blocks <= HELD_BYTES else 0) + handles + 4 * 8 * BLOCK_FEATURES**2 + 100 * shape.n_features
