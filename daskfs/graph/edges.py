"""Stages "edges" and "weights": from neighbour lists to a symmetric weighted graph that can be streamed.

The graph is the union of the lists: an edge joins i and j when either lists the other (He, Cai and Niyogi 2005, section
2.2, step 1). It is not stored again. One bit per list entry says whether the entry stands for its edge, so that
streaming the lists meets every edge once; the weight is computed from the length on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.graph.partition import block_rows
from daskfs.graph.spec import Weighting
from daskfs.kernels.moments import row_blocks
from daskfs.kernels.weights import edge_weights
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

GIVEN = "given"
HISTOGRAM_BINS = 40


def mark_edges(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Mark each undirected edge once, and describe the graph: components, degrees, edge lengths."""
    del unit
    store, name, k = context.store, str(parameters["name"]), int(parameters["n_neighbors"])
    indices = store.open(layout.KNN_INDICES.format(name))[:, :k]
    n_samples = indices.shape[0]
    size = block_rows(n_samples)
    store.create(layout.EDGE_ONCE.format(name, k), (n_samples, k), np.uint8, (size, k))
    once = store.open(layout.EDGE_ONCE.format(name, k))
    for rows in row_blocks(n_samples, size):
        once[rows] = _stands_for_edge(indices, rows).astype(np.uint8)
    summary = _describe(store, name, k, n_samples)
    store.write_json(layout.GRAPH_SUMMARY.format(name, k), summary)
    return summary


def _stands_for_edge(indices: np.ndarray, rows: slice) -> np.ndarray:
    """Return, for each list entry of some rows, False when it is missing or when the lower row lists the same edge."""
    own = np.arange(rows.start, rows.stop)[:, None]
    block = indices[rows]
    duplicate = np.zeros(block.shape, dtype=bool)
    for column in range(indices.shape[1]):
        duplicate |= indices[block, column] == own
    return (block >= 0) & ~(duplicate & (block < own))


def _describe(store: Store, name: str, k: int, n_samples: int) -> dict[str, Any]:
    degree = np.zeros(n_samples, dtype=np.int64)
    sources, targets, lengths = [], [], []
    for source, target, length in edge_blocks(store, name, k):
        degree += np.bincount(source, minlength=n_samples) + np.bincount(target, minlength=n_samples)
        sources.append(source)
        targets.append(target)
        lengths.append(length)
    source, target, length = (np.concatenate(parts) for parts in (sources, targets, lengths))
    graph = sp.coo_array((np.ones(source.size, np.int8), (source, target)), shape=(n_samples, n_samples))
    n_components, component = sp.csgraph.connected_components(graph, directed=False)
    return {
        "n_edges": int(source.size),
        "n_components": int(n_components),
        "largest_component": int(np.bincount(component).max()),
        "n_isolated": int((degree == 0).sum()),
        "max_degree": int(degree.max()),
        "mean_degree": float(degree.mean()),
        "length_histogram": _histogram(length),
        "degree_histogram": _histogram(degree.astype(np.float64)),
    }


def _histogram(values: np.ndarray) -> dict[str, list[float]]:
    if values.size == 0:
        return {"edges": [0.0, 1.0], "counts": [0]}
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # equal but for round-off: too narrow to cut into bins
        return {"edges": [low, high], "counts": [int(values.size)]}
    counts, edges = np.histogram(values, bins=HISTOGRAM_BINS)
    return {"edges": [float(e) for e in edges], "counts": [int(c) for c in counts]}


