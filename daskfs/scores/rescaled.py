"""Stages of RLSR, SSUFS and DSSFS: passes over the rows and solutions of the weights, in turn, until both agree.

Everything that rows say goes into two sums: S = X'HX, which is made once, and P = X'HY for the targets of the round.
A pass makes P: unlabelled rows get as targets what the weights of the round before predict for them, projected on the
simplex (Eq. 8 of Zhong, Chen and Nie 2019), and under DSSFS labelled rows are dragged along; targets are never stored.
Sums are made over stretches of rows whose height the number of rows alone decides, and added up in order. The solution
then takes the steps of kernels/rescaled.py, and offsets follow from means (Eq. 6). Both are exact minima of their
blocks, so the objective falls from round to round. The methods of a job that scale X alike share passes.

Where neither S nor X fits a process, a round can also be a product of S with what a solution asks for: the pass sums
X'H(X V), and the solution goes on where it stopped. After every round, a state says how to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.centered import CenteredRows, rows_per_block
from daskfs.kernels.grams import Gram, MatrixGram, ProductNeeded, ReplayedGram, RowsGram
from daskfs.kernels.greedy import pick_apart
from daskfs.kernels.rescaled import (
    Certificate,
    Iterate,
    advance,
    carried_on,
    certificate,
    norms,
    objective,
    pulled,
    start_at,
)
from daskfs.kernels.scaling import inverse_or_zero
from daskfs.kernels.simplex import project_rows
from daskfs.kernels.threads import one_thread
from daskfs.methods.registry import Method
from daskfs.methods.rescaled import RescaledParameters, UncorrelatedParameters
from daskfs.scores.correlations import comoment_rows, stored_comoments
from daskfs.scores.distances import FeatureCorrelations, stored_feature_correlations
from daskfs.scores.slab import methods_from, slab_table
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.tiles import Shape

PURPOSE = "rescaled"
FIRST = "first"
SMALLEST_STRETCH = 2**14
STRETCHES = 1024
N_STEPS = 30
"""Steps that the weights take in a round, and ten times as many in one that may be the last."""
TOLERANCES = {"free": 1e-7, "pulled": 1e-6}
"""How well the last weights meet the conditions of a minimum: of RLSR's problem, and of SSUFS's, whose steps converge
linearly.
"""
LOOSEST = 1e-2
FORCING = 0.1
"""Share that the steps of a round leave of what the targets' change has left of the conditions."""
ROUND_OFF = 1e-13
"""Share of the objective, and of the largest that a sum over the rows can be, that is nothing but rounding."""
FAR = 10.0
"""SSUFS has left its basin when loss and penalty exceed the spread of the targets so many times."""
MAX_HALVINGS = 100


