"""Products with rows that are centered and scaled: dense and sparse blocks alike, means of any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.regression.centered import CenteredRows, rows_per_block
from tests.cases import each

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(40, 6)) * 16) / 16
X[RNG.random(X.shape) < 0.5] = 0.0
SCALE = np.array([1.0, 0.0, 2.5, 1e-6, 1e6, 0.3])
W, Y = RNG.normal(size=(6, 3)), RNG.normal(size=(40, 3))


FORMS: list[Callable[[np.ndarray], Any]] = [
    np.asarray,
    np.float32,
    sp.csr_matrix,
    lambda X: sp.csr_matrix(X.astype(np.float32)),
]


def taken(block: Any, mean: np.ndarray, scale: np.ndarray) -> CenteredRows:
    rows = CenteredRows(mean, scale)
    rows.take(block)
    return rows


@each("form", FORMS)
def test_products(form: Callable[[np.ndarray], Any]) -> None:
    mean = X.mean(axis=0)
    Z = (X - mean) * SCALE
    rows = taken(form(X), mean, SCALE)
    np.testing.assert_allclose(rows.products(W)(), Z @ W, rtol=1e-12, atol=1e-6)
    np.testing.assert_allclose(rows.scaled(rows.cross(Y)), Z.T @ Y, rtol=1e-12, atol=1e-6)
    both = np.stack([rows.cross(Y), rows.cross(2 * Y)])
    np.testing.assert_allclose(rows.scaled(both), [Z.T @ Y, 2 * Z.T @ Y], rtol=1e-12, atol=1e-6)


def test_one_block_after_the_other() -> None:
    mean, rows = X.mean(axis=0), CenteredRows(X.mean(axis=0), SCALE)
    products = rows.products(W)
    for part in (slice(0, 10), slice(10, 13), slice(13, 40)):
        for form in FORMS:
            rows.take(form(X[part]))
            np.testing.assert_allclose(products(), ((X[part] - mean) * SCALE) @ W, rtol=1e-12, atol=1e-6)
            np.testing.assert_allclose(rows.cross(Y[part]), (X[part] - mean).T @ Y[part], rtol=1e-12, atol=1e-12)


@each("form", [np.asarray, sp.csr_matrix])
def test_an_offset_costs_few_digits(form: Callable[[np.ndarray], Any]) -> None:
    scale = np.ones(6)
    expected = taken(X, X.mean(axis=0), scale)
    rows = taken(form(X + 1e8), X.mean(axis=0) + 1e8, scale)
    np.testing.assert_allclose(rows.products(W)(), expected.products(W)(), atol=1e-6)
    np.testing.assert_allclose(rows.cross(Y), expected.cross(Y), atol=1e-5)


def test_the_block_of_the_caller_is_left_alone() -> None:
    for block in (X.copy(), sp.csr_matrix(X)):
        taken(block, X.mean(axis=0), SCALE).products(W)()
        np.testing.assert_array_equal(block if isinstance(block, np.ndarray) else block.toarray(), X)


@each("n_features", [1, 63, 64, 100, 4096, 10**6])
def test_heights_are_powers_of_two(n_features: int) -> None:
    height = rows_per_block(n_features)
    assert height & (height - 1) == 0
    assert 64 <= height <= 4096
    assert rows_per_block(n_features, 8) >= height
