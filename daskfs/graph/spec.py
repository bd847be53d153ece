"""Specifications of graphs and edge weights: plain values shared by the plan, the store and the criteria."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Literal, get_args

from daskfs.errors import InputError
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.scaling import Scaling, components_of, of_half

Engine = Literal["auto", "exact", "cells", "descent", "pynndescent"]
ENGINES: tuple[Engine, ...] = get_args(Engine)
WidthRule = float | Literal["mean", "median"]


@dataclass(frozen=True)
class GraphSpec:
    """Specification of neighbor lists over X, without their length.

    Lists are sorted, so one build with the largest k of a job serves every smaller k. `recall` is the target of an
    approximate search; `projection` the number of columns in which it finds candidates, None for all. `rep_columns` and
    `rep_dtype` are those of another representation of the rows, which is compared instead of X; None for X.
    """

    metric: Metric = "euclidean"
    scaling: Scaling | None = None
    engine: Engine = "auto"
    recall: float = 0.98
    projection: int | Literal["auto"] | None = "auto"
    random_state: int = 0
    rep_columns: int | None = None
    rep_dtype: str = "float32"

    @property
    def name(self) -> str:
        """Name of the group in the store; distinct for distinct specs of one job."""
        metric = self.metric
        if "[" in metric:  # arrays of numbers
            metric = f"{metric.partition('(')[0]}({hashlib.sha256(metric.encode()).hexdigest()[:12]})"
        return metric if self.scaling is None else f"{metric}-{self.scaling}"

    def of_half(self, half: int) -> GraphSpec:
        """Return the specification of lists by one half of the columns alone, 0 or 1."""
        return replace(self, scaling=of_half(self.scaling, half))

    def for_lists(self, spec: GraphSpec) -> GraphSpec:
        """Return a specification of other lists, searched by the options and in the representation of this one."""
        return replace(self, metric=spec.metric, scaling=spec.scaling)

    @property
    def n_components(self) -> int | None:
        """Maximum number of principal components in which rows are compared; None for the columns of X."""
        return components_of(self.scaling)

    @property
    def own_rows(self) -> str | None:
        """Name of the stored rows that are compared instead of rows of X; None for those."""
        if self.rep_columns is not None:
            return "representation"
        return self.scaling if self.n_components is not None else None

    @property
    def read_scaling(self) -> Scaling | None:
        """Scaling of the rows that the search reads; None for principal components, which are of scaled rows."""
        return self.scaling if self.n_components is None else None


@dataclass(frozen=True)
class TargetGraph:
    """Nearest labeled rows of each labeled row by the target alone.

    Lengths are absolute differences of the target; with `standardize`, of its z-scores over the labeled rows. Ties are
    ordered by row number. Lists are shorter if there are fewer labels.
    """

    standardize: bool = True

    @property
    def name(self) -> str:
        """Name of the group in the store."""
        return "target" if self.standardize else "target-raw"


TARGET_NAMES = frozenset(TargetGraph(standardize).name for standardize in (True, False))
"""Names of lists that exist for labeled rows only."""


@dataclass(frozen=True)
class MixedGraph:
    """Nearest neighbors by the mixed distance d of Doquire and Verleysen (2011), Eq. 8.

    d compares two labeled rows by their targets, any other two by their squared distance in `base`: per feature where
    it is Euclidean, and as it is by other metrics, which the paper does not have. `neighbors` "d" takes the nearest by
    d, "x" the nearest in `base`. Lengths are square roots of d.
    """

    base: GraphSpec
    neighbors: Literal["d", "x"] = "d"
    standardize: bool = True

    @property
    def name(self) -> str:
        """Name of the group in the store."""
        return f"mixed-{self.neighbors}-{self.base.name}{'' if self.standardize else '-raw'}"

    def n_candidates(self, n_samples: int, k: int) -> int:
        """Return the number of nearest rows of `base` that are candidates for k neighbors.

        With "d", all others up to 1024 rows, so that the lists are exact, and at least 64 if there are that many.
        """
        count = k if self.neighbors == "x" else max(64, 2 * k, 2**20 // n_samples)
        return min(n_samples - 1, count)


ListsSpec = GraphSpec | TargetGraph | MixedGraph
"""Specification of neighbor lists of any kind."""


@dataclass(frozen=True)
class Weighting:
    """Edge weights on a graph.

    `graph` is the name of :data:`ListsSpec`, or "given" for a precomputed matrix. Weights of edges between two labeled
    rows are multiplied by `labeled_factor`; a factor of 0 removes these edges.
    """

    graph: str
    n_neighbors: int
    weights: WeightKind = "heat"
    t: WidthRule = "mean"
    self_loops: bool = False
    labeled_factor: float = 1.0

    def __post_init__(self) -> None:
        if self.weights == "heat" and "inner_product" in self.graph:
            msg = "metric 'inner_product' is no length, of which there are no heat weights: set weights to binary."
            raise InputError(msg)

    @property
    def key(self) -> str:
        """Short hash that is safe as a store key."""
        text = repr((self.graph, self.n_neighbors, self.weights, self.t, self.self_loops, self.labeled_factor))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def connects(self) -> Literal["all", "labeled", "unlabeled"]:
        """Rows that the weights are meant to connect; isolated ones among them are reported."""
        if self.graph in TARGET_NAMES:
            return "labeled"
        return "unlabeled" if self.labeled_factor == 0 else "all"


def check_neighbors(k: int, n_samples: int) -> None:
    """Raise :class:`InputError` unless there are more than k rows."""
    if k >= n_samples:
        msg = f"n_neighbors is {k}, and X has n_samples={n_samples} rows: at most {n_samples - 1} neighbors exist."
        raise InputError(msg)
