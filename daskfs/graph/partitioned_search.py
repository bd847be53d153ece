"""Stages of an approximate search: "cells", "assign", "build", "merge".

"cells" cuts space into groups and cells on a sample. "assign" reads the bands once, sends every row to its own group
and to those it visits, and computes exact distances of the recall queries. "build" searches each group with exact
distances. "merge" merges the lists from several groups.

Notes
-----
Each unit spills rows to its own arrays, so they bypass the scheduler; these are deleted when the lists are complete.

With ``engine: auto`` the sample may show that another engine pays more (:mod:`daskfs.graph.engine`). Stages are fixed
before data are read: for an exact search "assign" and "build" do nothing, and "merge" units search for their lists. By
NN-descent "build" searches groups without regard to cells.

A projection only finds candidates. Their distances on all columns are computed in the "build" unit, which holds the
rows. A separate stage that streams feature blocks would halve the spilled rows, but read X once more and write the sums
of 3 k candidates per row.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.errors import JobError
from daskfs.graph.engine import DESCENTS, engine_of_sample
from daskfs.graph.neighbors import (
    SearchParameters,
    chosen_engine,
    close_band,
    create_lists,
    create_recall,
    store_exact_lists,
    store_queries,
)
from daskfs.graph.partition import (
    PIECE_BYTES,
    PLANNED_VISITS,
    Partitioning,
    block_rows,
    found_lists,
    graph_dtype,
    largest_block,
    lists_cost,
    member_cost,
    merged_lists,
    put_lists,
    rows_at_a_merge,
    search_width,
    spilled_rows,
    step_rows,
)
from daskfs.graph.projection import ASKED_ROWS, FITTING_ROWS, JUDGING_ROWS, Space, fitted_space
from daskfs.graph.rows import searched_tiles
from daskfs.graph.sizes import Search, centers_cost, conversion_cost, group_cost, incomplete_cost, products_cost
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.kernels.blocks import Block, index_dtype, is_sparse, stack_blocks
from daskfs.kernels.neighbors.cell_search import cell_neighbors, fill_short_lists, nearest_distinct
from daskfs.kernels.neighbors.cells import (
    CALIBRATION_RANKS,
    CALIBRATION_ROWS,
    HELD_OUT,
    MAX_MEAN_PROBES,
    MAX_PROBES,
    SAMPLE_PARTS,
    Cells,
    Members,
    Sample,
    assign_rows,
    joined_members,
    one_cell,
    split_large,
    train_cells,
    training_rows,
)
from daskfs.kernels.neighbors.descent_search import descent_neighbors, pynndescent_neighbors
from daskfs.kernels.neighbors.metrics import LENGTHS
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import Array, Cost, Objects, fullest
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.storage import LocalPath, used_bytes
from daskfs.store import layout
from daskfs.store.arrays import encode
from daskfs.store.context import Context
from daskfs.store.shape import rows_within, sample_rows
from daskfs.store.shards import Piece, ShardWriter, read_columns, read_pieces, stored_pieces
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles
from daskfs.tiles.shapes import row_bytes

CANDIDATES_PER_NEIGHBOR = 64
"""Maximum number of rows of a step whose distance to a recall query is computed, per neighbor."""
ONE_GROUP = 2**18
"""Rows up to which NN-descent searches all at once if they fit: copies of border rows cost more than they gain."""
LOW_RECALL = 0.9
"""Recall of a search below which a remedy is suggested."""
SPACE_ARRAYS = ("center", "basis", "fill", "landmarks")
CELL_ARRAYS = ("group_centers", "group_offsets", "cell_centers", "cell_sizes", "cell_starts")
CELL_NUMBERS = ("group_reach", "cell_reach", "least_rows", "trained_share")


class CellsParameters(SearchParameters):
    """Parameters of "cells"; `others` are the engines that the sample may choose instead."""

    others: tuple[Engine, ...]


# ---------------------------------------------------------------------------------- cells
def cut_cells(context: Context, parameters: CellsParameters, unit: int) -> dict[str, Any]:
    """Cut space into groups and cells on the sample, and store the recall queries."""
    del unit
    spec, k, plan = parameters.graph, parameters.k, parameters.partitioning
    store, n_samples, tiles = context.store, context.tiles.shape.n_samples, searched_tiles(context, spec)
    sample = tiles.sample(spec.read_scaling)
    store_queries(context, spec, sample, plan.n_cells)
    with one_thread():
        space = fitted_space(
            sample, spec.metric, spec.projection, n_samples, k, search_width(spec, k), spec.random_state
        )
        rows = space.rows(sample)
        is_measured = tiles.is_pairwise or space.landmarks is not None
        sampled = Sample(rows, n_samples, sample, spec.metric) if is_measured else Sample(rows, n_samples)
        probes = float(MAX_PROBES) if tiles.is_pairwise else MAX_MEAN_PROBES
        probes = np.inf if spec.engine in DESCENTS else probes  # all rows of a group are searched
        del sample  # it takes as much memory as all that follows
        # the projection also loses neighbors, and comparisons in it are cheap: allow the cells half of the misses
        recall = (1 + spec.recall) / 2 if is_sketched(space, spec) else spec.recall
        cells = train_cells(sampled, plan.n_groups, plan.n_cells, k, recall, spec.random_state, probes)
        judged = rows[HELD_OUT - 1 :: HELD_OUT] if len(rows) >= HELD_OUT else rows
        members = assign_rows(judged, cells)
        compared = replace(spec, projection=space.n_components if is_sketched(space, spec) else None)
        n_met = members.cell.size / len(judged) * n_samples / len(cells.cell_centers)
        expected_recall, dimension = space.kept * cells.expected_recall, cells.dimension
        # NN-descent would search rows filled with means
        others = [engine for engine in parameters.others if engine != "descent" or not tiles.is_pairwise]
        engine = engine_of_sample(compared, tiles.shape, k, others, n_met, expected_recall, dimension)
        if engine in DESCENTS and n_samples <= min(plan.max_members, ONE_GROUP):
            cells = one_cell(sampled)
            members = assign_rows(judged, cells)
    for name in CELL_ARRAYS:
        store.put_array(layout.KNN_CELLS.format(spec.name, name), getattr(cells, name))
    for name in SPACE_ARRAYS:
        if (part := getattr(space, name)) is not None:
            store.put_array(layout.KNN_CELLS.format(spec.name, name), part.toarray() if is_sparse(part) else part)
    share = n_samples / len(judged)
    largest = np.bincount(members.group, minlength=cells.n_groups).max() * share
    summary = {
        "n_groups": cells.n_groups,
        "n_cells": len(cells.cell_centers),
        **{name: getattr(cells, name) for name in CELL_NUMBERS},
        "scale": space.scale,
        "n_components": space.n_components,
        "has": [name for name in SPACE_ARRAYS if getattr(space, name) is not None],
        "copies": members.row.size / len(judged),
        "cells_per_row": members.cell.size / len(judged),
        "largest_group": round(float(largest)),
        "expected_recall": space.kept if engine in DESCENTS else expected_recall,
        "dimension": dimension,
        "engine": engine,
    }
    store.write_json(layout.CELLS_SUMMARY.format(spec.name), summary)
    return summary


def expected_misses(context: Context, stage: Stage) -> str | None:
    """Return a warning if the sample says that an "assign" stage begins a search that finds few neighbors, else None.

    None also for other stages, and for rows compared in what both have, which principal components cannot replace.
    """
    if (parameters := stage.parameters_of(ASSIGN_STAGE)) is None or context.tiles.is_pairwise:
        return None
    spec = parameters.graph
    cells = context.store.need_json(layout.CELLS_SUMMARY.format(spec.name))
    if cells["engine"] == "exact" or cells["expected_recall"] >= LOW_RECALL * spec.recall:
        return None
    less = "fewer" if spec.n_components is not None else "the first"
    return (
        f"graph {spec.name}: of a sample, the search by cells finds {cells['expected_recall']:.0%} of the neighbors: "
        f"most distances are nearly equal, as where most columns are noise. Compare rows in {less} principal "
        "components, as by transform: {graph: zscore+pca=50} (graph_scaling='zscore+pca=50'), or leave columns out"
    )


def check_room(context: Context, stage: Stage) -> None:
    """Raise :class:`JobError` if the disk has no room for what an "assign" or "build" stage is about to spill.

    Files that are spilled already count. Other stages and object stores have room.
    """
    from dask.utils import format_bytes

    store, parameters = context.store, stage.parameters_of(ASSIGN_STAGE, BUILD_STAGE)
    if not isinstance(store.root, LocalPath) or parameters is None:
        return
    free = shutil.disk_usage(store.root).free
    needed = spilled_bytes(context, parameters)
    name = parameters.graph.name
    spilled = used_bytes(store.path(layout.SPILL.format(name)))
    if needed - spilled > free:
        msg = (
            f"output.path {store.url}: the search for neighbors (graph {name}) writes about {format_bytes(needed)} "
            f"there, which it deletes at its end; {format_bytes(spilled)} are written, and {format_bytes(free)} are "
            "free. Make room, and the same command goes on, or set output.path to a larger disk."
        )
        raise JobError(msg)


def spilled_bytes(context: Context, parameters: SearchParameters) -> int:
    """Return the estimated bytes on disk of all that a search spills, given the parameters of one of its stages.

    The sample says how many groups rows visit, and how well their values compress; 0 if it led to an exact search.
    """
    spec, k = parameters.graph, parameters.k
    cells = context.store.need_json(layout.CELLS_SUMMARY.format(spec.name))
    if cells["engine"] == "exact":
        return 0
    tiles, per_copy = searched_tiles(context, spec), round(cells["cells_per_row"] / cells["copies"])
    search = Search(tiles.shape, spec, k, cells["copies"], per_copy)
    saved = (1 - _stored_share(tiles)) * search.n_copies * row_bytes(search.shape)
    return int(search.spilled_bytes + search.found_bytes - saved)


def _stored_share(tiles: Tiles) -> float:
    """Return the size of sampled rows as stored, relative to their values."""
    rows = next(tiles.reader.sampled(sample_rows(tiles.shape)))[: spilled_rows(tiles.shape)]
    parts = [rows.data, rows.indices] if is_sparse(rows) else [rows]
    return sum(len(encode(part)) for part in parts) / max(sum(part.nbytes for part in parts), 1)


def is_sketched(space: Space, spec: GraphSpec) -> bool:
    """Return whether rows are compared in the projection; cells of sparse rows are cut there in any case."""
    return spec.projection is not None and (space.basis is not None or isinstance(spec.projection, int))


def _stored_space(context: Context, spec: GraphSpec) -> Space:
    store = context.store
    summary = store.need_json(layout.CELLS_SUMMARY.format(spec.name))
    parts: dict[str, Any] = {name: store.open(layout.KNN_CELLS.format(spec.name, name))[...] for name in summary["has"]}
    if context.tiles.shape.is_sparse and "landmarks" in parts:
        parts["landmarks"] = sp.csr_matrix(parts["landmarks"])
    scale, n_components = float(summary["scale"]), summary["n_components"]
    return Space(spec.metric, spec.random_state, scale=scale, n_components=n_components, **parts)


def _stored_cells(context: Context, spec: GraphSpec) -> Cells:
    store = context.store
    summary = store.need_json(layout.CELLS_SUMMARY.format(spec.name))
    arrays = store.read_each((layout.KNN_CELLS.format(spec.name, name), ...) for name in CELL_ARRAYS)
    parts: dict[str, Any] = dict(zip(CELL_ARRAYS, arrays, strict=True))
    parts |= {name: float(summary[name]) for name in CELL_NUMBERS}
    return Cells(**parts)


# --------------------------------------------------------------------------------- assign
def assign_bands(context: Context, parameters: SearchParameters, unit: int) -> dict[str, Any]:
    """Assign the rows of the unit's bands to groups, spill them, and compare them with the recall queries."""
    spec, k, plan = parameters.graph, parameters.k, parameters.partitioning
    tiles, store = searched_tiles(context, spec), context.store
    if chosen_engine(store, spec.name) == "exact":
        return {}
    space, cells = _stored_space(context, spec), _stored_cells(context, spec)
    bands = plan.assigned(tiles.shape, unit)
    start, stop = bands[0].start, bands[-1].stop
    queries = store.open(layout.KNN_QUERIES.format(spec.name))[...]
    numbers = store.open(layout.KNN_QUERY_ROWS.format(spec.name))[...]
    nearest = np.full((numbers.size, k), np.inf)
    sampled = sample_rows(tiles.shape)
    shown = sampled[training_rows(sampled.size, tiles.shape.n_samples, plan.n_cells)]
    blocks, parts = [], []
    with one_thread():
        for band in bands:
            block = tiles.read_rows(band)
            blocks.append(block)
            for step in row_blocks(band.stop - band.start, step_rows(tiles.shape)):
                rows = tiles.scales.rescaled(block[step], spec.read_scaling)
                first = band.start + step.start
                trained = np.zeros(step.stop - step.start, dtype=bool)
                trained[rows_within(shown, slice(first, first + trained.size)) - first] = True
                members = assign_rows(space.rows(rows), cells, trained)
                parts.append(replace(members, row=members.row + first - start))
                nearest = close_band(rows, first, queries, numbers, spec, nearest)
    store.open(layout.KNN_RECALL.format(spec.name))[unit : unit + 1] = nearest[None]
    members = joined_members(parts)
    X = stack_blocks(blocks)
    shards = ShardWriter(store, layout.SPILL_ROWS.format(spec.name, unit))
    shards.write(_spill_rows(X, members, start, spilled_rows(tiles.shape)))
    shards.close()
    sizes = np.bincount(members.group, minlength=plan.n_groups)
    return {"n_rows": stop - start, "n_copies": int(members.row.size), "largest_run": int(sizes.max())}


