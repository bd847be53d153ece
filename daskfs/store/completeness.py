"""Comparison of the outputs that exist in a store with the records of its units."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from daskfs.storage import StoragePath, map_concurrent, sizes
from daskfs.store import layout
from daskfs.store.arrays import CHECKSUM_BYTES
from daskfs.store.records import Record
from daskfs.store.second_look import pause
from daskfs.store.store import Store

COMPARED = 4096
"""Maximum number of small objects in an object store whose checksums are compared before they are read; object stores
keep written bytes intact.
"""
BLOCK_BYTES = 4 << 20
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
    known_units = [unit for unit in units if unit in recorded]
    records = zip(known_units, store.records.each(stage, known_units), strict=True)
    damaged = [f"{layout.records_of(stage)}{unit:06d}" for unit, record in records if record is None]
    return [*itertools.chain.from_iterable(lost.values()), *damaged]


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
            _compare(store, stated, lost, whole=True)
            stated = []
    _compare(store, stated, lost, whole=len(units) > 1)
    return units, lost


def _compare(store: Store, stated: Sequence[_Stated], lost: dict[int, list[str]], *, whole: bool) -> None:
    """Add the names of outputs that are missing or differ from what is stated, at two looks."""
    root = store.root
    if root is None or not (differing := _differing(root, stated, store.doubted, whole=whole)):
        return
    if root.is_remote or any((root / one.name).is_there() for one in differing):
        pause(root)
        differing = _differing(root, differing, store.doubted, whole=False)
    for one in differing:
        lost.setdefault(one.unit, []).append(one.name)


def _differing(
    root: StoragePath, stated: Sequence[_Stated], doubted: tuple[float, float], *, whole: bool
) -> list[_Stated]:
    actual = sizes(root, [one.name for one in stated], whole=whole)
    there = [one for one in stated if actual.get(one.name) == one.size]
    compared = [one for one in there if one.is_object]
    if root.is_remote and len(compared) > COMPARED:
        compared = []  # readers compare them
    if doubted[0] < math.inf:  # not what this driver has written since
        chunks = [one for one in there if not one.is_object]
        compared += [one for one in chunks if doubted[0] <= (root / one.name).stat().st_mtime <= doubted[1]]
    checksums = map_concurrent(root, partial(_checksum, root), compared)
    differs = {one.name: checksum != one.checksum for one, checksum in zip(compared, checksums, strict=True)}
    return [one for one in stated if actual.get(one.name) != one.size or differs.get(one.name)]


def _checksum(root: StoragePath, stated: _Stated) -> int | None:
    """Return the checksum of an output, None if it is missing, damaged or, on a disk, unreadable."""
    try:
        if stated.is_object:
            return zlib.crc32((root / stated.name).read_buffer())
        _, checksum, carried = read_checksums(root / stated.name, is_chunk=True)
        return checksum if checksum == carried else None
    except (OSError, ValueError) as error:
        if root.is_remote and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise
        return None


def read_checksums(path: StoragePath, *, is_chunk: bool) -> tuple[int, int, int]:
    """Return the size of a file, the checksum of its bytes, and the checksum stored in it.

    For a chunk these are the CRC-32C of all but its last bytes, and these bytes; for any other file the CRC-32, twice.
    """
    from google_crc32c import extend

    with path.stream(BLOCK_BYTES) as (size, blocks):
        value, left, tail = 0, size - CHECKSUM_BYTES, b""
        for block in map(bytes, blocks):
            value = extend(value, block[: max(left, 0)]) if is_chunk else zlib.crc32(block, value)
            tail = (tail + block)[-CHECKSUM_BYTES:]
            left -= len(block)
    return size, value, int.from_bytes(tail, "little") if is_chunk else value
