"""A graph from outside, from files or from memory: neighbor lists, or a matrix of weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.graph.partition import block_rows, index_dtype
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.neighbors.rows import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import WORD
from daskfs.storage import StoragePath, as_path, put
from daskfs.store import layout
from daskfs.store.store import Store

INDICES, DISTANCES = (PurePath(name).name for name in (layout.KNN_INDICES, layout.KNN_DISTANCES))
METRIC_ATTRIBUTE, SCALING_ATTRIBUTE = "metric", "graph_scaling"
TIED = (1e-6, 1e-12)
"""Relative and absolute difference up to which distances count as equal: those go by row number in a list."""
RUN_ENTRIES = (2**20, 2**23)
"""Entries that are sorted at a time, at least and at most."""


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
        self.held_bytes = WORD * starts.shape[0] + _held(starts)

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


def run_entries(n_entries: int) -> int:
    """Return how many entries are sorted at a time: the more there are, so that a stretch finds a fair part in each
    run.
    """
    return int(np.clip(1 << int(128 * np.sqrt(n_entries)).bit_length(), *RUN_ENTRIES))


# ------------------------------------------------------------------------ into a file
def save_lists(path: str | StoragePath, lists: NeighborLists) -> None:
    """Write neighbour lists as a Zarr group of their own, with attributes that say what the distances are.

    Raises
    ------
    FileExistsError
        When there is something at `path`.
    """
    target = as_path(path)
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
