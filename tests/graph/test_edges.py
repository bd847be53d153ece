"""Lists to edges to degrees, against the dense reference."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_iris

from daskfs.graph import partition, plan
from daskfs.graph.components import Components
from daskfs.graph.edges import create_edges, edge_blocks, send_entries, store_edges, weighted_blocks
from daskfs.graph.partition import block_rows
from daskfs.graph.plan import plan_edges, plan_weights
from daskfs.graph.spec import Weighting
from daskfs.kernels.neighbors.weights import WeightKind
from daskfs.kernels.statistics import streaming_median
from daskfs.kernels.statistics.streaming_median import streamed_median
from daskfs.plan.inline import memory_context
from daskfs.stages.units import create_arrays, run_unit
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from tests.cases import each
from tests.graph.lists import NAME, connected, cut, edges_of, listed_context, weighted
from tests.reference.graph import Weight, binary, cosine, heat, heat_t, knn_lists, union_adjacency

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DATA = {
    "random": np.random.default_rng(0).normal(size=(70, 3)),
    "iris": load_iris().data,
    "duplicates": np.repeat(np.random.default_rng(1).normal(size=(12, 2)), 4, axis=0),
    "two components": np.random.default_rng(2).normal(size=(60, 2)) + 100.0 * (np.arange(60) % 2)[:, None],
    "one hub": np.vstack([np.zeros((1, 20)), np.eye(20), -np.eye(20)]),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few rows, so that small graphs have many."""
    monkeypatch.setattr(partition, "MIN_BLOCK_ROWS", 4)


def random_lists(seed: int, n: int, k: int, reach: int, missing: float) -> tuple[IntArray, FloatArray]:
    """Lists of rows at most `reach` away, with gaps, repeated entries and some rows that list themselves."""
    rng = np.random.default_rng(seed)
    indices = (np.arange(n)[:, None] + rng.integers(-reach, reach + 1, (n, k))) % n
    indices[rng.random((n, k)) < missing] = -1
    indices[0, 0] = 1
    return indices, np.where(indices < 0, np.inf, rng.random((n, k)))


def once_of(indices: IntArray) -> NDArray[np.uint8]:
    """The marks, entry by entry as they are defined."""
    lists = indices.tolist()
    marks = [[j >= 0 and not (j < i and i in lists[j]) for j in row] for i, row in enumerate(lists)]
    return np.array(marks, dtype=np.uint8)


def assert_stored(context: Context, indices: IntArray, distances: FloatArray) -> None:
    """Check that the marked entries are the edges, in order."""
    kept = once_of(indices).astype(bool)
    source, target, length = map(np.concatenate, zip(*edge_blocks(context, NAME, indices.shape[1]), strict=True))
    np.testing.assert_array_equal(source, np.nonzero(kept)[0])
    np.testing.assert_array_equal(target, indices[kept])
    np.testing.assert_array_equal(length, distances[kept])


def pairs_of(indices: IntArray) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i, row in enumerate(indices.tolist()) for j in row if j >= 0}


