"""Selectors of other libraries: ranked only within an evaluation from Python, whose process holds them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from daskfs.criteria.criterion import Criterion, Parameters
from daskfs.criteria.registry import Method
from daskfs.errors import InputError
from daskfs.kernels.blocks import Block
from daskfs.kernels.labels import Labels
from daskfs.kernels.threads import sklearn_module

_HELD: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The selectors by the number that their methods carry: units run in the process that was given them."""


class OutsideParameters(Parameters):
    """Number of a selector that this process holds."""

    number: int


OUTSIDE = Criterion(
    name="OutsideSelector",
    summary="ranking of a selector of scikit-learn or another library, large is good",
    citation="",
    direction="descending",
    fields=("score",),
    parameters=OutsideParameters,
    reason="not ranked by the selector",
    needs_labels=True,
    is_joint=True,
    is_outside=True,
)
CRITERIA = (OUTSIDE,)


def outside_method(selector: Any, label: str) -> Method:
    """Return a method that fits a selector; it ranks while the selector exists, in this process."""
    _HELD[id(selector)] = selector
    return Method(label, OUTSIDE, OutsideParameters(number=id(selector)))


def outside_table(method: Method, X: Block, labels: Labels) -> np.ndarray:
    """Fit a clone of the selector of :func:`outside_method` to the labeled rows of X, and return its scores.

    X is dense or CSR, shape (n_samples, n_features); scores have shape (1, n_features), float64, large is good, NaN for
    features that the selector does not rank. Raises :class:`InputError` if the selector refuses the rows.
    """
    assert isinstance(method.parameters, OutsideParameters)
    selector = sklearn_module("base").clone(_HELD[method.parameters.number])
    if {"n_features_to_select", "step"} <= selector.get_params(deep=False).keys():
        selector.set_params(n_features_to_select=1)  # RFE ranks only the features that it removes
    rows = np.flatnonzero(labels.is_labeled)
    try:
        selector.fit(X[rows], labels.values[rows])
    except ValueError as error:
        msg = f"{method.label} failed: {error}"
        raise InputError(msg) from error
    return scores_of(selector)[np.newaxis]


def scores_of(selector: Any) -> np.ndarray:
    """Return scores of the features from a fitted selector, shape (n_features,), float64, large is good.

    These are its ranking, else its scores, the importances of its estimator, or the variances; of a selector with none
    of them 1 for the selected features. NaN marks features without.
    """
    if hasattr(selector, "ranking_"):
        return -np.asarray(selector.ranking_, dtype=np.float64)
    if hasattr(selector, "scores_"):
        return np.asarray(selector.scores_, dtype=np.float64)
    if hasattr(selector, "importance_getter"):  # SelectFromModel takes the norm of several rows of coefficients
        getter, model = selector.importance_getter, selector.estimator_
        if getter == "auto":
            getter = "coef_" if hasattr(model, "coef_") else "feature_importances_"
        weights = np.asarray((getter if callable(getter) else attrgetter(getter))(model), dtype=np.float64)
        return np.abs(weights) if weights.ndim == 1 else np.linalg.norm(weights, axis=0, ord=selector.norm_order)
    if hasattr(selector, "variances_"):
        return np.asarray(selector.variances_, dtype=np.float64)
    return np.where(selector.get_support(), 1.0, np.nan)
