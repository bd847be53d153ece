"""Rankings in the user's own AnnData files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

from daskfs.errors import InputError
from daskfs.export import into as into_module
from tests.cli.command import daskfs as call
from tests.cli.command import refused, rows_of
from tests.export.runs import METHODS, Ranked, finished

pytestmark = [
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]
FILES = ("file.h5ad", "two.zarr", "three.zarr")


def written(folder: Path, name: str, ranked: Ranked, names: list[str] | None = None) -> Path:
    """Write an AnnData file of the run's features with things of its own."""
    X = sp.csr_matrix(ranked.X)
    data = anndata.AnnData(
        X=X,
        obs=pd.DataFrame(
            {"cell": pd.Categorical(["p", "q"] * (X.shape[0] // 2))}, index=[f"c{i}" for i in range(X.shape[0])]
        ),
        var=pd.DataFrame({"mine": np.arange(X.shape[1])}, index=names or ranked.names),
        uns={"kept": {"a": 1}},
        layers={"counts": X},
    )
    path = folder / name
    if name.endswith(".h5ad"):
        data.write_h5ad(path)
        return path
    with anndata.settings.override(zarr_write_format=3 if "three" in name else 2, auto_shard_zarr_v3=False):
        data.write_zarr(path)
    return path


def opened(path: Path) -> anndata.AnnData:
    return anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)


def state(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else sorted(found for found in path.rglob("*") if found.is_file())
    return {str(found.relative_to(path.parent)): hashlib.md5(found.read_bytes()).hexdigest() for found in files}


@pytest.mark.parametrize("name", FILES)
def test_rankings_come_into_var_and_all_else_stays(dense: Ranked, tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, dense)
    outcome = call("export", dense.run, "--into", path)
    assert outcome.code == 0, outcome.err
    found = opened(path)
    columns = [f"{p}_{m}" for m in METHODS for p in ("rank", "score", "selected")]
    assert list(found.var) == ["mine", *columns]
    assert list(found.var_names) == dense.names
    ranks = {row["name"]: int(row["rank"]) for row in rows_of(dense.run / "ranking.csv") if row["method"] == METHODS[1]}
    assert found.var[f"rank_{METHODS[1]}"].to_dict() == ranks
    assert found.uns["daskfs"]["methods"]["FisherScore"]["citation"]
    assert found.uns["kept"] == {"a": 1}
    np.testing.assert_array_equal(found.layers["counts"].toarray(), dense.X)
    np.testing.assert_array_equal(found.X.toarray(), dense.X)
    assert found.obs["cell"].tolist() == ["p", "q"] * 30
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("name", FILES)
def test_a_later_export_takes_the_place_of_an_earlier_one(dense: Ranked, tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name, dense)
    assert call("export", dense.run, "--into", path).code == 0
    data = {"source": str(dense.folder / "data.zarr"), "feature_names": str(dense.folder / "names.txt")}
    job: dict[str, Any] = {"data": data, "methods": ["VarianceScore"], "select": {"n_features": 1}}
    (tmp_path / "other").mkdir()
    finished(tmp_path / "other", job)
    assert call("export", tmp_path / "other/run", "--into", path).code == 0
    found = opened(path)
    assert list(found.var) == ["mine", "rank_VarianceScore", "score_VarianceScore", "selected_VarianceScore"]
    assert found.var["selected_VarianceScore"].sum() == 1
    assert list(found.uns["daskfs"]["methods"]) == ["VarianceScore"]


@pytest.mark.parametrize("name", FILES)
def test_other_names_are_refused_and_nothing_changes(dense: Ranked, tmp_path: Path, name: str) -> None:
    names = dense.names.copy()
    names[1], names[3] = names[3], names[1]
    path = written(tmp_path, name, dense, names)
    before = state(path)
    refused(
        call("export", dense.run, "--into", path), 3, "name 1 in var of", "is 'd', and feature 1 of the run is 'b,c'"
    )
    assert state(path) == before
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_another_number_of_names_is_refused(dense: Ranked, sparse: Ranked, tmp_path: Path) -> None:
    path = written(tmp_path, "file.h5ad", dense)
    refused(call("export", sparse.run, "--into", path), 3, "has 7 names in var, and the run ranked 40 features")


@pytest.mark.parametrize("name", ["file.h5ad", "three.zarr"])
@pytest.mark.parametrize("step", ["_write_columns", "_write_facts"])
def test_an_interruption_leaves_a_file_that_can_be_read(
    dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    path = written(tmp_path, name, dense)
    assert call("export", dense.run, "--into", path).code == 0
    before = opened(path)

    def fails(*_: Any) -> None:
        raise InputError("broken off")

    monkeypatch.setattr(into_module, step, fails)
    refused(call("export", dense.run, "--into", path), 3, "broken off")
    found = opened(path)
    if name.endswith(".h5ad"):
        assert found.var.equals(before.var)
    else:
        assert list(found.var) == ["mine"]
    assert found.uns["kept"] == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == [name]
    monkeypatch.undo()
    assert call("export", dense.run, "--into", path).code == 0
    assert opened(path).var.equals(before.var)


@pytest.mark.parametrize("done", [1, 9])
def test_a_group_can_be_read_at_every_moment(
    dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int
) -> None:
    path = written(tmp_path, "two.zarr", dense)
    assert call("export", dense.run, "--into", path).code == 0
    before, calls = opened(path), []
    move = into_module._move

    def interrupted(new: Path, old: Path) -> None:
        if len(calls) == done:
            raise InputError("broken off")
        calls.append(old)
        move(new, old)

    monkeypatch.setattr(into_module, "_move", interrupted)
    refused(call("export", dense.run, "--into", path), 3, "broken off")
    assert list(opened(path).var) == ["mine"]
    monkeypatch.undo()
    assert call("export", dense.run, "--into", path).code == 0
    assert opened(path).var.equals(before.var)


def test_consolidated_metadata_know_of_the_columns(dense: Ranked, tmp_path: Path) -> None:
    path = written(tmp_path, "two.zarr", dense)
    zarr.consolidate_metadata(str(path), zarr_format=2)
    assert call("export", dense.run, "--into", path).code == 0
    group = zarr.open_group(path, mode="r", use_consolidated=True)
    assert group["var"].attrs["column-order"][0] == "mine"
    assert set(group["var/rank_FisherScore"][...]) == set(range(1, 8))


def test_a_link_stays_a_link(dense: Ranked, tmp_path: Path) -> None:
    written(tmp_path, "file.h5ad", dense)
    link = tmp_path / "link.h5ad"
    link.symlink_to("file.h5ad")
    assert call("export", dense.run, "--into", link).code == 0
    assert link.is_symlink()
    assert "rank_FisherScore" in opened(tmp_path / "file.h5ad").var


@pytest.mark.parametrize(
    ("name", "content"), [("no.h5ad", None), ("bad.h5ad", b"not HDF5"), ("file.csv", b"a,b\n"), ("empty.zarr", "")]
)
def test_what_is_no_anndata_is_refused(dense: Ranked, tmp_path: Path, name: str, content: bytes | str | None) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    refused(call("export", dense.run, "--into", path), 3, str(path))
