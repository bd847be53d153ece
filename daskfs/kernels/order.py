"""Conversion of scores to ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np

Direction = Literal["ascending", "descending"]


def rank_order(scores: np.ndarray, direction: Direction) -> np.ndarray:
    """Return the feature numbers, best first.

    Parameters
    ----------
    scores
        Shape (n_features,), float64. NaN marks an excluded feature; +-inf are ordinary extreme values.
    direction
        "ascending" if the smallest score is best.

    Returns
    -------
    numpy.ndarray
        Shape (n_features,), int64. Equal scores are ordered by feature number; excluded features are last, by feature
        number.
    """
    excluded = np.isnan(scores)
    signed = scores if direction == "ascending" else -scores
    return np.lexsort((np.arange(scores.shape[0]), np.where(excluded, 0.0, signed), excluded))


def ranks(order: np.ndarray) -> np.ndarray:
    """Return the rank of every feature, 1 = best, shape (n_features,), int64, given `order` from :func:`rank_order`."""
    result = np.empty(order.shape[0], dtype=np.int64)
    result[order] = np.arange(1, order.shape[0] + 1)
    return result
