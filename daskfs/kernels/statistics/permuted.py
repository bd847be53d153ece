"""p-values of ratios of quadratic forms by sequential permutation, compiled.

Values that equal the usual one of a column change no form, which depends on differences alone. So a permutation costs
the rows that carry other values, and their edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from daskfs.kernels.compiled import compiled

ENOUGH, LEAST_DRAWN = 20, 200
"""Permutations at least as good as the observed order that settle a p-value, and fewest permutations at all."""
MOST_DRAWN = 4999
MOST_STEPS = 2**31
"""Entries of the weights that are visited for a column, unless that leaves fewer than the least permutations."""
ROUNDING = 1e-11
_SHIFT, _MULTIPLIER, _INCREMENT = np.uint64(32), np.uint64(6364136223846793005), np.uint64(1442695040888963407)


@dataclass(frozen=True)
class RatioTerms:
    """Terms of the forms f'Af and f'Bf of one column, over rows i and classes.

    f'Af is the sum of a_i f_i**2, less f'Wf, less the sum of the squares of class sums. f'Bf is the sum of b_i f_i**2,
    less (g'f)**2.

    Attributes
    ----------
    a, b, g
        Shape (n_rows,), float64.
    weights
        W, symmetric, of zero diagonal.
    codes
        Class of each row, shape (n_rows,), int64, -1 for none.
    n_classes
        Number of classes.
    """

    a: np.ndarray
    b: np.ndarray
    g: np.ndarray
    weights: sp.csr_matrix
    codes: np.ndarray
    n_classes: int


def permuted_pvalues(F: np.ndarray, terms: RatioTerms, rows: np.ndarray) -> np.ndarray:
    """Return p-values by sequential permutation (Besag and Clifford 1991).

    A column is permuted until :data:`ENOUGH` permutations, of :data:`LEAST_DRAWN` or more, have a ratio as small as its
    own order, or there were :data:`MOST_DRAWN` of them. The generator starts anew for each column, so that the result
    does not depend on which are tested together.

    Parameters
    ----------
    F
        Columns, shape (n_samples, width).
    terms
        Terms of the ratio.
    rows
        Rows over which values are permuted, shape (n_rows,), int64.

    Returns
    -------
    numpy.ndarray
        Shape (width,), float64: (m + 1) / (n + 1) for m good ones of n permutations, or m / n if m ended them.
    """
    pvalues = np.empty(F.shape[1])
    W = terms.weights
    arrays = np.stack([terms.a, terms.b, terms.g]), W.indptr, W.indices, W.data, terms.codes
    for column in range(F.shape[1]):
        values = F[rows, column].astype(np.float64)
        values -= np.partition(values, values.size // 2)[values.size // 2]  # most values, where these are equal
        values -= 0.0 if 2 * np.count_nonzero(values) < values.size else values.mean()
        carriers = np.flatnonzero(values)
        order = np.concatenate([rows[carriers], np.delete(rows, carriers)])
        steps = carriers.size * (1 + W.nnz / max(W.shape[0], 1))
        most = int(np.clip(MOST_STEPS / max(steps, 1), LEAST_DRAWN, MOST_DRAWN))
        sums = np.zeros(terms.n_classes)
        n_better, n_drawn = _permute(values[carriers], order, arrays, sums, most)
        by_count = n_better < ENOUGH or n_drawn == LEAST_DRAWN
        pvalues[column] = (n_better + 1) / (n_drawn + 1) if by_count else n_better / n_drawn
    return pvalues


@compiled
def _permute(
    values: np.ndarray, order: np.ndarray, arrays: tuple[np.ndarray, ...], sums: np.ndarray, most: int
) -> tuple[int, int]:
    """Return the number of good permutations, and of all; the first rows of `order` carry the values."""
    f = np.zeros(arrays[0].shape[1])
    state, n_rows = np.uint64(88172645463325252), np.uint64(order.size)
    numerator, denominator = _forms(values, order, arrays, sums, f)
    c = numerator / denominator
    n_better = 0
    for number in range(1, most + 1):
        for k in range(values.size):
            state = state * _MULTIPLIER + _INCREMENT
            j = k + np.int64(((state >> _SHIFT) * (n_rows - np.uint64(k))) >> _SHIFT)
            order[k], order[j] = order[j], order[k]
        numerator, denominator = _forms(values, order, arrays, sums, f)
        n_better += numerator - c * denominator <= ROUNDING * (abs(numerator) + abs(c * denominator))
        if n_better >= ENOUGH and number >= LEAST_DRAWN:
            return n_better, number
    return n_better, most


@compiled
def _forms(
    values: np.ndarray, order: np.ndarray, arrays: tuple[np.ndarray, ...], sums: np.ndarray, f: np.ndarray
) -> tuple[float, float]:
    """Return f'Af and f'Bf; `f` is zero before and after, `sums` has room for the sums of the classes."""
    diagonals, starts, targets, weights, codes = arrays
    a, b, line, joined = 0.0, 0.0, 0.0, 0.0
    for k in range(values.size):
        f[order[k]] = values[k]
    sums[:] = 0.0
    for k in range(values.size):
        i, x = order[k], values[k]
        a += diagonals[0, i] * x * x
        b += diagonals[1, i] * x * x
        line += diagonals[2, i] * x
        if codes[i] >= 0:
            sums[codes[i]] += x
        near = 0.0
        for e in range(starts[i], starts[i + 1]):
            near += weights[e] * f[targets[e]]
        joined += x * near
    for k in range(values.size):
        f[order[k]] = 0.0
    for one in sums:
        a -= one * one
    return a - joined, b - line * line
