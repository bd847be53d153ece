"""Template variables of a run's report: what is formatted or drawn here rather than in the template."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, zip_longest
from typing import Any, NamedTuple

from daskfs.report.batches import BATCHES_SHOWN
from daskfs.report.evaluation_view import evaluation_contents, evaluation_view
from daskfs.report.method_view import FIELD_MEANINGS, elimination_view, solution_view, trade_off_view
from daskfs.report.model import (
    Agreement,
    DataReport,
    GraphReport,
    Image,
    MethodReport,
    MissingReport,
    Number,
    Redundancy,
    Report,
    StageReport,
)
from daskfs.report.plots import (
    LOG_RANKS,
    Plot,
    along_axis,
    first_features,
    histogram,
    matrix,
    pixel_image,
    pixels,
    score_curve,
    score_name,
    svg_of,
)
from daskfs.report.table_cells import Cell, Fact, number_cell
from daskfs.report.terminal import BEST, comparison_sentence, significance_sentence, verdict_sentence
from daskfs.report.values import (
    DASH,
    TIMES_SIGN,
    format_bytes,
    format_count,
    format_number,
    format_percent,
    format_seconds,
    format_text,
    format_time,
    full_number,
    plottable,
    positive,
)
from daskfs.run_warning import RunWarning
from daskfs.sources.checks import shorten_names
from daskfs.sources.tables import LEFT_OUT

_METHODS_OPEN = 2
"""Methods up to which all are unfolded; of more, the one of the verdict is."""
_CLASSES_SHOWN = 40


class Notice(NamedTuple):
    """A warning, and the anchor of the graph that it is about; empty for another."""

    text: str
    anchor: str


def page(report: Report) -> dict[str, Any]:
    """Return all variables of the template; SVGs are plain strings here."""
    anchors = {graph.name: f"graph-{i}" for i, graph in enumerate(report.graphs, 1)}
    notices = [Notice(str(one), next((anchors[n] for n in one.subject if n in anchors), "")) for one in report.warnings]
    graphs = [_graph(graph, i, report.data, notices) for i, graph in enumerate(report.graphs, 1)]
    best = None if report.verdict is None else report.verdict.method
    view: dict[str, Any] = {
        "report": report,
        "title": report.title or "Feature ranking",
        "version": report.version,
        "created": format_time(report.created),
        "verdict": _verdict(report),
        "tests": significance_sentence(None if report.significance is None else report.significance.model_dump()),
        "best": list(zip_longest(*(one.best or [row.name for row in one.top[:BEST]] for one in report.methods))),
        "tiles": _tiles(report),
        "data": None if report.data is None else _data(report.data, report.warnings),
        "methods": _methods(report),
        "redundancy": None if report.redundancy is None else _redundancy(report.redundancy),
        "n_batches": BATCHES_SHOWN,
        "evaluation": evaluation_view(report.evaluation),
        "graphs": graphs,
        "stages": _stages(report.stages) if report.stages else None,
        "job": _job(report.job) if report.job else None,
        "notices": notices,
        "best_method": best,
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
        ("agreement", "Agreement", view["report"].agreement.is_shown),
        ("batches", "Batches", bool(view["report"].batches.batches)),
        ("evaluation", "Evaluation", True),
        ("graphs", "Neighbor graphs", True),
        ("excluded", "Excluded features", True),
        ("stages", "Execution", True),
        ("job", "Job", True),
    ]
    children = {"ranking": methods, "evaluation": evaluation_contents(view["evaluation"])}
    return [(key, name, children.get(key, [])) for key, name, shown in sections if shown]


def _verdict(report: Report) -> dict[str, str] | None:
    """Return the verdict in sentences without final full stops, None without one."""
    if report.verdict is None or report.data is None or report.data.n_features is None:
        return None
    verdict = report.verdict.model_dump()
    return {
        "sentence": verdict_sentence(verdict, int(report.data.n_features)),
        "beside": comparison_sentence(verdict).capitalize(),
    }


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """Return the key numbers, each as name, value and remark."""
    data, seconds = report.data or DataReport(), report.seconds
    labeled, rows = data.n_labeled, data.n_samples
    share = f"{format_percent(labeled / rows)} of the rows" if labeled is not None and rows else ""
    size = "" if data.bytes is None else f"{format_bytes(data.bytes)}, {_storage(data)}"
    n_classes = f"{len(data.classes):,} classes" if data.classes else ""
    return [
        (f"Rows {TIMES_SIGN} features", f"{format_count(rows)} {TIMES_SIGN} {format_count(data.n_features)}", size),
        ("Labeled rows", format_count(labeled), share),
        ("Task", format_text(data.task or ("unsupervised" if report.data else None)), n_classes),
        ("Run time", format_seconds(seconds), "" if seconds is None else "wall time"),
    ]


_MISSING = {
    "mean": ", taken to be the means of these",
    "pairwise": ", left out: features are scored from the rows that have them",
}


def _missing(missing: MissingReport) -> str:
    """Describe the number of missing values, their treatment, and the columns with the most."""
    if not missing.total:
        return "none"
    columns = [f"{name} {format_count(count)}" for name, count in missing.columns]
    more = ", ..." if (missing.n_columns or 0) > len(columns) else ""
    became = _MISSING.get(missing.policy, "")
    total, n_columns = format_count(missing.total), format_count(missing.n_columns)
    return f"{total} in {n_columns} columns{became} ({', '.join(columns)}{more})"


def _storage(data: DataReport) -> str:
    return "storage unknown" if data.sparse is None else "sparse" if data.sparse else "dense"


def _data(data: DataReport, warnings: Sequence[RunWarning]) -> dict[str, Any]:
    left_out = [name for warning in warnings if warning.kind == LEFT_OUT for name in warning.subject]
    facts = [
        ("Rows", format_count(data.n_samples)),
        ("Features", format_count(data.n_features)),
        ("Constant features", format_count(data.n_constant)),
        ("Duplicate features", format_count(data.n_duplicate)),
        *([("Columns left out", f"{len(left_out):,}: {shorten_names(left_out)}")] if left_out else []),
        ("Labeled rows", format_count(data.n_labeled)),
        ("Task", data.task or "none (no labels)"),
        ("Storage", _storage(data)),
        *([] if data.density is None else [("Density", format_percent(data.density))]),
        ("Value type", format_text(data.dtype)),
        ("Tiles", f" {TIMES_SIGN} ".join(format_count(size) for size in data.tile_shape) or DASH),
        ("Size", format_bytes(data.bytes)),
    ]
    if data.missing is not None:
        facts.append(("Missing values", _missing(data.missing)))
    if data.weights:
        total, low, high = (format_number(data.weights.get(key)) for key in ("total", "minimum", "maximum"))
        count = format_count(data.weights.get("n_counted"))
        facts.append(("Row weights", f"{low} to {high}; {count} rows count for {total}"))
    if data.groups:
        count, low, high = (format_count(data.groups.get(key)) for key in ("n_groups", "smallest", "largest"))
        facts.append(("Groups of rows", f"{count}, each of {low} to {high} rows"))
    if data.times is not None:
        count = format_count(data.times.n_distinct)
        facts.append(("Times of rows", f"{count} different ones, {data.times.first} to {data.times.last}"))
    if data.batch is not None:
        facts.append(("Batches of rows", format_count(len(data.batch.names))))
    if data.target:
        low, high, mean = (format_number(data.target.get(key)) for key in ("min", "max", "mean"))
        facts.append(("Target", f"{low} to {high}, mean {mean}"))
    return {"facts": facts, **_classes(data.classes)}


def _classes(counts: dict[str, Number]) -> dict[str, Any]:
    total = sum(number for value in counts.values() if (number := plottable(value)) > 0)
    shown = list(counts.items())[:_CLASSES_SHOWN]
    rows = []
    for (name, value), bar in zip(shown, bars([value for _, value in shown]), strict=True):
        number = plottable(value)
        share = number / total if number > 0 else 0.0
        rows.append((name, Cell(format_count(value), bar=bar), format_percent(share)))
    return {"classes": rows, "n_more_classes": max(0, len(counts) - _CLASSES_SHOWN)}


_ORDERS = {
    "ascending": "small scores are good",
    "descending": "large scores are good",
    "elimination": "features that stay long are good",
}


def _methods(report: Report) -> list[dict[str, Any]]:
    n_features = None if report.data is None else report.data.n_features
    best = None if report.verdict is None else report.verdict.method
    first = next((place for place, method in enumerate(report.methods) if method.label == best), 0)
    return [
        {
            **_method(method, place + 1, n_features, report.axis),
            "is_open": len(report.methods) <= _METHODS_OPEN or place == first,
        }
        for place, method in enumerate(report.methods)
    ]


def _method(method: MethodReport, index: int, n_features: Number, axis: str) -> dict[str, Any]:
    label = method.label or method.method or f"method {index}"
    direction = "elimination" if method.elimination else method.direction
    return {
        "method": method,
        "anchor": f"method-{index}",
        "label": label,
        "facts": [
            ("Criterion", format_text(method.method)),
            ("Order", _ORDERS.get(direction, DASH)),
            ("Ranked", format_count(method.n_ranked)),
            ("Excluded", format_count(method.n_excluded)),
            *([("More than chance", format_count(method.n_significant))] if method.pvalues else []),
        ],
        "figure": svg_of(scores_plot(method, n_features), f"score{index}"),
        "pvalues": svg_of(histogram(method.pvalues, name=f"p-values of {label}", x_name="p-value"), f"pvalue{index}"),
        "along": svg_of(along_plot(method, axis), f"along{index}"),
        "trade_off": None if method.trade_off is None else trade_off_view(method.trade_off),
        "solution": None if method.solution is None else solution_view(method.solution, index, label),
        "elimination": None if method.elimination is None else elimination_view(method.elimination),
        "image": None if method.image is None else _image(method.image, label),
        **_top(method),
    }


def scores_plot(method: MethodReport, n_features: Number) -> Plot | None:
    """Return the plot of a method's scores by rank, by the logarithm of many of them; None without scores."""
    n_ranks = len(method.curve.get("rank", ())) if n_features is None else n_features
    direction = "elimination" if method.elimination else method.direction
    return score_curve(
        method.curve,
        label=method.label or method.method,
        direction=direction,
        log_rank=n_ranks > LOG_RANKS,
        n_significant=method.n_significant,
    )


