"""Stage "select": rankings of the rows in use, recomputed for an evaluation.

One unit makes one selection in memory, by :func:`daskfs.plan.inline.score_features`, as the estimators do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.consensus import consensus_table, votes
from daskfs.criteria.outside import OUTSIDE, outside_table
from daskfs.criteria.registry import Method, make_method
from daskfs.errors import InputError
from daskfs.evaluation.design import Design, EvaluationParameters, NewRankings, Selection, put_order
from daskfs.evaluation.neighbor_lists import (
    NeighborTables,
    lists_over_rows,
    search_lists,
    stored_lists,
    within_unit_cost,
)
from daskfs.evaluation.rows import VisibleRows, rows_of_sample, seen_by
from daskfs.graph.precomputed import WeightMatrix
from daskfs.kernels.aggregate import combine_ranks
from daskfs.kernels.blocks import Block
from daskfs.plan.inline import EnclosingRun, filter_features, memory_context, score_features
from daskfs.ranking.batches import check_batch_size, within_batch
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context

PREFILTERS = {"classification": "FisherScore", "regression": "PearsonScore"}
"""Criteria that preselect the features of a joint method that does not rank all."""


def _known_lists(
    context: Context, anew: NewRankings, method: Method, selection: Selection, n_rows: int
) -> NeighborTables:
    """Return the stored lists of a method, without lists of `n_rows` or more neighbors, for which the method raises."""
    names = [name for name, (_, k) in lists_over_rows([method], n_rows, anew.search).items() if k < n_rows]
    if not names:
        return {}
    if anew.lists_of_run and selection.fold is None and selection.class_subset.n_classes is None:
        return stored_lists(context.store, names)
    arrays, _ = context.store.read_arrays(layout.EVALUATION_LISTS.format(selection.rows))
    return {name: (arrays[f"{name}/indices"], arrays[f"{name}/distances"]) for name in names}


class SelectParameters(EvaluationParameters, kw_only=True):
    """Parameters of "select"; `combines` is whether its units make the consensus of rankings made before."""

    combines: bool


def select_features(context: Context, parameters: SelectParameters, unit: int) -> dict[str, Any]:
    """Rank the features by one method, on the rows and labels that one selection sees.

    If the method raises :class:`InputError` on these rows or labels, its order is empty, and the facts hold the reason.
    """
    design, methods, anew = Design(parameters), parameters.methods, parameters.new_rankings
    number = design.made(unit, combined=parameters.combines)
    selection = design.selection(number)
    method = methods[design.methods.index(selection.method)]
    if selection.place:
        method = dataclasses.replace(method, parameters=method.parameters.redrawn(selection.place))
    view = seen_by(context, parameters, selection)
    X = rows_of_sample(context, parameters)[view.places]
    policy = context.tiles.missing_policy
    n_labeled = int(view.labels.is_labeled.sum())
    try:
        features = _thinned_features(X, method, view, anew, policy)
        block = X if features is None else X[:, features]
        if method.combined or method.criterion.combines:
            block = X.copy()
        inner = memory_context(block, view.labels, view.weights, policy)
        if method.criterion.combines:
            table = _consensus_table(context, methods, design.beside(number))
        elif method.combined:
            table = _combined_table(X, method, view, anew, policy)
        elif method.criterion is OUTSIDE:
            rows = inner.tiles.read_rows(slice(0, inner.tiles.shape.n_samples))
            table = outside_table(method, rows, view.labels)
        else:
            lists = _known_lists(context, anew, method, selection, view.places.size)
            graph = _given_matrix(context, anew, method, selection)
            run = EnclosingRun(lists, anew.memory_limit)  # its search over all rows has been warned of
            table = score_features(inner, [method], view.labels, graph, run=run)[method.label]
        if anew.redundancy is None:
            order = method.ranked_features(table)
        else:
            inner.store.put_array(layout.SCORES.format(method.label), table)
            order, _ = filter_features(inner, method, anew.redundancy, inner.tiles.feature_names())
        order = order if features is None else features[order]
    except InputError as error:
        put_order(context, design, number, np.empty(0, dtype=np.int64), n_labeled)
        return {"failed": str(error)}
    if design.has_consensus and votes(method):
        ranks = np.full(X.shape[1], np.nan)
        ranks[slice(None) if features is None else features] = method.ranks(table)
        context.store.put_array(layout.EVALUATION_RANKS.format(number), ranks)
    put_order(context, design, number, order, n_labeled)
    return {"failed": None if order.size else f"every feature is excluded ({method.reason})."}


def _consensus_table(context: Context, methods: Sequence[Method], selections: Iterable[int]) -> np.ndarray:
    """Combine the rankings of the selections whose methods vote; :class:`InputError` if all of them failed."""
    voting = [number for number in selections if votes(methods[number % len(methods)])]
    orders = {number: layout.EVALUATION_ORDER.format(number) for number in voting}
    made = [number for number, order in orders.items() if context.store.read_arrays(order)[1]["n_ranked"]]
    ranks = [context.store.open(layout.EVALUATION_RANKS.format(number))[...] for number in made]
    if not ranks:
        msg = "no other method has a ranking."
        raise InputError(msg)
    return consensus_table(ranks)


def _thinned_features(X: Block, method: Method, view: VisibleRows, anew: NewRankings, policy: str) -> np.ndarray | None:
    """Return the features that a joint method ranks, ascending, or None for all.

    They lead the ranking of a univariate criterion, on only the rows and labels that the selection sees.
    """
    n_features = anew.joint_features
    if not method.criterion.is_joint or n_features is None:
        return None
    prefilter = make_method(PREFILTERS[view.labels.task], {})
    inner = memory_context(X, view.labels, view.weights, policy)
    table = score_features(inner, [prefilter], view.labels, run=EnclosingRun({}, anew.memory_limit))[prefilter.label]
    return np.sort(prefilter.order(table)[:n_features])


def _combined_table(X: Block, method: Method, view: VisibleRows, anew: NewRankings, policy: str) -> np.ndarray:
    """Combine the rankings within the batches; :class:`InputError` if no batch is left.

    A batch with too few rows or labels for the method is left out, as in a run.
    """
    assert view.batches is not None
    plain, ranks, problems = within_batch(method), list[np.ndarray](), list[str]()
    for number in np.unique(view.batches):
        rows = np.flatnonzero(view.batches == number)
        labels = view.labels.of_rows(rows)
        inner = memory_context(X[rows], labels, None if view.weights is None else view.weights[rows], policy)
        try:
            check_batch_size(rows.size)
            lists = search_lists(inner, lists_over_rows([plain], rows.size, anew.search), anew.memory_limit)
            tables = score_features(inner, [plain], labels, run=EnclosingRun(lists, anew.memory_limit))
            ranks.append(plain.ranks(tables[plain.label]))
        except InputError as error:
            problems.append(str(error))
    if not ranks:
        msg = f"no batch serves method {method.label}: {problems[0]}"
        raise InputError(msg)
    return combine_ranks(np.stack(ranks))


def _given_matrix(context: Context, anew: NewRankings, method: Method, selection: Selection) -> WeightMatrix | None:
    """Return the precomputed matrix between the selection's rows; None if there is none or the method uses none."""
    if anew.given != "matrix" or not method.criterion.uses_graph:
        return None
    arrays, _ = context.store.read_arrays(layout.EVALUATION_LISTS.format(selection.rows))
    n_rows = arrays["indptr"].size - 1
    matrix = sp.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n_rows, n_rows))
    return WeightMatrix.of(matrix, "graph.precomputed")


SELECT_STAGE = StageKind("select", __name__, select_features, within_unit_cost)
