"""Names of rows, from the source through tiles and batches to every format of an export."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs.export import arrays
from daskfs.sources import row_names
from daskfs.store import row_names as stored
from daskfs.store.context import open_tiles
from tests.cli.command import daskfs as call
from tests.cli.command import refused, rows_of, write_job
from tests.export.runs import finished
from tests.optional import anndata
from tests.optional import pandas as pd

pytestmark = pytest.mark.cluster

N, METHOD = 130, "VarianceScore"
NAMES = [f"zelle {row:03d} ä" if row % 3 else f"c{row}" for row in range(N)]
BATCH = np.array(["a", "b"])[np.arange(N) // 3 % 2]


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that names come in several chunks, and the rows of a batch from all of them."""
    for module in (row_names, stored, arrays):
        monkeypatch.setattr(module, "NAMES_AT_ONCE", 32)


def cells() -> anndata.AnnData:
    X = sp.random(N, 12, 0.4, format="csr", dtype=np.float32, random_state=np.random.default_rng(0))
    obs = pd.DataFrame({"type": pd.Categorical(np.arange(N) % 3).astype(str), "donor": BATCH}, index=NAMES)
    return anndata.AnnData(X, obs, pd.DataFrame(index=[f"gene{i}" for i in range(12)]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the cells, and a finished run over them."""
    root = tmp_path_factory.mktemp("named")
    cells().write_h5ad(root / "cells.h5ad")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_names, "NAMES_AT_ONCE", 32)
        patch.setattr(stored, "NAMES_AT_ONCE", 32)
        finished(root, job_on(root / "cells.h5ad"))
    return root


def job_on(source: Path, **data: Any) -> dict[str, Any]:
    return {"data": {"source": str(source), **data}, "methods": [METHOD], "select": {"n_features": 4}}


def exported(folder: Path, out: Path, *options: object) -> Path:
    outcome = call("export", folder / "run", out, "--data", METHOD, *options, "-q")
    assert outcome.code == 0, outcome.err
    return out


def tile_names(url: Path) -> list[str]:
    found = open_tiles(str(url))
    assert stored.has_row_names(found)
    return [name for part in stored.stretches_of(found) for name in stored.decode_names(part)]


def as_source(path: Path) -> list[str]:
    """Return the names of the rows of what an export wrote, read as a source by its own default."""
    return call("inspect", path, "--json").json["row_names"]["first"]


@pytest.mark.parametrize("kind", ["h5ad", "anndata.zarr"])
def test_anndata(folder: Path, tmp_path: Path, kind: str) -> None:
    out = exported(folder, tmp_path / f"x.{kind}", "--to", "anndata")
    found = anndata.read_h5ad(out) if kind == "h5ad" else anndata.read_zarr(out)
    assert found.obs_names.tolist() == NAMES
    assert found.n_vars == 4
    whole = cells()[:, found.var_names]
    np.testing.assert_array_equal(found.X.toarray(), whole.X.toarray())
    assert as_source(out) == NAMES[:3]


def test_anndata_with_sample_columns(folder: Path, tmp_path: Path) -> None:
    """Rows, labels and groups stay together; other programs can write the file again."""
    finished(tmp_path, job_on(folder / "cells.h5ad", labels="type", groups="donor"))
    found = anndata.read_h5ad(exported(tmp_path, tmp_path / "x.h5ad"))
    assert found.obs_names.tolist() == NAMES
    assert found.obs["label"].tolist() == cells().obs["type"].tolist()
    assert list(found.obs) == ["label", "group"]
    found[::-1].write_h5ad(tmp_path / "again.h5ad")
    assert anndata.read_h5ad(tmp_path / "again.h5ad").obs_names.tolist() == NAMES[::-1]


def test_rows_without_names_are_called_by_their_numbers_in_anndata_only(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", cells().X)
    finished(tmp_path, job_on(tmp_path / "X.npz"))
    assert anndata.read_h5ad(exported(tmp_path, tmp_path / "x.h5ad")).obs_names.tolist() == [str(i) for i in range(N)]
    assert "row_names" not in pq.read_schema(exported(tmp_path, tmp_path / "x.parquet")).names
    assert "row_names" not in zarr.open_group(exported(tmp_path, tmp_path / "x.zarr"), mode="r")
    with np.load(exported(tmp_path, tmp_path / "x.npz")) as found:
        assert "row_names" not in found.files


def test_other_formats(folder: Path, tmp_path: Path) -> None:
    """Each of which is a source whose rows have these names."""
    table = pq.read_table(exported(folder, tmp_path / "x.parquet"))
    assert table["row_names"].to_pylist() == NAMES
    group: Any = zarr.open_group(exported(folder, tmp_path / "x.zarr"), mode="r")
    assert group["row_names"][...].tolist() == NAMES
    with np.load(exported(folder, tmp_path / "x.npz"), allow_pickle=False) as found:
        assert found["row_names"].tolist() == NAMES
    for name in ("x.parquet", "x.zarr", "x.npz"):
        shown = call("inspect", tmp_path / name, "--row-names", "row_names", "--json").json
        assert (shown["row_names"]["first"], shown["n_features"]) == (NAMES[:3], 4), name


def test_tiles(folder: Path, tmp_path: Path) -> None:
    """Of the run, of its reduced data, and of what is reduced from these; `inspect` shows the first."""
    assert tile_names(folder / "run" / "tiles") == NAMES
    out = exported(folder, tmp_path / "t.zarr", "--to", "tiles")
    assert tile_names(out) == NAMES
    assert call("inspect", out, "--json").json["row_names"] == {"first": NAMES[:3], "width": 12}
    assert "row_names: c0, zelle 001 ä, zelle 002 ä, ..." in call("inspect", out).out.splitlines()
    finished(tmp_path, job_on(out))
    assert anndata.read_h5ad(exported(tmp_path, tmp_path / "x.h5ad", "--n-features", 2)).obs_names.tolist() == NAMES
    job = write_job(tmp_path, {**job_on(out, row_names="id"), "output": {"path": str(tmp_path / "second")}})
    refused(call("run", job, "-q"), 2, "data.row_names was settled")


def test_batches(folder: Path, tmp_path: Path) -> None:
    finished(tmp_path, job_on(folder / "cells.h5ad", batch="donor"))
    found = [tile_names(path / "tiles") for path in (tmp_path / "run" / "batches").iterdir()]
    assert sorted(found) == sorted(np.array(NAMES)[batch == BATCH].tolist() for batch in ("a", "b"))


def test_convert(tmp_path: Path) -> None:
    """From a file beside, and to the same tiles whatever the chunks are."""
    sp.save_npz(tmp_path / "X.npz", cells().X)
    (tmp_path / "rows.txt").write_text("\n".join(NAMES))
    arguments = ("convert", tmp_path / "X.npz", tmp_path / "t.zarr", "--workers", 0, "-q")
    assert call(*arguments, "--row-names", tmp_path / "rows.txt").code == 0
    assert tile_names(tmp_path / "t.zarr") == NAMES
    assert len(list((tmp_path / "t.zarr" / "row_names" / "c").iterdir())) == -(-N // 32)


def test_a_lost_chunk_is_made_again(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "own")
    job = {**job_on(tmp_path / "own" / "cells.h5ad"), "evaluate": None, "cluster": {"workers": 0}}
    path = write_job(tmp_path, {**job, "output": {"path": str(tmp_path / "run")}})
    assert call("run", path, "-q").code == 0
    chunk = tmp_path / "run" / "tiles" / "row_names" / "c" / "2" / "0"
    before = chunk.read_bytes()
    chunk.write_bytes(before[:-6] + b"xxxxxx")
    assert "row_names" in call("verify", tmp_path / "run").out
    assert call("verify", tmp_path / "run", "--remove").code == 3
    again = call("run", path, "-q", "--json").json["recomputed"]
    assert again == {"labels": 1}
    assert chunk.read_bytes() == before


def test_names_that_changed_since_the_run_began(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", cells().X)
    (tmp_path / "rows.txt").write_text("\n".join(NAMES))
    job = {**job_on(tmp_path / "X.npz", row_names=str(tmp_path / "rows.txt")), "cluster": {"workers": 0}}
    path = write_job(tmp_path, {**job, "evaluate": None, "output": {"path": str(tmp_path / "run")}})
    assert call("run", path, "-q").code == 0
    (tmp_path / "run" / "tiles" / "tiles.json").unlink()
    shutil.rmtree(tmp_path / "run" / "tiles" / "records" / "labels")
    (tmp_path / "rows.txt").write_text("\n".join(["other", *NAMES[1:]]))
    refused(call("run", path, "-q"), 3, "changed since the run")
    assert rows_of(tmp_path / "run" / "ranking.csv")
