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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np

from daskfs.errors import DamagedError, InUseError, StoreError
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
from daskfs.store.record_index import Line, RecordIndex
from daskfs.store.records import EPOCH_DIGITS, Record, decode, encode, epoch_of, place_of
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
STATED = 2**17
"""Number of outputs whose recorded sizes are compared at once: more would take more memory."""


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
        self._views: dict[str, RecordIndex] = {}
        self._alone: dict[str, int] = {}
        self._n_merged: dict[str, int] = {}
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
        """Raise :class:`StoreError` if the epoch of this process has ended; unless `now`, a recent check is reused.

        If another process began the next one, it is an :class:`InUseError`.
        """
        if self._root is None or not self.epoch:
            return
        seconds = CHECK_SECONDS[isinstance(self._root, ObjectPath)]
        if not now and time.monotonic() < self._checked + seconds:
            return
        if (epoch := self._read_head().get("epoch")) != self.epoch:
            if epoch is None:
                msg = f"{self._root} was deleted or moved away while this process ran in it: it stops here."
                raise StoreError(msg)
            msg = f"{self._root} was taken over by another daskfs process while this one ran in it: it stops here."
            raise InUseError(msg)
        self._checked = time.monotonic()

    def forget(self) -> None:
        """Drop cached records and seals, so that they are read again."""
        self._views, self._alone, self._head, self._sealed, self._in_force = {}, {}, None, [], {}
        self._entered.inputs = None  # of a unit that failed in this thread

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
        if self._head is None:
            self._head = self._read_head()
        try:
            there = {path.name for path in self.where(stage).iterdir()}
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

    def _view(self, stage: str) -> RecordIndex:
        view = self._views.get(stage)
        if view is None:
            view = RecordIndex()
            files = self._files(stage)
            for file, data in zip(
                files, map_concurrent(self._root, lambda name: self._data(stage, name), files), strict=True
            ):
                view.read(file, data)
            for oldest in list(self._views)[: len(self._views) + 1 - VIEWS]:
                self._views.pop(oldest)
            self._views[stage] = view
            own = [place_of(name) for name in files if epoch_of(name) == self.epoch]
            self._alone[stage] = sum(is_alone for is_alone, _ in own)
            self._n_merged[stage] = max((number for is_alone, number in own if not is_alone), default=-1) + 1
        return view

    def _data(self, stage: str, file: str) -> bytes:
        try:
            return (self.where(stage) / file).read_bytes()
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
        found = self._view(stage).find(unit)
        return None if found is None else decode(stage, unit, found.line)

    def file(self, stage: str, unit: int) -> StoragePath:
        """Return the path of the file that holds a unit's record, or would hold it."""
        found = self._view(stage).find(unit)
        return self.where(stage) / (f"{unit:06d}.json" if found is None else found.file)

    def records(self, stage: str, units: Iterable[int]) -> Iterator[Record | None]:
        """Yield the result of :meth:`record` for some units, in order."""
        if self._root is None:
            yield from (self.record(stage, unit) for unit in units)
            return
        those, same = itertools.tee(units)
        for unit, line in zip(those, self._view(stage).lines(same), strict=True):
            try:
                yield None if line is None else decode(stage, unit, line)
            except StoreError:
                yield None

    def need(self, stage: str, units: Iterable[int]) -> Iterator[Record]:
        """Yield the records of finished units; raise :class:`DamagedError` if one is missing or damaged."""
        remaining, read_again = list(units), -1
        while remaining:
            n_found = 0
            for record in itertools.takewhile(lambda record: record is not None, self.records(stage, remaining)):
                assert record is not None
                yield record
                n_found += 1
            del remaining[:n_found]
            if not remaining:
                return
            if remaining[0] == read_again:
                paths = [] if self._root is None else [self._file(stage, read_again)]
                msg = f"unit {read_again} of stage {stage} has no readable record: {MADE_AGAIN}"
                raise DamagedError(msg, paths)
            read_again = remaining[0]
            self._views.pop(stage, None)  # it may have been written again since

    def where(self, stage: str) -> StoragePath:
        """Return the folder of a stage's records."""
        assert self._root is not None
        return self._root / layout.records_of(stage)

    def recorded(self, stage: str) -> Set[int]:
        """Return the units of a stage that have a record, valid or not."""
        return self._held.get(stage, {}).keys() if self._root is None else self._view(stage).units()

    def n_recorded(self, stage: str) -> int:
        """Return one more than the last unit of a stage that has a record."""
        return max(self._held.get(stage, ()), default=-1) + 1 if self._root is None else self._view(stage).n_units

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
                self.note(stage, unit, line.strip())

    def _file(self, stage: str, unit: int) -> StoragePath:
        return self.where(stage) / self._named(unit, "json")

    def _named(self, number: int, kind: str) -> str:
        return ".".join(filter(None, (f"{number:06d}", self.epoch, kind)))

    def note(self, stage: str, unit: int, line: bytes) -> None:
        """Keep the line of a unit that :meth:`written` returned, so that it is known and will be merged."""
        view = self._views.get(stage)
        if view is not None:
            self._alone[stage] += unit not in view.alone
            view.alone[unit] = Line(self._named(unit, "json"), line)

    def written(self, stage: str, unit: int, fingerprint: str) -> tuple[Record, bytes] | None:
        """Return the record that a unit wrote in this epoch, and its line; None if there is none.

        A worker may rerun a unit whose completion never reached the scheduler.
        """
        try:
            line = self._file(stage, unit).read_bytes().strip()
            record = decode(stage, unit, line)
        except (FileNotFoundError, NotADirectoryError, StoreError):
            return None
        return (record, line) if record.get("fingerprint") == fingerprint else None

    def awaited(self, stage: str, unit: int, fingerprint: str) -> tuple[Record, bytes] | None:
        """Return what :meth:`written` does, for a unit that has just finished on another machine.

        None if it does not appear in time.
        """
        pause, deadline = FIRST_PAUSE, time.monotonic() + PATIENCE_SECONDS
        while (found := self.written(stage, unit, fingerprint)) is None and time.monotonic() < deadline:
            if isinstance(self._root, ObjectPath):  # a written object is visible to all at once
                return None
            refresh(self.where(stage))
            time.sleep(pause)
            pause *= 2
        return found

    def put_together(self, stage: str) -> None:
        """Merge the single-record files of a stage that this process has read, if there are many."""
        if self._alone.get(stage, 0) >= TOGETHER:
            self._put_together(stage, {})

    def close(self, stage: str) -> None:
        """Merge the record files of a finished stage, and write records again that were deleted meanwhile."""
        view = self._views.get(stage)
        if self._root is None or view is None:
            return
        lost = view.lost(self._files(stage))
        if self._alone[stage] >= FEW or lost:
            self._put_together(stage, lost)

    def _put_together(self, stage: str, lost: Mapping[int, bytes]) -> None:
        """Merge the records of this epoch that have a file each, and lines whose files are lost."""
        view, folder = self._views[stage], self.where(stage)
        own = {unit: held for unit, held in view.alone.items() if epoch_of(held.file) == self.epoch}
        lines = dict(sorted({**lost, **{unit: held.line for unit, held in own.items()}}.items()))
        text = b"".join(line + b"\n" for line in lines.values())
        self.check()
        with explain_write_errors(folder):
            file = next(file for file in self._next_files(stage) if put_first(folder / file, text))
        for _ in map_concurrent(self._root, lambda held: (folder / held.file).unlink(missing_ok=True), own.values()):
            pass
        view.merge(file, lines)
        self._alone[stage] = 0

    def _next_files(self, stage: str) -> Iterator[str]:
        """Yield names for a file of many records that this process has not used."""
        while True:
            self._n_merged[stage] += 1
            yield self._named(self._n_merged[stage] - 1, "jsonl")

    # ------------------------------------------------------------------------------------------------- completeness
    def not_done(self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None) -> list[int]:
        """Return the units that are not done.

        A finished unit has a record of this fingerprint and, unless None, these inputs, and all its outputs exist in
        the recorded size; checksums of small objects are compared as well.
        """
        done, lost = self._outputs_of(self._records_of(stage, units, fingerprint, inputs))
        return [unit for unit in units if unit not in done or unit in lost]

    def found(self, stage: str, unit: int, fingerprints: Collection[str]) -> Record | None:
        """Return the record of a unit if it has one of these fingerprints and all its outputs exist, else None."""
        record = self.record(stage, unit)
        is_valid = record is not None and record.get("fingerprint") in fingerprints
        return record if record is not None and is_valid and not self._outputs_of([(unit, record)])[1] else None

    def lost(self, stage: str, units: Sequence[int], fingerprint: str) -> list[str]:
        """Return the names of recorded outputs that are missing or differ, and of damaged records.

        Units without a record are skipped.
        """
        _, lost = self._outputs_of(self._records_of(stage, units, fingerprint))
        found = [name for names in lost.values() for name in names]
        return found + [f"{layout.records_of(stage)}{unit:06d}" for unit in self._damaged(stage, units)]

    def _damaged(self, stage: str, units: Sequence[int]) -> list[int]:
        recorded = self.recorded(stage)
        some = [unit for unit in units if unit in recorded]
        return [unit for unit, record in zip(some, self.records(stage, some), strict=True) if record is None]

    def _records_of(
        self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None
    ) -> Iterator[tuple[int, Record]]:
        """Yield the units that have a record of this fingerprint and, unless None, these inputs."""
        for unit, record in zip(units, self.records(stage, units), strict=True):
            if record is None or record.get("fingerprint") != fingerprint:
                continue
            if inputs is None or record.get("inputs") == inputs:
                yield unit, record

    def _outputs_of(self, records: Iterable[tuple[int, Record]]) -> tuple[set[int], dict[int, list[str]]]:
        """Return the units of records, and by unit the names of outputs that are missing or differ from its record."""
        units, lost, stated = set[int](), dict[int, list[str]](), list[_Stated]()
        for unit, record in records:
            units.add(unit)
            for kind in ("chunks", "objects"):
                outputs = record[kind].items()
                stated += [_Stated(unit, name, size, checksum, kind == "objects") for name, (size, checksum) in outputs]
            if len(stated) >= STATED:
                self._compare(stated, lost, whole=True)
                stated = []
        self._compare(stated, lost, whole=len(units) > 1)
        return units, lost

    def _compare(self, stated: Sequence[_Stated], lost: dict[int, list[str]], *, whole: bool) -> None:
        """Add the names of outputs that are missing or differ from what is stated."""
        if self._root is None:
            return
        found = sizes(self._root, [one.name for one in stated], whole=whole)
        small = [one.name for one in stated if one.is_object and found.get(one.name) == one.size]
        if isinstance(self._root, ObjectPath) and len(small) > COMPARED:
            small = []  # readers compare them
        checksums = dict(zip(small, map_concurrent(self._root, self._checksum, small), strict=True))
        for one in stated:
            if found.get(one.name) != one.size or checksums.get(one.name, one.checksum) != one.checksum:
                lost.setdefault(one.unit, []).append(one.name)

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
    def seal(
        self, position: int, inputs: str, label: str, units: range, fingerprint: str, read: str | None = None
    ) -> Sealed | None:
        """Seal a stage, or a round of it, at a position in the order of seals.

        Return None if some of its units are not recorded. `read` are the inputs of the units if they began with an
        earlier stage; None for `inputs`.
        """
        if position < len(self._sealed):
            known = self._sealed[position]
            if (known.label, known.inputs) == (label, inputs):
                return known
            del self._sealed[position:]
        stage = label.partition(ROUND)[0]
        found = seal_of(
            record for _, record in self._records_of(stage, units, fingerprint, inputs if read is None else read)
        )
        if found.n_records < len(units):
            return None
        sealed = Sealed(inputs, label, found.digest)
        self._sealed.append(sealed)
        for outdated in (None, sealed.after):  # loaded before this seal, without its outputs
            self._in_force.pop(outdated, None)
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
            put(index, json.dumps(self._sealed).encode(), synced=False)

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
            return [Sealed(*map(str, one)) for one in raw]
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


class _Stated(NamedTuple):
    """Output of a unit as its record states it."""

    unit: int
    name: str
    size: int
    checksum: int
    is_object: bool


def _table(sealed: Sealed) -> str:
    return f"{layout.records_of(sealed.label.partition(ROUND)[0])}{sealed.digest}.seal"
