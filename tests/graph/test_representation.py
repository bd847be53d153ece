"""Graphs of rows in another representation: neighbors are those of its rows, and scores those of X."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline

from daskfs import (
    LSDF,
    SVMRFE,
    KNNGraph,
    LaplacianScore,
    RedundancyFilter,
    SemiSupervisedLaplacianScore,
    SSelect,
    VarianceScore,
    evaluate_selectors,
    knn_graph,
)
from daskfs.errors import InputError
from daskfs.graph import representation
from tests.cases import case, each
from tests.cli.command import Outcome, basic_job, daskfs, labels, matrix, refused, rows_of, write_job
from tests.optional import anndata

FloatArray = NDArray[np.float64]
USAGE, INPUT = 2, 3
N_COLUMNS = 3
SEARCHING: dict[str, Any] = {
    "LaplacianScore": LaplacianScore(n_neighbors=4),
    "cosine": LaplacianScore(n_neighbors=4, metric="cosine", graph_scaling="zscore"),
    "SSelect": SSelect(n_neighbors=4),
    "LSDF": LSDF(n_neighbors=4),
    "SVMRFE": SVMRFE(laplacian=True, n_neighbors=4),
}


def rep(n_samples: int = 30) -> FloatArray:
    """Return rows that have little to do with X, shape (n_samples, 3)."""
    return np.random.default_rng(8).normal(size=(n_samples, N_COLUMNS))


def partly() -> NDArray[np.int64]:
    return np.where(np.arange(30) % 4 == 0, -1, labels())


def given(graph: KNNGraph, estimator: Any) -> Any:
    return type(estimator)(**{**estimator.get_params(), "graph": graph})


@each("name", list(SEARCHING))
def test_scores_are_those_of_a_graph_of_its_rows(name: str) -> None:
    estimator = SEARCHING[name]
    found = estimator.fit(matrix(), partly(), use_rep=rep()).scores_.copy()
    graph = knn_graph(rep(), 4, metric=estimator.metric)
    np.testing.assert_array_equal(found, given(graph, estimator).fit(matrix(), partly()).scores_)
    assert not np.array_equal(found, estimator.fit(matrix(), partly()).scores_, equal_nan=True)


def test_mixed_distances_are_per_column_of_it() -> None:
    y = np.where(partly() < 0, np.nan, matrix()[:, 0])
    graph = knn_graph(rep(), 29)
    longer = KNNGraph(graph.indices, graph.distances * np.sqrt(matrix().shape[1] / N_COLUMNS), "euclidean")
    estimator = SemiSupervisedLaplacianScore(n_neighbors=4, n_label_neighbors=3)
    found = estimator.fit(matrix(), y, use_rep=rep()).scores_.copy()
    np.testing.assert_allclose(found, given(longer, estimator).fit(matrix(), y).scores_, rtol=1e-12)


# ------------------------------------------------------------------------------------ scikit-learn
def test_searches_slice_it_with_the_rows() -> None:
    X, y, values = matrix(), labels(), rep()
    folds = StratifiedKFold(3)
    with config_context(enable_metadata_routing=True):
        pipeline = Pipeline(
            [("select", LaplacianScore().set_fit_request(use_rep=True)), ("model", KNeighborsClassifier(3))]
        )
        search = GridSearchCV(pipeline, {"select__n_features_to_select": [1, 2]}, cv=folds).fit(X, y, use_rep=values)
    for number, (train, test) in enumerate(folds.split(X, y)):
        selector = LaplacianScore(1).fit(X[train], use_rep=values[train])
        model = KNeighborsClassifier(3).fit(selector.transform(X[train]), y[train])
        expected = model.score(selector.transform(X[test]), y[test])
        assert search.cv_results_[f"split{number}_test_score"][0] == expected


def test_a_filter_passes_it_on() -> None:
    found = RedundancyFilter(LaplacianScore(n_neighbors=4)).fit(matrix(), use_rep=rep())
    np.testing.assert_array_equal(found.scores_, LaplacianScore(n_neighbors=4).fit(matrix(), use_rep=rep()).scores_)
    with pytest.raises(TypeError, match="use_rep"):
        RedundancyFilter(VarianceScore()).fit(matrix(), use_rep=rep())


@each(
    ("values", "options", "message"),
    [
        (rep()[:29], {}, "29 rows, and X has 30"),
        (sp.csr_matrix(rep()), {}, "sparse"),
        (np.where(np.arange(30) == 7, np.nan, rep().T).T, {}, "use_rep.*row 7"),
        (rep(), {"graph": knn_graph(rep(), 5)}, "leave one of them out"),
    ],
)
def test_what_cannot_be_one(values: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LaplacianScore(**options).fit(matrix(), use_rep=values)


def test_plain_support_vectors_have_no_neighbors() -> None:
    with pytest.raises(InputError, match="laplacian=True"):
        SVMRFE().fit(matrix(), labels(), use_rep=rep())


# -------------------------------------------------------------------------------------------- jobs
def npy(folder: Path) -> str:
    np.save(folder / "rep.npy", rep())
    return str(folder / "rep.npy")


def npz(folder: Path) -> str:
    np.savez(folder / "all.npz", rep=rep(), other=rep()[:, :1])
    return f"{folder / 'all.npz'}:rep"


def zarr_array(folder: Path) -> str:
    group = zarr.open_group(folder / "file.zarr", mode="w")
    group.create_array("obsm/X_pca", data=rep(), chunks=(20, N_COLUMNS))
    return str(folder / "file.zarr" / "obsm" / "X_pca")


def h5ad(folder: Path, first: str = "cell0") -> str:
    """Write an AnnData file of rows with names."""
    cells = anndata.AnnData(matrix(), obsm={"X_pca": rep()})
    cells.obs_names = [first, *(f"cell{number}" for number in range(1, 30))]
    cells.write_h5ad(folder / "cells.h5ad")
    return f"{folder / 'cells.h5ad'}:obsm/X_pca"


def csv(folder: Path) -> str:
    lines = [",".join(map(repr, row)) for row in rep().tolist()]
    (folder / "rep.csv").write_text("\n".join(["a,b,c", *lines]) + "\n")
    return str(folder / "rep.csv")


def run(folder: Path, use_rep: str, **blocks: Any) -> Outcome:
    job = basic_job(folder, methods=[{"name": "LaplacianScore", "n_neighbors": 4}], **blocks)
    return daskfs("run", write_job(folder, {**job, "graph": {"use_rep": use_rep}}), "-q", "--json")


def scores(folder: Path) -> list[float]:
    rows = sorted(rows_of(folder / "run" / "ranking.csv"), key=lambda row: int(row["feature"]))
    return [float(row["score"] or "nan") for row in rows]


@pytest.mark.parametrize("form", [npy, npz, zarr_array, h5ad, csv])
def test_a_job_reads_it_from_any_source(tmp_path: Path, form: Callable[[Path], str]) -> None:
    outcome = run(tmp_path, where := form(tmp_path))
    assert outcome.code == 0, outcome.err
    expected = LaplacianScore(n_neighbors=4).fit(matrix(), use_rep=rep()).scores_
    np.testing.assert_allclose(scores(tmp_path), expected, rtol=1e-12)
    (graph,) = outcome.json["graphs"]
    assert graph["source"] == f"{where}, {N_COLUMNS} columns"
    assert daskfs("verify", tmp_path / "run").code == 0


@pytest.mark.parametrize(("source", "member"), [("all.npz", "rep"), ("cells.h5ad", "obsm/X_pca")])
def test_a_member_of_the_source(tmp_path: Path, source: str, member: str) -> None:
    np.savez(tmp_path / "all.npz", X=matrix(), rep=rep())
    h5ad(tmp_path)
    data = {"source": str(tmp_path / source), "array": "X"}
    outcome = run(tmp_path, member, data=data)
    assert outcome.code == 0, outcome.err
    np.testing.assert_array_equal(scores(tmp_path), LaplacianScore(n_neighbors=4).fit(matrix(), use_rep=rep()).scores_)


def test_units_and_groups_of_rows_find_what_one_search_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search by cells reads the sample, and its bands, of rows that several units wrote."""
    monkeypatch.setattr(representation, "UNIT_BYTES", 1)
    rng = np.random.default_rng(0)
    values, X = rng.normal(size=(40_000, 4)).astype(np.float32), rng.normal(size=(40_000, 3))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "rep.npy", values)
    job = {
        "data": {"source": str(tmp_path / "X.npy")},
        "graph": {"use_rep": str(tmp_path / "rep.npy"), "engine": "cells", "n_neighbors": 4},
        "methods": ["LaplacianScore"],
        "cluster": {"workers": 0},
        "output": {"path": str(tmp_path / "run")},
    }
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    stored = zarr.open_array(str(tmp_path / "run" / "knn" / "euclidean" / "indices"), mode="r")[...]
    np.testing.assert_array_equal(stored, knn_graph(values, 4, engine="cells").indices)


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_an_evaluation_compares_the_same_rows_of_it(tmp_path: Path, setting: str) -> None:
    evaluate = {"n_selected": [1, 2], "n_splits": 3, "setting": setting}
    outcome = run(tmp_path, npy(tmp_path), evaluate=evaluate)
    assert outcome.code == 0, outcome.err
    selector = {"LaplacianScore": LaplacianScore(n_neighbors=4)}
    found = evaluate_selectors(selector, matrix(), labels(), use_rep=rep(), **evaluate)  # type: ignore[arg-type]
    own = [float(row["value"]) for row in rows_of(tmp_path / "run" / "evaluation.csv")]
    assert own == found.values.column("value").to_pylist()
    without = evaluate_selectors(selector, matrix(), labels(), **evaluate)  # type: ignore[arg-type]
    assert own != without.values.column("value").to_pylist()


