"""Stage "invariants": sums over the edges of a graph that the permutation moments of all features need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.registry import Method
from daskfs.criteria.statistics import NeedHalves, NeedInvariants
from daskfs.graph.edges import edge_bytes, loop_weights, stored_edges, weight_summary, weighted_blocks
from daskfs.graph.partition import largest_block
from daskfs.graph.spec import Weighting
from daskfs.kernels.statistics.ratios import ClassRatio, LaplacianRatio, Products, n_probes, no_products
from daskfs.stages.cost import WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.tiles import PANEL_WIDTH, Shape

if TYPE_CHECKING:  # importing it imports numba
    from daskfs.kernels.statistics.permuted import RatioTerms

HELD_EDGES = 2**24
"""Edges of the largest graph on which features are permuted, which a worker then holds."""


def edge_products(context: Context, weighting: Weighting) -> Products:
    """Return the products with the matrix of the weights between different rows; each call streams the edges once."""

    def products(panels: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        found = {power: np.zeros(panel.shape) for power, panel in panels.items()}
        for block in _blocks(context, weighting):
            for power, panel in panels.items():
                of_power = block.power(power)
                found[power] += of_power @ panel
                found[power] += of_power.T @ panel
        return found

    return products


def _blocks(context: Context, weighting: Weighting) -> Iterator[sp.csr_matrix]:
    """Yield matrices, shape (n_samples, n_samples), that hold each edge once."""
    n_samples = context.tiles.shape.n_samples
    for source, target, weights in weighted_blocks(context, weighting.graph, weighting.n_neighbors, [weighting]):
        yield sp.csr_matrix((weights[0], (source, target)), shape=(n_samples, n_samples))


def ratio_terms(context: Context, need: NeedInvariants) -> RatioTerms | None:
    """Return the terms of a ratio, with all weights of its graph; None if these are more than are held."""
    n_samples, weighting = context.tiles.shape.n_samples, need.weighting
    half = sp.csr_matrix((n_samples, n_samples))
    if weighting is not None:
        summary = weight_summary(context.store, weighting)
        if summary["n_edges"] > HELD_EDGES:
            return None
        half = sum(_blocks(context, weighting), half)
    return ratio_of(context, need).terms((half + half.T).tocsr())


def ratio_of(context: Context, need: NeedInvariants) -> LaplacianRatio | ClassRatio:
    """Return the ratio of quadratic forms of a need."""
    weighting = need.weighting
    products = no_products if weighting is None else edge_products(context, weighting)
    if need.same_class_weight is not None:
        labels = context.counted_labels()
        assert labels is not None
        return ClassRatio(labels.values, len(labels.classes), need.same_class_weight, products)
    assert weighting is not None
    degrees = context.store.open(layout.DEGREES.format(weighting.key))[...]
    loops = loop_weights(context.store, weighting, None)
    return LaplacianRatio(degrees, np.broadcast_to(0.0 if loops is None else loops, degrees.shape), products)


def find_invariants(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Store the invariants of one weighted graph, of a Laplacian or of the forms of LSDF."""
    del unit
    raw = parameters["weighting"]
    need = NeedInvariants(None if raw is None else Weighting(**raw), parameters["same_class_weight"])
    context.store.write_json(layout.INVARIANTS.format(need.key), ratio_of(context, need).invariants().to_json())


def invariants_cost(n_samples: int, weighting: Weighting | None, n_classes: int, process: Cost) -> Cost:
    """Return the memory of the unit."""
    vectors = (
        Array(
            "panels that are multiplied, put together and again", (5, n_samples, n_probes(n_samples) + n_classes + 3)
        ),
        Array("vectors of rows", (24, n_samples)),
    )
    if weighting is None:
        return (*process, *vectors)
    return (
        *process,
        *vectors,
        *stored_edges(n_samples, weighting.n_neighbors),
        Array(
            "a block of weights as a matrix, sorted, and of powers",
            (6, largest_block(n_samples) * weighting.n_neighbors),
        ),
        Array("where its rows begin", (6, n_samples), "int64"),
    )


def tests_of(methods: Sequence[Method]) -> list[NeedInvariants]:
    """Return the needs of the methods that test features on graphs, each once."""
    needs = (need for method in methods for need in method.needs)
    return list(dict.fromkeys(need for need in needs if isinstance(need, NeedInvariants)))


def are_crossed(methods: Sequence[Method]) -> bool:
    """Return whether features are tested on the graph of the other half of them."""
    return any(isinstance(need, NeedHalves) for method in methods for need in method.needs)


def tests_cost(shape: Shape, columns: int, methods: Sequence[Method]) -> Cost:
    """List what a unit that scores some columns holds while it tests them, and permutes those in doubt."""
    tests, n_samples = tests_of(methods), shape.n_samples
    if not tests:
        return ()
    longest = max(need.weighting.n_neighbors if need.weighting else 0 for need in tests)
    copies = (Array("columns of one half of the features", (n_samples, columns)),) if are_crossed(methods) else ()
    return (
        Array("columns that are permuted, as stored and scaled", (3, n_samples, PANEL_WIDTH)),
        Array("vectors of rows", (16, n_samples)),
        Objects("weights of a graph, one way, both ways and added up", 6 * min(n_samples * longest, HELD_EDGES), 12),
        *copies,
    )


def stream_bytes(n_samples: int, need: NeedInvariants) -> int:
    """Return the bytes of the edges of a graph, with degrees and labels."""
    weighting, labels = need.weighting, 2 * WORD * n_samples * (need.same_class_weight is not None)
    if weighting is None:
        return labels
    return edge_bytes(n_samples, weighting.n_neighbors) + WORD * n_samples + labels


def plan_invariants(
    needs: Sequence[NeedInvariants], n_samples: int, n_classes: int | None, process: Cost
) -> list[Stage]:
    """Return a stage for each need."""
    return [
        Stage.of(
            INVARIANTS_STAGE,
            f"invariants-{need.key}",
            1,
            {
                "weighting": None if need.weighting is None else dataclasses.asdict(need.weighting),
                "same_class_weight": need.same_class_weight,
            },
            INVARIANTS_STAGE.cost(
                n_samples,
                need.weighting,
                0 if need.same_class_weight is None else n_classes or 0,
                process,
            ),
            bytes_read=(2 if need.same_class_weight is None else 3) * stream_bytes(n_samples, need),
        )
        for need in needs
    ]


INVARIANTS_STAGE = StageKind("invariants", __name__, find_invariants, invariants_cost)
