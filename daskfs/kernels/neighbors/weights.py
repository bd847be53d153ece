"""Edge weights from edge lengths."""

from __future__ import annotations

from typing import Literal

import numpy as np

WeightKind = Literal["heat", "binary", "cosine"]


def edge_weights(distances: np.ndarray, kind: WeightKind, t: float) -> np.ndarray:
    """Return the weight of each edge, same shape as `distances`, float64.

    Parameters
    ----------
    distances
        Edge lengths in the graph's metric, float64.
    kind
        "heat": exp(-d**2 / t), He, Cai and Niyogi (2005), section 2.2, step 2. "binary": 1. "cosine": the cosine of the
        rows, and 0 where it is negative, because negative weights would make the Laplacian indefinite.
    t
        Width of the heat kernel, in squared units of distance.
    """
    if kind == "binary":
        return np.ones_like(distances)
    if kind == "cosine":
        return np.maximum(1.0 - distances, 0.0)
    with np.errstate(over="ignore"):  # a quotient beyond float64 is a weight of 0
        return np.exp(-(distances**2) / t)
