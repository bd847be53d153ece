"""Where units run: a local cluster started for the run, one that exists, or this process."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from daskfs.errors import ClusterError
from daskfs.execution.stopping import undisturbed_end
from daskfs.version import __version__, installed_version

if TYPE_CHECKING:
    from distributed import Client
    from distributed.security import Security

DASK_SETTINGS: dict[str, Any] = {
    # worker deaths are counted per task: on nodes that may be taken away, three would condemn healthy units
    "distributed.scheduler.allowed-failures": 10,
    "distributed.comm.retry.count": 3,
    "distributed.comm.timeouts.connect": "60s",
    # the batch job must end, not hang, when nothing comes back
    "distributed.scheduler.no-workers-timeout": "1h",
    "distributed.admin.tick.limit": "30s",
    # a local cluster would end the nanny whose worker has been away for a while at that moment, though it may have come
    # back in between and be starting after another death: Pool.complete replaces those that have ended
    "distributed.deploy.lost-worker-timeout": "365d",
    # Dask's nannies make glibc return every freed block of 128 KiB and more, and faulting it in again can cost as much
    # as the arithmetic on it; what this keeps is part of a process's planned size
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**26,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**23,
}

LOOK_SECONDS = 0.2
"""How often a cluster without workers is asked for some."""
LOCAL_ENVIRONMENT = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "DASK_DASKFS__LOCAL_WORKERS": "true",
}
"""Of local workers; the last tells :mod:`daskfs.execution.worker` that the driver ends them."""

NOTHING_SERVED: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Schedulers and workers answer HTTP whether or not they show a dashboard, and know neither TLS nor passwords there."""


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
    tls: bool = False

    def pool(self, client: Client | None) -> Pool:
        """Return what units run on, by these settings."""
        return Pool(client, self.threads, self.wait_seconds, 0 if self.is_joined else self.workers)

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
    import distributed  # noqa: F401 - its defaults would go with the settings of this block, were it imported inside

    served = {} if settings.dashboard else NOTHING_SERVED
    # naming the scheduler here makes the end of this block take back what a client that fails to connect leaves set
    with (
        undisturbed_end() as ending,
        _quiet(),
        dask.config.set({**DASK_SETTINGS, **served, "scheduler": dask.config.get("scheduler", None)}),
        _joined(settings) if settings.is_joined else _local(settings) as client,
        ending,
    ):
        yield client


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave it to the driver to say what is wrong: Dask's loggers would print a traceback for every connection that
    ends.
    """
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "tornado.application")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


class SharedCluster:
    """One cluster for several runs: started, or joined, when the first of them asks for it; it ends with the block."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clients: dict[ClusterSettings, Client | None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @contextmanager
    def connected(self, settings: ClusterSettings) -> Iterator[Client | None]:
        """Yield the client, as :func:`connected` does."""
        if settings not in self._clients:
            self._clients[settings] = self._stack.enter_context(connected(settings))
        yield self._clients[settings]


@contextmanager
def _local(settings: ClusterSettings) -> Iterator[Client]:
    from distributed import Client, LocalCluster

    limit, _ = granted_memory(settings, None)
    _check_directory(settings.local_directory)
    security = _made_for_the_run() if settings.tls else None
    _start_tracker()
    try:
        cluster = LocalCluster(
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
            security=security,
            env=LOCAL_ENVIRONMENT,
        )
    except (OSError, RuntimeError) as error:
        msg = (
            f"the workers of the local cluster cannot start ({error}): run with --set cluster.workers=0 to see what a "
            "process of daskfs lacks here, or start fewer of them."
        )
        raise ClusterError(msg) from error
    with cluster, Client(cluster) as client:
        yield client


def _start_tracker() -> None:
    """Start the process that clears up behind workers that were killed: it would print a warning for each."""
    from multiprocessing import resource_tracker

    key, quiet = "PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker"
    before = os.environ.get(key)
    os.environ[key] = f"{before},{quiet}" if before else quiet
    try:
        resource_tracker.ensure_running()
    finally:
        if before is None:
            del os.environ[key]
        else:
            os.environ[key] = before


