"""Stages "neighbors" and "recall": neighbour lists of every row, and how many of them an exhaustive search confirms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.graph.descent import descent_neighbors
from daskfs.graph.partition import block_rows, read_members, search_units
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.moments import row_blocks
from daskfs.kernels.neighbors import exact_neighbors, prepare_rows
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

RECALL_ROWS = 500
"""Rows whose lists are checked against an exhaustive search."""
DISTANCE_TOLERANCE = 1e-6


def create_lists(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create the arrays of neighbour lists."""
    name, k = GraphSpec(**parameters["graph"]).name, int(parameters["k"])
    n_samples = context.tiles.shape.n_samples
    chunks = (block_rows(n_samples), k)
    context.store.create(layout.KNN_INDICES.format(name), (n_samples, k), np.int64, chunks)
    context.store.create(layout.KNN_DISTANCES.format(name), (n_samples, k), np.float64, chunks)


def create_recall(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create the array of exact distances from the rows whose lists are checked."""
    name, k = GraphSpec(**parameters["graph"]).name, int(parameters["k"])
    shape = context.tiles.shape
    n_queries = min(RECALL_ROWS, shape.n_samples)
    context.store.create(layout.KNN_RECALL.format(name), (shape.n_bands, n_queries, k), np.float64, (1, n_queries, k))


def find_neighbors(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Find the neighbours of one block of rows within their partition."""
    spec, k = GraphSpec(**parameters["graph"]), int(parameters["k"])
    partitions = [slice(*bounds) for bounds in parameters["partitions"]]
    search = search_units(spec, partitions, context.tiles.shape.n_samples)[unit]
    X = read_members(context.tiles, search.members, spec.scaling)
    if spec.engine == "exact":
        base = prepare_rows(X, spec.metric)
        asked = slice(search.queries.start - search.members.start, search.queries.stop - search.members.start)
        numbers = np.arange(search.queries.start, search.queries.stop)
        indices, distances = exact_neighbors(base.part(asked), numbers, base, search.members.start, k)
    else:
        indices, distances = descent_neighbors(X, spec.metric, k, spec.random_state)
        indices = np.where(indices >= 0, indices + search.members.start, -1)
    store = context.store
    store.open(layout.KNN_INDICES.format(spec.name))[search.queries] = indices
    store.open(layout.KNN_DISTANCES.format(spec.name))[search.queries] = distances
    if spec.engine != "exact":
        _store_queries(store, spec, X, search.members)
    return {"engine": spec.engine}


def query_rows(n_samples: int, random_state: int) -> np.ndarray:
    """Return the rows whose lists are checked, sorted; shape (at most RECALL_ROWS,), int64."""
    generator = np.random.default_rng([random_state, n_samples])
    return np.sort(generator.choice(n_samples, size=min(RECALL_ROWS, n_samples), replace=False))


def _store_queries(store: Store, spec: GraphSpec, X: np.ndarray | sp.csr_matrix, members: slice) -> None:
    numbers = query_rows(members.stop - members.start, spec.random_state)
    rows = X[numbers]
    store.put_array(layout.KNN_QUERY_ROWS.format(spec.name), numbers + members.start)
    store.put_array(layout.KNN_QUERIES.format(spec.name), rows.toarray() if is_sparse(rows) else rows)


def check_band(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Find the exact nearest rows of the sampled rows within one band."""
    spec, k = GraphSpec(**parameters["graph"]), int(parameters["k"])
    band = context.tiles.shape.band(unit)
    X = read_members(context.tiles, band, spec.scaling)
    base = prepare_rows(X, spec.metric)
    queries: np.ndarray | sp.csr_matrix = context.store.open(layout.KNN_QUERIES.format(spec.name))[...]
    numbers = context.store.open(layout.KNN_QUERY_ROWS.format(spec.name))[...]
    if is_sparse(X):
        queries = sp.csr_matrix(queries)
    _, distances = exact_neighbors(prepare_rows(queries, spec.metric, like=base), numbers, base, band.start, k)
    context.store.open(layout.KNN_RECALL.format(spec.name))[unit : unit + 1] = distances[None]


def close_recall(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Merge the bands and compare, by distance, with the neighbour lists."""
    del unit
    store, name, k = context.store, GraphSpec(**parameters["graph"]).name, int(parameters["k"])
    by_band = store.open(layout.KNN_RECALL.format(name))[...]
    numbers = store.open(layout.KNN_QUERY_ROWS.format(name))[...]
    exact = np.sort(np.concatenate(list(by_band), axis=1), axis=1)[:, :k]
    lists = store.open(layout.KNN_DISTANCES.format(name))
    found = np.empty((numbers.size, k))
    for rows in row_blocks(lists.shape[0], block_rows(lists.shape[0])):
        low, high = np.searchsorted(numbers, [rows.start, rows.stop])
        if low < high:
            found[low:high] = lists[rows][numbers[low:high] - rows.start]
    reached = found <= exact[:, k - 1 : k] * (1 + DISTANCE_TOLERANCE) + 1e-12
    summary = {"value": float(reached.mean()), "n_rows": int(numbers.size), "k": k}
    store.write_json(layout.RECALL_SUMMARY.format(name), summary)
    return summary
