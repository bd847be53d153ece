"""Squared distances that are kept while columns leave."""

from __future__ import annotations

from typing import Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskfs.kernels.svm.incremental_distances import KeptSquares, squared_distances
from tests.cases import each


def direct(X: np.ndarray) -> np.ndarray:
    squares = np.zeros((len(X), len(X)))
    for x in X.T:
        squares += np.subtract.outer(x, x) ** 2
    return squares


def steps_of(seed: int, n_columns: int, n_steps: int) -> list[np.ndarray]:
    """Return columns that leave, some at a time; at least one stays."""
    order = np.random.default_rng(seed).permutation(n_columns)[: n_columns - 1]
    return [np.sort(part) for part in np.array_split(order, n_steps)]


def centered(seed: int, n: int, d: int) -> np.ndarray:
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X - X.mean(axis=0)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 20), st.integers(1, 6))
def test_as_made_directly(seed: int, n: int, d: int, n_steps: int) -> None:
    X = centered(seed, n, d)
    kept, steps = KeptSquares(X), steps_of(seed, d, n_steps)
    np.testing.assert_allclose(kept.values, direct(X), atol=1e-12 * max(1.0, direct(X).max()))
    left = np.ones(d, dtype=bool)
    for number in range(n_steps):
        kept.advance(steps[: number + 1])
        left[steps[number]] = False
        assert kept.n_steps == number + 1
        np.testing.assert_allclose(kept.values, direct(X[:, left]), atol=1e-11 * max(1.0, direct(X).max()))
        assert (kept.values >= 0).all()
        assert not np.diagonal(kept.values).any()


@each("order", ["C", "F"])
@each("n", [3, 100, 1030])
def test_the_same_bits_whenever_one_begins(n: int, order: Literal["C", "F"]) -> None:
    X = np.asarray(centered(0, n, 23) * np.logspace(-4, 2, 23), order=order)  # so that it is made anew in between
    steps = [np.sort(part) for part in np.array_split(np.arange(22)[::-1], 8)]
    slow = KeptSquares(X)
    seen = []
    for number in range(9):
        slow.advance(steps[:number])
        seen.append(slow.values.tobytes())
    for begin in (0, 3, 8):
        late = KeptSquares(X)
        late.advance(steps[:begin])
        assert late.values.tobytes() == seen[begin]
        late.advance(steps)
        assert late.values.tobytes() == seen[-1]


def test_a_column_of_huge_variance_leaves() -> None:
    """Nothing is left of its rounding."""
    X = centered(1, 60, 6)
    X[:, 2] *= 1e9
    kept = KeptSquares(X)
    expected = direct(np.delete(X, 2, axis=1))
    assert np.abs(direct(X) - X[:, [2]] ** 2).max() > 1e17
    kept.advance([np.array([2])])
    np.testing.assert_allclose(kept.values, expected, rtol=1e-12, atol=1e-12)


@each("factor", [3.0, 10.0, 30.0])
def test_variances_that_fall_step_by_step(factor: float) -> None:
    """Each step leaves a share of what there was, none of them little enough alone."""
    scale = factor ** np.arange(12)
    X = centered(2, 50, 12) * scale
    kept, steps = KeptSquares(X), [np.array([column]) for column in range(11, 0, -1)]
    for number in range(11):
        kept.advance(steps[: number + 1])
        expected = direct(X[:, : 11 - number])
        np.testing.assert_allclose(kept.values, expected, rtol=1e-9, atol=1e-11 * expected.max())


def test_rows_that_are_the_same_stay_so() -> None:
    X = centered(3, 40, 9)
    X[20:] = X[:20]
    kept = KeptSquares(X)
    kept.advance(steps_of(0, 9, 4))
    assert (np.diagonal(kept.values, 20) <= 1e-12).all()


def test_no_column_left() -> None:
    kept = KeptSquares(centered(4, 10, 3))
    kept.advance([np.arange(3)])
    assert not kept.values.any()
    assert not KeptSquares(np.zeros((5, 0))).values.any()


def test_squared_distances() -> None:
    A, B = centered(5, 30, 4), centered(6, 20, 4)
    np.testing.assert_allclose(squared_distances(A, B), ((A[:, None] - B[None]) ** 2).sum(axis=2), atol=1e-13)
