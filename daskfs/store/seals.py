"""What finished stages wrote, by checksum: readers take nothing else for it.

A seal stands for all that the units of a stage wrote and found. Seals of the stages before are the inputs of a unit:
its record names their digest, so that a unit whose inputs were made again, to other bytes, runs again. The checksums
behind the seals are compared whenever a chunk or an object is read, so that what a late writer puts in the place of
an output is damage, and never an input.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from daskfs.store.records import Record

ROUND = "#"
"""Parts the name of a stage from the number of a round in the label of a seal."""
DIGITS = 24
HEAD_DIGITS = 64
ENTRY = np.dtype([("name", "<u8"), ("checksum", "<u4")])


@dataclass(frozen=True)
class Seal:
    """What the units of a stage, of a loop those of one round, wrote: sorted hashes of names, and checksums.

    Parameters
    ----------
    entries
        Of type :data:`ENTRY`, shape (n_outputs,), sorted by name.
    digest
        Of the entries and of the facts in the records.
    """

    entries: np.ndarray
    digest: str

    def to_bytes(self) -> bytes:
        """Return what :meth:`from_bytes` reads."""
        data = self.entries.tobytes()
        return hashlib.sha256(data).hexdigest().encode() + data

    @staticmethod
    def entries_from(data: bytes) -> np.ndarray | None:
        """Return the entries that :meth:`to_bytes` wrote, None where they are damaged."""
        head, body = data[:HEAD_DIGITS], data[HEAD_DIGITS:]
        is_whole = len(body) % ENTRY.itemsize == 0 and hashlib.sha256(body).hexdigest().encode() == head
        return np.frombuffer(body, ENTRY) if is_whole else None


def name_hash(name: str) -> int:
    """Return 64 bits that stand for a name; names would take ten times the memory."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def seal_of(records: Iterable[Record]) -> Seal:
    """Return the seal of some units, in the order of their numbers."""
    found: list[tuple[int, int]] = []
    facts = hashlib.sha256()
    for record in records:
        for kind in ("chunks", "objects"):
            found.extend((name_hash(name), checksum) for name, (_, checksum) in record[kind].items())
        facts.update(json.dumps([record["unit"], record.get("facts")], sort_keys=True).encode())
    entries = merge_entries([np.array(found, ENTRY)])
    facts.update(entries.tobytes())
    return Seal(entries, facts.hexdigest()[:DIGITS])


def merge_entries(entries: Iterable[np.ndarray]) -> np.ndarray:
    """Return all entries sorted by name; of one name the last."""
    together = np.concatenate([np.zeros(0, ENTRY), *entries])
    together = together[np.argsort(together["name"], kind="stable")]
    is_last = np.ones(together.size, bool)
    is_last[:-1] = together["name"][1:] != together["name"][:-1]
    return together[is_last]


def chained_digest(inputs: str, label: str, digest: str) -> str:
    """Return the inputs of what comes after a stage of some inputs."""
    return hashlib.sha256(json.dumps([inputs, label, digest]).encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Sealed:
    """A stage, or one round of it, as it was sealed."""

    inputs: str
    label: str
    digest: str

    @property
    def after(self) -> str:
        """Inputs of what comes after it."""
        return chained_digest(self.inputs, self.label, self.digest)

    def to_json(self) -> list[str]:
        """Return JSON-able values."""
        return [self.inputs, self.label, self.digest]

    @classmethod
    def from_json(cls, raw: Any) -> Sealed:
        """Rebuild from JSON."""
        inputs, label, digest = map(str, raw)
        return cls(inputs, label, digest)
