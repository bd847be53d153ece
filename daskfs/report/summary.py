"""Summary of a finished run for ``run.json`` and the report, collected from its store."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from typing import Any

import numpy as np

from daskfs.criteria.criterion import PVALUE
from daskfs.criteria.registry import Method, label_warnings
from daskfs.criteria.rescaled_regression.passes import stored_solution
from daskfs.criteria.slab import graph_needs
from daskfs.criteria.sselect.trade_off import stored_curve
from daskfs.criteria.svmrfe.elimination import elimination_warnings, stored_elimination
from daskfs.evaluation.design import Design
from daskfs.evaluation.summaries import evaluation_warnings
from daskfs.evaluation.tables import read_table
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.evaluation.verdict import evaluation_verdict
from daskfs.execution.submission import recorded_units
from daskfs.graph.dominance import dominance_warnings
from daskfs.graph.edges import EDGES_SUMMARY_STAGE, GIVEN, WEIGHTS_STAGE, weight_summary
from daskfs.graph.halves import feature_axis
from daskfs.graph.mixed import MixedParameters
from daskfs.graph.neighbors import NEIGHBORS_STAGE, ListsParameters, chosen_engine
from daskfs.graph.partitioned_search import BUILD_STAGE, LOW_RECALL
from daskfs.graph.precomputed_stage import GivenParameters
from daskfs.graph.representation import REPRESENTATION_STAGE
from daskfs.graph.spec import GraphSpec
from daskfs.graph.target import TargetsParameters
from daskfs.ranking.dropped import dropped_features, selectable, selected_features
from daskfs.ranking.images import SCORE_IMAGES_STAGE, for_report, score_levels, selected_levels
from daskfs.ranking.redundancy import FILTER_STAGE
from daskfs.ranking.settings import RunSettings, settings_of
from daskfs.ranking.tables import method_scores, one_block
from daskfs.report.batches import batch_summary, batch_warnings
from daskfs.report.evaluation_summary import evaluation_cost, evaluation_summary
from daskfs.report.hints import hints
from daskfs.report.model import EvaluationReport, GraphReport, Manifest, Shown, WeightingReport
from daskfs.report.terminal import BEST, best_lines
from daskfs.report.trust import doubts_of, trust_warnings
from daskfs.run_warning import CHANGES, LIMITS, RunWarning, merge_warnings
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.checks import is_generated
from daskfs.sources.labels import classes_note
from daskfs.stages.stage import Plan, Stage
from daskfs.storage import StoragePath, as_path
from daskfs.store import layout
from daskfs.store.context import Context, label_counts_of
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles
from daskfs.tiles.plan import TilePlan
from daskfs.version import __version__

LIBRARIES_REPORTED = ("dask", "distributed", "numpy", "scipy", "scikit-learn", "numba", "pynndescent", "zarr")
CURVE_POINTS = 1500
PVALUE_BINS = 20
USUAL_FDR = 0.05
"""False discovery rate up to which features count as more than chance, unless select.fdr gives another."""
TOP_FEATURES = 30
EXCLUDED_LISTED = 200
DROPPED = 50
BETTER_SEARCH = {
    "cells": "raise graph.recall, or compare rows in principal components (transform: {graph: zscore+pca=50})",
    "descent": "raise graph.n_neighbors",
    "pynndescent": "raise graph.n_neighbors",
}
"""Remedy for a low recall, by engine."""


def versions() -> dict[str, str]:
    """Return the versions of all software that affects the results."""
    return {
        "daskfs": __version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in LIBRARIES_REPORTED},
    }


@cache
def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "not installed"


def stage_facts(context: Context, stage: Stage) -> dict[str, Any]:
    """Sum the records of a stage, over all rounds of a loop: seconds, bytes, and measured and planned peak memory."""
    units = recorded_units(context, stage)
    seconds, n_read, n_written, peak = 0.0, 0, 0, 0
    for record in filter(None, context.store.records.each(stage.name, units)):  # all at once would take much memory
        seconds += float(record.get("seconds", 0.0))
        n_read += int(record.get("bytes_read", 0))
        n_written += int(record.get("bytes_written", 0))
        peak = max(peak, int(record.get("peak_bytes", 0)))
    rounds = len(units) // stage.n_units
    return {
        "name": stage.name,
        "units": len(units),
        "rounds": rounds if stage.loop else None,
        "seconds": round(seconds, 3),
        "bytes_read": n_read,
        "bytes_written": n_written,
        "planned_bytes_read": rounds * stage.bytes_read,
        "planned_bytes_written": rounds * stage.bytes_written,
        "peak_bytes": peak,
        "planned_peak_bytes": stage.peak_bytes,
    }


def run_facts(
    store: Store,
    plan: Plan,
    tiles: TilePlan,
    times: Mapping[str, Any],
    batches: Sequence[Mapping[str, Any]] = (),
    damages: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the facts on a finished run for ``run.json``.

    `times` are as for :func:`evaluation_cost`, `batches` the facts on each batch and on its run, and `damages` warnings
    of what happened to the run.
    """
    stages = [stage_facts(Context(Store(as_path(tiles.url))), stage) for stage in tiles.stages]
    stages += [stage_facts(Context(store), stage) for stage in plan.stages]
    graphs, settings = _graphs(store, plan), settings_of(plan)
    read = Context(store).tiles
    names, verdict, tested = read.feature_names(), None, list[RunWarning]()
    if (evaluated := plan.parameters_of(EVALUATE_STAGE)) is not None:
        verdict = evaluation_verdict(store, evaluated, read_table(store, "stability"), len(names))
        tested = evaluation_warnings(store, evaluated)
    best, is_filtered = best_features(store, plan, verdict), plan.parameters_of(FILTER_STAGE) is not None
    warnings = merge_warnings(
        [
            *map(RunWarning.from_json, plan.facts["warnings"]),
            *map(RunWarning.from_json, read.store.read_json(layout.SOURCE_WARNINGS, list) or ()),
            *graph_warnings([GraphReport.model_validate(graph) for graph in graphs]),
            *_dominance_warnings(read, plan),
            *_method_warnings(store, plan),
            *batch_warnings(batches),
            *tested,
            *trust_warnings(Context(store), best, names, verdict, filtered=is_filtered),
            *hints(Context(store), settings.methods, verdict, () if evaluated is None else Design(evaluated).sizes),
            *(RunWarning("damage", CHANGES, text) for text in damages),
        ]
    )
    if verdict is not None:
        first = [names[feature] for feature in best[verdict["method"]]]
        verdict["doubts"] = doubts_of(verdict, first, warnings)
    return {
        "versions": versions(),
        "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "data": _data(read),
        "methods": [method.to_json() for method in settings.methods],
        "stages": stages,
        "graphs": graphs,
        "trade_offs": _by_label(store, plan, stored_curve),
        "solutions": _by_label(store, plan, stored_solution),
        "eliminations": _by_label(store, plan, stored_elimination),
        "verdict": verdict,
        "best": _named_features(best, names, verdict),
        "evaluation": evaluation_cost(plan, stages, times),
        "batches": list(batches),
        "warnings": [warning.to_json() for warning in warnings],
        "n_selected": settings.n_features,
        "significance": significance_facts(store, plan),
        "planned_peak_bytes": max(s.get("planned_peak_bytes", 0) for s in [*stages, *batches]),
        "peak_bytes": max(s.get("peak_bytes", 0) for s in [*stages, *batches]),
        "ranking": layout.RANKING_CSV,
        "report": layout.REPORT_HTML,
    }


