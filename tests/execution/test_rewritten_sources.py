"""A source that is rewritten between a kill and a resume is never mixed with what was read, whatever its times say."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs import load_job, run_job
from daskfs.errors import RunStoppedError
from daskfs.job.job import make_cluster, make_data
from daskfs.runs import tiles as planned_tiles
from daskfs.runs.conversion import convert
from daskfs.store.context import open_tiles
from daskfs.store.store import Store
from daskfs.tiles.shapes import plan_shape
from tests.cli.command import daskfs, refused, write_job
from tests.cli.test_moved_runs import tables
from tests.execution.runs import Stop

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES, TILE_ROWS = 5000, 6, 1024


def matrix(seed: int = 0) -> np.ndarray:
    X = np.random.default_rng(seed).integers(-99, 100, (N_SAMPLES, N_FEATURES)).astype(np.float32)
    X[::7] = 0
    return X


def write_npz(path: Path, X: np.ndarray) -> None:
    sp.save_npz(path, sp.csr_array(np.where(X == 0, 1, X)), compressed=False)


def write_parts(path: Path, X: np.ndarray) -> None:
    path.mkdir(exist_ok=True)
    for number, part in enumerate(np.split(X, 2)):
        table = pa.table({f"x{column}": part[:, column] for column in range(N_FEATURES)})
        pq.write_table(table, path / f"{number}.parquet", compression="none", use_dictionary=False)


def write_zarr(path: Path, X: np.ndarray) -> None:
    if not path.exists():  # its parts are files; the folder of an array keeps its time where they are replaced
        height = TILE_ROWS if path.stem == "place" else 500
        zarr.create_array(path, shape=X.shape, chunks=(height, 3), dtype=X.dtype, compressors=None)
    zarr.open_array(path, mode="r+")[...] = X


KINDS: dict[str, Callable[[Path, np.ndarray], object]] = {
    "X.npy": np.save,
    "X.npz": write_npz,
    "parts": write_parts,
    "X.zarr": write_zarr,
    "place.zarr": write_zarr,
}


def files_of(path: Path) -> list[Path]:
    return [one for one in sorted(path.rglob("*")) if one.is_file()] if path.is_dir() else [path]


def rewrite(path: Path, write: Callable[[Path, np.ndarray], object]) -> None:
    """Write other values, with the same sizes and modification times."""
    before = {file: file.stat() for file in files_of(path)}
    write(path, matrix(1))
    for file, status in before.items():
        assert file.stat().st_size == status.st_size
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def copy(path: Path, write: Callable[[Path, np.ndarray], object]) -> None:
    """Replace files by copies of them."""
    del write
    (shutil.copytree if path.is_dir() else shutil.copy2)(path, path.with_suffix(".copy"))
    Store(path).target("").remove()
    path.with_suffix(".copy").rename(path)


def chmod(path: Path, write: Callable[[Path, np.ndarray], object]) -> None:
    del write
    for file in files_of(path):
        file.chmod(0o600)


@pytest.fixture(autouse=True)
def bands(monkeypatch: pytest.MonkeyPatch) -> None:
    def shaped(*arguments: Any) -> Any:
        return dataclasses.replace(plan_shape(*arguments), tile_rows=TILE_ROWS)

    monkeypatch.setattr(planned_tiles, "plan_shape", shaped)


@pytest.mark.parametrize("missing", ["refuse", "mean"])
@pytest.mark.parametrize("change", [rewrite, copy, chmod])
@pytest.mark.parametrize("name", KINDS)
def test_what_was_read_decides(
    tmp_path: Path, name: str, change: Callable[[Path, Callable[[Path, np.ndarray], object]], None], missing: str
) -> None:
    path, write = tmp_path / name, KINDS[name]
    write(path, matrix())
    job = {
        "data": {"source": str(path), "missing": missing},
        "methods": ["VarianceScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(tmp_path / "run")},
    }
    clean = write_job(tmp_path, {**job, "output": {"path": str(tmp_path / "clean")}})
    assert daskfs("run", clean, "-q").code == 0
    file = write_job(tmp_path, job)
    with pytest.raises(RunStoppedError):
        run_job(load_job(file), Stop("ingest", 1))
    change(path, write)
    outcome = daskfs("run", file)
    assert outcome.code == 0, outcome.err
    if change is rewrite:  # nothing was scored: all of it is read again
        assert f"{path} changed since the run in {tmp_path / 'run'} began" in outcome.err
        assert tables(tmp_path / "run") != tables(tmp_path / "clean")
        clean = write_job(tmp_path, {**job, "output": {"path": str(tmp_path / "clean")}})
        assert daskfs("run", clean, "-q", "--overwrite").code == 0
    else:
        assert "changed since" not in outcome.err
    assert tables(tmp_path / "run") == tables(tmp_path / "clean")


def test_a_conversion_reads_no_other_source(tmp_path: Path) -> None:
    path, target = tmp_path / "X.npy", tmp_path / "tiles"
    np.save(path, matrix())
    cluster = make_cluster({"workers": 0})
    with pytest.raises(RunStoppedError):
        convert(make_data({"source": str(path)}), str(target), cluster, Stop("ingest", 1))
    rewrite(path, np.save)
    refused(daskfs("convert", path, target, "--workers", 0, "-q"), 3, f"the source of {target} changed since")
    status = path.stat()
    np.save(path, matrix())
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert daskfs("convert", path, target, "--workers", 0, "-q").code == 0
    np.testing.assert_array_equal(open_tiles(str(target)).read_rows(slice(0, N_SAMPLES)), matrix())
