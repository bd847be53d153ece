"""Exact route of SVMRFE: machines trained on all labeled rows, in a loop of judging and dropping.

A unit scores some candidates of one problem of one method. Its process caches the squared distances in the remaining
features and the kernel of the round. One that starts later computes the same bits, as
:class:`daskfs.kernels.svm.incremental_distances.KeptSquares` takes the same steps.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.svmrfe.criterion import SVMParameters
from daskfs.criteria.svmrfe.elimination import (
    Elimination,
    KeptRows,
    groups_cost,
    kept_rows,
    load_state,
    rows_key,
    save_state,
    state_cost,
    svm_parameters,
    targets_of,
)
from daskfs.errors import InputError
from daskfs.graph.edges import weighted_blocks
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows
from daskfs.kernels.neighbors.weights import edge_weights
from daskfs.kernels.svm.elimination import Kernel, score_candidates
from daskfs.kernels.svm.incremental_distances import KeptSquares
from daskfs.kernels.svm.laplacian_kernel import deform, graph_laplacian
from daskfs.kernels.svm.machines import RADIUS_ROWS, Machine, fit_machine, is_exact_sphere
from daskfs.kernels.threads import one_thread
from daskfs.stages.cost import HALF_WORD, Array, Cost, MiB, Objects, fullest
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context

LOOP = "svm-exact"
BLOCK_CANDIDATES = 16
MAX_BLOCKS = 64


def candidate_blocks(parameters: SVMParameters, n_features: int) -> int:
    """Return the number of units for the candidates of one problem: one if a matrix product scores all."""
    if parameters.candidates == "first_order" and not parameters.retrain:
        return 1
    return min(MAX_BLOCKS, -(-n_features // BLOCK_CANDIDATES))


def judging_units(methods: Sequence[Method], n_classes: int, n_features: int) -> list[tuple[int, int, int]]:
    """Return the units of a round: numbers of the method, of its problem, and of the block of candidates."""
    n_problems = 1 if n_classes == 2 else n_classes
    return [
        (place, problem, block)
        for place, method in enumerate(methods)
        for problem in range(n_problems)
        for block in range(candidate_blocks(svm_parameters(method), n_features))
    ]


class _Round:
    """Cache of one method in a process: distances, and kernel and machines of the current round."""

    def __init__(self, context: Context, method: Method) -> None:
        self._context, self._method = context, method
        self._lock = threading.Lock()
        self._squares: KeptSquares | None = None
        self._places = np.empty(0, dtype=np.int64)  # of features among the varying ones
        self._number = -1
        self._kernel: Kernel | None = None
        self._machines: dict[int, Machine] = {}

    def at(self, state: Elimination, problem: int) -> tuple[Kernel, Machine, np.ndarray, np.ndarray]:
        """Return the kernel of the round after `state`, and the machine, targets and costs of `problem`."""
        p, rows = svm_parameters(self._method), kept_rows(self._context, LOOP, rows_key(self._method, "exact"))
        with self._lock:
            if self._number != len(state.rounds) or self._kernel is None:
                self._kernel, self._machines = None, {}
                self._kernel = self._make_kernel(state, p, rows)
                self._number = len(state.rounds)
            kernel = self._kernel
            y = targets_of(rows.codes[kernel.labeled], problem)
            cost = p.C * rows.weights[kernel.labeled]
            if problem not in self._machines:
                self._machines[problem] = fit_machine(kernel.trained, y, cost)
            return kernel, self._machines[problem], y, cost

    def _make_kernel(self, state: Elimination, p: SVMParameters, rows: KeptRows) -> Kernel:
        if self._squares is None or self._squares.n_steps > len(state.rounds):
            present = np.flatnonzero(state.gone != -2)
            self._squares = KeptSquares(rows.values[:, present])
            self._places = np.full(state.gone.size, -1)
            self._places[present] = np.arange(present.size)
        self._squares.advance([self._places[state.gone == number] for number in range(len(state.rounds))])
        X = np.ascontiguousarray(rows.values[:, state.left])
        gamma = p.width(state.left.size, state.n_features)
        plain = np.exp(-gamma * self._squares.values)
        labeled = np.flatnonzero(rows.codes >= 0)
        if not p.laplacian:
            return Kernel(plain, X, gamma, labeled, squares=self._squares.values)
        edges = _kept_edges(self._context, p, rows) if p.keeps_graph else _found_edges(p, rows, X)
        laplacian = graph_laplacian(*edges, rows.numbers.size)
        deformed = deform(plain, laplacian, p.gamma_intrinsic, labeled)
        return Kernel(plain, X, gamma, labeled, deformed, laplacian, p.gamma_intrinsic, self._squares.values)


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def _found_edges(p: SVMParameters, rows: KeptRows, X: np.ndarray) -> Edges:
    """Return the edges of the graph of the remaining features, each once."""
    n = rows.numbers.size
    if n <= p.n_neighbors:
        msg = f"n_neighbors is {p.n_neighbors}, and {n} rows count: at most {n - 1} neighbors exist."
        raise InputError(msg)
    base = prepare_rows(X, p.metric)
    indices, lengths = exact_neighbors(base, np.arange(n), base, 0, p.n_neighbors)
    source, target = np.repeat(np.arange(n), p.n_neighbors), indices.ravel()
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys, first = np.unique(low * n + high, return_index=True)
    length, t = lengths.ravel()[first], 1.0
    if p.weights == "heat":
        squares = length**2
        t = float(np.median(squares) if p.t == "median" else squares.mean()) if isinstance(p.t, str) else p.t
    weight = edge_weights(length, p.weights, t if t > 0 else 1.0)
    source, target = keys // n, keys % n
    return source, target, weight * (rows.weights[source] * rows.weights[target])


def _kept_edges(context: Context, p: SVMParameters, rows: KeptRows) -> Edges:
    """Return the edges, between kept rows, of the graph that serves all rounds."""
    weighting = p.weighting
    place = np.full(context.tiles.shape.n_samples, -1, dtype=np.int64)
    place[rows.numbers] = np.arange(rows.numbers.size)
    parts: list[Edges] = []
    for source, target, weights in weighted_blocks(context, weighting.graph, weighting.n_neighbors, [weighting]):
        a, b = place[source], place[target]
        inside = (a >= 0) & (b >= 0)
        parts.append((a[inside], b[inside], weights[0][inside]))
    source, target, weight = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return source, target, weight


class RoundParameters(StageParameters):
    """Parameters of both stages of a round.

    `held_bytes` are those of the rounds that a process may cache, `round_bytes` those of the round of each method.
    """

    methods: tuple[Method, ...]
    held_bytes: int
    round_bytes: tuple[int, ...]


def judge_candidates(context: Context, parameters: RoundParameters, unit: int) -> None:
    """Write the criterion of some candidates of one problem."""
    methods = parameters.methods
    units = judging_units(methods, len(context.classes()), context.tiles.shape.n_features)
    number, index = divmod(unit, len(units))
    place, problem, block = units[index]
    method = methods[place]
    p = svm_parameters(method)
    state = load_state(context, LOOP, number, method)
    if state.finished:
        return
    n_left, n_blocks = state.left.size, candidate_blocks(p, state.gone.size)
    columns = slice(block * n_left // n_blocks, (block + 1) * n_left // n_blocks)
    codes = kept_rows(context, LOOP, rows_key(method, "exact")).codes
    classes = np.unique(codes[codes >= 0]).tolist()
    if len(classes) == 2:  # one problem; of more classes each is separated from all others
        classes = classes[1:]
    name = layout.SVM_CRITERIA.format(LOOP, number, index)
    if problem >= len(classes) or columns.start == columns.stop:  # a class without rows, or fewer features than blocks
        context.store.write_arrays(name, {"values": np.empty(0)})
        return
    with one_thread():
        cached_round: _Round = context.holdings.get(
            ("round", method.label),
            parameters.held_bytes,
            lambda _: parameters.round_bytes[place],
            lambda: _Round(context, method),
        )
        kernel, machine, y, cost = cached_round.at(state, classes[problem])
        values = score_candidates(kernel, machine, y, cost, p.rule, columns)
    facts = {
        "n_support": int(np.count_nonzero(machine.beta)),
        "bound_share": machine.bound_share,
        "gap": machine.gap,
        "is_exact_sphere": is_exact_sphere(y.size),
    }
    context.store.write_arrays(name, {"values": values}, facts)


def drop_features(context: Context, parameters: RoundParameters, unit: int) -> dict[str, Any]:
    """Add up the criteria of a method's problems, drop features, and write its state."""
    methods = parameters.methods
    number, place = divmod(unit, len(methods))
    method = methods[place]
    state = load_state(context, LOOP, number, method)
    if not state.finished:
        units = judging_units(methods, len(context.classes()), state.gone.size)
        by_problem: dict[int, list[np.ndarray]] = {}
        facts: list[dict[str, Any]] = []
        for index, (of, problem, _) in enumerate(units):
            if of != place:
                continue
            arrays, facts_of_problem = context.store.read_arrays(layout.SVM_CRITERIA.format(LOOP, number, index))
            if not arrays["values"].size:
                continue
            if problem not in by_problem:
                facts.append(facts_of_problem)
            by_problem.setdefault(problem, []).append(arrays["values"])
        values = np.sum([np.concatenate(parts) for parts in by_problem.values()], axis=0)
        p = svm_parameters(method)
        facts_of_round: dict[str, Any] = {
            "n_support": max(fact["n_support"] for fact in facts),
            "bound_share": min(fact["bound_share"] for fact in facts),
            "gap": max(fact["gap"] for fact in facts),
        }
        if p.criterion == "rmb":
            facts_of_round["radius"] = "exact" if facts[0]["is_exact_sphere"] else "variance"
        state.drop(values, p, facts_of_round)
    return save_state(context, LOOP, number, method, state)


