"""Running the units of a stage that are not done: in bounded waves on a cluster, or one after the other here."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError, UnitError
from daskfs.execution.cluster import Pool, lost_scheduler
from daskfs.execution.stopping import check_stopped
from daskfs.execution.units import MEASURED, run_stored_unit, run_unit
from daskfs.plan.stages import MiB, Stage
from daskfs.store.context import Context

if TYPE_CHECKING:
    from distributed import Future

Report = Callable[[Stage, int, dict[str, Any]], None]
"""Called in the driver for every unit that finishes: stage, unit, facts."""

PER_THREAD = 2
"""Units in flight per thread: one runs while the next one waits, and a lost scheduler costs no more than these."""
LOOK_SECONDS = 2.0
"""How often the driver looks after the cluster."""


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
    pool: Pool,
    identity: str,
    report: Report,
    begin: Callable[[Stage, int], None] | None = None,
) -> None:
    """Run what is left of some stages, in order, loops until they have finished, and clear what has served.

    Parameters
    ----------
    context, pool, identity, report
        As :func:`run_stage` takes them.
    stages
        The stages, with their fingerprints.
    begin
        Told of every stage that has something left, with the number of its units; of a loop, once.
    """
    for loop, group in itertools.groupby(stages, lambda stage: stage.loop):
        some = list(group)
        if loop:
            _run_loop(context, some, stages, pool, identity, report, begin)
            continue
        for stage in some:
            if units := pending_units(context, stage, stages):
                if begin is not None:
                    begin(stage, len(units))
                run_stage(context, stage, units, pool, identity, report)
            if stage.clears:
                context.store.delete(stage.clears)


def _run_loop(
    context: Context,
    loop: Sequence[Stage],
    stages: Sequence[Stage],
    pool: Pool,
    identity: str,
    report: Report,
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
            run_stage(context, stage, units, pool, identity, report)
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
    pool
        What the units run on.
    identity
        Identity of the plan, so that workers do not use one they remember.
    report
        Told of every finished unit.

    Raises
    ------
    DaskfsError
        As a unit raised it; :class:`UnitError` for one whose worker died each time, or that left no record;
        :class:`ClusterError` when the scheduler or all workers are gone.
    """
    check_stopped()
    if pool.client is None:
        _run_here(context, stage, units, pool.threads, report)
        return
    _run_on_cluster(context, stage, iter(units), pool, identity, report)


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
    context: Context, stage: Stage, units: Iterable[int], pool: Pool, identity: str, report: Report
) -> None:
    from distributed import CancelledError, KilledWorker
    from distributed.scheduler import NoValidWorkerError

    remaining = iter(units)
    flight = _Flight(context, stage, pool, identity)
    try:
        for unit in itertools.islice(remaining, flight.room):
            flight.submit(unit)
        while flight.is_under_way:
            unit, future = flight.next_ended()
            try:
                # what a unit did is in its record: a result that was lost with its worker is not waited for
                if future.status in ("error", "cancelled"):
                    future.result()
            except KilledWorker as error:
                raise UnitError(_killed(stage, unit)) from error
            except NoValidWorkerError as error:
                msg = f"no worker is left for unit {unit} of stage {stage.name}: {error}"
                raise ClusterError(msg) from error
            except CancelledError as error:
                msg = f"the cluster dropped unit {unit} of stage {stage.name}: {lost_scheduler(error)}"
                raise ClusterError(msg) from error
            if not context.store.is_done(stage.name, unit, stage.fingerprint):
                msg = (
                    f"unit {unit} of stage {stage.name} left no record in {context.store.url}: do the workers share it?"
                )
                raise UnitError(msg)
            report(stage, unit, recorded_facts(context, stage, unit))
            for following in itertools.islice(remaining, 1):
                flight.submit(following)
    finally:
        flight.release()


class _Flight:
    """Units of one stage that a cluster has been asked for. Who waits for the next one looks after the cluster."""

    def __init__(self, context: Context, stage: Stage, pool: Pool, identity: str) -> None:
        self._context, self._stage, self._pool, self._identity = context, stage, pool, identity
        workers = pool.workers()
        self.room = PER_THREAD * max(1, sum(workers.values()))
        self._places = sorted(workers) if stage.loop else []
        # other runs may share the scheduler, and an earlier call may have left results there: no key must find those
        self._call, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        self._running: dict[str, tuple[int, Future[Any], str | None]] = {}
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()
        self._looked = self._seen = time.monotonic()

    @property
    def is_under_way(self) -> bool:
        """Whether any unit is."""
        return bool(self._running)

    def submit(self, unit: int, *, anywhere: bool = False) -> None:
        """Ask for a unit: of a loop from the worker that may hold its rows, as it comes there in every round, unless it
        may come anywhere.
        """
        assert self._pool.client is not None
        places = [] if anywhere else self._places
        place = places[unit % self._stage.n_units % len(places)] if places else None
        future = self._pool.client.submit(
            run_stored_unit,
            self._context.store.url,
            self._identity,
            self._stage.name,
            unit,
            key=f"{self._stage.name}-{unit}-{self._call}-{next(self._numbers)}",
            workers=place,
            allow_other_workers=place is not None,
        )
        self._running[str(future.key)] = (unit, future, place)
        future.add_done_callback(self._ended.put)

    def next_ended(self) -> tuple[int, Future[Any]]:
        """Return the next unit that ended, and its future.

        Raises
        ------
        ClusterError
            When the scheduler is lost, or there has been no worker for long.
        """
        while True:
            left = self._looked + min(LOOK_SECONDS, self._pool.patience) - time.monotonic()
            if left <= 0:
                self._look()
                continue
            with suppress(Empty):
                key = str(self._ended.get(timeout=left).key)
                if key in self._running:
                    unit, future, _ = self._running.pop(key)
                    return unit, future

    def release(self) -> None:
        """Let the scheduler forget what is still under way; unlike to cancel, this waits for no answer of one that may
        be gone.
        """
        for _, future, _ in self._running.values():
            future.release()

    def _look(self) -> None:
        check_stopped()
        workers = self._pool.workers()
        self._looked = time.monotonic()
        if workers:
            self._seen = self._looked
            self._free(workers)
        elif self._looked - self._seen > self._pool.patience:
            msg = (
                f"the cluster has had no worker for {self._pool.patience:g} s (cluster.wait_seconds): see why its "
                "workers ended and start some; the same command goes on from what is recorded."
            )
            raise ClusterError(msg)
        if len(workers) < self._pool.n_own:
            self._pool.complete()

    def _free(self, workers: Collection[str]) -> None:
        """Ask again, from any worker, for units that no worker has and whose own one is gone.

        The scheduler has given these to others, if there were any. If there were none, it keeps them for the one that
        is gone, whoever comes.
        """
        if all(place is None or place in workers for _, _, place in self._running.values()):
            return
        known = self._pool.processing()
        for key, (unit, future, place) in list(self._running.items()):
            if place is not None and place not in workers and key not in known and future.status == "pending":
                del self._running[key]
                future.release()
                self.submit(unit, anywhere=True)


def recorded_facts(context: Context, stage: Stage, unit: int) -> dict[str, Any]:
    """Return what the record of a finished unit measured."""
    record = context.store.read_record(stage.name, unit) or {}
    return {name: record[name] for name in MEASURED if name in record}


def _killed(stage: Stage, unit: int) -> str:
    return (
        f"unit {unit} of stage {stage.name} was running, or next, on each of the workers that died. A unit of this "
        f"stage was planned at {stage.peak_bytes // MiB} MiB; "
        "if workers ran out of memory, raise cluster.memory_limit or start fewer workers."
    )
