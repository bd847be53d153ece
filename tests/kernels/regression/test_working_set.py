"""RLSR's weights among the few features that matter: the same minimum, for fewer products of S."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.regression.grams import Gram, MatrixGram, RowsGram
from daskfs.kernels.regression.rescaled import Iterate, advance, certificate, objective, start_at, working_set
from tests.cases import each

N_ROWS, N_FEATURES, GAMMA = 300, 900, 60.0


def rows_and_cross() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, N_ROWS)
    A = rng.normal(size=(N_ROWS, N_FEATURES))
    A[:, :30] += rng.normal(size=(3, 30))[y]
    A -= A.mean(axis=0)
    return A, A.T @ np.eye(3)[y]


class Counted:
    """S whose products are counted; `few` is whether it gives S among some features."""

    def __init__(self, gram: MatrixGram | RowsGram, few: bool) -> None:
        self.gram, self.few, self.n_products, self.diagonal = gram, few, 0, gram.diagonal
        self.among = gram.among

    def product(self, W: np.ndarray) -> np.ndarray:
        self.n_products += 1
        return self.gram.product(W)

    def within(self, features: np.ndarray) -> Gram | None:
        return self.gram.within(features) if self.few else None


def solved(gram: Counted, cross: np.ndarray) -> Iterate:
    at = start_at(gram.diagonal, cross.shape[1])
    before = objective(at, cross, GAMMA)
    for _ in range(100):
        at = advance(gram, at, cross, GAMMA, 1e-9)
        reached = objective(at, cross, GAMMA)
        assert reached <= before + 1e-12 * abs(before)
        before = reached
        if certificate(at, cross, GAMMA).holds(1e-9):
            return at
    raise AssertionError


@each("way", ["matrix", "rows"])
def test_same_minimum_for_a_fifth_of_the_products(way: str) -> None:
    A, cross = rows_and_cross()
    gram = MatrixGram(A.T @ A) if way == "matrix" else RowsGram(A)
    alone, together = Counted(gram, few=False), Counted(gram, few=True)
    expected, found = solved(alone, cross), solved(together, cross)
    assert 10 < np.count_nonzero(found.W.any(axis=1)) < 100
    np.testing.assert_allclose(found.W, expected.W, atol=1e-7 * np.abs(expected.W).max())
    np.testing.assert_allclose(found.SW, A.T @ (A @ found.W), rtol=1e-9, atol=1e-9)
    assert together.n_products <= alone.n_products / 5


def test_what_is_not_few_is_left_out() -> None:
    A, _ = rows_and_cross()
    for gram in (MatrixGram(A.T @ A), RowsGram(A)):
        assert gram.within(np.arange(N_FEATURES - 1)) is None
        some = np.array([3, 5, 700])
        few = gram.within(some)
        assert few is not None
        np.testing.assert_allclose(few.product(np.eye(3)), A[:, some].T @ A[:, some], rtol=1e-12)


def test_a_working_set_holds_all_that_is_not_zero_and_the_nearest_others() -> None:
    _, cross = rows_and_cross()
    W = np.zeros_like(cross)
    W[[1, 899]] = 1e-30
    at = Iterate(W, np.zeros_like(W), 1.0)
    features = working_set(at, cross)
    nearest = np.argsort(-np.linalg.norm(cross, axis=1))[:40]
    assert (np.diff(features) > 0).all()
    assert {1, 899, *nearest.tolist()} <= set(features.tolist())
    assert features.size == 52
    assert working_set(Iterate(0 * W, cross.copy(), 1.0), cross).size == 0
