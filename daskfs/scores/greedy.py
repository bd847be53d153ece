"""Stages "candidates" and "greedy" of RRPC: the most relevant features, and the order in which they are picked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.kernels.greedy import pick_greedily
from daskfs.kernels.order import rank_order
from daskfs.methods.rrpc import GreedyParameters
from daskfs.scores.correlations import stored_correlations
from daskfs.scores.slab import methods_from, slab_table
from daskfs.stages.kind import StageKind, unlisted
from daskfs.store import layout
from daskfs.store.context import Context

PURPOSE = "greedy"


def screen_candidates(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Write the features of largest relevance, ascending by number."""
    del unit
    (method,) = methods_from([parameters["method"]])
    assert isinstance(method.parameters, GreedyParameters)
    relevance = context.store.open(slab_table(method))[...][method.fields.index("relevance")]
    n_relevant = int(np.count_nonzero(~np.isnan(relevance)))
    wanted = n_relevant if method.parameters.n_candidates is None else min(method.parameters.n_candidates, n_relevant)
    features = np.sort(rank_order(relevance, "descending")[:wanted])
    context.store.put_array(layout.CANDIDATES.format(PURPOSE, method.label), features)
    return {"n_candidates": int(features.size)}


def pick_features(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write the table of the method: candidates in the order of their picks, then the others by relevance."""
    del unit
    (method,) = methods_from([parameters["method"]])
    assert isinstance(method.parameters, GreedyParameters)
    store = context.store
    table = store.open(slab_table(method))[...].copy()
    score, relevance, redundancy, step = (table[method.fields.index(name)] for name in method.criterion.fields)
    candidates = store.open(layout.CANDIDATES.format(PURPOSE, method.label))[...]
    order = rank_order(relevance, "descending")[: int(np.count_nonzero(~np.isnan(relevance)))]
    screened = order[~np.isin(order, candidates)]
    step[screened] = candidates.size + 1 + np.arange(screened.size)
    if candidates.size:
        correlation = stored_correlations(context, PURPOSE, method.label)
        if method.parameters.absolute:
            np.abs(correlation, out=correlation)
        picks = pick_greedily(relevance[candidates], correlation)
        picked = candidates[picks.order]
        score[picked], redundancy[picked] = picks.score, picks.redundancy
        step[picked] = 1 + np.arange(picked.size)
    store.put_array(layout.SCORES.format(method.label), table)


SCREEN_STAGE = StageKind("screen", __name__, screen_candidates, unlisted)
GREEDY_STAGE = StageKind("greedy", __name__, pick_features, unlisted, advice=lambda _: " Fewer n_candidates need less.")
