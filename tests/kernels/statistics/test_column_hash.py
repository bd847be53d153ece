"""Hashes of columns: the same for equal columns, whatever the cut, the type and the storage."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.kernels.statistics import column_hash
from daskfs.kernels.statistics.column_hash import column_hashes, first_equal
from tests.cases import each


def matrix() -> np.ndarray:
    """Return small whole numbers, shape (300, 12): columns 5 and 9 equal column 2, column 7 equals column 0."""
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, size=(300, 12)).astype(np.float64)
    X[:, [5, 9]] = X[:, [2]]
    X[:, 7] = X[:, 0]
    return X


EXPECTED = [0, 1, 2, 3, 4, 2, 6, 0, 8, 2, 10, 11]


@each("form", [np.asarray, np.asfortranarray, sp.csr_matrix])
@each("dtype", ["f8", "f4", "i2", "i1"])
def test_types_and_storage_do_not_matter(form: type, dtype: str) -> None:
    found = column_hashes(form(matrix().astype(dtype)), 0)
    np.testing.assert_array_equal(found, column_hashes(matrix(), 0))
    assert first_equal(found).tolist() == EXPECTED


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_any_cut_gives_the_same(form: type, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    X = matrix()
    whole = column_hashes(X, 0)
    monkeypatch.setattr(column_hash, "VALUES_AT_ONCE", at_once)
    parts = [column_hashes(form(X[a:b]), a) for a, b in itertools.pairwise([0, 1, 1, 120, 299, 300])]
    np.testing.assert_array_equal(sum(parts[::-1], np.zeros_like(whole)), whole)


def test_one_value_apart() -> None:
    X = np.repeat(matrix()[:, :1], 300, axis=1)
    X[np.arange(1, 300), np.arange(1, 300)] += 1  # each column in another row
    assert first_equal(column_hashes(X, 0)).tolist() == list(range(300))


def test_rows_in_another_order_are_another_column() -> None:
    X = np.array([[1.0, 2.0, 2.0], [2.0, 1.0, 1.0], [0.0, 0.0, -0.0]])
    assert first_equal(column_hashes(X, 0)).tolist() == [0, 1, 1]


def test_zeros_of_either_sign_and_missing_values_of_either_sign_are_equal() -> None:
    X = np.array([[0.0, -0.0, 0.0], [np.nan, -np.nan, 1.0], [3.0, 3.0, 3.0]])
    assert first_equal(column_hashes(X, 5)).tolist() == [0, 0, 2]
    stored = sp.csr_matrix((np.array([-0.0, 3.0]), np.array([0, 0]), np.array([0, 1, 2])), shape=(2, 1))
    np.testing.assert_array_equal(column_hashes(stored, 0), column_hashes(np.array([[0.0], [3.0]]), 0))


def test_random_columns_of_few_values_do_not_collide() -> None:
    X = np.random.default_rng(1).integers(0, 2, size=(64, 20_000)).astype(np.uint8)
    X = np.unique(X, axis=1)
    hashes = column_hashes(X, 0)
    assert all(np.unique(one).size == X.shape[1] for one in hashes)
