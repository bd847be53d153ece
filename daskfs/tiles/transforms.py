"""Stages "transform" and "transform-columns": statistics for the last step of scalings.

One pass over the tiles serves all scalings of a job. A unit reads one band, applies all steps but the last by blocks of
rows, and computes row norms for "unit" and (weighted) column moments for "zscore" and "pca". Rescaled values are not
written. The bits of moments do not depend on the bands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.scaling import Scaling, chain_of, components_of, ends_with, row_norms, scale_rows, steps_of
from daskfs.kernels.statistics.moments import Moments, cell_rows, common_count, merge_tree, row_blocks, tree_moments
from daskfs.stages.cost import PROCESS, WORD, Array, Cost, Held, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.tiles import Tiles
from daskfs.tiles.shapes import (
    band_cost,
    chunk_bytes,
    entry_bytes,
    fill_bytes,
    moments_cost,
    row_bytes,
    rows_held,
    tile_cost,
)

CELLS_AT_ONCE = 16
"""Cells of the tree of moments whose rows are rescaled together: 16 MiB if dense."""


def has_moments(scaling: Scaling) -> bool:
    """Return whether the last step needs means and variances of columns: "zscore" or "pca", not "unit"."""
    return components_of(scaling) is not None or ends_with(scaling, "zscore")


class TransformParameters(StageParameters):
    """Parameters of the stages here."""

    scalings: tuple[Scaling, ...]


def create_transforms(context: Context, parameters: TransformParameters) -> None:
    """Create the arrays that all bands write to."""
    shape = context.tiles.shape
    for scaling in parameters.scalings:
        if not has_moments(scaling):
            name = layout.TRANSFORM_NORMS.format(scaling)
            context.store.create(name, (shape.n_samples,), np.float64, (shape.tile_rows,))
        else:
            moments = (shape.n_bands, len(layout.TRANSFORM_ROWS), shape.n_features)
            name = layout.TRANSFORM_PARTIALS.format(scaling)
            context.store.create(name, moments, np.float64, (1, *moments[1:]))


def take_statistics(context: Context, parameters: TransformParameters, unit: int) -> None:
    """Compute norms and moments of one band."""
    store, tiles = context.store, context.tiles
    band = tiles.shape.band(unit)
    weights = context.weights(band)
    block = tiles.as_counted().read_rows(band)
    by_steps: dict[Scaling | None, list[Scaling]] = {}
    for scaling in parameters.scalings:
        first = steps_of(scaling).first if components_of(scaling) is None else chain_of(scaling)
        by_steps.setdefault(first, []).append(scaling)
    for first, scalings in by_steps.items():
        norms, moments = _of_rows(tiles, block, weights, first, scalings)
        for scaling in scalings:
            if not has_moments(scaling):
                store.open(layout.TRANSFORM_NORMS.format(scaling))[band] = norms
            else:
                columns = np.broadcast_arrays(*(getattr(moments, name) for name in layout.TRANSFORM_ROWS))
                store.open(layout.TRANSFORM_PARTIALS.format(scaling))[unit : unit + 1] = np.stack(columns)[None]


def _of_rows(
    tiles: Tiles,
    block: Block,
    weights: np.ndarray | None,
    first: Scaling | None,
    scalings: Sequence[Scaling],
) -> tuple[np.ndarray, Moments | None]:
    """Return row norms after the steps `first`, shape (n_rows,), and column moments if a scaling needs them."""
    norms = np.empty(block.shape[0])
    for_moments = any(map(has_moments, scalings))
    for_unit = not all(map(has_moments, scalings))

    def parts() -> Iterator[Moments]:
        for rows in row_blocks(block.shape[0], CELLS_AT_ONCE * cell_rows(block.shape[1], sparse=is_sparse(block))):
            values = block[rows]
            if first is not None:
                values = tiles.scales.of_half(values, first)
                values = scale_rows(values, first, None, tiles.scales.of_block(first, values))
            if for_unit:
                norms[rows] = row_norms(values)
            if for_moments:
                yield tree_moments(values, None if weights is None else weights[rows])

    moments = merge_tree(parts()) if for_moments else next(parts(), None)  # without moments it yields nothing
    return norms, moments


def merge_statistics(context: Context, parameters: TransformParameters, unit: int) -> None:
    """Merge the moments of all bands in order."""
    del unit
    store, shape = context.store, context.tiles.shape
    for scaling in parameters.scalings:
        if has_moments(scaling):
            partials = store.open(layout.TRANSFORM_PARTIALS.format(scaling))
            bands = (partials[index] for index in range(shape.n_bands))
            moments = merge_tree(Moments(common_count(band[0]), *band[1:]) for band in bands)
            table = np.stack([moments.mean, moments.variance, moments.rest])
            store.put_array(layout.TRANSFORM_COLUMNS.format(scaling), table)


def transform_cost(shape: Shape) -> Cost:
    """Return the memory cost of a "transform" unit: a band, its copies for CSC to CSR, and a block of rows."""
    rows = min(CELLS_AT_ONCE * cell_rows(shape.n_features, sparse=shape.is_sparse), shape.tile_rows)
    name = "the block rescaled, and its copies in norms"
    rescaled: Held = Array(name, (4, rows, shape.n_features))
    if shape.is_sparse:
        rescaled = Objects(name, 4 * rows, row_bytes(shape) * entry_bytes(WORD) // entry_bytes(shape.itemsize))
    return (
        PROCESS,
        *band_cost(shape, 3),
        *tile_cost(shape, 3),
        rows_held("a block of rows", shape, rows),
        rescaled,
        *moments_cost(shape, rows),
        Array("weights, sums, factors and norms of rows", (5, shape.tile_rows)),
        Array("moments of subtrees that wait for their neighbors", (24, len(layout.TRANSFORM_ROWS), shape.n_features)),
    )


def transform_columns_cost(n_features: int) -> Cost:
    """Return the memory cost of a "transform-columns" unit, which merges the bands."""
    tables = 40, len(layout.TRANSFORM_ROWS), n_features
    return PROCESS, Array("moments of bands, and of subtrees that wait for their neighbors", tables)


TRANSFORM_STAGE = StageKind("transform", __name__, take_statistics, transform_cost, arrays=create_transforms)
TRANSFORM_COLUMNS_STAGE = StageKind("transform-columns", __name__, merge_statistics, transform_columns_cost)


def plan_transforms(shape: Shape, scalings: Sequence[Scaling]) -> Iterator[Stage]:
    """Yield the stages for the statistics of `scalings`; none for no scalings.

    The scalings are as selected by :func:`daskfs.plan.transforms.asked_scalings`.
    """
    if not scalings:
        return
    parameters = TransformParameters(tuple(scalings))
    n_moments = sum(map(has_moments, scalings))
    norms = WORD * shape.n_samples * (len(scalings) - n_moments)
    moments = WORD * shape.n_bands * len(layout.TRANSFORM_ROWS) * shape.n_features * n_moments
    yield Stage.of(
        TRANSFORM_STAGE,
        "transform",
        shape.n_bands,
        parameters,
        TRANSFORM_STAGE.cost(shape),
        # if values were missing, every unit reads the fill values
        bytes_read=chunk_bytes(shape) + WORD * shape.n_samples + shape.n_bands * fill_bytes(shape),
        bytes_written=norms + moments,
    )
    if n_moments:
        yield Stage.of(
            TRANSFORM_COLUMNS_STAGE,
            "transform-columns",
            1,
            parameters,
            TRANSFORM_COLUMNS_STAGE.cost(shape.n_features),
            bytes_read=moments,
            bytes_written=3 * WORD * shape.n_features * n_moments,  # means in two parts, and variances
        )
