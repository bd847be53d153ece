"""Exact neighbors against exhaustive search: awkward data, ties, blocks of the base, sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn.datasets import load_digits, load_iris, load_wine

from daskfs.kernels.neighbors import distance_bounds
from daskfs.kernels.neighbors.exact import MAX_TIES, exact_neighbors, order_with_ties
from daskfs.kernels.neighbors.metrics import Metric
from daskfs.kernels.neighbors.rows import prepare_rows
from tests.cases import each
from tests.reference.graph import TIE_TOLERANCE, knn_lists

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Lists = tuple[IntArray, FloatArray]


@pytest.fixture(params=[0.0, 2.0], ids=["made dense", "sparse"])
def products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products of sparse rows be of rows made dense, or not, however many values they have."""
    monkeypatch.setattr(distance_bounds, "DENSE_SHARE", request.param)


def neighbors(X: NDArray[np.generic] | sp.csr_matrix, k: int, metric: Metric = "euclidean") -> Lists:
    base = prepare_rows(X, metric)
    return exact_neighbors(base, np.arange(base.n_rows), base, 0, k)


def brute_force(X: FloatArray, k: int, rows: IntArray) -> Lists:
    """Euclidean neighbors of some rows by :mod:`tests.reference.graph`'s rules, quick enough for thousands of rows."""
    indices, distances = np.empty((rows.size, k), dtype=np.int64), np.empty((rows.size, k))
    for place, row in enumerate(rows):
        squares = ((X - X[row]) ** 2).sum(axis=1)
        squares[row] = np.inf
        order = np.argsort(squares, kind="stable")[: 4 * k]
        group = np.cumsum(np.diff(squares[order], prepend=0.0) > 2 * TIE_TOLERANCE * squares[order])
        indices[place] = order[np.lexsort((order, group))][:k]
        distances[place] = np.sqrt(squares[indices[place]])
    return indices, distances


def assert_same_lists(found: Lists, expected: Lists, rtol: float = 1e-13) -> None:
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=1e-15)


