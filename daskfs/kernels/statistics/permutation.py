"""Permutation distribution of a ratio of quadratic forms: exact moments, and the tail of Pearson's type III curve.

The score is c = f'Af / f'Bf with A1 = B1 = 0. If the values of f are exchangeable over the rows, P(score <= c) is
P(T <= 0) for T = f'Mf and M = A - cB.

Notes
-----
Expanded over index patterns, the moments of T are sums of products of two factors: one of the power sums of f, and one
of M. As M has row sums of 0, only patterns count in which every index occurs twice or more (Mantel 1967; Cliff and Ord
1981 for B = I; Kazi-Aoual, Hitier, Sabatier and Lebreton 1995 for the third moment).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import factorial, prod
from typing import Literal

import numpy as np
from scipy.special import betainc, gammainc, gammaincc, ndtr

from daskfs.kernels.panel.backend import Passes
from daskfs.kernels.scaling import inverse_or_zero
from daskfs.kernels.statistics.moments import Moments, row_blocks

TAIL_ROWS = 4096
"""Rows whose powers are taken together, so that they stay in cache."""
OWN_SKEWNESS, LEAST_ROWS = 0.2, 50
"""Difference to the skewness of T of a normal feature, and number of rows that carry the degrees, from which on
p-values are found by permutation.
"""
NORMAL_MOMENTS = {2: 1.0, 3: 0.0, 4: 3.0, 6: 15.0}
LEAST_SKEWNESS = 1e-4
"""Skewness below which a type III curve is a normal one, to the accuracy of its functions."""
MIN_ROWS = 6
"""Fewest rows of which the third moment exists."""
FDRMethod = Literal["bh", "by"]
"""Names of SciPy for the control of false discovery rates."""
Pattern = tuple[int, ...]
"""Sizes of the blocks of a partition, descending."""


@dataclass(frozen=True)
class Tails:
    """Central moments of columns, of which :func:`ratio_pvalues` needs those of order 2, 3, 4 and 6.

    Attributes
    ----------
    n_rows
        Number of rows.
    moments
        Means of powers of the deviations from the mean by order, each of shape (width,), float64.
    """

    n_rows: int
    moments: Mapping[int, np.ndarray]


@dataclass(frozen=True)
class RatioInvariants:
    """Sums over M = A - cB that the moments of T need, as polynomials in c, coefficients ascending, float64.

    Attributes
    ----------
    trace, diagonal_squares, squares
        tr M; the sum of M_ii**2; that of M_ij**2.
    diagonal_cubes, diagonal_rows, diagonal_form, cubes, trace_cubed
        The sums of M_ii**3, of M_ii (M**2)_ii, of M_ii M_ij M_jj and of M_ij**3; tr M**3.
    """

    trace: np.ndarray
    diagonal_squares: np.ndarray
    squares: np.ndarray
    diagonal_cubes: np.ndarray
    diagonal_rows: np.ndarray
    diagonal_form: np.ndarray
    cubes: np.ndarray
    trace_cubed: np.ndarray

    def to_json(self) -> dict[str, list[float]]:
        """Return the coefficients by name."""
        return {name: [float(value) for value in values] for name, values in vars(self).items()}

    @classmethod
    def from_json(cls, raw: Mapping[str, Sequence[float]]) -> RatioInvariants:
        """Return the invariants of :meth:`to_json`."""
        return cls(**{name: np.array(values) for name, values in raw.items()})

    def at(self, c: np.ndarray) -> dict[str, np.ndarray]:
        """Return the values for some c, each of the shape of c, by name."""
        return {name: np.polynomial.polynomial.polyval(c, values) for name, values in vars(self).items()}


def column_tails(F: np.ndarray, moments: Moments, passes: Passes, rows: np.ndarray | None = None) -> Tails:
    """Return the central moments of the columns of a panel.

    Parameters
    ----------
    F
        Panel, shape (n_samples, width), without missing values.
    moments
        Moments of the same rows.
    passes
        Backend of the sums.
    rows
        Numbers of the rows that count, shape (n_rows,), int64; None for all.
    """
    n_rows = F.shape[0] if rows is None else rows.size
    # powers of deviations up to 1 neither overflow nor vanish, and the scale of a feature does not change its ratio
    low, high = moments.extremes
    center = np.stack(np.broadcast_arrays(moments.mean, moments.rest))
    inverse = inverse_or_zero(np.maximum(high - moments.mean, moments.mean - low))
    sums = np.zeros((4, F.shape[1]))
    for part in row_blocks(n_rows, TAIL_ROWS):
        sums += passes.power_sums(F[part] if rows is None else F[rows[part]], center, inverse)
    return Tails(n_rows, dict(zip((2, 3, 4, 6), sums / max(n_rows, 1), strict=True)))


def ratio_moments(c: np.ndarray, invariants: RatioInvariants, tails: Tails) -> tuple[np.ndarray, ...]:
    """Return mean, variance and skewness of T under permutation, each (width,), float64; see :func:`ratio_pvalues`."""
    weight = {pattern: _weights(pattern, tails) for pattern in ((2,), (4,), (2, 2), (6,), (4, 2), (3, 3), (2, 2, 2))}
    of = invariants.at(c)
    t, q, squares = of["trace"], of["diagonal_squares"], of["squares"]
    first = weight[2,] * t
    second = weight[4,] * q + weight[2, 2] * (t**2 + 2 * squares)
    third = (
        weight[6,] * of["diagonal_cubes"]
        + weight[4, 2] * (3 * t * q + 12 * of["diagonal_rows"])
        + weight[3, 3] * (6 * of["diagonal_form"] + 4 * of["cubes"])
        + weight[2, 2, 2] * (t**3 + 6 * t * squares + 8 * of["trace_cubed"])
    )
    variance = second - first**2
    central = third - 3 * first * second + 2 * first**3
    skewness = np.divide(central, np.abs(variance) ** 1.5, out=np.zeros_like(central), where=variance > 0)
    return first, variance, skewness


def ratio_pvalues(
    c: np.ndarray, invariants: RatioInvariants, tails: Tails, of_classes: tuple[float, int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probability under permutation of a ratio as small as c, and where it is in doubt.

    Parameters
    ----------
    c
        Observed ratios f'Af / f'Bf, shape (width,), float64.
    invariants
        Invariants of A - cB; of A - eB where permutations leave f'Bf as it is, the sum of squares about the mean.
    tails
        Central moments of the features over the rows that are permuted.
    of_classes
        The expectation e of such a ratio of classes, and their number; None for others.

    Returns
    -------
    pvalues
        Shape (width,), float64; NaN where c is not finite, for fewer than :data:`MIN_ROWS` rows, and for constants.
        The tail is that of Pearson's type III curve with the first three moments of T; with `of_classes` that of a
        product with the same moments, of the share of the scatter within classes, as the F test has it, and of the mean
        size of the class.
    in_doubt
        Shape (width,), bool: where three moments may not suffice, as few rows carry the degrees (squared sum of the
        diagonal of B over its sum of squares) or the feature (T is more or less skewed than that of a normal one).
    """
    is_defined = np.isfinite(c) & (tails.moments[2] > 0)
    if tails.n_rows < MIN_ROWS:
        return np.full(c.shape, np.nan), np.zeros(c.shape, bool)
    at = c if of_classes is None else np.zeros_like(c)
    normal = Tails(tails.n_rows, {order: np.full(c.shape, value) for order, value in NORMAL_MOMENTS.items()})
    usual = ratio_moments(at, invariants, normal)[2]
    mean, variance, skewness = ratio_moments(at, invariants, tails)
    in_doubt = is_defined & (np.abs(skewness - usual) > OWN_SKEWNESS)
    pvalues = np.where(is_defined, 1.0, np.nan)  # for ratios that no permutation changes
    varies = is_defined & (variance > 0)
    mean, deviation, skewness = mean[varies], np.sqrt(variance[varies]), skewness[varies]
    if of_classes is None:
        pvalues[varies] = _type_three(-mean / deviation, skewness)
        in_doubt |= is_defined & (invariants.trace[1] ** 2 < LEAST_ROWS * invariants.diagonal_squares[2])
    elif varies.any():
        deviation = deviation / (tails.n_rows * tails.moments[2][varies])
        pvalues[varies] = _share_tail(c[varies], tails.n_rows, *of_classes, deviation, skewness)
    return pvalues, in_doubt


