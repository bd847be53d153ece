"""Compiled passes and those of NumPy give the same bits, and the choice between them follows from the data alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import DTypeLike, NDArray

from daskfs.kernels.panel import numba as compiled
from daskfs.kernels.panel import numpy as plain
from daskfs.kernels.panel.backend import COMPILED_VALUES, PLAIN, passes_for
from daskfs.kernels.panel.numpy import CACHE_LINE
from tests.cases import each

FloatArray = NDArray[np.float64]
TYPES = [np.float32, *(pytest.param(dtype, marks=pytest.mark.long) for dtype in (np.float64, np.int16, np.uint8))]


def panel(rng: np.random.Generator, n_rows: int, width: int, dtype: DTypeLike) -> NDArray[np.generic]:
    """Values of many magnitudes, so that another order of additions shows."""
    if np.dtype(dtype).kind != "f":
        return rng.integers(0, 200, (n_rows, width)).astype(dtype)
    return (rng.standard_normal((n_rows, width)) * 10.0 ** rng.integers(-3, 4, (n_rows, 1)) + 1e4).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(
    n_rows=st.integers(1, 70),
    width=st.integers(1, 40),
    n_weightings=st.integers(1, 5),
    n_edges=st.one_of(st.integers(0, 40), st.integers(1000, 2500)),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_same_bits(dtype: DTypeLike, n_rows: int, width: int, n_weightings: int, n_edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    F = panel(rng, n_rows, width, dtype)
    weights = rng.uniform(size=(n_weightings, n_rows)) * (rng.uniform(size=n_rows) < 0.8)
    center = F.astype(np.float64).mean(axis=0)
    parts = np.stack([center, center * 1e-3])
    source, target = rng.integers(0, n_rows, (2, n_edges))
    of_edges = rng.exponential(size=(n_weightings, n_edges))
    for G in (F, np.asfortranarray(F)):  # as indexing columns leaves them
        np.testing.assert_array_equal(compiled.weighted_sums(F, weights), plain.weighted_sums(G, weights))
        np.testing.assert_array_equal(compiled.power_sums(F, parts, center), plain.power_sums(G, parts, center))
        sums = plain.deviation_sums(G, center, weights)
        np.testing.assert_array_equal(compiled.deviation_sums(F, center, weights), sums)
        np.testing.assert_array_equal(compiled.extremes(F), plain.extremes(G))
        np.testing.assert_array_equal(
            compiled.edge_sums(F, source, target, of_edges), plain.edge_sums(G, source, target, of_edges)
        )


@pytest.mark.parametrize("dtype", TYPES)
@settings(max_examples=25, deadline=None)
@given(
    n_rows=st.integers(1, 70),
    width=st.one_of(st.integers(1, 64), st.just(64)),
    n_weightings=st.integers(1, 3),
    n_edges=st.one_of(st.integers(0, 40), st.integers(1000, 2500)),
    share=st.sampled_from([0.0, 0.01, 0.06]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_same_bits_of_edges_that_visit_what_is_not_0(
    dtype: DTypeLike, n_rows: int, width: int, n_weightings: int, n_edges: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    F = panel(rng, n_rows, width, dtype)
    F[rng.permuted(np.arange(F.size) >= int(share * F.size)).reshape(F.shape)] = 0
    if np.dtype(dtype).kind == "f":
        F = F * np.where(rng.random(F.shape) < 0.5, -1, 1).astype(dtype)  # there is a 0 of either sign
    sparse = compiled.compressed(F)
    assert (sparse is None) == (F[0].nbytes <= CACHE_LINE)
    source, target = rng.integers(0, n_rows, (2, n_edges))
    weights = rng.exponential(size=(n_weightings, n_edges))
    found = compiled.edge_sums(F, source, target, weights, sparse)
    np.testing.assert_array_equal(found, plain.edge_sums(F, source, target, weights))


def test_panels_of_many_values_are_not_compressed() -> None:
    F = np.zeros((32, 64), np.float32)
    F.flat[: F.size // 16] = 1
    assert compiled.compressed(F) is not None
    F.flat[F.size // 16] = 1
    assert compiled.compressed(F) is None
    assert plain.compressed(np.zeros_like(F)) is None


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.long), np.float64])
@settings(max_examples=25, deadline=None)
@given(
    n_rows=st.integers(1, 70),
    width=st.integers(1, 40),
    n_weightings=st.integers(1, 4),
    n_edges=st.one_of(st.integers(0, 40), st.integers(1000, 2500)),
    share=st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_same_bits_of_edges_between_rows_that_have_a_value(
    dtype: DTypeLike, n_rows: int, width: int, n_weightings: int, n_edges: int, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    F = panel(rng, n_rows, width, dtype)
    F[rng.random(F.shape) < share] = np.nan
    center = np.where(np.isnan(F), 0.0, F).astype(np.float64).mean(axis=0)
    source, target = rng.integers(0, n_rows, (2, n_edges))
    weights = rng.exponential(size=(n_weightings, n_edges)) * (rng.random((n_weightings, n_edges)) < 0.8)
    found, expected = (of.observed_edge_sums(F, center, source, target, weights) for of in (compiled, plain))
    for name in ("sums", "low", "high"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


def test_another_order_of_additions_would_show() -> None:
    """So the test above can fail."""
    rng = np.random.default_rng(0)
    F = panel(rng, 70, 8, np.float64)
    weights = rng.uniform(size=(1, 70))
    assert (compiled.weighted_sums(F, weights) != plain.weighted_sums(F[::-1], weights[:, ::-1])).any()


@each("width", [1, 5, 64])
def test_bits_do_not_depend_on_the_panel(width: int) -> None:
    rng = np.random.default_rng(1)
    F = panel(rng, 300, 64, np.float32)
    source, target = rng.integers(0, 300, (2, 2500))
    weights = rng.uniform(size=(3, 2500))
    part = np.ascontiguousarray(F[:, 64 - width :])
    whole = compiled.edge_sums(F, source, target, weights)
    np.testing.assert_array_equal(compiled.edge_sums(part, source, target, weights), whole[:, 64 - width :])


def test_views_types_of_rows_and_what_may_not_be_written() -> None:
    rng = np.random.default_rng(2)
    F = panel(rng, 90, 12, np.float32)
    F.setflags(write=False)
    source, target = rng.integers(0, 45, (2, 64)).astype(np.int32)
    weights = rng.uniform(size=(2, 64))
    for view in (F[::2], F[:, ::2], np.asfortranarray(F)):
        found = compiled.edge_sums(view, source, target, weights)
        np.testing.assert_array_equal(found, plain.edge_sums(np.ascontiguousarray(view), source, target, weights))


def test_the_size_of_x_and_its_type_choose() -> None:
    assert passes_for(COMPILED_VALUES - 1, np.dtype(np.float32)) is PLAIN
    assert passes_for(COMPILED_VALUES, np.dtype(np.float32)) is compiled
    for dtype in (np.float16, np.bool_):
        assert passes_for(COMPILED_VALUES, np.dtype(dtype)) is PLAIN


WITHOUT_CACHE = """
import numpy as np
from daskfs.kernels.panel import numba as compiled, numpy as plain
F = np.arange(12.0).reshape(6, 2)
w = np.ones((1, 6))
assert (compiled.weighted_sums(F, w) == plain.weighted_sums(F, w)).all()
print(compiled._weighted_sums.stats.cache_path)
"""


@pytest.mark.cluster
def test_without_a_place_for_machine_code() -> None:
    """As on clusters whose nodes may write neither to the environment nor to a home: numba would refuse to load."""
    code = f"import numba.core.caching as caching\ncaching.CacheImpl._locator_classes = []\n{WITHOUT_CACHE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "None"
