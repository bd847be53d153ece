"""Median of a stream of values that does not fit in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

DIGIT_BITS = 21
"""Bits per digit; three digits cover the 63 bits of a non-negative float64."""
HELD_VALUES = 2**22
MEDIAN_PASSES = 4


def streamed_median(blocks: Callable[[], Iterator[np.ndarray]]) -> float:
    """Return ``np.median`` of non-negative values, to the bit; NaN for no values.

    Parameters
    ----------
    blocks
        Starts a pass over the values: arrays of shape (n_values,), float64, without NaN.

    Notes
    -----
    Non-negative floats sort as their bit patterns, so the two middle values are found digit by digit: each pass counts
    the values by their next 21 bits, until those that share the digits found so far fit in memory. If the two differ in
    a digit, the lower one is the largest value of its bucket and the upper one the smallest value above. This usually
    takes two or three passes, at most `MEDIAN_PASSES`, and one for values that fit in memory.
    """
    rest, parts, size = blocks(), [np.empty(0)], 0
    for block in rest:
        parts.append(block)
        size += block.size
        if size > HELD_VALUES:
            break
    else:
        return float(np.median(np.concatenate(parts), overwrite_input=True)) if size else float("nan")
    values: Iterator[np.ndarray] = itertools.chain(parts, rest)
    del block, parts
    lower = upper = below = prefix = 0
    for shift in (2 * DIGIT_BITS, DIGIT_BITS, 0):
        counts = _digits(values, prefix, shift)
        if shift == 2 * DIGIT_BITS:
            total = int(counts.sum())
            lower, upper = (total - 1) // 2, total // 2
        ends = below + np.cumsum(counts)
        digit, other = (int(d) for d in np.searchsorted(ends, [lower, upper], side="right"))
        prefix = prefix << DIGIT_BITS | digit
        if digit != other:
            return _middle(_either_side(blocks(), (prefix + 1) << shift))
        below = int(ends[digit] - counts[digit])
        if shift and counts[digit] <= HELD_VALUES:
            remaining = np.concatenate([bits[bits >> shift == prefix] for bits in _patterns(blocks())])
            return _middle(np.partition(remaining, [lower - below, upper - below])[lower - below : upper - below + 1])
        values = blocks()
    return _middle(np.full(upper - lower + 1, prefix))


def _patterns(blocks: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    # NumPy counts and shifts int64, and the sign bit is never set
    return (block.view(np.int64) for block in blocks)


def _digits(blocks: Iterator[np.ndarray], prefix: int, shift: int) -> np.ndarray:
    """Count the values by the digit at `shift`, among those whose digits before it are `prefix`."""
    counts = np.zeros(2**DIGIT_BITS, dtype=np.int64)
    for bits in _patterns(blocks):
        digits = bits >> shift
        if shift < 2 * DIGIT_BITS:
            digits = digits[digits >> DIGIT_BITS == prefix] & (2**DIGIT_BITS - 1)
        low = int(digits.min(initial=counts.size))  # values close to each other have few digits
        block_counts = np.bincount(digits - low)
        counts[low : low + block_counts.size] += block_counts
    return counts


def _either_side(blocks: Iterator[np.ndarray], bound: int) -> np.ndarray:
    """Return the largest pattern below `bound` and the smallest one at or above it."""
    low, high = 0, np.iinfo(np.int64).max
    for bits in _patterns(blocks):
        beyond = bits >= bound
        low = max(low, int(bits.max(where=~beyond, initial=0)))
        high = min(high, int(bits.min(where=beyond, initial=high)))
    return np.array([low, high])


def _middle(patterns: np.ndarray) -> float:
    return float(np.mean(patterns.view(np.float64)))
