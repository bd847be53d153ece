"""Stage "halves": two halves of the features, so that either is tested on a graph that the other one makes.

A feature that helps to find neighbors varies little between them, informative or not. On a graph of other features only
a feature that shares structure with these does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.spec import GraphSpec, Lists
from daskfs.kernels.scaling import half_of
from daskfs.stages.cost import PROCESS, WORD, Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context


def split_features(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Split the features at random; equal ones stay together, and constant ones are in either half."""
    del unit
    halves = random_halves(context.tiles.first_equal(), int(parameters["random_state"]))
    if halves.min() == halves.max():
        msg = (
            "p-values are of features on a graph that others make, and X has no two different ones: leave significance "
            "out, or give a graph of other data (graph.use_rep, graph.precomputed)."
        )
        raise InputError(msg)
    context.store.put_array(layout.HALVES, halves)
    return {"n_features": [int(np.count_nonzero(halves == half)) for half in (0, 1)]}


def random_halves(first_equal: np.ndarray, random_state: int) -> np.ndarray:
    """Return the half of each feature, 0 or 1, shape (n_features,), uint8.

    `first_equal`, shape (n_features,), int64, is the first feature with the same values as each.
    """
    leaders, members, sizes = np.unique(first_equal, return_inverse=True, return_counts=True)
    order = np.argsort(np.random.PCG64([random_state, leaders.size]).random_raw(leaders.size), kind="stable")
    reached = np.cumsum(sizes[order])
    half = np.empty(leaders.size, np.uint8)
    half[order] = 2 * reached - sizes[order] > first_equal.size  # the middle of the group
    return half[members]


def halves_cost(n_features: int) -> Cost:
    """Return the memory of the unit."""
    return PROCESS, Array("equal features, their groups, order and halves", (10, n_features))


def plan_halves(n_features: int, lists: Iterable[Lists]) -> list[Stage]:
    """Return the stage that splits the features if any lists are of one half; else none."""
    halved = [spec for spec in lists if isinstance(spec, GraphSpec) and half_of(spec.scaling) is not None]
    if not halved:
        return []
    return [
        Stage.of(
            HALVES_STAGE,
            "halves",
            1,
            {"random_state": halved[0].random_state},
            HALVES_STAGE.cost(n_features),
            bytes_read=WORD * n_features,
            bytes_written=n_features,
        )
    ]


HALVES_STAGE = StageKind("halves", __name__, split_features, halves_cost)