def _type_three(z: np.ndarray, skewness: np.ndarray) -> np.ndarray:
    """Return P(Z <= z) for Pearson's type III curve of mean 0, variance 1 and some skewness, (width,)."""
    probabilities = ndtr(z)
    skewed = np.abs(skewness) > LEAST_SKEWNESS
    half = skewness[skewed] / 2
    shape = 1 / half**2  # of a gamma variable, which begins where the curve begins, or ends
    place = np.maximum(shape + z[skewed] / half, 0.0)
    probabilities[skewed] = np.where(half > 0, gammainc(shape, place), gammaincc(shape, place))
    return probabilities


def _share_tail(
    c: np.ndarray, n_rows: int, expected: float, n_classes: int, deviation: np.ndarray, skewness: np.ndarray
) -> np.ndarray:
    """Return P(R H <= c), (width,), for three moments of R H, with R and H independent, as of a normal feature.

    R, beta, is the share of scatter within classes; H the mean size of the class by scatter, constant for equal sizes.
    """
    a, b = (n_rows - n_classes) / 2, (n_classes - 1) / 2
    r, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    third = 2 * (b - a) * variance / ((a + b) * (a + b + 2))
    h = expected / r
    of_h = np.maximum((deviation**2 - h**2 * variance) / (r**2 + variance), 0.0)
    rest = skewness * deviation**3 - third * h * (h**2 + 3 * of_h) - 6 * r * h * variance * of_h
    scale = np.sqrt(of_h)
    skew = rest / (r**3 + third + 3 * r * variance)
    skew = np.clip(np.divide(skew, scale**3, out=np.zeros_like(c), where=scale > 1e-9 * h), -2.0, 2.0)
    skew = np.where(np.abs(skew) < LEAST_SKEWNESS, LEAST_SKEWNESS, skew)
    reach = np.minimum(np.maximum(h - c, 0.0) / np.maximum(scale, 1e-9 * h), 38.0) + 8.5  # the far tail is where H is
    nodes = np.linspace(-reach, 8.5, 341, axis=-1)
    c, scale, skew, reach = (values[:, None] for values in (c, scale, skew, reach))
    # Wilson and Hilferty's quantiles of type III curves
    sizes = h + scale * (2 / skew) * ((1 + skew * nodes / 6 - skew**2 / 36) ** 3 - 1)
    shares = np.divide(c, sizes, out=np.ones_like(sizes), where=sizes > c)
    density = np.exp(-(nodes**2) / 2) * (reach + 8.5) / (340 * np.sqrt(2 * np.pi))
    return np.clip((betainc(a, b, shares) * density).sum(axis=1), 0.0, 1.0)


