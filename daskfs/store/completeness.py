"""Comparison of the outputs that exist in a store with the records of its units."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from daskfs.storage import StoragePath, map_concurrent, sizes
from daskfs.store import layout
from daskfs.store.records import Record
from daskfs.store.store import Store

COMPARED = 4096
"""Maximum number of small objects in an object store whose checksums are compared before they are read; object stores
keep written bytes intact.
"""
STATED = 2**17
"""Number of outputs whose recorded sizes are compared at once: more would take more memory."""


def units_not_done(
    store: Store, stage: str, units: Sequence[int], fingerprint: str, inputs: str | None = None
) -> list[int]:
    """Return the units that are not done.

    A finished unit has a record of this fingerprint and, unless None, these inputs, and all its outputs exist in the
    recorded size; checksums of small objects are compared as well.
    """
    done, lost = _find_outputs(store, store.records.matching(stage, units, fingerprint, inputs))
    return [unit for unit in units if unit not in done or unit in lost]


def finished_record(store: Store, stage: str, unit: int, fingerprints: Collection[str]) -> Record | None:
    """Return the record of a unit if it has one of these fingerprints and all its outputs exist, else None."""
    record = store.records.get(stage, unit)
    if record is None or record.get("fingerprint") not in fingerprints:
        return None
    return None if _find_outputs(store, [(unit, record)])[1] else record


def lost_outputs(store: Store, stage: str, units: Sequence[int], fingerprint: str) -> list[str]:
    """Return the names of recorded outputs that are missing or differ, and of damaged records.

    Units without a record are skipped.
    """
    _, lost = _find_outputs(store, store.records.matching(stage, units, fingerprint))
    recorded = store.records.units(stage)
    some = [unit for unit in units if unit in recorded]
    damaged = [unit for unit, record in zip(some, store.records.each(stage, some), strict=True) if record is None]
    return [
        *(name for names in lost.values() for name in names),
        *(f"{layout.records_of(stage)}{unit:06d}" for unit in damaged),
    ]


class _Stated(NamedTuple):
    """Output of a unit as its record states it."""

    unit: int
    name: str
    size: int
    checksum: int
    is_object: bool


def _find_outputs(store: Store, records: Iterable[tuple[int, Record]]) -> tuple[set[int], dict[int, list[str]]]:
    """Return the units of records, and by unit the names of outputs that are missing or differ from its record."""
    units, lost, stated = set[int](), dict[int, list[str]](), list[_Stated]()
    for unit, record in records:
        units.add(unit)
        for kind in ("chunks", "objects"):
            outputs = record[kind].items()
            stated += [_Stated(unit, name, size, checksum, kind == "objects") for name, (size, checksum) in outputs]
        if len(stated) >= STATED:
            _compare(store.root, stated, lost, whole=True)
            stated = []
    _compare(store.root, stated, lost, whole=len(units) > 1)
    return units, lost


def _compare(root: StoragePath | None, stated: Sequence[_Stated], lost: dict[int, list[str]], *, whole: bool) -> None:
    """Add the names of outputs that are missing or differ from what is stated."""
    if root is None:
        return
    actual = sizes(root, [one.name for one in stated], whole=whole)
    small = [one.name for one in stated if one.is_object and actual.get(one.name) == one.size]
    if root.is_remote and len(small) > COMPARED:
        small = []  # readers compare them
    paths = [root / name for name in small]
    checksums = dict(zip(small, map_concurrent(root, lambda path: _checksum(root, path), paths), strict=True))
    for one in stated:
        if actual.get(one.name) != one.size or checksums.get(one.name, one.checksum) != one.checksum:
            lost.setdefault(one.unit, []).append(one.name)


def _checksum(root: StoragePath, path: StoragePath) -> int | None:
    """Return the CRC-32 of a small object, None if it is missing or unreadable; raise inconclusive errors."""
    try:
        return zlib.crc32(path.read_buffer())
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and root.is_inconclusive(error):
            raise
        return None
