"""Numbers at the bounds of their types: rows, columns and bytes near 2**31 and beyond, on shapes without data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given
from hypothesis import strategies as st

from daskfs.errors import InputError
from daskfs.evaluation.rows import row_hashes
from daskfs.graph.edges import Stretches, _sources, _unmark
from daskfs.graph.neighbors import SearchParameters
from daskfs.graph.partition import Partitioning
from daskfs.graph.partitioned_search import _Runs, _spill_rows
from daskfs.graph.precomputed import MOST_MATRIX_ROWS, WeightMatrix
from daskfs.graph.precomputed_stage import pair_keys
from daskfs.graph.spec import GraphSpec
from daskfs.job.job import make_job
from daskfs.kernels.blocks import index_dtype
from daskfs.kernels.distance_correlation.histograms import BINS, bin_column
from daskfs.kernels.neighbors.cells import MAX_PROBES, Members
from daskfs.kernels.statistics import distributions
from daskfs.kernels.statistics.column_hash import column_hashes
from daskfs.runs.plan import plan_run
from daskfs.runs.tiles import plan_source
from daskfs.sources import SourceSpec, open_source
from daskfs.sources.checks import MOST_FEATURES
from daskfs.stages.cost import Workers
from daskfs.stages.stage import Plan, with_fingerprints
from daskfs.stages.units import shared_arrays
from daskfs.storage import as_path
from daskfs.store import layout, store
from daskfs.store.context import Context
from daskfs.store.records import place_of
from daskfs.store.shape import spread_rows
from daskfs.store.shards import ShardWriter
from daskfs.store.store import MAX_CHUNK_BYTES, Store, stored_chunks
from daskfs.store.tiles import TileInfo, Tiles
from daskfs.tiles.plan import TilePlan, plan_ingest
from daskfs.tiles.shapes import MOST_ROWS, plan_shape
from tests.cases import each
from tests.cli.command import daskfs
from tests.planning import tile_parameters

TiB = 2**40
END = 2**31
NEAR = (END - 1, END, END + 1)
"""The last int32, and the first numbers beyond it."""


# ------------------------------------------------------------------------------------------------------------- plans
SIZES = [
    (10**9, 64, 64),
    (10**6, 10**6, 64),
    (10**9, 10**6, 64),
    *((n, 8, 64) for n in NEAR),
    (3 * 10**9, 64, 64),
    (4 * 10**9, 10**6, 64),  # four groups of more than 2**31 rows, if nothing bounds them
    (10**6, 50, 5000),  # 2**16 lists of this length take more than 2**31 bytes
    (100, MOST_FEATURES, 10),
    (MOST_ROWS, 1, 10),
]


@each(("n", "m", "k"), SIZES)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_array_of_a_plan_holds_its_numbers_and_fits_its_codec(n: int, m: int, k: int, sparse: bool) -> None:
    for limit in (None, TiB):
        shape = plan_shape(n, m, "float64", max(n, n * m // 50) if sparse else None, limit)
        graph = {"engine": "cells", "n_neighbors": k}
        job = make_job(
            {"data": {"source": "x"}, "methods": ["LaplacianScore"], "output": {"path": "x"}, "graph": graph}
        )
        filled = plan_ingest(tile_parameters(shape), 1)
        planned = plan_run(job, TilePlan("x/tiles", shape, "", False), None, Workers(limit)).stages
        stages = with_fingerprints((*filled, *planned), "")
        again = Plan.from_json(json.loads(json.dumps(Plan("/x/tiles", stages).to_json("/x"))), "/x")
        assert again.stages == stages
        assert min(min(s.n_units, s.peak_bytes, s.bytes_read + 1, s.bytes_written + 1) for s in stages) > 0
        assert shape.tile_rows < END, "rows within a band are int32"
        parts = [s.parameters.partitioning for s in stages if isinstance(s.parameters, SearchParameters)]
        assert parts
        assert all(part.max_members < END and part.n_cells < END for part in parts), "so are rows within a group"
        arrays = shared_arrays(Context(Store(None), Tiles(Store(None), TileInfo(shape, "", "x"))), stages)
        assert arrays[layout.KNN_INDICES.format("euclidean")][:2] == ((n, k), np.int32 if n < END else np.int64)
        for name, (whole, dtype, chunks) in arrays.items():
            assert math.prod(chunks) * np.dtype(dtype).itemsize <= MAX_CHUNK_BYTES < END, name
            assert all(chunk <= size for chunk, size in zip(chunks, whole, strict=True)), name


@each(("n", "m"), [(MOST_ROWS + 1, 1), (1, MOST_FEATURES + 1), (10**30, 10**30)])
def test_more_rows_or_columns_are_refused_in_the_plan(n: int, m: int) -> None:
    message = f"X has {n} rows and {m} columns: there may be up to {MOST_ROWS} and {MOST_FEATURES}."
    for nnz in (None, 5):
        with pytest.raises(InputError) as error:
            plan_shape(n, m, "float32", nnz, TiB)
        assert str(error.value) == message


def test_columns_of_a_plan_stay_apart(tmp_path: Path) -> None:
    source = "synthetic:lowrank?n_samples=1000000000&n_features=1000000&rank=2"
    job = {"data": {"source": source}, "methods": ["LaplacianScore"], "output": {"path": str(tmp_path / "run")}}
    job |= {"cluster": {"workers": 2, "memory_limit": "1024GiB"}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    lines = [line.split() for line in daskfs("plan", tmp_path / "job.json").out.splitlines()]
    stages = {fields[0]: [*map(float, fields[1:])] for fields in lines if fields[2:3] == ["0"]}
    assert {"ingest", "assign-euclidean", "score"} < {*stages}
    assert {len(fields) for fields in stages.values()} == {5}
    assert max(read for _, _, read, _, _ in stages.values()) > 9 * 10**9, "MiB, in more than eleven characters"


# ------------------------------------------------------------------------------------------------------------ chunks
@given(
    st.lists(st.tuples(st.integers(1, 2**35), st.integers(1, 2**35)), min_size=1, max_size=3),
    st.sampled_from(["u1", "f4", "f8"]),
)
def test_units_own_whole_chunks(axes: list[tuple[int, int]], dtype: str) -> None:
    """Every boundary between the chunks that were asked for is one between those that are stored."""
    shape, asked = zip(*axes, strict=True)
    chunks = stored_chunks(shape, dtype, asked)
    size = np.dtype(dtype).itemsize
    assert math.prod(chunks) * size <= MAX_CHUNK_BYTES
    for whole, wanted, stored in zip(shape, asked, chunks, strict=True):
        assert 1 <= stored <= whole
        assert wanted >= whole or wanted % stored == 0
    if math.prod(map(min, shape, asked)) * size <= MAX_CHUNK_BYTES:
        assert chunks == tuple(map(min, shape, asked))


@each("chunks", [(16, 30), (16, 7), (5, 30), (64, 30)])
def test_units_write_parts_of_an_array_whose_chunks_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: tuple[int, int]
) -> None:
    monkeypatch.setattr(store, "MAX_CHUNK_BYTES", 300)
    monkeypatch.setattr(store, "CUT_BYTES", 150)
    values = np.arange(50 * 30).reshape(50, 30)
    Store(tmp_path).create("a", values.shape, values.dtype, chunks)
    cut = Store(tmp_path).open("a")
    assert cast("Any", cut).chunks < chunks
    for i in range(0, 50, chunks[0]):
        for j in range(0, 30, chunks[1]):
            part = np.s_[i : min(i + chunks[0], 50), j : min(j + chunks[1], 30)]
            cut[part] = values[part]
    np.testing.assert_array_equal(Store(tmp_path).open("a")[...], values)


@pytest.mark.long
def test_a_file_of_more_bytes_than_one_system_call_reads(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(END)
        file.seek(END)
        file.write(b"end")
    data = as_path(path).read_buffer()
    assert (len(data), bytes(data[-3:])) == (END + 3, b"end")


# ------------------------------------------------------------------------------------------------------ row numbers
@each(("n", "dtype"), [(1, np.int32), *zip(NEAR, (np.int32, np.int64, np.int64), strict=True), (MOST_ROWS, np.int64)])
def test_row_numbers_have_the_dtype_that_holds_them(n: int, dtype: type) -> None:
    assert index_dtype(n) == dtype
    assert np.iinfo(dtype).max >= n


@each("n", [100, *NEAR, 2**43, MOST_ROWS])
def test_rows_are_spread_over_stretches_of_equal_length(n: int) -> None:
    for count in (1, 3, 100, 2**16, 2**20):
        if count <= n:
            rows = spread_rows(n, count)
            for i in {*range(0, count, max(1, count // 50)), count - 1}:
                assert i * n // count <= rows[i] < (i + 1) * n // count


@each("start", [0, END - 2, 2**32 - 2, MOST_ROWS - 4])
def test_hashes_of_columns_are_sums_over_numbered_rows(start: int) -> None:
    X = np.random.default_rng(0).normal(size=(4, 3))
    for block in (X, sp.csr_matrix(X)):
        alone = [column_hashes(block[[i]], start + i) for i in range(4)]
        np.testing.assert_array_equal(column_hashes(block, start), sum(alone))
        assert len({hashes.tobytes() for hashes in alone}) == 4


@each("start", [0, END - 3, 2**32 - 3, MOST_ROWS - 4])
@each("sparse", [False, True])
def test_spilled_rows_keep_their_numbers_and_cells(start: int, sparse: bool) -> None:
    """A row number, a mark and a number of cells share an int64."""
    X = np.arange(12.0).reshape(4, 3)
    row, group = np.array([0, 1, 3, 1, 2]), np.array([0, 0, 0, 1, 1], np.int32)
    n_cells = np.array([MAX_PROBES, 1, 2, 3, MAX_PROBES])
    starts = np.concatenate([[0], np.cumsum(n_cells)])
    cells = np.arange(starts[-1], dtype=np.int32)
    home = np.array([True, True, False, False, True])
    kept, plan = Store(None), Partitioning(2, 4, 1, 100, 1)
    spec = GraphSpec()
    block = sp.csr_matrix(X) if sparse else X
    shards = ShardWriter(kept, layout.SPILL_ROWS.format(spec.name, 0))
    shards.write(_spill_rows(block, Members(row, group, home, starts, cells), start, 2))
    shards.close()
    shape = SimpleNamespace(n_bands=1, n_features=3, dtype="float64", is_sparse=sparse)
    for number in (0, 1):
        found = _Runs(kept, cast("Any", SimpleNamespace(shape=shape)), spec, plan, number)
        every = found.parts(100)[0]
        own = group == number
        names, is_home, begins, probed = found.members(every)
        np.testing.assert_array_equal(names, row[own] + start)
        np.testing.assert_array_equal(is_home, home[own])
        np.testing.assert_array_equal(np.diff(begins), n_cells[own])
        np.testing.assert_array_equal(np.diff(probed), 1)
        values = found.values(every)
        np.testing.assert_array_equal(values.toarray() if sp.issparse(values) else values, X[row[own]])


@each("n", [10, *NEAR, MOST_ROWS])
def test_edges_between_the_last_rows_count_once(n: int) -> None:
    """The lists of the last three rows, and of two lower ones that list them."""
    dtype, own = index_dtype(n), slice(n - 3, n)
    lists = np.array([[n - 2, 0], [n - 3, 1], [n - 2, -1]], dtype)
    marks, listed = lists >= 0, lists >= n - 3
    lower = np.array([[0, 0, 1], [n - 3, n - 1, n - 2]], dtype)
    np.testing.assert_array_equal(_unmark(marks, lists, n - 3, *lower), [True, True, True])
    sources = _sources(own, lists)
    assert sources.dtype == dtype
    np.testing.assert_array_equal(sources[:, 0], [n - 3, n - 2, n - 1])
    kept = _unmark(marks, lists, n - 3, sources[listed], lists[listed])
    np.testing.assert_array_equal(kept, [True, False, True])
    np.testing.assert_array_equal(marks, [[True, False], [False, False], [True, False]])
    for blocks, sent in ((1, 1), (12, 4), (2**20, 2**10)):
        stretches = Stretches(n, blocks, sent)
        assert (stretches.rows(0).start, stretches.rows(len(stretches) - 1).stop) == (0, n)


@each("n", [3, 2**16, MOST_MATRIX_ROWS])
def test_pairs_of_rows_of_a_matrix_are_in_order(n: int) -> None:
    rows = np.array([0, 1, 0, n - 1, n - 2, n - 1])
    columns = np.array([1, 0, n - 1, 0, n - 1, n - 2])
    keys = [int(key) for key in pair_keys(rows, columns, n)]
    pairs = [(min(pair), max(pair)) for pair in zip(rows.tolist(), columns.tolist(), strict=True)]
    assert keys == [2 * (low * n + high) + side for (low, high), side in zip(pairs, [0, 1] * 3, strict=True)]
    assert [(key // 2 // n, key // 2 % n) for key in keys] == pairs


def test_a_matrix_of_more_rows_is_refused_in_the_plan() -> None:
    none = np.empty(0, np.int64)
    for n in (MOST_MATRIX_ROWS, MOST_MATRIX_ROWS + 1):
        matrix = WeightMatrix("w.npz", (n, n), none, none, none)
        if n == MOST_MATRIX_ROWS:
            matrix.check_size(n)
            continue
        with pytest.raises(InputError, match=r"w\.npz is a matrix of 2147483649 rows, .* give neighbor lists"):
            matrix.check_size(n)


@each("n", [9, 126, 127, 128, 129, 300, 1000])
def test_sorted_columns_count_within_the_dtype_of_their_size(n: int) -> None:
    """With types of 8 bits for 32, and 2**7 for 2**31."""
    rng = np.random.default_rng(n)
    F = np.stack([rng.normal(size=n), rng.integers(0, 5, n)], axis=1)
    for n_classes in (2, 3):
        codes = np.arange(n) % n_classes
        for column in (F[:, :1], F[:, 1:], F[:, :1].astype(np.float32)):
            large = distributions.distributions(column, codes, [2, 10])
            with mock.patch.object(distributions, "index_dtype", lambda size: np.int8 if size < 2**7 else np.int16):
                small = distributions.distributions(column, codes, [2, 10])
            for name in ("distance", "threshold", "is_constant"):
                np.testing.assert_array_equal(getattr(small, name), getattr(large, name))
            for n_bins in (2, 10):
                np.testing.assert_array_equal(small.gains[n_bins], large.gains[n_bins])
                np.testing.assert_array_equal(small.edges[n_bins], large.edges[n_bins])


# --------------------------------------------------------------------------------------------------- small integers
@each("n_classes", [2**8 - 1, 2**8, 2**8 + 1])
def test_codes_of_classes_fit_their_bits(n_classes: int) -> None:
    """float32 values are sorted with their codes, others without; classes that a column tells apart are one apart."""
    codes = np.arange(3 * n_classes) % n_classes
    F = codes[:, None].astype(np.float64)
    one, other = (distributions.distributions(values, codes, [2]) for values in (F, F.astype(np.float32)))
    assert one.distance == other.distance == 1.0
    assert one.gains[2] == other.gains[2] > 0.99


@each(("n_values", "dtype"), [(2**8 - 1, np.uint8), (2**8, np.uint8), (2**8 + 1, np.uint16)])
def test_codes_of_bins_fit_their_bits(n_values: int, dtype: type) -> None:
    values = np.random.default_rng(0).permutation(n_values)
    found = bin_column(values, n_values)
    assert found.codes.dtype == dtype
    np.testing.assert_array_equal(found.codes, values)
    assert BINS <= 2**8, "stored bins are uint8"


def test_records_of_many_units_are_in_order() -> None:
    units = [0, 9, 10**6 - 1, 10**6, 10**6 + 1, 10**9]
    assert sorted((f"{unit:06d}.{'0' * 12}.json" for unit in units), key=place_of) == [
        f"{unit:06d}.{'0' * 12}.json" for unit in units
    ]


# ------------------------------------------------------------------------------------------------------------ sources
def _npz(folder: Path, shape: tuple[int, int]) -> str:
    entries = [1.0, 2.0, 3.0], ([0, 0, shape[0] - 1], [0, shape[1] - 1, shape[1] - 2])
    sp.save_npz(folder / "X.npz", sp.csr_matrix(entries, shape=shape))
    return "X.npz"


def _mtx(folder: Path, shape: tuple[int, int]) -> str:
    n, m = shape
    lines = ["%%MatrixMarket matrix coordinate real general", f"{n} {m} 3", "1 1 1", f"1 {m} 2", f"{n} {m - 1} 3"]
    (folder / "X.mtx").write_text("\n".join(lines) + "\n")
    return "X.mtx"


def _svmlight(folder: Path, shape: tuple[int, int]) -> str:
    n, m = shape
    between = "0\n" * (n - 2)
    (folder / "X.svm").write_text(f"0 1:1 {m}:2\n{between}0 {m - 1}:3\n")
    return "X.svm"


def _zarr(folder: Path, shape: tuple[int, int]) -> str:
    chunks = tuple(min(size, 2**20) for size in shape)
    zarr.create_array(folder / "X.zarr", shape=shape, dtype="uint8", chunks=chunks, fill_value=7)
    return "X.zarr"


FORMATS: list[Callable[[Path, tuple[int, int]], str]] = [_npz, _mtx, _svmlight, _zarr]


@each("write", FORMATS)
@each("n_features", [MOST_FEATURES, MOST_FEATURES + 1])
def test_sources_of_as_many_columns_as_possible(tmp_path: Path, write: Any, n_features: int) -> None:
    folder = tmp_path / f"{write.__name__}{n_features}"
    folder.mkdir()
    path = str(folder / write(folder, (3, n_features)))
    if n_features > MOST_FEATURES:
        with pytest.raises(InputError, match="2147483647"):
            plan_source(SourceSpec(source=path), "auto", str(tmp_path / "tiles"), Workers(TiB))
        return
    plan_source(SourceSpec(source=path), "auto", str(tmp_path / "tiles"), Workers(TiB))
    if write is not _zarr:  # dense rows of two gigabytes
        X = sp.csr_matrix(open_source(SourceSpec(source=path)).read_rows(0, 3))
        found = {(int(i), int(j)): float(value) for i, j, value in zip(*sp.find(X), strict=True)}
        assert found == {(0, 0): 1.0, (0, n_features - 1): 2.0, (2, n_features - 2): 3.0}
        assert np.array_equal(X.indices.astype(np.int32), X.indices)


@each("write", [_mtx, _zarr])
@each("n_samples", NEAR)
def test_sources_of_more_rows_than_an_int32_counts(tmp_path: Path, write: Any, n_samples: int) -> None:
    folder = tmp_path / f"{write.__name__}{n_samples}"
    folder.mkdir()
    path = str(folder / write(folder, (n_samples, 3)))
    plan = plan_source(SourceSpec(source=path), "auto", str(tmp_path / "tiles"), Workers(TiB))
    assert (plan.shape.n_samples, plan.shape.band(plan.shape.n_bands - 1).stop) == (n_samples, n_samples)
    found = open_source(SourceSpec(source=path)).read_rows(n_samples - 2, n_samples)
    expected = [[7, 7, 7]] * 2 if write is _zarr else [[0, 0, 0], [0, 3, 0]]
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, expected)


def test_equal_rows_have_equal_hashes_whatever_the_type_of_their_column_numbers() -> None:
    X = sp.csr_matrix(np.eye(3))
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(row_hashes(X), row_hashes(wide))
