"""Template variables of the evaluation: figures and tables of each setting, and the gap between settings."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from daskfs.report.model import Evaluation, Setting
from daskfs.report.plots import evaluation_curves, interval_curves
from daskfs.report.table_cells import Cell, Fact, number_cell
from daskfs.report.values import (
    MISSING,
    TIMES,
    as_float,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_spread,
    format_text,
    mappings,
    plottable,
    sequence,
)

SHOWN = 6
"""Unfolded figures of one kind; the others are folded."""
DRAWN = 12
"""Figures of one kind that are drawn."""
_TRAINED = {"all": "all labels of the training rows", "labeled": "the labels that the selection saw"}
_FOLDS = {
    "stratified": "stratified",
    "plain": "not stratified",
    "grouped": "no group on both sides",
    "timed": "trained on earlier rows",
}


def evaluation_view(evaluation: Evaluation) -> dict[str, Any] | None:
    """Return the template variables of the section; None without evaluation."""
    if not evaluation.settings:
        return None
    is_simple = evaluation.is_simple
    return {
        "is_simple": is_simple,
        "facts": _design(evaluation),
        "settings": [_setting(one, place, is_simple=is_simple) for place, one in enumerate(evaluation.settings, 1)],
        "gap": _gaps(evaluation.gap),
        "cost": _cost(evaluation.cost) if evaluation.cost and not is_simple else [],
    }


def evaluation_contents(view: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return anchors and names of the parts of the section; empty if there is only one."""
    if view is None or (len(view["settings"]) < 2 and not view["gap"]):
        return []
    parts = [(setting["anchor"], setting["name"]) for setting in view["settings"]]
    return parts + ([("evaluation-gap", "Gap")] if view["gap"] else [])


# --------------------------------------------------------------------------------------------------------------- design
def _design(evaluation: Evaluation) -> list[Fact]:
    facts = evaluation.facts
    models = [format_text(model) for model in sequence(facts.get("models"))]
    metrics = [
        f"{format_text(name)} ({'higher' if higher else 'lower'} is better)"
        for name, higher in (facts.get("metrics") or {}).items()
    ]
    used, total = (format_count(facts.get(key)) for key in ("n_rows", "n_rows_total"))
    found = [
        ("Model" if len(models) < 2 else "Models", "; ".join(models) or MISSING),
        ("Metric" if len(metrics) < 2 else "Metrics", "; ".join(metrics) or MISSING),
        (
            f"Splits {TIMES} repeats",
            f" {TIMES} ".join(format_count(facts.get(key)) for key in ("n_splits", "n_repeats")),
        ),
    ]
    if facts.get("folds") not in (None, "stratified"):
        found.append(("Folds", _FOLDS.get(str(facts.get("folds")), MISSING)))
    found.append(("Rows used", f"{used} of {total}"))
    if as_float(facts.get("n_unlabeled")):
        found.append(("Rows without labels", format_count(facts.get("n_unlabeled"))))
    found += _labels(facts)
    if sequence(facts.get("n_classes")):
        classes = ", ".join(format_count(number) for number in sequence(facts.get("n_classes")))
        found.append(("Classes", f"{classes}, each drawn {format_count(facts.get('n_subsets'))} times"))
    if as_float(facts.get("n_informative")):
        found.append(("Features known to matter", format_count(facts.get("n_informative"))))
    names = [format_text(setting.setting) for setting in evaluation.settings]
    return [*found, ("Setting", " and ".join(names)), ("Seed", format_text(facts.get("seed")))]


def _labels(facts: dict[str, Any]) -> list[Fact]:
    amounts = sequence(facts.get("labels"))
    if not amounts:
        return []
    of = "of all rows" if facts.get("task") == "regression" else "of each class"
    words = ", ".join(amount_in_words(amount) for amount in amounts)
    trained = _TRAINED.get(str(facts.get("train_on")), MISSING)
    drawn = f"{words} {of}, each drawn {format_count(facts.get('n_draws'))} times"
    return [("Labels that the selection sees", drawn), ("Labels that train models", trained)]


def amount_in_words(amount: object) -> str:
    """Format an amount of labels: a count, or a fraction in percent."""
    number = as_float(amount)
    return format_percent(number) if number is not None and 0 < number < 1 else format_count(amount)


