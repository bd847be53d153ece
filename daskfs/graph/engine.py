"""Choice of the neighbor search engine for ``engine: auto``.

The choice depends on data sizes and, if these do not suffice, on a sample of rows; never on timing or the number of
workers or cores. So the same data get the same graph everywhere, unless a worker cannot hold all rows for an exact
search.

Notes
-----
- Exact search if it is expected to take at most :data:`SOON` of one core, or at most twice a search by cells and the
  sample that it takes.
- Otherwise the sample from which cells are cut decides (:func:`engine_of_sample`): it shows how many rows a search by
  cells compares with each row, the share of the neighbors that it finds, and the intrinsic dimension.
- NN-descent where the dimension is low, and cells take longer or find too few neighbors.
- pynndescent for metrics that do not follow from Euclidean distances, unless an exact search by its function takes less
  than it compiles and searches.
- Exact search where cells reach too little of their recall otherwise, and it takes at most :data:`AFFORDABLE` of one
  core. In data without structure nearly all rows are about as far as the nearest, and probing twenty cells misses many:
  for 60,000 x 64 uniform numbers cells take 3.9 s for a recall of 56 %, exact search 9.6 s. The sample expects a recall
  of .83, .58, .81 and .70 for uniform data of 20,000 x 64, 60,000 x 64, 40,000 x 30 and 20,000 x 200; .83, .56, .80 and
  .73 were found. Above that the report states the recall.

A plan fixes the stages before anything is read, so sizes choose the stages, and the sample only what some of them do.

Costs are fits to CPU seconds of one core, for 10,000 to 100,000 rows and 16 to 512 columns, 60 to 300 values per sparse
row, and 5 to 20 neighbors. Those of exact search are within a quarter of the measurements, and those of cells, for the
number of comparisons that the sample shows (400 to 7,000 per row), within 15 %, of sparse rows a quarter. Measured
seconds (and recall) in one run with one thread, k = 10, against one precompiled NNDescent of pynndescent
(``tests.benchmarks.graph --tables descent``):

==========================  ============  ===========  ===========
data                        chosen        auto         NNDescent
==========================  ============  ===========  ===========
100 clusters, 100,000 x 64  cells         1.6 (.979)   3.3 (.981)
10 latent, 100,000 x 64     descent       2.1 (.986)   1.6 (.980)
10 latent, 200,000 x 64     descent       4.4 (.985)   4.3 (.982)
patches, 200,000 x 64       cells         4.9 (.978)   13.0 (.983)
digits, 100,000 x 64        cells         1.8 (.989)   1.5 (.988)
==========================  ============  ===========  ===========
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from daskfs.graph.partition import SAMPLED_PER_CELL, member_bytes, projected_columns, search_width
from daskfs.graph.projection import directions
from daskfs.graph.spec import ENGINES, Engine, GraphSpec
from daskfs.kernels.neighbors.cells import cell_rows
from daskfs.kernels.neighbors.descent_search import list_width
from daskfs.kernels.neighbors.distance_bounds import dense_pays
from daskfs.kernels.neighbors.metrics import is_own
from daskfs.stages.cost import FOREIGN, Cost
from daskfs.store.shape import Shape, sample_rows

DESCENTS: tuple[Engine, ...] = ("descent", "pynndescent")
"""Searches of groups that are not cut into cells."""
LEAST_PROJECTED = 192
LEAST_PROJECTED_VALUES = 32
"""Values per sparse row from which projection pays: each takes the time of several dense columns."""
SOON = 1.0
"""Seconds of one core up to which an exact search is always chosen."""
SURELY = 0.8
"""NN-descent replaces cells if it is expected to take less than this share of their time; it may find fewer neighbors
than expected, where rows form clusters."""
MAX_DIMENSION = 20.0
"""Intrinsic dimension up to which NN-descent may replace cells."""
AFFORDABLE = 30.0
"""Seconds of one core up to which an exact search replaces cells that find too few neighbors."""
MISSES = 2.0
"""Cells find too few neighbors if they miss more than this many times the allowed share."""
SPARSE_VALUE = 20
"""Number of dense columns that take as long as one value of a sparse row, unless rows are crowded and made dense."""
COMPILATION = 32.0
"""Seconds of one core in which pynndescent 0.7.0 compiles its search, in every process."""
DESCENT_PAIRS = 1000
"""Number of rows with which pynndescent compares a row."""
TYPICAL_NEIGHBORS = 10
"""Number of neighbors for which the costs of approximate searches were measured."""
TYPICAL_MET = 2500
"""Number of rows with which a search by cells typically compares a row, for so many neighbors."""


def resolve_engine(
    spec: GraphSpec, shape: Shape, available: int | None = None, *, k: int = TYPICAL_NEIGHBORS
) -> GraphSpec:
    """Return the spec with "auto" resolved as far as sizes allow, for lists of length k.

    Where that is "cells", :func:`engine_of_sample` may replace them by :func:`replacements`.

    Notes
    -----
    Missing values make a search take several times as long, but are not part of the costs, so that X without missing
    values gets the same graph. Cells are cut in the space of rows filled with means, and their reach is calibrated on
    pairs of true neighbors; the more values of few columns are missing, the farther apart neighbors are there. For 12
    columns with 5, 20 and 50 % of their values missing the recall was 98, 98 and 92 %, 98, 98 and 86 % for 32 columns,
    and at least 98 % for 150 and 300 columns of low rank, with 8,000 to 20,000 rows; for 100,000 rows of 20 columns 96,
    78 and 18 %. NN-descent, which searches the filled rows, found 62, 17 and 1 % for the 12 columns.
    """
    by = {engine: replace(spec, engine=engine, projection=_projection(spec, shape, engine)) for engine in ENGINES[1:]}
    if spec.engine != "auto":
        return by[spec.engine]
    fits = available is None or shape.n_samples * member_bytes(shape, by["exact"], 0) <= available
    if not is_own(spec.metric, is_sparse=shape.is_sparse):
        is_exact = fits and named_seconds(shape, shape.n_samples) <= COMPILATION + named_seconds(shape, DESCENT_PAIRS)
        return by["exact" if is_exact else "pynndescent"]
    by_cells = 2 * cells_seconds(shape, by["cells"], k) + sample_seconds(shape)
    is_exact = fits and exact_seconds(shape, k) <= max(SOON, by_cells)
    return by["exact" if is_exact else "cells"]


def replacements(spec: GraphSpec, shape: Shape, k: int) -> list[Engine]:
    """Return the engines by which the sample may replace the cells of "auto".

    They are exact search if it is affordable, and NN-descent for dense rows.
    """
    if spec.engine != "auto" or not is_own(spec.metric, is_sparse=shape.is_sparse):
        return []
    exact: list[Engine] = ["exact"] if exact_seconds(shape, k) <= AFFORDABLE else []
    return exact if shape.is_sparse else [*exact, "descent"]


def engine_of_sample(
    spec: GraphSpec, shape: Shape, k: int, others: Collection[str], n_met: float, recall: float, dimension: float
) -> Engine:
    """Return the engine that the sample speaks for, that of `spec` or one of `others`.

    By the sample, cells compare a row with `n_met` others on average, in the columns of the projection of `spec`, and
    find the share `recall` of its neighbors; `dimension` is the intrinsic dimension of the rows.
    """
    finds_few = 1 - recall > MISSES * (1 - spec.recall)
    engine, seconds = spec.engine, cells_seconds(shape, spec, k, n_met)
    if "descent" in others and dimension <= MAX_DIMENSION:
        by_descent = descent_seconds(shape, spec, k, dimension)
        if finds_few or by_descent < SURELY * seconds:
            engine, seconds, finds_few = "descent", by_descent, False
    if "exact" in others and (finds_few or exact_seconds(shape, k) <= 2 * seconds):
        return "exact"
    return engine


def exact_seconds(shape: Shape, k: int) -> float:
    """Return the expected CPU seconds of an exact search: products of all pairs of rows, and distances of some."""
    n, columns = shape.n_samples, _columns(shape)
    is_made_dense = shape.is_sparse and dense_pays(shape.nnz or 0, n, shape.n_features)
    multiplied = min(columns, shape.n_features) if is_made_dense else columns
    return n * n * (1.1e-9 + 1.65e-11 * multiplied) + n * k * 2.5e-9 * columns


def sample_seconds(shape: Shape) -> float:
    """Return the expected CPU seconds of cutting cells on the sample, and of finding directions in it."""
    fixed, value = (0.5, 3e-7) if shape.is_sparse else (0.05, 6e-8)
    return fixed + sample_rows(shape).size * value * _values(shape)


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


def descent_seconds(shape: Shape, spec: GraphSpec, k: int, dimension: float) -> float:
    """Return the expected CPU seconds of a search of dense rows by NN-descent, without those of its sample."""
    length = list_width(k, dimension) / list_width(TYPICAL_NEIGHBORS, 0)
    searching = (1.2e-5 + 5e-8 * (projected_columns(spec) or _columns(shape))) * (0.3 + 0.7 * length)
    measuring = (2e-8 + search_width(spec, k) * 5e-10) * _columns(shape)
    return shape.n_samples * (searching + measuring)


def named_seconds(shape: Shape, n_pairs: int) -> float:
    """Return the expected CPU seconds of comparing each row with some others by one of pynndescent's functions."""
    value = 1.5e-8 if shape.is_sparse else 1e-9
    return shape.n_samples * n_pairs * (2e-8 + value * _values(shape))


