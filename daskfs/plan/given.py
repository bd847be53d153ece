"""Checks of a precomputed graph against the methods, and the stages that read it and stream over it."""

from __future__ import annotations

import json

from daskfs.criteria.invariants import InvariantsParameters
from daskfs.criteria.registry import Method
from daskfs.errors import JobError
from daskfs.graph.edges import (
    EDGES_SUMMARY_STAGE,
    GIVEN,
    EdgesSummaryParameters,
    WeightsParameters,
    given_edges,
    holds_edges,
)
from daskfs.graph.precomputed import Graph, NeighborLists, WeightMatrix
from daskfs.graph.precomputed_stage import GIVEN_STAGE, GivenParameters, edges_bytes, given_traffic
from daskfs.graph.spec import GraphSpec
from daskfs.stages.cost import WORD, Cost
from daskfs.stages.stage import Stage


def check_given(graph: Graph, methods: list[Method], n_samples: int) -> None:
    """Raise :class:`InputError` or :class:`JobError` if a precomputed graph does not fit the rows or the methods."""
    if isinstance(graph, WeightMatrix):
        graph.check_size(n_samples)
    for method in methods:
        for spec, k in method.parameters.lists(n_samples).values():
            if not isinstance(spec, GraphSpec):
                continue
            if isinstance(graph, WeightMatrix):
                msg = (
                    f"method {method.label} stands on distances, and graph.precomputed {graph.where} is a matrix of "
                    "weights: give it neighbor lists, of a run or of KNNGraph.save, or run it in a job of its own."
                )
                raise JobError(msg)
            if (spec.metric, spec.scaling) != (graph.metric, graph.scaling):
                msg = (
                    f"method {method.label} stands on neighbors by metric {spec.metric} and scaling "
                    f"{spec.scaling or 'null'}, and graph.precomputed {graph.where} holds neighbors by metric "
                    f"{graph.metric} and scaling {graph.scaling or 'null'}: set graph.metric and transform.graph to "
                    "these."
                )
                raise JobError(msg)
            graph.check_size(n_samples, min(k, getattr(method.parameters, "n_neighbors", k)))


def plan_given(graph: Graph, n_samples: int, k: int, process: Cost) -> Stage:
    """Return the stage that reads a precomputed graph into the run store."""
    metric, scaling = (graph.metric, graph.scaling) if isinstance(graph, NeighborLists) else (None, None)
    parameters = GivenParameters(graph.where, json.loads(json.dumps(dict(graph.identity))), metric, scaling, k)
    cost = GIVEN_STAGE.cost(graph, n_samples, k, process)
    return Stage.of(GIVEN_STAGE, "graph-given", 1, parameters, cost, **given_traffic(graph, n_samples, k))


def plan_streams(stages: list[Stage], graph: Graph | None, n_samples: int, process: Cost) -> list[Stage]:
    """Add the memory and bytes of a precomputed matrix to stages over all edges, and a stage first that summarizes it.

    Other graphs leave the stages unchanged.
    """
    if not isinstance(graph, WeightMatrix):
        return stages
    streamed, read = given_edges(graph.n_entries), edges_bytes(graph.n_entries)
    weights = WORD * graph.n_entries // 2  # read before, for the range of the histogram
    summary = EdgesSummaryParameters(GIVEN, 0, holds_edges(graph.n_entries))
    cost = EDGES_SUMMARY_STAGE.cost(n_samples, streamed, graph.n_entries, process)
    describe = Stage.of(EDGES_SUMMARY_STAGE, f"edges-summary-{GIVEN}", 1, summary, cost, bytes_read=read + weights)

    def streams_it(stage: Stage) -> bool:
        p = stage.parameters
        return not isinstance(p, WeightsParameters | InvariantsParameters) or p.weighting.graph == GIVEN

    streaming = [
        stage.with_more(*streamed, bytes_read=stage.bytes_read + stage.n_units * read) if streams_it(stage) else stage
        for stage in stages
    ]
    return [describe, *streaming]
