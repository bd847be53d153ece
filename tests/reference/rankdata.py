"""From scores to an order of features, with the rules that the papers leave open.

He, Cai, Niyogi (NIPS 2005, section 3.1) exclude a constant feature, so NaN goes last whatever the direction;
equal scores, and the NaN among themselves, go by feature index.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike


def order(scores: ArrayLike, direction: Literal["ascending", "descending"]) -> list[int]:
    """Feature indices, best first: by rising score if "ascending" (small is good), else by falling score."""
    values = [float(score) for score in np.asarray(scores, dtype=np.float64)]
    sign = {"ascending": 1.0, "descending": -1.0}[direction]
    excluded = [r for r in range(len(values)) if math.isnan(values[r])]
    scored = [r for r in range(len(values)) if r not in excluded]
    return sorted(scored, key=lambda r: (sign * values[r], r)) + excluded
