"""Stage "graph-given": a graph from outside, from files or from memory, into the run store.

Neighbour lists are copied, so that all that follows finds them where a search would have left them. Of a matrix of
weights each edge is stored once, with the larger of its two entries, in ascending order. Nothing is held but some
entries at a time and a few numbers for each row, unless a file cannot be read in parts.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.graph.edges import GIVEN, GIVEN_BLOCK
from daskfs.graph.partition import block_rows, index_dtype
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.moments import row_blocks
from daskfs.kernels.rows import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.places import Place, place, put
from daskfs.stages.kind import StageKind, unlisted
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

INDICES, DISTANCES = (PurePath(name).name for name in (layout.KNN_INDICES, layout.KNN_DISTANCES))
METRIC_ATTRIBUTE, SCALING_ATTRIBUTE = "metric", "graph_scaling"
TIED = (1e-6, 1e-12)
"""Relative and absolute difference up to which distances count as equal: those go by row number in a list."""
RUN_ENTRIES = (2**20, 2**23)
"""Entries that are sorted at a time, at least and at most."""
RUN_CHUNK = 2**16
SAMPLED_KEYS = 2**12
"""Every so many keys of a sorted run, one is kept in memory to find the others by."""


class Readable(Protocol):
    """An array, or what reads like one."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, selection: Any, /) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class NeighborLists:
    """Neighbour lists from outside.

    Attributes
    ----------
    where
        What messages call them: a path, or "graph".
    indices, distances
        Shape (n_samples, n_neighbors), nearest first; -1 and inf where there is no neighbour.
    metric, scaling
        What the distances are.
    identity
        What tells one state of the files from another.
    """

    where: str
    indices: Readable
    distances: Readable
    metric: Metric
    scaling: Scaling | None
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the graph in a run store."""
        return GraphSpec(self.metric, self.scaling).name

    @property
    def n_neighbors(self) -> int:
        """Length of the lists."""
        return int(self.indices.shape[1])

    @property
    def held_bytes(self) -> int:
        """Bytes that reading a part of them takes, however small the part."""
        return _held(self.indices, self.distances)

    def check_size(self, n_samples: int, k: int) -> None:
        """Raise :class:`InputError` unless there is a list for every row, of `k` neighbours at least."""
        if self.indices.shape[0] != n_samples:
            msg = f"{self.where} has {self.indices.shape[0]} rows, and X has n_samples={n_samples}."
            raise InputError(msg)
        if self.n_neighbors < k:
            msg = f"n_neighbors is {k}, and {self.where} has {self.n_neighbors} neighbors a row."
            raise InputError(msg)

    def read(self, rows: slice, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first `k` entries of some lists; :class:`InputError` for what no search returns."""
        n_samples = self.indices.shape[0]
        indices, distances = self.indices[rows, :k], self.distances[rows, :k].astype(np.float64, copy=False)
        numbers = np.arange(rows.start, rows.stop)[:, None]
        missing = indices == -1
        ordered = np.sort(indices, axis=1)
        problems = (
            (~missing & ((indices < 0) | (indices >= n_samples)), f"lists a row that is none of the {n_samples}"),
            (indices == numbers, "lists itself"),
            ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0), "lists a row twice"),
            (~missing & ~(np.isfinite(distances) & (distances >= 0)), "has a distance that is negative, NaN or inf"),
            (missing & ~np.isposinf(distances), "has a distance to a neighbor that is missing (-1), instead of inf"),
            (distances[:, 1:] < distances[:, :-1] * (1 - TIED[0]) - TIED[1], "is not sorted, nearest first"),
        )
        for wrong, what in problems:
            if wrong.any():
                row = int(np.flatnonzero(wrong.any(axis=1))[0])
                shown = ", ".join(f"{i} at {d:.6g}" for i, d in zip(indices[row, :5], distances[row, :5], strict=True))
                msg = f"{self.where}: row {rows.start + row} {what} (its list begins with {shown})."
                raise InputError(msg)
        return indices.astype(index_dtype(n_samples), copy=False), distances


