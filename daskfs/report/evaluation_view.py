"""Template variables of the evaluation: figures and tables of each setting, and the gap between settings."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from daskfs.report.model import Cost, Curve, CurvePanel, Difference, EvaluationReport, Frequent, Sensitivity, Setting
from daskfs.report.plots import Plot, interval_curves, svg_of
from daskfs.report.table_cells import Cell, Fact, number_cell
from daskfs.report.values import (
    DASH,
    TIMES_SIGN,
    as_float,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_spread,
    format_text,
    plottable,
)

FIGURES_SHOWN = 1
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


def evaluation_view(evaluation: EvaluationReport) -> dict[str, Any] | None:
    """Return the template variables of the section; None without evaluation."""
    if not evaluation.settings:
        return None
    is_simple = evaluation.is_simple
    return {
        "is_simple": is_simple,
        "facts": _design(evaluation),
        "settings": [_setting(one, place, is_simple=is_simple) for place, one in enumerate(evaluation.settings, 1)],
        "gap": _split_folded([_gap(one, i) for i, one in enumerate(evaluation.gap, 1)]),
        "cost": [] if evaluation.cost is None or is_simple else _cost(evaluation.cost),
    }


def evaluation_contents(view: dict[str, Any] | None) -> list[tuple[str, str]]:
    """Return anchors and names of the parts of the section; empty if there is only one."""
    if view is None or (len(view["settings"]) < 2 and not view["gap"]):
        return []
    parts = [(setting["anchor"], setting["name"]) for setting in view["settings"]]
    return parts + ([("evaluation-gap", "Gap")] if view["gap"] else [])


# --------------------------------------------------------------------------------------------------------------- design
def _design(evaluation: EvaluationReport) -> list[Fact]:
    facts = evaluation.facts
    metrics = [f"{name} ({'higher' if higher else 'lower'} is better)" for name, higher in facts.metrics.items()]
    rows = [
        ("Model" if len(facts.models) < 2 else "Models", "; ".join(facts.models) or DASH),
        ("Metric" if len(metrics) < 2 else "Metrics", "; ".join(metrics) or DASH),
        (
            f"Splits {TIMES_SIGN} repeats",
            f"{format_count(facts.n_splits)} {TIMES_SIGN} {format_count(facts.n_repeats)}",
        ),
    ]
    if facts.folds != "stratified":
        rows.append(("Folds", _FOLDS.get(facts.folds, DASH)))
    rows.append(("Rows used", f"{format_count(facts.n_rows)} of {format_count(facts.n_rows_total)}"))
    if facts.n_unlabeled:
        rows.append(("Rows without labels", format_count(facts.n_unlabeled)))
    if facts.labels:
        words = ", ".join(map(amount_in_words, facts.labels))
        of = "of all rows" if facts.task == "regression" else "of each class"
        drawn = f"{words} {of}, each drawn {format_count(facts.n_draws)} times"
        trained = _TRAINED.get(facts.train_on, DASH)
        rows += [("Labels that the selection sees", drawn), ("Labels that train models", trained)]
    if facts.n_classes:
        classes = ", ".join(map(format_count, facts.n_classes))
        rows.append(("Classes", f"{classes}, each drawn {format_count(facts.n_subsets)} times"))
    if facts.n_informative:
        rows.append(("Features known to matter", format_count(facts.n_informative)))
    names = [format_text(setting.setting) for setting in evaluation.settings]
    return [*rows, ("Setting", " and ".join(names)), ("Seed", facts.seed)]


def amount_in_words(amount: object) -> str:
    """Format an amount of labels: a count, or a fraction in percent."""
    number = as_float(amount)
    return format_percent(number) if number is not None and 0 < number < 1 else format_count(amount)


def _place(panel: CurvePanel) -> str:
    """Name a panel by its model, metric, number of classes and amount of labels."""
    words = [panel.model] if panel.model else []
    return ", ".join([*words, format_text(panel.metric), *_amounts(panel)])


def _amounts(one: CurvePanel | Frequent) -> list[str]:
    words = [] if one.n_classes is None else [f"{format_count(one.n_classes)} classes"]
    return words if one.labels is None else [*words, f"labels {amount_in_words(one.labels)}"]


# -------------------------------------------------------------------------------------------------------------- setting
def _setting(setting: Setting, place: int, *, is_simple: bool) -> dict[str, Any]:
    prefix = "evaluation" if is_simple else f"evaluation{place}"
    more = Setting() if is_simple else setting
    return {
        "anchor": f"evaluation-setting-{place}",
        "name": format_text(setting.setting).capitalize(),
        "transductive": setting.setting == "transductive",
        "inductive": setting.setting == "inductive",
        "saw_labels": ", ".join(setting.saw_labels),
        "panels": _split_folded(
            [_panel(panel, i, prefix, is_named=len(setting.panels) > 1) for i, panel in enumerate(setting.panels, 1)]
        ),
        "sensitivity": _split_folded([_sensitivity(one, i, prefix) for i, one in enumerate(more.sensitivity, 1)]),
        "stability": _split_folded([_stability(one, i, prefix) for i, one in enumerate(more.stability, 1)]),
        "frequent": [_frequency_view(one) for one in more.frequent],
        "comparisons": _split_folded([_comparison(one) for one in more.comparisons]),
    }


def _split_folded(items: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Split figures into those shown unfolded and those folded; None without figures."""
    shown = [item for item in items if item["figure"] is not None or item.get("rows")]
    return {"open": shown[:FIGURES_SHOWN] or items[:1], "more": shown[FIGURES_SHOWN:]} if items else None


