"""What a job says of its cluster, and what Dask is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from daskfs.stages.processors import pinned_environment

if TYPE_CHECKING:
    from distributed import Client

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
        environment = {
            f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in pinned_environment(self.cpu_target).items()
        }
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
