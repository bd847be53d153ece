"""Template variables of a run's report: values are formatted, optional parts are present or ``None``.

Summaries come from finished and interrupted runs, so no key may be assumed to exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from daskfs.report.batches import batch_view
from daskfs.report.evaluation_view import evaluation_contents, evaluation_view
from daskfs.report.method_view import elimination_view, solution_view, trade_off_view
from daskfs.report.plots import histogram, pixel_image, score_curve
from daskfs.report.table_cells import Cell, Fact
from daskfs.report.values import (
    MISSING,
    TIMES,
    as_float,
    as_mapping,
    format_bytes,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_text,
    format_time,
    full_number,
    mappings,
    plottable,
    positive,
    sequence,
)

LOW_RECALL = 0.9
"""Recall of the neighbor search below which the report suggests a remedy."""
BETTER_SEARCH = {
    "cells": "raise graph.recall, or reduce the features first",
    "pynndescent": "raise graph.n_neighbors",
}
"""Remedy for a low recall, by engine."""

_LOG_RANKS = 200
_CLASSES_SHOWN = 40


@dataclass(frozen=True)
class Notice:
    """A notice, and the anchor of the section that it is about."""

    text: str
    anchor: str = ""


@dataclass(frozen=True)
class Graph:
    """One neighbor graph."""

    anchor: str
    name: str
    facts: list[Fact]
    weightings: list[dict[str, Any]]
    figures: list[tuple[str, str]]
    notices: list[Notice] = field(default_factory=list)


def page(summary: dict[str, Any]) -> dict[str, Any]:
    """Return all variables of the template; SVGs are plain strings here."""
    graphs = [_graph(graph, i, summary) for i, graph in enumerate(mappings(summary.get("graphs")), 1)]
    notices = [Notice(str(text)) for text in sequence(summary.get("warnings")) if text not in (None, "")]
    view: dict[str, Any] = {
        "title": format_text(summary.get("title") or "Feature ranking"),
        "version": summary.get("version"),
        "created": format_time(summary.get("created")),
        "created_iso": summary.get("created"),
        "command": summary.get("command"),
        "tiles": _tiles(summary),
        "data": _data(as_mapping(summary.get("data"))),
        "methods": _methods(summary),
        "agreement": _agreement(as_mapping(summary.get("agreement"))),
        "redundancy": _redundancy(as_mapping(summary.get("redundancy"))),
        "batches": batch_view(as_mapping(summary.get("batches"))),
        "evaluation": evaluation_view(as_mapping(summary.get("evaluation"))),
        "graphs": graphs,
        "excluded": _excluded(as_mapping(summary.get("excluded"))),
        "all_ranked": bool(summary.get("excluded")),
        "stages": _stages(mappings(summary.get("stages"))),
        "job": _job(summary.get("job")),
        "versions": [(key, format_text(value)) for key, value in as_mapping(summary.get("versions")).items()],
        "notices": notices + [notice for graph in graphs for notice in graph.notices],
    }
    view["contents"] = _contents(view)
    return view


def _contents(view: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    methods = [(method["anchor"], method["label"]) for method in view["methods"]]
    sections = [
        ("notices", "Notices", bool(view["notices"])),
        ("data", "Data", True),
        ("ranking", "Rankings", True),
        ("redundancy", "Redundancy filter", view["redundancy"] is not None),
        ("agreement", "Agreement", view["agreement"] is not None),
        ("batches", "Batches", view["batches"] is not None),
        ("evaluation", "Evaluation", True),
        ("graphs", "Neighbor graphs", True),
        ("excluded", "Excluded features", True),
        ("stages", "Execution", True),
        ("job", "Job", True),
    ]
    children = {"ranking": methods, "evaluation": evaluation_contents(view["evaluation"])}
    return [(key, name, children.get(key, [])) for key, name, shown in sections if shown]


def _tiles(summary: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return the key numbers, each as name, value and remark."""
    data = as_mapping(summary.get("data"))
    seconds = summary.get("seconds")
    n_classes = len(as_mapping(data.get("classes")))
    labeled, rows = as_float(data.get("n_labeled")), as_float(data.get("n_samples"))
    share = f"{format_percent(labeled / rows)} of the rows" if labeled is not None and rows else ""
    size = f"{format_bytes(data.get('bytes'))}, {_storage(data)}" if data.get("bytes") is not None else ""
    return [
        (
            f"Rows {TIMES} features",
            f"{format_count(data.get('n_samples'))} {TIMES} {format_count(data.get('n_features'))}",
            size,
        ),
        ("Labeled rows", format_count(data.get("n_labeled")), share),
        (
            "Task",
            format_text(data.get("task") or ("unsupervised" if data else None)),
            f"{n_classes:,} classes" if n_classes else "",
        ),
        ("Run time", format_seconds(seconds), "" if seconds is None else "wall time"),
    ]


