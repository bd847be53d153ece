"""Stages of RLSR, SSUFS and DSSFS: passes over the rows and solutions of the weights, in turn, until both agree.

Rows enter by two sums: S = X'HX, made once, and P = X'HY for the targets of the round. In a pass, the targets of
unlabeled rows are the predictions of the last weights, projected on the simplex (Eq. 8 of Zhong, Chen and Nie 2019);
DSSFS also drags labeled rows. Targets are never stored. Sums are taken over stretches of rows, whose height depends on
n_samples alone, and added in order. The solution (solution.py) takes the steps of kernels/regression/rescaled.py, and
offsets follow from means (Eq. 6). Both are exact minima of their blocks, so the objective falls each round. The methods
of a job that scale X alike share passes.

If neither S nor X fits a process, a pass may also compute X'H(X V) for a V that a solution asks for, which resumes with
the product. After every round a state (state.py) holds all that is needed to resume.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daskfs.criteria.centered import CENTERED_FIELDS
from daskfs.criteria.distance_correlation.matrix import stored_feature_correlations
from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.state import (
    FIRST,
    GroupParameters,
    State,
    cheaper_solver,
    is_dragged,
    load_state,
    products_cost,
    rescaled_parameters,
    state_cost,
)
from daskfs.criteria.row_blocks import RowBlock, center_and_scale, labels_cost, read_blocks, row_parts
from daskfs.criteria.rrpc.correlations import comoment_rows, stored_comoments
from daskfs.criteria.slab import slab_table
from daskfs.kernels.greedy import pick_apart
from daskfs.kernels.regression.centered import CenteredRows
from daskfs.kernels.regression.rescaled import Certificate, certificate, norms
from daskfs.kernels.regression.simplex import project_rows
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import Array, Cost, fullest
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.tiles.row_partitions import block_rows, reading_cost

RESCALED = "rescaled"


# ------------------------------------------------------------------------------------------------ before the loop
def scale_features(context: Context, parameters: GroupParameters, unit: int) -> None:
    """Write center, scale and diag(S) of the features, and S itself under "cholesky"."""
    del unit
    store, key = context.store, parameters.key
    method = parameters.methods[0]
    mean, scale = center_and_scale(context, method, rescaled_parameters(method).score_scaling)
    m2 = store.open(slab_table(method))[...][method.slab_fields.index("m2")]
    diagonal = m2 * scale**2
    if parameters.solver == "cholesky":
        gram = stored_comoments(context, RESCALED, key).matrix
        gram *= scale
        gram *= scale[:, None]
        diagonal = np.diagonal(gram).copy()
        store.put_array(layout.RESCALED_GRAM.format(key), gram, (comoment_rows(gram.shape[0]), gram.shape[0]))
    store.put_array(layout.RESCALED_SCALE.format(key), np.stack([mean, scale, diagonal]))


def scale_cost(shape: Shape, solver: str, process: Cost) -> Cost:
    """List the memory of the unit."""
    d = shape.n_features
    gram = (Array("S, co-moments of a stretch, and as these are decoded", (3, d, d)),) if solver == "cholesky" else ()
    return (
        *process,
        Array("table of the slabs, read twice", (2, len(CENTERED_FIELDS), d)),
        Array("moments of columns", (len(layout.COLUMN_ROWS), d)),
        Array("standard deviations, their inverses and where there are any", (3, d)),
        Array("means of stretches, merged, and how far they are apart", (5, d)),
        Array("center, scale and diagonal of S, and as they are written", (2, 3, d)),
        *labels_cost(shape.n_samples),  # not read here, but still held by the process
        *gram,
    )


RESCALED_SCALE_STAGE = StageKind("rescaled-scale", __name__, scale_features, scale_cost, advice=cheaper_solver)


# --------------------------------------------------------------------------------------------------------------- a pass
Sums = tuple[tuple[int, int], Callable[[RowBlock], np.ndarray]]
"""Shape of the sums of one method, and the function that makes the contribution of a block of rows, unscaled."""


class LoopParameters(GroupParameters):
    """Parameters of both stages of a round.

    `held_bytes` are those of the rows that a process may cache, and `unlabeled_only` says that a pass after the first
    reads no labeled rows.
    """

    held_bytes: int
    unlabeled_only: bool


def sum_rows(context: Context, parameters: LoopParameters, unit: int) -> None:
    """Write the sums of one part of the rows for each method in this round."""
    key, methods = parameters.key, parameters.methods
    parts = row_parts(context.tiles.shape)
    number, part = divmod(unit, parts.n_parts)
    scaling = rescaled_parameters(methods[0]).score_scaling
    mean, scale, _ = context.store.open(layout.RESCALED_SCALE.format(key))[...]
    rows = CenteredRows(mean, scale)
    if number == 0:
        makers = {FIRST: _first_sums(rows, mean.size, len(context.classes()))}
        blocks = read_blocks(context, parts, part, scaling)
    else:
        states = {m: load_state(context, key, number - 1, m.label, with_products=False) for m in methods}
        makers = {m.label: _sums_of(rows, m, state) for m, state in states.items() if not state.finished}
        blocks = context.holdings.series(
            ("rows", part),
            parameters.held_bytes,
            lambda block: block.nbytes,
            lambda: read_blocks(context, parts, part, scaling, "unlabeled" if parameters.unlabeled_only else "all"),
        )
    stretches = parts.stretches(part)
    sums = {label: np.zeros((len(stretches), *shape)) for label, (shape, _) in makers.items()}
    with one_thread():
        for block in blocks:
            rows.take(block.values)
            for label, (_, make) in makers.items():
                sums[label][block.stretch - stretches.start] += make(block)
    for label, total in sums.items():
        total[:, : mean.size] = rows.scaled(total[:, : mean.size])
        context.store.write_arrays(layout.RESCALED_SUMS.format(key, number, part, label), {"sums": total})


def _first_sums(rows: CenteredRows, n_features: int, n_classes: int) -> Sums:
    """Return the sums of the rows of each class, the last column for unlabeled rows, the last row for counts."""

    def make(block: RowBlock) -> np.ndarray:
        indicators = np.zeros((block.codes.size, n_classes + 1))
        counts = 1.0 if block.weights is None else block.weights
        indicators[np.arange(block.codes.size), block.codes] = counts  # -1, for no label, is the last column
        return np.vstack([rows.cross(indicators), indicators.sum(axis=0)])

    return (n_features + 1, n_classes + 1), make


def _sums_of(rows: CenteredRows, method: Method, state: State) -> Sums:
    """Return P, and below it the sums of the targets and of their squares; or the requested product."""
    n_features, n_columns = state.cross.shape
    if state.wanted == "product":
        assert state.asked is not None
        product = rows.products(state.asked)
        return state.asked.shape, lambda block: rows.cross(block.counted(product()))
    offset = state.offset - (state.residual / state.total) @ state.at.W
    dragged, product = is_dragged(method), rows.products(state.at.W)

    def make(block: RowBlock) -> np.ndarray:
        predicted = product() + offset
        if dragged:
            targets = dragged_apart(predicted, block.codes)
        else:
            targets = project_rows(predicted)
            targets[block.codes >= 0] = 0.0  # their sums never change
        counted = block.counted(targets)
        squares = np.zeros(offset.size)
        squares[0] = float(np.sum(counted * targets))
        return np.vstack([rows.cross(counted), counted.sum(axis=0), squares])

    return (n_features + 2, n_columns), make


def dragged_apart(predicted: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return DSSFS's targets, of the shape of `predicted`, (n_rows, n_columns), float64.

    For a labeled row, the nearest to `predicted` that are at least 1 in its class and at most 0 in others; for an
    unlabeled one (code -1), the projection on the simplex.
    """
    targets = np.minimum(predicted, 0.0)
    labeled_rows = np.flatnonzero(codes >= 0)
    labeled_codes = codes[labeled_rows]
    targets[labeled_rows, labeled_codes] = np.maximum(predicted[labeled_rows, labeled_codes], 1.0)
    is_unlabeled = codes < 0
    if is_unlabeled.any():
        targets[is_unlabeled] = project_rows(predicted[is_unlabeled])
    return targets


