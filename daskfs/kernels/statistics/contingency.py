"""Contingency tables of classes against bins of a feature, and their information gain."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.statistics.moments import column_sums, row_blocks, weighted_column_sums


def class_table(
    codes: np.ndarray, n_classes: int, membership: np.ndarray, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return the number of member rows of each class, for each column.

    Parameters
    ----------
    codes
        Shape (n_rows,), class codes from 0; -1 for rows to ignore.
    n_classes
        Number of classes.
    membership
        Panel, shape (n_rows, width), bool.
    weights
        Frequency weights, shape (n_rows,), float64; None for 1 each.

    Returns
    -------
    numpy.ndarray
        Shape (n_classes, width), float64. Exact for integer weights; each column is summed row by row, whatever the
        width.
    """
    table = np.zeros((n_classes, membership.shape[1]))
    for code in range(n_classes):
        members = np.flatnonzero(codes == code)
        for places in row_blocks(members.size):
            rows = members[places]
            block = membership[rows].astype(np.float64)
            table[code] += column_sums(block) if weights is None else weighted_column_sums(weights[rows], block)
    return table


def information_gain(tables: np.ndarray) -> np.ndarray:
    """Return the information gain H(Y) - H(Y | bin) of each column, in bits, shape (width,), float64.

    Parameters
    ----------
    tables
        Counts, shape (n_classes, n_bins, width), float64. Empty classes and bins are allowed.

    Notes
    -----
    Computed as the sum of p(y, b) log2(p(y, b) / (p(y) p(b))), not as a difference of entropies: its terms are exactly
    0 for a bin with the class shares of all rows.
    """
    n_classes, n_bins, width = tables.shape
    of_class = np.stack([column_sums(table) for table in tables])
    of_bin = np.stack([column_sums(np.ascontiguousarray(tables[:, part])) for part in range(n_bins)])
    total = column_sums(of_class)
    expected = (of_class[:, None] * of_bin[None]).reshape(n_classes * n_bins, width)
    observed = tables.reshape(n_classes * n_bins, width)
    terms = np.divide(observed * total, expected, out=np.zeros_like(observed), where=observed > 0)
    np.log2(terms, out=terms, where=observed > 0)
    gain = np.divide(column_sums(terms * observed), total, out=np.zeros(width), where=total > 0)
    return np.maximum(gain, 0.0)
