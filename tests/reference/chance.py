"""SplitMix64 of Steele, Lea and Flood (2014), step by step, and the numbers that RandomOrder draws with it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MASK = 2**64 - 1


def split_mix(state: int) -> Iterator[int]:
    """Yield whole numbers below 2**64."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def uniform_numbers(n_features: int, random_state: int) -> NDArray[np.float64]:
    """Return one number in [0, 1) for each feature: the first 53 bits of what the generator gives next."""
    state = int(np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0])
    return np.array([number // 2**11 / 2**53 for number, _ in zip(split_mix(state), range(n_features), strict=False)])
