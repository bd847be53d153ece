"""Running the units of a stage that are not done: in bounded waves on a cluster, or one after the other here."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError, UnitError
from daskfs.execution.cluster import total_threads
from daskfs.execution.units import MEASURED, run_stored_unit, run_unit
from daskfs.plan.stages import MiB, Stage
from daskfs.store.context import Context

if TYPE_CHECKING:
    from distributed import Client

Report = Callable[[Stage, int, dict[str, Any]], None]
"""Called in the driver for every unit that finishes: stage, unit, facts."""

PER_THREAD = 2
"""Units in flight per thread: one runs while the next one waits, and a lost scheduler costs no more than these."""


def pending_units(context: Context, stage: Stage, stages: Sequence[Stage]) -> list[int]:
    """Return the units without a record that verifies, of a loop those of the round that it has come to; none where
    what they wrote has served, to judge by the stages of the plan: all that lie between and whose own results are there
    to stay are done.
    """
    names = [s.name for s in stages]
    if stage.needed_until in names:
        between = stages[names.index(stage.name) + 1 : names.index(stage.needed_until) + 1]
        # what one of these wrote may have served in turn
        others = [(s, stages if s.needed_until else ()) for s in between if s.needed_until != stage.needed_until]
        if not any(pending_units(context, s, later) for s, later in others):
            return []
    if not stage.loop:
        return _unrecorded(context, stage, 0)
    number, is_finished = reached_round(context, [s for s in stages if s.loop == stage.loop])
    return [] if is_finished else _unrecorded(context, stage, number)


def _unrecorded(context: Context, stage: Stage, number: int) -> list[int]:
    units = range(number * stage.n_units, (number + 1) * stage.n_units)
    return [unit for unit in units if not context.store.is_done(stage.name, unit, stage.fingerprint)]


def reached_round(context: Context, loop: Sequence[Stage]) -> tuple[int, bool]:
    """Return the round that the stages of a loop have come to, and whether the one before it was the last."""
    closing = loop[-1]
    number = context.store.n_recorded(closing.name) // closing.n_units
    while number > 0 and _unrecorded(context, closing, number - 1):  # what a damaged round wrote is made again
        number -= 1
    return number, number > 0 and _is_finished(context, closing, number - 1)


def rounds_done(context: Context, stage: Stage, stages: Sequence[Stage]) -> tuple[int, bool]:
    """Return how many rounds of the loop of a stage are done, and whether these are all, as they are where what they
    wrote has served.
    """
    loop = [s for s in stages if s.loop == stage.loop]
    if any(pending_units(context, s, stages) for s in loop):
        return reached_round(context, loop)
    n_rounds = context.store.n_recorded(loop[-1].name) // loop[-1].n_units
    return n_rounds, n_rounds > 0


def recorded_units(context: Context, stage: Stage) -> range:
    """Return the units of a stage that may have a record: of a loop those of all rounds, however far they came."""
    n_recorded = context.store.n_recorded(stage.name) if stage.loop else 0
    return range(max(stage.n_units, n_recorded))


def _is_finished(context: Context, closing: Stage, number: int) -> bool:
    units = range(number * closing.n_units, (number + 1) * closing.n_units)
    records = (context.store.read_record(closing.name, unit) or {} for unit in units)
    return all(record.get("facts", {}).get("finished", False) for record in records)


def run_stages(
    context: Context,
    stages: Sequence[Stage],
    client: Client | None,
    identity: str,
    report: Report,
    threads: int = 1,
    begin: Callable[[Stage, int], None] | None = None,
) -> None:
    """Run what is left of some stages, in order, loops until they have finished, and clear what has served.

    Parameters
    ----------
    context, client, identity, report, threads
        As :func:`run_stage` takes them.
    stages
        The stages, with their fingerprints.
    begin
        Told of every stage that has something left, with the number of its units; of a loop, once.
    """
    for loop, group in itertools.groupby(stages, lambda stage: stage.loop):
        some = list(group)
        if loop:
            _run_loop(context, some, stages, client, identity, report, threads, begin)
            continue
        for stage in some:
            if units := pending_units(context, stage, stages):
                if begin is not None:
                    begin(stage, len(units))
                run_stage(context, stage, units, client, identity, report, threads)
            if stage.clears:
                context.store.delete(stage.clears)


def _run_loop(
    context: Context,
    loop: Sequence[Stage],
    stages: Sequence[Stage],
    client: Client | None,
    identity: str,
    report: Report,
    threads: int,
    begin: Callable[[Stage, int], None] | None,
) -> None:
    if not any(pending_units(context, stage, stages) for stage in loop):
        return
    if begin is not None:
        begin(loop[0], loop[0].n_units)
    number, is_finished = reached_round(context, loop)
    while not is_finished:
        for stage in loop:
            units = _unrecorded(context, stage, number)
            run_stage(context, stage, units, client, identity, report, threads)
        for stage in loop:
            if stage.clears:
                context.store.delete(stage.clears.replace("{round}", str(number)).replace("{before}", str(number - 2)))
        is_finished = _is_finished(context, loop[-1], number)
        number += 1


def run_stage(
    context: Context,
    stage: Stage,
    units: Iterable[int],
    client: Client | None,
    identity: str,
    report: Report,
    threads: int = 1,
) -> None:
    """Run some units of a stage.

    Parameters
    ----------
    context
        Run store; on disk when there is a client.
    stage
        The stage, with its fingerprint.
    units
        Unit numbers.
    client
        Runs the units on its cluster; None runs them here.
    identity
        Identity of the plan, so that workers do not use one they remember.
    report
        Told of every finished unit.
    threads
        Without a client: units at a time, on Dask's threaded scheduler.
    """
    if client is None:
        _run_here(context, stage, units, threads, report)
        return
    _run_on_cluster(context, stage, iter(units), client, identity, report)


def _run_here(context: Context, stage: Stage, units: Iterable[int], threads: int, report: Report) -> None:
    if threads == 1:
        for unit in units:
            report(stage, unit, run_unit(context, stage, unit))
        return
    from dask.base import compute
    from dask.delayed import delayed

    run = delayed(run_unit, pure=False)
    remaining = iter(units)
    while wave := list(itertools.islice(remaining, PER_THREAD * threads)):
        tasks = [run(context, stage, unit) for unit in wave]
        for unit, facts in zip(wave, compute(*tasks, scheduler="threads", num_workers=threads), strict=True):
            report(stage, unit, facts)


def _run_on_cluster(
    context: Context, stage: Stage, units: Iterable[int], client: Client, identity: str, report: Report
) -> None:
    from distributed import CancelledError, KilledWorker, as_completed
    from distributed.scheduler import NoValidWorkerError

    remaining = iter(units)
    # other runs may share the scheduler, and an earlier call may have left results there: no key must find those
    call = uuid.uuid4().hex[:12]
    numbers: dict[str, int] = {}
    places = sorted(client.scheduler_info(n_workers=-1)["workers"]) if stage.loop else []

    def submit(unit: int) -> Any:
        future = client.submit(
            run_stored_unit,
            context.store.url,
            identity,
            stage.name,
            unit,
            key=f"{stage.name}-{unit}-{call}",
            # in every round a unit comes to the worker that may hold its rows
            workers=places[unit % stage.n_units % len(places)] if places else None,
            allow_other_workers=bool(places),
        )
        numbers[str(future.key)] = unit
        return future

    first = [submit(unit) for unit in itertools.islice(remaining, PER_THREAD * total_threads(client))]
    running = as_completed(first)
    try:
        for future in running:
            unit = numbers.pop(str(future.key))
            try:
                # what a unit did is in its record; to fetch it from a worker would take minutes if that died meanwhile
                if future.status != "finished":
                    future.result()
            except KilledWorker as error:
                raise UnitError(_killed(stage, unit)) from error
            except NoValidWorkerError as error:
                msg = f"no worker is left for unit {unit} of stage {stage.name}: {error}"
                raise ClusterError(msg) from error
            except CancelledError as error:
                msg = (
                    f"the cluster dropped unit {unit} of stage {stage.name}: the scheduler went away or the "
                    "client lost it."
                )
                raise ClusterError(msg) from error
            if not context.store.is_done(stage.name, unit, stage.fingerprint):
                msg = (
                    f"unit {unit} of stage {stage.name} left no record in {context.store.url}: do the workers share it?"
                )
                raise UnitError(msg)
            report(stage, unit, recorded_facts(context, stage, unit))
            for following in itertools.islice(remaining, 1):
                running.add(submit(following))
    finally:
        client.cancel(list(running.futures))


def recorded_facts(context: Context, stage: Stage, unit: int) -> dict[str, Any]:
    """Return what the record of a finished unit measured."""
    record = context.store.read_record(stage.name, unit) or {}
    return {name: record[name] for name in MEASURED if name in record}


def _killed(stage: Stage, unit: int) -> str:
    return (
        f"unit {unit} of stage {stage.name} was running each time its worker died. It was planned at "
        f"{stage.peak_bytes // MiB} MiB; "
        "if workers ran out of memory, raise cluster.memory_limit or start fewer workers."
    )
