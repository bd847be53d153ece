"""Stage "score": all rows of one block of features in memory, the graph streaming by, every criterion of the job from
one read.

When a slab of b columns is held whole, each feature's score is complete inside one task, and nothing needs merging
across tasks. A single column of 10^8 float32 rows takes 0.4 GB, so a worker that holds the degrees of the graph can
hold a slab; there is no second route that cuts slabs into row tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.moments import Moments, column_moments
from daskfs.kernels.passes import Passes, passes_for
from daskfs.methods.registry import Method, make_method
from daskfs.methods.statistics import (
    GraphForms,
    Need,
    NeedDistributions,
    NeedGraphForms,
    NeedMoments,
    NeedNumbers,
    NeedSignTable,
    Statistic,
    distribution_statistics,
    panel_statistic,
    sign_table,
)
from daskfs.scores.forms import graph_forms
from daskfs.store import layout
from daskfs.store.context import Context

Panels = list[np.ndarray]


def slab_range(unit: int, slab_columns: int, n_features: int) -> slice:
    """Columns of one slab."""
    return slice(unit * slab_columns, min((unit + 1) * slab_columns, n_features))


def methods_from(raw: Iterable[Mapping[str, Any]]) -> list[Method]:
    """Rebuild methods from JSON: name, label, parameters."""
    return [
        dataclasses.replace(make_method(m["name"], m["parameters"], m["label"]), combined=bool(m.get("combined")))
        for m in raw
    ]


def create_scores(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create one array of fields for each method."""
    n_features, columns = context.tiles.shape.n_features, int(parameters["slab_columns"])
    for method in methods_from(parameters["methods"]):
        n_fields = len(method.slab_fields)
        name, shape = slab_table(method), (n_fields, n_features)
        context.store.create(name, shape, np.float64, (n_fields, columns))


def score_slab(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Score the features of one slab under every method."""
    methods = methods_from(parameters["methods"])
    columns = slab_range(unit, int(parameters["slab_columns"]), context.tiles.shape.n_features)
    panels = context.tiles.read_panels(columns.start, columns.stop)
    labels = context.counted_labels() if any(m.criterion.needs_labels for m in methods) else None
    weights = context.weights()
    needs = list(dict.fromkeys(need for method in methods for need in method.needs))
    statistics: list[dict[Need, Statistic]] = [{} for _ in panels]
    for scaling in dict.fromkeys(need.scaling for need in needs):
        scaled = context.tiles.scaled_panels(panels, columns.start, scaling)
        passes = passes_for(context.tiles.shape.n_samples * context.tiles.shape.n_features, scaled[0].dtype)
        wanted = [need for need in needs if need.scaling == scaling]
        sorts = [need for need in wanted if isinstance(need, NeedDistributions)]
        start = columns.start
        for statistic, panel in zip(statistics, scaled, strict=True):
            statistic.update(distribution_statistics(sorts, panel, labels, weights))
            for need in wanted:
                if isinstance(need, NeedNumbers):
                    statistic[need] = np.arange(start, start + panel.shape[1])
                elif not isinstance(need, NeedGraphForms | NeedSignTable | NeedDistributions):
                    statistic[need] = panel_statistic(need, panel, labels, weights, passes)
            start += panel.shape[1]
        _add_graph_forms(context, [n for n in wanted if isinstance(n, NeedGraphForms)], scaled, statistics, passes)
        _add_sign_tables(
            context, [n for n in wanted if isinstance(n, NeedSignTable)], scaled, statistics, labels, weights
        )
        del scaled  # before the next copy of the slab
    for method in methods:
        parts = [method.criterion.score(statistic, method.parameters) for statistic in statistics]
        fields = np.stack([np.concatenate([_field(p, name) for p in parts]) for name in method.slab_fields])
        context.store.open(slab_table(method))[:, columns] = fields


def slab_table(method: Method) -> str:
    """Return the name of the table that the slabs of a method write."""
    return (layout.UNFINISHED if method.finish else layout.SCORES).format(method.label)


def _field(part: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return part[name] if name in part else np.full_like(part["score"], np.nan)


def _add_graph_forms(
    context: Context,
    needs: list[NeedGraphForms],
    panels: Panels,
    statistics: list[dict[Need, Statistic]],
    passes: Passes,
) -> None:
    """Stream each graph once for all its weightings, over all panels."""
    if not needs:
        return
    of_all = NeedMoments(needs[0].scaling)
    moments = []
    unweighted = context.weights() is None
    for statistic, panel in zip(statistics, panels, strict=True):
        known = statistic.get(of_all) if unweighted else None
        moments.append(known if isinstance(known, Moments) else column_moments(panel, None, passes))
    forms = graph_forms(context, [need.weighting for need in needs], panels, moments, passes)
    for need, found in zip(needs, forms, strict=True):
        for statistic, form in zip(statistics, found, strict=True):
            statistic[need] = form


def _add_sign_tables(
    context: Context,
    needs: list[NeedSignTable],
    panels: Panels,
    statistics: list[dict[Need, Statistic]],
    labels: Labels | None,
    weights: np.ndarray | None,
) -> None:
    """Add what stands on the means of the graph forms."""
    for need in needs:
        assert labels is not None
        volume = float(context.store.need_json(layout.WEIGHT_SUMMARY.format(need.weighting.key))["volume"])
        for statistic, panel in zip(statistics, panels, strict=True):
            forms = statistic[need.forms]
            assert isinstance(forms, GraphForms)
            statistic[need] = sign_table(panel, forms, volume, labels, weights)


def graph_needs(methods: list[Method]) -> list[Weighting]:
    """Return the distinct weightings that the methods stand on, in order."""
    found: list[Weighting] = []
    for method in methods:
        found += [need.weighting for need in method.needs if isinstance(need, NeedGraphForms)]
        found += method.parameters.weightings()
    return list(dict.fromkeys(found))


def method_to_json(method: Method) -> dict[str, Any]:
    """Return what :func:`methods_from` reads."""
    parameters = method.parameters.model_dump(mode="json")
    if hasattr(method.parameters, "graph"):
        parameters["graph"] = method.parameters.graph
    found = {"name": method.criterion.name, "label": method.label, "parameters": parameters}
    return {**found, "combined": True} if method.combined else found
