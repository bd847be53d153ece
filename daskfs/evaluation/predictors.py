"""Fitting and testing of the models of an evaluation.

All models run in one thread, so that results do not depend on the number of cores. Models that draw random numbers get
the seed of the evaluation.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

import numpy as np
from threadpoolctl import ThreadpoolController

from daskfs.errors import InputError
from daskfs.evaluation import metrics
from daskfs.evaluation.models import (
    ALIASES,
    Family,
    ModelSpec,
    as_sentence,
    estimator_class,
    family_of,
    fewest_rows,
    metrics_of,
    own_parameters,
)
from daskfs.kernels.labels import Task
from daskfs.kernels.missing import fill_missing, filled_by_means, has_missing, observe
from daskfs.kernels.scaling import ColumnScale, scale_rows
from daskfs.kernels.statistics.moments import column_moments
from daskfs.kernels.threads import sklearn_module

PAIRS_MIB = 16
"""MiB of distances that scikit-learn holds at a time where it computes them in parts."""


def evaluate_model(
    spec: ModelSpec,
    task: Task,
    X: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
    scaling: Literal["zscore"] | None,
    seed: int,
) -> dict[str, float]:
    """Fit a model to some rows and test it on others.

    Parameters
    ----------
    spec
        A model for which :func:`uses_folds` is true.
    X
        Selected columns, dense, shape (n_rows, n_selected), float64, finite or NaN (missing), which is replaced by the
        mean of the training rows. Constant columns change nothing.
    y
        Class codes (integers) or targets (float64), shape (n_rows,); known in the rows that are used.
    train, test
        Row numbers, shapes (n_train,) and (n_test,), integers. The model sees no test row before it is tested.
    scaling
        "zscore" standardizes with the mean and deviation of the training rows; None does not rescale.
    seed
        Seed of a model that draws numbers, unless the job gives it a ``random_state``.

    Returns
    -------
    dict
        Value of each metric of :func:`metrics_of`. The accuracy of clusters uses the optimal matching of clusters and
        classes on the training rows.

    Raises
    ------
    InputError
        For no training or test row; for a training part of one class, or of fewer rows than the model needs neighbors
        or clusters; for errors of scikit-learn, such as a metric of two classes where there are three.
    """
    family = family_of(spec, task)
    _check_split(spec, family, y, train, test)
    model = _make(spec, family, y[train], seed)
    with _libraries().limit(limits=1), _few_pairs_at_a_time(), _said_by(spec):
        known_rows, tested_rows = _impute(X[train], X[test])
        if scaling == "zscore":
            known_rows, tested_rows = _standardize(known_rows, tested_rows)
        if family == "clusters":
            fitted = model.fit(known_rows)
            names, classes = metrics.cluster_classes(y[train], fitted.predict(known_rows))
            clusters = fitted.predict(tested_rows)
            class_of_row, is_matched = metrics.classes_of(clusters, names, classes)
            accuracy = float(np.mean((class_of_row == y[test]) & is_matched))
            return {m: _cluster_score(m, y[test], clusters, accuracy) for m in metrics_of(spec, task)}
        fitted = model.fit(known_rows, y[train])
        return _scores(spec, metrics_of(spec, task), fitted, tested_rows, y[test])


def evaluate_whole(
    spec: ModelSpec,
    task: Task,
    X: np.ndarray,
    y: np.ndarray,
    scaling: Literal["zscore"] | None,
    seed: int,
) -> dict[str, float]:
    """Return the metrics of a model scored on the rows that it is fitted to: clusters, 1NN leave-one-out, cut value.

    Parameters and errors are those of :func:`evaluate_model`, with all rows as the training part; ``ValueError`` for a
    model that is tested on folds. Labels set the default number of clusters, and enter the value; the cut value does
    not depend on them.
    """
    family = family_of(spec, task)
    if family in ("classification", "regression"):
        msg = f"model {spec.label} is tested on folds"
        raise ValueError(msg)
    if X.shape[0] == 0:
        msg = f"model {spec.label}: there is no row to judge by."
        raise InputError(msg)
    with _libraries().limit(limits=1), _few_pairs_at_a_time(), _said_by(spec):
        values = filled_by_means(X.copy()) if has_missing(X) else X
        if scaling == "zscore":
            (values,) = _standardize(values)
        if family == "1nn-loo":
            return {"error": metrics.nearest_neighbor_error(values, y)}
        if family == "cut":
            return {"cut": metrics.cut_value(values, own_parameters(spec).n_neighbors)}
        clusters = _make(spec, family, y, seed).fit_predict(values)
        accuracy = metrics.matched_accuracy(y, clusters)
        return {m: _cluster_score(m, y, clusters, accuracy) for m in metrics_of(spec, task)}


def evaluate_constant(
    spec: ModelSpec, task: Task, y: np.ndarray, train: np.ndarray, test: np.ndarray
) -> dict[str, float]:
    """Test a constant prediction by the metrics of a model; empty for a model that predicts no labels.

    The prediction is the majority class or the median target of the training rows. Parameters are those of
    :func:`evaluate_model`.
    """
    if (family := family_of(spec, task)) not in ("classification", "regression"):
        return {}
    dummy = sklearn_module("dummy")
    is_class = family == "classification"
    model = dummy.DummyClassifier(strategy="most_frequent") if is_class else dummy.DummyRegressor(strategy="median")
    with _said_by(spec):
        fitted = model.fit(np.zeros((train.size, 1)), y[train])
        return _scores(spec, metrics_of(spec, task), fitted, np.zeros((test.size, 1)), y[test])


def _check_split(spec: ModelSpec, family: Family, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> None:
    if train.size == 0 or test.size == 0:
        msg = f"model {spec.label}: a split has {train.size} training and {test.size} test rows; it needs both."
        raise InputError(msg)
    if family == "classification" and np.unique(y[train]).size < 2:
        msg = (
            f"model {spec.label}: all {train.size} rows of a training part have one class: label more rows, or lower "
            "evaluate.n_splits."
        )
        raise InputError(msg)
    if (needed := fewest_rows(spec)) > train.size:
        msg = (
            f"model {spec.label}: n_neighbors is {needed}, and a training part has {train.size} rows: lower it, or "
            "label more rows."
        )
        raise InputError(msg)


def _make(spec: ModelSpec, family: Family, y: np.ndarray, seed: int) -> Any:
    """Return the unfitted estimator for training rows of labels `y`."""
    n_classes = np.unique(y).size if family == "clusters" else 0
    if spec.name == "kmeans":
        p, cluster = own_parameters(spec), sklearn_module("cluster")
        model = cluster.KMeans(p.n_clusters or n_classes, init=p.init, n_init=p.n_restarts, max_iter=p.max_iter)
    else:
        fixed = ALIASES[spec.name].fixed if spec.name in ALIASES else {}
        model = estimator_class(spec, family)(**fixed, **spec.parameters)
    defaults = model.get_params(deep=False)
    if "random_state" in defaults and "random_state" not in spec.parameters:
        model.set_params(random_state=seed % 2**32)
    if family == "clusters" and "n_clusters" in defaults and spec.parameters.get("n_clusters") is None:
        model.set_params(n_clusters=n_classes)
    n_clusters = getattr(model, "n_clusters", None)
    if family == "clusters" and isinstance(n_clusters, int) and n_clusters > y.shape[0]:
        msg = f"model {spec.label}: n_clusters is {n_clusters}, and there are {y.shape[0]} rows: lower it."
        raise InputError(msg)
    return model


def _impute(training: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fill missing values of training and test rows, in place, with the means of the training rows."""
    if not (has_missing(training) or has_missing(test)):
        return training, test
    means = observe(training).values(training.shape[0], training.dtype)
    return fill_missing(training, means), fill_missing(test, means)


