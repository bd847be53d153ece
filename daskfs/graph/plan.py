"""Plan of the graph stages: neighbor lists, edges and weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from daskfs.graph.edges import (
    EDGES_STAGE,
    EDGES_SUMMARY_STAGE,
    WEIGHTS_STAGE,
    goes_by_labels,
    listed_edges,
    own_lists,
)
from daskfs.graph.engine import replacements, resolve_engine
from daskfs.graph.mixed import MIXED_STAGE
from daskfs.graph.neighbors import NEIGHBORS_STAGE, RECALL_STAGE
from daskfs.graph.partition import (
    Partitioning,
    block_rows,
    index_dtype,
    largest_block,
    partition_rows,
    search_units,
)
from daskfs.graph.partitioned_search import ASSIGN_STAGE, BUILD_STAGE, CELLS_STAGE, MERGE_STAGE
from daskfs.graph.rows import searched_shape
from daskfs.graph.sizes import Search, group_cost
from daskfs.graph.spec import TARGET_NAMES, Engine, GraphSpec, Lists, TargetGraph, Weighting
from daskfs.graph.streaming_median import MEDIAN_PASSES
from daskfs.graph.target import TARGETS_STAGE, blocks_per_unit
from daskfs.kernels.neighbors.cells import MAX_PROBES
from daskfs.stages.cost import HALF_WORD, PROCESS, WORD, Cost, MiB, available_bytes, fullest, total
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.tiles import Shape
from daskfs.tiles.shapes import chunk_bytes

EDGES_BYTES = 256 * MiB
"""Bytes of the lists of an "edges" unit's rows, and their marks."""
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
        return [_exact_search(shape, spec, k, pairwise=pairwise)]
    cells_per_copy = MAX_PROBES if pairwise else PLANNED_CELLS
    search = Search(shape, spec, k, PLANNED_COPIES, cells_per_copy, pairwise)
    groups = _Groups.of(search, available)
    exact = NEIGHBORS_STAGE.cost(
        shape, spec, k, groups.plan.largest_merge(shape.n_samples), (PROCESS,), pairwise=pairwise
    )
    if available is not None and total(exact) > available + PROCESS.nbytes:
        others = [engine for engine in others if engine != "exact"]
    return groups.stages(others, exact)


def _exact_search(shape: Shape, spec: GraphSpec, k: int, *, pairwise: bool) -> Stage:
    n = shape.n_samples
    n_units = len(search_units(n))
    return Stage.of(
        NEIGHBORS_STAGE,
        f"neighbors-{spec.name}",
        n_units,
        {"graph": asdict(spec), "k": k},
        NEIGHBORS_STAGE.cost(shape, spec, k, largest_block(n), (PROCESS,), pairwise=pairwise),
        bytes_read=n_units * chunk_bytes(shape),
        bytes_written=n * k * _entry_bytes(n),
    )


def _entry_bytes(n_samples: int) -> int:
    """Return the bytes of a neighbor list entry: a row number and a distance."""
    return index_dtype(n_samples).itemsize + WORD


