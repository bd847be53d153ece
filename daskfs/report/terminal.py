"""Lines of a finished run on terminals and in notebooks: the verdict, and the first features of each method."""

from __future__ import annotations

import html
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, zip_longest
from typing import Any

from daskfs.report.values import shorten
from daskfs.run_warning import CHANGES, HINT, LIMITS, VOIDS, RunWarning

BEST = 10
"""Features of each method that are listed first."""
BASELINES = {"AllFeatures": "all features", "MajorityClass": "majority class", "MedianTarget": "median target"}
"""Baselines of an evaluation in words."""
GAP = "  "
LONGEST_NAME = 24
"""Characters of a name that are shown in a column."""


def verdict_lines(verdict: Mapping[str, Any] | None, n_features: int) -> list[str]:
    """Return the verdict as sentences, nothing without one."""
    if verdict is None:
        return []
    return [sentence for sentence in (verdict_sentence(verdict, n_features), comparison_sentence(verdict)) if sentence]


def verdict_html(verdict: Mapping[str, Any] | None, n_features: int) -> str:
    """Return the verdict as paragraphs of HTML, nothing without one."""
    return "".join(f"<p>{html.escape(sentence)}.</p>" for sentence in verdict_lines(verdict, n_features))


def verdict_sentence(verdict: Mapping[str, Any], n_features: int) -> str:
    """Return the best method and size, its score, the number of choices, and what makes the verdict doubtful."""
    low, high = verdict["low"], verdict["high"]
    interval = "" if low is None or high is None else f" [{_value(low)}, {_value(high)}]"
    rows = "on held-out rows" if verdict["setting"] == "inductive" else "on rows that the selection saw"
    chosen = "" if verdict["n_compared"] == 1 else f", best of {verdict['n_compared']} compared"
    if chosen and not verdict["is_corrected"]:
        chosen += ", and too good by that choice"
    doubts = f" ({'; '.join(verdict['doubts'])})" if verdict.get("doubts") else ""
    return (
        f"{verdict['method']} with {verdict['n_selected']:,} of {n_features:,} features: "
        f"{metric_name(verdict['metric'])} {_value(verdict['score'])}{interval} {rows}{chosen}{doubts}"
    )


def comparison_sentence(verdict: Mapping[str, Any]) -> str:
    """Return the values of the baselines, and the agreement of the folds; empty without any."""
    names = {
        "all_features": "all features",
        "random_order": "random order",
        "no_feature": BASELINES.get(verdict["no_feature_name"], ""),
    }
    parts = [f"{name} {_value(verdict[key])}" for key, name in names.items() if verdict[key] is not None]
    sentences = [f"for comparison: {', '.join(parts)}"] if parts else []
    if verdict["agreement"] is not None:
        sentences.append(f"two folds select {verdict['agreement']:.0%} of the same features")
    return "; ".join(sentences)


def significance_sentence(tests: Mapping[str, Any] | None) -> str:
    """Return a sentence on the features that are more than chance, by method; empty if none were tested."""
    if not tests or not tests["methods"]:
        return ""
    counts: dict[str, list[str]] = {}
    for one in tests["methods"]:
        number = f"{one['method']} {one['n_significant']:,} of {one['n_tested']:,}"
        counts.setdefault(one["meaning"], []).append(number)
    parts = (f"{', '.join(numbers)} {meaning}" for meaning, numbers in counts.items())
    return f"more than chance, at a false discovery rate of {100 * tests['level']:g} %: {'; '.join(parts)}"


def metric_name(metric: str) -> str:
    """Return the words of a metric's name."""
    return metric.upper() if metric in ("rmse", "nmi") else metric.replace("_", " ")


def _value(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}" if abs(value) >= 1 else f"{value:.3f}"


def best_lines(best: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of the first features of each method, as many methods as the terminal is wide.

    `best` has for each method, in the order shown, its name, those of its first features, and whether it is that of the
    verdict: "method", "features" and "is_best".
    """
    if not best:
        return []
    columns = [[method_heading(one), *(shorten(name, LONGEST_NAME) for name in one["features"])] for one in best]
    widths = [max(map(len, column)) for column in columns]
    room = shutil.get_terminal_size().columns - 2
    shown = max(1, sum(end <= room for end in accumulate(len(GAP) + width for width in widths)))
    rows = list(zip_longest(*columns[:shown], fillvalue=""))
    lines = [f"{GAP}  {_row(rows[0], widths)}"]
    lines += [f"{rank:>2}{GAP}{_row(row, widths)}" for rank, row in enumerate(rows[1:], start=1)]
    left_out = len(columns) - shown
    more = f"and {left_out} more methods in ranking.csv" if left_out > 1 else "and 1 more method in ranking.csv"
    return [*lines, more] if left_out else lines


def warning_lines(
    warnings: Sequence[RunWarning], levels: Sequence[str] = (VOIDS, CHANGES), *, counted: bool = True
) -> list[str]:
    """Return lines on the warnings of some levels, and one on how many others there are if `counted`."""
    lines = [f"warning: {one}." for one in warnings if one.level in levels]
    counts = Counter(one.level for one in warnings if one.level not in levels)
    words = {LIMITS: ("limit of the result", "limits of the result"), HINT: ("hint", "hints")}
    others = [f"{counts[level]} {names[counts[level] > 1]}" for level, names in words.items() if counts[level]]
    return [*lines, f"note: {' and '.join(others)} in the report."] if others and counted else lines


def method_heading(one: Mapping[str, Any]) -> str:
    """Return the name of a method in the list of the best features, with a mark if it is that of the verdict."""
    return f"{shorten(one['method'], LONGEST_NAME)}{' (best)' if one['is_best'] else ''}"


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()
