"""What becomes of a run whose cluster does not serve it: it ends in the stated time, with exit code 4, one line that
says what to do, and no process left.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import psutil
import pytest
from distributed import Client

from tests.cli.command import basic_job, daskfs, refused
from tests.cli.command import write_job as write_here
from tests.execution.runs import command, run_here, wait_for_units, write_job

pytestmark = pytest.mark.cluster

USAGE, CLUSTER = 2, 4
PATIENCE = 1.0
"""cluster.wait_seconds of runs that do not begin."""
BEGUN = 10.0
"""That of runs whose workers have to answer before they are lost, on a machine that does other things besides."""
MARGIN = 40.0
"""Seconds that starting and ending may take on a machine that does other things besides."""
SOURCE = "synthetic:mixture?n_samples=3000&n_features=32&n_classes=3&n_informative=8&seed=2"
LONG = {"setting": "transductive", "n_selected": [2, 4, 8], "n_splits": 5, "n_repeats": 2000, "max_samples": 300}
DASK = str(Path(sys.executable).with_name("dask"))


@dataclass
class Outside:
    """A cluster of processes that no run has started."""

    folder: Path
    n_workers: int = 1
    scheduler_options: tuple[str, ...] = ()
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Outside:
        self.folder.mkdir(exist_ok=True)
        self.file = self.folder / "scheduler.json"
        with contextlib.ExitStack() as stack:
            stack.callback(self._end)
            where = ("--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(self.file))
            self._start("scheduler", *where, "--port", "0", *self.scheduler_options)
            for _ in range(self.n_workers):
                self._start("worker", *where, "--nthreads", "1", "--memory-limit", "2GiB", "--no-nanny")
            self._wait(self.file, "address", 1)
            self._wait(self.folder / "worker.log", "Registered to", self.n_workers)
            # schedulers of Dask 2024 import NumPy and pandas for their first client, for longer than PATIENCE
            Client(scheduler_file=str(self.file), timeout=90).close()
            stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end()

    def _start(self, *words: str) -> None:
        with (self.folder / f"{words[0]}.log").open("ab") as log:
            self.processes.append(subprocess.Popen([DASK, *words], stdout=log, stderr=log, cwd=self.folder))

    def _end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def _wait(self, file: Path, text: str, times: int) -> None:
        """Wait until a process has written something as often as that."""
        deadline = time.monotonic() + 90
        while (file.read_text() if file.exists() else "").count(text) < times:
            assert time.monotonic() < deadline, f"{file} has not got that far"
            time.sleep(0.05)

    @property
    def scheduler(self) -> subprocess.Popen[bytes]:
        return self.processes[0]

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]


def job_on(outside: Outside, **blocks: object) -> Path:
    where = {"scheduler_file": str(outside.file), "wait_seconds": 60.0}
    return write_job(outside.folder, SOURCE, **{"methods": ["VarianceScore"], "cluster": where, **blocks})


@contextlib.contextmanager
def driver(job: Path, *arguments: object, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Start a job in a session of its own, of which nothing is left afterwards, however it ended."""
    process = subprocess.Popen(
        command("run", job, "-v", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for left in of_session(process.pid):
            left.kill()
        process.communicate()


def of_session(number: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(process.pid) == number and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def ended(process: subprocess.Popen[str], began: float, *parts: str, within: float = PATIENCE) -> str:
    """Check how a run ended, and return its last line."""
    out, err = process.communicate(timeout=within + 2 * MARGIN)
    seconds = time.monotonic() - began
    assert process.returncode == CLUSTER, err
    assert out == ""
    assert "Traceback" not in err
    assert "distributed" not in err
    line = err.splitlines()[-1]
    assert line.startswith("daskfs: ")
    assert re.search(r"\.( \(\S+/failures/run\.txt\))?$", line)
    assert [part for part in parts if part not in line] == [], line
    assert seconds < within + MARGIN
    _, alive = psutil.wait_procs(of_session(process.pid), timeout=MARGIN)  # what it has ended may not be gone yet
    assert alive == []
    return line


# ------------------------------------------------------------------------------ joined, and lost
@dataclass(frozen=True)
class Loss:
    """What happens to a cluster, and what is said of it."""

    happens: Callable[[Outside], None]
    parts: tuple[str, ...]


def scheduler_killed(outside: Outside) -> None:
    outside.scheduler.kill()


def scheduler_told_to_end(outside: Outside) -> None:
    outside.scheduler.terminate()


def scheduler_stopped(outside: Outside) -> None:
    outside.scheduler.send_signal(signal.SIGSTOP)


def workers_killed(outside: Outside) -> None:
    for worker in outside.workers:
        worker.kill()


LOST = (
    "the scheduler went away",
    "did not come back, since 2",
    "start the cluster again",
    "goes on from what is recorded",
)
ALONE = (f"no worker for {BEGUN:g} s (cluster.wait_seconds)", "start some", "goes on from what is recorded")
LOSSES = {
    "scheduler killed": Loss(scheduler_killed, LOST),
    "scheduler told to end": Loss(scheduler_told_to_end, LOST),
    "scheduler stopped": Loss(
        scheduler_stopped,
        (f"did not answer within {BEGUN:g} s (cluster.wait_seconds)", "see whether its machine is down"),
    ),
    "workers killed": Loss(workers_killed, ALONE),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LOSSES)
def test_a_cluster_that_is_lost_amid_a_run(tmp_path: Path, name: str) -> None:
    with Outside(tmp_path / "outside", n_workers=1) as outside:
        job = job_on(outside, evaluate=LONG)
        with driver(job, "--set", f"cluster.wait_seconds={BEGUN}") as process:
            wait_for_units(process, "evaluate", 1)
            began = time.monotonic()
            LOSSES[name].happens(outside)
            ended(process, began, *LOSSES[name].parts, within=BEGUN)
    done = {s["stage"]: s["done"] for s in daskfs("status", outside.folder / "run", "--json").json["stages"]}
    assert done["rank"] == 1
    assert 0 < done["evaluate"] < LONG["n_repeats"]


# ------------------------------------------------------------------------------ joined, and never there
def test_no_workers_in_time(tmp_path: Path) -> None:
    with Outside(tmp_path / "outside", n_workers=0) as outside:
        began = time.monotonic()
        outcome = daskfs("run", job_on(outside), "-q", "--set", f"cluster.wait_seconds={PATIENCE}")
        told = ("had no worker within 1 s", "cluster.wait_seconds", "dask worker --scheduler-file")
        refused(outcome, CLUSTER, *told)
        assert time.monotonic() - began < PATIENCE + MARGIN
        # nor does one that is there, and says nothing
        outside.scheduler.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        outcome = daskfs("run", job_on(outside), "-q", "--set", f"cluster.wait_seconds={PATIENCE}")
        refused(outcome, CLUSTER, "cannot reach the Dask scheduler at", "within 1 s")
        assert time.monotonic() - began < PATIENCE + MARGIN


@pytest.mark.long
def test_a_scheduler_that_ends_when_it_is_idle(tmp_path: Path) -> None:
    """It is not while a run waits for its first worker."""
    with Outside(tmp_path / "outside", 0, ("--idle-timeout", "3 s")) as outside:
        began = time.monotonic()
        outcome = daskfs("run", job_on(outside), "-q", "--set", f"cluster.wait_seconds={4 * PATIENCE}")
        refused(outcome, CLUSTER, "the scheduler", "had no worker within 4 s")
        assert time.monotonic() - began < 4 * PATIENCE + MARGIN
        assert outside.scheduler.wait(timeout=MARGIN) == 0


REFUSALS: dict[str, tuple[OSError | None, str]] = {
    "mute": (None, "a process listens there and does not answer"),
    "refused": (None, "connection refused: nothing listens there"),
    "unknown": (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "no such host"),
    "unreachable": (
        OSError(errno.EHOSTUNREACH, "No route to host"),
        "its machine cannot be reached (No route to host)",
    ),
    "silent": (TimeoutError("timed out"), "its machine cannot be reached (timed out)"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_address_where_no_scheduler_answers(tmp_path: Path, name: str) -> None:
    error, reason = REFUSALS[name]
    connecting = mock.patch("socket.create_connection", side_effect=error) if error else contextlib.nullcontext()
    with socket.socket() as port, connecting:
        port.bind(("127.0.0.1", 0))
        if name == "mute":
            port.listen()
        address = f"tcp://127.0.0.1:{port.getsockname()[1]}"
        job = write_here(tmp_path, basic_job(tmp_path, cluster={"address": address, "wait_seconds": PATIENCE}))
        began = time.monotonic()
        unreached = f"cannot reach the Dask scheduler at {address} within 1 s: {reason}"
        refused(daskfs("run", job, "-q"), CLUSTER, unreached)
        assert time.monotonic() - began < PATIENCE + MARGIN


# ------------------------------------------------------------------------------ local
FAILING = """import os, sys
if "spawn_main" in " ".join(sys.orig_argv) or "forkserver" in " ".join(sys.orig_argv):
    os._exit(1)
"""


def test_local_workers_that_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FAILING)
    job = write_job(tmp_path, SOURCE, methods=["VarianceScore"], evaluate=None)
    began = time.monotonic()
    with driver(job, PYTHONPATH=str(tmp_path / "site")) as process:
        line = ended(process, began, "the workers of the local cluster cannot start", "cluster.workers=0")
    assert "distributed" not in line
    run_here(job)


def test_local_directories_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = write_here(tmp_path, basic_job(tmp_path, cluster={"workers": 1}))
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none"):
        outcome = daskfs("run", job, "-q", "--set", f"cluster.local_directory={path}")
        refused(outcome, CLUSTER, f"cluster.local_directory {path} cannot be written", "Name another directory")


def test_a_limit_below_what_a_process_takes(tmp_path: Path) -> None:
    job = write_here(tmp_path, basic_job(tmp_path, cluster={"workers": 1, "memory_limit": "1MiB"}))
    refused(daskfs("run", job, "-q"), USAGE, "cluster.memory_limit is 1 MiB", "or more")
