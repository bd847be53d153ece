"""Summary of batches: their rows and labels, the agreement of their rankings, and the ranks of top features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.kernels.aggregate import rank_agreement
from daskfs.ranking.batches import COMBINE_STAGE, BatchesParameters, batch_ranks
from daskfs.report.model import BatchMethod, BatchRanks, BatchReport, FeatureRow
from daskfs.run_warning import CHANGES, RunWarning
from daskfs.stages.stage import Plan
from daskfs.store.store import Store

BATCH_FEATURES = 15
BATCHES_SHOWN = 25
"""Batches whose ranks are shown; the tables hold all."""


def batch_warnings(batches: Sequence[Mapping[str, Any]]) -> list[RunWarning]:
    """Return the warnings of the batches' runs, and one for each batch that a method leaves out."""
    warnings = []
    for batch in batches:
        for label, why in batch.get("left_out", {}).items():
            text = f"left out for method {label}: {why.removesuffix('.')}"
            warnings.append(RunWarning("batch left out", CHANGES, text, (batch["name"],), "batch"))
        own_warnings = map(RunWarning.from_json, batch.get("warnings", ()))
        warnings += [replace(one, subject=(batch["name"],), noun="batch") for one in own_warnings]
    return warnings


def batch_summary(
    store: Store, plan: Plan, batches: Sequence[BatchReport], tables: Mapping[str, np.ndarray], names: list[str]
) -> BatchRanks:
    """Return the batches and the rankings within them; empty for a run without batches.

    `tables` holds each method's fields by label: float64, shape (n_fields, n_features), score first.
    """
    planned = plan.parameters_of(COMBINE_STAGE)
    if not batches or planned is None:
        return BatchRanks()
    methods = [_method(store, planned, method, tables[method.label], names) for method in planned.methods]
    return BatchRanks(batches=list(batches), methods=methods)


def _method(
    store: Store, planned: BatchesParameters, method: Method, table: np.ndarray, names: list[str]
) -> BatchMethod:
    served = planned.served(method)
    ranks = batch_ranks(store, method)[0][served]
    correlations, concordance = rank_agreement(ranks)
    return BatchMethod(
        label=method.label,
        batches=[planned.batches[number].name for number in served],
        concordance=concordance,
        correlations=[[_number(value) for value in row] for row in correlations[:BATCHES_SHOWN, :BATCHES_SHOWN]],
        top=[
            FeatureRow(
                rank=rank,
                name=names[feature],
                score=float(table[0][feature]),
                ranks=[_number(value) for value in ranks[:BATCHES_SHOWN, feature]],
            )
            for rank, feature in enumerate(method.ranked_features(table)[:BATCH_FEATURES].tolist(), start=1)
        ],
    )


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
