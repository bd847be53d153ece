"""Dask collections of any kind as X: the same results as in memory, each block computed once, nothing through here."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import tornado.iostream
import zarr
from distributed import Client

import daskfs
from daskfs import FisherScore, LaplacianScore, evaluate_selectors, knn_graph
from daskfs.errors import InputError, MemoryPlanError, StoreError
from daskfs.sources.collection import collection_of
from tests.execution.runs import local_cluster
from tests.optional import anndata as ad
from tests.optional import dask_dataframe as dd
from tests.optional import pandas as pd
from tests.optional import sparse
from tests.optional import xarray as xr

ROOT = Path(__file__).parents[2]
N, D = 600, 12
ONCE: dict[str, Any] = {"evaluate": None, "cluster.workers": 0}


def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    X[rng.random(X.shape) < 0.5] = 0
    return X


X = values()
Y = (X[:, 0] + X[:, 1] > 0).astype(int)
NAMES = [f"g{column}" for column in range(D)]


def logged(block: Any, log: str, name: str, block_info: Any = None) -> Any:
    """Return a block as it is, and write that it was computed."""
    if block_info:
        with Path(log).open("a") as file:
            file.write(f"{name} {block_info[0]['chunk-location']}\n")
    return block


def dying(block: Any, flag: str, block_info: Any = None) -> Any:
    """Return a block as it is; once, kill the process that computes the tenth one, if there is a file `flag`."""
    if block_info and block_info[0]["chunk-location"][0] == 9 and Path(flag).exists():
        Path(flag).unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def tall(folder: Path) -> da.Array:
    """Return X many times in twelve blocks, of which a process may die once."""
    (folder / "flag").touch()
    blocks = da.tile(da.from_array(X[:, np.arange(64) % D]), (100, 1)).rechunk((5000, 64))
    return blocks.map_blocks(dying, str(folder / "flag"), dtype=float)


class Counted:
    """Dask arrays of X whose blocks count how often they are computed."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "computed"
        self.folder = folder

    def dense(self, chunks: Any = (100, D), name: str = "block") -> da.Array:
        return self.mark(da.from_array(X, chunks=chunks), name)

    def mark(self, blocks: Any, name: str = "block") -> Any:
        return blocks.map_blocks(logged, str(self.log), name, dtype=blocks.dtype, meta=blocks._meta)

    def counts(self) -> Counter[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return Counter(lines)

    def sparse_blocks(self, kind: Any) -> da.Array:
        return self.mark(da.from_array(X, chunks=(100, D)).map_blocks(kind))

    def frame(self) -> Any:
        return dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=5)

    def xarray(self) -> Any:
        return xr.DataArray(self.dense(), dims=("cell", "gene"), coords={"gene": NAMES})

    def anndata(self) -> Any:
        return ad.AnnData(self.sparse_blocks(sp.csr_matrix), var=pd.DataFrame(index=NAMES))

    def lazy_anndata(self) -> Any:
        path = self.folder / "cells.h5ad"
        if not path.exists():
            ad.AnnData(sp.csr_matrix(X), var=pd.DataFrame(index=NAMES)).write_h5ad(path)
        return ad.experimental.read_lazy(path)


KINDS: dict[str, Callable[[Counted], Any]] = {
    "dense": lambda made: made.dense(),
    "small chunks": lambda made: made.dense((31, D)),
    "chunks of columns": lambda made: made.dense((130, 5)),
    "CSR": lambda made: made.sparse_blocks(sp.csr_matrix),
    "CSC": lambda made: made.sparse_blocks(sp.csc_matrix),
    "COO": lambda made: made.sparse_blocks(sparse.COO),
    "masked": lambda made: made.mark(da.ma.masked_array(da.from_array(X, chunks=(100, D)), mask=False)),
    "DataFrame": lambda made: made.frame(),
    "DataArray": lambda made: made.xarray(),
    "Dataset": lambda made: xr.Dataset({"counts": made.xarray(), "y": ("cell", Y)}),
    "AnnData": lambda made: made.anndata(),
    "lazy AnnData": lambda made: made.lazy_anndata(),
}
SPARSE = ("CSR", "CSC", "COO", "AnnData", "lazy AnnData")
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda M: FisherScore().fit(M, Y).scores_,
    "rank": lambda M: daskfs.rank(M, Y, methods="VarianceScore", settings=ONCE).ranking["score"].to_numpy(),
    "inspect": lambda M: [*map(daskfs.inspect(M).get, ("n_samples", "n_features", "is_sparse", "n_constant"))],
    "knn_graph": lambda M: knn_graph(M, 3).distances,
    "evaluate_selectors": lambda M: evaluate_selectors(FisherScore(), M, Y, n_selected=2).summary["mean"].to_numpy(),
}


