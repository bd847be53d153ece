"""Features of which values are missing, under "pairwise": each has the score of the data without the rows that lack it,
on the graph that is left of these; in every criterion that is not refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.criteria.criterion import Criterion
from daskfs.criteria.registry import Method, criteria, make_method
from daskfs.errors import InputError, JobError
from daskfs.graph.precomputed import Graph, WeightMatrix
from daskfs.kernels.labels import Labels, Task
from daskfs.kernels.panel import backend
from daskfs.plan.chain import Chain, Data
from daskfs.plan.inline import EnclosingRun, memory_context, score_features
from daskfs.plan.lists import needed_lists
from daskfs.stages.cost import total
from daskfs.store import layout
from daskfs.tiles.shapes import plan_shape

N_SAMPLES = 240
CONSTANT, LAST_ROW, ONE_CLASS, UNKNOWN = 5, 6, 7, 8
Lists = dict[str, tuple[np.ndarray, np.ndarray]]


DEFAULT_CASES = [("classification", "f8", True), ("regression", "f4", False)]


def data(task: Task) -> tuple[np.ndarray, Labels, np.ndarray]:
    """Return X with NaN, labels of some rows, and weights; column 0 has all its values, 3 and 4 lack the same rows, and
    the last ones have hardly any.
    """
    rng = np.random.default_rng(3)
    y = np.arange(N_SAMPLES) % 3
    X = rng.poisson(2.0, (N_SAMPLES, 9)) / 4 + 0.3 * rng.normal(size=(N_SAMPLES, 9))
    X[rng.random(X.shape) < 0.2] = 0.0
    X[:, :4] += y[:, None] * np.array([0.5, 0.0, 1.0, 0.2])
    X[:, 2] += 1e6
    X[:, CONSTANT] = 0.1
    gone = rng.random(X.shape) < 0.3
    gone[:, 0] = False
    gone[:, 4] = gone[:, 3]
    gone[:, LAST_ROW] = np.arange(N_SAMPLES) < N_SAMPLES - 1
    labeled = rng.random(N_SAMPLES) < 0.5
    gone[:, ONE_CLASS] = labeled & (y != 1)
    gone[:, UNKNOWN] = True
    X[gone] = np.nan
    weights = rng.integers(0, 3, N_SAMPLES).astype(np.float64)
    if task == "classification":
        return X, Labels(task, np.where(labeled, y, -1).astype(np.int32), ("a", "b", "c")), weights
    values = np.where(y == 1, 2.0, y + rng.normal(size=N_SAMPLES))
    return X, Labels(task, np.where(labeled, values, np.nan)), weights


def methods_of(criterion: Criterion, task: Task) -> list[Method]:
    """Return the method with parameters that do not follow from which edges are left."""
    fields = criterion.parameters.model_fields
    settings: list[dict[str, Any]] = [{}, {"score_scaling": "zscore"}]
    if "self_loops" in fields:
        settings.append({"self_loops": True, "weights": "binary"})
    fixed = {"task": task, "t": 2.0, "trade_off": 0.3}
    known = {key: value for key, value in fixed.items() if key in fields}
    return [make_method(criterion.name, {**known, **given}, f"{number}") for number, given in enumerate(settings)]


def lists_of(X: np.ndarray, methods: list[Method], labels: Labels) -> Lists:
    """Return neighbor lists of filled data, over X, over targets and mixed."""
    context = memory_context(X.copy(), labels, None, "mean")
    score_features(context, methods, labels)
    names = needed_lists(methods, len(X))
    stored = (layout.KNN_INDICES, layout.KNN_DISTANCES)
    return {name: tuple(context.store.open(part.format(name))[...] for part in stored) for name in names}  # type: ignore[misc]


def lists_left(lists: Lists, rows: np.ndarray) -> Lists:
    """Return the lists of some rows, of which others are no neighbors any more."""
    left = {}
    for name, (indices, distances) in lists.items():
        places = np.full(len(indices) + 1, -1)
        places[rows] = np.arange(rows.size)
        own = places[indices[rows]]
        order = np.argsort(own < 0, axis=1, kind="stable")
        lengths = np.where(own < 0, np.inf, distances[rows])
        left[name] = (np.take_along_axis(own, order, axis=1), np.take_along_axis(lengths, order, axis=1))
    return left


def graph_left(graph: WeightMatrix, rows: np.ndarray) -> WeightMatrix:
    whole = sp.csr_matrix((graph.values, (graph.rows, graph.columns)), shape=graph.shape)
    own = whole[rows][:, rows].tocoo()
    return WeightMatrix("graph", own.shape, own.row, own.col, own.data)


def scored(
    X: Any,
    methods: list[Method],
    labels: Labels,
    weights: np.ndarray | None,
    lists: Mapping[str, Any],
    graph: Graph | None = None,
    missing: str = "pairwise",
) -> dict[str, np.ndarray]:
    return score_features(
        memory_context(X, labels, weights, missing), methods, labels, graph, run=EnclosingRun(lists, None)
    )


def expected(
    X: np.ndarray,
    method: Method,
    labels: Labels,
    weights: np.ndarray | None,
    lists: Lists,
    graph: WeightMatrix | None = None,
) -> np.ndarray:
    """Score each feature without the rows that lack it; NaN where what is left serves the method not."""
    columns = []
    for column in range(X.shape[1]):
        rows = np.flatnonzero(~np.isnan(X[:, column]))
        if not rows.size:
            columns.append(np.full(len(method.fields), np.nan))
            continue
        own = replace(labels, values=labels.values[rows])
        counts = None if weights is None else weights[rows]
        try:
            left = None if graph is None else graph_left(graph, rows)
            table = scored(np.nan_to_num(X[rows]), [method], own, counts, lists_left(lists, rows), left, "refuse")
            columns.append(table[method.label][:, column])
        except InputError:
            columns.append(np.full(len(method.fields), np.nan))
    return np.stack(columns, axis=1)


def assert_close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9, atol=1e-12)
    known = ~np.isnan(wanted[0])
    np.testing.assert_allclose(found[:, known], wanted[:, known], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("criterion", "task", "weighted"),
    [
        pytest.param(c, task, weighted, id=f"{c.name}-{task}-{weighted}", marks=() if is_often else pytest.mark.long)
        for number, c in enumerate(criteria().values())
        for task in c.tasks
        for weighted in (False, True)
        for is_often in [weighted == (task == "classification") if len(c.tasks) > 1 else weighted == bool(number % 2)]
    ],
)
def test_scores_are_those_without_the_rows_that_lack_a_feature(
    criterion: Criterion, task: Task, weighted: bool
) -> None:
    X, labels, weights = data(task)
    methods = methods_of(criterion, task)
    counts = weights if weighted else None
    if criterion.is_joint:
        with pytest.raises(JobError, match=r"method 0 compares features.*set data\.missing: mean"):
            scored(X, methods, labels, counts, {})
        return
    lists = lists_of(X, methods, labels)
    found = scored(X, methods, labels, counts, lists)
    for method in methods:
        table = found[method.label]
        assert_close(table, expected(X, method, labels, counts, lists))
        assert np.isfinite(table[0, [0, 1, 2, 3, 4]]).all()
        assert np.isnan(table[0, [CONSTANT, LAST_ROW, UNKNOWN]]).all()
        if criterion.needs_labels and not criterion.one_class_serves:
            assert np.isnan(table[0, ONE_CLASS])
    sparse = scored(sp.csr_matrix(X), methods, labels, counts, lists)
    for label, table in found.items():
        np.testing.assert_allclose(sparse[label], table, rtol=1e-9, atol=1e-9, err_msg=label)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", [n for n, c in criteria().items() if "graph" in c.parameters.model_fields])
def test_a_given_graph_is_cut_down_with_its_diagonal(name: str, weighted: bool) -> None:
    criterion = criteria()[name]
    if criterion.is_joint:
        return
    X, labels, weights = data("classification")
    rng = np.random.default_rng(4)
    W = sp.random(N_SAMPLES, N_SAMPLES, 0.03, random_state=rng)
    W = (W + W.T + sp.diags_array(rng.integers(0, 2, N_SAMPLES) * 1.5)).tocoo()
    graph = WeightMatrix("graph", W.shape, W.row, W.col, W.data)
    counts = weights if weighted else None
    fields = criterion.parameters.model_fields
    for loops in [False, True] if "self_loops" in fields else [None]:
        given = {"graph": "given"} | ({} if loops is None else {"self_loops": loops})
        method = make_method(name, given)
        found = scored(X, [method], labels, counts, {}, graph)[name]
        assert_close(found, expected(X, method, labels, counts, {}, graph))
        assert np.isfinite(found[0, :5]).all()


def test_means_far_from_those_of_all_rows_take_a_second_stream() -> None:
    """Rows without an edge lie far away: the mean by degrees has nothing to do with theirs."""
    rng = np.random.default_rng(5)
    n_edges = 150
    source = np.arange(n_edges)
    target = (source + rng.integers(1, n_edges, n_edges)) % n_edges
    graph = WeightMatrix("graph", (N_SAMPLES, N_SAMPLES), source, target, rng.uniform(0.5, 1.0, n_edges))
    X, labels, _ = data("classification")
    X = X[:, :5].copy()
    X[:, 2] -= 1e6
    X[:n_edges, 4] = np.where(np.isnan(X[:n_edges, 4]), np.nan, 0.25)
    moved = X.copy()
    moved[n_edges:] += 1e8
    method = make_method("LaplacianScore", {"graph": "given"})
    near, far = (scored(values, [method], labels, None, {}, graph)["LaplacianScore"] for values in (X, moved))
    np.testing.assert_allclose(far, near, rtol=1e-12)
    assert np.isnan(near[0]).tolist() == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("task", "dtype", "weighted"),
    [
        pytest.param(task, dtype, weighted, marks=() if case in DEFAULT_CASES else pytest.mark.long)
        for case in itertools.product(("classification", "regression"), ("f8", "f4"), (False, True))
        for task, dtype, weighted in [case]
    ],
)
def test_bits_do_not_depend_on_slabs_passes_or_other_columns(
    task: Task, dtype: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels, weights = data(task)
    kinds = [c for c in criteria().values() if task in c.tasks and not c.is_joint]
    methods = [replace(methods_of(kind, task)[0], label=kind.name) for kind in kinds]
    lists, values, counts = lists_of(X, methods, labels), X.astype(dtype), weights if weighted else None
    whole = scored(values, methods, labels, counts, lists)
    with monkeypatch.context() as patched:
        patched.setattr("daskfs.plan.chain.scored_columns", lambda *_, **__: 2)
        narrow = scored(values, methods, labels, counts, lists)
        patched.setattr(backend, "COMPILED_VALUES", 1)
        compiled = scored(values, methods, labels, counts, lists)
    for label, table in whole.items():
        assert narrow[label].tobytes() == table.tobytes(), label
        assert compiled[label].tobytes() == table.tobytes(), label
    complete = np.nan_to_num(values)
    refused = scored(complete, methods, labels, counts, lists, None, "refuse")
    for label, table in whole.items():  # of columns without a missing value
        assert table[:, 0].tobytes() == refused[label][:, 0].tobytes(), label
    pairwise = scored(complete, methods, labels, counts, lists)
    for label, table in refused.items():
        assert pairwise[label].tobytes() == table.tobytes(), label


def test_trade_off_is_chosen_from_filled_rows() -> None:
    X, labels, weights = data("classification")
    method = make_method("SSelect", {"trade_off": "auto", "n_neighbors": 5})
    lists = lists_of(X, [method], labels)
    table = scored(X, [method], labels, weights, lists)["SSelect"]
    assert np.isfinite(table[0, :5]).all()
    fixed = [make_method("SSelect", {"trade_off": t / 10, "n_neighbors": 5}, f"{t}") for t in range(11)]
    along = scored(X, fixed, labels, weights, lists)
    assert sum(np.array_equal(found, table, equal_nan=True) for found in along.values()) == 1


def test_columns_that_are_scored_together_are_planned() -> None:
    shape = plan_shape(200_000, 300, "float64", None, 1 << 30)
    methods = [make_method("VarianceScore", {"score_scaling": "zscore"})]
    refused, pairwise = (
        Chain(Data(shape, missing), methods, memory_limit=1 << 30) for missing in ("refuse", "pairwise")
    )
    narrow = pairwise.scored_columns
    assert 1 <= narrow < refused.scored_columns
    costs = [total(chain._slab_cost((), narrow)) for chain in (refused, pairwise)]
    assert costs[1] - costs[0] >= 8 * 200_000 * min(narrow, 64)


@pytest.mark.parametrize("policy", ["refuse", "pairwise"])
def test_scores_do_not_depend_on_the_other_methods_of_a_job(policy: str) -> None:
    """Weightings that differ in self-loops alone share one stream of the graph, and none of its sums."""
    X = data("classification")[0][:, :5]
    X = np.nan_to_num(X) if policy == "refuse" else X
    names = [name for name, one in criteria().items() if "self_loops" in one.parameters.model_fields]
    made = {
        (name, loops): make_method(name, {"self_loops": loops, "weights": "binary"}, f"{name} {loops}")
        for name in names
        for loops in (False, True)
        if not criteria()[name].needs_labels
    }
    alone: dict[str, np.ndarray] = {}
    for method in made.values():
        alone |= score_features(memory_context(X.copy(), None, None, policy), [method], None)
    assert len({table[0].tobytes() for table in alone.values()}) > 1
    for methods in (list(made.values()), [*made.values()][::-1]):
        together = score_features(memory_context(X.copy(), None, None, policy), methods, None)
        for label, table in together.items():
            np.testing.assert_array_equal(table, alone[label], err_msg=label)
