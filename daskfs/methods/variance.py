"""Variance of each feature."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskfs.kernels.moments import Moments
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import NeedMoments, Statistics


def _statistics(parameters: Parameters) -> tuple[NeedMoments]:
    return (NeedMoments(parameters.score_scaling),)


def variance_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Population variance (divisor n); NaN for a constant feature."""
    moments = statistics[_statistics(parameters)[0]]
    assert isinstance(moments, Moments)
    return {
        "score": np.where(moments.is_constant, np.nan, moments.variance),
        "mean": moments.mean,
        "minimum": moments.minimum,
        "maximum": moments.maximum,
    }


CRITERIA = (
    Criterion(
        name="VarianceScore",
        summary="Population variance of the feature; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, section 4 (the baseline)",
        direction="descending",
        fields=("score", "mean", "minimum", "maximum"),
        parameters=Parameters,
        statistics=_statistics,
        score=variance_fields,
    ),
)
