"""Stages "candidates" and "greedy" of RRPC: the most relevant features, and the order in which they are picked."""

from __future__ import annotations

from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.correlations import fewer_candidates, stored_comoments_cost, stored_correlations
from daskfs.criteria.rrpc.criterion import CRITERIA, GreedyParameters
from daskfs.criteria.slab import slab_table
from daskfs.kernels.greedy import pick_greedily
from daskfs.kernels.order import rank_order
from daskfs.stages.cost import Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context

GREEDY = "greedy"
N_FIELDS = len(CRITERIA[0].fields)
"""Rows of the table: score, relevance, redundancy and step."""


class OneMethod(StageParameters):
    """Parameters of the stages here."""

    method: Method


def screen_candidates(context: Context, parameters: OneMethod, unit: int) -> dict[str, Any]:
    """Write the numbers of the most relevant features, ascending."""
    del unit
    method = parameters.method
    assert isinstance(method.parameters, GreedyParameters)
    relevance = context.store.open(slab_table(method))[...][method.fields.index("relevance")]
    n_relevant = int(np.count_nonzero(~np.isnan(relevance)))
    count = n_relevant if method.parameters.n_candidates is None else min(method.parameters.n_candidates, n_relevant)
    features = np.sort(rank_order(relevance, "descending")[:count])
    context.store.put_array(layout.CANDIDATES.format(GREEDY, method.label), features)
    return {"n_candidates": int(features.size)}


def pick_features(context: Context, parameters: OneMethod, unit: int) -> None:
    """Write the table of the method: candidates in the order of their picks, then the others by relevance."""
    del unit
    method = parameters.method
    assert isinstance(method.parameters, GreedyParameters)
    store = context.store
    table = store.open(slab_table(method))[...].copy()
    score, relevance, redundancy, step = (table[method.fields.index(name)] for name in method.criterion.fields)
    candidates = store.open(layout.CANDIDATES.format(GREEDY, method.label))[...]
    order = rank_order(relevance, "descending")[: int(np.count_nonzero(~np.isnan(relevance)))]
    screened = order[~np.isin(order, candidates)]
    step[screened] = candidates.size + 1 + np.arange(screened.size)
    if candidates.size:
        correlation = stored_correlations(context, GREEDY, method.label)
        if method.parameters.absolute:
            np.abs(correlation, out=correlation)
        picks = pick_greedily(relevance[candidates], correlation)
        picked = candidates[picks.order]
        score[picked], redundancy[picked] = picks.score, picks.redundancy
        step[picked] = 1 + np.arange(picked.size)
    store.put_array(layout.SCORES.format(method.label), table)


def screen_cost(n_features: int, process: Cost) -> Cost:
    """List the memory of ranking the features by relevance."""
    return (
        *process,
        Array("table of the method: as stored, decoded, as read, and to be changed", (4, N_FIELDS, n_features)),
        Array("keys of the sort: relevance, its sign turned, and numbers of features", (3, n_features)),
        Array("order of the features, and what the sort works in", (3, n_features), "int64"),
        Array("features that are not compared, their steps, and as these are made", (3, n_features), "int64"),
    )


def greedy_cost(n_features: int, count: int, process: Cost) -> Cost:
    """List the memory of picking `count` candidates."""
    return (*screen_cost(n_features, process), *stored_comoments_cost(count))


SCREEN_STAGE = StageKind("screen", __name__, screen_candidates, screen_cost)
GREEDY_STAGE = StageKind("greedy", __name__, pick_features, greedy_cost, advice=fewer_candidates)
