"""Stages "sample-lists" and "select": rankings of the rows in use, recomputed for an evaluation.

One unit makes one selection in memory, by :func:`daskfs.plan.inline.score_features`, as the estimators do. Neighbor
lists over X are found once per set of rows and shared, or taken from the run if the set is all rows. A precomputed
graph is restricted to each set of rows instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.consensus import consensus_table, votes
from daskfs.criteria.outside import OUTSIDE, outside_table
from daskfs.criteria.registry import Method, make_method
from daskfs.errors import InputError
from daskfs.evaluation.design import Design, EvaluationParameters, NewRankings, Selection, put_order
from daskfs.evaluation.rows import Matrix, VisibleRows, rows_of_sample, sample_cost, seen_by, seen_cost
from daskfs.graph.induced import induced_lists, induced_matrix
from daskfs.graph.partition import open_lists
from daskfs.graph.precomputed import WeightMatrix
from daskfs.graph.representation import put_representation
from daskfs.graph.rows import read_own_rows
from daskfs.graph.spec import GraphSpec, Lists
from daskfs.kernels.aggregate import combine_ranks
from daskfs.kernels.labels import Labels
from daskfs.plan.chain import Chain
from daskfs.plan.inline import EnclosingRun, data_of, filter_features, memory_context, run_all, score_features
from daskfs.plan.lists import needed_lists
from daskfs.ranking.batches import check_batch_size, within_batch
from daskfs.ranking.tables import method_scores
from daskfs.stages.cost import Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store

NeighborTables = dict[str, tuple[np.ndarray, np.ndarray]]
PREFILTERS = {"classification": "FisherScore", "regression": "PearsonScore"}
"""Criteria that preselect the features of a joint method that does not rank all."""


# ---------------------------------------------------------------------------------------------------- neighbor lists
def lists_over_rows(methods: Sequence[Method], n_rows: int, search: GraphSpec) -> dict[str, tuple[Lists, int]]:
    """Return the lists over X that some methods need, for `n_rows` rows, by name; `search` has the options."""
    found = needed_lists(methods, n_rows, search.for_lists)
    return {name: wanted for name, wanted in found.items() if isinstance(wanted[0], GraphSpec)}


def _made_anew(parameters: EvaluationParameters) -> NewRankings:
    """Return how a stage that there is for new rankings alone makes them."""
    assert parameters.anew is not None
    return parameters.anew


def find_lists_of_rows(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any]:
    """Find the neighbor lists of one set of rows for all methods, at most n_rows - 1 neighbors long.

    Of a precomputed graph, store the subgraph that the rows induce; of a representation, compare the same rows.
    """
    one = Design(parameters).sets_of_rows()[unit]
    seen = seen_by(context, parameters, one)
    places, policy = seen.places, context.tiles.missing_policy
    anew, arrays = _made_anew(parameters), dict[str, np.ndarray]()
    given, own_rows = anew.given, anew.search.own_rows
    wanted = lists_over_rows(parameters.methods, places.size, anew.search)
    if given is not None or own_rows is not None:
        rows = context.store.open(layout.EVALUATION_ROWS)[...][places]
    if given == "matrix":
        matrix = induced_matrix(context.store, rows)
        arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    else:
        if given == "lists":
            lists = {name: induced_lists(context.store, name, rows) for name in wanted}
        else:
            own = memory_context(rows_of_sample(context, parameters)[places], None, seen.weights, policy)
            if own_rows is not None:
                put_representation(own.store, own.tiles.shape, read_own_rows(context.store, own_rows, rows))
            lengths = {name: (spec, min(k, places.size - 1)) for name, (spec, k) in wanted.items()}
            lists = _searched(own, lengths, anew.memory_limit)
        for name, (indices, distances) in lists.items():
            arrays |= {f"{name}/indices": indices, f"{name}/distances": distances}
    context.store.write_arrays(layout.EVALUATION_LISTS.format(one.rows), arrays)
    return {"n_rows": int(places.size), "lists": sorted(wanted)}


def lists_cost(lists: Mapping[str, tuple[Lists, int]], n_rows: int) -> tuple[Array, ...]:
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


def _known_lists(
    context: Context, anew: NewRankings, method: Method, selection: Selection, n_rows: int
) -> NeighborTables:
    """Return the stored lists of a method, without lists of `n_rows` or more neighbors, for which the method raises."""
    names = {name: k for name, (_, k) in lists_over_rows([method], n_rows, anew.search).items() if k < n_rows}
    if not names:
        return {}
    store = context.store
    if anew.lists_of_run and selection.fold is None and selection.class_subset.n_classes is None:
        return _stored_lists(store, names)
    arrays, _ = store.read_arrays(layout.EVALUATION_LISTS.format(selection.rows))
    return {name: (arrays[f"{name}/indices"], arrays[f"{name}/distances"]) for name in names}


# ------------------------------------------------------------------------------------------------------ stage "select"
class SelectParameters(EvaluationParameters, kw_only=True):
    """Parameters of "select"; `combines` is whether its units make the consensus of rankings made before."""

    combines: bool


def select_features(context: Context, parameters: SelectParameters, unit: int) -> dict[str, Any]:
    """Rank the features by one method, on the rows and labels that one selection sees.

    If the method raises :class:`InputError` on these rows or labels, its order is empty, and the facts hold the reason.
    """
    design, methods, anew = Design(parameters), parameters.methods, _made_anew(parameters)
    number = design.made(unit, combined=parameters.combines)
    selection = design.selection(number)
    method = methods[design.methods.index(selection.method)]
    if selection.place:
        method = dataclasses.replace(method, parameters=method.parameters.redrawn(selection.place))
    seen = seen_by(context, parameters, selection)
    X = rows_of_sample(context, parameters)[seen.places]
    policy = context.tiles.missing_policy
    n_labeled = int(seen.labels.is_labeled.sum())
    deepest = max(design.sizes)
    try:
        features = _thinned_features(X, method, seen, anew, policy)
        own = memory_context(
            X.copy() if method.combined or method.criterion.combines else X if features is None else X[:, features],
            seen.labels,
            seen.weights,
            policy,
        )
        if method.criterion.combines:
            table = _consensus_table(context, methods, design.beside(number))
        elif method.combined:
            table = _combined_table(X, method, seen, anew, policy)
        elif method.criterion is OUTSIDE:
            rows = own.tiles.read_rows(slice(0, own.tiles.shape.n_samples))
            table = outside_table(method, rows, seen.labels)
        else:
            known = _known_lists(context, anew, method, selection, seen.places.size)
            given = _given_matrix(context, anew, method, selection)
            table = _score(own, method, seen.labels, anew, known, given)
        own.store.put_array(layout.SCORES.format(method.label), table)
        order = _ranked(own, method, anew)
        order = order if features is None else features[order]
    except InputError as error:
        put_order(context, number, np.empty(0, dtype=np.int64), deepest, n_labeled)
        return {"failed": str(error)}
    if design.has_consensus and votes(method):
        ranks = np.full(X.shape[1], np.nan)
        ranks[slice(None) if features is None else features] = method.ranks(table)
        context.store.put_array(layout.EVALUATION_RANKS.format(number), ranks)
    put_order(context, number, order, deepest, n_labeled)
    return {"failed": None if order.size else f"every feature is excluded ({method.reason})."}


def _consensus_table(context: Context, methods: Sequence[Method], selections: Iterable[int]) -> np.ndarray:
    """Combine the rankings of the selections whose methods vote; :class:`InputError` if all of them failed."""
    voting = [number for number in selections if votes(methods[number % len(methods)])]
    made = [
        number for number in voting if context.store.read_arrays(layout.EVALUATION_ORDER.format(number))[1]["n_ranked"]
    ]
    found = [context.store.open(layout.EVALUATION_RANKS.format(number))[...] for number in made]
    if not found:
        msg = "no other method has a ranking."
        raise InputError(msg)
    return consensus_table(found)


def _thinned_features(
    X: Matrix, method: Method, seen: VisibleRows, anew: NewRankings, policy: str
) -> np.ndarray | None:
    """Return the features that a joint method ranks, ascending, or None for all.

    They lead the ranking of a univariate criterion, on only the rows and labels that the selection sees.
    """
    n_features = anew.joint_features
    if not method.criterion.is_joint or n_features is None:
        return None
    prefilter = make_method(PREFILTERS[seen.labels.task], {})
    own = memory_context(X, seen.labels, seen.weights, policy)
    table = _score(own, prefilter, seen.labels, anew, {}, None)
    return np.sort(prefilter.order(table)[:n_features])


def _score(
    own: Context,
    method: Method,
    labels: Labels | None,
    anew: NewRankings,
    known: NeighborTables,
    given: WeightMatrix | None,
) -> np.ndarray:
    """Score the rows of a context, store the table in it, and return the table."""
    run = EnclosingRun(known, anew.memory_limit)  # its search over all rows has been warned of
    return score_features(own, [method], labels, given, run=run)[method.label]


def _combined_table(X: Matrix, method: Method, seen: VisibleRows, anew: NewRankings, policy: str) -> np.ndarray:
    """Combine the rankings within the batches; :class:`InputError` if no batch is left.

    A batch with too few rows or labels for the method is left out, as in a run.
    """
    assert seen.batches is not None
    plain, ranks, problems = within_batch(method), list[np.ndarray](), list[str]()
    for number in np.unique(seen.batches):
        rows = np.flatnonzero(seen.batches == number)
        labels = seen.labels.of_rows(rows)
        own = memory_context(X[rows], labels, None if seen.weights is None else seen.weights[rows], policy)
        try:
            check_batch_size(rows.size)
            known = _searched(own, lists_over_rows([plain], rows.size, anew.search), anew.memory_limit)
            ranks.append(plain.ranks(_score(own, plain, labels, anew, known, None)))
        except InputError as error:
            problems.append(str(error))
    if not ranks:
        msg = f"no batch serves method {method.label}: {problems[0]}"
        raise InputError(msg)
    return combine_ranks(np.stack(ranks))


def _searched(own: Context, lists: Mapping[str, tuple[Lists, int]], memory_limit: int | None) -> NeighborTables:
    """Search neighbor lists of the rows of a context, as in a run."""
    if not lists:
        return {}
    chain = Chain(data_of(own), lists=lists, memory_limit=memory_limit, base=())
    run_all(own, chain.stages(), None, quiet=True)
    return _stored_lists(own.store, lists)


def _stored_lists(store: Store, names: Iterable[str]) -> NeighborTables:
    lists = {name: open_lists(store, name) for name in names}
    return {name: (indices[...], distances[...]) for name, (indices, distances) in lists.items()}


def _ranked(own: Context, method: Method, anew: NewRankings) -> np.ndarray:
    """Return the features that a method may select, best first; the store of the context holds its table."""
    if (wanted := anew.redundancy) is not None:
        kept, _ = filter_features(own, method, wanted, own.tiles.feature_names())
        return kept
    return method.ranked_features(method_scores(own.store, method))


def _given_matrix(context: Context, anew: NewRankings, method: Method, selection: Selection) -> WeightMatrix | None:
    """Return the precomputed matrix between the selection's rows; None if there is none or the method uses none."""
    if anew.given != "matrix" or not method.criterion.uses_graph:
        return None
    arrays, _ = context.store.read_arrays(layout.EVALUATION_LISTS.format(selection.rows))
    n_rows = arrays["indptr"].size - 1
    matrix = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n_rows, n_rows))
    return WeightMatrix.of(matrix, "graph.precomputed")


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


SAMPLE_LISTS_STAGE = StageKind("sample-lists", __name__, find_lists_of_rows, within_unit_cost)
SELECT_STAGE = StageKind("select", __name__, select_features, within_unit_cost)
