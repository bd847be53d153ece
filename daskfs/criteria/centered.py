"""Criteria whose slabs find constant features, means and sums of squares; later stages center and scale rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.criteria.criterion import Criterion, Parameters
from daskfs.criteria.statistics import NeedMoments, Statistics
from daskfs.kernels.scaling import without_zscore

CENTERED_FIELDS = ("score", "mean", "m2")


def centered_criterion(**entries: Any) -> Criterion:
    """Make the entry of a classifier's criterion that ranks features by their position after the later stages."""
    return Criterion(
        direction="descending",
        slab_fields=CENTERED_FIELDS,
        statistics=lambda parameters: (_moments(parameters),),
        score=_fields,
        ranked_by="position",
        is_joint=True,
        needs_labels=True,
        tasks=("classification",),
        **entries,
    )


def _moments(parameters: Parameters) -> NeedMoments:
    return NeedMoments(without_zscore(parameters.score_scaling))


def _fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Return mean, m2, and a score of 0, NaN for a constant feature, each (width,), float64; later stages score."""
    moments = statistics[_moments(parameters)]
    return {"score": np.where(moments.is_constant, np.nan, 0.0), "mean": moments.mean, "m2": moments.m2}
