"""Summary of batches: their rows and labels, the agreement of their rankings, and the ranks of top features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.slab import methods_from
from daskfs.kernels.aggregate import rank_agreement
from daskfs.ranking.batches import batch_ranks
from daskfs.stages.stage import Plan
from daskfs.store.store import Store

TOP = 15
SHOWN = 25
"""Batches whose ranks are shown; the tables hold all."""


def batch_warnings(batches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the warnings of the batches' runs, and one for each batch that a method leaves out."""
    found = []
    for batch in batches:
        name = batch["name"]
        for label, why in batch["left_out"].items():
            found.append(f"batch {name} is left out for method {label}: {str(why).removesuffix('.')}")
        found += [f"batch {name}: {text}" for text in batch.get("warnings", ())]
    return found


def batch_summary(
    store: Store, plan: Plan, batches: Sequence[Mapping[str, Any]], tables: Mapping[str, np.ndarray], names: list[str]
) -> dict[str, Any] | None:
    """Return a JSON-able summary; None for a run without batches.

    `tables` holds each method's fields by label: float64, shape (n_fields, n_features), score first.
    """
    if not batches:
        return None
    methods = methods_from(plan.stage("score").parameters["methods"])
    planned = plan.stage("score").parameters["batches"]
    return {
        "batches": [{key: batch.get(key) for key in BATCH_KEYS} for batch in batches],
        "methods": [_method(store, planned, method, tables[method.label], names) for method in methods],
    }


BATCH_KEYS = ("name", "n_rows", "n_labeled", "classes", "seconds")


def _method(
    store: Store, planned: Sequence[Mapping[str, Any]], method: Method, table: np.ndarray, names: list[str]
) -> dict[str, Any]:
    served = [number for number, batch in enumerate(planned) if method.label in batch["methods"]]
    ranks = batch_ranks(store, method)[0][served]
    correlations, concordance = rank_agreement(ranks)
    n_ranked = int(np.count_nonzero(~method.is_excluded(table)))
    return {
        "label": method.label,
        "batches": [planned[number]["name"] for number in served],
        "concordance": concordance,
        "correlations": [[_number(value) for value in row] for row in correlations[:SHOWN, :SHOWN]],
        "top": [
            {
                "rank": place,
                "name": names[feature],
                "score": float(table[0][feature]),
                "ranks": [_number(value) for value in ranks[:SHOWN, feature]],
            }
            for place, feature in enumerate(method.order(table)[: min(TOP, n_ranked)].tolist(), start=1)
        ],
    }


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
