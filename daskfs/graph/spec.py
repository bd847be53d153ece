"""Which graph, and which weights on it: plain values that the plan, the store and the criteria share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from daskfs.kernels.neighbors.rows import Metric
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.scaling import Scaling

Engine = Literal["auto", "exact", "cells", "pynndescent"]
ENGINES: tuple[Engine, ...] = ("auto", "exact", "cells", "pynndescent")
WidthRule = float | Literal["mean", "median"]


@dataclass(frozen=True)
class GraphSpec:
    """A k-nearest-neighbour graph, up to k: what decides the neighbour lists.

    Lists are sorted, so one build with the largest k of a job serves every smaller k. `recall` is what an approximate
    search aims at; `projection` the number of columns it compares rows in before it measures them, None for all.
    """

    metric: Metric = "euclidean"
    scaling: Scaling | None = None
    engine: Engine = "auto"
    recall: float = 0.98
    projection: int | Literal["auto"] | None = "auto"
    random_state: int = 0

    @property
    def name(self) -> str:
        """Short name, used as the store's group name; distinct for distinct specs of one job."""
        return self.metric if self.scaling is None else f"{self.metric}-{self.scaling}"


@dataclass(frozen=True)
class TargetGraph:
    """The nearest labelled rows of each labelled row by the target alone, which is a sort.

    Lengths are absolute differences of the target, `standardize` d to z-scores over the labelled rows. Ties go by row
    number. There are fewer neighbors where there are fewer labels.
    """

    standardize: bool = True

    @property
    def name(self) -> str:
        """Short name, used as the store's group name."""
        return "target" if self.standardize else "target-raw"


TARGET_NAMES = frozenset(TargetGraph(standardize).name for standardize in (True, False))
"""Names of lists that only labelled rows have."""


@dataclass(frozen=True)
class MixedGraph:
    """The nearest neighbors by the mixed distance d of Doquire and Verleysen (2011), Eq. 8.

    Two labelled rows are as far apart as their targets, any other two as far as their rows in the space of `base`,
    per feature. `neighbors` "d" takes the nearest by that distance, "x" the nearest rows of `base`. Lengths are square
    roots of d.
    """

    base: GraphSpec
    neighbors: Literal["d", "x"] = "d"
    standardize: bool = True

    @property
    def name(self) -> str:
        """Short name, used as the store's group name."""
        return f"mixed-{self.neighbors}-{self.base.name}{'' if self.standardize else '-raw'}"

    def n_candidates(self, n_samples: int, k: int) -> int:
        """Return how many of the nearest rows of `base` are looked through for k neighbors: all others up to 1024 rows,
        where the lists are exact for sure, and never fewer than 64 where there are so many.
        """
        wanted = k if self.neighbors == "x" else max(64, 2 * k, 2**20 // n_samples)
        return min(n_samples - 1, wanted)


Lists = GraphSpec | TargetGraph | MixedGraph
"""What decides neighbor lists, whichever kind."""


@dataclass(frozen=True)
class Weighting:
    """Weights on a graph. `graph` names the neighbour lists: the name of :data:`Lists`, or "given" for a graph from
    outside. Weights of edges between two labelled rows are multiplied by `labelled_factor`; a factor of 0 leaves them
    out.
    """

    graph: str
    n_neighbors: int
    weights: WeightKind = "heat"
    t: WidthRule = "mean"
    self_loops: bool = False
    labelled_factor: float = 1.0

    @property
    def key(self) -> str:
        """A short name that is safe as a store key."""
        text = repr((self.graph, self.n_neighbors, self.weights, self.t, self.self_loops, self.labelled_factor))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def connects(self) -> Literal["all", "labelled", "unlabelled"]:
        """Rows that the weights are meant to connect, so that one without an edge among them is worth a word."""
        if self.graph in TARGET_NAMES:
            return "labelled"
        return "unlabelled" if self.labelled_factor == 0 else "all"