def along_plot(method: MethodReport, axis: str) -> Plot | None:
    """Return the plot of a method's scores along the axis of the features; None where there is no axis."""
    name = "rank (small is good)" if method.elimination else score_name(method.direction)
    return along_axis(method.along, label=method.label or method.method, x_name=axis, y_name=name)


def first_plot(method: MethodReport, n: int) -> Plot | None:
    """Return the plot of the scores of a method's first features; None without any."""
    rows = method.top[:n]
    names = [str(row.name) for row in rows]
    direction = "elimination" if method.elimination else method.direction
    scores = [row.values[0] if row.values else None for row in rows]
    return first_features(names, scores, label=method.label or method.method, direction=direction)


def agreement_plot(agreement: Agreement) -> Plot | None:
    """Return the plot of the overlap of the first features of each two methods; None of a single method."""
    if not agreement.is_shown:
        return None
    what = f"Jaccard index of the top {format_count(agreement.top_k)} features"
    return matrix(agreement.labels, agreement.jaccard, description=what)


def image_plot(method: MethodReport) -> Plot | None:
    """Return the plot of a method's scores as an image; None where features are no pixels."""
    if method.image is None or not method.image.scores:
        return None
    return pixels(method.image.scores, description=_as_image(method.image, method.label))


def _as_image(image: Image, label: str = "") -> str:
    size = f" {TIMES_SIGN} ".join(format_count(number) for number in image.shape)
    what = "Ranks" if image.by_rank else "Scores"
    return f"{what} of {label} as an image of {size}" if label else f"{what} as an image of {size}"