def _place(panel: dict[str, Any]) -> str:
    """Name a panel by its model, metric, number of classes and amount of labels."""
    words = [format_text(panel.get("model"))] if panel.get("model") else []
    words.append(format_text(panel.get("metric")))
    text = ", ".join(words)
    return ", ".join([text, *_amounts(panel)])


def _amounts(panel: dict[str, Any]) -> list[str]:
    words = []
    if panel.get("n_classes") is not None:
        words.append(f"{format_count(panel.get('n_classes'))} classes")
    if panel.get("labels") is not None:
        words.append(f"labels {amount_in_words(panel.get('labels'))}")
    return words


# -------------------------------------------------------------------------------------------------------------- setting
def _setting(setting: Setting, place: int, *, is_simple: bool) -> dict[str, Any]:
    prefix = "evaluation" if is_simple else f"evaluation{place}"
    view = {
        "anchor": f"evaluation-setting-{place}",
        "name": format_text(setting.setting).capitalize(),
        "transductive": setting.setting == "transductive",
        "inductive": setting.setting == "inductive",
        "saw_labels": ", ".join(setting.saw_labels),
        "panels": _folded(
            [_panel(panel, i, prefix, is_named=len(setting.panels) > 1) for i, panel in enumerate(setting.panels, 1)]
        ),
    }
    if is_simple:
        return {**view, "sensitivity": None, "stability": None, "frequent": [], "comparisons": None}
    return {
        **view,
        "sensitivity": _folded([_sensitivity(one, i, prefix) for i, one in enumerate(setting.sensitivity, 1)]),
        "stability": _folded([_stability(one, i, prefix) for i, one in enumerate(setting.stability, 1)]),
        "frequent": [_frequent(one) for one in setting.frequent],
        "comparisons": _folded([_comparison(one) for one in setting.comparisons]),
    }