_MISSING = {
    "mean": ", taken to be the means of these",
    "pairwise": ", left out: features are scored from the rows that have them",
}


def _missing(missing: dict[str, Any]) -> str:
    """Describe the number of missing values, their treatment, and the columns with the most."""
    if not missing.get("total"):
        return "none"
    columns = [f"{name} {format_count(count)}" for name, count in sequence(missing.get("columns"))]
    total, n_columns = (format_count(missing.get(key)) for key in ("total", "n_columns"))
    more = ", ..." if (missing.get("n_columns") or 0) > len(columns) else ""
    became = _MISSING.get(str(missing.get("policy")), "")
    return f"{total} in {n_columns} columns{became} ({', '.join(columns)}{more})"


def _storage(data: dict[str, Any]) -> str:
    sparse = data.get("sparse")
    return "storage unknown" if sparse is None else "sparse" if sparse else "dense"


def _data(data: dict[str, Any]) -> dict[str, Any] | None:
    if not data:
        return None
    tile = f" {TIMES} ".join(format_count(size) for size in sequence(data.get("tile_shape"))) or MISSING
    constant = data.get("n_constant")
    facts = [
        ("Source", format_text(data.get("source"))),
        ("Rows", format_count(data.get("n_samples"))),
        ("Features", format_count(data.get("n_features"))),
        ("Constant features", format_count(constant)),
        ("Duplicate features", format_count(data.get("n_duplicate"))),
        ("Labeled rows", format_count(data.get("n_labeled"))),
        ("Task", format_text(data.get("task") or "none (no labels)")),
        ("Storage", _storage(data)),
        ("Value type", format_text(data.get("dtype"))),
        ("Tiles", tile),
        ("Size", format_bytes(data.get("bytes"))),
    ]
    if data.get("density") is not None:
        facts.insert(8, ("Density", format_percent(data.get("density"))))
    missing = as_mapping(data.get("missing"))
    if missing:
        facts.append(("Missing values", _missing(missing)))
    weights = as_mapping(data.get("weights"))
    if weights:
        total, low, high = (format_number(weights.get(key)) for key in ("total", "minimum", "maximum"))
        count = format_count(weights.get("n_counted"))
        facts.append(("Row weights", f"{low} to {high}; {count} rows count for {total}"))
    groups = as_mapping(data.get("groups"))
    if groups:
        count, low, high = (format_count(groups.get(key)) for key in ("n_groups", "smallest", "largest"))
        facts.append(("Groups of rows", f"{count}, each of {low} to {high} rows"))
    times = as_mapping(data.get("times"))
    if times:
        first, last = (format_text(str(times.get(key))) for key in ("first", "last"))
        facts.append(("Times of rows", f"{format_count(times.get('n_distinct'))} different ones, {first} to {last}"))
    batches = as_mapping(data.get("batch"))
    if batches:
        facts.append(("Batches of rows", format_count(len(sequence(batches.get("names"))))))
    target = as_mapping(data.get("target"))
    if target:
        text = f"{format_number(target.get('min'))} to {format_number(target.get('max'))}"
        facts.append(("Target", f"{text}, mean {format_number(target.get('mean'))}"))
    return {"source": format_text(data.get("source")), "facts": facts, **_classes(data)}


