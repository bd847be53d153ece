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
from daskfs.store.second_look import look_twice

DOCUMENT_NAMES = (layout.RUN_JSON, layout.PLAN_JSON)
WRITTEN = "written"
"""Key for the epoch in which a document was written, and the CRC-32 of its name, that epoch and the rest."""


def to_document(name: str, value: Mapping[str, Any], epoch: Epoch) -> dict[str, Any]:
    """Return the document `name`, one of :data:`DOCUMENT_NAMES`, with epoch and checksum."""
    written = epoch.name or epoch.read_current() or ""
    plain = json.loads(json.dumps(value))  # as a reader has it
    return {**plain, WRITTEN: [written, _checksum(name, plain, written)]}


def from_document(name: str, document: dict[str, Any]) -> tuple[dict[str, Any], str, int] | None:
    """Return the document `name` without its epoch and checksum, and these; None if it is damaged.

    One of another format version, or a ``run.json`` of another program, is returned as it is, with an empty epoch.
    """
    if document.get("format_version") != layout.FORMAT_VERSION:
        return (document, "", 0) if "format_version" in document or name == layout.RUN_JSON else None
    value = {key: one for key, one in document.items() if key != WRITTEN}
    written = document.get(WRITTEN)
    if not isinstance(written, list) or written[1:] != [_checksum(name, value, str(written[0]))]:
        return None
    return value, str(written[0]), written[1]


def valid_documents(root: StoragePath, epoch: Epoch) -> dict[str, int]:
    """Return the checksums of the documents of a store that are there, whole, and of the epoch that it is in."""
    checksums = dict[str, int]()
    for name in DOCUMENT_NAMES:
        with suppress(OSError, AttributeError, StoreError, ValueError, RecursionError):
            document = look_twice(
                root.own(name),
                lambda: from_document(name, json.loads(root.own(name).read_own())),  # noqa: B023 - called at once
                ValueError,
                is_wrong=lambda document: document is None,
            )
            if document is not None and document[2] and epoch.counts(name, *document[1:]):
                checksums[name] = document[2]
    return checksums


def _checksum(name: str, value: Mapping[str, Any], epoch: str) -> int:
    return zlib.crc32(json.dumps([name, epoch, value], sort_keys=True).encode())
