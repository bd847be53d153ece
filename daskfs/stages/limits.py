"""Check of planned peak memory against the memory limit of a worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from daskfs.errors import MemoryPlanError
from daskfs.stages.cost import PROCESS_BYTES, USABLE, MiB, Workers
from daskfs.stages.kind import kind_of
from daskfs.stages.stage import Stage


def check_memory(
    stages: Sequence[Stage],
    workers: Workers,
    *,
    planned_at: Callable[[int], Sequence[Stage]] | None = None,
    is_joined: bool = False,
) -> None:
    """Check that the units of a plan fit the memory of a worker.

    Parameters
    ----------
    stages
        Planned stages.
    workers
        The workers; nothing is checked if their memory limit is unknown.
    planned_at
        Function that plans the stages for another limit in bytes, since tiles and groups of rows depend on the limit;
        None if they do not.
    is_joined
        Whether the workers belong to an existing cluster, which sets their limit.

    Raises
    ------
    MemoryPlanError
        If a unit does not fit; the message names a sufficient limit.
    """
    memory_limit, threads = workers.memory_limit, workers.threads
    if memory_limit is None:
        return
    stage = max(stages, key=lambda stage: stage.peak_bytes, default=None)
    if stage is None or _needed_bytes(stage, threads) <= USABLE * memory_limit:
        return
    enough = _enough_mebibytes(stage, threads)
    if planned_at is not None:
        enough = _smallest_limit(planned_at, memory_limit // MiB, enough, threads)
    needed = _needed_bytes(stage, threads)
    together = f" for {threads} units at once" if threads > 1 else ""
    limit = "the limit of the cluster's workers, or cluster.memory_limit," if is_joined else "cluster.memory_limit"
    fewer = "threads" if is_joined or threads > 1 else "workers"
    msg = (
        f"stage {stage.name} needs {needed / MiB:.0f} MiB in a worker process{together}, and {limit} is "
        f"{memory_limit / MiB:.0f} MiB, of which {USABLE:.0%} may be filled. "
        f"{'Start workers with one of' if is_joined else 'Set cluster.memory_limit to'} {enough} MiB or more"
        f"{'' if is_joined and threads == 1 else f', or start fewer {fewer}'}"
    )
    needed_bytes = workers.count * enough * MiB + workers.driver
    if workers.machine is not None and needed_bytes > workers.machine.nbytes:
        msg += f": with the driver they would need {needed_bytes / MiB:.0f} MiB, and there are {workers.machine}"
    msg += "."
    if (advice := kind_of(stage.kind).advice) is not None:
        msg += advice(stage.parameters)
    raise MemoryPlanError(msg)


def _needed_bytes(stage: Stage, threads: int) -> int:
    return PROCESS_BYTES + threads * (stage.peak_bytes - PROCESS_BYTES)


def _enough_mebibytes(stage: Stage, threads: int) -> int:
    """Return the smallest limit in MiB that fits `threads` units at once."""
    return int(np.ceil(_needed_bytes(stage, threads) / USABLE / MiB))


def _smallest_limit(planned_at: Callable[[int], Sequence[Stage]], refused: int, enough: int, threads: int) -> int:
    """Return a limit in MiB that fits the stages planned for it, at most 5 % above the smallest such limit."""

    def needed(limit: int) -> int:
        return max(_enough_mebibytes(stage, threads) for stage in planned_at(limit * MiB))

    while (more := needed(enough)) > enough:
        refused, enough = enough, more
    while enough - refused > max(1, refused // 20):
        middle = (refused + enough) // 2
        refused, enough = (refused, middle) if needed(middle) <= middle else (middle, enough)
    return enough
