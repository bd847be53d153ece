"""Records of finished units: what a line of a record file says, and which names it may say it of."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from daskfs.errors import StoreError

Record = dict[str, Any]
"""``stage``, ``unit``, ``fingerprint``, ``inputs``, ``chunks`` and ``objects`` (size and checksum of every output, by
name), ``facts``, and what was measured of the unit.
"""
EPOCH_DIGITS = 12
RECORD_FILE = re.compile(rf"(\d+)(?:\.([0-9a-f]{{{EPOCH_DIGITS}}}))?\.(json|jsonl)")
"""``000012.<epoch>.json`` holds the record of unit 12, ``000003.<epoch>.jsonl`` many; older versions named no epoch."""


def epoch_of(file: str) -> str | None:
    """Return the epoch that a record file was written in, empty where it names none; None for other files."""
    found = RECORD_FILE.fullmatch(file)
    return None if found is None else found[2] or ""


def place_of(file: str) -> tuple[bool, int]:
    """Return what record files of one epoch are sorted by: files of many records first, then by number."""
    found = RECORD_FILE.fullmatch(file)
    assert found is not None
    return found[3] == "json", int(found[1])


def encode(record: Mapping[str, Any]) -> bytes:
    """Return the line of a record: a CRC-32 of the rest, the unit, the JSON."""
    rest = b"%d %s" % (record["unit"], json.dumps(record, sort_keys=True, allow_nan=False).encode())
    return b"%08x %s\n" % (zlib.crc32(rest), rest)


def lines_of(file: str, data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield unit and line of every record in a file, unread. A line without a number is damaged, and passed over."""
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
    """Return the record of a unit.

    Raises
    ------
    StoreError
        Where the line is damaged, is of another unit, or names outputs that lie outside the store: a record comes from
        a directory that others may write to.
    """
    text = line
    if not line.startswith(b"{"):  # as daskfs 0.2 and before wrote it: JSON alone
        checksum, _, rest = line.partition(b" ")
        _, _, text = rest.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(rest):
            raise StoreError("its checksum is not that of its bytes")
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(str(error)) from error
    if not isinstance(record, dict) or record.get("unit") != unit or record.get("stage", stage) != stage:
        raise StoreError("it is of another unit")
    for kind in ("chunks", "objects"):
        outputs = record.get(kind)
        if not isinstance(outputs, dict) or not all(map(_is_stated, outputs.values())):
            raise StoreError("it does not state size and checksum of every output")
        if outside := [name for name in outputs if not is_inside(name)]:
            raise StoreError(f"it names {outside[0]!r}, which is no name in the store")
    return record


def is_inside(name: str) -> bool:
    """Return whether a name is relative, and of something below the folder that it is relative to."""
    return bool(name) and "\\" not in name and "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def _is_stated(stated: Any) -> bool:
    return isinstance(stated, list) and len(stated) == 2 and all(type(value) is int for value in stated)