def pass_rows(n_samples: int) -> int:
    """Return the height of the stretches of rows whose sums are made apart: a power of two that the number of rows
    alone decides, so that at most 1024 stretches make up all of them.
    """
    return max(SMALLEST_STRETCH, 1 << max(0, -(-n_samples // STRETCHES) - 1).bit_length())


def block_rows(shape: Shape) -> int:
    """Return the rows that are multiplied together."""
    if not shape.is_sparse:
        return rows_per_block(shape.n_features)
    return rows_per_block(shape.n_features, -(-(shape.nnz or 0) // max(shape.n_samples, 1)))


# ------------------------------------------------------------------------------------------------ before the loop
def scale_features(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write center, scale and diag(S) of the features, and S itself where it is made."""
    del unit
    store, key = context.store, parameters["key"]
    method = methods_from(parameters["methods"])[0]
    assert isinstance(method.parameters, RescaledParameters)
    table = store.open(slab_table(method))[...]
    score, mean, m2 = (table[method.slab_fields.index(name)] for name in ("score", "mean", "m2"))
    scale = np.ones_like(mean)
    if method.parameters.score_scaling == "zscore":
        scale = inverse_or_zero(context.tiles.column_scale().std)
    scale[np.isnan(score)] = 0.0
    diagonal = m2 * scale**2
    if parameters["solver"] == "cholesky":
        gram = stored_comoments(context, PURPOSE, key).matrix
        gram *= scale
        gram *= scale[:, None]
        diagonal = np.diagonal(gram).copy()
        store.put_array(layout.RESCALED_GRAM.format(key), gram, (comoment_rows(gram.shape[0]), gram.shape[0]))
    store.put_array(layout.RESCALED_SCALE.format(key), np.stack([mean, scale, diagonal]))


# -------------------------------------------------------------------------------------------------- state of a method
@dataclass
class State:
    """Where a method stands after a round.

    `at`, `cross`, `target_mean` and `spread` are W with SW, P, the weighted mean of the targets and ||HY||^2.
    `labelled`, shape (n_features + 1, n_columns), is what labelled rows add to P, and in its last row to the sums of
    the targets; `residual`, shape (n_features,), the sums of the centered columns, which rounding leaves. `wanted` is
    what the next pass is to make: "targets", or the "product" of S and `asked`; `products` are those made since `at`.
    `base` is RLSR's solution, that SSUFS starts from. `best` are the weights of the last round, beyond which `at` may
    have been carried on, to `carried`, with a momentum; `goal` is how well the steps of this round are to meet the
    conditions, 0 as long as its targets are new.
    """

    at: Iterate
    cross: np.ndarray
    target_mean: np.ndarray
    spread: float
    labelled: np.ndarray
    residual: np.ndarray
    total: float
    phase: str = "free"
    wanted: str = ""
    n_steps: int = 0
    n_outer: int = 0
    relative: float = 1.0
    history: list[float] = field(default_factory=list)
    free_history: list[float] = field(default_factory=list)
    eta: float = 0.0
    eta_asked: float = 0.0
    eta_reference: float = 0.0
    halvings: int = 0
    converged: bool = False
    asked: np.ndarray | None = None
    products: list[np.ndarray] = field(default_factory=list)
    base: tuple[Iterate, np.ndarray, np.ndarray, float] | None = None
    best: Iterate | None = None
    carried: np.ndarray | None = None
    momentum: float = 1.0
    goal: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase == "done"


SCALARS = (
    "spread",
    "total",
    "phase",
    "wanted",
    "n_steps",
    "n_outer",
    "relative",
    "history",
    "free_history",
    "eta",
    "eta_asked",
    "eta_reference",
    "halvings",
    "converged",
    "momentum",
    "goal",
)


def _save(context: Context, key: str, number: int, label: str, state: State) -> None:
    arrays = {name: getattr(state, name) for name in ("cross", "target_mean", "labelled", "residual")}
    arrays |= {"W": state.at.W, "SW": state.at.SW}
    scalars = {name: getattr(state, name) for name in SCALARS} | {"curvature": state.at.curvature}
    if state.base is not None:
        at, cross, mean, spread = state.base
        arrays |= {"base_W": at.W, "base_SW": at.SW, "base_cross": cross, "base_target_mean": mean}
        scalars |= {"base_curvature": at.curvature, "base_spread": spread}
    if state.best is not None:
        arrays |= {"best_W": state.best.W, "best_SW": state.best.SW}
        scalars |= {"best_curvature": state.best.curvature}
    if state.carried is not None:
        arrays |= {"carried": state.carried}
        scalars |= {"is_carried": True}
    if state.asked is not None:
        arrays |= {"asked": state.asked}
        scalars |= {"n_products": len(state.products)}
        arrays |= {f"product-{place}": product for place, product in enumerate(state.products)}
    context.store.write_arrays(layout.RESCALED_STATE.format(key, number, label), arrays, scalars)


def _load(context: Context, key: str, number: int, label: str) -> State:
    array, raw = context.store.read_arrays(layout.RESCALED_STATE.format(key, number, label))
    at = Iterate(array["W"], array["SW"], raw.pop("curvature"))
    base = None
    if "base_spread" in raw:
        first = Iterate(array["base_W"], array["base_SW"], raw.pop("base_curvature"))
        base = first, array["base_cross"], array["base_target_mean"], raw.pop("base_spread")
    best = None
    if "best_curvature" in raw:
        best = Iterate(array["best_W"], array["best_SW"], raw.pop("best_curvature"))
    carried = array["carried"] if raw.pop("is_carried", False) else None
    products = [array[f"product-{place}"] for place in range(raw.get("n_products", 0))]
    asked = array["asked"] if raw.pop("n_products", None) is not None else None
    return State(
        at=at,
        cross=array["cross"],
        target_mean=array["target_mean"],
        labelled=array["labelled"],
        residual=array["residual"],
        base=base,
        best=best,
        carried=carried,
        products=products,
        asked=asked,
        **raw,
    )


# --------------------------------------------------------------------------------------------------------------- a pass
@dataclass(frozen=True)
class RowBlock:
    """Some rows of one stretch: values as stored, class codes, and weights, None where each counts for one."""

    stretch: int
    values: np.ndarray | sp.csr_matrix
    codes: np.ndarray
    weights: np.ndarray | None


@dataclass(frozen=True)
class Sums:
    """What a block of rows adds to the sums of one method, and its shape; the scale is for the end."""

    shape: tuple[int, int]
    make: Callable[[RowBlock], np.ndarray]


def sum_rows(context: Context, parameters: Mapping[str, Any], unit: int) -> None:
    """Write the sums of one part of the rows that each method takes in this round."""
    key, methods = parameters["key"], methods_from(parameters["methods"])
    number, part = divmod(unit, int(parameters["n_parts"]))
    mean, scale, _ = context.store.open(layout.RESCALED_SCALE.format(key))[...]
    rows = CenteredRows(mean, scale)
    if number == 0:
        makers = {FIRST: _first_sums(rows, mean.size, len(context.classes()))}
        blocks = _read_blocks(context, parameters, part, unlabelled_only=False)
    else:
        states = {m: _load(context, key, number - 1, m.label) for m in methods}
        makers = {m.label: _sums_of(rows, m, state) for m, state in states.items() if not state.finished}
        blocks = context.holdings.series(
            ("rows", part),
            int(parameters["held_bytes"]),
            _block_bytes,
            lambda: _read_blocks(context, parameters, part, unlabelled_only=bool(parameters["unlabelled_only"])),
        )
    stretches = _stretches(context, parameters, part)
    sums = {label: np.zeros((len(stretches), *maker.shape)) for label, maker in makers.items()}
    with one_thread():
        for block in blocks:
            rows.take(block.values)
            for label, maker in makers.items():
                sums[label][block.stretch - stretches.start] += maker.make(block)
    for label, total in sums.items():
        total[:, : mean.size] = rows.scaled(total[:, : mean.size])
        context.store.write_arrays(layout.RESCALED_SUMS.format(key, number, part, label), {"sums": total})


def _stretches(context: Context, parameters: Mapping[str, Any], part: int) -> range:
    n_samples = context.tiles.shape.n_samples
    per_part = int(parameters["stretches_per_unit"])
    return range(part * per_part, min((part + 1) * per_part, -(-n_samples // pass_rows(n_samples))))


def _read_blocks(
    context: Context, parameters: Mapping[str, Any], part: int, *, unlabelled_only: bool
) -> Iterator[RowBlock]:
    tiles, height = context.tiles, pass_rows(context.tiles.shape.n_samples)
    stretches = _stretches(context, parameters, part)
    rows = slice(stretches.start * height, min(stretches.stop * height, tiles.shape.n_samples))
    labels, weights = context.counted_rows(rows)
    scaling = methods_from(parameters["methods"][:1])[0].parameters.score_scaling
    felt = None if scaling == "zscore" else scaling
    chosen = np.ones(rows.stop - rows.start, dtype=bool) if weights is None else weights > 0
    if unlabelled_only:
        chosen &= labels.values < 0
    for place, values in tiles.aligned_rows(rows, block_rows(tiles.shape), felt, chosen):
        inside = slice(place.start - rows.start, place.stop - rows.start)
        own = chosen[inside]
        counts = None if weights is None else weights[inside][own]
        if values.shape[0]:
            yield RowBlock(place.start // height, values, labels.values[inside][own], counts)


def _block_bytes(block: RowBlock) -> int:
    X = block.values
    parts = (X.data, X.indices, X.indptr) if is_sparse(X) else (X,)
    return sum(part.nbytes for part in parts) + 16 * block.codes.size


def _first_sums(rows: CenteredRows, n_features: int, n_classes: int) -> Sums:
    """Sums of the rows of each class, and of the unlabelled ones in the last column; the last row counts."""

    def make(block: RowBlock) -> np.ndarray:
        indicators = np.zeros((block.codes.size, n_classes + 1))
        counts = 1.0 if block.weights is None else block.weights
        indicators[np.arange(block.codes.size), block.codes] = counts  # -1, for no label, is the last column
        return np.vstack([rows.cross(indicators), indicators.sum(axis=0)])

    return Sums((n_features + 1, n_classes + 1), make)


def _sums_of(rows: CenteredRows, method: Method, state: State) -> Sums:
    """P, and below it the sums of the targets and of their squares; or the product that is asked for."""
    n_features, n_columns = state.cross.shape
    if state.wanted == "product":
        asked = state.asked
        assert asked is not None
        product = rows.products(asked)
        return Sums(asked.shape, lambda block: rows.cross(_counted(product(), block)))
    offset = state.target_mean - (state.residual / state.total) @ state.at.W
    dragged, product = is_dragged(method), rows.products(state.at.W)

    def make(block: RowBlock) -> np.ndarray:
        predicted = product() + offset
        if dragged:
            targets = dragged_apart(predicted, block.codes)
        else:
            targets = project_rows(predicted)
            targets[block.codes >= 0] = 0.0  # their part never changes
        counted = _counted(targets, block)
        squares = np.zeros(offset.size)
        squares[0] = float(np.sum(counted * targets))
        return np.vstack([rows.cross(counted), counted.sum(axis=0), squares])

    return Sums((n_features + 2, n_columns), make)


def is_dragged(method: Method) -> bool:
    """Return whether a method drags the targets of labelled rows, and so takes all rows in every round."""
    return method.criterion.name == "DSSFS"


def _counted(values: np.ndarray, block: RowBlock) -> np.ndarray:
    return values if block.weights is None else values * block.weights[:, None]


def dragged_apart(predicted: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return DSSFS's targets: of a labelled row 1 or more in its class and 0 or less in others, as near as that allows
    to what is predicted; of an unlabelled one its projection on the simplex.
    """
    targets = np.minimum(predicted, 0.0)
    known = np.flatnonzero(codes >= 0)
    own = codes[known]
    targets[known, own] = np.maximum(predicted[known, own], 1.0)
    unknown = codes < 0
    if unknown.any():
        targets[unknown] = project_rows(predicted[unknown])
    return targets


# ------------------------------------------------------------------------------------------------------- a solution
def solve_weights(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Take the sums of a round, move the weights of one method on, and write its state."""
    key, methods = parameters["key"], methods_from(parameters["methods"])
    number, place = divmod(unit, len(methods))
    method = methods[place]
    assert isinstance(method.parameters, RescaledParameters)
    with one_thread():
        if number == 0:
            state = _first_state(context, parameters)
        else:
            state = _load(context, key, number - 1, method.label)
            if not state.finished:
                _, _, diagonal = context.store.open(layout.RESCALED_SCALE.format(key))[...]
                sums = _summed(context, parameters, number, method.label)
                _take(state, sums, diagonal, dragged=is_dragged(method))
        if not state.finished:
            _Solution(context, parameters, method, state).go_on()
    _save(context, key, number, method.label, state)
    return {"finished": state.finished}


def _summed(context: Context, parameters: Mapping[str, Any], number: int, label: str) -> np.ndarray:
    """Add up the sums of all stretches, in order."""
    names = (
        layout.RESCALED_SUMS.format(parameters["key"], number, part, label)
        for part in range(int(parameters["n_parts"]))
    )
    total: np.ndarray | None = None
    for name in names:
        for found in context.store.read_arrays(name)[0]["sums"]:
            total = found.copy() if total is None else total + found
    assert total is not None
    return total


def _first_state(context: Context, parameters: Mapping[str, Any]) -> State:
    """Return the state in which all weights are zero, and unlabelled rows belong to all classes alike."""
    sums = _summed(context, parameters, 0, FIRST)
    counts, sums = sums[-1], sums[:-1]
    n_classes, total = counts.size - 1, float(counts.sum())
    residual = sums.sum(axis=1)
    _, _, diagonal = context.store.open(layout.RESCALED_SCALE.format(parameters["key"]))[...]
    labelled = np.vstack([sums[:, :-1], counts[:-1]])
    uniform = np.vstack([sums[:, -1:] / n_classes, counts[-1:] / n_classes])
    whole = labelled + uniform
    mean = whole[-1] / total
    spread = float(counts[:-1].sum() + counts[-1] / n_classes - total * np.sum(mean**2))
    cross = certain(whole[:-1] - np.multiply.outer(residual, mean), diagonal, spread)
    return State(start_at(diagonal, n_classes), cross, mean, spread, labelled, residual, total)


def _take(state: State, sums: np.ndarray, diagonal: np.ndarray, *, dragged: bool) -> None:
    """Take what a pass has made into the state."""
    wanted, state.wanted = state.wanted, ""
    if wanted == "product":
        assert state.asked is not None
        centered = np.multiply.outer(state.residual, state.residual @ state.asked) / state.total
        state.products.append(sums - centered)
        return
    cross, targets, squares = sums[:-2], sums[-2], float(sums[-1, 0])
    if not dragged:
        known = state.labelled[-1]
        cross, targets, squares = cross + state.labelled[:-1], targets + known, squares + float(known.sum())
    state.target_mean = targets / state.total
    state.spread = squares - state.total * float(np.sum(state.target_mean**2))
    state.cross = certain(cross - np.multiply.outer(state.residual, state.target_mean), diagonal, state.spread)
    state.n_steps, state.goal = 0, 0.0


def certain(cross: np.ndarray, diagonal: np.ndarray, spread: float) -> np.ndarray:
    """Return P with 0 for features that the targets have nothing to do with, but for rounding."""
    largest = np.sqrt(np.maximum(diagonal * spread, 0.0))
    return np.where((norms(cross) > ROUND_OFF * largest)[:, None], cross, 0.0)


class _Solution:
    """The weights of one method, moved on until they need another pass."""

    def __init__(self, context: Context, stage: Mapping[str, Any], method: Method, state: State) -> None:
        assert isinstance(method.parameters, RescaledParameters)
        self._context, self._stage, self._parameters, self._state = context, stage, method.parameters, state
        self._made: Gram | None = None

    def go_on(self) -> None:
        """Change the state until it wants something of the rows, or is finished."""
        try:
            while not self._state.finished and not self._state.wanted:
                if self._state.goal == 0.0:
                    self._open_round()
                    continue
                self._descend()
                if self._state.goal > 0.0:  # else it has started again
                    self._close_round()
        except ProductNeeded as needed:
            self._state.wanted, self._state.asked = "product", needed.W

    # ------------------------------------------------------------------------------------------------- what it has
    def _gram(self) -> Gram:
        store, key, solver = self._context.store, self._stage["key"], self._stage["solver"]
        if solver == "cg":
            _, _, diagonal = store.open(layout.RESCALED_SCALE.format(key))[...]
            return ReplayedGram(diagonal, self._state.products)
        if self._made is None:
            make = self._matrix_gram if solver == "cholesky" else self._rows_gram
            self._made = self._held("gram", make)
        return self._made

    def _held(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what every round needs; rows take what it leaves, so it is always held."""
        return self._context.holdings.get(name, int(self._stage["held_bytes"]), lambda _: 0, make)

    def _matrix_gram(self) -> Gram:
        return MatrixGram(self._context.store.open(layout.RESCALED_GRAM.format(self._stage["key"]))[...])

    def _rows_gram(self) -> Gram:
        """Return S by the rows of X, centered and scaled, each times the root of its weight."""
        tiles, weights = self._context.tiles, self._context.weights()
        mean, scale, _ = self._context.store.open(layout.RESCALED_SCALE.format(self._stage["key"]))[...]
        rows = np.empty((tiles.shape.n_samples, tiles.shape.n_features))
        height = block_rows(tiles.shape)
        for place, values in tiles.aligned_rows(slice(0, rows.shape[0]), height, self._parameters.felt):
            block = rows[place]
            block[...] = values.toarray() if is_sparse(values) else values
            block -= mean  # what rounding leaves of the means counts by its square, which is none
            block *= scale
            if weights is not None:
                block *= np.sqrt(weights[place])[:, None]
        return RowsGram(rows)

    def _correlated(self) -> tuple[FeatureCorrelations, np.ndarray]:
        """Return M, and its row sums."""
        spec = self._parameters.correlations
        assert spec is not None

        def made() -> tuple[FeatureCorrelations, np.ndarray]:
            found = stored_feature_correlations(self._context, spec)
            return found, found.degrees()

        found: tuple[FeatureCorrelations, np.ndarray] = self._held(f"correlations-{spec.name}", made)
        return found

    # ------------------------------------------------------------------------------------------------------ one round
    def _open_round(self) -> None:
        """See how well the weights that the targets are of meet the conditions with these targets: well enough to end
        the phase, or how well the steps of this round are worth to meet them.
        """
        state, found = self._state, self._certificate()
        tolerance = TOLERANCES[state.phase]
        state.goal = min(LOOSEST, max(FORCING * tolerance, FORCING * found.worst))
        if not state.history or not found.holds(tolerance):
            return
        value = self._objective()
        if self._change(value) <= max(self._parameters.tol, ROUND_OFF):
            self._note(value)
            self._end_phase(converged=True)

    def _descend(self) -> None:
        """Take steps until the weights are as good as the targets deserve."""
        state, gamma = self._state, self._parameters.gamma
        while state.goal > 0.0 and not self._is_close():
            if state.phase == "free":
                state.at = advance(self._gram(), state.at, state.cross, gamma, state.goal)
            else:
                state.at = pulled(self._gram(), state.at, state.cross, gamma, self._pull)
            state.n_steps += 1
            state.products.clear()
            if state.phase == "pulled" and self._is_lost():
                self._start_again()

    def _is_close(self) -> bool:
        state = self._state
        may_be_last = state.relative <= self._parameters.tol or state.n_outer + 1 >= self._parameters.max_iter
        if state.n_steps >= N_STEPS * (10 if may_be_last else 1):
            return True
        return self._certificate().holds(state.goal)

    def _close_round(self) -> None:
        """Note the objective, and carry the weights on to where the next targets are made; or go back to those of the
        round before, where they were carried too far.
        """
        state = self._state
        state.at = replace(state.at, SW=self._gram().product(state.at.W))
        state.products.clear()
        value = self._objective()
        state.n_outer += 1
        state.wanted = "targets"
        if state.carried is not None and state.best is not None and value > state.history[-1]:
            state.at, state.carried, state.momentum = replace(state.best, curvature=state.at.curvature), None, 1.0
        else:  # where nothing was carried on, rounding alone can have raised it
            self._note(value)
            at, (carried, state.momentum) = state.at, carried_on(state.at, state.best, state.carried, state.momentum)
            state.at, state.best = carried, at
            state.carried = None if carried is at else carried.W
        if state.n_outer >= self._parameters.max_iter:
            state.at = state.best or state.at
            self._end_phase(converged=False)

    def _change(self, value: float) -> float:
        """Return by what share of it the objective has changed since the last round; 1 in the first."""
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
        correlations, degrees = self._correlated()
        return degrees * squares - correlations.product(squares)

    def _pull(self, squares: np.ndarray) -> np.ndarray:
        return 2.0 * self._state.eta * self._laplacian(squares)

    def _begin_pull(self, parameters: UncorrelatedParameters) -> None:
        """Go on from RLSR's solution with the uncorrelated regularization."""
        state = self._state
        norm = norms(state.at.W)
        rise = np.maximum(self._laplacian(norm**2), 0.0)
        steepest = float((norm / norm.sum() * rise).max()) if norm.any() else 0.0
        state.eta_reference = parameters.gamma / (2.0 * steepest) if steepest > 0 else 0.0
        # the paper's W step is that of a penalty of half its eta (methods.md, finding 2)
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
        state.best, state.carried, state.momentum, state.goal = state.at, None, 1.0, 0.0
        state.history.append(self._objective())

    def _is_lost(self) -> bool:
        """Return whether the weights have left the basin of RLSR's solution, beyond which nothing bounds the
        objective.
        """
        state = self._state
        assert state.base is not None
        without = objective(state.at, state.cross, self._parameters.gamma) + state.spread
        # not above 0, or not a number
        return not (self._objective() >= 0.0 and without <= FAR * state.base[-1])

    def _start_again(self) -> None:
        """Go back to RLSR's solution, with half the pull."""
        state = self._state
        state.halvings += 1
        state.eta = state.eta / 2.0 if state.halvings <= MAX_HALVINGS else 0.0
        self._return_to_base()


# -------------------------------------------------------------------------------------------------- after the loop
def write_rescaled_scores(context: Context, parameters: Mapping[str, Any], unit: int) -> dict[str, Any]:
    """Write the table of one method, and how its weights were found."""
    store, key, methods = context.store, parameters["key"], methods_from(parameters["methods"])
    method = methods[unit]
    assert isinstance(method.parameters, RescaledParameters)
    n_rounds = store.n_recorded(parameters["closing"]) // len(methods)
    state = _load(context, key, n_rounds - 1, method.label)
    excluded = np.isnan(store.open(slab_table(method))[...][0])
    norm, total = norms(state.at.W), float(norms(state.at.W).sum())
    score = norm / total if total > 0 else norm
    bound = norms(state.cross - state.at.SW)
    bound = np.minimum(bound / (method.parameters.gamma * total), 1.0) if total > 0 else bound
    bound[norm > 0] = 1.0
    score[excluded] = bound[excluded] = np.nan
    order = np.lexsort((np.arange(score.size), -bound, -score))
    order = order[~excluded[order]]
    spec = method.parameters.correlations
    facts: dict[str, Any] = {}
    pull: np.ndarray | None = None
    if spec is not None:
        correlations = stored_feature_correlations(context, spec)
        facts["correlation"] = dict(correlations.facts)
        if state.base is not None:
            pull = 2.0 * state.eta * (correlations.degrees() * norm**2 - correlations.product(norm**2))
        if method.parameters.greedy_filter:
            n_active = int(np.count_nonzero(norm))
            order[:n_active] = pick_apart(order[:n_active], score, correlations.columns)
    position = np.full(score.size, np.nan)
    position[order] = np.arange(1, order.size + 1)
    store.put_array(layout.SCORES.format(method.label), np.stack([score, bound, position]))
    store.put_array(layout.SOLUTION_WEIGHTS.format(method.label), state.at.W)
    reached = certificate(state.at, state.cross, method.parameters.gamma, pull)
    facts |= _described(state, reached, parameters["solver"], n_rounds)
    store.write_json(layout.SOLUTION_JSON.format(method.label), facts)
    return {"n_iter": facts["n_iter"], "converged": facts["converged"]}


def _described(state: State, reached: Certificate, solver: str, n_rounds: int) -> dict[str, Any]:
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
    """Return how the weights of a method were found, None for a method that has none."""
    found: dict[str, Any] | None = store.read_json(layout.SOLUTION_JSON.format(method.label))
    return found


def solution_of(store: Store, method: Method) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the weights of a method, shape (n_features, n_classes), and how they were found."""
    weights = store.open(layout.SOLUTION_WEIGHTS.format(method.label))[...].copy()
    return weights, dict(store.read_json(layout.SOLUTION_JSON.format(method.label)))
