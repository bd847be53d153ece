"""Three shapes of S: the same products, and systems that solve what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from daskfs.kernels.regression.grams import Gram, MatrixGram, ProductNeeded, ReplayedGram, RowsGram

N_ROWS, N_FEATURES = 12, 30
A = np.random.default_rng(0).normal(size=(N_ROWS, N_FEATURES)) * np.logspace(-2, 2, N_FEATURES)
S = A.T @ A
MAKERS: list[Callable[[], Gram]] = [lambda: MatrixGram(S.copy()), lambda: RowsGram(A)]
FEW, MANY = np.array([1, 4, 9]), np.arange(3, 28)


@pytest.mark.parametrize("make", MAKERS, ids=["matrix", "rows"])
class TestShapes:
    def test_products(self, make: Callable[[], Gram]) -> None:
        gram = make()
        np.testing.assert_allclose(gram.diagonal, np.diagonal(S), rtol=1e-13)
        W = np.random.default_rng(1).normal(size=(N_FEATURES, 3))
        np.testing.assert_allclose(gram.product(W), S @ W, rtol=1e-9, atol=1e-9)
        W[4:] = 0.0
        np.testing.assert_allclose(gram.product(W), S @ W, rtol=1e-9, atol=1e-9)
        assert not gram.product(np.zeros_like(W)).any()

    @pytest.mark.parametrize("features", [FEW, MANY, np.arange(N_FEATURES)], ids=["few", "many", "all"])
    def test_among(self, make: Callable[[], Gram], features: np.ndarray) -> None:
        gram, part = make(), S[np.ix_(features, features)]
        V = np.random.default_rng(2).normal(size=(features.size, 2))
        np.testing.assert_allclose(gram.among(features).product(V), part @ V, rtol=1e-9, atol=1e-9)
        scale = np.random.default_rng(3).uniform(0.1, 2, features.size)
        found = gram.among(features).solver(scale)(V)
        np.testing.assert_allclose(part @ found + found / scale[:, None] ** 2, V, atol=1e-8)

    def test_a_scale_of_zero_gives_zero(self, make: Callable[[], Gram]) -> None:
        scale = np.ones(MANY.size)
        scale[[0, 7]] = 0.0
        found = make().among(MANY).solver(scale)(np.ones((MANY.size, 2)))
        assert (found[[0, 7]] == 0.0).all()
        kept = np.setdiff1d(np.arange(MANY.size), [0, 7])
        part = S[np.ix_(MANY[kept], MANY[kept])]
        np.testing.assert_allclose(part @ found[kept] + found[kept], 1.0, atol=1e-8)

    def test_other_features_after_some(self, make: Callable[[], Gram]) -> None:
        gram = make()
        gram.among(FEW)
        V = np.ones((3, 1))
        np.testing.assert_allclose(gram.among(FEW + 2).product(V), S[np.ix_(FEW + 2, FEW + 2)] @ V, rtol=1e-9)
        assert gram.among(FEW + 2) is gram.among(FEW + 2)


class TestReplayed:
    def test_asks_for_what_is_missing_and_gives_what_was_made(self) -> None:
        products: list[np.ndarray] = []
        W = np.random.default_rng(4).normal(size=(N_FEATURES, 2))

        def compute() -> np.ndarray:
            gram = ReplayedGram(np.diagonal(S), products)
            part = gram.among(MANY)
            return gram.product(W)[MANY] + part.product(part.product(W[MANY]))

        for _ in range(3):
            with pytest.raises(ProductNeeded) as asked:
                compute()
            products.append(S @ asked.value.W)
        part = S[np.ix_(MANY, MANY)]
        np.testing.assert_allclose(compute(), (S @ W)[MANY] + part @ (part @ W[MANY]), rtol=1e-9)

    def test_zeros_cost_no_pass(self) -> None:
        assert not ReplayedGram(np.diagonal(S), []).product(np.zeros((N_FEATURES, 2))).any()

    def test_systems_are_those_of_the_diagonal(self) -> None:
        scale = np.random.default_rng(5).uniform(0, 2, MANY.size)
        scale[0] = 0.0
        R = np.ones((MANY.size, 2))
        found = ReplayedGram(np.diagonal(S), []).among(MANY).solver(scale)(R)
        assert (found[0] == 0.0).all()
        expected = R[1:] / (np.diagonal(S)[MANY][1:] + 1 / scale[1:] ** 2)[:, None]
        np.testing.assert_allclose(found[1:], expected, rtol=1e-12)
