"""Plan of the slabs, and of the stages that follow them for single methods."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.greedy import plan_greedy
from daskfs.criteria.slab import SCORE_STAGE, ScoreParameters, slab_cost
from daskfs.criteria.sselect.criterion import SSelectParameters
from daskfs.criteria.sselect.trade_off import N_TERMS, TRADE_OFF_STAGE, TradeOffParameters
from daskfs.graph.edges import edge_bytes
from daskfs.graph.spec import Weighting
from daskfs.kernels.panel.backend import compiles
from daskfs.kernels.scaling import row_statistics
from daskfs.stages.cost import COMPILED, MIN_UNITS, WORD, Cost, total
from daskfs.stages.stage import Stage
from daskfs.store.shape import Shape, sample_rows
from daskfs.tiles.shapes import (
    MIN_TILE_BYTES,
    SLABS_PER_WORKER,
    fill_bytes,
    row_bytes,
    slab_budget,
    slab_width,
    slabs_bytes,
)

SLAB_SHARE = 0.8
"""Share of a worker's memory beyond its process that a slab and its copies fill."""


def slab_columns(shape: Shape, memory_limit: int | None, n_units: int = MIN_UNITS, *, scaled: bool) -> int:
    """Return the number of columns of a slab that fits the slab budget, so that a unit may hold copies of it.

    A slab of a large X has at most an `n_units`-th of the columns, rounded up, unless these were few.
    """
    return _whole_tiles(shape, slab_budget(memory_limit) // total(slab_cost(shape, 1, scaled=scaled)), n_units)


def scored_columns(
    shape: Shape, memory_limit: int | None, cost: Callable[[int], Cost], n_units: int = MIN_UNITS
) -> int:
    """Return the number of columns of a scoring unit: all that fit, as each slab reads the whole graph.

    `cost` returns what a unit of some columns holds, in addition to the bare process; `n_units` is as in
    :func:`slab_columns`. Slabs are not cut by rows as well: parts of a slab would read less of the graph each, but the
    columns again, which are as many bytes where memory is what makes slabs narrow.
    """
    room = SLAB_SHARE * SLABS_PER_WORKER * slab_budget(memory_limit)
    if memory_limit is None:  # a bound on what columns take, beside what any unit takes
        room += total(cost(0))
    fitting = bisect_right(range(1, shape.n_features + 1), room, key=lambda columns: total(cost(columns)))
    return _whole_tiles(shape, fitting, n_units)


def _whole_tiles(shape: Shape, fitting: int, n_units: int) -> int:
    """Return the columns of a slab of whole tile columns, up to `fitting`."""
    is_large = shape.x_bytes > MIN_TILE_BYTES
    width = max(shape.tile_columns, slab_width(shape.n_features, n_units)) if is_large else shape.n_features
    columns = max(1, min(fitting, width))
    if columns > shape.tile_columns:
        columns -= columns % shape.tile_columns
    return int(min(columns, shape.n_features))


def compiled_cost(shape: Shape, *, scaled: bool) -> Cost:
    """List the permanent memory of compiled passes in a process that has scored; empty if nothing is compiled."""
    dtype = np.dtype(np.float64 if scaled else shape.dtype)
    return (COMPILED,) if compiles(shape.n_samples * shape.n_features, dtype) else ()


def plan_finish(shape: Shape, method: Method, finish: str, columns: int, process: Cost) -> list[Stage]:
    """Plan the stages that make a method's table from that of its slabs."""
    if finish == "greedy":
        return plan_greedy(shape, method, process)
    assert isinstance(method.parameters, SSelectParameters)  # "trade-off"
    tables = N_TERMS * WORD * shape.n_features
    trade_off = Stage.of(
        TRADE_OFF_STAGE,
        f"trade-off-{method.label}",
        1,
        TradeOffParameters(method, columns),
        TRADE_OFF_STAGE.cost(shape, method.parameters.n_cut_features, process),
        bytes_read=tables + sample_rows(shape).size * row_bytes(shape),
        bytes_written=tables,
    )
    return [trade_off]


def plan_scores(
    shape: Shape,
    methods: Sequence[Method],
    weightings: Sequence[Weighting],
    columns: int,
    cost: Cost,
    *,
    pairwise: bool = False,
) -> Stage:
    """Plan the stage that scores the slabs.

    `cost` is what a unit holds; `pairwise` means that values may be missing, and rows are picked column by column. The
    bytes read leave out the labels.
    """
    n_units = -(-shape.n_features // columns)
    graphs = {(w.graph, w.n_neighbors) for w in weightings}
    scalings = {method.parameters.score_scaling for method in methods}
    of_rows = WORD * shape.n_samples * (len(weightings) + sum(map(row_statistics, scalings)))
    missing = fill_bytes(shape) if pairwise else 0
    per_unit = sum(edge_bytes(shape.n_samples, k) for _, k in graphs) + of_rows + missing
    return Stage.of(
        SCORE_STAGE,
        "score",
        n_units,
        ScoreParameters(tuple(methods), columns),
        cost,
        bytes_read=slabs_bytes(shape, columns) + n_units * per_unit,
        bytes_written=WORD * sum(len(method.fields) for method in methods) * n_units * columns,  # whole chunks count
    )
