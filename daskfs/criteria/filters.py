"""Univariate filters: variance, Fisher score, Pearson correlation, Kolmogorov-Smirnov distance, information gain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from pydantic import Field
from scipy.special import chdtrc, fdtrc, kolmogorov, stdtr

from daskfs.criteria.criterion import Criterion, Parameters, Significance, TestedParameters
from daskfs.criteria.statistics import (
    Need,
    NeedClassMoments,
    NeedDistributions,
    NeedMoments,
    NeedTargetMoments,
    Statistics,
)
from daskfs.kernels.labels import Task
from daskfs.kernels.statistics.moments import ClassMoments, TargetMoments


# ------------------------------------------------------------------------------------------------------------- variance
def variance_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Return the fields, each (width,), float64; score: population variance (divisor n), NaN for a constant feature."""
    moments = statistics[NeedMoments(parameters.score_scaling)]
    return {
        "score": np.where(moments.is_constant, np.nan, moments.variance),
        "mean": moments.mean,
        "minimum": moments.minimum,
        "maximum": moments.maximum,
    }


# --------------------------------------------------------------------------------------------------------- Fisher score
def fisher_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Return the sum of n_c (mean_c - mean)**2 over the sum of n_c var_c, and both sums, each (width,), float64.

    Sums are over labeled rows. The score is +inf where the classes are constant and differ, and NaN where the feature
    is constant on the labeled rows.
    """
    moments = statistics[NeedClassMoments(parameters.score_scaling)]
    between, within = scatters(moments)
    return {"score": scatter_ratio(between, within), "between": between, "within": within}


def scatter_ratio(between: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the first over the second, each (width,), float64: +inf where only the second is 0, NaN where both are."""
    undivided = np.where((within == 0) & (between > 0), np.inf, np.nan)
    return np.asarray(np.divide(between, within, out=undivided, where=within > 0))