def fewer_rows(parameters: RoundParameters) -> str:
    """Return advice to lower the memory of machines, as a sentence to add."""
    if any(p.criterion == "rfe" and not p.retrain for p in map(svm_parameters, parameters.methods)):
        return " SVMRFE with large_n 'landmarks' takes as much memory for any number of rows."
    return " SVMRFE takes the square of the labeled rows, with laplacian of all that count: let fewer of them count."


LIBSVM_BYTES = 500 * MiB
"""Maximum bytes of LIBSVM's cache of kernel rows; it is never larger than the kernel."""


def copies_cost(n_rows: int, n_features: int) -> Cost:
    """List the copies of rows that a round of one method uses; methods of a group do not share them."""
    return (
        Array("rows of a round, in all features that vary", (n_rows, n_features)),
        Array("rows of a round, in the features that are left", (n_rows, n_features)),
    )


def round_cost(p: SVMParameters, n_rows: int, n_features: int) -> Cost:
    """List the memory that a process keeps of a round: rows, squared distances and kernel.

    With a graph also the deformed kernel and its pull.
    """
    square = (n_rows, n_rows)
    graph = (Array("deformed kernel", square), Array("pull of the graph", square)) if p.laplacian else ()
    return (*copies_cost(n_rows, n_features), Array("squared distances", square), Array("kernel", square), *graph)


