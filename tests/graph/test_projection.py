"""The space that rows are compared in: distances stay, whatever their type, offset or scale, row by row the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from daskfs.graph import projection as space_module
from daskfs.graph.projection import FORCED_FEATURES, Space, fitted_space
from daskfs.kernels.neighbors.cells import BLOCK_ROWS
from daskfs.kernels.neighbors.metrics import Metric
from tests.cases import each

FloatArray = NDArray[np.float64]


def normal(n: int = 300, d: int = 12, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, d))


def low_rank(n: int, m: int, rank: int, noise: float = 0.05) -> FloatArray:
    return normal(n, rank) @ normal(rank, m, 1) + noise * normal(n, m, 2)


def fitted(X: Any, metric: Metric = "euclidean", wanted: int | str | None = None, **given: int) -> Space:
    sizes = {"n_samples": X.shape[0], "n_neighbors": 5, "width": 21, **given}
    return fitted_space(X, metric, wanted, random_state=0, **sizes)


def squares_between(X: FloatArray) -> FloatArray:
    """Squared distances of each of some rows to some others."""
    result: FloatArray = ((X[:20, None] - X[None, 20:80]) ** 2).sum(axis=2)
    return result


def all_squares(X: Any) -> FloatArray:
    """Squared distances of all rows, dense or sparse; infinite of a row to itself."""
    products = np.asarray((X @ X.T).todense() if sp.issparse(X) else X @ X.T, dtype=np.float64)
    squares: FloatArray = np.diag(products)[:, None] + np.diag(products)[None, :] - 2 * products
    np.fill_diagonal(squares, np.inf)
    return squares


def expected_squares(X: FloatArray, metric: Metric) -> FloatArray:
    if metric == "euclidean":
        return squares_between(X)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return squares_between(np.divide(X, norms, out=np.zeros_like(X), where=norms > 0))


TYPES: dict[str, NDArray[Any]] = {
    "float64": normal(),
    "float32": normal().astype(np.float32),
    "float16": normal().astype(np.float16),
    "float16 from end to end": np.where(normal() < 1.3, -60000, 60000).astype(np.float16),
    "int8": np.random.default_rng(0).integers(-128, 128, size=(300, 12)).astype(np.int8),
    "uint8": np.random.default_rng(0).integers(0, 256, size=(300, 12)).astype(np.uint8),
    "bool": normal() > 0,
    "1e30": normal() * 1e30,
    "1e30 in float32": (normal() * 1e30).astype(np.float32),
    "1e-30": normal() * 1e-30,
    "offset 1e8": normal() + 1e8,
    "rows of zeros": np.where(np.arange(300)[:, None] % 7 == 0, 0.0, normal()),
    "only zeros": np.zeros((300, 3)),
}


class TestAllColumns:
    @each("metric", ["euclidean", "cosine"])
    @each("name", TYPES)
    def test_distances_stay(self, name: str, metric: Metric) -> None:
        X = TYPES[name]
        space = fitted(X, metric)
        rows = space.rows(X)
        assert rows.dtype == np.float32
        assert rows.flags.c_contiguous
        assert rows.shape == X.shape
        expected = expected_squares(X.astype(np.float64), metric) * space.scale**2
        np.testing.assert_allclose(squares_between(rows.astype(np.float64)), expected, rtol=1e-4, atol=1e-12)

    @each("metric", ["euclidean", "cosine"])
    @each("name", ["float64", "int8", "1e30", "1e-30", "rows of zeros", "only zeros"])
    def test_csr(self, name: str, metric: Metric) -> None:
        X = sp.csr_matrix(TYPES[name])
        space = fitted(X, metric)
        rows = space.rows(X)
        assert isinstance(rows, np.ndarray)
        expected = expected_squares(TYPES[name].astype(np.float64), metric) * space.scale**2
        np.testing.assert_allclose(squares_between(rows.astype(np.float64)), expected, rtol=1e-4, atol=1e-12)

    def test_unit_rows_that_hardly_differ(self) -> None:
        """Cosines of rows far from the origin: all their unit rows are nearly the same."""
        X = normal() + 1e6
        space = fitted(X, "cosine")
        rows = space.rows(X).astype(np.float64)
        np.testing.assert_allclose(squares_between(rows), expected_squares(X, "cosine") * space.scale**2, rtol=1e-3)

    def test_no_rows(self) -> None:
        space = fitted(normal())
        assert space.rows(np.empty((0, 12))).shape == (0, 12)
        assert fitted(normal(), wanted=3).sketch(np.empty((0, 12))).shape == (0, 4)


class TestComponents:
    @each("metric", ["euclidean", "cosine"])
    def test_principal_directions_keep_what_they_span(self, metric: Metric) -> None:
        X = low_rank(400, 60, 5, noise=0.0)
        rows = fitted(X, metric, 5 if metric == "euclidean" else 6).rows(X).astype(np.float64)
        assert rows.shape[1] < 7
        expected = expected_squares(X, metric)
        np.testing.assert_allclose(squares_between(rows), expected, rtol=0.02, atol=1e-5 * expected.max())

    def test_the_sketch_makes_up_for_what_is_left_out(self) -> None:
        """The lengths of the rests of two rows, squared, add to the mean of what their distance misses."""
        X = low_rank(400, 300, 5, noise=0.5)
        space = fitted(X, "euclidean", 5)
        sketch = space.sketch(X).astype(np.float64)
        np.testing.assert_array_equal(sketch[:, :-1], space.rows(X))
        short = squares_between(sketch[:, :-1])
        rest = sketch[:20, None, -1] + sketch[None, 20:80, -1]
        expected = squares_between(X)
        assert (short < expected).all()
        np.testing.assert_allclose(short + rest, expected, rtol=0.2)
        assert abs(((short + rest) / expected).mean() - 1) < 0.01

    def test_as_few_as_keep_the_neighbors(self) -> None:
        """Eight directions are all there is to these rows, and nothing short of all to the others."""
        X = low_rank(2000, 120, 8)
        space = fitted(X, "euclidean", "auto")
        assert (space.n_components, space.rows(X).shape[1]) == (32, 32)
        plain = fitted(normal(2000, 120), "euclidean", "auto")
        assert (plain.n_components, plain.basis) == (None, None)

    def test_very_wide_rows_always_are_compared_in_few(self) -> None:
        X = normal(300, FORCED_FEATURES + 1)
        assert fitted(X, "euclidean", "auto").rows(X).shape[1] <= 128

    @each("n_samples", [3000, 300_000, 10**8])
    def test_a_sample_of_many_rows_speaks_for_as_few_components(self, n_samples: int) -> None:
        """Of which it has less than one of the nearest."""
        X = low_rank(3000, 300, 8, 0.5).astype(np.float32)
        assert fitted(X, "euclidean", "auto", n_samples=n_samples, n_neighbors=10, width=26).n_components == 32

    @each("metric", ["euclidean", "cosine"])
    def test_sparse_rows_are_turned_and_the_rest_is_kept(self, metric: Metric) -> None:
        X = sp.random(400, 3000, 0.02, format="csr", random_state=0)
        sketch = fitted(X, metric, 128).sketch(X).astype(np.float64)
        assert sketch.shape == (400, 129)
        short = squares_between(sketch[:, :-1])
        expected = expected_squares(X.toarray(), metric)
        ratio = (short + sketch[:20, None, -1] + sketch[None, 20:80, -1]) / expected
        assert (short < expected).all()
        assert abs(ratio.mean() - 1) < 0.01
        assert ratio.std() < 0.05

    def test_sparse_rows_of_unequal_weight(self) -> None:
        """Nearest to most rows of counts are the light ones, which the rest tells and a projection does not."""
        generator = np.random.default_rng(0)
        X = sp.vstack([sp.random(1, 3000, share, format="csr", rng=generator) for share in np.linspace(0.01, 0.1, 400)])
        nearest = np.argsort(all_squares(X), axis=1)[:, :10]
        found = {}
        for name, space in {
            "turned": fitted(X, "euclidean", 32),
            "drawn": Space("euclidean", 0, n_components=32),
        }.items():
            sketch = space.sketch(X).astype(np.float64)
            some = np.argsort(all_squares(sketch[:, :-1]) + sketch[None, :, -1], axis=1)[:, :26]
            found[name] = np.mean([np.isin(a, b).mean() for a, b in zip(nearest, some, strict=True)])
        assert found["turned"] > 0.95
        assert found["drawn"] < 0.6

    def test_sparse_rows_of_too_many_columns_are_projected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(space_module, "DIRECTION_BYTES", 4 * 3000 * 31)
        X = sp.random(400, 3000, 0.02, format="csr", random_state=0)
        space = fitted(X, "euclidean", "auto")
        assert (space.basis, space.n_components) == (None, 128)
        rows = space.rows(X).astype(np.float64)
        ratio = squares_between(rows) / all_squares(X)[:20, 20:80]
        assert abs(ratio.mean() - 1) < 0.05
        assert ratio.std() < 2 * np.sqrt(2 / 128)

    def test_no_more_components_than_columns(self) -> None:
        assert fitted(normal(), wanted=50).rows(normal()).shape[1] <= 12
        X = sp.random(200, 40, 0.3, format="csr", random_state=0)
        assert fitted(X, wanted=50).rows(X).shape[1] == 40


@each("wanted", [None, 40])
@each("metric", ["euclidean", "cosine"])
@each("sparse", [False, True])
@each("dtype", [np.float64, np.float32])
def test_a_row_does_not_depend_on_those_beside_it(
    dtype: type[np.floating[Any]], sparse: bool, metric: Metric, wanted: int | None
) -> None:
    """Whole blocks of rows, as bands of any size hold them, give what all rows together do, bit by bit."""
    X: Any = normal(2 * BLOCK_ROWS + 77, 120).astype(dtype)
    if sparse:
        X = sp.csr_matrix(np.where(np.abs(X) > 1.5, X, 0).astype(dtype))
    space = fitted(X[:500], metric, wanted)
    whole = space.rows(X)
    for n_blocks in (1, 2):
        size = n_blocks * BLOCK_ROWS
        parts = [space.rows(X[start : start + size]) for start in range(0, X.shape[0], size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
