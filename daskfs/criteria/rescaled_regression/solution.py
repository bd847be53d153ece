"""Solutions of RLSR, SSUFS and DSSFS: the weights of one method, advanced until they need another pass over the rows.

Every method takes the steps of kernels/regression/rescaled.py on the system of its plan. SSUFS starts from RLSR's
solution, and returns there with half the pull if it leaves the basin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from daskfs.criteria.distance_correlation.matrix import FeatureCorrelations, stored_feature_correlations
from daskfs.criteria.registry import Method
from daskfs.criteria.rescaled_regression.criterion import UncorrelatedParameters
from daskfs.criteria.rescaled_regression.passes import LoopParameters
from daskfs.criteria.rescaled_regression.state import (
    FIRST,
    State,
    cheaper_solver,
    is_dragged,
    load_state,
    products_cost,
    rescaled_parameters,
    save_state,
    state_cost,
)
from daskfs.criteria.row_blocks import labels_cost, row_parts
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.regression.grams import Gram, MatrixGram, ProductNeeded, ReplayedGram, RowsGram
from daskfs.kernels.regression.rescaled import (
    Certificate,
    advance,
    carried_on,
    certificate,
    join_offset,
    norms,
    objective,
    start_at,
)
from daskfs.kernels.scaling import without_zscore
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import Array, Cost, Objects, total
from daskfs.stages.kind import StageKind
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.tiles.row_partitions import block_rows

N_STEPS = 30
"""Maximum steps of the weights in a round; ten times as many in one that may be the last."""
TOLERANCE = 1e-7
"""Tolerance of the last weights, and of their offset, on the optimality conditions."""
LOOSEST = 1e-2
FORCING = 0.1
"""Tolerance of a round's steps, as a share of the violation that the new targets cause."""
OBJECTIVE_ROUNDING = 1e-13
"""Share of the objective, and of the largest possible sum over the rows, that is rounding alone."""
OUTSIDE_BASIN = 10.0
"""SSUFS has left its basin when loss and penalty exceed this multiple of the spread of the targets."""
MAX_HALVINGS = 100


def solve_weights(context: Context, parameters: LoopParameters, unit: int) -> dict[str, Any]:
    """Apply the sums of a round, advance the weights of one method, and write its state."""
    key, methods = parameters.key, parameters.methods
    number, place = divmod(unit, len(methods))
    method = methods[place]
    with one_thread():
        if number == 0:
            state = _first_state(context, parameters)
        else:
            state = load_state(context, key, number - 1, method.label)
            if not state.finished:
                _, _, diagonal = context.store.open(layout.RESCALED_SCALE.format(key))[...]
                sums = _sum_stretches(context, parameters, number, method.label)
                _take(state, sums, diagonal, dragged=is_dragged(method))
        if not state.finished:
            _Solution(context, parameters, method, state).go_on()
    save_state(context, key, number, method.label, state)
    return {"finished": state.finished}


def _sum_stretches(context: Context, parameters: LoopParameters, number: int, label: str) -> np.ndarray:
    """Return the sums of all stretches, added in order."""
    parts = range(row_parts(context.tiles.shape).n_parts)
    names = (layout.RESCALED_SUMS.format(parameters.key, number, part, label) for part in parts)
    summed: np.ndarray = reduce(np.add, (one for name in names for one in context.store.read_arrays(name)[0]["sums"]))
    return summed


def _first_state(context: Context, parameters: LoopParameters) -> State:
    """Return the state of zero weights, with unlabeled rows in all classes alike."""
    sums = _sum_stretches(context, parameters, 0, FIRST)
    counts, sums = sums[-1], sums[:-1]
    n_classes, n_rows = counts.size - 1, float(counts.sum())
    residual = sums.sum(axis=1)
    _, _, diagonal = context.store.open(layout.RESCALED_SCALE.format(parameters.key))[...]
    labeled = np.vstack([sums[:, :-1], counts[:-1]])
    uniform = np.vstack([sums[:, -1:] / n_classes, counts[-1:] / n_classes])
    whole = labeled + uniform
    mean = whole[-1] / n_rows
    spread = float(counts[:-1].sum() + counts[-1] / n_classes - n_rows * np.sum(mean**2))
    cross = certain(whole[:-1] - np.multiply.outer(residual, mean), diagonal, spread)
    return State(start_at(diagonal, n_classes), cross, mean, spread, labeled, residual, n_rows, offset=mean)


