"""Statistics of evaluations: confidence intervals, paired differences, and ranks over data sets.

Values of cross-validation are not independent: training parts share most of their rows, so the usual standard error is
too small. If a design has independent replicates (draws of labels, subsets of classes), their means count as one value
each; otherwise the variance is corrected for the overlap.

References
----------
.. [1] Nadeau, Bengio (2003), "Inference for the Generalization Error", Machine Learning 52.
.. [2] Demšar (2006), "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, fdtrc, stdtr, stdtrit


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval.

    `low` and `high` are NaN for one value. `n_values` counts the values, `n_replicates` the independent replicates of
    the interval; it is 1 if the interval uses the corrected variance.
    """

    mean: float
    low: float
    high: float
    n_values: int
    n_replicates: int


@dataclass(frozen=True)
class PairedDifference:
    """The mean of paired differences a - b, its confidence interval and the two-sided p value of "no difference".

    `n_pairs` counts the pairs. The interval and `p_value` are NaN for one pair.
    """

    mean: float
    low: float
    high: float
    p_value: float
    n_pairs: int


def mean_interval(values: np.ndarray, replicates: np.ndarray, test_share: float, level: float = 0.95) -> Interval:
    """Return the mean of an evaluation's values with a confidence interval.

    Parameters
    ----------
    values
        Shape (n_values,), float64, one for each fold of each repeat, draw and subset. NaN (undefined) is left out.
    replicates
        Independent replicate of each value, shape (n_values,), integers. With two or more replicates, values are
        averaged within each, and the interval is Student's over the averages. With one, it is the corrected resampled t
        interval of section 4 of [1]_: the variance of the J values times 1 / J + n_test / n_train, and J - 1 degrees of
        freedom.
    test_share
        Share of the rows that each split tests, in [0, 1): n_test / n_train is test_share / (1 - test_share). 0 for
        values that share no training rows.
    level
        Confidence level, in (0, 1).

    Returns
    -------
    Interval
        Bounds are NaN for one value, and the mean too for none; the width is 0 if all values are equal.
    """
    return _estimate(np.asarray(values, dtype=np.float64), np.asarray(replicates), test_share, level)[0]


def paired_difference(
    a: np.ndarray, b: np.ndarray, replicates: np.ndarray, test_share: float, level: float = 0.95
) -> PairedDifference:
    """Return the mean of the paired differences a - b of two methods on the same splits.

    Parameters
    ----------
    a, b
        Paired values, shape (n_pairs,), float64; a pair with a NaN is left out.
    replicates, test_share, level
        As for :func:`mean_interval`, applied to the differences.

    Returns
    -------
    PairedDifference
        If all differences are equal, the interval has width 0, and p is 1 if they are 0, else 0.
    """
    difference = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    interval, p_value = _estimate(difference, np.asarray(replicates), test_share, level)
    return PairedDifference(interval.mean, interval.low, interval.high, p_value, interval.n_values)


def _estimate(values: np.ndarray, replicates: np.ndarray, test_share: float, level: float) -> tuple[Interval, float]:
    """Return a mean with its interval, and the p value that it is 0."""
    is_finite = ~np.isnan(values)
    names, place = np.unique(replicates[is_finite], return_inverse=True)
    sample, n, overlap = values[is_finite], int(is_finite.sum()), test_share / (1 - test_share)
    if names.size > 1:
        sample, overlap = np.bincount(place.ravel(), sample) / np.bincount(place.ravel()), 0.0
    nan = float("nan")
    if sample.size < 2:
        return Interval(float(sample[0]) if sample.size else nan, nan, nan, n, sample.size), nan
    if (sample == sample[0]).all():  # rounding of the mean would give equal values a variance
        mean, error = float(sample[0]), 0.0
    else:
        mean, error = float(sample.mean()), float(np.sqrt(sample.var(ddof=1) * (1 / sample.size + overlap)))
    half = float(stdtrit(sample.size - 1, (1 + level) / 2)) * error
    p_value = float(2 * stdtr(sample.size - 1, -abs(mean) / error)) if error else float(mean == 0)
    return Interval(mean, mean - half, mean + half, n, names.size), p_value


# -------------------------------------------------------------------------------- ranks over data sets
@dataclass(frozen=True)
class AverageRanks:
    """Average ranks of methods over data sets, best first.

    `methods` are the methods that have a value on every data set, `ranks` their average ranks, from 1, shape
    (n_methods,), float64. `notes` name the methods left out, with the reason.
    """

    methods: tuple[str, ...]
    ranks: np.ndarray
    n_sets: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FriedmanTest:
    """Test of equal ranks of all methods: chi-square and F statistics, with their p values."""

    chi_square: float
    p_chi_square: float
    f: float
    p_f: float


