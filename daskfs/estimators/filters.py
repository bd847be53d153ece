"""Selectors by criteria of one feature and the labels."""

from __future__ import annotations

from typing import Literal

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.estimators.base import ScoreSelector, TestingSelector, selector


class VarianceScore(ScoreSelector):
    """Population variance of each feature; large is good.

    Constant features are excluded. Two passes in float64, so an offset of 1e8 costs no precision. Labels are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    References
    ----------
    He, Cai and Niyogi (2005), "Laplacian Score for Feature Selection", NIPS 18, section 4 (the baseline).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import VarianceScore
    >>> VarianceScore(n_features_to_select=2).fit(load_iris().data).get_support(indices=True).tolist()
    [0, 2]
    """

    _criterion = "VarianceScore"


class FisherScore(TestingSelector):
    """Fisher score: between-class over within-class scatter on the labeled rows; large is good.

    ``sum_c n_c (mean_c - mean)**2 / sum_c n_c var_c`` with population variances. +inf if every class is constant and
    the classes differ; NaN (excluded) if the feature is constant on the labeled rows. Fewer than two classes raise
    :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    significance, fdr_method
        Whether to test every feature: `pvalues_` of the variance ratio F, and `qvalues_`, as in
        :class:`LaplacianScore`.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    References
    ----------
    He, Cai and Niyogi (2005), NIPS 18, Eq. 4.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import FisherScore
    >>> X, y = load_iris(return_X_y=True)
    >>> FisherScore().fit(X, y).scores_.round(3).tolist()
    [1.623, 0.669, 16.057, 13.061]
    """

    _criterion = "FisherScore"
    _needs_labels = True
    _task = "classification"


@selector
class PearsonScore(TestingSelector):
    """Absolute Pearson correlation with the target on the labeled rows; large is good.

    With classes, the largest absolute correlation with a one-against-rest indicator. NaN (excluded) if the feature is
    constant on the labeled rows; a constant target raises :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    task
        "auto": a float y is a target, any other y holds classes. Or "regression" or "classification".
    significance, fdr_method
        Whether to test every feature: `pvalues_` of Student's t, by Bonferroni for the largest of several classes, and
        `qvalues_`, as in :class:`LaplacianScore`.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    References
    ----------
    Doquire and Verleysen (2011), section 4 (the baseline).

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from daskfs import PearsonScore
    >>> X, y = load_diabetes(return_X_y=True)
    >>> PearsonScore(n_features_to_select=2).fit(X, y).get_support(indices=True).tolist()
    [2, 8]
    """

    _criterion = "PearsonScore"
    _needs_labels = True

    task: Literal["auto", "regression", "classification"] = "auto"


class KolmogorovSmirnovScore(TestingSelector):
    """Kolmogorov-Smirnov distance between classes on the labeled rows; large is good.

    ``max_ab sup_v |F_a(v) - F_b(v)|`` over all pairs of classes, in [0, 1]: 1 if some value separates two classes. Only
    the order of the values matters. NaN (excluded) if the feature is constant on the labeled rows. Fewer than two
    classes raise :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    significance, fdr_method
        Whether to test every feature: `pvalues_` of the two-sample distance, by Bonferroni for the largest of several
        pairs, and `qvalues_`, as in :class:`LaplacianScore`.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    Attributes
    ----------
    score_fields_
        "score", and "threshold", the first value at which it is reached; each of shape (n_features,), float64.

    References
    ----------
    He, Cai and Niyogi (2005), NIPS 18, section 1 (Kolmogorov 1933, Smirnov 1939).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import KolmogorovSmirnovScore
    >>> X, y = load_iris(return_X_y=True)
    >>> KolmogorovSmirnovScore().fit(X, y).scores_.round(3).tolist()
    [0.92, 0.68, 1.0, 1.0]
    """

    _criterion = "KolmogorovSmirnovScore"
    _needs_labels = True
    _task = "classification"


@selector
class InformationGainScore(TestingSelector):
    """Information gain of the class from the binned feature, in bits, on the labeled rows; large is good.

    ``H(Y) - H(Y | bin)``, in [0, log2(number of classes)]. NaN (excluded) if the feature is constant on the labeled
    rows. Fewer than two classes raise :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    n_bins
        Number of bins of equal frequency, from 2 to 1000; fewer are used if values are equal, which share a bin. With n
        labeled rows, a value v is in bin ``floor(n_bins * (n(< v) + n(v) / 2) / n)``, so a column of two values, such
        as presence of a word, has two bins whatever its frequencies.
    significance, fdr_method
        Whether to test every feature: `pvalues_` of the G test, and `qvalues_`, as in :class:`LaplacianScore`.
    score_scaling
        Rescaling of X on the fly before it is scored: None, "zscore", "unit", "log1p", "total" or a chain of these, as
        :class:`LaplacianScore` takes it.

    Attributes
    ----------
    bin_edges_
        Shape (n_features, n_bins - 1), float64: the smallest value of each used bin except the first, ascending, padded
        with NaN. The bin of a value is the number of edges at or below it.

    References
    ----------
    Quinlan (1986), "Induction of Decision Trees", Machine Learning 1, section 4.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import InformationGainScore
    >>> X, y = load_iris(return_X_y=True)
    >>> InformationGainScore(n_bins=3).fit(X, y).scores_.round(3).tolist()
    [0.677, 0.312, 1.342, 1.319]
    """

    _criterion = "InformationGainScore"
    _needs_labels = True
    _task = "classification"

    n_bins: int = 10

    def _keep(self, method: Method, table: np.ndarray, constant: np.ndarray) -> None:
        super()._keep(method, table, constant)
        edges = [self.score_fields_[name] for name in method.parameters.more_fields()]
        self.bin_edges_ = np.stack(edges, axis=1)
