"""Plan of the slabs, and of what follows them for single methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.graph.partition import (
    block_rows,
    index_dtype,
)
from daskfs.graph.spec import Weighting
from daskfs.kernels.cut import CUT_ROWS, cut_features
from daskfs.kernels.passes import compiles
from daskfs.kernels.products import TILE_BYTES
from daskfs.kernels.scaling import row_statistics
from daskfs.scores.candidates import plan_greedy
from daskfs.scores.slab import SCORE_STAGE
from daskfs.scores.tradeoff import TRADE_OFF_STAGE
from daskfs.stages.cost import COMPILED, Cost, Fixed, total
from daskfs.stages.stage import Stage
from daskfs.store.tiles import PANEL_WIDTH, Shape, sample_rows
from daskfs.tiles.shapes import MIN_PARALLEL, MIN_TILE_BYTES, conversion_bytes, slab_budget, slabs_bytes, tile_bytes

PICKED_BYTES = 34
"""What the rows that have a column take beside their values, each: number, mark, label and weight."""
COLUMN_BYTES = 1024
"""What the statistics of a method take, as objects, for a column that has rows of its own."""


def slab_columns(shape: Shape, scaled: bool, memory_limit: int | None, *, pairwise: bool = False) -> int:
    """Return how many columns one scoring unit holds: whole tile columns, as many as the slab budget takes.

    `pairwise` says that values may be missing, and rows are picked column by column.
    """
    per_column = shape.n_samples * (shape.itemsize + (8 if scaled else 0))
    beside = 0.8 * 3 * slab_budget(memory_limit) - (40 + PICKED_BYTES * pairwise) * shape.n_samples
    beside -= 0 if memory_limit is None else total(compiled_cost(shape, scaled))
    copied = _panel_bytes(shape, scaled, pairwise=pairwise)
    fitting = min(slab_budget(memory_limit) // per_column, int(beside) // (per_column + copied))
    fitting = max(1, fitting)
    wanted = (
        max(shape.tile_columns, -(-shape.n_features // MIN_PARALLEL))
        if shape.x_bytes > MIN_TILE_BYTES
        else shape.n_features
    )
    columns = min(fitting, wanted)
    if columns > shape.tile_columns:
        columns -= columns % shape.tile_columns
    return int(min(columns, shape.n_features))


def compiled_cost(shape: Shape, scaled: bool) -> Cost:
    """Return what compiled passes add to a process that has scored, for good; nothing where nothing is compiled."""
    dtype = np.dtype(np.float64 if scaled else shape.dtype)
    return (COMPILED,) if compiles(shape.n_samples * shape.n_features, dtype) else ()


def _panel_bytes(shape: Shape, scaled: bool, *, pairwise: bool) -> int:
    """Bytes of one column of what is copied of a panel: the rows of some labels, or the steps of a rescaling; under
    `pairwise` also its complete columns apart from the others, or the rows that have a column, and marks of these.
    """
    copied = 24 if scaled else shape.itemsize
    return shape.n_samples * (copied + (1 + (8 if scaled else shape.itemsize) if pairwise else 0))


def plan_finish(shape: Shape, method: Mapping[str, Any], finish: str, columns: int, process: Cost) -> list[Stage]:
    """Stages that make the table of one method from those of its slabs."""
    if finish == "trade-off":
        return [_plan_trade_off(shape, method, columns, process)]
    if finish == "greedy":
        return plan_greedy(shape, method, process)
    raise NotImplementedError


def _plan_trade_off(shape: Shape, method: Mapping[str, Any], columns: int, process: Cost) -> Stage:
    sampled, tables = sample_rows(shape).size, 24 * shape.n_features
    row_bytes = -(-shape.x_bytes // shape.n_samples)
    of_band = min(sampled, -(-sampled * shape.tile_rows // shape.n_samples) + 1) * row_bytes
    count = cut_features(method["parameters"]["n_cut_features"], shape.n_features)
    rows = min(CUT_ROWS, sampled)
    reduced = 8 * rows * (3 * min(11 * count, shape.n_features) + 6 * count)
    cut = reduced + 80 * rows**2 + conversion_bytes(shape.n_features) + TILE_BYTES
    peak = total(process) + 4 * of_band + 200 * shape.n_features + 16 * shape.n_samples + cut  # and weights of rows
    parameters = {"method": dict(method), "slab_columns": columns}
    read = tables + sampled * row_bytes
    return Stage.of(
        TRADE_OFF_STAGE,
        f"trade-off-{method['label']}",
        1,
        parameters,
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=tables,
    )


def plan_scores(
    shape: Shape,
    methods: list[dict[str, Any]],
    weightings: Sequence[Weighting],
    scaled: bool,
    columns: int,
    process: Cost,
    widths: Mapping[str, int] | None = None,
    label_bytes: int = 0,
    *,
    pairwise: bool = False,
) -> Stage:
    """Stage that scores the slabs; `widths` are the lengths of neighbor lists, where these are longer than needed, and
    `label_bytes` what a unit reads of labels. `pairwise` is as of :func:`slab_columns`.
    """
    n_units = -(-shape.n_features // columns)
    panel = _panel_bytes(shape, scaled, pairwise=pairwise) * min(columns, PANEL_WIDTH)
    slab = shape.n_samples * columns * (shape.itemsize + (8 if scaled else 0))
    largest_k = max((w.n_neighbors for w in weightings), default=0)
    graphs = {(w.graph, w.n_neighbors): (widths or {}).get(w.graph) or w.n_neighbors for w in weightings}
    size = min(block_rows(shape.n_samples), shape.n_samples)
    block = (120 * largest_k + 36 * max(graphs.values(), default=0) + 16 * len(weightings)) * size
    peak = (
        total(process)
        + total(compiled_cost(shape, scaled))
        + slab
        + panel
        + 4 * tile_bytes(shape)
        + block
        + (40 + PICKED_BYTES * pairwise) * shape.n_samples
        + conversion_bytes(PANEL_WIDTH) * (1 + pairwise)
    )
    entry, stored = index_dtype(shape.n_samples).itemsize + 8, -(-shape.n_samples // size) * size  # whole chunks count
    graph_bytes = stored * sum(k + entry * width for (_, k), width in graphs.items())
    graph_bytes += 8 * shape.n_samples * len(weightings)
    scalings = {method["parameters"]["score_scaling"] for method in methods}
    graph_bytes += 8 * shape.n_samples * sum(map(row_statistics, scalings))
    if pairwise:  # what is known of each column by itself
        peak += COLUMN_BYTES * (2 + len(methods)) * columns
    counts = 16 * shape.n_features if pairwise else 0  # of missing values
    read = slabs_bytes(shape, columns) + n_units * (graph_bytes + label_bytes + counts)
    written = len(methods) * 4 * 8 * shape.n_features
    return Stage.of(
        SCORE_STAGE,
        "score",
        n_units,
        {"methods": methods, "slab_columns": columns},
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=written,
    )