def scatters(moments: ClassMoments) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of n_c (mean_c - mean)**2 and of n_c var_c over classes with rows, each (width,), float64."""
    has_rows = moments.counts > 0
    counts, shifts = moments.counts[has_rows, None], moments.shifts[has_rows]
    between = (counts * (shifts - (counts * shifts).sum(axis=0) / counts.sum()) ** 2).sum(axis=0)
    return between, moments.m2[has_rows].sum(axis=0)


def variance_ratio_pvalues(moments: ClassMoments) -> np.ndarray:
    """Return the p-values of F, the ratio of the mean squares between and within classes, (width,), float64.

    NaN for a constant feature, and without more rows than classes or without two classes.
    """
    between, within = scatters(moments)
    class_counts = moments.counts[moments.counts > 0]
    of_classes, of_rows = class_counts.size - 1, class_counts.sum() - class_counts.size
    if of_classes < 1 or of_rows < 1:
        return np.full(between.shape, np.nan)
    return np.asarray(fdtrc(of_classes, of_rows, scatter_ratio(between * of_rows, within * of_classes)))


def _fisher_pvalues(statistics: Statistics, parameters: Parameters) -> np.ndarray:
    return variance_ratio_pvalues(statistics[NeedClassMoments(parameters.score_scaling)])


# -------------------------------------------------------------------------------------------------- Pearson correlation
EQUAL_CORRELATIONS = 1e-12
"""Relative difference below which correlations are equal."""


class TaskParameters(Parameters):
    """Parameters of criteria for either task; `task` is set from the data."""

    task: Task = "regression"


class PearsonParameters(TestedParameters, TaskParameters):
    """Parameters of PearsonScore."""


def pearson_needs(parameters: TaskParameters) -> tuple[Need[ClassMoments | TargetMoments]]:
    """Return the moments over labeled rows that the task needs."""
    kind = NeedClassMoments if parameters.task == "classification" else NeedTargetMoments
    return (kind(parameters.score_scaling),)


def pearson_fields(statistics: Statistics, parameters: TaskParameters) -> Mapping[str, np.ndarray]:
    """Return the correlation over labeled rows and its absolute value, each (width,), float64.

    With classes, the largest correlation with a one-against-the-rest indicator. NaN where the feature is constant on
    the labeled rows.
    """
    moments = statistics[pearson_needs(parameters)[0]]
    if isinstance(moments, TargetMoments):
        scale = np.sqrt(moments.m2) * np.sqrt(moments.target_m2)
        correlation = np.full(scale.shape, np.nan)
        np.divide(moments.comoment, scale, out=correlation, where=(scale > 0) & ~moments.is_constant)
        correlation = np.clip(correlation, -1.0, 1.0)
        return {"score": np.abs(correlation), "correlation": correlation}
    by_class = _indicator_correlations(moments)
    # the last of equal classes: with two classes this gives the sign of the correlation with the class code
    size = np.abs(by_class)
    is_largest = size >= size.max(axis=0) * (1 - EQUAL_CORRELATIONS)
    best = by_class.shape[0] - 1 - np.argmax(is_largest[::-1], axis=0)
    correlation = np.take_along_axis(by_class, best[None, :], axis=0)[0]
    return {"score": np.abs(correlation), "correlation": correlation, "class_code": best.astype(np.float64)}


def _pearson_pvalues(statistics: Statistics, parameters: PearsonParameters) -> np.ndarray:
    """Return the p-values of Student's t with n - 2 degrees of freedom, (width,), float64.

    With more than two classes, the largest of several correlations is tested: its p-value times the number of classes
    (Bonferroni), at most 1.
    """
    moments = statistics[pearson_needs(parameters)[0]]
    size, n_compared = pearson_fields(statistics, parameters)["score"], 1
    if isinstance(moments, ClassMoments):
        n_rows, n_classes = int(moments.counts.sum()), int(np.count_nonzero(moments.counts))
        n_compared = n_classes if n_classes > 2 else 1
    else:
        n_rows = int(moments.count)
    if n_rows < 3:
        return np.full(size.shape, np.nan)
    rest = 1 - size**2
    ratio = np.where(np.isnan(size), np.nan, np.inf)
    np.divide(size * np.sqrt(n_rows - 2), np.sqrt(np.abs(rest)), out=ratio, where=rest > 0)
    return np.minimum(2 * stdtr(n_rows - 2, -ratio) * n_compared, 1.0)


def _indicator_correlations(moments: ClassMoments) -> np.ndarray:
    """Return correlations with the indicator of each class, shape (n_classes, width), from class means and scatters.

    They are 0 for a class without rows, and NaN for a constant feature.
    """
    has_rows = moments.counts > 0
    counts = moments.counts[:, None].astype(np.float64)
    total = counts.sum()
    shifts = np.where(has_rows[:, None], moments.shifts, 0.0)
    deviation = shifts - (counts * shifts).sum(axis=0) / total
    scatter = moments.m2[has_rows].sum(axis=0) + (counts * deviation**2).sum(axis=0)
    constant = (moments.m2[has_rows] == 0).all(axis=0) & (shifts[has_rows] == 0).all(axis=0)
    scale = np.sqrt(scatter * counts * (1.0 - counts / total))
    result = np.divide(counts * deviation, scale, out=np.zeros_like(deviation), where=scale > 0)
    result[:, constant] = np.nan
    return np.clip(result, -1.0, 1.0)


# ------------------------------------------------------------------------------------------ Kolmogorov-Smirnov distance
def kolmogorov_fields(statistics: Statistics, parameters: Parameters) -> Mapping[str, np.ndarray]:
    """Return the largest sup |F_a - F_b| of two classes, and the first value that reaches it, each (width,), float64.

    Distributions are over labeled rows; NaN where the feature is constant on these.
    """
    tails = statistics[NeedDistributions(parameters.score_scaling)]
    return {"score": tails.distance, "threshold": tails.threshold}


def _kolmogorov_pvalues(statistics: Statistics, parameters: Parameters) -> np.ndarray:
    """Return the p-values of the two-sample distance, (width,), float64, for the largest of all pairs of classes.

    The distance of each pair is compared with the asymptotic distribution at n = n_a n_b / (n_a + n_b), with Stephens's
    correction (1970) for few rows; the largest one is at most as likely as all pairs together (Bonferroni). Values that
    repeat make the p-values too large, not too small.
    """
    tails = statistics[NeedDistributions(parameters.score_scaling)]
    counts = tails.counts
    first, second = np.triu_indices(counts.size, 1)
    total = np.zeros(tails.distance.shape)
    for effective in counts[first] * counts[second] / (counts[first] + counts[second]):
        root = np.sqrt(effective)
        total += kolmogorov((root + 0.12 + 0.11 / root) * tails.distance)
    return np.minimum(np.where(np.isnan(tails.distance), np.nan, total), 1.0)


# ----------------------------------------------------------------------------------------------------- information gain
class InformationParameters(TestedParameters):
    """Parameters of InformationGainScore.

    `n_bins` is the number of bins of equal frequency; equal values share a bin, so fewer may be in use.
    """

    n_bins: int = Field(10, ge=2, le=1000)

    def more_fields(self) -> tuple[str, ...]:
        """Return the names of the edges."""
        return tuple(f"edge_{number}" for number in range(1, self.n_bins))


def information_fields(statistics: Statistics, parameters: InformationParameters) -> Mapping[str, np.ndarray]:
    """Return H(Y) - H(Y | bin of F) in bits over labeled rows, and the bins, each field of shape (width,), float64.

    The score is NaN where the feature is constant on the labeled rows. ``edge_1``, ... are the least values of the bins
    in use except the first, ascending, then NaN.
    """
    table = statistics[NeedDistributions(parameters.score_scaling, parameters.n_bins)]
    edges = table.edges[parameters.n_bins]
    return {
        "score": np.where(table.is_constant, np.nan, table.gains[parameters.n_bins]),
        "bins_in_use": 1.0 + np.count_nonzero(~np.isnan(edges), axis=0),
        **dict(zip(parameters.more_fields(), edges, strict=True)),
    }


def _information_pvalues(statistics: Statistics, parameters: InformationParameters) -> np.ndarray:
    """Return the p-values of the G test, (width,), float64.

    2 l ln 2 times the gain over l rows, divided by Williams's correction (1976) for tables of few rows, is
    asymptotically chi-squared. Bins count as equally frequent.
    """
    fields = information_fields(statistics, parameters)
    counts = statistics[NeedDistributions(parameters.score_scaling, parameters.n_bins)].counts
    n_rows, n_bins, of_classes = counts.sum(), fields["bins_in_use"], counts.size - 1
    freedom = (n_bins - 1) * of_classes
    correction = 1 + (n_bins + 1) * (n_rows * (1 / counts).sum() - 1) / (6 * n_rows * max(of_classes, 1))
    ratio = 2 * n_rows * np.log(2) * fields["score"] / correction
    return np.where(freedom > 0, chdtrc(np.maximum(freedom, 1), np.maximum(ratio, 0.0)), np.nan)


labeled_criterion = partial(Criterion, direction="descending", reason="constant on the labeled rows", needs_labels=True)
"""Entry of a criterion of the labeled rows, large for good."""
CRITERIA = (
    Criterion(
        name="VarianceScore",
        summary="Population variance of the feature; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, section 4 (the baseline)",
        direction="descending",
        fields=("score", "mean", "minimum", "maximum"),
        parameters=Parameters,
        statistics=lambda parameters: (NeedMoments(parameters.score_scaling),),
        score=variance_fields,
    ),
    labeled_criterion(
        name="FisherScore",
        summary="Between-class over within-class scatter on the labeled rows; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, Eq. 4 (Fisher 1936)",
        fields=("score", "between", "within"),
        parameters=TestedParameters,
        statistics=lambda parameters: (NeedClassMoments(parameters.score_scaling),),
        score=fisher_fields,
        significance=Significance(lambda _: (), _fisher_pvalues),
        tasks=("classification",),
    ),
    labeled_criterion(
        name="PearsonScore",
        summary=(
            "Absolute correlation with the target, or the largest with a one-against-the-rest class indicator; "
            "large is good."
        ),
        citation="Doquire and Verleysen (2011), section 4 (the baseline); classes: one against the rest",
        fields=("score", "correlation", "class_code"),
        parameters=PearsonParameters,
        statistics=pearson_needs,
        score=pearson_fields,
        significance=Significance(lambda _: (), _pearson_pvalues),
    ),
    labeled_criterion(
        name="KolmogorovSmirnovScore",
        summary="Largest distance between the distributions of two classes on the labeled rows; large is good.",
        citation="He, Cai and Niyogi (2005), NIPS 18, section 1 (Kolmogorov 1933, Smirnov 1939)",
        fields=("score", "threshold"),
        parameters=TestedParameters,
        statistics=lambda parameters: (NeedDistributions(parameters.score_scaling),),
        score=kolmogorov_fields,
        significance=Significance(lambda _: (), _kolmogorov_pvalues),
        tasks=("classification",),
    ),
    labeled_criterion(
        name="InformationGainScore",
        summary="Entropy of the class less that within bins of equal frequency of the feature, in bits; large is good.",
        citation="Quinlan (1986), Machine Learning 1, section 4; Zhao and Liu (2007), Algorithm 2 (named there)",
        fields=("score", "bins_in_use"),
        parameters=InformationParameters,
        statistics=lambda parameters: (NeedDistributions(parameters.score_scaling, parameters.n_bins),),
        score=information_fields,
        significance=Significance(lambda _: (), _information_pvalues),
        tasks=("classification",),
    ),
)
