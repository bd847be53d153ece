"""What criteria share whose stages after the slabs work with centered and scaled rows.

The slabs say which features are constant, and the means and sums of squares of all.
"""

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
    """Return moments, and a score of NaN where a feature is constant; stages after the slabs make the others."""
    moments = statistics[centered_needs(scaling)[0]]
    assert isinstance(moments, Moments)
    return {"score": np.where(moments.is_constant, np.nan, 0.0), "mean": moments.mean, "m2": moments.m2}
