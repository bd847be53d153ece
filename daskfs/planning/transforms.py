"""Plan of the pass that takes what scalings of several steps ask of rescaled values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from daskfs.graph.spec import GraphSpec, Lists, MixedGraph
from daskfs.kernels.moments import cell_rows
from daskfs.kernels.scaling import Scaling, ends_with, steps_of
from daskfs.methods.registry import Method
from daskfs.plan.stages import PROCESS_BYTES, Stage
from daskfs.plan.tiles import band_bytes, chunk_bytes, conversion_bytes, tile_bytes
from daskfs.store import layout
from daskfs.store.tiles import Shape
from daskfs.store.transforms import CELLS_AT_ONCE


def asked_scalings(
    methods: Sequence[Method],
    lists: Mapping[str, tuple[Lists, int]],
    beside: Iterable[Scaling | None] = (),
    *,
    weighted: bool = False,
) -> tuple[Scaling, ...]:
    """Return the scalings whose statistics are taken in a pass of their own, in the order of their names.

    "zscore" asks for moments, wherever it is, after another step or of rows that have weights. "unit" asks for norms
    where some columns of all rows are at hand, as for scores; the graph sees whole rows, which say their norms
    themselves.

    Parameters
    ----------
    methods
        Their columns are rescaled.
    lists
        Neighbor lists that are to be found, by name.
    beside
        Scalings of columns that something else compares.
    weighted
        Whether rows have weights.
    """
    by_rows: set[Scaling | None] = set()
    for wanted, _ in lists.values():
        over_rows = wanted.base if isinstance(wanted, MixedGraph) else wanted
        if isinstance(over_rows, GraphSpec):
            by_rows.add(over_rows.scaling)
    by_rows |= {getattr(method.parameters, "graph_scaling", None) for method in methods if method.finish == "trade-off"}
    by_columns = {method.parameters.score_scaling for method in methods} | set(beside)
    asked = {scaling for scaling in by_rows if ends_with(scaling, "zscore")} | by_columns
    several = {scaling for scaling in asked if scaling and steps_of(scaling).first and steps_of(scaling).last}
    if weighted:
        several |= {"zscore"} & asked
    return tuple(sorted(several))


def plan_transforms(shape: Shape, scalings: Sequence[Scaling]) -> list[Stage]:
    """Stages that take the statistics of :func:`asked_scalings`; none where there are none."""
    if not scalings:
        return []
    moments = [scaling for scaling in scalings if ends_with(scaling, "zscore")]
    parameters = {"scalings": list(scalings)}
    row_bytes = -(-shape.x_bytes // shape.n_samples) if shape.is_sparse else shape.n_features * shape.itemsize
    wide = row_bytes * (8 + 4) // (shape.itemsize + 4) if shape.is_sparse else 8 * shape.n_features
    rows = min(CELLS_AT_ONCE * cell_rows(shape.n_features, shape.is_sparse), shape.tile_rows)
    # a band, and the copies that turn its columns into rows; a block of rows, rescaled, and its copies in norms
    peak = PROCESS_BYTES + 3 * band_bytes(shape) + 3 * tile_bytes(shape) + rows * (row_bytes + 4 * wide)
    peak += conversion_bytes(shape.n_features) + 40 * shape.tile_rows
    table = 8 * len(layout.TRANSFORM_ROWS) * shape.n_features
    peak += 24 * table  # of subtrees that wait for their neighbors
    n_norms = len(scalings) - len(moments)
    written = 8 * shape.n_samples * n_norms + shape.n_bands * table * len(moments)
    # where values were missing, every unit asks for what they are filled with
    read = chunk_bytes(shape) + 8 * shape.n_samples + 16 * shape.n_bands * shape.n_features
    stages = [Stage("transform", "transform", shape.n_bands, parameters, peak, read, written)]
    if moments:
        merging = PROCESS_BYTES + 40 * table
        read, written = shape.n_bands * table * len(moments), 16 * shape.n_features * len(moments)
        stages.append(Stage("transform-columns", "transform-columns", 1, parameters, merging, read, written))
    return stages
