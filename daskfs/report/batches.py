"""The section on batches: their rows and labels, the agreement of their rankings, and the ranks of top features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.slab import methods_from
from daskfs.kernels.aggregate import rank_agreement
from daskfs.ranking.batches import batch_ranks
from daskfs.report.table_cells import Cell
from daskfs.report.values import (
    MISSING,
    as_mapping,
    format_count,
    format_number,
    format_seconds,
    format_text,
    full_number,
    mappings,
    plottable,
    sequence,
)
from daskfs.stages.stage import Plan
from daskfs.store.store import Store

TOP = 15
SHOWN = 25
"""Batches whose ranks are shown; the tables hold all."""


# ----------------------------------------------------------------------------------------------------- summary of a run
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


# ------------------------------------------------------------------------------------------------ template variables
def batch_view(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Return the template variables; None for a run without batches."""
    rows = [
        {
            "name": format_text(batch.get("name")),
            "n_rows": format_count(batch.get("n_rows")),
            "n_labeled": format_count(batch.get("n_labeled")),
            "classes": ", ".join(
                f"{name} {format_count(n)}" for name, n in as_mapping(batch.get("classes")).items() if n
            ),
            "seconds": format_seconds(batch.get("seconds")),
        }
        for batch in mappings(summary.get("batches"))
    ]
    if not rows:
        return None
    return {"rows": rows, "methods": [_method_view(method) for method in mappings(summary.get("methods"))]}


def _method_view(method: dict[str, Any]) -> dict[str, Any]:
    names = [format_text(name) for name in sequence(method.get("batches"))]
    matrix = [sequence(row) for row in sequence(method.get("correlations"))]
    return {
        "label": format_text(method.get("label")),
        "batches": names[:SHOWN],
        "n_more": max(0, len(names) - SHOWN),
        "concordance": format_number(method.get("concordance")),
        "correlations": [
            (name, [_heat(value) for value in row]) for name, row in zip(names, matrix, strict=False) if len(names) > 1
        ],
        "top": [
            {
                "rank": format_count(row.get("rank")),
                "name": format_text(row.get("name")),
                "score": Cell(format_number(row.get("score")), full_number(row.get("score"))),
                "ranks": [MISSING if rank is None else format_number(rank) for rank in sequence(row.get("ranks"))],
            }
            for row in mappings(method.get("top"))
        ],
    }


def _heat(value: object) -> Cell:
    number = plottable(value)
    if number != number:
        return Cell(MISSING)
    return Cell(f"{number:.2f}", heat=f"{min(max(number, 0.0), 1.0):.3f}")
