"""Quadratic forms of the graphs of a job, over the panels of a slab: numerators from the edges that stream by,
denominators from the degrees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from daskfs.graph.edges import weighted_blocks
from daskfs.graph.partition import block_rows
from daskfs.graph.spec import Weighting
from daskfs.kernels.moments import CenteredSums, Moments, row_blocks, weighted_deviation
from daskfs.kernels.passes import Passes
from daskfs.methods.statistics import GraphForms
from daskfs.store import layout
from daskfs.store.context import Context

Panels = Sequence[np.ndarray]
Spread = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Means, sums of squared deviations, and where these are too far from the center they were taken from."""


def graph_forms(
    context: Context, weightings: Sequence[Weighting], panels: Panels, moments: Sequence[Moments], passes: Passes
) -> list[list[GraphForms]]:
    """Return the forms of each weighting, one for each panel.

    Parameters
    ----------
    context
        Run store with edges and degrees.
    weightings
        Distinct weightings.
    panels
        All columns of the slab, each panel of shape (n_samples, width).
    moments
        Of each panel over all rows, each counting for one: deviations are taken from these means.
    passes
        What adds up.
    """
    numerators = _numerators(context, weightings, panels, passes)
    sums = [CenteredSums(known.mean, len(weightings), passes) for known in moments]
    degrees = [context.store.open(layout.DEGREES.format(weighting.key)) for weighting in weightings]
    n_samples = context.tiles.shape.n_samples
    n_isolated = np.zeros(len(weightings), np.int64)
    for rows in row_blocks(n_samples, block_rows(n_samples)):
        block = np.stack([of_one[rows] for of_one in degrees])
        n_isolated += np.count_nonzero(block == 0, axis=1)
        for total, panel in zip(sums, panels, strict=True):
            total.add(panel[rows], block)
    spread = [_spread(total, known) for total, known in zip(sums, moments, strict=True)]
    forms = []
    for number, of_one in enumerate(degrees):
        whole = not n_isolated[number] and not any(far[number].any() for _, _, far in spread)
        held = None if whole else of_one[...]
        forms.append(
            [
                _form(panel, known, held, numerators[number][i], _row(spread[i], number), passes)
                for i, (panel, known) in enumerate(zip(panels, moments, strict=True))
            ]
        )
    return forms


def _spread(total: CenteredSums, moments: Moments) -> Spread:
    mean, squares, far = total.result()
    return mean, squares, far & ~moments.is_constant  # of which the mean is off by its rounding alone


def _row(spread: Spread, number: int) -> Spread:
    mean, squares, far = spread
    return mean[number], squares[number], far[number]


def _form(
    panel: np.ndarray,
    moments: Moments,
    degrees: np.ndarray | None,
    numerator: np.ndarray,
    spread: Spread,
    passes: Passes,
) -> GraphForms:
    """Return one form; `degrees` are needed where rows have none, or where means lie far from those of all rows."""
    mean, denominator, far = spread
    if degrees is None:
        return GraphForms(numerator, denominator, mean, moments.is_constant)
    if not degrees.any():  # no edge of those that count: all pairs have closed forms
        nothing = np.zeros_like(mean)
        return GraphForms(numerator, nothing, nothing, np.ones(mean.shape, bool))
    if far.any():
        mean, denominator = mean.copy(), denominator.copy()
        mean[far], denominator[far] = weighted_deviation(np.ascontiguousarray(panel[:, far]), degrees, passes)
    return GraphForms(numerator, denominator, mean, _constant_where(panel, degrees > 0, passes))


def _numerators(
    context: Context, weightings: Sequence[Weighting], panels: Panels, passes: Passes
) -> list[list[np.ndarray]]:
    """Stream each graph once for all its weightings. Loops do not show on edges: with and without them is one sum."""
    edges = [replace(weighting, self_loops=False) for weighting in weightings]
    found: dict[Weighting, list[np.ndarray]] = {}
    for graph, k in dict.fromkeys((w.graph, w.n_neighbors) for w in weightings):
        wanted = {e: w for e, w in zip(edges, weightings, strict=True) if (w.graph, w.n_neighbors) == (graph, k)}
        sums = [np.zeros((len(wanted), panel.shape[1])) for panel in panels]
        for source, target, weights in weighted_blocks(context, graph, k, list(wanted.values())):
            for total, panel in zip(sums, panels, strict=True):
                total += passes.edge_sums(panel, source, target, weights)
        found.update({e: [total[row] for total in sums] for row, e in enumerate(wanted)})
    return [found[e] for e in edges]


def _constant_where(panel: np.ndarray, rows: np.ndarray, passes: Passes) -> np.ndarray:
    """Return which columns have one value on the marked rows, of which a block is copied at a time."""
    low, high = np.full(panel.shape[1], np.inf), np.full(panel.shape[1], -np.inf)
    for block in row_blocks(panel.shape[0]):
        marked = rows[block]
        if marked.any():
            smallest, largest = passes.extremes(panel[block] if marked.all() else panel[block][marked])
            np.minimum(low, smallest, out=low)
            np.maximum(high, largest, out=high)
    return low == high
