"""Cluster settings of a job, and Dask's configuration for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from daskfs.execution.clusters.blocks import ClusterBlock
from daskfs.stages.processors import pinned_environment

DASK_SETTINGS: dict[str, Any] = {
    # worker deaths are counted per task: on preemptible nodes, three would fail healthy units
    "distributed.scheduler.allowed-failures": 10,
    "distributed.comm.retry.count": 3,
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    # the batch job must end, not hang, when no worker comes back
    "distributed.scheduler.no-workers-timeout": "1h",
    "distributed.admin.tick.limit": "30s",
    # after this timeout a cluster ends the nanny, or the job, of a lost worker, even if the worker has come back since
    # and is restarting: Pool.complete replaces workers that have ended
    "distributed.deploy.lost-worker-timeout": "365d",
    # sampling stacks every 10 ms can stop a worker for good: sys._current_frames of some versions of Python, such as
    # 3.11.7, collects garbage while it holds a lock that the collection may need (CPython issue 106883)
    "distributed.worker.profile.enabled": False,
    # Dask's nannies make glibc return every freed block of 128 KiB and more, and faulting it in again can cost as much
    # as the arithmetic on it; the memory kept here is part of a process's planned size
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 2**26,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 2**23,
}
"""Dask settings of the driver and of the workers that it starts; `dask` in a job overrides them."""

ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of every worker process: units run in parallel, numerical libraries do not."""

NOTHING_SERVED: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""No HTTP routes: schedulers and workers serve HTTP even without a dashboard, with neither TLS nor passwords."""


AUTO: Literal["auto"] = "auto"
"""Number of workers that :func:`daskfs.runs.workers.settled_cluster` chooses."""


class ClusterSettings(ClusterBlock):
    """The cluster of a job with its keys of Dask; `workers` is AUTO until ``daskfs.runs.workers`` settles it."""

    dask: Mapping[str, Any] = {}

    @property
    def n_workers(self) -> int:
        """Number of workers, which is settled."""
        assert self.workers != AUTO
        return self.workers

    @property
    def is_joined(self) -> bool:
        """Whether the cluster exists already."""
        return bool(self.address or self.scheduler_file)

    @property
    def is_local(self) -> bool:
        """Whether worker processes start on this machine."""
        return self.workers != 0 and not self.is_joined and self.slurm is None and self.kubernetes is None

    @property
    def told_to_dask(self) -> dict[str, Any]:
        """Dask's configuration while the cluster is used."""
        # a nanny's worker has imported NumPy before its own environment is set
        environment = {
            f"distributed.nanny.pre-spawn-environ.{k}": v for k, v in pinned_environment(self.cpu_target).items()
        }
        return {**DASK_SETTINGS, **environment, **({} if self.dashboard else NOTHING_SERVED), **self.dask}
