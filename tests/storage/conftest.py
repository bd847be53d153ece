"""One object store for the files of this folder, and buckets of it that are empty when a test begins."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from daskfs.storage import clients
from tests.storage.server import object_server, reach


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """URL of an object store."""
    with object_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """URL below which nothing lies; this process, and those that it starts, reach it by their environment."""
    reach(monkeypatch, server)
    yield f"s3://runs/{uuid.uuid4().hex[:8]}"
    clients._client.cache_clear()
