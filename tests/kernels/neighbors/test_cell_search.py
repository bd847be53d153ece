"""The search of one group against exhaustive search among the rows that meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from daskfs.kernels.neighbors import cell_search
from daskfs.kernels.neighbors.cell_search import cell_neighbors, fill_short_lists, nearest_distinct
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import metric_distances, metric_rows, squared_distances
from tests.cases import each
from tests.kernels.neighbors.test_exact import AWKWARD
from tests.reference.graph import lists_among, meeting_rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Lists = tuple[IntArray, FloatArray]

N = 260
RELATIVE = 1e-6
"""Candidates are picked in float32: of rows this much farther than the k-th, one may stand in its place."""


@dataclass(frozen=True)
class Cut:
    """Which rows are at home in a group, and the cells that each looks into."""

    is_home: NDArray[np.bool_]
    starts: IntArray
    cell: NDArray[np.int32]

    @property
    def meets(self) -> NDArray[np.bool_]:
        return meeting_rows(self.is_home, self.starts, self.cell)


def cut_by_hand(looks: list[list[int]], visitors: tuple[int, ...] = ()) -> Cut:
    """Cells by member; all are at home in their first one but the visitors."""
    starts = np.cumsum([0, *map(len, looks)])
    cell = np.array([number for cells in looks for number in cells], dtype=np.int32)
    return Cut(~np.isin(np.arange(len(looks)), visitors), starts, cell)


def cut_by_centers(X: FloatArray, n_cells: int = 9, seed: int = 0) -> Cut:
    """Rows look into the one to five cells whose centers, rows at random, are nearest; one row in six is a visitor."""
    generator = np.random.default_rng(seed)
    scaled = X / (np.abs(X).max() or 1.0)
    centers = scaled[generator.choice(len(X), n_cells, replace=False)]
    order = np.argsort(((scaled[:, None] - centers[None]) ** 2).sum(axis=2), axis=1, kind="stable")
    counts = generator.integers(1, 6, size=len(X)).clip(max=n_cells)
    visitors = generator.choice(len(X), len(X) // 6, replace=False)
    looks = [row[:count].tolist() for row, count in zip(order, counts, strict=True)]
    return cut_by_hand(looks, tuple(visitors.tolist()))


def search(X: NDArray[np.generic] | sp.csr_matrix, cut: Cut, k: int, metric: Metric = "euclidean") -> Lists:
    return cell_neighbors(X, metric, cut.is_home, cut.starts, cut.cell, k)


def assert_sound(X: FloatArray, found: Lists, meets: NDArray[np.bool_], metric: Metric = "euclidean") -> None:
    """Rows that meet, each once, nearest first, at the distance that a direct computation gives."""
    indices, distances = found
    for number, whole in enumerate(indices):
        listed = whole[whole >= 0]
        assert meets[number, listed].all(), f"row {number} does not meet all of {listed}"
        assert np.unique(listed).size == listed.size, f"row {number} lists one twice: {listed}"
    row, place = np.nonzero(indices >= 0)
    rows = metric_rows(X, metric)
    expected = metric_distances(squared_distances(rows, row, rows, indices[row, place]), rows)
    np.testing.assert_allclose(distances[row, place], expected, rtol=1e-12, atol=1e-15 if metric == "cosine" else 0)
    assert np.isinf(distances[indices < 0]).all()
    with np.errstate(invalid="ignore"):  # inf - inf where nothing is listed
        assert not (np.diff(distances, axis=1) < -1e-11 * distances[:, 1:]).any()


def assert_as_near(found: Lists, expected: Lists, metric: Metric = "euclidean", rtol: float = RELATIVE) -> None:
    """As many neighbors as there are, none farther than the reference's by more than float32 can hide."""
    np.testing.assert_array_equal(np.isinf(found[1]), np.isinf(expected[1]))
    listed = np.isfinite(expected[1])
    atol = 1e-15 if metric == "cosine" else 0
    np.testing.assert_allclose(found[1][listed], expected[1][listed], rtol=rtol, atol=atol)


def assert_exact(found: Lists, expected: Lists) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-11)


