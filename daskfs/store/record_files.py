"""Records of finished units: in memory, and in files of which those of the store's epoch, and inherited ones, count."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from daskfs.errors import DamagedError, StoreError
from daskfs.storage import StoragePath, map_concurrent
from daskfs.store import layout
from daskfs.store.epoch import Epoch
from daskfs.store.record_index import Line, RecordIndex
from daskfs.store.records import Record, decode, encode, epoch_of, has_damage, place_of
from daskfs.store.second_look import look_twice
from daskfs.store.write_errors import MADE_AGAIN, explain_write_errors

TOGETHER = 256
"""Number of single-record files of a stage at which the driver merges them."""
MERGED_WHEN_FINISHED = 16
"""The same for a finished stage: every process that needs its records reads each file."""
RECORD_PATIENCE = 60.0
"""Seconds to wait for a record that another machine wrote: network file systems cache for a while that a file is
missing."""
FIRST_PAUSE = 0.05
VIEWS = 8
"""Number of stages whose records are kept in memory."""


class Records:
    """Records of the finished units of a store in memory."""

    def __init__(self) -> None:
        self._records: dict[str, dict[int, Record]] = {}

    def get(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None if it is missing or damaged."""
        return next(iter(self.each(stage, [unit])))

    def each(self, stage: str, units: Sequence[int]) -> Iterator[Record | None]:
        """Yield the result of :meth:`get` for some units, in order."""
        yield from map(self._records.get(stage, {}).get, units)

    def need(self, stage: str, units: Iterable[int]) -> Iterator[Record]:
        """Yield the records of finished units; raise :class:`DamagedError` if one is missing or damaged."""
        remaining, read_again = list(units), -1
        while remaining:
            n_found = 0
            for record in self.each(stage, remaining):
                if record is None:
                    break
                yield record
                n_found += 1
            del remaining[:n_found]
            if not remaining:
                return
            if remaining[0] == read_again:
                msg = f"unit {read_again} of stage {stage} has no readable record: {MADE_AGAIN}"
                raise DamagedError(msg, filter(None, [self._path(stage, read_again)]))
            read_again = remaining[0]
            self.forget(stage)  # it may have been written again since

    def matching(
        self, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None
    ) -> Iterator[tuple[int, Record]]:
        """Yield the units that have a record of this fingerprint and, unless None, these inputs."""
        for unit, record in zip(units, self.each(stage, units), strict=True):
            if record is None or record.get("fingerprint") != fingerprint:
                continue
            if inputs is None or record.get("inputs") == inputs:
                yield unit, record

    def units(self, stage: str) -> Set[int]:
        """Return the units of a stage that have a record, valid or not."""
        return self._records.get(stage, {}).keys()

    def n_units(self, stage: str) -> int:
        """Return one more than the last unit of a stage that has a record."""
        return max(self._records.get(stage, ()), default=-1) + 1

    def write(self, record: Record) -> None:
        """Record a finished unit, in the process that ran it and after all its outputs are written."""
        self._records.setdefault(record["stage"], {})[record["unit"]] = record

    def merge(self, stage: str) -> None:
        """Merge the single-record files of a stage that this process has read, if there are many."""

    def close(self, stage: str) -> None:
        """Merge the record files of a finished stage, and write records again that were deleted meanwhile."""

    def forget(self, stage: str | None = None) -> None:
        """Read the records of a stage, of all unless given, again when they are next needed."""

    def _path(self, stage: str, unit: int) -> StoragePath | None:
        """Return the path of the file that a unit's record is written to; None for a store in memory."""
        del stage, unit
        return None