@pytest.fixture
def counted(tmp_path: Path) -> Counted:
    return Counted(tmp_path)


@pytest.fixture(params=["threads", "client"])
def _computed_by(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "threads":
        yield
    else:
        with Client(request.getfixturevalue("two_workers")):
            yield


@pytest.mark.cluster
@pytest.mark.usefixtures("_computed_by")
# numba compiles what COO does
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.long] * (kind == "COO")) for kind in KINDS])
def test_the_same_as_in_memory_and_each_block_once(kind: str, counted: Counted) -> None:
    in_memory = sp.csr_matrix(X) if kind in SPARSE else X
    for name, function in FUNCTIONS.items():
        collection = KINDS[kind](counted)
        counted.counts()
        found = function(collection)
        assert set(counted.counts().values()) <= {1}, name
        np.testing.assert_array_equal(found, function(in_memory), name)
    fitted = FisherScore(2).fit(in_memory, Y)
    collection = KINDS[kind](counted)
    counted.counts()
    chosen = FisherScore(2).fit(collection, Y).transform(collection)
    assert type(chosen) is type(xr.DataArray(X) if kind == "Dataset" else collection)
    lazy = chosen.X if hasattr(chosen, "var_names") else chosen
    block = lazy.compute() if hasattr(lazy, "compute") else lazy
    dense = block.todense() if hasattr(block, "todense") else block
    np.testing.assert_array_equal(np.asarray(dense), X[:, fitted.get_support()])


@pytest.mark.cluster
@pytest.mark.usefixtures("_computed_by")
def test_tasks_that_blocks_share_are_computed_once(counted: Counted) -> None:
    below = counted.dense((100, D), "below")
    # a block is cut between two others; means need all blocks, which are computed again for the units of later waves
    for X_of, most in ((counted.mark(below.rechunk((70, D)), "above"), 1), (counted.mark(below - below.mean(0)), 2)):
        np.testing.assert_array_equal(FisherScore().fit(X_of, Y).scores_, FisherScore().fit(X_of.compute(), Y).scores_)
        counted.counts()
        FisherScore().fit(X_of, Y)
        counts = counted.counts()
        assert max(count for name, count in counts.items() if not name.startswith("below")) == 1
        assert max(counts.values()) <= most


