"""Stage "graph-given": copy a precomputed graph into the run store.

Neighbor lists are stored under the names that a search would use. Of a matrix of weights each edge is stored once, in
ascending order, with the larger of its two entries. A unit holds a batch of entries, or a chunk if that is larger, and
a few numbers per row.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from pydantic import JsonValue

from daskfs.errors import InputError
from daskfs.graph.edges import GIVEN, GIVEN_BLOCK
from daskfs.graph.partition import block_rows, create_list_arrays, largest_block, put_lists
from daskfs.graph.precomputed import Graph, NeighborLists, WeightMatrix, run_entries
from daskfs.graph.precomputed_files import open_graph
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.sources.columns import in_blocks
from daskfs.stages.cost import WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

RUN_CHUNK = 2**16
SAMPLED_KEYS = 2**12
"""One key in this many of a sorted run is kept in memory as an index."""


class GivenParameters(StageParameters):
    """Parameters of "graph-given"; of a matrix, `metric` and `scaling` are None."""

    path: str
    identity: Mapping[str, JsonValue]
    metric: str | None
    scaling: str | None
    k: int


def store_given(context: Context, parameters: GivenParameters, unit: int) -> dict[str, Any]:
    """Copy the graph at a path into the run store; :class:`InputError` if it changed since it was planned."""
    del unit
    path, planned = parameters.path, parameters.identity
    graph = open_graph(path)
    check_identity(graph, planned)
    try:
        return store_graph(context.store, graph, context.tiles.shape.n_samples, parameters.k)
    finally:
        check_identity(open_graph(path), planned)


def check_identity(graph: Graph, planned: Mapping[str, JsonValue]) -> None:
    """Raise :class:`InputError` if a graph is not the one of the planned identity."""
    if json.loads(json.dumps(dict(graph.identity))) != planned:
        msg = f"{graph.where} changed after its reading was planned: restore it, or start over with what it is now."
        raise InputError(msg)


def store_graph(store: Store, graph: Graph, n_samples: int, k: int) -> dict[str, Any]:
    """Copy a precomputed graph, the first `k` entries of neighbor lists, to the paths that the following stages read.

    :class:`InputError` if it is not a valid graph of `n_samples` rows, or a matrix has no edges.
    """
    if isinstance(graph, WeightMatrix):
        graph.check_size(n_samples)
        return _store_matrix(store, graph)
    graph.check_size(n_samples, k)
    create_list_arrays(store, graph.name, n_samples, k)
    n_listed = 0
    for rows in row_blocks(n_samples, block_rows(n_samples)):
        indices, distances = graph.read(rows, k)
        put_lists(store, graph.name, rows, indices, distances)
        n_listed += int(np.count_nonzero(indices >= 0))
    return {"n_listed": n_listed}


def given_traffic(graph: Graph, n_samples: int, k: int) -> dict[str, int]:
    """Return the bytes that :func:`store_graph` reads and writes, as keyword arguments of a stage."""
    if isinstance(graph, NeighborLists):
        read = n_samples * (graph.indices.dtype.itemsize + graph.distances.dtype.itemsize) * graph.n_neighbors
        return {"bytes_read": read, "bytes_written": n_samples * (index_dtype(n_samples).itemsize + WORD) * k}
    n_entries = graph.n_entries
    values = n_entries * (graph.values.dtype.itemsize + graph.columns.dtype.itemsize)
    # keys of the sorted runs are read twice and weights once, by whole chunks, parts of which are read again
    read = values + 2 * 3 * WORD * n_entries
    runs = n_entries * 2 * WORD
    return {"bytes_read": read, "bytes_written": runs + edges_bytes(n_entries) + WORD * n_samples}


def edges_bytes(n_entries: int) -> int:
    """Return the bytes of the edges of a symmetric matrix: two rows and a weight for every two entries."""
    return 3 * WORD * n_entries // 2


def _store_matrix(store: Store, matrix: WeightMatrix) -> dict[str, Any]:
    scratch = Store(store.root)  # its writes are not recorded as outputs of the unit
    try:
        runs = _SortedRuns(scratch, run_entries(matrix.n_entries))
        diagonal = _sort_entries(matrix, runs)
        n_edges = sum(int(np.count_nonzero(np.diff(keys >> 1, prepend=-1))) for keys in runs.keys_in_order())
        if not n_edges:
            msg = f"{matrix.where} has no edges: no two rows have a weight above 0."
            raise InputError(msg)
        _store_edges(store, runs, n_edges, matrix.shape[0])
    finally:
        scratch.delete(layout.SPILL.format(GIVEN))
    store.put_array(layout.GIVEN_DIAGONAL, diagonal, (block_rows(matrix.shape[0]),))
    return {"n_edges": n_edges}


def _sort_entries(matrix: WeightMatrix, runs: _SortedRuns) -> np.ndarray:
    """Sort the positive off-diagonal entries by pair of rows, and return the diagonal, shape (n_samples,), float64."""
    n_samples = matrix.shape[0]
    diagonal = np.zeros(n_samples)
    for rows, columns, weights in matrix.read():
        loops, apart = rows == columns, (rows != columns) & (weights > 0)
        np.add.at(diagonal, rows[loops], weights[loops])
        rows, columns = rows[apart], columns[apart]
        runs.add(pair_keys(rows, columns, n_samples), weights[apart])
    return diagonal


def pair_keys(rows: np.ndarray, columns: np.ndarray, n_samples: int) -> np.ndarray:
    """Return an int64 for each entry off the diagonal; two entries of a pair of rows differ in the last bit only."""
    pair = np.minimum(rows, columns) * n_samples + np.maximum(rows, columns)
    return 2 * pair + (rows > columns)


def _store_edges(store: Store, runs: _SortedRuns, n_edges: int, n_samples: int) -> None:
    names = (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)
    for name, dtype in zip(names, (np.int64, np.int64, np.float64), strict=True):
        store.create(name, (n_edges,), dtype, (GIVEN_BLOCK,))
    merged = itertools.tee(itertools.starmap(_merge_pairs, runs.in_order()))
    blocks = (in_blocks(map(itemgetter(i), stretches), GIVEN_BLOCK) for i, stretches in enumerate(merged))
    stored = 0
    for pairs, weights in zip(*blocks, strict=True):
        part = slice(stored, stored + pairs.size)
        for name, values in zip(names, (pairs // n_samples, pairs % n_samples, weights), strict=True):
            store.open(name)[part] = values
        stored = part.stop


def _merge_pairs(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows and their weights: duplicates summed, then the larger of both triangles."""
    if not keys.size:
        return keys, weights
    place = np.flatnonzero(np.diff(keys, prepend=-1))
    pairs, weights = keys[place] >> 1, np.add.reduceat(weights, place)
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    return pairs[first], np.maximum.reduceat(weights, first)


