"""Seals: checksums of all outputs and facts of a finished stage.

The seals of earlier stages are the inputs of a unit. Its record names their digest, so a unit whose inputs were made
again with other bytes runs again. Every read of a chunk or an object compares its checksum, so an output that a late
writer replaced is damage, and never an input.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import threading
import time
from array import array
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from daskfs.errors import DamagedError, StoreError
from daskfs.storage import StoragePath
from daskfs.store import layout
from daskfs.store.epoch import Epoch
from daskfs.store.records import Record, with_checksum, without_checksum
from daskfs.store.second_look import ABSENT, look_twice
from daskfs.store.write_errors import MADE_AGAIN, explain_write_errors

ROUND = "#"
"""Separates the name of a stage from the number of a round in the label of a seal."""
DIGITS = 24
HEAD_DIGITS = 64
ENTRY = np.dtype([("name", "<u8"), ("checksum", "<u4")])
SEAL_PATIENCE = 10.0
"""Seconds to wait for the index that names the inputs of a unit."""
SEAL_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class Seal:
    """Checksums of the outputs of a stage, or of one round of a loop.

    Entries are hashes of names and checksums, dtype :data:`ENTRY`, shape (n_outputs,), sorted by name; the digest is of
    them and of the facts in the records.
    """

    entries: np.ndarray
    digest: str
    n_records: int


def entries_to_bytes(entries: np.ndarray) -> bytes:
    """Serialize the entries of a seal for :func:`entries_from`."""
    data = entries.tobytes()
    return hashlib.sha256(data).hexdigest().encode() + data


def entries_from(data: bytes) -> np.ndarray | None:
    """Return the entries of :func:`entries_to_bytes`, dtype :data:`ENTRY`, shape (n_outputs,); None if damaged."""
    head, body = data[:HEAD_DIGITS], data[HEAD_DIGITS:]
    is_whole = len(body) % ENTRY.itemsize == 0 and hashlib.sha256(body).hexdigest().encode() == head
    return np.frombuffer(body, ENTRY) if is_whole else None


def name_hash(name: str) -> int:
    """Return a 64-bit hash of a name; names would take ten times the memory."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def seal_of(records: Iterable[Record]) -> Seal:
    """Return the seal of records in the order of their units."""
    names, checksums, n_records = array("Q"), array("Q"), 0
    facts = hashlib.sha256()
    for record in records:
        for kind in ("chunks", "objects"):
            names.extend(map(name_hash, record[kind]))
            checksums.extend(checksum for _, checksum in record[kind].values())
        facts.update(json.dumps([record["unit"], record.get("facts")], sort_keys=True).encode())
        n_records += 1
    entry_table = np.empty(len(names), ENTRY)
    entry_table["name"], entry_table["checksum"] = names, checksums
    entries = merge_entries([entry_table])
    facts.update(entries.tobytes())
    return Seal(entries, facts.hexdigest()[:DIGITS], n_records)


def merge_entries(entries: Iterable[np.ndarray]) -> np.ndarray:
    """Concatenate entries, dtype :data:`ENTRY`, and sort them by name; the last one of each name stays."""
    together = np.concatenate([np.zeros(0, ENTRY), *entries])
    together = together[np.argsort(together["name"], kind="stable")]
    is_last = np.ones(together.size, bool)
    is_last[:-1] = together["name"][1:] != together["name"][:-1]
    return together[is_last]


class Sealed(NamedTuple):
    """Seal of a stage, or of one round of it, without its entries."""

    inputs: str
    label: str
    digest: str

    @property
    def after(self) -> str:
        """Inputs of the next stage or round."""
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:DIGITS]