def normal(n: int, d: int = 3, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


def far_clusters(n: int, gap: float = 1e4) -> FloatArray:
    """Two clusters, 1e-3 wide."""
    return normal(n) * 1e-3 + gap * (np.arange(n) % 2)[:, None]


def near_duplicates_among_others(n: int, n_near: int) -> FloatArray:
    """Rows within 1e-6 of each other, scattered among rows that are spread out: float32 cannot tell them apart."""
    X = np.vstack([normal(n - n_near), 0.5 + 1e-6 * normal(n_near, seed=1)])
    return X[np.random.default_rng(2).permutation(n)]


NARROW_TYPES: tuple[type[np.generic], ...] = (
    np.uint8,
    np.int8,
    np.int16,
    np.bool_,
    np.float16,
    np.float32,
    np.int64,
)

AWKWARD = {
    "iris": load_iris().data,
    "wine": load_wine().data,
    "digits": load_digits().data[:300],
    "duplicates": np.repeat(normal(40), 5, axis=0),
    "all identical": np.full((50, 4), 0.1),
    "identical but one": np.vstack([np.full((49, 4), 0.1), np.ones((1, 4))]),
    "far clusters": far_clusters(200),
    "farther clusters": far_clusters(200, 1e7),
    "offset 1e8": normal(200) + 1e8,
    "huge": normal(200) * 1e30,
    "tiny": normal(200) * 1e-30,
    "scales from 1e-20 to 1e20": np.exp(15 * normal(200)) * np.sign(normal(200, seed=1)),
    "one column": np.random.default_rng(0).integers(0, 30, size=(150, 1)).astype(float),
    "near duplicates": near_duplicates_among_others(300, 80),
    "opposite outliers": np.vstack([normal(150), [[1e7, 0, 0], [-1e7, 0, 0]]]),
}


class TestEuclidean:
    @each("name", AWKWARD)
    def test_reference(self, name: str) -> None:
        assert_same_lists(neighbors(AWKWARD[name], 6), knn_lists(AWKWARD[name], 6))

    @pytest.mark.usefixtures("products")
    @each("name", AWKWARD)
    def test_csr(self, name: str) -> None:
        assert_same_lists(neighbors(sp.csr_matrix(AWKWARD[name]), 6), knn_lists(AWKWARD[name], 6))

    @each("size", [1e21, 1e22, 3e22, 1e23])
    def test_opposite_outliers_that_drive_the_rest_below_float32(self, size: float) -> None:
        """Scaled to the outliers, squares of ordinary rows fall among the subnormal numbers of float32."""
        X = np.vstack([normal(50), [[size, 0, 0], [-size, 0, 0]]])
        assert_same_lists(neighbors(X, 5), knn_lists(X, 5))

    @each("scale", [1.0, 1e-30, 1e30])
    def test_list_of_all_others(self, scale: float) -> None:
        """n = k + 1."""
        X = normal(9) * scale
        assert_same_lists(neighbors(X, 8), knn_lists(X, 8))

    @each(
        ("dtype", "sparse"),
        [(dtype, sparse) for dtype in NARROW_TYPES for sparse in (False, True) if not (sparse and dtype is np.float16)],
    )
    def test_narrow_types_never_wrap(self, dtype: type[np.generic], sparse: bool) -> None:
        high = {np.uint8: 256, np.bool_: 2}.get(dtype, 128)
        low = -128 if dtype in (np.int8, np.int16) else 0
        X = np.random.default_rng(3).integers(low, high, size=(150, 5)).astype(dtype)
        found = neighbors(sp.csr_matrix(X) if sparse else X, 6)
        assert_same_lists(found, knn_lists(X.astype(np.float64), 6))

    def test_read_only(self) -> None:
        X = normal(60)
        expected = neighbors(X, 4)
        X.setflags(write=False)
        assert_same_lists(neighbors(X, 4), expected)

    def test_binary_rows(self) -> None:
        X = np.random.default_rng(4).integers(0, 2, size=(300, 12)).astype(np.uint8)
        assert_same_lists(neighbors(X, 7), knn_lists(X, 7))

    @settings(max_examples=60, deadline=None)
    @given(
        hnp.arrays(np.float64, st.tuples(st.integers(4, 25), st.integers(1, 4)), elements=st.integers(-3, 3)),
        st.sampled_from([1.0, 0.1, 1e-9, 1e12]),
        st.sampled_from([0.0, 1e6]),
        st.integers(1, 3),
    )
    def test_small_lattices(self, lattice: FloatArray, step: float, offset: float, k: int) -> None:
        """Ties and duplicates everywhere; the offset is exact, so that the ties stay ties."""
        X = lattice * step + (offset if step == 1.0 else 0.0)
        assert_same_lists(neighbors(X, k), knn_lists(X, k))


class TestManyRows:
    """Bands of candidates too many to measure one by one."""

    @pytest.mark.usefixtures("products")
    def test_more_rows_tied_than_are_measured(self) -> None:
        n = 2 * MAX_TIES + 500
        X = np.zeros((n, 2))
        X[::2, 0] = 3.0
        X[5] = [0.0, 1.0]
        indices, distances = neighbors(X, 4)
        rows = np.array([0, 1, 5, 6, n - 2, n - 1])
        assert_same_lists((indices[rows], distances[rows]), brute_force_ties(X, 4, rows))

    @pytest.mark.usefixtures("products")
    def test_ties_beyond_the_limit_at_a_distance(self) -> None:
        """Every row of the identity is at distance sqrt(2) from every other one."""
        n = MAX_TIES + 300
        indices, distances = neighbors(sp.identity(n, format="csr"), 3)
        np.testing.assert_array_equal(indices[[0, 1, 2, 3, n - 1]], [[1, 2, 3], [0, 2, 3], [0, 1, 3]] + [[0, 1, 2]] * 2)
        np.testing.assert_allclose(distances, np.sqrt(2), rtol=1e-15)

    @each("gap", [1e4, 1e5, 1e7])
    def test_far_clusters(self, gap: float) -> None:
        X = far_clusters(2 * MAX_TIES + 800, gap)
        rows = np.arange(0, len(X), 60)
        indices, distances = neighbors(X, 5)
        assert_same_lists((indices[rows], distances[rows]), brute_force(X, 5, rows))

    def test_near_duplicates_scattered_among_ordinary_rows(self) -> None:
        X = near_duplicates_among_others(3000, MAX_TIES + 400)
        near = np.abs(X - 0.5).max(axis=1) < 1e-4
        X, near = (np.concatenate([part[~near][:500], part[near], part[~near][500:]]) for part in (X, near))
        base = prepare_rows(X, "euclidean")
        asked = np.arange(530)
        assert near[asked].sum() == 30
        assert_same_lists(exact_neighbors(base.part(slice(0, 530)), asked, base, 0, 5), brute_force(X, 5, asked))

    @pytest.mark.usefixtures("products")
    def test_csr_with_an_offset(self) -> None:
        """Sparse rows cannot be centered, so the product has no digits left here."""
        X = normal(MAX_TIES + 400) + 1e8
        rows = np.arange(0, len(X), 60)
        indices, distances = neighbors(sp.csr_matrix(X), 5)
        assert_same_lists((indices[rows], distances[rows]), brute_force(X, 5, rows))


def brute_force_ties(X: FloatArray, k: int, rows: IntArray) -> Lists:
    """As :func:`brute_force` for exact data, whatever the number of ties."""
    squares = ((X[rows, None] - X[None]) ** 2).sum(axis=2)
    squares[np.arange(rows.size), rows] = np.inf
    indices = np.argsort(squares, axis=1, kind="stable")[:, :k]
    return indices, np.sqrt(np.take_along_axis(squares, indices, axis=1))


class TestTies:
    @pytest.mark.usefixtures("products")
    @each("name", ["iris", "wine", "digits"])
    def test_order_of_columns_and_sparsity_do_not_change_lists(self, name: str) -> None:
        X = AWKWARD[name]
        expected = neighbors(X, 10)
        shuffled = np.ascontiguousarray(X[:, np.random.default_rng(5).permutation(X.shape[1])])
        for variant in (shuffled, X[:, ::-1].copy(), sp.csr_matrix(X), sp.csr_matrix(shuffled)):
            assert_same_lists(neighbors(variant, 10), expected)

    def test_round_off_at_the_edge_of_the_rounding(self) -> None:
        """Two steps in thousandths, both of squared length 0.025976, computed with the last bit differing.

        They lie on both sides of a 40-bit boundary. The lower row number comes first whichever is computed as longer.
        """
        steps = np.array([[0, 34, 54, 148], [0, 6, 68, 146]])
        np.testing.assert_array_equal((steps**2).sum(axis=1), 25976)
        lengths = ((steps / 1000) ** 2).sum(axis=1)
        assert 0 < np.ptp(lengths) < 1e-17
        for pair in (steps, steps[::-1]):
            X = np.vstack([np.zeros(4), pair / 1000])
            np.testing.assert_array_equal(neighbors(X, 2)[0][0], [1, 2])

    def test_decimal_ties(self) -> None:
        np.testing.assert_array_equal(neighbors(np.array([[0.1], [0.2], [0.3]]), 1)[0], [[1], [0], [1]])


class TestCosine:
    @each("sparse", [False, True])
    @each("name", ["iris", "wine", "digits", "duplicates", "all identical", "huge", "tiny"])
    def test_reference(self, name: str, sparse: bool) -> None:
        X = AWKWARD[name]
        found = neighbors(sp.csr_matrix(X) if sparse else X, 6, "cosine")
        expected = knn_lists(X / np.abs(X).max(), 6, "cosine")
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=2e-15)

    @pytest.mark.usefixtures("products")
    @each("sparse", [False, True])
    def test_rows_of_zeros(self, sparse: bool) -> None:
        X = normal(60)
        X[[0, 7, 8, 59]] = 0.0
        found = neighbors(sp.csr_matrix(X) if sparse else X, 59, "cosine")
        expected = knn_lists(X, 59, "cosine")
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(found[1][0], 1.0, rtol=4e-16)

    @pytest.mark.usefixtures("products")
    @each("sparse", [False, True])
    def test_rows_of_one_direction_are_ties_at_zero(self, sparse: bool) -> None:
        X = np.array([0.1, 0.7, 1.3]) * np.random.default_rng(6).uniform(1e-3, 1e3, size=(40, 1))
        indices, distances = neighbors(sp.csr_matrix(X) if sparse else X, 3, "cosine")
        np.testing.assert_array_equal(distances, 0.0)
        np.testing.assert_array_equal(indices[10], [0, 1, 2])

    def test_unsigned_rows(self) -> None:
        X = np.random.default_rng(7).integers(0, 256, size=(120, 6)).astype(np.uint8)
        X[3] = 0
        found, expected = neighbors(X, 6, "cosine"), knn_lists(X, 6, "cosine")
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-15)


