"""A plan is data: the stages of a run, their units, bytes and peak memory, worked out before anything runs.

Nothing here reads or writes. Sizes are in bytes. The planned peak of a unit is that of its whole worker process: the
interpreter with what it has imported, plus every array that the unit holds at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from daskfs.errors import MemoryPlanError, StoreError
from daskfs.graph.components import EDGES_AT_ONCE
from daskfs.graph.descent import list_length
from daskfs.graph.edges import COMPARED_ENTRIES, SCANNED_ENTRIES
from daskfs.graph.median import DIGIT_BITS, HELD_VALUES, MEDIAN_PASSES
from daskfs.graph.mixed import MIXED_ENTRIES
from daskfs.graph.neighbors import RECALL_ROWS
from daskfs.graph.partition import (
    CHUNK_BYTES,
    block_rows,
    graph_dtype,
    index_dtype,
    member_bytes,
    partitioning,
    projected_columns,
    resolved,
    rows_at_a_merge,
    search_units,
    step_rows,
)
from daskfs.graph.space import COMPONENT_CHOICES, FORCED_FEATURES, SPARSE_COMPONENTS
from daskfs.graph.spec import TARGET_NAMES, GraphSpec, Lists, TargetGraph, Weighting
from daskfs.graph.target import blocks_per_unit
from daskfs.kernels.cells import CALIBRATION_RANKS, CALIBRATION_ROWS
from daskfs.kernels.comoments import PRODUCT_COLUMNS, stretch_rows, waiting_bytes
from daskfs.kernels.cut import CUT_ROWS, cut_features
from daskfs.kernels.distance import DISTANCE_ROWS
from daskfs.kernels.neighbors import PAIR_ELEMENTS, TILE_BYTES
from daskfs.kernels.passes import compiles
from daskfs.kernels.targets import COMPARED_ENTRIES as COMPARED_TARGETS
from daskfs.store import layout
from daskfs.store.tiles import GATHERED, PANEL_WIDTH, Shape, sample_rows

MiB = 2**20
PROCESS_BYTES = 400 * MiB
"""A worker with NumPy, SciPy, Zarr, scikit-learn and distributed loaded, and what its allocator keeps."""
DESCENT_BYTES = 480 * MiB
"""What numba and the compiled pynndescent add to a process, for good."""
COMPILED_BYTES = 96 * MiB
"""What numba adds to a process that compiles the passes over panels."""
USABLE = 0.9
"""Share of a worker's limit that a unit may fill; the nanny ends a process at 0.95."""
MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
SLAB_BYTES = 256 * MiB
EDGES_BYTES = 256 * MiB
"""Lists of the rows whose edges one unit marks, and their marks."""
MAX_CANDIDATES = 20_000
"""Features that are compared with each other at most: their correlations take 3.2 GB."""
PLANNED_COPIES = 2.5
PLANNED_CELLS = 10
MIN_PARALLEL = 8
ROW_BYTES = 256
"""What a band takes for each row beside its values while the row is sent to groups."""
LABEL_BYTES = 20
"""Labels of a row, which of them are known, and their copy where some rows do not count."""
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, more often than parallel work is worth."""


@dataclass(frozen=True)
class Stage:
    """All units of one step. `function` names the unit function; `parameters` is JSON-able.

    What a stage with `needed_until` wrote may be gone when the stage of that name is done; `clears` names what goes
    then.

    Neighboring stages of one `loop` run in turn, round after round, until all units of the last of them have said
    "finished" in their facts; `max_rounds` is how many rounds that takes at most, None where nobody can say. `n_units`
    and bytes are those of one round, and unit ``round * n_units + i`` is the i-th of its round. `clears` names what
    goes when a round is done: "{round}" is its number, "{before}" that of the one before the last.
    """

    name: str
    function: str
    n_units: int
    parameters: Mapping[str, Any]
    peak_bytes: int
    bytes_read: int = 0
    bytes_written: int = 0
    fingerprint: str = ""
    needed_until: str = ""
    clears: str = ""
    loop: str = ""
    max_rounds: int | None = 1


@dataclass(frozen=True)
class Plan:
    """Stages in order, and the tile store they read."""

    tiles_url: str
    stages: tuple[Stage, ...]
    identity: str = ""
    format_version: int = layout.FORMAT_VERSION
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """Largest planned peak of any unit."""
        return max((stage.peak_bytes for stage in self.stages), default=0)

    def stage(self, name: str) -> Stage:
        """Return a stage by name."""
        return next(stage for stage in self.stages if stage.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able values; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> Plan:
        """Rebuild a plan; :class:`StoreError` when it is of another version."""
        if raw.get("format_version") != layout.FORMAT_VERSION:
            msg = (
                f"{where} was written in format version {raw.get('format_version')!r}, this daskfs reads "
                f"{layout.FORMAT_VERSION}."
            )
            raise StoreError(msg)
        return cls(**{**raw, "stages": tuple(Stage(**stage) for stage in raw["stages"])})


def digest(*values: Any) -> str:
    """Return a short hash of JSON-able values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fingerprinted(stages: Sequence[Stage], start: str) -> tuple[Stage, ...]:
    """Give each stage a fingerprint of everything that its results depend on: its parameters and all that came
    before.
    """
    result, current = [], start
    for stage in stages:
        current = digest(current, stage.name, stage.function, stage.n_units, dict(stage.parameters))
        result.append(replace(stage, fingerprint=current))
    return tuple(result)