def significance_facts(store: Store, plan: Plan) -> dict[str, Any] | None:
    """Return the number of features of each method that are more than chance; None if none were tested."""
    settings, methods = settings_of(plan), []
    level = _level(settings)
    for method in settings.methods:
        if (pvalues := method.pvalues(method_scores(store, method))) is not None:
            tested = int(np.count_nonzero(~np.isnan(pvalues)))
            passed = int(np.count_nonzero(method.qvalues(pvalues) <= level))
            meaning = method.test.meaning(method.parameters) if method.test else ""
            methods.append({"method": method.label, "n_tested": tested, "n_significant": passed, "meaning": meaning})
    return {"level": level, "methods": methods} if methods else None


def _level(settings: RunSettings) -> float:
    return USUAL_FDR if settings.fdr is None else settings.fdr


def best_features(store: Store, plan: Plan, verdict: Mapping[str, Any] | None = None) -> dict[str, list[int]]:
    """Return the first features of each method, of those that may be selected, by its label, in the order shown."""
    settings, features_by_label = settings_of(plan), {}
    for method in shown_order(settings.methods, None if verdict is None else verdict["method"]):
        table = method_scores(store, method)
        features_by_label[method.label] = selectable(store, method, table, filtered=settings.filtered)[:BEST].tolist()
    return features_by_label


