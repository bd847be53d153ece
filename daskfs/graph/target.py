"""Stage "targets": neighbor lists by the target alone.

Every unit sorts all known targets, which takes less than a second for a million of them and less memory than any index
of rows, and writes the lists of some blocks of rows. Pairs of rows are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.partition import block_rows, largest_block, lists_cost
from daskfs.graph.spec import TargetGraph
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.targets import COMPARED_ENTRIES, SortedTargets
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.stages.cost import Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

TARGET_UNITS = 8
"""Maximum number of units of one stage, since each of them sorts all targets."""
UNIT_ROWS = 2**16
"""Minimum rows of a unit that are worth its sort."""


def blocks_per_unit(n_samples: int) -> int:
    """Return the number of blocks of rows whose lists one unit writes."""
    size = block_rows(n_samples)
    return max(UNIT_ROWS // size, -(-n_samples // (size * TARGET_UNITS)))


def unit_blocks(n_samples: int, per_unit: int, unit: int) -> list[slice]:
    """Return the blocks of rows of one unit as slices."""
    size = block_rows(n_samples)
    first, stop = unit * per_unit * size, min((unit + 1) * per_unit * size, n_samples)
    return [slice(first + rows.start, first + rows.stop) for rows in row_blocks(stop - first, size)]


def create_list_arrays(store: Store, name: str, n_samples: int, k: int) -> None:
    """Create the arrays of neighbor lists of length k: indices (int32 or int64) and distances (float64)."""
    chunks = (block_rows(n_samples), k)
    store.create(layout.KNN_INDICES.format(name), (n_samples, k), index_dtype(n_samples), chunks)
    store.create(layout.KNN_DISTANCES.format(name), (n_samples, k), np.float64, chunks)


def create_target_lists(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create the arrays of the lists by target."""
    name = TargetGraph(**parameters["lists"]).name
    create_list_arrays(context.store, name, context.tiles.shape.n_samples, int(parameters["k"]))


def find_target_neighbors(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Write the lists of one unit's rows; those of unlabeled rows are empty."""
    lists, k = TargetGraph(**parameters["lists"]), int(parameters["k"])
    store, n_samples = context.store, context.tiles.shape.n_samples
    target = counted_target(context)
    by_target = sorted_targets(target, context.weights(), standardize=lists.standardize)
    for rows in unit_blocks(n_samples, int(parameters["blocks_per_unit"]), unit):
        indices, lengths = listed_by_target(by_target, target, rows, k)
        store.open(layout.KNN_INDICES.format(lists.name))[rows] = indices
        store.open(layout.KNN_DISTANCES.format(lists.name))[rows] = lengths
    return {"n_labeled": int(by_target.values.size)}


def counted_target(context: Context) -> np.ndarray:
    """Return the target of each row, shape (n_samples,), float64; NaN if it is unknown or the row does not count."""
    labels = context.counted_labels()
    assert labels is not None
    return np.asarray(labels.values, dtype=np.float64)


def sorted_targets(target: np.ndarray, weights: np.ndarray | None, *, standardize: bool) -> SortedTargets:
    """Sort the known of all targets; `target` and `weights` have shape (n_samples,), float64, with NaN for unknown.

    :class:`InputError` if fewer than two are known, all are equal, or their scale is not finite and positive.
    """
    by_target = SortedTargets.of(target, index_dtype(target.size), weights, standardize=standardize)
    known = by_target.values
    if known.size < 2:
        msg = f"neighbors by target need two labeled rows, and there are {known.size} of {target.size}."
        raise InputError(msg)
    if known[0] == known[-1]:
        msg = f"neighbors by target need targets that differ, and all {known.size} labeled rows have {known[0]:g}."
        raise InputError(msg)
    if not 0 < by_target.scale < np.inf:
        msg = (
            f"targets from {known[0]:g} to {known[-1]:g} have no standard deviation in float64: rescale them, or leave "
            "them as they are with standardize_y false."
        )
        raise InputError(msg)
    return by_target


def listed_by_target(
    by_target: SortedTargets, target: np.ndarray, rows: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and distances of the lists of `rows`, shape (n_rows, k), int32 or int64 and float64.

    `target` holds the targets of all rows, shape (n_samples,). Lists of unlabeled rows hold only -1 and inf.
    """
    known = rows.start + np.flatnonzero(~np.isnan(target[rows]))
    indices = np.full((rows.stop - rows.start, k), -1, by_target.ascending.dtype)
    lengths = np.full(indices.shape, np.inf)
    indices[known - rows.start], lengths[known - rows.start] = by_target.nearest(target[known], known, k)
    return indices, lengths


def targets_cost(n_samples: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of a "targets" unit: labels, sorted targets, and a block of lists."""
    block = largest_block(n_samples)
    n_compared = min(COMPARED_ENTRIES, 4 * k * block)
    return (
        *process,
        Array("labels, their copy where some rows do not count, and which are known", (3, n_samples)),
        Array("targets, in order, and negated", (3, n_samples)),
        Array("labeled rows, in order from both ends, and what the sort holds", (4, n_samples), "int64"),
        Array("candidates by target, their places and order", (4, n_compared), "int64"),
        Array("lengths of these, and in order", (4, n_compared)),
        *lists_cost("lists of a block, as found and in order", 3, block, k, n_samples),
    )


TARGETS_STAGE = StageKind(
    "targets",
    __name__,
    find_target_neighbors,
    targets_cost,
    arrays=create_target_lists,
    reads_weights=True,
    finds_lists=True,
)