def _classes(data: dict[str, Any]) -> dict[str, Any]:
    counts = as_mapping(data.get("classes"))
    total = sum(number for value in counts.values() if (number := plottable(value)) > 0)
    shown = list(counts.items())[:_CLASSES_SHOWN]
    rows = []
    for (name, value), bar in zip(shown, bars([value for _, value in shown]), strict=True):
        number = plottable(value)
        share = number / total if number > 0 else 0.0
        rows.append((name, Cell(format_count(value), bar=bar), format_percent(share)))
    return {"classes": rows, "n_more_classes": max(0, len(counts) - _CLASSES_SHOWN)}


def _methods(summary: dict[str, Any]) -> list[dict[str, Any]]:
    n_features = as_float(as_mapping(summary.get("data")).get("n_features"))
    return [_method(method, i, n_features) for i, method in enumerate(mappings(summary.get("methods")), 1)]


def _method(method: dict[str, Any], index: int, n_features: float | None) -> dict[str, Any]:
    label = format_text(method.get("label") or method.get("method") or f"method {index}")
    curve = as_mapping(method.get("curve"))
    elimination = elimination_view(as_mapping(method.get("elimination")))
    direction = "elimination" if elimination else str(method.get("direction"))
    if n_features is None:
        n_features = float(len(sequence(curve.get("rank"))))
    figure = score_curve(
        curve, prefix=f"score{index}", label=label, direction=direction, log_rank=n_features > _LOG_RANKS
    )
    orders = {
        "ascending": "small scores are good",
        "descending": "large scores are good",
        "elimination": "features that stay long are good",
    }
    return {
        "anchor": f"method-{index}",
        "label": label,
        "facts": [
            ("Criterion", format_text(method.get("method"))),
            ("Order", orders.get(direction, MISSING)),
            ("Ranked", format_count(method.get("n_ranked"))),
            ("Excluded", format_count(method.get("n_excluded"))),
        ],
        "parameters": [(key, format_text(value)) for key, value in as_mapping(method.get("parameters")).items()],
        "citation": method.get("citation"),
        "figure": figure,
        "trade_off": trade_off_view(as_mapping(method.get("trade_off"))),
        "solution": solution_view(as_mapping(method.get("solution")), index, label),
        "elimination": elimination,
        "image": _image(as_mapping(method.get("image")), label),
        **_top(method),
    }


def _image(image: dict[str, Any], label: str) -> dict[str, Any] | None:
    """Return images of scores and first features; None if features are not pixels."""
    if not image:
        return None
    size = f" {TIMES} ".join(format_count(number) for number in sequence(image.get("shape")))
    what = "ranks" if image.get("by_rank") else "scores"
    sizes = ", ".join(format_count(number) for number in sequence(image.get("sizes")))
    return {
        "scores": pixel_image(image.get("scores"), description=f"{what.capitalize()} of {label} as an image of {size}"),
        "selected": pixel_image(image.get("selected"), description=f"First {sizes} features of {label} as images"),
        "caption": f"{what.capitalize()} as an image of {size} pixels: bright is relevant.",
        "first": f"The first {sizes} features.",
        "has_excluded": any(-1 in sequence(row) for row in sequence(image.get("scores"))),
    }


