"""Choice of the neighbor search engine for ``engine: auto``.

The choice depends on data sizes and, if these do not suffice, on a sample of rows; never on timing or the number of
workers or cores. So the same data get the same graph everywhere, unless a worker cannot hold all rows for an exact
search.

Notes
-----
- Exact search if it is expected to take at most :data:`SOON` of one core, or at most twice an approximate search.
- Otherwise cells, or NN-descent if that is faster.
- Cells reach their recall if rows have near neighbors. In data without structure nearly all rows are about as far as
  the nearest, and probing twenty cells misses many: for 60,000 x 64 uniform numbers cells take 3.9 s for a recall of
  56 %, exact search 9.6 s. The sample from which cells are cut detects this: it expects a recall of .83, .58, .81 and
  .70 for uniform data of 20,000 x 64, 60,000 x 64, 40,000 x 30 and 20,000 x 200; .83, .56, .80 and .73 were found. So
  the unit that cuts the cells also decides whether to use them (:func:`cells_do_not_pay`). Otherwise exact search
  replaces them if it takes at most :data:`AFFORDABLE` of one core; above that the report states the recall.

A plan fixes the stages before anything is read, so sizes choose the stages, and the sample only what some of them do.

Costs are fits to CPU seconds of one core, for 10,000 to 100,000 rows and 16 to 512 columns, 60 to 300 values per sparse
row, and 5 to 20 neighbors. Those of exact search are within a quarter of the measurements, and those of cells, for the
number of comparisons that the sample shows (400 to 7,000 per row), within 15 %, of sparse rows a quarter. Measured
seconds (and recall) in one run with one thread, k = 10, against one precompiled NNDescent:

==========================  =====  ==========  ===========
data                        exact  auto        NNDescent
==========================  =====  ==========  ===========
100 clusters, 100,000 x 64  32.8   2.6 (.979)  5.5 (.991)
12 latent, 100,000 x 64     32.6   3.6 (.988)  5.1 (.993)
curves, 60,000 x 200        26.6   1.9 (.994)  1.5 (1.00)
12 latent, 25,000 x 512      8.5   1.8 (.996)  2.0 (.990)
uniform, 60,000 x 64        11.7   11.6 (1)    9.0 (.922)
uniform, 20,000 x 200        2.6   2.4 (1)     3.4 (.841)
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
from daskfs.stages.cost import COMPILED, DESCENT, Cost
from daskfs.store.tiles import Shape, sample_rows

SEARCHES: tuple[Literal["exact", "cells", "pynndescent"], ...] = ("exact", "cells", "pynndescent")
COMPILED_SEARCHES: dict[str, Cost] = {"exact": (), "cells": (COMPILED,), "pynndescent": (DESCENT,)}
"""Memory that the compiled code of each engine keeps in a process."""
LEAST_PROJECTED = 192
LEAST_PROJECTED_VALUES = 32
"""Values per sparse row from which projection pays: each takes the time of several dense columns."""
SOON = 1.0
"""Seconds of one core up to which an exact search is always chosen."""
AFFORDABLE = 30.0
"""Seconds of one core up to which an exact search replaces cells that find too few neighbors."""
MISSES = 2.0
"""Cells find too few neighbors if they miss more than this many times the allowed share."""
SPARSE_VALUE = 20
"""Number of dense columns that take as long as one value of a sparse row."""
TYPICAL_NEIGHBORS = 10
"""Number of neighbors for which the costs of approximate searches were measured."""
TYPICAL_MET = 2500
"""Number of rows with which a search by cells typically compares a row, for so many neighbors."""


def resolve_engine(
    spec: GraphSpec,
    shape: Shape,
    available: int | None = None,
    *,
    k: int = TYPICAL_NEIGHBORS,
    pairwise: bool = False,
) -> GraphSpec:
    """Return the spec with "auto" resolved as far as sizes allow, for lists of length k.

    `pairwise` means that values may be missing, and distances are over the columns that both rows have.

    Notes
    -----
    NN-descent compiles for about 28 s in every process, then takes time proportional to the rows, of which groups hold
    about two copies. Sparse rows are searched by cells in few directions, with the residual outside of these taken into
    account; NN-descent cannot use the residual.

    With `pairwise`, NN-descent is not chosen: it searches rows filled with means. For 12 columns with 5, 20 and 50 % of
    their values missing its recall was 62, 17 and 1 %; that of cells, which compare pairs by the final distance, 98, 98
    and 92 %. Cells are cut in the space of filled rows, and their reach is calibrated on pairs of true neighbors; the
    more values of few columns are missing, the farther apart neighbors are there. The recall of cells was 98, 98 and
    86 % for 32 columns, and at least 98 % for 150 and 300 columns of low rank, with 8,000 to 20,000 rows; for 100,000
    rows of 20 columns 96, 78 and 18 %. Both take several times as long as for complete rows, but are costed as if
    nothing were missing, so that X without missing values gets the same graph.
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
    """Return whether the sample may replace an automatically chosen search by cells with an exact one."""
    return spec.engine == "auto" and exact_seconds(shape, k) <= AFFORDABLE


