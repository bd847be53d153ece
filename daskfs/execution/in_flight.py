"""Units of one stage in flight on a cluster: submission, placement, retries and duplicates."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future as Read
from contextlib import suppress
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError, DaskfsError, PassingError, UnitError
from daskfs.execution.pool import LOST_WITH_CONNECTION, Pool, lost_scheduler
from daskfs.execution.retries import Retries
from daskfs.execution.signals import check_stopped
from daskfs.execution.stragglers import Pace
from daskfs.execution.unit_calls import Ended, RecordReads, Submitted, UnitCalls
from daskfs.stages.cost import MiB
from daskfs.stages.failures import write_unit_failure
from daskfs.stages.stage import Stage
from daskfs.store.context import Context

if TYPE_CHECKING:
    from distributed import CancelledError, Future
    from distributed.scheduler import WorkerState

PER_THREAD = 2
"""Units of a worker per thread: one runs while the next one waits; a worker's death counts for these alone."""
QUEUED = 16
"""Further units, which wait in the scheduler: adaptive clusters start workers for them, no death of a worker counts for
them, and a worker that joins finds some.
"""
SUBMITTED_TOGETHER = QUEUED // 2
"""Fewest units that are submitted together: the others that wait in the scheduler last meanwhile."""
LOOK_SECONDS = 2.0
"""Seconds between checks of the cluster by the driver."""


def room(threads: int, *, is_placed: bool = False) -> int:
    """Return the number of units to keep in flight on some threads.

    Units placed on a worker wait there, where its death counts for them, so no more are submitted than it needs.
    """
    return PER_THREAD * max(1, threads) + (0 if is_placed else QUEUED)


