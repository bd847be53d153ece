"""Memory cost of a unit: arrays by name, shape and dtype, Python objects, and fixed amounts for libraries."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.stages.machine import Memory

MiB, GiB = 2**20, 2**30
HELD_SHARE = 0.7
"""Share of a worker's memory limit that a process may fill between units; Dask pauses a worker at 0.8."""
USABLE = 0.9
"""Share of a worker's memory limit that a process may fill during a unit; the nanny ends a process at 0.95."""
MIN_UNITS = 8
UNITS_PER_THREAD = 3
WORD = 8
"""Bytes of a float64 or int64, the item size of most files."""
HALF_WORD = 4
"""Bytes of a float32 or int32."""


@dataclass(frozen=True)
class Array:
    """An array, or several of the same shape along an additional leading dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: {' x '.join(map(str, self.shape)) or 'scalar'} {self.dtype}"


@dataclass(frozen=True)
class Objects:
    """`count` objects of Python, Arrow or pandas, of `each` bytes."""

    name: str
    count: int
    each: int

    @property
    def nbytes(self) -> int:
        """Size of all objects in bytes."""
        return self.count * self.each

    def __str__(self) -> str:
        return f"{self.name}: {self.count} of {self.each} bytes"


@dataclass(frozen=True)
class Fixed:
    """A size in bytes that the caller states: a process, a compiled library, a buffer."""

    name: str
    nbytes: int

    def __str__(self) -> str:
        return self.name


Held = Array | Objects | Fixed
Cost = tuple[Held, ...]
"""Everything that a unit holds at its peak memory."""

PROCESS = Fixed(
    "process with NumPy, SciPy, Zarr, scikit-learn and distributed, and what its allocator keeps", 400 * MiB
)
PROCESS_BYTES = PROCESS.nbytes
DRIVER = Fixed("driver, scheduler and fork server of local workers", 512 * MiB)
COMPILED = Fixed("numba and the compiled passes", 112 * MiB)
FOREIGN = Fixed("pynndescent, and what it compiles", 320 * MiB)


def grown(process: Cost, *permanent: Held) -> Cost:
    """Return the memory of a process that also holds `permanent`, each item once.

    An empty process, of which no memory is planned, stays empty.
    """
    return (*process, *(item for item in permanent if item not in process)) if process else process


def held_from(raw: Mapping[str, Any]) -> Held:
    """Rebuild an item of a cost from its :func:`dataclasses.asdict`."""
    if "shape" in raw:
        return Array(str(raw["name"]), tuple(map(int, raw["shape"])), np.dtype(raw["dtype"]).name)
    if "each" in raw:
        return Objects(str(raw["name"]), int(raw["count"]), int(raw["each"]))
    return Fixed(str(raw["name"]), int(raw["nbytes"]))


def total(cost: Iterable[Held]) -> int:
    """Return the bytes of a cost."""
    return sum(item.nbytes for item in cost)


def fullest(*moments: Iterable[Held]) -> Cost:
    """Return the largest of several costs; the first one on a tie."""
    return max(map(tuple, moments), key=total)


@dataclass(frozen=True)
class Workers:
    """The workers that units are planned for.

    Attributes
    ----------
    memory_limit
        Bytes of a worker process; None if unknown.
    threads
        Units that a process runs at once.
    count
        Number of processes.
    machine
        Memory of the machine or of the batch job, of which `memory_limit` is a share; None if it is no share.
    driver
        Bytes of it for the driver.
    warning
        Warning about the memory of these workers; may be empty.
    """

    memory_limit: int | None = None
    threads: int = 1
    count: int = 1
    machine: Memory | None = None
    driver: int = 0
    warning: str = ""

    @property
    def unit_limit(self) -> int | None:
        """Memory limit for the plan of one unit, of those that share a process; None if unknown."""
        if self.memory_limit is None:
            return None
        return int((PROCESS_BYTES + (USABLE * self.memory_limit - PROCESS_BYTES) / self.threads) / USABLE)

    @property
    def n_at_once(self) -> int:
        """Number of units that run at once."""
        return self.count * self.threads

    @property
    def n_units(self) -> int:
        """Number of units to cut a large stage into, so that none of the workers waits for long at its end."""
        return max(MIN_UNITS, UNITS_PER_THREAD * self.n_at_once)


def available_bytes(memory_limit: int | None) -> int | None:
    """Return the bytes that a unit may use in addition to the bare process; None without a limit."""
    return None if memory_limit is None else max(int(USABLE * memory_limit) - PROCESS_BYTES, MiB)
