"""Stage "score": all rows of one block of features in memory, from one read of X, for every criterion of the job.

The graph streams past the slab, so each score is complete inside one task and nothing is merged across tasks. One
column of 10^8 float32 rows takes 0.4 GB: a worker that holds the degrees of the graph can hold a slab, so there is no
second route that cuts slabs into row tiles.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.criteria.criterion import PVALUE
from daskfs.criteria.laplacian_forms import graph_forms
from daskfs.criteria.pairwise_missing import Group, Panel, cut_panels
from daskfs.criteria.registry import Method
from daskfs.criteria.statistics import (
    NO_FORMS,
    Need,
    NeedGraphForms,
    NeedMoments,
    SeenColumns,
    Statistics,
    tested_halves,
)
from daskfs.graph.edges import marks_cost, stored_edges
from daskfs.graph.partition import block_rows
from daskfs.graph.spec import Weighting
from daskfs.kernels.panel.backend import Passes, passes_for
from daskfs.kernels.panel.numpy import CACHE_LINE, ROW_MARK_BYTES, SPARSE_SHARE
from daskfs.kernels.statistics.moments import column_moments
from daskfs.stages.cost import Array, Cost, Objects, fullest
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.tiles import PANEL_WIDTH, Tiles
from daskfs.tiles.shapes import conversion_cost, tile_cost

STATISTICS_BYTES = 1024
"""Bytes of a method's statistics, as objects, for a column with its own rows."""
LEAST_WEIGHTS = 3
"""Minimum weights per edge in the memory plan; finding fewer takes as much."""


def slab_range(unit: int, slab_columns: int, n_features: int) -> slice:
    """Return the columns of one slab."""
    return slice(unit * slab_columns, min((unit + 1) * slab_columns, n_features))


class ScoreParameters(StageParameters):
    """Parameters of "score"."""

    methods: tuple[Method, ...]
    slab_columns: int


def create_scores(context: Context, parameters: ScoreParameters) -> None:
    """Create the table of fields of each method, shape (n_fields, n_features), float64."""
    n_features, columns = context.tiles.shape.n_features, parameters.slab_columns
    for method in parameters.methods:
        n_fields = len(method.slab_fields)
        context.store.create(slab_table(method), (n_fields, n_features), np.float64, (n_fields, columns))


def score_slab(context: Context, parameters: ScoreParameters, unit: int) -> None:
    """Score the features of one slab with every method."""
    methods = parameters.methods
    columns = slab_range(unit, parameters.slab_columns, context.tiles.shape.n_features)
    weights, tiles = context.weights(), context.tiles.as_counted()
    labels = context.labels() if reads_labels(methods, pairwise=tiles.is_pairwise) else None
    labels = labels and labels.counted(weights)
    counts = context.label_counts() if any(method.criterion.needs_labels for method in methods) else None
    panels = cut_panels(tiles, columns.start, columns.stop, labels, weights, counts.n_distinct if counts else 0)
    needs, cache = list(dict.fromkeys(need for method in methods for need in method.needs)), dict[Any, Any]()
    for scaling in dict.fromkeys(need.scaling for need in needs):
        scaled = tiles.scales.of_panels([p.values for p in panels], [p.numbers for p in panels], scaling)
        passes = passes_for(tiles.shape.n_samples * tiles.shape.n_features, scaled[0].dtype)
        own_needs = [need for need in needs if need.scaling == scaling]
        views = [
            SeenColumns(panel.numbers, values, labels, weights, passes, own_needs, context.store, cache, Statistics())
            for panel, values in zip(panels, scaled, strict=True)
        ]
        forms = list(dict.fromkeys(form for need in own_needs for form in need.forms))
        _compute(panels, views, [need for need in own_needs if not need.forms])
        _add_graph_forms(context, forms, panels, scaled, passes)
        _compute(panels, views, [need for need in own_needs if need.forms])
        del scaled, views  # free them before the next copy
    tables = {
        method.label: np.full((len(method.slab_fields), columns.stop - columns.start), np.nan) for method in methods
    }
    for panel in panels:
        for group in panel.groups:
            group_columns = panel.numbers[group.columns] - columns.start
            for method in methods:
                if group.serves(method.criterion):
                    fields = _fields(context, tiles, method, panel, group, cache)
                    for row, name in zip(tables[method.label], method.slab_fields, strict=True):
                        if name in fields:
                            row[group_columns] = fields[name]
    for method in methods:
        context.store.open(slab_table(method))[:, columns] = tables[method.label]


