"""The command line with a scoring stage that takes more memory than it was planned to.

``python -m tests.execution.outgrowing run JOB`` is ``daskfs run JOB``, and workers of a local cluster import this
module as their main one. DASKFS_OUTGROWING says how a unit goes on: "taken" fills memory until its process is ended,
"denied" asks for more than the process may have.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import threading

import numpy as np

from daskfs.criteria import slab
from daskfs.execution import cluster
from daskfs.store.context import Context

WAY_KEY = "DASKFS_OUTGROWING"
LIMIT = 2**30
_PATIENCE = 120.0


def outgrow(context: Context, parameters: slab.ScoreParameters, unit: int) -> None:
    """Take more memory than a worker has."""
    del context, parameters
    if unit == 0:
        return
    if os.environ[WAY_KEY] == "denied":
        before = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + LIMIT // 4, before[1]))
        try:
            np.ones(LIMIT)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
    taken_up = [np.ones(LIMIT // 64) for _ in range(8)]
    threading.Event().wait(_PATIENCE)  # for the end of the process
    msg = f"nobody ended a process that holds {len(taken_up)} times an eighth of its limit"
    raise AssertionError(msg)


if WAY_KEY in os.environ:  # tests import the module too
    slab.SCORE_STAGE = dataclasses.replace(slab.SCORE_STAGE, run=outgrow)
    cluster.DASK_SETTINGS["distributed.scheduler.allowed-failures"] = 1

if __name__ == "__main__":
    from daskfs.cli import main

    main()
