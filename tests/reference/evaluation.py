"""Metrics, stability and tests of the evaluation, straight from their formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from typing import Any

from scipy.stats import t as student


def nearest_neighbor_error(rows: Sequence[Sequence[int]], y: Sequence[int]) -> Fraction:
    """Leave-one-out error of 1NN on integers: the first of the nearest other rows decides."""
    wrong = 0
    for i, row in enumerate(rows):
        others = [j for j in range(len(rows)) if j != i]
        lengths = {j: sum((int(a) - int(b)) ** 2 for a, b in zip(row, rows[j], strict=True)) for j in others}
        wrong += y[min(others, key=lambda j: (lengths[j], j))] != y[i]
    return Fraction(wrong, len(rows))


def matched_accuracy(y: Sequence[Any], clusters: Sequence[Any]) -> float:
    """He, Cai, Niyogi (2005), section 4.2.1: the best of all one-to-one maps of clusters to classes."""
    names, classes = sorted(set(clusters)), sorted(set(y))
    longer = max(len(names), len(classes))
    targets = [*classes, *[None] * (longer - len(classes))]
    hits = [
        sum(label == dict(zip(names, chosen, strict=False))[c] for label, c in zip(y, clusters, strict=True))
        for chosen in permutations(targets)
    ]
    return max(hits) / len(y)


def kuncheva_index(selections: Sequence[Sequence[int]], d: int) -> float:
    """Kuncheva (2007), Eq. 2 and 3: mean over pairs of (r d - k^2) / (k (d - k))."""
    k = len(selections[0])
    values = [(len({*a} & {*b}) * d - k**2) / (k * (d - k)) for a, b in combinations(selections, 2)]
    return sum(values) / len(values)


def jaccard_index(selections: Sequence[Sequence[int]]) -> float:
    """Mean over pairs of the features in both among those in either."""
    values = [len({*a} & {*b}) / len({*a} | {*b}) for a, b in combinations(selections, 2)]
    return sum(values) / len(values)


def rank_of(feature: int, order: Sequence[int]) -> int:
    """Rank from 1 of a feature, right below the list where it is not in it."""
    return list(order).index(feature) + 1 if feature in order else len(order) + 1


def corrected_interval(values: Sequence[float], n_test: int, n_train: int, level: float) -> tuple[float, float]:
    """Nadeau and Bengio (2003), section 4: mean -+ t_{J-1} sqrt((1/J + n_test/n_train) S^2)."""
    J = len(values)
    mean = sum(values) / J
    S2 = sum((value - mean) ** 2 for value in values) / (J - 1)
    half = float(student.ppf(0.5 + level / 2, J - 1)) * math.sqrt((1 / J + n_test / n_train) * S2)
    return mean - half, mean + half


def average_ranks(table: Sequence[Sequence[float]]) -> list[float]:
    """Average rank of each column, 1 for the largest of a row; there are no ties."""
    return [sum(1 + sum(other > row[j] for other in row) for row in table) / len(table) for j in range(len(table[0]))]


def friedman(R: Sequence[float], N: int) -> tuple[float, float]:
    """Demsar (2006), section 3.2.2: chi-square of Friedman and F of Iman and Davenport, from average ranks."""
    k = len(R)
    chi2 = 12 * N / (k * (k + 1)) * (sum(r**2 for r in R) - k * (k + 1) ** 2 / 4)
    rest = N * (k - 1) - chi2
    return chi2, (N - 1) * chi2 / rest if rest > 1e-9 else math.inf
