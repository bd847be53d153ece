"""Kernel of a Laplacian support vector machine: a plain kernel, deformed by the graph of all rows.

``||w||^2 / 2 + C sum xi + gamma_I f'Lf`` is minimized by a plain machine with the kernel
``k(x, z) - k_x'(I + MK)^-1 M k_z`` with M = 2 gamma_I L (Bodo and Minier, section 2, where the printed 1 / (4 gamma_I)
does not follow from the printed objective; Sindhwani, Niyogi and Belkin 2005).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import lu_factor, lu_solve


@dataclass(frozen=True)
class Deformed:
    """The deformed kernel between labeled rows, times `scale`, shape (n_labeled, n_labeled), float64.

    `pull`, shape (n, n_labeled), is P = (I + MK)^-1 E, with E the columns of the identity of labeled rows: the deformed
    kernel is E'K P, and a small change dK of K changes it by P'dK P.
    """

    values: np.ndarray
    pull: np.ndarray
    scale: float


def deform(
    K: np.ndarray, laplacian: sp.csr_matrix, gamma_intrinsic: float, labeled: np.ndarray, scale: float | None = None
) -> Deformed:
    """Compute the deformed kernel.

    Parameters
    ----------
    K
        Plain kernel between all rows, shape (n, n), float64.
    laplacian
        L, shape (n, n), sparse and symmetric.
    gamma_intrinsic
        gamma_I, the weight of f'Lf.
    labeled
        Row numbers of the labeled rows, shape (n_labeled,).
    scale
        Factor of the kernel; None for 1 over its mean diagonal, of the labeled rows. Unscaled, it shrinks as gamma_I
        grows, until every alpha is at C and no label counts.
    """
    system = (2.0 * gamma_intrinsic * laplacian) @ K
    system[np.diag_indices(len(K))] += 1.0
    pull = np.zeros((len(K), labeled.size))
    pull[labeled, np.arange(labeled.size)] = 1.0
    pull = lu_solve(lu_factor(system, overwrite_a=True, check_finite=False), pull, overwrite_b=True, check_finite=False)
    values = K[labeled] @ pull
    values = (values + values.T) / 2.0
    if scale is None:
        scale = 1.0 / float(np.diagonal(values).mean())
    return Deformed(values * scale, pull, scale)


def graph_laplacian(source: np.ndarray, target: np.ndarray, weight: np.ndarray, n_rows: int) -> sp.csr_matrix:
    """Return L = D - S, shape (n_rows, n_rows), of undirected edges, each given once; arrays of shape (n_edges,)."""
    S = sp.coo_matrix((weight, (source, target)), shape=(n_rows, n_rows)).tocsr()
    S = S + S.T
    degrees = np.asarray(S.sum(axis=1)).ravel()
    return sp.csr_matrix(sp.diags_array(degrees) - S)
