"""Units as they are submitted to a cluster, and the records that they leave."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as Read
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daskfs.execution.collection_blocks import NO_COLLECTION_BLOCKS, feed_of
from daskfs.execution.pool import Pool
from daskfs.stages.requirements import installed_versions
from daskfs.stages.stage import Stage
from daskfs.stages.units import run_stored_unit
from daskfs.storage import access_rows, at_once
from daskfs.store.records import Record
from daskfs.store.store import Store

if TYPE_CHECKING:
    from distributed import Future


@dataclass(frozen=True)
class Submitted:
    """Submitted unit, and the workers that it is meant for, empty for any."""

    unit: int
    future: Future[Any]
    places: Sequence[str]


class UnitCalls:
    """Calls of the units of a stage on the workers of a pool; `feed` gives units blocks of a collection."""

    def __init__(
        self, store: Store, stage: Stage, units: Sequence[int], pool: Pool, identity: str, inputs: str | None
    ) -> None:
        self._store, self._stage, self._pool = store, stage, pool
        self._identity, self._inputs = identity, inputs
        self.feed = feed_of(stage, units, pool.client)
        # keys are unique: other runs may share the scheduler, and an earlier call may have left results there
        self._call, self._numbers = uuid.uuid4().hex[:12], itertools.count()

    def submit(self, units: list[int], places: Sequence[str], *, strictly: bool) -> list[Submitted]:
        """Submit units to the workers at some places, to any if there are none; others may help unless `strictly`."""
        arguments = (
            self._store.url,
            self._identity,
            self._store.epoch.name,
            self._stage.name,
            units,
            self._inputs,
            access_rows(),
            installed_versions(),
        )
        blocks = [NO_COLLECTION_BLOCKS] * len(units) if self.feed is None else self.feed.take(units)
        futures = self._pool.submit(
            run_stored_unit,
            *(one if one is units else [one] * len(units) for one in arguments),
            *map(list, zip(*blocks, strict=True)),
            priority=0 if self.feed is None else 1,  # a unit before blocks of others
            key=[f"{self._stage.name}-{unit}-{self._call}-{next(self._numbers)}" for unit in units],
            workers=list(places) or None,
            allow_other_workers=bool(places) and not strictly,
            pure=False,
            is_joined=not self._pool.n_own,
            log_level=self._pool.log_level,
        )
        return [Submitted(unit, future, places) for unit, future in zip(units, futures, strict=True)]


@dataclass(frozen=True)
class Ended:
    """Unit that ended, with its record if it is done, or its future if that has an error or was canceled.

    The future of a recorded unit says nothing more: a connection that breaks cancels finished ones, too.
    """

    unit: int
    record: Record | None = None
    failed: Future[Any] | None = None


@dataclass(frozen=True)
class _Look:
    """Ended unit, its record and the line of it if they were found, and whether they were waited for."""

    unit: int
    answer: tuple[Record, bytes] | None
    is_last: bool


class RecordReads:
    """Records of ended units, read in threads: read one by one, they would take the latency of the store each.

    `put` is called, in a thread, with a future of what was read, for :meth:`take`; `n_waiting` units are looked up.
    """

    def __init__(self, store: Store, stage: Stage, put: Callable[[Read[list[_Look]]], None]) -> None:
        self._records, self._stage, self._put = store.record_files, stage, put
        self._n_threads, self.n_waiting = at_once(store.root), 0
        self._threads = ThreadPoolExecutor(self._n_threads, thread_name_prefix="daskfs-records")

    def begin(self, units: Sequence[int], *, is_last: bool = False) -> None:
        """Read the records of ended units; the last time, wait for those of other machines."""
        read = self._records.awaited if is_last else self._records.written

        def read_all(units: Sequence[int]) -> list[_Look]:
            return [_Look(unit, read(self._stage.name, unit, self._stage.fingerprint), is_last) for unit in units]

        self.n_waiting += len(units)
        for first in range(min(self._n_threads, len(units))):
            self._threads.submit(read_all, units[first :: self._n_threads]).add_done_callback(self._put)

    def take(self, read: Read[list[_Look]]) -> Iterator[Ended]:
        """Keep the records that were found, and look for others once more."""
        for look in read.result():
            self.n_waiting -= 1
            if look.answer is not None:
                record, line = look.answer
                self._records.note(self._stage.name, look.unit, line)
                yield Ended(look.unit, record)
            elif look.is_last:
                yield Ended(look.unit)
            else:
                self.begin([look.unit], is_last=True)

    def release(self) -> None:
        """Read nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
