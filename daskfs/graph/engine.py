"""Which search finds neighbor lists where a job leaves that to daskfs (`engine: auto`).

The sizes of the data decide, and where they do not suffice a sample of the rows; never a clock, the number of workers
or of cores. So the same data get the same graph everywhere; only where a worker cannot hold all rows, as an exact
search must, does memory decide.

- Exact search where it is expected to take up to :data:`SOON` of one core, or an approximate one more than half of what
  it takes.
- Else cells, or NN-descent where that is the quicker of the two.
- Cells find what they aim at where rows have near neighbors. Among rows without structure nearly all others are about
  as far as the nearest, and no look into twenty cells finds these: cells of 60,000 x 64 uniform numbers take 3.9 s for
  56 % of the neighbors, where exact search takes 9.6 s. Sizes cannot tell the two apart, and the sample from which the
  cells are cut can: the share of neighbors that it expects was .83, .58, .81 and .70 for uniform data of 20,000 x 64,
  60,000 x 64, 40,000 x 30 and 20,000 x 200, and .83, .56, .80 and .73 were found. So the unit that cuts the cells also
  says whether to go on with them (:func:`cells_do_not_pay`), and where exact search takes up to :data:`AFFORDABLE`
  of one core, it takes their place. Beyond that the report says how many of the neighbors were found.

A plan fixes stages before anything is read, which is why sizes choose the stages and the sample no more than what some
of them do.

Costs are fits to CPU seconds of one core, of 2,000 to 100,000 rows and 8 to 20,000 columns, 8 to 300 values of a sparse
row, and 5 to 30 neighbors. Those of exact search are within a third of what was measured; cells of well separated
clusters take a third less, and of twelve latent dimensions up to half as much again. Measured in one run, one thread,
k = 10, against one NNDescent that was compiled before:

==========================  =====  ==========  ===========
data                        exact  auto        NNDescent
==========================  =====  ==========  ===========
100 clusters, 100,000 x 64  28.2   2.5 (.986)  5.4 (.991)
12 latent, 100,000 x 64     27.7   5.5 (.981)  3.4 (.993)
curves, 60,000 x 200        21.3   2.4 (.995)  1.4 (1.00)
12 latent, 25,000 x 512      8.0   4.1 (.993)  1.2 (.990)
uniform, 60,000 x 64        10.0   10.1 (1)    7.8 (.922)
uniform, 20,000 x 200        2.3   2.4 (1)     2.7 (.841)
==========================  =====  ==========  ===========
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from daskfs.graph.nndescent import list_length
from daskfs.graph.partition import SAMPLED_PER_CELL, member_bytes, projected_columns, search_width
from daskfs.graph.projection import directions
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.neighbors.cells import cell_rows
from daskfs.store.tiles import Shape, sample_rows

SEARCHES: tuple[Literal["exact", "cells", "pynndescent"], ...] = ("exact", "cells", "pynndescent")
LEAST_PROJECTED = 192
LEAST_PROJECTED_VALUES = 32
"""Values of a sparse row, as each takes the time of several columns of a dense one."""
SOON = 1.0
"""Seconds of one core that an exact search may take whatever an approximate one would."""
AFFORDABLE = 30.0
"""Seconds of one core that an exact search may take in the place of an approximate one that finds too few neighbors."""
MISSES = 2.0
"""Cells that miss so many times as many neighbors as they may find too few."""
SPARSE_VALUE = 20
"""Columns of dense rows that take the time of one value of sparse ones."""
TYPICAL_NEIGHBORS = 10
"""Where the costs of approximate searches were measured."""


def resolve_engine(
    spec: GraphSpec,
    shape: Shape,
    available: int | None = None,
    *,
    k: int = TYPICAL_NEIGHBORS,
    pairwise: bool = False,
) -> GraphSpec:
    """Return the spec with "auto" settled as far as sizes do, for lists of length k.

    NN-descent compiles for about 28 s in every process, and then takes time in proportion to the rows, of which groups
    hold about two copies. Sparse rows are searched by cells in few directions, where the part that these leave out
    counts: NN-descent has no use for it.

    `pairwise` says that values may be missing, and distances are those over what both rows have. NN-descent is not
    chosen then: it walks among rows in which means stand for what is missing, and of 12 columns with 5, 20 and 50 % of
    their values missing it found 62, 17 and 1 % of the neighbors, where cells, in which pairs are compared as they will
    be measured, found 98, 98 and 92 %. Cells themselves lie in the space of the filled rows: how far rows have to look
    is settled on pairs of true neighbors, and the more is missing of few columns, the less do neighbors lie together
    there. Of 32 columns it was 98, 98 and 86 %, of 150 and 300 columns of low rank 98 % or more at all three; all that
    of 8,000 to 20,000 rows, and among 100,000 of 20 columns 96, 78 and 18 %. Both searches take several times as long
    as of complete rows, and are weighed as if nothing were missing: where nothing is, it is the same graph.
    """
    by = {engine: replace(spec, engine=engine, projection=_projection(spec, shape, engine)) for engine in SEARCHES}
    if spec.engine != "auto":
        return by[spec.engine]
    cells, descent = cells_seconds(shape, by["cells"], k), _descent_seconds(shape, by["pynndescent"], k)
    quicker = by["cells" if pairwise or cells <= descent else "pynndescent"]
    fits = available is None or shape.n_samples * member_bytes(shape, by["exact"], 0) <= available
    seconds = cells if quicker.engine == "cells" else descent
    return by["exact"] if fits and exact_seconds(shape, k) <= max(SOON, 2 * seconds) else quicker


def may_be_exact(spec: GraphSpec, shape: Shape, k: int) -> bool:
    """Return whether the sample may send a search by cells that nobody asked for to all rows."""
    return spec.engine == "auto" and exact_seconds(shape, k) <= AFFORDABLE


def cells_do_not_pay(spec: GraphSpec, shape: Shape, k: int, compared: int | None, expected: float) -> bool:
    """Return whether the sample says that cells do not pay.

    Parameters
    ----------
    spec, shape, k
        Of a search by cells for which :func:`may_be_exact` holds.
    compared
        In how many columns rows are compared; None for all.
    expected
        Share of the neighbors that cells are expected to find.
    """
    too_few = 1 - expected > MISSES * (1 - spec.recall)
    seconds = cells_seconds(shape, replace(spec, projection=compared), k)
    return too_few or exact_seconds(shape, k) <= 2 * seconds


def exact_seconds(shape: Shape, k: int) -> float:
    """Return the expected seconds of one core of an exact search: products of all pairs of rows, and the distances of
    those that are measured.
    """
    n, columns = shape.n_samples, _columns(shape)
    return n * n * (1.5e-9 + 2e-11 * columns) + n * k * 2.5e-9 * columns


def cells_seconds(shape: Shape, spec: GraphSpec, k: int) -> float:
    """Return the expected seconds of one core of a search by cells.

    A row is compared with some 4000 others for 10 neighbors, and more where the sample is too small to give cells of as
    few rows as there should be.
    """
    n = shape.n_samples
    columns = projected_columns(spec) or _columns(shape)
    typical = cell_rows(TYPICAL_NEIGHBORS)
    crowd = max(cell_rows(k) / typical, SAMPLED_PER_CELL * n / typical / sample_rows(shape).size)
    return n * (15e-6 + 3e-7 * columns * crowd) + _projected_seconds(shape, spec, k)


def _descent_seconds(shape: Shape, spec: GraphSpec, k: int) -> float:
    columns = projected_columns(spec) or _columns(shape) / (2 if shape.is_sparse else 1)
    share = list_length(k) / list_length(TYPICAL_NEIGHBORS)
    return 28.0 + 2 * shape.n_samples * share * (35e-6 + 1.3e-7 * columns) + _projected_seconds(shape, spec, k)


def _projected_seconds(shape: Shape, spec: GraphSpec, k: int) -> float:
    """Return what it takes to find directions, to turn rows onto them, and to measure the candidates on all columns."""
    if spec.projection is None:
        return 0.0
    return shape.n_samples * _columns(shape) * (4e-8 + 2.5e-9 * search_width(spec, k))


def _columns(shape: Shape) -> float:
    """Return how many columns of dense rows take as long as a row does."""
    return SPARSE_VALUE * _values(shape) if shape.is_sparse else shape.n_features


def _values(shape: Shape) -> float:
    return (shape.nnz or 0) / max(shape.n_samples, 1) if shape.is_sparse else shape.n_features


def _projection(spec: GraphSpec, shape: Shape, engine: str) -> int | Literal["auto"] | None:
    """Return in how many columns an engine compares rows; None for all, "auto" where the sample decides."""
    if engine == "exact" or spec.projection is None:
        return None
    if isinstance(spec.projection, int):
        return spec.projection if spec.projection < shape.n_features else None
    if not shape.is_sparse:
        return "auto" if shape.n_features >= LEAST_PROJECTED else None
    pays = _values(shape) >= LEAST_PROJECTED_VALUES and bool(directions(shape.n_features, "auto"))
    return "auto" if pays and engine == "cells" else None