def judging_cost(p: SVMParameters, n_rows: int, n_features: int) -> Cost:
    """List the memory of one method's round, in addition to the kept rows.

    Rows of support vectors and products with them count once: the other uses the room to read kept rows.
    """
    radius, square = min(RADIUS_ROWS, n_rows), (n_rows, n_rows)
    cached = min(n_rows, LIBSVM_BYTES // (HALF_WORD * max(n_rows, 1)))
    changing = Array("kernel without a candidate, its change and a product, or a system and its factor", (3, *square))
    graph = (Array("system of the graph and its factor", (2, *square)),) if p.laplacian else ()
    sphere = (Array("kernel of the smallest sphere", (radius, radius)),) if p.criterion == "rmb" else ()
    return (
        *round_cost(p, n_rows, n_features),
        changing,
        *graph,
        *sphere,
        Array("rows of the kernel that LIBSVM holds", (cached, n_rows), "float32"),
        Array("rows of support vectors, or products with them", (n_rows, n_features)),
    )


def judge_cost(methods: Sequence[Method], n_rows: Sequence[int], n_features: int, cache: int, process: Cost) -> Cost:
    """List the memory of a unit that scores candidates.

    Each method keeps `n_rows` rows; `cache` are the bytes of the rounds that are cached in addition to the current one.
    """
    rounds = zip(methods, n_rows, strict=True)
    return (
        *process,
        *groups_cost(methods, "exact", n_rows, n_features, 2),
        *fullest(*(judging_cost(svm_parameters(method), rows, n_features) for method, rows in rounds)),
        Objects("rounds that are held", 1, cache),
    )


def drop_cost(
    methods: Sequence[Method], n_rows: Sequence[int], n_features: int, n_units: int, cache: int, process: Cost
) -> Cost:
    """List the memory of a unit that drops features, in a process that has scored in `n_units` and caches rounds.

    `cache` are the bytes of rounds without the copies of rows of one round; one copy uses the room to read rows.
    """
    return (
        *process,
        *groups_cost(methods, "exact", n_rows, n_features, 2),
        Array("rows of a round, in the features that are left", (max(n_rows), n_features)),
        Objects("rounds that are held", 1, cache),
        *state_cost(n_features),
        Array("criteria of all units", (n_units, n_features)),
    )


SVM_JUDGE_STAGE = StageKind("svm-judge", __name__, judge_candidates, judge_cost, reads_weights=True, advice=fewer_rows)
SVM_DROP_STAGE = StageKind("svm-drop", __name__, drop_features, drop_cost)
