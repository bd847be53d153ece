"""How rows are spread over units, and rows in graph space."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike

from daskfs.graph.engine import resolve_engine
from daskfs.graph.partition import (
    MAX_BLOCK_ROWS,
    MIN_BLOCK_ROWS,
    block_rows,
    member_bytes,
    partition_rows,
    read_members,
    search_units,
    spilled_rows,
    step_rows,
)
from daskfs.graph.spec import ENGINES, Engine, GraphSpec
from daskfs.kernels.blocks import index_dtype, is_sparse
from daskfs.kernels.neighbors.cells import BLOCK_ROWS
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import memory_context
from daskfs.store.shape import sample_rows
from daskfs.tiles.shapes import plan_shape
from tests.cases import each

GiB = 2**30


@each("n", [1, 4095, 4096, 5000, 100_000, 10**7, 10**9])
def test_blocks_of_rows_follow_from_the_number_of_rows_alone(n: int) -> None:
    size = block_rows(n)
    assert MIN_BLOCK_ROWS <= size <= MAX_BLOCK_ROWS
    assert size & (size - 1) == 0


@each("n", [10, 4096, 4097, 20_000])
def test_units_of_an_exact_search_ask_about_every_row_once(n: int) -> None:
    units = search_units(n)
    asked = np.concatenate([np.arange(queries.start, queries.stop) for queries in units])
    np.testing.assert_array_equal(asked, np.arange(n))


CELLS, DESCENT = GraphSpec(engine="cells", projection=None), GraphSpec(engine="descent", projection=None)
SHAPES = {
    "small": plan_shape(3000, 20, "float32", None, 4 * GiB),
    "some": plan_shape(100_000, 64, "float32", None, 4 * GiB),
    "wide": plan_shape(50_000, 5000, "float64", None, 4 * GiB),
    "tall": plan_shape(10**7, 32, "float32", None, 4 * GiB),
    "bytes": plan_shape(10**6, 300, "uint8", None, 4 * GiB),
    "sparse": plan_shape(10**6, 10**5, "float32", 10**8, 4 * GiB),
}


class TestPartitioning:
    @pytest.mark.parametrize("spec", [CELLS, DESCENT], ids=lambda spec: spec.engine)
    @pytest.mark.parametrize("name", SHAPES)
    def test_memory_that_is_large_enough_decides_nothing(self, name: str, spec: GraphSpec) -> None:
        shape = SHAPES[name]
        without = partition_rows(shape, spec, 10, None)
        for memory in (32 * GiB, 64 * GiB, 1024 * GiB):
            found = partition_rows(shape, spec, 10, memory)
            assert (found.n_groups, found.n_cells) == (without.n_groups, without.n_cells)

    @pytest.mark.parametrize("spec", [CELLS, DESCENT], ids=lambda spec: spec.engine)
    @pytest.mark.parametrize("name", SHAPES)
    def test_the_less_memory_the_more_groups(self, name: str, spec: GraphSpec) -> None:
        shape = SHAPES[name]
        per_row = member_bytes(shape, spec, 10)
        plans = [partition_rows(shape, spec, 10, memory) for memory in (64 * GiB, GiB, GiB // 4, GiB // 16)]
        counts = [plan.n_groups for plan in plans]
        assert counts == sorted(counts)
        if shape.n_samples * per_row > GiB:
            assert counts[0] < counts[-1]
        for plan, memory in zip(plans, (64 * GiB, GiB, GiB // 4, GiB // 16), strict=True):
            assert plan.max_members * per_row <= max(memory, 160 * per_row)

    @settings(max_examples=80)
    @given(
        st.integers(2, 10**8),
        st.integers(1, 10**6),
        st.integers(1, 64),
        st.sampled_from([CELLS, DESCENT, GraphSpec("cosine", "zscore", "cells", projection=64)]),
        st.none() | st.integers(2**20, 64 * GiB),
        st.booleans(),
    )
    def test_bounded_numbers(
        self, n: int, m: int, k: int, spec: GraphSpec, available: int | None, sparse: bool
    ) -> None:
        shape = plan_shape(n, m, "float32", n * min(m, 50) if sparse else None, 4 * GiB)
        plan = partition_rows(shape, spec, k, available)
        sampled = sample_rows(shape).size
        assert 1 <= plan.n_groups <= max(1, sampled // 64)
        assert plan.n_groups <= plan.n_cells <= max(plan.n_groups, sampled // 8, 1)
        assert plan.max_members >= 16 * k
        assert 1 <= spilled_rows(shape) <= max(1, 2**22 * n // max(shape.x_bytes, 1))
        bands = [band for unit in range(plan.assign_units(shape)) for band in plan.assigned(shape, unit)]
        assert [band.start for band in bands] == [i * shape.tile_rows for i in range(shape.n_bands)]
        assert bands[-1].stop == n
        merged = [plan.merged(n, unit) for unit in range(plan.merge_units(n))]
        assert merged[0].start == 0
        assert merged[-1].stop == n
        assert all(a.stop == b.start and a.stop % block_rows(n) == 0 for a, b in itertools.pairwise(merged))
        assert all(part.stop > part.start for part in merged)

    def test_steps_are_whole_blocks_of_the_kernel(self) -> None:
        """Fewer where rows are wide, so that a step is a part of what a worker holds."""
        for shape in SHAPES.values():
            rows = step_rows(shape)
            assert rows == shape.tile_rows or rows % BLOCK_ROWS == 0
            assert rows <= 8 * BLOCK_ROWS
        wide = step_rows(plan_shape(10**6, 20_000, "float32", None, 64 * GiB))
        assert wide == BLOCK_ROWS < step_rows(SHAPES["tall"])


class TestResolved:
    def test_the_engine_is_the_quicker_one(self) -> None:
        def engine(n: int, m: int, nnz: int | None = None) -> str:
            return resolve_engine(GraphSpec(), plan_shape(n, m, "float32", nnz, GiB)).engine

        assert engine(200, 10) == engine(20_000, 64) == engine(9000, 500) == engine(2000, 10**5) == "exact"
        assert engine(20_000, 617) == engine(52_397, 280) == engine(10**6, 30) == engine(10**6, 500) == "cells"
        assert engine(10**5, 10**5, 10**7) == engine(10**6, 30_000, 3 * 10**8) == "cells"
        assert engine(10**5, 2 * 10**6, 10**7) == "exact"  # directions of so many features fit no process

    def test_sparse_rows_of_some_values_are_compared_in_few_directions(self) -> None:
        def projection(engine: Engine, values: int, m: int = 30_000) -> int | str | None:
            shape = plan_shape(10**5, m, "float32", 10**5 * values, GiB)
            return resolve_engine(GraphSpec(engine=engine), shape).projection

        assert projection("cells", 300) == "auto"
        assert projection("cells", 10) is projection("cells", 300, 2 * 10**6) is projection("cells", 60, 100) is None
        assert projection("descent", 300) == "auto"

    def test_an_exact_search_needs_all_rows_in_memory(self) -> None:
        shape = plan_shape(3000, 5000, "float32", None, GiB)
        assert resolve_engine(GraphSpec(), shape, GiB).engine == "exact"
        assert resolve_engine(GraphSpec(), shape, 2**25).engine == "cells"
        assert resolve_engine(GraphSpec(engine="exact"), shape, 2**25).engine == "exact"

    def test_what_is_asked_for_stays(self) -> None:
        for engine in ENGINES[1:]:
            spec = GraphSpec("cosine", "unit", engine, 0.9, None, 7)
            assert resolve_engine(spec, SHAPES["tall"], GiB) == spec

    @each(
        ("name", "wanted", "expected"),
        [("wide", 64, 64), ("wide", None, None), ("wide", "auto", "auto"), ("some", 64, None), ("some", "auto", None)],
    )
    def test_a_projection_onto_fewer_columns_or_none(
        self, name: str, wanted: int | Literal["auto"] | None, expected: int | str | None
    ) -> None:
        assert resolve_engine(GraphSpec(engine="cells", projection=wanted), SHAPES[name]).projection == expected
        assert resolve_engine(GraphSpec(engine="exact", projection=wanted), SHAPES[name]).projection is None


@each("sparse", [False, True])
@each("scaling", [None, "zscore", "unit", "log1p", "total=7+log1p+unit"])
@each("dtype", [np.float64, np.float32, np.uint8])
def test_part_of_the_rows(dtype: DTypeLike, scaling: Scaling | None, sparse: bool) -> None:
    X = np.random.default_rng(0).integers(0, 9, size=(30, 4)).astype(dtype)
    context = memory_context(sp.csr_matrix(X) if sparse else X, None)
    whole = read_members(context.tiles, slice(0, 30), scaling)
    part = read_members(context.tiles, slice(7, 19), scaling)
    assert sp.issparse(part) == sparse
    dense_whole, dense_part = (rows.toarray() if is_sparse(rows) else rows for rows in (whole, part))
    np.testing.assert_array_equal(dense_part, dense_whole[7:19])
    if scaling is None:
        np.testing.assert_array_equal(dense_part, X[7:19])
        assert dense_part.dtype == dtype


@given(n_samples=st.integers(1, 2**40) | st.sampled_from([2**31 - 1, 2**31, 2**31 + 1]))
def test_row_numbers_fit_their_type(n_samples: int) -> None:
    """And so does their number; none is wider than that takes."""
    assert n_samples <= np.iinfo(index_dtype(n_samples)).max  # type: ignore[type-var]
    assert (index_dtype(n_samples) == np.int32) == (n_samples < 2**31)
