"""Stages that combine the rankings of batches, and that filter redundant features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from daskfs.criteria.rrpc.candidates import check_candidates, plan_comoments
from daskfs.criteria.rrpc.correlations import BINS_STAGE, binned_cost, stored_bins_cost
from daskfs.kernels.distance_correlation.histograms import DISTANCE_ROWS
from daskfs.ranking.batches import BATCH_TABLES_STAGE, COMBINE_STAGE
from daskfs.ranking.redundancy import CANDIDATES_STAGE, FILTER_STAGE, PURPOSE
from daskfs.stages.cost import WORD, Cost, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape

TABLE_FIELDS = 4
"""Fields of a method's table that are planned for; some methods have fewer, some more."""


def plan_combination(
    shape: Shape, methods: Sequence[Mapping[str, Any]], batches: Sequence[Mapping[str, Any]], process: Cost
) -> list[Stage]:
    """Return the stages that combine the rankings of batches.

    Parameters
    ----------
    shape
        Shape of the data.
    methods
        The methods, as JSON.
    batches
        Number, name and methods of each batch; empty if not known yet.
    process
        Memory of a process before a unit starts.
    """
    n_batches, n_features = max(len(batches), 2), shape.n_features
    n_ranks = n_batches * n_features * len(methods)
    parameters = {"methods": list(methods), "batches": list(batches)}
    ranks = WORD * n_ranks
    return [
        # named as the scoring stage of a run without batches: later stages read the methods from "score"
        Stage.of(
            COMBINE_STAGE,
            "score",
            len(methods),
            parameters,
            COMBINE_STAGE.cost(n_batches, n_features, process),
            bytes_read=ranks,
            bytes_written=2 * ranks,  # with the scores
        ),
        Stage.of(
            BATCH_TABLES_STAGE,
            "batch-tables",
            1,
            parameters,
            BATCH_TABLES_STAGE.cost(n_ranks, n_features, process),
            bytes_read=2 * ranks,
        ),
    ]


def plan_redundancy(
    shape: Shape, methods: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], columns: int, process: Cost
) -> list[Stage]:
    """Return the stages that filter redundant features from the rankings.

    Parameters
    ----------
    shape, columns, process
        Shape of the data, columns of a slab, and memory of a process before a unit starts.
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
    listed = WORD * count * len(labels)
    stages = [
        Stage.of(
            CANDIDATES_STAGE,
            "filter-candidates",
            1,
            parameters,
            CANDIDATES_STAGE.cost(shape.n_features, process),
            bytes_read=len(labels) * WORD * TABLE_FIELDS * shape.n_features,
            bytes_written=listed,
        )
    ]
    counts = dict.fromkeys(labels, count)
    read, clears = 0, ""
    if measure == "correlation":
        stage = plan_comoments(shape, "filter-comoments", (PURPOSE, counts), wanted["scaling"], process)
        stages.append(replace(stage, needed_until="filter"))
        read, clears = stage.bytes_written, layout.COMOMENTS_FOR.format(PURPOSE)
    elif measure == "distance_correlation":
        stage = _plan_bins(shape, counts, wanted["scaling"], columns, process)
        stages.append(replace(stage, needed_until="filter"))
        read = len(labels) * total(stored_bins_cost(count, min(shape.n_samples, DISTANCE_ROWS)))
        clears = layout.BINNED_OF
        parameters = {**parameters, "purpose": PURPOSE, "labels": labels, "slab_columns": columns}
    return [
        *stages,
        Stage.of(
            FILTER_STAGE,
            "filter",
            len(labels),
            parameters,
            FILTER_STAGE.cost(shape.n_samples, shape.n_features, count, measure, process),
            bytes_read=read + listed,
            bytes_written=listed,
            clears=clears,
        ),
    ]


def _plan_bins(shape: Shape, counts: Mapping[str, int], scaling: str | None, columns: int, process: Cost) -> Stage:
    """Return the stage that bins the candidates, slab by slab."""
    union = min(sum(counts.values()), shape.n_features)
    return Stage.of(
        BINS_STAGE,
        "filter-bins",
        -(-shape.n_features // columns),
        {"purpose": PURPOSE, "labels": list(counts), "scaling": scaling, "slab_columns": columns},
        BINS_STAGE.cost(shape, min(union, columns), columns, scaling, process),
        bytes_read=shape.x_bytes,
        bytes_written=total(binned_cost(union, min(shape.n_samples, DISTANCE_ROWS))),
    )
