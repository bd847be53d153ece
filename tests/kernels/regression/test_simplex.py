"""Projection on the simplex, against the shift found by halving, and against what makes a point the nearest."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from daskfs.kernels.regression.simplex import project_rows
from tests.cases import each
from tests.reference.rescaled import project

ROWS = arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=st.floats(-1e3, 1e3, width=32))


@given(ROWS)
def test_as_by_halving(values: np.ndarray) -> None:
    np.testing.assert_allclose(project_rows(values), project(values), atol=1e-11)


@given(ROWS)
def test_no_corner_lies_beyond(values: np.ndarray) -> None:
    """The nearest point p of a convex set is where (v - p)'(q - p) <= 0 for all of its corners q."""
    found = project_rows(values)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    away = values - found
    best_corner = away.max(axis=1)
    assert (best_corner - (away * found).sum(axis=1) <= 1e-9).all()


def test_points_of_the_simplex_stay() -> None:
    points = np.random.default_rng(0).dirichlet(np.ones(36), size=50)
    np.testing.assert_allclose(project_rows(points), points, atol=1e-15)
    corners = np.eye(4)
    np.testing.assert_array_equal(project_rows(corners), corners)


@each("offset", [-1e9, 0.0, 1e9])
def test_equal_values_share(offset: float) -> None:
    np.testing.assert_allclose(project_rows(np.full((2, 5), offset)), 0.2, rtol=1e-6)


def test_one_class_and_no_row() -> None:
    np.testing.assert_array_equal(project_rows(np.array([[-7.0], [3.0]])), [[1.0], [1.0]])
    assert project_rows(np.empty((0, 3))).shape == (0, 3)
