"""Plan of the graph stages: neighbor lists, edges and weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from daskfs.graph.edges import (
    EDGES_STAGE,
    EDGES_SUMMARY_STAGE,
    ENTRIES_STAGE,
    GIVEN,
    MEDIAN_STAGE,
    WEIGHTS_STAGE,
    EdgesParameters,
    EdgesSummaryParameters,
    OneGraph,
    Stretches,
    WeightsParameters,
    edge_bytes,
    goes_by_labels,
    holds_edges,
    incoming_edges,
    own_lists,
    stored_edges,
)
from daskfs.graph.engine import foreign_cost, replacements, resolve_engine
from daskfs.graph.mixed import MIXED_STAGE, MixedParameters
from daskfs.graph.neighbors import NEIGHBORS_STAGE, RECALL_STAGE, ListsParameters, SearchParameters
from daskfs.graph.partition import Partitioning, block_rows, largest_block, partition_rows, search_units
from daskfs.graph.partitioned_search import ASSIGN_STAGE, BUILD_STAGE, CELLS_STAGE, MERGE_STAGE, CellsParameters
from daskfs.graph.rows import searched_shape
from daskfs.graph.sizes import Search, group_cost
from daskfs.graph.spec import TARGET_NAMES, Engine, GraphSpec, ListsSpec, TargetGraph, Weighting
from daskfs.graph.target import (
    TARGETS_MERGE_STAGE,
    TARGETS_STAGE,
    TargetsParameters,
    blocks_per_unit,
    merged_blocks,
    n_ranges,
)
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.cells import MAX_PROBES
from daskfs.kernels.statistics.streaming_median import MEDIAN_PASSES
from daskfs.run_warning import LIMITS, RunWarning
from daskfs.stages.cost import HALF_WORD, PROCESS, WORD, Cost, MiB, available_bytes, fullest, total
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import chunk_bytes, row_bytes

EDGES_BYTES = 256 * MiB
"""Bytes of the lists of an "edges" unit's rows, and their marks."""
SENT_ENTRIES = 2**23
"""List entries of an "entries" unit."""
PLANNED_COPIES = 2.5
"""Estimated number of groups that a row visits."""
PLANNED_CELLS = 10
"""Estimated number of cells that a row probes in each group."""


def plan_graph(
    shape: Shape, spec: GraphSpec, k: int, memory_limit: int | None = None, *, pairwise: bool = False
) -> list[Stage]:
    """Return the stages that find neighbor lists over X and, for an approximate search, estimate their recall.

    `shape` is that of X. `pairwise` means that values may be missing, and distances are over the columns that both rows
    have. Principal components are found before, by :func:`~daskfs.graph.principal_components.plan_components`.
    """
    available, shape = available_bytes(memory_limit), searched_shape(shape, spec)
    others, spec = replacements(spec, shape, k), resolve_engine(spec, shape, available, k=k)
    if spec.engine == "exact":
        n, n_units = shape.n_samples, len(search_units(shape.n_samples))
        return [
            Stage.of(
                NEIGHBORS_STAGE,
                f"neighbors-{spec.name}",
                n_units,
                ListsParameters(spec, k, _foreign_version(shape, spec)),
                NEIGHBORS_STAGE.cost(shape, spec, k, largest_block(n), pairwise=pairwise),
                bytes_read=n_units * chunk_bytes(shape),
                bytes_written=n * k * _entry_bytes(n),
            )
        ]
    cells_per_copy = MAX_PROBES if pairwise else PLANNED_CELLS
    search = Search(shape, spec, k, PLANNED_COPIES, cells_per_copy, pairwise)
    # a process that has only searched has room for the compiled passes in what the bare one is planned with
    room = None if available is None else max(available - total(group_cost(search)), MiB)
    plan = partition_rows(shape, spec, k, room, pairwise=pairwise)
    exact = NEIGHBORS_STAGE.cost(shape, spec, k, plan.merged(shape.n_samples, 0).stop, pairwise=pairwise)
    if available is not None and total(exact) > available + PROCESS.nbytes:
        others = [engine for engine in others if engine != "exact"]
    return _search_in_groups(search, plan, others, exact)


