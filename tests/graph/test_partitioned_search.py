"""Approximate lists from end to end: sound, as complete as they say, the same wherever and however they are found."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client
from numpy.typing import NDArray

from daskfs import KNNGraph, knn_graph
from daskfs.estimators.opening import stored_context
from daskfs.execution.pool import Pool
from daskfs.graph import partition
from daskfs.graph.neighbors import SearchParameters
from daskfs.graph.plan import plan_graph
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import metric_distances, metric_rows, prepare_rows, squared_distances
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import memory_context, run_all
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.tiles import shapes as tiles
from tests.execution.runs import local_client

FloatArray = NDArray[np.float64]
Rows = Any
"""Array or CSR matrix."""
Lists = tuple[NDArray[np.integer[Any]], FloatArray, float]

SKEWED = (0.6, 0.2, 0.1, 0.05, 0.03, 0.02)


def normal(n: int, d: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


def mixture(n: int, d: int, shares: tuple[float, ...] = (0.125,) * 8, *, sort: bool = False) -> FloatArray:
    component = np.random.default_rng(1).choice(len(shares), size=n, p=shares)
    component = np.sort(component) if sort else component
    return (normal(len(shares), d) * 8 / np.sqrt(d))[component] + normal(n, d, 2)


def low_rank(n: int, m: int, rank: int) -> FloatArray:
    return normal(n, rank) @ normal(rank, m, 1) + 0.05 * normal(n, m, 2)


def measured_recall(X: Rows, graph: KNNGraph, n_asked: int = 700) -> float:
    """By exhaustive search, as the estimate has it: by distance."""
    n, k = graph.indices.shape
    asked = np.sort(np.random.default_rng(7).choice(n, min(n, n_asked), replace=False))
    base = prepare_rows(X, graph.metric)
    _, exact = exact_neighbors(base.part(asked), asked, base, 0, k)
    return float((graph.distances[asked] <= exact[:, -1:] * (1 + 1e-6)).mean())


def assert_sound(X: Rows, graph: KNNGraph) -> None:
    """Every row has all its neighbors: others, each once, nearest first, at the distance computed directly."""
    n, k = graph.indices.shape
    assert (graph.indices >= 0).all()
    assert (graph.indices < n).all()
    assert not (graph.indices == np.arange(n)[:, None]).any()
    assert (np.diff(np.sort(graph.indices, axis=1), axis=1) > 0).all()
    rows = metric_rows(X, graph.metric)
    squares = squared_distances(rows, np.repeat(np.arange(n), k), rows, graph.indices.ravel())
    expected = metric_distances(squares, rows).reshape(n, k)
    np.testing.assert_allclose(graph.distances, expected, rtol=1e-12, atol=1e-15 if graph.metric == "cosine" else 0)
    assert (np.diff(graph.distances, axis=1) >= -1e-11 * graph.distances[:, 1:]).all()


DATA: dict[str, Callable[[int], Rows]] = {
    "mixture": lambda n: mixture(n, 12),
    "sorted by class": lambda n: mixture(n, 12, sort=True),
    "one giant cluster, sorted": lambda n: mixture(n, 10, SKEWED, sort=True).astype(np.float32),
    "a giant and far small ones": lambda n: np.vstack(
        [normal(n, 6), *(normal(40, 6, 10 + i) * 0.1 + 30 * normal(1, 6, 100 + i) for i in range(n // 440))]
    ),
    "a giant and far tiny ones": lambda n: np.vstack(
        [normal(n, 6), *(normal(4, 6, 10 + i) * 0.1 + 300 * normal(1, 6, 100 + i) for i in range(30))]
    ),
    "each row fifty times": lambda n: np.repeat(normal(n // 50, 6), 50, axis=0)[
        np.random.default_rng(3).permutation(n // 50 * 50)
    ],
    "all identical": lambda n: np.full((n, 4), 0.1),
    "half identical": lambda n: np.vstack([np.full((n // 2, 4), 0.1), normal(n // 2, 4, 5)]),
    "integers": lambda n: np.random.default_rng(4).integers(-5, 6, size=(n, 5)).astype(np.int8),
    "rows of zeros": lambda n: np.where(np.arange(n)[:, None] % 10 == 0, 0.0, normal(n, 6)),
    "one column": lambda n: normal(n, 1),
    "1e30": lambda n: normal(n, 6) * 1e30,
    "1e-30 in float32": lambda n: (normal(n, 6) * 1e-30).astype(np.float32),
    "offset 1e8": lambda n: normal(n, 6) + 1e8,
    "few rows": lambda n: normal(n // 40, 5),
    "csr": lambda n: sp.random(n, 60, 0.08, format="csr", random_state=0),
}
N = 1900
METRICS: tuple[Metric, ...] = ("euclidean", "cosine")
TELLING = ("mixture", "half identical", "rows of zeros", "offset 1e8")
"""Where cosines are another matter than lengths."""


def assert_as_good_as_it_says(X: Rows, graph: KNNGraph) -> None:
    """Sound lists, a good recall, and an estimate of it that holds."""
    assert_sound(X, graph)
    recall = measured_recall(X, graph)
    assert recall >= 0.9
    assert graph.recall is not None
    assert abs(graph.recall - recall) < 0.025


@pytest.mark.usefixtures("small_groups")
class TestAnyRows:
    @pytest.mark.parametrize(
        ("name", "metric"), [*((name, "euclidean") for name in DATA), *((name, "cosine") for name in TELLING)]
    )
    def test_cells(self, name: str, metric: Metric) -> None:
        X = DATA[name](N)
        assert_as_good_as_it_says(X, knn_graph(X, 10, metric=metric, engine="cells", recall=0.95))

    @pytest.mark.long
    @pytest.mark.parametrize("metric", METRICS)
    @pytest.mark.parametrize("name", [name for name in DATA if name != "offset 1e8"])
    def test_descent(self, name: str, metric: Metric) -> None:
        """NN-descent in each group; under cosine it cannot tell rows apart that are far from the origin."""
        X = DATA[name](N)
        assert_as_good_as_it_says(X, knn_graph(X, 10, metric=metric, engine="descent"))

    @pytest.mark.long
    @pytest.mark.parametrize("metric", METRICS)
    @pytest.mark.parametrize("k", [1, 5])
    @pytest.mark.parametrize("name", DATA)
    def test_cells_in_all_ways(self, name: str, k: int, metric: Metric) -> None:
        X = DATA[name](N)
        assert_as_good_as_it_says(X, knn_graph(X, k, metric=metric, engine="cells"))

    @pytest.mark.parametrize(("k", "n"), [(1, N), (64, 5000)])
    def test_numbers_of_neighbors(self, k: int, n: int) -> None:
        X = mixture(n, 10)
        graph = knn_graph(X, k, engine="cells")
        assert graph.n_neighbors == k
        assert_sound(X, graph)
        assert measured_recall(X, graph) > 0.95

    @pytest.mark.parametrize("n", [2, 6, 65])
    def test_hardly_more_rows_than_neighbors(self, n: int) -> None:
        X = normal(n, 3)
        exact = knn_graph(X, n - 1, engine="exact")
        graph = knn_graph(X, n - 1, engine="cells")
        np.testing.assert_array_equal(graph.indices, exact.indices)
        np.testing.assert_allclose(graph.distances, exact.distances, rtol=1e-12)
        assert graph.recall == 1.0

    def test_more_recall_for_more_work(self) -> None:
        X = normal(4000, 12)
        found = {recall: measured_recall(X, knn_graph(X, 10, engine="cells", recall=recall)) for recall in (0.6, 0.99)}
        assert found[0.6] + 0.1 < found[0.99]
        assert found[0.99] > 0.97

    def test_a_recall_that_cannot_be_had_is_told(self) -> None:
        """Without any structure cells serve badly, and the sample says so before the search, the estimate after it."""
        X = normal(6000, 100)
        with pytest.warns(UserWarning, match=r"finds [5-8]\d% of the neighbors.*pca=50"):
            graph = knn_graph(X, 10, engine="cells", projection=None)
        assert graph.recall is not None
        assert graph.recall < 0.95
        assert abs(graph.recall - measured_recall(X, graph)) < 0.03

    @pytest.mark.parametrize("scaling", ["zscore", "unit", "log1p", "total+log1p+zscore"])
    def test_scaled_rows(self, scaling: Scaling) -> None:
        X = np.abs(mixture(N, 8)) * np.arange(1, 9)
        exact = knn_graph(X, 5, graph_scaling=scaling, engine="exact")
        graph = knn_graph(X, 5, graph_scaling=scaling, engine="cells")
        assert (graph.distances <= exact.distances[:, -1:] * (1 + 1e-9)).mean() > 0.96
        agree = graph.indices == exact.indices
        np.testing.assert_allclose(graph.distances[agree], exact.distances[agree], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", DATA)
def test_long_lists_of_any_rows(name: str, metric: Metric) -> None:
    """They are found in cells that are larger, of which few rows would be one only."""
    X = DATA[name](12000)
    assert_as_good_as_it_says(X, knn_graph(X, 64, metric=metric, engine="cells"))


class TestProjection:
    @pytest.mark.parametrize("metric", METRICS)
    def test_wide_rows_of_low_rank(self, metric: Metric) -> None:
        X = low_rank(900, 700, 10)
        graph = knn_graph(X, 10, metric=metric, engine="cells", projection=128)
        assert_as_good_as_it_says(X, graph)
        assert measured_recall(X, graph) >= 0.95

    def test_more_candidates_than_neighbors_are_measured(self) -> None:
        """Since fewer columns order them only roughly."""
        X = low_rank(2000, 200, 20)
        graph = knn_graph(X, 10, engine="cells", projection=18)
        assert_sound(X, graph)
        assert measured_recall(X, graph) > 0.9

    def test_sparse_rows_with_many_columns(self) -> None:
        """Cells and groups are cut in a projection; rows are compared as they are."""
        component = np.random.default_rng(1).integers(0, 8, size=1200)
        X = sp.random(1200, 900, 0.01, format="csr", random_state=0)
        X = sp.csr_matrix(X + sp.csr_matrix(sp.random(8, 900, 0.3, format="csr", random_state=1))[component])
        graph = knn_graph(X, 10, engine="cells")
        assert_sound(X, graph)
        assert graph.recall is not None
        assert abs(graph.recall - measured_recall(X, graph)) < 0.03


# --------------------------------------------------------------------------- other ways to the same lists
CELLS = GraphSpec(engine="cells")


def found_by(
    context: Context, k: int = 10, spec: GraphSpec = CELLS, client: Client | None = None, **changed: Any
) -> Lists:
    """Run the stages of an approximate search, some numbers of whose partitioning are changed."""
    shape = context.tiles.shape
    stages = []
    for stage in plan_graph(shape, spec, k):
        assert isinstance(stage.parameters, SearchParameters)
        plan = dataclasses.replace(stage.parameters.partitioning, **changed)
        parameters = dataclasses.replace(stage.parameters, partitioning=plan)
        units = {
            "assign": plan.assign_units(shape),
            "build": plan.n_groups,
            "merge": plan.merge_units(shape.n_samples),
        }.get(stage.kind_name, 1)
        stages.append(dataclasses.replace(stage, n_units=units, parameters=parameters))
    run_all(context, stages, Pool(client))
    return lists_of(context, spec.name)


def lists_of(context: Context, name: str = "euclidean") -> Lists:
    store = context.store
    recall: dict[str, float] = store.read_json(layout.RECALL_SUMMARY.format(name))
    indices, distances = (store.open(array.format(name))[...] for array in (layout.KNN_INDICES, layout.KNN_DISTANCES))
    return indices, distances, recall["value"]


def assert_same(found: Lists, expected: Lists) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    assert found[1].tobytes() == expected[1].tobytes()
    assert found[2] == expected[2]


@contextmanager
def stored(folder: Path, X: Rows, chunks: tuple[int, int] = (4096, 64)) -> Iterator[Context]:
    """X in tiles on disk: dense in a Zarr array that is used where it lies, sparse in bands."""
    folder.mkdir()
    if isinstance(X, np.ndarray):
        path = folder / "X.zarr"
        array = zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=chunks)
        array[...] = X
    else:
        path = folder / "X.npz"
        sp.save_npz(path, X)
    with stored_context(path) as (context, _, _):
        yield context


class TestSameBytes:
    """Four groups of rows, whatever holds X and whoever searches."""

    X = mixture(2100, 10, SKEWED, sort=True).astype(np.float32)

    @pytest.mark.usefixtures("small_merges")
    def test_tiles(self, tmp_path: Path) -> None:
        expected = found_by(memory_context(self.X, None), n_groups=4)
        for chunks in [(1024, 4), (2048, 10)]:
            with stored(tmp_path / str(chunks[0]), self.X, chunks) as context:
                assert context.tiles.shape.tile_rows == chunks[0]
                assert_same(found_by(context, n_groups=4), expected)

    def test_lists_merged_few_at_a_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        expected = found_by(memory_context(self.X, None), n_groups=4)
        monkeypatch.setattr(partition, "MERGED_ENTRIES", 10 * 170)
        assert partition.rows_at_a_merge(10) == 170
        assert_same(found_by(memory_context(self.X, None), n_groups=4), expected)

    @pytest.mark.usefixtures("small_merges")
    def test_tiles_of_projected_rows(self, tmp_path: Path) -> None:
        X = low_rank(1500, 150, 8).astype(np.float32)
        spec = GraphSpec(engine="cells", projection=24)
        expected = found_by(memory_context(X, None), spec=spec, n_groups=3)
        with stored(tmp_path / "data", X, (1024, 150)) as context:
            assert_same(found_by(context, spec=spec, n_groups=3), expected)

    @pytest.mark.parametrize(("metric", "scaling"), [("euclidean", "zscore"), ("cosine", "unit")])
    def test_tiles_of_scaled_rows(self, tmp_path: Path, metric: Metric, scaling: Scaling) -> None:
        X = np.abs(self.X)
        spec = GraphSpec(metric, scaling, "cells")
        expected = found_by(memory_context(X, None), spec=spec, n_groups=2)
        with stored(tmp_path / "data", X, (1024, 10)) as context:
            assert_same(found_by(context, spec=spec, n_groups=2), expected)

    @pytest.mark.usefixtures("small_merges")
    def test_sparse_bands(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tiles, "MIN_TILE_BYTES", 2**17)
        X = sp.random(1500, 40, 0.4, format="csr", random_state=0, dtype=np.float32)
        expected = found_by(memory_context(X, None), n_groups=2)
        with stored(tmp_path / "data", X) as context:
            assert context.tiles.shape.n_bands > 1
            assert_same(found_by(context, n_groups=2), expected)

    @pytest.mark.usefixtures("small_merges")
    def test_units(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """How rows are bundled, spilled and merged, and how large a group may be that is large enough."""
        changed: dict[str, Any] = {"bands_per_unit": 2, "blocks_per_unit": 2, "max_members": 10**6}
        monkeypatch.setattr(partition, "PIECE_BYTES", 33 * self.X[:1].nbytes)
        expected = found_by(memory_context(self.X, None), n_groups=3)
        with stored(tmp_path / "data", self.X, (1024, 10)) as context:
            assert_same(found_by(context, n_groups=3, **changed), expected)

    @pytest.mark.cluster
    def test_the_first_search_of_a_process(self) -> None:
        """SciPy's linear algebra is loaded on the way, with as many threads as there are cores."""
        code = (
            "import numpy as np\n"
            "from daskfs.graph.spec import GraphSpec\n"
            "from daskfs.graph.plan import plan_graph\n"
            "from daskfs.plan.inline import memory_context, run_all\n"
            "parts = [np.random.default_rng(i).normal(size=size) for i, size in enumerate([(3000, 8), (8, 300)])]\n"
            "X = (parts[0] @ parts[1] + 0.1 * np.random.default_rng(2).normal(size=(3000, 300))).astype(np.float32)\n"
            "def found():\n"
            "    context = memory_context(X, None)\n"
            "    spec = GraphSpec(engine='cells', projection=24)\n"
            "    run_all(context, plan_graph(context.tiles.shape, spec, 5), None)\n"
            "    arrays = [context.store.open(f'knn/euclidean/{name}') for name in ('cells/basis', 'indices')]\n"
            "    return [array[...].tobytes() for array in arrays]\n"
            "assert found() == found()\n"
        )
        environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)

    @pytest.mark.long
    @pytest.mark.cluster
    def test_workers(self, tmp_path: Path, two_workers: str) -> None:
        X = mixture(9000, 10, SKEWED, sort=True).astype(np.float32)
        expected = found_by(memory_context(X, None), n_groups=4)
        with stored(tmp_path / "rows", X, (1024, 10)) as context, Client(two_workers) as client:
            assert_same(found_by(context, client=client, n_groups=4), expected)

    def test_again_and_with_another_seed(self) -> None:
        first, again = (knn_graph(self.X, 5, engine="cells") for _ in range(2))
        np.testing.assert_array_equal(first.indices, again.indices)
        assert first.recall == again.recall
        other = knn_graph(self.X, 5, engine="cells", random_state=1)
        assert (other.indices != first.indices).any()

    @pytest.mark.long
    @pytest.mark.cluster
    @pytest.mark.parametrize(("engine", "n", "n_workers"), [("cells", 20_000, 2), ("descent", 10_000, 1)])
    def test_more_rows_and_workers(self, tmp_path: Path, engine: Engine, n: int, n_workers: int) -> None:
        """This process and each worker compile NN-descent, for a minute or more."""
        X = mixture(n, 24, SKEWED, sort=True).astype(np.float32)
        spec = GraphSpec(engine=engine)
        expected = found_by(memory_context(X, None), spec=spec, n_groups=8)
        with stored(tmp_path / "data", X, (2048, 24)) as context, local_client(n_workers, "2GiB") as client:
            assert_same(found_by(context, spec=spec, client=client, n_groups=8), expected)
            records = [context.store.records.get("build-euclidean", unit) or {} for unit in range(8)]
            assert len({record["process"] for record in records}) == n_workers


