"""Whose records count, and what they may name: docs/inside/protocol.md, by its laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daskfs.errors import StoreError
from daskfs.store import record_files
from daskfs.store.completeness import lost_outputs, units_not_done
from daskfs.store.records import Record, decode, encode
from daskfs.store.store import Store

STAGE = "score"


def record_of(unit: int, *, objects: dict[str, Any] | None = None, **keys: Any) -> Record:
    whose = {"stage": STAGE, "unit": unit, "fingerprint": "f", "inputs": "i"}
    return {**whose, "chunks": {}, "objects": objects or {}, **keys}


def begun(root: Path, **options: bool) -> Store:
    store = Store(root)
    store.begin_epoch(**options)
    return store


def test_of_two_records_of_a_unit_the_first_stays(tmp_path: Path) -> None:
    """A copy of a slow unit may end later, or after somebody has taken over."""
    store = begun(tmp_path)
    copy = Store(tmp_path, store.epoch.name)
    store.records.write(record_of(0, facts={"by": "first"}))
    copy.records.write(record_of(0, facts={"by": "second"}))
    for seen in (store, copy, Store(tmp_path)):
        assert [record["facts"]["by"] for record in seen.records.need(STAGE, [0])] == ["first"]


@pytest.mark.parametrize("n", [0, 1, 5, 20])
def test_records_that_are_put_together_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """In a few files, for the process that does it and for others, also when units are recorded again."""
    monkeypatch.setattr(record_files, "TOGETHER", 4)
    store = begun(tmp_path)
    units_not_done(store, STAGE, range(n), "f")
    for unit in range(n):
        store.records.write(record_of(unit, facts={"x": unit}))
        store.records.merge(STAGE)
    assert units_not_done(store, STAGE, range(n), "f") == []
    if n:
        store.begin_epoch()
        store.records.write(record_of(n - 1, facts={"x": "again"}))
    for seen in (store, Store(tmp_path), begun(tmp_path)):
        assert units_not_done(seen, STAGE, range(n), "f") == []
        facts = [record["facts"]["x"] for record in seen.records.need(STAGE, range(n))]
        assert facts == [*range(n - 1), "again"][-n:] if n else not facts
    folder = tmp_path / "records" / STAGE
    n_files = len(list(folder.iterdir())) if n else 0
    assert n_files <= n // 4 + 4


def line_of(store: Store, unit: int) -> bytes:
    """Return the line that a worker wrote for a unit."""
    found = store.record_files.written(STAGE, unit, "f")
    assert found is not None
    return found[1]


def test_records_that_nobody_has_read_are_not_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes write theirs meanwhile."""
    monkeypatch.setattr(record_files, "TOGETHER", 2)
    driver = begun(tmp_path)
    assert units_not_done(driver, STAGE, range(6), "f") == [*range(6)]
    worker = Store(tmp_path, driver.epoch.name)
    for unit in range(6):
        worker.records.write(record_of(unit))
    for unit in (1, 4):
        driver.record_files.note(STAGE, unit, line_of(driver, unit))
    driver.records.merge(STAGE)
    assert (
        driver.record_files.file(STAGE, 1)
        == driver.record_files.file(STAGE, 4)
        == tmp_path / f"records/{STAGE}/000000.{driver.epoch.name}.jsonl"
    )
    for unit in (0, 2, 3, 5):
        driver.record_files.note(STAGE, unit, line_of(driver, unit))
    assert units_not_done(Store(tmp_path), STAGE, range(6), "f") == []


def test_records_that_are_deleted_amid_a_stage_are_put_again(tmp_path: Path) -> None:
    """Whether this epoch wrote them, or one before, alone or together."""
    old = begun(tmp_path)
    old.records.write(record_of(0))
    store = begun(tmp_path)
    assert units_not_done(store, STAGE, range(3), "f") == [1, 2]
    for unit in (1, 2):
        store.records.write(record_of(unit))
    for unit in (0, 2):
        Path(str(store.record_files.file(STAGE, unit))).unlink()
    store.records.close(STAGE)
    for seen in (store, Store(tmp_path)):
        assert units_not_done(seen, STAGE, range(3), "f") == []
    Path(str(store.record_files.file(STAGE, 0))).unlink()
    store.records.close(STAGE)
    assert units_not_done(Store(tmp_path), STAGE, range(3), "f") == []


@pytest.mark.parametrize(
    "name", ["../victim", "/victim", "a/../../victim", "a//b", ".", "..", "", "a/./b", "..\\victim", "a/..", "x\0"]
)
@pytest.mark.parametrize("kind", ["chunks", "objects"])
def test_a_record_that_names_something_outside_is_damage(tmp_path: Path, name: str, kind: str) -> None:
    record = {**record_of(0), kind: {name: [1, 2]}}
    with pytest.raises(StoreError, match="which is no name in the store"):
        decode(STAGE, 0, encode(record).strip())
    store = begun(tmp_path)
    store.records.write(record)
    assert units_not_done(store, STAGE, [0], "f") == [0]
    (lost,) = lost_outputs(store, STAGE, [0], "f")
    assert lost.startswith(f"records/{STAGE}/")


@pytest.mark.parametrize("position", [0, 9, 20, -3])
def test_a_record_with_an_altered_byte_does_not_count(position: int) -> None:
    line = bytearray(encode(record_of(0)).strip())
    line[position] ^= 1
    with pytest.raises(StoreError):
        decode(STAGE, 0, bytes(line))


@pytest.mark.parametrize("whose", [{"unit": 1}, {"stage": "other"}])
def test_a_record_of_another_unit_does_not_count(whose: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="it is of another unit"):
        decode(STAGE, 0, encode({**record_of(0), **whose}).strip())