def _spill_rows(X: Block, members: Members, start: int, n_rows: int) -> Iterator[Piece]:
    """Yield the rows of a unit by group, `n_rows` at a time, after their numbers and the cells they probe."""
    # one column instead of three
    member = (members.row + start) << 8 | members.is_home.astype(np.int64) << 7 | np.diff(members.starts)
    lengths = np.diff(X.indptr).astype(np.int64) if is_sparse(X) else None
    cuts = np.flatnonzero(np.diff(members.group, prepend=-1, append=-1))
    for first, last in itertools.pairwise(cuts):
        group, rows = int(members.group[first]), members.row[first:last]
        yield group, "member", member[first:last]
        yield group, "cell", members.cell[members.starts[first] : members.starts[last]]
        if lengths is not None:
            yield group, "length", lengths[rows]
        for places in row_blocks(rows.size, n_rows):
            block = X[rows[places]]
            if is_sparse(block):
                yield group, "indices", block.indices.astype(np.int32)
                yield group, "data", block.data
            else:
                yield group, "values", block


# ---------------------------------------------------------------------------------- build
def build_group(context: Context, parameters: SearchParameters, unit: int) -> dict[str, Any]:
    """Search one group, in parts if it is too large to be held at once."""
    spec, k, plan = parameters.graph, parameters.k, parameters.partitioning
    store, tiles = context.store, searched_tiles(context, spec)
    engine = chosen_engine(store, spec.name)
    if engine == "exact":
        return {"engine": engine}
    runs, space = _Runs(store, tiles, spec, plan, unit), _stored_space(context, spec)
    dimension = float(store.need_json(layout.CELLS_SUMMARY.format(spec.name))["dimension"])
    compared = spec if tiles.is_pairwise or is_sketched(space, spec) else replace(spec, projection=None)
    width = search_width(compared, k, pairwise=tiles.is_pairwise)
    n_parts, shards = 0, ShardWriter(store, layout.SPILL_LISTS.format(spec.name, unit))
    for pairs in runs.parts(plan.max_members):
        rows, is_home, starts, cell = runs.members(pairs)
        if not rows.size:
            continue
        X = tiles.scales.rescaled(runs.values(pairs), spec.read_scaling)
        X = X if is_sparse(X) else np.ascontiguousarray(X, graph_dtype(np.dtype(tiles.shape.dtype), spec.read_scaling))
        with one_thread():
            sketch = space.sketch(X) if engine == "descent" or is_sketched(space, spec) else None
            if engine == "pynndescent":
                shifted = space.shifted(X) if space.landmarks is None else X
                indices, distances = pynndescent_neighbors(X, spec.metric, k, shifted, spec.random_state)
            elif sketch is not None and engine == "descent":
                indices, distances = descent_neighbors(X, spec.metric, k, sketch, width, dimension, spec.random_state)
            else:
                read = partial(_space_rows, space, X)
                starts, cell = split_large(read, is_home, starts, cell, k, spec.recall, spec.random_state)
                indices, distances = cell_neighbors(X, spec.metric, is_home, starts, cell, k, sketch, width)
                if not tiles.is_pairwise:
                    fill_short_lists(X, spec.metric, is_home, indices, distances)
        shards.write(_lists_by_unit(plan, tiles.shape.n_samples, k, rows, (indices, distances)))
        n_parts += 1
    shards.close()
    return {"engine": engine, "n_members": runs.n_members, "n_home": runs.n_home, "n_parts": n_parts}


