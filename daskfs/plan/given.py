"""A graph from outside: whether it serves the methods, and the stages that take it in and stream by it."""

from __future__ import annotations

import dataclasses

from daskfs.errors import JobError
from daskfs.graph.components import EDGES_AT_ONCE
from daskfs.graph.edges import EDGES_SUMMARY_STAGE, GIVEN, GIVEN_BLOCK
from daskfs.graph.given import GIVEN_STAGE, Graph, NeighborLists, WeightMatrix, given_bytes
from daskfs.graph.spec import GraphSpec
from daskfs.methods.registry import Method
from daskfs.stages.cost import Cost, Fixed, total
from daskfs.stages.stage import Stage

GIVEN_ENTRY_BYTES = 120
"""What an edge of a graph from outside takes in the block that streams by."""


def check_given(graph: Graph, methods: list[Method], n_samples: int) -> None:
    """Raise :class:`InputError` or :class:`JobError` when a graph from outside cannot serve the rows or the methods."""
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
    """Stage that reads a graph from outside into the run store."""
    held, read, written = given_bytes(graph, n_samples, k)
    metric, scaling = (graph.metric, graph.scaling) if isinstance(graph, NeighborLists) else (None, None)
    parameters = {
        "path": graph.where,
        "identity": dict(graph.identity),
        "graph": {"metric": metric, "scaling": scaling, "engine": GIVEN},
        "k": k,
    }
    return Stage.of(
        GIVEN_STAGE,
        "graph-given",
        1,
        parameters,
        (Fixed("rest", total(process) + held),),
        bytes_read=read,
        bytes_written=written,
    )


def plan_streams(stages: list[Stage], graph: Graph | None, n_samples: int, process: Cost) -> list[Stage]:
    """Stages over all edges, with what it takes where these are a matrix's; and one before them that describes it."""
    if not isinstance(graph, WeightMatrix):
        return stages
    entries = min(graph.n_entries, GIVEN_BLOCK)
    block, read = GIVEN_ENTRY_BYTES * entries, 12 * graph.n_entries
    describe = Stage.of(
        EDGES_SUMMARY_STAGE,
        f"edges-summary-{GIVEN}",
        1,
        {"name": GIVEN, "n_neighbors": 0},
        (Fixed("rest", total(process) + 24 * n_samples + block + 128 * min(EDGES_AT_ONCE, entries)),),
        bytes_read=read + 4 * graph.n_entries,
    )
    streamed = [
        s
        if s.parameters.get("weighting", {}).get("graph", GIVEN) != GIVEN
        else dataclasses.replace(s, peak_bytes=s.peak_bytes + block, bytes_read=s.bytes_read + s.n_units * read)
        for s in stages
    ]
    return [describe, *streamed]
