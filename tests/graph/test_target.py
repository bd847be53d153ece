"""Lists by target in a store: blocks, units, unlabeled rows, and what cannot be sorted into a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskfs.criteria.registry import make_method
from daskfs.errors import InputError
from daskfs.graph import target
from daskfs.graph.edges import weight_summary
from daskfs.graph.partition import block_rows
from daskfs.graph.plan import plan_edges, plan_lists, plan_weights
from daskfs.graph.spec import TARGET_NAMES, TargetGraph, Weighting
from daskfs.graph.target import blocks_per_unit, unit_blocks
from daskfs.kernels.labels import Labels
from daskfs.kernels.neighbors.targets import SortedTargets
from daskfs.plan.chain import Chain, Data
from daskfs.plan.inline import memory_context, run_all
from daskfs.plan.lists import needed_lists
from daskfs.stages.cost import Workers
from daskfs.stages.limits import check_memory
from daskfs.stages.units import create_arrays, run_unit
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import plan_shape
from tests.cases import each
from tests.reference.labeled import nearest, target_distances

GiB = 2**30


def context_of(y: np.ndarray) -> Context:
    return memory_context(np.zeros((y.size, 1)), Labels("regression", y))


def written(context: Context, lists: TargetGraph, k: int) -> tuple[Any, Any, int]:
    """Return lists, and how many units wrote them, the last one first."""
    stages = find, _ = plan_lists(context.tiles.shape, lists, k)
    create_arrays(context, stages)
    for stage in stages:
        for unit in reversed(range(stage.n_units)):
            run_unit(context, stage, unit)
    store = context.store
    name = lists.name
    return store.open(layout.KNN_INDICES.format(name)), store.open(layout.KNN_DISTANCES.format(name)), find.n_units


def partly(n: int, share: float = 0.5) -> np.ndarray:
    rng = np.random.default_rng(n)
    return np.where(rng.random(n) < share, rng.normal(size=n).round(2), np.nan)


@each("standardize", [True, False])
def test_lists_of_labeled_rows_and_of_no_others(standardize: bool) -> None:
    y = partly(150)
    indices, distances, _ = written(context_of(y), TargetGraph(standardize), 5)
    expected = nearest(target_distances(y, standardize=False), 5)
    np.testing.assert_array_equal(indices, expected[0])
    scale = np.nanstd(y) if standardize else 1.0
    np.testing.assert_allclose(distances, expected[1] / scale, rtol=1e-13)
    assert (indices[np.isnan(y)] == -1).all()


@given(st.data())
def test_ranges_of_targets_do_not_show(data: st.DataObject) -> None:
    """However many rows share a target, and wherever ranges and units are cut."""
    n, k = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 6))
    n_values = data.draw(st.sampled_from([2, 3, 10, 1000]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    y = np.where(rng.random(n) < data.draw(st.sampled_from([0.4, 1.0])), rng.integers(0, n_values, n) / 4, np.nan)
    y[:2] = 0.0, 1.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "RANGE_ROWS", data.draw(st.integers(1, n)))
        patch.setattr(target, "TARGET_ENTRIES", 1)
        patch.setattr(target, "SAMPLED_ROWS", data.draw(st.integers(1, n)))
        patch.setattr(target, "LABEL_CHUNK_ROWS", data.draw(st.integers(1, n)))
        for name in ("daskfs.graph.target.block_rows", "daskfs.graph.plan.block_rows"):
            patch.setattr(name, lambda _: 16)
        indices, distances, n_units = written(context_of(y), TargetGraph(), k)
    assert n_units == -(-n // target.RANGE_ROWS) or n < target.RANGE_ROWS
    expected = SortedTargets.of(y, np.dtype(np.int64), standardize=True)
    known = np.flatnonzero(~np.isnan(y))
    nearest_known, lengths = expected.nearest(y[known], known, k)
    np.testing.assert_array_equal(indices[known], nearest_known)
    np.testing.assert_allclose(distances[known], lengths, rtol=1e-13)
    unlabeled = np.isnan(y)
    assert (indices[unlabeled] == -1).all()
    assert np.isinf(distances[unlabeled]).all()


@given(st.integers(1, 10**9))
def test_units_cover_the_rows_and_are_few(n_samples: int) -> None:
    """Of stages that sort all targets."""
    per_unit = blocks_per_unit(n_samples)
    n_units = -(-n_samples // (per_unit * block_rows(n_samples)))
    assert n_units <= target.TARGET_UNITS
    blocks = unit_blocks(n_samples, per_unit, n_units - 1)
    assert blocks[-1].stop == n_samples
    assert blocks[0].start == (n_units - 1) * per_unit * block_rows(n_samples)
    assert all(block.start % block_rows(n_samples) == 0 for block in blocks)


@each(
    ("y", "message"),
    [
        ([np.nan, np.nan], "need two labeled rows, and there are 0 of 2"),
        ([np.nan, 3.0], "need two labeled rows, and there are 1 of 2"),
        ([2.5, np.nan, 2.5], "need targets that differ, and all 2 labeled rows have 2.5"),
        ([-1e300, 1e300, 0.0], "from -1e\\+300 to 1e\\+300 have no standard deviation"),
    ],
)
def test_what_cannot_be_a_graph(y: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        written(context_of(np.array(y)), TargetGraph(), 2)


def test_of_the_graph_only_labeled_rows_are_nodes() -> None:
    y = np.array([np.nan, 0.0, 0.1, np.nan, 5.0, 5.1, 5.2])
    context, lists = context_of(y), TargetGraph(standardize=False)
    stages = plan_lists(context.tiles.shape, lists, 1) + plan_edges(7, lists.name, 1, ())
    weighting = Weighting(lists.name, 1, "heat", 1.0)
    run_all(context, [*stages, *plan_weights(7, [weighting], ())], None)
    summary = context.store.read_json(layout.GRAPH_SUMMARY.format(lists.name, 1))
    assert {key: summary[key] for key in ("n_nodes", "n_edges", "n_components", "n_isolated", "max_degree")} == {
        "n_nodes": 5,
        "n_edges": 3,
        "n_components": 2,
        "n_isolated": 0,
        "max_degree": 2,
    }
    assert summary["mean_degree"] == pytest.approx(6 / 5)
    assert sum(summary["degree_histogram"]["counts"]) == 5
    weights = weight_summary(context.store, weighting)
    assert (weights["n_isolated"], weights["n_underflow"]) == (0, 0)


def test_names_that_stand_for_lists_by_target() -> None:
    assert TargetGraph(True).name in TARGET_NAMES
    assert TargetGraph(False).name in TARGET_NAMES
    assert TargetGraph(True).name != TargetGraph(False).name


@each(("n", "limit"), [(10**8, 16 * GiB), (10**9, 32 * GiB)])
def test_many_labeled_rows_fit_a_worker(n: int, limit: int) -> None:
    shape = plan_shape(n, 100, "float32", None, limit)
    method = make_method("SupervisedLaplacianScore", {})
    stages = Chain(Data(shape), [method], needed_lists([method], n), memory_limit=limit).stages()
    check_memory(stages, Workers(limit))
    assert (stages[0].n_units, stages[1].bytes_written) == (max(8, n // 2**26 + 1), n * 5 * 12)


def test_planned_bytes_grow_with_the_rows() -> None:
    small, large = (plan_lists(Shape(n, 4, "float32", False, None, n, 4), TargetGraph(), 5)[0] for n in (10**5, 10**6))
    assert small.peak_bytes < large.peak_bytes
    assert small.bytes_read < large.bytes_read
