"""Rows that arrive later: ``data.append`` keeps the tiles of the rows before, and results are those of a run from
nothing, to the bit; what is not only longer is refused, and a run that is killed ends the same.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml
import zarr

import daskfs as package
from daskfs.errors import InputError
from daskfs.execution.progress import Silent
from daskfs.runs import tiles as planned_tiles
from daskfs.sources import zarr_array
from daskfs.store import shape as stored_shape
from daskfs.store.epoch import Epoch
from daskfs.store.shape import Shape
from daskfs.tiles.shapes import plan_shape
from tests.cli.command import daskfs, refused
from tests.execution.runs import recorded, write_job
from tests.optional import pandas as pd

pytestmark = pytest.mark.cluster

N_FEATURES, BAND = 72, 1024
"""Of so many columns a plan cuts no bands of fewer rows."""
INPUT = 3
LAST = 3400


def values(*, missing: bool = False, sparse: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return X and labels: the last rows have a class of their own, and rows of no class."""
    rng = np.random.default_rng(0)
    classes = np.arange(LAST) % 3
    X = rng.normal(size=(LAST, N_FEATURES)) + classes[:, None] * np.linspace(0, 1, N_FEATURES)
    X[:, 3] += 1000
    X[2600:, :9] += 2  # statistics of the columns change with the last rows
    if sparse:
        X *= rng.random(X.shape) < 0.2
    if missing:
        X[rng.random(X.shape) < 0.05] = np.nan
    labels = np.where(np.arange(LAST) > 2700, 7, classes)
    return X.astype(np.float32), np.where(rng.random(LAST) < 0.5, labels, -1)


class Grown:
    """Data of one kind in a folder, to which rows are added at the end.

    Parameters
    ----------
    kind
        "parquet", "csv", or of Zarr "in place", "converted" or "csr".
    """

    def __init__(self, kind: str, folder: Path, *, missing: bool = False) -> None:
        self.kind, self.n_rows = kind, 0
        self.X, self.y = values(missing=missing, sparse=kind == "csr")
        self.path = folder / ("data" if kind in ("parquet", "csv") else "data.zarr")
        self.data: dict[str, Any] = {
            "source": str(self.path),
            "labels": "y",
            "missing": "mean" if missing else "refuse",
        }
        if kind in ("parquet", "csv"):
            self.path.mkdir(parents=True)
            return
        group = zarr.open_group(self.path, mode="w")
        group.create_array("y", shape=(0,), dtype="i8", chunks=(500,))
        if kind == "csr":
            found = group.create_group("X", attributes={"encoding-type": "csr_matrix", "shape": [0, N_FEATURES]})
            for name, kind_of, length in (("data", "f4", 0), ("indices", "i4", 0), ("indptr", "i8", 1)):
                found.create_array(name, shape=(length,), dtype=kind_of, chunks=(900,))
        else:  # integers of 32 bits are read as float64, so that chunks do not serve as tiles
            dtype, chunks = ("f4", (BAND, 40)) if kind == "in place" else ("i4", (1000, 40))
            self.X = self.X if kind == "in place" else np.round(20 * self.X).astype("i4")
            group.create_array("X", shape=(0, N_FEATURES), dtype=dtype, chunks=chunks)

    def grow(self, stop: int) -> None:
        """Add rows, up to `stop`."""
        X, y, start = self.X[self.n_rows : stop], self.y[self.n_rows : stop], self.n_rows
        self.n_rows = stop
        if self.kind in ("parquet", "csv"):
            table = pd.DataFrame(X, columns=[f"f{i}" for i in range(N_FEATURES)]).assign(y=y)
            file = self.path / f"part-{start}.{self.kind}"
            table.to_parquet(file) if self.kind == "parquet" else table.to_csv(file, index=False)
            return
        group: Any = zarr.open_group(self.path, mode="r+")
        group["y"].append(y)
        if self.kind != "csr":
            group["X"].append(X)
            return
        rows, found = sp.csr_matrix(X), group["X"]
        found["indptr"].append(found["data"].shape[0] + rows.indptr[1:])
        found["data"].append(rows.data)
        found["indices"].append(rows.indices)
        found.attrs["shape"] = [stop, N_FEATURES]


