"""One unit of a stored plan, run in this process without a trace in its run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from daskfs.errors import JobError, StoreError, nearest
from daskfs.execution.submission import recorded_units
from daskfs.runs.status import stored_stages
from daskfs.stages import units
from daskfs.stages.stage import Stage
from daskfs.storage import as_path
from daskfs.store.addresses import url_of
from daskfs.store.completeness import units_not_done
from daskfs.store.context import Context, planned_tiles
from daskfs.store.layout import PLAN_JSON
from daskfs.store.overlay import Overlay
from daskfs.store.store import Store
from daskfs.store.tiles import Tiles


def run_unit(run: str | Path, stage: str, number: int) -> dict[str, Any]:
    """Run one unit of a run, or of a tile store, whether it is recorded or not.

    Reads come from the run, writes go to a temporary directory, and no lock is taken, so the run stays as it is, and
    may go on meanwhile. Stages whose outputs were deleted since, and are needed, run again before it in the same way.

    Parameters
    ----------
    run
        Directory or URL of the run, or of a tile store that is filled.
    stage
        Name of the stage, as ``daskfs status`` lists it.
    number
        Number of the unit, from 0; of a loop with n units in each round, unit i of round r is r * n + i.

    Returns
    -------
    dict
        Seconds, bytes read and written, and peak memory of the unit in bytes.

    Raises
    ------
    JobError
        If there is no such stage or unit.
    StoreError
        If there is no run, or a stage before this one is not done.
    DaskfsError
        As the unit raises it, with the error that it began with as its cause.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import daskfs
    >>> job = {"data": {"source": "sklearn:iris"}, "methods": ["VarianceScore"], "evaluate": None}
    >>> with TemporaryDirectory() as folder:
    ...     _ = daskfs.run({**job, "output": {"path": f"{folder}/iris"}, "cluster": {"workers": 0}})
    ...     measured = daskfs.run_unit(f"{folder}/iris", "score", 0)
    >>> sorted(measured)[:4]
    ['bytes_read', 'bytes_written', 'computed_by', 'ended']
    """
    url, parts = str(as_path(run)), stored_stages(Store(as_path(run)))
    of_names = {one.name: (base, stages, one) for base, stages in parts for one in stages}
    if stage not in of_names:
        names = list(of_names)
        msg = f"{url} has no stage {stage!r}; stages: {', '.join(names) or 'none yet'}.{nearest(stage, names)}"
        raise JobError(msg)
    base, stages, planned = of_names[stage]
    if number < 0 or (number >= planned.n_units and not planned.loop):
        msg = f"stage {stage} has units 0 to {planned.n_units - 1}, and no unit {number}."
        raise JobError(msg)
    with TemporaryDirectory(prefix="daskfs-unit-") as folder:
        context = _context(base, Path(folder))
        for one, numbers in _cleared_units(base, stages, planned, number):
            units.create_arrays(context, [one])
            for earlier in numbers:
                units.run_unit(context, one, earlier)
        units.create_arrays(context, [planned])
        return units.run_unit(context, planned, number)


def _context(base: Store, folder: Path) -> Context:
    plan = base.read_json(PLAN_JSON)
    overlay_folders = [folder / "run", folder / "tiles"]
    for path in overlay_folders:
        path.mkdir()
    store = Overlay(base, overlay_folders[0])
    url = url_of(plan["tiles_url"], base.url)
    if url == base.url:  # its units write the tiles
        return Context(store)
    tiles = planned_tiles(url, plan["tiles_fingerprint"], base.url)
    return Context(store, Tiles(Overlay(tiles.store, overlay_folders[1]), tiles.info))


def _cleared_units(base: Store, stages: Sequence[Stage], stage: Stage, unit: int) -> list[tuple[Stage, Sequence[int]]]:
    """Return the units before a unit whose outputs it needs and that were deleted since, in order."""
    order = {one.name: i for i, one in enumerate(stages)}
    cleared_units: list[tuple[Stage, Sequence[int]]] = []
    first = order[stage.name]
    for one, numbers in reversed(list(_before(base, stages, stage, unit))):
        last = order.get(one.needed_until, len(stages))
        if last < first and one.loop != stage.loop:
            continue
        missing = units_not_done(base, one.name, numbers, one.fingerprint)
        if pending := [number for number in missing if number not in base.records.units(one.name)]:
            msg = (
                f"unit {unit} of stage {stage.name} needs stage {one.name}, of which {len(pending)} units are not "
                "done: 'daskfs run' runs them."
            )
            raise StoreError(msg)
        if missing:  # all of them: their arrays are created anew
            cleared_units.append((one, numbers))
            first = min(first, order[one.name])
    return cleared_units[::-1]


def _before(base: Store, stages: Sequence[Stage], stage: Stage, unit: int) -> Iterator[tuple[Stage, Sequence[int]]]:
    """Yield the stages before a unit with their units, those of loops round by round."""
    context, number = Context(base), unit // stage.n_units
    names = [one.name for one in stages]
    first = names.index(stage.begins_with or stage.name)
    for loop, group in itertools.groupby(stages, lambda one: one.loop):
        together = list(group)
        if not loop:
            early = together[: max(0, first - names.index(together[0].name))]
            yield from ((one, range(one.n_units)) for one in early)
            continue
        is_own = loop == stage.loop
        if first < names.index(together[0].name):
            return
        for i in range(number + 1 if is_own else len(recorded_units(context, together[-1])) // together[-1].n_units):
            for one in together[: together.index(stage)] if is_own and i == number else together:
                yield one, range(i * one.n_units, (i + 1) * one.n_units)
