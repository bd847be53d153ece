"""Hints: settings that would change the answer, by what data, labels and evaluation look like."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method, criteria
from daskfs.kernels.labels import LabelCounts
from daskfs.run_warning import HINT, RunWarning
from daskfs.store.context import Context

ROWS, COLUMNS = 500, 500
"""Rows and columns of the sample in which counts and logarithms are looked for."""
SPARSE = 0.3
"""Share of zeros from which on whole numbers may be counts: ratings, levels and most images have fewer."""
TYPICAL, LARGE = 5.0, 10.0
"""Largest median of counts above zero, and of logarithms; and least ratio of the largest count to that median."""
UNEVEN_TOTALS = 1.5
"""Least ratio of the sums of rows, between their 5th and 95th percentile, that counts of other totals have."""
MANY, LONELY = 15, 3
"""Number of classes from which on whole numbers may be a target, and of rows that each class has if they are none."""
FEW_CLASSES, LEAST_ROWS = 5, 50
"""Number of values of a target up to which they may be classes, and of labeled rows that it takes."""


def hints(
    context: Context, methods: Sequence[Method], verdict: Mapping[str, Any] | None, sizes: Sequence[int]
) -> list[RunWarning]:
    """Return hints on a run; `verdict` is that of its evaluation at `sizes`, None without one."""
    n_features = context.tiles.shape.n_features
    return [*_on_sizes(verdict, sizes, n_features), *_on_scale(context, methods), *_on_labels(context)]


def is_like_a_target(labels: LabelCounts | None) -> bool:
    """Return whether classes look like the values of a target: many whole numbers, some in few rows."""
    if labels is None or labels.task != "classification" or len(labels.classes) < MANY:
        return False
    return all(re.fullmatch(r"-?\d+", name) for name in labels.classes) and min(labels.by_class) < LONELY


def _on_sizes(verdict: Mapping[str, Any] | None, sizes: Sequence[int], n_features: int) -> list[RunWarning]:
    if verdict is None or verdict["n_selected"] != max(sizes) or max(sizes) >= n_features:
        return []
    sign, of_all = 1 if verdict["higher_is_better"] else -1, verdict["all_features"]
    if 2 * max(sizes) > n_features and of_all is not None and sign * of_all <= sign * verdict["score"]:
        return []  # almost all were tried, and all are no better
    more = sorted({*sizes, *(min(factor * max(sizes), n_features) for factor in (2, 4))})
    text = (
        f"the best number of features, {max(sizes)}, is the largest that was tried: more may be better "
        f"(--set evaluate.n_selected={str(more).replace(' ', '')})"
    )
    return [RunWarning("largest size", HINT, text)]


def _on_scale(context: Context, methods: Sequence[Method]) -> list[RunWarning]:
    """Return a hint on counts that are taken as they are, or on logarithms of which logarithms are taken."""
    shape = context.tiles.shape
    columns = np.unique(np.linspace(0, shape.n_features - 1, COLUMNS).astype(np.int64))
    X = context.tiles.sampled_columns(columns, ROWS, None)[1]
    present = X[X > 0]
    if not present.size or (X < 0).any() or np.isnan(X).any() or np.mean(X == 0) < SPARSE:
        return []
    median = float(np.median(present))
    has_logs = any("log1p" in scaling for method in methods for scaling in _scalings(method))
    is_whole = bool((present % 1 == 0).all())
    if is_whole and not has_logs and median <= TYPICAL and present.max() >= LARGE * median and _is_uneven(X):
        text = (
            "X looks like counts whose totals differ between rows: compare their logarithms "
            "(--set transform.graph=total+log1p --set transform.score=total+log1p)"
        )
        return [RunWarning("counts", HINT, text)]
    if has_logs and not is_whole and median <= TYPICAL and present.max() < 4 * TYPICAL:
        text = "X looks like logarithms already, and log1p takes them again: leave it out of transform"
        return [RunWarning("logarithms", HINT, text)]
    return []


def _scalings(method: Method) -> list[str]:
    keys = ("graph_scaling", "score_scaling")
    return [scaling for key in keys if (scaling := getattr(method.parameters, key, None)) is not None]


def _is_uneven(X: np.ndarray) -> bool:
    low, high = np.percentile(X.sum(axis=1), [5, 95])
    return bool(high >= UNEVEN_TOTALS * low)


def _on_labels(context: Context) -> list[RunWarning]:
    """Return a hint on classes that look like a target, or a target that looks like classes."""
    labels = context.label_counts()
    if labels is not None and is_like_a_target(labels):
        methods = ", ".join(name for name, one in criteria().items() if one.needs_labels and "regression" in one.tasks)
        text = (
            f"labels are {len(labels.classes)} whole numbers, some in fewer than {LONELY} rows, and taken for classes: "
            f"if they are amounts, set data.task: regression, with methods for it ({methods})"
        )
        return [RunWarning("classes or target", HINT, text)]
    if labels is None or labels.task != "regression" or labels.n_labeled < LEAST_ROWS:
        return []
    rows = np.unique(np.linspace(0, context.tiles.shape.n_samples - 1, 4 * ROWS).astype(np.int64))
    sampled_labels = context.labels_of(rows)
    values = np.unique(sampled_labels.values[sampled_labels.is_labeled]) if sampled_labels is not None else np.empty(0)
    if not 1 < values.size <= FEW_CLASSES:
        return []
    text = f"the target has {values.size} values: if they are classes, set data.task: classification"
    return [RunWarning("classes or target", HINT, text)]
