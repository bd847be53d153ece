"""Stage "mixed": neighbor lists by the mixed distance of Doquire and Verleysen (2011), Eq. 8.

``d_ij`` is ``(y_i - y_j)**2`` if both targets are known, else ``||x_i - x_j||**2 / n_features``. With missing values
that are not filled, the latter is the mean over the features that both rows have; rows that share none are no
neighbors by X.

Notes
-----
Candidates of a row are its `n_candidates` nearest rows in X (:meth:`daskfs.graph.spec.MixedGraph.n_candidates`).

- The list of an unlabeled row is its k nearest candidates.
- The list of a labeled row is the k nearest, by d, among its unlabeled candidates and the k labeled rows nearest by
  target, found by a sort and not from pairs. It is complete if its last entry is no farther than the last candidate, or
  if all unlabeled rows are candidates. Otherwise the row is counted as open. No row is open up to 1024 rows, or with k
  unlabeled candidates. Lists over X are assumed exact; their recall is reported.

With ``neighbors="x"`` a list is the first k candidates and only lengths are mixed. It stays in the order of X, so that
its first entries serve a smaller k.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.graph.partition import create_list_arrays, largest_block, lists_cost, open_lists, put_lists
from daskfs.graph.spec import MixedGraph
from daskfs.graph.target import check_targets, listed_by_target, sorted_cost, unit_blocks
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.targets import SortedTargets, first_by_length
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store.context import Context
from daskfs.store.store import Store

MIXED_ENTRIES = 2**20
"""Number of candidates that are merged at a time."""


class MixedParameters(StageParameters):
    """Parameters of "mixed": the lists, their length, that of the lists of candidates, and the blocks of a unit."""

    lists: MixedGraph
    k: int
    n_candidates: int
    blocks_per_unit: int


def create_mixed_lists(context: Context, parameters: MixedParameters) -> None:
    """Create the arrays of the mixed lists."""
    create_list_arrays(context.store, parameters.lists.name, context.tiles.shape.n_samples, parameters.k)


def mix_lists(context: Context, parameters: MixedParameters, unit: int) -> dict[str, Any]:
    """Write the mixed lists of one unit's rows, and count the rows whose lists may be incomplete."""
    lists, k, width = parameters.lists, parameters.k, parameters.n_candidates
    store, shape = context.store, context.tiles.shape
    labels = context.counted_labels()
    assert labels is not None
    target = np.asarray(labels.values, dtype=np.float64)  # NaN if it is unknown or the row does not count
    by_target = SortedTargets.of(target, index_dtype(target.size), context.weights(), standardize=lists.standardize)
    low, high = by_target.values.min(initial=np.inf), by_target.values.max(initial=-np.inf)
    check_targets(by_target.values.size, target.size, low, high, by_target.scale)
    # principal components are of all columns; a representation has its own
    n_columns = lists.base.rep_columns or shape.n_features
    divisor = np.sqrt(n_columns) if lists.base.metric == "euclidean" else 1.0
    candidates = open_lists(store, lists.base.name)
    n_open = 0
    for rows in unit_blocks(shape.n_samples, parameters.blocks_per_unit, unit):
        indices, distances = (part[rows, :width] for part in candidates)
        mixed = np.empty((len(indices), k), indices.dtype), np.empty((len(indices), k))
        for block in row_blocks(len(indices), max(1, MIXED_ENTRIES // (width + 4 * k))):
            where = slice(rows.start + block.start, rows.start + block.stop)
            lengths = distances[block] / divisor
            *parts, is_open = _merge_block(lists, k, target, by_target, where, indices[block], lengths)
            mixed[0][block], mixed[1][block] = parts
            n_open += int(np.count_nonzero(is_open))
        put_lists(store, lists.name, rows, *mixed)
    return {"n_open": n_open}


def _merge_block(
    lists: MixedGraph,
    k: int,
    target: np.ndarray,
    by_target: SortedTargets,
    rows: slice,
    indices: np.ndarray,
    lengths: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Merge candidates in X, whose lengths are overwritten, with the nearest rows by target.

    Return indices and lengths, shape (n_rows, k), and a mask of open rows, shape (n_rows,).
    """
    is_labeled = ~np.isnan(target[rows])
    both = is_labeled[:, None] & (indices >= 0) & ~np.isnan(target[indices])
    if lists.neighbors == "x":
        own_targets = np.broadcast_to(target[rows, None], both.shape)
        lengths[both] = np.abs(target[indices[both]] - own_targets[both]) / by_target.scale
        return *_pad_lists(indices, lengths, k), np.zeros(len(indices), bool)
    merged_indices, long = _pad_lists(indices, lengths, k)
    if not is_labeled.any():
        return merged_indices, long, np.zeros(len(indices), bool)
    target_indices, target_lengths = listed_by_target(by_target, target, rows, k)
    # unlabeled rows that are not candidates are no nearer than the last candidate; there are none if all are met
    met = np.count_nonzero((indices >= 0) & ~both, axis=1) == target.size - by_target.values.size
    reach = np.where(met, np.inf, lengths[:, -1])
    lengths[both] = np.inf
    merged_indices[is_labeled], long[is_labeled] = first_by_length(
        np.concatenate([indices[is_labeled], target_indices[is_labeled]], axis=1),
        np.concatenate([lengths[is_labeled], target_lengths[is_labeled]], axis=1),
        k,
    )
    return merged_indices, long, is_labeled & (long[:, -1] > reach)


def _pad_lists(indices: np.ndarray, lengths: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first k entries of each row, padded with -1 and inf."""
    width = min(k, indices.shape[1])
    padded, long = np.full((len(indices), k), -1, indices.dtype), np.full((len(indices), k), np.inf)
    padded[:, :width], long[:, :width] = indices[:, :width], lengths[:, :width]
    return padded, long


def open_rows(store: Store, name: str) -> int:
    """Return the number of rows whose mixed lists may be incomplete, from the records of stage `name`."""
    total, unit = 0, 0
    while (record := store.records.get(name, unit)) is not None:
        total, unit = total + int(record["facts"].get("n_open", 0)), unit + 1
    return total


def mixed_cost(n_samples: int, k: int, width: int, process: Cost) -> Cost:
    """Return the memory cost of a "mixed" unit: lists by target, and a block of lists over X of length `width`."""
    block = largest_block(n_samples)
    n_merged = min(MIXED_ENTRIES, block * (width + 4 * k))
    return (
        *sorted_cost(n_samples, n_samples, k, process),
        Array("labels, their copy where some rows do not count, and which are known", (3, n_samples)),
        *lists_cost("lists by target of a block, as found and in order", 3, block, k, n_samples),
        *lists_cost("lists over X of a block, as stored and read", 3, block, width, n_samples),
        Array("candidates that are merged, as found, side by side and in order", (8, n_merged), "int64"),
        Array("targets and lengths of these", (8, n_merged)),
    )


MIXED_STAGE = StageKind(
    "mixed", __name__, mix_lists, mixed_cost, arrays=create_mixed_lists, reads_weights=True, finds_lists=True
)
