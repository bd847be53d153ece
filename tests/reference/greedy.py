"""Greedy selection straight from its definitions, on dense data: one pair of columns at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.reference.distance import centered, distances

FloatArray = NDArray[np.float64]

EQUAL = 1e-12
"""Values that differ by less are equal; the first of them counts."""


def rrpc(F: ArrayLike, relevance: ArrayLike, *, absolute: bool = True) -> tuple[list[int], list[float]]:
    """Xu et al. (2017): first argmax P(f, y), then argmax P(f, y) - 1/|S| sum over s in S of P(f, s).

    Returns the picks and the criterion's value at each. Features whose relevance is NaN are never picked.
    """
    features, relevant = np.asarray(F, dtype=np.float64), np.asarray(relevance, dtype=np.float64)
    left = [j for j in range(features.shape[1]) if not np.isnan(relevant[j])]
    picks: list[int] = []
    values: list[float] = []
    while left:
        found = []
        for j in left:
            shared = [correlation(features[:, j], features[:, i], absolute=absolute) for i in picks]
            found.append(relevant[j] - (np.mean(shared) if shared else 0.0))
        best = max(found)
        place = next(p for p, value in enumerate(found) if value >= best - EQUAL)
        picks.append(left.pop(place))
        values.append(float(found[place]))
    return picks, values


def walk(order: list[int], similarity: FloatArray, threshold: float) -> list[int]:
    """Keep a feature unless its similarity with one kept before exceeds the threshold."""
    kept: list[int] = []
    for j in order:
        if all(similarity[j, i] <= threshold for i in kept):
            kept.append(j)
    return kept


def correlation(a: FloatArray, b: FloatArray, *, absolute: bool = True) -> float:
    """Pearson's r of two columns, or its size."""
    r = float(np.corrcoef(a - a[0], b - b[0])[0, 1])
    return abs(r) if absolute else r


def distance_correlation(a: ArrayLike, b: ArrayLike) -> float:
    """Székely, Rizzo and Bakirov (2007), Definition 4: the root of dCov²(a, b) / sqrt(dVar²(a) dVar²(b)), from doubly
    centered (n, n) distance matrices.
    """
    A, B = (centered(distances(np.asarray(values, dtype=np.float64))) for values in (a, b))
    scale = np.sqrt((A * A).mean() * (B * B).mean())
    return 0.0 if scale == 0 else float(np.sqrt(max((A * B).mean() / scale, 0.0)))