def _space_rows(space: Space, X: Block, members: np.ndarray) -> np.ndarray:
    return space.rows(X[members])


class _Runs:
    """Spilled rows of one group, concatenated over "assign" units; members are ordered by row number."""

    def __init__(self, store: Store, tiles: Tiles, spec: GraphSpec, plan: Partitioning, group: int) -> None:
        self._store, self._shape = store, tiles.shape
        units = range(plan.assign_units(tiles.shape))
        self._pieces = stored_pieces(store, (layout.SPILL_ROWS.format(spec.name, unit) for unit in units), group)
        member, cell, self._length = read_columns(store, self._pieces, {"member": "i8", "cell": "i4", "length": "i8"})
        self._rows, self._is_home = member >> 8, (member >> 7 & 1).astype(bool)
        self._member = np.repeat(np.arange(member.size), member & 127)
        self._cell = cell
        self.n_members, self.n_home = member.size, int(self._is_home.sum())  # with and without visitors

    def parts(self, max_members: int) -> list[np.ndarray]:
        """Return a mask over all pairs (member, cell) for each part of the group, shape (n_pairs,), bool.

        A part is a range of cells with the members that probe them. A cell larger than a part is split by row order:
        its rows then miss those of the other pieces, which the estimated recall shows.
        """
        if self.n_members <= max_members:
            return [np.ones(self._cell.size, dtype=bool)]
        by_cell = np.argsort(self._cell, kind="stable")
        bounds = np.searchsorted(self._cell[by_cell], np.arange(int(self._cell.max()) + 2))
        parts = []
        taken, current = np.zeros(self.n_members, dtype=bool), np.zeros(self._cell.size, dtype=bool)
        for first, last in itertools.pairwise(bounds):
            pairs = by_cell[first:last]
            if pairs.size > max_members:
                pieces = np.array_split(pairs, -(-pairs.size // max_members))
                parts += [np.isin(np.arange(self._cell.size), piece) for piece in pieces]
                continue
            grown = taken.copy()
            grown[self._member[pairs]] = True
            if np.count_nonzero(grown) > max_members:
                parts.append(current)
                taken, current = np.zeros_like(taken), np.zeros_like(current)
                taken[self._member[pairs]] = True
            else:
                taken = grown
            current[pairs] = True
        return [*parts, current]

    def members(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return row numbers, home mask, and probed cells (starts, cells) of a part; `pairs` is from :meth:`parts`.

        Shapes (n_members,) int64, (n_members,) bool, (n_members + 1,) int64 and (n_pairs,) int32.
        """
        member, cell = self._member[pairs], self._cell[pairs]
        is_first = np.ones(self._cell.size, dtype=bool)
        is_first[1:] = self._member[1:] != self._member[:-1]
        taken, counts = np.unique(member, return_counts=True)
        starts = np.concatenate([[0], np.cumsum(counts)])
        # a member's home is its first cell; in a part without it the member is a visitor
        is_home = self._is_home[taken] & is_first[pairs][starts[:-1]]
        return self._rows[taken], is_home, starts, cell - cell.min(initial=0)

    def values(self, pairs: np.ndarray) -> Block:
        """Return the rows of one part as stored, shape (n_members, n_features), dense or CSR; `pairs` is a mask."""
        is_member = np.zeros(self.n_members, dtype=bool)
        is_member[self._member[pairs]] = True
        if not self._shape.is_sparse:
            return self._select_entries("values", is_member, (self._shape.n_features,), self._shape.dtype)
        entries = np.repeat(is_member, self._length)
        data = self._select_entries("data", entries, (), self._shape.dtype)
        indices = self._select_entries("indices", entries, (), "i4")
        indptr = np.concatenate([[0], np.cumsum(self._length[is_member])])
        return sp.csr_matrix((data, indices, indptr), shape=(indptr.size - 1, self._shape.n_features))

    def _select_entries(self, column: str, mask: np.ndarray, row_shape: tuple[int, ...], dtype: str) -> np.ndarray:
        """Return the entries of a column where a mask over all of them is True; other pieces are not read."""
        chosen = np.empty((np.count_nonzero(mask), *row_shape), dtype)
        pieces = [piece for piece in self._pieces if piece.column == column]
        ends = np.cumsum([piece.shape[0] for piece in pieces], dtype=np.int64)
        masks = [mask[end - piece.shape[0] : end] for piece, end in zip(pieces, ends, strict=True)]
        read = read_pieces(self._store, (piece for piece, part in zip(pieces, masks, strict=True) if part.any()))
        done = 0
        for part in filter(np.any, masks):
            values = next(read)
            count = int(np.count_nonzero(part))
            chosen[done : done + count] = values if count == part.size else values[part]
            done += count
        return chosen


def _lists_by_unit(
    plan: Partitioning, n_samples: int, k: int, rows: np.ndarray, lists: tuple[np.ndarray, np.ndarray]
) -> Iterator[Piece]:
    """Yield the lists of one part, filled up to length k, by "merge" unit; `rows`, their numbers, are ascending."""
    for unit in range(plan.merge_units(n_samples)):
        unit_rows = plan.merged(n_samples, unit)
        positions = slice(*np.searchsorted(rows, [unit_rows.start, unit_rows.stop]))
        indices, distances = (column[positions] for column in lists)
        named = np.full((len(indices), k), -1, index_dtype(n_samples))
        named[:, : indices.shape[1]] = np.where(indices >= 0, rows[indices], -1)
        lengths = np.full(named.shape, np.inf)
        lengths[:, : distances.shape[1]] = distances
        yield unit, "row", rows[positions]
        yield unit, "indices", named
        yield unit, "distances", lengths


# ---------------------------------------------------------------------------------- merge
def merge_lists(context: Context, parameters: SearchParameters, unit: int) -> dict[str, Any]:
    """Merge the lists of one unit's rows from all groups, or run an exact search if it replaced the cells."""
    spec, k, plan = parameters.graph, parameters.k, parameters.partitioning
    store, n_samples = context.store, context.tiles.shape.n_samples
    unit_rows = plan.merged(n_samples, unit)
    if chosen_engine(store, spec.name) == "exact":
        return store_exact_lists(context, spec, k, unit_rows)
    n_short = 0
    lists = (layout.SPILL_LISTS.format(spec.name, group) for group in range(plan.n_groups))
    dtypes = {"row": "i8", "indices": index_dtype(n_samples).str, "distances": "f8"}
    rows, indices, distances = read_columns(store, stored_pieces(store, lists, unit), dtypes)
    order = np.argsort(rows, kind="stable")
    for here in row_blocks(unit_rows.stop, block_rows(n_samples), unit_rows.start):
        merged = np.empty((here.stop - here.start, k), indices.dtype), np.empty((here.stop - here.start, k))
        for piece in row_blocks(here.stop - here.start, rows_at_a_merge(k)):
            first, stop = here.start + piece.start, here.start + piece.stop
            entries = order[slice(*np.searchsorted(rows, [first, stop], sorter=order))]
            merged[0][piece], merged[1][piece] = _merge_rows(
                rows[entries] - first, indices[entries], distances[entries], stop - first, k
            )
        put_lists(store, spec.name, here, *merged)
        n_short += int((merged[0][:, -1] < 0).sum())
    return {"n_short": n_short}


def _merge_rows(
    row: np.ndarray, indices: np.ndarray, distances: np.ndarray, n_rows: int, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Merge lists, sorted by row, into one per row."""
    counts = np.bincount(row, minlength=n_rows)
    place = np.arange(row.size) - np.repeat(np.cumsum(counts) - counts, counts)
    merged = np.full((n_rows, k), -1, dtype=indices.dtype), np.full((n_rows, k), np.inf)
    single = counts[row] == 1
    merged[0][row[single]], merged[1][row[single]] = indices[single], distances[single]
    several = np.flatnonzero(counts > 1)
    if several.size:
        width = int(counts.max())
        names = np.full((several.size, width, k), -1, dtype=indices.dtype)
        lengths = np.full((several.size, width, k), np.inf)
        at = np.repeat(np.arange(several.size), counts[several]), place[~single]
        names[at], lengths[at] = indices[~single], distances[~single]
        merged[0][several], merged[1][several] = nearest_distinct(
            names.reshape(several.size, -1), lengths.reshape(several.size, -1), k
        )
    return merged


# ---------------------------------------------------------------------------------- costs
def cells_cost(search: Search, plan: Partitioning, process: Cost) -> Cost:
    """Return the memory cost of the "cells" unit: the sample until it is projected, then the training of cells."""
    shape, spec, n = search.shape, search.spec, search.n_sampled
    sample: Cost = (Objects("rows of the sample", n, row_bytes(shape)),)
    if spec.read_scaling is not None or spec.metric not in LENGTHS:
        sample += (Objects("these rescaled, and their unit rows", 2 * n, search.compared_row_bytes),)
    n_pairs = min(CALIBRATION_ROWS, n) * (CALIBRATION_RANKS + 1)
    training = (
        Array("rows in the space of cells", (2, n, search.columns if shape.is_sparse else shape.n_features), "float32"),
        Array("their numbers, cells and distances, in order and by group", (12, n)),
        Array("which of them count", (4, n), "bool"),
        # pairs of neighbors, and distances of their rows to all groups
        Array("squares of pairs to each group", (3, n_pairs, plan.n_groups), "float32"),
        Array("roots and ratios of these", (2, n_pairs, plan.n_groups)),
        Array("rows of pairs", (2, n_pairs, search.columns), "float32"),
        *(_measured_sample(search) if search.pairwise or spec.engine == "pynndescent" else ()),
    )
    return (
        *process,
        *fullest(
            (*sample, *training, *(_sparse_directions(search) if shape.is_sparse and search.n_directions else ())),
            (*training, *products_cost(shape, -(-n // SAMPLE_PARTS))),
            *(() if shape.is_sparse else _centering(search)),
        ),
        *centers_cost(search, plan, 1),
    )


def _centering(search: Search) -> tuple[Cost, ...]:
    """Return the memory costs of centering a dense sample, of finding directions, and of evaluating them."""
    n, n_features, dtype = search.n_sampled, search.shape.n_features, str(search.dtype)
    sample = (Array("rows of the sample", (n, n_features), dtype),)
    moved = (*sample, *_centering_cost(search, n))
    if search.spec.projection is None:
        return (moved,)
    n_fitting, n_judging = (min(2 * rows, n) for rows in (FITTING_ROWS, JUDGING_ROWS))
    unit = (Array("unit rows", (n, n_features)),) if search.spec.metric not in LENGTHS else ()
    fitting = Array("rows that directions are found from", (n_fitting, n_features), dtype)
    queries = (3, ASKED_ROWS, n_features)
    judging = (*sample, *unit, Array("rows that judge the directions", (n_judging, n_features), "float32"))
    return (
        moved,
        (*sample, *unit, fitting, *_centering_cost(search, n_fitting)),
        (*sample, *unit, *_centering_cost(search, n_judging)),
        (
            *judging,
            Array("their operand", (n_judging, n_features), "float32"),
            Array("rows that ask, their operand, and their factor of the product", queries, "float32"),
            Array("products, and what is sorted of them", (2, ASKED_ROWS, n_judging), "float32"),
        ),
        (*judging, Array("distances in each choice of directions", (3, ASKED_ROWS, n_judging))),
    )


def _centering_cost(search: Search, n_rows: int) -> Cost:
    """Return the memory cost of centering dense rows, in float64 unless they are float32."""
    rows = (n_rows, search.shape.n_features)
    single = Array("differences in float32", rows, "float32")
    if search.spec.metric not in LENGTHS:
        return (Array("unit rows, and their differences from the mean row", (2, *rows)),)
    return (single,) if search.dtype == np.float32 else (Array("differences from the mean row", rows), single)


def _measured_sample(search: Search) -> Cost:
    """Return the memory cost of a sample with missing values, which is kept for distances, one part at a time."""
    n, compared = search.n_sampled, search.compared_row_bytes
    part = -(-n // SAMPLE_PARTS)
    return (
        Objects("rows of the sample as measured", n, max(row_bytes(search.shape), compared)),
        Objects("rows of a part", part, compared),
        Array("operand of a part", (part, search.shape.n_features), "float32"),
        *incomplete_cost(search.shape, n),
    )


def _sparse_directions(search: Search) -> Cost:
    """Return the memory cost of finding directions, and of the rows and distances that evaluate them."""
    n_fitting, n_judging = (min(2 * rows, search.n_sampled) for rows in (FITTING_ROWS, JUDGING_ROWS))
    return (
        Array("rows turned onto directions", (3, n_fitting, search.n_directions)),
        Array("directions", (3, search.shape.n_features, search.n_directions)),
        Objects("rows that judge the directions", 3 * n_judging, search.compared_row_bytes),
        Array("their distances", (3, ASKED_ROWS, n_judging)),
    )


def assign_cost(search: Search, plan: Partitioning, process: Cost) -> Cost:
    """Return the memory cost of an "assign" unit: bands, and per step of rows, cells and distances to the queries."""
    shape, k, n_asked, step = search.shape, search.k, search.n_asked, step_rows(search.shape)
    n_rows = min(shape.n_samples, plan.bands_per_unit * shape.tile_rows)
    return (
        *process,
        *centers_cost(search, plan, 2),
        Objects("rows whose recall is estimated, and their unit rows", 4 * n_asked, search.compared_row_bytes),
        Array("operands of these", (2, n_asked, shape.n_features)),
        Array("their nearest rows so far, with those of a step, in order", (16, n_asked, k)),
        Objects("rows of bands, apart and as one", 2 * n_rows, row_bytes(shape)),
        Objects("rows that are written at a time, and encoded", 8, PIECE_BYTES),
        Array("rows, groups and cells of members", (PLANNED_VISITS, 3, n_rows), "int64"),
        Array("cells that members look into", (PLANNED_VISITS, n_rows, search.cells_per_copy), "int32"),
        Objects("rows of a step, rescaled, as unit rows and as operand", 3 * step, search.compared_row_bytes),
        Array("these in the space of cells", (2, step, search.columns), "float32"),
        Array("candidates among them", (step, CANDIDATES_PER_NEIGHBOR, k), "int64"),
        Array("distances of these", (step, CANDIDATES_PER_NEIGHBOR, k)),
        *products_cost(shape, step),
        *conversion_cost(shape),
        *(incomplete_cost(shape, step) if search.pairwise else ()),
    )


def build_cost(search: Search, plan: Partitioning, process: Cost) -> Cost:
    """Return the memory cost of a "build" unit: the rows of a group or of a part of it, and their search."""
    members = member_cost(search.shape, search.spec, search.k, plan.max_members, pairwise=search.pairwise)
    return (*process, *members, *group_cost(search))


def merge_cost(search: Search, plan: Partitioning, process: Cost) -> Cost:
    """Return the memory cost of a "merge" unit: the lists of its rows from all groups, and a merged block."""
    n, k = search.shape.n_samples, search.k
    n_rows = plan.merged(n, 0).stop
    return (
        *process,
        *found_lists(n, n_rows, k),
        *lists_cost("merged lists of a block", 1, min(n_rows, largest_block(n)), k, n),
        *merged_lists(n, min(n_rows, rows_at_a_merge(k)), k),
    )


CELLS_STAGE = StageKind("cells", __name__, cut_cells, cells_cost)
ASSIGN_STAGE = StageKind("assign", __name__, assign_bands, assign_cost, arrays=create_recall)
BUILD_STAGE = StageKind("build", __name__, build_group, build_cost, finds_lists=True)
MERGE_STAGE = StageKind("merge", __name__, merge_lists, merge_cost, arrays=create_lists)