def plan_lists(
    shape: Shape,
    lists: Lists,
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
    n, per_unit = shape.n_samples, blocks_per_unit(shape.n_samples)
    n_units = -(-n // (per_unit * block_rows(n)))
    parameters = {"lists": asdict(lists), "k": k, "blocks_per_unit": per_unit}
    traffic = {"bytes_read": n_units * WORD * n, "bytes_written": _entry_bytes(n) * n * k}
    if isinstance(lists, TargetGraph):
        cost = TARGETS_STAGE.cost(n, k, (PROCESS,))
        return [Stage.of(TARGETS_STAGE, f"targets-{lists.name}", n_units, parameters, cost, **traffic)]
    width = (widths or {}).get(lists.base.name) or lists.n_candidates(n, k)
    parameters["n_candidates"] = min(lists.n_candidates(n, k), width)
    traffic["bytes_read"] += _n_blocks(n) * largest_block(n) * width * _entry_bytes(n)
    cost = MIXED_STAGE.cost(n, k, width, (PROCESS,))
    return [Stage.of(MIXED_STAGE, lists.name, n_units, parameters, cost, **traffic)]


@dataclass(frozen=True)
class _Groups:
    """Stages of an approximate search with rows distributed over groups."""

    search: Search
    plan: Partitioning

    @classmethod
    def of(cls, search: Search, available: int | None) -> _Groups:
        """Choose the groups such that units fit `available` bytes in addition to their process."""
        # a process that has only searched has room for the compiled passes in what the bare one is planned with
        room = None if available is None else max(available - total(group_cost(search)), MiB)
        plan = partition_rows(search.shape, search.spec, search.k, room, pairwise=search.pairwise)
        return cls(search, plan)

    def stages(self, others: list[Engine], exact: Cost) -> list[Stage]:
        """Return the stages in order; the sample may replace the engine by `others`, exact search at a cost."""
        cells, merge = self._cells(), self._merge()
        cells = replace(cells, parameters={**cells.parameters, "others": others})
        if "exact" in others:  # by units of "merge"
            merge = merge.costing(fullest(exact, merge.cost))
        return [cells, self._assign(), self._build(), merge, self._recall()]

    def _cells(self) -> Stage:
        read = self.search.n_sampled * self.search.row_bytes
        return self._stage(CELLS_STAGE, 1, bytes_read=read, bytes_written=self._cut_bytes)

    def _assign(self) -> Stage:
        return self._stage(
            ASSIGN_STAGE,
            self._n_assigning,
            bytes_read=self.search.shape.x_bytes + self._n_assigning * self._cut_bytes,
            bytes_written=self._spilled_bytes + self._recall_bytes,
            needed_until=self._name(RECALL_STAGE),
        )

    def _build(self) -> Stage:
        plan, search = self.plan, self.search
        # the rows of a group from one "assign" unit begin and end within a chunk
        ends = self._n_assigning * plan.n_groups * plan.chunk_rows * search.row_bytes
        return self._stage(
            BUILD_STAGE,
            plan.n_groups,
            bytes_read=self._spilled_bytes + ends + plan.n_groups * self._space_bytes,
            bytes_written=self._found_bytes,
            needed_until=self._name(RECALL_STAGE),
        )

    def _merge(self) -> Stage:
        n = self.search.shape.n_samples
        written = n * self.search.k * _entry_bytes(n)
        return self._stage(MERGE_STAGE, self.plan.merge_units(n), bytes_read=self._found_bytes, bytes_written=written)

    def _recall(self) -> Stage:
        read = self._recall_bytes + WORD * self.search.shape.n_samples * self.search.k
        return self._stage(RECALL_STAGE, 1, bytes_read=read, clears=layout.SPILL.format(self.search.spec.name))

    def _stage(self, kind: StageKind, n_units: int, **own: Any) -> Stage:
        search, plan = self.search, self.plan
        parameters = {"graph": asdict(search.spec), "k": search.k, "partitioning": asdict(plan)}
        return Stage.of(kind, self._name(kind), n_units, parameters, kind.cost(search, plan, (PROCESS,)), **own)

    def _name(self, kind: StageKind) -> str:
        return f"{kind.name}-{self.search.spec.name}"

    @property
    def _n_assigning(self) -> int:
        return self.plan.assign_units(self.search.shape)

    @property
    def _space_bytes(self) -> int:
        """Bytes of the centers, the directions, and the mean row."""
        search, plan, n_features = self.search, self.plan, self.search.shape.n_features
        centers = search.columns * (plan.n_cells + plan.n_groups)
        return HALF_WORD * (centers + search.n_directions * n_features) + WORD * n_features

    @property
    def _cut_bytes(self) -> int:
        """Bytes of the outputs of "cells": the space, and the queries for the recall."""
        search = self.search
        return self._space_bytes + search.n_asked * search.shape.n_features * search.dtype.itemsize

    @property
    def _spilled_bytes(self) -> int:
        """Bytes of the rows of all groups, each with its number and the cells it probes."""
        search = self.search
        return search.n_copies * (search.row_bytes + WORD + HALF_WORD * search.cells_per_copy)

    @property
    def _found_bytes(self) -> int:
        """Bytes of the lists of all groups, each with its row number."""
        search = self.search
        return search.n_copies * (WORD + _entry_bytes(search.shape.n_samples) * search.k)

    @property
    def _recall_bytes(self) -> int:
        """Bytes of the distances of the recall queries from all "assign" units."""
        return self._n_assigning * self.search.n_asked * self.search.k * WORD


def plan_edges(n_samples: int, graph: str, k: int, process: Cost, width: int | None = None) -> list[Stage]:
    """Return the stages that mark each edge once and summarize the graph.

    Parameters
    ----------
    n_samples, graph, k
        Number of rows, name of the neighbor lists, and entries of each list that make the graph.
    process
        Memory cost of the bare process.
    width
        Length of the lists; None for k.
    """
    width = width or k
    return [_marking(n_samples, graph, k, process, width), _describing(n_samples, graph, k, process, width)]


def _marking(n_samples: int, graph: str, k: int, process: Cost, width: int) -> Stage:
    size, n_blocks = largest_block(n_samples), _n_blocks(n_samples)
    blocks = max(1, min(EDGES_BYTES // total(own_lists(n_samples, size, k)), n_blocks))
    n_units = -(-n_blocks // blocks)
    # a unit reads the lists of its own rows and of all lower ones
    rows_read = size * sum(min((unit + 1) * blocks, n_blocks) for unit in range(n_units))
    return Stage.of(
        EDGES_STAGE,
        f"edges-{graph}-{k}",
        n_units,
        {"name": graph, "n_neighbors": k, "blocks_per_unit": blocks},
        EDGES_STAGE.cost(n_samples, min(blocks * size, n_samples), k, width, process),
        bytes_read=rows_read * width * index_dtype(n_samples).itemsize,
        bytes_written=n_samples * k,
    )


def _describing(n_samples: int, graph: str, k: int, process: Cost, width: int) -> Stage:
    size, by_label = largest_block(n_samples), graph in TARGET_NAMES  # only labeled rows are nodes
    # marks and lengths are read again for a histogram
    row_bytes = 2 * k + (_entry_bytes(n_samples) + WORD) * width
    streamed = listed_edges(n_samples, k, width)
    return Stage.of(
        EDGES_SUMMARY_STAGE,
        f"edges-summary-{graph}-{k}",
        1,
        {"name": graph, "n_neighbors": k},
        EDGES_SUMMARY_STAGE.cost(n_samples, streamed, size * k, process, by_label=by_label),
        bytes_read=_n_blocks(n_samples) * size * row_bytes + (WORD * n_samples if by_label else 0),
    )


def _n_blocks(n_samples: int) -> int:
    """Return the number of blocks of rows of stored lists; blocks are read whole."""
    return -(-n_samples // block_rows(n_samples))


def plan_weights(n_samples: int, weighting: Weighting, process: Cost, width: int | None = None) -> Stage:
    """Return the stage that sums the degrees of one weighting, for lists of length `width` (None for k)."""
    k = weighting.n_neighbors
    width = width or k
    passes = MEDIAN_PASSES if weighting.t == "median" else int(isinstance(weighting.t, str))
    stored = _n_blocks(n_samples) * largest_block(n_samples)
    read = stored * (k + _entry_bytes(n_samples) * width + passes * (k + WORD * width))
    read += 2 * WORD * n_samples if goes_by_labels(weighting) else 0
    return Stage.of(
        WEIGHTS_STAGE,
        f"weights-{weighting.key}",
        1,
        {"weighting": asdict(weighting)},
        WEIGHTS_STAGE.cost(n_samples, weighting, width, process),
        bytes_read=read,
        bytes_written=WORD * n_samples,
    )
