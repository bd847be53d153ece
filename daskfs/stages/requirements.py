"""Requirements on a worker: the driver's versions of all libraries that affect results, and enough memory.

Workers may join during a run, so every unit carries the driver's versions, as plain values that any version can read.
A worker that does not meet the requirements rejects the unit.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

import numpy as np
import scipy

from daskfs.errors import ClusterError, MemoryPlanError
from daskfs.stages.cost import Workers
from daskfs.stages.limits import check_memory
from daskfs.stages.stage import Stage
from daskfs.version import installed_version

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pynndescent")
"""Packages whose version can change a result."""


Versions = tuple[tuple[str, str], ...]
"""Pairs (name, version)."""


@lru_cache(maxsize=1)
def installed_versions() -> Versions:
    """Return the versions in this process of daskfs, its :data:`LIBRARIES`, and the BLAS of NumPy and SciPy."""
    versions = {"daskfs": installed_version(), **{name: version(name) for name in LIBRARIES}}
    for package in (np, scipy):
        blas = package.show_config(mode="dicts")["Build Dependencies"]["blas"]
        versions[f"BLAS of {package.__name__}"] = f"{blas.get('name')} {blas.get('version')}"
    return tuple(versions.items())


@lru_cache(maxsize=8)
def differences(versions: Versions) -> str:
    """List the versions in this process that differ from the driver's; empty if none do."""
    ours = dict(installed_versions())
    return ", ".join(
        f"{name} {ours.get(name, 'none')} (the driver: {theirs})"
        for name, theirs in versions
        if ours.get(name) != theirs
    )


def unlike(address: str, differing: str) -> ClusterError:
    """Return the error for a worker whose versions differ."""
    return ClusterError(f"the worker at {address} has {differing}: install the same everywhere.")


def cannot_serve(error: BaseException) -> str:
    """Return the message for workers that cannot import the unit function, as with other versions of daskfs."""
    return (
        f"the workers cannot run units of daskfs {installed_version()}: {error}. Install the same version everywhere."
    )


def check_versions(versions: Versions) -> None:
    """Raise :class:`ClusterError` if this worker has other versions than the driver."""
    if differing := differences(versions):
        from distributed import get_worker

        raise unlike(get_worker().address, differing)


def check_room(stage: Stage) -> None:
    """Raise :class:`ClusterError` if units of a stage on all threads of this worker exceed its memory limit."""
    from distributed import get_worker

    worker = get_worker()
    try:
        check_memory([stage], Workers(worker.memory_manager.memory_limit, worker.state.nthreads), is_joined=True)
    except MemoryPlanError as error:
        msg = f"the worker at {worker.address} is too small for this run: {error}"
        raise ClusterError(msg) from error