class TestEdges:
    @each("k", [1, 4, 9])
    @each("name", DATA)
    def test_each_undirected_edge_once_with_its_length(self, name: str, k: int) -> None:
        indices, distances = knn_lists(DATA[name], k)
        context = listed_context(indices, distances)
        connected(context, k)
        edges = edges_of(context, k)
        assert sorted((i, j) for i, j, _ in edges) == sorted(pairs_of(indices))
        lower, higher, length = map(np.array, zip(*edges, strict=True))
        expected = np.linalg.norm(DATA[name][lower] - DATA[name][higher], axis=1)
        np.testing.assert_allclose(length, expected, rtol=1e-12, atol=1e-15)

    @settings(max_examples=30)
    @given(st.data())
    def test_any_lists(self, data: st.DataObject) -> None:
        """Lists as an approximate search returns them: not symmetric, with gaps at their ends."""
        n, k = data.draw(st.integers(2, 9)), data.draw(st.integers(1, 4))
        indices = np.full((n, k), -1, dtype=np.int64)
        distances = np.full((n, k), np.inf)
        for i in range(n):
            others = [j for j in range(n) if j != i]
            row = data.draw(st.lists(st.sampled_from(others), max_size=min(k, n - 1), unique=True))
            indices[i, : len(row)] = row
            distances[i, : len(row)] = [abs(i - j) for j in row]
        if (indices < 0).all():
            indices[0, 0], distances[0, 0] = 1, 1.0
        context = listed_context(indices, distances)
        summary = connected(context, k)
        edges = edges_of(context, k)
        assert sorted((i, j) for i, j, _ in edges) == sorted(pairs_of(indices))
        assert all(length == j - i for i, j, length in edges)
        assert summary["n_edges"] == len(edges)

    def test_more_rows_than_one_block(self) -> None:
        """Edges that cross the 4096 rows of a block are met once, too."""
        n = 5000
        rows = np.arange(n)
        indices = np.stack([(rows + 1) % n, (rows - 1) % n, (rows + 2500) % n], axis=1)
        context = listed_context(indices, np.ones((n, 3)))
        summary = connected(context, 3)
        edges = edges_of(context, 3)
        assert len(edges) == len({(i, j) for i, j, _ in edges}) == n + n // 2 == summary["n_edges"]
        assert {(i, j) for i, j, _ in edges} == pairs_of(indices)

    def test_shorter_lists_are_the_head_of_longer_ones(self) -> None:
        indices, distances = knn_lists(DATA["random"], 9)
        context = listed_context(indices, distances)
        connected(context, 4)
        assert {(i, j) for i, j, _ in edges_of(context, 4)} == pairs_of(indices[:, :4])

    @pytest.mark.usefixtures("small_blocks")
    @each(("n", "k"), [(5, 1), (64, 3), (250, 7)])
    @each(("reach", "missing"), [(2, 0.0), (20, 0.2), (250, 0.9)])
    def test_any_number_of_units_stores_the_same(self, n: int, k: int, reach: int, missing: float) -> None:
        """And degrees are the same, to the bit."""
        indices, distances = random_lists(n * k, n, k, reach, missing)
        found = []
        for blocks_per_unit, dtype in [(1, np.int32), (3, np.int64), (100, np.int64)]:
            context = listed_context(indices.astype(dtype), distances)
            connected(context, k, blocks_per_unit=blocks_per_unit)
            assert_stored(context, indices, distances)
            found.append(weighted(context, Weighting(NAME, k, "heat", 1.0), blocks_per_unit)[1].tobytes())
        assert len(set(found)) == 1

    @pytest.mark.usefixtures("small_blocks")
    def test_work_in_parts_stores_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also if a block is stored in several pieces."""
        monkeypatch.setattr("daskfs.graph.edges.COMPARED_ENTRIES", 20)
        monkeypatch.setattr("daskfs.store.shards.CUT_BYTES", 100)
        indices, distances = random_lists(4, 200, 6, 9, 0.1)
        context = listed_context(indices, distances)
        connected(context, 6, blocks_per_unit=2)
        assert_stored(context, indices, distances)

    @pytest.mark.usefixtures("small_blocks")
    def test_units_write_files_of_their_own(self, tmp_path: Path) -> None:
        indices, distances = random_lists(0, 100, 3, 10, 0.1)
        context = Context(Store(tmp_path), memory_context(np.zeros((100, 1)), None).tiles)
        context.store.put_array(layout.KNN_INDICES.format(NAME), indices)
        context.store.put_array(layout.KNN_DISTANCES.format(NAME), distances)
        parameters = cut(context, NAME, 3, blocks=2)
        stretches = parameters.stretches
        for unit in range(stretches.n_sending):
            send_entries(context, parameters, unit)
        create_edges(context, parameters)
        written: list[str] = []
        for unit in reversed(range(len(stretches))):
            with context.store.outputs.collect() as outputs:
                store_edges(context, parameters, unit)
            written += outputs.chunks
        assert len(written) == len(set(written)) == 2 * len(stretches)
        assert_stored(context, indices, distances)


class TestSummary:
    @each("name", DATA)
    def test_components_degrees_and_lengths(self, name: str) -> None:
        indices, distances = knn_lists(DATA[name], 3)
        adjacency = union_adjacency(indices, distances, binary())
        context = listed_context(indices, distances)
        summary = connected(context, 3)
        n_components, component = connected_components(adjacency, directed=False)
        degrees = adjacency.sum(axis=1)
        assert summary["n_components"] == n_components
        assert summary["largest_component"] == np.bincount(component).max()
        assert summary["max_degree"] == degrees.max()
        assert summary["mean_degree"] == pytest.approx(degrees.mean())
        assert summary["n_isolated"] == 0
        assert sum(summary["length_histogram"]["counts"]) == summary["n_edges"] == degrees.sum() / 2
        assert sum(summary["degree_histogram"]["counts"]) == len(indices)

    def test_isolated_rows_are_components_of_one(self) -> None:
        indices = np.array([[1], [0], [-1], [-1]])
        summary = connected(listed_context(indices, np.where(indices < 0, np.inf, 2.0)), 1)
        assert (summary["n_isolated"], summary["n_components"], summary["largest_component"]) == (2, 3, 2)

    def test_two_far_clusters_are_two_components(self) -> None:
        summary = connected(listed_context(*knn_lists(DATA["two components"], 5)), 5)
        assert (summary["n_components"], summary["largest_component"]) == (2, 30)

    @pytest.mark.usefixtures("small_blocks")
    @each("reach", [1, 8, 300])
    @each("missing", [0.0, 0.7, 0.97])
    def test_blocks_do_not_show(self, reach: int, missing: float) -> None:
        """The same summary as of the whole graph at once."""
        indices, distances = random_lists(reach, 300, 3, reach, missing)
        summary = connected(listed_context(indices, distances), 3, blocks_per_unit=3)
        kept = once_of(indices).astype(bool)
        source, target = np.nonzero(kept)[0], indices[kept]
        degree = np.bincount(source, minlength=300) + np.bincount(target, minlength=300)
        graph = coo_array((np.ones(source.size), (source, target)), shape=(300, 300))
        n_components, component = connected_components(graph, directed=False)
        found = {key: value for key, value in summary.items() if not key.endswith("histogram")}
        assert found == {
            "n_nodes": 300,
            "n_edges": source.size,
            "n_components": n_components,
            "largest_component": np.bincount(component).max(),
            "n_isolated": (degree == 0).sum(),
            "max_degree": degree.max(),
            "mean_degree": degree.mean(),
        }
        for key, values in (("length_histogram", distances[kept]), ("degree_histogram", degree.astype(float))):
            counts, edges = np.histogram(values, bins=40)
            assert summary[key] == {"edges": edges.tolist(), "counts": counts.tolist()}

    def test_histograms_of_nothing_and_of_equal_values(self) -> None:
        distances = np.full((3, 1), 2.0)
        summary = connected(listed_context(np.array([[1], [2], [0]]), distances), 1)
        assert summary["length_histogram"] == {"edges": [2.0, 2.0], "counts": [3]}
        summary = connected(listed_context(np.full((3, 1), -1), np.full((3, 1), np.inf)), 1)
        assert summary["length_histogram"] == {"edges": [0.0, 1.0], "counts": [0]}
        assert (summary["n_components"], summary["n_isolated"]) == (3, 3)


def chain(n: int, cuts: int) -> tuple[IntArray, IntArray]:
    """A path that is whole only with the last edges: first every run of it, then what joins the runs."""
    source = np.arange(n - 1)
    joins = np.arange(n - 1) % cuts == cuts - 1
    order = np.concatenate([source[~joins], source[joins][::-1]])
    return order, order + 1


class TestComponents:
    @staticmethod
    def assert_components(n: int, source: IntArray, target: IntArray, n_blocks: int) -> None:
        graph = coo_array((np.ones(source.size), (source, target)), shape=(n, n))
        expected = np.bincount(connected_components(graph, directed=False)[1])
        for holds in (True, False):
            components = Components(n, holds=holds)
            for edges in np.array_split(np.arange(source.size), n_blocks):
                components.add(source[edges], target[edges])
            by_degree, n_components, largest = components.found()
            assert (n_components, largest) == (expected.size, expected.max())
            degrees = np.bincount(np.concatenate([source, target]), minlength=n)
            np.testing.assert_array_equal(by_degree, np.bincount(degrees))

    def test_random_graphs(self) -> None:
        """From isolated nodes only, over many components, to one."""
        for n_edges, n_blocks in product([0, 30, 150, 600], [1, 7, 60]):
            source, target = np.random.default_rng(n_edges + n_blocks).integers(0, 200, (2, n_edges))
            self.assert_components(200, source, target, n_blocks)

    @each("n_blocks", [1, 5, 299])
    @each("cuts", [1, 2, 50])
    def test_chains_that_join_at_the_end(self, cuts: int, n_blocks: int) -> None:
        source, target = chain(300, cuts)
        self.assert_components(300, source, target, n_blocks)
        self.assert_components(300, target, source, n_blocks)
        self.assert_components(300, source[::-1], target[::-1], n_blocks)

    def test_many_parallel_edges(self) -> None:
        """As many as would wrap to 0 if they were counted in a byte."""
        self.assert_components(4, np.repeat([0, 2], 512), np.repeat([1, 3], 512), 1)


MEDIANS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "random": lambda rng, n: rng.random(n),
    "ties": lambda rng, n: rng.integers(0, 3, n) / 7.0,
    "zeros": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.random(n)),
    "far apart": lambda rng, n: np.where(np.arange(n) % 2 == 0, 1e-300, 1e300) * rng.choice([1.0, 1.5], n),
    "last bits": lambda rng, n: 1.0 + rng.integers(0, 40, n) * 2.0**-52,
    "denormal": lambda rng, n: rng.integers(0, 9, n) * 5e-324,
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.5, 1.0, np.inf),
}


class CountedPasses:
    """Starts passes over blocks of values and counts them."""

    def __init__(self, blocks: list[FloatArray]) -> None:
        self.blocks, self.count = blocks, 0

    def __call__(self) -> Iterator[FloatArray]:
        self.count += 1
        return iter(self.blocks)


class TestMedian:
    @pytest.mark.parametrize(("held", "sizes"), [(0, (51, 100)), (4, (3, 4, 51, 100)), (2**22, (1, 2, 51, 100))])
    @pytest.mark.parametrize("kind", MEDIANS)
    def test_to_the_bit(self, kind: str, held: int, sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streaming_median, "HELD_VALUES", held)
        for n in sizes:
            rng = np.random.default_rng(n)
            values, cuts = MEDIANS[kind](rng, n), np.sort(rng.integers(0, n + 1, 3))
            passes = CountedPasses(np.split(values, cuts))
            assert streamed_median(passes) == np.median(values), n
            assert passes.count <= streaming_median.MEDIAN_PASSES

    def test_of_nothing(self) -> None:
        assert np.isnan(streamed_median(lambda: iter([np.empty(0)])))

    @pytest.mark.usefixtures("small_blocks")
    @each("n", [40, 41, 150])
    def test_width_of_a_graph(self, n: int) -> None:
        indices, distances = random_lists(n, n, 4, 5, 0.2)
        context = listed_context(indices, distances)
        connected(context, 4)
        kept = once_of(indices).astype(bool)
        facts, _ = weighted(context, Weighting(NAME, 4, "heat", "median"))
        assert facts["t"] == np.median(distances[kept] ** 2)


class TestWeights:
    @each("self_loops", [False, True])
    @each("t", ["mean", "median", 0.5, 7.0])
    @each("name", ["random", "iris", "two components"])
    def test_heat_degrees(self, name: str, t: float | Literal["mean", "median"], self_loops: bool) -> None:
        lists = knn_lists(DATA[name], 5)
        width = heat_t(*lists, t) if isinstance(t, str) else t
        expected = union_adjacency(*lists, heat(width), self_loops).sum(axis=1)
        context = listed_context(*lists)
        connected(context, 5)
        facts, degrees = weighted(context, Weighting(NAME, 5, "heat", t, self_loops))
        assert facts["t"] == pytest.approx(width, rel=1e-13)
        np.testing.assert_allclose(degrees, expected, rtol=1e-12)
        assert facts["n_edges"] == len(pairs_of(lists[0]))
        assert (facts["n_underflow"], facts["n_isolated"]) == (0, 0)

    @each(("kind", "weight"), [("binary", binary()), ("cosine", cosine())])
    def test_other_weights(self, kind: WeightKind, weight: Weight) -> None:
        indices, distances = knn_lists(np.abs(DATA["random"]), 5, "cosine")
        context = listed_context(indices, distances, "cosine")
        connected(context, 5, "cosine")
        _, degrees = weighted(context, Weighting("cosine", 5, kind, "mean", False))
        np.testing.assert_allclose(degrees, union_adjacency(indices, distances, weight).sum(axis=1), rtol=1e-12)

    def test_mean_takes_an_edge_found_from_both_ends_once(self) -> None:
        """Neighbors 1, 0, 1, 2 on a line at 0, 1, 3, 7: edges of length 1, 2, 4, the first of them listed twice."""
        lists = knn_lists([[0.0], [1.0], [3.0], [7.0]], 1)
        context = listed_context(*lists)
        connected(context, 1)
        assert weighted(context, Weighting(NAME, 1, "heat", "mean"))[0]["t"] == pytest.approx(7.0, rel=1e-15)
        assert weighted(context, Weighting(NAME, 1, "heat", "median"))[0]["t"] == 4.0

    def test_all_lengths_zero_weigh_one(self) -> None:
        lists = knn_lists(np.ones((10, 2)), 3)
        context = listed_context(*lists)
        connected(context, 3)
        _, degrees = weighted(context, Weighting(NAME, 3, "heat", "mean"))
        np.testing.assert_array_equal(degrees, union_adjacency(*lists, binary()).sum(axis=1))

    def test_counts_of_what_underflows(self) -> None:
        X = np.array([[0.0], [0.1], [0.2], [50.0], [130.0]])
        lists = knn_lists(X, 1)
        context = listed_context(*lists)
        connected(context, 1)
        facts, degrees = weighted(context, Weighting(NAME, 1, "heat", 1.0))
        assert (facts["n_edges"], facts["n_underflow"], facts["n_isolated"]) == (4, 2, 2)
        np.testing.assert_array_equal(degrees == 0, [False, False, False, True, True])

    @each("self_loops", [False, True])
    def test_every_weight_underflown_names_t(self, self_loops: bool) -> None:
        context = listed_context(*knn_lists(DATA["random"], 3))
        connected(context, 3)
        with pytest.raises(ValueError, match=r"weights exp.* are 0 with t = 1e-09.*Raise t"):
            weighted(context, Weighting(NAME, 3, "heat", 1e-9, self_loops))

    def test_several_weightings_stream_together(self) -> None:
        lists = knn_lists(DATA["iris"], 4)
        context = listed_context(*lists)
        connected(context, 4)
        weightings = [Weighting(NAME, 4, "heat", "mean"), Weighting(NAME, 4, "binary"), Weighting(NAME, 4, "heat", 0.5)]
        for weighting in weightings:
            weighted(context, weighting)
        width = heat_t(*lists, "mean")
        references = [union_adjacency(*lists, weight) for weight in (heat(width), binary(), heat(0.5))]
        n_edges = 0
        for source, target, weights in weighted_blocks(context, NAME, 4, weightings):
            n_edges += source.size
            for row, expected in zip(weights, references, strict=True):
                np.testing.assert_allclose(row, expected[source, target], rtol=1e-13)
        assert n_edges == len(pairs_of(lists[0]))

    def test_keys_tell_weightings_apart(self) -> None:
        weightings = [
            Weighting(NAME, 4),
            Weighting(NAME, 5),
            Weighting("cosine", 4),
            Weighting(NAME, 4, "binary"),
            Weighting(NAME, 4, "heat", "median"),
            Weighting(NAME, 4, "heat", 1.0),
            Weighting(NAME, 4, self_loops=True),
        ]
        assert len({weighting.key for weighting in weightings}) == len(weightings)


class TestMemory:
    def test_stays_under_the_plan(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(plan, "EDGES_BYTES", 2**22)
        monkeypatch.setattr(plan, "SENT_ENTRIES", 2**19)
        n, k = 200_000, 10
        context = Context(Store(tmp_path), memory_context(np.zeros((n, 1)), None).tiles)
        rng = np.random.default_rng(0)
        chunks = (block_rows(n), k)
        indices = rng.integers(0, n, (n, k)).astype(np.int32)
        context.store.put_array(layout.KNN_INDICES.format(NAME), indices, chunks)
        context.store.put_array(layout.KNN_DISTANCES.format(NAME), rng.random((n, k)), chunks)
        del indices
        widths: list[Literal["mean", "median"]] = ["mean", "median"]
        stages = plan_edges(n, NAME, k, ())
        stages += plan_weights(n, [Weighting(NAME, k, "heat", t) for t in widths], ())
        assert [stage.n_units for stage in stages] == [5, 5, 1, 1, 5, 5]
        create_arrays(context, stages)
        for stage in stages:
            facts = []
            for unit in range(stage.n_units):
                tracemalloc.start()
                facts.append(run_unit(context, stage, unit))
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak <= stage.peak_bytes
            assert sum(fact["bytes_read"] for fact in facts) <= stage.bytes_read
