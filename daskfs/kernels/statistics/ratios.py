"""Ratios f'Af / f'Bf of the criteria, and the invariants of A - cB, exact but for tr W**3 of many rows.

W is the symmetric matrix of edge weights without its diagonal. Products with W and with the matrices of the squares and
cubes of its entries come from a stream of edges, of two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.statistics.permutation import RatioInvariants

if TYPE_CHECKING:  # importing it imports numba
    from daskfs.kernels.statistics.permuted import RatioTerms

PROBE_VALUES = 2**20
"""Values of the random vectors that estimate tr W**3; up to 1,024 rows unit vectors give it exactly."""
Products = Callable[[Mapping[int, np.ndarray]], Mapping[int, np.ndarray]]
"""Takes panels of shape (n_rows, width) by a power, and returns the products with W of entries to that power."""


def n_probes(n_rows: int) -> int:
    """Return the number of vectors that estimate tr W**3."""
    return min(n_rows, max(1, PROBE_VALUES // n_rows))


class LaplacianRatio:
    """Forms A = L and B = D - dd' / 1'd of a weighted graph.

    Parameters
    ----------
    degrees, loops
        Row sums d of the weights with the diagonal, and the diagonal, shape (n_rows,), float64.
    products
        Products with W.
    """

    def __init__(self, degrees: np.ndarray, loops: np.ndarray, products: Products) -> None:
        self._degrees, self._loops, self._products = degrees, loops, products

    def terms(self, weights: sp.csr_matrix) -> RatioTerms:
        """Return the terms of the forms; `weights` is W."""
        from daskfs.kernels.statistics.permuted import RatioTerms

        d = self._degrees
        none = np.full(d.size, -1)
        return RatioTerms(
            d - self._loops,
            d,
            d / np.sqrt(d.sum()),
            weights,
            in_numerator=True,
            codes=none,
            n_classes=0,
            class_weight=0.0,
        )

    def invariants(self, seed: int = 0) -> RatioInvariants:
        """Return the invariants of A - cB; `seed` is that of the random vectors."""
        d, loops, products = self._degrees, self._loops, self._products
        total = d.sum()
        a, d2 = d - loops, d**2
        b = d - d2 / total
        ones, probes = np.ones((d.size, 1)), _probes(d.size, seed)
        found = products({1: np.column_stack([a, d, d2, probes]), 2: np.column_stack([ones, d]), 3: ones})
        w_a, w_d, w_d2 = found[1].T[:3]
        squares, w2_d = found[2].T
        triangles = _trace_cubed(found[1][:, 3:], products)
        sum2, sum3 = d2.sum(), (d2 * d).sum()
        rest = d2 * (sum2 - d2) / total**2  # of B, off the diagonal
        lap_d = a * d - w_d
        across = w_d / total

        def lap(x: np.ndarray, w_x: np.ndarray) -> np.ndarray:
            return a * x - w_x

        def centered(x: np.ndarray) -> np.ndarray:
            return d * x - d * (d @ x) / total

        return _invariants(
            a,
            b,
            squares=[squares.sum(), -2 * (d @ across), rest.sum()],
            rows=[a @ squares, -(b @ squares) - 2 * (a * d) @ across, a @ rest + 2 * (b * d) @ across, -(b @ rest)],
            forms=_bilinear(a, b, lap(a, w_a), lap(b, w_d - w_d2 / total), centered(a), centered(b)),
            cubes=[
                -found[3].sum(),
                3 * (d @ w2_d) / total,
                -3 * (d2 @ w_d2) / total**2,
                (sum3**2 - (d2**3).sum()) / total**3,
            ],
            traces=[
                (a**3).sum() + 3 * (a @ squares) - triangles,
                d @ (a**2 + squares) - (lap_d @ lap_d) / total,
                a @ d2 - 2 * (d2 @ lap_d) / total + sum2 * (d @ lap_d) / total**2,
                sum3 - 3 * (d2 @ d2) / total + 3 * sum3 * sum2 / total**2 - (sum2 / total) ** 3,
            ],
        )


class ClassRatio:
    """Forms A of all pairs of labeled rows of different classes, and B of near rows and of pairs of one class.

    Parameters
    ----------
    codes
        Class of each row, shape (n_rows,), -1 for unlabeled.
    n_classes
        Number of classes.
    same_class_weight
        Weight in B of two labeled rows of one class.
    products
        Products with W, which has no edge between labeled rows.
    """

    def __init__(self, codes: np.ndarray, n_classes: int, same_class_weight: float, products: Products) -> None:
        self._weight, self._products = same_class_weight, products
        self._is_labeled = codes >= 0
        self._members = (codes[:, None] == np.arange(n_classes)).astype(np.float64)
        self._sizes = self._members.sum(axis=0)
        own_size = self._members @ self._sizes
        self._a = np.where(self._is_labeled, self._sizes.sum() - own_size, 0.0)
        self._mates = np.where(self._is_labeled, own_size - 1, 0.0)

    def terms(self, weights: sp.csr_matrix) -> RatioTerms:
        """Return the terms of the forms; `weights` is W."""
        from daskfs.kernels.statistics.permuted import RatioTerms

        degrees = np.asarray(weights.sum(axis=1)).ravel()
        return RatioTerms(
            self._a,
            self._weight * (self._mates + self._is_labeled) + degrees,
            np.zeros(self._a.size),
            weights,
            in_numerator=False,
            codes=np.where(self._is_labeled, self._members.argmax(axis=1), -1),
            n_classes=self._sizes.size,
            class_weight=self._weight,
        )

    def invariants(self, seed: int = 0) -> RatioInvariants:
        """Return the invariants of A - cB; `seed` is that of the random vectors."""
        weight, products, sizes, is_labeled = self._weight, self._products, self._sizes, self._is_labeled
        a, mates, members = self._a, self._mates, self._members
        n_labeled, n_classes, ones = sizes.sum(), sizes.size, np.ones((a.size, 1))
        b = weight * mates + products({1: ones})[1][:, 0]
        panel = np.column_stack([a, b, members, _probes(a.size, seed)])
        found = products({1: panel, 2: ones, 3: ones})
        w_a, w_b, into = found[1][:, 0], found[1][:, 1], found[1][:, 2 : 2 + n_classes]
        triangles = _trace_cubed(found[1][:, 2 + n_classes :], products)
        squares, cubes = found[2][:, 0], found[3].sum()
        apart, together = (sizes * (n_labeled - sizes)).sum(), (sizes * (sizes - 1)).sum()
        rest = weight**2 * mates + squares
        joined = (into[~is_labeled] ** 2).sum()
        crossing = (into[~is_labeled].sum(axis=1) ** 2).sum() - joined

        def between(x: np.ndarray) -> np.ndarray:
            sums = x @ members
            return a * x - np.where(is_labeled, sums.sum() - members @ sums, 0.0)

        def within(x: np.ndarray, w_x: np.ndarray) -> np.ndarray:
            return b * x - np.where(is_labeled, weight * (members @ (x @ members) - x), 0.0) - w_x

        off_cubed = weight**3 * (sizes * (sizes - 1) * (sizes - 2)).sum() + triangles
        off_cubed += 3 * weight * (joined - squares[is_labeled].sum())
        return _invariants(
            a,
            b,
            squares=[apart, 0.0, rest.sum()],
            rows=[a @ a, -(a @ b), a @ rest, -(b @ rest)],
            forms=_bilinear(a, b, between(a), between(b), within(a, w_a), within(b, w_b)),
            cubes=[-apart, 0.0, 0.0, weight**3 * together + cubes],
            traces=[
                (a**3).sum() + 3 * (a @ a) - (n_labeled**3 - 3 * n_labeled * (sizes**2).sum() + 2 * (sizes**3).sum()),
                (a**2 + a) @ b - weight * (sizes * (sizes - 1) * (n_labeled - sizes)).sum(),
                a @ (b**2 + rest) - crossing,
                (b**3).sum() + 3 * (b @ rest) - off_cubed,
            ],
        )


def _invariants(
    a: np.ndarray,
    b: np.ndarray,
    *,
    squares: Sequence[Any],
    rows: Sequence[Any],
    forms: Sequence[Any],
    cubes: Sequence[Any],
    traces: Sequence[Any],
) -> RatioInvariants:
    """Return the invariants from the diagonals of A and B and the parts beside the diagonal, by powers of c."""
    diagonal_squares = np.array([a @ a, -2 * (a @ b), b @ b])
    diagonal_cubes = np.array([(a**3).sum(), -3 * (a**2 @ b), 3 * (a @ b**2), -(b**3).sum()])
    return RatioInvariants(
        trace=np.array([a.sum(), -b.sum()]),
        diagonal_squares=diagonal_squares,
        squares=diagonal_squares + squares,
        diagonal_cubes=diagonal_cubes,
        diagonal_rows=diagonal_cubes + rows,
        diagonal_form=np.array(forms),
        cubes=diagonal_cubes + cubes,
        trace_cubed=np.array(traces) * [1, -3, 3, -1],
    )


def _bilinear(
    a: np.ndarray, b: np.ndarray, A_a: np.ndarray, A_b: np.ndarray, B_a: np.ndarray, B_b: np.ndarray
) -> list[float]:
    """Return (a - cb)'(A - cB)(a - cb) by powers of c, from the products of the matrices with a and b."""
    return [float(value) for value in (a @ A_a, -2 * (a @ A_b) - a @ B_a, b @ A_b + 2 * (a @ B_b), -(b @ B_b))]


def _probes(n_rows: int, seed: int) -> np.ndarray:
    """Return vectors z with E zz' = I, shape (n_rows, n_probes): unit vectors of few rows, else random signs."""
    count = n_probes(n_rows)
    if count == n_rows:
        return np.eye(n_rows) * np.sqrt(n_rows)
    return 2.0 * np.random.default_rng([seed, n_rows]).integers(0, 2, (n_rows, count)) - 1.0


def no_products(panels: Mapping[int, np.ndarray]) -> Mapping[int, np.ndarray]:
    """Return the products with a matrix of zeros."""
    return {power: np.zeros_like(panel) for power, panel in panels.items()}


def _trace_cubed(images: np.ndarray, products: Products) -> float:
    """Return tr W**3 from W z of the probes, as the mean of z'W**3 z."""
    again = products({1: images})[1]
    return float(np.einsum("ij,ij->", images, again)) / images.shape[1]
