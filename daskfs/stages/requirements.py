"""What a worker must be like to run units of a run: the driver's versions of what decides results, and enough memory.

Workers join while a run is under way, so every unit brings the driver's versions along, as plain values that any
version can read, and a worker that does not fit refuses it.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version

import numpy as np
import scipy

from daskfs.errors import ClusterError, MemoryPlanError
from daskfs.stages.limits import check_memory
from daskfs.stages.stage import Stage
from daskfs.version import installed_version

LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba", "pynndescent")
"""Packages whose version can change a result."""


Versions = tuple[tuple[str, str], ...]
"""Names and versions."""


@lru_cache(maxsize=1)
def installed_versions() -> Versions:
    """Return the versions in this process of daskfs and of what decides its results, by name."""
    found = {"daskfs": installed_version(), **{name: version(name) for name in LIBRARIES}}
    for package in (np, scipy):
        blas = package.show_config(mode="dicts")["Build Dependencies"]["blas"]
        found[f"BLAS of {package.__name__}"] = f"{blas.get('name')} {blas.get('version')}"
    return tuple(found.items())


@lru_cache(maxsize=8)
def differences(versions: Versions) -> str:
    """Return how the versions in this process differ from the driver's, an empty text where they are the same."""
    own = dict(installed_versions())
    return ", ".join(
        f"{name} {own.get(name, 'none')} (the driver: {theirs})" for name, theirs in versions if own.get(name) != theirs
    )


def unlike(address: str, differing: str) -> ClusterError:
    """Return the error of a worker whose versions differ."""
    return ClusterError(f"the worker at {address} has {differing}: install the same everywhere.")


def cannot_serve(error: BaseException) -> str:
    """Return what to say of workers that lack what runs a unit, as other versions of daskfs do."""
    return (
        f"the workers cannot run units of daskfs {installed_version()}: {error}. Install the same version everywhere."
    )


def check_versions(versions: Versions) -> None:
    """Raise :class:`ClusterError` where this worker has other versions than the driver."""
    if differing := differences(versions):
        from distributed import get_worker

        raise unlike(get_worker().address, differing)


def check_room(stage: Stage) -> None:
    """Raise :class:`ClusterError` where units of a stage, on all threads of this worker, do not fit its memory."""
    from distributed import get_worker

    worker = get_worker()
    try:
        check_memory([stage], worker.memory_manager.memory_limit, worker.state.nthreads, is_joined=True)
    except MemoryPlanError as error:
        msg = f"the worker at {worker.address} is too small for this run: {error}"
        raise ClusterError(msg) from error
