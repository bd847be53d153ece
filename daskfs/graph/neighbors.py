"""Stages "neighbors" and "recall": exact neighbor lists, and the estimated recall of approximate ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.graph.engine import foreign_cost
from daskfs.graph.partition import (
    Partitioning,
    block_rows,
    create_list_arrays,
    graph_dtype,
    largest_block,
    put_lists,
    read_members,
    search_units,
    sparse_values,
)
from daskfs.graph.rows import read_listed, searched_shape, searched_tiles
from daskfs.graph.sizes import RECALL_ROWS, Search, conversion_cost, incomplete_cost, products_cost
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.neighbors.cells import training_rows
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import LENGTHS
from daskfs.kernels.neighbors.rows import PAIR_ELEMENTS, SPARSE_PAIR_VALUES, prepare_rows
from daskfs.stages.cost import PROCESS, Array, Cost, Held, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape, sample_rows
from daskfs.store.store import Store
from daskfs.tiles.shapes import band_bytes

DISTANCE_TOLERANCE = 1e-6
SPARSE_PAIR_BYTES = 100
"""Bytes per value of sparse rows while distances of pairs are computed: both rows, also in float64, their difference,
its squares, and the columns of all of these."""


class ListsParameters(StageParameters):
    """Parameters of a search for neighbor lists: `graph`, the length of the lists, and the version of pynndescent.

    None if that does not search: another version may find other lists.
    """

    graph: GraphSpec
    k: int
    pynndescent: str | None


class SearchParameters(ListsParameters):
    """Parameters of the stages of an approximate search."""

    partitioning: Partitioning


def create_lists(context: Context, parameters: ListsParameters) -> None:
    """Create the arrays of neighbor lists, shape (n_samples, k)."""
    create_list_arrays(context.store, parameters.graph.name, context.tiles.shape.n_samples, parameters.k)


def create_recall(context: Context, parameters: SearchParameters) -> None:
    """Create the array of exact distances from the queries of the recall, shape (n_units, n_queries, k), float64."""
    spec, k = parameters.graph, parameters.k
    name, shape = spec.name, searched_shape(context.tiles.shape, spec)
    n_units = parameters.partitioning.assign_units(shape)
    n_queries = min(RECALL_ROWS, sample_rows(shape).size)
    context.store.create(layout.KNN_RECALL.format(name), (n_units, n_queries, k), np.float64, (1, n_queries, k))


def find_neighbors(context: Context, parameters: ListsParameters, unit: int) -> dict[str, Any]:
    """Find the exact neighbors of one block of rows among all rows."""
    queries = search_units(context.tiles.shape.n_samples)[unit]
    return store_exact_lists(context, parameters.graph, parameters.k, queries)


def store_exact_lists(context: Context, spec: GraphSpec, k: int, queries: slice) -> dict[str, Any]:
    """Find and store the exact neighbors of `queries`, whole blocks of rows, among all rows."""
    tiles = searched_tiles(context, spec)
    base = prepare_rows(read_members(tiles, slice(0, tiles.shape.n_samples), spec.read_scaling), spec.metric)
    numbers = np.arange(queries.start, queries.stop)
    indices, distances = exact_neighbors(base.part(queries), numbers, base, 0, k)
    put_lists(context.store, spec.name, queries, indices, distances)
    return {"engine": "exact", "n_short": int(np.count_nonzero(indices[:, -1] < 0))}


def chosen_engine(store: Store, name: str) -> Engine:
    """Return the engine of a search that began with the "cells" stage, which chooses it."""
    engine: Engine = store.need_json(layout.CELLS_SUMMARY.format(name))["engine"]
    return engine


def store_queries(context: Context, spec: GraphSpec, sample: Block, n_cells: int) -> None:
    """Choose and store at most 500 sampled rows, in graph space, as queries for the recall.

    They were not used to train the `n_cells` cells, like most rows, unless such rows are too few. `sample` is
    (n_sampled, n_features), dense or CSR.
    """
    numbers = sample_rows(searched_shape(context.tiles.shape, spec))
    generator = np.random.default_rng([spec.random_state, numbers.size])
    pool = np.flatnonzero(~training_rows(numbers.size, context.tiles.shape.n_samples, n_cells))
    if pool.size < RECALL_ROWS:
        pool = np.arange(numbers.size)
    chosen = np.sort(generator.choice(pool, size=min(RECALL_ROWS, pool.size), replace=False))
    rows = sample[chosen]
    context.store.put_array(layout.KNN_QUERY_ROWS.format(spec.name), numbers[chosen])
    context.store.put_array(layout.KNN_QUERIES.format(spec.name), rows.toarray() if is_sparse(rows) else rows)


def close_band(
    rows: Block,
    start: int,
    queries: np.ndarray,
    numbers: np.ndarray,
    spec: GraphSpec,
    nearest: np.ndarray,
) -> np.ndarray:
    """Update the smallest distances of the queries, and return them like `nearest`.

    `rows`, shape (n_rows, n_features), dense or CSR, begin with number `start`; queries have shape (n_queries,
    n_features), and row `numbers`, int64. `nearest` are their smallest distances so far, ascending, (n_queries, k)
    float64.
    """
    base = prepare_rows(rows, spec.metric)
    rows_of_queries: Any = sp.csr_matrix(queries) if is_sparse(rows) else queries
    k = nearest.shape[1]
    _, distances = exact_neighbors(prepare_rows(rows_of_queries, spec.metric, like=base), numbers, base, start, k)
    return np.sort(np.concatenate([nearest, distances], axis=1), axis=1)[:, :k]


def close_recall(context: Context, parameters: SearchParameters, unit: int) -> dict[str, Any]:
    """Compare the merged exact distances with those of the neighbor lists; skipped if the lists are exact."""
    del unit
    store, name, k = context.store, parameters.graph.name, parameters.k
    if chosen_engine(store, name) == "exact":
        return {}
    by_band = store.open(layout.KNN_RECALL.format(name))[...]
    numbers = store.open(layout.KNN_QUERY_ROWS.format(name))[...]
    exact = np.sort(np.concatenate(list(by_band), axis=1), axis=1)[:, :k]
    lists = store.open(layout.KNN_DISTANCES.format(name))
    listed = read_listed(lists, numbers, block_rows(lists.shape[0]))
    finite = np.isfinite(exact)  # fewer than k if a row shares no feature with the others
    farthest = exact[:, k - 1 :]
    reached = (listed <= farthest + np.abs(farthest) * DISTANCE_TOLERANCE) & np.isfinite(listed)
    summary = {"value": float(reached[finite].mean()) if finite.any() else 1.0, "n_rows": int(numbers.size), "k": k}
    store.write_json(layout.RECALL_SUMMARY.format(name), summary)
    return summary


def neighbors_cost(shape: Shape, spec: GraphSpec, k: int, n_asked: int, *, pairwise: bool) -> Cost:
    """Return the memory cost of an exact search for the lists of `n_asked` rows among all rows.

    Rescaling a band does not add to the peak: it is done before operand and products exist.
    """
    n, nnz, dtype = shape.n_samples, shape.nnz or 0, str(graph_dtype(np.dtype(shape.dtype), spec.read_scaling))
    n_unit = int(spec.metric not in LENGTHS)
    rows: Cost = (
        Array("rows", (n, shape.n_features), dtype),
        *(Array("unit rows", (n, shape.n_features)) for _ in range(n_unit)),
        Array("operand of the products", (n, shape.n_features + 2), "float32"),
    )
    pairs: Held = Array("rows of pairs that are measured, and their differences", (4, PAIR_ELEMENTS))
    if shape.is_sparse:
        rows = (
            *sparse_values("rows, band by band and as one", 2, nnz, dtype),
            *sparse_values("operand and unit rows", 1 + n_unit, nnz, "float64"),
        )
        pairs = Objects("values of pairs that are measured", SPARSE_PAIR_VALUES, SPARSE_PAIR_BYTES)
    return (
        PROCESS,
        *foreign_cost(spec, shape),
        *rows,
        Array("squared lengths, and those above 0", (2, n)),
        Objects("bands of X", 2, band_bytes(shape)),
        Array("rows that are found", (n_asked, k), "int64"),
        Array("distances that are found", (n_asked, k)),
        *products_cost(shape, n),
        pairs,
        *conversion_cost(shape),
        *(incomplete_cost(shape, n) if pairwise else ()),
    )


def recall_cost(search: Search, plan: Partitioning, process: Cost) -> Cost:
    """Return the memory cost of the "recall" unit: distances from all units, sorted, and a block of lists."""
    by_band = (4, plan.assign_units(search.shape), search.n_asked, search.k)
    return (
        *process,
        Array("distances of each unit, side by side, their order, and sorted", by_band),
        Array("distances of a block of rows, as stored and read", (2, largest_block(search.shape.n_samples), search.k)),
    )


NEIGHBORS_STAGE = StageKind(
    "neighbors", __name__, find_neighbors, neighbors_cost, arrays=create_lists, finds_lists=True
)
RECALL_STAGE = StageKind("recall", __name__, close_recall, recall_cost)