@contextmanager
def cut(rows: int, columns: int) -> Iterator[None]:
    """Let plans choose that tile shape within the block, and draw samples of fewer rows than there are."""

    def shaped(*arguments: Any) -> Shape:
        return dataclasses.replace(plan_shape(*arguments), tile_rows=rows, tile_columns=columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned_tiles, "plan_shape", shaped)
        patch.setattr(stored_shape, "SAMPLE_ROWS", (2**8, 2**20))
        yield


def job(folder: Path, data: dict[str, Any], **blocks: Any) -> Path:
    methods = ["LaplacianScore", "VarianceScore", "FisherScore", "LSDF"]
    settings = {"methods": methods, "transform": {"graph": "zscore"}, "evaluate": None}
    return write_job(folder, "replaced", **{"data": data, "cluster": {"workers": 0}, **settings, **blocks})


def results(run: Path) -> dict[str, bytes]:
    """Return the tables and every method's scores."""
    scores = {path.name: zarr.open_array(path)[...].tobytes() for path in (run / "scores").iterdir()}
    tables = {path.name: path.read_bytes() for path in run.glob("*.csv")}
    assert scores
    assert "ranking.csv" in tables
    return scores | tables


CASES = [
    ("parquet", 2500, 2600, 2, False),  # within the last band
    ("parquet", 2048, 3072, 2, True),  # a whole band
    ("csv", 1100, LAST, 1, False),  # many
    ("in place", 2500, LAST, 2, False),
    ("in place", 2048, 3072, 2, True),
    ("converted", 2048, 3072, 1, False),  # its chunk of rows 2000:3000 holds old and new ones
    ("csr", 2500, LAST, 1, False),  # so do the last ones of its arrays
    ("csr", 2048, 2049, 1, False),
]