@dataclass(frozen=True, eq=False)
class WeightMatrix:
    """A matrix of weights from outside, as a list of entries.

    Attributes
    ----------
    where
        What messages call it: a path, or "graph".
    shape
        Both sides.
    rows, columns, values
        Shape (n_entries,): where each entry stands, and the entry. Those of one place add up.
    identity
        What tells one state of the files from another.
    """

    where: str
    shape: tuple[int, ...]
    rows: Readable
    columns: Readable
    values: Readable
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_entries(self) -> int:
        """Number of entries."""
        return int(self.values.shape[0])

    @property
    def held_bytes(self) -> int:
        """Bytes that reading a part of it takes, however small the part."""
        return _held(self.rows, self.columns, self.values)

    @property
    def read_entries(self) -> int:
        """Entries that are read at a time, since chunks come whole: those that are sorted at a time, or a chunk."""
        return max(run_entries(self.n_entries), *(_chunk(part) for part in (self.rows, self.columns, self.values)))

    @classmethod
    def of(cls, matrix: sp.csr_matrix, where: str) -> WeightMatrix:
        """Return a CSR matrix in memory as one."""
        return cls(where, matrix.shape, EntryRows(matrix.indptr, matrix.nnz, where), matrix.indices, matrix.data)

    def check_size(self, n_samples: int) -> None:
        """Raise :class:`InputError` unless there is a row and a column for every row of X."""
        if self.shape != (n_samples, n_samples):
            msg = (
                f"{self.where} has shape {self.shape}, and X has n_samples={n_samples}: a weight for every pair of "
                "rows is needed."
            )
            raise InputError(msg)

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield rows, columns and weights of the entries; :class:`InputError` for what is no weight of two rows."""
        for span in row_blocks(self.n_entries, self.read_entries):
            rows, columns, values = self.rows[span], self.columns[span], self.values[span]
            for part in row_blocks(len(values), run_entries(self.n_entries)):
                yield self._checked(
                    rows[part].astype(np.int64, copy=False),
                    columns[part].astype(np.int64, copy=False),
                    values[part].astype(np.float64, copy=False),
                )

    def _checked(
        self, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        n = self.shape[0]
        problems = (
            ((rows < 0) | (rows >= n) | (columns < 0) | (columns >= n), f"has an entry outside its {n} rows"),
            (np.isnan(weights), "contains NaN"),
            (np.isinf(weights), "contains infinity"),
            (weights < 0, "has negative weights"),
        )
        for wrong, what in problems:
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0])
                msg = f"{self.where} {what}: row {rows[first]}, column {columns[first]} holds {weights[first]:.6g}."
                raise InputError(msg)
        return rows, columns, weights


class EntryRows:
    """The row of each entry of a CSR matrix, made from where each row starts when it is asked for.

    Parameters
    ----------
    starts
        Shape (n_rows + 1,), integer.
    n_entries
        Number of entries.
    where
        What messages call the matrix.
    """

    def __init__(self, starts: Readable, n_entries: int, where: str) -> None:
        self._unread = starts
        self._starts: np.ndarray | None = None
        self._where = where
        self.shape = (n_entries,)
        self.dtype = np.dtype(np.int64)
        self.held_bytes = 8 * starts.shape[0] + _held(starts)

    def __getitem__(self, entries: slice) -> np.ndarray:
        starts = self._starts = self._read() if self._starts is None else self._starts
        first, last = np.searchsorted(starts, [entries.start, entries.stop - 1], side="right") - 1
        counts = np.diff(np.clip(starts[first : last + 2], entries.start, entries.stop))
        return np.repeat(np.arange(first, last + 1), counts)

    def _read(self) -> np.ndarray:
        starts = self._unread[:].astype(np.int64, copy=False)
        decreasing = np.flatnonzero(np.diff(starts) < 0)
        if decreasing.size:
            row = int(decreasing[0])
            msg = f"{self._where} is damaged: row {row} starts at entry {starts[row]} and ends at {starts[row + 1]}."
            raise InputError(msg)
        if (starts[0], starts[-1]) != (0, self.shape[0]):
            msg = (
                f"{self._where} is damaged: its rows run from entry {starts[0]} to {starts[-1]}, and there are "
                f"{self.shape[0]} entries."
            )
            raise InputError(msg)
        return starts


Graph = NeighborLists | WeightMatrix


def _held(*parts: Readable) -> int:
    return sum(int(getattr(part, "held_bytes", 0)) for part in parts)


def _chunk(part: Readable) -> int:
    return int(getattr(part, "chunk_rows", 0))


# ---------------------------------------------------------------------- into the store
def store_given(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Read the graph at a path and put it into the run store."""
    from daskfs.graph.givenfiles import open_graph

    del unit
    path, planned = str(parameters["path"]), parameters["identity"]
    graph = open_graph(path)
    _check_identity(graph, planned)
    try:
        return store_graph(context.store, graph, context.tiles.shape.n_samples, int(parameters["k"]))
    finally:
        _check_identity(open_graph(path), planned)


