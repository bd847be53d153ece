"""SVMRFE: backward elimination by the loss of Gaussian-kernel support vector machines without each feature.

The slabs find constant features and means; the rounds are stages of a loop (elimination.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from daskfs.criteria.centered import centered_criterion
from daskfs.criteria.criterion import PositiveNumber
from daskfs.criteria.laplacian import FiniteWidth, GraphParameters
from daskfs.criteria.scaling_field import GraphScalingChoice, ScalingChoice
from daskfs.graph.spec import ListsSpec, Weighting
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.svm.elimination import Candidates, CriterionName, Rule, SlackReading

LargeN = Literal["auto", "exact", "landmarks"]
Route = Literal["exact", "landmarks"]
Share = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]
EXACT_ROWS = 15_000
"""Maximum labeled rows with which "auto" trains machines on all of them, if they fit."""
EXACT_GRAPH_ROWS = 6_000
"""Maximum rows, labeled or not, with which "auto" uses the graph of all; a round solves a system of that size."""


class SVMParameters(GraphParameters):
    """Parameters of SVMRFE."""

    score_scaling: ScalingChoice = "zscore"
    criterion: CriterionName = "rfe"
    retrain: bool = False
    laplacian: bool = False
    C: FiniteWidth = 10.0
    gamma: FiniteWidth | Literal["auto"] = "auto"
    gamma_intrinsic: FiniteWidth = 0.1
    step: Share | PositiveInt = 0.25
    n_singly: PositiveInt = 8
    candidates: Candidates = "first_order"
    slack: SlackReading = "recomputed"
    slack_factor: PositiveNumber = 2.0
    n_neighbors: PositiveInt = 6
    weights: WeightKind = "binary"
    t: FiniteWidth | Literal["mean", "median"] = "mean"
    graph_scaling: GraphScalingChoice = "zscore"
    rebuild_graph: bool = True
    large_n: LargeN = "auto"
    n_landmarks: PositiveInt = 200
    ridge: PositiveNumber = 1e-3
    random_state: NonNegativeInt = 0

    @model_validator(mode="after")
    def _landmarks_judge_norms(self) -> SVMParameters:
        if self.large_n == "landmarks" and self.laplacian and self.graph == "given":
            msg = "large_n 'landmarks' has a graph of its own, and takes none from outside"
            raise ValueError(msg)
        if self.large_n == "landmarks" and not self.may_use_landmarks:
            msg = (
                "large_n 'landmarks' is for criterion 'rfe' without retrain: it never goes back to single rows with a "
                "candidate left out"
            )
            raise ValueError(msg)
        return self

    @property
    def may_use_landmarks(self) -> bool:
        """Whether sums over landmarks suffice for the criterion."""
        return self.criterion == "rfe" and not self.retrain and not (self.laplacian and self.graph == "given")

    @property
    def keeps_graph(self) -> bool:
        """Whether one graph serves all rounds: that of all features, or a precomputed one."""
        is_allowed = self.graph == "given" or not self.rebuild_graph
        return self.laplacian and self.large_n != "landmarks" and is_allowed

    @property
    def rule(self) -> Rule:
        """Rule by which candidates are scored."""
        return Rule(self.criterion, self.retrain, self.candidates, self.slack, self.slack_factor, self.C, self.n_singly)

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the lists over X, if one graph serves all rounds and is not precomputed."""
        return super().lists(n_samples) if self.keeps_graph else {}

    def weightings(self) -> tuple[Weighting, ...]:
        """Return the weighted graphs that stages after the slabs read."""
        return (self.weighting,) if self.keeps_graph else ()

    def idle(self) -> tuple[str, ...]:
        """Return the parameters that have no effect with these settings."""
        idle: list[str] = []
        if not self.laplacian:
            idle += ["gamma_intrinsic", "n_neighbors", "metric", "weights", "rebuild_graph"]
        if not self.keeps_graph:
            idle += ["graph_scaling"]
        if not self.laplacian or self.weights != "heat":
            idle += ["t"]
        idle += ["self_loops"]  # they cancel in L
        if self.criterion == "rfe":
            idle += ["slack", "slack_factor"]
        elif self.retrain:
            idle += ["slack"]
        if self.retrain and not self.laplacian:
            idle += ["candidates"]
        if self.large_n == "exact" or not self.may_use_landmarks:
            idle += ["n_landmarks", "ridge", "random_state"]
        if self.large_n == "landmarks":
            idle += ["C", "metric", "weights", "t", "rebuild_graph", "graph_scaling"]
        return tuple(dict.fromkeys(idle))

    def width(self, n_left: int, n_features: int) -> float:
        """Return gamma for `n_left` remaining of `n_features` features that are not constant.

        The paper does not give it. "auto" is 1 / n_left for the bound ("rmb"), and 1 / n_features for the norm ("rfe"),
        whose change fades as the kernel of a machine with few features sharpens.

        Notes
        -----
        Of the paper's 52 features, both relevant ones were kept in 8 of 8 sets of 100 and of 300 rows; with 1 / n_left
        "rfe" kept both in 4 and in 0, and with 1 / n_features "rmb" in none (C = 10).
        """
        if self.gamma != "auto":
            return float(self.gamma)
        return 1.0 / (n_left if self.criterion == "rmb" else n_features)

    def n_leaving(self, n_left: int) -> int:
        """Return the number of features that leave in a round of `n_left`.

        The share or number `step`, rounded down, but at least `n_singly` stay; from there on one leaves at a time.
        """
        if n_left <= self.n_singly:
            return 1
        n_dropped = int(self.step) if self.step >= 1 else int(self.step * n_left)
        return max(1, min(n_dropped, n_left - self.n_singly))

    def n_rounds(self, n_features: int) -> int:
        """Return the number of rounds that order `n_features` features: until one is left, at least one."""
        n_left, rounds = n_features, 0
        while n_left > 1 or rounds == 0:
            n_left -= self.n_leaving(n_left)
            rounds += 1
        return rounds


CRITERIA = (
    centered_criterion(
        name="SVMRFE",
        summary=(
            "Backward elimination by support vector machines with a Gaussian kernel, plain or Laplacian; features that "
            "stay long come first, and within a round large is good."
        ),
        citation="Bodo and Minier (2008), Studia Universitatis Babes-Bolyai Informatica 53(2), Algorithm 1",
        fields=("score", "round", "position"),
        parameters=SVMParameters,
        finish="svm",
        uses_graph=True,
    ),
)
