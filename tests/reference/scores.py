"""Feature scores straight from their formulas, on dense (n, d) data with an (n, n) weight matrix.

Equation numbers are those of He, Cai, Niyogi, "Laplacian Score for Feature Selection" (NIPS 2005), unless a
function names another source. NaN marks a feature to which the criterion gives no value, as a constant one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

UNLABELED = -1
"""The class of a row whose class is not known."""


def laplacian_score(F: ArrayLike, S: ArrayLike) -> FloatArray:
    """Eq. 1 per column of F: f~' L f~ / f~' D f~ with D = diag(S 1), L = D - S, f~ = f - (f' D 1 / 1' D 1) 1.

    Smaller is better. NaN for a feature that has one value on all nodes of non-zero degree.
    """
    features, weights = np.asarray(F, dtype=np.float64), np.asarray(S, dtype=np.float64)
    degrees = weights.sum(axis=1)
    D = np.diag(degrees)
    L = D - weights
    ones = np.ones(len(degrees))
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        if _is_constant(f[degrees != 0]):
            continue
        centered = f - (f @ D @ ones) / (ones @ D @ ones) * ones
        scores[r] = (centered @ L @ centered) / (centered @ D @ centered)
    return scores


def variance(F: ArrayLike) -> FloatArray:
    """Eq. 3 per column: the mean squared deviation from the mean (divisor n). Larger is better."""
    features = np.asarray(F, dtype=np.float64)
    return np.array([((f - f.mean()) ** 2).mean() for f in features.T])


def fisher(F: ArrayLike, y: ArrayLike) -> FloatArray:
    """Eq. 4 per column: sum_i n_i (mu_i - mu)^2 / sum_i n_i sigma_i^2 with divisor n_i in sigma_i^2.

    Larger is better. Infinite for a feature that has one value in each class but not the same in all of them
    (so for every feature, if no class has two rows), NaN for a constant one. Rows of class -1 take no part.
    """
    features, classes = _labeled_rows(F, y)
    labels = np.unique(classes)
    if len(labels) < 2:
        msg = f"the Fisher score needs two classes, the labeled rows have {len(labels)}"
        raise ValueError(msg)
    scores = np.full(features.shape[1], np.nan)
    for r, f in enumerate(features.T):
        members = [f[classes == label] for label in labels]
        if _is_constant(f):
            continue
        if all(_is_constant(values) for values in members):
            scores[r] = np.inf
            continue
        between = sum(len(values) * (values.mean() - f.mean()) ** 2 for values in members)
        within = sum(((values - values.mean()) ** 2).sum() for values in members)
        scores[r] = between / within
    return scores


def pearson(F: ArrayLike, y: ArrayLike) -> FloatArray:
    """|r|, Pearson's correlation between each column and a numeric target; rows where y is NaN are left out.

    Larger is better. NaN where the feature or the target is constant on the rows that are left.
    """
    features, target = np.asarray(F, dtype=np.float64), np.asarray(y, dtype=np.float64)
    known = ~np.isnan(target)
    return np.array([abs(_correlation(f[known], target[known])) for f in features.T])


def pearson_one_vs_rest(F: ArrayLike, codes: ArrayLike) -> FloatArray:
    """Per column, the largest |r| with the 0/1 indicator of one class. Rows of class -1 take no part."""
    features, classes = _labeled_rows(F, codes)
    per_class = [pearson(features, classes == label) for label in np.unique(classes)]
    return np.asarray(np.max(per_class, axis=0))


def class_graph(y: ArrayLike) -> FloatArray:
    """Eq. 5: S_ij = 1 / n_l for rows i, j of class l, also for i = j, else 0. Class -1 has no edge."""
    classes = np.asarray(y)
    n = len(classes)
    S = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if classes[i] == classes[j] and classes[i] != UNLABELED:
                S[i, j] = 1.0 / np.count_nonzero(classes == classes[i])
    return S


def geary_c(f: ArrayLike, S: ArrayLike) -> float:
    """Geary's contiguity ratio (1954), near 1 for a feature that ignores the graph.

    (N - 1) / (2 W) * sum_ij S_ij (f_i - f_j)^2 / sum_i (f_i - mean)^2 with W = sum_ij S_ij.
    """
    values, weights = np.asarray(f, dtype=np.float64), np.asarray(S, dtype=np.float64)
    n = len(values)
    between_neighbors = 0.0
    for i in range(n):
        for j in range(n):
            between_neighbors += weights[i, j] * (values[i] - values[j]) ** 2
    around_mean = ((values - values.mean()) ** 2).sum()
    return float((n - 1) / (2 * weights.sum()) * between_neighbors / around_mean)


def one_nn_leave_one_out_error(f: ArrayLike, y: ArrayLike) -> float:
    """Section 4.1: share of rows whose nearest other row in one feature has another class.

    Of several nearest rows the first decides, so feed whole numbers where ties must not hang on rounding.
    """
    values, classes = np.asarray(f, dtype=np.float64), np.asarray(y)
    n = len(values)
    errors = 0
    for i in range(n):
        nearest = min((j for j in range(n) if j != i), key=lambda j: (abs(values[j] - values[i]), j))
        errors += int(classes[nearest] != classes[i])
    return errors / n


def _labeled_rows(F: ArrayLike, y: ArrayLike) -> tuple[FloatArray, NDArray[np.int64]]:
    features, classes = np.asarray(F, dtype=np.float64), np.asarray(y)
    labeled = classes != UNLABELED
    return features[labeled], classes[labeled]


def _correlation(a: FloatArray, b: FloatArray) -> float:
    if _is_constant(a) or _is_constant(b):
        return np.nan
    a_centered, b_centered = a - a.mean(), b - b.mean()
    return float((a_centered @ b_centered) / np.sqrt((a_centered @ a_centered) * (b_centered @ b_centered)))


def _is_constant(values: FloatArray) -> bool:
    """Whether all values are equal, by comparison: a sum of squares would leave rounding where 0 is meant."""
    return bool(len(values) == 0 or (values == values[0]).all())
