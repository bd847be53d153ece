"""Fisher score: scatter between classes over scatter within classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from daskfs.kernels.moments import ClassMoments
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import NeedClassMoments, Statistics


def _statistics(parameters: Parameters) -> tuple[NeedClassMoments]:
    return (NeedClassMoments(parameters.score_scaling),)


def fisher_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Sum of n_c (mean_c - mean)**2 over the sum of n_c var_c, both over labelled rows.

    +inf where the classes are constant and differ; NaN where the feature is constant on the labelled rows.
    """
    moments = statistics[_statistics(parameters)[0]]
    assert isinstance(moments, ClassMoments)
    between, within = scatters(moments)
    score = np.full(between.shape, np.nan)
    np.divide(between, within, out=score, where=within > 0)
    score[(within == 0) & (between > 0)] = np.inf
    return {"score": score, "between": between, "within": within}


def scatters(moments: ClassMoments) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of n_c (mean_c - mean)**2 and the sum of n_c var_c over the classes that there are."""
    present = moments.counts > 0
    counts, means = moments.counts[present, None], moments.means[present]
    # means are measured from one class's mean, so that an offset of 1e8 costs no digit of the between-class scatter
    shifted = means - means[0]
    between = (counts * (shifted - (counts * shifted).sum(axis=0) / counts.sum()) ** 2).sum(axis=0)
    within = moments.m2[present].sum(axis=0)
    return np.where((means == means[0]).all(axis=0), 0.0, between), within


CRITERIA = (
    Criterion(
        name="FisherScore",
        summary="Between-class over within-class scatter on the labelled rows; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, Eq. 4 (Fisher 1936)",
        direction="descending",
        fields=("score", "between", "within"),
        parameters=Parameters,
        statistics=_statistics,
        score=fisher_fields,
        reason="constant on the labelled rows",
        needs_labels=True,
        tasks=("classification",),
    ),
)