def limit_per_unit(memory_limit: int | None, threads: int) -> int | None:
    """Return the limit that a unit may plan with when `threads` of them share a process of `memory_limit` bytes."""
    if memory_limit is None:
        return None
    return int((PROCESS_BYTES + (USABLE * memory_limit - PROCESS_BYTES) / threads) / USABLE)


def available_bytes(memory_limit: int | None) -> int | None:
    """Return what a unit may take beyond its process, None where there is no limit."""
    return None if memory_limit is None else max(int(USABLE * memory_limit) - PROCESS_BYTES, MiB)


def check_memory(stages: Sequence[Stage], memory_limit: int | None, threads: int = 1) -> None:
    """Raise :class:`MemoryPlanError` when `threads` units at once would not fit in a worker, with the limit that would
    do.
    """
    if memory_limit is None:
        return
    for stage in stages:
        needed = PROCESS_BYTES + threads * (stage.peak_bytes - PROCESS_BYTES)
        if needed <= USABLE * memory_limit:
            continue
        together = f" for {threads} units at once" if threads > 1 else ""
        enough = int(np.ceil(needed / USABLE / MiB))
        msg = (
            f"stage {stage.name} needs {needed / MiB:.0f} MiB in a worker process{together}, and cluster.memory_limit "
            f"is {memory_limit / MiB:.0f} MiB, of which {USABLE:.0%} may be filled. Set cluster.memory_limit to "
            f"{enough} MiB or more, or start fewer {'threads' if threads > 1 else 'workers'}."
        )
        if stage.function in ("comoments", "greedy", "filter", "bins"):
            msg += " Fewer n_candidates need less."
        if stage.parameters.get("solver") in ("cholesky", "woodbury"):
            msg += " Methods with solver 'cg' need less, and more passes over X."
        raise MemoryPlanError(msg)


# ---------------------------------------------------------------------------- tiles
def slab_budget(memory_limit: int | None) -> int:
    """Return the bytes that one slab or band may fill: a third of what a worker has beyond its process."""
    if memory_limit is None:
        return SLAB_BYTES
    return max(int((USABLE * memory_limit - PROCESS_BYTES) / 3), MiB)


