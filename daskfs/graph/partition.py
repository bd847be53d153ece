"""Which rows are searched together.

A partition is a set of rows whose neighbours are sought among themselves. Its queries are cut into blocks, each a unit
that owns whole chunks of the output. What fits one worker is one partition of all rows; everything here takes a list of
partitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from daskfs.graph.spec import GraphSpec
from daskfs.kernels.scaling import Scaling
from daskfs.store.tiles import Tiles

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


def resolved_engine(spec: GraphSpec, n_rows: int) -> str:
    """Return "exact" or "pynndescent" for a partition of so many rows."""
    if spec.engine != "auto":
        return spec.engine
    return "exact" if n_rows <= spec.exact_below else "pynndescent"


def search_units(spec: GraphSpec, partitions: list[slice], n_samples: int) -> list[SearchUnit]:
    """Cut partitions into units: blocks of queries for exact search, whole partitions for NN-descent, which finds all
    lists at once.
    """
    size = block_rows(n_samples)
    units = []
    for members in partitions:
        if resolved_engine(spec, members.stop - members.start) == "pynndescent":
            units.append(SearchUnit(members, members))
            continue
        cuts = range(members.start, members.stop, size)
        units += [SearchUnit(members, slice(start, min(start + size, members.stop))) for start in cuts]
    return units


def graph_dtype(stored: np.dtype[np.generic], scaling: Scaling | None) -> np.dtype[np.generic]:
    """Type of rescaled rows in graph space: data stored in 32 bits or fewer stay in float32, which halves the
    partition.
    """
    if scaling is None:
        return stored
    return np.dtype(np.float64 if stored.itemsize > 4 else np.float32)


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