def _take(state: State, sums: np.ndarray, diagonal: np.ndarray, *, dragged: bool) -> None:
    """Update the state with the output of a pass."""
    purpose, state.wanted = state.wanted, ""
    if purpose == "product":
        assert state.asked is not None
        centered = np.multiply.outer(state.residual, state.residual @ state.asked) / state.total
        state.products.append(sums - centered)
        return
    cross, targets, squares = sums[:-2], sums[-2], float(sums[-1, 0])
    if not dragged:
        of_labels = state.labeled[-1]
        cross, targets, squares = cross + state.labeled[:-1], targets + of_labels, squares + float(of_labels.sum())
    state.target_mean = targets / state.total
    state.drift = float(np.abs(state.target_mean - state.offset).max())
    state.spread = squares - state.total * float(np.sum(state.target_mean**2))
    state.cross = certain(cross - np.multiply.outer(state.residual, state.target_mean), diagonal, state.spread)
    state.n_steps, state.goal = 0, 0.0


def certain(cross: np.ndarray, diagonal: np.ndarray, spread: float) -> np.ndarray:
    """Return P, shape (n_features, n_columns), float64, with 0 for features whose row is rounding alone.

    `diagonal`, shape (n_features,), is that of S.
    """
    largest = np.sqrt(np.maximum(diagonal * spread, 0.0))
    return np.where((norms(cross) > OBJECTIVE_ROUNDING * largest)[:, None], cross, 0.0)