def qvalues(pvalues: np.ndarray, method: FDRMethod = "bh") -> np.ndarray:
    """Return the smallest false discovery rates at which features pass, NaN for those without a p-value.

    Both have shape (n_features,), float64. "bh" is of Benjamini and Hochberg (1995), "by" of Benjamini and Yekutieli
    (2001), which holds for tests that depend on each other in any way.
    """
    from scipy.stats import false_discovery_control

    rates, is_tested = np.full(pvalues.shape, np.nan), ~np.isnan(pvalues)
    if is_tested.any():
        rates[is_tested] = false_discovery_control(pvalues[is_tested], method=method)
    return rates


def _weights(pattern: Pattern, tails: Tails) -> np.ndarray:
    """Return the factor of f for the sums over M with the index pattern, shape (width,), float64."""
    n = tails.n_rows
    total = np.zeros_like(tails.moments[2])
    for (powers, n_blocks), count in _terms(pattern).items():
        falling = prod(range(n - n_blocks + 1, n + 1))
        total += (count * float(n) ** len(powers) / falling) * prod(tails.moments[power] for power in powers)
    return total


@cache
def _terms(pattern: Pattern) -> Mapping[tuple[Pattern, int], int]:
    """Return the coefficients of products of power sums, by their powers and the number of distinct indices.

    Inclusion and exclusion turns sums over distinct indices, of which the expectation is known, into sums over all
    indices, on the side of M over the finer partitions and on the side of f over the coarser ones.
    """
    choices = [[[len(part) for part in parts] for parts in _partitions(range(size))] for size in pattern]
    coefficients: Counter[tuple[Pattern, int]] = Counter()
    for finer in product(*choices):
        sign = prod((-1) ** (len(inside) - 1) * factorial(len(inside) - 1) for inside in finer)
        blocks = [size for inside in finer for size in inside]
        for groups in _partitions(range(len(blocks))):
            powers = tuple(sorted((sum(blocks[i] for i in group) for group in groups), reverse=True))
            if 1 not in powers:  # the values are centered
                coefficient = prod((-1) ** (len(group) - 1) * factorial(len(group) - 1) for group in groups)
                coefficients[powers, len(blocks)] += sign * coefficient
    return {key: count for key, count in coefficients.items() if count}


def _partitions(items: range) -> Iterator[list[list[int]]]:
    """Yield all partitions of some items."""
    if not items:
        yield []
        return
    for partition in _partitions(items[1:]):
        yield [[items[0]], *partition]
        for number, part in enumerate(partition):
            yield [*partition[:number], [items[0], *part], *partition[number + 1 :]]
