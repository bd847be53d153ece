"""Warnings about what limits the trust in a ranking: copies, leaks, methods no better than chance, and few rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.errors import first_few
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.report.hints import is_like_a_target
from daskfs.run_warning import LIMITS, VOIDS, RunWarning
from daskfs.store.context import Context

ROWS = 2000
"""Sampled rows on which first features are compared."""
SEPARATING_ROWS = 50
"""Labeled rows from which on a feature that separates them is no accident."""
COPY, TARGET = 0.95, 0.9999
"""Absolute correlations from which on a feature is a copy of another, or of the target."""
FEW_LABELED = 10
"""Labeled rows below which a class says little, and names that are listed."""
LEAK, BEATEN, LABELS_SEEN = "leak: ", "no better than random", "labels seen"
"""Kinds of warnings: about a leak, before what the feature does; about methods that a random order beats; about methods
that saw labels of tested rows (:func:`daskfs.runs.evaluation.block_warnings`).
"""
DOUBTS = {
    BEATEN: "a random order does as well",
    LABELS_SEEN: "it saw the labels of the tested rows",
    "copies of rows": "models were trained on copies of tested rows",
}
"""Reasons to doubt a verdict, by kind of the warning about its method or about all."""


def trust_warnings(
    context: Context,
    best: Mapping[str, Sequence[int]],
    names: Sequence[str],
    verdict: Mapping[str, Any] | None,
    *,
    filtered: bool,
) -> list[RunWarning]:
    """Return warnings about how far a ranking can be trusted.

    `best` are the first features of each method by its label, `names` those of all features, and `verdict` is that of
    the evaluation, None without one. Copies are fine where redundant features are `filtered` already.
    """
    warnings = _beaten_warnings(verdict)
    used = np.unique(np.concatenate([np.empty(0, np.int64), *map(np.asarray, best.values())]).astype(np.int64))
    if used.size:
        rows, X = context.tiles.sampled_columns(used, ROWS, None)
        if not filtered:
            warnings += _copies(X, used, best)
        if (labels := context.labels_of(rows)) is not None:
            sampled_labels = labels.of_rows(np.arange(rows.size))
            first = list(dict.fromkeys(int(features[0]) for features in best.values() if len(features)))
            for feature in first:
                if does := _leak(X[:, np.searchsorted(used, feature)], sampled_labels):
                    text = f"it alone {does}; leave it out (data.exclude) unless it is known before labels"
                    warnings.append(RunWarning(f"{LEAK}{does}", VOIDS, text, (names[feature],), "feature"))
    counts = context.label_counts()
    return warnings + repeated_names_warnings(names) + ([] if is_like_a_target(counts) else _few_rows(counts))


def doubts_of(verdict: Mapping[str, Any], features: Sequence[str], warnings: Sequence[RunWarning]) -> list[str]:
    """Name the reasons to doubt a verdict, the first `features` of whose method are given, in a few words each."""
    method, doubts = verdict["method"], []
    for one in warnings:
        if one.kind == LABELS_SEEN and verdict["setting"] == "inductive":
            continue  # which is of the other setting
        if one.kind.startswith(LEAK) and (leaking := [name for name in one.subject if name in features]):
            doubts.append(f"rests on {', '.join(leaking)}, which {one.kind.removeprefix(LEAK)}")
        elif one.kind in DOUBTS and (method in one.subject or not one.subject):
            doubts.append(DOUBTS[one.kind])
    return doubts


def _beaten_warnings(verdict: Mapping[str, Any] | None) -> list[RunWarning]:
    if not verdict or not verdict["beaten"]:
        return []
    text = (
        f"verdict: a random order of the features does as well as {', '.join(verdict['beaten'])} on these data: do not "
        "select by it, or filter what is redundant (select.redundancy)"
    )
    return [RunWarning(BEATEN, VOIDS, text, tuple(verdict["beaten"]))]


def _copies(X: np.ndarray, used: np.ndarray, best: Mapping[str, Sequence[int]]) -> list[RunWarning]:
    """Return a warning about each method of whose first features some are copies of better ones."""
    is_known = ~np.isnan(X)
    count = np.maximum(is_known.sum(axis=0), 1)
    Z = np.where(is_known, X - np.where(is_known, X, 0.0).sum(axis=0) / count, 0.0)
    lengths = np.linalg.norm(Z, axis=0)
    Z /= np.where(lengths > 0, lengths, 1)
    counts = {}
    for label, features in best.items():
        own_columns = np.searchsorted(used, np.asarray(features, np.int64))
        alike = np.triu(np.abs(Z[:, own_columns].T @ Z[:, own_columns]) >= COPY, k=1)
        if count := int(alike.any(axis=0).sum()):
            counts[label] = f"{count} of {own_columns.size} of {label}"
    if not counts:
        return []
    text = (
        f"first features are copies of better ones, correlated by {COPY} and more ({', '.join(counts.values())}): set "
        f"select: {{redundancy: {{threshold: {COPY}}}}} to skip them"
    )
    return [RunWarning("copies of features", LIMITS, text, tuple(counts))]


def _leak(values: np.ndarray, labels: Labels) -> str:
    """Describe how one feature gives the label away; empty if it does not."""
    is_used = labels.is_labeled & np.isfinite(values)
    x, y = values[is_used].astype(np.float64), labels.values[is_used]
    if x.size < SEPARATING_ROWS:
        return ""
    if labels.task == "regression":
        moved = x - x.mean(), y - y.mean()
        product = np.linalg.norm(moved[0]) * np.linalg.norm(moved[1])
        return "repeats the target" if product > 0 and abs(moved[0] @ moved[1]) >= TARGET * product else ""
    ranges = sorted((x[y == code].min(), x[y == code].max()) for code in np.unique(y))
    apart = all(high < low for (_, high), (low, _) in itertools.pairwise(ranges))
    return "separates the classes" if apart and len(ranges) > 1 else ""


def repeated_names_warnings(names: Sequence[str]) -> list[RunWarning]:
    """Return a warning about names that several features have; none if all differ."""
    repeated = [f"'{name}'" for name, count in Counter(names).items() if count > 1]
    if not repeated:
        return []
    text = (
        f"several features are named {first_few(repeated, FEW_LABELED)}: tables tell them apart by number (column "
        "feature); give each a name of its own"
    )
    return [RunWarning("names twice", LIMITS, text)]


def _few_rows(labels: LabelCounts | None) -> list[RunWarning]:
    if labels is None or labels.task != "classification":
        return []
    counts = zip(labels.classes, labels.by_class, strict=True)
    few = [f"'{name}' {count}" for name, count in counts if 0 < count < FEW_LABELED]
    if not few:
        return []
    text = (
        f"labeled rows are few of some classes ({first_few(few, FEW_LABELED)}): their part of a score by classes is "
        "uncertain; label more, or merge classes"
    )
    return [RunWarning("few labels", LIMITS, text)]
