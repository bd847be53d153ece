"""Number of worker processes of a job that leaves it to daskfs."""

from __future__ import annotations

from daskfs.execution.cluster import AUTO, ClusterSettings
from daskfs.job.job import Job
from daskfs.runs.extent import ranking_seconds
from daskfs.runs.tiles import plan_tiles
from daskfs.stages.cost import DRIVER, Workers
from daskfs.stages.machine import machine_cores, machine_memory
from daskfs.storage import as_path
from daskfs.store import layout

FEW_SECONDS = 5.0
"""Estimated seconds of one core up to which a run takes less time in one process than with workers to start."""
LEAST_MEMORY = 2**30
"""Memory of a worker, in bytes, that decides how many a machine has room for, if the job sets no limit."""
ELSEWHERE = 2
"""Workers that are asked of SLURM or Kubernetes."""


def settled_cluster(job: Job) -> ClusterSettings:
    """Return the cluster settings of a job with a number of workers, opening the source if the job sets none.

    Sizes alone decide, never a clock: the same data and job run in the same way on machines of one size. Raise
    :class:`InputError` for a source that cannot be read.
    """
    settings = job.settings
    if settings.workers != AUTO:
        return settings
    if settings.is_joined or settings.slurm is not None or settings.kubernetes is not None:
        return settings.model_copy(update={"workers": ELSEWHERE})
    shape = plan_tiles(job.data, f"{as_path(job.output.path)}/{layout.TILES_DIR}", Workers()).shape
    # of the rankings, and of those of an evaluation
    methods = job.make_methods("classification" if job.data.task == "auto" else job.data.task)
    again = 0 if job.evaluate is None else job.evaluate.n_splits * job.evaluate.n_repeats
    if (1 + again) * ranking_seconds(shape, methods) <= FEW_SECONDS:
        return settings.model_copy(update={"workers": 0})
    room = machine_memory().nbytes - DRIVER.nbytes
    if settings.memory_limit is None and room < LEAST_MEMORY:
        return settings.model_copy(update={"workers": 0})  # one process has it all
    fitting = room // (settings.memory_limit or LEAST_MEMORY)
    n_workers = max(1, min(machine_cores() // settings.threads, fitting))
    return settings.model_copy(update={"workers": n_workers})
