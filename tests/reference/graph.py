"""Neighbor graphs as in section 2 of He, Cai, Niyogi, "Laplacian Score for Feature Selection" (NIPS 2005).

An edge joins rows i and j if i is among the k nearest rows of j or j among those of i, and its weight is
S_ij = exp(-||x_i - x_j||^2 / t). The paper leaves two things open, which are settled here: a row is never its
own neighbor (told apart by its index, so an identical row is an ordinary neighbor at distance 0), and of two
rows that are equally far away the one with the lower index comes first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Weight = Callable[[float], float]
Metric = str
Statistic = Literal["mean", "median"]

TIE_TOLERANCE = 1e-12
"""Two distances that differ by less than this share of the smaller one are the same distance."""

COSINE_RESOLUTION = 1e-15
"""1 - cos cannot be told from 0 below this in float64, so such a cosine distance is 0."""


def knn_lists(X: ArrayLike, k: int, metric: Metric = "euclidean") -> tuple[IntArray, FloatArray]:
    """Indices and distances, both (n, k) and nearest first, of the k nearest other rows of each row.

    The cosine distance is 1 - cos, with cos = 0 between a row of zeros and any other row.
    """
    rows = np.asarray(X, dtype=np.float64)
    n = rows.shape[0]
    if not 1 <= k <= n - 1:
        msg = f"k must be between 1 and n - 1 = {n - 1}, not {k}"
        raise ValueError(msg)
    distances_from = {"euclidean": _euclidean_distances_from, "cosine": _cosine_distances_from}[metric]

    indices = np.zeros((n, k), dtype=np.int64)
    distances = np.zeros((n, k))
    for i in range(n):
        from_i = distances_from(rows, i)
        indices[i] = _nearest_first(from_i, own_index=i, k=k)
        distances[i] = from_i[indices[i]]
    return indices, distances


def lists_among(
    X: ArrayLike, k: int, meets: NDArray[np.bool_], metric: Metric = "euclidean"
) -> tuple[IntArray, FloatArray]:
    """As :func:`knn_lists`, of row i only those rows j for which ``meets[i, j]``; -1 and inf where they are fewer."""
    rows = np.asarray(X, dtype=np.float64)
    distances_from = {"euclidean": _euclidean_distances_from, "cosine": _cosine_distances_from}[metric]
    indices = np.full((rows.shape[0], k), -1, dtype=np.int64)
    distances = np.full((rows.shape[0], k), np.inf)
    for i in range(rows.shape[0]):
        met = np.flatnonzero(meets[i])
        length = min(k, met.size)
        if length:
            from_i = distances_from(rows, i)
            nearest = _nearest_first(from_i[met], own_index=-1, k=length)
            indices[i, :length] = met[nearest]
            distances[i, :length] = from_i[indices[i, :length]]
    return indices, distances


def meeting_rows(is_home: ArrayLike, starts: ArrayLike, cell: ArrayLike) -> NDArray[np.bool_]:
    """Which members of a group meet, (n, n): one of the two is at home in a cell that the other looks into.

    Member i looks into ``cell[starts[i]:starts[i + 1]]``; if it is at home in the group, it is so in the first of them.
    """
    bounds, cells, home = np.asarray(starts), np.asarray(cell), np.asarray(is_home)
    looks = np.zeros((home.size, cells.max() + 1), dtype=bool)
    looks[np.repeat(np.arange(home.size), np.diff(bounds)), cells] = True
    meets: NDArray[np.bool_] = looks[:, cells[bounds[:-1]]] & home  # row j looks into the home of row i
    meets |= meets.T
    np.fill_diagonal(meets, False)
    return meets


def _euclidean_distances_from(rows: FloatArray, i: int) -> FloatArray:
    """Where a value is NaN, the mean square of the other columns stands for its; no distance without any."""
    squares = (rows - rows[i]) ** 2
    known = ~np.isnan(squares)
    n_known = known.sum(axis=1)
    squared = np.where(known, squares, 0.0).sum(axis=1)
    share = np.divide(n_known, squares.shape[1])
    return np.sqrt(np.divide(squared, share, out=np.full(len(rows), np.inf), where=n_known > 0))


def _cosine_distances_from(rows: FloatArray, i: int) -> FloatArray:
    """1 - cos = ||u - v||^2 / 2 for u, v of unit length; as a difference it keeps its digits near 0."""
    lengths = np.sqrt((rows**2).sum(axis=1))
    nonzero = lengths > 0
    distances = np.ones(rows.shape[0])
    if nonzero[i]:
        unit = rows[nonzero] / lengths[nonzero, np.newaxis]
        distances[nonzero] = ((unit - rows[i] / lengths[i]) ** 2).sum(axis=1) / 2
    distances[distances < COSINE_RESOLUTION] = 0.0
    return distances


def _nearest_first(distances: FloatArray, own_index: int, k: int) -> list[int]:
    """The k nearest indices without the own one; those tied with the nearest that remains go by index."""
    values = distances.tolist()
    remaining = sorted((j for j in range(len(values)) if j != own_index), key=values.__getitem__)
    ordered: list[int] = []
    while len(ordered) < k:
        limit = values[remaining[len(ordered)]] * (1 + TIE_TOLERANCE)
        tied = itertools.takewhile(lambda j: values[j] <= limit, remaining[len(ordered) :])  # noqa: B023 - used at once
        ordered.extend(sorted(tied))
    return ordered[:k]


def union_adjacency(indices: IntArray, distances: FloatArray, weight: Weight, self_loops: bool = False) -> FloatArray:
    """The symmetric (n, n) weights S: an edge where either row lists the other, loops only if asked for."""
    n, k = indices.shape
    S = np.zeros((n, n))
    for i in range(n):
        for position in range(k):
            j = indices[i, position]
            S[i, j] = S[j, i] = weight(float(distances[i, position]))
        if self_loops:
            S[i, i] = weight(0.0)
    return S


def heat(t: float) -> Weight:
    """exp(-d^2 / t), with the square that the plain text of the paper lost."""
    return lambda distance: math.exp(-(distance**2) / t)


def binary() -> Weight:
    """1 on every edge, also at distance 0."""
    return lambda _distance: 1.0


def cosine() -> Weight:
    """1 - d, which is the cosine itself if d is the cosine distance; negative beyond a right angle."""
    return lambda distance: 1.0 - distance


def heat_t(indices: IntArray, distances: FloatArray, statistic: Statistic) -> float:
    """Mean or median of the squared edge lengths; an edge found from both of its ends counts once."""
    squared_lengths: dict[tuple[int, int], float] = {}
    n, k = indices.shape
    for i in range(n):
        for position in range(k):
            j = int(indices[i, position])
            squared_lengths[min(i, j), max(i, j)] = float(distances[i, position]) ** 2
    lengths = np.array(list(squared_lengths.values()))
    return float(np.mean(lengths) if statistic == "mean" else np.median(lengths))
