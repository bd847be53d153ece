"""sSelect straight from its formulas: Zhao and Liu, "Semi-supervised Feature Selection via Spectral Analysis" (SDM
2007).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.reference.graph import knn_lists
from tests.reference.scores import UNLABELED, laplacian_score

FloatArray = NDArray[np.float64]


def nmi(a: ArrayLike, b: ArrayLike) -> float:
    """Eq. 3.9 for two lists of labels: mutual information over the larger entropy; 0 where either is constant."""
    pairs = list(zip(np.asarray(a).tolist(), np.asarray(b).tolist(), strict=True))
    n = len(pairs)
    p = {pair: pairs.count(pair) / n for pair in set(pairs)}
    p_a = {x: sum(share for (i, _), share in p.items() if i == x) for x in {i for i, _ in pairs}}
    p_b = {x: sum(share for (_, j), share in p.items() if j == x) for x in {j for _, j in pairs}}
    if len(p_a) < 2 or len(p_b) < 2:
        return 0.0
    information = sum(share * math.log(share / (p_a[i] * p_b[j])) for (i, j), share in p.items())
    entropies = [-sum(share * math.log(share) for share in shares.values()) for shares in (p_a, p_b)]
    return information / max(entropies)


def sselect(F: ArrayLike, S: ArrayLike, y: ArrayLike, trade_off: float) -> FloatArray:
    """Eq. 3.8 per column with D = diag(S 1): trade_off g'Lg / g'Dg + (1 - trade_off) (1 - NMI(sign g, y)).

    g = f - (f'D1 / 1'D1) 1, NMI over rows whose class is not -1, and sign(0) = 1. Smaller is better. NaN for a feature
    that has one value on all nodes of non-zero degree.
    """
    features, degrees, classes = np.asarray(F, dtype=np.float64), np.asarray(S).sum(axis=1), np.asarray(y)
    known = classes != UNLABELED
    cuts = laplacian_score(features, S)
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        g = f - (f @ degrees) / degrees.sum()
        signs = np.where(g >= -1e-12 * np.abs(g).max(initial=0.0), 1, -1)
        scores[r] = trade_off * cuts[r] + (1 - trade_off) * (1 - nmi(signs[known], classes[known]))
    return np.where(np.isnan(cuts), np.nan, scores)


def second_eigenvalue(W: ArrayLike) -> float:
    """Second-smallest eigenvalue of the normalized Laplacian of a dense weight matrix without nodes of degree 0."""
    weights = np.asarray(W, dtype=np.float64)
    D = np.diag(weights.sum(axis=1))
    root = np.diag(1 / np.sqrt(np.diag(D)))
    return float(np.linalg.eigvalsh(root @ (D - weights) @ root)[1])


def graph_of_all_rows(X: ArrayLike, k: int) -> FloatArray:
    """The weights between all rows, equal ones included: 1 between equal rows and between rows that differ and, among
    the rows that differ, are joined by the k-neighborhood graph.
    """
    rows = np.asarray(X, dtype=np.float64)
    distinct = np.unique(rows, axis=0)
    lists = knn_lists(distinct, k)[0]
    n = len(rows)
    node = [int(np.flatnonzero((distinct == row).all(axis=1))[0]) for row in rows]
    W = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            a, b = node[i], node[j]
            W[i, j] = float(i != j and (a == b or b in lists[a] or a in lists[b]))
    return W
