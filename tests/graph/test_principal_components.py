"""Graphs of rows in their principal components: those of scikit-learn's PCA, whichever way they are found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from daskfs import LaplacianScore, SSelect, knn_graph, load_job, run_job
from daskfs.criteria.registry import make_method
from daskfs.errors import JobError
from daskfs.estimators.opening import stored_context
from daskfs.graph import partitioned_search, principal_components, rows
from daskfs.graph.spec import GraphSpec
from daskfs.plan.inline import find_lists, memory_context, score_features
from daskfs.plan.transforms import asked_scalings
from daskfs.store import layout
from daskfs.store.context import put_weights
from daskfs.tiles import row_partitions
from tests.cases import each
from tests.cli.command import daskfs
from tests.execution.runs import HERE, write_job
from tests.reference.graph import knn_lists
from tests.tiles.test_transforms import counts, transformed

FloatArray = NDArray[np.float64]
ROUTES = ("one pass", "few rows", "several passes")
CHAINS = ("", "zscore+", "total+log1p+", "total=50+log1p+zscore+", "log1p+unit+")


@pytest.fixture(params=ROUTES)
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way components are found, for 60 columns and any number of rows."""
    if request.param != "one pass":
        monkeypatch.setattr(principal_components, "COVARIANCE_COLUMNS", 0)
        monkeypatch.setattr(principal_components, "OVERSAMPLED", 9)
        monkeypatch.setattr(principal_components, "WHOLE_ROWS", 2**30 if request.param == "few rows" else 0)
    return str(request.param)


def projected(X: FloatArray, chain: str, n_components: int, weights: FloatArray | None) -> tuple[FloatArray, Any]:
    """Return rescaled rows in their components, float32, and the share of the variance that each of these has."""
    Z = transformed(X, chain.removesuffix("+"), weights) if chain else X
    Z = Z - np.average(Z, axis=0, weights=weights)
    counted = Z if weights is None else Z * np.sqrt(weights)[:, None]
    _, lengths, directions = np.linalg.svd(counted, full_matrices=False)
    shares = lengths**2 / (lengths**2).sum()
    return (Z @ directions[:n_components].T).astype(np.float32).astype(float), shares[:n_components]


@pytest.mark.usefixtures("route")
@each(
    ("chain", "sparse", "weighted"),
    [(chain, sparse, weighted) for chain in CHAINS for sparse in (False, True) for weighted in (False, True)],
)
def test_neighbors_are_those_of_projected_rows(chain: str, sparse: bool, weighted: bool) -> None:
    """Rows have few dimensions, which several passes find all."""
    X, labels = counts(90, 12)
    X = np.tile(X, 5)
    weights = np.arange(90.0) % 4 if weighted else None
    context = memory_context(sp.csr_matrix(X) if sparse else X, labels, weights)
    spec = GraphSpec(scaling=f"{chain}pca=2")
    indices, distances, _ = find_lists(context, spec, 5)
    values, shares = projected(X, chain, 2, weights)
    expected, lengths = knn_lists(values, 5, "euclidean")
    np.testing.assert_allclose(distances, lengths, rtol=1e-4, atol=1e-4 * np.median(lengths))
    assert (indices == expected).mean() > 0.99
    found = context.store.need_json(layout.PCA_SUMMARY.format(spec.scaling))
    np.testing.assert_allclose(found["explained_variance_ratio"], shares, rtol=1e-6)


@pytest.mark.usefixtures("route")
@pytest.mark.parametrize(("sparse", "weighted"), [(False, True), pytest.param(True, False, marks=pytest.mark.long)])
def test_tiles_do_not_change_a_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse: bool, weighted: bool
) -> None:
    """Of rows in several stretches, whose sums are added in order."""
    for module in (row_partitions, rows, principal_components):
        monkeypatch.setattr(module, "SMALLEST_STRETCH", 512)
    X, labels = counts(1500, 60)
    matrix: Any = sp.csr_matrix(X) if sparse else X
    weights = np.random.default_rng(5).uniform(0, 2, len(X)) if weighted else None
    method = make_method("LaplacianScore", {"graph_scaling": "total+log1p+pca=2"})
    expected = score_features(memory_context(matrix, labels, weights), [method], labels)
    paths = [tmp_path / "X.npz"]
    if sparse:
        sp.save_npz(paths[0], matrix)
    else:
        paths = [tmp_path / f"{rows}.zarr" for rows in (1024, 4096)]
        for path, chunk in zip(paths, ((1024, 23), (4096, 60)), strict=True):
            zarr.create_array(store=str(path), shape=X.shape, dtype=X.dtype, chunks=chunk)[...] = X
    for path in paths:
        with stored_context(path) as (context, _, pool):
            put_weights(context.store, weights)
            found = score_features(context, [method], labels, None, pool)
        assert found[method.label].tobytes() == expected[method.label].tobytes(), path


