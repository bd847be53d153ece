"""Chains of scalings: every method on values rescaled on the fly is the method on values rescaled beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray

from daskfs import RRPC, LaplacianScore, RedundancyFilter, SSelect, distance_correlation_matrix, knn_graph
from daskfs.criteria.registry import criteria, make_method
from daskfs.errors import InputError
from daskfs.estimators.opening import stored_context
from daskfs.kernels.labels import Labels
from daskfs.plan.inline import memory_context, score_features
from daskfs.plan.transforms import asked_scalings
from daskfs.store.context import put_weights
from tests.cases import case

FloatArray = NDArray[np.float64]
CHAINS = (
    "total",
    "total=50+log1p",
    "total+log1p+zscore",
    "log1p+unit",
    "log1p+zscore",
    "total+log1p+unit",
)
SETTINGS: dict[str, dict[str, Any]] = {
    "SVMRFE": {"step": 3, "n_singly": 2},
    "SSelect": {"trade_off": "auto"},
    "RLSR": {"greedy_filter": True},
}


def counts(n: int = 90, d: int = 12) -> tuple[FloatArray, Labels]:
    """Return counts as of cells and genes, of several depths, with a row of zeros and a constant column."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, n)
    X = rng.poisson(rng.uniform(1, 6, (3, d))[codes] * rng.choice([1, 2, 5], n)[:, None]).astype(np.float64)
    X[rng.random(X.shape) < 0.4] = 0
    X[7], X[:, 4] = 0, 0
    known = np.where(rng.random(n) < 0.7, codes, -1).astype(np.int32)
    return X, Labels("classification", known, ("a", "b", "c"))


WEIGHTS = np.arange(90.0) % 4


def transformed(X: FloatArray, chain: str, weights: FloatArray | None = None) -> FloatArray:
    """Return the values after all steps, as the libraries of single cells and of text take them; z-scores by weight."""
    for step in chain.split("+"):
        if step.startswith("total"):
            sums = X.sum(axis=1, keepdims=True)
            target = float(step[6:]) if "=" in step else np.median(sums[sums > 0])
            X = X / np.where(sums > 0, sums, 1) * target
        elif step == "log1p":
            X = np.log1p(X)
        elif step == "unit":
            norms = np.linalg.norm(X, axis=1, keepdims=True)
            X = X / np.where(norms > 0, norms, 1)
        else:
            mean = np.average(X, axis=0, weights=weights)
            spread = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
            X = (X - mean) / np.where(spread > 0, spread, np.inf)
    return X


def scored(X: Any, labels: Labels, name: str, scaling: str | None, weights: FloatArray | None = None) -> FloatArray:
    parameters = {key: scaling for key in ("score_scaling", "graph_scaling") if key in fields(name)}
    method = make_method(name, {**SETTINGS.get(name, {}), **parameters})
    return score_features(memory_context(X, labels, weights), [method], labels)[name]


def fields(name: str) -> Any:
    return criteria()[name].parameters.model_fields


NAMES = [name for name, criterion in criteria().items() if "classification" in criterion.tasks]


# a chain of each kind: a total over the row, one that is given, norms, and statistics of columns
OFTEN = ("total+log1p+zscore", "total=50+log1p", "log1p+unit")


@pytest.mark.parametrize("chain", [c if c in OFTEN else pytest.param(c, marks=pytest.mark.long) for c in CHAINS])
def test_every_method(chain: str) -> None:
    """Dense and sparse rows alike."""
    X, labels = counts()
    for name in NAMES:
        with case(name):
            found = scored(X, labels, name, chain)
            expected = scored(transformed(X, chain), labels, name, None)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
            if name in ("LaplacianScore", "SSelect", "RRPC", "RLSR", "SVMRFE"):
                sparse = scored(sp.csr_matrix(X), labels, name, chain)
                np.testing.assert_allclose(sparse, found, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("chain", ["zscore", "total+log1p+zscore"])
def test_z_scores_are_by_weight(chain: str) -> None:
    """In graph space and in score space; a column that is constant on the rows that count is 0 in all of them."""
    X, labels = counts()
    X[:, 5] = np.where(WEIGHTS > 0, 2, X[:, 5])
    for name in NAMES:
        with case(name):
            found = scored(X, labels, name, chain, WEIGHTS)
            expected = scored(transformed(X, chain, WEIGHTS), labels, name, None, WEIGHTS)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("chain", "engine"),
    [
        ("total=50+log1p", "exact"),
        ("total+log1p+zscore", "cells"),
        ("log1p+unit", "exact"),
        pytest.param("total=50+log1p", "cells", marks=pytest.mark.long),
        pytest.param("total+log1p+zscore", "exact", marks=pytest.mark.long),
        pytest.param("log1p+unit", "cells", marks=pytest.mark.long),
    ],
)
def test_graph(chain: str, engine: Any) -> None:
    X, _ = counts(6000, 15)  # more than one chunk of the graph's arrays
    X += np.random.default_rng(0).random(X.shape)  # no ties
    graph, before = (
        knn_graph(values, 5, graph_scaling=scaling, engine=engine)
        for values, scaling in ((X, chain), (transformed(X, chain), None))
    )
    assert graph.graph_scaling == chain
    agree = graph.indices == before.indices
    assert agree.mean() > 0.999
    np.testing.assert_allclose(graph.distances[agree], before.distances[agree], rtol=1e-9)


