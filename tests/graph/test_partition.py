"""Rows of a partition in graph space, and the units that search it."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import DTypeLike

from daskfs.graph.partition import MAX_BLOCK_ROWS, MIN_BLOCK_ROWS, block_rows, read_members, search_units
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.scaling import Scaling
from daskfs.scoring import memory_context


@pytest.mark.parametrize("n", [1, 4095, 4096, 5000, 100_000, 10**7, 10**9])
def test_blocks_of_rows_follow_from_the_number_of_rows_alone(n: int) -> None:
    size = block_rows(n)
    assert MIN_BLOCK_ROWS <= size <= MAX_BLOCK_ROWS
    assert size & (size - 1) == 0


@pytest.mark.parametrize("n", [10, 4096, 4097, 20_000])
def test_units_of_an_exact_search_ask_about_every_row_once(n: int) -> None:
    units = search_units(GraphSpec(engine="exact"), [slice(0, n)], n)
    asked = np.concatenate([np.arange(unit.queries.start, unit.queries.stop) for unit in units])
    np.testing.assert_array_equal(asked, np.arange(n))
    assert all(unit.members == slice(0, n) for unit in units)


def test_each_partition_is_searched_among_itself() -> None:
    partitions = [slice(0, 5000), slice(5000, 5100)]
    units = search_units(GraphSpec(engine="exact"), partitions, 5100)
    for unit in units:
        assert unit.members in partitions
        assert unit.members.start <= unit.queries.start < unit.queries.stop <= unit.members.stop
    assert sum(unit.queries.stop - unit.queries.start for unit in units) == 5100


def test_approximate_search_finds_all_lists_of_a_partition_at_once() -> None:
    units = search_units(GraphSpec(engine="pynndescent"), [slice(0, 9000)], 9000)
    assert [(unit.members, unit.queries) for unit in units] == [(slice(0, 9000), slice(0, 9000))]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scaling", [None, "zscore", "unit", "log1p"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_part_of_the_rows(dtype: DTypeLike, scaling: Scaling | None, sparse: bool) -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(30, 4)).astype(dtype)
    context = memory_context(sp.csr_matrix(X) if sparse else X, None)
    whole = read_members(context.tiles, slice(0, 30), scaling)
    part = read_members(context.tiles, slice(7, 19), scaling)
    assert sp.issparse(part) == sparse
    dense_whole, dense_part = (rows.toarray() if sp.issparse(rows) else rows for rows in (whole, part))
    np.testing.assert_array_equal(dense_part, dense_whole[7:19])
    if scaling is None:
        np.testing.assert_array_equal(dense_part, X[7:19])
        assert dense_part.dtype == dtype
