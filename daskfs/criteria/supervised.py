"""Supervised Laplacian Score: the Laplacian Score on a graph of the labels alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import PositiveInt

from daskfs.criteria.criterion import Criterion, Significance, TestedParameters
from daskfs.criteria.filters import scatters, variance_ratio_pvalues
from daskfs.criteria.laplacian import FiniteWidth, quotient
from daskfs.criteria.ratio_test import RatioTest
from daskfs.criteria.statistics import NeedClassMoments, NeedGraphForms, NeedInvariants, Statistics
from daskfs.graph.spec import ListsSpec, TargetGraph, Weighting
from daskfs.kernels.labels import Task


class SupervisedParameters(TestedParameters):
    """Parameters of the Supervised Laplacian Score; with classes only `score_scaling` has an effect."""

    task: Task = "regression"
    n_neighbors: PositiveInt = 5
    t: FiniteWidth = 1.0
    standardize_y: bool = True

    @property
    def target_graph(self) -> TargetGraph:
        """The neighbor lists over the target."""
        return TargetGraph(self.standardize_y)

    @property
    def weighting(self) -> Weighting:
        """Weights of Doquire and Verleysen (2011), Eq. 4: exp(-(y_i - y_j)**2 / t) on the target's neighbors."""
        return Weighting(self.target_graph.name, self.n_neighbors, "heat", self.t)

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the lists over the target; none for classes, whose graph has a closed form."""
        del n_samples
        if self.task == "classification":
            return {}
        return {self.target_graph.name: (self.target_graph, self.n_neighbors)}


def _statistics(parameters: SupervisedParameters) -> tuple[NeedGraphForms | NeedClassMoments]:
    if parameters.task == "classification":
        return (NeedClassMoments(parameters.score_scaling),)
    return (_edges(parameters),)


def _edges(parameters: SupervisedParameters) -> NeedGraphForms:
    return NeedGraphForms(parameters.score_scaling, parameters.weighting)


def supervised_fields(statistics: Statistics, parameters: SupervisedParameters) -> Mapping[str, np.ndarray]:
    """Return f'Lf over f~'D f~ on the graph of the target or of the classes, and both, each (width,), float64.

    NaN for a feature that is constant on the labeled rows.

    The class graph of He, Cai and Niyogi (2005), Eq. 5, joins rows of one class, each also to itself, by 1 / n_class.
    Its degrees are 1, so f~'D f~ is the scatter about the mean and f'Lf that within classes: the score is 1 / (1 +
    Fisher score), 0 for a feature that is constant in each class.
    """
    if parameters.task == "regression":
        forms = statistics[_edges(parameters)]
        return {"score": quotient(forms), "numerator": forms.numerator, "denominator": forms.denominator}
    between, within = scatters(statistics[NeedClassMoments(parameters.score_scaling)])
    total = between + within
    score = np.divide(within, total, out=np.full(total.shape, np.nan), where=total > 0)
    return {"score": score, "numerator": within, "denominator": total}


def _pvalues(statistics: Statistics, parameters: SupervisedParameters) -> tuple[np.ndarray, np.ndarray]:
    """Return p-values of F with classes, whose score is 1 / (1 + Fisher score), else by permutation of targets."""
    if parameters.task == "regression":
        return TARGET_TEST.pvalues(statistics, parameters)
    pvalues = variance_ratio_pvalues(statistics[NeedClassMoments(parameters.score_scaling)])
    return pvalues, np.zeros(pvalues.shape, bool)


TARGET_TEST = RatioTest(
    lambda parameters, _: NeedInvariants(parameters.weighting),
    lambda parameters, _: (_edges(parameters),),
    lambda statistics, parameters, _: quotient(statistics[_edges(parameters)]),
    of_labeled=True,
)
CRITERIA = (
    Criterion(
        name="SupervisedLaplacianScore",
        summary=(
            "How little the feature varies between labeled rows of near targets, or of one class, against its "
            "variance; small is good."
        ),
        citation="Doquire and Verleysen (2011), IWANN, Eq. 4; for classes He, Cai and Niyogi (2005), NIPS 18, Eq. 5",
        direction="ascending",
        fields=("score", "numerator", "denominator"),
        parameters=SupervisedParameters,
        statistics=_statistics,
        score=supervised_fields,
        reason="constant on the labeled rows",
        needs_labels=True,
        significance=Significance(
            lambda parameters: () if parameters.task == "classification" else TARGET_TEST.needs(parameters),
            _pvalues,
            TARGET_TEST.permuted,
        ),
    ),
)
