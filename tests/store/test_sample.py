"""The rows that stand for all: which they are, and that every store gives the same ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given
from hypothesis import strategies as st

from daskfs.estimators.opening import stored_context
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import memory_context
from daskfs.store.shape import SAMPLE_BYTES, SAMPLE_ROWS, Shape, sample_rows
from daskfs.store.tiles import Tiles


def shape_of(n: int, m: int, nnz: int | None = None, tile_rows: int | None = None) -> Shape:
    return Shape(n, m, "float32", nnz is not None, nnz, tile_rows or n, m)


@given(st.integers(1, 3 * 10**6), st.integers(1, 10**6))
def test_one_row_of_each_stretch(n: int, m: int) -> None:
    """So that rows which lie sorted are all represented."""
    rows = sample_rows(shape_of(n, m))
    assert rows.dtype == np.int64
    assert 1 <= rows.size <= min(n, SAMPLE_ROWS[1])
    assert rows.size == n or rows.size >= min(n // 8, SAMPLE_ROWS[0], SAMPLE_BYTES // (4 * m))
    stretches = np.arange(rows.size + 1) * n // rows.size
    assert (rows >= stretches[:-1]).all()
    assert (rows < stretches[1:]).all()


def test_small_data_are_their_own_sample() -> None:
    np.testing.assert_array_equal(sample_rows(shape_of(1000, 10)), np.arange(1000))


@pytest.mark.parametrize("nnz", [None, 20_000 * 1000])
def test_the_rows_follow_from_the_data_and_not_from_their_tiles(nnz: int | None) -> None:
    """Bands of sparse data come with an index of all columns each."""
    whole = shape_of(20_000, 10**7, nnz)
    for tile_rows in (1024, 4096):
        cut = dataclasses.replace(whole, tile_rows=tile_rows)
        np.testing.assert_array_equal(sample_rows(cut), sample_rows(whole))


def read(tiles: Tiles, scaling: Scaling | None) -> np.ndarray:
    sample = tiles.sample(scaling)
    return np.asarray(sample.toarray()) if is_sparse(sample) else np.asarray(sample)


@pytest.mark.parametrize("sparse", [False, True])
def test_every_store_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    monkeypatch.setattr("daskfs.store.shape.SAMPLE_ROWS", (500, 700))
    X = np.random.default_rng(0).integers(0, 3, size=(20_000, 30)).astype(np.float32)
    X[7] = 0
    if sparse:
        path = tmp_path / "X.npz"
        sp.save_npz(path, sp.csr_matrix(X))
    else:
        path = tmp_path / "X.zarr"
        zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=(1024, 30))[...] = X
    in_memory = memory_context(sp.csr_matrix(X) if sparse else X, None).tiles
    numbers = sample_rows(in_memory.shape)
    assert numbers.size == 700
    scalings: tuple[Scaling | None, ...] = (None, "zscore", "unit", "log1p", "total+log1p", "log1p+unit")
    with stored_context(path) as (context, _, _):
        assert context.tiles.shape.n_bands > 1
        for scaling in scalings:
            found = read(in_memory, scaling)
            rows = in_memory.read_rows(slice(0, len(X)), scaling)
            expected = rows.toarray() if is_sparse(rows) else rows
            np.testing.assert_array_equal(found, expected[numbers], str(scaling))
            stored = read(context.tiles, scaling)
            assert stored.dtype == found.dtype
            np.testing.assert_array_equal(stored, found, str(scaling))