class RecordFiles(Records):
    """Records of the finished units of a store on disk or in an object store; this process writes those of an epoch."""

    def __init__(self, root: StoragePath, epoch: Epoch) -> None:
        super().__init__()
        self._root, self._epoch = root, epoch
        self._views: dict[str, RecordIndex] = {}
        self._alone: dict[str, int] = {}
        self._n_merged: dict[str, int] = {}
        self._is_worker = bool(epoch.name)

    def inherited(self) -> dict[str, list[str]]:
        """Return the names of the valid record files of each stage, oldest first."""
        folder = self._root.own_folder(layout.RECORDS_DIR)
        stages = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        return {stage: self._files(stage) for stage in stages}

    def last_change(self, stages: Iterable[str]) -> float:
        """Return the time when a record of some stages was last written, in seconds since 1970.

        It is infinite if there are none, and in an object store, which keeps what it has acknowledged.
        """
        folders = [] if self._root.is_remote else map(self.folder, stages)
        return max((folder.stat().st_mtime for folder in folders), default=math.inf)

    def names(self) -> Iterator[str]:
        """Yield the names, in the store, of all valid record files."""
        for stage, files in self.inherited().items():
            yield from (f"{layout.records_of(stage)}{name}" for name in files)

    def folder(self, stage: str) -> StoragePath:
        """Return the folder of a stage's records."""
        return self._root.own_folder(layout.records_of(stage).rstrip("/"))

    def file(self, stage: str, unit: int) -> StoragePath:
        """Return the path of the file that holds a unit's record, or would hold it."""
        line = self._view(stage).find(unit)
        return self.folder(stage) / (f"{unit:06d}.json" if line is None else line.file)

    def _files(self, stage: str) -> list[str]:
        """Return the names of a stage's valid record files, oldest first."""
        try:
            names = {path.name for path in self.folder(stage).iterdir()}
        except (FileNotFoundError, NotADirectoryError):
            return []
        return self._epoch.valid(stage, names)

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
            places = [place_of(name) for name in files if epoch_of(name) == self._epoch.name]
            self._alone[stage] = sum(is_alone for is_alone, _ in places)
            self._n_merged[stage] = max((number for is_alone, number in places if not is_alone), default=-1) + 1
        return view

    def _data(self, stage: str, file: str) -> bytes:
        """Return the content of a record file, read once more if a line of it is damaged."""
        path = self.folder(stage) / file
        try:
            return look_twice(path, path.read_own, FileNotFoundError, is_wrong=has_damage)
        except (FileNotFoundError, IsADirectoryError):  # merged meanwhile, or no record file
            return b""

    def get(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None if it is missing or damaged."""
        try:
            return self.read(stage, unit)
        except StoreError:
            return None

    def read(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, None if it is missing; raise :class:`StoreError` if it is damaged."""
        line = self._view(stage).find(unit)
        return None if line is None else decode(stage, unit, line.line)

    def each(self, stage: str, units: Sequence[int]) -> Iterator[Record | None]:
        """Yield the result of :meth:`get` for some units, in order."""
        for unit, line in zip(units, self._view(stage).lines(units), strict=True):
            try:
                yield None if line is None else decode(stage, unit, line)
            except StoreError:
                yield None

    def units(self, stage: str) -> Set[int]:
        """Return the units of a stage that have a record, valid or not."""
        return self._view(stage).units()

    def n_units(self, stage: str) -> int:
        """Return one more than the last unit of a stage that has a record."""
        return self._view(stage).n_units

    def forget(self, stage: str | None = None) -> None:
        """Read the records of a stage, of all unless given, again when they are next needed."""
        if stage is not None:
            self._views.pop(stage, None)
        else:
            self._views, self._alone = {}, {}

    def refresh(self) -> None:
        """Forget all records on a worker, since the driver and other workers have written more."""
        if self._is_worker:
            self.forget()

    def write(self, record: Record) -> None:
        """Record a finished unit, in the process that ran it and after all its outputs are written.

        The first record of a unit in an epoch stays.

        Raises
        ------
        DamagedError
            If another process has written the record, and it cannot be read.
        """
        stage, unit = record["stage"], record["unit"]
        self._epoch.check()
        line = encode(record)
        path = self._path(stage, unit)
        with explain_write_errors(path):
            if path.put_first(line):
                self.note(stage, unit, line.strip())
            elif self.written(stage, unit, None, FileNotFoundError) is None:
                msg = f"{path} is damaged: {MADE_AGAIN}"
                raise DamagedError(msg, [path])

    def note(self, stage: str, unit: int, line: bytes) -> None:
        """Keep the line of a unit that :meth:`written` returned, so that it is known and will be merged."""
        view = self._views.get(stage)
        if view is not None:
            self._alone[stage] += unit not in view.alone
            view.alone[unit] = Line(self._name(unit, "json"), line)

    def written(
        self, stage: str, unit: int, fingerprint: str | None, *wrong: type[OSError]
    ) -> tuple[Record, bytes] | None:
        """Return the record that a unit wrote in this epoch, and its line; None if there is none.

        A worker may rerun a unit whose completion never reached the scheduler. None as `fingerprint` stands for any;
        errors of type `wrong` are looked at twice, as damage is.
        """
        path = self._path(stage, unit)

        def look() -> tuple[Record, bytes]:
            line = path.read_own().strip()
            return decode(stage, unit, line), line

        try:
            record, line = look_twice(path, look, StoreError, *wrong)
        except (FileNotFoundError, NotADirectoryError, StoreError):
            return None
        return (record, line) if fingerprint in (None, record.get("fingerprint")) else None

    def awaited(self, stage: str, unit: int, fingerprint: str) -> tuple[Record, bytes] | None:
        """Wait for the record of a unit that has just finished on another machine, and return it as :meth:`written`.

        None if it does not appear in time.
        """
        pause, deadline = FIRST_PAUSE, time.monotonic() + RECORD_PATIENCE
        while (record := self.written(stage, unit, fingerprint)) is None and time.monotonic() < deadline:
            if self._root.is_remote:  # a written object is visible to all at once
                return self.written(stage, unit, fingerprint, FileNotFoundError)
            self.folder(stage).refresh()
            time.sleep(pause)
            pause *= 2
        return record

    def merge(self, stage: str) -> None:
        """Merge the single-record files of a stage that this process has read, if there are many."""
        if self._alone.get(stage, 0) >= TOGETHER:
            self._merge(stage, {})

    def close(self, stage: str) -> None:
        """Merge the record files of a finished stage, and write records again that were deleted meanwhile."""
        view = self._views.get(stage)
        if view is None:
            return
        lost = view.lost(self._files(stage))
        if self._alone[stage] >= MERGED_WHEN_FINISHED or lost:
            self._merge(stage, lost)

    def _merge(self, stage: str, lost: Mapping[int, bytes]) -> None:
        """Merge the records of this epoch that have a file each, and lines whose files are lost."""
        view, folder = self._views[stage], self.folder(stage)
        single = {unit: line for unit, line in view.alone.items() if epoch_of(line.file) == self._epoch.name}
        lines = dict(sorted({**lost, **{unit: line.line for unit, line in single.items()}}.items()))
        text = b"".join(line + b"\n" for line in lines.values())
        self._epoch.check()
        with explain_write_errors(folder):
            is_written = False
            while not is_written:  # another process may have written a file of this number
                file = self._name(self._n_merged[stage], "jsonl")
                is_written = (folder / file).put_first(text)
                self._n_merged[stage] += 1
        for _ in map_concurrent(self._root, lambda line: (folder / line.file).unlink(missing_ok=True), single.values()):
            pass
        view.merge(file, lines)
        self._alone[stage] = 0

    def _path(self, stage: str, unit: int) -> StoragePath:
        return self.folder(stage) / self._name(unit, "json")

    def _name(self, number: int, kind: str) -> str:
        return ".".join(filter(None, (f"{number:06d}", self._epoch.name, kind)))
