"""Benchmark of workers that join while a stage runs: how soon they have units of it.

    python -m tests.benchmarks.late_workers [--units 120] [--seconds 0.5] [--workers 16] [--after 3]

Units sleep, on workers that are threads of this process: one at first, the others after a while. The ideal is the time
of workers that begin at once when they join.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from daskfs.execution.pool import Pool
from tests.benchmarks.main_job import show
from tests.execution.staged import run_made_up, threads_as_workers


def wall_times(n_units: int, seconds: float, n_workers: int, after: float) -> dict[str, Any]:
    """Return the wall time of one stage in seconds, and the ideal one."""
    with threads_as_workers(1) as (cluster, client), tempfile.TemporaryDirectory() as folder:
        others = threading.Timer(after, cluster.scale, [n_workers])
        others.start()
        begun = time.perf_counter()
        run_made_up(Path(folder), n_units, lambda _: time.sleep(seconds), Pool(client))
        wall = time.perf_counter() - begun
        others.join()
    left = max(0.0, n_units - after / seconds)
    ideal = min(n_units * seconds, after + seconds * -(-left // n_workers))
    return {"units": n_units, "seconds_each": seconds, "workers": n_workers, "wall_seconds": wall, "ideal": ideal}


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--after", type=float, default=3.0)
    asked = parser.parse_args(arguments)
    show("workers that join", [wall_times(asked.units, asked.seconds, asked.workers, asked.after)])


if __name__ == "__main__":
    main()
