"""Benchmark of requests to an object store that answers late: an approximate search and its scores, by stage.

    python -m tests.benchmarks.objects_latency [--rows 60000] [--columns 64] [--delays 0 0.05]

One process runs the job against the tests' object store behind a proxy that holds each request for `delay` seconds.
Prints, for each delay, the requests and the seconds in all and of each stage.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from daskfs import load_job, run_job
from daskfs.storage import clients
from tests.execution.runs import write_job
from tests.storage.proxy import Proxy, proxy
from tests.storage.server import environment, object_server


def measure(url: str, server: str, source: str, delay: float) -> None:
    """Run a job at a URL and print its figures."""
    with proxy(Proxy(server, delay=delay)) as between, tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(between.url))
        clients._client.cache_clear()
        blocks = {"graph": {"engine": "cells"}, "evaluate": None, "cluster": {"workers": 0}, "output": {"path": url}}
        job = load_job(write_job(Path(folder), source, **blocks))
        started = time.perf_counter()
        manifest = run_job(job)
        seconds, n_requests = time.perf_counter() - started, between.requests.total()
        print(f"delay {1000 * delay:.0f} ms: {n_requests} requests, {seconds:.1f} s, {dict(between.requests)}")
        for stage in manifest["stages"]:
            print(f"    {stage['name']:<24} {stage['units']:>5} units {stage['seconds']:>8.1f} s")
        started = time.perf_counter()
        run_job(job)
        seconds, n_requests = time.perf_counter() - started, between.requests.total() - n_requests
        print(f"    nothing to do: {n_requests} requests, {seconds:.1f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--delays", type=float, nargs="+", default=[0.0, 0.05])
    given = parser.parse_args(arguments)
    source = f"synthetic:mixture?n_samples={given.rows}&n_features={given.columns}&n_classes=4&seed=0"
    with object_server() as server:
        for delay in given.delays:
            measure(f"s3://runs/{round(1000 * delay)}", server, source, delay)


if __name__ == "__main__":
    main()
