"""What a unit holds at once: arrays by name, shape and dtype, objects of Python, and what libraries take."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MiB = 2**20
HELD_SHARE = 0.7
"""Share of a worker's limit that a process may be filled to between units; Dask pauses a worker at 0.8."""
USABLE = 0.9
"""Share of a worker's limit that a unit may fill; the nanny ends a process at 0.95."""
WORD = 8
"""Bytes of a float64 or int64, the items that most files are planned in."""
HALF_WORD = 4
"""Bytes of a float32 or int32."""


@dataclass(frozen=True)
class Array:
    """An array, or several of one shape as a further dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.name}: {' x '.join(map(str, self.shape)) or 'scalar'} {self.dtype}"


@dataclass(frozen=True)
class Objects:
    """So many objects of Python, Arrow or pandas, of so many bytes each."""

    name: str
    count: int
    each: int

    @property
    def nbytes(self) -> int:
        """Bytes of all of them."""
        return self.count * self.each

    def __str__(self) -> str:
        return f"{self.name}: {self.count} of {self.each} bytes"


@dataclass(frozen=True)
class Fixed:
    """What does not depend on the data: a process, a compiled library, a buffer."""

    name: str
    nbytes: int

    def __str__(self) -> str:
        return self.name


Held = Array | Objects | Fixed
Cost = tuple[Held, ...]
"""Everything that a unit holds at its fullest moment."""

PROCESS = Fixed(
    "process with NumPy, SciPy, Zarr, scikit-learn and distributed, and what its allocator keeps", 400 * MiB
)
PROCESS_BYTES = PROCESS.nbytes
DESCENT = Fixed("numba and the compiled NN-descent", 480 * MiB)
COMPILED = Fixed("numba and the compiled passes over panels", 112 * MiB)


def held_from(raw: Mapping[str, Any]) -> Held:
    """Rebuild what :func:`dataclasses.asdict` made of something held."""
    if "shape" in raw:
        return Array(str(raw["name"]), tuple(map(int, raw["shape"])), np.dtype(raw["dtype"]).name)
    if "each" in raw:
        return Objects(str(raw["name"]), int(raw["count"]), int(raw["each"]))
    return Fixed(str(raw["name"]), int(raw["nbytes"]))


def total(cost: Iterable[Held]) -> int:
    """Return the bytes of a cost."""
    return sum(held.nbytes for held in cost)


def fullest(*moments: Iterable[Held]) -> Cost:
    """Return the cost of the fullest of several moments, the first of equal ones."""
    return max(map(tuple, moments), key=total)


def limit_per_unit(memory_limit: int | None, threads: int) -> int | None:
    """Return the limit that a unit may plan with when `threads` of them share a process of `memory_limit` bytes."""
    if memory_limit is None:
        return None
    return int((PROCESS_BYTES + (USABLE * memory_limit - PROCESS_BYTES) / threads) / USABLE)


def available_bytes(memory_limit: int | None) -> int | None:
    """Return what a unit may take beyond its process, None where there is no limit."""
    return None if memory_limit is None else max(int(USABLE * memory_limit) - PROCESS_BYTES, MiB)
