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
from daskfs.graph.descent import list_length
from daskfs.graph.neighbors import RECALL_ROWS
from daskfs.graph.partition import block_rows, graph_dtype, resolved, search_units
from daskfs.graph.spec import GraphSpec, Weighting
from daskfs.kernels.neighbors import PAIR_ELEMENTS, TILE_BYTES
from daskfs.store import layout
from daskfs.store.tiles import PANEL_WIDTH, Shape

MiB = 2**20
PROCESS_BYTES = 400 * MiB
"""A worker with NumPy, SciPy, Zarr, scikit-learn and distributed loaded, and what its allocator keeps."""
DESCENT_BYTES = 480 * MiB
"""What numba and the compiled pynndescent add to a process, for good."""
USABLE = 0.9
"""Share of a worker's limit that a unit may fill; the nanny ends a process at 0.95."""
MAX_TILE_BYTES = 64 * MiB
MIN_TILE_BYTES = 1 * MiB
SLAB_BYTES = 256 * MiB
MIN_PARALLEL = 8
MIN_SLAB_COLUMNS = 32
"""Narrower slabs would stream the graph, and compute its weights, more often than parallel work is worth."""


@dataclass(frozen=True)
class Stage:
    """All units of one step. `function` names the unit function; `parameters` is JSON-able."""

    name: str
    function: str
    n_units: int
    parameters: Mapping[str, Any]
    peak_bytes: int
    bytes_read: int = 0
    bytes_written: int = 0
    fingerprint: str = ""


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
    rows = _band_rows(min(target // (columns * itemsize), budget // (n_features * itemsize)), n_samples)
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
    labels = PROCESS_BYTES + 400 * shape.n_features + 60 * shape.n_samples
    stages = (
        Stage("labels", "labels", 1, parameters, labels, 0, 8 * shape.n_samples),
        Stage("ingest", "ingest", shape.n_bands, parameters, peak, shape.x_bytes, written),
        Stage(
            "columns", "columns", 1, parameters, PROCESS_BYTES + 400 * shape.n_features + 60 * shape.n_samples, moments
        ),
    )
    return fingerprinted(stages, str(parameters["fingerprint"]))


# ---------------------------------------------------------------------------- graph and scores
def plan_graph(shape: Shape, spec: GraphSpec, k: int) -> list[Stage]:
    """Stages that find the neighbour lists of one graph and, for an approximate one, check them."""
    spec = resolved(spec, shape)
    partitions = [[0, shape.n_samples]]
    units = search_units(spec, [slice(*p) for p in partitions], shape.n_samples)
    parameters = {"graph": asdict(spec), "k": k, "partitions": partitions}
    engine = spec.engine
    rows = shape.n_samples
    lists = 16 * rows * k
    x_bytes = _members_bytes(shape, spec, rows)
    peak = PROCESS_BYTES + x_bytes + 2 * band_bytes(shape) + _search_bytes(rows, shape.n_features, k, engine)
    read = len(units) * shape.x_bytes
    stages = [Stage(f"neighbors-{spec.name}", "neighbors", len(units), parameters, peak, read, lists)]
    if engine == "exact":
        return stages
    queries = RECALL_ROWS * shape.n_features * 8
    check = (
        PROCESS_BYTES + DESCENT_BYTES + 3 * _members_bytes(shape, spec, shape.tile_rows) + 2 * queries + 12 * TILE_BYTES
    )
    exact = shape.n_bands * RECALL_ROWS * k * 8
    merge = PROCESS_BYTES + DESCENT_BYTES + 4 * exact + 16 * min(block_rows(rows), rows) * k
    return [
        *stages,
        Stage(f"recall-{spec.name}", "recall", shape.n_bands, parameters, check, shape.x_bytes, exact),
        Stage(f"recall-merge-{spec.name}", "recall-merge", 1, parameters, merge, exact + lists // 2),
    ]


def _members_bytes(shape: Shape, spec: GraphSpec, rows: int) -> int:
    """Bytes of a partition's rows, of their unit copy under cosine, and of the operand of the matrix product."""
    itemsize = graph_dtype(np.dtype(shape.dtype), spec.scaling).itemsize
    copies = 2 if spec.metric == "cosine" else 1
    if shape.is_sparse:
        nnz = (shape.nnz or 0) * rows // shape.n_samples
        return nnz * ((itemsize + 4) * 2 + 12 * copies)
    return rows * shape.n_features * ((itemsize if copies == 1 else itemsize + 8) + 4)


def _search_bytes(rows: int, n_columns: int, k: int, engine: str) -> int:
    if engine == "exact":
        # bounds from below and above, their sums, a mask; and blocks of rows in float64
        return 4 * min(TILE_BYTES, 4 * rows * 1024) + 4 * 8 * PAIR_ELEMENTS + conversion_bytes(n_columns)
    length = list_length(k) + 1
    return DESCENT_BYTES + 33 * length * rows + 18 * length**2 * 16384 + 32 * rows * k + 4 * 8 * PAIR_ELEMENTS


def plan_edges(n_samples: int, graph: str, k: int, process_bytes: int) -> Stage:
    """Stage that marks each edge once and describes the graph."""
    peak = process_bytes + n_samples * k * 110 + 60 * n_samples
    parameters = {"name": graph, "n_neighbors": k}
    return Stage(f"edges-{graph}-{k}", "edges", 1, parameters, peak, 24 * n_samples * k, n_samples * k)


def plan_weights(n_samples: int, weighting: Weighting, process_bytes: int) -> Stage:
    """Stage that sums the degrees of one weighting."""
    k = weighting.n_neighbors
    edges = 24 * n_samples * k if weighting.t == "median" else 0
    peak = process_bytes + edges + 24 * n_samples + 100 * min(block_rows(n_samples), n_samples) * k
    parameters = {"weighting": asdict(weighting)}
    read = 17 * n_samples * k * (2 if isinstance(weighting.t, str) else 1)
    return Stage(f"weights-{weighting.key}", "weights", 1, parameters, peak, read, 8 * n_samples)


def slab_columns(shape: Shape, scaled: bool, memory_limit: int | None) -> int:
    """Return how many columns one scoring unit holds: whole tile columns, as many as the slab budget takes."""
    per_column = shape.n_samples * (shape.itemsize + (8 if scaled else 0))
    fitting = max(1, slab_budget(memory_limit) // per_column)
    wanted = (
        max(shape.tile_columns, -(-shape.n_features // MIN_PARALLEL))
        if shape.x_bytes > MIN_TILE_BYTES
        else shape.n_features
    )
    columns = min(fitting, wanted)
    if columns > shape.tile_columns:
        columns -= columns % shape.tile_columns
    return int(min(columns, shape.n_features))


def plan_scores(
    shape: Shape,
    methods: list[dict[str, Any]],
    weightings: Sequence[Weighting],
    scaled: bool,
    columns: int,
    process_bytes: int,
) -> Stage:
    """Stage that scores the slabs."""
    n_units = -(-shape.n_features // columns)
    # rows of some labels, rows with an edge, and steps of a rescaling are copies of one panel
    panel = 4 * shape.n_samples * min(columns, PANEL_WIDTH) * (8 if scaled else shape.itemsize)
    slab = shape.n_samples * columns * (shape.itemsize + (8 if scaled else 0))
    largest_k = max((w.n_neighbors for w in weightings), default=0)
    block = 120 * largest_k * min(block_rows(shape.n_samples), shape.n_samples)
    peak = (
        process_bytes
        + slab
        + panel
        + 4 * tile_bytes(shape)
        + block
        + 40 * shape.n_samples
        + conversion_bytes(PANEL_WIDTH)
    )
    graph_bytes = 17 * shape.n_samples * sum(w.n_neighbors for w in weightings)
    read = shape.x_bytes + n_units * graph_bytes
    written = len(methods) * 4 * 8 * shape.n_features
    return Stage("score", "score", n_units, {"methods": methods, "slab_columns": columns}, peak, read, written)
