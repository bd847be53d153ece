"""Where units run: a local cluster started for the run, one that exists, jobs of SLURM, pods of Kubernetes, or this
process.

Each kind of cluster is a module of :mod:`daskfs.execution.clusters`, which is imported when a job asks for it.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from daskfs.errors import ClusterError
from daskfs.execution.placement import Places
from daskfs.execution.processors import pinned
from daskfs.execution.stopping import undisturbed_end

if TYPE_CHECKING:
    from distributed import Client, Future

DASK_SETTINGS: dict[str, Any] = {
    # worker deaths are counted per task: on nodes that may be taken away, three would condemn healthy units
    "distributed.scheduler.allowed-failures": 10,
    "distributed.comm.retry.count": 3,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    # the batch job must end, not hang, when nothing comes back
    "distributed.scheduler.no-workers-timeout": "1h",
    "distributed.admin.tick.limit": "30s",
    # a cluster would end the nanny, or the job, whose worker has been away for a while at that moment, though it may
    # have come back in between and be starting after another death: Pool.complete replaces those that have ended
    "distributed.deploy.lost-worker-timeout": "365d",
    # Dask's nannies make glibc return every freed block of 128 KiB and more, and faulting it in again can cost as much
    # as the arithmetic on it; what this keeps is part of a process's planned size
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**26,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**23,
}
"""Of Dask, on the driver and in the workers that it starts; `dask` in a job has the last word."""

ONE_THREAD = {
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""Of every worker process, whose units are what runs in parallel."""

ANSWER_SECONDS, ANSWER_SHARE = 10.0, 0.25
"""A worker may take that long to answer, or that share of the time for which a cluster may be without any."""

NOTHING_SERVED: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Schedulers and workers answer HTTP whether or not they show a dashboard, and know neither TLS nor passwords there."""


@dataclass(frozen=True)
class SlurmSettings:
    """What the job says about jobs of SLURM, one for each worker; names are those of dask-jobqueue."""

    queue: str | None = None
    account: str | None = None
    walltime: str = "00:30:00"
    interface: str | None = None
    python: str | None = None
    log_directory: str | None = None
    shared_temp_directory: str | None = None
    job_script_prologue: tuple[str, ...] = ()
    job_extra_directives: tuple[str, ...] = ()
    job_directives_skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class KubernetesSettings:
    """What the job says about pods of Kubernetes, one for each worker and one for the scheduler."""

    image: str
    namespace: str | None = None
    service_account: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    volume_claims: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, str | int], ...] = ()


@dataclass(frozen=True)
class ClusterSettings:
    """What the job says about its cluster, as plain values. `memory_limit` is in bytes; None shares what the machine
    has. `tls` None is TLS for a cluster that is started; the scheduler of one that exists decides. `dask` holds keys of
    Dask's configuration.
    """

    workers: int = 2
    threads: int = 1
    memory_limit: int | None = None
    address: str | None = None
    scheduler_file: str | None = None
    slurm: SlurmSettings | None = None
    kubernetes: KubernetesSettings | None = None
    wait_seconds: float = 120.0
    dashboard: bool = False
    local_directory: str | None = None
    tls: bool | None = None
    cpu_target: str | None = None
    dask: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Mapping[str, Any], dask: Mapping[str, Any] | None = None) -> Self:
        """Return the settings of two blocks of a job."""
        kinds = {"slurm": SlurmSettings, "kubernetes": KubernetesSettings}
        own = {key: kind(**cluster[key]) for key, kind in kinds.items() if cluster.get(key) is not None}
        return cls(**{**cluster, **own}, dask=dask or {})

    def pool(self, client: Client | None, **told: Any) -> Pool:
        """Return what units run on, by these settings; `told` are ``tell`` and ``note_slow`` of :class:`Pool`."""
        n_own = 0 if self.is_joined else self.workers
        return Pool(client, self.threads, self.wait_seconds, n_own, **told)

    @property
    def is_joined(self) -> bool:
        """Whether the cluster exists already."""
        return bool(self.address or self.scheduler_file)

    @property
    def is_local(self) -> bool:
        """Whether worker processes start on this machine."""
        return self.workers > 0 and not self.is_joined and self.slurm is None and self.kubernetes is None

    @property
    def told_to_dask(self) -> dict[str, Any]:
        """What Dask's configuration is to say while the cluster is used."""
        # a nanny's worker has imported NumPy before its own environment is set
        environment = {f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in pinned(self.cpu_target).items()}
        return {**DASK_SETTINGS, **environment, **({} if self.dashboard else NOTHING_SERVED), **self.dask}


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


def prepare(settings: ClusterSettings) -> None:
    """Begin to start a local cluster, beside what the driver does before it needs one."""
    if settings.is_local:
        import dask

        from daskfs.execution.clusters import local

        with dask.config.set(settings.told_to_dask):
            local.prepare()