@pytest.mark.cluster
def test_no_block_comes_through_the_caller(two_workers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    received, read = [0], tornado.iostream.IOStream.read_into

    def reading(self: Any, buffer: Any, *arguments: Any, **options: Any) -> Any:
        received[0] += len(buffer)
        return read(self, buffer, *arguments, **options)

    monkeypatch.setattr(tornado.iostream.IOStream, "read_into", reading)
    wide = da.random.default_rng(0).normal(size=(20_000, 100), chunks=(1000, 100))
    with Client(two_workers):
        FisherScore().fit(wide, np.arange(20_000) % 2)
        assert 0 < received[0] < 2**20
        wide.compute()
        assert received[0] > wide.nbytes


def test_nothing_but_a_zarr_array_is_read_in_place(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "X.zarr", data=X, chunks=(100, D))
    array = da.from_zarr(str(tmp_path / "X.zarr"))
    zarr.create_array(tmp_path / "scaled.zarr", data=X, attributes={"scale_factor": 2.0})
    others = (array + 1, array[::-1], array[:300], da.from_zarr(str(tmp_path / "scaled.zarr")))
    for collection, is_in_place in ((array, True), *((other, False) for other in others)):
        result = daskfs.rank(collection, Y[: len(collection)], methods="FisherScore", settings=ONCE)
        assert result["job"]["data"]["source"].startswith("dask:") is not is_in_place


@pytest.mark.long
@pytest.mark.cluster
def test_a_worker_that_dies_changes_nothing(tmp_path: Path) -> None:
    y = np.tile(Y, 100)
    with local_cluster(2) as cluster, Client(cluster):
        found = FisherScore().fit(tall(tmp_path), y)
    assert not (tmp_path / "flag").exists()
    in_memory = np.tile(X[:, np.arange(64) % D], (100, 1))
    np.testing.assert_array_equal(found.scores_, FisherScore().fit(in_memory, y).scores_)


class TestRun:
    @staticmethod
    def job(folder: Path) -> dict[str, Any]:
        np.save(folder / "y.npy", Y)
        return {
            "data": {"source": "X", "labels": str(folder / "y.npy")},
            "methods": ["FisherScore"],
            "output": {"path": str(folder / "run")},
            "evaluate": None,
            "cluster": {"workers": 0},
        }

    def test_an_unfinished_run_goes_on_with_the_same_collection_only(self, tmp_path: Path) -> None:
        stop = tmp_path / "stop"
        stop.touch()

        def made(shift: float = 0.0) -> da.Array:
            def failing(block: np.ndarray, block_info: Any = None) -> np.ndarray:
                if block_info and block_info[0]["chunk-location"][0] == 9 and stop.exists():
                    msg = "stop"
                    raise KeyError(msg)
                return block + shift

            tall = np.tile(X[:, np.arange(64) % D], (100, 1))
            return da.from_array(tall, chunks=(5000, 64)).map_blocks(failing, dtype=float)

        job = self.job(tmp_path)
        np.save(tmp_path / "y.npy", np.tile(Y, 100))
        with pytest.raises(InputError, match="a block of X could not be computed: KeyError: 'stop'"):
            daskfs.run(job, data=made())
        stop.unlink()
        gc.collect()  # the traceback held the collection
        alone = {**job, "data": {**job["data"], "source": daskfs_source(tmp_path)}}
        with pytest.raises(InputError, match=r"pass it again, as daskfs\.run\(job, data=X\)"):
            daskfs.run(alone)
        result = daskfs.run(job, data=made())
        assert 0 < result["recomputed"]["ingest"] < result["tiles"]["stages"][0]["n_units"]
        assert not daskfs.run(job, data=made())["recomputed"]
        assert not daskfs.run(alone)["recomputed"], "a finished run needs no collection"
        with pytest.raises(StoreError, match="known by dask's token"):
            daskfs.run(job, data=made(1.0))
        again = daskfs.run({**job, "output": {"path": str(tmp_path / "again")}}, data=made())
        assert Path(again.url, "ranking.parquet").read_bytes() == Path(result.url, "ranking.parquet").read_bytes()

    @pytest.mark.long
    def test_a_killed_driver_is_resumed(self, tmp_path: Path) -> None:
        job = self.job(tmp_path)
        np.save(tmp_path / "y.npy", np.tile(Y, 100))
        code = (
            "import sys, json, daskfs\nfrom pathlib import Path\nfrom tests.api.test_collections import tall\n"
            "daskfs.run(json.loads(sys.argv[2]), data=tall(Path(sys.argv[1])))"
        )
        killed = subprocess.run([sys.executable, "-c", code, tmp_path, json.dumps(job)], cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
        X_of = tall(tmp_path)
        (tmp_path / "flag").unlink()
        result = daskfs.run(job, data=X_of)
        assert 0 < result["recomputed"]["ingest"] < result["tiles"]["stages"][0]["n_units"]
        whole = daskfs.run({**job, "output": {"path": str(tmp_path / "whole")}}, data=X_of)
        assert Path(result.url, "ranking.parquet").read_bytes() == Path(whole.url, "ranking.parquet").read_bytes()

    def test_another_collection_takes_over_tiles_of_which_nothing_was_scored(self, tmp_path: Path) -> None:
        def bad(block: np.ndarray, block_info: Any = None) -> np.ndarray:
            if block_info and block_info[0]["chunk-location"][0] == 5:
                msg = "bad"
                raise ValueError(msg)
            return block

        blocks = da.from_array(X, chunks=(100, D))
        with pytest.raises(InputError, match="ValueError: bad"):
            daskfs.run(self.job(tmp_path), data=blocks.map_blocks(bad, dtype=float))
        result = daskfs.run(self.job(tmp_path), data=blocks)
        assert result.selected(n=2) == [f"x{i}" for i in np.argsort(-FisherScore().fit(X, Y).scores_)[:2]]

    @pytest.mark.parametrize("kind", ["dense", "CSR"])
    def test_selected_columns_come_out_lazily(self, kind: str, counted: Counted, tmp_path: Path) -> None:
        result = daskfs.run(self.job(tmp_path), data=KINDS[kind](counted))
        chosen, names = result.data("FisherScore", 3)
        best = np.argsort(-FisherScore().fit(X, Y).scores_)[:3]
        assert names == [f"x{i}" for i in best]
        block = chosen.compute()
        np.testing.assert_array_equal(block.toarray() if kind == "CSR" else block, X[:, best])
        with pytest.raises(InputError, match="pass output="):
            daskfs.rank(X, Y, methods="FisherScore", settings=ONCE).data()


def daskfs_source(folder: Path) -> str:
    return str(json.loads((folder / "run" / "run.json").read_text())["job"]["data"]["source"])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: xr.Dataset({"a": (("r", "c"), X), "b": (("r", "c"), X)}), r"2 variables of two dimensions \(a, b\)"),
        (lambda: xr.DataArray(X.reshape(N, 3, 4), dims=("r", "s", "c")), "dimensions r, s, c"),
        (lambda: da.from_array(X, chunks=(100, D)).map_blocks(sp.csr_matrix, meta=X[:0, :0]), "is sparse, and dask"),
        (lambda: da.from_array(X, chunks=(100, D)).map_blocks(lambda b: b[:5], dtype=float), "have shape"),
        (lambda: da.from_array(X.astype("U8"), chunks=(100, D)), "must hold real numbers"),
    ],
)
def test_what_cannot_be_read_is_refused(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FisherScore().fit(make(), Y)


@pytest.mark.parametrize("is_written", [False, True])
def test_a_graph_comes_out_lazily(is_written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("knn", "precomputed"):
        monkeypatch.setattr(f"daskfs.graph.{module}.block_rows", lambda _: 70)
    found = knn_graph(X, 5, output=tmp_path / "lists" if is_written else None)
    whole = knn_graph(X, 5).to_csr()
    lazy = found.to_dask()
    assert lazy.numblocks == (9, 1)
    assert (lazy.compute() != whole).nnz == 0
    assert (found.to_dask(symmetric=True).compute() != whole.maximum(whole.T)).nnz == 0
    assert (found.to_dask("connectivity").compute() != found.to_csr("connectivity")).nnz == 0
    scores = LaplacianScore(graph=found, n_neighbors=5).fit(X).scores_
    np.testing.assert_array_equal(scores, LaplacianScore(n_neighbors=5).fit(X).scores_)
    if is_written:
        np.testing.assert_array_equal(LaplacianScore(graph=str(tmp_path / "lists")).fit(X).scores_, scores)


def test_sparse_rows_with_far_more_values_than_the_first_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    growing = np.where(np.arange(N)[:, None] < 100, np.eye(1, D), 1.0 + X)
    blocks = da.from_array(growing, chunks=(100, D)).map_blocks(sp.csr_matrix)
    FisherScore().fit(blocks, Y)
    monkeypatch.setattr("daskfs.sources.collection.LARGE_BYTES", 0)
    with pytest.raises(InputError, match=r"rows 0:600 of X hold 6,\d+ values, and memory was planned for 600"):
        FisherScore().fit(blocks, Y)


@pytest.mark.cluster
def test_blocks_too_large_for_a_worker_say_how_to_rechunk(two_workers: str) -> None:
    blocks = da.ones((10**9, 64), chunks=(5 * 10**8, 64))
    with Client(two_workers), pytest.raises(MemoryPlanError, match=r"smaller blocks: X\.rechunk\(\{0: \d+, 1: -1\}\)"):
        FisherScore().fit(blocks, None)


def test_a_collection_is_let_go_of_with_its_last_reader() -> None:
    result = daskfs.rank(da.from_array(X, chunks=(100, D)), Y, methods="FisherScore", settings=ONCE)
    gc.collect()
    with pytest.raises(InputError, match="another process passed"):
        collection_of(result["job"]["data"]["source"])
