"""Stages "comoments" and "bins": what correlations and distance correlations of candidate features are made of.

For correlations, rows are cut into stretches whose height the number of rows alone decides. One unit takes one stretch
or several, and writes the co-moments of each; the stage after it merges them in order. So neither tiles nor workers
change a bit. Distance correlations are of at most 100,000 rows, drawn evenly over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from daskfs.kernels.comoments import Comoments, ComomentSum, correlations, merge_comoments, stretch_rows
from daskfs.kernels.distance import BINS, DISTANCE_ROWS, BinnedColumn, binned
from daskfs.kernels.scaling import Scaling, scale_rows, without_zscore
from daskfs.kernels.threads import one_thread
from daskfs.scores.slab import slab_range
from daskfs.stages.kind import StageKind, unlisted
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.tiles import spread_rows


def candidate_lists(context: Context, parameters: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the candidates of each method that has some, by label; all features, where these are asked for."""
    if parameters.get("all_features"):
        return {label: np.arange(context.tiles.shape.n_features) for label in parameters["labels"]}
    names = {label: layout.CANDIDATES.format(parameters["purpose"], label) for label in parameters["labels"]}
    lists = {label: context.store.open(name)[...] for label, name in names.items()}
    return {label: features for label, features in lists.items() if features.size}


def sum_comoments(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write the co-moments of some stretches, for each list of candidates.

    All lists are served by one read of X. What a list has is the same whatever other lists there are.
    """
    store, tiles = context.store, context.tiles
    lists = candidate_lists(context, parameters)
    if not lists:
        return
    columns = np.unique(np.concatenate(list(lists.values())))
    places = {label: np.searchsorted(columns, features) for label, features in lists.items()}
    weights = context.weights()
    n_samples, per_unit = tiles.shape.n_samples, int(parameters["stretches_per_unit"])
    height = stretch_rows(n_samples)
    of_unit = slice(unit * per_unit * height, min((unit + 1) * per_unit * height, n_samples))
    sums: dict[str, ComomentSum] = {}
    with one_thread():
        for part, block in tiles.column_blocks(columns, of_unit, without_zscore(parameters["scaling"])):
            stretch, passed = divmod(part.start, height)
            if passed == 0:
                left = min(height, n_samples - part.start)
                sums = {label: ComomentSum(features.size, left) for label, features in lists.items()}
            for label, total in sums.items():
                total.add(block[:, places[label]], None if weights is None else weights[part])
            if part.stop % height and part.stop != of_unit.stop:
                continue
            for label in list(sums):
                found = sums.pop(label).result()
                name = (parameters["purpose"], label, stretch)
                chunks = comoment_rows(found.mean.size), found.mean.size
                store.put_array(layout.COMOMENTS.format(*name), found.matrix, chunks)
                store.put_array(layout.COMOMENT_MEANS.format(*name), np.append(found.mean, found.total))


def comoment_rows(width: int) -> int:
    """Return the rows of a chunk of a matrix of co-moments."""
    return max(1, 2**22 // max(width, 1))


def stored_correlations(context: Context, purpose: str, label: str) -> np.ndarray:
    """Return the correlations of a method's candidates, shape (n_candidates, n_candidates), from what
    :func:`sum_comoments` wrote.
    """
    return correlations(stored_comoments(context, purpose, label))


def stored_comoments(context: Context, purpose: str, label: str) -> Comoments:
    """Return the co-moments of a list of candidates over all rows, from what :func:`sum_comoments` wrote."""
    store, n_samples = context.store, context.tiles.shape.n_samples
    merged: Comoments | None = None
    for stretch in range(-(-n_samples // stretch_rows(n_samples))):
        means = store.open(layout.COMOMENT_MEANS.format(purpose, label, stretch))[...]
        matrix = store.open(layout.COMOMENTS.format(purpose, label, stretch))[...]
        if merged is None:  # the first is added to, and may be the store's own
            merged = Comoments(float(means[-1]), means[:-1], matrix.copy())
        else:
            merged = merge_comoments(merged, Comoments(float(means[-1]), means[:-1], matrix))
    assert merged is not None
    return merged


def distance_rows(context: Context, n_rows: int = DISTANCE_ROWS) -> np.ndarray:
    """Return the rows that distance correlations are taken over, at most `n_rows`, ascending; none of weight 0."""
    n_samples = context.tiles.shape.n_samples
    rows = spread_rows(n_samples, min(n_samples, n_rows))
    weights = context.weights()
    return rows if weights is None else rows[weights[rows] > 0]


def distance_weights(context: Context, n_rows: int = DISTANCE_ROWS) -> np.ndarray | None:
    """Return how many rows each of :func:`distance_rows` counts for."""
    weights = context.weights()
    return None if weights is None else weights[distance_rows(context, n_rows)]


def sampled_columns(
    context: Context, columns: np.ndarray, slab: slice, n_rows: int, scaling: Scaling | None
) -> np.ndarray:
    """Return some columns of a slab, of :func:`distance_rows`; shape (n_rows, n_columns), as stored or rescaled."""
    rows = distance_rows(context, n_rows)
    values = context.tiles.read_columns(columns, rows, slab.start, slab.stop)
    if (scaling := without_zscore(scaling)) is None:
        return values
    of_all = context.tiles.scales.of_rows(scaling, slice(0, context.tiles.shape.n_samples))
    return np.asarray(scale_rows(values, scaling, None, of_all.part(rows)))


def binned_columns(
    context: Context, columns: np.ndarray, slab: slice, n_rows: int, scaling: Scaling | None
) -> Iterator[BinnedColumn]:
    """Yield columns as of :func:`sampled_columns`, each in bins."""
    values, weights = sampled_columns(context, columns, slab, n_rows, scaling), distance_weights(context, n_rows)
    for place in range(columns.size):
        yield binned(values[:, place], BINS, weights)


def bin_candidates(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write the bins of the candidates that lie in one slab."""
    slab = slab_range(unit, int(parameters["slab_columns"]), context.tiles.shape.n_features)
    columns = _inside(candidate_lists(context, parameters), slab)
    if columns.size == 0:
        return
    n_rows = distance_rows(context).size
    codes = np.empty((columns.size, n_rows), dtype=np.uint8)
    table = np.zeros((columns.size, 2 * BINS))
    for place, column in enumerate(binned_columns(context, columns, slab, DISTANCE_ROWS, parameters["scaling"])):
        codes[place] = column.codes
        table[place] = _packed(column)
    context.store.put_array(layout.BINNED_CODES.format(unit), codes, (1, n_rows))
    context.store.put_array(layout.BINNED_TABLE.format(unit), table)


def _inside(lists: Mapping[str, np.ndarray], slab: slice) -> np.ndarray:
    columns = np.unique(np.concatenate(list(lists.values()))) if lists else np.empty(0, dtype=np.int64)
    return columns[(columns >= slab.start) & (columns < slab.stop)]


def _packed(column: BinnedColumn) -> np.ndarray:
    """Number of bins, variance, steps and shares of a column in one row."""
    row, steps = np.zeros(2 * BINS), column.steps.size
    row[0], row[1], row[2 : 2 + steps], row[1 + BINS : 1 + BINS + steps] = (
        steps,
        column.variance,
        column.steps,
        column.below,
    )
    return row


def stored_bins(context: Context, parameters: Mapping[str, Any], features: np.ndarray) -> list[BinnedColumn]:
    """Return some candidates in bins, from what :func:`bin_candidates` wrote."""
    lists, columns = candidate_lists(context, parameters), int(parameters["slab_columns"])
    found: dict[int, BinnedColumn] = {}
    for slab in np.unique(features // columns):
        known = _inside(lists, slab_range(int(slab), columns, context.tiles.shape.n_features))
        codes = context.store.open(layout.BINNED_CODES.format(int(slab)))
        table = context.store.open(layout.BINNED_TABLE.format(int(slab)))[...]
        for feature in features[features // columns == slab]:
            place = int(np.searchsorted(known, feature))
            steps, row = int(table[place, 0]), table[place]
            found[int(feature)] = BinnedColumn(
                codes[place : place + 1][0], row[2 : 2 + steps], row[1 + BINS : 1 + BINS + steps], float(row[1])
            )
    return [found[int(feature)] for feature in features]


COMOMENTS_STAGE = StageKind(
    "comoments",
    __name__,
    sum_comoments,
    unlisted,
    reads_weights=True,
    advice=lambda _: " Fewer n_candidates need less.",
)
BINS_STAGE = StageKind(
    "bins", __name__, bin_candidates, unlisted, reads_weights=True, advice=lambda _: " Fewer n_candidates need less."
)