def edge_blocks(store: Store, name: str, k: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (source, target, length) of the edges, each once, in the same blocks whoever asks.

    For a graph from outside the third part is the weight.
    """
    if name == GIVEN:
        yield from _given_blocks(store)
        return
    indices = store.open(layout.KNN_INDICES.format(name))
    distances = store.open(layout.KNN_DISTANCES.format(name))
    once = store.open(layout.EDGE_ONCE.format(name, k))
    for rows in row_blocks(indices.shape[0], block_rows(indices.shape[0])):
        marked = once[rows].astype(bool)
        source = np.broadcast_to(np.arange(rows.start, rows.stop)[:, None], marked.shape)[marked]
        yield source, indices[rows, :k][marked], distances[rows, :k][marked]


def weight_edges(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Choose the kernel width, sum the degrees, and count weights and rows that fell to 0."""
    del unit
    store = context.store
    weighting = Weighting(**parameters["weighting"])
    n_samples = context.tiles.shape.n_samples
    t = _kernel_width(store, weighting)
    degrees = np.zeros(n_samples)
    n_edges = n_underflow = 0
    for source, target, value in edge_blocks(store, weighting.graph, weighting.n_neighbors):
        weight = _weights_of(value, weighting, t)
        np.add.at(degrees, source, weight)
        np.add.at(degrees, target, weight)
        n_edges += weight.size
        n_underflow += int((weight == 0).sum())
    if weighting.self_loops:
        degrees += 1.0
    elif weighting.graph == GIVEN:
        degrees += store.open(layout.GIVEN_DIAGONAL)[...]
    if n_edges == n_underflow:
        raise InputError(_all_zero(weighting, t, n_edges))
    store.put_array(layout.DEGREES.format(weighting.key), degrees, (block_rows(n_samples),))
    summary = {"t": t, "n_underflow": n_underflow, "n_isolated": int((degrees == 0).sum()), "n_edges": n_edges}
    store.write_json(layout.WEIGHT_SUMMARY.format(weighting.key), summary)
    return summary


def _all_zero(weighting: Weighting, t: float, n_edges: int) -> str:
    if n_edges == 0:
        return "the graph has no edges."
    if weighting.weights == "heat":
        return (
            f"all {n_edges} heat weights exp(-d**2 / t) are 0 with t = {t:g}: the edges are too long for it. "
            "Raise t, use t = 'mean' or 'median', or scale the data (transform.graph)."
        )
    return f"all {n_edges} edge weights are 0."


def _kernel_width(store: Store, weighting: Weighting) -> float:
    if weighting.weights != "heat" or weighting.graph == GIVEN:
        return 1.0
    if not isinstance(weighting.t, str):
        return float(weighting.t)
    blocks = [length**2 for _, _, length in edge_blocks(store, weighting.graph, weighting.n_neighbors)]
    if weighting.t == "median":
        width = float(np.median(np.concatenate(blocks)))
    else:
        width = sum(float(block.sum()) for block in blocks) / max(sum(block.size for block in blocks), 1)
    return width if width > 0 else 1.0


def weighted_blocks(
    store: Store, graph: str, k: int, weightings: list[Weighting]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (source, target, weights) of the edges; weights have shape (n_weightings, n_edges)."""
    widths = [float(store.read_json(layout.WEIGHT_SUMMARY.format(w.key))["t"]) for w in weightings]
    for source, target, value in edge_blocks(store, graph, k):
        yield source, target, np.stack([_weights_of(value, w, t) for w, t in zip(weightings, widths, strict=True)])


def _weights_of(value: np.ndarray, weighting: Weighting, t: float) -> np.ndarray:
    if weighting.graph == GIVEN:
        return value
    return edge_weights(value, weighting.weights, t)


def store_given_graph(store: Store, graph: sp.csr_matrix) -> None:
    """Put a symmetric matrix of weights into a store in memory, each edge once."""
    upper = sp.triu(graph, k=1, format="coo")
    store.put_array(layout.GIVEN_SOURCE, upper.row.astype(np.int64))
    store.put_array(layout.GIVEN_TARGET, upper.col.astype(np.int64))
    store.put_array(layout.GIVEN_WEIGHT, upper.data.astype(np.float64))
    store.put_array(layout.GIVEN_DIAGONAL, graph.diagonal().astype(np.float64))


def _given_blocks(store: Store) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    arrays = [store.open(name) for name in (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)]
    for entries in row_blocks(arrays[0].shape[0], 2**20):
        yield arrays[0][entries], arrays[1][entries], arrays[2][entries]
