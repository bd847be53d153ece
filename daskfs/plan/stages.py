"""A plan is data: the stages of a run, their units, bytes and peak memory, worked out before anything runs.

Nothing here reads or writes. Sizes are in bytes. The planned peak of a unit is that of its whole worker process: the
interpreter with what it has imported, plus every array that the unit holds at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from daskfs.errors import MemoryPlanError, StoreError
from daskfs.store import layout

MiB = 2**20
PROCESS_BYTES = 400 * MiB
"""A worker with NumPy, SciPy, Zarr, scikit-learn and distributed loaded, and what its allocator keeps."""
DESCENT_BYTES = 480 * MiB
"""What numba and the compiled pynndescent add to a process, for good."""
COMPILED_BYTES = 96 * MiB
"""What numba adds to a process that compiles the passes over panels."""
WEIGHT_BYTES = 24
"""What weights of rows take for each row where they are read, where there are some."""
USABLE = 0.9
"""Share of a worker's limit that a unit may fill; the nanny ends a process at 0.95."""


@dataclass(frozen=True)
class Stage:
    """All units of one step. `function` names the unit function; `parameters` is JSON-able.

    What a stage with `needed_until` wrote may be gone when the stage of that name is done; `clears` names what goes
    then.

    Neighboring stages of one `loop` run in turn, round after round, until all units of the last of them have said
    "finished" in their facts; `max_rounds` is how many rounds that takes at most, None where nobody can say. `n_units`
    and bytes are those of one round, and unit ``round * n_units + i`` is the i-th of its round. `clears` names what
    goes when a round is done: "{round}" is its number, "{before}" that of the one before the last.
    """

    name: str
    function: str
    n_units: int
    parameters: Mapping[str, Any]
    peak_bytes: int
    bytes_read: int = 0
    bytes_written: int = 0
    fingerprint: str = ""
    needed_until: str = ""
    clears: str = ""
    loop: str = ""
    max_rounds: int | None = 1


@dataclass(frozen=True)
class Plan:
    """Stages in order, and the tile store they read."""

    tiles_url: str
    stages: tuple[Stage, ...]
    identity: str = ""
    format_version: int = layout.FORMAT_VERSION
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        """Largest planned peak of any unit."""
        return max((stage.peak_bytes for stage in self.stages), default=0)

    def stage(self, name: str) -> Stage:
        """Return a stage by name."""
        return next(stage for stage in self.stages if stage.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able values; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> Plan:
        """Rebuild a plan; :class:`StoreError` when it is of another version."""
        if raw.get("format_version") != layout.FORMAT_VERSION:
            msg = (
                f"{where} was written in format version {raw.get('format_version')!r}, this daskfs reads "
                f"{layout.FORMAT_VERSION}."
            )
            raise StoreError(msg)
        return cls(**{**raw, "stages": tuple(Stage(**stage) for stage in raw["stages"])})


def digest(*values: Any) -> str:
    """Return a short hash of JSON-able values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def fingerprinted(stages: Sequence[Stage], start: str) -> tuple[Stage, ...]:
    """Give each stage a fingerprint of everything that its results depend on: its parameters and all that came
    before.
    """
    result, current = [], start
    for stage in stages:
        current = digest(current, stage.name, stage.function, stage.n_units, dict(stage.parameters))
        result.append(replace(stage, fingerprint=current))
    return tuple(result)


def limit_per_unit(memory_limit: int | None, threads: int) -> int | None:
    """Return the limit that a unit may plan with when `threads` of them share a process of `memory_limit` bytes."""
    if memory_limit is None:
        return None
    return int((PROCESS_BYTES + (USABLE * memory_limit - PROCESS_BYTES) / threads) / USABLE)


def available_bytes(memory_limit: int | None) -> int | None:
    """Return what a unit may take beyond its process, None where there is no limit."""
    return None if memory_limit is None else max(int(USABLE * memory_limit) - PROCESS_BYTES, MiB)


def check_memory(stages: Sequence[Stage], memory_limit: int | None, threads: int = 1) -> None:
    """Raise :class:`MemoryPlanError` when `threads` units at once would not fit in a worker, with the limit that would
    do.
    """
    if memory_limit is None:
        return
    for stage in stages:
        needed = PROCESS_BYTES + threads * (stage.peak_bytes - PROCESS_BYTES)
        if needed <= USABLE * memory_limit:
            continue
        together = f" for {threads} units at once" if threads > 1 else ""
        enough = int(np.ceil(needed / USABLE / MiB))
        msg = (
            f"stage {stage.name} needs {needed / MiB:.0f} MiB in a worker process{together}, and cluster.memory_limit "
            f"is {memory_limit / MiB:.0f} MiB, of which {USABLE:.0%} may be filled. Set cluster.memory_limit to "
            f"{enough} MiB or more, or start fewer {'threads' if threads > 1 else 'workers'}."
        )
        if stage.function in ("comoments", "greedy", "filter", "bins"):
            msg += " Fewer n_candidates need less."
        if stage.parameters.get("solver") in ("cholesky", "woodbury"):
            msg += " Methods with solver 'cg' need less, and more passes over X."
        raise MemoryPlanError(msg)
