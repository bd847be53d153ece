"""Running the units of a stage that are not done: in bounded waves on a cluster, or one after the other here."""

from __future__ import annotations

import itertools
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import Future as Found
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError, DaskfsError, PassingError, UnitError
from daskfs.execution.cluster import Pool, lost_scheduler
from daskfs.execution.requirements import cannot_serve, installed
from daskfs.execution.pace import Pace
from daskfs.execution.retries import Retries
from daskfs.execution.stopping import check_stopped
from daskfs.execution.units import MEASURED, failed, is_within_unit, run_stored_unit, run_unit
from daskfs.places import access_rows, at_once
from daskfs.plan.stages import MiB, Stage
from daskfs.store.context import Context
from daskfs.store.store import Record

if TYPE_CHECKING:
    from distributed import Future

Report = Callable[[Stage, int, dict[str, Any]], None]
"""Called in the driver for every unit that finishes: stage, unit, facts."""

PER_THREAD = 2
"""Units that a worker has per thread: one runs while the next one waits; its death counts for no more than these."""
QUEUED = 16
"""Units asked for beyond these, which wait in the scheduler: adaptive clusters start workers for them, no death of a
worker counts for them, and a worker that joins has some to begin with.
"""
LOOK_SECONDS = 2.0
"""How often the driver looks after the cluster."""


