"""Iris as the UCI repository holds it, the data of section 4.1 of He, Cai, Niyogi (NIPS 2005).

The UCI file has typing errors in rows 35 and 38 (from 1), both of which it gives as 4.9, 3.1, 1.5, 0.1; the
copy in scikit-learn follows Fisher's article (1936): 4.9, 3.1, 1.5, 0.2 and 4.9, 3.6, 1.4, 0.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

UCI_ROWS = {35: (4.9, 3.1, 1.5, 0.1), 38: (4.9, 3.1, 1.5, 0.1)}
"""Rows of the UCI file, counted from 1, that differ from Fisher's article."""


def uci_iris() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """X (150, 4) in cm (sepal length, sepal width, petal length, petal width) and the class index 0, 1, 2."""
    X, y = load_iris(return_X_y=True)
    X = np.array(X, dtype=np.float64)
    for row, values in UCI_ROWS.items():
        X[row - 1] = values
    return X, np.array(y, dtype=np.int64)
