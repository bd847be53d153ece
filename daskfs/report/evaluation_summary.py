"""Summary of the evaluation of a finished run, collected from its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from daskfs.criteria.consensus import seeing_labels
from daskfs.evaluation.design import Design, EvaluationParameters
from daskfs.evaluation.models import ModelSpec, family_of, uses_folds
from daskfs.evaluation.tables import read_table, reversed_pair
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.job.methods import as_word
from daskfs.kernels.labels import Task
from daskfs.ranking.tables import read_parquet
from daskfs.report.model import (
    Cost,
    Curve,
    CurvePanel,
    EvaluationDesign,
    EvaluationReport,
    Frequent,
    Sensitivity,
    Setting,
)
from daskfs.report.terminal import BASELINES
from daskfs.stages.stage import Plan
from daskfs.store import layout
from daskfs.store.store import Store

FREQUENT = 10
"""Features listed for each method, those selected most often."""
NAMED_GROUPS = 12
"""Maximum number of such lists, by method and amount of labels."""

Row = dict[str, Any]
PLACE = ("model", "metric", "n_classes", "labels")
"""Columns that values of one setting must share to be shown together."""
POINT = ["setting", *PLACE, "method", "n_selected"]
"""Columns of a point of a curve."""


def evaluation_cost(plan: Plan, stages: Iterable[Mapping[str, Any]], times: Mapping[str, Any]) -> Row | None:
    """Return the cost of an evaluation for ``run.json``, or None without evaluation.

    `stages` are the facts of the stages of the plan, with name, units and seconds of the units; `times` the wall and
    busy seconds of the stages that ran in this call, by name, and their number of threads.
    """
    if (parameters := plan.parameters_of(EVALUATE_STAGE)) is None:
        return None
    stage_names = [one.name for one in plan.stages if isinstance(one.parameters, EvaluationParameters)]
    ran = [times["stages"][name] for name in stage_names if name in times["stages"]]
    wall, busy = (sum(pair[place] for pair in ran) for place in (0, 1))
    design = Design(parameters)
    return {
        "n_selections": design.n_selections,
        "n_tests": design.n_tests,
        "stages": [{key: s[key] for key in ("name", "units", "seconds")} for s in stages if s["name"] in stage_names],
        "wall_seconds": round(wall, 3),
        "busy_seconds": round(busy, 3),
        "threads": times["threads"],
        "overhead": round(1 - busy / (wall * times["threads"]), 4) if wall > 0 else None,
    }


def evaluation_summary(store: Store, plan: Plan, task: Task, cost: Cost | None) -> EvaluationReport:
    """Return the summary for the report, with the `cost` of :func:`evaluation_cost`; empty without evaluation."""
    if (p := plan.parameters_of(EVALUATE_STAGE)) is None:
        return EvaluationReport()
    design = Design(p)
    methods, grids = design.methods, plan.facts.get("grids") or {}
    saw_labels = seeing_labels(p.methods)
    names = ("evaluation_summary", "comparisons", "stability", "selection_frequency")
    tables = [read_table(store, name) for name in names]
    _put_ranges(store, tables[0])
    settings = []
    for setting in design.settings:
        means, pairs, stability, frequency = ([row for row in rows if row["setting"] == setting] for rows in tables)
        overall = [row for row in means if row["n_selected"] is None]
        compared = _by([row for row in overall if row["method"] in methods], PLACE)
        settings.append(
            Setting(
                setting=setting,
                panels=[_panel(rows, design) for rows in _by(means, PLACE)],
                saw_labels=[] if p.keys.train_on == "labeled" else saw_labels,
                sensitivity=[*_against_labels(overall, methods), *_against_grids(overall, grids)],
                stability=[_stability(rows, methods) for rows in _by(stability, ("n_classes", "labels"))],
                frequent=_most_selected(frequency)[:NAMED_GROUPS],
                comparisons=[_against_best(rows, pairs) for rows in compared if len(rows) > 1],
            )
        )
    design_facts: Row = store.need_json(layout.EVALUATION_DESIGN)
    return EvaluationReport(
        is_simple=p.anew is None and len({(row["model"], row["metric"]) for row in tables[0]}) < 2,
        facts=_facts(p, design_facts, tables[0], task),
        settings=settings,
        gap=[_gap(rows, methods) for rows in _by(read_table(store, "gap"), PLACE)],
        cost=cost,
    )


def _by(rows: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    """Group rows by the values of some keys, in order of first appearance."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())