def reads_labels(methods: Sequence[Method], *, pairwise: bool) -> bool:
    """Return whether scoring reads the label of each row, rather than how many there are.

    `pairwise` means that values may be missing: methods with labels then ask which labels the rows of a column have.
    """
    if pairwise:
        return any(method.criterion.needs_labels for method in methods)
    return any(need.reads_labels for method in methods for need in method.needs)


def slab_table(method: Method) -> str:
    """Return the name of the table that the slabs of a method write."""
    return (layout.UNFINISHED if method.finish else layout.SCORES).format(method.label)


def _fields(
    context: Context, tiles: Tiles, method: Method, panel: Panel, group: Group, cache: dict[Any, Any]
) -> Mapping[str, np.ndarray]:
    """Return the fields of the columns of a group by name; p-values in doubt are found by permutation."""
    fields, in_doubt = method.score(group.statistics)
    if in_doubt is not None and in_doubt.any():
        test = method.test
        assert test is not None
        assert test.permuted is not None
        numbers, values = panel.numbers[in_doubt], np.ascontiguousarray(panel.values[:, in_doubt])
        (scaled,) = tiles.scales.of_panels([values], [numbers], method.parameters.score_scaling)
        fields[PVALUE][in_doubt] = test.permuted(context, method.parameters, numbers, scaled, cache)
    return fields


def _compute(panels: Sequence[Panel], views: Sequence[SeenColumns], needs: Sequence[Need[Any]]) -> None:
    """Add the statistics of columns; without those of labels if no row that counts has one."""
    for panel, of_panel in zip(panels, views, strict=True) if needs else ():
        for group in panel.groups:
            if group.counts:
                of_group = group.seen(of_panel)
                for need in needs:
                    if group.n_distinct or not need.reads_labels:
                        group.statistics[need] = need.compute(of_group)


def _add_graph_forms(
    context: Context, needs: Sequence[NeedGraphForms], panels: list[Panel], scaled: list[np.ndarray], passes: Passes
) -> None:
    """Add the graph forms, streaming each graph once for all its weightings, over all panels.

    Forms for the features that a half tests read copies of their columns, and are NaN for the others.
    """
    for half in dict.fromkeys(need.half for need in needs):
        needs_of_half = [need for need in needs if need.half == half]
        if half is None:
            _add_forms(context, needs_of_half, panels, scaled, passes)
            continue
        halves = tested_halves(context.store)
        for need in needs_of_half:
            for panel in panels:
                panel.groups[0].statistics[need] = NO_FORMS.among(panel.numbers.size, np.empty(0, np.int64))
        chosen = [np.flatnonzero(halves[panel.numbers] == half) for panel in panels]
        parts = [part for part in zip(panels, scaled, chosen, strict=True) if part[2].size]
        if not parts:
            continue
        copies = [np.ascontiguousarray(values[:, columns]) for _, values, columns in parts]
        moments = [column_moments(values, None, passes) for values in copies]
        forms = graph_forms(context, [need.weighting for need in needs_of_half], copies, moments, passes)
        for need, forms_of_need in zip(needs_of_half, forms, strict=True):
            for (panel, _, columns), form in zip(parts, forms_of_need, strict=True):
                panel.groups[0].statistics[need] = form.among(panel.numbers.size, columns)


def _add_forms(
    context: Context,
    needs: Sequence[NeedGraphForms],
    panels: Sequence[Panel],
    scaled: Sequence[np.ndarray],
    passes: Passes,
) -> None:
    of_all = NeedMoments(needs[0].scaling)
    moments = []
    unweighted = context.weights() is None
    for panel, values in zip(panels, scaled, strict=True):
        statistics = panel.groups[0].statistics
        is_known = unweighted and panel.is_complete and of_all in statistics
        moments.append(statistics[of_all] if is_known else column_moments(values, None, passes))
    forms = graph_forms(context, [need.weighting for need in needs], scaled, moments, passes)
    for need, forms_of_need in zip(needs, forms, strict=True):
        for panel, form in zip(panels, forms_of_need, strict=True):
            for group in panel.groups:
                group.statistics[need] = form if panel.is_complete else form.part(group.columns)


