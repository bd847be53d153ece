"""Entries of a job file that name a method or a model: short forms, grids, labels."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from math import isfinite, prod
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from daskfs.block import Block
from daskfs.criteria.registry import criteria
from daskfs.errors import JobError

MAX_MEMBERS = 1000
EVERY = ("all", "every")
"""Entries that stand for every criterion that no other entry names."""


class MethodBlock(Block):
    """One method: its name in the registry, an optional label, its parameters, and a grid of parameters."""

    name: str
    label: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, tuple[Any, ...]] = Field(
        default_factory=dict, description="Lists of values by parameter: the method stands for one of each combination."
    )

    @field_validator("grid", mode="before")
    @classmethod
    def _lists_of_values(cls, value: Any) -> Any:
        for key, values in value.items() if isinstance(value, Mapping) else ():
            if not isinstance(values, list | tuple) or not values:
                msg = f"'{key}' should be a list of values, such as [0, 0.1, 0.2]"
                raise ValueError(msg)
            if nested := [entry for entry in values if not is_plain(entry) or isinstance(entry, list)]:
                msg = f"'{key}' should list finite numbers, words, true, false or null, not {nested[0]!r}"
                raise ValueError(msg)
        return value

    @model_validator(mode="after")
    def _either_fixed_or_varied(self) -> MethodBlock:
        if (size := prod(map(len, self.grid.values()))) > MAX_MEMBERS:
            msg = f"grid stands for {size} combinations of values, and {MAX_MEMBERS} are the most"
            raise ValueError(msg)
        if both := sorted(self.grid.keys() & self.parameters.keys()):
            msg = f"'{both[0]}' has a value and a list in grid: leave one out"
            raise ValueError(msg)
        return self

    @property
    def base_label(self) -> str:
        """Label of the method, or prefix of the labels of the methods that its grid makes."""
        return self.label or self.name

    def members(self) -> list[tuple[MethodBlock, dict[str, Any]]]:
        """Return the method with each combination of its grid, and the combination.

        The last key varies fastest. Without a grid, return only the method itself.
        """
        if not self.grid:
            return [(self, {})]
        members = []
        for values in product(*self.grid.values()):
            chosen = dict(zip(self.grid, values, strict=True))
            label = " ".join([self.base_label, *(f"{key}={as_word(value)}" for key, value in chosen.items())])
            members.append((MethodBlock(name=self.name, label=label, parameters={**self.parameters, **chosen}), chosen))
        return members


def listed(value: Any) -> Any:
    """Return a single word as a list of it, before the entries are checked."""
    return (value,) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(listed)]
"""Words, or one alone."""


def with_every(blocks: Sequence[MethodBlock]) -> list[tuple[MethodBlock, bool]]:
    """Replace "all" by every criterion that no other entry names; also return whether it stands for each."""
    named = {block.name for block in blocks if block.label is None}
    others = [MethodBlock(name=name) for name in criteria() if name not in named]
    return [(one, block.name in EVERY) for block in blocks for one in (others if block.name in EVERY else [block])]


def with_parameters(entry: Any, block_keys: tuple[str, ...]) -> Any:
    """Normalize an entry of a list for its block.

    A bare name becomes a mapping, and keys that are not in `block_keys` become parameters.
    """
    if isinstance(entry, str):
        return {"name": entry}
    if isinstance(entry, Mapping) and "name" in entry and "parameters" not in entry:
        own_keys = {key: value for key, value in entry.items() if key in block_keys}
        return {**own_keys, "parameters": {key: value for key, value in entry.items() if key not in block_keys}}
    return entry


def is_plain(value: Any) -> bool:
    """Return whether a value is None, text, an integer, a finite float, or a list of such values."""
    if isinstance(value, list):
        return all(is_plain(entry) for entry in value)
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))


def as_word(value: Any) -> str:
    """Return a value of a grid in the spelling of the job file."""
    return value if isinstance(value, str) else json.dumps(value)


def check_names(labels: Sequence[str], what: str, most_bytes: int, why: str) -> None:
    """Raise :class:`JobError` for a label that is repeated, too long, or has invalid characters."""
    counts = Counter(labels)
    for label in labels:
        if counts[label] > 1:
            msg = f"two {what}s are called '{label}': give one of them a label."
            raise JobError(msg)
        if not re.fullmatch(r"[\w.+=() -]+", label) or label.startswith(".") or label != label.strip():
            msg = f"{what} label '{label}': use letters, digits, spaces and . + = ( ) - _ only, no dot first."
            raise JobError(msg)
        if len(label.encode()) > most_bytes:
            msg = f"{what} label '{label[:40]}...' is too long: {why}, {most_bytes} bytes at most."
            raise JobError(msg)
