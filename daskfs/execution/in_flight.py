"""Units of one stage in flight on a cluster: submission, placement, retries and duplicates."""

from __future__ import annotations

import itertools
import math
import time
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import Future as Found
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from daskfs.errors import ClusterError, DaskfsError, PassingError, UnitError
from daskfs.execution.pool import Pool
from daskfs.execution.retries import Retries
from daskfs.execution.signals import check_stopped
from daskfs.execution.stragglers import Pace
from daskfs.stages.cost import MiB
from daskfs.stages.requirements import installed_versions
from daskfs.stages.stage import Stage
from daskfs.stages.units import run_stored_unit
from daskfs.storage import access_rows, at_once
from daskfs.store.context import Context
from daskfs.store.records import Record

if TYPE_CHECKING:
    from distributed import Future

PER_THREAD = 2
"""Units of a worker per thread: one runs while the next one waits; a worker's death counts for these alone."""
QUEUED = 16
"""Further units, which wait in the scheduler: adaptive clusters start workers for them, no death of a worker counts for
them, and a worker that joins finds some.
"""
LOOK_SECONDS = 2.0
"""Seconds between checks of the cluster by the driver."""


def room(threads: int, *, is_placed: bool = False) -> int:
    """Return the number of units to keep in flight on some threads.

    Units placed on a worker wait there, where its death counts for them, so no more are submitted than it needs.
    """
    return PER_THREAD * max(1, threads) + (0 if is_placed else QUEUED)


@dataclass(frozen=True)
class _Asked:
    """Submitted unit, and the workers that it is meant for, empty for any."""

    unit: int
    future: Future[Any]
    places: Sequence[str]


@dataclass(frozen=True)
class _Looked:
    """Unit that ended, and its record in the store."""

    unit: int
    future: Future[Any]
    found: Found[Record | None] | None = None


