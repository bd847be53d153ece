"""Running pending units of stages: a bounded number at a time on a cluster, or in this process."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

from daskfs.errors import ClusterError, DaskfsError, PassingError, UnitError
from daskfs.execution.collection_blocks import NO_COLLECTION_BLOCKS, Blocks, feed_of, telling_of_blocks
from daskfs.execution.in_flight import PER_THREAD, Flight
from daskfs.execution.pool import Pool
from daskfs.execution.retries import Retries
from daskfs.execution.signals import check_stopped
from daskfs.execution.unit_calls import Ended
from daskfs.kernels.threads import one_thread
from daskfs.sources.collection import given_blocks
from daskfs.stages.requirements import cannot_serve
from daskfs.stages.stage import Plan, Stage
from daskfs.stages.units import MEASURED, failure_message, is_within_unit, run_unit
from daskfs.store import layout
from daskfs.store.completeness import units_not_done
from daskfs.store.context import Context
from daskfs.store.seals import ROUND

Report = Callable[[Stage, int, dict[str, Any]], None]
"""Callback in the driver for every finished unit: stage, unit, facts."""


def pending_units(context: Context, stage: Stage, stages: Sequence[Stage]) -> list[int]:
    """Return the units without a valid record, of a loop those of its current round.

    Return none if their outputs are no longer needed: all stages up to `needed_until` that have another `needed_until`
    are done.
    """
    names = [s.name for s in stages]
    if stage.needed_until in names:
        between = stages[names.index(stage.name) + 1 : names.index(stage.needed_until) + 1]
        # outputs of the left-out stages may no longer be needed either
        others = [s for s in between if s.needed_until != stage.needed_until]
        if not any(pending_units(context, s, stages) for s in others):
            return []
    if not stage.loop:
        return _units_not_done(context, stage, 0, stages)
    number, is_finished = reached_round(context, stage.loop, stages)
    return [] if is_finished else _units_not_done(context, stage, number, stages)


def _units_not_done(context: Context, stage: Stage, number: int, stages: Sequence[Stage]) -> list[int]:
    units = range(number * stage.n_units, (number + 1) * stage.n_units)
    inputs = inputs_of(context, stage, number, stages)
    return units_not_done(context.store, stage.name, units, stage.fingerprint, inputs)


def inputs_of(context: Context, stage: Stage | None, number: int, stages: Sequence[Stage]) -> str | None:
    """Return the digest of all outputs before a round of a stage, or for stage None of all outputs.

    The digest identifies the inputs of the units of the round. It is None while some of the outputs are not recorded,
    and for a store in memory.
    """
    records = context.store.records
    if context.store.root is None:
        return None
    if stage is not None and stage.begins_with:
        stage = next(one for one in stages if one.name == stage.begins_with)
    inputs, position = context.tiles_seal(), 0
    before: dict[str, str] = {}
    for loop, group in itertools.groupby(stages, lambda one: one.loop):
        stages_of_loop = list(group)
        n_rounds = -(-records.n_units(stages_of_loop[-1].name) // stages_of_loop[-1].n_units) if loop else 1
        is_last = stage is not None and stage.name in [one.name for one in stages_of_loop]
        if n_rounds == 0 and not is_last:
            return None
        for i, one in itertools.product(range(number + 1 if is_last else n_rounds), stages_of_loop):
            if stage is not None and (one.name, i) == (stage.name, number):
                return inputs
            before.setdefault(one.name, inputs)
            label = f"{one.name}{ROUND}{i}" if loop else one.name
            units = range(i * one.n_units, (i + 1) * one.n_units)
            recorded = records.matching(one.name, units, one.fingerprint, before.get(one.begins_with, inputs))
            sealed = context.store.seals.seal(position, inputs, label, recorded, len(units))
            if sealed is None:
                return None
            inputs, position = sealed.after, position + 1
    return inputs


def rebuild_seals(context: Context) -> None:
    """Make seals that are lost or damaged in memory, from records, for a process that reads a finished run."""
    for store in dict.fromkeys((context.tiles_store, context.store)):
        if store.seals.damaged() and (raw := store.read_json(layout.PLAN_JSON)):
            own_context = context if store is context.store else Context(store)
            inputs_of(own_context, None, 0, Plan.from_json(raw, store.url).stages)


def reached_round(context: Context, loop: str, stages: Sequence[Stage]) -> tuple[int, bool]:
    """Return the current round of a loop, and whether the round before it was the last."""
    closing = next(stage for stage in reversed(stages) if stage.loop == loop)
    number, _ = ended_rounds(context, loop, stages)
    while number > 0 and _units_not_done(context, closing, number - 1, stages):  # repeat a damaged round
        number -= 1
    return number, number > 0 and _is_finished(context, closing, number - 1)


def ended_rounds(context: Context, loop: str, stages: Sequence[Stage]) -> tuple[int, bool]:
    """Return the number of recorded rounds of a loop, and whether the loop finished with the last of them."""
    closing = next(stage for stage in reversed(stages) if stage.loop == loop)
    number = context.store.records.n_units(closing.name) // closing.n_units
    return number, number > 0 and _is_finished(context, closing, number - 1)


def rounds_done(context: Context, stage: Stage, stages: Sequence[Stage]) -> int:
    """Return the number of finished rounds of the loop of a stage."""
    is_pending = any(pending_units(context, s, stages) for s in stages if s.loop == stage.loop)
    return (reached_round if is_pending else ended_rounds)(context, stage.loop, stages)[0]


def recorded_units(context: Context, stage: Stage) -> range:
    """Return the units of a stage that may have a record; of a loop those of all rounds, complete or not."""
    n_recorded = context.store.records.n_units(stage.name) if stage.loop else 0
    return range(max(stage.n_units, n_recorded))


def _is_finished(context: Context, closing: Stage, number: int) -> bool:
    units = range(number * closing.n_units, (number + 1) * closing.n_units)
    records = context.store.records.each(closing.name, units)
    return all((record or {}).get("facts", {}).get("finished", False) for record in records)


def run_stages(
    context: Context,
    stages: Sequence[Stage],
    pool: Pool,
    identity: str,
    report: Report,
    begin: Callable[[Stage, int], None] | None = None,
) -> None:
    """Run the pending units of stages, in order, loops until they finish, and delete outputs no longer needed.

    Other parameters are those of :func:`run_stage`. `begin` is called for every stage with pending units, with their
    number; once for a loop.
    """

    def asked(stage: Stage) -> list[int]:
        units = pending_units(context, stage, stages)
        if units and begin is not None:
            begin(stage, len(units))
        return units

    with ExitStack() as stack:
        beside: dict[str, _OnCluster] = {}
        for loop, group in itertools.groupby(stages, lambda stage: stage.loop):
            stages_of_loop = list(group)
            for stage in stages_of_loop[:1] if loop else stages_of_loop:
                for early in (one for one in stages if one.begins_with == stage.name):
                    if units := asked(early):
                        inputs = inputs_of(context, early, 0, stages)
                        if pool.client is None:
                            run_stage(context, early, units, pool, identity, report, inputs)
                        else:
                            early_units = _OnCluster(context, early, units, pool, identity, report, inputs)
                            beside[early.name] = stack.enter_context(early_units)
                if loop:
                    _run_loop(context, stages_of_loop, stages, pool, identity, report, begin, beside.values())
                    continue
                if stage.name in beside:
                    beside.pop(stage.name).finish(beside.values())
                elif units := asked(stage):
                    inputs = inputs_of(context, stage, 0, stages)
                    run_stage(context, stage, units, pool, identity, report, inputs, beside.values())
                if stage.clears:
                    context.store.delete(stage.clears)
    inputs_of(context, None, 0, stages)
    context.enter(None)


def _run_loop(
    context: Context,
    loop: Sequence[Stage],
    stages: Sequence[Stage],
    pool: Pool,
    identity: str,
    report: Report,
    begin: Callable[[Stage, int], None] | None,
    beside: Collection[_OnCluster],
) -> None:
    if not any(pending_units(context, stage, stages) for stage in loop):
        return
    if begin is not None:
        begin(loop[0], loop[0].n_units)
    number, is_finished = reached_round(context, loop[0].loop, stages)
    while not is_finished:
        for stage in loop:
            units = _units_not_done(context, stage, number, stages)
            inputs = inputs_of(context, stage, number, stages)
            run_stage(context, stage, units, pool, identity, report, inputs, beside)
        for stage in loop:
            if stage.clears:
                context.store.delete(stage.clears.replace("{round}", str(number)).replace("{before}", str(number - 2)))
        is_finished = _is_finished(context, loop[-1], number)
        number += 1


def run_stage(
    context: Context,
    stage: Stage,
    units: Iterable[int],
    pool: Pool,
    identity: str,
    report: Report,
    inputs: str | None = None,
    beside: Collection[_OnCluster] = (),
) -> None:
    """Run some units of a stage, of a loop those of one round.

    The store is not in memory if the pool has a client. `identity` is that of the plan, so that workers do not use a
    cached one; `report` is called for every finished unit; `inputs` are the result of :func:`inputs_of`; the stages
    `beside` run meanwhile.

    Raises
    ------
    DaskfsError
        As a unit raised it; :class:`UnitError` for one whose worker died each time, or that left no record, and, after
        all others are done, for those with a transient failure in every attempt; :class:`ClusterError` if the scheduler
        or all workers are gone.
    """
    units = list(units)
    if pool.client is None:
        _run_here(context, stage, units, pool, _begin_units(context, stage, units, report), inputs)
        context.store.records.close(stage.name)
        return
    with _OnCluster(context, stage, units, pool, identity, report, inputs) as running:
        running.finish(beside)


def _begin_units(context: Context, stage: Stage, units: Sequence[int], report: Report) -> Report:
    """Begin some units of a stage, and return a callback that also keeps their records together."""
    check_stopped()
    store = context.store
    if units:  # their outputs may differ from the last ones
        store.seals.unseal(f"{stage.name}{ROUND}{units[0] // stage.n_units}" if stage.loop else stage.name)

    def recorded(stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        store.records.merge(stage.name)
        report(stage, unit, facts)

    return recorded


def _run_here(
    context: Context, stage: Stage, units: Sequence[int], pool: Pool, report: Report, inputs: str | None
) -> None:
    retries, remaining, feed = Retries(), iter(units), feed_of(stage, units, None)
    while True:
        now = time.monotonic()
        n_units = pool.threads if feed else PER_THREAD * pool.threads  # whose blocks are in this process
        wave = [*retries.take_due(now), *itertools.islice(remaining, n_units)]
        blocks = [NO_COLLECTION_BLOCKS] * len(wave) if feed is None else feed.take(wave)
        for unit in wave:
            pool.tell("", "unit_started", stage=stage.name, unit=unit)
        for unit, outcome in _try_units(context, stage, wave, blocks, pool.threads, inputs):
            if isinstance(outcome, PassingError):
                text = retries.set_aside(unit, outcome, time.monotonic())
                pool.tell(text, "retry", stage=stage.name, unit=unit, file=outcome.failure)
            elif isinstance(outcome, DaskfsError):
                raise outcome
            else:
                report(stage, unit, outcome)
                if feed is not None:
                    feed.done(unit)
        if not wave:
            if (due := retries.next_due) is None:
                break
            threading.Event().wait(due - now)
            check_stopped()
    retries.check()


Tried = dict[str, Any] | DaskfsError
"""Facts of a unit, or its error."""


def _try_units(
    context: Context, stage: Stage, units: Sequence[int], blocks: Sequence[Blocks], threads: int, inputs: str | None
) -> Iterable[tuple[int, Tried]]:
    """Run some units and yield facts or error of each; with several threads, errors come last."""
    threads = min(threads, len(units))
    if threads <= 1:
        return ((unit, _try(context, stage, unit, block, inputs)) for unit, block in zip(units, blocks, strict=True))
    # units limit BLAS to one thread, and restore what they found: around all of them, that is one thread again
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        attempts = zip(units, pool.map(partial(_try, context, stage, inputs=inputs), units, blocks), strict=True)
        return sorted(attempts, key=lambda pair: isinstance(pair[1], DaskfsError))


def _try(context: Context, stage: Stage, unit: int, blocks: Blocks, inputs: str | None) -> Tried:
    """Run a unit and return its facts or error; within another unit raise the error, so that the outer one retries."""
    try:
        with given_blocks(*blocks):
            return run_unit(context, stage, unit, inputs)
    except DaskfsError as error:
        if is_within_unit():
            raise
        return error


class _OnCluster(AbstractContextManager["_OnCluster"]):
    """Units of a stage in flight on a cluster. Parameters are those of :func:`run_stage`."""

    def __init__(
        self,
        context: Context,
        stage: Stage,
        units: Sequence[int],
        pool: Pool,
        identity: str,
        report: Report,
        inputs: str | None,
    ) -> None:
        self._context, self._stage = context, stage
        self._report = _begin_units(context, stage, units, report)
        self._flight = Flight(context, stage, units, pool, identity, inputs)
        self._flight.fill()

    def finish(self, beside: Iterable[_OnCluster]) -> None:
        """Wait until no unit is in flight, and handle those of other stages that end meanwhile."""
        flight = self._flight
        while flight.is_under_way:
            self._handle(flight.next_ended())
            for other in beside:
                try:
                    other.advance()
                except DaskfsError as error:
                    flight.stop(error)
        flight.check()
        self._context.store.records.close(self._stage.name)

    def advance(self) -> None:
        """Handle the units that have ended; raise the error that stopped the stage."""
        while self._flight.is_under_way and (ended := self._flight.next_ended(wait=False)):
            self._handle(ended)
        self._flight.check()

    def _handle(self, ended: Ended | None) -> None:
        from distributed import CancelledError, KilledWorker
        from distributed.scheduler import NoValidWorkerError

        if ended is None:
            return
        context, stage, flight = self._context, self._stage, self._flight
        unit, record = ended.unit, ended.record
        try:
            if ended.failed is not None:
                with telling_of_blocks() if flight.is_fed else nullcontext():
                    ended.failed.result()
            elif record is None:
                url = context.store.url
                msg = f"unit {unit} of stage {stage.name} left no record in {url}: do the workers share it?"
                raise UnitError(msg)
        except KilledWorker as error:
            flight.resubmit(unit, error.allowed_failures + 1, error.last_worker)
        except NoValidWorkerError as error:
            msg = f"no worker is left for unit {unit} of stage {stage.name}: {error}"
            raise ClusterError(msg) from error
        except (ImportError, AttributeError, TypeError) as error:
            # from the code that runs units; a unit's own error is a UnitError
            raise ClusterError(cannot_serve(error)) from error
        except CancelledError as error:
            flight.put_back(unit, error)
        except PassingError as error:
            flight.set_aside(unit, error)
        except OSError as error:  # before the unit itself began
            flight.set_aside(unit, PassingError(failure_message(stage, unit, error)))
        except DaskfsError as error:
            flight.stop(error)
        else:
            assert record is not None
            flight.pace.add(float(record.get("seconds", 0.0)))
            self._report(stage, unit, {name: record[name] for name in MEASURED if name in record})

    def __exit__(self, *_: object) -> None:
        self._flight.release()
