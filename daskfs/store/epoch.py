"""Epoch of a store: the time in which one driver and its workers write.

``docs/inside/protocol.md`` shows why no order of events makes a wrong result valid.

A driver that has locked the store begins an epoch: it writes a new name to ``.epoch``, with the record files that it
inherits. A unit writes its record to a file with the epoch in its name, so records of ended epochs are ignored.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from daskfs.errors import DamagedError, InUseError, StoreError
from daskfs.storage import StoragePath
from daskfs.store import layout
from daskfs.store.records import EPOCH_DIGITS, epoch_of, place_of, with_checksum, without_checksum
from daskfs.store.second_look import ABSENT, look_twice
from daskfs.store.write_errors import MADE_AGAIN, explain_write_errors, try_to_remove

CHECK_SECONDS = {True: 10.0, False: 1.0}
"""Seconds for which a check of the epoch is valid, in an object store (True) and on a disk (False)."""
EPOCH_PATIENCE = {True: 10.0, False: 0.3}
"""Seconds for which an epoch that is missing or unreadable is read again, in an object store (True) and on a disk
(False)."""
EPOCH_PAUSE_SECONDS = 0.1


class Epoch:
    """Epoch in which a process writes.

    The root is None for a store in memory, which has no other writers; the name is empty for a process that only reads,
    or has yet to begin one.
    """

    remedy = MADE_AGAIN
    """What makes damaged files again."""

    def __init__(self, root: StoragePath | None, name: str = "") -> None:
        self._root, self.name = root, name
        self._head: dict[str, Any] | None = None
        self._checked = -np.inf

    def begin(self, inherited: Mapping[str, list[str]], documents: Mapping[str, int]) -> None:
        """Begin an epoch that inherits record files, by stage, and documents of these checksums, by name."""
        assert self._root is not None
        path, name = self._root / layout.EPOCH, uuid.uuid4().hex[:EPOCH_DIGITS]
        head = {"epoch": name, "inherited": inherited, "documents": documents}
        with explain_write_errors(path):
            path.put(with_checksum(json.dumps(head).encode()))
            self.name, self._head = name, None
            for seals in self._root.own_folder(layout.RECORDS_DIR).glob(layout.SEALS_OF_ALL):
                seals.remove()

    def check(self, *, now: bool = False) -> None:
        """Raise :class:`StoreError` if the epoch of this process has ended; unless `now`, a recent check is reused.

        If another process began the next one, it is an :class:`InUseError`.
        """
        if self._root is None or not self.name:
            return
        seconds = CHECK_SECONDS[self._root.is_remote]
        if not now and time.monotonic() < self._checked + seconds:
            return
        deadline = time.monotonic() + EPOCH_PATIENCE[self._root.is_remote]
        while (current := self.read_current()) is None and time.monotonic() < deadline:
            time.sleep(EPOCH_PAUSE_SECONDS)
        if current is None:
            path = self._root / layout.EPOCH
            what = f"{path} is damaged" if path.is_there() else f"{self._root} was deleted or moved away"
            msg = f"{what} while this process ran in it: it stops here."
            raise StoreError(msg)
        if current != self.name:
            msg = f"{self._root} was taken over by another daskfs process while this one ran in it: it stops here."
            raise InUseError(msg)
        self._checked = time.monotonic()

    def may_change(self) -> bool:
        """Return whether this process may delete damaged files and note failures; raise as :meth:`check` does."""
        self.check(now=True)
        return True

    def remove_damaged(self, path: StoragePath, problem: str) -> DamagedError:
        """Delete a damaged or missing file, if this process may, and return the error of a problem with the remedy."""
        if self.may_change():
            try_to_remove(path)
        return DamagedError(f"{problem} {self.remedy}", [path])

    def read_current(self) -> str | None:
        """Return the name of the epoch that the store is in now, None if no driver has begun one."""
        return self._read_head().get("epoch")

    def counts(self, name: str, epoch: str, checksum: int) -> bool:
        """Return whether a document is valid: one of the current epoch, or that this has inherited."""
        head = self._read_head()
        return head.get("epoch") in (None, epoch) or head.get("documents", {}).get(name) == checksum

    def valid(self, stage: str, names: Collection[str]) -> list[str]:
        """Return the names of the record files of a stage that are valid, oldest first, by ``.epoch`` as read once.

        If no epoch was begun, all are valid.
        """
        if self._head is None:
            self._head = self._read_head()
        current, inherited = self._head.get("epoch"), self._head.get("inherited", {}).get(stage, ())
        current_names = [name for name in names if epoch_of(name) is not None and current in (None, epoch_of(name))]
        return [*(name for name in inherited if name in names), *sorted(current_names, key=place_of)]

    def forget(self) -> None:
        """Read ``.epoch`` again for the next question about record files."""
        self._head = None

    def _read_head(self) -> dict[str, Any]:
        """Return the content of ``.epoch``, empty if it is missing or unreadable."""
        assert self._root is not None
        path = self._root / layout.EPOCH
        try:
            head: dict[str, Any] = look_twice(
                path, lambda: json.loads(without_checksum(path.read_own())), ValueError, *ABSENT
            )
        except (*ABSENT, ValueError):
            return {}
        return head


class ReadEpoch(Epoch):
    """Epoch of a store that is only read; `remedy` says what makes its damaged files again."""

    def __init__(self, root: StoragePath | None, remedy: str) -> None:
        super().__init__(root)
        self.remedy = remedy

    def may_change(self) -> bool:
        """Return False."""
        return False
