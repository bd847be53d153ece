"""Overlay: a store that reads another one and writes beside it, so that the other stays as it is."""

from __future__ import annotations

from pathlib import Path

from daskfs.storage import StoragePath, as_path
from daskfs.store.epoch import Epoch, ReadEpoch
from daskfs.store.record_files import RecordFiles
from daskfs.store.record_index import RecordIndex
from daskfs.store.records import Record, encode
from daskfs.store.store import Store


class _OverlayRecords(RecordFiles):
    """Records of a store, and others that are kept in memory."""

    def __init__(self, root: StoragePath, epoch: Epoch) -> None:
        super().__init__(root, epoch)
        self._own: dict[str, dict[int, bytes]] = {}

    def write(self, record: Record) -> None:
        """Keep the record of a unit."""
        stage, unit = record["stage"], record["unit"]
        self._own.setdefault(stage, {})[unit] = line = encode(record).strip()
        self._view(stage)
        self.note(stage, unit, line)

    def _view(self, stage: str) -> RecordIndex:
        is_known = stage in self._views
        view = super()._view(stage)
        for unit, line in {} if is_known else self._own.get(stage, {}).items():
            self.note(stage, unit, line)
        return view


class Overlay(Store):
    """Store that reads `base` and writes to an existing folder; what is in this hides what has its name in `base`."""

    def __init__(self, base: Store, folder: Path) -> None:
        super().__init__(base.root)
        self.epoch = ReadEpoch(base.root, "see 'daskfs verify'.")
        self.records = _OverlayRecords(base.path(""), self.epoch)
        self._folder = as_path(folder)

    def path(self, name: str) -> StoragePath:
        """Return the path at which a name is read."""
        return self.target(name) if self.target(name).is_there() else super().path(name)

    def target(self, name: str) -> StoragePath:
        """Return the path at which a name is written."""
        return self._folder.own(name)
