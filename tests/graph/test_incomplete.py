"""Graphs of rows that lack values: every engine against scikit-learn's nan-euclidean distances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray
from sklearn.metrics.pairwise import nan_euclidean_distances
from threadpoolctl import threadpool_limits

from daskfs import KNNGraph, knn_graph
from daskfs.estimators.opening import stored_context
from daskfs.execution.pool import Pool
from daskfs.graph import engine as engine_module
from daskfs.graph import partition
from daskfs.graph.edges import weight_summary
from daskfs.graph.plan import plan_edges, plan_graph, plan_lists, plan_weights
from daskfs.graph.spec import Engine, GraphSpec, MixedGraph, Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import find_lists, memory_context, run_all
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.tiles import shapes as tiles
from tests.cases import each
from tests.execution.runs import local_client
from tests.graph.test_partitioned_search import low_rank, mixture, normal

FloatArray = NDArray[np.float64]
Form = Callable[[Any], Any]
FORMS: tuple[Form, ...] = (np.asarray, sp.csr_matrix)


def holed(X: FloatArray, share: float, seed: int = 5) -> FloatArray:
    found = X.copy()
    found[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return found


def lengths_from(X: FloatArray, rows: NDArray[np.int64]) -> FloatArray:
    """Distances from some rows to all, infinite where nothing is shared, and to the row itself."""
    lengths: FloatArray = nan_euclidean_distances(X[rows], X)
    lengths[np.isnan(lengths)] = np.inf
    lengths[np.arange(rows.size), rows] = np.inf
    return lengths


def measured_recall(X: FloatArray, graph: KNNGraph) -> float:
    rows = np.arange(0, len(X), max(1, len(X) // 300))
    k = graph.n_neighbors
    reach = np.partition(lengths_from(X, rows), k - 1, axis=1)[:, k - 1 : k]
    return float((graph.distances[rows] <= reach * (1 + 1e-6)).mean())


def assert_sound(X: FloatArray, graph: KNNGraph) -> None:
    """Others, each once, nearest first, at scikit-learn's distance."""
    rows = np.arange(0, len(X), max(1, len(X) // 200))
    lengths = lengths_from(X, rows)
    for place, row in enumerate(rows):
        listed = graph.indices[row][graph.indices[row] >= 0]
        assert np.unique(listed).size == listed.size
        np.testing.assert_allclose(graph.distances[row, : listed.size], lengths[place, listed], rtol=1e-6, atol=1e-6)
    assert (graph.distances[:, 1:] >= graph.distances[:, :-1] * (1 - 1e-11)).all()
    np.testing.assert_array_equal(np.isinf(graph.distances), graph.indices < 0)


@each("form", FORMS)
@pytest.mark.parametrize("engine", ["exact", "cells"])
@pytest.mark.parametrize("scaling", [None, "zscore", "unit", "log1p", "total=10+log1p+zscore"])
def test_scaled_by_what_is_known(scaling: Scaling | None, engine: Engine, form: Form) -> None:
    X = holed(np.abs(normal(300, 6)) * np.arange(1, 7), 0.3)
    Z = X
    if scaling == "unit":
        Z = X / np.sqrt(np.nansum(X**2, axis=1))[:, None]
    if scaling is not None and "total" in scaling:
        sums = np.nansum(X, axis=1)
        Z = np.where(sums > 0, 10 / np.where(sums > 0, sums, 1), 0)[:, None] * X
    if scaling is not None and "log1p" in scaling:
        Z = np.log1p(Z)
    if scaling is not None and "zscore" in scaling:
        Z = (Z - np.nanmean(Z, axis=0)) / np.nanstd(Z, axis=0)
    graph = knn_graph(form(X), 5, missing="pairwise", graph_scaling=scaling, engine=engine)
    nearest = np.sort(lengths_from(Z, np.arange(300)), axis=1)[:, :5]
    np.testing.assert_allclose(graph.distances, nearest, rtol=1e-6, atol=1e-7)
    if engine == "cells":
        assert graph.recall == 1.0


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize(
    ("X", "least"),
    [
        (holed(mixture(2000, 12), 0.05), 0.96),
        (holed(mixture(2000, 12), 0.2), 0.96),
        (holed(mixture(2000, 12), 0.5), 0.85),
        (holed(low_rank(1400, 150, 8), 0.5), 0.96),
        (holed(low_rank(1200, 300, 10), 0.05), 0.96),
    ],
    ids=["5 %", "20 %", "50 %", "50 % of many columns", "5 % of projected columns"],
)
def test_recall_of_cells(X: FloatArray, least: float) -> None:
    graph = knn_graph(X, 10, missing="pairwise", engine="cells")
    assert_sound(X, graph)
    recall = measured_recall(X, graph)
    assert recall >= least
    assert graph.recall is not None
    assert abs(graph.recall - recall) < 0.03


def test_recall_of_cells_of_sparse_rows() -> None:
    component = np.random.default_rng(1).integers(0, 8, size=1100)
    S = sp.random(1100, 200, 0.03, format="csr", random_state=0)
    S = sp.csr_matrix(S + sp.csr_matrix(sp.random(8, 200, 0.3, format="csr", random_state=1))[component])
    X = holed(S.toarray(), 0.05)
    graph = knn_graph(sp.csr_matrix(X), 10, missing="pairwise", engine="cells")
    assert_sound(X, graph)
    assert graph.recall is not None
    assert abs(graph.recall - measured_recall(X, graph)) < 0.03
    assert measured_recall(X, graph) > 0.75


def test_ties_of_more_rows_than_are_measured() -> None:
    """Equal rows that lack the same values are neighbors in the order of their numbers."""
    X = np.tile([[1.0, np.nan, 3.0], [2.0, 5.0, np.nan]], (1500, 1))
    indices = knn_graph(X, 3, missing="pairwise", engine="exact").indices
    for row in (0, 1, 10, 2999):
        equal = np.arange(row % 2, 3000, 2)
        np.testing.assert_array_equal(indices[row], equal[equal != row][:3])


def test_a_sample_without_what_other_rows_lack() -> None:
    """Of sparse rows, of which only one lacks a value, and no cell was cut by it."""
    X = sp.random(1500, 40, 0.2, format="csr", random_state=0).toarray()
    X[1234, :3] = np.nan
    X[77] = np.nan
    for form in FORMS:
        graph = knn_graph(form(X), 4, missing="pairwise", engine="cells")
        assert_sound(X, graph)
        assert (graph.indices[77] == -1).all()


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("engine", ["exact", "cells"])
def test_complete_rows_have_the_bits_of_refuse(engine: Engine) -> None:
    X = mixture(2600, 12)
    refuse, pairwise = (knn_graph(X, 10, engine=engine, missing=missing) for missing in ("refuse", "pairwise"))
    np.testing.assert_array_equal(pairwise.indices, refuse.indices)
    assert pairwise.distances.tobytes() == refuse.distances.tobytes()
    assert pairwise.recall == refuse.recall


def test_means_leave_the_rows_of_the_caller_alone() -> None:
    X = holed(normal(80, 4), 0.2)
    before = X.copy()
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    found, expected = knn_graph(X, 5, missing="mean"), knn_graph(filled, 5)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(X, before)


class TestSpec:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"metric": "cosine"}, r"graph\.metric is cosine.*set graph\.metric: euclidean.*data\.missing: mean"),
            ({"engine": "descent"}, r"graph\.engine is descent.*set graph\.engine: auto, exact or cells"),
            ({"missing": "drop"}, r"missing must be one of 'refuse', 'mean', 'pairwise'; got 'drop'"),
            ({"missing": "refuse"}, "has NaN in row"),
        ],
    )
    def test_what_is_not_done_is_refused_by_name(self, change: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            knn_graph(holed(normal(60, 4), 0.2), 3, **{"missing": "pairwise", **change})

    def test_infinite_values_are_none_of_these(self) -> None:
        X = holed(normal(60, 4), 0.2)
        X[7, 3] = np.inf
        with pytest.raises(ValueError, match=r"column 3 .*infinite .*row 7"):
            knn_graph(X, 3, missing="pairwise")

    @pytest.mark.parametrize("nnz", [None, 10**8])
    def test_rows_are_spread_as_complete_ones_are(self, nnz: int | None) -> None:
        """So that the graph is that of refuse where nothing turns out to be missing; only more memory is planned."""
        shape = Shape(10**6, 2000, "float32", nnz is not None, nnz, 2**14, 2000)
        plans = [plan_graph(shape, GraphSpec(engine="cells"), 10, pairwise=pairwise) for pairwise in (False, True)]
        for complete, incomplete in zip(*plans, strict=True):
            assert (incomplete.name, incomplete.n_units) == (complete.name, complete.n_units)
            assert incomplete.parameters == complete.parameters
            assert incomplete.peak_bytes >= complete.peak_bytes
        assert plans[1][2].peak_bytes > plans[0][2].peak_bytes

    def test_auto_means_descent_only_if_nothing_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(engine_module, "exact_seconds", lambda *_: np.inf)
        monkeypatch.setattr(engine_module, "descent_seconds", lambda *_: 0.0)
        X = low_rank(3000, 12, 3)
        descent = knn_graph(X, 10, engine="descent")
        cells = knn_graph(holed(X, 0.05), 10, engine="cells", missing="pairwise")
        for auto, asked in (
            (knn_graph(X, 10), descent),
            (knn_graph(X, 10, missing="pairwise"), descent),
            (knn_graph(holed(X, 0.05), 10, missing="pairwise"), cells),
        ):
            np.testing.assert_array_equal(auto.indices, asked.indices)
            assert auto.distances.tobytes() == asked.distances.tobytes()


class TestAlone:
    def test_rows_that_share_nothing(self) -> None:
        X = normal(50, 4)
        X[:3, :2] = X[3:, 2:] = np.nan
        X[9] = np.nan
        graph = knn_graph(X, 5, missing="pairwise")
        np.testing.assert_array_equal((graph.indices >= 0).sum(axis=1), [2] * 3 + [5] * 6 + [0] + [5] * 40)
        assert graph.to_csr().nnz == 6 + 46 * 5

    def test_a_graph_without_edges_is_an_error(self) -> None:
        context = memory_context(np.where(np.eye(6, dtype=bool), 1.0, np.nan), None, None, "pairwise")
        stages = plan_graph(context.tiles.shape, GraphSpec(), 2, pairwise=True) + plan_edges(6, "euclidean", 2, ())
        weighting = Weighting("euclidean", 2, "binary")
        run_all(context, [*stages, *plan_weights(6, [weighting], ())], None)
        with pytest.raises(ValueError, match="the graph has no edges: no two rows share a feature"):
            weight_summary(context.store, weighting)


# --------------------------------------------------------------------------- other ways to the same lists
Lists = tuple[NDArray[np.integer[Any]], FloatArray, float | None]


@contextmanager
def stored(folder: Path, X: Any, chunks: tuple[int, int] = (512, 4)) -> Iterator[Context]:
    """X in tiles on disk: dense in a Zarr array that is used where it lies, sparse in bands."""
    folder.mkdir()
    path = folder / "X.zarr"
    if isinstance(X, np.ndarray):
        array = zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=chunks)
        array[...] = X
    else:
        path = folder / "X.npz"
        sp.save_npz(path, X)
    with stored_context(path, "pairwise") as (context, _, _):
        yield context


