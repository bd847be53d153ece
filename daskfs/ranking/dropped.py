"""Features that a method may select, those that it selects, and why the redundancy filter dropped or demoted others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.ranking.settings import RunSettings
from daskfs.store import layout
from daskfs.store.store import Store


def selectable(store: Store, method: Method, table: np.ndarray, *, filtered: bool) -> np.ndarray:
    """Return the features that a method may select, best first, shape (n_selectable,), int64.

    `table` holds the method's fields, shape (n_fields, n_features), float64; `filtered` is whether the job has
    ``select.redundancy``, which may put redundant features last instead of dropping them.
    """
    if filtered:
        return store.open(layout.FILTERED.format(method.label))[...]
    return method.ranked_features(table)


def selected_features(store: Store, method: Method, table: np.ndarray, settings: RunSettings) -> np.ndarray:
    """Return the features that a method selects, best first, shape (n_selected,), int64."""
    features = selectable(store, method, table, filtered=settings.filtered)
    if settings.fdr is None:
        return features[: settings.n_features]
    pvalues = method.pvalues(table)
    return features[:0] if pvalues is None else features[method.qvalues(pvalues)[features] <= settings.fdr]


def dropped_features(store: Store, method: Method, table: np.ndarray, names: Sequence[str]) -> list[tuple[int, str]]:
    """Return the features that a method may not select, or only after all others, with the reason, by rank."""
    place = {int(feature): rank for rank, feature in enumerate(method.order(table))}
    rows = store.need_json(layout.FILTERED_JSON.format(method.label), list)
    reasons = [(int(feature), _reason(why, what, names)) for feature, why, *what in rows]
    return sorted(reasons, key=lambda row: place[row[0]])


def _reason(why: str, what: Sequence[Any], names: Sequence[str]) -> str:
    if why == "redundant":
        value = math.floor(what[1] * 100 + 1e-9) / 100  # rounded down, so that only copies show 1.00
        return f"redundant with {names[what[0]]} ({value:.2f})"
    return f"group {what[0]} is full" if why == "group" else "dropped by name"
