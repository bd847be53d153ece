"""Blocks of rows that begin at multiples of a height, however high the bands of the tiles are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs.estimators.opening import stored_context
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.scaling import Scaling
from daskfs.plan.inline import memory_context
from daskfs.store.arrays import counted_bytes
from daskfs.store.tiles import Tiles

N_SAMPLES, N_FEATURES = 1000, 6
SCALINGS: tuple[Scaling | None, ...] = (None, "unit", "log1p", "total+log1p", "total=100+unit")


def matrix() -> np.ndarray:
    X = np.random.default_rng(0).poisson(0.7, size=(N_SAMPLES, N_FEATURES)).astype(np.float32)
    X[3] = 0
    return X


def dense(block: np.ndarray | sp.csr_matrix) -> np.ndarray:
    return np.asarray(block.toarray()) if is_sparse(block) else np.asarray(block)


@pytest.fixture(scope="module", params=[1000, 512, 300, 64, 7, "sparse", "sparse in memory", "memory"])
def tiles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiles]:
    """Tiles with bands of some height, or without any."""
    folder, kind = tmp_path_factory.mktemp("aligned"), request.param
    if kind in ("memory", "sparse in memory"):
        yield memory_context(sp.csr_matrix(matrix()) if kind != "memory" else matrix(), None).tiles
        return
    if kind == "sparse":
        path = folder / "X.npz"
        sp.save_npz(path, sp.csr_matrix(matrix()))
    else:
        path = folder / "X.zarr"
        zarr.create_array(store=str(path), shape=matrix().shape, dtype="float32", chunks=(kind, 4))[...] = matrix()
    with stored_context(path) as (context, _, _):
        yield context.tiles


@pytest.fixture(scope="module")
def whole(tiles: Tiles) -> Callable[[Scaling | None], np.ndarray]:
    """Return all rows in a scaling, read once."""
    return cache(lambda scaling: dense(tiles.read_rows(slice(0, N_SAMPLES), scaling)))


@settings(max_examples=25, deadline=None)
@given(
    st.data(),
    st.sampled_from([1, 7, 64, 100, 512, 1000, 4096]),
    st.sampled_from(SCALINGS),
    st.sampled_from([None, 0.0, 0.5, 0.99, 1.0]),
)
def test_blocks_are_slices(
    tiles: Tiles,
    whole: Callable[[Scaling | None], np.ndarray],
    data: st.DataObject,
    height: int,
    scaling: Scaling | None,
    share: float | None,
) -> None:
    """Of all rows, or of those that are chosen."""
    start = data.draw(st.integers(0, N_SAMPLES - 1))
    stop = data.draw(st.integers(start + 1, N_SAMPLES))
    chosen = None if share is None else np.random.default_rng(height).random(stop - start) < share
    parts, blocks = zip(*tiles.aligned_rows(slice(start, stop), height, scaling, chosen), strict=True)
    cuts = [part.start for part in parts]
    assert cuts == [start, *range((start // height + 1) * height, stop, height)]
    assert [part.stop for part in parts] == [*cuts[1:], stop]
    assert {block.dtype for block in blocks} == {np.dtype(np.float32 if scaling is None else np.float64)}
    expected = whole(scaling)[start:stop]
    for part, block in zip(parts, blocks, strict=True):
        own = slice(part.start - start, part.stop - start)
        rows = expected[own] if chosen is None else expected[own][chosen[own]]
        assert block.shape == rows.shape
        assert dense(block).tobytes() == rows.astype(block.dtype).tobytes()


def test_each_band_is_read_once(tiles: Tiles) -> None:
    with counted_bytes() as counted:
        assert sum(block.shape[0] for _, block in tiles.aligned_rows(slice(5, 900), 100)) == 895
    shape = tiles.shape
    if tiles.store.root is not None and not shape.is_sparse:
        width = -(-N_FEATURES // shape.tile_columns) * shape.tile_columns
        assert counted.read == -(-900 // shape.tile_rows) * shape.tile_rows * width * shape.itemsize
