"""``daskfs.rank``: every form of data at hand gives the rankings of its values."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

import daskfs
from daskfs.errors import InputError, JobError
from tests.cases import case
from tests.execution.runs import local_client
from tests.optional import anndata
from tests.optional import dask_dataframe as dd
from tests.optional import pandas as pd
from tests.optional import polars as pl

pytestmark = pytest.mark.cluster

N, NAMES = 60, [f"g{place}" for place in range(6)]
CLASSES = np.arange(N) % 2
METHODS = ("FisherScore", "LaplacianScore")


def values() -> np.ndarray:
    X = np.round(np.random.default_rng(4).normal(size=(N, 6)), 3)
    X[:, 2] += 2.0 * CLASSES
    return X


def cells() -> Any:
    table = pd.DataFrame({"kind": np.where(CLASSES, "T", "B")}, index=[f"c{row}" for row in range(N)])
    made = anndata.AnnData(values(), table)
    made.var_names = NAMES
    made.layers["half"], made.obsm["X_pca"] = values() / 2, values()[:, :2]
    made.obsp["near"] = sp.csr_matrix(daskfs.knn_graph(values(), 5).to_csr("connectivity"))
    made.obsp["near"] = made.obsp["near"].maximum(made.obsp["near"].T)
    return made


def written(path: Path) -> Path:
    np.save(path, values())
    return path


def ranked(result: daskfs.RunResult) -> dict[str, list[int]]:
    return {label: list(result.ranking.query("method == @label")["feature"]) for label in result.methods}


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return ranked(daskfs.rank(values(), CLASSES, methods=METHODS))


FORMS: dict[str, Callable[[Path], Any]] = {
    "array": lambda _: values(),
    "csr": lambda _: sp.csr_array(values()),
    "csc": lambda _: sp.csc_matrix(values()),
    "dask": lambda _: da.from_array(values(), chunks=(20, 3)),
    "zarr": lambda folder: zarr.create_array(folder / "X.zarr", data=values()),
    "path": lambda folder: written(folder / "X.npy"),
    "AnnData": lambda _: cells(),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_data(form: str, tmp_path: Path, expected: dict[str, list[int]]) -> None:
    result = daskfs.rank(FORMS[form](tmp_path), CLASSES, methods=METHODS)
    assert ranked(result) == expected
    assert result.methods == [*METHODS, "Consensus"]


@pytest.mark.parametrize("library", ["pandas", "polars", "dask"])
def test_columns_of_frames(library: str) -> None:
    """Labels are a column, columns without numbers are left out, and rows compared in standardized columns."""
    frame = pd.DataFrame(values(), columns=NAMES).assign(
        city=["Rome", "Oslo", "Bonn"] * 20, kind=np.where(CLASSES, "T", "B")
    )
    X = {"pandas": lambda: frame, "polars": lambda: pl.from_pandas(frame), "dask": lambda: dd.from_pandas(frame, 3)}[
        library
    ]()
    result = daskfs.rank(X, "kind", methods=METHODS, n_features=2)
    selector = daskfs.LaplacianScore(graph_scaling="zscore").fit(values())
    order = [NAMES[place] for place in np.argsort(selector.ranking_)]
    assert result.selected("LaplacianScore") == order[:2]
    assert result.selected("FisherScore", 1) == ["g2"]
    assert set(result.ranking["name"]) == {*NAMES}


@pytest.mark.parametrize(
    "y",
    [
        CLASSES,
        CLASSES.astype(str),
        [f"class {code}" if row else None for row, code in enumerate(CLASSES)],
        pd.Series(np.where(CLASSES, "T", "B"), dtype="category"),
        pd.array([None, *CLASSES[1:]], dtype="Int64"),
    ],
    ids=["numbers", "text", "missing text", "categories", "nullable"],
)
def test_every_form_of_labels(y: Any) -> None:
    result = daskfs.rank(values(), y, methods=["FisherScore"])
    assert result["data"]["n_labeled"] in (N, N - 1)
    assert result.selected("FisherScore", 1) == ["x2"]


def test_layers_representations_and_graphs_of_an_anndata(tmp_path: Path) -> None:
    made = cells()
    halves = daskfs.rank(made, "kind", layer="half", methods=["VarianceScore"])
    assert halves.ranking["score"].max() == pytest.approx(values().var(axis=0).max() / 4)
    by_rep = daskfs.rank(made, "kind", use_rep="X_pca", methods=["LaplacianScore"])
    given = daskfs.rank(values(), use_rep=values()[:, :2], methods=["LaplacianScore"])
    assert ranked(by_rep) == ranked(given)
    by_graph = daskfs.rank(made, graph="near", methods=["LaplacianScore"], key_added="daskfs")
    fitted = daskfs.LaplacianScore(graph=made.obsp["near"]).fit(values())
    assert ranked(by_graph)["LaplacianScore"] == np.argsort(fitted.ranking_).tolist()
    assert made.var["rank_LaplacianScore"].tolist() == fitted.ranking_.tolist()
    made.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    try:
        assert ranked(daskfs.rank(backed, "kind", use_rep="X_pca", methods=["LaplacianScore"])) == ranked(by_rep)
        assert ranked(daskfs.rank(backed, graph="near", methods=["LaplacianScore"])) == ranked(by_graph)
    finally:
        backed.file.close()


def test_other_blocks_of_the_job_are_set(tmp_path: Path) -> None:
    made = cells()
    made.write_h5ad(tmp_path / "cells.h5ad")
    settings = {"data": {"groups": "kind"}, "evaluate": None}
    result = daskfs.rank(tmp_path / "cells.h5ad", methods=["VarianceScore"], settings=settings)
    assert result["job"]["data"]["groups"] == "kind"
    assert result["job"]["evaluate"] is None
    with pytest.raises(ValueError, match=r"unknown key 'data\.group'"):
        daskfs.rank(tmp_path / "cells.h5ad", settings={"data": {"group": "kind"}})


def donors() -> Any:
    made = cells()
    made.obs["donor"] = pd.Categorical([f"d{row % 11}" for row in range(N)])
    made.obs["site"] = pd.Categorical(np.arange(N) // 2 % 6 + 9)  # in text, 10 is before 9
    made.obs["day"], made.obs["share"] = np.arange(N) // 4, np.arange(N) % 3 + 0.5
    return made


ROWS = {"groups": ("donor", "site"), "batch": ("donor", "site"), "times": ("day",), "weights": ("share", "day")}


@pytest.mark.parametrize("key", ROWS)
def test_values_of_rows_are_named_in_memory_as_in_a_file(key: str, tmp_path: Path) -> None:
    made = donors()
    made.write_h5ad(tmp_path / "cells.h5ad")
    frame = pd.DataFrame(values(), columns=NAMES, index=made.obs_names).join(made.obs)[[*NAMES, "kind", *ROWS[key]]]
    for name in ROWS[key]:
        given: dict[str, Any] = {"methods": "FisherScore", "n_features": 2}
        by_name, by_values = {**given, key: name}, {**given, key: made.obs[name]}
        expected = daskfs.rank(tmp_path / "cells.h5ad", "kind", settings={"data": {key: name}}, **given)
        forms = {
            "parameter": daskfs.rank(made, "kind", **by_name),
            "settings": daskfs.rank(made, "kind", settings={"data": {key: name}}, **given),
            "dotted": daskfs.rank(made, "kind", settings={f"data.{key}": name}, **given),
            "values": daskfs.rank(values(), made.obs["kind"], **by_values),
            "path": daskfs.rank(tmp_path / "cells.h5ad", "kind", **by_name),
        }
        for form, found in forms.items():
            with case(name, form):
                assert found.ranking["score"].equals(expected.ranking["score"])
                assert found.evaluation["value"].equals(expected.evaluation["value"])
        in_frame = frame.drop(columns=[other for other in ROWS[key] if other != name])
        score = daskfs.rank(in_frame, "kind", **by_name).ranking["score"]
        np.testing.assert_allclose(score, expected.ranking["score"])
    wrong: tuple[dict[str, Any], ...] = ({"settings": {"data": {key: "dono"}}}, {key: "dono"})
    for parameters in wrong:
        with pytest.raises(InputError, match=r"^adata\.obs has no 'dono'\. Did you mean 'donor'\?"):
            daskfs.rank(made, "kind", **parameters)
        with pytest.raises(InputError, match=r"^X has no column 'dono'"):
            daskfs.rank(frame, "kind", **parameters)
    with pytest.raises(InputError, match=f"^{key} have 59 values, X has 60 rows"):
        daskfs.rank(values(), CLASSES, **{key: np.ones(N - 1)})  # type: ignore[arg-type]


def test_settings_are_a_mapping_and_its_keys_may_be_dotted() -> None:
    given: dict[str, Any] = {"methods": [{"name": "LaplacianScore", "n_neighbors": 7}]}
    settings = {"cluster.workers": 0, "evaluate": None, "methods.0.n_neighbors": 3}
    job = daskfs.rank(values(), CLASSES, settings=settings, **given)["job"]
    assert job["evaluate"] is None
    assert job["methods"][0]["parameters"]["n_neighbors"] == 3
    assert given["methods"][0]["n_neighbors"] == 7
    for wrong, words in (
        (["evaluate=null"], "^settings is a mapping"),
        ({"methods.3.t": 1}, "^settings: 'methods' is a list of 1"),
        ({"data.source.x": 1}, r"^settings: 'data\.source' holds a value"),
        ({"data.batsh": "b"}, r"unknown key 'data\.batsh'"),
    ):
        with pytest.raises(JobError, match=words):
            daskfs.rank(values(), CLASSES, settings=wrong, **given)  # type: ignore[arg-type]


def test_a_result_keeps_its_files_and_no_longer(tmp_path: Path) -> None:
    result = daskfs.rank(values(), methods=["VarianceScore"])
    folder = Path(result.url)
    assert folder.is_dir()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del result
    assert not folder.exists()
    assert not warned
    kept = daskfs.rank(values(), methods=["VarianceScore"], output=tmp_path / "run")
    assert Path(kept.url) == tmp_path / "run"
    assert daskfs.open_run(tmp_path / "run").ranking.equals(kept.ranking)


def test_the_current_client_ranks_dask_collections(expected: dict[str, list[int]]) -> None:
    with local_client(1) as client:
        result = daskfs.rank(da.from_array(values(), chunks=(20, 3)), CLASSES, methods=METHODS)
        assert client.nthreads()
    assert ranked(result) == expected


def test_what_is_not_there_is_named() -> None:
    for wrong, words in (
        ({"layer": "haf"}, r"adata\.layers has no 'haf'\. Did you mean 'half'\?"),
        ({"use_rep": "X_umap"}, r"adata\.obsm has no 'X_umap'"),
        ({"graph": "far"}, r"adata\.obsp has no 'far'"),
        ({"y": "sort"}, r"adata\.obs has no 'sort'"),
    ):
        with pytest.raises(InputError, match=words):
            daskfs.rank(cells(), **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="are of an AnnData, and X is none"):
        daskfs.rank(values(), layer="half")
    with pytest.raises(InputError, match="labels have 59 values, X has 60 rows"):
        daskfs.rank(values(), CLASSES[1:])


def test_selectors_show_the_same_table() -> None:
    X = pd.DataFrame(values(), columns=NAMES).assign(still=1.0)
    job: list[Any] = ["VarianceScore", {"name": "RRPC", "n_candidates": 3}]
    kept = {"VarianceScore": daskfs.VarianceScore(), "RRPC": daskfs.RRPC(n_candidates=3)}
    ranking = daskfs.rank(X, values()[:, 0] + values()[:, 1], methods=job).ranking
    for label, selector in {**kept, "Consensus": daskfs.Consensus([*kept.values()])}.items():
        expected = ranking[ranking["method"] == label].drop(columns="method").reset_index(drop=True)
        found = selector.fit(X, values()[:, 0] + values()[:, 1]).scores_frame()
        pd.testing.assert_frame_equal(found, expected)
        assert found["name"].iloc[-1] == "still"
        assert found["note"].iloc[-1] != ""
    unnamed = daskfs.VarianceScore().fit(values()).scores_frame()
    assert sorted(unnamed["name"]) == [f"x{feature}" for feature in sorted(unnamed["feature"])]


def test_methods_are_those_of_a_job() -> None:
    varied: Any = {"name": "LaplacianScore", "grid": {"n_neighbors": [3, 4]}}
    found = {
        "one": daskfs.rank(values(), CLASSES, methods="FisherScore").methods,
        "baseline": daskfs.rank(values(), methods=["VarianceScore", {"name": "RandomOrder"}]).methods,
        "grid": daskfs.rank(values(), methods=[varied]).methods,
        "all": daskfs.rank(values(), methods="all").methods,
    }
    assert found["one"] == ["FisherScore"]
    assert "Consensus" not in found["baseline"]
    assert len(found["grid"]) == 3
    assert {"LaplacianScore", "VarianceScore", "Consensus"} <= {*found["all"]}