def pass_cost(shape: Shape, n_columns: int, n_methods: int, n_products: int, process: Cost) -> Cost:
    """List the memory of a unit without the rows that its process caches: to read states or to sum rows, the larger.

    `n_methods` share the pass. A state has at most `n_products`, freed once it is read. `process` includes what the
    process keeps from round to round.
    """
    cut, d = row_parts(shape), shape.n_features
    states = (*process, *labels_cost(shape.n_samples), *state_cost(d, n_columns, n_methods))
    summing = (
        *states,
        *reading_cost(shape, cut.per_part * cut.height),
        Array("sums of each stretch, and scaled", (2, n_methods, cut.per_part, d, n_columns)),
        Array("targets as predicted, projected and counted, and copies", (6, block_rows(shape), n_columns)),
    )
    return fullest(summing, (*states, *products_cost(d, n_columns, n_products)))


RESCALED_ROWS_STAGE = StageKind(
    "rescaled-rows", __name__, sum_rows, pass_cost, reads_weights=True, advice=cheaper_solver
)


# -------------------------------------------------------------------------------------------------- after the loop
class TablesParameters(GroupParameters):
    """Parameters of "rescaled-tables", with the name of the last stage of a round."""

    closing: str


def write_rescaled_scores(context: Context, parameters: TablesParameters, unit: int) -> dict[str, Any]:
    """Write the table of one method and the facts of its solution."""
    store, key, methods = context.store, parameters.key, parameters.methods
    method = methods[unit]
    p = rescaled_parameters(method)
    n_rounds = store.records.n_units(parameters.closing) // len(methods)
    state = load_state(context, key, n_rounds - 1, method.label)
    excluded = np.isnan(store.open(slab_table(method))[...][0])
    norm, total = norms(state.at.W), float(norms(state.at.W).sum())
    score = norm / total if total > 0 else norm
    bound = norms(state.cross - state.at.SW)
    bound = np.minimum(bound / (p.gamma * total), 1.0) if total > 0 else bound
    bound[norm > 0] = 1.0
    score[excluded] = bound[excluded] = np.nan
    order = np.lexsort((np.arange(score.size), -bound, -score))
    order = order[~excluded[order]]
    facts: dict[str, Any] = {}
    pull: np.ndarray | None = None
    if p.correlations is not None:
        correlations = stored_feature_correlations(context, p.correlations)
        facts["correlation"] = dict(correlations.facts)
        if state.base is not None:
            pull = 2.0 * state.eta * (correlations.degrees() * norm**2 - correlations.product(norm**2))
        if p.greedy_filter:
            n_active = int(np.count_nonzero(norm))
            order[:n_active] = pick_apart(order[:n_active], score, correlations.columns)
    position = np.full(score.size, np.nan)
    position[order] = np.arange(1, order.size + 1)
    store.put_array(layout.SCORES.format(method.label), np.stack([score, bound, position]))
    store.put_array(layout.SOLUTION_WEIGHTS.format(method.label), state.at.W)
    reached = certificate(state.at, state.cross, p.gamma, pull)
    facts |= _solution_facts(state, reached, parameters.solver, n_rounds)
    store.write_json(layout.SOLUTION_JSON.format(method.label), facts)
    return {"n_iter": facts["n_iter"], "converged": facts["converged"]}


