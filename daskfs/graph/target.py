"""Stages "targets" and "targets-merge": neighbor lists by the target alone.

A unit of "targets" finds the lists of the rows in a range of targets, which it sorts together with the few rows beside
the range that may be nearest to them. A unit of "targets-merge" collects the lists of some blocks of rows. Pairs of
rows are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.partition import block_rows, create_list_arrays, largest_block, lists_cost, put_lists
from daskfs.graph.spec import TargetGraph
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.targets import COMPARED_ENTRIES, Place, SortedTargets, TargetRange, known_moments
from daskfs.kernels.statistics.moments import Moments, merge_tree, row_blocks
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS, Context
from daskfs.store.shards import Piece, ShardWriter, read_columns, stored_pieces
from daskfs.store.value_checks import MAX_MAGNITUDE

TARGET_UNITS = 8
"""Maximum number of units, each of which reads all labels, unless they would sort more than `RANGE_ROWS`."""
UNIT_ROWS = 2**16
"""Minimum rows of a unit that are worth its sort."""
RANGE_ROWS = 2**26
"""Rows of a range of targets, at most."""
UNEVEN_RANGES = 1.25
"""Rows of the largest range, relative to the mean."""
SAMPLED_ROWS = 2**16
"""Rows of a sample whose targets cut the ranges."""
TARGET_ENTRIES = 2**23
"""List entries of a "targets-merge" unit."""


def n_ranges(n_samples: int) -> int:
    """Return the number of ranges of targets."""
    return max(1, min(TARGET_UNITS, n_samples // UNIT_ROWS), -(-n_samples // RANGE_ROWS))


def merged_blocks(n_samples: int, k: int) -> int:
    """Return the number of blocks of rows whose lists one unit collects."""
    return max(1, TARGET_ENTRIES // (k * block_rows(n_samples)))


def blocks_per_unit(n_samples: int) -> int:
    """Return the number of blocks of rows whose lists one unit writes."""
    size = block_rows(n_samples)
    return max(UNIT_ROWS // size, -(-n_samples // (size * TARGET_UNITS)))


def unit_blocks(n_samples: int, per_unit: int, unit: int) -> list[slice]:
    """Return the blocks of rows of one unit as slices."""
    size = block_rows(n_samples)
    first, stop = unit * per_unit * size, min((unit + 1) * per_unit * size, n_samples)
    return list(row_blocks(stop, size, first))


class TargetsParameters(StageParameters):
    """Parameters of the stages here: the lists, their length, ranges of targets, and blocks that a unit collects."""

    lists: TargetGraph
    k: int
    n_ranges: int
    blocks_per_unit: int


def create_target_lists(context: Context, parameters: TargetsParameters) -> None:
    """Create the arrays of the lists by target."""
    create_list_arrays(context.store, parameters.lists.name, context.tiles.shape.n_samples, parameters.k)


def find_target_neighbors(context: Context, parameters: TargetsParameters, unit: int) -> dict[str, Any]:
    """Find the lists of the labeled rows in one range of targets."""
    lists, k = parameters.lists, parameters.k
    n_samples = context.tiles.shape.n_samples
    n_labeled, scale, cuts = _cut_ranges(context, lists, parameters.n_ranges)
    target_range = TargetRange(cuts[unit], cuts[unit + 1], k)
    for values, rows, _ in _known_targets(context):
        target_range.add(values, rows)
    targets, numbers, by_target = target_range.sorted(scale)
    size = parameters.blocks_per_unit * block_rows(n_samples)

    def pieces() -> Iterator[Piece]:
        for segment, rows in enumerate(row_blocks(n_samples, size)):
            part = slice(*np.searchsorted(numbers, [rows.start, rows.stop]))
            indices, distances = by_target.nearest(targets[part], numbers[part], k)
            yield segment, "row", numbers[part]
            yield segment, "indices", indices.astype(index_dtype(n_samples))
            yield segment, "distances", distances

    shards = ShardWriter(context.store, layout.SPILL_LISTS.format(lists.name, unit))
    shards.write(pieces())
    shards.close()
    return {"n_labeled": n_labeled}


def _known_targets(context: Context) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield targets, numbers and weights of the labeled rows that count, a chunk of rows at a time."""
    for rows in row_blocks(context.tiles.shape.n_samples, LABEL_CHUNK_ROWS):
        labels, weights = context.counted_rows(rows)
        labeled_rows = np.flatnonzero(labels.is_labeled)
        values = np.asarray(labels.values[labeled_rows], np.float64)
        yield values, labeled_rows + rows.start, None if weights is None else weights[labeled_rows]


