"""Quadratic forms of graphs over the panels of a slab: numerators from the edges, denominators from the degrees.

A column with missing values has its own graph: the rows that have it, and the edges between these. The same stream of
edges gives its degrees and so its denominators (:class:`daskfs.kernels.panel.numpy.EdgeSums`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from daskfs.criteria.statistics import GraphForms
from daskfs.graph.edges import loop_weights, weight_summary, weighted_blocks
from daskfs.graph.partition import block_rows
from daskfs.graph.spec import Weighting
from daskfs.kernels.panel.backend import Passes
from daskfs.kernels.panel.numpy import EdgeSums, no_edge_sums
from daskfs.kernels.statistics.moments import CenteredSums, Moments, RowValues, centered, row_blocks, weighted_deviation
from daskfs.store import layout
from daskfs.store.context import Context

Panels = Sequence[np.ndarray]


def graph_forms(
    context: Context, weightings: Sequence[Weighting], panels: Panels, moments: Sequence[Moments], passes: Passes
) -> list[list[GraphForms]]:
    """Return the forms of each of some distinct weightings, one for each panel.

    `panels` are all columns of the slab, each of shape (n_samples, width), NaN where a value is missing. `moments` are
    unweighted, over all rows; their means are the centers of deviations, and an array of counts marks a panel whose
    columns all lack values.
    """
    centers = [column_moments.mean if np.ndim(column_moments.count) else None for column_moments in moments]
    totals = _edge_totals(context, weightings, panels, centers, passes)
    whole = {i: (panels[i], moments[i]) for i, center in enumerate(centers) if center is None}
    forms = _whole_forms(context, weightings, whole, totals, passes) if whole else {}
    if len(whole) < len(panels):
        rows = context.weights()
        for number, weighting in enumerate(weightings):
            loops = loop_weights(context.store, weighting, rows)
            for i, center in enumerate(centers):
                if center is not None:
                    total = totals[number][i]
                    forms[number, i] = _observed_form(context, weighting, loops, panels[i], center, total, passes)
    return [[forms[number, i] for i in range(len(panels))] for number in range(len(weightings))]


def _edge_totals(
    context: Context,
    weightings: Sequence[Weighting],
    panels: Panels,
    centers: Sequence[np.ndarray | None],
    passes: Passes,
) -> list[list[Any]]:
    """Return the edge sums of each weighting and panel: an array of numerators, or EdgeSums if the panel has a center.

    A panel with missing values has a center. Each graph is streamed once for all its weightings; those that differ only
    in self-loops share sums.
    """
    edges = [replace(weighting, self_loops=False) for weighting in weightings]
    sums_by_edges: dict[Weighting, tuple[list[Any], int]] = {}
    sparse = [passes.compressed(p) if center is None else None for p, center in zip(panels, centers, strict=True)]
    for graph, k in dict.fromkeys((w.graph, w.n_neighbors) for w in weightings):
        by_edges = {e: w for e, w in zip(edges, weightings, strict=True) if (w.graph, w.n_neighbors) == (graph, k)}
        shapes = [(len(by_edges), panel.shape[1]) for panel in panels]
        sums: list[Any] = [np.zeros(s) if c is None else no_edge_sums(*s) for s, c in zip(shapes, centers, strict=True)]
        for source, target, weights in weighted_blocks(context, graph, k, list(by_edges.values())):
            for total, panel, center, sparse_panel in zip(sums, panels, centers, sparse, strict=True):
                if center is None:
                    total += passes.edge_sums(panel, source, target, weights, sparse_panel)
                else:
                    total.add(passes.observed_edge_sums(panel, center, source, target, weights))
        sums_by_edges.update({e: (sums, row) for row, e in enumerate(by_edges)})
    # each weighting gets sums of its own, as its self-loops are added to them
    return [[_of_weighting(total, row) for total in sums] for sums, row in map(sums_by_edges.__getitem__, edges)]


def _of_weighting(total: np.ndarray | EdgeSums, row: int) -> np.ndarray | EdgeSums:
    if isinstance(total, EdgeSums):
        part = slice(row, row + 1)
        return EdgeSums(total.sums[:, part].copy(), total.low[part].copy(), total.high[part].copy())
    return total[row]


# --------------------------------------------------------------------------------------------------- complete columns
def _whole_forms(
    context: Context,
    weightings: Sequence[Weighting],
    panels: Mapping[int, tuple[np.ndarray, Moments]],
    numerators: Sequence[Sequence[np.ndarray]],
    passes: Passes,
) -> dict[tuple[int, int], GraphForms]:
    """Return the forms by numbers of weighting and panel, with denominators from the degrees of all rows."""
    sums = {i: CenteredSums(moments.mean, len(weightings), passes) for i, (_, moments) in panels.items()}
    degrees = [context.store.open(layout.DEGREES.format(weighting.key)) for weighting in weightings]
    n_samples = context.tiles.shape.n_samples
    n_isolated = np.zeros(len(weightings), np.int64)
    for rows in row_blocks(n_samples, block_rows(n_samples)):
        block = np.stack([of_one[rows] for of_one in degrees])
        n_isolated += np.count_nonzero(block == 0, axis=1)
        for i, total in sums.items():
            total.add(panels[i][0][rows], block)
    spreads = {i: total.result() for i, total in sums.items()}
    forms = {}
    for number, of_one in enumerate(degrees):
        volume = float(weight_summary(context.store, weightings[number])["volume"])
        n_connected = n_samples - int(n_isolated[number])
        for i, (panel, moments) in panels.items():
            spread = [values[..., number, :] for values in spreads[i]]
            numerator = numerators[number][i]
            forms[number, i] = _form(panel, moments, of_one, n_connected, numerator, spread, volume, passes)
    return forms


def _form(
    panel: np.ndarray,
    moments: Moments,
    degrees: RowValues,
    n_connected: int,
    numerator: np.ndarray,
    spread: Sequence[np.ndarray],
    volume: float,
    passes: Passes,
) -> GraphForms:
    """Return one form, reading degrees, (n_samples,), again if a row has none, or a mean is far from that of all.

    `spread` is what :class:`CenteredSums` returns for the weighting.
    """
    mean, denominator, far = spread
    far = far & ~moments.is_constant  # whose mean is off by rounding alone
    if not n_connected:  # no edge counts: all pairs have closed forms
        return GraphForms(numerator, np.zeros_like(denominator), np.zeros_like(mean), np.ones(far.shape, bool), 0.0)
    if far.any():
        mean, denominator = mean.copy(), denominator.copy()
        mean[:, far], denominator[far] = weighted_deviation(panel, degrees, passes, np.flatnonzero(far))
    is_whole = n_connected == len(panel)
    is_constant = moments.is_constant if is_whole else _constant_where(panel, degrees, passes)
    return GraphForms(numerator, denominator, mean, is_constant, volume)


def _constant_where(panel: np.ndarray, degrees: RowValues, passes: Passes) -> np.ndarray:
    """Return a mask of the columns with one value on the rows of positive degree, copying one block at a time."""
    low, high = np.full(panel.shape[1], np.inf), np.full(panel.shape[1], -np.inf)
    for block in row_blocks(len(panel), block_rows(len(panel))):
        is_marked = degrees[block] > 0
        if is_marked.any():
            smallest, largest = passes.extremes(panel[block] if is_marked.all() else panel[block][is_marked])
            np.minimum(low, smallest, out=low)
            np.maximum(high, largest, out=high)
    return low == high


# ------------------------------------------------------------------------------------------ columns with missing values
def _observed_form(
    context: Context,
    weighting: Weighting,
    loops: float | np.ndarray | None,
    panel: np.ndarray,
    center: np.ndarray,
    total: EdgeSums,
    passes: Passes,
    *,
    is_near: bool = False,
) -> GraphForms:
    """Return one form of columns that lack values, from their edge sums around a center.

    Columns whose mean by degrees is far from the center, relative to their spread, are streamed again around that mean,
    unless `is_near`.
    """
    if loops is not None:
        total.add(_loop_sums(panel, center, np.broadcast_to(loops, len(panel)), passes))
    numerator, weight, sums, squares = total.sums[:, 0]
    volume, is_constant = 2 * weight, total.low[0] >= total.high[0]  # without edges: inf and -inf
    mean, denominator = centered(center, sums, squares, volume)
    far = np.flatnonzero((denominator < squares / 2) & ~is_constant)
    denominator[is_constant] = 0.0
    if far.size and not is_near:
        far_panel, near = np.ascontiguousarray(panel[:, far]), mean[0, far]
        [[again]] = _edge_totals(context, [weighting], [far_panel], [near], passes)
        form = _observed_form(context, weighting, loops, far_panel, near, again, passes, is_near=True)
        mean[:, far], denominator[far] = form.mean, form.denominator
    return GraphForms(numerator, denominator, mean, is_constant, volume)


def _loop_sums(panel: np.ndarray, center: np.ndarray, loops: np.ndarray, passes: Passes) -> EdgeSums:
    """Return the sums over self-loops.

    A loop counts once in the degree of its row, and other edges at both ends, so the sum of weights has half of it.
    """
    edge_sums = no_edge_sums(1, panel.shape[1])
    for rows in row_blocks(len(panel)):
        values, weights = panel[rows].astype(np.float64), np.ascontiguousarray(loops[None, rows])
        gone = np.isnan(values)
        np.copyto(values, center, where=gone)
        sums, squares = passes.deviation_sums(values, center, weights)
        volume = passes.weighted_sums((~gone).astype(np.float64), weights)
        is_marked = ~gone & (weights[0] > 0)[:, None]
        low = values.min(axis=0, where=is_marked, initial=np.inf)
        high = values.max(axis=0, where=is_marked, initial=-np.inf)
        edge_sums.add(EdgeSums(np.stack([np.zeros_like(volume), volume / 2, sums, squares]), low[None], high[None]))
    return edge_sums
