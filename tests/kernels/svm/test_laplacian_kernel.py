"""The kernel of Laplacian machines: minimizers it stands for, its inverse, its derivative."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.kernels.svm.laplacian_kernel import Deformed, deform
from daskfs.kernels.svm.laplacian_kernel import graph_laplacian as laplacian_of
from tests.cases import each
from tests.reference import svm as reference
from tests.reference.svm import gaussian, graph_laplacian, weston

N, LABELED = 60, np.sort(np.random.default_rng(0).permutation(60)[:25])
FEW = slice(0, 6)
"""Of so few features that the kernel is far from the identity."""


def problem(seed: int = 0, columns: slice = FEW) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y of labeled rows, K and L."""
    X, y = weston(N, seed)
    X = X[:, columns]
    return X, y[LABELED], gaussian(X, 1.0 / X.shape[1]), graph_laplacian(X, 6)


def plainly(K: np.ndarray, L: np.ndarray, gamma_intrinsic: float, rows: np.ndarray = LABELED) -> Deformed:
    return deform(K, sp.csr_matrix(L), gamma_intrinsic, rows, 1.0)


@pytest.mark.parametrize("gamma_intrinsic", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("seed", range(3))
class TestKernel:
    def test_inverse(self, seed: int, gamma_intrinsic: float) -> None:
        """G7: on all rows the kernel is (K^-1 + 2 gamma_I L)^-1."""
        _, _, K, L = problem(seed)
        found = plainly(K, L, gamma_intrinsic, np.arange(N)).values
        np.testing.assert_allclose(found, np.linalg.inv(np.linalg.inv(K) + 2 * gamma_intrinsic * L), atol=1e-8)

    def test_as_printed_with_2(self, seed: int, gamma_intrinsic: float) -> None:
        _, _, K, L = problem(seed)
        found = plainly(K, L, gamma_intrinsic)
        expected = reference.deformed(K, L, gamma_intrinsic)
        np.testing.assert_allclose(found.values, expected[np.ix_(LABELED, LABELED)], atol=1e-10)
        np.testing.assert_allclose(K @ found.pull, expected[:, LABELED], atol=1e-10)
        assert np.array_equal(found.values, found.values.T)
        assert np.linalg.eigvalsh(found.values).min() > -1e-12

    def test_square_loss(self, seed: int, gamma_intrinsic: float) -> None:
        """Machines with this kernel minimize the printed objective; with 1 / (4 gamma_I) they minimize another."""
        _, y, K, L = problem(seed)
        C = 10.0
        expected = reference.square_loss_values(K, L, y, LABELED, C, gamma_intrinsic)

        def values(gamma: float) -> np.ndarray:
            found = plainly(K, L, gamma)
            beta = np.linalg.solve(found.values + np.eye(len(y)) / C, y)
            return np.asarray(K @ (found.pull @ beta))

        np.testing.assert_allclose(values(gamma_intrinsic), expected, atol=1e-8)
        assert np.abs(values(2 * gamma_intrinsic) - expected).max() > 1e-3
        if gamma_intrinsic > 0.01:
            assert np.abs(values(2 * gamma_intrinsic) - expected).max() > 0.05

    def test_scale(self, seed: int, gamma_intrinsic: float) -> None:
        _, _, K, L = problem(seed)
        once = plainly(K, L, gamma_intrinsic)
        found = deform(K, sp.csr_matrix(L), gamma_intrinsic, LABELED)
        assert np.diagonal(found.values).mean() == pytest.approx(1.0, rel=1e-14)
        assert found.scale == pytest.approx(1 / np.diagonal(once.values).mean())
        assert found.scale > 1
        np.testing.assert_allclose(found.values, found.scale * once.values, rtol=1e-12)
        np.testing.assert_array_equal(found.pull, once.pull)

    @each("column", [0, 3, 5])
    def test_derivative(self, seed: int, gamma_intrinsic: float, column: int) -> None:
        """dK~ = P'dKP, and u'dKu with u = P beta: against differences of the kernel a little off to both sides."""
        X, y, K, L = problem(seed)
        direction = K * np.subtract.outer(X[:, column], X[:, column]) ** 2
        step = 1e-6
        found = plainly(K, L, gamma_intrinsic)
        differences = (
            plainly(K + step * direction, L, gamma_intrinsic).values
            - plainly(K - step * direction, L, gamma_intrinsic).values
        ) / (2 * step)
        change = found.pull.T @ direction @ found.pull
        np.testing.assert_allclose(change, differences, atol=2e-8 * np.abs(differences).max() + 1e-8)
        u = found.pull @ y
        assert u @ direction @ u == pytest.approx(y @ differences @ y, rel=1e-6, abs=1e-6)


def test_no_edges_leave_the_kernel() -> None:
    _, _, K, _ = problem()
    found = deform(K, sp.csr_matrix((N, N)), 0.1, LABELED)
    np.testing.assert_allclose(found.values, K[np.ix_(LABELED, LABELED)], atol=1e-15)
    assert found.scale == pytest.approx(1.0)


def test_laplacian_of_edges() -> None:
    X, _, _, L = problem()
    source, target = np.nonzero(np.triu(L < 0))
    found = laplacian_of(source, target, np.ones(source.size), N)
    np.testing.assert_array_equal(found.toarray(), L)
    f = X[:, 0]
    assert f @ found @ f == pytest.approx(((f[source] - f[target]) ** 2).sum())


def test_rows_without_labels_pull_values_together() -> None:
    """f'Lf falls while gamma_I grows."""
    _, y, K, L = problem()
    rough = []
    for gamma in (1e-4, 1e-2, 1.0, 100.0):
        f = reference.square_loss_values(K, L, y, LABELED, 10.0, gamma)
        found = plainly(K, L, gamma)
        np.testing.assert_allclose(
            f[LABELED], found.values @ np.linalg.solve(found.values + np.eye(25) / 10, y), atol=1e-7
        )
        rough.append(f @ L @ f / (f @ f))
    assert np.all(np.diff(rough) < 0)
