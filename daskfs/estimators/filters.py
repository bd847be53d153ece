"""Selectors by criteria that look at one feature and the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils._param_validation import StrOptions

from daskfs.estimators.base import ScoreSelector
from daskfs.kernels.labels import Labels


class VarianceScore(ScoreSelector):
    """Population variance of each feature; large is good.

    A constant feature is excluded. Two-pass in float64, so an offset of 1e8 costs nothing. Labels are ignored.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.

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


class FisherScore(ScoreSelector):
    """Fisher score: scatter between classes over scatter within, on the labelled rows; large is good.

    ``sum_c n_c (mean_c - mean)**2 / sum_c n_c var_c`` with population variances. +inf where every class is constant and
    they differ; NaN (excluded) where the feature is constant on the labelled rows. Fewer than two classes:
    :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.

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


class PearsonScore(ScoreSelector):
    """Absolute Pearson correlation with the target on the labelled rows; large is good.

    With classes, the largest absolute correlation with the indicator of one class against the rest. NaN (excluded)
    where the feature is constant on the labelled rows; a constant target is a :class:`ValueError`.

    Parameters
    ----------
    n_features_to_select
        Number of features, or a share of them in (0, 1]; None selects half.
    task
        "auto": a float y is a target, any other y holds classes. "regression" or "classification" settles it.

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
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ScoreSelector._parameter_constraints,
        "task": [StrOptions({"auto", "regression", "classification"})],
    }

    def __init__(
        self,
        n_features_to_select: float | None = None,
        *,
        task: Literal["auto", "regression", "classification"] = "auto",
    ) -> None:
        super().__init__(n_features_to_select)
        self.task = task

    def _target_task(self, y: np.ndarray) -> str:
        if self.task != "auto":
            return self.task
        return "regression" if y.dtype.kind == "f" else "classification"

    def _parameters(self, labels: Labels | None) -> Mapping[str, Any]:
        return {} if labels is None else {"task": labels.task}
