"""Contents of a finished run for exports: a table of its features in the order of X, and facts on the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.errors import JobError, first_few, nearest
from daskfs.kernels.order import ranks
from daskfs.ranking.dropped import selectable, selected_features
from daskfs.ranking.settings import settings_of
from daskfs.ranking.tables import method_scores
from daskfs.runs.manifest import open_finished
from daskfs.stages.stage import Plan
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles

KEY = "daskfs"
"""Key of the facts in all formats."""
LABELS_SHOWN = 10
"""Maximum number of labels that a message names."""
PREFIXES = ("rank_", "score_", "selected_", "pvalue_", "qvalue_")


@dataclass(frozen=True)
class RunContents:
    """A finished run.

    Parameters
    ----------
    store, tiles
        The run, and the data that it ranked.
    names
        Names of the features.
    columns
        ``rank_METHOD`` (int64, 1 is best), ``score_METHOD`` (float64, NaN for a feature without a score) and
        ``selected_METHOD`` (bool), for each method, each of shape (n_features,); ``pvalue_METHOD`` and
        ``qvalue_METHOD`` (float64) of methods that were tested.
    selectable
        By method, the features that it may select, best first, int64.
    selected
        By method, those that the job selects.
    facts
        Parameters, versions and citations, as JSON values.
    """

    store: Store
    tiles: Tiles
    names: list[str]
    columns: dict[str, np.ndarray]
    selectable: dict[str, np.ndarray]
    selected: dict[str, np.ndarray]
    facts: dict[str, Any]


def read_run(url: str) -> RunContents:
    """Read the contents of a finished run; :class:`StoreError` if it is not finished, or damaged."""
    store, manifest = open_finished(url)
    plan = Plan.read(store)
    tiles = Context(store).tiles
    settings = settings_of(plan)
    columns, may, selected = dict[str, np.ndarray](), dict[str, np.ndarray](), dict[str, np.ndarray]()
    for method in settings.methods:
        table = method_scores(store, method)
        may[method.label] = selectable(store, method, table, filtered=settings.filtered)
        selected[method.label] = selected_features(store, method, table, settings)
        columns |= _columns(method, table, selected[method.label])
    facts = _facts(manifest, settings.methods)
    return RunContents(store, tiles, tiles.feature_names(), columns, may, selected, facts)


def _columns(method: Method, table: np.ndarray, selected: np.ndarray) -> dict[str, np.ndarray]:
    rank = ranks(method.order(table))
    is_selected = np.zeros(rank.size, dtype=bool)
    is_selected[selected] = True
    values = [rank, table[0], is_selected]
    if (pvalues := method.pvalues(table)) is not None:
        values += [pvalues, method.qvalues(pvalues)]
    return dict(zip((f"{prefix}{method.label}" for prefix in PREFIXES), values, strict=False))


def is_ours(column: str, facts: Mapping[str, Any], start: str = "") -> bool:
    """Return whether the export with these facts wrote a column; all names of its columns have one `start`."""
    labels = facts.get("methods")
    return isinstance(labels, Mapping) and column in {f"{start}{kind}{label}" for kind in PREFIXES for label in labels}


def _facts(manifest: Mapping[str, Any], methods: Sequence[Method]) -> dict[str, Any]:
    job = manifest["job"]
    return {
        **{key: manifest[key] for key in ("daskfs_version", "created", "versions", "n_selected", "data")},
        "methods": {
            method.label: {
                "method": method.criterion.name,
                "direction": method.direction,
                "citation": method.criterion.citation,
                "parameters": method.parameters.model_dump(mode="json"),
            }
            for method in methods
        },
        "seeds": {key: job[key]["random_state"] for key in ("graph", "evaluate") if job.get(key)},
        "job": job,
        "warnings": [one["text"] for one in manifest["warnings"]],
    }


def chosen_features(contents: RunContents, label: str, n_features: int | None) -> np.ndarray:
    """Return the features that a method selected, or its `n_features` best that it may select, best first, int64.

    :class:`JobError` for a label that no method has, and if there are fewer features.
    """
    if label not in contents.selectable:
        labels = tuple(contents.selectable)
        labels_shown = first_few(labels, LABELS_SHOWN)
        msg = f"no method of {contents.store.url} is called '{label}'.{nearest(label, labels)} It has {labels_shown}."
        raise JobError(msg)
    selectable = contents.selectable[label]
    if n_features is not None and not 1 <= n_features <= selectable.size:
        msg = f"n_features is {n_features}, and method {label} ranks {selectable.size} features that it may select."
        raise JobError(msg)
    return contents.selected[label] if n_features is None else selectable[:n_features]


def reduced_table(contents: RunContents, features: np.ndarray | None) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return the names and table columns of `features` (integers), each of shape (n_selected,); of all for None."""
    if features is None:
        return contents.names, contents.columns
    names = [contents.names[feature] for feature in features]
    return names, {name: values[features] for name, values in contents.columns.items()}
