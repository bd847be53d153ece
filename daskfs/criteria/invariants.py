"""Stage "invariants": sums over the edges of a graph that the permutation moments of all features need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.registry import Method
from daskfs.criteria.statistics import Denominator, NeedHalves, NeedInvariants, needs_of
from daskfs.graph.edges import edge_bytes, loop_weights, stored_edges, weight_summary, weighted_blocks
from daskfs.graph.partition import largest_block
from daskfs.graph.spec import Weighting
from daskfs.kernels.statistics.ratios import LaplacianRatio, n_probes
from daskfs.stages.cost import WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.store.tiles import PANEL_WIDTH

if TYPE_CHECKING:  # importing it imports numba
    from daskfs.kernels.statistics.permuted import RatioTerms

HELD_EDGES = 2**24
"""Edges of the largest graph on which features are permuted, which a worker then holds."""


def _blocks(context: Context, weighting: Weighting) -> Iterator[sp.csr_matrix]:
    """Yield matrices, shape (n_samples, n_samples), that hold each edge once."""
    n_samples = context.tiles.shape.n_samples
    for source, target, weights in weighted_blocks(context, weighting.graph, weighting.n_neighbors, [weighting]):
        yield sp.csr_matrix((weights[0], (source, target)), shape=(n_samples, n_samples))


def ratio_terms(context: Context, need: NeedInvariants) -> RatioTerms | None:
    """Return the terms of a ratio, with all weights of its graph; None if these are more than are held."""
    n_samples = context.tiles.shape.n_samples
    if is_too_large(context.store, need):
        return None
    half = sum(_blocks(context, need.weighting), sp.csr_matrix((n_samples, n_samples)))
    return ratio_of(context, need).terms((half + half.T).tocsr())


def is_too_large(store: Store, need: NeedInvariants) -> bool:
    """Return whether a graph has more edges than a worker holds, so that nothing is permuted on it."""
    return bool(weight_summary(store, need.weighting)["n_edges"] > HELD_EDGES)


def ratio_of(context: Context, need: NeedInvariants) -> LaplacianRatio:
    """Return the ratio of quadratic forms of a need; each of its products streams the edges once."""
    weighting = need.weighting

    def products(panels: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        product_by_power = {power: np.zeros(panel.shape) for power, panel in panels.items()}
        for block in _blocks(context, weighting):
            for power, panel in panels.items():
                of_power = block.power(power)
                product_by_power[power] += of_power @ panel
                product_by_power[power] += of_power.T @ panel
        return product_by_power

    degrees = context.store.open(layout.DEGREES.format(weighting.key))[...]
    loops = loop_weights(context.store, weighting, None)
    sums = degrees if loops is None else degrees - loops
    diagonal = degrees if need.denominator == "degree" else np.ones_like(degrees)
    return LaplacianRatio(sums, diagonal, products)


class InvariantsParameters(StageParameters):
    """Parameters of "invariants"."""

    weighting: Weighting
    denominator: Denominator


def find_invariants(context: Context, parameters: InvariantsParameters, unit: int) -> None:
    """Store the invariants of one weighted graph."""
    del unit
    need = NeedInvariants(parameters.weighting, parameters.denominator)
    context.store.write_json(layout.INVARIANTS.format(need.key), ratio_of(context, need).invariants().to_json())


def invariants_cost(n_samples: int, weighting: Weighting, process: Cost) -> Cost:
    """Return the memory of the unit."""
    return (
        *process,
        Array("panels that are multiplied, put together and again", (5, n_samples, n_probes(n_samples) + 3)),
        Array("vectors of rows", (24, n_samples)),
        *stored_edges(n_samples, weighting.n_neighbors),
        Array(
            "a block of weights as a matrix, sorted, and of powers",
            (6, largest_block(n_samples) * weighting.n_neighbors),
        ),
        Array("where its rows begin", (6, n_samples), "int64"),
    )


def tests_of(methods: Sequence[Method]) -> list[NeedInvariants]:
    """Return the needs of the methods that test features on graphs, each once."""
    return needs_of((need for method in methods for need in method.needs), NeedInvariants)


def are_crossed(methods: Sequence[Method]) -> bool:
    """Return whether features are tested on the graph of the other half of them."""
    return any(need == NeedHalves() for method in methods for need in method.needs)


def tests_cost(shape: Shape, columns: int, methods: Sequence[Method]) -> Cost:
    """List what a unit that scores some columns holds while it tests them, and permutes those in doubt."""
    tests, n_samples = tests_of(methods), shape.n_samples
    if not tests:
        return ()
    longest = max(need.weighting.n_neighbors for need in tests)
    copies = (Array("columns of one half of the features", (n_samples, columns)),) if are_crossed(methods) else ()
    return (
        Array("columns that are permuted, as stored and scaled", (3, n_samples, PANEL_WIDTH)),
        Array("vectors of rows", (16, n_samples)),
        Objects("weights of a graph, one way, both ways and added up", 6 * min(n_samples * longest, HELD_EDGES), 12),
        *copies,
    )


def stream_bytes(n_samples: int, need: NeedInvariants) -> int:
    """Return the bytes of the edges of a graph, with degrees."""
    return edge_bytes(n_samples, need.weighting.n_neighbors) + WORD * n_samples


def plan_invariants(needs: Sequence[NeedInvariants], n_samples: int, process: Cost) -> list[Stage]:
    """Return a stage for each need."""
    return [
        Stage.of(
            INVARIANTS_STAGE,
            f"invariants-{need.key}",
            1,
            InvariantsParameters(need.weighting, need.denominator),
            INVARIANTS_STAGE.cost(n_samples, need.weighting, process),
            bytes_read=2 * stream_bytes(n_samples, need),
        )
        for need in needs
    ]


INVARIANTS_STAGE = StageKind("invariants", __name__, find_invariants, invariants_cost)