class Seals:
    """Seals of a store, in order, and the checksums that reads of this process are compared with; none in memory."""

    def __init__(self, root: StoragePath | None, epoch: Epoch) -> None:
        self._root, self._epoch = root, epoch
        self._sealed: list[Sealed] = []
        self._entries: dict[str, np.ndarray] = {}
        self._in_force: dict[str | None, np.ndarray] = {}
        self._entered = threading.local()

    def seal(
        self, position: int, inputs: str, label: str, records: Iterable[tuple[int, Record]], n_units: int
    ) -> Sealed | None:
        """Seal a stage, or a round of it, at a position in the order of seals.

        `records` are those of its `n_units` units, read only if it is not sealed yet. Return None if there are fewer.
        """
        if position < len(self._sealed):
            earlier = self._sealed[position]
            if (earlier.label, earlier.inputs) == (label, inputs):
                return earlier
            del self._sealed[position:]
        seal = seal_of(record for _, record in records)
        if seal.n_records < n_units:
            return None
        sealed = Sealed(inputs, label, seal.digest)
        self._sealed.append(sealed)
        for outdated in (None, sealed.after):  # loaded before this seal, without its outputs
            self._in_force.pop(outdated, None)
        self._entries[seal.digest] = seal.entries
        if self._epoch.name:
            self._put([sealed], self._epoch.name)
        return sealed

    def unseal(self, label: str) -> None:
        """Drop the seal of a stage, or of a round of it, and all later seals."""
        first = next((i for i, one in enumerate(self._sealed) if one.label == label), None)
        if first is not None:
            del self._sealed[first:]
            self._in_force.pop(None, None)

    def forget(self) -> None:
        """Drop all seals, so that they are read, or made, again."""
        self._sealed, self._in_force = [], {}
        self._entered.inputs = None  # of a unit that failed in this thread

    def enter(self, inputs: str | None) -> bool:
        """Compare reads of this thread with the outputs of the stages before a unit of these inputs.

        For None, compare with the outputs of all sealed stages. Return whether other checksums were loaded.
        """
        self._entered.inputs = inputs
        if self._root is None or (inputs is not None and inputs in self._in_force):
            return False
        for oldest in list(self._in_force)[:-1]:  # a duplicate unit of the previous stage may still run
            self._in_force.pop(oldest, None)
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

    def damaged(self) -> list[StoragePath]:
        """Return the paths of lost and damaged seals, or of the index that names them; none before the first one."""
        if self._root is None or (epoch := self._epoch.name or self._epoch.read_current()) is None:
            return []
        try:
            rows = self._read_index()
        except StoreError:
            return [self._root.own(layout.SEALS.format(epoch))]
        return [self._entries_path(one) for one in rows if self._read_entries(one) is None]

    def write(self) -> None:
        """Write all seals that were made from records again, of a store whose lock this process holds."""
        if (epoch := self._epoch.name or self._epoch.read_current()) is not None:
            self._put(self._sealed, epoch)

    def _put(self, seals: Iterable[Sealed], epoch: str) -> None:
        """Write checksums for other processes, unsynced: after a loss of power they are rebuilt from records."""
        assert self._root is not None
        index = self._root.own(layout.SEALS.format(epoch))
        with explain_write_errors(index):
            for one in seals:
                self._entries_path(one).put(entries_to_bytes(self._entries[one.digest]), synced=False)
            index.put(with_checksum(json.dumps(self._sealed).encode()), synced=False)

    def _rows(self, inputs: str | None = None) -> list[Sealed]:
        """Return the seals in order: all, or those before a unit of some inputs.

        The index is read again for some seconds if it does not name these inputs: an older one may come back, of a
        request that a client repeated. Raise :class:`OSError` if it still does not: the store is past that unit.
        """
        if inputs is None:
            return self._sealed or self._known_index()
        deadline = time.monotonic() + SEAL_PATIENCE
        while True:
            rows = self._sealed or self._known_index()
            earlier = [*itertools.takewhile(lambda one: one.inputs != inputs, rows)]
            if len(earlier) < len(rows) or not rows or inputs == rows[-1].after:
                return earlier
            self._epoch.check(now=True)
            if self._sealed or time.monotonic() > deadline:
                raise OSError(errno.ESTALE, "no seal names the inputs of this unit", str(self._root))
            time.sleep(SEAL_PAUSE_SECONDS)

    def _known_index(self) -> list[Sealed]:
        """Return the seals in order; none if their index is lost or damaged, which readers rebuild from records."""
        with suppress(StoreError):
            return self._read_index()
        return []

    def _read_index(self) -> list[Sealed]:
        """Return the seals in order; :class:`StoreError` if their index is lost or damaged."""
        assert self._root is not None
        path = self._root.own(layout.SEALS.format(self._epoch.name or self._epoch.read_current()))

        def look() -> list[Sealed]:
            return [Sealed(*one) for one in json.loads(without_checksum(path.read_own()))]

        try:
            return look_twice(path, look, *ABSENT, ValueError)
        except (*ABSENT, ValueError) as error:
            msg = f"{path} is missing or damaged: {error}"
            raise StoreError(msg) from error

    def _entries_of(self, sealed: Sealed) -> np.ndarray:
        """Return the entries of a seal; for a reader, of one that is lost none, as the records are there.

        On a worker it is damage: the driver writes it again.
        """
        entries = self._entries.get(sealed.digest)
        if entries is None:
            if (entries := self._read_entries(sealed)) is None:
                if self._epoch.name:
                    path = self._entries_path(sealed)
                    msg = f"{path} is missing or damaged: {MADE_AGAIN}"
                    raise DamagedError(msg, [path])
                entries = np.zeros(0, ENTRY)
            self._entries[sealed.digest] = entries
        return entries

    def _read_entries(self, sealed: Sealed) -> np.ndarray | None:
        path = self._entries_path(sealed)
        try:
            return look_twice(
                path, lambda: entries_from(path.read_own()), *ABSENT, is_wrong=lambda entries: entries is None
            )
        except ABSENT:
            return None

    def _entries_path(self, sealed: Sealed) -> StoragePath:
        assert self._root is not None
        return self._root.own(f"{layout.records_of(sealed.label.partition(ROUND)[0])}{sealed.digest}.seal")
