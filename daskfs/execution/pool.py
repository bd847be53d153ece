"""The workers that units run on, and what the driver asks their scheduler.

A broken connection is not a lost scheduler: a question is asked again over a new connection, and the client connects
its stream of messages again, until the pool's `patience` has passed. Networks drop connections. So does Python from
3.12.9 and 3.13.2 on with OpenSSL 3.4 or newer, such as Debian 13's: when a read of one TLS connection fails because a
killed worker is gone, OpenSSL queues the error for the thread, Python raises it and leaves it in the queue, and the
next read of another connection of the same event loop fails with it, too, as a ``BrokenPipeError`` (CPython issue
148594).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import dask

from daskfs.errors import ClusterError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.placement import Places
from daskfs.execution.signals import check_stopped
from daskfs.stages.cost import DRIVER, MiB, Workers
from daskfs.stages.machine import machine_memory

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed.scheduler import WorkerState

ANSWER_SECONDS, ANSWER_SHARE = 10.0, 0.25
"""Response timeout of a worker in seconds, or as a share of the pool's `patience` if that is longer."""
SEEN_SHARE = 0.25
"""Share of this timeout after which the pool asks again when the scheduler has heard from each worker."""
RETRY_SECONDS = 0.1
"""Pause before a question is asked again over a new connection."""
LOG_LEVEL_KEY = "daskfs.log-level"
"""Key of Dask's configuration: level of the log where a job sets none."""
LOST_WITH_CONNECTION = "scheduler-connection-lost"
"""Dask's reason for futures that a client cancels when its connection to the scheduler breaks."""

T = TypeVar("T")


@runtime_checkable
class Completing(Protocol):
    """A cluster that daskfs started, whose lost workers the driver replaces."""

    def last_words(self, worker: str, name: object) -> str:
        """Return the end of a worker's process or job, by its address and its name in the cluster; empty if unknown."""

    def complete(self, n_workers: int) -> None:
        """Begin to replace lost workers, up to `n_workers`."""


class Tell(Protocol):
    """Receiver of what happens in a run: a line to show, empty for none, and the event that its log keeps."""

    def __call__(self, text: str, event: str = "message", **facts: Any) -> None:
        """Show a line, and keep the event with its facts."""


def _tell_nobody(text: str, event: str = "message", **facts: Any) -> None:
    del text, event, facts


