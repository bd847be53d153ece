"""Which rows are searched together.

A partition is a set of rows whose neighbours are sought among themselves. Its queries are cut into blocks, each a unit
that owns whole chunks of the output. What fits one worker is one partition of all rows; everything here takes a list of
partitions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from daskfs.graph.spec import GraphSpec
from daskfs.kernels.scaling import Scaling
from daskfs.store.tiles import Shape, Tiles

MIN_BLOCK_ROWS = 4096
MAX_BLOCK_ROWS = 2**18


def block_rows(n_samples: int) -> int:
    """Rows of one chunk of the graph's arrays, and of one step when edges stream by.

    It follows from the number of rows alone: sums over edges are taken block by block, so this must not depend on
    workers or memory.
    """
    wanted = 1 << max(0, (n_samples // 16 - 1).bit_length())
    return int(np.clip(wanted, MIN_BLOCK_ROWS, MAX_BLOCK_ROWS))


@dataclass(frozen=True)
class SearchUnit:
    """One unit of the search: the rows searched, and which of them are asked about."""

    members: slice
    queries: slice


def resolved(spec: GraphSpec, shape: Shape) -> GraphSpec:
    """Return the spec with "auto" settled: the engine that takes less time on one thread.

    Both costs are fits to measurements on one core. Exact search takes two float32 operations and a few passes of
    selection for every pair of rows; for sparse rows one multiply-add for each stored value and query. NN-descent first
    compiles for about 28 s in every process, then takes time in proportion to the rows. The lines cross near 75,000
    rows for 64 features, 58,000 for 280 and 40,000 for 1,000. A fixed limit of 20,000 rows would give away what exact
    search has to offer there: a third of the memory, units that spread over workers, and a recall of 1.
    """
    if spec.engine != "auto":
        return spec
    n, m = shape.n_samples, shape.n_features
    exact = n * n * (4.5e-9 + 1.7e-11 * m)
    if shape.is_sparse:
        exact = n * (1e-9 * (shape.nnz or 0) + 1.1e-8 * n)
        m = (shape.nnz or 0) // n
    descent = 28.0 + n * (35e-6 + 1.3e-7 * m)
    return replace(spec, engine="exact" if exact <= descent else "pynndescent")


def search_units(spec: GraphSpec, partitions: list[slice], n_samples: int) -> list[SearchUnit]:
    """Cut partitions of a resolved spec into units: blocks of queries for exact search, whole partitions for
    NN-descent, which finds all lists at once.
    """
    size = block_rows(n_samples)
    units = []
    for members in partitions:
        if spec.engine == "pynndescent":
            units.append(SearchUnit(members, members))
            continue
        cuts = range(members.start, members.stop, size)
        units += [SearchUnit(members, slice(start, min(start + size, members.stop))) for start in cuts]
    return units


def graph_dtype(stored: np.dtype[np.generic], scaling: Scaling | None) -> np.dtype[np.generic]:
    """Type of rows in graph space: as stored, and float64 once rescaled, so that ties survive the rescaling whatever
    the type of the data.
    """
    return stored if scaling is None else np.dtype(np.float64)


def read_members(tiles: Tiles, members: slice, scaling: Scaling | None) -> np.ndarray | sp.csr_matrix:
    """Return the rows of a partition in graph space, dense in C order or CSR, read one band at a time."""
    dtype = graph_dtype(np.dtype(tiles.shape.dtype), scaling)
    step = tiles.shape.tile_rows
    starts = range(members.start - members.start % step, members.stop, step)
    cuts = [slice(max(start, members.start), min(start + step, members.stop)) for start in starts]
    if tiles.shape.is_sparse:
        return sp.vstack([tiles.read_rows(rows, scaling).astype(dtype) for rows in cuts], format="csr")
    result = np.empty((members.stop - members.start, tiles.shape.n_features), dtype)
    for rows in cuts:
        result[rows.start - members.start : rows.stop - members.start] = tiles.read_rows(rows, scaling)
    return result