class Flight:
    """Units of one stage in flight on a cluster. Waiting for the next unit also checks the cluster.

    Units that end while others are handled are handled together.
    """

    def __init__(
        self, context: Context, stage: Stage, units: Sequence[int], pool: Pool, identity: str, inputs: str | None
    ) -> None:
        self._context, self._stage, self._pool = context, stage, pool
        self._remaining, self._inputs = deque(units), inputs
        self._calls = UnitCalls(context.store, stage, units, pool, identity, inputs)
        self._retries, self._apart = Retries(), dict[int, str]()
        self._problem: DaskfsError | None = None
        self._deadline = math.inf
        self._set_capacity(*pool.heard())
        self._running: dict[str, Submitted] = {}
        self._stuck: Set[str] = set()
        self._at: Mapping[str, str] = {}
        self.pace, self._told, self._copied = Pace(), set[int](), set[int]()
        self._ended: SimpleQueue[Future[Any] | Read[Any]] = SimpleQueue()
        self._handled = deque[Ended]()
        self._reads = RecordReads(context.store, stage, self._ended.put)
        self._looked = self._seen = time.monotonic()

    @property
    def is_under_way(self) -> bool:
        """Whether any unit is in flight, being looked up, or due for a retry."""
        is_due = self._retries.next_due is not None
        return bool(self._running or self._reads.n_waiting or self._handled or is_due)

    @property
    def _n_moving(self) -> int:
        """Number of units in flight, without those at silent workers, which may never end."""
        return len(self._running) - len(self._stuck & self._running.keys())

    def _set_capacity(self, workers: Mapping[str, int], silent: Set[str]) -> None:
        """Set the capacity of the workers, and the placement of units of a loop."""
        self._workers, self._silent = workers, silent
        self._places = self._pool.places.of(self._stage.n_units, workers) if self._stage.loop else ()
        # blocks of a collection are computed for the units that are submitted
        is_placed = bool(self._places or silent or self.is_fed)
        self._room = room(sum(workers.values()), is_placed=is_placed)
        self._fewest = 1 if is_placed else SUBMITTED_TOGETHER

    def fill(self) -> None:
        """Submit as many units as the workers have capacity for, several at once."""
        n_free = self._room - self._n_moving
        if self._remaining and n_free >= self._fewest:
            self._submit([self._remaining.popleft() for _ in range(min(n_free, len(self._remaining)))])

    def _submit(self, units: Iterable[int], *, anywhere: bool = False, copied: str = "") -> None:
        """Submit units, never to a silent worker.

        A unit of a loop goes to the worker that may have cached its rows in earlier rounds, unless `anywhere`; a failed
        or duplicate unit goes to other workers than its last one.
        """
        together: dict[tuple[str, ...], list[int]] = {}
        for unit in units:
            places: tuple[str, ...] = ()
            if apart := self._apart.pop(unit, copied):
                places = tuple(worker for worker in self._workers if worker != apart)
            elif self._places and not anywhere:
                places = (self._places[unit % self._stage.n_units],)
            together.setdefault(places or (tuple(self._workers) if self._silent else ()), []).append(unit)
        for places, units_there in together.items():
            for one in self._calls.submit(units_there, places, strictly=bool(copied or self._silent)):
                self._running[str(one.future.key)] = one
                one.future.add_done_callback(self._ended.put)

    def next_ended(self, *, wait: bool = True) -> Ended | None:
        """Return the next unit that ended; None if none has, unless `wait`, or if the cluster was checked meanwhile.

        Raises
        ------
        ClusterError
            If the scheduler is lost, or there has been no worker for long.
        """
        while not self._handled:
            now = time.monotonic()
            if self._problem is not None and now > self._deadline:
                raise self._problem
            self._submit(self._retries.take_due(now))
            left = self._looked + min(LOOK_SECONDS, self._pool.patience) - now
            if left <= 0:
                self._look()
                return None
            left = min(left, max(0.0, (self._retries.next_due or math.inf) - now))
            try:
                self._handle(self._ended.get(wait, left))
            except Empty:
                if not wait:
                    return None
        return self._handled.popleft()

    def _handle(self, first: Future[Any] | Read[Any]) -> None:
        """Handle an ended unit, or records that were read, and all that have come since."""
        done, now = list[int](), time.monotonic()
        for one in itertools.chain([first], self._waiting()):
            if isinstance(one, Read):
                for ended in self._reads.take(one):
                    self._handled.append(ended)
                    if ended.record is not None and self._calls.feed is not None:
                        self._calls.feed.done(ended.unit)
            elif (key := str(one.key)) in self._running:
                call = self._running.pop(key)
                self.pace.end(key, now)
                if not self._counts(call):
                    continue
                if call.future.status in ("error", "cancelled"):
                    self._handled.append(Ended(call.unit, failed=call.future))
                else:
                    done.append(call.unit)
        self._reads.begin(done)
        self.fill()

    def _waiting(self) -> Iterator[Future[Any] | Read[Any]]:
        with suppress(Empty):
            while True:
                yield self._ended.get_nowait()

    def _counts(self, call: Submitted) -> bool:
        """Return whether the end of a future counts: of a duplicated unit the first success, else the last end."""
        others = [k for k, a in self._running.items() if a.unit == call.unit] if call.unit in self._copied else []
        if others and call.future.status != "finished":
            return False
        for key in others:
            self._pool.leave(self._running.pop(key).future)
        return True

    @property
    def is_fed(self) -> bool:
        """Whether units are given blocks of a collection, which tasks of the user's compute."""
        return self._calls.feed is not None

    def set_aside(self, unit: int, error: PassingError) -> None:
        """Schedule a retry of a unit after a pause, on another worker, while others continue."""
        self._apart[unit] = error.worker
        self._tell(
            self._retries.set_aside(unit, error, time.monotonic()), "retry", unit, error.worker, file=error.failure
        )
        if self._problem is not None:
            self._retries.forget()

    def resubmit(self, unit: int, n_deaths: int, worker: WorkerState) -> None:
        """Resubmit a unit whose workers died, `worker` the last of them, unless more have died than allowed."""
        if self._retries.survives(unit, n_deaths) and self._problem is None:
            self._submit([unit], anywhere=True)
        else:
            stage = self._stage
            error = UnitError(
                f"unit {unit} of stage {stage.name} was running, or next, on each of the workers that died, at last "
                f"{worker.address}. A unit of this stage was planned at {stage.peak_bytes // MiB} MiB; if workers ran "
                "out of memory, raise cluster.memory_limit or start fewer workers."
            )
            words = self._pool.last_words(worker.address, worker)
            error.failure = write_unit_failure(self._context.store, stage, unit, self._inputs, error, words)
            self.stop(error)

    def put_back(self, unit: int, error: CancelledError) -> None:
        """Submit a unit again that the client lost with its connection; a worker that finds its record skips it.

        Raises
        ------
        ClusterError
            If the unit was canceled for another reason.
        """
        if getattr(error, "reason", None) != LOST_WITH_CONNECTION:
            msg = f"the cluster dropped unit {unit} of stage {self._stage.name}: {lost_scheduler(error)}"
            raise ClusterError(msg) from error
        if self._problem is None:
            self._remaining.appendleft(unit)
            self.fill()

    def stop(self, problem: DaskfsError) -> None:
        """Submit nothing more.

        Units that workers have may finish, so that their work is kept, within the pool's `patience`.
        """
        if self._problem is not None:
            return
        self._problem = problem
        self._remaining.clear()
        self._deadline = time.monotonic() + self._pool.patience
        self._retries.forget()
        worker_by_key = self._pool.processing()
        for key, call in list(self._running.items()):
            # one that waits for its blocks may begin before its release is heard of
            if key not in worker_by_key and call.future.status == "pending" and not self.is_fed:
                del self._running[key]
                call.future.release()
        if self._running:
            self._pool.tell(f"{problem}; waiting for {len(self._running)} units that run or are next")

    def check(self) -> None:
        """Raise the error that stopped the stage, or :class:`UnitError` for units that failed in all attempts."""
        if self._problem is not None:
            raise self._problem
        self._retries.check()

    def release(self) -> None:
        """Release the units still in flight; unlike canceling, this does not wait for a scheduler that may be gone."""
        self._reads.release()
        for call in self._running.values():
            call.future.release()

    def _look(self) -> None:
        check_stopped()
        workers, silent = self._pool.heard()
        self._looked = time.monotonic()
        for event, names in (
            ("worker_lost", {*self._workers, *self._silent} - workers.keys() - silent),
            ("worker_silent", silent - self._silent),
        ):
            for name in names:
                self._pool.tell("", event, worker=name, **self._pool.last_words(name))
        if workers:
            self._seen = self._looked
            self._set_capacity(workers, silent)
            self._go_on(self._pool.processing())
        elif self._looked - self._seen > self._pool.patience:
            msg = (
                f"the cluster has had no worker for {self._pool.patience:g} s (cluster.wait_seconds): see why its "
                "workers ended and start some; the same command goes on from what is recorded."
            )
            raise ClusterError(msg)
        if len(workers) + len(silent) < self._pool.n_own:
            self._pool.complete()

    def _go_on(self, worker_by_key: Mapping[str, str]) -> None:
        """Submit units up to capacity, resubmit lost ones, report and duplicate slow ones."""
        self._stuck = {key for key in self._running if worker_by_key.get(key) in self._silent}
        if self._problem is None:
            self._free(worker_by_key)
            self.fill()
        at = {key: worker for key, worker in worker_by_key.items() if key in self._running}
        self.pace.see(at, self._looked)
        for key in [key for key, worker in at.items() if self._at.get(key) != worker]:
            self._tell("", "unit_started", self._running[key].unit, at[key])
        self._at = at
        for key, call in list(self._running.items()):
            seconds = self.pace.seconds(key, self._looked)
            if call.unit not in self._told and self.pace.is_told_after(seconds):
                self._tell_slow(call.unit, worker_by_key[key], seconds)
            if key in worker_by_key and (worker_by_key[key] in self._silent or self.pace.is_copied_after(seconds)):
                self._copy(call.unit, worker_by_key[key])

    def _tell_slow(self, unit: int, worker: str, seconds: float) -> None:
        self._told.add(unit)
        since = (datetime.now().astimezone() - timedelta(seconds=seconds)).isoformat(timespec="seconds")
        what = f"unit {unit} of stage {self._stage.name} has been running for {seconds:.0f} s"
        self._tell(f"{what} at {worker}; others took {self.pace.usual:.2g} s", "slow", unit, worker, since=since)

    def _tell(self, text: str, event: str, unit: int, worker: str, **facts: Any) -> None:
        self._pool.tell(text, event, stage=self._stage.name, unit=unit, worker=worker, **facts)

    def _copy(self, unit: int, worker: str) -> None:
        """Submit a duplicate of a unit elsewhere if threads are idle; the first success counts."""
        is_left = bool(self._remaining) or self._problem is not None or unit in self._copied
        if is_left or self._n_moving >= sum(self._workers.values()) or not self._workers.keys() - {worker}:
            return
        self._copied.add(unit)
        text = f"unit {unit} of stage {self._stage.name} is slow at {worker}: it runs elsewhere, too"
        self._tell(text, "copy", unit, worker)
        self._submit([unit], copied=worker)

    def _free(self, worker_by_key: Mapping[str, str]) -> None:
        """Resubmit, for any worker, pending units that no worker has and whose own worker is gone.

        The scheduler gives these to other workers, if there are any. If there were none, it keeps them for the lost
        worker even when others join.
        """
        for key, call in list(self._running.items()):
            is_free = call.places and self._workers.keys().isdisjoint(call.places)
            if is_free and key not in worker_by_key and call.future.status == "pending":
                del self._running[key]
                call.future.release()
                self._submit([call.unit], anywhere=True)