def _named_features(
    best: Mapping[str, Sequence[int]], names: Sequence[str], verdict: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the first features by name, and which method is that of the verdict, for ``run.json``."""
    chosen = None if verdict is None else verdict["method"]
    return [
        {"method": label, "features": [names[feature] for feature in features], "is_best": label == chosen}
        for label, features in best.items()
    ]


def ranking_lines(store: Store, plan: Plan) -> list[str]:
    """Return the rankings of a run as its evaluation begins, and what that takes; empty without an evaluation."""
    if (evaluated := plan.parameters_of(EVALUATE_STAGE)) is None:
        return []
    design, names = Design(evaluated), Context(store).tiles.feature_names()
    lines = best_lines(_named_features(best_features(store, plan), names))
    ahead = f"the evaluation follows: {design.n_selections:,} rankings and {design.n_tests:,} units of tests"
    return ["first features, before the evaluation:", *lines, ahead]


def shown_order(methods: Sequence[Method], best: str | None) -> list[Method]:
    """Return methods in the order in which all outputs show them: the best one, a consensus, then as in the job."""
    return sorted(methods, key=lambda method: (method.label != best, not method.criterion.combines))


def _data(tiles: Tiles) -> dict[str, Any]:
    shape, labels = tiles.shape, label_counts_of(tiles)[0]
    facts: dict[str, Any] = {
        "source": tiles.info.source,
        "n_samples": shape.n_samples,
        "n_features": shape.n_features,
        "task": tiles.info.task,
        "n_labeled": labels.n_labeled if labels is not None else 0,
        **{name: tiles.info.facts.get(name) for name in SAMPLE_COLUMNS},
        "classes": None,
        "target": None,
        "sparse": shape.is_sparse,
        "density": (shape.nnz or 0) / (shape.n_samples * shape.n_features) if shape.is_sparse else None,
        "dtype": shape.dtype,
        "tile_shape": [shape.tile_rows, shape.n_features if shape.is_sparse else shape.tile_columns],
        "bytes": shape.x_bytes,
        "n_constant": tiles.info.facts["n_constant"],
        "n_duplicate": tiles.info.facts["n_duplicate"],
        "missing": tiles.info.facts["missing"],
        "in_place": tiles.info.x_path,
    }
    if labels is not None and labels.task == "classification":
        facts["classes"] = dict(zip(labels.classes, labels.by_class, strict=True))
    elif labels is not None and labels.target is not None:
        facts["target"] = dict(zip(("min", "max", "mean"), labels.target, strict=True))
    return facts


def _graphs(store: Store, plan: Plan) -> list[dict[str, Any]]:
    methods = settings_of(plan).methods
    graphs = []
    for stage in plan.stages:
        if (graph := stage.parameters_of(EDGES_SUMMARY_STAGE)) is None:
            continue
        name, k = graph.name, graph.n_neighbors
        summary = store.need_json(layout.GRAPH_SUMMARY.format(name, k))
        if name == GIVEN:
            summary["weight_histogram"] = summary.pop("length_histogram")
        graphs.append(
            {
                "name": name if name == GIVEN else f"{name}, k = {k}",
                "n_neighbors": None if name == GIVEN else k,
                **_search(store, plan, name),
                **summary,
                "weightings": list(_weightings(store, plan, methods, name, k)),
            }
        )
    return graphs


def _search(store: Store, plan: Plan, name: str) -> dict[str, Any]:
    stages = {stage.name: stage for stage in plan.stages}
    names = (f"targets-{name}", name, f"neighbors-{name}", f"build-{name}", "graph-given")
    search = next(stages[one] for one in names if one in stages)
    by = search.parameters
    if isinstance(by, TargetsParameters):
        scaling = "zscore" if by.lists.standardize else None
        return {
            "metric": "target",
            "scaling": scaling,
            "engine": "sort",
            "source": None,
            "groups": None,
            "recall": None,
        }
    if isinstance(by, MixedParameters):
        return {
            **_search(store, plan, by.lists.base.name),
            "metric": "target between labeled rows, else euclidean",
            "nearest_by": by.lists.neighbors,
            "n_candidates": by.n_candidates,
            "n_open": sum(int(fact.get("n_open", 0)) for fact in _unit_facts(store, search)),
        }
    recall = store.read_json(layout.RECALL_SUMMARY.format(name))
    if isinstance(by, GivenParameters):
        return {
            "metric": by.metric,
            "scaling": by.scaling,
            "explained_variance_ratio": None,
            "engine": GIVEN,
            "source": by.path,
            "groups": None,
            "recall": recall,
            "n_short": 0,
            "list_length": None,
        }
    assert isinstance(by, ListsParameters)
    engine = chosen_engine(store, name) if search.is_of(BUILD_STAGE) else by.graph.engine
    return {
        "metric": by.graph.metric,
        "scaling": by.graph.scaling,
        "explained_variance_ratio": _explained_variance(store, by.graph),
        "engine": engine,
        "source": _representation(plan, by.graph),
        "groups": None if engine == "exact" else _groups(store, search, name),
        "recall": None if engine == "exact" else recall,
        "n_short": _short_lists(store, plan, name),
        "list_length": by.k,
    }


def _representation(plan: Plan, spec: GraphSpec) -> str | None:
    """Return the representation of the rows that a search compares, None for rows of X or their components."""
    copied = plan.parameters_of(REPRESENTATION_STAGE)
    if spec.rep_columns is None or copied is None:
        return None
    return f"{copied.where.removeprefix('graph.use_rep ')}, {spec.rep_columns} columns"


def _explained_variance(store: Store, spec: GraphSpec) -> list[float] | None:
    """Return the share of the variance that each principal component of the rows has, None for rows as they are."""
    if spec.n_components is None:
        return None
    shares: list[float] = store.need_json(layout.PCA_SUMMARY.format(spec.scaling))["explained_variance_ratio"]
    return shares


def _short_lists(store: Store, plan: Plan, name: str) -> int:
    """Count the rows with fewer neighbors than requested: too few rows share a feature with them or met them."""
    lists = next((s for s in plan.stages if s.name in (f"neighbors-{name}", f"merge-{name}")), None)
    return sum(int(fact.get("n_short", 0)) for fact in _unit_facts(store, lists)) if lists else 0


def _unit_facts(store: Store, stage: Stage) -> list[dict[str, Any]]:
    return [(store.records.get(stage.name, unit) or {}).get("facts", {}) for unit in range(stage.n_units)]


def _groups(store: Store, search: Stage, name: str) -> dict[str, Any] | None:
    """Return estimated and actual numbers of rows in the groups of an approximate search."""
    if not search.is_of(BUILD_STAGE):
        return None
    facts = _unit_facts(store, search)
    members = [int(fact.get("n_members", 0)) for fact in facts]
    home = max(sum(int(fact.get("n_home", 0)) for fact in facts), 1)
    estimated = store.read_json(layout.CELLS_SUMMARY.format(name)) or {}
    return {
        "n_groups": estimated.get("n_groups"),
        "n_cells": estimated.get("n_cells") if estimated.get("engine") != "descent" else None,
        "dimension": estimated.get("dimension"),
        "n_components": estimated.get("n_components"),
        "copies": sum(members) / home,
        "estimated_copies": estimated.get("copies"),
        "largest_group": max(members, default=0),
        "estimated_largest_group": estimated.get("largest_group"),
        "n_parts": sum(int(fact.get("n_parts", 0)) for fact in facts),
    }


def _weightings(store: Store, plan: Plan, methods: Sequence[Method], name: str, k: int) -> Iterable[dict[str, Any]]:
    for stage in plan.stages:
        if (planned := stage.parameters_of(WEIGHTS_STAGE)) is None:
            continue
        weighting = planned.weighting
        if (weighting.graph, weighting.n_neighbors) != (name, k):
            continue
        used = [m.label for m in methods if weighting in graph_needs([m])]
        summary = weight_summary(store, weighting)
        t_rule = weighting.t if isinstance(weighting.t, str) else "given"
        yield {
            "kind": GIVEN if name == GIVEN else weighting.weights,
            "t": summary["t"] if weighting.weights == "heat" else None,
            "t_rule": None if name == GIVEN else t_rule,
            "self_loops": weighting.self_loops,
            "labeled_factor": weighting.labeled_factor,
            "n_underflow": summary["n_underflow"],
            "n_isolated": summary["n_isolated"],
            "used_by": used,
        }


def _by_label(store: Store, plan: Plan, stored: Callable[[Store, Method], Any]) -> dict[str, Any]:
    """Return the stored facts of each method by its label, without methods that have none."""
    return {method.label: facts for method in settings_of(plan).methods if (facts := stored(store, method)) is not None}


def graph_warnings(graphs: Iterable[GraphReport]) -> list[RunWarning]:
    """Return a warning for each problem of a run's graphs, with a remedy."""
    return [RunWarning(*problem, (graph.name,), "graph") for graph in graphs for problem in _graph_problems(graph)]


def _graph_problems(graph: GraphReport) -> Iterator[tuple[str, str, str]]:
    """Yield kind, level and text of each problem of a graph."""
    recall = graph.recall.get("value")
    if recall is not None and recall < LOW_RECALL:
        remedy = BETTER_SEARCH[graph.engine or ""]
        text = (
            f"the search found {recall:.1%} of the true neighbors; {remedy}, or set graph.engine to exact. Where "
            "that does not help, the rows lie so evenly that no ranking on their graph is stable"
        )
        yield "low recall", LIMITS, text
    if graph.n_isolated:
        remedy = "; raise graph.n_neighbors" if graph.n_neighbors and not graph.n_short else ""
        yield "isolated rows", LIMITS, f"{graph.n_isolated} rows have no edge{remedy}"
    if graph.n_short:
        text = (
            f"{graph.n_short} rows have fewer than {graph.list_length} neighbors: too few others have a feature in "
            "common with them, or were met by the search"
        )
        yield "short lists", LIMITS, text
    if graph.n_open:
        text = (
            f"{graph.n_open} labeled rows may have nearer neighbors than the {graph.n_candidates} candidates in X "
            "hold; raise n_neighbors of the method"
        )
        yield "open lists", LIMITS, text
    for w in graph.weightings:
        if w.n_underflow:
            text = (
                f"weights {w.kind}: {w.n_underflow} of {graph.n_edges} weights are 0 and {w.n_isolated} rows have "
                f"no edge left; {_weight_remedy(graph, w)}"
            )
            yield "weights of 0", CHANGES, text
        elif (w.n_isolated or 0) > (graph.n_isolated or 0):
            yield "isolated rows", LIMITS, f"weights {w.kind}: {w.n_isolated} rows have no edge of positive weight"


def _dominance_warnings(tiles: Tiles, plan: Plan) -> list[RunWarning]:
    parameter_sets = [stage.parameters_of(NEIGHBORS_STAGE) or stage.parameters_of(BUILD_STAGE) for stage in plan.stages]
    searched = [one.graph for one in parameter_sets if one is not None]
    return list(dominance_warnings(tiles, searched, "transform: {graph: zscore}"))


def _method_warnings(store: Store, plan: Plan) -> list[RunWarning]:
    context, settings = Context(store), settings_of(plan)
    info, labels, warnings = context.tiles.info, context.label_counts(), list[RunWarning]()
    if (note := classes_note(info.classes, info.facts.get("unlabeled"))) is not None:
        warnings.append(RunWarning("classes or unlabeled", CHANGES, note))
    for method in settings.methods:
        warnings += label_warnings(method, labels)
        if (solution := stored_solution(store, method)) is not None and not solution["converged"]:
            text = (
                f"the objective and the weights had not settled when it stopped after {solution['n_iter']} "
                f"{'round' if solution['n_iter'] == 1 else 'rounds'}; "
                f"raise max_iter ({method.parameters.model_dump()['max_iter']}), tol or gamma"
            )
            warnings.append(RunWarning("not converged", CHANGES, text, (method.label,), "method"))
        if (elimination := stored_elimination(store, method)) is not None:
            warnings += elimination_warnings(method, elimination)
        is_asked = settings.fdr is not None
        if why := (is_asked and method.untested) or one_block(store, method):
            lead = "select.fdr selects none of its features, as these have no p-values" if is_asked else "no p-values"
            level = CHANGES if is_asked else LIMITS
            warnings.append(RunWarning("no p-values", level, f"{lead}: {why}", (method.label,), "method"))
    return warnings + _filter_warnings(store, plan)


def _weight_remedy(graph: GraphReport, weighting: WeightingReport) -> str:
    if weighting.kind != "heat":
        return "choose other weights"
    return "raise t" if graph.metric == "target" else "raise t or scale the data"


# ------------------------------------------------------------------------ the report
def write_report(store: Store, manifest: Mapping[str, Any]) -> StoragePath:
    """Write ``report.html`` of a finished run and return its path."""
    from daskfs.report.render import render_report

    html = render_report(report_summary(store, manifest))
    store.write_bytes(layout.REPORT_HTML, html.encode())
    return store.path(layout.REPORT_HTML)


def report_summary(store: Store, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the summary that :func:`daskfs.report.render.render_report` renders.

    Raise :class:`StoreError` if a part of `manifest` is of another type than daskfs writes.
    """
    facts = Manifest.read(manifest, f"{store.url}/{layout.RUN_JSON}")
    plan = Plan.read(store)
    tiles = Context(store).tiles
    names = tiles.feature_names()
    methods = shown_order(settings_of(plan).methods, None if facts.verdict is None else facts.verdict.method)
    tables = {method.label: method_scores(store, method) for method in methods}
    settings = settings_of(plan)
    level = _level(settings)
    chosen = {m.label: selectable(store, m, tables[m.label], filtered=settings.filtered) for m in methods}
    axis = feature_axis(names, is_asked=bool(facts.feature_axis))
    task, source = tiles.info.task, tiles.info.source
    source = source if is_generated(source) else PurePath(source).name or source
    evaluation = evaluation_summary(store, plan, task, facts.evaluation) if task else EvaluationReport()
    return {
        **facts.model_dump(include={*Shown.model_fields}),
        "title": facts.title or f"Feature ranking of {source}",
        "axis": facts.feature_axis or ("" if axis is None else "feature"),
        "files": [name for name in layout.RESULTS if name.endswith(".csv") and store.path(name).is_there()],
        "version": __version__,
        "methods": [
            {
                **_method(m, tables[m.label], names, level),
                "parameters": _parameters(m, ((eliminated := stored_elimination(store, m)) or {}).get("route")),
                "trade_off": stored_curve(store, m),
                "solution": stored_solution(store, m),
                "elimination": eliminated,
                "image": _image(plan, m, tables[m.label], chosen[m.label]),
                "along": {} if axis is None else _along(m, tables[m.label], chosen[m.label], axis),
                "best": [names[feature] for feature in chosen[m.label][:BEST]],
            }
            for m in methods
        ],
        "agreement": _agreement_facts(methods, chosen, int(plan.facts["n_selected"])),
        "redundancy": _redundancy(store, plan, methods, tables, chosen, names),
        "batches": batch_summary(store, plan, facts.batches, tables, names).model_dump(),
        "evaluation": evaluation.model_dump(),
        "excluded": _excluded_features(methods, tables, names, tiles),
        "stages": [{**s.model_dump(), "recomputed": facts.recomputed.get(s.name or "", 0)} for s in facts.stages],
    }


def _method(method: Method, table: np.ndarray, names: list[str], level: float) -> dict[str, Any]:
    scores, fields = table[0], list(method.fields if method.combined else method.criterion.fields)
    rows, tests = table[: len(fields)], dict[str, Any]()
    if (pvalues := method.pvalues(table)) is not None:
        passing = method.qvalues(pvalues)
        rows = np.vstack([rows[0], pvalues, passing, rows[1:]])
        fields[1:1] = [PVALUE, "qvalue"]
        counts, edges = np.histogram(pvalues[~np.isnan(pvalues)], bins=PVALUE_BINS, range=(0.0, 1.0))
        tests = {"pvalues": {"edges": edges.tolist(), "counts": counts.tolist()}}
        tests["n_significant"] = int(np.count_nonzero(passing <= level))
    ranked = method.ranked_features(table)
    places = np.unique(np.linspace(0, ranked.size - 1, min(CURVE_POINTS, ranked.size)).astype(int))
    return {
        "label": method.label,
        "method": method.criterion.name,
        "direction": method.direction,
        "citation": method.criterion.citation,
        "n_ranked": int(ranked.size),
        "n_excluded": int(scores.size - ranked.size),
        "curve": {"rank": [int(p) + 1 for p in places], "score": [float(s) for s in scores[ranked[places]]]},
        **tests,
        "columns": fields,
        "top": [
            {"rank": rank, "feature": int(f), "name": names[f], "values": [float(v) for v in rows[:, f]]}
            for rank, f in enumerate(ranked[:TOP_FEATURES], start=1)
        ],
    }


def _along(method: Method, table: np.ndarray, chosen: np.ndarray, axis: np.ndarray) -> dict[str, list[float]]:
    """Return the scores along the axis of the features, and the first features; ranks where scores do not compare."""
    scores = table[0]
    if method.ranked_by:
        scores = np.full(axis.size, np.nan)
        ranked = method.ranked_features(table)
        scores[ranked] = np.arange(1, ranked.size + 1)
    places = np.unique(np.linspace(0, axis.size - 1, min(CURVE_POINTS, axis.size)).astype(int))
    best = chosen[:BEST]
    parts = {"x": axis[places], "score": scores[places], "best_x": axis[best], "best_score": scores[best]}
    return {name: values.tolist() for name, values in parts.items()}


def _image(plan: Plan, method: Method, table: np.ndarray, chosen: np.ndarray) -> dict[str, Any] | None:
    """Return images of scores and selected features; None if features are not pixels."""
    if (planned := plan.parameters_of(SCORE_IMAGES_STAGE)) is None:
        return None
    shape, order, sizes = planned.image_shape, planned.image_order, planned.sizes
    return {
        "shape": shape,
        "sizes": sizes,
        "by_rank": bool(method.ranked_by),
        "scores": for_report(score_levels(method, table, shape, order)),
        "selected": for_report(selected_levels(chosen, sizes, shape, order)),
    }


def _parameters(method: Method, route: str | None) -> dict[str, Any]:
    """Return the parameters that affect the ranking.

    A method on a precomputed weight matrix has no parameters of weights, and one that eliminates features only those of
    `route`.
    """
    taken = method.parameters if route is None else method.parameters.model_copy(update={"large_n": route})
    idle = taken.idle()
    parameters = {key: value for key, value in method.parameters.model_dump(mode="json").items() if key not in idle}
    if not parameters.get("significance"):  # which it affects alone
        parameters.pop("foreign_graph", None)
    if getattr(method.parameters, "graph", None) != GIVEN:
        return parameters
    of_weights = ("n_neighbors", "metric", "weights", "t", "graph_scaling")
    return {"graph": GIVEN, **{key: value for key, value in parameters.items() if key not in of_weights}}


def _agreement_facts(methods: list[Method], chosen: Mapping[str, np.ndarray], top_k: int) -> dict[str, Any] | None:
    if len(methods) < 2:
        return None
    tops = [set(chosen[method.label][:top_k].tolist()) for method in methods]
    jaccard = [[len(a & b) / max(len(a | b), 1) for b in tops] for a in tops]
    return {"labels": [m.label for m in methods], "top_k": top_k, "jaccard": jaccard}


def _filter_warnings(store: Store, plan: Plan) -> list[RunWarning]:
    """Return a warning for each filtered ranking shorter than select.n_features."""
    planned = plan.parameters_of(FILTER_STAGE)
    if planned is None or (n_wanted := planned.redundancy.n_wanted) is None:
        return []
    warnings = []
    for method in planned.methods:
        n_kept = store.open(layout.FILTERED.format(method.label)).shape[0]
        if n_kept < n_wanted:
            text = (
                f"select.redundancy leaves {n_kept} of the {n_wanted} features that select.n_features wants; raise its "
                "threshold or n_candidates"
            )
            warnings.append(RunWarning("too few left", CHANGES, text, (method.label,), "method"))
    return warnings


def _redundancy(
    store: Store,
    plan: Plan,
    methods: list[Method],
    tables: Mapping[str, np.ndarray],
    chosen: Mapping[str, np.ndarray],
    names: list[str],
) -> dict[str, Any] | None:
    """Return counts of kept and dropped features, and the first dropped ones; None without a redundancy filter."""
    if (planned := plan.parameters_of(FILTER_STAGE)) is None:
        return None
    redundancy = planned.redundancy
    counts, rows = [], []
    for method in methods:
        table = tables[method.label]
        rank = np.argsort(method.order(table)) + 1
        dropped = dropped_features(store, method, table, names)
        passed = {feature for feature, _ in dropped}
        n_kept = sum(feature not in passed for feature in chosen[method.label].tolist())
        counts.append(
            {
                "label": method.label,
                "n_kept": n_kept,
                "n_selected": int(selected_features(store, method, table, settings_of(plan)).size),
                "n_dropped": len(dropped),
            }
        )
        rows += [
            {"label": method.label, "rank": int(rank[feature]), "name": names[feature], "reason": reason}
            for feature, reason in dropped[:DROPPED]
        ]
    settings = {key: getattr(redundancy, key) for key in ("measure", "threshold", "n_candidates", "max_per_group")}
    return {**settings, "n_keep": len(redundancy.choice.keep), "methods": counts, "rows": rows}


def _excluded_features(
    methods: list[Method], tables: Mapping[str, np.ndarray], names: list[str], tiles: Tiles
) -> dict[str, Any]:
    constant = tiles.constant_notes()
    by_feature: dict[tuple[int, str], list[str]] = {}
    for method in methods:
        for feature in np.flatnonzero(method.is_excluded(tables[method.label])):
            note = str(constant[feature]) or method.reason
            by_feature.setdefault((int(feature), note), []).append(method.label)
    rows = [
        {"feature": feature, "name": names[feature], "note": note, "methods": labels}
        for (feature, note), labels in sorted(by_feature.items())
    ]
    return {"total": len({feature for feature, _ in by_feature}), "rows": rows[:EXCLUDED_LISTED]}