def _figure(plot: Plot | None, index: int, prefix: str) -> str | None:
    """Return a plot as SVG, if it is among the first of its kind."""
    return svg_of(plot, prefix) if index <= DRAWN else None


def panel_plot(panel: CurvePanel) -> Plot | None:
    """Return the plot of a metric by number of selected features; None without values."""
    metric, better = _metric(panel)
    return interval_curves(panel.curves, y_name=f"{metric} ({better} is better)", what=metric)


def _metric(panel: CurvePanel | Sensitivity) -> tuple[str, str]:
    """Return the name of the metric, and whether higher or lower values are better."""
    return panel.metric or "score", "higher" if panel.higher_is_better else "lower"


def stability_plot(one: CurvePanel) -> Plot | None:
    """Return the plot of the stability of selections by their size; None without values."""
    y_name = "Kuncheva index (1: always the same features, 0: as by chance)"
    return interval_curves(one.curves, y_name=y_name, what="Kuncheva index", with_zero=True)


def _panel(panel: CurvePanel, index: int, prefix: str, *, is_named: bool) -> dict[str, Any]:
    metric, better = _metric(panel)
    panel_id = prefix if prefix == "evaluation" else f"{prefix}-{index}"
    return {
        "name": _place(panel) if is_named else "",
        "metric": metric,
        "better": better,
        "figure": _figure(panel_plot(panel), index, panel_id),
        "is_drawn": index <= DRAWN,
        **_table(panel.curves, higher=panel.higher_is_better),
    }


def _table(curves: list[Curve], *, higher: bool) -> dict[str, Any]:
    """Return a table of mean and standard deviation by method and number of features; column bests are marked."""
    lines = [
        {
            place: (mean, std)
            for n, mean, std in zip_longest(curve.n_selected, curve.mean, curve.std)
            if (place := plottable(n)) == place
        }
        for curve in curves
    ]
    columns = sorted({n for cells in lines for n in cells})
    rows: list[tuple[str, list[Cell]]] = [(format_text(curve.label), []) for curve in curves]
    for n in columns:
        pairs = [cells.get(n, (None, None)) for cells in lines]
        plottable_means = [value for mean, _ in pairs if (value := plottable(mean)) == value]
        best = (max if higher else min)(plottable_means, default=None)
        for (_, row), (mean, std) in zip(rows, pairs, strict=True):
            below = "" if std is None else f"± {format_spread(mean, std)}"
            row.append(number_cell(mean, below=below, best=plottable(mean) == best))
    return {"columns": [format_count(n) for n in columns], "rows": rows}


