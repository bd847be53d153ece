"""Lists to edges to degrees, against the dense reference."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.datasets import load_iris

from daskfs.graph.edges import weighted_blocks
from daskfs.graph.spec import Weighting
from daskfs.kernels.weights import WeightKind
from tests.graph.lists import NAME, edges_of, listed_context, marked, weighted
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


def pairs_of(indices: IntArray) -> set[tuple[int, int]]:
    return {(min(i, j), max(i, j)) for i, row in enumerate(indices.tolist()) for j in row if j >= 0}


class TestOnceMarking:
    @pytest.mark.parametrize("k", [1, 4, 9])
    @pytest.mark.parametrize("name", DATA)
    def test_each_undirected_edge_once_with_its_length(self, name: str, k: int) -> None:
        indices, distances = knn_lists(DATA[name], k)
        context = listed_context(indices, distances)
        marked(context, k)
        edges = edges_of(context, k)
        assert sorted((i, j) for i, j, _ in edges) == sorted(pairs_of(indices))
        for i, j, length in edges:
            assert length == pytest.approx(np.linalg.norm(DATA[name][i] - DATA[name][j]), rel=1e-12, abs=1e-15)

    @settings(max_examples=40, deadline=None)
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
        summary = marked(context, k)
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
        summary = marked(context, 3)
        edges = edges_of(context, 3)
        assert len(edges) == len({(i, j) for i, j, _ in edges}) == n + n // 2 == summary["n_edges"]
        assert {(i, j) for i, j, _ in edges} == pairs_of(indices)

    def test_shorter_lists_are_the_head_of_longer_ones(self) -> None:
        indices, distances = knn_lists(DATA["random"], 9)
        context = listed_context(indices, distances)
        marked(context, 4)
        assert {(i, j) for i, j, _ in edges_of(context, 4)} == pairs_of(indices[:, :4])


class TestSummary:
    @pytest.mark.parametrize("name", DATA)
    def test_components_degrees_and_lengths(self, name: str) -> None:
        indices, distances = knn_lists(DATA[name], 3)
        adjacency = union_adjacency(indices, distances, binary())
        context = listed_context(indices, distances)
        summary = marked(context, 3)
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
        summary = marked(listed_context(indices, np.where(indices < 0, np.inf, 2.0)), 1)
        assert (summary["n_isolated"], summary["n_components"], summary["largest_component"]) == (2, 3, 2)

    def test_two_far_clusters_are_two_components(self) -> None:
        summary = marked(listed_context(*knn_lists(DATA["two components"], 5)), 5)
        assert (summary["n_components"], summary["largest_component"]) == (2, 30)


class TestWeights:
    @pytest.mark.parametrize("self_loops", [False, True])
    @pytest.mark.parametrize("t", ["mean", "median", 0.5, 7.0])
    @pytest.mark.parametrize("name", ["random", "iris", "two components"])
    def test_heat_degrees(self, name: str, t: float | Literal["mean", "median"], self_loops: bool) -> None:
        lists = knn_lists(DATA[name], 5)
        width = heat_t(*lists, t) if isinstance(t, str) else t
        expected = union_adjacency(*lists, heat(width), self_loops).sum(axis=1)
        context = listed_context(*lists)
        marked(context, 5)
        facts, degrees = weighted(context, Weighting(NAME, 5, "heat", t, self_loops))
        assert facts["t"] == pytest.approx(width, rel=1e-13)
        np.testing.assert_allclose(degrees, expected, rtol=1e-12)
        assert facts["n_edges"] == len(pairs_of(lists[0]))
        assert (facts["n_underflow"], facts["n_isolated"]) == (0, 0)

    @pytest.mark.parametrize(("kind", "weight"), [("binary", binary()), ("cosine", cosine())])
    def test_other_weights(self, kind: WeightKind, weight: Weight) -> None:
        indices, distances = knn_lists(np.abs(DATA["random"]), 5, "cosine")
        context = listed_context(indices, distances, "cosine")
        marked(context, 5, "cosine")
        _, degrees = weighted(context, Weighting("cosine", 5, kind, "mean", False))
        np.testing.assert_allclose(degrees, union_adjacency(indices, distances, weight).sum(axis=1), rtol=1e-12)

    def test_mean_takes_an_edge_found_from_both_ends_once(self) -> None:
        """Neighbors 1, 0, 1, 2 on a line at 0, 1, 3, 7: edges of length 1, 2, 4, the first of them listed twice."""
        lists = knn_lists([[0.0], [1.0], [3.0], [7.0]], 1)
        context = listed_context(*lists)
        marked(context, 1)
        assert weighted(context, Weighting(NAME, 1, "heat", "mean"))[0]["t"] == pytest.approx(7.0, rel=1e-15)
        assert weighted(context, Weighting(NAME, 1, "heat", "median"))[0]["t"] == 4.0

    def test_all_lengths_zero_weigh_one(self) -> None:
        lists = knn_lists(np.ones((10, 2)), 3)
        context = listed_context(*lists)
        marked(context, 3)
        _, degrees = weighted(context, Weighting(NAME, 3, "heat", "mean"))
        np.testing.assert_array_equal(degrees, union_adjacency(*lists, binary()).sum(axis=1))

    def test_counts_of_what_underflows(self) -> None:
        X = np.array([[0.0], [0.1], [0.2], [50.0], [130.0]])
        lists = knn_lists(X, 1)
        context = listed_context(*lists)
        marked(context, 1)
        facts, degrees = weighted(context, Weighting(NAME, 1, "heat", 1.0))
        assert (facts["n_edges"], facts["n_underflow"], facts["n_isolated"]) == (4, 2, 2)
        np.testing.assert_array_equal(degrees == 0, [False, False, False, True, True])

    @pytest.mark.parametrize("self_loops", [False, True])
    def test_every_weight_underflown_names_t(self, self_loops: bool) -> None:
        context = listed_context(*knn_lists(DATA["random"], 3))
        marked(context, 3)
        with pytest.raises(ValueError, match=r"weights exp.* are 0 with t = 1e-09.*Raise t"):
            weighted(context, Weighting(NAME, 3, "heat", 1e-9, self_loops))

    def test_several_weightings_stream_together(self) -> None:
        lists = knn_lists(DATA["iris"], 4)
        context = listed_context(*lists)
        marked(context, 4)
        weightings = [Weighting(NAME, 4, "heat", "mean"), Weighting(NAME, 4, "binary"), Weighting(NAME, 4, "heat", 0.5)]
        for weighting in weightings:
            weighted(context, weighting)
        width = heat_t(*lists, "mean")
        references = [union_adjacency(*lists, weight) for weight in (heat(width), binary(), heat(0.5))]
        n_edges = 0
        for source, target, weights in weighted_blocks(context.store, NAME, 4, weightings):
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
