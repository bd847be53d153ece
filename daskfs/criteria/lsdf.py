"""Locality Sensitive Discriminant Feature: scatter between classes over scatter within classes and neighborhoods."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import PositiveInt

from daskfs.criteria.criterion import Criterion, PositiveNumber, Significance, TestedParameters
from daskfs.criteria.filters import scatter_ratio, scatters
from daskfs.criteria.laplacian import NeighborParameters
from daskfs.criteria.statistics import (
    NeedClassMoments,
    NeedGraphForms,
    NeedTails,
    Statistics,
)
from daskfs.graph.spec import Weighting
from daskfs.kernels.statistics.permutation import ratio_pvalues
from daskfs.kernels.statistics.ratios import class_invariants, class_terms
from daskfs.store.context import Context


class LSDFParameters(TestedParameters, NeighborParameters):
    """Parameters of LSDF. `graph` is "none" if no row is unlabeled, so that no edge counts."""

    n_neighbors: PositiveInt = 10
    same_class_weight: PositiveNumber = 100.0

    @property
    def weighting(self) -> Weighting:
        """Edges of weight 1 or precomputed, but none between two labeled rows: those have closed forms."""
        name, n_neighbors = ("given", 0) if self.graph == "given" else (self.spec.name, self.n_neighbors)
        return Weighting(name, n_neighbors, "binary", labeled_factor=0.0)


def _statistics(parameters: LSDFParameters) -> tuple[NeedClassMoments | NeedGraphForms, ...]:
    classes = NeedClassMoments(parameters.score_scaling)
    return (classes,) if parameters.graph == "none" else (classes, _edges(parameters))


def _edges(parameters: LSDFParameters) -> NeedGraphForms:
    return NeedGraphForms(parameters.score_scaling, parameters.weighting)


def lsdf_fields(statistics: Statistics, parameters: LSDFParameters) -> Mapping[str, np.ndarray]:
    """Return f'L_b f over f'L_w f, and both, each (width,), float64, without a sum over pairs of labeled rows.

    NaN where both are 0, as for a constant feature; +inf where only the second is.

    Over pairs of rows of one class (f_i - f_j)**2 adds up to n_c times the scatter of the class, and over all pairs of
    l labeled rows to l times their scatter about their mean. The difference of the two, which is the sum over pairs of
    different classes, is sum_c (l - n_c) m2_c + l sum_c n_c (mean_c - mean)**2, without cancellation.
    """
    moments = statistics[NeedClassMoments(parameters.score_scaling)]
    has_rows = moments.counts > 0
    counts, m2 = moments.counts[has_rows, None], moments.m2[has_rows]
    between = ((counts.sum() - counts) * m2).sum(axis=0) + counts.sum() * scatters(moments)[0]
    within = parameters.same_class_weight * (counts * m2).sum(axis=0)
    if parameters.graph != "none":
        within = within + statistics[_edges(parameters)].numerator
    return {"score": scatter_ratio(between, within), "between": between, "within": within}


def _tails(parameters: LSDFParameters) -> NeedTails:
    return NeedTails(parameters.score_scaling, of_labeled=True)


def _pvalues(statistics: Statistics, parameters: LSDFParameters) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values by permutation of the labels among the labeled rows, (width,), and a mask of those in doubt.

    Let W be the sum over classes of size times scatter. The pairs of labeled rows add up to a constant S under these
    permutations, the edges to a constant K: the score (S - W) / (g W + K) falls with W for every weight g and graph. So
    the test is that of W.
    """
    moments = statistics[NeedClassMoments(parameters.score_scaling)]
    has_rows = moments.counts > 0
    counts, m2 = moments.counts[has_rows].astype(np.float64), moments.m2[has_rows]
    total = np.add(*scatters(moments))
    by_size = (counts[:, None] * m2).sum(axis=0)  # unlike a product of matrices the same for every width of a panel
    within = np.divide(by_size, total, out=np.full(total.shape, np.nan), where=total > 0)
    expected, invariants = class_invariants(counts)
    return ratio_pvalues(within, invariants, statistics[_tails(parameters)], (expected, counts.size))


def _permutation_pvalues(
    context: Context, parameters: LSDFParameters, numbers: np.ndarray, columns: np.ndarray, cache: object
) -> np.ndarray:
    from daskfs.kernels.statistics.permuted import permuted_pvalues

    del parameters, numbers, cache
    labels = context.counted_labels()
    assert labels is not None
    terms = class_terms(labels.values, len(labels.classes))
    return permuted_pvalues(columns, terms, np.flatnonzero(labels.is_labeled))


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
        significance=Significance(lambda parameters: (_tails(parameters),), _pvalues, _permutation_pvalues),
    ),
)
