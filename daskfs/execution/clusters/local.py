"""Local cluster: one process for each worker, on the loopback interface, which all users of the machine share."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, ClassVar

import dask
from distributed import Client, LocalCluster, Nanny, Status
from distributed.core import Server
from distributed.security import Security

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ONE_THREAD, ClusterSettings
from daskfs.execution.clusters.certificates import made_for_the_run
from daskfs.execution.clusters.forkserver import METHOD_KEY, begin, environment_set, start_method
from daskfs.execution.clusters.worker_environment import SPAWN_KEY
from daskfs.execution.dask_configuration import configured_by, root_cause
from daskfs.execution.pool import granted_workers

DRIVER_ENDS_THEM = {"DASK_DASKFS__LOCAL_WORKERS": "true"}
"""Environment that makes :mod:`daskfs.execution.worker` leave the end of local workers to the driver."""
NANNY_SECONDS = 2.0
"""Timeout in seconds for the end of a process that its nanny has yet to notice."""
WORKER_PROCESS = "Dask Worker process"
"""Beginning of the names that Dask's nannies give their processes."""


class LocalNanny(Nanny):
    """Nanny that can be closed although its worker died while it started: those of Dask before 2026.8 may hang."""

    exit_codes: ClassVar[dict[str, int]] = {}
    """Exit codes of worker processes by address; that of one that a signal ended is its number, negative."""
    ended: ClassVar[threading.Condition] = threading.Condition()

    async def instantiate(self) -> Status:
        """Start a worker process with queues of its own, unless the nanny's own start reports that it died."""
        if self.process is not None and self.process.status == Status.stopped:
            if self.status == Status.starting:
                return Status.stopped
            self.process = None  # a start that has not noticed the death would read the next one's message
        return await super().instantiate()

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        with self.ended:
            self.exit_codes[str(self.worker_address)] = exitcode
            self.ended.notify_all()
        super()._on_worker_exit_sync(exitcode)

    async def close(self, *arguments: Any, **options: Any) -> Any:
        """Close, and count as closed even if that fails: later calls wait for it."""
        is_first = self.status != Status.closing
        try:
            return await super().close(*arguments, **options)
        finally:
            if is_first and self.status == Status.closing:
                self.status = Status.closed
                await Server.close(self)


class LocalWorkers(LocalCluster):
    """Worker processes on this machine, under nannies."""

    def complete(self, n_workers: int) -> None:
        """Begin to replace ended nannies, up to `n_workers`.

        Nannies restart dead workers, but end if one cannot start.
        """
        for name, nanny in list(self.workers.items()):
            if nanny.status.name == "closed":
                self.workers.pop(name, None)
        self.scale(n_workers)

    def last_words(self, worker: str, name: object) -> str:
        """Return the signal or the exit code that ended the process of a worker."""
        del name
        with LocalNanny.ended:  # the scheduler may hear of it before the nanny
            LocalNanny.ended.wait_for(lambda: worker in LocalNanny.exit_codes, NANNY_SECONDS)
            code = LocalNanny.exit_codes.get(worker)
        if code is None:
            return ""
        return f"ended by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"


def _end_left_workers() -> None:
    """Kill worker processes that nannies have left behind, as when a signal came while a cluster began or ended."""
    for process in multiprocessing.active_children():
        if process.name.startswith(WORKER_PROCESS):
            process.kill()


# at the end of the process, after Dask has closed clusters, multiprocessing sends SIGTERM to what it has started, which
# local workers leave to the driver, and waits for it
Finalize(None, _end_left_workers, exitpriority=0)


@contextmanager
def _script_hidden() -> Iterator[None]:
    """Keep worker processes from importing the script of the driver: without a ``__main__`` guard it would run again.

    :mod:`multiprocessing` finds it by ``__file__``; modules run by ``python -m`` it finds by their name. Units need
    nothing of it.
    """
    main = sys.modules["__main__"].__dict__
    if (file := main.get("__file__")) is None:  # in a notebook, or hidden by another run
        yield
        return
    main["__file__"] = None
    try:
        yield
    finally:
        main["__file__"] = file


def prepare(*, models: bool = True) -> None:
    """Begin to start the fork server, with the present configuration of Dask and, if asked, imports for models."""
    begin(_worker_environment(), models=models)


def _worker_environment() -> dict[str, str]:
    """Return the variables that nannies set in this process before they start a worker, and do not reset."""
    configured = dask.config.get(SPAWN_KEY)
    return {name: os.environ.get(name, str(value)) for name, value in configured.items() if value is not None}


@contextmanager
def start_cluster(settings: ClusterSettings) -> Iterator[Client]:
    """Yield a client of worker processes, which are started and ended here."""
    limit = granted_workers(settings, None).memory_limit
    _check_directory(settings.local_directory)
    with (
        environment_set(_worker_environment()),
        _script_hidden(),
        dask.config.set({METHOD_KEY: start_method(_worker_environment())}),
        _start_workers(settings, limit, made_for_the_run(settings)) as cluster,
        Client(cluster, timeout=settings.wait_seconds) as client,
    ):
        yield client


def _start_workers(settings: ClusterSettings, limit: int | None, security: Security | None) -> LocalWorkers:
    try:
        return LocalWorkers(
            n_workers=settings.n_workers,
            threads_per_worker=settings.threads,
            processes=True,
            worker_class=LocalNanny,
            host="127.0.0.1",
            memory_limit=limit,
            silence_logs=logging.CRITICAL,  # a failed unit is reported once, by the driver
            dashboard_address="127.0.0.1:0" if settings.dashboard else None,
            # without an explicit address a scheduler without dashboard would still bind port 8787
            scheduler_kwargs={"dashboard": settings.dashboard, "dashboard_address": "127.0.0.1:0"},
            preload="daskfs.execution.worker",
            local_directory=settings.local_directory,
            security=security,
            env={**ONE_THREAD, **DRIVER_ENDS_THEM},
        )
    except (OSError, RuntimeError) as error:
        site = f" Dask is configured by {named}." if (named := configured_by()) else ""
        msg = (
            f"the workers of the local cluster cannot start ({root_cause(error)}): run with --set cluster.workers=0 to "
            f"see what a process of daskfs lacks here, or start fewer of them.{site}"
        )
        raise ClusterError(msg) from error


def _check_directory(path: str | None) -> None:
    if path is None:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        msg = f"cluster.local_directory {path} cannot be written: {error.strerror}. Name another directory, or null."
        raise ClusterError(msg) from error