class _SortedRuns:
    """External sort of keys with weights, in runs of `size`, read back in ascending blocks of about `size`."""

    def __init__(self, store: Store, size: int) -> None:
        self._store, self._size = store, size
        self._sampled: list[np.ndarray] = []
        self._lengths: list[int] = []

    def add(self, keys: np.ndarray, weights: np.ndarray) -> None:
        """Sort and store a run: non-negative int64 keys and float64 weights, shape (n_entries,) each."""
        if not keys.size:
            return
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        number = len(self._lengths)
        self._store.put_array(layout.SPILL_KEYS.format(GIVEN, number), keys, (RUN_CHUNK,))
        self._store.put_array(layout.SPILL_WEIGHTS.format(GIVEN, number), weights[order], (RUN_CHUNK,))
        self._sampled.append(keys[::SAMPLED_KEYS].copy())
        self._lengths.append(keys.size)

    def keys_in_order(self) -> Iterator[np.ndarray]:
        """Yield the keys in ascending order, (n_keys,) int64; keys that differ in the last bit only share a block."""
        for low, high in self._cuts():
            yield np.sort(np.concatenate([keys for _, keys, _ in self._parts(low, high)]))

    def in_order(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the blocks of :meth:`keys_in_order` with the weights of the keys, (n_keys,) float64."""
        for low, high in self._cuts():
            parts = list(self._parts(low, high))
            keys = np.concatenate([part[1] for part in parts])
            weights = [self._store.open(layout.SPILL_WEIGHTS.format(GIVEN, run))[rows] for run, _, rows in parts]
            order = np.argsort(keys, kind="stable")
            yield keys[order], np.concatenate(weights)[order]

    def _cuts(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of keys with about as many keys as one run."""
        if not self._sampled:
            return
        sampled = np.sort(np.concatenate(self._sampled))
        step = self._size // SAMPLED_KEYS
        yield from itertools.pairwise([0, *np.unique(sampled[step::step] & ~1).tolist(), np.iinfo(np.int64).max])

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, np.ndarray, slice]]:
        """Yield for each run its keys in [low, high), and their slice of the run."""
        for run, (sampled, length) in enumerate(zip(self._sampled, self._lengths, strict=True)):
            start = max(int(np.searchsorted(sampled, low)) - 1, 0) * SAMPLED_KEYS
            stop = min(int(np.searchsorted(sampled, high)) * SAMPLED_KEYS, length)
            keys = self._store.open(layout.SPILL_KEYS.format(GIVEN, run))[start : max(start, stop)]
            first, last = (int(place) for place in np.searchsorted(keys, [low, high]))
            yield run, keys[first:last], slice(start + first, start + last)


def given_cost(graph: Graph, n_samples: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of the unit: the files' buffers, and a batch of entries."""
    files = Objects("what reading a part of the files takes", 1, graph.held_bytes)
    if isinstance(graph, NeighborLists):
        block = (largest_block(n_samples), max(k, graph.indices.shape[1]))
        return (
            *process,
            files,
            Array("lists of a block, as read, in order, compared and stored", (12, *block)),
            Array("marks of what is wrong with them", (4, *block), "bool"),
        )
    size = run_entries(graph.n_entries)
    n_sorted = min(graph.n_entries, size) + graph.n_entries // size * SAMPLED_KEYS
    return (
        *process,
        files,
        Array("rows, columns and weights of entries that are read", (3, min(graph.n_entries, graph.read_entries))),
        Array("keys and weights that are sorted: of each run, as one, their order, and merged", (16, n_sorted)),
        Array("diagonal, and as it is written", (2, n_samples)),
    )


GIVEN_STAGE = StageKind("given", __name__, store_given, given_cost)
