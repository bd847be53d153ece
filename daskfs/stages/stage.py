"""Plans: the stages of a run with their units, traffic and peak memory, computed before anything runs.

This module does no I/O. Sizes are in bytes. The planned peak of a unit is that of the whole worker process: the
interpreter with its imports, plus every array that the unit holds at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, cast

from daskfs.errors import DamagedError, StoreError
from daskfs.stages.cost import Cost, Held, held_from, total
from daskfs.stages.kind import P, StageKind, current_reference, kind_of, name_of
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.addresses import address_of, url_of
from daskfs.store.records import is_inside
from daskfs.store.store import Store
from daskfs.store.write_errors import MADE_AGAIN

PLANNED_CLASSES = 16
"""Number of classes that a plan assumes while it is unknown."""


@dataclass(frozen=True)
class Stage:
    """All units of one step of a plan.

    Parameters
    ----------
    kind
        Reference of the :class:`StageKind`.
    parameters
        Parameters of the unit function, of the type that the kind names.
    needed_until
        Name of the stage after which the outputs of this stage may be deleted.
    clears
        Path in the store that is deleted when this stage is done; in a loop, when a round is done. "{round}" is
        replaced by the number of that round, "{before}" by that number minus 2.
    begins_with
        Name of an earlier stage, whose inputs the units have: on a cluster they run while that stage and those up to
        this one do. Empty for a stage that waits for the one before it.
    loop
        Consecutive stages with the same `loop` run in rounds until the facts of all units of the last one contain
        "finished". `n_units` and bytes are per round; unit ``round * n_units + i`` is the i-th of its round.
    max_rounds
        Upper bound of the number of rounds; None if unknown.
    holds
        Owner of the process cache, shared by stages with the same owner. Stages of a loop share that of the loop.
    cost
        Items of the planned peak memory of a unit.
    """

    name: str
    kind: str
    n_units: int
    parameters: StageParameters
    peak_bytes: int
    bytes_read: int = 0
    bytes_written: int = 0
    fingerprint: str = ""
    needed_until: str = ""
    clears: str = ""
    begins_with: str = ""
    loop: str = ""
    max_rounds: int | None = 1
    holds: str = ""
    cost: Cost = field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, kind: StageKind[P], name: str, n_units: int, parameters: P, cost: Cost, **fields: Any) -> Stage:
        """Return a stage of a kind whose units have the given memory cost."""
        return cls(name, kind.reference, n_units, parameters, total(cost), **fields, cost=cost)

    @property
    def kind_name(self) -> str:
        """Name of the kind."""
        return name_of(self.kind)

    def is_of(self, *kinds: StageKind[Any]) -> bool:
        """Return whether the stage is of one of `kinds`."""
        return self.kind in {kind.reference for kind in kinds}

    def parameters_of(self, *kinds: StageKind[P]) -> P | None:
        """Return the parameters of the stage if it is of one of `kinds`, else None."""
        return cast("P", self.parameters) if self.is_of(*kinds) else None

    def with_more(self, *items: Held, **changed: Any) -> Stage:
        """Return a copy with items added to the cost and other fields replaced."""
        return replace(self.costing((*self.cost, *items)), **changed)

    def costing(self, cost: Cost) -> Stage:
        """Return a copy with another cost."""
        return replace(self, cost=cost, peak_bytes=total(cost))


@dataclass(frozen=True)
class Plan:
    """Stages in order, what their fingerprints start from, and the tile store they read with its fingerprint."""

    tiles_url: str
    stages: tuple[Stage, ...]
    identity: str = ""
    start: str = ""
    format_version: int = layout.FORMAT_VERSION
    tiles_fingerprint: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    def stage(self, name: str) -> Stage:
        """Return a stage by name."""
        return next(stage for stage in self.stages if stage.name == name)

    def parameters_of(self, kind: StageKind[P]) -> P | None:
        """Return the parameters of the first stage of a kind, None if there is none."""
        return first_parameters(self.stages, kind)

    def to_json(self, where: str) -> dict[str, Any]:
        """Return the plan as JSON-able values for a store; :meth:`from_json` is its inverse."""
        address = address_of(self.tiles_url, where)
        return {**asdict(replace(self, stages=(), tiles_url=address)), "stages": stages_to_json(self.stages)}

    @classmethod
    def read(cls, store: Store) -> Plan:
        """Read the plan of a run; raise as :meth:`from_json` does."""
        return cls.from_json(store.read_json(layout.PLAN_JSON, is_expected=True) or {}, store.url)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any], where: str) -> Plan:
        """Rebuild a plan; :class:`StoreError` if it is missing, damaged or of another format version."""
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
            stages = stages_from(raw["stages"], raw["start"])
            return cls(**{**raw, "stages": stages, "tiles_url": url_of(raw["tiles_url"], where)})
        except (KeyError, TypeError, StoreError) as error:
            path = f"{where}/{layout.PLAN_JSON}"
            msg = f"{path} is damaged: {str(error).rstrip('.')}: {MADE_AGAIN}"
            raise DamagedError(msg, [path]) from error


def first_parameters(stages: Iterable[Stage], kind: StageKind[P]) -> P | None:
    """Return the parameters of the first stage of a kind, None if there is none."""
    return next((parameters for stage in stages if (parameters := stage.parameters_of(kind)) is not None), None)


def stages_to_json(stages: Iterable[Stage]) -> list[dict[str, Any]]:
    """Return stages as JSON-able values; :func:`stages_from` is the inverse."""
    return [
        {**asdict(replace(stage, parameters=StageParameters())), "parameters": stage.parameters.to_json()}
        for stage in stages
    ]


def stages_from(raw: Sequence[Mapping[str, Any]], start: str) -> tuple[Stage, ...]:
    """Rebuild stages from JSON; `start` is what their fingerprints start from.

    :class:`StoreError` for parameters that are not those of the kind or of the fingerprint, or if a name is outside the
    store: others may be able to write to a plan, and `clears` is deleted.
    """
    stages = tuple(_stage_from(one) for one in raw)
    for one in raw:  # as it was written: another version may have other names and more parameters
        start = digest(start, one["name"], name_of(one["kind"]), one["n_units"], one["parameters"])
        if one["fingerprint"] != start:
            msg = f"the parameters of stage {one['name']} are not those of its fingerprint"
            raise StoreError(msg)
    for name in (name for stage in stages for name in (stage.name, stage.clears or stage.name)):
        if not is_inside(name):
            msg = f"a stage names {name!r}, which is no name in the store"
            raise StoreError(msg)
    return stages


def _stage_from(raw: Mapping[str, Any]) -> Stage:
    reference = current_reference(raw["kind"])
    kind = kind_of(reference)
    try:
        parameters = kind.parameters.from_json(raw["parameters"])
    except StoreError as error:
        msg = f"stage {raw['name']}, {error}"
        raise StoreError(msg) from error
    cost = tuple(map(held_from, raw.get("cost", ())))
    return Stage(**{**raw, "kind": reference, "parameters": parameters, "cost": cost})


def most_written(stages: Sequence[Stage]) -> int:
    """Return the most bytes of outputs that exist at once: those of finished loops and searches are deleted."""
    present = most = 0
    for stage in stages:
        present += stage.bytes_written
        most = max(most, present)
        present -= sum(one.bytes_written for one in stages if one.needed_until == stage.name)
    return most


def digest(*values: Any) -> str:
    """Return a short hash of JSON-able values."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def with_fingerprints(stages: Sequence[Stage], start: str) -> tuple[Stage, ...]:
    """Add to each stage a fingerprint of all that its results depend on: its parameters and all earlier stages."""
    result, current = [], start
    for stage in stages:
        current = digest(current, stage.name, stage.kind_name, stage.n_units, stage.parameters.to_json())
        result.append(replace(stage, fingerprint=current))
    return tuple(result)


def moved_beside(stages: Sequence[Stage], *kinds: StageKind[Any]) -> list[Stage]:
    """Move stages of some kinds behind all others; each begins with the stage that followed it."""
    waiting = [stage for stage in stages if not stage.is_of(*kinds)]
    beside = []
    for i, stage in enumerate(stages):
        if stage.is_of(*kinds):
            following = next(one for one in stages[i:] if not one.is_of(*kinds))
            beside.append(replace(stage, begins_with=following.name))
    return [*waiting, *beside]
