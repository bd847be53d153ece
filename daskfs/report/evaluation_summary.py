"""Summary of the evaluation of a finished run, collected from its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from daskfs.criteria.slab import methods_from
from daskfs.evaluation.design import Design
from daskfs.evaluation.models import ModelSpec, family_of, higher_is_better, uses_folds
from daskfs.evaluation.summaries import failure_warnings
from daskfs.evaluation.tables import read_table
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.kernels.labels import Task
from daskfs.stages.stage import Plan, Stage
from daskfs.store import layout
from daskfs.store.store import Store

FREQUENT = 10
"""Features listed for each method, those selected most often."""
NAMED_GROUPS = 12
"""Maximum number of such lists, by method and amount of labels."""

Row = dict[str, Any]
PLACE = ("model", "metric", "n_classes", "labels")
"""Columns that values of one setting must share to be shown together."""


def evaluate_stage(plan: Plan) -> Stage | None:
    """Return the stage of a plan that tests rankings, or None."""
    return next((stage for stage in plan.stages if stage.is_of(EVALUATE_STAGE)), None)


def evaluation_warnings(store: Store, plan: Plan) -> list[str]:
    """Return a warning without final full stop for each failed ranking of an evaluation."""
    stage = evaluate_stage(plan)
    found = [] if stage is None else failure_warnings(store, stage.parameters)
    return [f"evaluation: {text.rstrip('.')}" for text in found]


def evaluation_cost(plan: Plan, stages: Iterable[Mapping[str, Any]], times: Mapping[str, Any]) -> Row | None:
    """Return the cost of an evaluation for ``run.json``, or None without evaluation.

    Parameters
    ----------
    plan
        Plan of the run.
    stages
        Facts of its stages, with name, units and seconds of the units.
    times
        Wall and busy seconds of the stages that ran in this call, by name, and their number of threads.
    """
    stage = evaluate_stage(plan)
    if stage is None:
        return None
    names = [one.name for one in plan.stages]
    own = names[names.index("design") :]
    ran = [times["stages"][name] for name in own if name in times["stages"]]
    wall, busy = (sum(pair[place] for pair in ran) for place in (0, 1))
    design = Design(stage.parameters)
    return {
        "n_selections": design.n_selections,
        "n_tests": design.n_tests,
        "stages": [{key: s[key] for key in ("name", "units", "seconds")} for s in stages if s["name"] in own],
        "wall_seconds": round(wall, 3),
        "busy_seconds": round(busy, 3),
        "threads": times["threads"],
        "overhead": round(1 - busy / (wall * times["threads"]), 4) if wall > 0 else None,
    }


def evaluation_summary(store: Store, plan: Plan, task: Task, cost: Mapping[str, Any] | None) -> Row | None:
    """Return the summary for the report, or None without evaluation.

    Parameters
    ----------
    store, plan
        Store and plan of the run.
    task
        Task of the labels.
    cost
        Result of :func:`evaluation_cost`.
    """
    stage = evaluate_stage(plan)
    if stage is None:
        return None
    p, design = stage.parameters, Design(stage.parameters)
    means = read_table(store, "evaluation_summary")
    tables = {name: read_table(store, name) for name in ("comparisons", "stability", "gap")}
    overall = [row for row in tables["comparisons"] if row["n_selected"] is None]
    ranges, methods = _ranges(store), design.methods
    saw_labels = [method.label for method in methods_from(p["methods"]) if method.criterion.needs_labels]
    frequent = _frequent(read_table(store, "selection_frequency"), max(design.sizes))
    grids = plan.facts.get("grids") or {}
    settings = []
    for setting in design.settings:
        own = [row for row in means if row["setting"] == setting]
        settings.append(
            {
                "setting": setting,
                "panels": [_panel(rows, ranges, design) for rows in _by(own, PLACE)],
                "saw_labels": [] if p["train_on"] == "labeled" else saw_labels,
                "sensitivity": [*_against_labels(own, methods), *_against_grids(own, grids)],
                "stability": [
                    _stability(rows, methods)
                    for rows in _by(
                        [r for r in tables["stability"] if r["setting"] == setting], ("n_classes", "labels")
                    )
                ],
                "frequent": [one for one in frequent if one["setting"] == setting][:NAMED_GROUPS],
                "comparisons": [
                    one
                    for rows in _by([r for r in own if r["n_selected"] is None and r["method"] in methods], PLACE)
                    if (one := _against_best(rows, overall)) is not None
                ],
            }
        )
    found: Row = store.need_json(layout.EVALUATION_DESIGN)
    return {
        "is_simple": not p["ranks_anew"] and len({(row["model"], row["metric"]) for row in means}) < 2,
        "facts": _facts(p, found, means, task),
        "settings": settings,
        "gap": [_gap(rows, methods) for rows in _by(tables["gap"], PLACE)],
        "cost": None if cost is None else dict(cost),
        "warnings": [*found["warnings"], *failure_warnings(store, p)],
    }


def _by(rows: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    """Group rows by the values of some keys, in order of first appearance."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(found.values())