def _check_identity(graph: Graph, planned: Mapping[str, Any]) -> None:
    if json.loads(json.dumps(dict(graph.identity))) != json.loads(json.dumps(dict(planned))):
        msg = f"{graph.where} changed after its reading was planned: restore it, or start over with what it is now."
        raise InputError(msg)


def store_graph(store: Store, graph: Graph, n_samples: int, k: int) -> dict[str, Any]:
    """Put a graph from outside where the stages that follow look for it.

    Parameters
    ----------
    store
        Run store.
    graph
        Neighbour lists or a matrix of weights.
    n_samples
        Rows of X.
    k
        How much of each neighbour list is needed.

    Raises
    ------
    InputError
        Where it is no graph of so many rows, naming the row.
    """
    if isinstance(graph, NeighborLists):
        graph.check_size(n_samples, k)
        return _store_lists(store, graph, k)
    graph.check_size(n_samples)
    return _store_matrix(store, graph)


def given_bytes(graph: Graph, n_samples: int, k: int) -> tuple[int, int, int]:
    """Return the bytes that :func:`store_graph` holds, reads and writes."""
    if isinstance(graph, NeighborLists):
        block = min(block_rows(n_samples), n_samples) * max(k, 1)
        stored = n_samples * (graph.indices.dtype.itemsize + graph.distances.dtype.itemsize) * graph.n_neighbors
        return graph.held_bytes + 100 * block, stored, n_samples * (index_dtype(n_samples).itemsize + 8) * k
    n_entries = graph.n_entries
    sorted_at_once = min(n_entries, run_entries(n_entries)) + n_entries // run_entries(n_entries) * SAMPLED_KEYS
    held = graph.held_bytes + 24 * min(n_entries, graph.read_entries) + 128 * sorted_at_once + 16 * n_samples
    values = n_entries * (graph.values.dtype.itemsize + graph.columns.dtype.itemsize)
    # the sorted runs are read once for their keys and once for all, by chunks of which others need a part; of a
    # symmetric matrix half the entries are edges
    return held, values + 2 * 24 * n_entries, 16 * n_entries + 12 * n_entries + 8 * n_samples


def _store_lists(store: Store, lists: NeighborLists, k: int) -> dict[str, Any]:
    n_samples, name = lists.indices.shape[0], lists.name
    size = block_rows(n_samples)
    store.create(layout.KNN_INDICES.format(name), (n_samples, k), index_dtype(n_samples), (size, k))
    store.create(layout.KNN_DISTANCES.format(name), (n_samples, k), np.float64, (size, k))
    n_listed = 0
    for rows in row_blocks(n_samples, size):
        indices, distances = lists.read(rows, k)
        store.open(layout.KNN_INDICES.format(name))[rows] = indices
        store.open(layout.KNN_DISTANCES.format(name))[rows] = distances
        n_listed += int(np.count_nonzero(indices >= 0))
    return {"n_listed": n_listed}


def _store_matrix(store: Store, matrix: WeightMatrix) -> dict[str, Any]:
    scratch = Store(store.root)  # one whose writes are no outputs of the unit
    scratch.delete(layout.SPILL.format(GIVEN))
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
    """Sort the entries that are above 0 by the pair of rows they belong to, and return those on the diagonal."""
    n_samples = matrix.shape[0]
    diagonal = np.zeros(n_samples)
    for rows, columns, weights in matrix.read():
        loops, apart = rows == columns, (rows != columns) & (weights > 0)
        np.add.at(diagonal, rows[loops], weights[loops])
        rows, columns = rows[apart], columns[apart]
        # the entries of one pair differ in the last bit, by the side of the diagonal
        pair = np.minimum(rows, columns) * n_samples + np.maximum(rows, columns)
        runs.add(2 * pair + (rows > columns), weights[apart])
    return diagonal