def _check_directory(path: str | None) -> None:
    if path is None:
        return
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        msg = f"cluster.local_directory {path} cannot be written: {error.strerror}. Name another directory, or null."
        raise ClusterError(msg) from error


def _made_for_the_run() -> Security:
    """Return a certificate for the processes of one local cluster, which lies in their memory and ends with them."""
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError as error:
        msg = "cluster.tls makes its certificates with the package cryptography: pip install 'daskfs[tls]'."
        raise ClusterError(msg) from error


def _configured(address: str) -> Security | None:
    """Return the certificates that Dask's configuration names, None for a scheduler whose address asks for none."""
    if not address.startswith("tls://"):
        return None
    from distributed.security import Security

    security: Any = Security(require_encryption=True)
    named = {"ca-file": security.tls_ca_file, "client.cert": security.tls_client_cert}
    lacking = [f"distributed.comm.tls.{key}" for key, value in named.items() if not value]
    if lacking:
        msg = (
            f"the scheduler at {address} asks for TLS, and Dask's configuration does not name {' and '.join(lacking)}: "
            "set them in ~/.config/dask, or in the environment (DASK_DISTRIBUTED__COMM__TLS__CA_FILE=...)."
        )
        raise ClusterError(msg)
    try:
        security.get_connection_args("client")
    except (OSError, ValueError) as error:
        msg = (
            "the certificates that Dask's configuration names below distributed.comm.tls, as ca-file, client.cert and "
            f"client.key, cannot be used: {error}."
        )
        raise ClusterError(msg) from error
    return security


@contextmanager
def _joined(settings: ClusterSettings) -> Iterator[Client]:
    from distributed import Client

    if settings.scheduler_file and not Path(settings.scheduler_file).exists():
        msg = f"cluster.scheduler_file {settings.scheduler_file} does not exist: is the scheduler running?"
        raise ClusterError(msg)
    where = settings.address or _written_address(Path(str(settings.scheduler_file)))
    if settings.tls and not where.startswith("tls://"):
        msg = f"cluster.tls is on, and the scheduler at {where} has no TLS: start it with --protocol tls."
        raise ClusterError(msg)
    security = _configured(where)
    problem, client = "", None
    try:
        _greet(where, security, settings.wait_seconds)
        client = Client(where, timeout=settings.wait_seconds, security=security)
    except (OSError, ValueError) as error:
        problem = str(error) or "somebody listens there and says nothing"
    if client is None:
        # The client that failed closes when it is collected. Were that to happen while the next one starts, both would
        # wait for the same lock; so it happens now, when no traceback holds it any more.
        gc.collect()
        msg = f"cannot reach the Dask scheduler at {where} within {settings.wait_seconds:g} s: {problem}."
        raise ClusterError(msg)
    with client:
        deadline = time.monotonic() + settings.wait_seconds
        while not settings.pool(client).workers():  # what Dask has for this goes on when the scheduler is lost
            if time.monotonic() > deadline:
                named = f"--scheduler-file {settings.scheduler_file}" if settings.scheduler_file else where
                msg = (
                    f"the scheduler at {where} had no worker within {settings.wait_seconds:g} s: start some (dask "
                    f"worker {named}), or raise cluster.wait_seconds."
                )
                raise ClusterError(msg)
            time.sleep(LOOK_SECONDS)
        _check_versions(client, settings.wait_seconds)
        yield client


def _greet(address: str, security: Security | None, patience: float) -> None:
    """Raise ``TimeoutError`` where somebody listens and says nothing: a client would wait for him without end."""
    from distributed.comm.core import connect

    arguments = security.get_connection_args("client") if security is not None else {}

    async def greet() -> None:
        async with asyncio.timeout(patience):
            found = await connect(address, timeout=patience, **arguments)
        found.abort()

    outcome: Future[None] = Future()

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(greet()))
        except (OSError, ValueError) as error:
            outcome.set_exception(error)

    # apart, as a notebook has a loop of its own here; and not in a pool, whose end a signal would have to wait for
    threading.Thread(target=run, name="daskfs-greet", daemon=True).start()
    outcome.result(timeout=patience + LOOK_SECONDS)