def _image(image: Image, label: str) -> dict[str, Any]:
    sizes = ", ".join(format_count(number) for number in image.sizes)
    return {
        "scores": pixel_image(image.scores, description=_as_image(image, label)),
        "selected": pixel_image(image.selected, description=f"First {sizes} features of {label} as images"),
        "caption": f"{_as_image(image)} pixels: bright is relevant.",
        "first": f"The first {sizes} features.",
        "has_excluded": any(-1 in row for row in image.scores),
    }


def _top(method: MethodReport) -> dict[str, Any]:
    """Return the table of a method's best features; the first column, the score, has the bars.

    A column that has no value, as of features that are not tested, is left out.
    """
    width = max([len(method.columns), *(len(row.values) for row in method.top)])
    columns = method.columns + [f"value {i}" for i in range(len(method.columns) + 1, width + 1)]
    table = [[value for value, _ in zip_longest(row.values, columns)] for row in method.top]
    applies = [not i or any((number := plottable(row[i])) == number for row in table) for i in range(width)]
    columns, table = list(compress(columns, applies)), [list(compress(row, applies)) for row in table]
    is_whole = [all(map(_is_whole, column)) for column in zip(*table, strict=True)]
    worst = method.curve.get("score", [])[-1:] if method.direction == "ascending" else []
    rows = []
    for row, values, bar in zip(method.top, table, bars([v[0] if v else None for v in table], *worst), strict=True):
        shown = [_whole(value) if whole else value for value, whole in zip(values, is_whole, strict=True)]
        rows.append((row, [number_cell(value, bar=None if i else bar) for i, value in enumerate(shown)]))
    described = [(name, FIELD_MEANINGS[name]) for name in columns if name in FIELD_MEANINGS]
    return {"columns": columns, "rows": rows, "described": described, "is_from_worst": bool(worst)}


