"""Absolute Pearson correlation with the target, or with the indicator of a class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskfs.kernels.labels import Task
from daskfs.kernels.moments import ClassMoments, TargetMoments
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import Need, NeedClassMoments, NeedTargetMoments, Statistics

ROUND_OFF = 1e-12
"""Correlations that differ by less than this share are equal."""


class PearsonParameters(Parameters):
    """`task` is filled in from the data."""

    task: Task = "regression"


def pearson_needs(parameters: PearsonParameters) -> tuple[Need]:
    """Return the moments over labelled rows that a task takes."""
    if parameters.task == "classification":
        return (NeedClassMoments(parameters.score_scaling),)
    return (NeedTargetMoments(parameters.score_scaling),)


def pearson_fields(statistics: Statistics, parameters: PearsonParameters) -> Mapping[str, np.ndarray]:
    """Absolute correlation over labelled rows; with classes, the largest over one-against-the-rest indicators.

    NaN where the feature is constant on the labelled rows.
    """
    moments = statistics[pearson_needs(parameters)[0]]
    if isinstance(moments, TargetMoments):
        scale = np.sqrt(moments.m2) * np.sqrt(moments.target_m2)
        correlation = np.full(scale.shape, np.nan)
        np.divide(moments.comoment, scale, out=correlation, where=(scale > 0) & ~moments.is_constant)
        correlation = np.clip(correlation, -1.0, 1.0)
        return {"score": np.abs(correlation), "correlation": correlation}
    assert isinstance(moments, ClassMoments)
    by_class = _indicator_correlations(moments)
    # the last of equal classes: with two classes this gives the sign of the correlation with the class code
    size = np.abs(by_class)
    is_largest = size >= size.max(axis=0) * (1 - ROUND_OFF)
    best = by_class.shape[0] - 1 - np.argmax(is_largest[::-1], axis=0)
    correlation = np.take_along_axis(by_class, best[None, :], axis=0)[0]
    return {"score": np.abs(correlation), "correlation": correlation, "class_code": best.astype(np.float64)}


def _indicator_correlations(moments: ClassMoments) -> np.ndarray:
    """Correlations with the indicator of each class that has rows, shape (n_classes, width), from class means and
    scatters.
    """
    present = moments.counts > 0
    counts = moments.counts[:, None].astype(np.float64)
    total = counts.sum()
    shifted = np.where(present[:, None], moments.means - moments.means[present][0], 0.0)
    deviation = shifted - (counts * shifted).sum(axis=0) / total
    scatter = moments.m2[present].sum(axis=0) + (counts * deviation**2).sum(axis=0)
    constant = (moments.m2[present] == 0).all(axis=0) & (shifted[present] == 0).all(axis=0)
    scale = np.sqrt(scatter * counts * (1.0 - counts / total))
    result = np.full(deviation.shape, 0.0)
    np.divide(counts * deviation, scale, out=result, where=scale > 0)
    result[:, constant] = np.nan
    return np.clip(result, -1.0, 1.0)


CRITERIA = (
    Criterion(
        name="PearsonScore",
        summary=(
            "Absolute correlation with the target, or the largest with a one-against-the-rest class indicator; "
            "large is good."
        ),
        citation="Doquire and Verleysen (2011), section 4 (the baseline); classes: one against the rest",
        direction="descending",
        fields=("score", "correlation", "class_code"),
        parameters=PearsonParameters,
        statistics=pearson_needs,
        score=pearson_fields,
        reason="constant on the labelled rows",
        needs_labels=True,
    ),
)
