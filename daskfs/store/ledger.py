"""Which units of a store are done, and whose word counts for it. ``docs/protocol.md`` says why no order of events makes
a wrong result valid.

A driver begins an *epoch* when it has locked the store: a new name in ``.epoch``, with the record files that it takes
over. A unit writes its record into a file that carries the epoch in its name, so a unit of an epoch that has ended can
write what it likes: nobody reads it.
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
"""Records of a stage that lie in files of their own, at most, before the driver puts them into one."""
FEW = 16
"""Records of a finished stage that may lie in files of their own: every process that asks for them reads each."""
CHECK_SECONDS = {True: 10.0, False: 1.0}
"""How long the epoch is taken to hold after it was looked at, in an object store and on a disk."""
PATIENCE_SECONDS = 60.0
"""How long a record is looked for that another machine has written: network file systems remember for a while that a
file was not there."""
FIRST_PAUSE = 0.05
COMPARED = 4096
"""Small objects of an object store, which keeps what it took, whose bytes are compared with their checksum before
anybody reads them.
"""
VIEWS = 8
"""Stages whose records are kept in memory."""
View = dict[int, tuple[str, bytes]]
"""Record file and line of each unit of a stage."""


class Ledger:
    """Epoch, records and seals of a store.

    Parameters
    ----------
    root
        Of the store, None for one in memory.
    epoch
        That units of this process write records in; empty for a process that only reads, or has yet to begin one.
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
        """Begin an epoch: units of others do not count from now on. What they have recorded does, unless `fresh`."""
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
        """Raise :class:`StoreError` where the epoch of this process has ended; a look counts for a second or so."""
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
        """Look again at what is recorded."""
        self._views, self._alone, self._head, self._sealed, self._in_force = {}, {}, None, [], {}

    def unseal(self, label: str) -> None:
        """Drop the seal of a stage, or of a round of it, and of all that came after it."""
        first = next((i for i, one in enumerate(self._sealed) if one.label == label), None)
        if first is not None:
            del self._sealed[first:]
            self._in_force.pop(None, None)

    def _read_head(self) -> dict[str, Any]:
        """Return what ``.epoch`` says; nothing where there is none, or nobody can read it."""
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
        """Return the names of a stage's record files that count, older ones first. Where no epoch was begun, all do."""
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
        """Yield the names, in the store, of all record files that count."""
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
        except (FileNotFoundError, IsADirectoryError):  # put together with others meanwhile, or nobody's
            return b""

    # ------------------------------------------------------------------------------------------------------- reading
    def record(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None when there is none or it is damaged."""
        if self._root is None:
            return self._held.get(stage, {}).get(unit)
        try:
            return self.read(stage, unit)
        except StoreError:
            return None

    def read(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None where there is none; :class:`StoreError` where it is damaged."""
        _, line = self._view(stage).get(unit, ("", None))
        return None if line is None else decode(stage, unit, line)

    def file(self, stage: str, unit: int) -> StoragePath:
        """Return the file that a unit's record lies in, or would."""
        file, _ = self._view(stage).get(unit, (f"{unit:06d}.json", b""))
        return self.where(stage) / file

    def records(self, stage: str, units: Iterable[int]) -> Iterator[Record | None]:
        """Yield what :meth:`record` returns of some units, in their order."""
        return (self.record(stage, unit) for unit in units)

    def need(self, stage: str, units: Iterable[int]) -> Iterator[Record]:
        """Yield the records of units that are done; :class:`DamagedError` where one is missing or damaged."""
        for unit in units:
            if (record := self.record(stage, unit)) is None:
                self._views.pop(stage, None)  # it may have been made again since
                record = self.record(stage, unit)
            if record is None:
                paths = [] if self._root is None else [self._file(stage, unit)]
                raise DamagedError(f"unit {unit} of stage {stage} has no readable record: {MADE_AGAIN}", paths)
            yield record

    def where(self, stage: str) -> StoragePath:
        """Return the folder of a stage's records."""
        assert self._root is not None
        return self._root / layout.records_of(stage)

    def recorded(self, stage: str) -> Iterable[int]:
        """Return the units of a stage that have a record, whatever it says, in no order."""
        return self._held.get(stage, {}).keys() if self._root is None else self._view(stage).keys()

    def n_recorded(self, stage: str) -> int:
        """Return one more than the number of the last unit of a stage that has a record."""
        return max(self.recorded(stage), default=-1) + 1

    # ------------------------------------------------------------------------------------------------------- writing
    def write(self, record: Record) -> None:
        """Record a finished unit; called in the process that ran it, after all it wrote is in place. Of several records
        of a unit in one epoch the first stays.
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
        """Return the record that a unit has written in this epoch, None where there is none; a worker may run a unit
        again whose end the scheduler never heard of.
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
        """Return the record of a unit that has just ended on another machine, None where it does not appear."""
        pause, deadline = FIRST_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while (record := self.written(stage, unit, fingerprint)) is None and time.monotonic() < deadline:
            if isinstance(self._root, ObjectPath):  # what is put there is there for all at once
                return None
            refresh(self.where(stage))
            time.sleep(pause)
            pause *= 2
        return record

    def put_together(self, stage: str) -> None:
        """Put records of a stage that this process has read into one file, where many lie in files of their own."""
        if self._alone.get(stage, 0) >= TOGETHER:
            self._put_together(stage, self._files(stage))

    def close(self, stage: str) -> None:
        """Leave few files of a finished stage, and put what somebody has deleted meanwhile again."""
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

    # -------------------------------------------------------------------------------------------- what is done or lost
    def not_done(self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None) -> list[int]:
        """Return the units that are not done: without a record of this fingerprint and, unless None, these inputs, or
        without everything there that it names, in its size; of small objects the checksum is compared as well.
        """
        done = self._records_of(stage, units, fingerprint, inputs)
        lost = self._lost_outputs(done)
        return [unit for unit in units if unit not in done or lost[unit]]

    def lost(self, stage: str, units: Sequence[int], fingerprint: str) -> list[str]:
        """Return the names of what recorded units wrote and what is not there as recorded, and the record files whose
        records are damaged. Nothing of a unit that never was done.
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
            if inputs is None or record.get("inputs") in (None, inputs):  # older versions named none
                found[unit] = record
        return found

    def _lost_outputs(self, records: Mapping[int, Record]) -> dict[int, list[str]]:
        """Return, by unit, the names of what is not there as its record says."""
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
            whole = []  # whoever reads them compares them
        checksums = dict(zip(whole, map_concurrent(self._root, self._checksum, whole), strict=True))
        for (unit, name), (size, checksum, _) in stated.items():
            if found.get(name) != size or checksums.get(name, checksum) != checksum:
                lost[unit].append(name)
        return lost

    def _checksum(self, name: str) -> int | None:
        """Return the CRC-32 of a small object, None where it is gone or cannot be read."""
        assert self._root is not None
        try:
            return zlib.crc32(read_buffer(self._root / name))
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and is_inconclusive(self._root, error):
                raise
            return None

    # --------------------------------------------------------------------------------------------------------- seals
    def seal(self, position: int, inputs: str, label: str, units: range, fingerprint: str) -> Sealed | None:
        """Return the seal of a stage, or of a round of it, that comes at a position among all; None where units of it
        are not recorded.
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
        """Put checksums where other processes look for them. They follow from records: losing power may lose them."""
        assert self._root is not None
        table, index = self._root / _table(sealed), self._root / layout.SEALS.format(self.epoch)
        with explain_write_errors(table):
            put(table, found.to_bytes(), synced=False)
            put(index, json.dumps([one.to_json() for one in self._sealed]).encode(), synced=False)

    def enter(self, inputs: str | None) -> bool:
        """Compare what is read with what the stages before a unit of these inputs wrote, None: with all that is sealed.
        Return whether that is something else than before.
        """
        self._entered.inputs = inputs
        if self._root is None or (inputs is not None and inputs in self._in_force):
            return False
        for oldest in list(self._in_force)[:-1]:  # a copy of a unit of the stage before may still run
            self._in_force.pop(oldest, None)
        if self._is_elsewhere:
            self._views = {}
        self._in_force[inputs] = merge_entries(self._entries_of(one) for one in self._rows(inputs))
        return True

    @property
    def entered(self) -> str | None:
        """Inputs that this thread has entered with."""
        inputs: str | None = getattr(self._entered, "inputs", None)
        return inputs

    @property
    def after(self) -> str:
        """Inputs of what comes after everything that is sealed, empty where nothing is."""
        rows = [] if self._root is None else self._rows()
        return rows[-1].after if rows else ""

    def stated(self, name: str) -> int | None:
        """Return the checksum of an output of a stage before, None for what none of them wrote."""
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
        """Return what was sealed, in its order: everything, or what was before a unit of some inputs."""
        rows = self._sealed or self._read_index()
        if inputs is None:
            return rows
        found = [*itertools.takewhile(lambda one: one.inputs != inputs, rows)]
        if len(found) == len(rows) and rows and inputs != rows[-1].after:
            raise StoreError(f"{self._root} has gone on since this unit was asked for: its result is not needed.")
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
                raise DamagedError(f"{path} is missing or damaged: {MADE_AGAIN}", [path])
            found = self._entries[sealed.digest] = read
        return found


def _table(sealed: Sealed) -> str:
    return f"{layout.records_of(sealed.label.partition(ROUND)[0])}{sealed.digest}.seal"
