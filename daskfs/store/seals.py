"""Seals: checksums of all outputs and facts of a finished stage.

The seals of earlier stages are the inputs of a unit. Its record names their digest, so a unit whose inputs were made
again with other bytes runs again. Every read of a chunk or an object compares its checksum, so an output that a late
writer replaced is damage, and never an input.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from daskfs.store.records import Record

ROUND = "#"
"""Separates the name of a stage from the number of a round in the label of a seal."""
DIGITS = 24
HEAD_DIGITS = 64
ENTRY = np.dtype([("name", "<u8"), ("checksum", "<u4")])


@dataclass(frozen=True)
class Seal:
    """Checksums of the outputs of a stage, or of one round of a loop.

    Parameters
    ----------
    entries
        Hashes of names and checksums, dtype :data:`ENTRY`, shape (n_outputs,), sorted by name.
    digest
        Digest of the entries and of the facts in the records.
    n_records
        Number of records.
    """

    entries: np.ndarray
    digest: str
    n_records: int

    def to_bytes(self) -> bytes:
        """Serialize the entries for :meth:`entries_from`."""
        data = self.entries.tobytes()
        return hashlib.sha256(data).hexdigest().encode() + data

    @staticmethod
    def entries_from(data: bytes) -> np.ndarray | None:
        """Return the entries of :meth:`to_bytes`, dtype :data:`ENTRY`, shape (n_outputs,); None if they are damaged."""
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
    found = np.empty(len(names), ENTRY)
    found["name"], found["checksum"] = names, checksums
    entries = merge_entries([found])
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
