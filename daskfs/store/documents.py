"""Documents of a store, ``run.json`` and ``plan.json``: JSON that the driver writes, with its epoch and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from daskfs.errors import StoreError
from daskfs.storage import StoragePath
from daskfs.store import layout
from daskfs.store.epoch import Epoch

NAMES = (layout.RUN_JSON, layout.PLAN_JSON)
WRITTEN = "written"
"""Key for the epoch in which a document was written, and the CRC-32 of that and of the rest."""
RESTORE = "restore it from a copy, choose another output.path, or start over with --overwrite."


def to_document(value: Mapping[str, Any], epoch: Epoch) -> dict[str, Any]:
    """Return a document with epoch and checksum."""
    name = epoch.name or epoch.read_current() or ""
    return {**value, WRITTEN: [name, _checksum(value, name)]}


def from_document(document: dict[str, Any]) -> tuple[dict[str, Any], str, int] | None:
    """Return a document without its epoch and checksum, and these; None if it is damaged.

    One of another format version, or of another program, is returned as it is, with an empty epoch.
    """
    if document.get("format_version") != layout.FORMAT_VERSION:
        return document, "", 0
    value = {key: one for key, one in document.items() if key != WRITTEN}
    written = document.get(WRITTEN)
    if not isinstance(written, list) or written[1:] != [_checksum(value, str(written[0]))]:
        return None
    return value, str(written[0]), written[1]


def check_epoch(name: str, written: str, checksum: int, epoch: Epoch, where: str) -> None:
    """Raise :class:`StoreError` for a document that a driver wrote after another one had taken the store over."""
    if checksum and not epoch.counts(name, written, checksum):
        msg = f"{where}/{name} was written by a process that had lost the run to another one: {RESTORE}"
        raise StoreError(msg)


def valid_documents(root: StoragePath, epoch: Epoch) -> dict[str, int]:
    """Return the checksums of the documents of a store that are there, whole, and of the epoch that it is in."""
    found = dict[str, int]()
    for name in NAMES:
        with suppress(OSError, ValueError, AttributeError, StoreError):
            document = from_document(json.loads(root.own(name).read_own()))
            if document is not None and document[2] and epoch.counts(name, *document[1:]):
                found[name] = document[2]
    return found


def _checksum(value: Mapping[str, Any], epoch: str) -> int:
    plain = json.loads(json.dumps(value))  # as a reader has it
    return zlib.crc32(json.dumps([epoch, plain], sort_keys=True).encode())
