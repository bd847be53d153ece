"""What happens to a run whose own files turn out damaged or missing: they are removed, told of, and made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from daskfs.errors import DamagedError, DaskfsError
from daskfs.execution.submission import pending_units, recorded_units
from daskfs.runs.manifest import Lock
from daskfs.stages.stage import Stage
from daskfs.stages.units import shared_arrays
from daskfs.storage import as_path, is_there, lies_in, remove, remove_file
from daskfs.store.arrays import METADATA
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.write_errors import explain_write_errors

Result = TypeVar("Result")
Tell = Callable[[str, str], None]
"""Called with what is said of damage as it is found, and with what is left to say of it at the end."""


@contextmanager
def error_context(what: str, name: str) -> Iterator[None]:
    """Let errors name what they are of, where there are several."""
    try:
        yield
    except DaskfsError as error:
        error.add_note(f"({what} {name})")
        raise


def rerun_on_damage(work: Callable[[], Result], store: Store, lock: Lock, tell: Tell) -> Result:
    """Do work; where something of the store turns out damaged, do it again, which makes what was damaged and nothing
    else that is recorded.

    Raises
    ------
    DamagedError
        For something damaged in another store, and for something that is damaged again.
    StoreError
        When the store's directory was deleted or moved away.
    """
    made_again: set[str] = set()
    while True:
        try:
            return work()
        except DamagedError as error:
            lock.check()
            is_ours = bool(error.paths) and all(lies_in(as_path(path), store.path("")) for path in error.paths)
            if not is_ours or not made_again.isdisjoint(error.paths):
                raise
            made_again.update(error.paths)
            for path in map(as_path, error.paths):
                with explain_write_errors(path):
                    remove_file(path, store.path(""))
            tell(f"{error} This run does so now.", damage_warning(error.paths))
        except (DaskfsError, OSError):
            lock.check()
            raise


def damage_warning(paths: Sequence[str]) -> str:
    """Return the warning about what was damaged or missing."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}: damaged or missing, and made again"


def remove_lost(context: Context, stage: Stage, stages: Sequence[Stage], tell: Tell) -> None:
    """Before a stage begins, or the loop that begins with it, delete what its recorded units wrote and is damaged, so
    that they can write it again; tell of it, and of what is missing. What has served may be missing.
    """
    store = context.store
    lost: list[str] = []
    for one in [s for s in stages if s.loop == stage.loop] if stage.loop else [stage]:
        recorded = recorded_units(context, one)
        units = recorded[-2 * one.n_units :] if one.loop else pending_units(context, one, stages)
        for name in store.ledger.lost(one.name, units, one.fingerprint):
            path = store.path(name)
            was_there = is_there(path)
            with explain_write_errors(path):
                remove_file(path, store.path(""))
            if was_there or not (one.needed_until or one.loop):
                lost.append(str(path))
    if lost:
        more = f" and {len(lost) - 1} more are" if len(lost) > 1 else " is"
        tell(f"{lost[0]}{more} damaged or missing: made again.", damage_warning(lost))


def has_pending(context: Context, stage: Stage, stages: Sequence[Stage], tell: Tell) -> bool:
    """Return whether a stage of a finished run has something to do; tell of records that are gone, of which their units
    know nothing.
    """
    units = pending_units(context, stage, stages)
    known = set(context.store.ledger.recorded(stage.name)) if units else set()
    missing = [f"the record of unit {unit} of stage {stage.name}" for unit in units if unit not in known]
    if missing:
        tell(f"{missing[0]} is missing: {len(missing)} units run again.", damage_warning(missing))
    return bool(units)


def restore_metadata(context: Context, stages: Sequence[Stage], tell: Tell) -> None:
    """Write metadata of arrays in a finished store again where they are missing."""
    cleared = tuple(f"{stage.clears}/" for stage in stages if stage.clears)
    for name, (shape, dtype, chunks) in shared_arrays(context, stages).items():
        path = context.store.path(name) / METADATA
        if not path.is_file() and not name.startswith(cleared):
            tell(f"{path} is missing: it is written again.", damage_warning([str(path)]))
            with explain_write_errors(path):
                remove(path)
            context.store.create(name, shape, dtype, chunks)
