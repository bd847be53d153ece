"""Template variables of the page of a comparison."""

from __future__ import annotations

from typing import Any

from daskfs.report.evaluation_view import amount_in_words
from daskfs.report.plots import critical_difference_diagram
from daskfs.report.table_cells import Cell, Fact
from daskfs.report.values import (
    MISSING,
    as_float,
    as_mapping,
    format_count,
    format_number,
    format_text,
    format_time,
    full_number,
    mappings,
    plottable,
    sequence,
)


def comparison_page(summary: dict[str, Any]) -> dict[str, Any]:
    """Return all variables of the template; SVGs are plain strings here."""
    ranks, sets = mappings(summary.get("average_ranks")), mappings(summary.get("data_sets"))
    friedman, shown = as_mapping(summary.get("friedman")), [_data_set(one) for one in sets]
    figure = critical_difference_diagram(
        [row.get("average_rank") for row in ranks],
        [str(row.get("method")) for row in ranks],
        groups=sequence(summary.get("alike")),
        critical_difference=summary.get("critical_difference"),
        prefix="ranks-",
    )
    notes = [str(text) for text in sequence(summary.get("notes"))]
    sections = [("notices", "Notices")] * bool(notes)
    sections += [("ranks", "Average ranks"), ("means", "Methods by data set"), ("best", "Best methods")]
    return {
        "title": format_text(summary.get("title") or "Methods over data sets"),
        "version": summary.get("version"),
        "created": format_time(summary.get("created")),
        "created_iso": summary.get("created"),
        "tiles": [
            ("Data sets", format_count(len(sets)), ""),
            ("Methods ranked", format_count(len(ranks)), ""),
            ("Model", format_text(summary.get("model")), ""),
            ("Features selected", _sizes(summary.get("n_selected")), ""),
        ],
        "sections": sections,
        "notes": notes,
        "setting": summary.get("setting"),
        "figure": figure,
        "n_sets": format_count(len(sets)),
        "critical_difference": format_number(summary.get("critical_difference")),
        "test": _test(friedman),
        "ranks": [(str(row.get("method")), _number(row.get("average_rank"))) for row in ranks],
        "sets": shown,
        "means": _means(sets),
    }


def _sizes(n_selected: object) -> str:
    return "mean over all" if n_selected is None else format_count(n_selected)


def _number(value: object, **more: Any) -> Cell:
    return Cell(format_number(value), full_number(value), **more)


def _test(friedman: dict[str, Any]) -> list[Fact]:
    if not friedman:
        return []
    return [
        (
            "Friedman's chi-square",
            f"{format_number(friedman.get('chi_square'))}, p = {format_p(friedman.get('p_chi_square'))}",
        ),
        ("Iman and Davenport's F", _iman_davenport(friedman)),
    ]


def _iman_davenport(friedman: dict[str, Any]) -> str:
    if friedman.get("f") is None:
        return "infinite: all data sets rank the methods in one order"
    return f"{format_number(friedman['f'])}, p = {format_p(friedman.get('p_f'))}"


def format_p(value: object) -> str:
    """Format a p-value with four decimal places, or as "less than 0.001"."""
    number = plottable(value)
    return "less than 0.001" if number < 0.001 else format_number(None if number != number else round(number, 4))


def _means(sets: list[dict[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """Return the rows of the table of methods by data set; methods are in order of first appearance."""
    labels = list(dict.fromkeys(str(row.get("method")) for one in sets for row in mappings(one.get("means"))))
    found = [{str(row.get("method")): row for row in mappings(one.get("means"))} for one in sets]
    return [
        (label, [_mean(of_set.get(label), one) for of_set, one in zip(found, sets, strict=True)]) for label in labels
    ]


def _mean(row: dict[str, Any] | None, one: dict[str, Any]) -> Cell:
    if row is None or as_float(row.get("mean")) is None:
        return Cell(MISSING)
    rank = f"rank {format_number(row.get('rank'))}"
    return _number(row.get("mean"), below=rank, best=row.get("method") == one.get("best"))


def _data_set(one: dict[str, Any]) -> dict[str, Any]:
    better = "higher" if one.get("higher_is_better") else "lower"
    facts: list[Fact] = [
        ("Rows", format_count(one.get("n_samples"))),
        ("Features", format_count(one.get("n_features"))),
        ("Task", format_text(one.get("task"))),
        ("Judged by", f"{format_text(one.get('metric'))} of {format_text(one.get('model'))}"),
        ("Best", format_text(one.get("best"))),
    ]
    return {
        "name": str(one.get("name")),
        "report": one.get("report"),
        "metric": format_text(one.get("metric")),
        "better": better,
        "best": format_text(one.get("best")),
        "facts": facts,
        "differences": [_difference(row) for row in mappings(one.get("differences"))],
    }


def _difference(row: dict[str, Any]) -> dict[str, Any]:
    low, high = row.get("low"), row.get("high")
    has_interval = as_float(low) is not None and as_float(high) is not None
    return {
        "other": str(row.get("other")),
        "labels": "all" if row.get("labels") is None else amount_in_words(row.get("labels")),
        "difference": _number(row.get("difference")),
        "interval": f"{format_number(low)} to {format_number(high)}" if has_interval else MISSING,
        "p": MISSING if as_float(row.get("p_value")) is None else format_p(row.get("p_value")),
        "n_pairs": format_count(row.get("n_pairs")),
    }
