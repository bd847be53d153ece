"""Refusal of Zarr arrays whose chunks would be unpickled, or decoded to objects other than text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from daskfs.errors import InputError
from daskfs.storage import StoragePath

METADATA_FILES = ("zarr.json", ".zarray")
CODEC_KEYS = ("codecs", "filters", "compressor", "storage_transformers")
TEXT_CODECS = ("vlen-utf8", "vlen-bytes")


def check_codecs(array: StoragePath) -> None:
    """Raise :class:`InputError` for an array that is encoded with pickle, also within shards, or has non-text objects.

    The check reads only the metadata, before anything is decoded; invalid metadata pass.
    """
    for name in METADATA_FILES:
        try:
            document = json.loads((array / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
            continue
        if isinstance(document, dict):
            check_document(document, array)


def check_document(document: Mapping[str, Any], array: object) -> None:
    """Raise :class:`InputError` for the metadata of an array that :func:`check_codecs` refuses."""
    if "pickle" in json.dumps([document.get(key) for key in CODEC_KEYS]).lower():
        msg = f"{array} is encoded with pickle, which is never loaded; write it with another codec."
        raise InputError(msg)
    dtype = document.get("dtype")
    if not isinstance(dtype, str) or "O" not in dtype:
        return
    filters = document.get("filters")
    first = filters[0] if isinstance(filters, list) and filters else None
    codec = first.get("id") if isinstance(first, dict) else None
    if codec not in TEXT_CODECS:
        msg = (
            f"{array} holds Python objects (dtype object, codec {codec or 'none'}), which are never loaded; write text "
            "as vlen-utf8, and numbers as numbers."
        )
        raise InputError(msg)