def assert_same(found: Lists, expected: Lists) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].tobytes() == expected[1].tobytes()
    assert found[2] == expected[2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("engine", "scaling"), [("exact", "zscore"), ("cells", "zscore"), ("cells", None)])
def test_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Engine, scaling: Scaling | None, form: Form
) -> None:
    monkeypatch.setattr(tiles, "MIN_TILE_BYTES", 2**16)
    X = form(holed(mixture(1100, 8), 0.25).astype(np.float32))
    spec = GraphSpec(scaling=scaling, engine=engine)
    expected = find_lists(memory_context(X, None, None, "pairwise"), spec, 6)
    with stored(tmp_path / "data", X, (1024, 3)) as context:
        assert context.tiles.is_pairwise
        assert context.tiles.shape.n_bands > 1
        assert_same(find_lists(context, spec, 6), expected)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("engine", ["exact", "cells"])
def test_threads(engine: Engine, form: Form) -> None:
    X = form(holed(mixture(1100, 40), 0.25))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(find_lists(memory_context(X, None, None, "pairwise"), GraphSpec(engine=engine), 6))
    assert_same(*found)


@pytest.mark.long
@pytest.mark.cluster
def test_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "LEAST_GROUPS", 3)
    X = holed(mixture(16000, 6), 0.2).astype(np.float32)
    spec = GraphSpec(engine="cells")
    expected = find_lists(memory_context(X, None, None, "pairwise"), spec, 6)
    for workers in (1, 3):
        with local_client(workers) as client, stored(tmp_path / str(workers), X, (4096, 6)) as context:
            assert_same(find_lists(context, spec, 6, Pool(client)), expected)


