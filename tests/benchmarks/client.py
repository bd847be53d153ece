"""Benchmark of the caller's cluster: CPU seconds of the driver, the scheduler and the workers for a dask array.

    python -m tests.benchmarks.client [--rows 200000] [--columns 200]

Scheduler and two workers are processes of their own. A smaller array is fitted before, so that imports do not count.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import psutil
from distributed import Client

from daskfs import FisherScore, LaplacianScore, rank
from tests.benchmarks.main_job import show
from tests.execution.test_ends import Outside


def cpu_of(processes: list[psutil.Process]) -> float:
    """Return the CPU seconds that processes have taken."""
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def client_table(n_samples: int, n_features: int) -> Iterator[dict[str, Any]]:
    """CPU seconds of each process, and the driver's share of those of driver and workers."""
    with tempfile.TemporaryDirectory() as folder, Outside(Path(folder) / "outside", n_workers=2) as outside:
        scheduler, *workers = (psutil.Process(process.pid) for process in outside.processes)
        with Client(scheduler_file=str(outside.file)) as client:
            X = da.random.default_rng(0).normal(size=(n_samples, n_features), chunks=(n_samples // 10, n_features))
            y = (X[:, 0] > 0).astype(int).compute()
            calls: dict[str, Callable[[Any, Any], Any]] = {
                "FisherScore().fit": lambda X, y: FisherScore().fit(X, y),
                "LaplacianScore().fit": lambda X, _: LaplacianScore().fit(X),
                "rank": lambda X, y: rank(X, y, methods=["FisherScore", "LaplacianScore"]),
            }
            for name, call in calls.items():
                call(X[: n_samples // 4], y[: n_samples // 4])
                before = [cpu_of(of) for of in ([psutil.Process()], [scheduler], workers)]
                started = time.perf_counter()
                call(X, y)
                wall = time.perf_counter() - started
                after = [cpu_of(of) for of in ([psutil.Process()], [scheduler], workers)]
                driver, scheduling, working = (b - a for a, b in zip(before, after, strict=True))
                share = driver / (driver + working)
                yield {
                    "call": name,
                    "wall": wall,
                    "driver": driver,
                    "scheduler": scheduling,
                    "workers": working,
                    "share": share,
                }
            del client


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=200)
    options = parser.parse_args(arguments)
    title = f"CPU seconds for a dask array of {options.rows} x {options.columns}, two workers"
    show(title, list(client_table(options.rows, options.columns)))


if __name__ == "__main__":
    main()