def _folded(items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Split figures into those shown unfolded and those folded."""
    shown = [item for item in items if item["figure"] is not None or item.get("rows")]
    if not shown and not items:
        return None
    return {"open": shown[:SHOWN] or items[:1], "more": shown[SHOWN:]}


def _panel(panel: dict[str, Any], index: int, prefix: str, *, is_named: bool) -> dict[str, Any]:
    metric = format_text(panel.get("metric") or "score")
    higher = bool(panel.get("higher_is_better", True))
    curves = mappings(panel.get("curves"))
    figure = None
    if index <= DRAWN:
        own = prefix if prefix == "evaluation" else f"{prefix}-{index}"
        figure = evaluation_curves(curves, prefix=own, metric=metric, higher_is_better=higher)
    return {
        "name": _place(panel) if is_named else "",
        "metric": metric,
        "better": "higher" if higher else "lower",
        "figure": figure,
        "is_drawn": index <= DRAWN,
        **_table(curves, higher=higher),
    }


def _table(curves: list[dict[str, Any]], *, higher: bool) -> dict[str, Any]:
    """Return a table of mean and standard deviation by method and number of features; column bests are marked."""
    keys = ("n_selected", "mean", "std")
    found = [
        {
            place: (mean, std)
            for n, mean, std in zip_longest(*(sequence(curve.get(key)) for key in keys))
            if (place := plottable(n)) == place
        }
        for curve in curves
    ]
    columns = sorted({n for cells in found for n in cells})
    best = {}
    for n in columns:
        known = [value for cells in found if n in cells and (value := plottable(cells[n][0])) == value]
        best[n] = (max(known) if higher else min(known)) if known else None
    rows = []
    for curve, cells in zip(curves, found, strict=True):
        row = []
        for n in columns:
            mean, std = cells.get(n, (None, None))
            below = "" if std is None else f"± {format_spread(mean, std)}"
            is_best = best[n] is not None and plottable(mean) == best[n]
            row.append(number_cell(mean, below=below, best=is_best))
        rows.append((format_text(curve.get("label")), row))
    return {"columns": [format_count(n) for n in columns], "rows": rows}


# --------------------------------------------------------------------------------------------------------- sensitivity
def _sensitivity(one: dict[str, Any], index: int, prefix: str) -> dict[str, Any]:
    """Plot means over all numbers of features, by amount of labels or a grid parameter."""
    metric = format_text(one.get("metric") or "score")
    better = "higher" if one.get("higher_is_better", True) else "lower"
    ticks = [format_text(tick) for tick in sequence(one.get("ticks"))]
    places = [plottable(place) for place in sequence(one.get("places"))]
    is_log = len(places) > 1 and all(place > 0 for place in places) and max(places) / min(places) >= 10
    x = places if is_log else list(range(1, len(ticks) + 1))
    curves = [{**curve, "n_selected": x} for curve in mappings(one.get("curves"))]
    name = "labels" if one.get("name") == "labels" and not one.get("base") else format_text(one.get("name"))
    x_name = "labels that the selection sees" if name == "labels" and not one.get("base") else name
    of = f"{format_text(one.get('base'))}: " if one.get("base") else ""
    figure = None
    if index <= DRAWN and ticks:
        figure = interval_curves(
            curves,
            prefix=f"{prefix}-sensitivity{index}",
            x_name=x_name,
            y_name=f"{metric} ({better} is better)",
            what=metric,
            ticks=None if is_log else ticks,
            cut_bars=True,
        )
    return {"name": f"{of}{_place(one)} by {x_name}", "figure": figure, "n_rankings": ""}


def _stability(one: dict[str, Any], index: int, prefix: str) -> dict[str, Any]:
    curves = mappings(one.get("curves"))
    figure = None
    if index <= DRAWN:
        figure = interval_curves(
            curves,
            prefix=f"{prefix}-stability{index}",
            x_name="number of selected features",
            y_name="Kuncheva index (1: always the same features, 0: as by chance)",
            what="Kuncheva index",
            with_zero=True,
        )
    rankings = [number for curve in curves for n in sequence(curve.get("rankings")) if (number := as_float(n))]
    return {
        "name": ", ".join(_amounts(one)),
        "figure": figure,
        "n_rankings": format_count(max(rankings, default=None)),
    }


def _frequent(one: dict[str, Any]) -> dict[str, Any]:
    words = ", ".join([format_text(one.get("method")), *_amounts(one)])
    return {"name": words, "n_selected": one.get("n_selected"), "rows": mappings(one.get("rows"))}


def _comparison(one: dict[str, Any]) -> dict[str, Any]:
    rows = [
        (
            format_text(row.get("label")),
            [number_cell(row.get("mean"), best=row.get("label") == one.get("best")), *_paired(row)],
        )
        for row in mappings(one.get("rows"))
    ]
    return {"name": _place(one), "figure": None, "rows": rows}


def _paired(row: dict[str, Any]) -> list[Cell]:
    """Return cells of a difference, its interval and its p-value; dashes if there is none."""
    difference, low, high = row.get("difference", row.get("gap")), row.get("low"), row.get("high")
    if difference is None:
        return [Cell(MISSING)] * 3
    interval = MISSING if low is None or high is None else f"{format_number(low)} to {format_number(high)}"
    return [number_cell(difference), Cell(interval), Cell(_p_value(row.get("p_value")))]


def _p_value(value: object) -> str:
    number = as_float(value)
    return "< 0.0001" if number is not None and 0 <= number < 1e-4 else format_number(value)


# ------------------------------------------------------------------------------------------------------- both settings
def _gaps(gaps: list[dict[str, Any]]) -> dict[str, Any] | None:
    items = []
    for index, one in enumerate(gaps, 1):
        metric = format_text(one.get("metric") or "score")
        figure = None
        if index <= DRAWN:
            figure = interval_curves(
                mappings(one.get("curves")),
                prefix=f"gap{index}",
                x_name="number of selected features",
                y_name=f"{metric}: inductive minus transductive",
                what=f"Gap of {metric}",
                with_zero=True,
                cut_bars=True,
            )
        settings = ("transductive", "inductive")
        rows = [
            (format_text(row.get("label")), [*(number_cell(row.get(key)) for key in settings), *_paired(row)])
            for row in mappings(one.get("rows"))
        ]
        items.append({"name": _place(one), "figure": figure, "rows": rows})
    return _folded(items)


def _cost(cost: dict[str, Any]) -> list[Fact]:
    stages = [
        f"{format_text(stage.get('name'))} {format_seconds(stage.get('seconds'))}"
        for stage in mappings(cost.get("stages"))
    ]
    return [
        ("Rankings", format_count(cost.get("n_selections"))),
        ("Units of tests", format_count(cost.get("n_tests"))),
        ("Time of units", ", ".join(stages) or MISSING),
        ("Wall time", format_seconds(cost.get("wall_seconds"))),
        ("Threads", format_count(cost.get("threads"))),
        ("Waiting and scheduling", format_percent(cost.get("overhead"))),
    ]
