"""A criterion of its own package: the range of a feature to a power."""

from collections.abc import Mapping

import numpy as np

from daskfs.criteria.criterion import Criterion, Parameters, PositiveNumber
from daskfs.criteria.statistics import NeedMoments, Statistics
from daskfs.estimators.base import ScoreSelector, selector


class RangeParameters(Parameters):
    """Parameters of the criterion, beside `score_scaling`, which every criterion has."""

    power: PositiveNumber = 1.0


def needs(parameters: RangeParameters) -> tuple[NeedMoments]:
    """Name the statistics that a block of features is asked for."""
    return (NeedMoments(parameters.score_scaling),)


def score(statistics: Statistics, parameters: RangeParameters) -> Mapping[str, np.ndarray]:
    """Return the fields of a block, each of shape (width,); NaN means no score."""
    moments = statistics[NeedMoments(parameters.score_scaling)]
    low, high = moments.extremes
    return {"score": np.where(moments.is_constant, np.nan, (high - low) ** parameters.power)}


RANGE_SCORE = Criterion(
    name="RangeScore",
    summary="Range of the feature to a power; large is good",
    citation="Example (2026)",
    direction="descending",
    fields=("score",),
    parameters=RangeParameters,
    statistics=needs,
    score=score,
)


@selector
class RangeScore(ScoreSelector):
    """Range of a feature to a power; large is good."""

    _criterion = "RangeScore"

    power: float = 1.0
