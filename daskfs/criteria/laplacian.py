"""Laplacian Score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field, PositiveInt, ValidationInfo, field_validator, model_validator

from daskfs.criteria.criterion import Criterion, Parameters, Significance, TestedParameters
from daskfs.criteria.ratio_test import RatioTest
from daskfs.criteria.scaling_field import GraphScalingChoice
from daskfs.criteria.statistics import (
    Denominator,
    GraphForms,
    NeedGraphForms,
    NeedInvariants,
    NeedMoments,
    Statistics,
)
from daskfs.graph.spec import GraphSpec, ListsSpec, Weighting
from daskfs.kernels.neighbors.metrics import checked_metric
from daskfs.kernels.neighbors.weights import WeightKind

FiniteWidth = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class MetricFields(BaseModel):
    """A metric and its arguments; validation writes both into `metric`, as in "minkowski(p=3)"."""

    metric_kwds: dict[str, Any] | None = Field(None, description="Arguments of the metric: {p: 3}.", exclude=True)
    metric: str = Field("euclidean", description="Distance between rows, by pynndescent's name.", validate_default=True)

    @field_validator("metric")
    @classmethod
    def _with_arguments(cls, metric: str, info: ValidationInfo) -> str:
        return checked_metric(metric, info.data.get("metric_kwds"))


class GraphChoice(MetricFields):
    """Neighbor-graph settings of a method, which a job may set for all methods."""

    n_neighbors: PositiveInt = Field(5, description="Neighbors of each row, without itself.")
    weights: WeightKind = Field(
        "heat", description="Of an edge of length d. heat: exp(-d**2 / t). binary: 1. cosine: the cosine of the rows."
    )
    t: FiniteWidth | Literal["mean", "median"] = Field(
        "mean", description="Width of heat weights: a number, or the mean or median of d**2 over the edges."
    )
    self_loops: bool = Field(default=False, description="Whether every row has an edge of weight 1 to itself.")


class NeighborParameters(MetricFields, Parameters):
    """Parameters of every criterion on neighbor lists over X.

    `graph` is "given" for a precomputed matrix of weights, and "none" when there is no edge to weigh. `foreign_graph`
    says that the graph is of other data than X.
    """

    n_neighbors: PositiveInt = 5
    graph_scaling: GraphScalingChoice = None
    graph: Literal["neighbors", "given", "none"] = Field(default="neighbors", exclude=True)
    foreign_graph: bool = False

    @property
    def spec(self) -> GraphSpec:
        """The neighbor lists over X."""
        return GraphSpec(metric=self.metric, scaling=self.graph_scaling)

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the lists over X, if `graph` is "neighbors"."""
        del n_samples
        return {self.spec.name: (self.spec, self.n_neighbors)} if self.graph == "neighbors" else {}


class GraphParameters(GraphChoice, NeighborParameters):
    """Parameters of every criterion on the weighted graph over X."""

    @model_validator(mode="after")
    def _cosine_weights_need_cosines(self) -> GraphParameters:
        if self.weights == "cosine" and self.metric != "cosine":
            msg = "weights 'cosine' need metric 'cosine', whose edge lengths hold the cosines"
            raise ValueError(msg)
        return self

    @property
    def weighting(self) -> Weighting:
        """The weighted graph these parameters ask for."""
        return self.weighting_of(None)

    def weighting_of(self, half: int | None) -> Weighting:
        """Return the same by one half of the features."""
        if self.graph == "given":  # weights are precomputed: one weighting for all methods
            return Weighting("given", 0, "binary", "mean", self.self_loops)
        spec = self.spec if half is None else self.spec.of_half(half)
        return Weighting(spec.name, self.n_neighbors, self.weights, self.t, self.self_loops)


class LaplacianParameters(TestedParameters, GraphParameters):
    """Parameters of LaplacianScore."""

    denominator: Denominator = Field(
        "degree",
        description=(
            "Scale of the scores. degree: the variance in which rows count by their degrees, as in the paper. "
            "variance: the sum of squares about the mean, in which they count alike (Geary's C up to a factor)."
        ),
    )

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the lists over X, and those over each half of it that a test needs."""
        specs = [self.spec.of_half(half) for half in self.halves if half is not None]
        return {**super().lists(n_samples), **{spec.name: (spec, self.n_neighbors) for spec in specs}}

    @property
    def halves(self) -> tuple[int, int] | tuple[None]:
        """Halves of the features whose graphs the features of the other half are tested on; None for the graph itself.

        The test needs a graph that the tested feature has not made.
        """
        return (0, 1) if self.significance and self.graph == "neighbors" and not self.foreign_graph else (None,)


def _forms(parameters: LaplacianParameters, half: int | None) -> NeedGraphForms:
    return NeedGraphForms(parameters.score_scaling, parameters.weighting_of(half), half)


def _statistics(parameters: LaplacianParameters, half: int | None = None) -> tuple[NeedGraphForms | NeedMoments, ...]:
    forms = _forms(parameters, half)
    return (forms,) if parameters.denominator == "degree" else (forms, NeedMoments(parameters.score_scaling))


def laplacian_fields(
    statistics: Statistics, parameters: LaplacianParameters, half: int | None = None
) -> Mapping[str, np.ndarray]:
    """Return f'Lf over f~'D f~, and both terms, each (width,), float64; `half` is that of the features of the graph.

    The score is in [0, 2] if D holds the degrees, and NaN for a feature that is constant on the rows with an edge.
    """
    forms = statistics[_forms(parameters, half)]
    if parameters.denominator == "variance":  # D = I
        forms = replace(forms, denominator=statistics[NeedMoments(parameters.score_scaling)].m2)
    return {"score": quotient(forms), "numerator": forms.numerator, "denominator": forms.denominator}


def quotient(forms: GraphForms) -> np.ndarray:
    """Return f'Lf over f~'D f~, shape (width,), float64; NaN for a feature constant on the rows that have an edge."""
    score = np.full(forms.numerator.shape, np.nan)
    np.divide(forms.numerator, forms.denominator, out=score, where=~forms.is_constant & (forms.denominator > 0))
    return score


GRAPH_TEST = RatioTest(
    lambda parameters, half: NeedInvariants(parameters.weighting_of(half), parameters.denominator),
    _statistics,
    lambda statistics, parameters, half: laplacian_fields(statistics, parameters, half)["score"],
)
MEANINGS = ("share structure with other features", "follow the graph that is given")
CRITERIA = (
    Criterion(
        name="LaplacianScore",
        summary=(
            "How little the feature varies along the edges of the neighbor graph, against its variance; small is good."
        ),
        citation="He, Cai and Niyogi (2005), NIPS 18, Eq. 1",
        direction="ascending",
        fields=("score", "numerator", "denominator"),
        parameters=LaplacianParameters,
        statistics=_statistics,
        score=laplacian_fields,
        reason="constant on the rows that have an edge",
        uses_graph=True,
        significance=Significance(
            GRAPH_TEST.needs, GRAPH_TEST.pvalues, GRAPH_TEST.permuted, lambda p: MEANINGS[p.halves == (None,)]
        ),
    ),
)