def search_warnings(stages: Iterable[Stage], n_samples: int) -> Iterator[RunWarning]:
    """Warn of each search whose cells exceed the memory of a worker, as wide rows give few cells."""
    for stage in stages:
        if (parameters := stage.parameters_of(CELLS_STAGE)) is None:
            continue
        plan, name = parameters.partitioning, parameters.graph.name
        if (rows := n_samples // plan.n_cells) > plan.max_members:
            text = (
                f"rows are wide, so that the sample gives {plan.n_cells:,} cells of some {rows:,} rows, "
                f"and a worker has memory for {plan.max_members:,}: cells are searched in pieces, and fewer neighbors "
                "are found. Compare rows in principal components, as by transform: "
                "{graph: zscore+pca=50}, or raise cluster.memory_limit"
            )
            yield RunWarning("search in pieces", LIMITS, text, (name,), "graph")


def _foreign_version(shape: Shape, spec: GraphSpec) -> str | None:
    return version("pynndescent") if foreign_cost(spec, shape) else None


def _entry_bytes(n_samples: int) -> int:
    """Return the bytes of a neighbor list entry: a row number and a distance."""
    return index_dtype(n_samples).itemsize + WORD


def plan_lists(
    shape: Shape,
    lists: ListsSpec,
    k: int,
    memory_limit: int | None = None,
    widths: Mapping[str, int] | None = None,
    *,
    pairwise: bool = False,
) -> list[Stage]:
    """Return the stages that find neighbor lists of any kind.

    `widths` are the lengths of lists found by earlier stages; `pairwise` is that of :func:`plan_graph`.
    """
    if isinstance(lists, GraphSpec):
        return plan_graph(shape, lists, k, memory_limit, pairwise=pairwise)
    if isinstance(lists, TargetGraph):
        return _plan_by_target(shape.n_samples, lists, k)
    n, per_unit = shape.n_samples, blocks_per_unit(shape.n_samples)
    n_units = -(-n // (per_unit * block_rows(n)))
    width = (widths or {}).get(lists.base.name) or lists.n_candidates(n, k)
    parameters = MixedParameters(lists, k, min(lists.n_candidates(n, k), width), per_unit)
    cost = MIXED_STAGE.cost(n, k, width, (PROCESS,))
    read, written = n_units * WORD * n + _stored_rows(n) * width * _entry_bytes(n), n * k * _entry_bytes(n)
    return [Stage.of(MIXED_STAGE, lists.name, n_units, parameters, cost, bytes_read=read, bytes_written=written)]


def _plan_by_target(n_samples: int, lists: TargetGraph, k: int) -> list[Stage]:
    n_units, blocks = n_ranges(n_samples), merged_blocks(n_samples, k)
    parameters = TargetsParameters(lists, k, n_units, blocks)
    listed = n_samples * (k * _entry_bytes(n_samples) + WORD)
    merge = Stage.of(
        TARGETS_MERGE_STAGE,
        f"targets-merge-{lists.name}",
        -(-n_samples // (blocks * block_rows(n_samples))),
        parameters,
        TARGETS_MERGE_STAGE.cost(n_samples, k, (PROCESS,)),
        bytes_read=listed,
        bytes_written=n_samples * k * _entry_bytes(n_samples),
        clears=layout.SPILL.format(lists.name),
    )
    find = Stage.of(
        TARGETS_STAGE,
        f"targets-{lists.name}",
        n_units,
        parameters,
        TARGETS_STAGE.cost(n_samples, k, (PROCESS,)),
        bytes_read=2 * n_units * 2 * WORD * n_samples,  # labels and weights: where ranges are cut, and their rows
        bytes_written=listed,
        needed_until=merge.name,
    )
    return [find, merge]


def _search_in_groups(search: Search, plan: Partitioning, others: list[Engine], exact: Cost) -> list[Stage]:
    """Return the stages of an approximate search with rows distributed over groups.

    The sample may replace the engine by `others`, exact search at the memory cost `exact`.
    """
    shape, spec = search.shape, search.spec
    parameters = SearchParameters(spec, search.k, _foreign_version(shape, spec), plan)
    process = (PROCESS, *foreign_cost(spec, shape))
    n, n_assigning, last = shape.n_samples, plan.assign_units(shape), f"{RECALL_STAGE.name}-{spec.name}"
    # the centers, the directions, and the mean row
    centers = search.columns * (plan.n_cells + plan.n_groups)
    space = HALF_WORD * (centers + search.n_directions * shape.n_features) + WORD * shape.n_features
    # the space, and the queries for the recall
    cut = space + search.n_asked * shape.n_features * search.dtype.itemsize
    # the distances of the recall queries from all "assign" units
    distances = n_assigning * search.n_asked * search.k * WORD

    def stage(kind: StageKind[Any], n_units: int, parameters: SearchParameters = parameters, **more: Any) -> Stage:
        return Stage.of(kind, f"{kind.name}-{spec.name}", n_units, parameters, kind.cost(search, plan, process), **more)

    cutting = CellsParameters(spec, search.k, parameters.pynndescent, plan, tuple(others))
    cells = stage(CELLS_STAGE, 1, cutting, bytes_read=search.n_sampled * row_bytes(shape), bytes_written=cut)
    assign = stage(
        ASSIGN_STAGE,
        n_assigning,
        bytes_read=shape.x_bytes + n_assigning * cut,
        bytes_written=search.spilled_bytes + distances,
        needed_until=last,
    )
    build = stage(
        BUILD_STAGE,
        plan.n_groups,
        bytes_read=search.spilled_bytes + plan.n_groups * space,
        bytes_written=search.found_bytes,
        needed_until=last,
    )
    written = n * search.k * _entry_bytes(n)
    merge = stage(MERGE_STAGE, plan.merge_units(n), bytes_read=search.found_bytes, bytes_written=written)
    if "exact" in others:  # by units of "merge"
        merge = merge.costing(fullest(exact, merge.cost))
    recall = stage(RECALL_STAGE, 1, bytes_read=distances + WORD * n * search.k, clears=layout.SPILL.format(spec.name))
    return [cells, assign, build, merge, recall]


def cut_stretches(n_samples: int, k: int) -> Stretches:
    """Return the stretches of rows of lists of which k entries make the graph."""
    size, n_blocks = largest_block(n_samples), _n_blocks(n_samples)
    sent = max(1, min(SENT_ENTRIES // (size * k), n_blocks))
    whole = EDGES_BYTES // (sent * total(own_lists(n_samples, size, k)))
    return Stretches(n_samples, max(1, whole) * sent, sent)


def plan_edges(n_samples: int, graph: str, k: int, process: Cost, width: int | None = None) -> list[Stage]:
    """Return the stages that mark each edge once and summarize the graph, k entries of each list.

    `width` is the length of the lists, None for k; `process` is the memory of the bare process.
    """
    width, stretches, stored = width or k, cut_stretches(n_samples, k), _stored_rows(n_samples)
    index = index_dtype(n_samples).itemsize
    parameters, entry = EdgesParameters(graph, k, stretches), 2 * index + WORD
    is_sent = stretches.n_sending > 0
    received = is_sent * 2 * n_samples * k * entry  # parts of chunks are read whole
    edges = Stage.of(
        EDGES_STAGE,
        f"edges-{graph}-{k}",
        len(stretches),
        parameters,
        EDGES_STAGE.cost(n_samples, min(stretches.rows_each, n_samples), k, width, process),
        bytes_read=stored * width * (index + WORD) + received,
        bytes_written=edge_bytes(n_samples, k) + is_sent * n_samples * k * entry,
        clears=layout.EDGES_SENT.format(graph, k) if is_sent else "",
    )
    describe = Stage.of(
        EDGES_SUMMARY_STAGE,
        f"edges-summary-{graph}-{k}",
        1,
        EdgesSummaryParameters(graph, k, holds_edges(n_samples * k)),
        EDGES_SUMMARY_STAGE.cost(n_samples, stored_edges(n_samples, k), n_samples * k, process),
        bytes_read=edge_bytes(n_samples, k) + (WORD * n_samples if graph in TARGET_NAMES else 0),
    )
    if not is_sent:
        return [edges, describe]
    entries = Stage.of(
        ENTRIES_STAGE,
        f"entries-{graph}-{k}",
        stretches.n_sending,
        parameters,
        ENTRIES_STAGE.cost(n_samples, stretches.rows_sent, k, width, process),
        bytes_read=stored * width * (index + WORD),
        bytes_written=n_samples * k * entry,
        needed_until=edges.name,
    )
    return [entries, edges, describe]


def _n_blocks(n_samples: int) -> int:
    return -(-n_samples // block_rows(n_samples))


def _stored_rows(n_samples: int) -> int:
    """Return the number of rows of stored lists, which are read in whole blocks."""
    return _n_blocks(n_samples) * largest_block(n_samples)


def plan_weights(n_samples: int, weightings: Iterable[Weighting], process: Cost) -> list[Stage]:
    """Return the stages that sum the degrees of some weightings."""
    medians, weights = {}, []
    for weighting in weightings:
        graph, k = weighting.graph, weighting.n_neighbors
        if weighting.weights == "heat" and weighting.t == "median" and graph != GIVEN:
            parameters, cost = OneGraph(graph, k), MEDIAN_STAGE.cost(n_samples, k, process)
            read = MEDIAN_PASSES * edge_bytes(n_samples, k)
            medians[graph, k] = Stage.of(MEDIAN_STAGE, f"median-{graph}-{k}", 1, parameters, cost, bytes_read=read)
        weights.append(_weighing(n_samples, weighting, process))
    return [*medians.values(), *weights]


def _weighing(n_samples: int, weighting: Weighting, process: Cost) -> Stage:
    k, is_given = weighting.n_neighbors, weighting.graph == GIVEN
    # a precomputed matrix has one stretch
    whole = Stretches(n_samples, _n_blocks(n_samples), _n_blocks(n_samples))
    stretches = whole if is_given else cut_stretches(n_samples, k)
    streamed: Cost = ()
    read = 2 * WORD * n_samples * len(stretches) if goes_by_labels(weighting) else 0
    if not is_given:
        incoming = n_samples * k * (_entry_bytes(n_samples) + index_dtype(n_samples).itemsize)
        facts = 2 * len(stretches) * WORD * len(layout.EDGE_FACTS) * _n_blocks(n_samples)
        streamed = (*stored_edges(n_samples, k), *incoming_edges(n_samples, k))
        read += edge_bytes(n_samples, k) + bool(stretches.n_sending) * incoming + facts
    rows = min(stretches.rows_each, n_samples)
    return Stage.of(
        WEIGHTS_STAGE,
        f"weights-{weighting.key}",
        len(stretches),
        WeightsParameters(weighting, stretches),
        WEIGHTS_STAGE.cost(n_samples, rows, weighting, streamed, process),
        bytes_read=read,
        bytes_written=WORD * n_samples,
    )
