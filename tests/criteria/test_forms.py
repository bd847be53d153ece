"""Compiled and plain passes, few and many criteria, isolated rows and far means: the scores of a slab are the same."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from daskfs.criteria.registry import Method, criteria, make_method
from daskfs.criteria.slab import stream_cost
from daskfs.graph.edges import weighted_blocks
from daskfs.graph.partition import block_rows
from daskfs.graph.plan import plan_edges
from daskfs.graph.precomputed import WeightMatrix
from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.panel import backend
from daskfs.plan.inline import memory_context, score_features
from daskfs.stages.cost import total
from daskfs.stages.units import create_arrays, run_unit
from daskfs.store import layout
from daskfs.store.store import Store

N_SAMPLES = 600
GRAPHS: tuple[dict[str, Any], ...] = (
    {},
    {"weights": "binary"},
    {"t": "median", "self_loops": True},
    {"self_loops": True},
    {"score_scaling": "zscore"},
)


def data() -> tuple[NDArray[np.float32], Labels]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_SAMPLES, 70)).astype(np.float32)
    X[:, 3] = 2.0
    codes = np.where(rng.random(N_SAMPLES) < 0.3, rng.integers(0, 3, N_SAMPLES), -1)
    return X, Labels("classification", codes.astype(np.int32), ("a", "b", "c"))


def every_method(left_out: tuple[str, ...] = ()) -> list[Method]:
    names = [n for n, criterion in criteria().items() if "classification" in criterion.tasks and n not in left_out]
    methods = [make_method(name, {}, name) for name in names]
    return methods + [make_method("LaplacianScore", dict(given), f"{given}") for given in GRAPHS[1:]]


# RLSR stands for those that begin alike and end in rounds of their own
@pytest.mark.parametrize(
    "left_out", [("DSSFS", "SSUFS", "SVMRFE"), pytest.param((), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_compiled_and_plain_passes_give_the_same_scores(
    left_out: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    X, labels = data()
    plain = score_features(memory_context(X, labels), every_method(left_out), labels)
    monkeypatch.setattr(backend, "COMPILED_VALUES", 1)
    compiled = score_features(memory_context(X, labels), every_method(left_out), labels)
    assert list(plain) == list(compiled)
    for label, table in plain.items():
        np.testing.assert_array_equal(compiled[label], table, err_msg=label)


def test_a_criterion_scores_alone_as_among_others() -> None:
    X, labels = data()
    methods = [make_method("LaplacianScore", dict(given), f"{given}") for given in GRAPHS]
    together = score_features(memory_context(X, labels), methods, labels)
    for method in methods:
        alone = score_features(memory_context(X, labels), [method], labels)
        np.testing.assert_array_equal(alone[method.label], together[method.label], err_msg=method.label)


@pytest.mark.parametrize("smallest", [1, backend.COMPILED_VALUES], ids=["compiled", "plain"])
def test_rows_without_an_edge_have_no_say(monkeypatch: pytest.MonkeyPatch, smallest: int) -> None:
    """However far from the others they lie; and a column that is constant on the others has no score."""
    monkeypatch.setattr(backend, "COMPILED_VALUES", smallest)
    n_edges = 400
    rng = np.random.default_rng(1)
    source = np.arange(n_edges)
    target = (source + rng.integers(1, n_edges, n_edges)) % n_edges
    weights = rng.uniform(0.5, 1.0, n_edges)
    X = rng.standard_normal((N_SAMPLES, 5))
    X[:n_edges, 4] = 0.25
    moved = X.copy()
    moved[n_edges:, 1:] += 1e8
    parameters = {"graph": "given"}
    tables = []
    for values in (X, moved):
        graph = WeightMatrix("graph", (N_SAMPLES, N_SAMPLES), source, target, weights)
        method = make_method("LaplacianScore", parameters)
        tables.append(score_features(memory_context(values, None), [method], None, graph)["LaplacianScore"])
    np.testing.assert_allclose(tables[1], tables[0], rtol=1e-12)
    assert np.isnan(tables[0][0]).tolist() == [False] * 4 + [True]
    S = np.zeros((N_SAMPLES, N_SAMPLES))
    np.maximum.at(S, (source, target), weights)
    S = np.maximum(S, S.T)
    degrees = S.sum(axis=1)
    for column in range(4):
        f = X[:, column] - degrees @ X[:, column] / degrees.sum()
        expected = (f @ (np.diag(degrees) - S) @ f) / (f @ (degrees * f))
        np.testing.assert_allclose(tables[0][0, column], expected, rtol=1e-10)


@pytest.mark.parametrize("n_weightings", [1, 3, 12])
def test_edges_take_what_is_planned_however_many_weights_they_have(tmp_path: Path, n_weightings: int) -> None:
    n_samples, k = 3 * 4096, 20
    rng, size = np.random.default_rng(0), block_rows(n_samples)
    context = memory_context(np.zeros((n_samples, 1)), None).with_store(Store(tmp_path))
    indices = (np.arange(n_samples)[:, None] + np.arange(1, k + 1)) % n_samples  # no two rows list each other
    context.store.put_array(layout.KNN_INDICES.format("g"), indices.astype(np.int32), (size, k))
    context.store.put_array(layout.KNN_DISTANCES.format("g"), rng.random((n_samples, k)), (size, k))
    (edges, _) = stages = plan_edges(n_samples, "g", k, ())
    create_arrays(context, stages)
    run_unit(context, edges, 0)
    weightings = [Weighting("g", k, "heat", float(t)) for t in range(1, n_weightings + 1)]
    for weighting in weightings:
        facts = np.array([[weighting.t, 1, 0, 0, 0, 1.0]])  # layout.WEIGHT_FACTS
        context.store.put_array(layout.WEIGHT_PARTS.format(weighting.key), facts, facts.shape)
    tracemalloc.start()
    for _source, _target, weights in weighted_blocks(context, "g", k, weightings):
        assert weights.shape == (n_weightings, size * k)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= total(stream_cost(n_samples, weightings))
