"""A bucket without a server: obstore's own store over a folder, which answers as others do."""

from __future__ import annotations

from pathlib import Path

import pytest

from daskfs.storage import ObjectPath, objects

BUCKET = "s3://bucket"


def folder_as_bucket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """Return the path of a bucket that holds what lies in a folder, for this process."""
    from obstore.store import LocalStore

    client = LocalStore(str(folder))
    monkeypatch.setattr(objects, "client_of", lambda _: client)
    return ObjectPath(BUCKET)