def rank_table(table: np.ndarray, *, higher_is_better: bool = True) -> np.ndarray:
    """Return the rank of each method on each data set, from 1 for the best, ties averaged.

    `table` and the result have shape (n_sets, n_methods), float64, without NaN.
    """
    from scipy.stats import rankdata

    values = np.asarray(table, dtype=np.float64)
    return np.asarray(rankdata(-values if higher_is_better else values, axis=1))


def average_ranks(table: np.ndarray, methods: Sequence[str], *, higher_is_better: bool = True) -> AverageRanks:
    """Return the average rank of each method over data sets, section 3.2.2 of [2]_.

    Parameters
    ----------
    table
        A value for each data set and method, shape (n_sets, n_methods), float64. A method with a NaN is left out: its
        ranks would be of other data sets than those of the rest.
    methods
        Names of the columns.
    higher_is_better
        Whether the largest value of a row gets rank 1.
    """
    values = np.asarray(table, dtype=np.float64)
    missing = np.isnan(values).sum(axis=0)
    rows = np.flatnonzero(missing == 0)
    notes = [
        f"{methods[int(i)]} has no value on {missing[i]} of {values.shape[0]} data sets and is not ranked."
        for i in np.flatnonzero(missing)
    ]
    ranks = rank_table(values[:, rows], higher_is_better=higher_is_better).mean(axis=0)
    order = np.argsort(ranks, kind="stable")
    return AverageRanks(tuple(methods[int(i)] for i in rows[order]), ranks[order], values.shape[0], tuple(notes))


def friedman(table: np.ndarray) -> FriedmanTest:
    """Test whether all methods have the same ranks, section 3.2.2 of [2]_.

    Parameters
    ----------
    table
        A value for each data set and method, shape (n_sets, n_methods), float64, without NaN; at least two of each.
        The result is the same whether high or low values are better.

    Returns
    -------
    FriedmanTest
        Friedman's chi-square with n_methods - 1 degrees of freedom, corrected for ties, and the less conservative F of
        Iman and Davenport that follows from it. If all values of every data set are tied, both are 0 and p is 1. If all
        data sets have the same ranks, F is infinite.

    Raises
    ------
    ValueError
        For fewer than two data sets or methods, or for a NaN.
    """
    values = np.asarray(table, dtype=np.float64)
    n_sets, n_methods = values.shape
    if n_sets < 2 or n_methods < 2 or np.isnan(values).any():
        msg = f"ranks are compared of two data sets and two methods at least, without NaN; there are {values.shape}"
        raise ValueError(msg)
    # scipy.stats.friedmanchisquare gives the same chi-square (1e-12), but refuses two methods, and divides by 0 if all
    # values are tied
    ranks = rank_table(values)
    away = ranks - (n_methods + 1) / 2
    spread = float((away**2).sum()) / (n_methods - 1)
    if spread == 0:
        return FriedmanTest(0.0, 1.0, 0.0, 1.0)
    chi_square = float((away.sum(axis=0) ** 2).sum()) / spread
    rest = n_sets * (n_methods - 1) - chi_square
    f, p_f = float("inf"), 0.0
    if rest > 1e-12 * chi_square:
        f = (n_sets - 1) * chi_square / rest
        p_f = float(fdtrc(n_methods - 1, (n_methods - 1) * (n_sets - 1), f))
    return FriedmanTest(chi_square, float(chdtrc(n_methods - 1, chi_square)), f, p_f)


def nemenyi(n_methods: int, n_sets: int, alpha: float = 0.05) -> float:
    """Return the critical difference of average ranks, section 3.2.2 of [2]_: q sqrt(k (k + 1) / (6 N)).

    q is the upper `alpha` quantile of the studentized range of k methods, with infinite degrees of freedom, over
    sqrt(2). Two methods whose average ranks over N data sets are farther apart differ.

    Raises
    ------
    ValueError
        For fewer than two methods, or no data set.
    """
    if n_methods < 2 or n_sets < 1:
        msg = f"a critical difference is of two methods at least on one data set; there are {n_methods} on {n_sets}"
        raise ValueError(msg)
    from scipy.stats import studentized_range

    q = float(studentized_range.isf(alpha, n_methods, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets)))


def indistinguishable_groups(ranks: np.ndarray, critical_difference: float) -> list[tuple[int, int]]:
    """Return the groups of methods that do not differ, the bars of a critical-difference diagram.

    `ranks` are average ranks, ascending, shape (n_methods,), float64; the difference is that of :func:`nemenyi`.

    Returns
    -------
    list of (first, last)
        Indices into `ranks`, both inclusive: two or more methods no farther apart than the critical difference. No
        group is within another.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    last = np.searchsorted(ranks, ranks + critical_difference, side="right") - 1
    return [
        (first, int(end)) for first, end in enumerate(last) if end > first and (first == 0 or end > last[first - 1])
    ]