def cells_do_not_pay(
    spec: GraphSpec, shape: Shape, k: int, *, compared: int | None, n_met: float, expected: float
) -> bool:
    """Return whether an exact search should replace the cells, judged by the sample.

    Parameters
    ----------
    spec, shape, k
        Search by cells for which :func:`may_be_exact` is true.
    compared
        Number of columns in which rows are compared; None for all.
    n_met
        Mean number of rows with which a row is compared.
    expected
        Expected recall of the cells.
    """
    too_few = 1 - expected > MISSES * (1 - spec.recall)
    seconds = cells_seconds(shape, replace(spec, projection=compared), k, n_met)
    return too_few or exact_seconds(shape, k) <= 2 * seconds


def exact_seconds(shape: Shape, k: int) -> float:
    """Return the expected CPU seconds of an exact search: products of all pairs of rows, and distances of some."""
    n, columns = shape.n_samples, _columns(shape)
    return n * n * (1.1e-9 + 1.65e-11 * columns) + n * k * 2.5e-9 * columns


def cells_seconds(shape: Shape, spec: GraphSpec, k: int, n_met: float | None = None) -> float:
    """Return the expected CPU seconds of a search by cells, without those of its sample.

    A row is compared with `n_met` others. None for a typical number, which is larger where the sample is too small to
    cut cells of the intended size.
    """
    n, width = shape.n_samples, search_width(spec, k)
    if n_met is None:
        typical = cell_rows(TYPICAL_NEIGHBORS)
        crowd = max(cell_rows(k) / typical, SAMPLED_PER_CELL * n / typical / sample_rows(shape).size)
        n_met = TYPICAL_MET * crowd
    column = 4e-10 if shape.is_sparse and spec.projection is None else 5.5e-11
    comparing = n_met * (4e-9 + column * (projected_columns(spec) or _columns(shape)))
    measuring = width * (1.2e-9 if shape.is_sparse else 5e-10)
    return n * (5e-6 + comparing + _columns(shape) * (2e-8 + measuring))


def _descent_seconds(shape: Shape, spec: GraphSpec, k: int) -> float:
    columns = projected_columns(spec) or _columns(shape) / (2 if shape.is_sparse else 1)
    share = list_length(k) / list_length(TYPICAL_NEIGHBORS)
    searching = 2 * share * (35e-6 + 1.3e-7 * columns)
    projecting = 0.0 if spec.projection is None else _columns(shape) * (4e-8 + 2.5e-9 * search_width(spec, k))
    return 28.0 + shape.n_samples * (searching + projecting)


def _columns(shape: Shape) -> float:
    """Return the number of dense columns that take as long as one row."""
    return SPARSE_VALUE * _values(shape) if shape.is_sparse else shape.n_features


def _values(shape: Shape) -> float:
    return (shape.nnz or 0) / max(shape.n_samples, 1) if shape.is_sparse else shape.n_features


def _projection(spec: GraphSpec, shape: Shape, engine: str) -> int | Literal["auto"] | None:
    """Return the number of columns in which an engine compares rows; None for all, "auto" if the sample decides."""
    if engine == "exact" or spec.projection is None:
        return None
    if isinstance(spec.projection, int):
        return spec.projection if spec.projection < shape.n_features else None
    if not shape.is_sparse:
        return "auto" if shape.n_features >= LEAST_PROJECTED else None
    pays = _values(shape) >= LEAST_PROJECTED_VALUES and bool(directions(shape.n_features, "auto"))
    return "auto" if pays and engine == "cells" else None