@pytest.mark.usefixtures("small_groups")
class TestParts:
    """Groups that are too large to be held whole."""

    X = mixture(3000, 10, SKEWED, sort=True)

    def found(self, X: Rows, **changed: Any) -> Lists:
        return found_by(memory_context(X, None), n_groups=2, **changed)

    @pytest.mark.parametrize("sparse", [False, True])
    def test_parts_of_whole_cells_find_the_same(self, sparse: bool) -> None:
        """But for the rounding of products in float32, of which parts have other ones."""
        X = sp.csr_matrix(self.X) if sparse else self.X
        whole, parts = self.found(X), self.found(X, max_members=1200)
        assert abs(whole[2] - parts[2]) < 0.003
        assert (whole[0] == parts[0]).mean() > 0.999
        agree = whole[0] == parts[0]
        np.testing.assert_array_equal(parts[1][agree], whole[1][agree])

    def test_there_are_several(self) -> None:
        context = memory_context(self.X, None)
        found_by(context, n_groups=2, max_members=900)
        facts = [context.store.records.get("build-euclidean", unit) for unit in range(2)]
        n_parts = [record["facts"]["n_parts"] for record in facts if record is not None]
        assert len(n_parts) == 2
        assert min(n_parts) >= 2
        assert max(n_parts) >= 5

    @pytest.mark.parametrize("max_members", [700, 160])
    def test_parts_of_cells_lose_neighbors_but_no_row(self, max_members: int) -> None:
        """Cells that are too large themselves are cut, too; every row still has its list, and the recall is told."""
        indices, distances, recall = self.found(self.X, max_members=max_members)
        graph = KNNGraph(indices.astype(np.int64), distances, "euclidean")
        assert_sound(self.X, graph)
        assert recall < 0.9
        assert abs(recall - measured_recall(self.X, graph)) < 0.03

    def test_a_crowd_of_identical_rows(self) -> None:
        X = np.vstack([np.zeros((2400, 5)), normal(300, 5)])
        indices, distances, recall = self.found(X, max_members=900)
        assert_sound(X, KNNGraph(indices.astype(np.int64), distances, "euclidean"))
        np.testing.assert_array_equal(distances[:2400], 0.0)
        assert recall > 0.95


def test_nothing_is_left_of_what_was_spilled(tmp_path: Path) -> None:
    X = mixture(1500, 6)
    context = memory_context(X, None)
    found_by(context, n_groups=2)
    assert not [name for name in context.store._memory if name.startswith("spill/")]
    with stored(tmp_path / "data", X, (1024, 6)) as on_disk:
        found_by(on_disk, n_groups=2)
        assert not [path for path in on_disk.store.path("spill").rglob("*") if path.is_file()]
