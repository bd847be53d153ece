"""Stage kinds: a :class:`StageKind` is defined next to each unit function.

A plan names the kinds of its stages by reference, ``daskfs.graph.edges:EDGES_STAGE``. Others may be able to write to
the directory of a plan, so a reference is resolved only within :data:`STAGE_FOLDERS`, and only to a :class:`StageKind`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, TypeVar, cast, get_type_hints

from daskfs.errors import StoreError
from daskfs.stages.cost import Cost
from daskfs.stages.parameters import StageParameters
from daskfs.store.context import Context

STAGE_FOLDERS = ("criteria", "evaluation", "graph", "ranking", "tiles")
"""Subpackages that define stages."""
SUFFIX = "_STAGE"
REFERENCE = re.compile(rf"(daskfs\.(?:{'|'.join(STAGE_FOLDERS)})(?:\.[a-z_]+)+):([A-Z_]+){SUFFIX}")


P = TypeVar("P", bound=StageParameters)
UnitFunction = Callable[[Context, P, int], dict[str, Any] | None]
"""``function(context, parameters, unit)`` writes whole chunks that the unit alone owns and returns facts for its
record.
"""


@dataclass(frozen=True)
class StageKind(Generic[P]):
    """Attributes common to all stages of one kind.

    Parameters
    ----------
    name
        Short name; the kind is bound to ``NAME_STAGE`` in its module.
    module
        ``__name__`` of the defining module.
    run
        Unit function; the annotation of its `parameters` is the type of the parameters of stages.
    cost
        Function of sizes that returns the peak memory of a unit as a :data:`~daskfs.stages.cost.Cost`.
    arrays
        Creates the arrays that several units write to; a unit creates all others.
    reads_weights
        Whether units hold the sample weights of all rows.
    finds_lists
        Whether units find neighbor lists.
    advice
        Function of the parameters of a stage: text to append to the error if a worker has too little memory.
    """

    name: str
    module: str
    run: UnitFunction[P]
    cost: Callable[..., Cost]
    arrays: Callable[[Context, P], None] | None = None
    reads_weights: bool = False
    finds_lists: bool = False
    advice: Callable[[P], str] | None = None

    @cached_property
    def parameters(self) -> type[P]:
        """Type of the parameters of stages."""
        return cast("type[P]", get_type_hints(self.run)["parameters"])

    @property
    def reference(self) -> str:
        """Reference of the kind in plans."""
        return f"{self.module}:{self.name.upper().replace('-', '_')}{SUFFIX}"


def kind_of(reference: str) -> StageKind[Any]:
    """Return the kind that a plan names.

    :class:`StoreError` if it is none of this package; nothing outside :data:`STAGE_FOLDERS` is imported.
    """
    kind, match = None, REFERENCE.fullmatch(reference)
    if match:
        with suppress(ModuleNotFoundError):
            kind = getattr(import_module(match[1]), match[2] + SUFFIX, None)
    if not isinstance(kind, StageKind):
        msg = f"a stage is of kind {reference!r}, which this daskfs does not have"
        raise StoreError(msg)
    return kind


def name_of(reference: str) -> str:
    """Return the name of the kind from its reference, without importing its module."""
    return reference.rpartition(":")[2].removesuffix(SUFFIX).lower().replace("_", "-")


def stage_modules() -> list[str]:
    """Return the names of all modules that may define stages."""
    return sorted(
        module.name
        for folder in STAGE_FOLDERS
        for module in pkgutil.walk_packages(import_module(f"daskfs.{folder}").__path__, f"daskfs.{folder}.")
    )


def all_kinds() -> Iterator[StageKind[Any]]:
    """Import all modules that define stages and yield every stage kind."""
    for name in stage_modules():
        module = import_module(name)
        for value in vars(module).values():
            if isinstance(value, StageKind) and value.module == name:
                yield value


def current_reference(reference: str) -> str:
    """Update a reference from a plan of another version: a kind keeps its name when its module moves.

    :class:`StoreError` for an unknown name.
    """
    match = REFERENCE.fullmatch(reference)
    if not match or _is_module(match[1]):
        return reference
    name = name_of(reference)
    for kind in all_kinds():
        if kind.name == name:
            return kind.reference
    msg = f"a stage runs {name!r}, which this daskfs does not have"
    raise StoreError(msg)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the subpackage does not exist
        return False
