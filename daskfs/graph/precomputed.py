"""Precomputed graphs, from files or memory: neighbor lists, or a sparse matrix of weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.graph.partition import block_rows
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.exact import order_with_ties
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import WORD
from daskfs.storage import PathName, as_path
from daskfs.store import layout
from daskfs.store.arrays import Readable, count_bytes
from daskfs.store.store import Store

INDICES, DISTANCES = (PurePath(name).name for name in (layout.KNN_INDICES, layout.KNN_DISTANCES))
METRIC_ATTRIBUTE, SCALING_ATTRIBUTE = "metric", "graph_scaling"
EQUAL_DISTANCES = (1e-6, 1e-12)
"""Relative and absolute tolerance for equal distances, which lists order by row number."""
ROUNDED = 1e-5
"""Distances that are less below 0 are 0: cosines of other programs may exceed 1 in float32."""
MOST_MATRIX_ROWS = 2**31
"""Rows of a matrix, whose pairs are sorted as integers of 63 bits and a side of the diagonal."""
RUN_ENTRIES = (2**20, 2**23)
"""Minimum and maximum number of entries that are sorted at a time."""


@dataclass(frozen=True, eq=False)
class NeighborLists:
    """Precomputed neighbor lists; :class:`InputError` for tables of another shape or dtype.

    Attributes
    ----------
    where
        Name in messages: a path, or "graph".
    indices, distances
        Shape (n_samples, n_neighbors), integer and float; -1 and inf for none.
    metric, scaling
        Metric of the distances, and scaling of X before.
    identity
        Sizes and times of the files, which detect a change.
    """

    where: str
    indices: Readable
    distances: Readable
    metric: Metric
    scaling: Scaling | None
    identity: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = self.indices.shape, self.distances.shape
        if len(shapes[0]) != 2 or shapes[0] != shapes[1] or 0 in shapes[0]:
            msg = (
                f"{self.where} has {INDICES} of shape {shapes[0]} and {DISTANCES} of shape {shapes[1]}: neighbor lists "
                "are two tables of one shape, (n_samples, n_neighbors)."
            )
            raise InputError(msg)
        check_kind(self.indices.dtype, "iu", f"{self.where}/{INDICES}")
        check_kind(self.distances.dtype, "f", f"{self.where}/{DISTANCES}")

    @property
    def name(self) -> str:
        """Name of the lists in a run store."""
        return GraphSpec(self.metric, self.scaling).name

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters of selectors that the lists replace."""
        return {"metric": self.metric, "metric_kwds": None, "graph_scaling": self.scaling}

    @cached_property
    def n_neighbors(self) -> int:
        """Length of the lists, without the row itself where they hold it, as the first one shows."""
        return int(self.indices.shape[1]) - int((np.asarray(self.indices[:1]) == 0).any())

    @property
    def held_bytes(self) -> int:
        """Bytes that any read needs, however small."""
        return _held_bytes(self.indices, self.distances)

    def check_size(self, n_samples: int, k: int) -> None:
        """Raise :class:`InputError` unless every row has a list of at least `k` neighbors."""
        if self.indices.shape[0] != n_samples:
            msg = f"{self.where} has {self.indices.shape[0]} rows, and X has n_samples={n_samples}."
            raise InputError(msg)
        if self.n_neighbors < k:
            msg = f"n_neighbors is {k}, and {self.where} has {self.n_neighbors} neighbors a row."
            raise InputError(msg)

    def read(self, rows: slice, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first `k` entries of the lists of `rows`; :class:`InputError` for an invalid list.

        Shape (n_rows, k), int32 or int64, and float64. Lists of other programs are brought into order: a row is not its
        own neighbor, one at an infinite distance is missing, and the nearest are first.
        """
        n_samples = self.indices.shape[0]
        # unsigned numbers have no -1
        indices, distances = self.indices[rows].astype(np.int64), self.distances[rows].astype(np.float64)
        count_bytes(read=indices.size * (self.indices.dtype.itemsize + self.distances.dtype.itemsize))
        missing = (indices == -1) | (indices == np.arange(rows.start, rows.stop)[:, None]) | (distances == np.inf)
        indices, distances[missing] = np.where(missing, -1, indices), np.inf
        distances[(distances < 0) & (distances > -ROUNDED)] = 0.0
        tied = (distances[:, 1:] == distances[:, :-1]) & (indices[:, 1:] < indices[:, :-1])
        nearer = distances[:, 1:] < distances[:, :-1] * (1 - EQUAL_DISTANCES[0]) - EQUAL_DISTANCES[1]
        moved = np.flatnonzero((tied | nearer).any(axis=1))
        order = order_with_ties(distances[moved], indices[moved])
        for table in (indices, distances):
            table[moved] = np.take_along_axis(table[moved], order, axis=1)
        ordered = np.sort(indices, axis=1)
        is_length = (distances >= 0) | (self.metric == "inner_product")
        problems = (
            ((indices < -1) | (indices >= n_samples), f"lists a row that is none of the {n_samples}"),
            ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0), "lists a row twice"),
            (np.isnan(distances) | ~is_length, "has a distance that is negative or NaN"),
        )
        for wrong, what in problems:
            if wrong.any():
                row = int(np.flatnonzero(wrong.any(axis=1))[0])
                shown = ", ".join(f"{i} at {d:.6g}" for i, d in zip(indices[row, :5], distances[row, :5], strict=True))
                msg = f"{self.where}: row {rows.start + row} {what} (its list begins with {shown})."
                raise InputError(msg)
        return indices[:, :k].astype(index_dtype(n_samples), copy=False), distances[:, :k]


def check_kind(dtype: np.dtype[Any], kinds: str, where: str) -> None:
    """Raise :class:`InputError` unless a dtype is of one of some kinds."""
    if dtype.kind not in kinds:
        needed = "real numbers" if "f" in kinds else "whole numbers"
        msg = f"{where} has dtype {dtype}: a graph has {needed} there."
        raise InputError(msg)


@dataclass(frozen=True, eq=False)
class WeightMatrix:
    """Precomputed matrix of weights, as a list of entries.

    Attributes
    ----------
    where
        Name in messages: a path, or "graph".
    shape
        Shape of the matrix.
    rows, columns, values
        Shape (n_entries,), integer and numeric: indices and value of each entry. Duplicate entries are summed.
    identity
        Sizes and times of the files, which detect a change.
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
        """Bytes that any read of entries needs, however small."""
        return _held_bytes(self.rows, self.columns, self.values)

    @property
    def read_entries(self) -> int:
        """Entries that are read at a time: those that are sorted at a time, or a chunk if that is larger."""
        chunks = [getattr(part, "chunks", None) or (0,) for part in (self.rows, self.columns, self.values)]
        return max(run_entries(self.n_entries), *(int(chunk[0]) for chunk in chunks))

    @classmethod
    def of(cls, matrix: sp.csr_matrix, where: str) -> WeightMatrix:
        """Wrap a CSR matrix in memory, shape (n_samples, n_samples)."""
        return cls(where, matrix.shape, EntryRows(matrix.indptr, matrix.nnz, where), matrix.indices, matrix.data)

    def check_size(self, n_samples: int) -> None:
        """Raise :class:`InputError` unless the shape is (n_samples, n_samples), of rows whose pairs fit an int64."""
        if self.shape != (n_samples, n_samples):
            msg = (
                f"{self.where} has shape {self.shape}, and X has n_samples={n_samples}: a weight for every pair of "
                "rows is needed."
            )
            raise InputError(msg)
        if n_samples > MOST_MATRIX_ROWS:
            msg = (
                f"{self.where} is a matrix of {n_samples} rows, and at most {MOST_MATRIX_ROWS} are supported: give "
                "neighbor lists, of a run or of KNNGraph.save."
            )
            raise InputError(msg)

    def read(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield rows, columns (int64) and weights (float64) of the entries, shape (n_entries,) each.

        :class:`InputError` for an index out of range, or a weight that is negative, NaN or infinite.
        """
        for span in row_blocks(self.n_entries, self.read_entries):
            rows, columns, values = self.rows[span], self.columns[span], self.values[span]
            count_bytes(read=columns.nbytes + values.nbytes)
            for part in row_blocks(len(values), run_entries(self.n_entries)):
                yield self._check_entries(
                    rows[part].astype(np.int64, copy=False),
                    columns[part].astype(np.int64, copy=False),
                    values[part].astype(np.float64, copy=False),
                )

    def _check_entries(
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
    """Row index of each entry of a CSR matrix, computed on access from `starts`: ``indptr``, shape (n_rows + 1,)."""

    def __init__(self, starts: Readable, n_entries: int, where: str) -> None:
        self._unread = starts
        self._where = where
        self.shape = (n_entries,)
        self.dtype = np.dtype(np.int64)
        self.held_bytes = WORD * starts.shape[0] + _held_bytes(starts)

    def __getitem__(self, entries: slice) -> np.ndarray:
        starts = self._starts
        first, last = np.searchsorted(starts, [entries.start, entries.stop - 1], side="right") - 1
        counts = np.diff(np.clip(starts[first : last + 2], entries.start, entries.stop))
        return np.repeat(np.arange(first, last + 1), counts)

    @cached_property
    def _starts(self) -> np.ndarray:
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


def _held_bytes(*parts: Readable) -> int:
    return sum(int(getattr(part, "held_bytes", 0)) for part in parts)


def run_entries(n_entries: int) -> int:
    """Return the number of entries per sorted run; it grows with `n_entries` so that a merge reads enough of each."""
    return int(np.clip(1 << int(128 * np.sqrt(n_entries)).bit_length(), *RUN_ENTRIES))


# ----------------------------------------------------------------------------- saving
def save_lists(path: PathName, lists: NeighborLists) -> None:
    """Write neighbor lists as a Zarr group, with metric and scaling as attributes.

    :class:`FileExistsError` if `path` exists, and :class:`InputError` if a list is invalid.
    """
    target = as_path(path)
    if target.exists():
        msg = f"{target} exists."
        raise FileExistsError(msg)
    attributes = {METRIC_ATTRIBUTE: lists.metric, SCALING_ATTRIBUTE: lists.scaling}
    group = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    (target / "zarr.json").put(json.dumps(group).encode())  # in a bucket, Zarr would create all parent groups
    store = Store(target)
    n_samples, k = lists.indices.shape
    size = block_rows(n_samples)
    store.create(INDICES, (n_samples, k), index_dtype(n_samples), (size, k))
    store.create(DISTANCES, (n_samples, k), np.float64, (size, k))
    for rows in row_blocks(n_samples, size):
        indices, distances = lists.read(rows, k)
        store.open(INDICES)[rows], store.open(DISTANCES)[rows] = indices, distances