def plan_shape(n_samples: int, n_features: int, dtype: str, nnz: int | None, memory_limit: int | None) -> Shape:
    """Choose the tiles of a matrix.

    Tiles are at most 64 MiB; a slab of one tile column and a band of one tile row fit the slab budget; and when X is
    large enough to matter there are at least eight of each, so that several workers have something to do.
    """
    itemsize = np.dtype(dtype).itemsize
    budget = slab_budget(memory_limit)
    if nnz is not None:
        per_row = max(1, nnz * (itemsize + 4) // max(n_samples, 1))
        # converting a band between row and column order takes five times its bytes and more
        target = int(
            np.clip(nnz * (itemsize + 4) // 16, MIN_TILE_BYTES, max(MIN_TILE_BYTES, min(MAX_TILE_BYTES, budget // 5)))
        )
        rows = _band_rows(target // per_row, n_samples)
        columns = min(n_features, max(1, min(budget // (n_samples * itemsize), -(-n_features // MIN_PARALLEL))))
        return Shape(n_samples, n_features, dtype, True, nnz, rows, columns)
    total = n_samples * n_features * itemsize
    columns = n_features
    if total > MIN_TILE_BYTES:
        n_slabs = min(MIN_PARALLEL, max(1, n_features // MIN_SLAB_COLUMNS))
        columns = -(-n_features // n_slabs)
    columns = max(1, min(columns, budget // (n_samples * itemsize)))
    if columns > 8:
        columns -= columns % 8
    target = int(np.clip(total // 64, MIN_TILE_BYTES, MAX_TILE_BYTES))
    fitting = budget // (n_features * itemsize)
    # of narrow rows it is not the values that fill a worker, but what is known of each row
    fitting = min(fitting, max(2**20, budget // (n_features * itemsize + ROW_BYTES)))
    rows = _band_rows(min(target // (columns * itemsize), fitting), n_samples)
    return Shape(n_samples, n_features, dtype, False, None, rows, columns)


def _band_rows(wanted: int, n_samples: int) -> int:
    """Round the rows of a band down to a power of two, so that moments merge to the same bits whatever the memory
    is.
    """
    return n_samples if wanted >= n_samples else 1 << max(0, max(wanted, 1).bit_length() - 1)


def serves_in_place(
    n_samples: int, chunks: tuple[int, int], n_features: int, dtype: str, memory_limit: int | None
) -> bool:
    """Return whether a Zarr array can be read where it lies.

    A slab of one chunk column and a band of one chunk row must fit the slab budget, one chunk must not exceed two
    tiles, and chunks must not be so small that opening them dominates.
    """
    itemsize = np.dtype(dtype).itemsize
    budget = slab_budget(memory_limit)
    rows, columns = min(chunks[0], n_samples), min(chunks[1], n_features)
    chunk_bytes = rows * columns * itemsize
    total = n_samples * n_features * itemsize
    return (
        n_samples * columns * itemsize <= budget
        and rows * n_features * itemsize <= budget
        and chunk_bytes <= 2 * MAX_TILE_BYTES
        and (chunk_bytes >= MIN_TILE_BYTES // 4 or total // max(chunk_bytes, 1) <= 64)
    )


def band_bytes(shape: Shape) -> int:
    """Bytes of one band in memory."""
    if shape.is_sparse:
        return (shape.nnz or 0) * (shape.itemsize + 4) // shape.n_bands * 2 + shape.n_features * 8
    return shape.tile_rows * shape.n_features * shape.itemsize


def tile_bytes(shape: Shape) -> int:
    """Bytes of one decoded tile."""
    if shape.is_sparse:
        return band_bytes(shape) + shape.tile_rows * min(shape.tile_columns, shape.n_features) * shape.itemsize
    return shape.tile_rows * shape.tile_columns * shape.itemsize


def conversion_bytes(width: int) -> int:
    """Bytes of the float64 blocks that moments and norms work on."""
    return 3 * 8 * 8192 * min(max(width, 1), 512)


def plan_ingest(shape: Shape, parameters: Mapping[str, Any], write_x: bool, source_rows: int) -> tuple[Stage, ...]:
    """Stages that fill a tile store."""
    band = band_bytes(shape)
    source = source_rows * shape.n_features * shape.itemsize
    if shape.is_sparse:
        source = source_rows * (shape.nnz or 0) // shape.n_samples * (shape.itemsize + 4)
    transient = 4 * tile_bytes(shape) if write_x else 0
    if shape.is_sparse:
        transient = 5 * band
    peak = PROCESS_BYTES + 2 * band + 2 * source + transient + conversion_bytes(shape.n_features)
    moments = shape.n_bands * 6 * shape.n_features * 8
    written = (shape.x_bytes if write_x else 0) + moments + 8 * shape.n_samples
    columns = 1 + int(parameters["source"].get("weights") is not None)  # labels, and weights of rows
    labels = PROCESS_BYTES + 400 * shape.n_features + 60 * columns * shape.n_samples
    stages = (
        Stage("labels", "labels", 1, parameters, labels, 0, 8 * columns * shape.n_samples),
        Stage("ingest", "ingest", shape.n_bands, parameters, peak, shape.x_bytes, written),
        Stage(
            "columns", "columns", 1, parameters, PROCESS_BYTES + 400 * shape.n_features + 60 * shape.n_samples, moments
        ),
    )
    return fingerprinted(stages, str(parameters["fingerprint"]))


# ---------------------------------------------------------------------------- graph and scores
def plan_graph(shape: Shape, spec: GraphSpec, k: int, memory_limit: int | None = None) -> list[Stage]:
    """Stages that find the neighbour lists of one graph and, for an approximate one, check them."""
    available = available_bytes(memory_limit)
    spec = resolved(spec, shape, available)
    if spec.engine != "exact":
        return _plan_groups(shape, spec, k, available)
    rows = shape.n_samples
    n_units = len(search_units(rows))
    peak = PROCESS_BYTES + _members_bytes(shape, spec, rows) + 2 * band_bytes(shape) + _search_bytes(rows, shape)
    lists = (index_dtype(rows).itemsize + 8) * rows * k
    parameters = {"graph": asdict(spec), "k": k}
    return [Stage(f"neighbors-{spec.name}", "neighbors", n_units, parameters, peak, n_units * shape.x_bytes, lists)]


def plan_lists(
    shape: Shape, lists: Lists, k: int, memory_limit: int | None = None, widths: Mapping[str, int] | None = None
) -> list[Stage]:
    """Stages that find the neighbor lists of any kind; `widths` are the lengths of lists that are there by then."""
    if isinstance(lists, GraphSpec):
        return plan_graph(shape, lists, k, memory_limit)
    n, index = shape.n_samples, index_dtype(shape.n_samples).itemsize
    block, per_unit = min(block_rows(n), n), blocks_per_unit(n)
    n_units = -(-n // (per_unit * block_rows(n)))
    parameters = {"lists": asdict(lists), "k": k, "blocks_per_unit": per_unit}
    # labels, their copy where some rows do not count, and what the sort holds; candidates by target; a block of lists
    peak = PROCESS_BYTES + 80 * n + 64 * min(COMPARED_TARGETS, 4 * k * block) + 3 * block * k * (index + 8)
    read, written = n_units * 8 * n, (index + 8) * n * k
    if isinstance(lists, TargetGraph):
        return [Stage(f"targets-{lists.name}", "targets", n_units, parameters, peak, read, written)]
    width = (widths or {}).get(lists.base.name) or lists.n_candidates(n, k)
    parameters["n_candidates"] = min(lists.n_candidates(n, k), width)
    peak += 3 * block * width * (index + 8) + 128 * min(MIXED_ENTRIES, block * (width + 4 * k))
    read += -(-n // block) * block * width * (index + 8)
    return [Stage(lists.name, "mixed", n_units, parameters, peak, read, written)]


def _plan_groups(shape: Shape, spec: GraphSpec, k: int, available: int | None) -> list[Stage]:
    """Stages of an approximate search. Copies of rows are planned at 2.5; the data decide."""
    process, name, rows = PROCESS_BYTES, spec.name, shape.n_samples
    if spec.engine == "pynndescent":
        process += DESCENT_BYTES
        available = None if available is None else max(available - DESCENT_BYTES, MiB)
    columns = spec.projection if isinstance(spec.projection, int) else shape.n_features
    if shape.is_sparse or (spec.projection == "auto" and shape.n_features > FORCED_FEATURES):
        columns = min(columns, SPARSE_COMPONENTS if shape.is_sparse else COMPONENT_CHOICES[-1])
    basis = 0 if shape.is_sparse else 4 * projected_columns(spec) * shape.n_features
    sampled = sample_rows(shape).size
    beside = 4 * CHUNK_BYTES + 3 * TILE_BYTES + sampled * columns // 2  # read buffers, products, centers
    if spec.engine == "pynndescent":
        beside += 18 * (list_length(k) + 1) ** 2 * 16384
    plan = partitioning(shape, spec, k, None if available is None else max(available - beside, MiB))
    parameters = {"graph": asdict(spec), "k": k, "partitioning": asdict(plan)}
    row_bytes = -(-shape.x_bytes // rows)
    itemsize = graph_dtype(np.dtype(shape.dtype), spec.scaling).itemsize
    values = row_bytes * itemsize // shape.itemsize
    centers = 8 * columns * (plan.n_cells + plan.n_groups) + basis
    queries = min(RECALL_ROWS, sampled) * (2 * values + 8 * shape.n_features + 64 * k)
    scaled = values if spec.scaling is not None or spec.metric == "cosine" else 0
    pairs = min(CALIBRATION_ROWS, sampled) * (CALIBRATION_RANKS + 1)
    sample = sampled * (
        row_bytes + 2 * scaled + 8 * (columns if shape.is_sparse else shape.n_features) + 100
    ) + pairs * (28 * plan.n_groups + 8 * columns)
    index = index_dtype(rows).itemsize
    copies = int(PLANNED_COPIES * rows)
    spilled = copies * (row_bytes + 8 + 4 * PLANNED_CELLS)
    cut = 4 * columns * (plan.n_cells + plan.n_groups) + basis + 8 * shape.n_features
    asked = min(RECALL_ROWS, sampled) * shape.n_features * itemsize
    lists = copies * (8 + (index + 8) * k)
    n_assign, n_merge = plan.assign_units(shape), plan.merge_units(rows)
    # a unit's rows of one group begin and end within a chunk
    unspilled = spilled + n_assign * plan.n_groups * plan.chunk_rows * row_bytes + plan.n_groups * cut
    unit_rows = min(rows, plan.bands_per_unit * shape.tile_rows)
    assign = process + 2 * centers + 2 * queries + 2 * unit_rows * row_bytes + conversion_bytes(shape.n_features)
    step = step_rows(shape)
    assign += step * (3 * values + 8 * columns + 16 * k * 64) + 4 * plan.chunk_rows * row_bytes
    assign += unit_rows * 3 * (24 + 4 * PLANNED_CELLS) + (4 * unit_rows * row_bytes if shape.is_sparse else 0)
    assign += 4 * min(TILE_BYTES, 4 * step * 1024)
    members = plan.max_members * member_bytes(shape, spec, k)
    build = process + members + beside
    merged = min(rows, plan.blocks_per_unit * block_rows(rows))
    merge = process + 3 * merged * k * (index + 8) * 3 + min(merged, block_rows(rows)) * k * 12
    merge += min(merged, rows_at_a_merge(k)) * k * 300
    recall = n_assign * min(RECALL_ROWS, sampled) * k * 8
    close = process + 4 * recall + 16 * min(block_rows(rows), rows) * k
    until = f"recall-{name}"
    return [
        Stage(f"cells-{name}", "cells", 1, parameters, process + sample + centers, sampled * row_bytes, cut + asked),
        Stage(
            f"assign-{name}",
            "assign",
            n_assign,
            parameters,
            assign,
            shape.x_bytes + n_assign * (cut + asked),
            spilled + recall,
            needed_until=until,
        ),
        Stage(f"build-{name}", "build", plan.n_groups, parameters, build, unspilled, lists, needed_until=until),
        Stage(f"merge-{name}", "merge", n_merge, parameters, merge, lists, (index + 8) * rows * k),
        Stage(until, "recall", 1, parameters, close, recall + 8 * rows * k, clears=layout.SPILL.format(name)),
    ]


def _members_bytes(shape: Shape, spec: GraphSpec, rows: int) -> int:
    """Bytes of a partition's rows, of their unit copy under cosine, and of the operand of the matrix product."""
    itemsize = graph_dtype(np.dtype(shape.dtype), spec.scaling).itemsize
    copies = 2 if spec.metric == "cosine" else 1
    if shape.is_sparse:
        nnz = (shape.nnz or 0) * rows // shape.n_samples
        return nnz * ((itemsize + 4) * 2 + 12 * copies)
    return rows * shape.n_features * ((itemsize if copies == 1 else itemsize + 8) + 4)


def _search_bytes(rows: int, shape: Shape) -> int:
    # products of a tile, minima of their groups, a mask; and blocks of rows in float64
    return 4 * min(TILE_BYTES, 4 * rows * 1024) + 4 * 8 * PAIR_ELEMENTS + conversion_bytes(shape.n_features)


def plan_edges(n_samples: int, graph: str, k: int, process_bytes: int, width: int | None = None) -> list[Stage]:
    """Stages that mark each edge once and describe the graph.

    Parameters
    ----------
    n_samples, graph, k
        Number of rows, name of the neighbour lists, and how much of each list makes the graph.
    process_bytes
        What the process of a unit takes before it starts.
    width
        Length of the lists; None for k.
    """
    width = width or k
    size, itemsize = min(block_rows(n_samples), n_samples), index_dtype(n_samples).itemsize
    row_bytes = k * (itemsize + 1)
    blocks = max(1, min(EDGES_BYTES // (size * row_bytes), -(-n_samples // size)))
    n_units = -(-n_samples // (blocks * size))
    scan = 3 * size * width * itemsize + 40 * SCANNED_ENTRIES + 16 * COMPARED_ENTRIES
    peak = process_bytes + min(blocks * size, n_samples) * row_bytes + scan
    stored = -(-n_samples // size) * size  # whole chunks count
    # a unit reads the lists of its own rows and of all before them
    rows_read = sum(min((unit + 1) * blocks * size, stored) for unit in range(n_units))
    parameters = {"name": graph, "n_neighbors": k}
    describe = process_bytes + 24 * n_samples + stream_bytes(n_samples, k, width) + 128 * min(EDGES_AT_ONCE, size * k)
    read = stored * (2 * k + (itemsize + 16) * width)
    if graph in TARGET_NAMES:  # labels say which rows are nodes
        describe, read = describe + LABEL_BYTES * n_samples, read + 8 * n_samples
    return [
        Stage(
            f"edges-{graph}-{k}",
            "edges",
            n_units,
            {**parameters, "blocks_per_unit": blocks},
            peak,
            rows_read * width * itemsize,
            n_samples * k,
        ),
        Stage(f"edges-summary-{graph}-{k}", "edges-summary", 1, parameters, describe, read),
    ]


def stream_bytes(n_samples: int, k: int, width: int) -> int:
    """Bytes of one block of edges, of the one before it, and of the chunks it is read from."""
    return min(block_rows(n_samples), n_samples) * (60 * k + 36 * width)


def plan_weights(n_samples: int, weighting: Weighting, process_bytes: int, width: int | None = None) -> Stage:
    """Stage that sums the degrees of one weighting, on lists of length `width`."""
    k = weighting.n_neighbors
    width = width or k
    peak = process_bytes + 24 * n_samples + stream_bytes(n_samples, k, width)
    asks = weighting.connects != "all" or weighting.labelled_factor != 1
    if asks:
        peak += LABEL_BYTES * n_samples
    passes = int(isinstance(weighting.t, str))
    if weighting.t == "median":
        passes = MEDIAN_PASSES
        peak += 24 * (2**DIGIT_BITS + min(HELD_VALUES, n_samples * k))
    size = min(block_rows(n_samples), n_samples)
    stored = -(-n_samples // size) * size
    read = stored * (k + (index_dtype(n_samples).itemsize + 8) * width + passes * (k + 8 * width))
    read += 16 * n_samples if asks else 0
    parameters = {"weighting": asdict(weighting)}
    return Stage(f"weights-{weighting.key}", "weights", 1, parameters, peak, read, 8 * n_samples)


def slab_columns(shape: Shape, scaled: bool, memory_limit: int | None) -> int:
    """Return how many columns one scoring unit holds: whole tile columns, as many as the slab budget takes."""
    per_column = shape.n_samples * (shape.itemsize + (8 if scaled else 0))
    beside = 0.8 * 3 * slab_budget(memory_limit) - 40 * shape.n_samples
    beside -= 0 if memory_limit is None else compiled_bytes(shape, scaled)
    fitting = min(slab_budget(memory_limit) // per_column, int(beside) // (per_column + _panel_bytes(shape, scaled)))
    fitting = max(1, fitting)
    wanted = (
        max(shape.tile_columns, -(-shape.n_features // MIN_PARALLEL))
        if shape.x_bytes > MIN_TILE_BYTES
        else shape.n_features
    )
    columns = min(fitting, wanted)
    if columns > shape.tile_columns:
        columns -= columns % shape.tile_columns
    return int(min(columns, shape.n_features))


def compiled_bytes(shape: Shape, scaled: bool) -> int:
    """Bytes that compiled passes add to a process that has scored, for good; 0 where nothing is compiled."""
    dtype = np.dtype(np.float64 if scaled else shape.dtype)
    return COMPILED_BYTES if compiles(shape.n_samples * shape.n_features, dtype) else 0


def _panel_bytes(shape: Shape, scaled: bool) -> int:
    """Bytes of one column of what is copied of a panel: the rows of some labels, or the steps of a rescaling."""
    return shape.n_samples * (24 if scaled else shape.itemsize)


def plan_finish(shape: Shape, method: Mapping[str, Any], finish: str, columns: int, process_bytes: int) -> list[Stage]:
    """Stages that make the table of one method from those of its slabs."""
    if finish == "trade-off":
        return [_plan_trade_off(shape, method, columns, process_bytes)]
    if finish == "greedy":
        return _plan_greedy(shape, method, process_bytes)
    raise NotImplementedError


def _plan_greedy(shape: Shape, method: Mapping[str, Any], process_bytes: int) -> list[Stage]:
    label, wanted = method["label"], method["parameters"]["n_candidates"]
    count = min(wanted or shape.n_features, shape.n_features)
    check_candidates(count, f"method {label}", "n_candidates")
    done, tables, parameters = f"greedy-{label}", 32 * shape.n_features, {"method": dict(method)}
    screen = process_bytes + 200 * shape.n_features
    comoments = plan_comoments(
        shape, f"comoments-{label}", ("greedy", {label: count}), method["parameters"]["score_scaling"], process_bytes
    )
    matrices = 3 * 8 * count**2
    return [
        Stage(f"candidates-{label}", "screen", 1, parameters, screen, tables, 8 * count),
        replace(comoments, needed_until=done),
        Stage(
            done,
            "greedy",
            1,
            parameters,
            screen + matrices,
            comoments.bytes_written + tables + 8 * count,
            tables,
            clears=layout.COMOMENTS_OF.format("greedy", label),
        ),
    ]


def check_candidates(count: int, where: str, setting: str) -> None:
    """Raise :class:`MemoryPlanError` when so many features cannot be compared with each other."""
    if count > MAX_CANDIDATES:
        msg = (
            f"{where} would compare {count} features with each other, which takes {count**2 * 8 / 2**30:.0f} GiB: set "
            f"{setting} to {MAX_CANDIDATES} or less."
        )
        raise MemoryPlanError(msg)


def plan_comoments(
    shape: Shape, name: str, candidates: tuple[str, Mapping[str, int]], scaling: str | None, process_bytes: int
) -> Stage:
    """Stage that sums the products of candidates: their purpose, and how many there are of each method."""
    purpose, counts = candidates
    height = stretch_rows(shape.n_samples)
    n_stretches = -(-shape.n_samples // height)
    per_unit = max(1, -(-shape.tile_rows // height))  # a unit reads whole bands
    n_units = -(-n_stretches // per_unit)
    union = min(sum(counts.values()), shape.n_features)
    rows = min(shape.tile_rows, shape.n_samples)
    block = min(GATHERED, shape.n_samples) * (union * (shape.itemsize + (16 if scaling else 0)))
    block += min(GATHERED, shape.n_samples) * max(counts.values()) * shape.itemsize
    band = 5 * band_bytes(shape) if shape.is_sparse else rows * union * shape.itemsize + 3 * tile_bytes(shape)
    sums = sum(8 * count**2 + waiting_bytes(count, shape.n_samples) for count in counts.values())
    sums += 8 * max(counts.values()) * PRODUCT_COLUMNS
    bands = sum(
        -(-min((unit + 1) * per_unit * height, shape.n_samples) // rows) - unit * per_unit * height // rows
        for unit in range(n_units)
    )
    of_band = -(-shape.x_bytes // shape.n_bands) if shape.is_sparse else rows * shape.n_features * shape.itemsize
    norms = 8 * bands * rows if scaling == "unit" else 0
    read = bands * of_band + norms + n_units * 8 * sum(counts.values())
    written = n_stretches * sum(8 * (count**2 + count + 1) for count in counts.values())
    parameters = {
        "purpose": purpose,
        "labels": list(counts),
        "scaling": scaling,
        "stretches_per_unit": per_unit,
    }
    peak = process_bytes + band + block + sums + 24 * shape.n_samples
    return Stage(name, "comoments", n_units, parameters, peak, read, written)


def plan_redundancy(
    shape: Shape, methods: Sequence[Mapping[str, Any]], wanted: Mapping[str, Any], columns: int, process_bytes: int
) -> list[Stage]:
    """Stages that walk down the rankings past what is redundant.

    Parameters
    ----------
    shape, columns, process_bytes
        As elsewhere.
    methods
        Methods as JSON.
    wanted
        `measure`, `threshold`, `n_candidates`, `keep`, `drop`, `groups`, `max_per_group` and `scaling`, with numbers of
        features instead of their names.
    """
    labels, measure = [method["label"] for method in methods], wanted["measure"]
    count = min(wanted["n_candidates"] + len(wanted["keep"]), shape.n_features)
    if measure is None:
        count = shape.n_features
    else:
        check_candidates(count, "select.redundancy", "select.redundancy.n_candidates")
    parameters: dict[str, Any] = {"methods": [dict(method) for method in methods], "redundancy": dict(wanted)}
    known = 400 * shape.n_features
    tables = 32 * shape.n_features
    choose = process_bytes + known
    stages = [
        Stage("filter-candidates", "candidates", 1, parameters, choose, len(labels) * tables, 8 * count * len(labels))
    ]
    counts = dict.fromkeys(labels, count)
    held = read = 0
    clears = ""
    if measure == "correlation":
        stage = plan_comoments(shape, "filter-comoments", ("redundancy", counts), wanted["scaling"], process_bytes)
        stages.append(replace(stage, needed_until="filter"))
        held, read, clears = 3 * 8 * count**2, stage.bytes_written, layout.COMOMENTS_FOR.format("redundancy")
    elif measure == "distance_correlation":
        stage = _plan_bins(shape, counts, wanted["scaling"], columns, process_bytes)
        stages.append(replace(stage, needed_until="filter"))
        rows = min(shape.n_samples, DISTANCE_ROWS)
        held = count * (rows + 4096) + 40 * rows + 2**20
        read, clears = len(labels) * count * (rows + 4096), layout.BINNED_OF
        parameters = {**parameters, "purpose": "redundancy", "labels": labels, "slab_columns": columns}
    peak = process_bytes + known + held + 400 * count + 32 * shape.n_samples
    read += 8 * count * len(labels)
    written = 8 * count * len(labels)
    return [*stages, Stage("filter", "filter", len(labels), parameters, peak, read, written, clears=clears)]


def _plan_bins(shape: Shape, counts: Mapping[str, int], scaling: str | None, columns: int, process_bytes: int) -> Stage:
    """Stage that cuts the candidates into bins, slab by slab."""
    union = min(sum(counts.values()), shape.n_features)
    own, rows = min(union, columns), min(shape.n_samples, DISTANCE_ROWS)
    n_units = -(-shape.n_features // columns)
    band = 3 * shape.tile_rows * columns * shape.itemsize + 3 * tile_bytes(shape)
    peak = process_bytes + band + own * rows * (shape.itemsize + 1 + (16 if scaling else 0))
    peak += 100 * rows + 24 * shape.n_samples + own * 4096
    parameters = {"purpose": "redundancy", "labels": list(counts), "scaling": scaling, "slab_columns": columns}
    return Stage("filter-bins", "bins", n_units, parameters, peak, shape.x_bytes, union * (rows + 2048))


def _plan_trade_off(shape: Shape, method: Mapping[str, Any], columns: int, process_bytes: int) -> Stage:
    sampled, tables = sample_rows(shape).size, 24 * shape.n_features
    row_bytes = -(-shape.x_bytes // shape.n_samples)
    of_band = min(sampled, -(-sampled * shape.tile_rows // shape.n_samples) + 1) * row_bytes
    count = cut_features(method["parameters"]["n_cut_features"], shape.n_features)
    rows = min(CUT_ROWS, sampled)
    reduced = 8 * rows * (3 * min(11 * count, shape.n_features) + 6 * count)
    cut = reduced + 80 * rows**2 + conversion_bytes(shape.n_features) + TILE_BYTES
    peak = process_bytes + 4 * of_band + 200 * shape.n_features + 16 * shape.n_samples + cut  # and weights of rows
    parameters = {"method": dict(method), "slab_columns": columns}
    read = tables + sampled * row_bytes
    return Stage(f"trade-off-{method['label']}", "trade-off", 1, parameters, peak, read, tables)


def chunk_bytes(shape: Shape) -> int:
    """Return the bytes of X in whole tiles, which is what reading all of it counts."""
    if shape.is_sparse:
        return shape.x_bytes
    n_columns = -(-shape.n_features // shape.tile_columns) * shape.tile_columns
    return n_columns * shape.n_bands * shape.tile_rows * shape.itemsize


def plan_scores(
    shape: Shape,
    methods: list[dict[str, Any]],
    weightings: Sequence[Weighting],
    scaled: bool,
    columns: int,
    process_bytes: int,
    widths: Mapping[str, int] | None = None,
    label_bytes: int = 0,
) -> Stage:
    """Stage that scores the slabs; `widths` are the lengths of neighbor lists, where these are longer than needed, and
    `label_bytes` what a unit reads of labels.
    """
    n_units = -(-shape.n_features // columns)
    panel = _panel_bytes(shape, scaled) * min(columns, PANEL_WIDTH)
    slab = shape.n_samples * columns * (shape.itemsize + (8 if scaled else 0))
    largest_k = max((w.n_neighbors for w in weightings), default=0)
    graphs = {(w.graph, w.n_neighbors): (widths or {}).get(w.graph) or w.n_neighbors for w in weightings}
    size = min(block_rows(shape.n_samples), shape.n_samples)
    block = (120 * largest_k + 36 * max(graphs.values(), default=0) + 16 * len(weightings)) * size
    peak = (
        process_bytes
        + compiled_bytes(shape, scaled)
        + slab
        + panel
        + 4 * tile_bytes(shape)
        + block
        + 40 * shape.n_samples
        + conversion_bytes(PANEL_WIDTH)
    )
    entry, stored = index_dtype(shape.n_samples).itemsize + 8, -(-shape.n_samples // size) * size  # whole chunks count
    graph_bytes = stored * sum(k + entry * width for (_, k), width in graphs.items())
    graph_bytes += 8 * shape.n_samples * len(weightings)
    read = chunk_bytes(shape) + n_units * (graph_bytes + label_bytes)
    written = len(methods) * 4 * 8 * shape.n_features
    return Stage("score", "score", n_units, {"methods": methods, "slab_columns": columns}, peak, read, written)