@pytest.mark.parametrize("neighbors", ["d", "x"])
def test_mixed_distances(neighbors: Literal["d", "x"]) -> None:
    """Per feature, over those that both rows have; by target between labeled rows, whatever these lack."""
    rng, k = np.random.default_rng(0), 8
    X = holed(normal(90, 5), 0.4)
    X[[4, 50]] = np.nan
    y = np.where(rng.random(90) < 0.4, rng.normal(size=90), np.nan)
    context = memory_context(X, Labels("regression", y), None, "pairwise")
    lists = MixedGraph(GraphSpec(), neighbors, standardize=False)
    shape, width = context.tiles.shape, lists.n_candidates(90, k)
    stages = plan_lists(shape, lists.base, width, pairwise=True)
    run_all(context, stages + plan_lists(shape, lists, k, widths={"euclidean": width}, pairwise=True), None)
    indices, lengths = (
        context.store.open(array.format(lists.name))[...] for array in (layout.KNN_INDICES, layout.KNN_DISTANCES)
    )
    by_x = lengths_from(X, np.arange(90)) / np.sqrt(5)
    both = ~np.isnan(y)[:, None] & ~np.isnan(y)
    mixed = np.where(both, np.abs(y[:, None] - y), by_x)
    np.fill_diagonal(mixed, np.inf)
    order = np.argsort(mixed if neighbors == "d" else by_x, axis=1, kind="stable")[:, :k]
    if neighbors == "x":
        order[np.isinf(np.take_along_axis(by_x, order, axis=1))] = -1
    else:
        order[np.isinf(np.take_along_axis(mixed, order, axis=1))] = -1
    np.testing.assert_array_equal(indices, order)
    row, place = np.nonzero(order >= 0)
    np.testing.assert_allclose(lengths[row, place], mixed[row, order[row, place]], rtol=1e-6)
    assert np.isinf(lengths[order < 0]).all()
