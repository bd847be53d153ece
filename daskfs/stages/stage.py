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

from daskfs.errors import StoreError
from daskfs.stages.cost import Cost, Held, held_from, total
from daskfs.stages.kind import StageKind, current_reference, name_of, reference_of
from daskfs.store import layout
from daskfs.store.records import is_inside

PLANNED_CLASSES = 16
"""Classes that are planned for where nobody knows yet how many there are."""


@dataclass(frozen=True)
class Stage:
    """All units of one step. `kind` refers to its :class:`StageKind`; `parameters` is JSON-able; `cost` lists what
    makes up the planned peak of a unit.

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
    kind: str
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
    cost: Cost = field(default=(), compare=False, repr=False)

    @classmethod
    def of(
        cls, kind: StageKind, name: str, n_units: int, parameters: Mapping[str, Any], cost: Cost, **own: Any
    ) -> Stage:
        """Return a stage of a kind whose units cost so much."""
        return cls(name, kind.reference, n_units, parameters, total(cost), **own, cost=cost)

    @property
    def kind_name(self) -> str:
        """Name of the kind."""
        return name_of(self.kind)

    def is_of(self, *kinds: StageKind) -> bool:
        """Return whether the stage is of one of some kinds."""
        return self.kind in {kind.reference for kind in kinds}

    def with_more(self, *held: Held, **changed: Any) -> Stage:
        """Return the stage with more that its units hold."""
        return replace(self.costing((*self.cost, *held)), **changed)

    def costing(self, cost: Cost) -> Stage:
        """Return the stage with units of another cost."""
        return replace(self, cost=cost, peak_bytes=total(cost))


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
    directory that others may write to, and what a stage clears is deleted. Stages of daskfs 0.1 name a function, not a
    kind.
    """
    stages = tuple(
        Stage(**{**_with_kind(stage), "cost": tuple(map(held_from, stage.get("cost", ())))}) for stage in raw
    )
    for name in (name for stage in stages for name in (stage.name, stage.clears or stage.name)):
        if not is_inside(name):
            msg = f"a stage names {name!r}, which is no name in the store"
            raise StoreError(msg)
    return stages


def _with_kind(raw: Mapping[str, Any]) -> dict[str, Any]:
    if "function" not in raw:
        return {**raw, "kind": current_reference(raw["kind"])}
    return {**{key: value for key, value in raw.items() if key != "function"}, "kind": reference_of(raw["function"])}


def digest(*values: Any) -> str:
    """Return a short hash of JSON-able values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def with_fingerprints(stages: Sequence[Stage], start: str) -> tuple[Stage, ...]:
    """Give each stage a fingerprint of everything that its results depend on: its parameters and all that came
    before.
    """
    result, current = [], start
    for stage in stages:
        current = digest(current, stage.name, stage.kind_name, stage.n_units, dict(stage.parameters))
        result.append(replace(stage, fingerprint=current))
    return tuple(result)
