"""Stage "trade-off": the weights of sSelect's two terms, chosen by the cut value of the reduced data.

For each trade-off of a grid the features are ranked, sampled rows are reduced to the first of them, and
:mod:`daskfs.kernels.statistics.normalized_cut` measures how easily they split in two. The slabs wrote both terms, and
the sample is stored with the tiles, so X is not read again.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.sselect.criterion import SSelectParameters, mix_terms
from daskfs.kernels.neighbors.distance_bounds import TILE_BYTES
from daskfs.kernels.order import rank_order
from daskfs.kernels.scaling import chain_of, ends_with, inverse_or_zero, row_norms
from daskfs.kernels.statistics.normalized_cut import CUT_ROWS, Cut, cut_features, cut_of, lowest_cut
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import Array, Cost, Fixed
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape, sample_rows
from daskfs.store.store import Store
from daskfs.tiles.shapes import conversion_cost, rows_held

N_TERMS = 3
"""Fields of a feature in the tables that are read and written: the score and its two terms."""
TRADE_OFF_GRID = np.arange(11) / 10
DIRECTION_GRID = 2.0**40
"""Coordinates of unit rows are rounded to this grid, so that rows of one direction are equal at any length."""
USUAL_TRADE_OFF = 0.1
"""The paper's value, used if no reduced data has two different rows."""


class TradeOffParameters(StageParameters):
    """Parameters of "trade-off"."""

    method: Method
    slab_columns: int


def choose_trade_off(context: Context, parameters: TradeOffParameters, unit: int) -> dict[str, Any]:
    """Choose a trade-off, write the scores under it, and store the whole curve."""
    del unit
    method, criterion_parameters = parameters.method, parameters.method.parameters
    assert isinstance(criterion_parameters, SSelectParameters)
    table = context.store.open(layout.UNFINISHED.format(method.label))[...]
    _, graph_term, label_term = table
    count = cut_features(criterion_parameters.n_cut_features, int(np.count_nonzero(~np.isnan(graph_term))))
    orders = [rank_order(mix_terms(graph_term, label_term, t), "ascending")[:count] for t in TRADE_OFF_GRID]
    used = np.unique(np.concatenate(orders))
    rows, block = context.tiles.sampled_columns(used, CUT_ROWS, chain_of(criterion_parameters.graph_scaling))
    weights = context.weights()
    cuts = _cuts(block, used, orders, criterion_parameters, None if weights is None else weights[rows])
    values = np.array([cut.value for cut in cuts])
    finite_terms = label_term[~np.isnan(label_term)]
    if finite_terms.size and (finite_terms == finite_terms[0]).all():
        values[0] = np.nan  # equal label terms cannot rank
    place = lowest_cut(TRADE_OFF_GRID, values)
    chosen = USUAL_TRADE_OFF if place is None else float(TRADE_OFF_GRID[place])
    table[0] = mix_terms(graph_term, label_term, chosen)
    context.store.put_array(layout.SCORES.format(method.label), table, (table.shape[0], parameters.slab_columns))
    sizes = {"n_rows": int(rows.size), "n_features": count, "n_neighbors": criterion_parameters.n_neighbors}
    context.store.write_json(layout.TRADE_OFFS.format(method.label), _curve(cuts) | {"chosen": chosen, **sizes})
    return {"trade_off": chosen}


def _cuts(
    block: np.ndarray,
    used: np.ndarray,
    orders: list[np.ndarray],
    parameters: SSelectParameters,
    weights: np.ndarray | None,
) -> list[Cut]:
    """Cut the rows reduced to the first features of each order; equal sets of features are cut once."""
    cut_by_features: dict[bytes, Cut] = {}
    cuts = []
    with one_thread():  # the number of threads would change the last bits of sums
        for order in orders:
            columns = np.sort(order)
            key = columns.tobytes()
            if key not in cut_by_features:
                reduced = np.ascontiguousarray(block[:, np.searchsorted(used, columns)])
                if parameters.metric == "cosine":
                    reduced *= inverse_or_zero(row_norms(reduced))[:, None]
                if parameters.metric == "cosine" or ends_with(parameters.graph_scaling, "unit"):
                    reduced = np.rint(reduced * DIRECTION_GRID) / DIRECTION_GRID
                cut_by_features[key] = cut_of(reduced, parameters.n_neighbors, weights)
            cuts.append(cut_by_features[key])
    return cuts


def _curve(cuts: list[Cut]) -> dict[str, Any]:
    """Return the curve as lists by name, None for NaN."""
    rows = [asdict(cut) for cut in cuts]
    names = {"value": "cut_value", "kernel_value": "kernel_cut_value", "width": "kernel_width"}
    return {"trade_off": TRADE_OFF_GRID.tolist()} | {
        names.get(key, key): [None if np.isnan(row[key]) else row[key] for row in rows] for key in rows[0]
    }


def stored_curve(store: Store, method: Method) -> dict[str, Any] | None:
    """Return the curve of a method from :func:`choose_trade_off`; None if its trade-off was given."""
    return store.need_json(layout.TRADE_OFFS.format(method.label)) if method.finish == "trade-off" else None


def trade_off_cost(shape: Shape, n_cut_features: int | None, process: Cost) -> Cost:
    """List the memory of the unit."""
    n_sampled, n_features = sample_rows(shape).size, shape.n_features
    of_band = min(n_sampled, -(-n_sampled * shape.tile_rows // shape.n_samples) + 1)
    count, rows = cut_features(n_cut_features, n_features), min(CUT_ROWS, n_sampled)
    used = min(TRADE_OFF_GRID.size * count, n_features)
    return (
        *process,
        rows_held("sampled rows of a band, and what rescales them", shape, of_band, 4),
        Array("terms and scores of features", (N_TERMS, n_features)),
        Array("orders of features under each trade-off", (TRADE_OFF_GRID.size, n_features), "int64"),
        Array("these, put together", (TRADE_OFF_GRID.size, n_features), "int64"),
        Array("weights of rows, as stored and as read", (2, shape.n_samples)),
        Array("rows that are cut, in the first features of all orders", (3, rows, used)),
        Array("these, reduced to one order, and different ones", (6, rows, count)),
        Array("distances, edges, kernel and what their eigenvalues take", (10, rows, rows)),
        Fixed("a tile of products", TILE_BYTES),
        *conversion_cost(n_features),
    )


TRADE_OFF_STAGE = StageKind("trade-off", __name__, choose_trade_off, trade_off_cost, reads_weights=True)
