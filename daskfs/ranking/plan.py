"""Stages that combine the rankings of batches, and that filter redundant features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.candidates import check_candidates, plan_comoments
from daskfs.criteria.rrpc.correlations import BINS_STAGE, BinsParameters, binned_cost, stored_bins_cost
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
    """Return the stages that combine the rankings of batches.

    Parameters
    ----------
    shape
        Shape of the data.
    methods
        The methods.
    batches
        The batches; empty if not known yet.
    process
        Memory of a process before a unit starts.
    """
    n_batches, n_features = max(len(batches), 2), shape.n_features
    n_ranks = n_batches * n_features * len(methods)
    parameters = BatchesParameters(tuple(methods), tuple(batches))
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
    shape: Shape, methods: Sequence[Method], redundancy: RedundancySpec, columns: int, process: Cost
) -> list[Stage]:
    """Return the stages that filter redundant features from the rankings.

    Parameters
    ----------
    shape, columns, process
        Shape of the data, columns of a slab, and memory of a process before a unit starts.
    methods
        Methods.
    redundancy
        The filter.
    """
    labels, measure, scaling = [method.label for method in methods], redundancy.measure, redundancy.scaling
    count = min(redundancy.n_candidates + len(redundancy.choice.keep), shape.n_features)
    if measure is None:
        count = shape.n_features
    else:
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
    counts = dict.fromkeys(labels, count)
    read, clears, bins = 0, "", None
    if measure == "correlation":
        stage = plan_comoments(shape, "filter-comoments", (REDUNDANCY, counts), scaling, process)
        stages.append(replace(stage, needed_until="filter"))
        read, clears = stage.bytes_written, layout.COMOMENTS_FOR.format(REDUNDANCY)
    elif measure == "distance_correlation":
        bins = BinsParameters(REDUNDANCY, tuple(labels), scaling, all_features=False, slab_columns=columns)
        stage = _plan_bins(shape, counts, bins, process)
        stages.append(replace(stage, needed_until="filter"))
        read = len(labels) * total(stored_bins_cost(count, min(shape.n_samples, DISTANCE_ROWS)))
        clears = layout.BINNED_OF
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


def _plan_bins(shape: Shape, counts: Mapping[str, int], parameters: BinsParameters, process: Cost) -> Stage:
    """Return the stage that bins the candidates, slab by slab."""
    union, columns = min(sum(counts.values()), shape.n_features), parameters.slab_columns
    return Stage.of(
        BINS_STAGE,
        "filter-bins",
        -(-shape.n_features // columns),
        parameters,
        BINS_STAGE.cost(shape, min(union, columns), columns, parameters.scaling, process),
        bytes_read=shape.x_bytes,
        bytes_written=total(binned_cost(union, min(shape.n_samples, DISTANCE_ROWS))),
    )
