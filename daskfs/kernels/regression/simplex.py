"""Projection of rows onto the probability simplex."""

from __future__ import annotations

import numpy as np


def project_rows(values: np.ndarray) -> np.ndarray:
    """Project each row onto the simplex {y: y >= 0, sum y = 1}; the result has the shape of `values`, float64.

    These have shape (n_rows, n_classes) and are finite. With the entries u of a row in descending order, rho is the
    last j for which u_j + (1 - u_1 - ... - u_j) / j is above 0, and (1 - u_1 - ... - u_rho) / rho is added to all
    entries (Wang and Carreira-Perpinan 2013, Algorithm 1).
    """
    descending = -np.sort(-values, axis=1)
    excess = np.cumsum(descending, axis=1) - 1.0
    place = np.arange(1, values.shape[1] + 1)
    last = np.count_nonzero(descending * place > excess, axis=1)
    shift = excess[np.arange(values.shape[0]), last - 1] / last
    return np.maximum(values - shift[:, None], 0.0)