def _cut_ranges(context: Context, lists: TargetGraph, n_parts: int) -> tuple[int, float, list[Place]]:
    """Return the number of labeled rows, the scale of differences, and where ranges begin, with the end."""
    n_samples, rng = context.tiles.shape.n_samples, np.random.default_rng(0)
    n_labeled, parts, places = 0, list[Moments](), list[Place]()
    for values, rows, weights in _known_targets(context):
        n_labeled += values.size
        parts.append(known_moments(values, weights))
        drawn = rng.random(values.size) * n_samples < SAMPLED_ROWS
        places += zip(values[drawn].tolist(), rows[drawn].tolist(), strict=True)
    with np.errstate(over="ignore", invalid="ignore"):
        moments = merge_tree(parts)
        scale = float(np.sqrt(moments.variance[0])) if lists.standardize else 1.0
    check_targets(n_labeled, n_samples, moments.minimum[0], moments.maximum[0], scale)
    places.sort()
    inner = [places[i * len(places) // n_parts] for i in range(1, n_parts)] if places else []
    return n_labeled, scale, [(-np.inf, 0), *inner, *[(np.inf, 0)] * (n_parts - len(inner))]


def collect_target_lists(context: Context, parameters: TargetsParameters, unit: int) -> None:
    """Write the lists of one unit's rows; those of unlabeled rows are empty."""
    lists, k, store = parameters.lists, parameters.k, context.store
    n_samples = context.tiles.shape.n_samples
    list_files = [layout.SPILL_LISTS.format(lists.name, i) for i in range(parameters.n_ranges)]
    dtypes = {"row": "i8", "indices": index_dtype(n_samples).str, "distances": "f8"}
    rows, indices, distances = read_columns(store, stored_pieces(store, list_files, unit), dtypes)
    indices, distances = indices.reshape(-1, k), distances.reshape(-1, k)  # of no rows if none is labeled
    order = np.argsort(rows)
    for here in unit_blocks(n_samples, parameters.blocks_per_unit, unit):
        at = order[slice(*np.searchsorted(rows, [here.start, here.stop], sorter=order))]
        listed = np.full((here.stop - here.start, k), -1, indices.dtype), np.full((here.stop - here.start, k), np.inf)
        listed[0][rows[at] - here.start], listed[1][rows[at] - here.start] = indices[at], distances[at]
        put_lists(store, lists.name, here, *listed)


def check_targets(n_labeled: int, n_samples: int, low: float, high: float, scale: float) -> None:
    """Raise :class:`InputError` for fewer than two known targets, equal ones, and a scale not finite and positive."""
    if n_labeled < 2:
        msg = f"neighbors by target need two labeled rows, and there are {n_labeled} of {n_samples}."
        raise InputError(msg)
    if low == high:
        msg = f"neighbors by target need targets that differ, and all {n_labeled} labeled rows have {low:g}."
        raise InputError(msg)
    if not 1 / MAX_MAGNITUDE <= scale <= MAX_MAGNITUDE:
        msg = (
            f"targets from {low:g} to {high:g} have no standard deviation in float64: rescale them, or leave them as "
            "they are with standardize_y false."
        )
        raise InputError(msg)


def listed_by_target(
    by_target: SortedTargets, target: np.ndarray, rows: slice, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and distances of the lists of `rows`, shape (n_rows, k), int32 or int64 and float64.

    `target` holds the targets of all rows, shape (n_samples,). Lists of unlabeled rows hold only -1 and inf.
    """
    places = rows.start + np.flatnonzero(~np.isnan(target[rows]))
    indices = np.full((rows.stop - rows.start, k), -1, by_target.ascending.dtype)
    lengths = np.full(indices.shape, np.inf)
    indices[places - rows.start], lengths[places - rows.start] = by_target.nearest(target[places], places, k)
    return indices, lengths


def sorted_cost(n_samples: int, n_sorted: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of sorting some rows by target, and of finding the nearest of a block of rows."""
    n_compared = min(COMPARED_ENTRIES, 4 * k * largest_block(n_samples))
    return (
        *process,
        Array("targets, in order, and negated", (3, n_sorted)),
        Array("labeled rows, in order from both ends, and what the sort holds", (4, n_sorted), "int64"),
        Array("candidates by target, their places and order", (4, n_compared), "int64"),
        Array("lengths of these, and in order", (4, n_compared)),
    )


def targets_cost(n_samples: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of a "targets" unit: a range of targets, and the lists of some of its rows."""
    n_own = min(n_samples, int(UNEVEN_RANGES * n_samples / n_ranges(n_samples)) + LABEL_CHUNK_ROWS)
    n_listed = min(n_own, merged_blocks(n_samples, k) * block_rows(n_samples))
    return (
        *sorted_cost(n_samples, n_own, k, process),
        Array("targets and rows of a range, as they come, together, and with those beside", (6, n_own)),
        Array("targets of some rows, and marks of those in the range", (10, min(n_samples, LABEL_CHUNK_ROWS))),
        Objects("targets that cut the ranges", min(n_samples, 2 * SAMPLED_ROWS), 200),
        *lists_cost("lists of some rows, as found and as stored", 3, n_listed, k, n_samples),
    )


def collecting_cost(n_samples: int, k: int, process: Cost) -> Cost:
    """Return the memory cost of a "targets-merge" unit."""
    n_rows, block = min(n_samples, merged_blocks(n_samples, k) * block_rows(n_samples)), largest_block(n_samples)
    return (
        *process,
        *lists_cost("lists of the unit's rows, piece by piece and as one", 2, n_rows, k, n_samples),
        Array("their rows, and the order of these", (3, n_rows), "int64"),
        *lists_cost("lists of a block, and in order", 2, block, k, n_samples),
    )


TARGETS_STAGE = StageKind("targets", __name__, find_target_neighbors, targets_cost, finds_lists=True)
TARGETS_MERGE_STAGE = StageKind(
    "targets-merge", __name__, collect_target_lists, collecting_cost, arrays=create_target_lists
)
