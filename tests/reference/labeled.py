"""Criteria on labels straight from their formulas: dense n x n weights, every pair looked at.

SLS and SSLS are those of Doquire and Verleysen (2011), LSDF that of Zhao, Lu and He (2008). Unlabeled rows are NaN in
a target and -1 in classes. A row is never its own neighbor, and of two that are equally far the lower one comes first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.reference.scores import laplacian_score

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def nearest(distances: FloatArray, k: int) -> tuple[IntArray, FloatArray]:
    """Lists (n, k) of the nearest rows by an (n, n) table of distances, inf for no pair; -1 and inf where there is no
    further one.
    """
    n = len(distances)
    indices, lengths = np.full((n, k), -1), np.full((n, k), np.inf)
    for i in range(n):
        others = sorted((distances[i, j], j) for j in range(n) if j != i and distances[i, j] < np.inf)
        for place, (distance, j) in enumerate(others[:k]):
            indices[i, place], lengths[i, place] = j, distance
    return indices, lengths


def target_distances(y: ArrayLike, standardize: bool = True) -> FloatArray:
    """|y_i - y_j|, in population standard deviations of the known targets; inf unless both are known."""
    target = np.asarray(y, dtype=np.float64)
    scale = np.std(target[~np.isnan(target)]) if standardize else 1.0
    apart: FloatArray = np.abs(target[:, None] - target[None, :]) / scale
    return np.where(np.isnan(apart), np.inf, apart)


def space_distances(X: ArrayLike, scaling: str | None = "zscore") -> FloatArray:
    """Root of the mean squared difference of two rows over the features, of their z-scores unless told otherwise."""
    rows = np.asarray(X, dtype=np.float64)
    if scaling == "zscore":
        rows = (rows - rows.mean(axis=0)) / np.where(rows.std(axis=0) > 0, rows.std(axis=0), 1)
    return np.sqrt(((rows[:, None, :] - rows[None, :, :]) ** 2).mean(axis=2))


def mixed_lists(
    X: ArrayLike, y: ArrayLike, k: int, neighbors: str = "d", standardize: bool = True, scaling: str | None = "zscore"
) -> tuple[IntArray, FloatArray]:
    """Lists by Eq. 8 and 9: roots of d, of the k nearest by d, or of the k nearest in X in the order of X."""
    by_target, by_space = target_distances(y, standardize), space_distances(X, scaling)
    root_d = np.where(by_target < np.inf, by_target, by_space)
    if neighbors == "d":
        return nearest(root_d, k)
    indices = nearest(by_space, k)[0]
    return indices, np.where(indices >= 0, np.take_along_axis(root_d, np.maximum(indices, 0), axis=1), np.inf)


def joined(indices: IntArray, lengths: FloatArray, t: float) -> FloatArray:
    """Symmetric weights exp(-length^2 / t) where either row lists the other."""
    S = np.zeros((len(indices), len(indices)))
    for i, (row, long) in enumerate(zip(indices, lengths, strict=True)):
        for j, length in zip(row, long, strict=True):
            if j >= 0:
                S[i, j] = S[j, i] = np.exp(-(length**2) / t)
    return S


def supervised_laplacian_score(
    X: ArrayLike, y: ArrayLike, k: int = 5, t: float = 1.0, standardize: bool = True
) -> FloatArray:
    """Eq. 4 with k clipped to the number of other labeled rows."""
    return laplacian_score(X, joined(*nearest(target_distances(y, standardize), k), t))


def semi_supervised_laplacian_score(
    X: ArrayLike,
    y: ArrayLike,
    k: int = 30,
    k_labels: int = 5,
    t: float = 1.0,
    label_weight: float = 5.0,
    neighbors: str = "d",
    standardize: bool = True,
    scaling: str | None = "zscore",
) -> FloatArray:
    """Eq. 10; the second factor is left out where it is 0/0."""
    S = joined(*mixed_lists(X, y, k, neighbors, standardize, scaling), t)
    known = ~np.isnan(np.asarray(y, dtype=np.float64))
    S[np.ix_(known, known)] *= label_weight
    second = supervised_laplacian_score(X, y, k_labels, t, standardize)
    return laplacian_score(X, S) * np.where(np.isnan(second), 1.0, second)


def lsdf(F: ArrayLike, S: ArrayLike, codes: ArrayLike, same_class_weight: float = 100.0) -> FloatArray:
    """f'L_b f / f'L_w f; of the (n, n) weights S only those count of which one row is unlabeled."""
    features, classes = np.asarray(F, dtype=np.float64), np.asarray(codes)
    known = classes >= 0
    both = known[:, None] & known[None, :]
    same = classes[:, None] == classes[None, :]
    S_b = np.where(both & ~same, 1.0, 0.0)
    S_w = np.where(both, np.where(same, same_class_weight, 0.0), np.asarray(S, dtype=np.float64))
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        squares = (f[:, None] - f[None, :]) ** 2
        within, between = (S_w * squares).sum(), (S_b * squares).sum()
        if within or between:
            scores[r] = between / within if within else np.inf
    return scores
