"""Warnings about what limits the trust in a ranking: copies, leaks, methods no better than chance, and few rows."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import criteria
from daskfs.errors import first_few
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.store.context import Context

ROWS = 2000
"""Sampled rows on which first features are compared."""
LEAST_ROWS = 50
"""Labeled rows from which on a feature that separates them is no accident."""
COPY, TARGET = 0.95, 0.9999
"""Absolute correlations from which on a feature is a copy of another, or of the target."""
FEW = 10
"""Labeled rows below which a class says little, and names that are listed."""
MANY, LONELY = 15, 3
"""Number of classes from which on whole numbers may be a target, and of rows that each class has if they are none."""


def trust_warnings(
    context: Context,
    best: Mapping[str, Sequence[int]],
    names: Sequence[str],
    verdict: Mapping[str, Any] | None,
    *,
    filtered: bool,
) -> list[str]:
    """Return warnings about a run without final full stops, each with what to do.

    `best` are the first features of each method by its label, `names` those of all features, and `verdict` is that of
    the evaluation, None without one. Copies are fine where redundant features are `filtered` already.
    """
    found = _beaten(verdict)
    used = np.unique(np.concatenate([np.empty(0, np.int64), *map(np.asarray, best.values())]).astype(np.int64))
    counts = context.label_counts()
    if used.size:
        rows, X = context.tiles.sampled_columns(used, ROWS, None)
        if not filtered:
            found += _copies(X, used, best)
        if (labels := context.labels_of(rows)) is not None:
            seen = labels.of_rows(np.arange(rows.size))
            first = list(dict.fromkeys(int(features[0]) for features in best.values() if len(features)))
            what = {feature: _leak(X[:, np.searchsorted(used, feature)], seen) for feature in first}
            found += [
                f"feature '{names[feature]}' alone {does}: leave it out (data.exclude) unless it is known before labels"
                for feature, does in what.items()
                if does
            ]
    return found + repeated_names_warnings(names) + (_like_a_target(counts) or _few_rows(counts))


def _beaten(verdict: Mapping[str, Any] | None) -> list[str]:
    if not verdict or not verdict["beaten"]:
        return []
    return [
        f"verdict: a random order of the features does as well as {', '.join(verdict['beaten'])} on these data: do not "
        "select by it, or filter what is redundant (select.redundancy)"
    ]


def _copies(X: np.ndarray, used: np.ndarray, best: Mapping[str, Sequence[int]]) -> list[str]:
    """Return a warning about each method of whose first features some are copies of better ones."""
    known = ~np.isnan(X)
    count = np.maximum(known.sum(axis=0), 1)
    Z = np.where(known, X - np.where(known, X, 0.0).sum(axis=0) / count, 0.0)
    lengths = np.linalg.norm(Z, axis=0)
    Z /= np.where(lengths > 0, lengths, 1)
    found = {}
    for label, features in best.items():
        own = np.searchsorted(used, np.asarray(features, np.int64))
        alike = np.triu(np.abs(Z[:, own].T @ Z[:, own]) >= COPY, k=1)
        if count := int(alike.any(axis=0).sum()):
            found[label] = f"{count} of {own.size} of {label}"
    if not found:
        return []
    return [
        f"first features are copies of better ones, correlated by {COPY} and more ({', '.join(found.values())}): set "
        f"select: {{redundancy: {{threshold: {COPY}}}}} to skip them"
    ]


def _leak(values: np.ndarray, labels: Labels) -> str:
    """Describe how one feature gives the label away; empty if it does not."""
    known = labels.is_labeled & np.isfinite(values)
    x, y = values[known].astype(np.float64), labels.values[known]
    if x.size < LEAST_ROWS:
        return ""
    if labels.task == "regression":
        moved = x - x.mean(), y - y.mean()
        product = np.linalg.norm(moved[0]) * np.linalg.norm(moved[1])
        return "repeats the target" if product > 0 and abs(moved[0] @ moved[1]) >= TARGET * product else ""
    ranges = sorted((x[y == code].min(), x[y == code].max()) for code in np.unique(y))
    apart = all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))
    return "separates the classes" if apart and len(ranges) > 1 else ""


def repeated_names_warnings(names: Sequence[str]) -> list[str]:
    """Return a warning, without a final full stop, about names that several features have; none if all differ."""
    repeated = [f"'{name}'" for name, count in Counter(names).items() if count > 1]
    if not repeated:
        return []
    return [
        f"several features are named {first_few(repeated, FEW)}: tables tell them apart by number (column "
        "feature); give each a name of its own"
    ]


def _like_a_target(labels: LabelCounts | None) -> list[str]:
    """Return a warning about classes that look like the values of a target: many whole numbers, some in few rows."""
    if labels is None or labels.task != "classification" or len(labels.classes) < MANY:
        return []
    numbers = [name for name in labels.classes if re.fullmatch(r"-?\d+", name)]
    if len(numbers) < len(labels.classes) or min(labels.by_class) >= LONELY:
        return []
    methods = ", ".join(name for name, one in criteria().items() if one.needs_labels and "regression" in one.tasks)
    return [
        f"labels are {len(numbers)} whole numbers, some in fewer than {LONELY} rows, and taken for classes: if they "
        f"are amounts, set data.task: regression, with methods for it ({methods})"
    ]


def _few_rows(labels: LabelCounts | None) -> list[str]:
    if labels is None or labels.task != "classification":
        return []
    counts = zip(labels.classes, labels.by_class, strict=True)
    few = [f"'{name}' {count}" for name, count in counts if 0 < count < FEW]
    if not few:
        return []
    return [
        f"labeled rows are few of some classes ({first_few(few, FEW)}): their part of a score by classes is "
        "uncertain; label more, or merge classes"
    ]
