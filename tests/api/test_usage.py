"""What people write from Python, line by line, with the types that a type checker sees."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import yaml
import zarr
from distributed import Client
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.datasets import load_wine

import daskfs
from daskfs import LaplacianScore, RunResult
from daskfs.job.job import Job
from tests.execution.runs import local_client, local_cluster
from tests.optional import anndata

pytestmark = pytest.mark.cluster
mpl.use("agg")
WINE = load_wine(as_frame=True)
BLOCKS: dict[str, Any] = {
    "data": {"source": "sklearn:wine"},
    "methods": ["LSDF", "FisherScore"],
    "evaluate": {"n_selected": [2, 4], "n_splits": 3},
}


def cells(kind: Callable[[np.ndarray], Any] = np.asarray) -> Any:
    """Return an AnnData with a layer, a representation, weights of neighbors, and few labels."""
    X = (WINE.data / WINE.data.std()).to_numpy(np.float32)
    adata = anndata.AnnData(kind(np.round(X)))
    adata.var_names = list(WINE.data.columns)
    adata.layers["counts"] = kind(np.round(10 * X))
    adata.obsm["X_pca"] = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, :4]
    adata.obsp["connectivities"] = (
        daskfs.knn_graph(adata.obsm["X_pca"], 5)
        .to_csr("connectivity")
        .maximum(daskfs.knn_graph(adata.obsm["X_pca"], 5).to_csr("connectivity").T)
    )
    adata.obs["cell_type"] = WINE.target.astype(str).where(np.arange(len(X)) % 3 == 0).astype("category").array
    return adata


def test_a_run(tmp_path: Path) -> None:
    job = {**BLOCKS, "output": {"path": str(tmp_path / "run")}}
    result = daskfs.run(job, client=None, progress="auto", overwrite=False)
    assert_type(result, RunResult)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert_type(daskfs.run(tmp_path / "job.yaml"), RunResult)
    assert_type(daskfs.make_job(job), Job)
    assert daskfs.run(daskfs.make_job(job))["recomputed"] == {}
    assert_type(result.best, str | None)
    assert result.best in {"LSDF", "FisherScore"}
    assert_type(result.ranking, pd.DataFrame)
    assert_type(result.evaluation, pd.DataFrame)
    assert len(result.ranking) == 2 * 13
    assert {"method", "n_selected", "value"} <= {*result.evaluation.columns}
    assert_type(result.selected("LSDF"), list[str])
    assert {*result.selected("LSDF")} <= {*WINE.data.columns}
    assert_type(result.report, str)
    assert Path(result.report).exists()
    axes = Figure().subplots(3)
    for drawn in (result.plot_scores(ax=axes[0]), result.plot_evaluation(axes[1]), result.plot_stability(axes[2])):
        assert_type(drawn, Axes)
    assert daskfs.open_run(tmp_path / "run").best == result.best


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, sp.csc_matrix])
@pytest.mark.parametrize("where", ["memory", "view", "h5ad", "zarr"])
def test_ranks_of_an_anndata(tmp_path: Path, kind: Callable[[np.ndarray], Any], where: str) -> None:
    adata = cells(kind)
    if where == "view":
        adata = adata[::2]
    elif where == "h5ad":
        adata.write_h5ad(tmp_path / "cells.h5ad")
        adata = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    elif where == "zarr":
        # as AnnData.write_zarr, which newer versions let choose no format
        anndata.io.write_elem(zarr.open_group(tmp_path / "cells.zarr", mode="w", zarr_format=2), "/", adata)
        adata = anndata.read_zarr(tmp_path / "cells.zarr")
    options: dict[str, Any] = {"methods": ["LSDF", "LaplacianScore"], "layer": "counts"}
    result = daskfs.rank(adata, "cell_type", use_rep="X_pca", key_added="daskfs", **options)
    assert_type(result, RunResult)
    assert result["data"]["n_labeled"] == adata.obs["cell_type"].notna().sum()
    assert {*result.selected("LSDF")} == {*adata.var_names[adata.var["selected_LSDF"]]}
    assert {*adata.uns["daskfs"]["methods"]} == {*result.methods}
    by_graph = daskfs.rank(adata, "cell_type", graph="connectivities", **options)
    assert len(by_graph.ranking) == len(result.ranking)
    selector = LaplacianScore(n_features_to_select=5).fit(adata)
    assert_type(selector, LaplacianScore)
    assert adata.var_names[selector.get_support()].size == 5
    if where == "h5ad":
        adata.file.close()


def test_a_path_and_a_name_of_labels(tmp_path: Path) -> None:
    """A column of labels is no feature, as in a job."""
    WINE.frame.to_csv(tmp_path / "wine.csv", index=False)
    fitted = daskfs.FisherScore(3).fit(tmp_path / "wine.csv", "target")
    assert_type(fitted, daskfs.FisherScore)
    expected = daskfs.FisherScore(3).fit(WINE.data, WINE.target)
    np.testing.assert_array_equal(fitted.get_feature_names_out(), expected.get_feature_names_out())
    np.testing.assert_array_equal(fitted.scores_, expected.scores_)
    given: dict[str, Any] = {"n_selected": [2], "n_splits": 2, "baselines": False}
    of_path = daskfs.evaluate_selectors(daskfs.FisherScore(), tmp_path / "wine.csv", "target", **given)
    in_memory = daskfs.evaluate_selectors(daskfs.FisherScore(), WINE.data, WINE.target, **given)
    assert of_path.values.equals(in_memory.values)
    with pytest.raises(ValueError, match="targets"):
        daskfs.FisherScore().fit(tmp_path / "wine.csv", "targets")


def transitions(client: Client) -> int:
    """Return the number of steps that tasks of the only worker have made."""
    (count,) = client.run(lambda dask_worker: dask_worker.state.transition_counter).values()
    return int(count)


def test_the_client_of_a_call(tmp_path: Path) -> None:
    """Its workers run the units where X is not in memory; no current client is needed."""
    np.save(tmp_path / "X.npy", WINE.data.to_numpy())
    X, path = WINE.data.to_numpy(), tmp_path / "X.npy"
    with local_cluster(1) as cluster, Client(cluster, set_as_default=False) as client:
        n_before = transitions(client)
        graph = daskfs.knn_graph(path, 4, graph_scaling="zscore", client=client)
        n_searched = transitions(client)
        matrix = daskfs.distance_correlation_matrix(path, client=client)
        n_compared = transitions(client)
        given: dict[str, Any] = {"n_selected": 2, "n_splits": 2}
        found = daskfs.evaluate_selectors(daskfs.FisherScore(), path, WINE.target, **given, client=client)
        assert n_before < n_searched < n_compared < transitions(client)
    np.testing.assert_array_equal(graph.indices, daskfs.knn_graph(X, 4, graph_scaling="zscore").indices)
    np.testing.assert_array_equal(matrix, daskfs.distance_correlation_matrix(X))
    assert found.verdict is not None


def test_data_in_memory_and_the_cluster_of_the_caller() -> None:
    with local_client(1) as client:
        assert_type(client, Client)
        found = daskfs.rank(WINE.data, WINE.target, methods=["FisherScore"], client=client)
    assert_type(found, RunResult)
    assert found.selected("FisherScore", 1) == ["flavanoids"]