def _curves(rows: Sequence[Row], methods: Sequence[str], **columns: str) -> list[Curve]:
    """Return one curve for each method by number of features; `columns` names the column of each part of a curve."""
    curves = []
    for method in methods:
        points = [row for row in rows if row["method"] == method and row["n_selected"]]
        points.sort(key=lambda row: row["n_selected"])
        parts = {"n_selected": "n_selected", **columns}.items()
        if points:
            curves.append(Curve(label=method, **{part: [row[column] for row in points] for part, column in parts}))
    return curves


# ----------------------------------------------------------------------------------------- values by number of features
def _put_ranges(store: Store, means: Sequence[Row]) -> None:
    """Add the lowest and the highest of the values of each mean, None without a table of the values."""
    ranges: dict[tuple[Any, ...], Row] = {}
    if (table := read_parquet(store, layout.EVALUATION_PARQUET, [*POINT, "value"])) is not None:
        value_ranges = table.group_by(POINT).aggregate([("value", "min"), ("value", "max")]).to_pylist()
        ranges = {tuple(row[key] for key in POINT): row for row in value_ranges}
    for row in means:
        value_range = ranges.get(tuple(row[key] for key in POINT), {})
        row |= {key: value_range.get(key) for key in ("value_min", "value_max")}


def _panel(rows: Sequence[Row], design: Design) -> CurvePanel:
    curves = _curves(rows, design.methods, mean="mean", std="std", low="value_min", high="value_max")
    for name, size in design.baselines:  # each has one value for all numbers of selected features
        for row in (row for row in rows if row["method"] == name and row["n_selected"] == size):
            parts = {part: [row[part]] * len(design.sizes) for part in ("mean", "std")}
            curves.append(Curve(label=BASELINES[name], n_selected=design.sizes, **parts))
    return CurvePanel.model_validate({**rows[0], "curves": curves})


# ---------------------------------------------------------------------------------------------------------- sensitivity
def _against_labels(rows: Sequence[Row], methods: Sequence[str]) -> list[Sensitivity]:
    """Return means over all numbers of features, by amount of labels."""
    figures = []
    for group in _by(rows, ("model", "metric", "n_classes")):
        amounts = sorted({row["labels"] for row in group if row["labels"] is not None})
        points = [(method, row["labels"], row) for method in methods for row in group if row["method"] == method]
        figures += _figure("labels", group[0], amounts, points)
    return figures


def _against_grids(rows: Sequence[Row], grids: Mapping[str, Sequence[Any]]) -> list[Sensitivity]:
    """Return means by each grid parameter, one curve for each amount of labels and other grid values."""
    figures = []
    varied = [{**row, "base": grids[row["method"]][0]} for row in rows if row["method"] in grids]
    for group in _by(varied, ("model", "metric", "n_classes", "base")):
        for key in grids[group[0]["method"]][1]:
            points = []
            for row in group:
                chosen = grids[row["method"]][1]
                others = [f"{name}={as_word(value)}" for name, value in chosen.items() if name != key]
                amount = [] if row["labels"] is None else [f"labels {row['labels']:g}"]
                points.append((" ".join([*others, *amount]) or row["base"], chosen[key], row))
            values = {json.dumps(value): value for _, value, _ in points}
            figures += _figure(key, group[0], list(values.values()), points)
    return figures


def _figure(name: str, row: Row, values: Sequence[Any], points: Sequence[tuple[str, Any, Row]]) -> list[Sensitivity]:
    """Return the figure of means by `values` of a parameter, or none for a single value.

    Each of `points` has the label of its curve, the value of the parameter and the row of the mean. `row` is one of the
    rows, for what they share.
    """
    if len(values) < 2:
        return []
    lines: dict[str, dict[str, Row]] = {}
    for label, value, mean in points:
        lines.setdefault(label, {})[json.dumps(value)] = mean
    curves = []
    for label, line in lines.items():
        means = [line.get(json.dumps(value), {}) for value in values]
        curves.append(Curve(label=label, **{key: [mean.get(key) for mean in means] for key in ("mean", "low", "high")}))
    ticks = [f"{value:g}" if isinstance(value, float) else as_word(value) for value in values]
    figure = {"name": name, "ticks": ticks, "places": values, "labels": None, "curves": curves}
    return [Sensitivity.model_validate({**row, **figure})]


