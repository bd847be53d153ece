"""Backward elimination as stages: the rows for machines, the state after each round, and the final ranking.

Methods of one route share a loop. A round scores the remaining features, in units of problems and candidates (exact.py)
or of rows (nystroem.py), then drops the lowest of each method. A state records the round in which each feature left, so
a process can start at any round.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.row_blocks import center_and_scale, read_blocks, row_parts
from daskfs.criteria.svmrfe.criterion import Route, SVMParameters
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.regression.centered import CenteredRows
from daskfs.run_warning import CHANGES, RunWarning
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import LABEL_CHUNK_ROWS, Context
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.tiles.row_partitions import RowPartitions, block_rows, reading_cost

EQUAL_CRITERIA = 1e-12
"""Two criteria are equal if they differ by at most this share of the largest of the round."""


def svm_parameters(method: Method) -> SVMParameters:
    """Return the parameters of a method of the family."""
    assert isinstance(method.parameters, SVMParameters)
    return method.parameters


def rows_key(method: Method, route: str) -> str:
    """Return the name of the rows that a method keeps; methods with one name share them."""
    p = svm_parameters(method)
    parts = [route, p.score_scaling or "raw", "counted" if p.laplacian else "labeled"]
    if route == "landmarks":
        parts += [str(p.n_landmarks), str(p.random_state)]
    return "-".join(parts)


# --------------------------------------------------------------------------------------------------------- kept rows
class KeptRowsParameters(StageParameters):
    """Parameters of "svm-choose" and "svm-rows": the loop and the name of the rows, and a method that keeps them."""

    loop: str
    key: str
    route: Route
    method: Method


def choose_rows(context: Context, parameters: KeptRowsParameters, unit: int) -> dict[str, Any]:
    """Write the numbers of the rows that methods keep, int64; landmarks are drawn from them."""
    del unit
    p, is_labeled, weights = svm_parameters(parameters.method), context.labeled_rows(), context.weights()
    labeled_rows, others = np.flatnonzero(is_labeled), np.empty(0, dtype=np.int64)
    if p.laplacian:
        others = np.flatnonzero(~is_labeled if weights is None else ~is_labeled & (weights > 0))
    if parameters.route == "landmarks":
        labeled_rows, others = draw_landmarks(labeled_rows, others, p.n_landmarks, p.random_state)
    rows = np.sort(np.concatenate([labeled_rows, others]))
    context.store.put_array(layout.SVM_CHOSEN.format(parameters.loop, parameters.key), rows.astype(np.int64))
    return {"n_rows": int(rows.size)}


def draw_landmarks(
    labeled: np.ndarray, unlabeled: np.ndarray, count: int, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw `count` landmarks from the row numbers; return labeled and unlabeled ones, int64 each.

    Half are labeled, if there are enough of both: other rows nearby cannot replace the few labeled rows of a machine.
    """
    generator = np.random.default_rng([random_state, labeled.size + unlabeled.size])
    n_labeled = min(labeled.size, max(-(-count // 2), count - unlabeled.size))
    n_unlabeled = min(unlabeled.size, count - n_labeled)
    return (
        generator.choice(labeled, n_labeled, replace=False),
        generator.choice(unlabeled, n_unlabeled, replace=False),
    )


def gather_rows(context: Context, parameters: KeptRowsParameters, unit: int) -> None:
    """Write the kept rows of one part, centered and scaled, dense, with their labels and weights."""
    loop, key, method = parameters.loop, parameters.key, parameters.method
    parts = row_parts(context.tiles.shape)
    span = parts.rows(unit)
    numbers = context.store.open(layout.SVM_CHOSEN.format(loop, key))[...]
    chosen = np.zeros(span.stop - span.start, dtype=bool)
    chosen[numbers[np.searchsorted(numbers, span.start) : np.searchsorted(numbers, span.stop)] - span.start] = True
    scaling = svm_parameters(method).score_scaling
    mean, scale = center_and_scale(context, method, scaling)
    centered = CenteredRows(mean, scale)
    n_rows = int(chosen.sum())
    arrays = {"rows": np.empty((n_rows, mean.size)), "codes": np.empty(n_rows, np.int64), "weights": np.empty(n_rows)}
    place = 0
    for block in read_blocks(context, parts, unit, scaling, chosen=chosen):
        inside = slice(place, place + block.codes.size)
        values = block.values.toarray() if is_sparse(block.values) else block.values
        arrays["rows"][inside] = centered.taken(values)
        arrays["codes"][inside] = block.codes
        arrays["weights"][inside] = 1.0 if block.weights is None else block.weights
        place = inside.stop
    context.store.write_arrays(layout.SVM_ROWS.format(loop, key, unit), arrays)


@dataclass(frozen=True)
class KeptRows:
    """Rows that a method keeps: numbers in X; values, (n_rows, n_features); class codes, -1 for no label; weights.

    Values are float64, centered and scaled, and in Fortran order, as rounds take some of the columns.
    """

    numbers: np.ndarray
    values: np.ndarray
    codes: np.ndarray
    weights: np.ndarray


def kept_rows(context: Context, loop: str, key: str) -> KeptRows:
    """Return the kept rows of a group, which every round needs, from the process cache."""

    def made() -> KeptRows:
        numbers = context.store.open(layout.SVM_CHOSEN.format(loop, key))[...]
        d, place = context.tiles.shape.n_features, 0
        values = np.empty((numbers.size, d), order="F")
        codes, weights = np.empty(numbers.size, np.int64), np.empty(numbers.size)
        for part in range(row_parts(context.tiles.shape).n_parts):
            arrays, _ = context.store.read_arrays(layout.SVM_ROWS.format(loop, key, part))
            inside = slice(place, place + arrays["codes"].size)
            values[inside], codes[inside], weights[inside] = arrays["rows"], arrays["codes"], arrays["weights"]
            place = inside.stop
        return KeptRows(numbers, values, codes, weights)

    return context.holdings.get(("kept rows", key), sys.maxsize, lambda _: 0, made)


# ------------------------------------------------------------------------------------------------- state of a method
@dataclass
class Elimination:
    """State of a method after a round.

    `gone`, shape (n_features,), int64, is the round in which a feature left, counted from 0; -1 for a remaining
    feature, -2 for a constant one, which never took part. `value`, shape (n_features,), float64, is the criterion in
    the last round that scored it. `rounds` holds the facts of each round.
    """

    gone: np.ndarray
    value: np.ndarray
    rounds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def left(self) -> np.ndarray:
        """Numbers of the remaining features, ascending, int64."""
        return np.flatnonzero(self.gone == -1)

    @property
    def n_features(self) -> int:
        """Number of features that are not constant."""
        return int(np.count_nonzero(self.gone != -2))

    @property
    def finished(self) -> bool:
        """True if at most one feature is left, and was scored."""
        n_left = self.left.size
        return n_left == 0 or (n_left == 1 and bool(self.rounds))

    def drop(self, values: np.ndarray, parameters: SVMParameters, facts: Mapping[str, Any]) -> None:
        """Drop the features of the lowest criterion; of equal ones, the highest number first.

        `values` are the criterion of the remaining features, shape (n_left,), float64, and `facts` further ones of the
        round.
        """
        left, values = self.left, _without_rounding(values)
        self.value[left] = values
        number = len(self.rounds)
        self.rounds.append({"n_left": int(left.size), **facts})
        if left.size > 1:
            order = np.lexsort((-left, values))
            self.gone[left[order[: parameters.n_leaving(left.size)]]] = number

    def table(self) -> np.ndarray:
        """Return the fields of all features, shape (3, n_features), float64: criterion, round, position.

        Rounds count from 1, one more for features left in the end; NaN for constant features.
        """
        round_ = np.where(self.gone == -1, len(self.rounds), self.gone).astype(np.float64) + 1.0
        excluded = self.gone == -2
        order = np.lexsort((np.arange(round_.size), -self.value, -round_))
        order = order[~excluded[order]]
        position = np.full(round_.size, np.nan)
        position[order] = np.arange(1, order.size + 1)
        value = np.where(excluded, np.nan, self.value)
        round_[excluded] = np.nan
        return np.stack([value, round_, position])


def _without_rounding(values: np.ndarray) -> np.ndarray:
    """Replace values that differ by rounding by the least of them.

    Matrix products round copies of a feature differently, depending on the index of the column.
    """
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    is_new = np.diff(ascending, prepend=-np.inf) > EQUAL_CRITERIA * np.abs(values).max(initial=0.0)
    equal = np.empty_like(values)
    equal[order] = ascending[is_new][np.cumsum(is_new) - 1]
    return equal


def load_state(context: Context, loop: str, number: int, method: Method) -> Elimination:
    """Return the state of a method before a round."""
    if number == 0:
        _, scale = center_and_scale(context, method, svm_parameters(method).score_scaling)
        gone = np.where(scale == 0.0, -2, -1)
        return Elimination(gone.astype(np.int64), np.full(gone.size, np.nan))
    arrays, facts = context.store.read_arrays(layout.SVM_STATE.format(loop, number - 1, method.label))
    return Elimination(arrays["gone"], arrays["value"], facts["rounds"])


def save_state(context: Context, loop: str, number: int, method: Method, state: Elimination) -> dict[str, Any]:
    """Write the state of a method after a round; return the facts of its unit."""
    arrays = {"gone": state.gone, "value": state.value}
    context.store.write_arrays(layout.SVM_STATE.format(loop, number, method.label), arrays, {"rounds": state.rounds})
    return {"finished": state.finished}


def targets_of(codes: np.ndarray, code: int) -> np.ndarray:
    """Return 1 for rows of class `code` and -1 for other labeled rows, shape of `codes`, float64."""
    return np.where(codes == code, 1.0, -1.0)


# -------------------------------------------------------------------------------------------------- after the loop
class EliminationParameters(StageParameters):
    """Parameters of "svm-tables".

    The methods of a loop, with numbers of kept rows, or of landmarks, as planned; `closing` is the last stage of a
    round.
    """

    methods: tuple[Method, ...]
    loop: str
    route: Route
    sizes: tuple[int, ...]
    closing: str

    @property
    def counted(self) -> str:
        """Name of the sizes."""
        return "n_rows" if self.route == "exact" else "n_landmarks"


def write_elimination(context: Context, parameters: EliminationParameters, unit: int) -> dict[str, Any]:
    """Write the table of one method and the facts of its elimination."""
    store, methods = context.store, parameters.methods
    method = methods[unit]
    n_rounds = store.records.n_units(parameters.closing) // len(methods)
    state = load_state(context, parameters.loop, n_rounds, method)
    store.put_array(layout.SCORES.format(method.label), state.table())
    chosen_rows = store.open(layout.SVM_CHOSEN.format(parameters.loop, rows_key(method, parameters.route)))
    # the plan also counts rows of weight 0
    facts = {"route": parameters.route, parameters.counted: int(chosen_rows.shape[0]), "rounds": state.rounds}
    store.write_json(layout.ELIMINATION_JSON.format(method.label), facts)
    return {"n_rounds": len(state.rounds)}


def elimination_warnings(method: Method, facts: Mapping[str, Any]) -> list[RunWarning]:
    """List the warnings about a ranking."""
    n_bound = sum(round_facts.get("bound_share") == 1.0 for round_facts in facts["rounds"])
    if not n_bound:
        return []
    p = svm_parameters(method)
    remedy = "lower gamma_intrinsic or raise C" if p.laplacian else "raise C"
    text = (
        f"in {n_bound} of {len(facts['rounds'])} rounds every alpha was at C, which hardly lets labels tell features "
        f"apart; {remedy}"
    )
    return [RunWarning("at its bound", CHANGES, text, (method.label,), "method")]


def stored_elimination(store: Store, method: Method) -> dict[str, Any] | None:
    """Return the route, rows and round facts of a method's elimination; None if it eliminates nothing."""
    facts: dict[str, Any] | None = store.read_json(layout.ELIMINATION_JSON.format(method.label))
    return facts


CENTER_BYTES = 96
"""Bytes read per feature to center and scale rows: moments of the slabs and of the tiles."""


def kept_cost(n_rows: int, n_features: int, copies: int = 1) -> Cost:
    """List the rows of a group, as :class:`KeptRows` has them."""
    return (
        Array("rows that are kept", (copies, n_rows, n_features)),
        Array("numbers and codes of rows that are kept", (copies, 2, n_rows), "int64"),
        Array("weights of rows that are kept", (copies, n_rows)),
    )


def groups_cost(methods: Sequence[Method], route: str, n_rows: Sequence[int], n_features: int, copies: int = 1) -> Cost:
    """List the rows that some methods keep, `n_rows` each; those of one group share theirs.

    Two `copies` leave room to read rows, which products of the rounds take later.
    """
    groups = {rows_key(method, route): rows for method, rows in zip(methods, n_rows, strict=True)}
    return tuple(item for rows in groups.values() for item in kept_cost(rows, n_features, copies))


def label_cost(parts: RowPartitions) -> Cost:
    """List the labels and weights of the rows of a unit, which are stored in whole chunks."""
    n_rows = min(parts.n_samples, max(parts.per_part * parts.height, LABEL_CHUNK_ROWS))
    return (
        Array("labels as stored, as read and of the rows that count", (3, n_rows), "int64"),
        Array("weights of rows as stored and as read", (2, n_rows)),
        Array("marks of rows that count, have a label or are wanted", (8, n_rows), "bool"),
    )


def state_cost(n_features: int) -> Cost:
    """List the state of a method, and the arrays derived from it."""
    return (
        Array("rounds and criteria of features, as stored, as read and as written", (3, 2, n_features)),
        Array("criteria, orders and fields of the table while features are sorted", (44, n_features)),
    )


def choose_cost(n_samples: int, n_rows: int, process: Cost) -> Cost:
    """List the memory of the unit that chooses rows."""
    return (
        *process,
        Array("labels as read and of the rows that count", (2, n_samples), "int32"),
        Array("numbers of rows with a label and without, and as they are drawn", (3, n_samples), "int64"),
        Array("marks of rows that count or have a label", (8, n_samples), "bool"),
        Array("numbers of rows that are kept, joined, sorted and written", (3, n_rows), "int64"),
    )


def rows_cost(shape: Shape, n_rows: int, process: Cost) -> Cost:
    """List the memory of a unit that gathers rows."""
    parts, d = row_parts(shape), shape.n_features
    looked_through = parts.per_part * parts.height
    return (
        *process,
        *reading_cost(shape, looked_through),
        *label_cost(parts),
        Objects("moments of features, as stored and as read", d, 2 * CENTER_BYTES),
        Array("scales of features", (d,)),
        Array("numbers of rows that are kept", (n_rows,), "int64"),
        Array("rows of a part that are kept, and as they are written", (2, min(n_rows, looked_through), d)),
        Array("rows of a block, dense, centered and scaled", (3, block_rows(shape), d)),
    )


def tables_cost(n_features: int, process: Cost) -> Cost:
    """List the memory of a unit that writes a table."""
    return (*process, *state_cost(n_features))


SVM_CHOOSE_STAGE = StageKind("svm-choose", __name__, choose_rows, choose_cost, reads_weights=True)
SVM_ROWS_STAGE = StageKind("svm-rows", __name__, gather_rows, rows_cost, reads_weights=True)
SVM_TABLES_STAGE = StageKind("svm-tables", __name__, write_elimination, tables_cost)
