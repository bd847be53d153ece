"""Stages that combine the rankings of batches, and that filter redundant features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.correlations import (
    BINS_STAGE,
    BinsParameters,
    binned_cost,
    check_candidates,
    plan_comoments,
    stored_bins_cost,
)
from daskfs.kernels.distance_correlation.histograms import DISTANCE_ROWS
from daskfs.ranking.batches import BATCH_TABLES_STAGE, COMBINE_STAGE, BatchesParameters, RankedBatch
from daskfs.ranking.redundancy import (
    CANDIDATES_STAGE,
    FILTER_STAGE,
    REDUNDANCY,
    CandidateListsParameters,
    FilterParameters,
    RedundancySpec,
)
from daskfs.stages.cost import WORD, Cost, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.shape import Shape

TABLE_FIELDS = 4
"""Fields of a method's table that are planned for; some methods have fewer, some more."""


def plan_combination(
    shape: Shape, methods: Sequence[Method], batches: Sequence[RankedBatch], process: Cost
) -> list[Stage]:
    """Return the stages that combine the rankings of `batches`, empty if not known yet."""
    n_batches, n_features = max(len(batches), 2), shape.n_features
    n_ranks = n_batches * n_features * len(methods)
    parameters = BatchesParameters(tuple(methods), tuple(batches))
    cost = COMBINE_STAGE.cost(n_batches, n_features, process)
    table_cost = BATCH_TABLES_STAGE.cost(n_ranks, n_features, process)
    read, written = WORD * n_ranks, 2 * WORD * n_ranks  # with the scores
    return [
        # named as the scoring stage of a run without batches: later stages read the methods from "score"
        Stage.of(COMBINE_STAGE, "score", len(methods), parameters, cost, bytes_read=read, bytes_written=written),
        Stage.of(BATCH_TABLES_STAGE, "batch-tables", 1, parameters, table_cost, bytes_read=written),
    ]


def plan_redundancy(
    shape: Shape, methods: Sequence[Method], redundancy: RedundancySpec, columns: int, process: Cost
) -> list[Stage]:
    """Return the stages that filter redundant features from the rankings; `columns` is the width of a slab."""
    labels, measure, scaling = [method.label for method in methods], redundancy.measure, redundancy.scaling
    count = shape.n_features
    if measure is not None:
        count = min(redundancy.n_candidates + len(redundancy.choice.keep), count)
        check_candidates(count, "select.redundancy", "select.redundancy.n_candidates")
    listed = WORD * count * len(labels)
    stages = [
        Stage.of(
            CANDIDATES_STAGE,
            "filter-candidates",
            1,
            CandidateListsParameters(tuple(methods), redundancy),
            CANDIDATES_STAGE.cost(shape.n_features, process),
            bytes_read=len(labels) * WORD * TABLE_FIELDS * shape.n_features,
            bytes_written=listed,
        )
    ]
    read, clears, bins = 0, "", None
    if measure == "correlation":
        candidates = (REDUNDANCY, dict.fromkeys(labels, count))
        stage = plan_comoments(shape, "filter-comoments", candidates, scaling, process)
        stages.append(replace(stage, needed_until="filter"))
        read, clears = stage.bytes_written, layout.COMOMENTS_FOR.format(REDUNDANCY)
    elif measure == "distance_correlation":
        bins = BinsParameters(REDUNDANCY, tuple(labels), scaling, all_features=False, slab_columns=columns)
        n_slabs, n_rows = -(-shape.n_features // columns), min(shape.n_samples, DISTANCE_ROWS)
        n_binned = min(len(labels) * count, shape.n_features)
        cost = BINS_STAGE.cost(shape, min(n_binned, columns), columns, scaling, process)
        written = total(binned_cost(n_binned, n_rows))
        stage = Stage.of(
            BINS_STAGE, "filter-bins", n_slabs, bins, cost, bytes_read=shape.x_bytes, bytes_written=written
        )
        stages.append(replace(stage, needed_until="filter"))
        read, clears = len(labels) * total(stored_bins_cost(count, n_rows)), layout.BINNED_OF
    return [
        *stages,
        Stage.of(
            FILTER_STAGE,
            "filter",
            len(labels),
            FilterParameters(tuple(methods), redundancy, bins),
            FILTER_STAGE.cost(shape.n_samples, shape.n_features, count, measure, process),
            bytes_read=read + listed,
            bytes_written=listed,
            clears=clears,
        ),
    ]
