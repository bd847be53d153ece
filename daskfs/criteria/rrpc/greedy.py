"""Stages "candidates" and "greedy" of RRPC: the most relevant features, and the order in which they are picked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.correlations import (
    check_candidates,
    fewer_candidates,
    plan_comoments,
    stored_comoments_cost,
    stored_correlations,
)
from daskfs.criteria.rrpc.criterion import CRITERIA, GreedyParameters
from daskfs.criteria.slab import slab_table
from daskfs.kernels.greedy import pick_greedily
from daskfs.kernels.order import rank_order
from daskfs.stages.cost import WORD, Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape

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
    features = np.sort(rank_order(relevance, "descending")[:n_relevant][: method.parameters.n_candidates])
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


def plan_greedy(shape: Shape, method: Method, process: Cost) -> list[Stage]:
    """Plan the stages of a method that picks features one by one: candidates, their co-moments, picks."""
    greedy, label, n_features = method.parameters, method.label, shape.n_features
    assert isinstance(greedy, GreedyParameters)
    count = min(greedy.n_candidates or n_features, n_features)
    check_candidates(count, f"method {label}", "n_candidates")
    done, parameters = f"greedy-{label}", OneMethod(method)
    table, listed = WORD * N_FIELDS * n_features, WORD * count
    comoments = plan_comoments(shape, f"comoments-{label}", (GREEDY, {label: count}), greedy.score_scaling, process)
    return [
        Stage.of(
            SCREEN_STAGE,
            f"candidates-{label}",
            1,
            parameters,
            SCREEN_STAGE.cost(n_features, process),
            bytes_read=table,
            bytes_written=listed,
        ),
        replace(comoments, needed_until=done),
        Stage.of(
            GREEDY_STAGE,
            done,
            1,
            parameters,
            GREEDY_STAGE.cost(n_features, count, process),
            bytes_read=comoments.bytes_written + table + listed,
            bytes_written=table,
            clears=layout.COMOMENTS_OF.format(GREEDY, label),
        ),
    ]