def _is_whole(value: Number) -> bool:
    number = plottable(value)
    return number != number or number % 1 == 0


def _whole(value: Number) -> Number:
    number = plottable(value)
    return value if number != number else int(number)


def bars(scores: Sequence[Number], worst: Number = None) -> list[tuple[str, str] | None]:
    """Return start and length of a bar for each score, in percent of the range of the scores and zero.

    Where small scores are good, bars start at `worst`, the score of the last rank, and the longest is of the best one.
    Scores that are not finite get None.
    """
    values = [plottable(score) for score in scores]
    if (last := plottable(worst)) == last:
        values = [max(last - value, 0.0) if value == value else value for value in values]
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


def _redundancy(redundancy: Redundancy) -> list[Fact]:
    measure = _MEASURES.get(redundancy.measure)
    looked = [
        ("Threshold", format_number(redundancy.threshold)),
        ("Looked at", f"{format_count(redundancy.n_candidates)} features of each ranking"),
    ]
    facts = [("Measure", measure or "none"), *(looked if measure else [])]
    if redundancy.max_per_group is not None:
        facts.append(("Of one group", f"{format_count(redundancy.max_per_group)} at most"))
    if positive(redundancy.n_keep):
        facts.append(("Kept by name", format_count(redundancy.n_keep)))
    return facts


def _graph(graph: GraphReport, index: int, data: DataReport | None, notices: Sequence[Notice]) -> dict[str, Any]:
    name = graph.name or f"graph {index}"
    drawn = (
        ("Edge lengths", "length", "edge length", graph.length_histogram),
        ("Edge weights", "weight", "edge weight", graph.weight_histogram),
        ("Node degrees", "degree", "degree", graph.degree_histogram),
    )
    figures = [
        (caption, svg_of(histogram(bins, name=f"{caption} of {name}", x_name=x_name), f"{prefix}{index}"))
        for caption, prefix, x_name, bins in drawn
    ]
    return {
        "anchor": f"graph-{index}",
        "name": name,
        "facts": _graph_facts(graph, data),
        "weightings": [(format_text(one.kind) + _between_labeled(one.labeled_factor), one) for one in graph.weightings],
        "figures": [(caption, svg) for caption, svg in figures if svg is not None],
        "notices": [notice for notice in notices if notice.anchor == f"graph-{index}"],
    }


