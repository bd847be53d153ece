"""What a stage does: one object beside each unit function.

A plan names the kinds of its stages by reference, ``daskfs.graph.edges:EDGES_STAGE``. Plans lie in directories that
others may write to: a reference is taken only into :data:`FOLDERS`, and only to a :class:`StageKind`.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from daskfs.errors import StoreError
from daskfs.stages.cost import Cost
from daskfs.store.context import Context, UnitFunction

FOLDERS = ("criteria", "evaluation", "graph", "ranking", "tiles")
"""Folders of the package that define stages."""
FORMER_FOLDERS = ("scores",)
"""Folders that did, as plans of earlier versions name them."""
SUFFIX = "_STAGE"
REFERENCE = re.compile(rf"(daskfs\.(?:{'|'.join(FOLDERS + FORMER_FOLDERS)})(?:\.[a-z_]+)+):([A-Z_]+){SUFFIX}")


@dataclass(frozen=True)
class StageKind:
    """What all stages of one kind have in common.

    Parameters
    ----------
    name
        Short name; the kind is the attribute ``NAME_STAGE`` of its module.
    module
        Module that defines it, ``__name__``.
    run
        Function of a context, the parameters of the stage, and the number of the unit, which returns facts.
    cost
        Lists what a unit holds at its fullest moment, from sizes.
    arrays
        Creates the arrays that several units write into; a unit creates what it alone writes.
    reads_weights
        Whether units read the weights of rows.
    finds_lists
        Whether units find neighbor lists.
    advice
        Sentences to add, from the parameters of a stage, where a worker has too little memory for it.
    """

    name: str
    module: str
    run: UnitFunction
    cost: Callable[..., Cost]
    arrays: Callable[[Context, Mapping[str, Any]], None] | None = None
    reads_weights: bool = False
    finds_lists: bool = False
    advice: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def reference(self) -> str:
        """How plans name the kind."""
        return f"{self.module}:{self.name.upper().replace('-', '_')}{SUFFIX}"


def kind_of(reference: str) -> StageKind:
    """Return the kind that a plan names.

    Raises
    ------
    StoreError
        For a reference to anything else than a kind of stage of this package; nothing outside its folders is imported.
    """
    found, match = None, REFERENCE.fullmatch(reference)
    if match:
        try:
            found = getattr(import_module(match[1]), match[2] + SUFFIX, None)
        except ModuleNotFoundError:
            found = None
    if not isinstance(found, StageKind):
        msg = f"a stage is of kind {reference!r}, which this daskfs does not have"
        raise StoreError(msg)
    return found


def name_of(reference: str) -> str:
    """Return the name of the kind behind a reference, without looking for it."""
    return reference.rpartition(":")[2].removesuffix(SUFFIX).lower().replace("_", "-")


def stage_modules() -> list[str]:
    """Return the names of all modules that may define stages."""
    return sorted(
        module.name
        for folder in FOLDERS
        for module in pkgutil.walk_packages(import_module(f"daskfs.{folder}").__path__, f"daskfs.{folder}.")
    )


def all_kinds() -> Iterator[StageKind]:
    """Yield every kind of stage, importing what defines them."""
    for name in stage_modules():
        module = import_module(name)
        for value in vars(module).values():
            if isinstance(value, StageKind) and value.module == name:
                yield value


def reference_of(name: str) -> str:
    """Return the reference of a kind by its name; :class:`StoreError` for no kind."""
    for kind in all_kinds():
        if kind.name == name:
            return kind.reference
    msg = f"a stage runs {name!r}, which this daskfs does not have"
    raise StoreError(msg)


def current_reference(reference: str) -> str:
    """Return a reference from a plan of any daskfs: kinds keep their names where their modules move."""
    match = REFERENCE.fullmatch(reference)
    if match and not _is_module(match[1]):
        return reference_of(name_of(reference))
    return reference


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # of the folder
        return False