class Flight:
    """Units of one stage in flight on a cluster. Waiting for the next unit also checks the cluster.

    Records of ended units are read in threads: read one by one, they would take the latency of the store each.
    """

    def __init__(
        self, context: Context, stage: Stage, units: Iterable[int], pool: Pool, identity: str, inputs: str | None
    ) -> None:
        self._context, self._stage, self._pool = context, stage, pool
        self._identity, self._inputs = identity, inputs
        self._remaining = deque(units)
        self._retries, self._apart = Retries(), dict[int, str]()
        self._problem: DaskfsError | None = None
        self._deadline = math.inf
        self._count(*pool.heard())
        # keys are unique: other runs may share the scheduler, and an earlier call may have left results there
        self._call, self._numbers = uuid.uuid4().hex[:12], itertools.count()
        self._running: dict[str, _Asked] = {}
        self.pace, self._told, self._copied = Pace(), set[int](), set[int]()
        self._ended: SimpleQueue[Future[Any] | _Looked] = SimpleQueue()
        self._readers = ThreadPoolExecutor(at_once(context.store.root), thread_name_prefix="daskfs-records")
        self._n_looked_at = 0
        self._looked = self._seen = time.monotonic()

    @property
    def is_under_way(self) -> bool:
        """Whether any unit is in flight, being looked up, or due for a retry."""
        return bool(self._running or self._n_looked_at or self._retries.next_due is not None)

    def _count(self, workers: Mapping[str, int], silent: Set[str]) -> None:
        """Set the capacity of the workers, and the placement of units of a loop."""
        self._workers, self._silent = workers, silent
        self._places = self._pool.places.of(self._stage.n_units, workers) if self._stage.loop else ()
        self._room = room(sum(workers.values()), is_placed=bool(self._places or silent))

    def fill(self) -> None:
        """Submit as many units as the workers have capacity for."""
        while self._remaining and len(self._running) < self._room:
            self._submit(self._remaining.popleft())

    def _submit(self, unit: int, *, anywhere: bool = False, copied: str = "") -> None:
        """Submit a unit, never to a silent worker.

        A unit of a loop goes to the worker that may have cached its rows in earlier rounds, unless `anywhere`; a failed
        or duplicate unit goes to other workers than its last one.
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
            self._context.store.ledger.epoch,
            self._stage.name,
            unit,
            self._inputs,
            access_rows(),
            installed_versions(),
            is_joined=not self._pool.n_own,
            key=f"{self._stage.name}-{unit}-{self._call}-{next(self._numbers)}",
            workers=places or None,
            allow_other_workers=bool(places) and not (copied or self._silent),
        )
        self._running[str(future.key)] = _Asked(unit, future, places)
        future.add_done_callback(self._ended.put)

    def next_ended(self) -> tuple[int, Future[Any], Record | None]:
        """Return the next unit that ended, its future, and its record if it is done.

        Raises
        ------
        ClusterError
            If the scheduler is lost, or there has been no worker for long.
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
        """Return whether the end of a future counts: of a duplicated unit the first success, else the last end."""
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
        ledger, stage = self._context.store.ledger, self._stage
        found = self._readers.submit(ledger.awaited, stage.name, unit, stage.fingerprint)
        found.add_done_callback(lambda found: self._ended.put(_Looked(unit, future, found)))

    def set_aside(self, unit: int, error: PassingError) -> None:
        """Schedule a retry of a unit after a pause, on another worker, while others continue."""
        self._apart[unit] = error.worker
        self._pool.tell(self._retries.set_aside(unit, error, time.monotonic()))
        if self._problem is not None:
            self._retries.forget()

    def resubmit(self, unit: int, n_deaths: int) -> None:
        """Resubmit a unit whose workers died, unless more have died than allowed."""
        if self._retries.survives(unit, n_deaths) and self._problem is None:
            self._submit(unit, anywhere=True)
        else:
            self.stop(UnitError(_killed(self._stage, unit)))

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
        known = self._pool.processing()
        for key, asked in list(self._running.items()):
            if key not in known and asked.future.status == "pending":
                del self._running[key]
                asked.future.release()
        if self._running:
            self._pool.tell(f"{problem}; waiting for {len(self._running)} units that run or are next")

    def check(self) -> None:
        """Raise the error that stopped the stage, or :class:`UnitError` for units that failed in all attempts."""
        if self._problem is not None:
            raise self._problem
        self._retries.check()

    def release(self) -> None:
        """Release the units still in flight; unlike canceling, this does not wait for a scheduler that may be gone."""
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
        """Submit units up to capacity, resubmit lost ones, report and duplicate slow ones."""
        if self._problem is None:
            self._free(known)
            self.fill()
        self.pace.see({key: worker for key, worker in known.items() if key in self._running}, self._looked)
        for key, asked in list(self._running.items()):
            seconds = self.pace.seconds(key, self._looked)
            if asked.unit not in self._told and self.pace.is_told_after(seconds):
                self._tell_slow(asked.unit, known[key], seconds)
            if key in known and (known[key] in self._silent or self.pace.is_copied_after(seconds)):
                self._copy(asked.unit, known[key])

    def _tell_slow(self, unit: int, worker: str, seconds: float) -> None:
        self._told.add(unit)
        since = (datetime.now().astimezone() - timedelta(seconds=seconds)).isoformat(timespec="seconds")
        self._pool.note_slow({"stage": self._stage.name, "unit": unit, "worker": worker, "since": since})
        what = f"unit {unit} of stage {self._stage.name} has been running for {seconds:.0f} s"
        self._pool.tell(f"{what} at {worker}; others took {self.pace.usual:.2g} s")

    def _copy(self, unit: int, worker: str) -> None:
        """Submit a duplicate of a unit elsewhere if threads are idle; the first success counts."""
        is_left = bool(self._remaining) or self._problem is not None or unit in self._copied
        if is_left or len(self._running) >= sum(self._workers.values()) or not self._workers.keys() - {worker}:
            return
        self._copied.add(unit)
        self._pool.tell(f"unit {unit} of stage {self._stage.name} is slow at {worker}: it runs elsewhere, too")
        self._submit(unit, copied=worker)

    def _free(self, known: Mapping[str, str]) -> None:
        """Resubmit, for any worker, pending units that no worker has and whose own worker is gone.

        The scheduler gives these to other workers, if there are any. If there were none, it keeps them for the lost
        worker even when others join.
        """
        for key, asked in list(self._running.items()):
            is_free = asked.places and self._workers.keys().isdisjoint(asked.places)
            if is_free and key not in known and asked.future.status == "pending":
                del self._running[key]
                asked.future.release()
                self._submit(asked.unit, anywhere=True)


def _killed(stage: Stage, unit: int) -> str:
    return (
        f"unit {unit} of stage {stage.name} was running, or next, on each of the workers that died. A unit of this "
        f"stage was planned at {stage.peak_bytes // MiB} MiB; "
        "if workers ran out of memory, raise cluster.memory_limit or start fewer workers."
    )