class _Solution:
    """Weights of one method, advanced until they need another pass."""

    def __init__(self, context: Context, stage: LoopParameters, method: Method, state: State) -> None:
        self._context, self._stage, self._parameters, self._state = context, stage, rescaled_parameters(method), state
        self._made: Gram | None = None

    def go_on(self) -> None:
        """Advance the state until it needs a pass over the rows, or is finished."""
        try:
            while not self._state.finished and not self._state.wanted:
                if self._state.goal == 0.0:
                    self._open_round()
                    continue
                self._descend()
                if self._state.goal > 0.0:  # 0 after a restart
                    self._close_round()
        except ProductNeeded as needed:
            self._state.wanted, self._state.asked = "product", needed.W

    def _gram(self) -> Gram:
        store, key, solver = self._context.store, self._stage.key, self._stage.solver
        if solver == "cg":
            _, _, diagonal = store.open(layout.RESCALED_SCALE.format(key))[...]
            return ReplayedGram(diagonal, self._state.products)
        if self._made is None:
            gram = layout.RESCALED_GRAM.format(key)
            make = self._rows_gram if solver != "cholesky" else lambda: MatrixGram(store.open(gram)[...])
            self._made = self._from_cache("gram", make)
        return self._made

    def _from_cache(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a value that every round needs from the process cache.

        It counts as 0 bytes and so is always cached; rows take the memory that it leaves.
        """
        return self._context.holdings.get(name, self._stage.held_bytes, lambda _: 0, make)

    def _rows_gram(self) -> Gram:
        """Return S by the rows of X, centered and scaled, each times the root of its weight."""
        tiles, weights = self._context.tiles, self._context.weights()
        mean, scale, _ = self._context.store.open(layout.RESCALED_SCALE.format(self._stage.key))[...]
        rows = np.empty((tiles.shape.n_samples, tiles.shape.n_features), order="F")
        scaling = without_zscore(self._parameters.score_scaling)
        for place, values in tiles.aligned_rows(slice(0, len(rows)), block_rows(tiles.shape), scaling):
            block = rows[place]
            block[...] = values.toarray() if is_sparse(values) else values
            block -= mean  # rounding of the means counts squared, which is negligible
            block *= scale
            if weights is not None:
                block *= np.sqrt(weights[place])[:, None]
        return RowsGram(rows)

    def _correlations(self) -> tuple[FeatureCorrelations, np.ndarray]:
        """Return M and its row sums."""
        spec = self._parameters.correlations
        assert spec is not None

        def made() -> tuple[FeatureCorrelations, np.ndarray]:
            correlations = stored_feature_correlations(self._context, spec)
            return correlations, correlations.degrees()

        correlations: tuple[FeatureCorrelations, np.ndarray] = self._from_cache(f"correlations-{spec.name}", made)
        return correlations

    def _open_round(self) -> None:
        """End the phase if the weights meet the optimality conditions with the new targets.

        Else set the tolerance to which the steps of this round are to meet them.
        """
        state, certificate = self._state, self._certificate()
        state.goal = min(LOOSEST, FORCING * max(TOLERANCE, certificate.worst))
        # the offset is treated as the weight of a feature of ones
        drift = state.total * state.drift / max(float(np.abs(state.cross).max(initial=0.0)), np.finfo(np.float64).tiny)
        if not state.history or not certificate.holds(TOLERANCE) or (state.cross.any() and drift > TOLERANCE):
            return
        value = self._objective()
        if self._change(value) <= max(self._parameters.tol, OBJECTIVE_ROUNDING):
            self._note(value)
            self._end_phase(converged=True)

    def _descend(self) -> None:
        """Take steps until the weights meet the round's tolerance."""
        state, gamma = self._state, self._parameters.gamma
        while state.goal > 0.0 and not self._is_close():
            pull_of = self._pull if state.phase == "pulled" else None
            state.at = advance(self._gram(), state.at, state.cross, gamma, state.goal, pull_of)
            state.n_steps += 1
            state.products.clear()
            if state.phase == "pulled" and self._is_lost():
                # again from RLSR's solution, with half the pull, or at last with none
                state.halvings += 1
                state.eta = state.eta / 2.0 if state.halvings <= MAX_HALVINGS else 0.0
                self._return_to_base()

    def _is_close(self) -> bool:
        state = self._state
        may_be_last = state.relative <= self._parameters.tol or state.n_outer + 1 >= self._parameters.max_iter
        if state.n_steps >= N_STEPS * (10 if may_be_last else 1):
            return True
        return self._certificate().holds(state.goal)

    def _close_round(self) -> None:
        """Record the objective, and extrapolate the weights for the next targets.

        If extrapolation raised the objective, return to the weights of the round before.
        """
        state = self._state
        state.at = replace(state.at, SW=self._gram().product(state.at.W))
        state.products.clear()
        value = self._objective()
        state.n_outer += 1
        state.wanted = "targets"
        if state.carried is not None and state.best is not None and value > state.history[-1]:
            best, state.offset = state.best
            state.at = replace(best, curvature=state.at.curvature, working=state.at.working)
            state.carried, state.momentum = None, 1.0
        else:  # without extrapolation only rounding can have raised it
            self._note(value)
            self._carry_on()
        if state.n_outer >= self._parameters.max_iter:
            state.at = state.best[0] if state.best else state.at
            self._end_phase(converged=False)

    def _carry_on(self) -> None:
        """Extrapolate weights and offset, and keep the present ones."""
        state = self._state
        at, before, start = join_offset(state.at, state.target_mean, state.total), None, None
        if state.best is not None:
            before = join_offset(*state.best, state.total)
        if state.carried is not None:
            start = np.vstack([state.carried, state.offset])
        carried, state.momentum = carried_on(at, before, start, state.momentum)
        state.best = state.at, state.target_mean
        state.offset, state.carried = state.target_mean, None
        if carried is not at:
            state.offset = carried.W[-1]
            state.at = replace(state.at, W=carried.W[:-1], SW=carried.SW[:-1])
            state.carried = state.at.W

    def _change(self, value: float) -> float:
        """Return the relative change of the objective since the last round; 1 in the first."""
        state = self._state
        if not state.history:
            return 1.0
        return abs(state.history[-1] - value) / max(abs(value), 1e-12 * state.total)

    def _note(self, value: float) -> None:
        state = self._state
        state.relative = self._change(value)
        state.history.append(value)

    def _end_phase(self, *, converged: bool) -> None:
        state = self._state
        state.wanted, state.converged = "", converged
        if state.phase == "free" and isinstance(self._parameters, UncorrelatedParameters):
            self._begin_pull(self._parameters)
        else:
            state.phase = "done"

    def _certificate(self) -> Certificate:
        state = self._state
        pull = self._pull(norms(state.at.W) ** 2) if state.phase == "pulled" else None
        return certificate(state.at, state.cross, self._parameters.gamma, pull)

    def _objective(self) -> float:
        """Return the objective of the phase: of RLSR, or of SSUFS (Eq. 5)."""
        state = self._state
        value = objective(state.at, state.cross, self._parameters.gamma) + state.spread
        if state.phase == "free" or state.eta == 0.0:
            return value
        squares = norms(state.at.W) ** 2
        return value - state.eta * float(squares @ self._laplacian(squares))

    # ----------------------------------------------------------------------------------------------------------- SSUFS
    def _laplacian(self, squares: np.ndarray) -> np.ndarray:
        correlations, degrees = self._correlations()
        return degrees * squares - correlations.product(squares)

    def _pull(self, squares: np.ndarray) -> np.ndarray:
        return 2.0 * self._state.eta * self._laplacian(squares)

    def _begin_pull(self, parameters: UncorrelatedParameters) -> None:
        """Continue from RLSR's solution with the uncorrelated regularization."""
        state = self._state
        norm = norms(state.at.W)
        rise, degrees = self._laplacian(norm**2), self._correlations()[1]
        rise[rise <= TOLERANCE * degrees * norm**2] = 0.0  # weights that differ by less are equal
        steepest = float((norm / norm.sum() * rise).max()) if norm.any() else 0.0
        state.eta_reference = parameters.gamma / (2.0 * steepest) if steepest > 0 else 0.0
        # the paper's W step uses half its eta (methods.md, finding 2)
        state.eta = parameters.eta_relative * state.eta_reference if parameters.eta is None else parameters.eta / 2.0
        state.eta_asked, state.phase = state.eta, "pulled"
        state.free_history = state.history
        state.base = state.at, state.cross, state.target_mean, state.spread
        self._return_to_base()

    def _return_to_base(self) -> None:
        state = self._state
        assert state.base is not None
        state.at, state.cross, state.target_mean, state.spread = state.base
        state.history, state.relative, state.n_steps, state.n_outer = [], 1.0, 0, 0
        state.best, state.offset = (state.at, state.target_mean), state.target_mean
        state.carried, state.momentum, state.goal = None, 1.0, 0.0
        state.history.append(self._objective())

    def _is_lost(self) -> bool:
        """Return whether the weights left the basin of RLSR's solution, outside which the objective is unbounded."""
        state = self._state
        assert state.base is not None
        without = objective(state.at, state.cross, self._parameters.gamma) + state.spread
        # negative, or NaN
        return not (self._objective() >= 0.0 and without <= OUTSIDE_BASIN * state.base[-1])


def kept_cost(shape: Shape, solver: str) -> Cost:
    """List the memory of S that a process keeps from round to round."""
    n, d = shape.n_samples, shape.n_features
    if solver == "cholesky":
        return (Array("S, and S among the features that are not zero", (2, d, d)),)
    if solver == "woodbury":
        return (
            Array("rows of X, centered and scaled, and of the features that are not zero", (2, n, d)),
            Array("S among a working set", (min(n, d), min(n, d))),
        )
    return ()


def solution_cost(shape: Shape, n_columns: int, solver: str, n_products: int, process: Cost) -> Cost:
    """List the memory of a unit without the rows that its process caches.

    Parameters are those of :func:`daskfs.criteria.rescaled_regression.passes.pass_cost`.
    """
    n, d = shape.n_samples, shape.n_features
    state = state_cost(d, n_columns)
    systems: dict[str, Cost] = {
        "cholesky": (
            Array("two systems and a factor, or also S among a working set and its active features", (3, d, d)),
        ),
        "woodbury": (
            Array("rows of X by the scales of two systems, and of a working set", (3, n, d)),
            Array("two systems, a factor, and S among active features", (4, min(n, d), min(n, d))),
        ),
        "cg": (),
    }
    return (
        *process,
        *labels_cost(n),  # left by the pass before
        *systems[solver],
        Array("diagonal of S, and norms of the weights", (2, d)),
        *state,
        Objects("a copy that the state is written from", 1, total(state)),
        *products_cost(d, n_columns, n_products),
    )


RESCALED_SOLVE_STAGE = StageKind(
    "rescaled-solve", __name__, solve_weights, solution_cost, reads_weights=True, advice=cheaper_solver
)
