"""Neighbors of rows that lack values: against exhaustive search by nan-euclidean distances, and scikit-learn's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import nan_euclidean_distances

from daskfs.kernels.neighbors import exact as searched
from daskfs.kernels.neighbors.cell_search import cell_neighbors
from daskfs.kernels.neighbors.distance_bounds import narrow_bounds, tile_buffer, wide_bounds
from daskfs.kernels.neighbors.exact import MAX_TIES, exact_neighbors
from daskfs.kernels.neighbors.rows import metric_rows, prepare_rows, squared_distances
from tests.cases import each
from tests.kernels.neighbors.test_cell_search import assert_as_near, assert_sound, cut_by_centers, cut_by_hand
from tests.kernels.neighbors.test_exact import AWKWARD, assert_same_lists, normal
from tests.reference.graph import lists_among

FloatArray = NDArray[np.float64]
Lists = tuple[NDArray[np.int64], FloatArray]
Form = Callable[[Any], Any]
FORMS: tuple[Form, ...] = (np.asarray, sp.csr_matrix)


def holed(X: NDArray[np.generic], share: float = 0.3, seed: int = 3) -> FloatArray:
    found = np.array(X, dtype=np.float64)
    found[np.random.default_rng(seed).random(found.shape) < share] = np.nan
    return found


def shares(X: FloatArray) -> NDArray[np.bool_]:
    """Which rows have a column in common, a row and itself left out."""
    known = ~np.isnan(X)
    return (known.astype(int) @ known.T.astype(int) > 0) & ~np.eye(len(X), dtype=bool)


def expected(X: FloatArray, k: int) -> Lists:
    return lists_among(X, k, shares(X))


def neighbors(X: Any, k: int) -> Lists:
    base = prepare_rows(X, "euclidean")
    return exact_neighbors(base, np.arange(base.n_rows), base, 0, k)


@pytest.mark.parametrize("form", FORMS)
class TestExact:
    @each("share", [0.05, 0.6])
    @each("name", AWKWARD)
    def test_reference(self, name: str, share: float, form: Form) -> None:
        X = holed(AWKWARD[name], share)
        found, wanted = neighbors(form(X), 6), expected(X, 6)
        if name == "scales from 1e-20 to 1e20":  # rows that hardly differ lie at the border of what counts as tied
            np.testing.assert_allclose(found[1], wanted[1], rtol=1e-11)
        else:
            assert_same_lists(found, wanted)

    def test_scikit_learn(self, form: Form) -> None:
        X = holed(normal(150, 7), 0.4)
        distances = nan_euclidean_distances(X)
        distances[np.isnan(distances)] = np.inf
        np.fill_diagonal(distances, np.inf)
        found = neighbors(form(X), 149)
        nearest = np.sort(distances, axis=1)[:, :149]
        np.testing.assert_allclose(found[1], nearest, rtol=1e-6)

    def test_rows_that_share_nothing_are_no_neighbors(self, form: Form) -> None:
        """Half of the rows have the first two columns, the others the last one; one row has nothing."""
        X = normal(21, 3)
        X[:10, 2] = X[10:, :2] = X[20] = np.nan
        indices, distances = neighbors(form(X), 12)
        assert_same_lists((indices, distances), expected(X, 12))
        assert (indices[:10, 9:] == -1).all()
        assert (indices[20] == -1).all()
        assert np.isinf(distances[20]).all()
        assert (np.sort(indices[:10, :9], axis=1)[3] == np.delete(np.arange(10), 3)).all()

    def test_one_common_column(self, form: Form) -> None:
        """Each row has the first column and one of its own."""
        X = np.full((30, 31), np.nan)
        X[:, 0] = np.random.default_rng(0).integers(0, 12, 30)
        X[np.arange(30), np.arange(1, 31)] = 1e9
        found = neighbors(form(X), 5)
        assert_same_lists(found, expected(X, 5))
        row, place = np.nonzero(found[0] >= 0)
        gaps = np.abs(X[row, 0] - X[found[0][row, place], 0])
        np.testing.assert_allclose(found[1][row, place], gaps * np.sqrt(31), rtol=1e-14)

    def test_nothing_at_all(self, form: Form) -> None:
        indices, distances = neighbors(form(np.full((5, 3), np.nan)), 2)
        assert (indices == -1).all()
        assert np.isinf(distances).all()

    @each("dtype", [np.float32, np.float64])
    def test_types(self, dtype: Any, form: Form) -> None:
        X = holed(normal(300, 20)).astype(dtype)
        found = neighbors(form(X), 8)
        assert_same_lists(found, expected(X.astype(np.float64), 8))

    def test_a_value_of_zero_is_known(self, form: Form) -> None:
        X = holed(sp.random(200, 40, 0.1, random_state=0).toarray(), 0.02)
        assert_same_lists(neighbors(form(X), 7), expected(X, 7))

    def test_more_rows_tied_than_are_measured(self, form: Form) -> None:
        """In two columns of few values, many of whose values are missing, nearly all rows are at distance 0."""
        X = holed(np.random.default_rng(1).integers(0, 2, (2 * MAX_TIES + 300, 2)), 0.4)
        rows = np.arange(0, len(X), 97)
        found = neighbors(form(X), 4)
        squares = np.stack([(X - X[row]) ** 2 for row in rows])
        with np.errstate(invalid="ignore", divide="ignore"):
            lengths = np.nansum(squares, axis=2) / np.count_nonzero(~np.isnan(squares), axis=2)
        lengths[np.isnan(lengths)] = np.inf
        lengths[np.arange(rows.size), rows] = np.inf
        nearest = np.argsort(lengths, axis=1, kind="stable")[:, :4]
        nearest[np.isinf(np.take_along_axis(lengths, nearest, axis=1))] = -1
        np.testing.assert_array_equal(found[0][rows], nearest)

    @each("cut", [1, 35, 57])
    def test_bands_of_which_one_is_complete(self, cut: int, form: Form) -> None:
        """Each band is prepared on its own, as a streamed search does it."""
        X = holed(normal(60), 0.4)
        X[:cut] = normal(cut, seed=4)
        parts = []
        for start, stop in ((0, cut), (cut, 60)):
            band = prepare_rows(form(X[start:stop]), "euclidean")
            queries = prepare_rows(form(X), "euclidean", like=band)
            parts.append(exact_neighbors(queries, np.arange(60), band, start, 4))
        indices, distances = (np.concatenate([part[i] for part in parts], axis=1) for i in (0, 1))
        best = searched.order_with_ties(distances, indices)[:, :4]
        found = np.take_along_axis(indices, best, axis=1), np.take_along_axis(distances, best, axis=1)
        assert_same_lists(found, expected(X, 4))

    def test_blocks_of_queries_and_of_the_base(self, form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
        X = holed(normal(400, 9), 0.5)
        whole = neighbors(form(X), 5)
        monkeypatch.setattr("daskfs.kernels.neighbors.distance_bounds.BOUND_ROWS", (7, 7))
        monkeypatch.setattr("daskfs.kernels.neighbors.distance_bounds.TILE_BYTES", 2**14)
        cut = neighbors(form(X), 5)
        np.testing.assert_array_equal(cut[0], whole[0])
        assert cut[1].tobytes() == whole[1].tobytes()

    @settings(max_examples=60, deadline=None)
    @given(
        hnp.arrays(
            np.float64,
            st.tuples(st.integers(4, 25), st.integers(1, 4)),
            elements=st.sampled_from([np.nan, -2.0, -1.0, 0.0, 1.0, 2.0]),
        ),
        st.sampled_from([1.0, 0.1, 1e-9, 1e12]),
        st.integers(1, 3),
    )
    def test_small_lattices(self, form: Form, lattice: FloatArray, step: float, k: int) -> None:
        X = lattice * step
        assert_same_lists(neighbors(form(X), k), expected(X, k))


def test_half_precision() -> None:
    X = holed(normal(200, 9)).astype(np.float16)
    assert_same_lists(neighbors(X, 8), expected(X.astype(np.float64), 8))


class TestKernels:
    @each("form", FORMS)
    def test_complete_pairs_have_the_bits_of_complete_rows(self, form: Form) -> None:
        X = normal(80, 11)
        other = np.vstack([X, np.full((1, 11), np.nan)])
        a, b = np.divmod(np.arange(6400), 80)
        complete, incomplete = metric_rows(form(X), "euclidean"), metric_rows(form(other), "euclidean")
        found = squared_distances(incomplete, a, incomplete, b)
        assert found.tobytes() == squared_distances(complete, a, complete, b).tobytes()

    @each("form", FORMS)
    @each("name", ["wine", "far clusters", "offset 1e8", "huge", "tiny", "opposite outliers"])
    def test_bounds_hold(self, name: str, form: Form) -> None:
        """Of every pair, in float32 and in float64."""
        X = holed(AWKWARD[name], 0.5)
        rows = prepare_rows(form(X), "euclidean")
        n = len(X)
        pairs = np.divmod(np.arange(n * n), n)
        squares = squared_distances(rows, pairs[0], rows, pairs[1]).reshape(n, n) * rows.scale**2
        bounds: list[Any] = [wide_bounds(rows, rows)]
        if form is np.asarray:
            bounds.append(narrow_bounds(rows, rows, tile_buffer(rows, rows, n)))
        for found in bounds:
            assert (found.lower <= squares).all()
            assert (found.upper >= squares).all()
            np.testing.assert_array_equal(np.isinf(found.lower), ~(shares(X) | np.diag((~np.isnan(X)).any(axis=1))))

    @each("form", FORMS)
    def test_bounds_are_narrow(self, form: Form) -> None:
        """Only rows whose order rounding leaves in doubt are measured."""
        rows = prepare_rows(form(holed(normal(80, 11))), "euclidean")
        bounds: list[tuple[Any, type]] = [(wide_bounds(rows, rows), np.float64)]
        if form is np.asarray:
            bounds.append((narrow_bounds(rows, rows, tile_buffer(rows, rows, 80)), np.float32))
        for found, dtype in bounds:
            meets = np.isfinite(found.lower) & np.isfinite(found.upper)
            assert meets.any()
            gap = found.upper[meets] - found.lower[meets]
            assert gap.max() <= 1e3 * np.finfo(dtype).eps * found.upper[meets].max()

    def test_what_overflows_is_measured(self) -> None:
        """Rows far from a band of tiny spread, whose products are no numbers in float32."""
        base, far = holed(1e-6 * normal(20), 0.2), holed(1e20 * normal(9, seed=1), 0.2)
        rows = prepare_rows(base, "euclidean")
        found = exact_neighbors(prepare_rows(far, "euclidean", like=rows), np.arange(100, 109), rows, 0, 3)
        X = np.vstack([base, far])
        meets = shares(X)
        meets[:, 20:] = False
        indices, distances = lists_among(X, 3, meets)
        assert_same_lists(found, (indices[20:], distances[20:]))


class TestCells:
    @each("form", FORMS)
    @each("share", [0.1, 0.6])
    @each("k", [1, 10, 64])
    def test_reference(self, k: int, share: float, form: Form) -> None:
        X = holed(normal(260, 6), share)
        cut = cut_by_centers(normal(260, 6))
        meets = cut.meets & shares(X)
        found = cell_neighbors(form(X), "euclidean", cut.is_home, cut.starts, cut.cell, k)
        assert_sound(X, found, meets)
        assert_as_near(found, lists_among(X, k, meets))

    @each("name", ["iris", "duplicates", "far clusters", "huge", "tiny", "one column"])
    def test_awkward_rows(self, name: str) -> None:
        X = holed(AWKWARD[name], 0.3)
        cut = cut_by_centers(AWKWARD[name])
        meets = cut.meets & shares(X)
        found = cell_neighbors(X, "euclidean", cut.is_home, cut.starts, cut.cell, 5)
        assert_sound(X, found, meets)
        assert_as_near(found, lists_among(X, 5, meets))

    def test_one_cell_is_the_exact_search(self) -> None:
        X = holed(normal(300, 5), 0.5)
        cut = cut_by_hand([[0]] * 300)
        found = cell_neighbors(X, "euclidean", cut.is_home, cut.starts, cut.cell, 6)
        assert_same_lists(found, neighbors(X, 6))

    def test_a_complete_sketch_of_incomplete_rows(self) -> None:
        """Candidates come from the sketch, distances from the rows."""
        X = normal(200, 4)
        sketch = np.column_stack([X, np.zeros(200)]).astype(np.float32)
        X[::3, 1] = np.nan
        cut = cut_by_hand([[0]] * 200)
        found = cell_neighbors(X, "euclidean", cut.is_home, cut.starts, cut.cell, 3, sketch, 199)
        assert_same_lists(found, expected(X, 3))
