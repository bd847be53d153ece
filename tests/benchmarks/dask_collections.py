"""Processor seconds and memory of dask collections as sources, beside a run on the Zarr array that they read.

python -m tests.benchmarks.dask_collections [ROWS COLUMNS]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import psutil
import zarr
from distributed import Client

import daskfs

CHUNK_ROWS = 20_000


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


def main() -> None:
    """Print a row for each call."""
    n_rows, n_columns = map(int, sys.argv[1:3] or (400_000, 256))
    print("| call | driver, s | workers, s | peak of the driver, MiB |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder, Client(n_workers=2, threads_per_worker=1) as client:
        for name, (driver, workers) in measure(Path(folder), n_rows, n_columns, client):
            peak = psutil.Process().memory_info().rss / 2**20
            print(f"| {name} | {driver:.1f} | {workers:.1f} | {peak:.0f} |", flush=True)


if __name__ == "__main__":
    main()
