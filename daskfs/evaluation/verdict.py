"""Verdict of an evaluation: the best method and number of features, with a value corrected for that choice.

The best of many values is too good: of 48 that only differ by chance, by two standard errors. So each fold is scored by
the method and size that the other folds of its split choose, by the same rule; the mean of these values is the score.

Notes
-----
The rule is that of one standard error (Breiman et al. 1984, section 3.4.3): the smallest number of features whose best
method is within one standard error of the best of all. Choosing within the folds and scoring outside is what the
bootstrap of Tsamardinos, Greasidou and Borboudakis (2018, Machine Learning 107) does with single predictions; here a
fold is the unit, as folds are what is stored. Models of the other folds have trained on the rows of a fold, as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.evaluation.design import Design, EvaluationParameters
from daskfs.evaluation.models import higher_is_better, range_of
from daskfs.evaluation.significance import mean_interval
from daskfs.evaluation.summaries import Cube, cubes_of, means_without_nan
from daskfs.evaluation.tables import results
from daskfs.store import layout
from daskfs.store.store import Store

NO_MODEL = "hit_rate"
"""Metric of selections alone."""


def evaluation_verdict(
    store: Store, parameters: EvaluationParameters, stability: Iterable[Mapping[str, Any]], n_features: int
) -> dict[str, Any] | None:
    """Return the verdict on a finished evaluation, with the agreement of the selections.

    Parameters
    ----------
    store, parameters
        Store of the run, and parameters of the stage "evaluate".
    stability
        Rows of the table "stability".

    Returns
    -------
    dict or None
        As :func:`verdict_of` returns it, and ``agreement``: the mean share of the selected features that two folds have
        in common; None for a single ranking, and where all features are selected.
    """
    design = Design(parameters)
    cubes = cubes_of(results(store, parameters), design, store.need_json(layout.EVALUATION_DESIGN)["folds"])
    random_orders = [method.label for method in parameters.methods if method.criterion.name == "RandomOrder"]
    verdict = verdict_of(cubes, design, random_orders)
    if verdict is None:
        return None
    keys = ("method", "n_selected", "setting", "n_classes", "labels")
    agreement_row = next((row for row in stability if all(row[key] == verdict[key] for key in keys)), None)
    if agreement_row is None or agreement_row["kuncheva"] is None:
        return {**verdict, "agreement": None}
    # an index of 1 is of the same features, and of 0 of as many in common as random selections have
    share = verdict["n_selected"] / n_features
    return {**verdict, "agreement": agreement_row["kuncheva"] * (1 - share) + share}


def verdict_of(cubes: Sequence[Cube], design: Design, random_orders: Sequence[str]) -> dict[str, Any] | None:
    """Return the verdict on the values of an evaluation, None without values of a model for any method.

    `random_orders` are labels of methods that rank at random, which are no candidates.

    Returns
    -------
    dict
        ``method`` and ``n_selected``, of ``n_compared`` choices, and what they are of: ``model``, ``metric``,
        ``setting``, ``n_classes`` and ``labels``. ``score`` with its 95 % interval ``low`` and ``high`` (None for a
        single value) is corrected for the choice where ``is_corrected``; ``uncorrected`` is the mean of the choice.
        Means of ``all_features``, of ``random_order`` with as many features, and of ``no_feature``; None without them.
        ``beaten``: methods whose mean over all sizes is no better than that of the random order.
    """
    cube = _cube_of_verdict(cubes, design)
    if cube is None:
        return None
    candidates = [name for name in design.methods if name not in random_orders]
    sizes = [size for size in cube.sizes if size in design.sizes]
    sign = 1.0 if higher_is_better(cube.metric) else -1.0
    places = np.ix_([cube.methods.index(m) for m in candidates], [cube.sizes.index(s) for s in sizes])
    values = sign * cube.values[places]
    if not candidates or not np.isfinite(values).any():
        return None
    method, size = _choice(values)
    scored, is_corrected = _scored_by_others(cube, values)
    interval = mean_interval(sign * scored, cube.replicates, cube.test_share)
    lowest, highest = range_of(cube.metric)
    means = means_without_nan(cube.values, axis=2)

    def mean(names: Sequence[str], n_selected: int | None) -> float | None:
        if not names:
            return None
        row = means[cube.methods.index(names[0])]
        finite_means = row[np.isfinite(row)] if n_selected is None else row[[cube.sizes.index(n_selected)]]
        return _number(finite_means[-1]) if finite_means.size else None

    baselines = [name for name, n in design.baselines if n], [name for name, n in design.baselines if not n]
    return {
        "method": candidates[method],
        "n_selected": sizes[size],
        "model": cube.model,
        "metric": cube.metric,
        "setting": cube.setting,
        "n_classes": cube.n_classes,
        "labels": cube.labels,
        "score": _number(interval.mean),
        "low": _number(max(interval.low, lowest)),
        "high": _number(min(interval.high, highest)),
        "is_corrected": is_corrected,
        "uncorrected": _number(means_without_nan(sign * values, axis=2)[method, size]),
        "n_compared": int(np.isfinite(means_without_nan(values, axis=2)).sum()),
        "higher_is_better": sign > 0,
        "all_features": mean(baselines[0], None),
        "random_order": mean(random_orders, sizes[size]),
        "no_feature": mean(baselines[1], None),
        "no_feature_name": next(iter(baselines[1]), ""),
        "beaten": _methods_below_random(cube, candidates, random_orders, sizes, sign),
    }


def _cube_of_verdict(cubes: Sequence[Cube], design: Design) -> Cube | None:
    """Return the values to judge by: inductive if there are any, of the first model, all classes and most labels."""
    of_models = [cube for cube in cubes if cube.metric != NO_MODEL]
    if not of_models:
        return None
    setting = "inductive" if "inductive" in design.settings else design.settings[0]
    of_setting = [cube for cube in of_models if cube.setting == setting] or of_models
    of_model = [cube for cube in of_setting if (cube.model, cube.metric) == (of_setting[0].model, of_setting[0].metric)]
    return max(of_model, key=lambda cube: (cube.n_classes or np.inf, cube.labels or np.inf))


def _choice(values: np.ndarray) -> tuple[int, int]:
    """Return method and size by the rule of one standard error.

    `values`, shape (n_methods, n_sizes, n_cells), are large for good, and NaN for none.
    """
    means = means_without_nan(values, axis=2)
    ranked = np.where(np.isnan(means), -np.inf, means)
    method, size = np.unravel_index(int(ranked.argmax()), ranked.shape)
    best = values[method, size]
    best = best[~np.isnan(best)]
    error = best.std(ddof=1) / np.sqrt(best.size) if best.size > 1 else 0.0
    near = ranked >= ranked.max() - error
    smallest = int(np.flatnonzero(near.any(axis=0))[0])
    return int(ranked[:, smallest].argmax()), smallest


def _scored_by_others(cube: Cube, values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return for each cell the value of what the others of its split choose, (n_cells,), and whether there are others.

    Splits are folds of one repeat, draw of labels and draw of classes; cells without folds are one split.
    """
    n_cells = len(cube.cells)
    splits = [cell[:3] if cell[3] is not None else None for cell in cube.cells]
    scored = np.full(n_cells, np.nan)
    for place, split in enumerate(splits):
        others = [other for other in range(n_cells) if other != place and splits[other] == split]
        if not others or not np.isfinite(values[:, :, others]).any():
            method, size = _choice(values)
            return values[method, size], False
        method, size = _choice(values[:, :, others])
        scored[place] = values[method, size, place]
    return scored, True


def _methods_below_random(
    cube: Cube, candidates: Sequence[str], random_orders: Sequence[str], sizes: Sequence[int], sign: float
) -> list[str]:
    """Return the methods whose mean over all sizes at which methods differ is no better than that of a random order."""
    if not random_orders:
        return []
    ranked = [cube.methods.index(name) for name in (random_orders[0], *candidates)]
    values = sign * cube.values[np.ix_(ranked, [cube.sizes.index(size) for size in sizes])]
    differ = (values != values[:1]).any(axis=(0, 2))  # with all features every ranking is the same
    means = means_without_nan(values[:, differ].reshape(len(ranked), -1), axis=1)
    return [name for name, mean in zip(candidates, means[1:].tolist(), strict=True) if mean <= means[0]]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
