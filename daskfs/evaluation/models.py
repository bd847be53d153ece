"""Stages "evaluate" and "evaluation-tables": one task per method, number of features and repeat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.kernels.labels import Labels
from daskfs.ranking.tables import csv_bytes, parquet_bytes
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

EVALUATION_COLUMNS = ("method", "n_selected", "n_labelled", "repeat", "fold", "metric", "value")


def task_of(parameters: Mapping[str, Any], unit: int) -> tuple[str, int, int]:
    """Return the method's label, the number of features and the repeat of a unit."""
    labels, sizes, n_repeats = parameters["labels"], parameters["n_selected"], int(parameters["n_repeats"])
    rest, repeat = divmod(unit, n_repeats)
    method, size = divmod(rest, len(sizes))
    return labels[method], int(sizes[size]), repeat


def evaluate_selection(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Cross-validate one model on the first features of one ranking."""
    label, n_selected, repeat = task_of(parameters, unit)
    store = context.store
    labels = context.labels()
    assert labels is not None
    rows = store.open(layout.EVALUATION_ROWS)[...]
    order = store.open(layout.EVALUATION_ORDER.format(label))[...]
    metric = "accuracy" if labels.task == "classification" else "rmse"
    result = {
        "method": label,
        "n_selected": n_selected,
        "n_labelled": int(rows.size),
        "repeat": repeat,
        "metric": metric,
    }
    if order.size < n_selected:
        store.write_json(layout.EVALUATION_RESULT.format(unit), {**result, "values": []})
        return {}
    X = _columns(context, order[:n_selected], int(parameters["slab_columns"]))
    folds = store.open(layout.EVALUATION_FOLDS)[repeat : repeat + 1][0]
    values = cross_validate(
        X, labels, labels.values[rows], folds, int(parameters["n_neighbors"]), parameters["scaling"]
    )
    store.write_json(layout.EVALUATION_RESULT.format(unit), {**result, "values": values})
    return {}


def _columns(context: Context, features: np.ndarray, slab_columns: int) -> np.ndarray:
    known = context.store.open(layout.EVALUATION_FEATURES)[...]
    X = np.empty((context.store.open(layout.EVALUATION_ROWS).shape[0], features.size))
    for slab in np.unique(features // slab_columns):
        in_slab = known[known // slab_columns == slab]
        block = context.store.open(layout.EVALUATION_SLAB.format(int(slab)))[...]
        places = np.flatnonzero(features // slab_columns == slab)
        X[:, places] = block[:, np.searchsorted(in_slab, features[places])]
    return X


def cross_validate(
    X: np.ndarray, labels: Labels, y: np.ndarray, folds: np.ndarray, n_neighbors: int, scaling: str | None
) -> list[float]:
    """Return the accuracy, or the root mean squared error, of nearest-neighbour prediction on each fold.

    Parameters
    ----------
    X
        Selected columns, shape (n_rows, n_selected).
    labels
        Gives the task.
    y
        Codes or targets of the rows, shape (n_rows,).
    folds
        Fold of each row, shape (n_rows,).
    n_neighbors
        Neighbours of the model.
    scaling
        "zscore" standardizes with the mean and deviation of each training fold; None takes the values as they are.
    """
    from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classify = labels.task == "classification"
    values = []
    for fold in np.unique(folds):
        test = folds == fold
        model = (KNeighborsClassifier if classify else KNeighborsRegressor)(n_neighbors)
        pipeline = make_pipeline(StandardScaler(), model) if scaling == "zscore" else model
        predicted = pipeline.fit(X[~test], y[~test]).predict(X[test])
        error = predicted - y[test]
        values.append(float((error == 0).mean()) if classify else float(np.sqrt(np.mean(error**2))))
    return values


def write_tables(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write ``evaluation.csv`` and ``evaluation.parquet``."""
    del unit
    rows = [
        (r["method"], r["n_selected"], r["n_labelled"], r["repeat"], fold, r["metric"], value)
        for r in results(context.store, int(parameters["n_tasks"]))
        for fold, value in enumerate(r["values"])
    ]
    context.store.write_bytes(layout.EVALUATION_CSV, csv_bytes(EVALUATION_COLUMNS, rows))
    context.store.write_bytes(layout.EVALUATION_PARQUET, parquet_bytes(EVALUATION_COLUMNS, rows))


def results(store: Store, n_tasks: int) -> list[dict[str, Any]]:
    """Return the results of all tasks, in order."""
    return [store.read_json(layout.EVALUATION_RESULT.format(unit)) for unit in range(n_tasks)]
