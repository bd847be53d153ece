"""Kolmogorov-Smirnov distance between the distributions of a feature in the classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskfs.kernels.distributions import SORT_BYTES, Distributions
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import NeedDistributions, Statistics


def _statistics(parameters: Parameters) -> tuple[NeedDistributions]:
    return (NeedDistributions(parameters.score_scaling),)


def kolmogorov_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """sup |F_a - F_b| over labelled rows, the largest of all pairs of classes, and the first value where it is reached;
    NaN where the feature is constant on the labelled rows.
    """
    found = statistics[_statistics(parameters)[0]]
    assert isinstance(found, Distributions)
    return {"score": found.distance, "threshold": found.threshold}


CRITERIA = (
    Criterion(
        name="KolmogorovSmirnovScore",
        summary="Largest distance between the distributions of two classes on the labelled rows; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, section 1 (Kolmogorov 1933, Smirnov 1939)",
        direction="descending",
        fields=("score", "threshold"),
        parameters=Parameters,
        statistics=_statistics,
        score=kolmogorov_fields,
        reason="constant on the labelled rows",
        needs_labels=True,
        tasks=("classification",),
        row_bytes=SORT_BYTES,
    ),
)
