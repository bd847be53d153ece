"""Semi-Supervised Laplacian Score: a graph of all rows by targets and by X, times the graph of the labeled rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import PositiveInt

from daskfs.criteria.criterion import Criterion, Parameters, PositiveNumber
from daskfs.criteria.laplacian import FiniteWidth, MetricFields, quotient
from daskfs.criteria.scaling_field import GraphScalingChoice
from daskfs.criteria.statistics import NeedGraphForms, Statistics
from daskfs.graph.spec import GraphSpec, ListsSpec, MixedGraph, TargetGraph, Weighting


class SemiSupervisedParameters(MetricFields, Parameters):
    """Parameters of the Semi-Supervised Laplacian Score."""

    n_neighbors: PositiveInt = 30
    n_label_neighbors: PositiveInt = 5
    t: FiniteWidth = 1.0
    label_weight: PositiveNumber = 5.0
    neighbors: Literal["d", "x"] = "d"
    standardize_y: bool = True
    graph_scaling: GraphScalingChoice = "zscore"

    @property
    def mixed_graph(self) -> MixedGraph:
        """The neighbor lists over targets and X."""
        return MixedGraph(GraphSpec(self.metric, self.graph_scaling), self.neighbors, self.standardize_y)

    @property
    def target_graph(self) -> TargetGraph:
        """The neighbor lists over the target."""
        return TargetGraph(self.standardize_y)

    @property
    def weighting(self) -> Weighting:
        """Weights on the mixed graph: exp(-d / t), times `label_weight` between labeled rows."""
        return Weighting(self.mixed_graph.name, self.n_neighbors, "heat", self.t, labeled_factor=self.label_weight)

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the lists over X, the mixed lists made from them, and those over the target."""
        mixed, base = self.mixed_graph, self.mixed_graph.base
        return {
            base.name: (base, mixed.n_candidates(n_samples, self.n_neighbors)),
            mixed.name: (mixed, self.n_neighbors),
            self.target_graph.name: (self.target_graph, self.n_label_neighbors),
        }


def _statistics(parameters: SemiSupervisedParameters) -> tuple[NeedGraphForms, NeedGraphForms]:
    by_target = Weighting(parameters.target_graph.name, parameters.n_label_neighbors, "heat", parameters.t)
    return (
        NeedGraphForms(parameters.score_scaling, parameters.weighting),
        NeedGraphForms(parameters.score_scaling, by_target),
    )


def semi_supervised_fields(statistics: Statistics, parameters: SemiSupervisedParameters) -> Mapping[str, np.ndarray]:
    """Return f'Lf over f~'D f~ on the mixed graph, the Supervised Laplacian Score, and their product as score.

    All are (width,), float64; NaN for a feature constant on the rows that have an edge. Where it is constant on the
    labeled rows only, the second factor is 0/0 and is left out.
    """
    first, second = (quotient(statistics[need]) for need in _statistics(parameters))
    return {"score": first * np.where(np.isnan(second), 1.0, second), "mixed": first, "supervised": second}


CRITERIA = (
    Criterion(
        name="SemiSupervisedLaplacianScore",
        summary=(
            "How little the feature varies between rows that are near by target or in X, times the same between "
            "labeled rows of near targets, each against its variance; small is good."
        ),
        citation="Doquire and Verleysen (2011), IWANN, Eq. 8-10",
        direction="ascending",
        fields=("score", "mixed", "supervised"),
        parameters=SemiSupervisedParameters,
        statistics=_statistics,
        score=semi_supervised_fields,
        reason="constant on the rows that have an edge",
        needs_labels=True,
        tasks=("regression",),
        uses_graph=True,
        untested="its score is a product of two ratios",
    ),
)