@pytest.mark.usefixtures("route")
def test_rows_of_fewer_dimensions_than_components() -> None:
    """What the rows do not have adds nothing to a distance, and constant rows have none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2)) @ rng.normal(size=(2, 60))
    graph, expected = knn_graph(X, 4, graph_scaling="pca=4"), knn_graph(X, 4)
    np.testing.assert_array_equal(graph.indices, expected.indices)
    np.testing.assert_allclose(graph.distances, expected.distances, rtol=1e-4)
    assert knn_graph(X[:5], 4, graph_scaling="pca=50").distances.shape == (5, 4)
    np.testing.assert_array_equal(knn_graph(np.ones((40, 60)), 4, graph_scaling="pca=3").distances, 0)


def test_a_job_tells_the_explained_variance(tmp_path: Path) -> None:
    digits = load_digits()
    job = load_job(
        write_job(
            tmp_path,
            "sklearn:digits",
            transform={"graph": ["zscore", "pca=10"]},
            graph={"engine": "cells"},
            methods=["LaplacianScore"],
            evaluate=None,
            cluster={"workers": 0},
        )
    )
    run_job(job)
    (graph,) = json.loads((tmp_path / "run" / "run.json").read_text())["graphs"]
    spread = digits.data.std(axis=0)
    pca = PCA(10, svd_solver="full").fit(digits.data / np.where(spread > 0, spread, 1))
    np.testing.assert_allclose(graph["explained_variance_ratio"], pca.explained_variance_ratio_, rtol=1e-6)
    assert graph["scaling"] == "zscore+pca=10"
    assert (
        f"10, with {pca.explained_variance_ratio_.sum():.1%} of the variance"
        in (tmp_path / "run" / "report.html").read_text()
    )


def test_a_pass_is_planned_only_where_means_are_unknown() -> None:
    def asked(graph: str, *, weighted: bool = False) -> tuple[str, ...]:
        method = make_method("LaplacianScore", {"graph_scaling": graph})
        return asked_scalings([method], method.parameters.lists(50), weighted=weighted)

    assert asked("pca=3") == asked("zscore+pca=3") == ()
    assert asked("log1p+pca=3") == ("log1p+pca=3",)
    assert asked("log1p+zscore+pca=3") == ("log1p+zscore",)
    assert (asked("pca=3", weighted=True), asked("zscore+pca=3", weighted=True)) == (("pca=3",), ("zscore",))


@each(
    ("scaling", "message"),
    [("pca", "pca=50"), ("pca=0", "1 to 1000"), ("pca=x", "1 to 1000"), ("pca=5+zscore", "in this order"),
     ("zscore+pcs=3", "Did you mean 'pca'")],
)  # fmt: skip
def test_steps_that_are_none(scaling: str, message: str) -> None:
    X, labels = counts()
    with pytest.raises(ValueError, match=message):
        SSelect(graph_scaling=scaling).fit(X, labels.values)
    with pytest.raises(ValueError, match=message):
        knn_graph(X, graph_scaling=scaling)


def test_features_are_scored_in_their_own_columns() -> None:
    X, _ = counts()
    with pytest.raises(ValueError, match="for the graph only"):
        LaplacianScore(score_scaling="zscore+pca=2").fit(X)


def test_missing_values_are_filled_before() -> None:
    X, _ = counts()
    X[3, 2] = np.nan
    assert knn_graph(X, 3, graph_scaling="pca=2", missing="mean").indices.shape == (90, 3)
    with pytest.raises(JobError, match=r"data\.missing: mean"):
        knn_graph(X, 3, graph_scaling="pca=2", missing="pairwise")


def test_a_search_that_finds_little_says_so_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the terminal, with the remedy; `tests/graph/test_partitioned_search.py` has rows of which it is true."""
    monkeypatch.setattr(partitioned_search, "LOW_RECALL", 2.0)
    source = "synthetic:mixture?n_samples=900&n_features=20&n_classes=2&n_informative=4&seed=0"
    blocks: dict[str, Any] = {"graph": {"engine": "cells"}, "methods": ["LaplacianScore"], "evaluate": None}
    ran = daskfs("run", write_job(tmp_path, source, **blocks), *HERE)
    assert ran.code == 0, ran.err
    parts = "stage cells-euclidean", "of a sample, the search by cells finds", "pca=50", "stage build-euclidean"
    places = [ran.err.index(part) for part in parts]
    assert places == sorted(places), ran.err