# --------------------------------------------------------------------------------------------------------- sensitivity
def _sensitivity(one: Sensitivity, index: int, prefix: str) -> dict[str, Any]:
    """Plot means over all numbers of features, by amount of labels or a grid parameter."""
    metric, better = _metric(one)
    places = [plottable(place) for place in one.places]
    is_log = len(places) > 1 and all(place > 0 for place in places) and max(places) / min(places) >= 10
    x = places if is_log else range(1, len(one.ticks) + 1)
    x_name = "labels that the selection sees" if one.name == "labels" and not one.base else format_text(one.name)
    plot = interval_curves(
        [curve.model_copy(update={"n_selected": x}) for curve in one.curves if one.ticks],
        x_name=x_name,
        y_name=f"{metric} ({better} is better)",
        what=metric,
        ticks=None if is_log else one.ticks,
        cut_bars=True,
    )
    figure = _figure(plot, index, f"{prefix}-sensitivity{index}")
    of = f"{one.base}: " if one.base else ""
    return {"name": f"{of}{_place(one)} by {x_name}", "figure": figure, "n_rankings": ""}


def _stability(one: CurvePanel, index: int, prefix: str) -> dict[str, Any]:
    n_rankings = max((n for curve in one.curves for n in curve.rankings if n), default=None)
    return {
        "name": ", ".join(_amounts(one)),
        "figure": _figure(stability_plot(one), index, f"{prefix}-stability{index}"),
        "n_rankings": format_count(n_rankings),
    }


def _frequency_view(one: Frequent) -> dict[str, Any]:
    words = ", ".join([format_text(one.method), *_amounts(one)])
    return {"name": words, "n_selected": one.n_selected, "rows": one.rows}


def _comparison(one: CurvePanel) -> dict[str, Any]:
    rows = [
        (format_text(row.label), [number_cell(row.mean, best=row.label == one.best), *_difference_cells(row)])
        for row in one.rows
    ]
    return {"name": _place(one), "figure": None, "rows": rows}


def _difference_cells(row: Difference) -> list[Cell]:
    """Return cells of a difference, its interval and its p-value; dashes if there is none."""
    if row.difference is None:
        return [Cell(DASH)] * 3
    has_interval = row.low is not None and row.high is not None
    interval = f"{format_number(row.low)} to {format_number(row.high)}" if has_interval else DASH
    is_tiny = row.p_value is not None and 0 <= row.p_value < 1e-4
    p_value = "< 0.0001" if is_tiny else format_number(row.p_value)
    return [number_cell(row.difference), Cell(interval), Cell(p_value)]


# ------------------------------------------------------------------------------------------------------- both settings
def _gap(one: CurvePanel, index: int) -> dict[str, Any]:
    metric = one.metric or "score"
    names = {"y_name": f"{metric}: inductive minus transductive", "what": f"Gap of {metric}"}
    rows = [
        (format_text(row.label), [number_cell(row.transductive), number_cell(row.inductive), *_difference_cells(row)])
        for row in one.rows
    ]
    plot = interval_curves(one.curves, **names, with_zero=True, cut_bars=True)
    return {"name": _place(one), "figure": _figure(plot, index, f"gap{index}"), "rows": rows}


def _cost(cost: Cost) -> list[Fact]:
    stages = [f"{format_text(stage.name)} {format_seconds(stage.seconds)}" for stage in cost.stages]
    return [
        ("Rankings", format_count(cost.n_selections)),
        ("Units of tests", format_count(cost.n_tests)),
        ("Time of units", ", ".join(stages) or DASH),
        ("Wall time", format_seconds(cost.wall_seconds)),
        ("Threads", format_count(cost.threads)),
        ("Waiting and scheduling", format_percent(cost.overhead)),
    ]
