"""Which graph, and which weights on it: plain values that the plan, the store and the criteria share."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from daskfs.kernels.neighbors import Metric
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.weights import WeightKind

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
class Weighting:
    """Weights on a graph. `graph` names the neighbour lists: a :attr:`GraphSpec.name`, or "given" for a graph from
    outside.
    """

    graph: str
    n_neighbors: int
    weights: WeightKind = "heat"
    t: WidthRule = "mean"
    self_loops: bool = False

    @property
    def key(self) -> str:
        """A short name that is safe as a store key."""
        text = repr((self.graph, self.n_neighbors, self.weights, self.t, self.self_loops))
        return hashlib.sha256(text.encode()).hexdigest()[:12]
