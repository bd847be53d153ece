"""Processor seconds and memory of dask collections as sources, beside a run on the Zarr array that they read.

python -m tests.benchmarks.dask_collections [ROWS COLUMNS]

and of one that is generated, CSR blocks of 1 % with clusters in the rows, such as a million rows of 20,000 columns:

python -m tests.benchmarks.dask_collections sparse [ROWS COLUMNS]
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
import scipy.sparse as sp
import zarr
from dask.delayed import delayed
from distributed import Client

import daskfs

CHUNK_ROWS = 20_000
N_CLUSTERS, N_MARKERS, DENSITY = 20, 100, 0.01
"""Each cluster has markers of its own, which hold a third of the values of its rows."""


def squared(block: np.ndarray) -> np.ndarray:
    """Return a block of other values, at little cost."""
    return block * block


def processor_seconds() -> tuple[float, float]:
    """Return the processor seconds of this process, and of its children up to now."""
    own = psutil.Process()
    times = [child.cpu_times() for child in own.children(recursive=True)]
    return sum(own.cpu_times()[:2]), sum(one.user + one.system for one in times)


def measured(call: Callable[[], Any]) -> tuple[float, float]:
    """Return the processor seconds of the driver and of the workers during a call."""
    before = processor_seconds()
    call()
    after = processor_seconds()
    return after[0] - before[0], after[1] - before[1]


def measure(folder: Path, n_rows: int, n_columns: int, client: Client) -> Iterator[tuple[str, tuple[float, float]]]:
    """Yield what was called, with the processor seconds of the driver and of the workers."""
    rng = np.random.default_rng(0)
    path = folder / "X.zarr"
    array = zarr.create_array(path, shape=(n_rows, n_columns), chunks=(CHUNK_ROWS, n_columns), dtype="f8")
    for start in range(0, n_rows, CHUNK_ROWS):
        array[start : start + CHUNK_ROWS] = rng.normal(size=array[start : start + CHUNK_ROWS].shape)
    y = rng.integers(0, 2, n_rows)
    np.save(folder / "y.npy", y)
    X = da.from_zarr(str(path))

    def job(source: Path, name: str) -> dict[str, Any]:
        data = {"source": str(source), "labels": str(folder / "y.npy")}
        return {"data": data, "methods": ["FisherScore"], "evaluate": None, "output": {"path": str(folder / name)}}

    daskfs.FisherScore().fit(X[:CHUNK_ROWS], y[:CHUNK_ROWS])  # imports
    yield "run(job) on the Zarr array", measured(lambda: daskfs.run(job(path, "run"), client=client, progress=False))
    yield "fit(da.from_zarr(...))", measured(lambda: daskfs.FisherScore().fit(X, y))
    yield "fit(da.from_zarr(...).map_blocks(f))", measured(lambda: daskfs.FisherScore().fit(X.map_blocks(squared), y))
    yield "the sum of da.from_zarr(...).map_blocks(f)", measured(lambda: X.map_blocks(squared).sum().compute())


def clusters_of(number: int, n_rows: int) -> np.ndarray:
    """Return the cluster of each row of a block."""
    return np.random.default_rng(number).integers(0, N_CLUSTERS, n_rows)


def sparse_block(number: int, n_rows: int, n_columns: int) -> sp.csr_matrix:
    """Return a block of counts."""
    rng, clusters = np.random.default_rng([1, number]), clusters_of(number, n_rows)
    per_row = round(DENSITY * n_columns)
    columns = rng.integers(0, n_columns, (n_rows, per_row))
    of_cluster = columns[:, : per_row // 3]
    of_cluster[:] = clusters[:, None] * N_MARKERS + rng.integers(0, N_MARKERS, of_cluster.shape)
    values = (1 + rng.poisson(1.0, columns.size)).astype("f4")
    block = sp.coo_matrix((values, (np.arange(n_rows).repeat(per_row), columns.ravel())), (n_rows, n_columns)).tocsr()
    block.sum_duplicates()
    return block


@contextmanager
def watched(processes: dict[str, psutil.Process]) -> Iterator[dict[str, int]]:
    """Collect the highest resident bytes of processes meanwhile."""
    peaks, has_ended = dict.fromkeys(processes, 0), threading.Event()

    def watch() -> None:
        while not has_ended.wait(0.2):
            for name, process in processes.items():
                with suppress(psutil.Error):
                    peaks[name] = max(peaks[name], process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peaks
    finally:
        has_ended.set()
        thread.join()


def measure_sparse(folder: Path, n_rows: int, n_columns: int, client: Client) -> dict[str, Any]:
    """Rank generated CSR blocks; return seconds, recall of the graph, and resident bytes of all processes."""
    rows = [min(CHUNK_ROWS, n_rows - start) for start in range(0, n_rows, CHUNK_ROWS)]
    make, meta = delayed(sparse_block, pure=True), sp.csr_matrix((0, 0), dtype="f4")
    blocks = [da.from_delayed(make(i, n, n_columns), (n, n_columns), meta=meta) for i, n in enumerate(rows)]
    np.save(folder / "y.npy", np.concatenate([clusters_of(i, n) for i, n in enumerate(rows)]))
    job = {
        "data": {"source": "X", "labels": str(folder / "y.npy")},
        "transform": {"graph": "total=10000+log1p+pca=50"},
        "methods": ["FisherScore", "VarianceScore", "LaplacianScore"],
        "evaluate": None,
        "output": {"path": str(folder / "sparse")},
    }
    workers = list(client.scheduler_info()["workers"])
    ids = client.run(lambda: psutil.Process().pid)
    processes = {f"worker {i}": psutil.Process(ids[name]) for i, name in enumerate(workers)}
    began = time.perf_counter()
    with watched({"driver": psutil.Process(), **processes}) as peaks:
        result = daskfs.run(job, data=da.concatenate(blocks), client=client, progress=False)
    n_markers = N_CLUSTERS * N_MARKERS
    return {
        "wall, s": time.perf_counter() - began,
        "recall": result["graphs"][0]["recall"],
        **{
            f"markers first by {label}": np.mean(
                [int(name[1:]) < n_markers for name in result.selected(label, n_markers)]
            )
            for label in result.methods
        },
        **{f"peak of {name}, MiB": peak / 2**20 for name, peak in peaks.items()},
    }


def main() -> None:
    """Print a row for each call."""
    if sys.argv[1:2] == ["sparse"]:
        n_rows, n_columns = map(int, sys.argv[2:4] or (1_000_000, 20_000))
        options: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "3GiB"}
        with tempfile.TemporaryDirectory() as folder, Client(**options) as client:
            for name, value in measure_sparse(Path(folder), n_rows, n_columns, client).items():
                print(f"| {name} | {value} |")
        return
    n_rows, n_columns = map(int, sys.argv[1:3] or (400_000, 256))
    print("| call | driver, s | workers, s | peak of the driver, MiB |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, Client(n_workers=2, threads_per_worker=1) as client:
        for name, (driver, workers) in measure(Path(folder), n_rows, n_columns, client):
            peak = psutil.Process().memory_info().rss / 2**20
            print(f"| {name} | {driver:.1f} | {workers:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