def _standardize(training: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    """Return rows in z-scores by the means and deviations of training rows; constant columns standardize to 0."""
    moments = column_moments(training)
    scale = ColumnScale(moments.mean, np.sqrt(moments.variance), np.asarray(moments.rest))
    return [np.asarray(scale_rows(X, "zscore", scale)) for X in (training, *others)]


def _scores(spec: ModelSpec, names: Sequence[str], fitted: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    predicted = fitted.predict(X) if {"accuracy", "rmse"} & set(names) else y
    values = {}
    for name in names:
        if name == "accuracy":
            values[name] = float(np.mean(predicted == y))
        elif name == "rmse":
            values[name] = float(np.sqrt(np.mean((predicted - y) ** 2)))
        else:
            with _said_by(spec, f", metric {name}"):
                values[name] = float(sklearn_module("metrics").get_scorer(name)(fitted, X, y))
    return values


def _cluster_score(metric: str, y: np.ndarray, clusters: np.ndarray, accuracy: float) -> float:
    if metric == "accuracy":
        return accuracy
    if metric == "nmi":
        return metrics.normalized_mutual_information(y, clusters)
    return float(getattr(sklearn_module("metrics"), metric)(y, clusters))


@cache
def _libraries() -> ThreadpoolController:
    sklearn_module("cluster")  # the controller limits only the thread pools of loaded libraries
    return ThreadpoolController()


def _few_pairs_at_a_time() -> Any:
    from sklearn import config_context

    return config_context(working_memory=PAIRS_MIB)


@contextmanager
def _said_by(spec: ModelSpec, what: str = "") -> Iterator[None]:
    """Turn a ``ValueError`` of scikit-learn into one that names the model; silence warnings that the values show."""
    kinds = sklearn_module("exceptions")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kinds.UndefinedMetricWarning)
        warnings.filterwarnings("ignore", "Number of distinct clusters", kinds.ConvergenceWarning)
        # balanced accuracy is the mean over the classes in the test part
        warnings.filterwarnings("ignore", "y_pred contains classes not in y_true", UserWarning)
        warnings.filterwarnings("ignore", "A single label was found in", UserWarning)
        try:
            yield
        except InputError:
            raise
        except ValueError as error:
            msg = f"model {spec.label}{what}: {as_sentence(str(error))}"
            raise InputError(msg) from error
