"""Stage "score": all rows of one block of features in memory, the graph streaming by, every criterion of the job from
one read.

When a slab of b columns is held whole, each feature's score is complete inside one task, and nothing needs merging
across tasks. A single column of 10^8 float32 rows takes 0.4 GB, so a worker that holds the degrees of the graph can
hold a slab; there is no second route that cuts slabs into row tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from daskfs.graph.edges import weighted_blocks
from daskfs.graph.spec import Weighting
from daskfs.kernels.edges import edge_sums
from daskfs.kernels.moments import row_blocks, weighted_deviation
from daskfs.methods.registry import Method, make_method
from daskfs.methods.statistics import GraphForms, Need, NeedGraphForms, Statistic, panel_statistic
from daskfs.store import layout
from daskfs.store.context import Context

Panels = list[np.ndarray]


def slab_range(unit: int, slab_columns: int, n_features: int) -> slice:
    """Columns of one slab."""
    return slice(unit * slab_columns, min((unit + 1) * slab_columns, n_features))


def methods_from(raw: Iterable[Mapping[str, Any]]) -> list[Method]:
    """Rebuild methods from JSON: name, label, parameters."""
    return [make_method(m["name"], m["parameters"], m["label"]) for m in raw]


def create_scores(context: Context, parameters: Mapping[str, Any]) -> None:
    """Create one array of fields for each method."""
    n_features, columns = context.tiles.shape.n_features, int(parameters["slab_columns"])
    for method in methods_from(parameters["methods"]):
        n_fields = len(method.fields)
        name, shape = slab_table(method), (n_fields, n_features)
        context.store.create(name, shape, np.float64, (n_fields, columns))


def score_slab(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Score the features of one slab under every method."""
    methods = methods_from(parameters["methods"])
    columns = slab_range(unit, int(parameters["slab_columns"]), context.tiles.shape.n_features)
    panels = context.tiles.read_panels(columns.start, columns.stop)
    labels = context.labels() if any(m.criterion.needs_labels for m in methods) else None
    needs = list(dict.fromkeys(need for method in methods for need in method.needs))
    statistics: list[dict[Need, Statistic]] = [{} for _ in panels]
    for scaling in dict.fromkeys(need.scaling for need in needs):
        scaled = context.tiles.scaled_panels(panels, columns.start, scaling)
        wanted = [need for need in needs if need.scaling == scaling]
        for statistic, panel in zip(statistics, scaled, strict=True):
            for need in wanted:
                if not isinstance(need, NeedGraphForms):
                    statistic[need] = panel_statistic(need, panel, labels)
        _add_graph_forms(context, [n for n in wanted if isinstance(n, NeedGraphForms)], scaled, statistics)
        del scaled  # before the next copy of the slab
    for method in methods:
        parts = [method.criterion.score(statistic, method.parameters) for statistic in statistics]
        fields = np.stack([np.concatenate([_field(p, name) for p in parts]) for name in method.fields])
        context.store.open(slab_table(method))[:, columns] = fields


def slab_table(method: Method) -> str:
    """Return the name of the table that the slabs of a method write."""
    return (layout.UNFINISHED if method.criterion.finish else layout.SCORES).format(method.label)


def _field(part: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    return part[name] if name in part else np.full_like(part["score"], np.nan)


def _add_graph_forms(
    context: Context, needs: list[NeedGraphForms], panels: Panels, statistics: list[dict[Need, Statistic]]
) -> None:
    """Stream each graph once for all its weightings, over all panels."""
    for graph, k in dict.fromkeys((need.weighting.graph, need.weighting.n_neighbors) for need in needs):
        group = [n for n in needs if (n.weighting.graph, n.weighting.n_neighbors) == (graph, k)]
        weightings = [need.weighting for need in group]
        sums = [np.zeros((len(group), panel.shape[1])) for panel in panels]
        for source, target, weights in weighted_blocks(context, graph, k, weightings):
            for total, panel in zip(sums, panels, strict=True):
                total += edge_sums(panel, source, target, weights)
        for row, need in enumerate(group):
            degrees = context.store.open(layout.DEGREES.format(need.weighting.key))[...]
            for statistic, total, panel in zip(statistics, sums, panels, strict=True):
                statistic[need] = _forms(panel, degrees, total[row])


def _forms(panel: np.ndarray, degrees: np.ndarray, numerator: np.ndarray) -> GraphForms:
    mean, denominator = weighted_deviation(panel, degrees)
    return GraphForms(numerator, denominator, mean, _constant_where(panel, degrees > 0))


def _constant_where(panel: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return which columns have one value on the marked rows, without a copy of these."""
    if rows.all():
        return np.equal(panel.min(axis=0), panel.max(axis=0))
    first = panel[int(rows.argmax())]
    same = np.ones(panel.shape[1], dtype=bool)
    for block in row_blocks(panel.shape[0]):
        same &= ((panel[block] == first) | ~rows[block, None]).all(axis=0)
    return same


def graph_needs(methods: list[Method]) -> list[Weighting]:
    """Return the distinct weightings that the methods stand on, in order."""
    needs = (need for method in methods for need in method.needs if isinstance(need, NeedGraphForms))
    return list(dict.fromkeys(need.weighting for need in needs))


def method_to_json(method: Method) -> dict[str, Any]:
    """Return what :func:`methods_from` reads."""
    parameters = method.parameters.model_dump(mode="json")
    if hasattr(method.parameters, "graph"):
        parameters["graph"] = method.parameters.graph
    return {"name": method.criterion.name, "label": method.label, "parameters": parameters}
