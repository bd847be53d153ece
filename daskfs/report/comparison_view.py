"""Template variables of the page of a comparison: what is formatted or drawn here rather than in the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daskfs.report.plots import critical_difference_diagram
from daskfs.report.table_cells import Cell, Fact, number_cell
from daskfs.report.values import DASH, as_float, format_count, format_number, format_text, format_time, plottable


def comparison_page(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return all variables of the template; SVGs are plain strings here."""
    ranks, sets = summary["average_ranks"], summary["data_sets"]
    figure = critical_difference_diagram(
        [row["average_rank"] for row in ranks],
        [row["method"] for row in ranks],
        groups=summary["alike"],
        critical_difference=summary["critical_difference"],
        prefix="ranks-",
    )
    sections = [("notices", "Notices")] * bool(summary["notes"])
    sections += [("ranks", "Average ranks"), ("means", "Methods by data set"), ("best", "Best methods")]
    n_selected = summary["n_selected"]
    return {
        **summary,
        "title": summary["title"] or "Methods over data sets",
        "created_on": format_time(summary["created"]),
        "tiles": [
            ("Data sets", format_count(len(sets)), ""),
            ("Methods ranked", format_count(len(ranks)), ""),
            ("Model", format_text(summary["model"]), ""),
            ("Features selected", "mean over all" if n_selected is None else format_count(n_selected), ""),
        ],
        "sections": sections,
        "figure": figure,
        "test": _test(summary["friedman"]) if summary["friedman"] else [],
        "means": _means(sets),
    }


def _test(friedman: Mapping[str, Any]) -> list[Fact]:
    chi_square = f"{format_number(friedman.get('chi_square'))}, p = {format_p(friedman.get('p_chi_square'))}"
    f = "infinite: all data sets rank the methods in one order"
    if friedman.get("f") is not None:
        f = f"{format_number(friedman['f'])}, p = {format_p(friedman['p_f'])}"
    return [("Friedman's chi-square", chi_square), ("Iman and Davenport's F", f)]


def format_p(value: object) -> str:
    """Format a p-value with four decimal places, or as "less than 0.001"; a dash if it is None."""
    number = plottable(value)
    return "less than 0.001" if number < 0.001 else format_number(None if number != number else round(number, 4))


def _means(sets: list[dict[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """Return the rows of the table of methods by data set; methods are in order of first appearance."""
    means_of_sets = [{row["method"]: row for row in one["means"]} for one in sets]
    labels = dict.fromkeys(label for of_set in means_of_sets for label in of_set)
    return [
        (label, [_mean(of_set.get(label), one["best"]) for of_set, one in zip(means_of_sets, sets, strict=True)])
        for label in labels
    ]


def _mean(row: dict[str, Any] | None, best: str) -> Cell:
    if row is None or as_float(row["mean"]) is None:
        return Cell(DASH)
    return number_cell(row["mean"], below=f"rank {format_number(row['rank'])}", best=row["method"] == best)
