"""Rankings in the user's own AnnData files."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs.errors import InputError
from daskfs.export import append_anndata as into_module
from daskfs.storage import LocalPath
from tests.cli.command import daskfs as call
from tests.cli.command import refused, rows_of
from tests.export.runs import METHODS, Ranked, finished
from tests.optional import anndata
from tests.optional import pandas as pd
from tests.rewriting import restore_times

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:Writing zarr v2 data"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
]
FILES = ("file.h5ad", "two.zarr", "three.zarr")


def written(folder: Path, name: str, ranked: Ranked, names: list[str] | None = None) -> Path:
    """Write an AnnData file of the run's features with things of its own: once, and copies of it."""
    kept = ranked.folder / ("annotated" if names is None else "annotated otherwise") / name
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        write(kept, ranked.X, names or ranked.names)
    copy = shutil.copytree if kept.is_dir() else shutil.copyfile
    return Path(copy(kept, folder / name))


def write(path: Path, X: Any, names: list[str]) -> None:
    X = sp.csr_matrix(X)
    data = anndata.AnnData(
        X=X,
        obs=pd.DataFrame(
            {"cell": pd.Categorical(["p", "q"] * (X.shape[0] // 2))}, index=[f"c{i}" for i in range(X.shape[0])]
        ),
        var=pd.DataFrame({"mine": np.arange(X.shape[1])}, index=names),
        uns={"kept": {"a": 1}},
        layers={"counts": X},
    )
    if path.suffix == ".h5ad":
        data.write_h5ad(path)
        return
    group = zarr.open_group(path, mode="w", zarr_format=3 if "three" in path.name else 2)
    with anndata.settings.override(auto_shard_zarr_v3=False):
        anndata.io.write_elem(group, "/", data)
    zarr.consolidate_metadata(group.store)  # as AnnData.write_zarr does, which newer versions let choose no format


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


@pytest.fixture(scope="module")
def other(dense: Ranked, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of another run over the same data."""
    folder = tmp_path_factory.mktemp("other")
    data = {"source": str(dense.folder / "data.zarr"), "feature_names": str(dense.folder / "names.txt")}
    finished(folder, {"data": data, "methods": ["VarianceScore"], "select": {"n_features": 1}})
    return folder / "run"


@pytest.mark.parametrize("name", FILES)
def test_a_later_export_takes_the_place_of_an_earlier_one(
    dense: Ranked, other: Path, tmp_path: Path, name: str
) -> None:
    path = written(tmp_path, name, dense)
    assert call("export", dense.run, "--into", path).code == 0
    assert call("export", other, "--into", path).code == 0
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
def test_an_interruption_leaves_a_file_that_can_be_read(
    dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = written(tmp_path, name, dense)
    assert call("export", dense.run, "--into", path).code == 0
    before = opened(path)

    def fails(*_: Any) -> None:
        msg = "broken off"
        raise InputError(msg)

    for step in ("_write_columns", "_write_facts"):
        with monkeypatch.context() as patched:
            patched.setattr(into_module, step, fails)
            refused(call("export", dense.run, "--into", path), 3, "broken off")
        found = opened(path)
        if name.endswith(".h5ad"):
            assert found.var.equals(before.var), step
        else:
            assert list(found.var) == ["mine"], step
        assert found.uns["kept"] == {"a": 1}
        assert [p.name for p in tmp_path.iterdir()] == [name]
        assert call("export", dense.run, "--into", path).code == 0
        assert opened(path).var.equals(before.var), step


def test_a_file_that_changes_meanwhile_stays_as_it_is(
    dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its size and modification time are."""
    path = written(tmp_path, "file.h5ad", dense)
    content, status = path.read_bytes(), path.stat()
    changed = content[:-1] + bytes([content[-1] ^ 1])

    def copy_before_a_change(source: Path, target: Path) -> None:
        copy(source, target)
        source.write_bytes(changed)
        restore_times(source, status)

    copy = shutil.copy
    monkeypatch.setattr(shutil, "copy", copy_before_a_change)
    refused(call("export", dense.run, "--into", path), 3, "file.h5ad changed while the ranking was added", "try again")
    assert path.read_bytes() == changed


def test_a_group_can_be_read_at_every_moment(dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "two.zarr", dense)
    assert call("export", dense.run, "--into", path).code == 0
    before, move = opened(path), LocalPath.put_tree
    for done in (1, 9):
        calls: list[Path] = []

        def interrupted(old: LocalPath, new: LocalPath, done: int = done, calls: list[Path] = calls) -> None:
            if len(calls) == done:
                msg = "broken off"
                raise InputError(msg)
            calls.append(old)
            move(old, new)

        with monkeypatch.context() as patched:
            patched.setattr(LocalPath, "put_tree", interrupted)
            refused(call("export", dense.run, "--into", path), 3, "broken off")
        assert list(opened(path).var) == ["mine"], done
        assert call("export", dense.run, "--into", path).code == 0
        assert opened(path).var.equals(before.var), done


def test_consolidated_metadata_know_of_the_columns(dense: Ranked, tmp_path: Path) -> None:
    path = written(tmp_path, "two.zarr", dense)
    zarr.consolidate_metadata(str(path), zarr_format=2)
    assert call("export", dense.run, "--into", path).code == 0
    group: Any = zarr.open_group(path, mode="r", use_consolidated=True)
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
