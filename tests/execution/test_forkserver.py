"""Local workers come from a fork server, which has imported what units need."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.execution.runs import run_here, started, wait_for_end, wait_for_units, worker_processes, write_job

pytestmark = [pytest.mark.cluster]

METHODS = """
import os
from daskfs.execution.clusters.forkserver import begin, start_method

if __name__ == "__main__":
    wanted = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "12345"}
    before = dict(os.environ)
    begin(wanted)
    found = [start_method(wanted), start_method({**wanted, "OMP_NUM_THREADS": "2"}), start_method(wanted)]
    assert dict(os.environ) == before
    print(*found)
"""


def test_a_process_has_one_environment_for_all_that_it_forks(tmp_path: Path) -> None:
    """Numerical libraries read theirs when they are imported, so workers of another one are spawned."""
    (tmp_path / "methods.py").write_text(METHODS)
    done = subprocess.run([sys.executable, tmp_path / "methods.py"], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["forkserver", "spawn", "forkserver"], "")


def test_workers_come_from_one_process_that_ends_with_the_driver(tmp_path: Path) -> None:
    """Their ranking is that of a run without workers. The process has no threads of Python or of numerical libraries,
    whose locks forks would find held, and leaves SIGTERM to the driver, as workers do.
    """
    job = write_job(tmp_path, "sklearn:iris", methods=["VarianceScore"], evaluate=None)
    with started(job) as process:
        wait_for_units(process, "ingest", 1)
        workers = worker_processes(process)
        (number,) = {worker.ppid() for worker in workers}
        server = psutil.Process(number)
        assert len(workers) == 2
        assert server.ppid() == process.pid
        threads = {path.read_text().strip() for path in Path(f"/proc/{number}/task").glob("*/comm")}
        assert len(threads - {"jemalloc_bg_thd"}) == 1  # PyArrow's allocator takes care of forks
        server.send_signal(signal.SIGTERM)
        server.send_signal(signal.SIGINT)
        process.communicate(timeout=200)
        assert process.returncode == 0
        wait_for_end([*workers, server])
    run_here(write_job(tmp_path / "here", "sklearn:iris", methods=["VarianceScore"], evaluate=None))
    assert (tmp_path / "run/ranking.csv").read_bytes() == (tmp_path / "here/run/ranking.csv").read_bytes()