def normal(n: int = N, d: int = 6, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


class TestShortLists:
    @each("sparse", [False, True])
    @each("metric", ["euclidean", "cosine"])
    @each("k", [4, 300])
    def test_only_they_are_searched_again(self, k: int, metric: Metric, sparse: bool) -> None:
        """Of 260 rows six are alone in their cells, and one of these is a visitor."""
        X = normal()
        alone = [3, 50, 51, 130, 200, 259]
        cut = cut_by_hand([[1 + alone.index(row)] if row in alone else [0] for row in range(N)], (50,))
        matrix = sp.csr_matrix(X) if sparse else X
        found = search(matrix, cut, k, metric)
        before = found[0].copy()
        fill_short_lists(matrix, metric, cut.is_home, *found)
        everyone = lists_among(X, k, ~np.eye(N, dtype=bool), metric)
        short = (before[:, min(k, N - 1) - 1] < 0) & cut.is_home
        assert set(alone) - {50} <= set(np.flatnonzero(short).tolist())
        assert_exact((found[0][short], found[1][short]), (everyone[0][short], everyone[1][short]))
        np.testing.assert_array_equal(found[0][~short], before[~short])


class TestOrdinaryRows:
    @each("sparse", [False, True])
    @each("metric", ["euclidean", "cosine"])
    @each("k", [1, 10, 64])
    def test_reference(self, k: int, metric: Metric, sparse: bool) -> None:
        X = normal()
        cut = cut_by_centers(X)
        assert_exact(search(sp.csr_matrix(X) if sparse else X, cut, k, metric), lists_among(X, k, cut.meets, metric))

    @each("seed", range(5))
    def test_any_cut(self, seed: int) -> None:
        """From one cell for all to cells of a few rows."""
        X = normal(seed=seed)
        cut = cut_by_centers(X, n_cells=[1, 2, 5, 30, 120][seed], seed=seed)
        assert_exact(search(X, cut, 7), lists_among(X, 7, cut.meets))

    @each("dtype", [np.float32, np.float16, np.int8, np.uint8, np.int64])
    @each("metric", ["euclidean", "cosine"])
    def test_types(self, metric: Metric, dtype: type[np.generic]) -> None:
        """Eight columns of values up to 127: hardly any two pairs are equally long."""
        X = np.random.default_rng(1).integers(0, 128, size=(N, 8)).astype(dtype)
        cut = cut_by_centers(X.astype(np.float64))
        found, expected = search(X, cut, 5, metric), lists_among(X, 5, cut.meets, metric)
        assert_sound(X.astype(np.float64), found, cut.meets, metric)
        assert_as_near(found, expected, metric)

    def test_the_order_of_cells_changes_nothing(self) -> None:
        X = normal()
        cut = cut_by_centers(X)
        renumbered = np.random.default_rng(2).permutation(9).astype(np.int32)[cut.cell]
        assert_exact(search(X, Cut(cut.is_home, cut.starts, renumbered), 5), search(X, cut, 5))


def repeated(n_distinct: int, times: int) -> FloatArray:
    return np.repeat(normal(n_distinct, 5), times, axis=0)


ROWS = AWKWARD | {
    "each row fifty times": repeated(6, 50),
    "lattice": np.random.default_rng(3).integers(0, 3, size=(N, 4)).astype(float),
    "binary": np.random.default_rng(4).integers(0, 2, size=(N, 9)).astype(float),
    "rows of zeros": np.where((np.arange(N) % 5 == 0)[:, None], 0.0, normal()),
    "only zeros": np.zeros((60, 3)),
    "wide near duplicates": np.vstack([normal(120, 50), 100 + 1e-6 * normal(120, 50, seed=1)]),
    "1e100": normal(120) * 1e100,
    "1e-100": normal(120) * 1e-100,
    "one column, spread out": np.exp(normal(120, 1) * 12),
}


SCALES = "scales from 1e-20 to 1e20"
"""Rows like (0, 50, 0), from which a crowd of much smaller ones is equally far to three digits."""


class TestAwkwardRows:
    @each("sparse", [False, True])
    @each("name", ROWS)
    def test_euclidean(self, name: str, sparse: bool) -> None:
        X = ROWS[name]
        cut = cut_by_centers(X)
        for k in (1, 6):
            found = search(sp.csr_matrix(X) if sparse else X, cut, k)
            assert_sound(X, found, cut.meets)
            assert_as_near(found, lists_among(X, k, cut.meets), rtol=1e-3 if name == SCALES else RELATIVE)

    @each("sparse", [False, True])
    @each("name", [name for name in ROWS if name != SCALES])
    def test_cosine(self, name: str, sparse: bool) -> None:
        """Of rows on scales from 1e-20 to 1e20 most lie along an axis, closer to each other than 1 - cos can tell."""
        X = ROWS[name]
        cut = cut_by_centers(X)
        found = search(sp.csr_matrix(X) if sparse else X, cut, 6, "cosine")
        assert_sound(X / (np.abs(X).max() or 1.0), found, cut.meets, "cosine")
        assert_as_near(found, lists_among(X / (np.abs(X).max() or 1.0), 6, cut.meets, "cosine"), "cosine")

    def test_float32_rows_of_any_scale(self) -> None:
        X = normal().astype(np.float32)
        cut = cut_by_centers(X.astype(np.float64))
        expected = search(X, cut, 5)
        for scale in (np.float32(2.0**100), np.float32(2.0**-100)):
            indices, distances = search(X * scale, cut, 5)
            np.testing.assert_array_equal(indices, expected[0])
            np.testing.assert_allclose(distances / scale, expected[1], rtol=1e-12)

    @each("doubtful", [1, cell_search.DOUBTFUL_PAIRS])
    @each("apart", [3.0, 10.0, 30.0, 100.0, 1000.0])
    def test_products_that_lose_digits(self, apart: float, doubtful: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two clusters in one cell: the farther apart, the less a product says of distances inside them. More rows than
        are wanted lie nearly as far as the last one, and all that may be among the nearest are measured, however few
        at a time.
        """
        monkeypatch.setattr(cell_search, "DOUBTFUL_PAIRS", doubtful)
        X = normal(400, 30)
        X[::2] += apart
        cut = cut_by_hand([[0]] * 400)
        assert_exact(search(X.astype(np.float32), cut, 20), lists_among(X.astype(np.float32), 20, cut.meets))

    @each("size", [1e15, 1e23, 1e35])
    def test_opposite_outliers(self, size: float) -> None:
        """Next to squares of outliers those of ordinary rows are below what float32 holds."""
        X = np.vstack([normal(80, 3), [[size, 0, 0], [-size, 0, 0]]])
        cut = cut_by_hand([[0, 1]] * 40 + [[1, 0]] * 42)
        found = search(X, cut, 5)
        assert_sound(X, found, cut.meets)
        indices, distances = lists_among(X, 5, cut.meets)
        assert_exact((found[0][:80], found[1][:80]), (indices[:80], distances[:80]))

    def test_decimal_ties(self) -> None:
        """0.2 - 0.1 and 0.3 - 0.2 differ in the last bit."""
        indices, _ = search(np.array([[0.1], [0.2], [0.3]]), cut_by_hand([[0]] * 3), 2)
        np.testing.assert_array_equal(indices, [[1, 2], [0, 2], [1, 0]])

    def test_of_identical_rows_the_lowest_numbers(self) -> None:
        cut = cut_by_hand([[0]] * 300)
        for X in (np.full((300, 2), 0.1), sp.csr_matrix(np.full((300, 2), 0.1))):
            indices, distances = search(X, cut, 3)
            np.testing.assert_array_equal(
                indices[[0, 1, 2, 3, 299]], [[1, 2, 3], [0, 2, 3], [0, 1, 3]] + [[0, 1, 2]] * 2
            )
            np.testing.assert_array_equal(distances, 0.0)

    @each(("n_home", "n_others"), [(200, 200), (600, 98)])
    def test_a_crowd_is_met_once(self, n_home: int, n_others: int) -> None:
        """Without digits left in the product every pair is a candidate; the nearest of rows with very many are found
        one by one: those of all rows here, or of the others alone. Every second one is a visitor whose first cell this
        is, and has met its rows before.
        """
        X = normal(n_home + n_others, 3) + 1e8
        cut = cut_by_hand([[0]] * n_home + [[0], [1, 0]] * (n_others // 2), tuple(range(n_home, len(X), 2)))
        found = search(sp.csr_matrix(X), cut, 3)
        assert_sound(X, found, cut.meets)
        assert_as_near(found, lists_among(X, 3, cut.meets))

    @settings(max_examples=60, deadline=None)
    @given(
        hnp.arrays(np.float64, st.tuples(st.integers(2, 22), st.integers(1, 3)), elements=st.integers(-2, 2)),
        st.data(),
    )
    def test_small_lattices(self, X: FloatArray, data: st.DataObject) -> None:
        """Ties and duplicates everywhere, any cells: empty ones, ones without rows of their own."""
        cells = st.lists(st.integers(0, 4), min_size=1, max_size=4, unique=True)
        looks = [data.draw(cells) for _ in X]
        visitors = tuple(data.draw(st.sets(st.integers(0, len(X) - 1))))
        metric: Metric = data.draw(st.sampled_from(["euclidean", "cosine"]))
        cut = cut_by_hand(looks, visitors)
        found = search(X, cut, 3, metric)
        assert_sound(X, found, cut.meets, metric)
        assert_as_near(found, lists_among(X, 3, cut.meets, metric), metric)


class TestWhoMeets:
    X = np.arange(8.0)[:, None] ** 1.1

    def lists(self, looks: list[list[int]], visitors: tuple[int, ...] = (), k: int = 3) -> list[list[int]]:
        cut = cut_by_hand(looks, visitors)
        indices, _ = search(self.X[: len(looks)], cut, k)
        np.testing.assert_array_equal(indices, lists_among(self.X[: len(looks)], k, cut.meets)[0])
        return [row[row >= 0].tolist() for row in indices]

    def test_a_look_serves_both_rows(self) -> None:
        """Row 3 looks into the cell of the others, which do not look into its own."""
        assert self.lists([[0], [0], [0], [1, 0]]) == [[1, 2, 3], [0, 2, 3], [1, 3, 0], [2, 1, 0]]

    def test_rows_that_look_into_each_others_cells_meet_once(self) -> None:
        assert self.lists([[0, 1], [0, 1], [1, 0], [1, 0]]) == [[1, 2, 3], [0, 2, 3], [1, 3, 0], [2, 1, 0]]

    def test_visitors_do_not_meet_each_other(self) -> None:
        assert self.lists([[0], [0], [0], [0]], visitors=(1, 2)) == [[1, 2, 3], [0, 3], [3, 0], [2, 1, 0]]

    def test_a_cell_that_is_nobodys_home(self) -> None:
        assert self.lists([[0], [0, 1], [1], [1]], visitors=(2, 3)) == [[1], [0], [], []]

    def test_a_third_cell_brings_nobody_together(self) -> None:
        assert self.lists([[0, 2], [1, 2], [2]]) == [[2], [2], [1, 0]]

    def test_a_group_of_one_row(self) -> None:
        indices, distances = search(self.X[:1], cut_by_hand([[0]]), 4)
        np.testing.assert_array_equal(indices, [[-1] * 4])
        np.testing.assert_array_equal(distances, [[np.inf] * 4])

    def test_fewer_rows_than_neighbors(self) -> None:
        indices, distances = search(self.X[:3], cut_by_hand([[0]] * 3), 64)
        np.testing.assert_array_equal(indices[:, :3], [[1, 2, -1], [0, 2, -1], [1, 0, -1]])
        assert np.isinf(distances[:, 2:]).all()
        assert indices.shape == distances.shape == (3, 64)

    def test_only_visitors(self) -> None:
        assert self.lists([[0], [0], [1]], visitors=(0, 1, 2)) == [[], [], []]


class TestSketch:
    """Rows are compared in a sketch, and measured as they are."""

    X = normal(200)
    cut = cut_by_centers(normal(200))
    sketch = np.hstack([normal(200, 2, seed=9), 0.3 * normal(200, 1, seed=8) ** 2]).astype(np.float32)

    def found(self, width: int, metric: Metric = "euclidean", sparse: bool = False) -> Lists:
        X = sp.csr_matrix(self.X) if sparse else self.X
        cut = self.cut
        return cell_neighbors(X, metric, cut.is_home, cut.starts, cut.cell, 4, self.sketch, width)

    @each("sparse", [False, True])
    @each("metric", ["euclidean", "cosine"])
    def test_any_sketch_will_do_if_every_row_is_measured(self, metric: Metric, sparse: bool) -> None:
        assert_exact(self.found(200, metric, sparse), lists_among(self.X, 4, self.cut.meets, metric))

    def test_of_few_candidates_those_nearest_in_the_sketch(self) -> None:
        """The last column counts as it is, as a squared length beyond the others."""
        columns, rest = self.sketch[:, :2].astype(np.float64), self.sketch[:, 2].astype(np.float64)
        squares = ((columns[:, None] - columns[None]) ** 2).sum(axis=2) + rest[None, :]
        squares[~self.cut.meets] = np.inf
        nearest = np.argsort(squares, axis=1)[:, :4]
        indices, distances = self.found(4)
        np.testing.assert_array_equal(np.sort(indices, axis=1), np.sort(nearest, axis=1))
        assert_sound(self.X, (indices, distances), self.cut.meets)


class TestNearestDistinct:
    @settings(max_examples=80, deadline=None)
    @given(st.data())
    def test_any_lists(self, data: st.DataObject) -> None:
        """Entries of one name have one distance; whatever is missing is -1 at infinity."""
        lengths = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.1, 2.0, 3.5]), min_size=6, max_size=6)))
        lists = data.draw(st.lists(st.lists(st.integers(-1, 5), min_size=5, max_size=5), min_size=1, max_size=4))
        names = np.array(lists)
        squares = np.where(names >= 0, lengths[names], np.inf)
        found, distances = nearest_distinct(names, squares, 3)
        for row, listed in enumerate(lists):
            expected = sorted({(lengths[name], name) for name in listed if name >= 0})[:3]
            expected += [(np.inf, -1)] * (3 - len(expected))
            assert [(d, i) for d, i in zip(distances[row], found[row], strict=True)] == expected

    def test_fewer_columns_than_wanted(self) -> None:
        names, distances = nearest_distinct(np.array([[3, 3]]), np.array([[1.0, 1.0]]), 2)
        assert names.tolist() == [[3, -1]]
        assert distances.tolist() == [[1.0, np.inf]]
