"""Locality Sensitive Discriminant Feature: scatter between classes over scatter within classes and neighborhoods."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import PositiveInt

from daskfs.criteria.filters import scatter_ratio, scatters
from daskfs.criteria.laplacian import TestedNeighbors
from daskfs.criteria.ratio_test import RatioTest, tested_half
from daskfs.criteria.registry import Criterion, PositiveNumber
from daskfs.criteria.statistics import (
    GraphForms,
    NeedClassMoments,
    NeedGraphForms,
    NeedInvariants,
    Statistics,
    statistic_of,
)
from daskfs.graph.spec import Weighting
from daskfs.kernels.statistics.moments import ClassMoments


class LSDFParameters(TestedNeighbors):
    """Parameters of LSDF. `graph` is "none" if no row is unlabeled, so that no edge counts."""

    n_neighbors: PositiveInt = 10
    same_class_weight: PositiveNumber = 100.0

    def weighting_of(self, half: int | None) -> Weighting:
        """Return edges of weight 1 or precomputed, but none between two labeled rows: those have closed forms.

        `half` is that of the features by which rows are compared, None for all.
        """
        if self.graph == "given":
            return Weighting("given", 0, "binary", labeled_factor=0.0)
        spec = self.spec if half is None else self.spec.of_half(half)
        return Weighting(spec.name, self.n_neighbors, "binary", labeled_factor=0.0)


def _classes(parameters: LSDFParameters) -> NeedClassMoments:
    return NeedClassMoments(parameters.score_scaling)


def _edges(parameters: LSDFParameters, half: int | None) -> NeedGraphForms:
    return NeedGraphForms(parameters.score_scaling, parameters.weighting_of(half), tested_half(half))


def _statistics(parameters: LSDFParameters, half: int | None = None) -> tuple[NeedClassMoments | NeedGraphForms, ...]:
    classes = _classes(parameters)
    return (classes,) if parameters.graph == "none" else (classes, _edges(parameters, half))


def lsdf_fields(
    statistics: Statistics, parameters: LSDFParameters, half: int | None = None
) -> Mapping[str, np.ndarray]:
    """Return f'L_b f over f'L_w f, and both, each (width,), float64, without a sum over pairs of labeled rows.

    NaN where both are 0, as for a constant feature; +inf where only the second is. Edges are those of X, or of one half
    of its features.

    Notes
    -----
    Over pairs of rows of one class (f_i - f_j)**2 adds up to n_c times the scatter of the class, and over all pairs of
    l labeled rows to l times their scatter about their mean. The difference of the two, which is the sum over pairs of
    different classes, is sum_c (l - n_c) m2_c + l sum_c n_c (mean_c - mean)**2, without cancellation.
    """
    moments = statistic_of(statistics, _classes(parameters), ClassMoments)
    present = moments.counts > 0
    counts, m2 = moments.counts[present, None], moments.m2[present]
    between = ((counts.sum() - counts) * m2).sum(axis=0) + counts.sum() * scatters(moments)[0]
    within = parameters.same_class_weight * (counts * m2).sum(axis=0)
    if parameters.graph != "none":
        within = within + statistic_of(statistics, _edges(parameters, half), GraphForms).numerator
    return {"score": scatter_ratio(between, within), "between": between, "within": within}


def _n_contrasts(statistics: Statistics, parameters: LSDFParameters) -> int:
    counts = statistic_of(statistics, _classes(parameters), ClassMoments).counts
    return max(int(np.count_nonzero(counts)) - 1, 1)


TEST = RatioTest(
    lambda parameters, half: NeedInvariants(
        None if parameters.graph == "none" else parameters.weighting_of(half), parameters.same_class_weight
    ),
    _statistics,
    lambda statistics, parameters, half: lsdf_fields(statistics, parameters, half)["score"],
    small_is_good=False,
    n_contrasts=_n_contrasts,
)
CRITERIA = (
    Criterion(
        name="LSDF",
        summary=(
            "How much the feature varies between classes, against how much it varies within them and between rows that "
            "are near in X; large is good."
        ),
        citation="Zhao, Lu and He (2008), Neurocomputing 71(10-12), 1842-1849",
        direction="descending",
        fields=("score", "between", "within"),
        parameters=LSDFParameters,
        statistics=_statistics,
        score=lsdf_fields,
        needs_labels=True,
        tasks=("classification",),
        uses_graph=True,
        significance=TEST.significance,
    ),
)
