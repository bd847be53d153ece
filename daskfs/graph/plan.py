"""Plan of the graph stages: neighbor lists, edges and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

import numpy as np

from daskfs.graph.components import EDGES_AT_ONCE
from daskfs.graph.descent import list_length
from daskfs.graph.edges import COMPARED_ENTRIES, EDGES_STAGE, EDGES_SUMMARY_STAGE, SCANNED_ENTRIES, WEIGHTS_STAGE
from daskfs.graph.engine import may_be_exact, resolved
from daskfs.graph.grouped import ASSIGN_STAGE, BUILD_STAGE, CELLS_STAGE, MERGE_STAGE
from daskfs.graph.median import DIGIT_BITS, HELD_VALUES, MEDIAN_PASSES
from daskfs.graph.mixed import MIXED_ENTRIES, MIXED_STAGE
from daskfs.graph.neighbors import NEIGHBORS_STAGE, RECALL_ROWS, RECALL_STAGE
from daskfs.graph.partition import (
    CHUNK_BYTES,
    block_rows,
    graph_dtype,
    index_dtype,
    member_bytes,
    partitioning,
    projected_columns,
    rows_at_a_merge,
    search_units,
    search_width,
    step_rows,
)
from daskfs.graph.space import (
    ASKED_ROWS,
    COMPONENT_CHOICES,
    FITTING_ROWS,
    FORCED_FEATURES,
    JUDGING_ROWS,
    SPARSE_COMPONENTS,
    directions,
)
from daskfs.graph.spec import TARGET_NAMES, GraphSpec, Lists, TargetGraph, Weighting
from daskfs.graph.target import TARGETS_STAGE, blocks_per_unit
from daskfs.kernels.cells import CALIBRATION_RANKS, CALIBRATION_ROWS, LARGE_CELL, MAX_PROBES, SAMPLE_PARTS
from daskfs.kernels.products import TILE_BYTES, part_rows
from daskfs.kernels.rows import PAIR_ELEMENTS, SPARSE_PAIR_VALUES
from daskfs.kernels.targets import COMPARED_ENTRIES as COMPARED_TARGETS
from daskfs.stages.cost import DESCENT_BYTES, PROCESS_BYTES, Cost, Fixed, MiB, available_bytes, total
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape, sample_rows
from daskfs.tiles.shapes import band_bytes, conversion_bytes

EDGES_BYTES = 256 * MiB
"""Lists of the rows whose edges one unit marks, and their marks."""
PLANNED_COPIES = 2.5
PLANNED_CELLS = 10
LABEL_BYTES = 20
"""Labels of a row, which of them are known, and their copy where some rows do not count."""


def plan_graph(
    shape: Shape, spec: GraphSpec, k: int, memory_limit: int | None = None, *, pairwise: bool = False
) -> list[Stage]:
    """Stages that find the neighbour lists of one graph and, for an approximate one, check them. `pairwise` says that
    values may be missing, and distances are over what both rows have.
    """
    available = available_bytes(memory_limit)
    asked, spec = spec, resolved(spec, shape, available, k=k, pairwise=pairwise)
    rows = shape.n_samples
    peak = PROCESS_BYTES + _members_bytes(shape, spec, rows) + 2 * band_bytes(shape) + _search_bytes(rows, shape)
    peak += _incomplete_bytes(rows, shape) if pairwise else 0
    if spec.engine != "exact":
        stages = _plan_groups(shape, spec, k, available, pairwise=pairwise)
        fits = available is None or peak - PROCESS_BYTES <= available
        if spec.engine != "cells" or not fits or not may_be_exact(asked, shape, k):
            return stages
        cells, assign, build, merge, recall = stages
        cells = replace(cells, parameters={**cells.parameters, "may_be_exact": True})
        return [cells, assign, build, replace(merge, peak_bytes=max(peak, merge.peak_bytes)), recall]
    n_units = len(search_units(rows))
    lists = (index_dtype(rows).itemsize + 8) * rows * k
    parameters = {"graph": asdict(spec), "k": k}
    return [
        Stage.of(
            NEIGHBORS_STAGE,
            f"neighbors-{spec.name}",
            n_units,
            parameters,
            (Fixed("rest", peak),),
            bytes_read=n_units * shape.x_bytes,
            bytes_written=lists,
        )
    ]


def plan_lists(
    shape: Shape,
    lists: Lists,
    k: int,
    memory_limit: int | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    pairwise: bool = False,
) -> list[Stage]:
    """Stages that find the neighbor lists of any kind; `widths` are the lengths of lists that are there by then, and
    `pairwise` is as of :func:`plan_graph`.
    """
    if isinstance(lists, GraphSpec):
        return plan_graph(shape, lists, k, memory_limit, pairwise=pairwise)
    n, index = shape.n_samples, index_dtype(shape.n_samples).itemsize
    block, per_unit = min(block_rows(n), n), blocks_per_unit(n)
    n_units = -(-n // (per_unit * block_rows(n)))
    parameters = {"lists": asdict(lists), "k": k, "blocks_per_unit": per_unit}
    # labels, their copy where some rows do not count, and what the sort holds; candidates by target; a block of lists
    peak = PROCESS_BYTES + 80 * n + 64 * min(COMPARED_TARGETS, 4 * k * block) + 3 * block * k * (index + 8)
    read, written = n_units * 8 * n, (index + 8) * n * k
    if isinstance(lists, TargetGraph):
        return [
            Stage.of(
                TARGETS_STAGE,
                f"targets-{lists.name}",
                n_units,
                parameters,
                (Fixed("rest", peak),),
                bytes_read=read,
                bytes_written=written,
            )
        ]
    width = (widths or {}).get(lists.base.name) or lists.n_candidates(n, k)
    parameters["n_candidates"] = min(lists.n_candidates(n, k), width)
    peak += 3 * block * width * (index + 8) + 128 * min(MIXED_ENTRIES, block * (width + 4 * k))
    read += -(-n // block) * block * width * (index + 8)
    return [
        Stage.of(
            MIXED_STAGE, lists.name, n_units, parameters, (Fixed("rest", peak),), bytes_read=read, bytes_written=written
        )
    ]


def _plan_groups(shape: Shape, spec: GraphSpec, k: int, available: int | None, *, pairwise: bool) -> list[Stage]:
    """Stages of an approximate search. Copies of rows are planned at 2.5; the data decide."""
    planned_cells = MAX_PROBES if pairwise else PLANNED_CELLS
    process, name, rows = PROCESS_BYTES, spec.name, shape.n_samples
    if spec.engine == "pynndescent":
        process += DESCENT_BYTES
        available = None if available is None else max(available - DESCENT_BYTES, MiB)
    columns = spec.projection if isinstance(spec.projection, int) else shape.n_features
    if shape.is_sparse or (spec.projection == "auto" and shape.n_features > FORCED_FEATURES):
        columns = min(columns, SPARSE_COMPONENTS if shape.is_sparse else COMPONENT_CHOICES[-1])
    sampled = sample_rows(shape).size
    turned = directions(shape.n_features, spec.projection) if shape.is_sparse else projected_columns(spec)
    basis = 4 * turned * shape.n_features
    beside = 4 * CHUNK_BYTES + 3 * TILE_BYTES + sampled * columns // 2  # read buffers, products, centers
    if spec.engine == "pynndescent":
        beside += 18 * (list_length(k) + 1) ** 2 * 16384
    if pairwise:
        beside += _incomplete_bytes(LARGE_CELL, shape)
    plan = partitioning(shape, spec, k, None if available is None else max(available - beside, MiB), pairwise=pairwise)
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
    if pairwise:  # the sample stays, to be measured, a part of it at a time
        sample += sampled * (max(row_bytes, scaled) + (4 * shape.n_features + values) // SAMPLE_PARTS)
        sample += _incomplete_bytes(sampled, shape)
    if shape.is_sparse and turned:
        # what finds the directions; the rows that judge them, and their distances
        sample += 24 * turned * (min(2 * FITTING_ROWS, sampled) + shape.n_features)
        sample += min(2 * JUDGING_ROWS, sampled) * (3 * values + 24 * ASKED_ROWS)
    index = index_dtype(rows).itemsize
    copies = int(PLANNED_COPIES * rows)
    spilled = copies * (row_bytes + 8 + 4 * planned_cells)
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
    assign += unit_rows * 3 * (24 + 4 * planned_cells) + (4 * unit_rows * row_bytes if shape.is_sparse else 0)
    assign += 4 * min(TILE_BYTES, 4 * step * 1024)
    members = plan.max_members * member_bytes(shape, spec, k)
    build = process + members + beside
    if pairwise:
        assign += _incomplete_bytes(step, shape)
        more = search_width(spec, k, pairwise=True) - search_width(spec, k)
        build += 24 * more * plan.max_members
    merged = min(rows, plan.blocks_per_unit * block_rows(rows))
    merge = process + 3 * merged * k * (index + 8) * 3 + min(merged, block_rows(rows)) * k * 12
    merge += min(merged, rows_at_a_merge(k)) * k * 300
    recall = n_assign * min(RECALL_ROWS, sampled) * k * 8
    close = process + 4 * recall + 16 * min(block_rows(rows), rows) * k
    until = f"recall-{name}"
    return [
        Stage.of(
            CELLS_STAGE,
            f"cells-{name}",
            1,
            parameters,
            (Fixed("rest", process + sample + centers),),
            bytes_read=sampled * row_bytes,
            bytes_written=cut + asked,
        ),
        Stage.of(
            ASSIGN_STAGE,
            f"assign-{name}",
            n_assign,
            parameters,
            (Fixed("rest", assign),),
            bytes_read=shape.x_bytes + n_assign * (cut + asked),
            bytes_written=spilled + recall,
            needed_until=until,
        ),
        Stage.of(
            BUILD_STAGE,
            f"build-{name}",
            plan.n_groups,
            parameters,
            (Fixed("rest", build),),
            bytes_read=unspilled,
            bytes_written=lists,
            needed_until=until,
        ),
        Stage.of(
            MERGE_STAGE,
            f"merge-{name}",
            n_merge,
            parameters,
            (Fixed("rest", merge),),
            bytes_read=lists,
            bytes_written=(index + 8) * rows * k,
        ),
        Stage.of(
            RECALL_STAGE,
            until,
            1,
            parameters,
            (Fixed("rest", close),),
            bytes_read=recall + 8 * rows * k,
            clears=layout.SPILL.format(name),
        ),
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
    pairs = 100 * SPARSE_PAIR_VALUES if shape.is_sparse else 4 * 8 * PAIR_ELEMENTS
    return 4 * min(TILE_BYTES, 4 * rows * 1024) + pairs + conversion_bytes(shape.n_features)


def _incomplete_bytes(n_base: int, shape: Shape) -> int:
    """Bytes of comparing rows that lack values with so many others, beyond what complete ones take."""
    if shape.is_sparse:  # norms, products, numbers of shared columns and bounds
        return 3 * TILE_BYTES
    tile = int(np.clip(TILE_BYTES // max(4 * n_base, 16 * shape.n_features), 8, 1024))
    part = part_rows(tile, shape.n_features)
    # both bounds in the place of one product, marks and squares of rows in float64, and what is known of their pairs
    return 2 * min(TILE_BYTES, 8 * n_base * tile) + 48 * (tile + part) * shape.n_features + 48 * tile * part


def plan_edges(n_samples: int, graph: str, k: int, process: Cost, width: int | None = None) -> list[Stage]:
    """Stages that mark each edge once and describe the graph.

    Parameters
    ----------
    n_samples, graph, k
        Number of rows, name of the neighbour lists, and how much of each list makes the graph.
    process
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
    peak = total(process) + min(blocks * size, n_samples) * row_bytes + scan
    stored = -(-n_samples // size) * size  # whole chunks count
    # a unit reads the lists of its own rows and of all before them
    rows_read = sum(min((unit + 1) * blocks * size, stored) for unit in range(n_units))
    parameters = {"name": graph, "n_neighbors": k}
    describe = total(process) + 24 * n_samples + stream_bytes(n_samples, k, width) + 128 * min(EDGES_AT_ONCE, size * k)
    read = stored * (2 * k + (itemsize + 16) * width)
    if graph in TARGET_NAMES:  # labels say which rows are nodes
        describe, read = describe + LABEL_BYTES * n_samples, read + 8 * n_samples
    return [
        Stage.of(
            EDGES_STAGE,
            f"edges-{graph}-{k}",
            n_units,
            {**parameters, "blocks_per_unit": blocks},
            (Fixed("rest", peak),),
            bytes_read=rows_read * width * itemsize,
            bytes_written=n_samples * k,
        ),
        Stage.of(
            EDGES_SUMMARY_STAGE,
            f"edges-summary-{graph}-{k}",
            1,
            parameters,
            (Fixed("rest", describe),),
            bytes_read=read,
        ),
    ]


def stream_bytes(n_samples: int, k: int, width: int) -> int:
    """Bytes of one block of edges, of the one before it, and of the chunks it is read from."""
    return min(block_rows(n_samples), n_samples) * (60 * k + 36 * width)


def plan_weights(n_samples: int, weighting: Weighting, process: Cost, width: int | None = None) -> Stage:
    """Stage that sums the degrees of one weighting, on lists of length `width`."""
    k = weighting.n_neighbors
    width = width or k
    peak = total(process) + 24 * n_samples + stream_bytes(n_samples, k, width)
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
    return Stage.of(
        WEIGHTS_STAGE,
        f"weights-{weighting.key}",
        1,
        parameters,
        (Fixed("rest", peak),),
        bytes_read=read,
        bytes_written=8 * n_samples,
    )
