"""Stages "design" and "gather": which rows and folds the evaluation uses, and the columns it needs, read once.

The design is transductive, as in the papers: the ranking saw the rows that the models are tested on. Folds depend on
the rows and the seed alone, so they are the same for every method and number of features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daskfs.errors import InputError
from daskfs.kernels.labels import Labels
from daskfs.ranking.dropped import selectable
from daskfs.ranking.tables import method_scores
from daskfs.scores.slab import methods_from, slab_range
from daskfs.store import layout
from daskfs.store.context import Context


def design_evaluation(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Draw the rows, cut the folds, and list the features that any model will see."""
    del unit
    store, labels = context.store, context.labels()
    if labels is None:
        msg = "evaluate needs labels, and the data have none: set data.labels, or evaluate: null."
        raise InputError(msg)
    rows = sample_rows(labels, int(parameters["max_samples"]), int(parameters["random_state"]))
    check_rows(labels, rows, parameters)
    folds, warning = cut_folds(labels, rows, parameters)
    largest = max(parameters["n_selected"])
    used: set[int] = set()
    warnings = [warning] if warning else []
    for method in methods_from(parameters["methods"]):
        table = method_scores(store, method)
        order = selectable(store, method, table, filtered=bool(parameters.get("filtered")))[:largest]
        store.put_array(layout.EVALUATION_ORDER.format(method.label), order)
        if too_many := [n for n in parameters["n_selected"] if n > order.size]:
            sizes = ", ".join(map(str, too_many))
            has = "may select" if parameters.get("filtered") else "ranks"
            warnings.append(f"{method.label} {has} {order.size} features: not evaluated at {sizes} features.")
        used.update(int(feature) for feature in order)
    store.put_array(layout.EVALUATION_ROWS, rows)
    store.put_array(layout.EVALUATION_FEATURES, np.array(sorted(used), dtype=np.int64))
    store.put_array(layout.EVALUATION_FOLDS, folds)
    design = {"n_rows": int(rows.size), "n_rows_total": int(labels.is_labelled.sum()), "warnings": warnings}
    store.write_json(layout.EVALUATION_DESIGN, design)
    return design


def sample_rows(labels: Labels, max_samples: int, random_state: int) -> np.ndarray:
    """Return sorted labelled rows, at most `max_samples`; a larger number is thinned within each class."""
    known = np.flatnonzero(labels.is_labelled)
    if known.size <= max_samples:
        return known
    generator = np.random.default_rng([random_state, known.size])
    shuffled = generator.permutation(known)
    if labels.task == "classification":
        codes = labels.values[shuffled]
        # place of each row within its class, over the size of the class: taking the smallest keeps the classes' shares
        order = np.argsort(codes, kind="stable")
        counts = np.bincount(codes)
        starts = np.cumsum(counts) - counts
        place = np.empty(order.size)
        place[order] = (np.arange(order.size) - starts[codes[order]] + 0.5) / counts[codes[order]]
        shuffled = shuffled[np.argsort(place, kind="stable")]
    return np.sort(shuffled[:max_samples])


def check_rows(labels: Labels, rows: np.ndarray, parameters: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` when there are too few rows for the folds or the neighbours."""
    n_splits, n_neighbors = int(parameters["n_splits"]), int(parameters["n_neighbors"])
    if rows.size < n_splits:
        msg = f"evaluate.n_splits is {n_splits}, and only {rows.size} rows have a label."
        raise InputError(msg)
    smallest = rows.size - -(-rows.size // n_splits)
    if n_neighbors > smallest:
        msg = (
            f"evaluate.n_neighbors is {n_neighbors}, and a training fold has {smallest} rows: lower it, or "
            "label more rows."
        )
        raise InputError(msg)
    if labels.task == "classification" and np.unique(labels.values[rows]).size < 2:
        msg = "evaluate needs at least two classes among the labelled rows."
        raise InputError(msg)


def cut_folds(labels: Labels, rows: np.ndarray, parameters: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Return the fold of each row in each repeat, shape (n_repeats, n_rows), int64, and a warning or an empty
    string.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    n_splits, seed = int(parameters["n_splits"]), int(parameters["random_state"])
    values = labels.values[rows]
    stratified = labels.task == "classification"
    warning = ""
    if stratified and np.bincount(values)[np.unique(values)].min() < n_splits:
        stratified = False
        warning = f"A class has fewer labelled rows than evaluate.n_splits = {n_splits}: folds are not stratified."
    folds = np.empty((int(parameters["n_repeats"]), rows.size), dtype=np.int64)
    for repeat in range(folds.shape[0]):
        kind = StratifiedKFold if stratified else KFold
        splitter = kind(n_splits, shuffle=True, random_state=seed + repeat)
        for fold, (_, test) in enumerate(splitter.split(np.zeros(rows.size), values)):
            folds[repeat, test] = fold
    return folds, warning


def gather_columns(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Read the design's rows of those of its features that lie in one slab."""
    columns = slab_range(unit, int(parameters["slab_columns"]), context.tiles.shape.n_features)
    features = context.store.open(layout.EVALUATION_FEATURES)[...]
    inside = features[(features >= columns.start) & (features < columns.stop)]
    if inside.size == 0:
        return
    rows = context.store.open(layout.EVALUATION_ROWS)[...]
    block = context.tiles.read_columns(inside, rows, columns.start, columns.stop)
    context.store.put_array(layout.EVALUATION_SLAB.format(unit), block)
