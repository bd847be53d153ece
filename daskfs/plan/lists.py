"""Neighbor lists that the methods of a job need, and the stages that find them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from daskfs.criteria.registry import Method
from daskfs.errors import InputError, JobError
from daskfs.graph.engine import DESCENTS, foreign_cost, resolve_engine
from daskfs.graph.plan import plan_lists
from daskfs.graph.precomputed import Graph, NeighborLists
from daskfs.graph.principal_components import plan_components
from daskfs.graph.rows import searched_shape
from daskfs.graph.spec import GraphSpec, ListsSpec, MixedGraph, check_neighbors
from daskfs.kernels.neighbors.metrics import LENGTHS, check_columns, is_own
from daskfs.kernels.scaling import ends_with
from daskfs.stages.cost import COMPILED, Cost, Held, available_bytes
from daskfs.stages.stage import Stage
from daskfs.store.shape import Shape


def needed_lists(
    methods: Sequence[Method], n_samples: int, complete: Callable[[GraphSpec], GraphSpec] = lambda spec: spec
) -> dict[str, tuple[ListsSpec, int]]:
    """Return the neighbor lists that the methods need, with the largest number of neighbors, by name.

    Lists over X come first, as others are made from them. `complete` adds the search options to a spec of lists over X.
    """
    needed: dict[str, tuple[ListsSpec, int]] = {}
    for method in methods:
        for name, (lists, k) in method.parameters.lists(n_samples).items():
            if isinstance(lists, GraphSpec):
                lists = complete(lists)
            elif isinstance(lists, MixedGraph):
                lists = dataclasses.replace(lists, base=complete(lists.base))
            needed[name] = (lists, max(k, needed.get(name, (lists, 0))[1]))
    return dict(sorted(needed.items(), key=lambda item: not isinstance(item[1][0], GraphSpec)))


def plan_all_lists(
    shape: Shape,
    lists: Mapping[str, tuple[ListsSpec, int]],
    memory_limit: int | None,
    graph: Graph | None = None,
    *,
    pairwise: bool = False,
) -> list[Stage]:
    """Return the stages that find the neighbor lists of :func:`needed_lists`.

    Lists over X are left out if a graph is given. :class:`InputError` if there are too few rows, or sparse ones are to
    be centered. `pairwise`: values may be missing, and distances are over the features that both rows have.
    """
    stages: list[Stage] = []
    widths = {name: k for name, (_, k) in lists.items()}
    projected: set[str | None] = set()
    for spec, k in lists.values():
        if isinstance(spec, GraphSpec):
            if graph is not None:
                continue
            check_neighbors(k or 1, shape.n_samples)
            check_metric(spec, searched_shape(shape, spec))
            if spec.n_components is not None and spec.scaling not in projected:
                stages += plan_components(shape, spec)
                projected.add(spec.scaling)
        stages += plan_lists(shape, spec, k, memory_limit, widths, pairwise=pairwise)
    return stages


def limited_lists(lists: Mapping[str, tuple[ListsSpec, int]], graph: Graph) -> dict[str, tuple[ListsSpec, int]]:
    """Return the lists, with those over X no longer than precomputed lists."""
    longest = graph.n_neighbors if isinstance(graph, NeighborLists) else None
    return {
        name: (spec, min(k, longest) if longest and isinstance(spec, GraphSpec) else k)
        for name, (spec, k) in lists.items()
    }


def longest_given(lists: Mapping[str, tuple[ListsSpec, int]], graph: Graph) -> int:
    """Return the number of neighbors needed of each precomputed list; 0 for a matrix."""
    return lists[graph.name][1] if isinstance(graph, NeighborLists) else 0


def searches_cost(lists: Mapping[str, tuple[ListsSpec, int]], shape: Shape, memory_limit: int | None) -> Cost:
    """Return the memory that the compiled searches of the lists over X keep in a process."""
    items: list[Held] = []
    for spec, k in ((spec, k) for spec, k in lists.values() if isinstance(spec, GraphSpec)):
        searched = searched_shape(shape, spec)
        resolved = resolve_engine(spec, searched, available_bytes(memory_limit), k=k)
        items += [*((COMPILED,) if resolved.engine != "exact" else ()), *foreign_cost(resolved, searched)]
    return tuple(dict.fromkeys(items))


def check_metric(spec: GraphSpec, shape: Shape) -> None:
    """Raise :class:`InputError` for a metric that does not serve rows of a shape, or an engine that lacks it.

    Z-scored sparse rows are not centered, which would make them dense: only metrics that do not show it serve them.
    """
    is_shifted = spec.metric.partition("(")[0] in (*LENGTHS, "manhattan", "chebyshev", "minkowski")
    if shape.is_sparse and not is_shifted and ends_with(spec.read_scaling, "zscore"):
        msg = f"metric '{spec.metric}' with scaling '{spec.scaling}' needs dense X: sparse rows cannot be centered."
        raise InputError(msg)
    check_columns(spec.metric, shape.n_features, is_sparse=shape.is_sparse)
    if spec.engine in ("cells", "descent") and not is_own(spec.metric, is_sparse=shape.is_sparse):
        rows = ("sparse " * shape.is_sparse) + f"rows by metric '{spec.metric}'"
        msg = f"engine '{spec.engine}' does not compare {rows}: set engine to auto, exact or pynndescent."
        raise InputError(msg)


def check_pairwise(policy: str, lists: Mapping[str, tuple[ListsSpec, int]]) -> None:
    """Raise :class:`JobError` for lists over X whose metric or engine does not support the policy "pairwise"."""
    if policy != "pairwise":
        return
    for list_spec, _ in lists.values():
        spec = list_spec.base if isinstance(list_spec, MixedGraph) else list_spec
        if not isinstance(spec, GraphSpec):
            continue
        if spec.metric != "euclidean":
            msg = (
                f"graph.metric is {spec.metric}, and under data.missing: pairwise distances are Euclidean, over the "
                "features that both rows have: set graph.metric: euclidean, with transform.graph: unit where the "
                "lengths of rows should not count, or set data.missing: mean."
            )
            raise JobError(msg)
        if spec.n_components is not None:
            msg = (
                f"transform.graph is {spec.scaling}, and principal components need every value, of which "
                "data.missing: pairwise leaves some missing: set data.missing: mean, or leave 'pca' out."
            )
            raise JobError(msg)
        if spec.engine in DESCENTS:
            msg = (
                f"graph.engine is {spec.engine}, which finds few of the neighbors where data.missing is pairwise: set "
                "graph.engine: auto, exact or cells, or set data.missing: mean."
            )
            raise JobError(msg)