def _curves(rows: Sequence[Row], methods: Sequence[str], keys: Mapping[str, str]) -> list[Row]:
    """Return one curve for each method by number of features; `keys` maps each part of a curve to its column."""
    curves = []
    for method in methods:
        own = sorted(
            (row for row in rows if row["method"] == method and row["n_selected"]), key=lambda r: r["n_selected"]
        )
        if own:
            parts = {part: [row[column] for row in own] for part, column in keys.items()}
            curves.append({"label": method, "n_selected": [row["n_selected"] for row in own], **parts})
    return curves


# ----------------------------------------------------------------------------------------- values by number of features
_BASELINES = {"AllFeatures": "all features", "MajorityClass": "majority class", "MedianTarget": "median target"}


def _ranges(store: Store) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Return the minimum and maximum value at each point of each curve."""
    data = store.read_bytes(layout.EVALUATION_PARQUET)
    if data is None:
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = ["setting", *PLACE, "method", "n_selected"]
    table = pq.read_table(pa.BufferReader(data), columns=[*keys, "value"])
    found = table.group_by(keys).aggregate([("value", "min"), ("value", "max")]).to_pylist()
    return {tuple(row[key] for key in keys): (row["value_min"], row["value_max"]) for row in found}


def _panel(rows: Sequence[Row], ranges: Mapping[tuple[Any, ...], tuple[float, float]], design: Design) -> Row:
    keys = ("setting", *PLACE, "method", "n_selected")
    ranged = []
    for row in rows:
        low, high = ranges.get(tuple(row[key] for key in keys), (None, None))
        ranged.append({**row, "worst": low, "best": high})
    curves = _curves(ranged, design.methods, {"mean": "mean", "std": "std", "low": "worst", "high": "best"})
    for name, size in design.baselines:  # each has one value for all numbers of selected features
        for row in (row for row in ranged if row["method"] == name and row["n_selected"] == size):
            parts = {part: [row[part]] * len(design.sizes) for part in ("mean", "std")}
            curves.append({"label": _BASELINES[name], "n_selected": design.sizes, **parts})
    return {**{key: rows[0][key] for key in (*PLACE, "higher_is_better")}, "curves": curves}


# ---------------------------------------------------------------------------------------------------------- sensitivity
def _against_labels(rows: Sequence[Row], methods: Sequence[str]) -> list[Row]:
    """Return means over all numbers of features, by amount of labels."""
    found = []
    for own in _by([row for row in rows if row["n_selected"] is None], ("model", "metric", "n_classes")):
        amounts = sorted({row["labels"] for row in own if row["labels"] is not None})
        if len(amounts) > 1:
            by_method = {method: [row for row in own if row["method"] == method] for method in methods}
            curves = [_points(method, amounts, mine, "labels") for method, mine in by_method.items() if mine]
            found.append(_figure("labels", "", amounts, own[0], curves))
    return found


def _against_grids(rows: Sequence[Row], grids: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Return means by each grid parameter, one curve for each amount of labels and other grid values."""
    found = []
    varied = [
        {**row, "base": grids[row["method"]][0], "values": grids[row["method"]][1]}
        for row in rows
        if row["method"] in grids
    ]
    means = [row for row in varied if row["n_selected"] is None]
    for own in _by(means, ("model", "metric", "n_classes", "base")):
        for key in own[0]["values"]:
            places = list({json.dumps(row["values"][key]): row["values"][key] for row in own}.values())
            if len(places) < 2:
                continue
            lines: dict[str, list[Row]] = {}
            for row in own:
                others = [f"{name}={_word(value)}" for name, value in row["values"].items() if name != key]
                amount = [] if row["labels"] is None else [f"labels {row['labels']:g}"]
                label = " ".join([*others, *amount]) or row["base"]
                lines.setdefault(label, []).append({**row, "place": row["values"][key]})
            curves = [_points(label, places, mine, "place") for label, mine in lines.items()]
            found.append(_figure(key, own[0]["base"], places, own[0], curves))
    return found


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _points(label: str, places: Sequence[Any], rows: Sequence[Row], column: str) -> Row:
    by_place = {json.dumps(row[column]): row for row in rows}
    points = [by_place.get(json.dumps(place), {}) for place in places]
    return {"label": label, **{key: [point.get(key) for point in points] for key in ("mean", "low", "high")}}


def _figure(name: str, base: str, places: Sequence[Any], row: Row, curves: list[Row]) -> Row:
    about = {key: row[key] for key in ("model", "metric", "n_classes", "higher_is_better")}
    words = [f"{place:g}" if isinstance(place, float) else _word(place) for place in places]
    numbers = [place if isinstance(place, int | float) and not isinstance(place, bool) else None for place in places]
    return {"name": name, "base": base, "ticks": words, "places": numbers, **about, "curves": curves}


