"""A plan is data: the stages of a run, their units, bytes and peak memory, worked out before anything runs.

Nothing here reads or writes. Sizes are in bytes. The planned peak of a unit is that of its whole worker process: the
interpreter with what it has imported, plus every array that the unit holds at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from daskfs.errors import MemoryPlanError, StoreError
from daskfs.store import layout
from daskfs.store.records import is_inside

MiB = 2**20
PROCESS_BYTES = 400 * MiB
"""A worker with NumPy, SciPy, Zarr, scikit-learn and distributed loaded, and what its allocator keeps."""
DESCENT_BYTES = 480 * MiB
"""What numba and the compiled pynndescent add to a process, for good."""
COMPILED_BYTES = 112 * MiB
"""What numba adds to a process that compiles the passes over panels."""
WEIGHT_BYTES = 24
"""What weights of rows take for each row where they are read, where there are some."""
PLANNED_CLASSES = 16
"""Classes that are planned for where nobody knows yet how many there are."""
HELD_SHARE = 0.7
"""Share of a worker's limit that a process may be filled to between units; Dask pauses a worker at 0.8."""
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

    What units keep in the memory of their process, units of the same loop find there, or of stages that name the same
    owner in `holds`.
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
    holds: str = ""


@dataclass(frozen=True)
class Plan:
    """Stages in order, and the tile store they read, with its fingerprint; "" in plans of daskfs 0.1."""

    tiles_url: str
    stages: tuple[Stage, ...]
    identity: str = ""
    format_version: int = layout.FORMAT_VERSION
    tiles_fingerprint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """Return a stage by name."""
        return next(stage for stage in self.stages if stage.name == name)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON-able values; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> Plan:
        """Rebuild a plan; :class:`StoreError` when it is damaged, or of another version."""
        if not raw:
            msg = f"{where} has no plan: {layout.PLAN_JSON} is missing."
            raise StoreError(msg)
        if raw.get("format_version") != layout.FORMAT_VERSION:
            msg = (
                f"{where} was written in format version {raw.get('format_version')!r}, this daskfs reads "
                f"{layout.FORMAT_VERSION}."
            )
            raise StoreError(msg)
        try:
            return cls(**{**raw, "stages": stages_from(raw["stages"])})
        except (KeyError, TypeError, StoreError) as error:
            msg = f"{where}/{layout.PLAN_JSON} is damaged: {error}."
            raise StoreError(msg) from error


def stages_from(raw: Sequence[Mapping[str, Any]]) -> tuple[Stage, ...]:
    """Rebuild stages; :class:`StoreError` where one names anything that lies outside the store: a plan comes from a
    directory that others may write to, and what a stage clears is deleted.
    """
    stages = tuple(Stage(**stage) for stage in raw)
    for name in (name for stage in stages for name in (stage.name, stage.clears or stage.name)):
        if not is_inside(name):
            msg = f"a stage names {name!r}, which is no name in the store"
            raise StoreError(msg)
    return stages


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


def check_memory(
    stages: Sequence[Stage],
    memory_limit: int | None,
    threads: int = 1,
    *,
    planned_at: Callable[[int], Sequence[Stage]] | None = None,
    is_joined: bool = False,
) -> None:
    """Check that units fit in a worker.

    Parameters
    ----------
    stages
        What is planned.
    memory_limit
        Of a worker, bytes; None where nobody knows it.
    threads
        Units that a worker runs at once.
    planned_at
        Gives the stages as they would be planned under another limit, in bytes, which may cut tiles and groups of rows
        otherwise; None where they stay as they are.
    is_joined
        Whether the workers are there already, and have their limit from elsewhere.

    Raises
    ------
    MemoryPlanError
        When they do not, with a limit under which this would not be raised.
    """
    if memory_limit is None:
        return
    stage = max(stages, key=lambda stage: stage.peak_bytes, default=None)
    if stage is None or _needed_bytes(stage, threads) <= USABLE * memory_limit:
        return
    enough = _enough_mebibytes(stage, threads)
    while planned_at is not None:
        largest = max(planned_at(enough * MiB), key=lambda stage: stage.peak_bytes)
        if (again := _enough_mebibytes(largest, threads)) <= enough:
            break
        enough = again
    needed = _needed_bytes(stage, threads)
    together = f" for {threads} units at once" if threads > 1 else ""
    limit = "the limit of the cluster's workers, or cluster.memory_limit," if is_joined else "cluster.memory_limit"
    fewer = "threads" if is_joined or threads > 1 else "workers"
    msg = (
        f"stage {stage.name} needs {needed / MiB:.0f} MiB in a worker process{together}, and {limit} is "
        f"{memory_limit / MiB:.0f} MiB, of which {USABLE:.0%} may be filled. "
        f"{'Start workers with one of' if is_joined else 'Set cluster.memory_limit to'} {enough} MiB or more"
        f"{'' if is_joined and threads == 1 else f', or start fewer {fewer}'}."
    )
    if stage.function in ("comoments", "greedy", "filter", "bins"):
        msg += " Fewer n_candidates need less."
    if stage.parameters.get("solver") in ("cholesky", "woodbury"):
        msg += " Methods with solver 'cg' need less, and more passes over X."
    if stage.function == "svm-judge":
        msg += _fewer_rows(stage.parameters["methods"])
    raise MemoryPlanError(msg)


def _needed_bytes(stage: Stage, threads: int) -> int:
    return PROCESS_BYTES + threads * (stage.peak_bytes - PROCESS_BYTES)


def _enough_mebibytes(stage: Stage, threads: int) -> int:
    """Return the smallest limit, in MiB, that some units at once fit in."""
    return int(np.ceil(_needed_bytes(stage, threads) / USABLE / MiB))


def _fewer_rows(methods: Sequence[Mapping[str, Any]]) -> str:
    """Return what lets machines take less."""
    if any(m["parameters"]["criterion"] == "rfe" and not m["parameters"]["retrain"] for m in methods):
        return " SVMRFE with large_n 'landmarks' takes as much memory for any number of rows."
    return " SVMRFE takes the square of the labelled rows, with laplacian of all that count: let fewer of them count."
