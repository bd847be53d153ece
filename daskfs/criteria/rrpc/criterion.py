"""RRPC: relevance to the labels less redundancy with the features picked before, both by Pearson correlation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import PositiveInt

from daskfs.criteria.filters import TaskParameters, labeled_criterion, pearson_fields, pearson_needs
from daskfs.criteria.statistics import Statistics


class GreedyParameters(TaskParameters):
    """Parameters of RRPC."""

    absolute: bool = True
    n_candidates: PositiveInt | None = 2000


def relevance_fields(statistics: Statistics, parameters: GreedyParameters) -> Mapping[str, np.ndarray]:
    """Return relevance over labeled rows and a score of NaN, each (width,), float64; the stages "greedy" add the rest.

    Relevance is NaN where the feature is constant on these rows.
    """
    fields = pearson_fields(statistics, parameters)
    relevance = fields["score" if parameters.absolute else "correlation"]
    return {"score": np.full_like(relevance, np.nan), "relevance": relevance}


CRITERIA = (
    labeled_criterion(
        name="RRPC",
        summary=(
            "Correlation with the labels less the mean correlation with the features picked before, picked one by one; "
            "large is good."
        ),
        citation="Xu, Tang, He and Man (2017), IEEE TNNLS 28(9), 1974-1984",
        fields=("score", "relevance", "redundancy", "step"),
        parameters=GreedyParameters,
        statistics=pearson_needs,
        score=relevance_fields,
        unscored="not among the n_candidates most relevant: ranked by relevance after these",
        ranked_by="step",
        finish="greedy",
        is_joint=True,
    ),
)
