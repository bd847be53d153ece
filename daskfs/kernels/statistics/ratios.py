"""Ratios f'Af / f'Bf of the criteria, and the invariants of A - cB, exact but for tr W**3 of many rows.

W is the symmetric matrix of edge weights without its diagonal. Products with W and with the matrices of the squares and
cubes of its entries come from a stream of edges, of two passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

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
    """Forms A = L of a weighted graph, and B = D - dd' / 1'd, D diagonal.

    Parameters
    ----------
    sums
        Row sums of W, shape (n_rows,), float64.
    diagonal
        Diagonal d of D, shape (n_rows,), float64.
    products
        Products with W.
    """

    def __init__(self, sums: np.ndarray, diagonal: np.ndarray, products: Products) -> None:
        self._sums, self._diagonal, self._products = sums, diagonal, products

    def terms(self, weights: sp.csr_matrix) -> RatioTerms:
        """Return the terms of the forms; `weights` is W."""
        from daskfs.kernels.statistics.permuted import RatioTerms

        d = self._diagonal
        return RatioTerms(self._sums, d, d / np.sqrt(d.sum()), weights, np.full(d.size, -1), 0)

    def invariants(self, seed: int = 0) -> RatioInvariants:
        """Return the invariants of A - cB; `seed` is that of the random vectors."""
        a, d, products = self._sums, self._diagonal, self._products
        total, d2 = d.sum(), d**2
        b = d - d2 / total
        ones, probes = np.ones((d.size, 1)), _probes(d.size, seed)
        product_by_power = products({1: np.column_stack([a, d, d2, probes]), 2: np.column_stack([ones, d]), 3: ones})
        w_a, w_d, w_d2 = product_by_power[1].T[:3]
        squares, w2_d = product_by_power[2].T
        images = product_by_power[1][:, 3:]
        triangles = float(np.einsum("ij,ij->", images, products({1: images})[1])) / images.shape[1]  # z'W**3 z
        sum2, sum3 = d2.sum(), (d2 * d).sum()
        rest = d2 * (sum2 - d2) / total**2  # of B, off the diagonal
        lap_d = a * d - w_d
        across = w_d / total
        L_a, L_b = a * a - w_a, a * b - (w_d - w_d2 / total)
        B_a, B_b = d * a - d * (d @ a) / total, d * b - d * (d @ b) / total
        traces = [
            (a**3).sum() + 3 * (a @ squares) - triangles,
            d @ (a**2 + squares) - (lap_d @ lap_d) / total,
            a @ d2 - 2 * (d2 @ lap_d) / total + sum2 * (d @ lap_d) / total**2,
            sum3 - 3 * (d2 @ d2) / total + 3 * sum3 * sum2 / total**2 - (sum2 / total) ** 3,
        ]
        cubes = [-product_by_power[3].sum(), 3 * (d @ w2_d) / total, -3 * (d2 @ w_d2) / total**2]
        cubes.append((sum3**2 - (d2**3).sum()) / total**3)
        diagonal_squares = np.array([a @ a, -2 * (a @ b), b @ b])
        diagonal_cubes = np.array([(a**3).sum(), -3 * (a**2 @ b), 3 * (a @ b**2), -(b**3).sum()])
        rows = [a @ squares, -(b @ squares) - 2 * (a * d) @ across, a @ rest + 2 * (b * d) @ across, -(b @ rest)]
        return RatioInvariants(
            trace=np.array([a.sum(), -b.sum()]),
            diagonal_squares=diagonal_squares,
            squares=diagonal_squares + np.array([squares.sum(), -2 * (d @ across), rest.sum()]),
            diagonal_cubes=diagonal_cubes,
            diagonal_rows=diagonal_cubes + rows,
            diagonal_form=np.array([a @ L_a, -2 * (a @ L_b) - a @ B_a, b @ L_b + 2 * (a @ B_b), -(b @ B_b)]),
            cubes=diagonal_cubes + cubes,
            trace_cubed=np.array(traces) * [1, -3, 3, -1],
        )


def class_terms(codes: np.ndarray, n_classes: int) -> RatioTerms:
    """Return the terms of form A of the pairs of labeled rows of one class: the sum over classes of size times scatter.

    Permutations of labels leave the scatter of all labeled rows as it is, so B is that scatter. `codes`, shape
    (n_rows,), int64, are the classes, -1 for unlabeled.
    """
    from daskfs.kernels.statistics.permuted import RatioTerms

    is_labeled = (codes >= 0).astype(np.float64)
    sizes = np.bincount(codes[codes >= 0], minlength=n_classes)
    none = sp.csr_matrix((codes.size, codes.size))
    line = is_labeled / np.sqrt(is_labeled.sum())
    return RatioTerms(is_labeled * sizes[codes], is_labeled, line, none, codes, n_classes)


def class_invariants(sizes: np.ndarray) -> tuple[float, RatioInvariants]:
    """Return the ratio f'Af / f'Bf to be expected by chance, e, and the invariants of A - eB of :func:`class_terms`.

    `sizes`, shape (n_classes,), float64, are the numbers of labeled rows, at least 1 of each class and 2 in all.

    Notes
    -----
    The expectation of T is 0 at e, so that its variance is no difference of large numbers. Entries of the matrix are
    constant within classes: on the diagonal, beside it, and between classes.
    """
    total = sizes.sum()
    pairs = sizes * (sizes - 1)
    expected = float(pairs.sum() / (total - 1))
    diagonal, same, other = sizes - 1 - expected * (1 - 1 / total), expected / total - 1, expected / total
    n_same, n_other = pairs.sum(), total**2 - sizes @ sizes
    squares, cubes = sizes @ diagonal**2, sizes @ diagonal**3
    rows = (sizes - 1) * same**2 + (total - sizes) * other**2
    by_class = sizes * diagonal
    form = cubes + same * (pairs @ diagonal**2) + other * (by_class.sum() ** 2 - by_class @ by_class)
    values = {
        "trace": 0.0,
        "diagonal_squares": squares,
        "squares": squares + n_same * same**2 + n_other * other**2,
        "diagonal_cubes": cubes,
        "diagonal_rows": cubes + by_class @ rows,
        "diagonal_form": form,
        "cubes": cubes + n_same * same**3 + n_other * other**3,
        "trace_cubed": (sizes - 1) @ (sizes - expected) ** 3 - (sizes.size - 1) * expected**3,
    }
    return expected, RatioInvariants.from_json({name: [value] for name, value in values.items()})


def _probes(n_rows: int, seed: int) -> np.ndarray:
    """Return vectors z with E zz' = I, shape (n_rows, n_probes): unit vectors of few rows, else random signs."""
    count = n_probes(n_rows)
    if count == n_rows:
        return np.eye(n_rows) * np.sqrt(n_rows)
    return 2.0 * np.random.default_rng([seed, n_rows]).integers(0, 2, (n_rows, count)) - 1.0
