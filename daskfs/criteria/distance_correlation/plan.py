"""Plan of the distance correlations between all features: stages and their sizes."""

from __future__ import annotations

from dataclasses import replace

from daskfs.criteria.distance_correlation.matrix import (
    CODE_COLUMNS,
    CORRELATE_STAGE,
    DISTANCE_MAPS_STAGE,
    DISTANCE_VALUES_STAGE,
    N_FACTS,
    CorrelateParameters,
    SlabsParameters,
    block_pairs,
    feature_blocks,
    feature_correlations_cost,
    formed_matrix,
    stored_cost,
    values_in_use,
)
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.kernels.scaling import row_statistics
from daskfs.stages.cost import WORD, Cost, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.shape import Shape


def plan_correlation(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost) -> list[Stage]:
    """Plan the stages of the distance correlations between all features; "auto" is resolved here.

    One unit bins or scales `slab_columns` features. Raises what :meth:`CorrelationSpec.resolved` raises.
    """
    spec = spec.resolved(shape)
    first = _plan_slabs(shape, spec, slab_columns, process)
    if spec.correlation == "matrix_free":
        return [first]
    blocks = _plan_blocks(shape, spec, slab_columns, process)
    return [replace(first, needed_until=blocks.name), blocks]


def _plan_slabs(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost) -> Stage:
    """Plan the stage that bins or scales the features, slab by slab."""
    n_features, n_units = shape.n_features, -(-shape.n_features // slab_columns)
    kind = DISTANCE_MAPS_STAGE if spec.correlation == "feature_map" else DISTANCE_VALUES_STAGE
    n_stored = _n_features_read(slice(0, n_features), slab_columns, n_features)
    return Stage.of(
        kind,
        f"distances-{spec.name}",
        n_units,
        SlabsParameters(spec, slab_columns),
        kind.cost(shape, spec, min(slab_columns, n_features), process),
        bytes_read=shape.x_bytes + WORD * shape.n_samples * n_units * row_statistics(spec.felt),
        bytes_written=total(stored_cost(spec, n_stored, spec.rows_used(shape.n_samples))),
    )


def _plan_blocks(shape: Shape, spec: CorrelationSpec, slab_columns: int, process: Cost) -> Stage:
    """Plan the stage that makes the matrix, block by block."""
    n_features, pairs = shape.n_features, block_pairs(spec, shape.n_features)
    slabs_touched = [_n_features_read(block, slab_columns, n_features) for block in feature_blocks(spec, n_features)]
    n_read = sum(slabs_touched[i] + (slabs_touched[j] if i != j else 0) for i, j in pairs)
    facts = 2 * WORD * N_FACTS * slab_columns * len(pairs)
    return Stage.of(
        CORRELATE_STAGE,
        f"correlations-{spec.name}",
        len(pairs),
        CorrelateParameters(spec),
        CORRELATE_STAGE.cost(shape, spec, process),
        bytes_read=total(stored_cost(spec, n_read, spec.rows_used(shape.n_samples))) + facts,
        bytes_written=formed_matrix(spec, n_features).nbytes + WORD * N_FACTS * n_features,
        clears=layout.DISTANCES_OF.format(spec.name),
    )


def _n_features_read(features: slice, slab_columns: int, n_features: int) -> int:
    """Return the number of features in all chunks that hold some of `features`."""
    count = 0
    for start in range(features.start // slab_columns * slab_columns, features.stop, slab_columns):
        slab = min(start + slab_columns, n_features) - start
        first, last = max(features.start - start, 0), min(features.stop - start, slab)
        chunk = min(CODE_COLUMNS, slab)
        count += (-(-last // chunk) - first // chunk) * chunk
    return count


def read_bytes(shape: Shape, spec: CorrelationSpec) -> int:
    """Return the bytes of one read of all correlations."""
    spec = spec.resolved(shape)
    if spec.correlation == "matrix_free":
        return values_in_use(shape.n_features, spec.rows_used(shape.n_samples)).nbytes
    return formed_matrix(spec, shape.n_features).nbytes


def held_bytes(shape: Shape, spec: CorrelationSpec) -> int:
    """Return the bytes of :class:`daskfs.criteria.distance_correlation.matrix.FeatureCorrelations` in a unit."""
    return total(feature_correlations_cost(shape, spec.resolved(shape)))
