"""Stage "invariants": sums over the edges of a graph that the permutation moments of all features need."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.criteria.statistics import NeedInvariants
from daskfs.graph.edges import listed_edges, loop_weights, weighted_blocks
from daskfs.graph.partition import largest_block
from daskfs.graph.spec import Weighting
from daskfs.kernels.statistics.permutation import permuted_at_once
from daskfs.kernels.statistics.ratios import ClassRatio, LaplacianRatio, n_probes, no_products
from daskfs.stages.cost import WORD, Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.tiles import Shape

N_BLOCKS = 16
"""Usual number of blocks of edges; see :func:`daskfs.graph.partition.block_rows`."""
HELD_VALUES = 2**23
"""Entries and rows of the matrices of a graph that are held at once."""


class EdgeProducts:
    """Products of panels with the matrix of the weights between different rows, or of powers of these weights.

    Of a small graph the matrices are held, for repeated products.
    """

    def __init__(self, context: Context, weighting: Weighting) -> None:
        self._context, self._weighting = context, weighting
        self._held: list[sp.csr_matrix] | None = None

    def __call__(self, panels: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
        """Return the products, shape (n_samples, width), by power; the edges are streamed once."""
        found = {power: np.zeros(panel.shape) for power, panel in panels.items()}
        for block in self._blocks(len(next(iter(panels.values())))):
            for power, panel in panels.items():
                of_power = block if power == 1 else block.power(power)
                found[power] += of_power @ panel
                found[power] += of_power.T @ panel
        return found

    def _blocks(self, n_samples: int) -> Iterator[sp.csr_matrix]:
        if self._held is not None:
            yield from self._held
            return
        weighting, held, n_held = self._weighting, list[sp.csr_matrix](), 0
        stream = weighted_blocks(self._context, weighting.graph, weighting.n_neighbors, [weighting])
        for source, target, weights in stream:
            block = sp.csr_matrix((weights[0], (source, target)), shape=(n_samples, n_samples))
            n_held += block.nnz + n_samples
            if n_held <= HELD_VALUES:
                held.append(block)
            yield block
        self._held = held if n_held <= HELD_VALUES else None


def ratio_of(context: Context, need: NeedInvariants) -> LaplacianRatio | ClassRatio:
    """Return the ratio of quadratic forms of a need."""
    weighting = need.weighting
    products = no_products if weighting is None else EdgeProducts(context, weighting)
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


def invariants_cost(n_samples: int, weighting: Weighting | None, n_classes: int, width: int, process: Cost) -> Cost:
    """Return the memory of the unit, on lists of length `width`."""
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
        *listed_edges(n_samples, weighting.n_neighbors, width),
        *_weights_cost(n_samples, weighting.n_neighbors),
    )


def halves_of_slab(shape: Shape, columns: int) -> Cost:
    """List the copies of a slab's columns, half by half, of which the forms on the graphs of halves are taken."""
    return (Array("columns of one half of the features", (shape.n_samples, columns)),)


def permuted_cost(n_samples: int, n_neighbors: int) -> Cost:
    """List what a unit holds while it permutes a panel: also the weights of a graph of lists of some length."""
    return (
        Array("columns that are permuted, their squares and products", (8, n_samples, permuted_at_once(n_samples))),
        *_weights_cost(n_samples, n_neighbors),
    )


def _weights_cost(n_samples: int, n_neighbors: int) -> Cost:
    """List the matrices of :class:`EdgeProducts`."""
    held = min(n_samples * (n_neighbors + N_BLOCKS), HELD_VALUES)
    return (
        Objects("entries and rows of the weights of a graph", held, 2 * WORD),
        Array("a block of weights as a matrix, sorted, and of powers", (6, largest_block(n_samples) * n_neighbors)),
        Array("where its rows begin", (6, n_samples), "int64"),
    )


def plan_invariants(
    needs: Sequence[NeedInvariants], n_samples: int, n_classes: int | None, process: Cost, widths: Mapping[str, int]
) -> list[Stage]:
    """Return a stage for each need; `widths` are the lengths of the neighbor lists by name."""
    stages = []
    for need in needs:
        weighting = need.weighting
        width = 0 if weighting is None else widths.get(weighting.graph, weighting.n_neighbors)
        of_classes = 0 if need.same_class_weight is None else n_classes or 0
        read = (
            0 if weighting is None else 2 * n_samples * (weighting.n_neighbors + (2 * WORD) * width) + WORD * n_samples
        )
        raw = None if weighting is None else dataclasses.asdict(weighting)
        stages.append(
            Stage.of(
                INVARIANTS_STAGE,
                f"invariants-{need.key}",
                1,
                {"weighting": raw, "same_class_weight": need.same_class_weight},
                INVARIANTS_STAGE.cost(n_samples, weighting, of_classes, width, process),
                bytes_read=read + (WORD * n_samples if of_classes else 0),
                bytes_written=0,
            )
        )
    return stages


INVARIANTS_STAGE = StageKind("invariants", __name__, find_invariants, invariants_cost)
