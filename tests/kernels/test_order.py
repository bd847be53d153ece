"""From scores to ranks, against the reference."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daskfs.kernels.order import Direction, rank_order, ranks
from tests.cases import each
from tests.reference.rankdata import order

SCORES = [0.5, np.nan, 0.2, 0.5, np.inf, np.nan, -1.0, -np.inf, -0.0, 0.0]


@each(
    ("direction", "expected"),
    [("ascending", [7, 6, 8, 9, 2, 0, 3, 4, 1, 5]), ("descending", [4, 0, 3, 2, 8, 9, 6, 7, 1, 5])],
)
def test_both_directions(direction: Direction, expected: list[int]) -> None:
    assert rank_order(np.array(SCORES), direction).tolist() == expected


@given(
    st.lists(st.one_of(st.floats(), st.integers(-2, 2).map(float)), max_size=20),
    st.sampled_from(["ascending", "descending"]),
)
def test_reference(scores: list[float], direction: Direction) -> None:
    found = rank_order(np.array(scores, dtype=np.float64), direction)
    assert found.tolist() == order(scores, direction)
    assert ranks(found)[found].tolist() == list(range(1, len(scores) + 1))


def test_no_features() -> None:
    assert ranks(rank_order(np.empty(0), "ascending")).size == 0