# ------------------------------------------------------------------------------------------------------------ stability
def _stability(rows: Sequence[Row], methods: Sequence[str]) -> Row:
    about = {key: rows[0][key] for key in ("n_classes", "labels")}
    return {
        **about,
        "curves": _curves(rows, methods, {"mean": "kuncheva", "jaccard": "jaccard", "rankings": "n_rankings"}),
    }


def _frequent(rows: Sequence[Row], largest: int) -> list[Row]:
    """Return the most frequently selected features of each method.

    They are counted at the largest number of features up to :data:`FREQUENT`, or at the smallest one if that is larger.
    """
    found = []
    for own in _by(rows, ("setting", "n_classes", "labels", "method")):
        sizes = sorted({row["n_selected"] for row in own})
        size = next((n for n in reversed(sizes) if n <= max(FREQUENT, sizes[0])), largest)
        shown = [row for row in own if row["n_selected"] == size][:FREQUENT]
        columns = ("feature", "name", "frequency", "mean_rank", "rank_low", "rank_high")
        about = {key: own[0][key] for key in ("setting", "n_classes", "labels", "method")}
        found.append({**about, "n_selected": size, "rows": [{key: row[key] for key in columns} for row in shown]})
    return found


# ---------------------------------------------------------------------------------------------------------- comparisons
def _against_best(rows: Sequence[Row], comparisons: Sequence[Row]) -> Row | None:
    """Return the difference of each method to the best one, in the mean over all numbers of features."""
    if len(rows) < 2:
        return None
    metric = rows[0]["metric"]
    sign = 1 if higher_is_better(metric) else -1
    ordered = sorted(rows, key=lambda row: -sign * row["mean"])
    best = ordered[0]["method"]
    key = ("setting", *PLACE)
    place = tuple(rows[0][name] for name in key)
    behind: dict[str, tuple[Row, int]] = {}
    for row in comparisons:
        if tuple(row[name] for name in key) == place and best in (row["method"], row["other"]):
            other, turned = (row["other"], -1) if row["method"] == best else (row["method"], 1)
            behind[other] = (row, turned)
    shown = []
    for row in ordered:
        pair, turned = behind.get(row["method"], ({}, 1))
        ends = sorted(turned * pair[end] for end in ("low", "high")) if pair.get("low") is not None else [None, None]
        difference = None if not pair else turned * pair["difference"]
        numbers = {"difference": difference, "low": ends[0], "high": ends[1]}
        shown.append(
            {"label": row["method"], "mean": row["mean"], **numbers, **{k: pair.get(k) for k in ("p_value", "n_pairs")}}
        )
    return {**{name: rows[0][name] for name in (*PLACE, "higher_is_better")}, "best": best, "rows": shown}


def _gap(rows: Sequence[Row], methods: Sequence[str]) -> Row:
    about = {key: rows[0][key] for key in (*PLACE, "higher_is_better")}
    columns = ("transductive", "inductive", "gap", "low", "high", "p_value", "n_pairs")
    overall = [
        {"label": row["method"], **{key: row[key] for key in columns}} for row in rows if row["n_selected"] is None
    ]
    curves = _curves(rows, methods, {"mean": "gap", "low": "low", "high": "high"})
    return {**about, "rows": overall, "curves": curves}


# --------------------------------------------------------------------------------------------------------------- design
def _facts(p: Mapping[str, Any], found: Mapping[str, Any], means: Sequence[Row], task: Task) -> Row:
    return {
        "models": [_described(spec, task, p) for spec in map(ModelSpec.from_json, p["models"])],
        "metrics": {row["metric"]: row["higher_is_better"] for row in means},
        "n_splits": p["n_splits"],
        "n_repeats": p["n_repeats"],
        "folds": found["folds"],
        "n_rows": found["n_rows"],
        "n_rows_total": found["n_rows_total"],
        "n_unlabeled": found["n_unlabeled"] if p["ranks_anew"] else None,
        "labels": p["labels"],
        "task": task,
        "n_draws": p["n_draws"] if p["labels"] else None,
        "train_on": p["train_on"],
        "n_classes": p["n_classes"],
        "n_subsets": p["n_subsets"] if p["n_classes"] else None,
        "n_informative": len(p["informative"]),
        "seed": p["random_state"],
    }


def _described(spec: ModelSpec, task: Task, p: Mapping[str, Any]) -> str:
    """Describe a model in words."""
    kind = {"classification": "classifier", "regression": "regressor"}.get(family_of(spec, task), "")
    own = dict(spec.parameters)
    words = f"{spec.name} {kind}" if spec.name in ("linear-svm", "rbf-svm", "ridge") else spec.name
    if spec.name == "knn":
        words = f"{own.pop('n_neighbors', 5)}-nearest-neighbor {kind}"
    if given := ", ".join(f"{key}={_word(value)}" for key, value in own.items()):
        words = f"{words} ({given})"
    if p["scaling"]:
        in_folds = uses_folds(spec, "inductive" if p["setting"] == "inductive" else "transductive")
        words += ", on z-scores of the training fold" if in_folds else ", on z-scores"
    return words if spec.label == spec.name else f"{spec.label}: {words}"