@pytest.mark.parametrize(("kind", "before", "after", "n_kept", "missing"), CASES)
def test_results_are_those_of_a_run_from_nothing(
    tmp_path: Path, kind: str, before: int, after: int, n_kept: int, missing: bool
) -> None:
    """Of another tile shape, and of samples of other rows."""
    data = Grown(kind, tmp_path, missing=missing)
    data.grow(before)
    graph = {"engine": "cells" if after > 3000 else "exact"}
    again = job(tmp_path / "again", data.data, graph=graph)
    path = job(tmp_path, {**data.data, "append": True}, graph=graph)
    with cut(BAND, 17):
        assert daskfs("run", path, "-q").code == 0
        first = results(tmp_path / "run")
        data.grow(after)
        outcome = daskfs("run", path)
        assert outcome.code == 0, outcome.err
    n_bands = -(-after // BAND)
    told = f"{after - before:,} rows were appended to {data.path}: {n_kept} of {n_bands} bands of tiles are kept"
    assert told in " ".join(outcome.err.split())
    with cut(2 * BAND, 24):
        assert daskfs("run", again, "-q").code == 0
        assert daskfs("verify", tmp_path / "run").code == 0
    found = results(tmp_path / "run")
    assert found == results(tmp_path / "again" / "run")
    assert found != first
    assert sum(daskfs("run", path, "--json", "-q").json["recomputed"].values()) == 0


# ------------------------------------------------------------------------------------------------------- many times
def test_again_and_again(tmp_path: Path) -> None:
    """By the Python API: each time what is only longer is kept, also of rows of which a file had to be corrected."""
    data = Grown("parquet", tmp_path)
    raw = yaml.safe_load(job(tmp_path, {**data.data, "append": True}).read_text())
    told: list[str] = []

    class Told(Silent):
        def message(self, text: str) -> None:
            told.append(text)

    def run() -> dict[str, Any]:
        told.clear()
        with cut(BAND, 40):
            return package.run_job(package.make_job(raw), Told())

    data.grow(1500)
    run()
    assert not told
    data.grow(2100)
    run()
    assert "600 rows were appended" in told[0]
    assert "1 of 3 bands of tiles are kept" in told[0]
    data.grow(2700)
    wrong = data.path / "part-2100.parquet"
    good = pd.read_parquet(wrong)
    good.assign(f5=np.where(good.index == 9, np.inf, good.f5)).to_parquet(wrong)
    with pytest.raises(InputError, match=r"row 2,?109"):
        run()
    assert "600 rows were appended" in told[0]
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "failed"
    good.to_parquet(wrong)
    run()
    assert "2 of 3 bands of tiles are kept" in told[0]
    ended = [recorded(tmp_path / "run" / "tiles", "ingest")[unit]["bytes_written"] for unit in range(3)]
    assert max(ended[:2]) < BAND * N_FEATURES * 4 < ended[2] + BAND * N_FEATURES * 2
    data.grow(LAST)
    run()
    assert "2 of 4 bands of tiles are kept" in told[0]
    assert sum(run()["recomputed"].values()) == 0
    expected = job(tmp_path / "again", data.data)
    assert daskfs("run", expected, "-q").code == 0
    assert results(tmp_path / "run") == results(tmp_path / "again" / "run")


def test_copy_of_a_run_keeps_the_ranking_before(tmp_path: Path) -> None:
    data = Grown("in place", tmp_path)
    data.grow(2500)
    path = job(tmp_path, data.data)
    with cut(BAND, 40):
        assert daskfs("run", path, "-q").code == 0
        first = results(tmp_path / "run")
        shutil.copytree(tmp_path / "run", tmp_path / "more")
        data.grow(LAST)
        refused(daskfs("run", path, "-q"), INPUT, "changed since the run", "data.append")
        outcome = daskfs("run", path, "--set", "data.append=true", "--set", f"output.path={tmp_path / 'more'}")
    assert outcome.code == 0, outcome.err
    assert "2 of 4 bands of tiles are kept" in " ".join(outcome.err.split())
    assert results(tmp_path / "run") == first
    assert results(tmp_path / "more") != first


def test_rewritten_chunk_of_x_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a chunk whose state is not compared, the values are."""
    monkeypatch.setattr(zarr_array, "SAMPLED_CHUNKS", 1)
    data = Grown("in place", tmp_path)
    data.grow(2500)
    path = job(tmp_path, {**data.data, "append": True}, methods=["VarianceScore"])
    assert daskfs("run", path, "-q").code == 0
    data.grow(LAST)
    group: Any = zarr.open_group(data.path, mode="r+")
    group["X"][1500, 5] = 99
    outcome = daskfs("run", path)
    assert "2 of 4 bands of tiles are kept" in " ".join(outcome.err.split())
    again = job(tmp_path / "again", data.data, methods=["VarianceScore"])
    assert daskfs("run", again, "-q").code == 0
    assert results(tmp_path / "run") == results(tmp_path / "again" / "run")
    assert daskfs("verify", tmp_path / "run").code == 0


# --------------------------------------------------------------------------------------------------------- refusals
def rewrite_part(data: Grown) -> None:
    file = data.path / "part-0.parquet"
    table = pd.read_parquet(file)
    table.assign(f0=table.f0 + 1).to_parquet(file)
    os.utime(file, ns=(0, 0))


def insert_part(data: Grown) -> None:
    shutil.copy(data.path / "part-0.parquet", data.path / "a.parquet")


def remove_part(data: Grown) -> None:
    (data.path / "part-0.parquet").unlink()


def rename_columns(data: Grown) -> None:
    file = data.path / f"part-{BAND}.parquet"
    pd.read_parquet(file).rename(columns={"f1": "other"}).to_parquet(file)


def rewrite_chunk(data: Grown) -> None:
    group: Any = zarr.open_group(data.path, mode="r+")
    group["X"][0, 0] = 3
    os.utime(data.path / "X" / "c" / "0" / "0", ns=(0, 0))


def shorten(data: Grown) -> None:
    group: Any = zarr.open_group(data.path, mode="r+")
    group["X"].resize((700, N_FEATURES))
    group["y"].resize((700,))


def widen(data: Grown) -> None:
    group: Any = zarr.open_group(data.path, mode="r+")
    group["X"].resize((data.n_rows, N_FEATURES + 1))


def describe(data: Grown) -> None:
    zarr.open_group(data.path, mode="r+")["X"].attrs["scale_factor"] = 2.0


REFUSED = [
    ("parquet", rewrite_part, ["the first 1 files", "the unchanged 1 files", "data.append only takes rows at the end"]),
    ("parquet", insert_part, ["the first 1 files"]),
    ("parquet", remove_part, ["the first 1 files"]),
    ("parquet", rename_columns, ["no column 'f1'"]),
    ("in place", rewrite_chunk, ["chunk", "c/0/0 changed"]),
    ("in place", shorten, ["has 700 entries, and had 1,024", "removed"]),
    ("in place", widen, ["only its length may change"]),
    ("converted", describe, ["only its length may change"]),
]


@pytest.mark.parametrize(("kind", "change", "told"), REFUSED, ids=[change.__name__ for _, change, _ in REFUSED])
def test_more_than_rows_at_the_end_is_refused(tmp_path: Path, kind: str, change: Any, told: list[str]) -> None:
    """And what the run before left stays."""
    data = Grown(kind, tmp_path)
    data.grow(BAND)
    path = job(tmp_path, {**data.data, "append": True}, methods=["VarianceScore"])
    assert daskfs("run", path, "-q").code == 0
    first, manifest = results(tmp_path / "run"), (tmp_path / "run" / "run.json").read_bytes()
    data.grow(BAND + 500)
    change(data)
    refused(daskfs("run", path, "-q"), INPUT, *told)
    assert results(tmp_path / "run") == first
    assert (tmp_path / "run" / "run.json").read_bytes() == manifest
    if change is not rename_columns:  # of which there is no table
        assert daskfs("run", path, "-q", "--overwrite").code == 0


def test_sources_that_cannot_tell(tmp_path: Path) -> None:
    """Of one file only its size and time are known; tiles are grown with the run that made them."""
    file, X = tmp_path / "X.csv", pd.DataFrame(np.random.default_rng(0).normal(size=(50, 4)), columns=[*"abcd"])
    X.to_csv(file, index=False)
    path = job(tmp_path, {"source": str(file), "append": True}, methods=["VarianceScore"])
    assert daskfs("run", path, "-q").code == 0
    X.to_csv(file, index=False, mode="a", header=False)
    refused(daskfs("run", path, "-q"), INPUT, "X.csv changed", "files of their own in a directory", "--overwrite")
    path = job(tmp_path / "of_tiles", {"source": str(tmp_path / "run" / "tiles"), "append": True})
    refused(daskfs("run", path, "-q"), 2, "data.append", "leave it out")


# ------------------------------------------------------------------------------------------------------------- kills
class Killed(BaseException):
    """Ends a run as SIGKILL does: nothing handles it."""


@contextmanager
def killed_at(number: int) -> Iterator[list[int]]:
    """Kill the run within the block before a write to a store; yield the number of writes that it got to."""
    count, check = [0], Epoch.check

    def counted(epoch: Epoch, **arguments: Any) -> None:
        count[0] += 1
        if count[0] == number:
            raise Killed
        check(epoch, **arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Epoch, "check", counted)
        yield count


N_KILLS = 60
QUICK_KILLS = (0, 1, 7, 30, 59)


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, bytes], dict[str, bytes], int]:
    """Return the job and run of data that have grown since, results before and after, and the writes between."""
    folder = tmp_path_factory.mktemp("grown")
    data = Grown("parquet", folder, missing=True)
    data.grow(2500)
    path = job(folder, {**data.data, "append": True}, methods=["LaplacianScore", "VarianceScore"])
    with cut(BAND, 40):
        assert daskfs("run", path, "-q").code == 0
        before = results(folder / "run")
        data.grow(LAST)
        shutil.copytree(folder / "run", folder / "whole")
        with killed_at(-1) as count:
            assert daskfs("run", path, "-q", "--set", f"output.path={folder / 'whole'}").code == 0
    return path, folder / "run", before, results(folder / "whole"), count[0]


@pytest.mark.parametrize(
    "kill", [pytest.param(kill, marks=() if kill in QUICK_KILLS else pytest.mark.long) for kill in range(N_KILLS)]
)
def test_kill_at_any_write(tmp_path: Path, grown: Any, kill: int) -> None:
    """What says that it is done has all results of the rows before, or of all rows; the same call ends with these."""
    path, begun, before, expected, n_writes = grown
    run = tmp_path / "run"
    shutil.copytree(begun, run)
    number = 1 + kill if kill < N_KILLS // 3 else 1 + n_writes * (kill - N_KILLS // 3) // (N_KILLS - N_KILLS // 3)
    arguments = ("run", path, "-q", "--set", f"output.path={run}")
    with cut(BAND, 40):
        with killed_at(number), pytest.raises(Killed):
            daskfs(*arguments)
        if json.loads((run / "run.json").read_text())["status"] == "done":
            assert results(run) in (before, expected)
        tiles = run / "tiles" / "tiles.json"
        if tiles.is_file() and json.loads(tiles.read_text())["shape"]["n_samples"] == LAST:
            assert daskfs("inspect", run / "tiles", "--json").code == 0
        assert daskfs(*arguments).code == 0
        assert results(run) == expected
        assert daskfs("verify", run).code == 0
