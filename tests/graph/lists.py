"""Neighbor lists in a store in memory, as the graph stages find them there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskfs.graph.edges import (
    EdgesParameters,
    EdgesSummaryParameters,
    OneGraph,
    Stretches,
    WeightsParameters,
    create_degrees,
    create_edges,
    describe_graph,
    edge_blocks,
    find_median,
    send_entries,
    store_edges,
    weight_edges,
    weight_summary,
)
from daskfs.graph.spec import Weighting
from daskfs.plan.inline import memory_context
from daskfs.store import layout
from daskfs.store.context import Context

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
NAME = "euclidean"


def listed_context(indices: IntArray, distances: FloatArray, name: str = NAME) -> Context:
    """A context of rows without features of interest, whose lists are these."""
    context = memory_context(np.zeros((len(indices), 1)), None)
    context.store.put_array(layout.KNN_INDICES.format(name), indices)
    context.store.put_array(layout.KNN_DISTANCES.format(name), distances)
    return context


def cut(context: Context, name: str, k: int, blocks: int = 2**30) -> EdgesParameters:
    """Parameters of stages over stretches of some blocks, of which "entries" takes the smallest divisor above 1."""
    sent = next((i for i in range(2, 10) if blocks % i == 0 and blocks > i), 1)
    return EdgesParameters(name, k, Stretches(context.tiles.shape.n_samples, blocks, sent))


def connected(context: Context, k: int, name: str = NAME, blocks_per_unit: int = 2**30) -> dict[str, Any]:
    """Store the edges, by one unit unless told, and return the graph's summary."""
    parameters = cut(context, name, k, blocks_per_unit)
    stretches = parameters.stretches
    for unit in range(stretches.n_sending):
        send_entries(context, parameters, unit)
    create_edges(context, parameters)
    facts = [store_edges(context, parameters, unit) for unit in range(len(stretches))]
    summary = describe_graph(context, EdgesSummaryParameters(name, k, holds_edges=False), 0)
    assert sum(fact["n_edges"] for fact in facts) == summary["n_edges"]
    return summary


def weighted(context: Context, weighting: Weighting, blocks_per_unit: int = 2**30) -> tuple[dict[str, Any], FloatArray]:
    """Summary of the weights, and the degrees; over the stretches of :func:`connected`."""
    stretches = cut(context, weighting.graph, weighting.n_neighbors, blocks_per_unit).stretches
    parameters = WeightsParameters(weighting, stretches)
    if weighting.t == "median":
        find_median(context, OneGraph(weighting.graph, weighting.n_neighbors), 0)
    create_degrees(context, parameters)
    for unit in range(len(stretches)):
        weight_edges(context, parameters, unit)
    return weight_summary(context.store, weighting), context.store.open(layout.DEGREES.format(weighting.key))[...]


def edges_of(context: Context, k: int) -> list[tuple[int, int, float]]:
    """Every edge that streams by, with the lower row first."""
    found = []
    for source, target, length in edge_blocks(context, NAME, k):
        pairs = zip(source.tolist(), target.tolist(), length.tolist(), strict=True)
        found += [(min(i, j), max(i, j), d) for i, j, d in pairs]
    return found
