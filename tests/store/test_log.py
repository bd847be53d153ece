"""The log on a disk; that of objects is in tests/storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from daskfs.errors import WriteError
from daskfs.storage import LocalPath, as_path
from daskfs.store.log import Log


def test_lines_are_there_at_once(tmp_path: Path) -> None:
    """Also behind a line that a killed writer has cut, of several writers, and after the file was deleted."""
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"whole\ncut")
    log = Log(as_path(path))
    for number in range(3):
        log.add(f"{number}")
        assert path.read_text().splitlines() == ["whole", "cut", *map(str, range(number + 1))]
    other = Log(as_path(path))
    other.add("other")
    log.add("3")
    assert path.read_text().splitlines()[-2:] == ["other", "3"]
    path.unlink()
    log.add("4")
    log.flush()
    log.add("5")
    log.flush()
    other.flush()
    assert path.read_text() == "4\n5\n"


def test_a_disk_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the line that it has cut stays one of its own."""
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no full device")
    monkeypatch.setattr(LocalPath, "open_own", lambda self, flags: os.open(self, flags))  # it refuses devices
    log = Log(as_path(full))
    with pytest.raises(WriteError):
        log.add("x")
    log.flush()
