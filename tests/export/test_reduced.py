"""The data with selected features only, in every format, and as the source of another run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs import export_run
from daskfs.errors import RunStoppedError
from daskfs.export import selected_data as reduced_module
from daskfs.store.context import open_tiles
from tests.cli.command import daskfs as call
from tests.cli.command import rows_of, write_job
from tests.execution.runs import Stop, record_file
from tests.export.runs import Ranked
from tests.optional import anndata

pytestmark = pytest.mark.cluster

METHOD = "FisherScore"


def selected(ranked: Ranked) -> list[int]:
    rows = rows_of(ranked.run / "selected_features.csv")
    return sorted(int(row["feature"]) for row in rows if row["method"] == METHOD)


def expected(ranked: Ranked) -> np.ndarray:
    part = ranked.X[:, selected(ranked)]
    return part.toarray() if sp.issparse(part) else part


def exported(ranked: Ranked, out: Path, *options: str) -> Path:
    outcome = call("export", ranked.run, out, "--data", METHOD, *options, "-q")
    assert outcome.code == 0, outcome.err
    return out


@pytest.mark.parametrize("kind", ["h5ad", "anndata.zarr"])
def test_anndata_holds_selected_columns_and_labels(ranked: Ranked, tmp_path: Path, kind: str) -> None:
    out = exported(ranked, tmp_path / f"x.{kind}", "--to", "anndata")
    found = anndata.read_h5ad(out) if kind == "h5ad" else anndata.read_zarr(out)
    assert list(found.var_names) == [ranked.names[feature] for feature in selected(ranked)]
    assert sp.issparse(found.X) == sp.issparse(ranked.X)
    assert found.X.dtype == ranked.X.dtype
    np.testing.assert_array_equal(found.X.toarray() if sp.issparse(found.X) else found.X, expected(ranked))
    labels = found.obs["label"]
    assert labels.astype(object).where(labels.notna(), "").tolist() == ranked.labels.tolist()
    assert found.var[f"selected_{METHOD}"].all()
    obs_names = {"label", "weight", "group"} if ranked.names[0] == "ä" else {"label", "time"}
    assert set(found.obs) == obs_names


def test_zarr_holds_selected_columns(ranked: Ranked, tmp_path: Path) -> None:
    group: Any = zarr.open_group(exported(ranked, tmp_path / "x.zarr"), mode="r")
    assert group["labels"][...].tolist() == ranked.labels.tolist()
    if not sp.issparse(ranked.X):
        np.testing.assert_array_equal(group["X"][...], expected(ranked))
        return
    parts = [group[f"X/{name}"][...] for name in ("data", "indices", "indptr")]
    found = sp.csr_matrix(tuple(parts), shape=tuple(group["X"].attrs["shape"]))
    np.testing.assert_array_equal(found.toarray(), expected(ranked))


def test_parquet_holds_a_column_for_each_feature(ranked: Ranked, tmp_path: Path) -> None:
    table = pq.read_table(exported(ranked, tmp_path / "x.parquet"))
    names = [ranked.names[feature] for feature in selected(ranked)]
    assert table.column_names[: len(names)] == names
    for name, values in zip(names, expected(ranked).T, strict=True):
        np.testing.assert_array_equal(table[name].to_numpy(), values)
        assert str(table.schema.field(name).type) == "float"
    assert table["labels"].to_pylist() == ranked.labels.tolist()
    assert json.loads(table.schema.metadata[b"daskfs"])["methods"][METHOD]


def test_npz_holds_rows_as_numpy_and_scipy_do(ranked: Ranked, tmp_path: Path) -> None:
    out = exported(ranked, tmp_path / "x.npz")
    with np.load(out, allow_pickle=False) as found:
        assert found["name"].tolist() == [ranked.names[feature] for feature in selected(ranked)]
        assert found["labels"].tolist() == ranked.labels.tolist()
        X = None if sp.issparse(ranked.X) else found["X"]
    if X is None:
        X = sp.load_npz(out)
        assert X.has_sorted_indices
        X = X.toarray()
    assert X.dtype == np.float32
    np.testing.assert_array_equal(X, expected(ranked))


def test_blocks_change_no_byte(sparse: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for out in ("a.npz", "a.parquet", "a.h5ad", "a.zarr"):
        exported(sparse, tmp_path / out)
    monkeypatch.setattr(reduced_module, "EXPORT_BLOCK_BYTES", 1)
    with np.load(exported(sparse, tmp_path / "b.npz")) as found, np.load(tmp_path / "a.npz") as whole:
        assert found.files == whole.files
        for name in found.files:
            np.testing.assert_array_equal(found[name], whole[name])
    assert pq.read_table(exported(sparse, tmp_path / "b.parquet")).equals(pq.read_table(tmp_path / "a.parquet"))
    ours, theirs = (
        anndata.read_h5ad(exported(sparse, tmp_path / "b.h5ad")),
        anndata.read_h5ad(tmp_path / "a.h5ad"),
    )
    assert (ours.X != theirs.X).nnz == 0
    folders = exported(sparse, tmp_path / "b.zarr"), tmp_path / "a.zarr"
    one, other = (np.asarray(zarr.open_array(path / "X/indices", mode="r")) for path in folders)
    np.testing.assert_array_equal(one, other)


def test_tiles_are_the_source_of_another_run(ranked: Ranked, tmp_path: Path) -> None:
    out = exported(ranked, tmp_path / "tiles.zarr", "--to", "tiles")
    whole, part = open_tiles(str(ranked.run / "tiles")), open_tiles(str(out))
    assert part.feature_names() == [ranked.names[feature] for feature in selected(ranked)]
    assert part.shape.is_sparse == sp.issparse(ranked.X)
    for name in ("weights", "groups", "times"):
        assert part.info.facts[name] == whole.info.facts[name]
    assert part.info.classes == whole.info.classes
    np.testing.assert_array_equal(part.labels().values, whole.labels().values)
    assert call("verify", out, "-q").code == 0
    job = {
        "data": {"source": str(out)},
        "methods": ["VarianceScore", METHOD],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(tmp_path / "run")},
    }
    outcome = call("run", write_job(tmp_path, job), "-q")
    assert outcome.code == 0, outcome.err
    scores = {(row["method"], row["name"]): row["score"] for row in rows_of(ranked.run / "ranking.csv")}
    for row in rows_of(tmp_path / "run" / "ranking.csv"):
        assert row["score"] == scores[row["method"], row["name"]]


def test_tiles_are_resumed(sparse: Ranked, tmp_path: Path) -> None:
    with pytest.raises(RunStoppedError):
        export_run(sparse.run, tmp_path / "t.zarr", to="tiles", data=METHOD, progress=Stop("ingest", 0))
    first = record_file(tmp_path / "t.zarr", "ingest", 0).read_bytes()
    outcome = call("run", tmp_path / "nothing.yaml")
    assert outcome.code == 2
    exported(sparse, tmp_path / "t.zarr", "--to", "tiles")
    assert record_file(tmp_path / "t.zarr", "ingest", 0).read_bytes() == first
    np.testing.assert_array_equal(
        open_tiles(str(tmp_path / "t.zarr")).read_rows(slice(0, 9)).toarray(), expected(sparse)[:9]
    )


def test_the_best_features_of_a_method(dense: Ranked, tmp_path: Path) -> None:
    exported(dense, tmp_path / "x.npz", "--n-features", "2")
    ranks = {
        int(row["feature"]): int(row["rank"]) for row in rows_of(dense.run / "ranking.csv") if row["method"] == METHOD
    }
    with np.load(tmp_path / "x.npz") as found:
        best = sorted(selected(dense), key=ranks.__getitem__)[:2]
        np.testing.assert_array_equal(found["X"], dense.X[:, sorted(best)])


def test_a_feature_called_labels_keeps_its_name(tmp_path: Path) -> None:
    X = np.random.default_rng(1).normal(size=(20, 2))
    np.savez(tmp_path / "X.npz", X=X, names=np.array(["labels", "b"]), y=np.arange(20) % 2)
    job = {
        "data": {"source": str(tmp_path / "X.npz"), "labels": "y", "feature_names": "names"},
        "methods": [METHOD],
        "select": {"n_features": 2},
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(tmp_path / "run")},
    }
    assert call("run", write_job(tmp_path, job), "-q").code == 0
    assert call("export", tmp_path / "run", tmp_path / "x.parquet", "--data", METHOD, "-q").code == 0
    assert pq.read_table(tmp_path / "x.parquet").column_names == ["labels", "b", "labels_"]