def tables_cost(n_features: int, n_columns: int, correlations: Cost, process: Cost) -> Cost:
    """List the memory of a unit, with any distance correlations."""
    return (
        *process,
        *state_cost(n_features, n_columns),
        Array("table of the slabs", (len(CENTERED_FIELDS), n_features)),
        Array("norms, scores, bounds and positions, and the table of these", (9, n_features)),
        Array("orders of the features", (6, n_features), "int64"),
        Array("what correlations pull them by, and those with one feature", (7, n_features)),
        *correlations,
    )


RESCALED_TABLES_STAGE = StageKind(
    "rescaled-tables", __name__, write_rescaled_scores, tables_cost, reads_weights=True, advice=cheaper_solver
)


def _solution_facts(state: State, reached: Certificate, solver: str, n_rounds: int) -> dict[str, Any]:
    facts = {
        "solver": solver,
        "n_iter": len(state.history) - (state.base is not None),
        "n_rounds": n_rounds,
        "converged": state.converged,
        "objective": state.history,
        "n_active": reached.n_active,
        "kkt_active": reached.active,
        "kkt_inactive": reached.inactive if np.isfinite(reached.inactive) else None,
    }
    if state.base is None:
        return facts
    return {
        **facts,
        "free_objective": state.free_history,
        "eta": 2.0 * state.eta_asked,
        "eta_used": 2.0 * state.eta,
        "eta_reference": state.eta_reference,
        "halvings": state.halvings,
    }


def stored_solution(store: Store, method: Method) -> dict[str, Any] | None:
    """Return the facts of a method's solution; None if it has none."""
    facts: dict[str, Any] | None = store.read_json(layout.SOLUTION_JSON.format(method.label))
    return facts


def solution_of(store: Store, method: Method) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the weights of a method, shape (n_features, n_classes), float64, and the facts of its solution."""
    weights = store.open(layout.SOLUTION_WEIGHTS.format(method.label))[...].copy()
    return weights, dict(store.need_json(layout.SOLUTION_JSON.format(method.label)))
