"""Nearest rows by target: against a look at every pair, with ties of any length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from daskfs.kernels.neighbors import targets
from daskfs.kernels.neighbors.targets import SortedTargets
from tests.cases import each
from tests.reference.labeled import nearest, target_distances

INT32 = np.dtype(np.int32)
WHOLE = st.one_of(st.none(), st.integers(-3, 3))
REAL = st.one_of(st.none(), st.integers(-(10**6), 10**6).map(lambda i: i / 7))


def lists(y: np.ndarray, k: int, standardize: bool) -> tuple[np.ndarray, np.ndarray]:
    known = np.flatnonzero(~np.isnan(y))
    return SortedTargets.of(y, INT32, standardize=standardize).nearest(y[known], known, k)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(WHOLE, REAL), min_size=1, max_size=30), st.integers(1, 9), st.booleans())
@example([57 / 7, 108 / 7, 6 / 7], 1, True)  # differences of which the quotients are equal, but not they
def test_every_pair(values: list[float | None], k: int, standardize: bool) -> None:
    y = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    known = ~np.isnan(y)
    if np.unique(y[known]).size < 2:
        return
    indices, lengths = lists(y, k, standardize)
    scale = SortedTargets.of(y, INT32, standardize=standardize).scale
    np.testing.assert_allclose(scale, np.std(y[known]) if standardize else 1.0, rtol=1e-14)
    expected = nearest(target_distances(y, standardize=False) / scale, k)
    np.testing.assert_array_equal(indices, expected[0][known])
    np.testing.assert_array_equal(lengths, expected[1][known])


def test_of_a_long_run_of_ties_the_first_rows_count() -> None:
    y = np.repeat([5.0, 1.0, 3.0], 20_000)
    indices, lengths = lists(y, 4, standardize=False)
    np.testing.assert_array_equal(indices[[0, 1, 10_000]], [[1, 2, 3, 4], [0, 2, 3, 4], [0, 1, 2, 3]])
    np.testing.assert_array_equal(indices[[20_000, 59_999]], [[20_001, 20_002, 20_003, 20_004], 40_000 + np.arange(4)])
    assert not lengths.any()


@each("between", ["above", "below", "both"])
def test_a_run_of_ties_next_to_a_single_value(between: str) -> None:
    """The row of the single value finds the lowest rows on either side, and between both sides the lower ones."""
    y = np.zeros(2001)
    y[1000] = {"above": -1.0, "below": 1.0, "both": 0.5}[between]
    if between == "both":
        y[:1000:2] = y[1001::2] = 1.0
    indices, lengths = lists(y, 3, standardize=False)
    np.testing.assert_array_equal(indices[1000], [0, 1, 2])
    np.testing.assert_array_equal(lengths[1000], np.full(3, 0.5 if between == "both" else 1.0))


def test_whole_numbers_tie_exactly_in_standard_deviations() -> None:
    y = np.random.default_rng(0).integers(0, 50, 300) / 1.0
    np.testing.assert_array_equal(lists(y, 6, standardize=True)[0], lists(y, 6, standardize=False)[0])
    np.testing.assert_array_equal(lists(y + 1e8, 6, standardize=True)[0], lists(y, 6, standardize=True)[0])


def test_entries_beyond_the_labeled_rows_are_missing() -> None:
    indices, lengths = lists(np.array([np.nan, 2.0, np.nan, 5.0]), 3, standardize=False)
    np.testing.assert_array_equal(indices, [[3, -1, -1], [1, -1, -1]])
    np.testing.assert_array_equal(lengths, [[3, np.inf, np.inf]] * 2)
    assert indices.dtype == INT32


def test_rows_asked_about_at_a_time_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.random.default_rng(1).normal(size=500).round(1)
    whole = lists(y, 5, standardize=True)
    monkeypatch.setattr(targets, "COMPARED_ENTRIES", 100)
    np.testing.assert_array_equal(lists(y, 5, standardize=True), whole)