def _check_versions(client: Client, patience: float) -> None:
    try:
        # as client.run does, which would wait for a worker that hangs
        versions = set(client.sync(client._run, installed_version, callback_timeout=patience).values())
    except TimeoutError as error:
        msg = f"not all workers answered within {patience:g} s: end those that hang, or raise cluster.wait_seconds."
        raise ClusterError(msg) from error
    except OSError as error:
        msg = f"a worker, or the scheduler, ended while the workers were asked for their version: {error}."
        raise ClusterError(msg) from error
    except ImportError as error:
        msg = f"the workers cannot import daskfs: {error}. Install daskfs {__version__} in their environment."
        raise ClusterError(msg) from error
    if versions != {__version__}:
        msg = (
            f"the workers have daskfs {', '.join(sorted(versions))}, this is {__version__}: install the same "
            "everywhere."
        )
        raise ClusterError(msg)


def _written_address(path: Path) -> str:
    """Return the address in a scheduler file."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: {error}"
        raise ClusterError(msg) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        msg = f"cluster.scheduler_file {path} is not what a Dask scheduler writes: it has no address."
        raise ClusterError(msg)
    return str(content["address"])


@dataclass(frozen=True)
class Pool:
    """What units run on: the workers of a client's cluster, or threads of this process where there is none.

    Parameters
    ----------
    client
        Of the cluster.
    threads
        Units at a time where there is no client.
    patience
        Seconds that a scheduler may take to answer, and a cluster to have a worker again.
    n_own
        How many workers the client's cluster should have that was started for the run; 0 for one that others manage.
    """

    client: Client | None = None
    threads: int = 1
    patience: float = 120.0
    n_own: int = 0

    def workers(self) -> dict[str, int]:
        """Return how many units each worker runs at once, by its address; none where units run in this process.

        Raises
        ------
        ClusterError
            When the scheduler is lost or does not answer.
        """
        return {} if self.client is None else dict(self._answer("ncores"))

    def processing(self) -> set[str]:
        """Return the keys of what workers have been given, and have not ended; raises as :meth:`workers` does."""
        found = {} if self.client is None else self._answer("processing")
        return {str(key) for keys in found.values() for key in keys}

    def _answer(self, question: str) -> Any:
        assert self.client is not None
        try:
            return self.client.sync(self._asked, question, callback_timeout=self.patience)
        except TimeoutError as error:
            msg = (
                f"the scheduler did not answer within {self.patience:g} s (cluster.wait_seconds): see whether its "
                "machine is down or overloaded; the same command goes on from what is recorded."
            )
            raise ClusterError(msg) from error
        except (OSError, RuntimeError) as error:
            raise ClusterError(lost_scheduler(error)) from error

    def complete(self) -> None:
        """Let a cluster of the run's own have all its workers again.

        Nannies start workers that die again, but end where one cannot start.
        """
        cluster = None if self.client is None else self.client.cluster
        if cluster is None or not self.n_own:
            return
        for name, nanny in list(cluster.workers.items()):
            if nanny.status.name == "closed":
                cluster.workers.pop(name, None)
        cluster.scale(self.n_own)

    async def _asked(self, question: str) -> Any:
        client = self.client
        # one that lost its scheduler tries to connect again, while whatever ran there is lost
        if client is None or client.scheduler is None or client.status != "running":
            raise OSError("no connection")
        return await getattr(client.scheduler, question)()

    @property
    def n_threads(self) -> int:
        """How many units may run at a time."""
        return self.threads if self.client is None else max(1, sum(self.workers().values()))


def lost_scheduler(error: BaseException) -> str:
    """Return what to say of a scheduler that is gone."""
    return (
        f"the scheduler went away, or the connection to it was lost ({type(error).__name__}: {error}): start the "
        "cluster again; the same command goes on from what is recorded."
    )