def room(threads: int, *, is_placed: bool = False) -> int:
    """Return how many units to keep in flight on some threads; units that are meant for one worker wait there, where
    its death counts for them, so no more of them are asked for than it needs.
    """
    return PER_THREAD * max(1, threads) + (0 if is_placed else QUEUED)


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
    return context.store.not_done(stage.name, units, stage.fingerprint)


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
    records = context.store.records(closing.name, units)
    return all((record or {}).get("facts", {}).get("finished", False) for record in records)


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
        As a unit raised it; :class:`UnitError` for one whose worker died each time, or that left no record, and, when
        all others are done, for those whose failures were taken to pass and did not;
        :class:`ClusterError` when the scheduler or all workers are gone.
    """
    check_stopped()
    if pool.client is None:
        _run_here(context, stage, units, pool, report)
        return
    _run_on_cluster(context, stage, units, pool, identity, report)


def _run_here(context: Context, stage: Stage, units: Iterable[int], pool: Pool, report: Report) -> None:
    retries, remaining = Retries(), iter(units)
    while True:
        now = time.monotonic()
        wave = [*retries.take_due(now), *itertools.islice(remaining, PER_THREAD * pool.threads)]
        for unit, found in _tried(context, stage, wave, pool.threads):
            if isinstance(found, PassingError):
                pool.tell(retries.set_aside(unit, found, time.monotonic()))
            elif isinstance(found, DaskfsError):
                raise found
            else:
                report(stage, unit, found)
        if not wave:
            if (due := retries.next_due) is None:
                break
            threading.Event().wait(due - now)
            check_stopped()
    retries.check()


Tried = dict[str, Any] | DaskfsError
"""The facts of a unit, or why it has none."""


def _tried(context: Context, stage: Stage, units: Sequence[int], threads: int) -> Iterable[tuple[int, Tried]]:
    """Yield what becomes of some units, of several threads those first that are done."""
    if threads == 1:
        return ((unit, _try(context, stage, unit)) for unit in units)
    from dask.base import compute
    from dask.delayed import delayed

    tasks = [delayed(_try, pure=False)(context, stage, unit) for unit in units]
    found = zip(units, compute(*tasks, scheduler="threads", num_workers=threads), strict=True)
    return sorted(found, key=lambda pair: isinstance(pair[1], DaskfsError))


def _try(context: Context, stage: Stage, unit: int) -> Tried:
    """Run a unit; one within another unit leaves it to that one to be tried again."""
    try:
        return run_unit(context, stage, unit)
    except DaskfsError as error:
        if is_within_unit():
            raise
        return error


def _run_on_cluster(
    context: Context, stage: Stage, units: Iterable[int], pool: Pool, identity: str, report: Report
) -> None:
    from distributed import CancelledError, KilledWorker
    from distributed.scheduler import NoValidWorkerError

    flight = _Flight(context, stage, units, pool, identity)
    try:
        flight.fill()
        while flight.is_under_way:
            unit, future, record = flight.next_ended()
            try:
                # what a unit did is in its record: a result that was lost with its worker is not waited for
                if future.status in ("error", "cancelled"):
                    future.result()
                elif record is None:
                    raise UnitError(_left_nothing(context, stage, unit))
            except KilledWorker as error:
                flight.resubmit(unit, error.allowed_failures + 1)
            except NoValidWorkerError as error:
                msg = f"no worker is left for unit {unit} of stage {stage.name}: {error}"
                raise ClusterError(msg) from error
            except (
                ImportError,
                AttributeError,
                TypeError,
            ) as error:  # of what runs a unit; a unit's own is a UnitError
                raise ClusterError(cannot_serve(error)) from error
            except CancelledError as error:
                msg = f"the cluster dropped unit {unit} of stage {stage.name}: {lost_scheduler(error)}"
                raise ClusterError(msg) from error
            except PassingError as error:
                flight.set_aside(unit, error)
            except OSError as error:  # before the unit itself began
                flight.set_aside(unit, PassingError(failed(stage, unit, error)))
            except DaskfsError as error:
                flight.stop(error)
            else:
                assert record is not None
                flight.pace.add(float(record.get("seconds", 0.0)))
                report(stage, unit, {name: record[name] for name in MEASURED if name in record})
        flight.check()
    finally:
        flight.release()


@dataclass(frozen=True)
class _Asked:
    """A unit that the cluster was asked for, and the workers that it is meant for, none where any may run it."""

    unit: int
    future: Future[Any]
    places: Sequence[str]


@dataclass(frozen=True)
class _Looked:
    """A unit that ended, and what was found of it in the store."""

    unit: int
    future: Future[Any]
    found: Found[Record | None] | None = None


class _Flight:
    """Units of one stage that a cluster has been asked for. Who waits for the next one looks after the cluster.

    What an ended unit left is looked at in threads, while others follow: a store answers after a while, and that
    while would pass for one unit after the other.
    """

    def __init__(self, context: Context, stage: Stage, units: Iterable[int], pool: Pool, identity: str) -> None:
        self._context, self._stage, self._pool, self._identity = context, stage, pool, identity
        self._remaining = deque(units)
        self._retries, self._apart = Retries(), dict[int, str]()
        self._problem: DaskfsError | None = None
        self._deadline = math.inf
        self._count(*pool.heard())
        # other runs may share the scheduler, and an earlier call may have left results there: no key must find those
        self._call, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        self._running: dict[str, _Asked] = {}
        self.pace, self._told, self._copied = Pace(), set[int](), set[int]()
        self._ended: SimpleQueue[Future[Any] | _Looked] = SimpleQueue()
        self._readers = ThreadPoolExecutor(at_once(context.store.root), thread_name_prefix="daskfs-records")
        self._n_looked_at = 0
        self._looked = self._seen = time.monotonic()

    @property
    def is_under_way(self) -> bool:
        """Whether any unit is."""
        return bool(self._running or self._n_looked_at or self._retries.next_due is not None)

    def _count(self, workers: Mapping[str, int], silent: Set[str]) -> None:
        """Take up how many units the workers have room for, and which ones those of a loop may come to."""
        self._workers, self._silent = workers, silent
        self._places = self._pool.places.of(self._stage.n_units, workers) if self._stage.loop else ()
        self._room = room(sum(workers.values()), is_placed=bool(self._places or silent))

    def fill(self) -> None:
        """Ask for as many units as workers have room for."""
        while self._remaining and len(self._running) < self._room:
            self._submit(self._remaining.popleft())

    def _submit(self, unit: int, *, anywhere: bool = False, copied: str = "") -> None:
        """Ask for a unit: of a loop from the worker that may hold its rows, as it comes there in every round, unless it
        may come anywhere; one that failed, or is a copy, from other workers than the one where it did or runs; and
        nothing from workers that are silent.
        """
        assert self._pool.client is not None
        places: list[str] = []
        if apart := self._apart.pop(unit, copied):
            places = [worker for worker in self._workers if worker != apart]
        elif self._places and not anywhere:
            places = [self._places[unit % self._stage.n_units]]
        if self._silent:
            places = places or list(self._workers)
        future = self._pool.client.submit(
            run_stored_unit,
            self._context.store.url,
            self._identity,
            self._stage.name,
            unit,
            access_rows(),
            installed(),
            is_joined=not self._pool.n_own,
            key=f"{self._stage.name}-{unit}-{self._call}-{next(self._numbers)}",
            workers=places or None,
            allow_other_workers=bool(places) and not (copied or self._silent),
        )
        self._running[str(future.key)] = _Asked(unit, future, places)
        future.add_done_callback(self._ended.put)

    def next_ended(self) -> tuple[int, Future[Any], Record | None]:
        """Return the next unit that ended, its future, and its record where it is done.

        Raises
        ------
        ClusterError
            When the scheduler is lost, or there has been no worker for long.
        """
        while True:
            now = time.monotonic()
            if self._problem is not None and now > self._deadline:
                raise self._problem
            for unit in self._retries.take_due(now):
                self._submit(unit)
            left = self._looked + min(LOOK_SECONDS, self._pool.patience) - now
            if left <= 0:
                self._look()
                continue
            left = min(left, max(0.0, (self._retries.next_due or math.inf) - now))
            with suppress(Empty):
                ended = self._ended.get(timeout=left)
                if isinstance(ended, _Looked):
                    self._n_looked_at -= 1
                    return ended.unit, ended.future, None if ended.found is None else ended.found.result()
                if (key := str(ended.key)) in self._running:
                    asked = self._running.pop(key)
                    self.pace.end(key, now)
                    if self._counts(asked):
                        self._look_at(asked.unit, asked.future)
                    self.fill()

    def _counts(self, asked: _Asked) -> bool:
        """Return whether an end counts: of a unit that was asked for twice the first that is done, or the last."""
        others = [k for k, a in self._running.items() if a.unit == asked.unit] if asked.unit in self._copied else []
        if others and asked.future.status != "finished":
            return False
        for key in others:
            self._pool.leave(self._running.pop(key).future)
        return True

    def _look_at(self, unit: int, future: Future[Any]) -> None:
        self._n_looked_at += 1
        if future.status in ("error", "cancelled"):
            self._ended.put(_Looked(unit, future))
            return
        store, stage = self._context.store, self._stage
        found = self._readers.submit(store.fresh_record, stage.name, unit, stage.fingerprint)
        found.add_done_callback(lambda found: self._ended.put(_Looked(unit, future, found)))

    def set_aside(self, unit: int, error: PassingError) -> None:
        """Let a unit come again after a while, on another worker, while others go on."""
        self._apart[unit] = error.worker
        self._pool.tell(self._retries.set_aside(unit, error, time.monotonic()))
        if self._problem is not None:
            self._retries.forget()

    def resubmit(self, unit: int, n_deaths: int) -> None:
        """Ask again for a unit whose workers died, unless as many have died as ours may."""
        if self._retries.survives(unit, n_deaths) and self._problem is None:
            self._submit(unit, anywhere=True)
        else:
            self.stop(UnitError(_killed(self._stage, unit)))

    def stop(self, problem: DaskfsError) -> None:
        """Ask for nothing more. What workers have is waited for, as long as a cluster may be without any: it is done
        and to stay.
        """
        if self._problem is not None:
            return
        self._problem = problem
        self._remaining.clear()
        self._deadline = time.monotonic() + self._pool.patience
        self._retries.forget()
        known = self._pool.processing()
        for key, asked in list(self._running.items()):
            if key not in known and asked.future.status == "pending":
                del self._running[key]
                asked.future.release()
        if self._running:
            self._pool.tell(f"{problem}; waiting for {len(self._running)} units that run or are next")

    def check(self) -> None:
        """Raise what has stopped the stage, or :class:`UnitError` for units that were tried in vain."""
        if self._problem is not None:
            raise self._problem
        self._retries.check()

    def release(self) -> None:
        """Let the scheduler forget what is still under way; unlike to cancel, this waits for no answer of one that may
        be gone.
        """
        self._readers.shutdown(wait=False, cancel_futures=True)
        for asked in self._running.values():
            asked.future.release()

    def _look(self) -> None:
        check_stopped()
        workers, silent = self._pool.heard()
        self._looked = time.monotonic()
        if workers:
            self._seen = self._looked
            self._count(workers, silent)
            self._go_on(self._pool.processing())
        elif self._looked - self._seen > self._pool.patience:
            msg = (
                f"the cluster has had no worker for {self._pool.patience:g} s (cluster.wait_seconds): see why its "
                "workers ended and start some; the same command goes on from what is recorded."
            )
            raise ClusterError(msg)
        if len(workers) + len(silent) < self._pool.n_own:
            self._pool.complete()

    def _go_on(self, known: Mapping[str, str]) -> None:
        """Ask for what there is room for, again for what is lost or slow, and tell of that."""
        if self._problem is None:
            self._free(known)
            self.fill()
        self.pace.see({key: worker for key, worker in known.items() if key in self._running}, self._looked)
        for key, asked in list(self._running.items()):
            seconds = self.pace.seconds(key, self._looked)
            if asked.unit not in self._told and self.pace.is_told_after(seconds):
                self._told.add(asked.unit)
                what = f"unit {asked.unit} of stage {self._stage.name} has been running for {seconds:.0f} s"
                self._pool.tell(f"{what} at {known[key]}; others took {self.pace.usual:.2g} s")
            if key in known and (known[key] in self._silent or self.pace.is_copied_after(seconds)):
                self._copy(asked.unit, known[key])

    def _copy(self, unit: int, worker: str) -> None:
        """Ask for a unit a second time, elsewhere, when threads have nothing else to do; the first one done counts."""
        is_left = bool(self._remaining) or self._problem is not None or unit in self._copied
        if is_left or len(self._running) >= sum(self._workers.values()) or not self._workers.keys() - {worker}:
            return
        self._copied.add(unit)
        self._pool.tell(f"unit {unit} of stage {self._stage.name} is slow at {worker}: it runs elsewhere, too")
        self._submit(unit, copied=worker)

    def _free(self, known: Mapping[str, str]) -> None:
        """Ask again, from any worker, for units that no worker has and whose own one is gone.

        The scheduler has given these to others, if there were any. If there were none, it keeps them for the one that
        is gone, whoever comes.
        """
        for key, asked in list(self._running.items()):
            is_free = asked.places and self._workers.keys().isdisjoint(asked.places)
            if is_free and key not in known and asked.future.status == "pending":
                del self._running[key]
                asked.future.release()
                self._submit(asked.unit, anywhere=True)


def _left_nothing(context: Context, stage: Stage, unit: int) -> str:
    return f"unit {unit} of stage {stage.name} left no record in {context.store.url}: do the workers share it?"


def _killed(stage: Stage, unit: int) -> str:
    return (
        f"unit {unit} of stage {stage.name} was running, or next, on each of the workers that died. A unit of this "
        f"stage was planned at {stage.peak_bytes // MiB} MiB; "
        "if workers ran out of memory, raise cluster.memory_limit or start fewer workers."
    )