# ------------------------------------------------------------------------------------------------------------ stability
def _stability(rows: Sequence[Row], methods: Sequence[str]) -> CurvePanel:
    return CurvePanel.model_validate(
        {**rows[0], "curves": _curves(rows, methods, mean="kuncheva", rankings="n_rankings")}
    )


def _most_selected(rows: Sequence[Row]) -> list[Frequent]:
    """Return the most frequently selected features of each method.

    They are counted at the largest number of features up to :data:`FREQUENT`, or at the smallest one if that is larger.
    """
    tables = []
    for group in _by(rows, ("n_classes", "labels", "method")):
        sizes = {row["n_selected"] for row in group}
        size = max(n for n in sizes if n <= max(FREQUENT, min(sizes)))
        shown = [row for row in group if row["n_selected"] == size][:FREQUENT]
        tables.append(Frequent.model_validate({**shown[0], "rows": shown}))
    return tables


# ---------------------------------------------------------------------------------------------------------- comparisons
def _against_best(rows: Sequence[Row], comparisons: Sequence[Row]) -> CurvePanel:
    """Return the difference of each method to the best one, in the mean over all numbers of features."""
    ordered = sorted(rows, key=lambda row: row["mean"], reverse=rows[0]["higher_is_better"])
    best = ordered[0]["method"]
    pairs: dict[str, Row] = {}
    for pair in comparisons:
        if pair["n_selected"] is None and all(pair[key] == rows[0][key] for key in PLACE):
            one = reversed_pair(pair) if pair["method"] == best else pair
            if one["other"] == best:
                pairs[one["method"]] = one
    shown = [{**pairs.get(row["method"], {}), "label": row["method"], "mean": row["mean"]} for row in ordered]
    return CurvePanel.model_validate({**rows[0], "best": best, "rows": shown})


def _gap(rows: Sequence[Row], methods: Sequence[str]) -> CurvePanel:
    overall = [{**row, "label": row["method"], "difference": row["gap"]} for row in rows if row["n_selected"] is None]
    curves = _curves(rows, methods, mean="gap", low="low", high="high")
    return CurvePanel.model_validate({**rows[0], "rows": overall, "curves": curves})


# --------------------------------------------------------------------------------------------------------------- design
def _facts(p: EvaluationParameters, facts: Mapping[str, Any], means: Sequence[Row], task: Task) -> EvaluationDesign:
    return EvaluationDesign.model_validate(
        {
            **p.keys.model_dump(),
            **facts,
            "models": [_model_sentence(spec, task, p) for spec in p.models],
            "metrics": {row["metric"]: row["higher_is_better"] for row in means},
            "n_unlabeled": facts["n_unlabeled"] if p.anew is not None else None,
            "task": task,
            "n_informative": len(p.informative),
            "seed": p.keys.random_state,
        }
    )


def _model_sentence(spec: ModelSpec, task: Task, p: EvaluationParameters) -> str:
    kind = {"classification": "classifier", "regression": "regressor"}.get(family_of(spec, task), "")
    parameters = dict(spec.parameters)
    words = f"{spec.name} {kind}" if spec.name in ("linear-svm", "rbf-svm", "ridge") else spec.name
    if spec.name == "knn":
        words = f"{parameters.pop('n_neighbors', 5)}-nearest-neighbor {kind}"
    if parameters_given := ", ".join(f"{key}={as_word(value)}" for key, value in parameters.items()):
        words = f"{words} ({parameters_given})"
    if p.keys.scaling:
        in_folds = uses_folds(spec, "inductive" if p.keys.setting == "inductive" else "transductive")
        words += ", on z-scores of the training fold" if in_folds else ", on z-scores"
    return words if spec.label == spec.name else f"{spec.label}: {words}"
