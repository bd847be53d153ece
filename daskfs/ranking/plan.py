"""Plans of what makes rankings of tables: batches combined, and the filter of redundant features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskfs.kernels.distance import DISTANCE_ROWS
from daskfs.ranking.batches import BATCH_TABLES_STAGE, COMBINE_STAGE
from daskfs.ranking.redundancy import CANDIDATES_STAGE, FILTER_STAGE
from daskfs.scores.candidates import check_candidates, plan_comoments
from daskfs.scores.correlations import BINS_STAGE
from daskfs.stages.cost import Cost, Fixed, MiB, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import tile_bytes

ARROW_BYTES = 48 * MiB
"""What pyarrow adds to the process that writes the table."""
ROW_BYTES = 300
"""What a row of the table takes, as Arrow has it, and as CSV or Parquet."""


def plan_combination(
    shape: Shape, methods: Sequence[Mapping[str, Any]], batches: Sequence[Mapping[str, Any]], process: Cost
) -> list[Stage]:
    """Stages that combine the rankings of batches.

    Parameters
    ----------
    shape
        Of the data.
    methods
        The methods, as JSON.
    batches
        Number, name and methods of each batch; none where they are not known yet.
    process
        Bytes that a process takes before a unit starts.
    """
    n_ranks = max(len(batches), 2) * shape.n_features
    parameters = {"methods": list(methods), "batches": list(batches)}
    combining = total(process) + 8 * 7 * n_ranks + 200 * shape.n_features
    tables = total(process) + ARROW_BYTES + ROW_BYTES * n_ranks * len(methods) + 200 * shape.n_features
    size = 16 * n_ranks * len(methods)
    return [
        # called as what scores without batches, since what follows asks it for the methods
        Stage.of(
            COMBINE_STAGE,
            "score",
            len(methods),
            parameters,
            (Fixed("rest", combining),),
            bytes_read=size // 2,
            bytes_written=size,
        ),
        Stage.of(BATCH_TABLES_STAGE, "batch-tables", 1, parameters, (Fixed("rest", tables),), bytes_read=size),
    ]


def plan_redundancy(
    shape: Shape, methods: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], columns: int, process: Cost
) -> list[Stage]:
    """Stages that walk down the rankings past what is redundant.

    Parameters
    ----------
    shape, columns, process
        As elsewhere.
    methods
        Methods as JSON.
    wanted
        `measure`, `threshold`, `n_candidates`, `keep`, `drop`, `groups`, `max_per_group` and `scaling`, with numbers of
        features instead of their names.
    """
    labels, measure = [method["label"] for method in methods], wanted["measure"]
    count = min(wanted["n_candidates"] + len(wanted["keep"]), shape.n_features)
    if measure is None:
        count = shape.n_features
    else:
        check_candidates(count, "select.redundancy", "select.redundancy.n_candidates")
    parameters: dict[str, Any] = {"methods": [dict(method) for method in methods], "redundancy": dict(wanted)}
    known = 400 * shape.n_features
    tables = 32 * shape.n_features
    choose = total(process) + known
    stages = [
        Stage.of(
            CANDIDATES_STAGE,
            "filter-candidates",
            1,
            parameters,
            (Fixed("rest", choose),),
            bytes_read=len(labels) * tables,
            bytes_written=8 * count * len(labels),
        )
    ]
    counts = dict.fromkeys(labels, count)
    held = read = 0
    clears = ""
    if measure == "correlation":
        stage = plan_comoments(shape, "filter-comoments", ("redundancy", counts), wanted["scaling"], process)
        stages.append(replace(stage, needed_until="filter"))
        held, read, clears = 3 * 8 * count**2, stage.bytes_written, layout.COMOMENTS_FOR.format("redundancy")
    elif measure == "distance_correlation":
        stage = _plan_bins(shape, counts, wanted["scaling"], columns, process)
        stages.append(replace(stage, needed_until="filter"))
        rows = min(shape.n_samples, DISTANCE_ROWS)
        held = count * (rows + 4096) + 40 * rows + 2**20
        read, clears = len(labels) * count * (rows + 4096), layout.BINNED_OF
        parameters = {**parameters, "purpose": "redundancy", "labels": labels, "slab_columns": columns}
    peak = total(process) + known + held + 400 * count + 32 * shape.n_samples
    read += 8 * count * len(labels)
    written = 8 * count * len(labels)
    return [
        *stages,
        Stage.of(
            FILTER_STAGE,
            "filter",
            len(labels),
            parameters,
            (Fixed("rest", peak),),
            bytes_read=read,
            bytes_written=written,
            clears=clears,
        ),
    ]


def _plan_bins(shape: Shape, counts: Mapping[str, int], scaling: str | None, columns: int, process: Cost) -> Stage:
    """Stage that cuts the candidates into bins, slab by slab."""
    union = min(sum(counts.values()), shape.n_features)
    own, rows = min(union, columns), min(shape.n_samples, DISTANCE_ROWS)
    n_units = -(-shape.n_features // columns)
    band = 3 * shape.tile_rows * columns * shape.itemsize + 3 * tile_bytes(shape)
    peak = total(process) + band + own * rows * (shape.itemsize + 1 + (16 if scaling else 0))
    peak += 100 * rows + 24 * shape.n_samples + own * 4096
    parameters = {"purpose": "redundancy", "labels": list(counts), "scaling": scaling, "slab_columns": columns}
    return Stage.of(
        BINS_STAGE,
        "filter-bins",
        n_units,
        parameters,
        (Fixed("rest", peak),),
        bytes_read=shape.x_bytes,
        bytes_written=union * (rows + 2048),
    )