@dataclass(frozen=True)
class Pool:
    """Workers of a client's cluster, or threads of this process, on which units run.

    Parameters
    ----------
    client
        Client of the cluster.
    threads
        Concurrent units without a client.
    patience
        Seconds that a scheduler may take to answer, and a cluster may be without workers.
    n_own
        Number of workers of a cluster started for the run; 0 for one that others manage.
    tell
        Called with messages about units that fail transiently or are slow, and when a worker begins a unit.
    log_level
        Level of the log of daskfs on the workers, empty to leave it.
    places
        Assignment of the units of loops to workers.
    """

    client: Client | None = None
    threads: int = 1
    patience: float = 120.0
    n_own: int = 0
    tell: Tell = _tell_nobody
    log_level: str = ""
    places: Places = field(default_factory=Places, compare=False)
    _left: dict[str, Future[Any]] = field(default_factory=dict, compare=False)
    _seen: list[tuple[float, set[str]]] = field(default_factory=list, compare=False)
    _reports: dict[str, dict[str, Any]] = field(default_factory=dict, compare=False)
    _ends: dict[str, str] = field(default_factory=dict, compare=False)

    @property
    def answer_seconds(self) -> float:
        """Seconds that a worker may take to answer before the others continue without it."""
        return min(self.patience, max(ANSWER_SECONDS, ANSWER_SHARE * self.patience))

    def workers(self) -> dict[str, int]:
        """Return the threads of each responsive worker by address; raises as :meth:`heard` does.

        Empty if units run in this process.
        """
        return self.heard()[0]

    def heard(self) -> tuple[dict[str, int], set[str]]:
        """Return the threads of each responsive worker by address, and the addresses of silent workers.

        Processes of silent workers may be frozen, or their machines unreachable. Raise :class:`ClusterError` if the
        scheduler is lost or does not answer.
        """
        if self.client is None:
            return {}, set()
        threads = self._answer("ncores")
        is_due = not self._seen or time.monotonic() - self._seen[-1][0] > SEEN_SHARE * self.answer_seconds
        if is_due or threads.keys() - self._reports.keys():
            # of 500 workers the answer is 1 MB
            reports = self.identities()
            self._reports.update(reports)
            last = max((worker["last_seen"] for worker in reports.values()), default=0.0)
            late = {w for w, worker in reports.items() if last - worker["last_seen"] > self.answer_seconds / 2}
            self._seen[:] = [(time.monotonic(), late)]
        silent = self._seen[-1][1] & threads.keys()
        return {w: int(n) for w, n in threads.items() if w not in silent}, silent

    def identities(self) -> dict[str, dict[str, Any]]:
        """Return by address what the scheduler says of each worker; raises as :meth:`heard` does.

        ``Client.scheduler_info`` may return no workers: the client refreshes what it returns at intervals without them.
        """
        return {} if self.client is None else self._answer("identity")["workers"]

    def processing(self) -> dict[str, str]:
        """Return the worker of each key that is assigned and not finished; raises as :meth:`heard` does."""
        return {str(key): worker for worker, keys in self._answer("processing").items() for key in keys}

    def last_words(self, worker: str, state: WorkerState | None = None) -> dict[str, Any]:
        """Return name and host of a lost worker, its memory at its last report, and how its process ended.

        `state` is what the scheduler says of one that may have joined and died before anybody asked. A cluster forgets
        a worker that it replaces, so what it said first stays.
        """
        report = self._reports.get(worker, {})
        if not report and state is not None:
            report = {"name": state.name, "host": state.host, "memory_limit": state.memory_limit}
        cluster = None if self.client is None else self.client.cluster
        if isinstance(cluster, Completing) and (end := cluster.last_words(worker, report.get("name"))):
            self._ends[worker] = end
        memory = report.get("metrics", {}).get("memory")
        reported = "not reported before its end" if memory is None else f"{memory} bytes at its last report"
        return {
            "lost worker": f"{worker}, name {report.get('name')}, host {report.get('host')}",
            "its memory": f"{reported}, of at most {report.get('memory_limit')}",
            "its end": self._ends.get(worker),
        }

    def leave(self, future: Future[Any]) -> None:
        """Keep the future of a duplicate unit until it ends, so that the scheduler knows that its worker is busy."""
        self._left[str(future.key)] = future
        future.add_done_callback(lambda ended: self._left.pop(str(ended.key), None))

    def ask(self, question: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Ask the scheduler by a coroutine function of the client, and return its answer.

        It is called again when a connection breaks, until `patience` has passed. An attempt without an answer is given
        up after `seconds`, by default half of the time that is left, as its connection may be dead. Raise
        :class:`ClusterError` if the scheduler does not answer in time, or the client is closed.
        """
        assert self.client is not None
        began, since = time.monotonic(), datetime.now().astimezone()
        while True:
            left = self.patience - (time.monotonic() - began)
            timeout = seconds or max(left / 2, min(left, self.answer_seconds))
            try:
                return self.client.sync(question, callback_timeout=timeout)
            except OSError as error:
                if self.client.status == "closed" or time.monotonic() - began + RETRY_SECONDS >= self.patience:
                    raise ClusterError(self._lost(error, since)) from error
            except RuntimeError as error:  # the client's event loop has ended
                raise ClusterError(self._lost(error, since)) from error
            threading.Event().wait(RETRY_SECONDS)
            check_stopped()

    def _answer(self, question: str) -> Any:
        """Return the scheduler's answer to a question without arguments."""

        async def ask() -> Any:
            client = self.client
            stream = None if client is None or client.status != "running" else client.scheduler_comm
            # a scheduler may answer, such as one started anew at the same address, and the client not hear of its units
            if client is None or stream is None or stream.closed():
                msg = "no connection"
                raise OSError(msg)
            return await getattr(client.scheduler, question)()

        return self.ask(ask)

    def _lost(self, error: BaseException, since: datetime) -> str:
        if not isinstance(error, TimeoutError):
            return lost_scheduler(error, since)
        return (
            f"the scheduler did not answer within {self.patience:g} s (cluster.wait_seconds), since "
            f"{since.isoformat(timespec='seconds')}: see whether its machine is down or overloaded; the same command "
            "goes on from what is recorded."
        )

    def submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> list[Future[Any]]:
        """Submit one call for each element of the arguments, as ``Client.map`` does; raises as :meth:`ask` does."""
        assert self.client is not None
        if self.client.status == "closed":  # what it raises differs between versions of Dask
            raise ClusterError(lost_scheduler(OSError("the client is closed")))
        return self.client.map(function, *arguments, **options)

    def complete(self) -> None:
        """Begin to replace the lost workers of a cluster started for the run."""
        cluster = None if self.client is None else self.client.cluster
        if self.n_own and isinstance(cluster, Completing):
            cluster.complete(self.n_own)

    @property
    def n_threads(self) -> int:
        """Maximum number of concurrent units."""
        return self.threads if self.client is None else max(1, sum(self.workers().values()))


def lost_scheduler(error: BaseException, since: datetime | None = None) -> str:
    """Return the message for a scheduler that has not been reached since a time, None for now."""
    since = since or datetime.now().astimezone()
    return (
        f"the scheduler went away, or the connection to it was lost and did not come back, since "
        f"{since.isoformat(timespec='seconds')} ({type(error).__name__}: {error}): start the cluster again; the same "
        "command goes on from what is recorded."
    )


def granted_workers(settings: ClusterSettings, client: Client | None) -> Workers:
    """Return the workers that units are planned for.

    Of existing workers these are the smallest limit, including ``cluster.memory_limit``, and the most threads. Local
    ones share what the driver leaves of the machine's memory, if the job sets no limit.
    """
    if not settings.is_joined:
        count = max(settings.n_workers, 1)
        if not settings.is_local and settings.workers != 0:
            return Workers(settings.memory_limit, settings.threads, count)
        machine, driver = machine_memory(), DRIVER.nbytes if settings.is_local else 0
        if settings.memory_limit is None:
            share = max(MiB, machine.nbytes - driver) // count
            return Workers(share, settings.threads, count, machine, driver)
        parts = f"{count} x {settings.memory_limit / MiB:.0f} MiB for workers and {driver / MiB:.0f} MiB for the driver"
        is_more = count * settings.memory_limit + driver > machine.nbytes
        warning = f"{parts} are more than {machine}: processes may be killed" if is_more else ""
        return Workers(settings.memory_limit, settings.threads, count, warning=warning)
    workers = pool_of(settings, client).identities().values()
    limits = tuple(limit for worker in workers if (limit := int(worker.get("memory_limit") or 0)) > 0)
    threads = max((int(worker.get("nthreads") or 1) for worker in workers), default=settings.threads)
    smallest = min((*limits, *filter(None, [settings.memory_limit])), default=None)
    unlike = f"workers have {min(limits) / MiB:.0f} to {max(limits) / MiB:.0f} MiB" if len(set(limits)) > 1 else ""
    warning = f"{unlike}: units are planned for the smallest" if unlike else ""
    return Workers(smallest, threads, max(len(workers), 1), warning=warning)


def pool_of(settings: ClusterSettings, client: Client | None, tell: Tell = _tell_nobody) -> Pool:
    """Return the pool of a job's settings."""
    n_own = 0 if settings.is_joined else settings.n_workers
    level = settings.log_level or str(dask.config.get(LOG_LEVEL_KEY, ""))
    return Pool(client, settings.threads, settings.wait_seconds, n_own, tell, level)
