"""Ledger of the finished units of a store: epochs, records and seals.

``docs/inside/protocol.md`` shows why no order of events makes a wrong result valid.

A driver that has locked the store begins an *epoch*: it writes a new name to ``.epoch``, with the record files that it
inherits. A unit writes its record to a file with the epoch in its name, so records of ended epochs are ignored.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from daskfs.errors import DamagedError, StoreError
from daskfs.storage import (
    ObjectPath,
    StoragePath,
    is_inconclusive,
    map_concurrent,
    put,
    put_first,
    read_buffer,
    refresh,
    remove,
    sizes,
)
from daskfs.store import layout
from daskfs.store.arrays import MADE_AGAIN
from daskfs.store.records import EPOCH_DIGITS, Record, decode, encode, epoch_of, lines_of, place_of
from daskfs.store.seals import ENTRY, ROUND, Seal, Sealed, merge_entries, name_hash, seal_of
from daskfs.store.write_errors import explain_write_errors

TOGETHER = 256
"""Number of single-record files of a stage at which the driver merges them."""
FEW = 16
"""The same for a finished stage: every process that needs its records reads each file."""
CHECK_SECONDS = {True: 10.0, False: 1.0}
"""Seconds for which a check of the epoch is valid, in an object store (True) and on a disk (False)."""
PATIENCE_SECONDS = 60.0
"""Seconds to wait for a record that another machine wrote: network file systems cache for a while that a file is
missing."""
FIRST_PAUSE = 0.05
COMPARED = 4096
"""Maximum number of small objects in an object store whose checksums are compared before they are read; object stores
keep written bytes intact.
"""
VIEWS = 8
"""Number of stages whose records are kept in memory."""
View = dict[int, tuple[str, bytes]]
"""Record file and line of each unit of a stage."""


class Ledger:
    """Epoch, records and seals of a store.

    Parameters
    ----------
    root
        Root of the store, None for one in memory.
    epoch
        Epoch of the records that this process writes; empty for a process that only reads, or has yet to begin one.
    """

    def __init__(self, root: StoragePath | None, epoch: str = "") -> None:
        self._root, self.epoch = root, epoch
        self._held: dict[str, dict[int, Record]] = {}
        self._views: dict[str, View] = {}
        self._alone: dict[str, int] = {}
        self._head: dict[str, Any] | None = None
        self._checked = -np.inf
        self._sealed: list[Sealed] = []
        self._entries: dict[str, np.ndarray] = {}
        self._in_force: dict[str | None, np.ndarray] = {}
        self._entered = threading.local()
        self._is_elsewhere = bool(epoch)

    # ------------------------------------------------------------------------------------------------------- epochs
    def begin(self, *, fresh: bool = False) -> None:
        """Begin an epoch, which ends those of other drivers. Existing records stay valid unless `fresh`."""
        if self._root is None:
            return
        inherited = {} if fresh else {stage: self._files(stage) for stage in self._stages()}
        self.epoch = uuid.uuid4().hex[:EPOCH_DIGITS]
        self.forget()
        head = {"epoch": self.epoch, "inherited": inherited}
        with explain_write_errors(self._root / layout.EPOCH):
            put(self._root / layout.EPOCH, json.dumps(head).encode())
            for path in (self._root / layout.RECORDS_DIR).glob(layout.SEALS_OF_ALL):
                remove(path)

    def check(self, *, now: bool = False) -> None:
        """Raise :class:`StoreError` if the epoch of this process has ended; unless `now`, a recent check is reused."""
        if self._root is None or not self.epoch:
            return
        seconds = CHECK_SECONDS[isinstance(self._root, ObjectPath)]
        if not now and time.monotonic() < self._checked + seconds:
            return
        if self._read_head().get("epoch") != self.epoch:
            msg = (
                f"{self._root} was taken over by another daskfs process, deleted or moved away while this process ran "
                "in it: it stops here."
            )
            raise StoreError(msg)
        self._checked = time.monotonic()

    def forget(self) -> None:
        """Drop cached records and seals, so that they are read again."""
        self._views, self._alone, self._head, self._sealed, self._in_force = {}, {}, None, [], {}

    def unseal(self, label: str) -> None:
        """Drop the seal of a stage, or of a round of it, and all later seals."""
        first = next((i for i, one in enumerate(self._sealed) if one.label == label), None)
        if first is not None:
            del self._sealed[first:]
            self._in_force.pop(None, None)

    def _read_head(self) -> dict[str, Any]:
        """Return the content of ``.epoch``, empty if it is missing or unreadable."""
        assert self._root is not None
        try:
            found = json.loads((self._root / layout.EPOCH).read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
            return {}
        return found if isinstance(found, dict) and isinstance(found.get("inherited"), dict) else {}

    # -------------------------------------------------------------------------------------------------- record files
    def _stages(self) -> list[str]:
        assert self._root is not None
        folder = self._root / layout.RECORDS_DIR
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def _files(self, stage: str) -> list[str]:
        """Return the names of a stage's valid record files, oldest first. If no epoch was begun, all are valid."""
        assert self._root is not None
        if self._head is None:
            self._head = self._read_head()
        try:
            there = {path.name for path in (self._root / layout.records_of(stage)).iterdir()}
        except (FileNotFoundError, NotADirectoryError):
            return []
        epoch = self._head.get("epoch")
        inherited = self._head.get("inherited", {}).get(stage, ())
        own = [name for name in there if epoch_of(name) is not None and epoch in (None, epoch_of(name))]
        return [*(name for name in inherited if name in there), *sorted(own, key=place_of)]

    def counted_files(self) -> Iterator[str]:
        """Yield the names, in the store, of all valid record files."""
        for stage in self._stages():
            yield from (f"{layout.records_of(stage)}{name}" for name in self._files(stage))

    def _view(self, stage: str) -> View:
        view = self._views.get(stage)
        if view is None:
            view = {}
            files = self._files(stage)
            for file, data in zip(
                files, map_concurrent(self._root, lambda name: self._data(stage, name), files), strict=True
            ):
                view.update((unit, (file, line)) for unit, line in lines_of(file, data))
            for oldest in list(self._views)[: len(self._views) + 1 - VIEWS]:
                self._views.pop(oldest)
            self._views[stage] = view
            self._alone[stage] = sum(epoch_of(name) == self.epoch and place_of(name)[0] for name in files)
        return view

    def _data(self, stage: str, file: str) -> bytes:
        assert self._root is not None
        try:
            return (self._root / f"{layout.records_of(stage)}{file}").read_bytes()
        except (FileNotFoundError, IsADirectoryError):  # merged meanwhile, or no record file
            return b""

    # ------------------------------------------------------------------------------------------------------- reading
    def record(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None if it is missing or damaged."""
        if self._root is None:
            return self._held.get(stage, {}).get(unit)
        try:
            return self.read(stage, unit)
        except StoreError:
            return None

    def read(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None if it is missing; raise :class:`StoreError` if it is damaged."""
        _, line = self._view(stage).get(unit, ("", None))
        return None if line is None else decode(stage, unit, line)

    def file(self, stage: str, unit: int) -> StoragePath:
        """Return the path of the file that holds a unit's record, or would hold it."""
        file, _ = self._view(stage).get(unit, (f"{unit:06d}.json", b""))
        return self.where(stage) / file

    def records(self, stage: str, units: Iterable[int]) -> Iterator[Record | None]:
        """Yield the result of :meth:`record` for some units, in order."""
        return (self.record(stage, unit) for unit in units)

    def need(self, stage: str, units: Iterable[int]) -> Iterator[Record]:
        """Yield the records of finished units; raise :class:`DamagedError` if one is missing or damaged."""
        for unit in units:
            if (record := self.record(stage, unit)) is None:
                self._views.pop(stage, None)  # it may have been written again since
                record = self.record(stage, unit)
            if record is None:
                paths = [] if self._root is None else [self._file(stage, unit)]
                msg = f"unit {unit} of stage {stage} has no readable record: {MADE_AGAIN}"
                raise DamagedError(msg, paths)
            yield record

    def where(self, stage: str) -> StoragePath:
        """Return the folder of a stage's records."""
        assert self._root is not None
        return self._root / layout.records_of(stage)

    def recorded(self, stage: str) -> Iterable[int]:
        """Return the units of a stage that have a record, valid or not, in no particular order."""
        return self._held.get(stage, {}).keys() if self._root is None else self._view(stage).keys()

    def n_recorded(self, stage: str) -> int:
        """Return one more than the last unit of a stage that has a record."""
        return max(self.recorded(stage), default=-1) + 1

    # ------------------------------------------------------------------------------------------------------- writing
    def write(self, record: Record) -> None:
        """Record a finished unit, in the process that ran it and after all its outputs are written.

        The first record of a unit in an epoch stays.
        """
        stage, unit = record["stage"], record["unit"]
        if self._root is None:
            self._held.setdefault(stage, {})[unit] = record
            return
        self.check()
        line = encode(record)
        path = self._file(stage, unit)
        with explain_write_errors(path):
            if put_first(path, line):
                self._note(stage, unit, line)

    def _file(self, stage: str, unit: int) -> StoragePath:
        return self.where(stage) / ".".join(filter(None, (f"{unit:06d}", self.epoch, "json")))

    def _note(self, stage: str, unit: int, line: bytes) -> None:
        view = self._views.get(stage)
        if view is not None:
            self._alone[stage] += unit not in view
            view[unit] = (self._file(stage, unit).name, line.strip())

    def written(self, stage: str, unit: int, fingerprint: str) -> Record | None:
        """Return the record that a unit wrote in this epoch, None if there is none.

        A worker may rerun a unit whose completion never reached the scheduler.
        """
        try:
            line = self._file(stage, unit).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            record = decode(stage, unit, line.strip())
        except StoreError:
            return None
        if record.get("fingerprint") != fingerprint:
            return None
        self._note(stage, unit, line)
        return record

    def awaited(self, stage: str, unit: int, fingerprint: str) -> Record | None:
        """Return the record of a unit that has just finished on another machine, None if it does not appear in time."""
        pause, deadline = FIRST_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while (record := self.written(stage, unit, fingerprint)) is None and time.monotonic() < deadline:
            if isinstance(self._root, ObjectPath):  # a written object is visible to all at once
                return None
            refresh(self.where(stage))
            time.sleep(pause)
            pause *= 2
        return record

    def put_together(self, stage: str) -> None:
        """Merge the single-record files of a stage that this process has read, if there are many."""
        if self._alone.get(stage, 0) >= TOGETHER:
            self._put_together(stage, self._files(stage))

    def close(self, stage: str) -> None:
        """Merge the record files of a finished stage, and write records again that were deleted meanwhile."""
        view = self._views.get(stage)
        if self._root is None or view is None:
            return
        there = self._files(stage)
        if self._alone[stage] >= FEW or not {file for file, _ in view.values()} <= set(there):
            self._put_together(stage, there)

    def _put_together(self, stage: str, there: Sequence[str]) -> None:
        view = self._views[stage]
        alone = {name for name in there if epoch_of(name) == self.epoch and place_of(name)[0]}
        numbers = [place_of(name)[1] for name in there if epoch_of(name) == self.epoch and name not in alone]
        units = sorted(unit for unit, (file, _) in view.items() if file in alone or file not in there)
        last = max(numbers, default=-1)
        path = self.where(stage) / f"{last + 1:06d}.{self.epoch}.jsonl"
        self.check()
        with explain_write_errors(path):
            put(path, b"".join(view[unit][1] + b"\n" for unit in units))
        merged_files = alone & {view[unit][0] for unit in units}
        for _ in map_concurrent(self._root, lambda name: remove(self.where(stage) / name), merged_files):
            pass
        view.update({unit: (path.name, view[unit][1]) for unit in units})
        self._alone[stage] = 0

    # ------------------------------------------------------------------------------------------------- completeness
    def not_done(self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None) -> list[int]:
        """Return the units that are not done.

        A finished unit has a record of this fingerprint and, unless None, these inputs, and all its outputs exist in
        the recorded size; checksums of small objects are compared as well.
        """
        done = self._records_of(stage, units, fingerprint, inputs)
        lost = self._lost_outputs(done)
        return [unit for unit in units if unit not in done or lost[unit]]

    def lost(self, stage: str, units: Sequence[int], fingerprint: str) -> list[str]:
        """Return the names of recorded outputs that are missing or differ, and of damaged records.

        Units without a record are skipped.
        """
        found = [
            name for lost in self._lost_outputs(self._records_of(stage, units, fingerprint)).values() for name in lost
        ]
        return found + [f"{layout.records_of(stage)}{unit:06d}" for unit in self._damaged(stage, units)]

    def _damaged(self, stage: str, units: Sequence[int]) -> list[int]:
        return [unit for unit in units if unit in set(self.recorded(stage)) and self.record(stage, unit) is None]

    def _records_of(
        self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None
    ) -> dict[int, Record]:
        found = {}
        for unit, record in zip(units, self.records(stage, units), strict=True):
            if record is None or record.get("fingerprint") != fingerprint:
                continue
            if inputs is None or record.get("inputs") in (None, inputs):  # older versions recorded none
                found[unit] = record
        return found

    def _lost_outputs(self, records: Mapping[int, Record]) -> dict[int, list[str]]:
        """Return, by unit, the names of outputs that are missing or differ from its record."""
        lost: dict[int, list[str]] = {unit: [] for unit in records}
        if self._root is None:
            return lost
        stated = {
            (unit, name): (*said, kind == "objects")
            for unit, record in records.items()
            for kind in ("chunks", "objects")
            for name, said in record[kind].items()
        }
        found = sizes(self._root, [name for _, name in stated], whole=len(records) > 1)
        whole = [name for (_, name), (size, _, is_object) in stated.items() if is_object and found.get(name) == size]
        if isinstance(self._root, ObjectPath) and len(whole) > COMPARED:
            whole = []  # readers compare them
        checksums = dict(zip(whole, map_concurrent(self._root, self._checksum, whole), strict=True))
        for (unit, name), (size, checksum, _) in stated.items():
            if found.get(name) != size or checksums.get(name, checksum) != checksum:
                lost[unit].append(name)
        return lost

    def _checksum(self, name: str) -> int | None:
        """Return the CRC-32 of a small object, None if it is missing or unreadable; raise inconclusive errors."""
        assert self._root is not None
        try:
            return zlib.crc32(read_buffer(self._root / name))
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and is_inconclusive(self._root, error):
                raise
            return None

    # --------------------------------------------------------------------------------------------------------- seals
    def seal(self, position: int, inputs: str, label: str, units: range, fingerprint: str) -> Sealed | None:
        """Seal a stage, or a round of it, at a position in the order of seals.

        Return None if some of its units are not recorded.
        """
        if position < len(self._sealed):
            known = self._sealed[position]
            if (known.label, known.inputs) == (label, inputs):
                return known
            del self._sealed[position:]
        stage = label.partition(ROUND)[0]
        records = self._records_of(stage, units, fingerprint, inputs)
        if len(records) < len(units):
            return None
        found = seal_of(records.values())
        sealed = Sealed(inputs, label, found.digest)
        self._sealed.append(sealed)
        self._in_force.pop(None, None)
        self._entries[found.digest] = found.entries
        if self.epoch:
            self._put_seal(sealed, found)
        return sealed

    def _put_seal(self, sealed: Sealed, found: Seal) -> None:
        """Write checksums for other processes, unsynced: after a loss of power they are rebuilt from records."""
        assert self._root is not None
        table, index = self._root / _table(sealed), self._root / layout.SEALS.format(self.epoch)
        with explain_write_errors(table):
            put(table, found.to_bytes(), synced=False)
            put(index, json.dumps([one.to_json() for one in self._sealed]).encode(), synced=False)

    def enter(self, inputs: str | None) -> bool:
        """Compare reads of this thread with the outputs of the stages before a unit of these inputs.

        For None, compare with the outputs of all sealed stages. Return whether other checksums were loaded.
        """
        self._entered.inputs = inputs
        if self._root is None or (inputs is not None and inputs in self._in_force):
            return False
        for oldest in list(self._in_force)[:-1]:  # a duplicate unit of the previous stage may still run
            self._in_force.pop(oldest, None)
        if self._is_elsewhere:
            self._views = {}
        self._in_force[inputs] = merge_entries(self._entries_of(one) for one in self._rows(inputs))
        return True

    @property
    def entered(self) -> str | None:
        """Inputs of the last :meth:`enter` in this thread."""
        inputs: str | None = getattr(self._entered, "inputs", None)
        return inputs

    @property
    def after(self) -> str:
        """Inputs of the stage after all sealed ones, empty if none is sealed."""
        rows = [] if self._root is None else self._rows()
        return rows[-1].after if rows else ""

    def stated(self, name: str) -> int | None:
        """Return the checksum of an output of an earlier stage, None for other names."""
        if self._root is None:
            return None
        inputs = self.entered
        entries = self._in_force.get(inputs)
        if entries is None:
            self.enter(inputs)
            entries = self._in_force[inputs]
        value = np.uint64(name_hash(name))
        at = int(np.searchsorted(entries["name"], value))
        return int(entries["checksum"][at]) if at < entries.size and entries["name"][at] == value else None

    def _rows(self, inputs: str | None = None) -> list[Sealed]:
        """Return the seals in order: all, or those before a unit of some inputs.

        Raise :class:`StoreError` if the store is past that unit.
        """
        rows = self._sealed or self._read_index()
        if inputs is None:
            return rows
        found = [*itertools.takewhile(lambda one: one.inputs != inputs, rows)]
        if len(found) == len(rows) and rows and inputs != rows[-1].after:
            msg = f"{self._root} has gone on since this unit was asked for: its result is not needed."
            raise StoreError(msg)
        return found

    def _read_index(self) -> list[Sealed]:
        assert self._root is not None
        epoch = self.epoch or self._read_head().get("epoch")
        try:
            raw = json.loads((self._root / layout.SEALS.format(epoch)).read_bytes())
            return [Sealed.from_json(one) for one in raw]
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
            return []

    def _entries_of(self, sealed: Sealed) -> np.ndarray:
        found = self._entries.get(sealed.digest)
        if found is None:
            assert self._root is not None
            path = self._root / _table(sealed)
            try:
                read = Seal.entries_from(path.read_bytes())
            except FileNotFoundError:
                read = None if self.epoch else np.zeros(0, ENTRY)
            if read is None:
                msg = f"{path} is missing or damaged: {MADE_AGAIN}"
                raise DamagedError(msg, [path])
            found = self._entries[sealed.digest] = read
        return found


def _table(sealed: Sealed) -> str:
    return f"{layout.records_of(sealed.label.partition(ROUND)[0])}{sealed.digest}.seal"
