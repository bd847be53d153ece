"""Records of finished units: encoding and validation of the lines of record files."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from daskfs.errors import StoreError

Record = dict[str, Any]
"""Keys: ``stage``, ``unit``, ``fingerprint``, ``inputs``, ``chunks`` and ``objects`` (size and checksum of every
output, by name), ``facts``, and measurements of the unit.
"""
EPOCH_DIGITS = 12
RECORD_FILE = re.compile(rf"(\d+)(?:\.([0-9a-f]{{{EPOCH_DIGITS}}}))?\.(json|jsonl)")
"""``000012.<epoch>.json`` holds the record of unit 12, ``000003.<epoch>.jsonl`` many; older versions named no epoch."""


def epoch_of(file: str) -> str | None:
    """Return the epoch in the name of a record file, empty if it has none; None for other files."""
    match = RECORD_FILE.fullmatch(file)
    return None if match is None else match[2] or ""


def place_of(file: str) -> tuple[bool, int]:
    """Return the sort key of a record file within its epoch: files of many records first, then by number."""
    match = RECORD_FILE.fullmatch(file)
    assert match is not None
    return match[3] == "json", int(match[1])


def encode(record: Mapping[str, Any]) -> bytes:
    """Encode a record as a line: CRC-32 of the rest, unit, JSON."""
    rest = b"%d %s" % (record["unit"], json.dumps(record, sort_keys=True, allow_nan=False).encode())
    return with_checksum(rest) + b"\n"


def with_checksum(data: bytes) -> bytes:
    """Return bytes after their CRC-32."""
    return b"%08x %s" % (zlib.crc32(data), data)


def without_checksum(data: bytes) -> bytes:
    """Return the bytes of :func:`with_checksum`; raise ``ValueError`` if they are damaged."""
    checksum, _, rest = data.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(rest):
        msg = "its checksum is not that of its bytes"
        raise ValueError(msg)
    return rest


def has_damage(data: bytes) -> bool:
    """Return whether a line of a record file is damaged, or there is none."""
    try:
        return not [without_checksum(line) for line in data.splitlines()]
    except ValueError:
        return True


def lines_of(file: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the unit and the undecoded line of every record in a file; skip damaged lines without a unit number."""
    is_alone, number = place_of(file)
    if is_alone:
        yield number, data.strip()
        return
    for line in data.splitlines():
        _, _, rest = line.partition(b" ")
        unit, _, _ = rest.partition(b" ")
        if unit.isdigit():
            yield int(unit), line


def decode(stage: str, unit: int, line: bytes) -> Record:
    """Decode and validate the record of a unit.

    Raises
    ------
    StoreError
        If the line is damaged, belongs to another unit, or names outputs outside the store: other users may have write
        access to the records.
    """
    try:
        _, _, text = without_checksum(line).partition(b" ")
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(str(error)) from error
    if not isinstance(record, dict) or record.get("unit") != unit or record.get("stage", stage) != stage:
        msg = "it is of another unit"
        raise StoreError(msg)
    for kind in ("chunks", "objects"):
        outputs = record.get(kind)
        if not isinstance(outputs, dict) or not all(map(_is_stated, outputs.values())):
            msg = "it does not state size and checksum of every output"
            raise StoreError(msg)
        if outside := [name for name in outputs if not is_inside(name)]:
            msg = f"it names {outside[0]!r}, which is no name in the store"
            raise StoreError(msg)
    return record


def is_inside(name: str) -> bool:
    """Return whether a name is a relative path that stays below its folder."""
    return bool(name) and "\\" not in name and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _is_stated(stated: Any) -> bool:
    return isinstance(stated, list) and len(stated) == 2 and all(type(value) is int for value in stated)
