"""The Laplacian Score of scikit-feature (Li et al., "Feature Selection: A Data Perspective", 2017).

It evaluates Eq. 1 of He, Cai, Niyogi (NIPS 2005) on a graph that differs from the paper's in two ways: each
row is its own neighbor, with weight 1, which adds 1 to every degree; the heat kernel is exp(-d^2 / (2 t^2)).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

CONSTANT_BELOW = 1e-12
"""Weighted variances below this count as 0, and the package then reports a score of 1."""


def scikit_feature_graph(X: ArrayLike, k: int, t: float) -> FloatArray:
    """Weights (n, n) between each row and its k + 1 nearest, itself first, made symmetric by the maximum.

    Further rows at equal distance are taken by index; the package leaves their order to its sort.
    """
    rows = np.asarray(X, dtype=np.float64)
    n = rows.shape[0]
    directed = np.zeros((n, n))
    for i in range(n):
        squared = ((rows - rows[i]) ** 2).sum(axis=1)
        by_distance = sorted(range(n), key=lambda j: (j != i, squared[j], j))
        for j in by_distance[: k + 1]:
            directed[i, j] = np.exp(-squared[j] / (2 * t**2))
    return np.maximum(directed, directed.T)


def scikit_feature_laplacian_score(X: ArrayLike, k: int, t: float) -> FloatArray:
    """f~' L f~ / f~' D f~ per column of X, D being the row sums with the self weights; smaller is better."""
    features = np.asarray(X, dtype=np.float64)
    S = scikit_feature_graph(features, k, t)
    degrees = S.sum(axis=1)
    laplacian = np.diag(degrees) - S
    scores = np.ones(features.shape[1])
    for r, f in enumerate(features.T):
        centered = f - (degrees * f).sum() / degrees.sum()
        weighted_variance = (degrees * centered**2).sum()
        if weighted_variance >= CONSTANT_BELOW:
            scores[r] = centered @ laplacian @ centered / weighted_variance
    return scores
