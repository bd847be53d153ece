"""Stages "sample-candidates" and "sample-lists": neighbor lists among the rows that selections see.

Lists over X are found once per set of rows and shared, or taken from the run if the set is all rows. A precomputed
graph is restricted to each set of rows instead.

Notes
-----
The nearest training rows of a training row are the first training rows of its list among all rows in use. So one search
with longer lists, the candidates, serves all folds, if a distance depends on its two rows alone and both searches are
exact: what an approximate engine finds depends on the other rows, which would let test rows show. Rows that have too
few training rows among their candidates, or some that may be tied, are searched anew: the lists are equal to the bit
to those of a search within the fold.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.evaluation.design import Design, EvaluationParameters
from daskfs.evaluation.rows import VisibleRows, rows_of_sample, sample_cost, seen_by, seen_cost
from daskfs.graph.engine import resolve_engine
from daskfs.graph.induced import induced_lists, induced_matrix
from daskfs.graph.partition import open_lists, read_members
from daskfs.graph.representation import put_representation
from daskfs.graph.rows import read_own_rows, searched_shape, searched_tiles
from daskfs.graph.spec import GraphSpec, ListsSpec
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import is_own
from daskfs.kernels.neighbors.rows import Rows, prepare_rows
from daskfs.kernels.scaling import Steps, steps_of
from daskfs.plan.chain import Chain
from daskfs.plan.inline import data_of, memory_context, run_all
from daskfs.plan.lists import needed_lists
from daskfs.stages.cost import Array, Cost, available_bytes
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store

NeighborTables = dict[str, tuple[np.ndarray, np.ndarray]]
ListsOverRows = dict[str, tuple[GraphSpec, int]]
LENGTHENING = 2
"""Length of the candidates of a row, relative to its list. With k = 10 and four of five rows in the fold, .06 % of the
rows have fewer than k training rows among 2 k, and .6 % with k = 5."""
SURELY_FARTHER = 1 + 2.0**-30
"""Ratio of distances that are surely not tied, if only by rows between them: each step of such a chain is 2**-40."""
HIDING = ("true_angular", "dot", "direct_cosine")
"""Metrics whose distances hide ties: nearly equal squared distances may be far apart, or different ones be 1."""
CANDIDATE_ROWS = 4096
"""Rows whose candidates one unit finds."""


def lists_over_rows(methods: Sequence[Method], n_rows: int, search: GraphSpec) -> ListsOverRows:
    """Return the lists over X that some methods need, for `n_rows` rows, by name; `search` has the options."""
    needed = needed_lists(methods, n_rows, search.for_lists)
    return {name: (spec, k) for name, (spec, k) in needed.items() if isinstance(spec, GraphSpec)}


# ----------------------------------------------------------------------------------------------------------- candidates
def follows_from_candidates(spec: GraphSpec, shape: Shape, k: int, memory_limit: int | None) -> bool:
    """Return whether the lists of some rows, of shape `shape`, follow from candidates among more rows.

    Those of :data:`HIDING` do not, nor those under a scaling that is fitted on all rows.
    """
    steps = Steps() if spec.scaling is None else steps_of(spec.scaling)
    is_fitted = steps.total == "median" or steps.last == "zscore" or spec.n_components is not None
    searched = searched_shape(shape, spec)
    if is_fitted or spec.metric in HIDING or not is_own(spec.metric, is_sparse=searched.is_sparse):
        return False
    return resolve_engine(spec, searched, available_bytes(memory_limit), k=k).engine == "exact"


def candidates_of(parameters: EvaluationParameters, n_rows: int) -> ListsOverRows:
    """Return the lists whose candidates are found, and the number of candidates of each of `n_rows` rows, by name."""
    anew = parameters.new_rankings
    lists = lists_over_rows(parameters.methods, n_rows, anew.search)
    return {name: (spec, min(LENGTHENING * k, n_rows - 1)) for name, (spec, k) in lists.items() if name in anew.shared}


def find_candidates(context: Context, parameters: EvaluationParameters, unit: int) -> None:
    """Find the candidates of some of the rows in use among all of them; of none, if there are fewer rows than planned.

    Each list is stored by name: indices into the rows in use, and distances, float64.
    """
    inner = _rows_context(context, parameters, slice(None))
    n_rows, arrays = inner.tiles.shape.n_samples, dict[str, np.ndarray]()
    numbers = np.arange(unit * CANDIDATE_ROWS, min((unit + 1) * CANDIDATE_ROWS, n_rows))
    for name, (spec, k) in candidates_of(parameters, n_rows).items() if numbers.size else ():
        base = _compared_rows(inner, spec)
        queries = base.part(slice(int(numbers[0]), int(numbers[-1]) + 1))
        indices, distances = exact_neighbors(queries, numbers, base, 0, k)
        arrays |= {f"{name}/indices": indices.astype(index_dtype(n_rows)), f"{name}/distances": distances}
    context.store.write_arrays(layout.EVALUATION_CANDIDATES.format(unit), arrays)


def _rows_context(
    context: Context, parameters: EvaluationParameters, places: Any, weights: np.ndarray | None = None
) -> Context:
    """Return a context of the rows in use at some places, in memory, in which their neighbors are searched."""
    inner = memory_context(rows_of_sample(context, parameters)[places], None, weights, context.tiles.missing_policy)
    if (name := parameters.new_rankings.search.own_rows) is not None:
        rows = context.store.open(layout.EVALUATION_ROWS)[...][places]
        put_representation(inner.store, inner.tiles.shape, read_own_rows(context.store, name, rows))
    return inner


def _compared_rows(inner: Context, spec: GraphSpec) -> Rows:
    """Return all rows of a context as an exact search by `spec` compares them."""
    rows = read_members(searched_tiles(inner, spec), slice(0, inner.tiles.shape.n_samples), spec.read_scaling)
    return prepare_rows(rows, spec.metric)


def _narrow_lists(
    context: Context, inner: Context, name: str, spec: GraphSpec, k: int, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of the rows at `places`, of the context `inner`, from the candidates of all rows in use."""
    n_units = -(-context.store.open(layout.EVALUATION_ROWS).shape[0] // CANDIDATE_ROWS)
    parts = [context.store.read_arrays(layout.EVALUATION_CANDIDATES.format(unit))[0] for unit in range(n_units)]
    for kind, array in (("indices", layout.KNN_INDICES), ("distances", layout.KNN_DISTANCES)):
        inner.store.put_array(array.format("candidates"), np.concatenate([part[f"{name}/{kind}"] for part in parts]))
    indices, distances = induced_lists(inner.store, "candidates", places)
    # the k-th is known if all that come before a larger distance, equal ones by number, are in the order of a search;
    # nearly equal ones are not, whose ties may depend on rows that are left out
    is_equal = distances[:, 1:] == distances[:, :-1]
    is_larger = (distances[:, 1:] > distances[:, :-1] * SURELY_FARTHER) & np.isfinite(distances[:, 1:])
    is_in_order = np.logical_and.accumulate(is_equal | is_larger, axis=1)
    is_settled = (is_in_order & is_larger)[:, k - 1 :].any(axis=1)
    indices, distances = indices[:, :k].copy(), distances[:, :k].copy()
    if not is_settled.all():
        base, others = _compared_rows(inner, spec), np.flatnonzero(~is_settled)
        indices[others], distances[others] = exact_neighbors(base.part(others), others, base, 0, k)
    return indices, distances


# ---------------------------------------------------------------------------------------------------------------- lists
def find_lists_of_rows(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any]:
    """Find the neighbor lists of one set of rows for all methods, at most n_rows - 1 neighbors long.

    Of a precomputed graph, store the subgraph that the rows induce; of a representation, compare the same rows.
    """
    one = Design(parameters).sets_of_rows()[unit]
    visible = seen_by(context, parameters, one)
    places, anew = visible.places, parameters.new_rankings
    wanted_lists, arrays = lists_over_rows(parameters.methods, places.size, anew.search), dict[str, np.ndarray]()
    if anew.given == "matrix":
        matrix = induced_matrix(context.store, context.store.open(layout.EVALUATION_ROWS)[...][places])
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    else:
        if anew.given == "lists":
            rows = context.store.open(layout.EVALUATION_ROWS)[...][places]
            lists = {name: induced_lists(context.store, name, rows) for name in wanted_lists}
        else:
            lists = _lists_within(context, parameters, wanted_lists, visible)
        for name, (indices, distances) in lists.items():
            arrays |= {f"{name}/indices": indices, f"{name}/distances": distances}
    context.store.write_arrays(layout.EVALUATION_LISTS.format(one.rows), arrays)
    return {"n_rows": int(places.size), "lists": sorted(wanted_lists)}


def _lists_within(
    context: Context, parameters: EvaluationParameters, wanted_lists: ListsOverRows, visible: VisibleRows
) -> NeighborTables:
    """Return the lists of visible rows among each other: from candidates, or searched."""
    anew, places = parameters.new_rankings, visible.places
    inner = _rows_context(context, parameters, places, visible.weights)
    lists = {name: (spec, min(k, places.size - 1)) for name, (spec, k) in wanted_lists.items()}
    from_candidates = {
        name: _narrow_lists(context, inner, name, spec, k, places)
        for name, (spec, k) in lists.items()
        if name in anew.shared and follows_from_candidates(spec, inner.tiles.shape, k, anew.memory_limit)
    }
    searched = {name: list_and_k for name, list_and_k in lists.items() if name not in from_candidates}
    return from_candidates | search_lists(inner, searched, anew.memory_limit)


def search_lists(inner: Context, lists: ListsOverRows, memory_limit: int | None) -> NeighborTables:
    """Search neighbor lists of the rows of a context, as in a run."""
    if not lists:
        return {}
    chain = Chain(data_of(inner), lists=lists, memory_limit=memory_limit, base=())
    run_all(inner, chain.stages(), None, quiet=True)
    return stored_lists(inner.store, lists)


def stored_lists(store: Store, names: Iterable[str]) -> NeighborTables:
    """Return lists of a store."""
    lists = {name: open_lists(store, name) for name in names}
    return {name: (indices[...], distances[...]) for name, (indices, distances) in lists.items()}


def lists_cost(lists: Mapping[str, tuple[ListsSpec, int]], n_rows: int) -> tuple[Array, ...]:
    """Return the memory of neighbor lists of `n_rows` rows, of the lengths of :func:`lists_over_rows`."""
    return tuple(
        array
        for name, (_, k) in lists.items()
        for array in (Array(f"neighbors, {name}", (n_rows, k), "int64"), Array(f"distances, {name}", (n_rows, k)))
    )


def matrix_cost(n_entries: int, n_rows: int) -> tuple[Array, ...]:
    """Return the memory of a precomputed graph with `n_entries` entries between `n_rows` rows."""
    return (
        Array("weights between rows", (n_entries,)),
        Array("their columns", (n_entries,), "int64"),
        Array("where rows begin", (n_rows,), "int64"),
        Array("weights of rows with themselves", (n_rows,)),
    )


def twice(arrays: Iterable[Array]) -> Cost:
    """Return the memory of two copies of some arrays."""
    return tuple(dataclasses.replace(array, shape=(2, *array.shape)) for array in arrays)


def within_unit_cost(ranking: Cost, lists: Iterable[Array], used: Shape, design: Design) -> Cost:
    """Return the memory of a unit that ranks the rows in use, of shape `used`, or finds their neighbor lists.

    `ranking` is that of the stages that run inside the unit, including the process. `lists`, the neighbor lists of all
    methods, are held twice: as found, and as written or read.
    """
    name, copies = "rows in use, all and those that are seen", 2
    if used.is_sparse:
        name, copies = f"{name}, these also column by column", 3
    return (*ranking, *sample_cost(name, used, copies), *seen_cost(used.n_samples, design), *twice(lists))


SAMPLE_CANDIDATES_STAGE = StageKind("sample-candidates", __name__, find_candidates, within_unit_cost)
SAMPLE_LISTS_STAGE = StageKind("sample-lists", __name__, find_lists_of_rows, within_unit_cost)
