"""Repair of damaged or missing files of a run: delete them, report them, and rerun their units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from daskfs.errors import DamagedError, DaskfsError, first_few
from daskfs.execution.submission import pending_units, recorded_units
from daskfs.runs.manifest import Lock, damage_warning
from daskfs.stages.stage import Stage
from daskfs.stages.units import shared_arrays
from daskfs.storage import as_path
from daskfs.store.arrays import METADATA
from daskfs.store.completeness import lost_outputs
from daskfs.store.context import Context
from daskfs.store.store import Store
from daskfs.store.write_errors import explain_write_errors

Result = TypeVar("Result")
Tell = Callable[[str, str], None]
"""Called for each damage with the message to show now and the warning to keep in the manifest."""


@contextmanager
def error_context(what: str, name: str) -> Iterator[None]:
    """Add the note "(`what` `name`)" to errors raised in the context."""
    try:
        yield
    except DaskfsError as error:
        error.add_note(f"({what} {name})")
        raise


def rerun_on_damage(work: Callable[[], Result], store: Store, lock: Lock, tell: Tell) -> Result:
    """Run `work`; on :class:`DamagedError` delete the damaged files and run it again, once per path.

    Units that are recorded and whole are skipped when `work` runs again. Raise the error if the damage is in another
    store, or a path is damaged again, and :class:`StoreError` if the store's directory was deleted or moved away.
    """
    made_again: set[str] = set()
    while True:
        try:
            return work()
        except DamagedError as error:
            lock.check()
            is_ours = bool(error.paths) and all(as_path(path).lies_in(store.path("")) for path in error.paths)
            if not is_ours or not made_again.isdisjoint(error.paths):
                raise
            made_again.update(error.paths)
            for path in map(as_path, error.paths):
                with explain_write_errors(path):
                    path.remove_below(store.path(""))
            tell(f"{error} This run does so now.", damage_warning(error.paths))
        except (DaskfsError, OSError):
            lock.check()
            raise


def remove_lost(context: Context, stage: Stage, stages: Sequence[Stage], tell: Tell) -> None:
    """Delete damaged outputs of the recorded units of a stage, or of the loop that begins with it, so they run again.

    Call this before the stage begins. Damaged and missing outputs are reported; outputs of a loop or of a stage with
    `needed_until` may be missing.
    """
    store = context.store
    lost: list[str] = []
    for one in [s for s in stages if s.loop == stage.loop] if stage.loop else [stage]:
        recorded = recorded_units(context, one)
        units = recorded[-2 * one.n_units :] if one.loop else pending_units(context, one, stages)
        for name in lost_outputs(store, one.name, units, one.fingerprint):
            path = store.path(name)
            was_there = path.is_there()
            with explain_write_errors(path):
                path.remove_below(store.path(""))
            if was_there or not (one.needed_until or one.loop):
                lost.append(str(path))
    if lost:
        verb = "are" if len(lost) > 1 else "is"
        tell(f"{first_few(lost, 1)} {verb} damaged or missing: made again.", damage_warning(lost))


def has_pending(context: Context, stage: Stage, stages: Sequence[Stage], tell: Tell) -> bool:
    """Return whether a stage of a finished run has pending units; report those whose record is missing."""
    units = pending_units(context, stage, stages)
    recorded_units = set(context.store.records.units(stage.name)) if units else set()
    missing = [f"the record of unit {unit} of stage {stage.name}" for unit in units if unit not in recorded_units]
    if missing:
        tell(f"{missing[0]} is missing: {len(missing)} units run again.", damage_warning(missing))
    return bool(units)


def restore_metadata(context: Context, stages: Sequence[Stage], tell: Tell) -> None:
    """Rewrite missing array metadata in a finished store."""
    cleared = tuple(f"{stage.clears}/" for stage in stages if stage.clears)
    for name, (shape, dtype, chunks) in shared_arrays(context, stages).items():
        path = context.store.path(name) / METADATA
        if not path.is_file() and not name.startswith(cleared):
            tell(f"{path} is missing: it is written again.", damage_warning([path]))
            with explain_write_errors(path):
                path.remove()
            context.store.create(name, shape, dtype, chunks)