def graph_needs(methods: Sequence[Method]) -> list[Weighting]:
    """Return the distinct weightings that the methods need, in order."""
    weightings: list[Weighting] = []
    for method in methods:
        weightings += [form.weighting for need in method.needs for form in need.forms]
        weightings += method.parameters.weightings()
    return list(dict.fromkeys(weightings))


def slab_cost(shape: Shape, columns: int, *, scaled: bool) -> Cost:
    """List the columns that a unit holds, as stored, and rescaled if `scaled`."""
    stored = Array("slab", (shape.n_samples, columns), shape.dtype)
    size = np.dtype(np.float64).itemsize if scaled else shape.itemsize
    # of columns in one cache line nothing is left out
    n_compressed = columns if min(columns, PANEL_WIDTH) * size > CACHE_LINE else 0
    sparse = Objects(
        "values that are not 0, of sparse panels",
        shape.n_samples,
        -(-n_compressed // PANEL_WIDTH) * ROW_MARK_BYTES + int(SPARSE_SHARE * n_compressed * size),
    )
    return (stored, sparse, Array("slab, rescaled", (shape.n_samples, columns))) if scaled else (stored, sparse)


def stream_cost(n_samples: int, weightings: Sequence[Weighting]) -> Cost:
    """List a block of edges and the rest of the block before it, with all weightings; those of one graph share it."""
    if not weightings:
        return ()
    rows = min(block_rows(n_samples), n_samples)
    of_edges = {dataclasses.replace(weighting, self_loops=False) for weighting in weightings}
    together = Counter((w.graph, w.n_neighbors) for w in of_edges)
    n_weights, k = max(LEAST_WEIGHTS, *together.values()), max(w.n_neighbors for w in weightings)
    return (
        *stored_edges(n_samples, k),
        Array("weights of edges, put together, and of the block before", (3, n_weights, rows * k)),
        Array("degrees of rows, put together", (2, len(weightings), rows)),
        *(marks_cost(n_samples) if any(weighting.labeled_factor != 1 for weighting in weightings) else ()),
    )


def score_cost(
    shape: Shape,
    columns: int,
    process: Cost,
    weightings: Sequence[Weighting],
    methods: Sequence[Method],
    *,
    weighted: bool,
    scaled: bool,
    pairwise: bool,
) -> Cost:
    """List the memory of a unit that scores `columns` columns by some methods, on graphs of some weightings.

    `weighted` means that rows have weights, `scaled` that columns are rescaled, and `pairwise` that values may be
    missing, and rows are picked column by column.
    """
    n_samples, dtype = shape.n_samples, "float64" if scaled else shape.dtype
    scored, panel = Array("columns", (n_samples, columns), dtype), (n_samples, min(columns, PANEL_WIDTH))
    of_panel: Cost = ()
    of_rows: Cost = ()
    if reads_labels(methods, pairwise=pairwise):
        of_rows += (Array("labels, as stored and of the rows that count", (1 + weighted, n_samples)),)
    if scaled:
        of_panel += (Array("a panel, rescaled step by step", (3, *panel), dtype),)
        of_rows += (Array("sums, factors and norms of rows", (3, n_samples)),)
    if pairwise:
        of_panel += (
            Array("columns of a panel apart from others, or of the rows that have them", panel, dtype),
            Array("marks of the values that are there", panel, "bool"),
        )
        of_rows += (
            Array("numbers of the rows that have a column", (n_samples,), "int64"),
            Array("their labels, and the known ones of these", (2, n_samples)),
            Array("their weights", (n_samples,)),
            Array("marks of these rows, and of those with a label", (2, n_samples), "bool"),
        )
    statistics = Objects("statistics of columns with rows of their own", (2 + len(methods)) * columns, STATISTICS_BYTES)
    return (
        *process,
        *slab_cost(shape, columns, scaled=scaled),
        *of_panel,
        *tile_cost(shape, 4),
        *stream_cost(n_samples, weightings),
        *of_rows,
        *fullest((), *(need.cost(scored) for method in methods for need in method.needs)),
        *conversion_cost(PANEL_WIDTH, 1 + pairwise),
        *((statistics,) if pairwise else ()),
    )


SCORE_STAGE = StageKind("score", __name__, score_slab, score_cost, arrays=create_scores, reads_weights=True)