@pytest.mark.parametrize(
    ("sparse", "weighted"),
    [
        (False, True),
        (True, False),
        pytest.param(False, False, marks=pytest.mark.long),
        pytest.param(True, True, marks=pytest.mark.long),
    ],
)
def test_tiles_do_not_change_a_bit(tmp_path: Path, sparse: bool, weighted: bool) -> None:
    """Of statistics, whose bands are merged along a tree, and of what follows from them."""
    weights = np.random.default_rng(5).uniform(0, 2, 5000) if weighted else None
    X, labels = counts(5000, 12)
    X[10] = 3
    matrix: Any = sp.csr_matrix(X) if sparse else X
    methods = [
        make_method("LaplacianScore", {"graph_scaling": "total+log1p+zscore", "score_scaling": chain}, chain)
        for chain in ("total+log1p+zscore", "total+log1p+unit", "log1p+unit", "zscore")
    ]
    expected = score_features(memory_context(matrix, labels, weights), methods, labels)
    if sparse:
        paths = [tmp_path / "X.npz"]
        sp.save_npz(paths[0], matrix)
    else:
        paths = [tmp_path / f"{rows}.zarr" for rows in (1024, 4096)]
        for path, chunk in zip(paths, ((1024, 5), (4096, 12)), strict=True):
            zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=chunk)[...] = X
    for path in paths:
        with stored_context(path) as (context, _, pool):
            put_weights(context.store, weights)
            found = score_features(context, methods, labels, None, pool)
        for label, table in expected.items():
            assert found[label].tobytes() == table.tobytes(), (path, label)


def test_a_scaling_is_one_text_however_it_is_written() -> None:
    X, _ = counts()
    selector = LaplacianScore(graph_scaling="total = 1e4 + log1p").fit(X)
    same = LaplacianScore(graph_scaling="total=10000+log1p").fit(X)
    assert selector.scores_.tobytes() == same.scores_.tobytes()
    listed = make_method("LaplacianScore", {"graph_scaling": ["total=10000.0", "log1p"]})
    assert listed.parameters.spec.name == "euclidean-total=10000+log1p"  # type: ignore[attr-defined]


def test_a_pass_is_planned_only_where_statistics_are_asked_for() -> None:
    def asked(weighted: bool = False, **scalings: str) -> tuple[str, ...]:
        method = make_method("LaplacianScore", scalings)
        return asked_scalings([method], method.parameters.lists(50), weighted=weighted)

    assert asked(graph_scaling="zscore", score_scaling="total=10+log1p") == ()
    assert asked(weighted=True, graph_scaling="zscore", score_scaling="unit") == ("zscore",)
    assert asked(graph_scaling="total+log1p+unit") == ()  # whole rows say their norms
    assert asked(score_scaling="total+log1p+unit") == ("total+log1p+unit",)
    assert asked(graph_scaling="log1p+zscore", score_scaling="log1p+zscore") == ("log1p+zscore",)


def test_what_compares_columns() -> None:
    X, labels = counts()
    filters = [RedundancyFilter(RRPC(score_scaling=scaling), threshold=0.3) for scaling in ("total+log1p+unit", None)]
    found = filters[0].fit(X, labels.values)
    expected = filters[1].fit(transformed(X, "total+log1p+unit"), labels.values)
    assert 1 < found.n_kept_ == expected.n_kept_
    np.testing.assert_array_equal(found.ranking_, expected.ranking_)
    correlations = distance_correlation_matrix(X, score_scaling="total+log1p+zscore")
    before = distance_correlation_matrix(transformed(X, "total+log1p"))
    np.testing.assert_allclose(correlations, before, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("value", "chain", "parts"),
    [(-2.0, "total+log1p", ("'total' needs values of 0 or more", "column 3", "-2", "row 5")),
     (-1.0, "log1p", ("values above -1", "column 3 ('x3')", "row 5"))],
)  # fmt: skip
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_values_that_cannot_be_rescaled(form: Any, value: float, chain: str, parts: tuple[str, ...]) -> None:
    X, _ = counts()
    X[5, 3] = value
    with pytest.raises(InputError) as caught:
        LaplacianScore(score_scaling=chain).fit(form(X))
    assert [part for part in parts if part not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("scaling", "message"),
    [("zscor", "Did you mean 'zscore'"), ("log1p+total", "in this order"), ("unit+zscore", "in this order"),
     ("total=-3", "between 1e-100 and 1e"), ("total=nan", "between"), ("log1p=2", "unknown step 'log1p=2'")],
)  # fmt: skip
def test_chains_that_are_none(scaling: str, message: str) -> None:
    X, labels = counts()
    with pytest.raises(ValueError, match=message):
        SSelect(graph_scaling=scaling).fit(X, labels.values)
    with pytest.raises(ValueError, match=message):
        knn_graph(X, graph_scaling=scaling)
