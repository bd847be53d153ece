"""The Laplacian quadratic form as a sum over edges."""

from __future__ import annotations

import numpy as np

from daskfs.kernels.moments import weighted_column_sums

EDGE_BLOCK = 1024


def edge_sums(F: np.ndarray, source: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return, for each weighting and column, the sum over edges of ``w * (f[source] - f[target])**2``.

    With every undirected edge given once this is f'Lf, the numerator of He, Cai and Niyogi (2005), Eq. 1. It is
    computed from differences, so it is never negative, exactly 0 for a column that is constant on every component, and
    as exact for a column with mean 1e8 as for a centered one.

    Parameters
    ----------
    F
        Panel, shape (n_samples, width), C order, any real dtype.
    source, target
        Rows joined by each edge, shape (n_edges,), integer.
    weights
        Shape (n_weightings, n_edges), float64.

    Returns
    -------
    numpy.ndarray
        Shape (n_weightings, width), float64.

    Notes
    -----
    Edges are taken in blocks of 1024, small enough for the gathered blocks to stay in cache; their buffers are made
    once, because Dask's nannies make glibc return every freed block, and faulting it in again costs more than the sums.
    One gathered difference serves all weightings, so a further weighting costs one multiply-add per edge and column,
    not another gather.
    """
    sums = np.zeros((weights.shape[0], F.shape[1]))
    tails = np.empty((EDGE_BLOCK, F.shape[1]), F.dtype)
    heads = np.empty_like(tails)
    differences = np.empty((EDGE_BLOCK, F.shape[1]))
    for start in range(0, source.shape[0], EDGE_BLOCK):
        edges = slice(start, min(start + EDGE_BLOCK, source.shape[0]))
        n_edges = edges.stop - edges.start
        tail, head, difference = tails[:n_edges], heads[:n_edges], differences[:n_edges]
        F.take(source[edges], axis=0, out=tail, mode="clip")  # mode "raise" would go through a copy
        F.take(target[edges], axis=0, out=head, mode="clip")
        np.subtract(tail, head, out=difference, dtype=np.float64)
        np.multiply(difference, difference, out=difference)
        for row, weight in enumerate(weights[:, edges]):
            sums[row] += weighted_column_sums(weight, difference)
    return sums
