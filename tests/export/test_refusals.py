"""What an export refuses, with its exit code, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import zarr

from daskfs.errors import WriteError
from daskfs.export import anndata_file, api
from tests.cli.command import daskfs as call
from tests.cli.command import refused
from tests.execution.runs import write_document
from tests.export.runs import Ranked

pytestmark = pytest.mark.cluster


def test_options_that_mean_nothing_are_told(dense: Ranked, tmp_path: Path) -> None:
    out = tmp_path / "t.npz"
    refused(call("export", dense.run), 2, "OUT", "--into")
    refused(call("export", dense.run, out, "--into", "x.h5ad"), 2, "OUT", "--into")
    refused(call("export", dense.run, "--into", "x.h5ad", "--data", "FisherScore"), 2, "--data")
    refused(call("export", dense.run, out, "--n-features", 2), 2, "n_features", "data")
    refused(call("export", dense.run, out, "--to", "tiles"), 2, "tiles hold data")
    refused(call("export", dense.run, tmp_path / "t.dat"), 2, "t.dat", "parquet")
    refused(call("export", dense.run, tmp_path / "t.csv"), 2, "t.csv", "parquet", "ranking.csv")
    refused(call("export", dense.run, out, "--to", "csv"), 2, "parquet", "ranking.csv")
    refused(call("export", dense.run, out, "--to", "parket"), 2, "Did you mean 'parquet'?")
    refused(call("export", dense.run, tmp_path / "t.npy", "--to", "anndata"), 2, ".h5ad", ".zarr")
    refused(call("export", dense.run, out, "--data", "FischerScore"), 2, "Did you mean 'FisherScore'?")
    refused(call("export", dense.run, out, "--data", "FisherScore", "--n-features", 7), 2, "n_features is 7")
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_replaced_only_when_asked(dense: Ranked, tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_text("mine")
    refused(call("export", dense.run, tmp_path / "t.npz"), 2, "t.npz exists", "--overwrite")
    assert (tmp_path / "t.npz").read_text() == "mine"
    assert call("export", dense.run, tmp_path / "t.npz", "--overwrite", "-q").code == 0
    assert np.load(tmp_path / "t.npz")["name"].size == 7
    zarr.create_group(tmp_path / "t.zarr").create_array("mine", shape=(3,), dtype="f8")
    assert call("export", dense.run, tmp_path / "t.zarr", "--overwrite", "-q").code == 0
    assert "mine" not in zarr.open_group(tmp_path / "t.zarr", mode="r")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.npz", "t.zarr"]


def test_no_folder_but_a_zarr_group_is_replaced(dense: Ranked, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("dear")
    refused(call("export", dense.run, tmp_path / "home", "--to", "zarr", "--overwrite"), 2, "no Zarr group")
    tiles = ("--to", "tiles", "--data", "FisherScore", "--overwrite")
    refused(call("export", dense.run, tmp_path / "home", *tiles), 3, "is not a tile store")
    assert (tmp_path / "home" / "letter").read_text() == "dear"


def test_neither_a_run_nor_its_data_are_written_to(dense: Ranked, tmp_path: Path) -> None:
    tiles = ("--to", "tiles", "--data", "FisherScore", "--overwrite")
    refused(call("export", dense.run, dense.run / "t.npz"), 2, "lie in each other")
    refused(call("export", dense.run, dense.run / "tiles", *tiles), 2, "lie in each other")
    refused(call("export", dense.run, dense.run, *tiles), 2, "lie in each other")
    shutil.copytree(dense.run, tmp_path / "other")
    refused(call("export", dense.run, tmp_path / "other", *tiles), 2, "is a run")
    assert (tmp_path / "other" / "run.json").is_file()


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"status": "running"}, ("is not finished", "daskfs status")),
        ({"format_version": 1}, ("format version 1",)),
    ],
)
def test_runs_that_cannot_be_read(dense: Ranked, tmp_path: Path, change: dict[str, object], parts: tuple[str]) -> None:
    shutil.copytree(dense.run, tmp_path / "run")
    manifest = json.loads((tmp_path / "run/run.json").read_text())
    write_document(tmp_path / "run/run.json", {**manifest, **change})
    refused(call("export", tmp_path / "run", tmp_path / "t.npz"), 3, *parts)
    assert not (tmp_path / "t.npz").exists()


def test_a_damaged_run_is_told(dense: Ranked, tmp_path: Path) -> None:
    shutil.copytree(dense.run, tmp_path / "run")
    chunk = next(path for path in (tmp_path / "run/scores/FisherScore/c").rglob("0") if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-3])
    refused(call("export", tmp_path / "run", tmp_path / "t.npz"), 3, "FisherScore", "daskfs run")
    refused(call("export", tmp_path, tmp_path / "t.npz"), 3, "is not a daskfs run")


def test_a_failure_leaves_nothing(dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(path: Path, *_: object) -> None:
        path.write_text("half")
        msg = "the disk is full."
        raise WriteError(msg)

    monkeypatch.setattr(api, "WRITERS", {"npz": fails})
    refused(call("export", dense.run, tmp_path / "t.npz"), 1, "the disk is full")
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named(dense: Ranked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anndata_file, "find_spec", lambda name: None if name == "anndata" else find_spec(name))
    refused(call("export", dense.run, tmp_path / "t.h5ad"), 2, "pip install 'daskfs[anndata]'")
    refused(call("export", dense.run, "--into", tmp_path / "t.h5ad"), 2, "pip install 'daskfs[anndata]'")