def _top(method: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a method's best features; the first column, the score, has the bars."""
    entries = mappings(method.get("top"))
    names = [format_text(name) for name in sequence(method.get("columns"))]
    width = max([len(names), *(len(sequence(entry.get("values"))) for entry in entries)])
    columns = names + [f"value {i}" for i in range(len(names) + 1, width + 1)]
    scores = [(sequence(entry.get("values")) or [None])[0] for entry in entries]
    rows = []
    for entry, bar in zip(entries, bars(scores), strict=True):
        padded = [value for value, _ in zip_longest(sequence(entry.get("values")), columns)]
        cells = [
            Cell(format_number(value), full_number(value), bar=bar if column == 0 else None)
            for column, value in enumerate(padded)
        ]
        rows.append(
            {
                "rank": format_count(entry.get("rank")),
                "feature": format_count(entry.get("feature")),
                "name": feature_name(entry),
                "cells": cells,
            }
        )
    return {"columns": columns, "rows": rows}


def feature_name(entry: dict[str, Any]) -> str:
    """Return the name of a feature; empty if it has none (the template has a text for that)."""
    name = entry.get("name")
    return "" if name is None else str(name)


def bars(scores: list[Any]) -> list[tuple[str, str] | None]:
    """Return start and length of a bar for each score, in percent of the range of the scores and zero.

    Scores that are not finite get None.
    """
    values = [plottable(score) for score in scores]
    finite = [value for value in values if value == value]
    low, high = min([0.0, *finite]), max([0.0, *finite])
    if high <= low:
        return [None] * len(values)
    scale = 100 / (high - low)
    return [
        (f"{(min(value, 0.0) - low) * scale:.2f}", f"{abs(value) * scale:.2f}") if value == value else None
        for value in values
    ]


_MEASURES = {"correlation": "absolute correlation", "distance_correlation": "distance correlation"}


def _redundancy(found: dict[str, Any]) -> dict[str, Any] | None:
    """Return facts on the redundancy filter and the dropped features."""
    if not found:
        return None
    measure = _MEASURES.get(str(found.get("measure")))
    looked = [
        ("Threshold", format_number(found.get("threshold"))),
        ("Looked at", f"{format_count(found.get('n_candidates'))} features of each ranking"),
    ]
    facts = [("Measure", measure or "none"), *(looked if measure else [])]
    if found.get("max_per_group") is not None:
        facts.append(("Of one group", f"{format_count(found['max_per_group'])} at most"))
    if positive(found.get("n_keep")):
        facts.append(("Kept by name", format_count(found.get("n_keep"))))
    return {
        "facts": facts,
        "methods": [
            (
                format_text(method.get("label")),
                [format_count(method.get(key)) for key in ("n_kept", "n_selected", "n_dropped")],
            )
            for method in mappings(found.get("methods"))
        ],
        "rows": [
            {
                "label": format_text(row.get("label")),
                "rank": format_count(row.get("rank")),
                "name": feature_name(row),
                "reason": format_text(row.get("reason")),
            }
            for row in mappings(found.get("rows"))
        ],
    }


def _agreement(agreement: dict[str, Any]) -> dict[str, Any] | None:
    labels = [format_text(label) for label in sequence(agreement.get("labels"))]
    matrix = [sequence(row) for row in sequence(agreement.get("jaccard"))]
    if len(labels) < 2 or not matrix:
        return None
    rows = []
    for label, values in zip(labels, matrix, strict=False):
        cells = []
        for value in values[: len(labels)]:
            number = plottable(value)
            heat = f"{min(max(number, 0.0), 1.0):.3f}" if number == number else None
            cells.append(Cell(f"{number:.2f}" if number == number else format_number(value), heat=heat))
        cells += [Cell(MISSING)] * (len(labels) - len(cells))
        rows.append((label, cells))
    return {"labels": labels, "rows": rows, "top_k": format_count(agreement.get("top_k"))}


def _graph(graph: dict[str, Any], index: int, summary: dict[str, Any]) -> Graph:
    name = format_text(graph.get("name") or f"graph {index}")
    lengths = histogram(
        as_mapping(graph.get("length_histogram")),
        prefix=f"length{index}",
        name=f"Edge lengths of {name}",
        x_name="edge length",
    )
    degrees = histogram(
        as_mapping(graph.get("degree_histogram")),
        prefix=f"degree{index}",
        name=f"Node degrees of {name}",
        x_name="degree",
    )
    weights = histogram(
        as_mapping(graph.get("weight_histogram")),
        prefix=f"weight{index}",
        name=f"Edge weights of {name}",
        x_name="edge weight",
    )
    figures = [("Edge lengths", lengths), ("Edge weights", weights), ("Node degrees", degrees)]
    return Graph(
        anchor=f"graph-{index}",
        name=name,
        facts=_graph_facts(graph, summary),
        weightings=[_weighting(weighting) for weighting in mappings(graph.get("weightings"))],
        figures=[(caption, svg) for caption, svg in figures if svg is not None],
        notices=_graph_notices(graph, name, f"graph-{index}"),
    )


def _graph_facts(graph: dict[str, Any], summary: dict[str, Any]) -> list[Fact]:
    return [
        ("Metric", format_text(graph.get("metric"))),
        ("Scaling", format_text(graph.get("scaling") or "none")),
        ("Neighbors", format_count(graph.get("n_neighbors"))),
        ("Search", format_text(graph.get("engine"))),
        *([("Source", format_text(graph.get("source")))] if graph.get("source") else []),
        *_mixed_facts(graph),
        ("Recall", _recall(as_mapping(graph.get("recall")), str(graph.get("engine")))),
        *_group_facts(as_mapping(graph.get("groups"))),
        ("Edges", format_count(graph.get("n_edges"))),
        ("Mean degree", format_number(graph.get("mean_degree"))),
        ("Largest degree", format_count(graph.get("max_degree"))),
        ("Components", format_count(graph.get("n_components"))),
        ("Largest component", _largest(graph, summary)),
        ("Isolated nodes", format_count(graph.get("n_isolated"))),
    ]


def _mixed_facts(graph: dict[str, Any]) -> list[Fact]:
    if graph.get("nearest_by") == "d":
        candidates = f"{format_count(graph.get('n_candidates'))} nearest in X, and the nearest by target"
        return [("Candidates", candidates), ("Lists that may miss some", format_count(graph.get("n_open")))]
    return [("Nearest by", "X")] if graph.get("nearest_by") == "x" else []


def _group_facts(groups: dict[str, Any]) -> list[Fact]:
    if not groups:
        return []
    found = [
        ("Groups of rows", f"{format_count(groups.get('n_groups'))}, {format_count(groups.get('n_cells'))} cells"),
        (
            "Copies of a row",
            f"{format_number(groups.get('copies'))} (on the sample {format_number(groups.get('estimated_copies'))})",
        ),
        (
            "Largest group",
            f"{format_count(groups.get('largest_group'))} rows "
            f"(on the sample {format_count(groups.get('estimated_largest_group'))})",
        ),
    ]
    if groups.get("n_components"):
        found.append(("Compared on", f"a projection to {format_count(groups['n_components'])} columns"))
    return found


def _recall(recall: dict[str, Any], engine: str) -> str:
    if not recall:
        return {"exact": "1 (exact search)", "sort": "1 (a sort)", "given": "given"}.get(engine, "not measured")
    rows, k = format_count(recall.get("n_rows")), format_count(recall.get("k"))
    return f"{format_number(recall.get('value'))} ({rows} rows, k = {k})"


def _largest(graph: dict[str, Any], summary: dict[str, Any]) -> str:
    size, rows = (
        as_float(graph.get("largest_component")),
        as_float(graph.get("n_nodes") or as_mapping(summary.get("data")).get("n_samples")),
    )
    text = format_count(graph.get("largest_component"))
    what = "labeled rows" if graph.get("metric") == "target" else "rows"
    return text if size is None or not rows else f"{text} ({format_percent(size / rows)} of {what})"


def _weighting(weighting: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": format_text(weighting.get("kind")) + _between_labeled(weighting.get("labeled_factor")),
        "t": Cell(format_number(weighting.get("t")), full_number(weighting.get("t"))),
        "t_rule": format_text(weighting.get("t_rule")),
        "self_loops": format_text(weighting.get("self_loops")),
        "n_underflow": format_count(weighting.get("n_underflow")),
        "n_isolated": format_count(weighting.get("n_isolated")),
        "used_by": format_text(weighting.get("used_by")),
    }


def _between_labeled(factor: Any) -> str:
    if factor is None or as_float(factor) == 1:
        return ""
    return f", times {format_number(factor)} between labeled rows" if factor else ", none between labeled rows"


def _graph_notices(graph: dict[str, Any], name: str, anchor: str) -> list[Notice]:
    texts = []
    recall = as_float(as_mapping(graph.get("recall")).get("value"))
    if recall is not None and recall < LOW_RECALL:
        texts.append(
            f"The approximate neighbor search of graph “{name}” found only {format_percent(recall)} of the "
            f"true neighbors (recall below {LOW_RECALL}). Scores that use this graph may change with a "
            f"better search: {BETTER_SEARCH.get(str(graph.get('engine')), 'search again')}, or set graph.engine to "
            "exact to make the search exact. Where that changes little, the rows lie so evenly that no ranking on "
            "their graph is stable."
        )
    isolated = graph.get("n_isolated")
    if positive(isolated):
        texts.append(
            f"Graph “{name}” has isolated nodes ({format_count(isolated)}): rows without any edge, of which "
            "the graph says nothing."
            + (" Raise graph.n_neighbors to connect them." if graph.get("weight_histogram") is None else "")
        )
    if positive(graph.get("n_short")):
        texts.append(
            f"In graph “{name}” {format_count(graph.get('n_short'))} rows have fewer than "
            f"{format_count(graph.get('list_length'))} neighbors: too few others have a feature in common with them, "
            "or were met by the search."
        )
    if positive(graph.get("n_open")):
        texts.append(
            f"In graph “{name}” {format_count(graph.get('n_open'))} labeled rows may have nearer neighbors than the "
            f"{format_count(graph.get('n_candidates'))} candidates in X hold. Raise n_neighbors of the method."
        )
    for weighting in mappings(graph.get("weightings")):
        texts += _weighting_notices(weighting, name, plottable(isolated) if positive(isolated) else 0.0)
    return [Notice(text, anchor) for text in texts]


def _weighting_notices(weighting: dict[str, Any], name: str, isolated: float) -> list[str]:
    texts = []
    kind, t = format_text(weighting.get("kind")), format_number(weighting.get("t"))
    lost, alone = weighting.get("n_underflow"), weighting.get("n_isolated")
    if positive(lost):
        texts.append(
            f"On graph “{name}”, {kind} weights underflow to zero ({format_count(lost)} edges at t = {t}): "
            "these edges are lost. Choose a larger t."
        )
    # Nodes without any edge are isolated in every weighting; the notice on the graph counts them.
    if plottable(alone) > isolated:
        texts.append(
            f"On graph “{name}”, {kind} weighting leaves nodes isolated ({format_count(alone)} have no edge "
            "of positive weight)."
        )
    return texts


def _excluded(excluded: dict[str, Any]) -> dict[str, Any] | None:
    rows = [
        {
            "feature": format_count(row.get("feature")),
            "name": feature_name(row),
            "note": format_text(row.get("note")),
            "methods": format_text(row.get("methods")),
        }
        for row in mappings(excluded.get("rows"))
    ]
    total = excluded.get("total", len(rows))
    if not rows and not positive(total):
        return None
    return {
        "total": format_count(total),
        "shown": len(rows),
        "all": as_float(total) == len(rows),
        "rows": rows,
    }


def _stages(stages: list[dict[str, Any]]) -> dict[str, Any] | None:
    if not stages:
        return None
    rows, over = [], []
    for stage, bar in zip(stages, bars([stage.get("seconds") for stage in stages]), strict=True):
        name = format_text(stage.get("name"))
        peak, planned = stage.get("peak_bytes"), stage.get("planned_peak_bytes")
        exceeds = plottable(peak) > plottable(planned)
        if exceeds:
            over.append(f"{name} peaked at {format_bytes(peak)} where {format_bytes(planned)} were planned")
        rows.append(
            {
                "name": name,
                "units": format_count(stage.get("units")),
                "rounds": format_count(stage["rounds"]) if stage.get("rounds") is not None else "",
                "recomputed": format_count(stage.get("recomputed")),
                "seconds": Cell(format_seconds(stage.get("seconds")), full_number(stage.get("seconds")), bar=bar),
                "read": format_bytes(stage.get("bytes_read")),
                "written": format_bytes(stage.get("bytes_written")),
                "peak": Cell(format_bytes(peak), best=exceeds),
                "planned": format_bytes(planned),
            }
        )
    return {"rows": rows, "over": over, "total": _stage_totals(stages)}


def _stage_totals(stages: list[dict[str, Any]]) -> dict[str, str]:
    def total(key: str) -> float | None:
        found = [number for stage in stages if (number := plottable(stage.get(key))) == number]
        return sum(found) if found else None

    return {
        "units": format_count(total("units")),
        "recomputed": format_count(total("recomputed")),
        "seconds": format_seconds(total("seconds")),
        "read": format_bytes(total("bytes_read")),
        "written": format_bytes(total("bytes_written")),
    }


def _job(job: object) -> str | None:
    if not isinstance(job, dict) or not job:
        return None
    import yaml

    return yaml.safe_dump(job, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