def _graph_facts(graph: GraphReport, data: DataReport | None) -> list[Fact]:
    shares = graph.explained_variance_ratio
    explained = sum(share for share in shares if share is not None)
    return [
        ("Metric", format_text(graph.metric)),
        ("Scaling", graph.scaling or "none"),
        *([("Principal components", f"{len(shares)}, with {explained:.1%} of the variance")] if shares else []),
        ("Neighbors", format_count(graph.n_neighbors)),
        ("Search", "NN-descent" if graph.engine == "descent" else format_text(graph.engine)),
        *([("Source", graph.source)] if graph.source else []),
        *_mixed_facts(graph),
        ("Recall", _recall(graph.recall, graph.engine)),
        *_group_facts(graph.groups),
        ("Edges", format_count(graph.n_edges)),
        ("Mean degree", format_number(graph.mean_degree)),
        ("Largest degree", format_count(graph.max_degree)),
        ("Components", format_count(graph.n_components)),
        ("Largest component", _largest(graph, data)),
        ("Isolated nodes", format_count(graph.n_isolated)),
    ]


def _mixed_facts(graph: GraphReport) -> list[Fact]:
    if graph.nearest_by == "d":
        candidates = f"{format_count(graph.n_candidates)} nearest in X, and the nearest by target"
        return [("Candidates", candidates), ("Lists that may miss some", format_count(graph.n_open))]
    return [("Nearest by", "X")] if graph.nearest_by == "x" else []


def _group_facts(groups: dict[str, Number]) -> list[Fact]:
    if not groups:
        return []
    n_groups, n_cells, largest, estimate, n_components = (
        format_count(groups.get(key))
        for key in ("n_groups", "n_cells", "largest_group", "estimated_largest_group", "n_components")
    )
    copies, estimated = (format_number(groups.get(key)) for key in ("copies", "estimated_copies"))
    facts = [
        ("Intrinsic dimension", f"{format_number(groups.get('dimension'))} (on the sample)"),
        ("Groups of rows", n_groups if groups.get("n_cells") is None else f"{n_groups}, {n_cells} cells"),
        ("Copies of a row", f"{copies} (on the sample {estimated})"),
        ("Largest group", f"{largest} rows (on the sample {estimate})"),
    ]
    compared = ("Compared on", f"a projection to {n_components} columns")
    return [*facts, compared] if groups.get("n_components") else facts


def _recall(recall: dict[str, Number], engine: str | None) -> str:
    if not recall:
        recall_by_engine = {"exact": "1 (exact search)", "sort": "1 (a sort)", "given": "given"}
        return recall_by_engine.get(engine or "", "not measured")
    rows, k = format_count(recall.get("n_rows")), format_count(recall.get("k"))
    return f"{format_number(recall.get('value'))} ({rows} rows, k = {k})"


def _largest(graph: GraphReport, data: DataReport | None) -> str:
    size, rows = graph.largest_component, graph.n_nodes or (data or DataReport()).n_samples
    what = "labeled rows" if graph.metric == "target" else "rows"
    return format_count(size) + (f" ({format_percent(size / rows)} of {what})" if size is not None and rows else "")


def _between_labeled(factor: Number) -> str:
    if factor is None or factor == 1:
        return ""
    return f", times {format_number(factor)} between labeled rows" if factor else ", none between labeled rows"


def _stages(stages: list[StageReport]) -> dict[str, Any]:
    over = [plottable(stage.peak_bytes) > plottable(stage.planned_peak_bytes) for stage in stages]
    drawn = bars([stage.seconds for stage in stages])
    times = [
        Cell(format_seconds(stage.seconds), full_number(stage.seconds), bar=bar)
        for stage, bar in zip(stages, drawn, strict=True)
    ]
    keys = ("units", "recomputed", "seconds", "bytes_read", "bytes_written")
    numbers_by_key = {key: [n for stage in stages if (n := plottable(getattr(stage, key))) == n] for key in keys}
    return {
        "rows": list(zip(stages, times, over, strict=True)),
        "over": [stage for stage, exceeds in zip(stages, over, strict=True) if exceeds],
        "total": {key: sum(numbers) if numbers else None for key, numbers in numbers_by_key.items()},
    }


def _job(job: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(job, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)