def foreign_cost(spec: GraphSpec, shape: Shape) -> Cost:
    """Return the memory cost of pynndescent and its compiled functions; none for searches that do not use it."""
    is_foreign = spec.engine == "pynndescent" or not is_own(spec.metric, is_sparse=shape.is_sparse)
    return (FOREIGN,) if is_foreign else ()


def _columns(shape: Shape) -> float:
    """Return the number of dense columns that take as long as one row."""
    return SPARSE_VALUE * _values(shape) if shape.is_sparse else shape.n_features


def _values(shape: Shape) -> float:
    return (shape.nnz or 0) / max(shape.n_samples, 1) if shape.is_sparse else shape.n_features


def _projection(spec: GraphSpec, shape: Shape, engine: str) -> int | Literal["auto"] | None:
    """Return the number of columns in which an engine compares rows; None for all, "auto" if the sample decides."""
    if engine in ("exact", "pynndescent") or spec.projection is None:
        return None
    if isinstance(spec.projection, int):
        return spec.projection if spec.projection < shape.n_features else None
    if not shape.is_sparse:
        return "auto" if shape.n_features >= LEAST_PROJECTED else None
    pays = _values(shape) >= LEAST_PROJECTED_VALUES and bool(directions(shape.n_features, "auto"))
    return "auto" if pays else None
