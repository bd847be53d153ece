"""Slab fields of criteria whose later stages center and scale rows: constant features, means and sums of squares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskfs.criteria.statistics import NeedMoments, Statistics
from daskfs.kernels.scaling import Scaling, without_zscore
from daskfs.kernels.statistics.moments import Moments

CENTERED_FIELDS = ("score", "mean", "m2")


def centered_needs(scaling: Scaling | None) -> tuple[NeedMoments]:
    """Return the moments over all rows."""
    return (NeedMoments(without_zscore(scaling)),)


def centered_fields(statistics: Statistics, scaling: Scaling | None) -> Mapping[str, np.ndarray]:
    """Return mean, m2, and a score of 0, NaN for a constant feature, each (width,), float64; later stages score."""
    moments = statistics[centered_needs(scaling)[0]]
    assert isinstance(moments, Moments)
    return {"score": np.where(moments.is_constant, np.nan, 0.0), "mean": moments.mean, "m2": moments.m2}