def by_bands(X: FloatArray, k: int, cuts: list[int], metric: Metric, sparse: bool) -> Lists:
    """Search each band of rows on its own and merge by distance, then number."""
    parts = []
    for start, stop in zip([0, *cuts], [*cuts, len(X)], strict=True):
        band = prepare_rows(sp.csr_matrix(X[start:stop]) if sparse else X[start:stop], metric)
        queries = prepare_rows(sp.csr_matrix(X) if sparse else X, metric, like=band)
        parts.append(exact_neighbors(queries, np.arange(len(X)), band, start, k))
    indices = np.concatenate([part[0] for part in parts], axis=1)
    distances = np.concatenate([part[1] for part in parts], axis=1)
    missing = np.isinf(distances)
    best = order_with_ties(np.where(missing, np.inf, distances), indices)[:, :k]
    return np.take_along_axis(indices, best, axis=1), np.take_along_axis(distances, best, axis=1)


class TestBands:
    @pytest.mark.usefixtures("products")
    @each("sparse", [False, True])
    @each("metric", ["euclidean", "cosine"])
    @each("cut", [20, 35, 57])
    def test_two_bands_give_the_whole(self, cut: int, metric: Metric, sparse: bool) -> None:
        X = normal(60)
        assert_same_lists(by_bands(X, 4, [cut], metric, sparse), knn_lists(X, 4, metric), rtol=1e-12)

    @each("cuts", [[1], [2], [3], [11], [10], [1, 2, 3, 4], [4, 8]])
    def test_bands_of_few_rows(self, cuts: list[int]) -> None:
        """A band that holds fewer rows than are asked for gives all it has to every query outside of it."""
        X = normal(12)
        assert_same_lists(by_bands(X, 4, cuts, "euclidean", False), knn_lists(X, 4))

    @each("first", [0.0, 1e-6])
    @each("size", [1e14, 1e20])
    def test_a_band_of_small_values_asked_from_far_away(self, first: float, size: float) -> None:
        X = np.vstack([first * normal(10), size * normal(10, seed=1)])
        assert_same_lists(by_bands(X, 3, [10], "euclidean", False), knn_lists(X, 3))

    def test_bands_of_differing_offsets(self) -> None:
        X = np.vstack([normal(20), normal(20) + 1e8])
        assert_same_lists(by_bands(X, 4, [20], "euclidean", False), knn_lists(X, 4))

    def test_numbers_start_where_the_base_does(self) -> None:
        X = normal(30)
        base = prepare_rows(X, "euclidean")
        indices, distances = exact_neighbors(base, np.arange(100, 130), base, 100, 3)
        assert_same_lists((indices - 100, distances), knn_lists(X, 3))

    def test_queries_from_elsewhere_may_find_every_row(self) -> None:
        X = normal(30)
        base = prepare_rows(X, "euclidean")
        indices, distances = exact_neighbors(base, np.arange(100, 130), base, 0, 1)
        np.testing.assert_array_equal(indices[:, 0], np.arange(30))
        np.testing.assert_array_equal(distances, 0.0)

    def test_what_is_missing_is_marked(self) -> None:
        X = normal(3)
        indices, distances = neighbors(X, 5)
        np.testing.assert_array_equal(indices[:, 2:], -1)
        assert np.isinf(distances[:, 2:]).all()
        assert_same_lists((indices[:, :2], distances[:, :2]), knn_lists(X, 2))
        lonely, far = neighbors(normal(1), 2)
        np.testing.assert_array_equal(lonely, [[-1, -1]])
        assert np.isinf(far).all()
