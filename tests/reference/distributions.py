"""Scores by the distributions of a feature in the classes, value by value. NaN marks a constant feature.

Rows of class -1 take no part.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tests.reference.scores import UNLABELED

FloatArray = NDArray[np.float64]


def kolmogorov_smirnov(F: ArrayLike, y: ArrayLike) -> FloatArray:
    """Largest |F_a(v) - F_b(v)| over all values v and pairs of classes, F_a(v) being the share of class a up to v."""
    features, classes = _labeled(F, y)
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        if len(np.unique(f)) == 1:
            continue
        shares = [[(f[classes == label] <= v).mean() for v in np.unique(f)] for label in np.unique(classes)]
        scores[r] = max(np.abs(np.subtract(a, b)).max() for a, b in itertools.combinations(shares, 2))
    return scores


def bins_of(f: ArrayLike, n_bins: int) -> NDArray[np.int64]:
    """The bin of each value: values by the middle of their rank, cut into `n_bins` equal parts; by whole numbers."""
    values = np.asarray(f)
    n = len(values)
    doubled = [2 * int((values < v).sum()) + int((values == v).sum()) for v in values]
    return np.array([n_bins * middle // (2 * n) for middle in doubled])


def information_gain(F: ArrayLike, y: ArrayLike, n_bins: int = 10) -> FloatArray:
    """H(y) - sum over bins of their share times H(y within the bin), in bits (Quinlan 1986, section 4)."""
    features, classes = _labeled(F, y)
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        if len(np.unique(f)) == 1:
            continue
        bins = bins_of(f, n_bins)
        within = sum((bins == b).mean() * _entropy(classes[bins == b]) for b in np.unique(bins))
        scores[r] = _entropy(classes) - within
    return scores


def _entropy(classes: NDArray[np.int64]) -> float:
    shares = [(classes == label).mean() for label in np.unique(classes)]
    return -sum(float(share * np.log2(share)) for share in shares)


def _labeled(F: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.int64]]:
    features, classes = np.asarray(F, dtype=np.float64), np.asarray(y)
    return features[classes != UNLABELED], classes[classes != UNLABELED]