@pytest.mark.parametrize(("first", "is_same"), [("cell0", True), ("cell30", False)])
def test_rows_must_have_the_names_of_the_data(tmp_path: Path, first: str, is_same: bool) -> None:
    """Where both have names."""
    names = [f"cell{number}" for number in range(30)]
    (tmp_path / "names.txt").write_text("\n".join(names))
    data = {"source": str(tmp_path / "X.npy"), "row_names": str(tmp_path / "names.txt")}
    outcome = run(tmp_path, h5ad(tmp_path, first), data=data)
    if is_same:
        assert outcome.code == 0, outcome.err
    else:
        refused(outcome, INPUT, "row 0 is 'cell30', and row 0 of the data is 'cell0'", "in the same order")


@each(
    ("blocks", "code", "parts"),
    [
        ({"transform": {"graph": "zscore"}}, USAGE, ("transform.graph is zscore", "graph.use_rep")),
        ({"methods": [{"name": "LaplacianScore", "graph_scaling": "unit"}]}, USAGE, ("graph_scaling unit",)),
        ({"graph": {"precomputed": "lists", "use_rep": "rep.npy"}}, USAGE, ("graph.precomputed", "leave one out")),
        ({"graph": {"use_rep": "obsm/X_pca"}}, INPUT, ("graph.use_rep obsm/X_pca", "no such file", "data.source")),
        ({"graph": {"use_rep": "short.npy"}}, INPUT, ("short.npy has 29 rows, and X has 30",)),
        ({"graph": {"use_rep": "sparse.npz"}}, INPUT, ("sparse.npz is sparse",)),
        ({"data": {"source": "X.npy", "batch": "y.npy"}}, USAGE, ("graph.use_rep", "data.batch")),
        ({"graph": {"use_rep": "nan.npy"}}, INPUT, ("nan.npy", "row 7")),
    ],
)
def test_jobs_that_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: dict[str, Any], code: int, parts: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    npy(tmp_path)
    np.save("short.npy", rep(29))
    np.save("nan.npy", np.where(np.arange(30) == 7, np.nan, rep().T).T)
    sp.save_npz("sparse.npz", sp.csr_matrix(rep()))
    job = {**basic_job(tmp_path), "graph": {"use_rep": "rep.npy"}, "methods": ["LaplacianScore"], **blocks}
    refused(daskfs("run", write_job(tmp_path, job), "-q"), code, *parts)


def test_a_run_remembers_what_it_read(tmp_path: Path) -> None:
    where = npy(tmp_path)
    assert run(tmp_path, where).code == 0
    np.save(where, rep() + 1)
    with case("verify"):
        checked = daskfs("verify", tmp_path / "run")
        assert checked.code != 0
        assert "graph.use_rep is not what was read" in checked.out + checked.err
    refused(daskfs("run", tmp_path / "job.yaml", "-q"), INPUT, "rep.npy changed since the run")
