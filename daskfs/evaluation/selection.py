"""Stages "sample-lists" and "select": rankings of rows in use, made anew for an evaluation.

A selection is made in one unit, in memory, by what the estimators run: :func:`daskfs.scoring.score_features`.
Neighbor lists over X, which selections share, are found once for each set of rows, or taken from the run where the rows
are all rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.evaluation.design import Design, Selection, put_order
from daskfs.evaluation.rows import rows_of_sample, seen_by
from daskfs.graph.given import Graph, WeightMatrix
from daskfs.graph.givenfiles import open_graph
from daskfs.graph.spec import GraphSpec, Lists
from daskfs.kernels.labels import Labels
from daskfs.methods.registry import Method
from daskfs.planning.lists import needed_lists, plan_all_lists
from daskfs.scores.slab import methods_from
from daskfs.scoring import filter_features, memory_context, run_all, score_features
from daskfs.store import layout
from daskfs.store.context import Context

NeighborTables = dict[str, tuple[np.ndarray, np.ndarray]]


# ---------------------------------------------------------------------------------------------------- neighbor lists
def lists_over_rows(methods: list[Method], n_rows: int, parameters: Mapping[str, Any]) -> dict[str, tuple[Lists, int]]:
    """Return the lists over X that some methods stand on, for so many rows, by name."""
    search = parameters["search"]
    found = needed_lists(methods, n_rows, lambda spec: dataclasses.replace(spec, **search))
    return {name: wanted for name, wanted in found.items() if isinstance(wanted[0], GraphSpec)}


def find_lists_of_rows(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Find the neighbor lists of one set of rows, for all methods; no longer ones than there are other rows."""
    one = Design(parameters).sets_of_rows()[unit]
    places = seen_by(context, parameters, one).places
    own = memory_context(rows_of_sample(context, parameters)[places], None)
    wanted = lists_over_rows(methods_from(parameters["methods"]), places.size, parameters)
    lists = {name: (spec, min(k, places.size - 1)) for name, (spec, k) in wanted.items()}
    arrays: dict[str, np.ndarray] = {}
    if lists:
        run_all(own, plan_all_lists(own.tiles.shape, lists, parameters["memory_limit"]), None)
    for name in lists:
        arrays[f"{name}/indices"] = own.store.open(layout.KNN_INDICES.format(name))[...]
        arrays[f"{name}/distances"] = own.store.open(layout.KNN_DISTANCES.format(name))[...]
    context.store.write_arrays(layout.EVALUATION_LISTS.format(one.rows), arrays)
    return {"n_rows": int(places.size), "lists": sorted(lists)}


def _known_lists(
    context: Context, parameters: Mapping[str, Any], method: Method, selection: Selection, n_rows: int
) -> NeighborTables:
    """Return the lists that are there for a method; one that wants longer ones is left to say so itself."""
    names = {name: k for name, (_, k) in lists_over_rows([method], n_rows, parameters).items() if k < n_rows}
    if not names:
        return {}
    store = context.store
    if parameters["lists_of_run"] and selection.fold is None and selection.world.n_classes is None:
        return {
            name: (store.open(layout.KNN_INDICES.format(name))[...], store.open(layout.KNN_DISTANCES.format(name))[...])
            for name in names
        }
    arrays, _ = store.read_arrays(layout.EVALUATION_LISTS.format(selection.rows))
    return {name: (arrays[f"{name}/indices"], arrays[f"{name}/distances"]) for name in names}


# ------------------------------------------------------------------------------------------------------ stage "select"
def select_features(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Rank the features by one method, on the rows and labels that one selection sees.

    A method that its rows or labels cannot serve ranks nothing there; the facts say why.
    """
    design = Design(parameters)
    selection = design.selection(unit)
    method = methods_from(parameters["methods"])[design.methods.index(selection.method)]
    if selection.place:
        method = dataclasses.replace(method, parameters=method.parameters.redrawn(selection.place))
    seen = seen_by(context, parameters, selection)
    own = memory_context(rows_of_sample(context, parameters)[seen.places], seen.labels, seen.weights)
    n_labelled = int(seen.labels.is_labelled.sum())
    deepest = max(design.sizes)
    known = _known_lists(context, parameters, method, selection, seen.places.size)
    try:
        order = _ranked(own, method, seen.labels, parameters, known)
    except InputError as error:
        put_order(context, unit, np.empty(0, dtype=np.int64), deepest, n_labelled)
        return {"failed": str(error)}
    put_order(context, unit, order, deepest, n_labelled)
    return {"failed": None if order.size else f"every feature is excluded ({method.criterion.reason})."}


def _ranked(
    own: Context, method: Method, labels: Labels, parameters: Mapping[str, Any], known: NeighborTables
) -> np.ndarray:
    given, limit = _given_matrix(parameters), parameters["memory_limit"]
    table = score_features(own, [method], labels, given, known=known, memory_limit=limit)[method.label]
    if (wanted := parameters["filter"]) is not None:
        kept, _ = filter_features(own, method, wanted, own.tiles.feature_names())
        return kept
    return method.order(table)[: int(np.count_nonzero(~method.is_excluded(table)))]


def _given_matrix(parameters: Mapping[str, Any]) -> Graph | None:
    if parameters["given"] is None:
        return None
    graph = open_graph(parameters["given"])
    return graph if isinstance(graph, WeightMatrix) else None