@contextmanager
def connected(settings: ClusterSettings) -> Iterator[Client | None]:
    """Yield a client with at least one worker; None means that units run in this process.

    Raises
    ------
    ClusterError
        When the scheduler cannot be reached, what starts workers is not there or refuses to, or no worker comes within
        ``wait_seconds``.
    """
    if settings.workers == 0 and not settings.is_joined:
        yield None
        return
    import dask
    import distributed  # noqa: F401 - its defaults would go with the settings of this block, were it imported inside

    serving = _serving(settings)
    # naming the scheduler here makes the end of this block take back what a client that fails to connect leaves set
    with (
        undisturbed_end() as ending,
        _quiet(),
        dask.config.set({**settings.told_to_dask, "scheduler": dask.config.get("scheduler", None)}),
        serving(settings) as client,
        ending,
    ):
        yield client


def _serving(settings: ClusterSettings) -> Callable[[ClusterSettings], AbstractContextManager[Client]]:
    """Return what starts, or joins, the kind of cluster that a job asks for."""
    if settings.is_joined:
        kind = "joined"
    elif settings.slurm is not None:
        kind = "slurm"
    else:
        kind = "local" if settings.is_local else "kubernetes"
    package = {"slurm": "dask_jobqueue", "kubernetes": "dask_kubernetes"}.get(kind)
    if package is not None and find_spec(package) is None:
        msg = f"cluster.{kind} needs the package {package.replace('_', '-')}: pip install 'daskfs[{kind}]'."
        raise ClusterError(msg)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        module = import_module(f"daskfs.execution.clusters.{kind}")
    finally:
        # dask-jobqueue takes Ctrl-C for itself when it is imported
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    serving: Callable[[ClusterSettings], AbstractContextManager[Client]] = module.serving
    return serving


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
        self._clients: list[tuple[ClusterSettings, Client | None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    @contextmanager
    def connected(self, settings: ClusterSettings) -> Iterator[Client | None]:
        """Yield the client, as :func:`connected` does."""
        known = [client for asked, client in self._clients if asked == settings]
        if not known:
            known = [self._stack.enter_context(connected(settings))]
            self._clients.append((settings, known[0]))
        yield known[0]


@runtime_checkable
class Completing(Protocol):
    """A cluster whose lost workers the driver replaces."""

    def complete(self, n_workers: int) -> None:
        """Begin to have as many workers again."""


def _tell_nobody(told: Any) -> None:
    del told


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
    tell
        Told of units that fail in passing, or take long.
    note_slow
        Given each unit that takes much longer than others, while it runs: its stage, number and worker, and since when.
    places
        Of the units of loops.
    """

    client: Client | None = None
    threads: int = 1
    patience: float = 120.0
    n_own: int = 0
    tell: Callable[[str], None] = _tell_nobody
    note_slow: Callable[[Mapping[str, Any]], None] = _tell_nobody
    places: Places = field(default_factory=Places, compare=False)
    _left: dict[str, Future[Any]] = field(default_factory=dict, compare=False)

    @property
    def answer_seconds(self) -> float:
        """How long a worker may take to answer before others go on without it."""
        return min(self.patience, max(ANSWER_SECONDS, ANSWER_SHARE * self.patience))

    def workers(self) -> dict[str, int]:
        """Return how many units each worker runs at once that was heard of lately, by its address; none where units run
        in this process. Raises as :meth:`heard` does.
        """
        return self.heard()[0]

    def heard(self) -> tuple[dict[str, int], set[str]]:
        """Return how many units each worker runs at once that was heard of lately, by its address, and the addresses of
        the others: their processes may be frozen, and their machines away.

        Raises
        ------
        ClusterError
            When the scheduler is lost or does not answer.
        """
        found = {} if self.client is None else self._answer("identity")["workers"]
        last = max((worker["last_seen"] for worker in found.values()), default=0.0)
        silent = {w for w, worker in found.items() if last - worker["last_seen"] > self.answer_seconds / 2}
        return {w: int(worker["nthreads"]) for w, worker in found.items() if w not in silent}, silent

    def processing(self) -> dict[str, str]:
        """Return the worker of each key that one has been given, and has not ended; raises as :meth:`heard` does."""
        found = {} if self.client is None else self._answer("processing")
        return {str(key): worker for worker, keys in found.items() for key in keys}

    def leave(self, future: Future[Any]) -> None:
        """Keep a unit that was done elsewhere until it ends: the scheduler is to know that its worker is busy."""
        self._left[str(future.key)] = future
        future.add_done_callback(lambda ended: self._left.pop(str(ended.key), None))

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
        """Let a cluster of the run's own have all its workers again."""
        cluster = None if self.client is None else self.client.cluster
        if self.n_own and isinstance(cluster, Completing):
            cluster.complete(self.n_own)

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