def _store_edges(store: Store, runs: _SortedRuns, n_edges: int, n_samples: int) -> None:
    names = (layout.GIVEN_SOURCE, layout.GIVEN_TARGET, layout.GIVEN_WEIGHT)
    for name, dtype in zip(names, (np.int64, np.int64, np.float64), strict=True):
        store.create(name, (n_edges,), dtype, (GIVEN_BLOCK,))
    stored = 0
    for pairs, weights in _in_blocks(itertools.starmap(_merged, runs.in_order()), GIVEN_BLOCK):
        part = slice(stored, stored + pairs.size)
        for name, values in zip(names, (pairs // n_samples, pairs % n_samples, weights), strict=True):
            store.open(name)[part] = values
        stored = part.stop


def _merged(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows and their weights: entries of one place summed, then the larger of both places."""
    if not keys.size:
        return keys, weights
    place = np.flatnonzero(np.diff(keys, prepend=-1))
    pairs, weights = keys[place] >> 1, np.add.reduceat(weights, place)
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    return pairs[first], np.maximum.reduceat(weights, first)


def _in_blocks(
    stretches: Iterable[tuple[np.ndarray, np.ndarray]], size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut stretches of any length into ones of `size`, and a last one of what is left."""
    pairs, weights = np.empty(0, np.int64), np.empty(0)
    for more in stretches:
        pairs, weights = np.concatenate([pairs, more[0]]), np.concatenate([weights, more[1]])
        whole = pairs.size - pairs.size % size
        for part in row_blocks(whole, size):
            yield pairs[part], weights[part]
        pairs, weights = pairs[whole:], weights[whole:]
    if pairs.size:
        yield pairs, weights


def run_entries(n_entries: int) -> int:
    """Return how many entries are sorted at a time: the more there are, so that a stretch finds a fair part in each
    run.
    """
    return int(np.clip(1 << int(128 * np.sqrt(n_entries)).bit_length(), *RUN_ENTRIES))


class _SortedRuns:
    """Keys with weights, each `size` of them sorted and stored, read back in ascending stretches of about `size`."""

    def __init__(self, store: Store, size: int) -> None:
        self._store, self._size = store, size
        self._sampled: list[np.ndarray] = []
        self._lengths: list[int] = []

    def add(self, keys: np.ndarray, weights: np.ndarray) -> None:
        """Sort and store some keys, which are not negative, with their weights."""
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
        """Yield the keys in ascending order; those that differ in the last bit only come together."""
        for low, high in self._cuts():
            yield np.sort(np.concatenate([keys for _, keys, _ in self._parts(low, high)]))

    def in_order(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield keys in ascending order, and their weights."""
        for low, high in self._cuts():
            parts = list(self._parts(low, high))
            keys = np.concatenate([part[1] for part in parts])
            weights = [self._store.open(layout.SPILL_WEIGHTS.format(GIVEN, run))[rows] for run, _, rows in parts]
            order = np.argsort(keys, kind="stable")
            yield keys[order], np.concatenate(weights)[order]

    def _cuts(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of keys that hold about as many as one run does."""
        if not self._sampled:
            return
        sampled = np.sort(np.concatenate(self._sampled))
        step = self._size // SAMPLED_KEYS
        yield from itertools.pairwise([0, *np.unique(sampled[step::step] & ~1).tolist(), np.iinfo(np.int64).max])

    def _parts(self, low: int, high: int) -> Iterator[tuple[int, np.ndarray, slice]]:
        """Yield of each run the keys from `low` to below `high`, and where they stand in it."""
        for run, (sampled, length) in enumerate(zip(self._sampled, self._lengths, strict=True)):
            start = max(int(np.searchsorted(sampled, low)) - 1, 0) * SAMPLED_KEYS
            stop = min(int(np.searchsorted(sampled, high)) * SAMPLED_KEYS, length)
            keys = self._store.open(layout.SPILL_KEYS.format(GIVEN, run))[start : max(start, stop)]
            first, last = (int(place) for place in np.searchsorted(keys, [low, high]))
            yield run, keys[first:last], slice(start + first, start + last)


# ------------------------------------------------------------------------ into a file
def save_lists(path: str | Place, lists: NeighborLists) -> None:
    """Write neighbour lists as a Zarr group of their own, with attributes that say what the distances are.

    Raises
    ------
    FileExistsError
        When there is something at `path`.
    """
    target = place(path)
    if target.exists():
        msg = f"{target} exists."
        raise FileExistsError(msg)
    attributes = {METRIC_ATTRIBUTE: lists.metric, SCALING_ATTRIBUTE: lists.scaling}
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    put(target / "zarr.json", json.dumps(group).encode())  # in a bucket, Zarr would make groups of all that it lies in
    store = Store(target)
    n_samples, k = lists.indices.shape
    size = block_rows(n_samples)
    store.create(INDICES, (n_samples, k), index_dtype(n_samples), (size, k))
    store.create(DISTANCES, (n_samples, k), np.float64, (size, k))
    for rows in row_blocks(n_samples, size):
        indices, distances = lists.read(rows, k)
        store.open(INDICES)[rows], store.open(DISTANCES)[rows] = indices, distances


GIVEN_STAGE = StageKind("given", __name__, store_given, unlisted)
