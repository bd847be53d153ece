"""Running the command line as a user does, and killing it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import psutil
import yaml
from distributed import Client, LocalCluster

from daskfs.errors import RunStoppedError
from daskfs.execution.clusters.forkserver import METHOD_KEY
from daskfs.execution.clusters.local import prepare
from daskfs.execution.progress import Silent
from daskfs.stages.stage import Stage
from daskfs.storage import LocalPath, ObjectPath
from daskfs.store.epoch import Epoch
from daskfs.store.records import Record, lines_of
from daskfs.store.store import Store
from tests.cli.command import daskfs

HERE = ("--set", "cluster.workers=0")
"""For a run, or what is left of one, that needs no workers: it spares starting them, and plans as with them."""
UNIT_DONE = re.compile(r"unit (\d+) of stage (\S+) done")


class Stop(Silent):
    """Stops a run when a unit is done."""

    def __init__(self, stage: str, unit: int) -> None:
        self.stage, self.unit = stage, unit

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del facts
        if (stage.name, unit) == (self.stage, self.unit):
            msg = "stopped."
            raise RunStoppedError(msg)


def write_job(folder: Path, source: str, **blocks: Any) -> Path:
    """Write a job file and return its path; the run goes to ``folder / "run"``."""
    job = {
        "data": {"source": source},
        "methods": ["LaplacianScore", "VarianceScore"],
        "cluster": {"workers": 2, "memory_limit": "1GiB"},
        "output": {"path": str(folder / "run")},
        **blocks,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def command(*arguments: object) -> list[str]:
    """Return the command line of daskfs under this interpreter."""
    return [sys.executable, "-m", "daskfs", *map(str, arguments)]


def run(job: Path, *arguments: object) -> dict[str, Any]:
    """Run a job to its end and return what ``--json`` prints.

    The driver is in this process, whose fork server starts the workers: a driver of its own takes seconds to import.
    """
    outcome = daskfs("run", job, "--json", "-q", *arguments)
    assert outcome.code == 0, outcome.err
    result: dict[str, Any] = outcome.json
    return result


def run_here(job: Path, *arguments: object) -> dict[str, Any]:
    """Run a job without workers, where these are not the point: they take seconds to start."""
    return run(job, *HERE, *arguments)


@contextlib.contextmanager
def local_cluster(n_workers: int, memory_limit: str | int = "1GiB") -> Iterator[LocalCluster]:
    """Yield a plain cluster of Dask with workers of one thread, on the loopback only and on ports that nobody has. They
    are forked from where those of daskfs come from, which has imported what takes them seconds.
    """
    prepare()
    with (
        dask.config.set({METHOD_KEY: "forkserver"}),
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            host="127.0.0.1",
            memory_limit=memory_limit,
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def local_client(n_workers: int, memory_limit: str | int = "1GiB") -> Iterator[Client]:
    """Yield a client of workers that end with the block."""
    with local_cluster(n_workers, memory_limit) as cluster, Client(cluster) as client:
        yield client


def scale(client: Client, n_workers: int) -> None:
    """Let workers of :func:`local_client` join or leave, and wait for those that join.

    The waiting is a client's that knows of no cluster: a cluster that waits overwrites its list of workers, and a
    worker whose leaving is told after that is missing there (``KeyError`` at the end of the block).
    """
    client.cluster.scale(n_workers)
    with Client(client.scheduler.address, set_as_default=False) as apart:
        apart.wait_for_workers(n_workers, timeout=60)


@contextlib.contextmanager
def started(job: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a job whose stderr tells every unit; whatever is left of it afterwards is ended, workers too."""
    process = subprocess.Popen(command("run", job, "-v"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            process.kill()
        process.communicate()


def wait_for_units(process: subprocess.Popen[str], stage: str, n_units: int) -> None:
    """Read the process's stderr until so many units of a stage are done."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if (match := UNIT_DONE.search(line)) and match[2].startswith(stage):
            n_units -= 1
            if n_units == 0:
                return
    msg = f"the run ended before its stage {stage} got that far:\n{''.join(seen)}"
    raise AssertionError(msg)


def worker_processes(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the worker processes of a local cluster: what the driver's fork server has started, and is still there.

    Programs that workers start are none: each runs ``uname -p`` once, for Python's ``platform``.
    """
    found = []
    for child in psutil.Process(process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += child.children()
    return found


def wait_for_end(workers: list[psutil.Process]) -> None:
    """Wait until the workers of a killed driver have noticed and ended."""
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL a driver and wait until its workers are gone."""
    workers = worker_processes(process)
    assert workers
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_for_end(workers)


def records(run_directory: Path) -> dict[str, Record]:
    """Return the records of all finished units, of the tiles and of batches as well, by ``folder/stage/unit``. They
    hold when their unit ended: one that was made again differs.
    """
    found = {}
    for folder in sorted(run_directory.rglob("records")):
        name = str(folder.parent.relative_to(run_directory))
        for stage in sorted(path.name for path in folder.iterdir() if path.is_dir()):
            found.update({f"{name}/{stage}/{unit}": record for unit, record in recorded(folder.parent, stage).items()})
    return found


def write_document(path: Path | ObjectPath, document: dict[str, Any]) -> None:
    """Write ``run.json`` or ``plan.json`` as a driver does."""
    Store(path.parent).write_json(path.name, {key: value for key, value in document.items() if key != "written"})


def recorded(store: Path, stage: str) -> dict[int, Record]:
    """Return the records of a stage by unit."""
    records = Store(store).records
    found = ((unit, records.get(stage, unit)) for unit in sorted(records.units(stage)))
    return {unit: record for unit, record in found if record is not None}


def record_file(store: Path, stage: str, unit: int) -> Path:
    """Return the file of a unit's record, where that lies in one of its own."""
    path = Store(store).record_files.file(stage, unit)
    assert isinstance(path, Path)
    assert path.exists()
    assert path.suffix == ".json"
    return path


def lose_record(store: Path, stage: str, unit: int) -> None:
    """Delete the record of a unit, and leave others that lie in the same file."""
    path = Store(store).record_files.file(stage, unit)
    assert isinstance(path, Path)
    lines = [line for number, line in lines_of(path.name, path.read_bytes()) if number != unit]
    if lines:
        path.write_bytes(b"\n".join(lines))
    else:
        path.unlink()


def asked_of(store: Path, stage: str, unit: int) -> tuple[Any, ...]:
    """Return what the driver that runs in a store would ask a worker for, without inputs: see ``run_stored_unit``."""
    epoch = Epoch(LocalPath(store)).read_current()
    identity = json.loads((store / "plan.json").read_text())["identity"]
    return str(store), identity, epoch, stage, unit, None


def n_planned_units(run_directory: Path) -> int:
    """Return the number of units of a whole run."""
    manifest = json.loads((run_directory / "run.json").read_text())
    return sum(stage["units"] for stage in manifest["stages"])
