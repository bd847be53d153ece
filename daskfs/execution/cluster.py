"""Where units run: a local cluster started for the run, one that exists, or this process."""

from __future__ import annotations

import gc
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError
from daskfs.version import __version__, installed_version

if TYPE_CHECKING:
    from distributed import Client

DASK_SETTINGS: dict[str, Any] = {
    # worker deaths are counted per task: on nodes that may be taken away, three would condemn healthy units
    "distributed.scheduler.allowed-failures": 10,
    "distributed.comm.retry.count": 3,
    "distributed.comm.timeouts.connect": "60s",
    # the batch job must end, not hang, when nothing comes back
    "distributed.scheduler.no-workers-timeout": "1h",
    "distributed.admin.tick.limit": "30s",
    # Dask's nannies make glibc return every freed block of 128 KiB and more, and faulting it in again can cost as much
    # as the arithmetic on it; what this keeps is part of a process's planned size
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**26,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**23,
}


@dataclass(frozen=True)
class ClusterSettings:
    """What the job says about its cluster, as plain values. `memory_limit` is in bytes; None shares what the machine
    has.
    """

    workers: int = 2
    threads: int = 1
    memory_limit: int | None = None
    address: str | None = None
    scheduler_file: str | None = None
    wait_seconds: float = 120.0
    dashboard: bool = False
    local_directory: str | None = None

    @property
    def is_joined(self) -> bool:
        """Whether the cluster exists already."""
        return bool(self.address or self.scheduler_file)


def machine_memory() -> int:
    """Return the memory this machine may use, in bytes, with control-group limits honored."""
    from distributed.system import memory_limit

    return int(memory_limit())


def granted_memory(settings: ClusterSettings, client: Client | None) -> tuple[int | None, int]:
    """Return the memory limit of a worker process, None where nobody knows it, and how many units it runs at once.

    Of workers that exist already, the smallest limit and the most threads count, and ``cluster.memory_limit`` only
    where it is smaller still.
    """
    if not settings.is_joined:
        limit = settings.memory_limit or machine_memory() // max(settings.workers, 1)
        return limit, settings.threads
    limits, threads = [settings.memory_limit or 0], settings.threads
    if client is not None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        limits += [int(w.get("memory_limit") or 0) for w in workers]
        threads = max((int(w.get("nthreads") or 1) for w in workers), default=1)
    return min((limit for limit in limits if limit > 0), default=None), threads


@contextmanager
def connected(settings: ClusterSettings) -> Iterator[Client | None]:
    """Yield a client with at least one worker; None means that units run in this process.

    Raises
    ------
    ClusterError
        When the scheduler cannot be reached or no worker comes within ``wait_seconds``.
    """
    if settings.workers == 0 and not settings.is_joined:
        yield None
        return
    import dask

    # naming the scheduler here makes the end of this block take back what a client that fails to connect leaves set
    with dask.config.set({**DASK_SETTINGS, "scheduler": dask.config.get("scheduler", None)}):
        if settings.is_joined:
            with _joined(settings) as client:
                yield client
        else:
            with _local(settings) as client:
                yield client


@contextmanager
def _local(settings: ClusterSettings) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    limit, _ = granted_memory(settings, None)
    with (
        LocalCluster(
            n_workers=settings.workers,
            threads_per_worker=settings.threads,
            processes=True,
            host="127.0.0.1",
            memory_limit=limit,
            silence_logs=logging.CRITICAL,  # a failed unit is reported once, by the driver
            dashboard_address="127.0.0.1:0" if settings.dashboard else None,
            # without an address of its own a scheduler that shows no dashboard would still ask for port 8787
            scheduler_kwargs={"dashboard": settings.dashboard, "dashboard_address": "127.0.0.1:0"},
            preload="daskfs.execution.worker",
            local_directory=settings.local_directory,
            env={"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@contextmanager
def _joined(settings: ClusterSettings) -> Iterator[Client]:
    from distributed import Client

    if settings.scheduler_file and not Path(settings.scheduler_file).exists():
        msg = f"cluster.scheduler_file {settings.scheduler_file} does not exist: is the scheduler running?"
        raise ClusterError(msg)
    if settings.scheduler_file:
        _check_scheduler_file(Path(settings.scheduler_file))
    where = settings.address or settings.scheduler_file
    problem, client = "", None
    try:
        client = Client(settings.address, scheduler_file=settings.scheduler_file, timeout=settings.wait_seconds)
    except (OSError, TimeoutError, ValueError) as error:
        problem = str(error)
    if client is None:
        # The client that failed closes when it is collected. Were that to happen while the next one starts, both would
        # wait # for the same lock; so it happens now, when no traceback holds it any more.
        gc.collect()
        msg = f"cannot reach the Dask scheduler at {where} within {settings.wait_seconds:g} s: {problem}"
        raise ClusterError(msg)
    with client:
        try:
            client.wait_for_workers(1, timeout=settings.wait_seconds)
        except TimeoutError as error:
            msg = f"the scheduler at {where} had no worker within {settings.wait_seconds:g} s."
            raise ClusterError(msg) from error
        _check_versions(client)
        yield client


def _check_versions(client: Client) -> None:
    try:
        versions = set(client.run(installed_version).values())
    except ImportError as error:
        msg = f"the workers cannot import daskfs: {error}. Install daskfs {__version__} in their environment."
        raise ClusterError(msg) from error
    if versions != {__version__}:
        msg = (
            f"the workers have daskfs {', '.join(sorted(versions))}, this is {__version__}: install the same "
            "everywhere."
        )
        raise ClusterError(msg)


def _check_scheduler_file(path: Path) -> None:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: {error}"
        raise ClusterError(msg) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: it has no address."
        raise ClusterError(msg)


def total_threads(client: Client) -> int:
    """Return the number of units that can run at once."""
    return max(1, sum(client.nthreads().values()))
