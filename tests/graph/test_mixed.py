"""Lists by targets and X together: against a look at every pair, and what is said where not every pair is met."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
import pytest

from daskfs import SemiSupervisedLaplacianScore, knn_graph
from daskfs.graph import mixed, target
from daskfs.graph.edges import edge_blocks
from daskfs.graph.mixed import open_rows
from daskfs.graph.plan import plan_edges, plan_lists
from daskfs.graph.spec import GraphSpec, MixedGraph
from daskfs.kernels.labels import Labels
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import memory_context, run_all
from daskfs.store import layout
from daskfs.store.store import Store
from tests.cases import each
from tests.reference.labeled import mixed_lists, target_distances

Neighbors = Literal["d", "x"]


def rows_and_target(n: int, share: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * [1, 2, 3, 10] + 5
    return X, np.where(rng.random(n) < share, X[:, 0] * 7 + rng.normal(size=n), np.nan)


def built(X: np.ndarray, y: np.ndarray, lists: MixedGraph, k: int, n_candidates: int | None = None) -> Store:
    """Return a store with the mixed lists, from so many candidates; None for as many as is the rule."""
    context = memory_context(X, Labels("regression", y))
    shape, name = context.tiles.shape, lists.base.name
    width = n_candidates or lists.n_candidates(len(X), k)
    stages = plan_lists(shape, lists.base, width) + plan_lists(shape, lists, k, widths={name: width})
    run_all(context, stages, None)
    return context.store


def lists_in(store: Store, lists: MixedGraph) -> tuple[np.ndarray, np.ndarray]:
    names = (layout.KNN_INDICES, layout.KNN_DISTANCES)
    return tuple(np.asarray(store.open(name.format(lists.name))) for name in names)  # type: ignore[return-value]


@each("neighbors", ["d", "x"])
@each("standardize", [True, False])
@each("scaling", ["zscore", None])
@each("share", [0.02, 0.4, 1.0])
def test_every_pair(neighbors: Neighbors, standardize: bool, scaling: Scaling | None, share: float) -> None:
    X, y = rows_and_target(120, share)
    y[:3] = [1.0, 2.0, -4.0]
    lists = MixedGraph(GraphSpec(scaling=scaling), neighbors, standardize)
    store = built(X, y, lists, 12)
    indices, lengths = lists_in(store, lists)
    expected = mixed_lists(X, y, 12, neighbors, standardize, scaling)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_allclose(lengths, expected[1], rtol=1e-12)
    assert open_rows(store, lists.name) == 0


@each("neighbors", ["d", "x"])
def test_more_neighbors_than_rows_means_all_others(neighbors: Neighbors) -> None:
    X, y = rows_and_target(9, 0.6)
    lists = MixedGraph(GraphSpec(), neighbors)
    indices, lengths = lists_in(built(X, y, lists, 30), lists)
    assert indices.shape == (9, 30)
    for row, (found, length) in enumerate(zip(indices, lengths, strict=True)):
        assert sorted(found[:8]) == [i for i in range(9) if i != row]
        assert (found[8:] == -1).all()
        assert np.isfinite(length[:8]).all()
        assert np.isinf(length[8:]).all()


@each("neighbors", ["d", "x"])
def test_lists_for_fewer_neighbors_are_the_first_entries(neighbors: Neighbors) -> None:
    X, y = rows_and_target(150, 0.5)
    lists = MixedGraph(GraphSpec(), neighbors)
    long, short = (lists_in(built(X, y, lists, k), lists) for k in (20, 5))
    np.testing.assert_array_equal(long[0][:, :5], short[0])
    np.testing.assert_array_equal(long[1][:, :5], short[1])


def test_rows_that_are_not_open_have_the_nearest_of_all() -> None:
    """Half of the labeled rows lie so close that their candidates in X are one another, and their targets lie far
    apart: unlabeled rows out of sight are nearer by d.
    """
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(60, 3)) * 1e-3, rng.normal(size=(500, 3))])
    y = np.full(560, np.nan)
    y[:60], y[60:100] = rng.uniform(-5, 5, 60), rng.normal(size=40)
    lists = MixedGraph(GraphSpec())
    store = built(X, y, lists, 8, n_candidates=25)
    indices, lengths = lists_in(store, lists)
    expected = mixed_lists(X, y, 8, scaling=None)
    wrong = (indices != expected[0]).any(axis=1)
    n_open = open_rows(store, lists.name)
    assert wrong[:60].sum() > 20
    assert not wrong[100:].any()
    assert wrong.sum() <= n_open < 100
    assert (lengths[wrong, -1] > expected[1][wrong, -1]).all()


def test_with_k_unlabeled_candidates_no_row_is_open() -> None:
    X, y = rows_and_target(400, 0.1)
    lists = MixedGraph(GraphSpec())
    store = built(X, y, lists, 6, n_candidates=30)
    np.testing.assert_array_equal(lists_in(store, lists)[0], mixed_lists(X, y, 6, scaling=None)[0])
    assert open_rows(store, lists.name) == 0


@pytest.mark.usefixtures("small_merges")
def test_units_and_merges_of_any_size_write_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows_and_target(1500, 0.3)
    lists = MixedGraph(GraphSpec(scaling="zscore"))
    whole = lists_in(built(X, y, lists, 10), lists)
    monkeypatch.setattr(target, "UNIT_ROWS", 1)
    monkeypatch.setattr(mixed, "MIXED_ENTRIES", 10_000)
    shape = memory_context(X, None).tiles.shape
    assert plan_lists(shape, lists, 10)[0].n_units == 3
    np.testing.assert_array_equal(lists_in(built(X, y, lists, 10), lists), whole)


def test_the_estimator_warns_of_open_rows() -> None:
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(30, 2)) * 1e-3, rng.normal(size=(200, 2))])
    y = np.where(np.arange(230) < 30, np.linspace(-9, 9, 230), np.nan)
    few, many = knn_graph(X, 20), knn_graph(X, 229)
    with pytest.warns(UserWarning, match=r"^\d+ labeled rows may have nearer neighbors by d than were found"):
        SemiSupervisedLaplacianScore(n_neighbors=10, graph=few).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SemiSupervisedLaplacianScore(n_neighbors=10, graph=many).fit(X, y)


@each(("n", "k", "expected"), [(2, 30, 1), (1024, 30, 1023), (1025, 30, 1023), (5000, 30, 209), (10**6, 30, 64)])
def test_number_of_candidates(n: int, k: int, expected: int) -> None:
    assert MixedGraph(GraphSpec()).n_candidates(n, k) == expected
    assert MixedGraph(GraphSpec()).n_candidates(n, 500) == min(n - 1, max(1000, expected))
    assert MixedGraph(GraphSpec(), "x").n_candidates(n, k) == min(n - 1, k)


def test_an_edge_joins_rows_when_either_lists_the_other() -> None:
    X, y = rows_and_target(80, 0.3)
    lists = MixedGraph(GraphSpec())
    context = memory_context(X, Labels("regression", y))
    shape = context.tiles.shape
    stages = plan_lists(shape, lists.base, lists.n_candidates(80, 5)) + plan_lists(shape, lists, 5)
    run_all(context, [*stages, *plan_edges(80, lists.name, 5, ())], None)
    indices, lengths = mixed_lists(X, y, 5, scaling=None)
    expected = {
        (min(i, int(j)), max(i, int(j))): length
        for i in range(80)
        for j, length in zip(indices[i], lengths[i], strict=True)
    }
    found: dict[Any, float] = {}
    for source, head, length in edge_blocks(context, lists.name, 5):
        found |= {(min(i, j), max(i, j)): d for i, j, d in zip(source, head, length, strict=True)}
    assert found.keys() == expected.keys()
    assert [found[pair] for pair in sorted(found)] == pytest.approx([expected[pair] for pair in sorted(found)])
    by_target = target_distances(y)
    labeled = [pair for pair in found if np.isfinite(by_target[pair])]
    assert labeled
    assert all(found[pair] == pytest.approx(by_target[pair]) for pair in labeled)
