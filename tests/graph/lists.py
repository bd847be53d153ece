"""Neighbor lists in a store in memory, as the graph stages find them there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from daskfs.graph.edges import create_edges, describe_graph, edge_blocks, mark_edges, weight_edges
from daskfs.graph.partition import block_rows
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


def marked(context: Context, k: int, name: str = NAME, blocks_per_unit: int = 2**30) -> dict[str, Any]:
    """Mark the edges, in one unit unless told, and return the graph's summary."""
    parameters = {"name": name, "n_neighbors": k, "blocks_per_unit": blocks_per_unit}
    create_edges(context, parameters)
    n_samples = context.tiles.shape.n_samples
    facts = [
        mark_edges(context, parameters, unit)
        for unit in range(-(-n_samples // (blocks_per_unit * block_rows(n_samples))))
    ]
    summary = describe_graph(context, parameters, 0)
    assert sum(fact["n_edges"] for fact in facts) == summary["n_edges"]
    return summary


def weighted(context: Context, weighting: Weighting) -> tuple[dict[str, Any], FloatArray]:
    """Facts of the stage, and the degrees."""
    parameters = {
        "weighting": {
            "graph": weighting.graph,
            "n_neighbors": weighting.n_neighbors,
            "weights": weighting.weights,
            "t": weighting.t,
            "self_loops": weighting.self_loops,
        }
    }
    facts = weight_edges(context, parameters, 0)
    return facts, context.store.open(layout.DEGREES.format(weighting.key))[...]


def edges_of(context: Context, k: int) -> list[tuple[int, int, float]]:
    """Every edge that streams by, with the lower row first."""
    found = []
    for source, target, length in edge_blocks(context.store, NAME, k):
        pairs = zip(source.tolist(), target.tolist(), length.tolist(), strict=True)
        found += [(min(i, j), max(i, j), d) for i, j, d in pairs]
    return found
