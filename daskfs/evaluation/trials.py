"""Stage "evaluate": metrics of every model on the first features of one selection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from daskfs.evaluation.design import (
    UNRANKED,
    Design,
    EvaluationParameters,
    EvaluationUnit,
    Selection,
    read_rows_in_use,
)
from daskfs.evaluation.metrics import hit_rate
from daskfs.evaluation.models import ModelSpec, model_cost, uses_folds
from daskfs.evaluation.predictors import evaluate_constant, evaluate_model, evaluate_whole
from daskfs.evaluation.rows import class_subset_rows, rows_of_sample, seen_by
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.labels import Labels
from daskfs.stages.cost import Array, Cost, fullest
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context

Split = tuple[int | None, int | None, np.ndarray, np.ndarray]
"""Repeat, fold, and the training and test rows as indices into the rows in use."""
OF_SELECTION = ""
"""Model name of a value of the selection itself."""


def evaluate_selection(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any]:
    """Evaluate the first features of one selection, or a baseline.

    The facts list the values, each with its number of features, model, metric, repeat, fold and number of test rows.
    """
    design = Design(parameters)
    trial = design.trial(unit)
    if trial.selection.number == UNRANKED:
        order = np.arange(trial.sizes[0])
    else:
        order = context.store.read_arrays(layout.EVALUATION_ORDER.format(trial.selection.number))[0]["order"]
    sizes = [size for size in trial.sizes if size <= order.size]
    if not sizes:
        return {"values": []}
    labels = read_rows_in_use(context.store).labels
    X = _columns(context, parameters, order[: max(sizes)])
    splits = list(_splits(context, parameters, design, trial, labels.is_labeled))
    values = [
        [size, *value]
        for size in sizes
        for value in _values_of(context, parameters, trial, X[:, :size], order, labels, splits)
    ]
    # JSON has no NaN, the value of an undefined metric
    return {"values": [[*about, None if np.isnan(value) else float(value)] for *about, value in values]}


def _values_of(
    context: Context,
    parameters: EvaluationParameters,
    trial: EvaluationUnit,
    X: np.ndarray,
    order: np.ndarray,
    labels: Labels,
    splits: list[Split],
) -> Iterator[list[Any]]:
    """Yield the values of all models on the selected columns X, of which there are none for a constant prediction."""
    n_selected, y = X.shape[1], labels.values
    seed, scaling = parameters.keys.random_state, parameters.keys.scaling
    selection, is_first = trial.selection, not trial.repeat or trial.selection.setting == "inductive"
    for spec in parameters.models:
        if not n_selected or uses_folds(spec, selection.setting):
            for repeat, fold, train, tested in splits:
                if n_selected:
                    value_by_metric = evaluate_model(spec, labels.task, X, y, train, tested, scaling, seed)
                else:
                    value_by_metric = evaluate_constant(spec, labels.task, y, train, tested)
                yield from _rows(spec, repeat, fold, tested, value_by_metric)
        elif is_first:
            # what it is fitted to and scored on: the held-out rows, or all of a class subset
            if selection.fold is not None:
                places = splits[0][-1]
            else:
                places = _labeled_rows(context, parameters, selection, labels.is_labeled)
            value_by_metric = evaluate_whole(spec, labels.task, X[places], y[places], scaling, seed)
            yield from _rows(spec, selection.repeat, selection.fold, places, value_by_metric)
    if parameters.informative and is_first and selection.number != UNRANKED:
        share = hit_rate(order, np.array(parameters.informative), n_selected)
        yield [OF_SELECTION, "hit_rate", selection.repeat, selection.fold, None, share]


def _splits(
    context: Context, parameters: EvaluationParameters, design: Design, trial: EvaluationUnit, is_labeled: np.ndarray
) -> Iterator[Split]:
    selection = trial.selection
    drawn: np.ndarray | None = None
    if parameters.keys.train_on == "labeled":
        visible = seen_by(context, parameters, selection)
        drawn = visible.places[visible.labels.is_labeled]
    if not design.has_folds:
        assert drawn is not None
        yield None, None, drawn, np.setdiff1d(_labeled_rows(context, parameters, selection, is_labeled), drawn)
        return
    subset_rows, repeat = class_subset_rows(context, parameters, selection), trial.repeat
    for fold in range(design.n_splits) if selection.fold is None else [selection.fold]:
        train = subset_rows[f"train-{repeat}-{fold}"]
        yield repeat, fold, train if drawn is None else drawn, subset_rows[f"test-{repeat}-{fold}"]


def _rows(
    spec: ModelSpec, repeat: int | None, fold: int | None, tested: np.ndarray, value_by_metric: Mapping[str, float]
) -> list[list[Any]]:
    return [[spec.label, metric, repeat, fold, int(tested.size), value] for metric, value in value_by_metric.items()]


def _labeled_rows(
    context: Context, parameters: EvaluationParameters, selection: Selection, is_labeled: np.ndarray
) -> np.ndarray:
    """Return the labeled rows of a selection's class subset."""
    places = class_subset_rows(context, parameters, selection)["places"]
    return places[is_labeled[places]]


def _columns(context: Context, parameters: EvaluationParameters, features: np.ndarray) -> np.ndarray:
    """Return columns of the rows in use, dense, float64."""
    if parameters.anew is not None:
        block = rows_of_sample(context, parameters)[:, features]
        return (block.toarray() if is_sparse(block) else block).astype(np.float64)
    slab_columns = parameters.slab_columns
    stored_features = context.store.open(layout.EVALUATION_FEATURES)[...]
    X = np.empty((context.store.open(layout.EVALUATION_ROWS).shape[0], features.size))
    for slab in np.unique(features // slab_columns):
        in_slab = stored_features[stored_features // slab_columns == slab]
        block = context.store.open(layout.EVALUATION_SLAB.format(int(slab)))[...]
        places = np.flatnonzero(features // slab_columns == slab)
        X[:, places] = block[:, np.searchsorted(in_slab, features[places])]
    return X


def evaluate_cost(
    sample: Cost, n_rows: int, n_labeled: int, design: Design, models: Iterable[ModelSpec], process: Cost
) -> Cost:
    """Return the memory of a unit, including `sample`, from which it takes its columns of `n_rows` rows.

    Models are fitted to at most `n_labeled` of these rows.
    """
    most, selected = design.most_tested, max(design.sizes)
    return (
        *process,
        *sample,
        *fullest(
            # X, its training and test parts, and these filled and scaled; for sparse X also the dense conversion
            (Array("selected columns as stored, dense, in parts and scaled", (10, n_rows, selected)),),
            (Array("all columns that a model sees, in parts and scaled", (5, n_rows, most)),),
        ),
        *fullest(*(model_cost(spec, n_labeled, most) for spec in models)),
    )


EVALUATE_STAGE = StageKind("evaluate", __name__, evaluate_selection, evaluate_cost)
