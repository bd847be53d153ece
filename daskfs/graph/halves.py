"""Stage "halves": two halves of the features, so that either is tested on a graph that the other one makes.

A feature that helps to find neighbors varies little between them, informative or not. On a graph of other features only
a feature that shares structure with these does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.graph.spec import GraphSpec, ListsSpec
from daskfs.kernels.scaling import half_of
from daskfs.stages.cost import PROCESS, WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context

STRETCH = 4
"""Length of the shortest stretches of an axis that are tested together, in gaps."""


@dataclass(frozen=True)
class FeatureBlocks:
    """Features that are in no graph that tests one of them.

    `blocks` has the name of the block of a feature, by its number as text; one without is a block of its own. Of two
    features nearer than `gap` on an axis, by their `places`, neither is in a graph that tests the other.
    """

    blocks: Mapping[str, str] = field(default_factory=dict)
    gap: float | None = None
    places: tuple[float, ...] = ()

    @classmethod
    def of(cls, names: Sequence[str], blocks: Mapping[str, str], gap: float | None) -> FeatureBlocks:
        """Return blocks of features of these names, which are their places if they are numbers."""
        places = None if gap is None else feature_axis(names, is_asked=True)
        return cls(blocks, gap, () if places is None else tuple(places.tolist()))


NO_BLOCKS = FeatureBlocks()  # every feature is a block of its own


class HalvesParameters(StageParameters):
    """Parameters of "halves"."""

    blocks: FeatureBlocks
    random_state: int


def split_features(context: Context, parameters: HalvesParameters, unit: int) -> dict[str, Any]:
    """Store which features make either graph, and which graph tests each."""
    del unit
    graphs = split_graphs(context.tiles.first_equal(), parameters.blocks, parameters.random_state)
    context.store.put_array(layout.HALVES, graphs)
    return {"n_features": [int(np.count_nonzero(graph)) for graph in graphs[:2]]}


def split_graphs(first_equal: np.ndarray, blocks: FeatureBlocks, random_state: int) -> np.ndarray:
    """Return masks of the features of both graphs, and the graph that tests each, shape (3, n_features), uint8.

    Equal features and those of a block are in one half, chosen at random; `first_equal`, shape (n_features,), int64, is
    the first feature with the same values as each. The last row is 2 if no others are left to make a graph; then both
    graphs are of all.
    """
    n_features, gap, places = first_equal.size, blocks.gap, np.array(blocks.places)
    block = np.arange(n_features)
    if blocks.blocks:
        numbers = np.array([int(number) for number in blocks.blocks])
        block[numbers] = n_features + np.unique(list(blocks.blocks.values()), return_inverse=True)[1]
    elif gap is not None:  # half of a stretch at most is lost to its neighbors
        n_stretches = int(np.clip(np.ptp(places) / (STRETCH * gap), 2, n_features))
        block = np.searchsorted(np.linspace(places.min(), places.max(), n_stretches + 1)[1:-1], places, "right")
    _, first, members = np.unique(block, return_index=True, return_inverse=True)
    features, others = np.tile(np.arange(n_features), 2), np.concatenate([first_equal, first[members.ravel()]])
    pairs = sp.csr_array((np.ones(2 * n_features, bool), (features, others)), shape=(n_features, n_features))
    sizes = np.bincount(group := sp.csgraph.connected_components(pairs, directed=False)[1])
    order = np.argsort(np.random.PCG64([random_state, sizes.size]).random_raw(sizes.size), kind="stable")
    half = np.empty(sizes.size, np.uint8)
    half[order] = 2 * np.cumsum(sizes[order]) - sizes[order] > n_features  # the middle of the group
    half_of_feature = half[group]
    masks = np.stack([half_of_feature == 0, half_of_feature == 1, 1 - half_of_feature]).astype(np.uint8)
    for graph in (0, 1) if gap is not None else ():
        tested = np.sort(places[half_of_feature != graph])
        masks[graph] &= np.searchsorted(tested, places - gap, "right") == np.searchsorted(tested, places + gap, "left")
    if not masks[:2].any(axis=1).all():
        masks[:2], masks[2] = 1, 2
    return masks


def feature_axis(names: Sequence[str], *, is_asked: bool = False) -> np.ndarray | None:
    """Return the place of each feature on an axis, shape (n_features,), float64; None if features lie along none.

    Names that are numbers, all ascending or all descending, are places; if an axis is asked for, else the positions.
    """
    try:
        places = np.array([float(name) for name in names])
    except ValueError:
        places = np.empty(0)
    steps = np.diff(places)
    if steps.size and np.isfinite(places).all() and ((steps > 0).all() or (steps < 0).all()):
        return places
    return np.arange(1.0, len(names) + 1) if is_asked else None


def halves_cost(n_features: int) -> Cost:
    """Return the memory of the unit."""
    return (
        PROCESS,
        Array("equal features, blocks, their groups, order and halves", (20, n_features)),
        Objects("places of features and names of blocks", n_features, 100),
    )


def plan_halves(n_features: int, lists: Iterable[ListsSpec], blocks: FeatureBlocks) -> Iterator[Stage]:
    """Yield the stage that splits the features if any lists are of one half; else none."""
    halved = [spec for spec in lists if isinstance(spec, GraphSpec) and half_of(spec.scaling) is not None]
    if halved:
        yield Stage.of(
            HALVES_STAGE,
            "halves",
            1,
            HalvesParameters(blocks, halved[0].random_state),
            HALVES_STAGE.cost(n_features),
            bytes_read=WORD * n_features,
            bytes_written=3 * n_features,
        )


HALVES_STAGE = StageKind("halves", __name__, split_features, halves_cost)
