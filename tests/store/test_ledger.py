"""Whose records count, what they may name, and what is read for what was recorded: docs/protocol.md, by its laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs.errors import DamagedError, InUseError, StoreError
from daskfs.store import ledger as ledgers
from daskfs.store.ledger import Ledger
from daskfs.store.records import Record, decode, encode
from daskfs.store.seals import Seal, name_hash, seal_of
from daskfs.store.store import Outputs, Store

STAGE = "score"


def record_of(unit: int, *, objects: dict[str, Any] | None = None, **keys: Any) -> Record:
    whose = {"stage": STAGE, "unit": unit, "fingerprint": "f", "inputs": "i"}
    return {**whose, "chunks": {}, "objects": objects or {}, **keys}


def begun(root: Path, **options: bool) -> Ledger:
    ledger = Ledger(root)
    ledger.begin(**options)
    return ledger


# ------------------------------------------------------------------------------------------------------------- epochs
def test_what_a_late_writer_records_does_not_count(tmp_path: Path) -> None:
    """Neither for who took over, nor for anybody who looks later; what it recorded before does."""
    old = begun(tmp_path)
    old.write(record_of(0))
    new = begun(tmp_path)
    late = Ledger(tmp_path, old.epoch)
    late._checked = np.inf  # it looked right before, and was frozen since
    late.write(record_of(0, fingerprint="other"))
    late.write(record_of(1))
    for ledger in (new, Ledger(tmp_path), begun(tmp_path)):
        assert ledger.not_done(STAGE, range(3), "f") == [1, 2]


def test_nothing_counts_in_a_store_that_starts_over(tmp_path: Path) -> None:
    begun(tmp_path).write(record_of(0))
    assert begun(tmp_path, fresh=True).not_done(STAGE, [0], "f") == [0]
    assert Ledger(tmp_path).not_done(STAGE, [0], "f") == [0]


@pytest.mark.parametrize("how", ["taken over", "deleted"])
def test_a_process_whose_epoch_has_ended_writes_nothing(tmp_path: Path, how: str) -> None:
    """Nor does it remove what it finds damaged: that may be another one's."""
    store = Store(tmp_path)
    store.ledger.begin()
    store.put_array("a", np.arange(6.0))
    chunk = tmp_path / "a/c/0"
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)
    worker = Store(tmp_path, store.ledger.epoch)
    if how == "deleted":
        (tmp_path / ".epoch").unlink()
    else:
        Ledger(tmp_path).begin()
    for act in (
        lambda: worker.write_bytes("x", b"1"),
        lambda: worker.create("b", (2,), "f8", (2,)),
        lambda: worker.open("a").__setitem__(..., np.ones(6)),
        lambda: worker.ledger.write(record_of(0)),
        lambda: worker.open("a")[...],
    ):
        expected = (StoreError, "was deleted or moved") if how == "deleted" else (InUseError, "was taken over")
        with pytest.raises(expected[0], match=expected[1]):
            act()
    assert chunk.read_bytes() == bytes(content)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["a"]


def test_a_look_counts_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begun(tmp_path)
    ledger.check()
    Ledger(tmp_path).begin()
    ledger.check()
    monkeypatch.setattr(ledgers, "CHECK_SECONDS", {False: 0.0})
    with pytest.raises(StoreError, match="taken over"):
        ledger.check()


# ------------------------------------------------------------------------------------------------------------ records
def test_of_two_records_of_a_unit_the_first_stays(tmp_path: Path) -> None:
    """A copy of a slow unit may end later, or after somebody has taken over."""
    ledger = begun(tmp_path)
    copy = Ledger(tmp_path, ledger.epoch)
    ledger.write(record_of(0, facts={"by": "first"}))
    copy.write(record_of(0, facts={"by": "second"}))
    for seen in (ledger, copy, Ledger(tmp_path)):
        assert [record["facts"]["by"] for record in seen.need(STAGE, [0])] == ["first"]


@pytest.mark.parametrize("n", [0, 1, 5, 20])
def test_records_that_are_put_together_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """In a few files, for the process that does it and for others, also when units are recorded again."""
    monkeypatch.setattr(ledgers, "TOGETHER", 4)
    ledger = begun(tmp_path)
    ledger.not_done(STAGE, range(n), "f")
    for unit in range(n):
        ledger.write(record_of(unit, facts={"x": unit}))
        ledger.put_together(STAGE)
    assert ledger.not_done(STAGE, range(n), "f") == []
    if n:
        ledger.begin()
        ledger.write(record_of(n - 1, facts={"x": "again"}))
    for seen in (ledger, Ledger(tmp_path), begun(tmp_path)):
        assert seen.not_done(STAGE, range(n), "f") == []
        facts = [record["facts"]["x"] for record in seen.need(STAGE, range(n))]
        assert facts == [*range(n - 1), "again"][-n:] if n else not facts
    folder = tmp_path / "records" / STAGE
    n_files = len(list(folder.iterdir())) if n else 0
    assert n_files <= n // 4 + 4


def line_of(ledger: Ledger, unit: int) -> bytes:
    """Return the line that a worker wrote for a unit."""
    found = ledger.written(STAGE, unit, "f")
    assert found is not None
    return found[1]


def test_records_that_nobody_has_read_are_not_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes write theirs meanwhile."""
    monkeypatch.setattr(ledgers, "TOGETHER", 2)
    driver = begun(tmp_path)
    assert driver.not_done(STAGE, range(6), "f") == [*range(6)]
    worker = Ledger(tmp_path, driver.epoch)
    for unit in range(6):
        worker.write(record_of(unit))
    for unit in (1, 4):
        driver.note(STAGE, unit, line_of(driver, unit))
    driver.put_together(STAGE)
    assert driver.file(STAGE, 1) == driver.file(STAGE, 4) == tmp_path / f"records/{STAGE}/000000.{driver.epoch}.jsonl"
    for unit in (0, 2, 3, 5):
        driver.note(STAGE, unit, line_of(driver, unit))
    assert Ledger(tmp_path).not_done(STAGE, range(6), "f") == []


def test_records_that_are_deleted_amid_a_stage_are_put_again(tmp_path: Path) -> None:
    """Whether this epoch wrote them, or one before, alone or together."""
    old = begun(tmp_path)
    old.write(record_of(0))
    ledger = begun(tmp_path)
    assert ledger.not_done(STAGE, range(3), "f") == [1, 2]
    for unit in (1, 2):
        ledger.write(record_of(unit))
    for unit in (0, 2):
        Path(str(ledger.file(STAGE, unit))).unlink()
    ledger.close(STAGE)
    for seen in (ledger, Ledger(tmp_path)):
        assert seen.not_done(STAGE, range(3), "f") == []
    Path(str(ledger.file(STAGE, 0))).unlink()
    ledger.close(STAGE)
    assert Ledger(tmp_path).not_done(STAGE, range(3), "f") == []


@pytest.mark.parametrize(
    "name", ["../victim", "/victim", "a/../../victim", "a//b", ".", "..", "", "a/./b", "..\\victim", "a/..", "x\0"]
)
@pytest.mark.parametrize("kind", ["chunks", "objects"])
def test_a_record_that_names_something_outside_is_damage(tmp_path: Path, name: str, kind: str) -> None:
    record = {**record_of(0), kind: {name: [1, 2]}}
    with pytest.raises(StoreError, match="which is no name in the store"):
        decode(STAGE, 0, encode(record).strip())
    ledger = begun(tmp_path)
    ledger.write(record)
    assert ledger.not_done(STAGE, [0], "f") == [0]
    (lost,) = ledger.lost(STAGE, [0], "f")
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


# -------------------------------------------------------------------------------------------------------------- seals
def test_a_seal_is_of_what_was_written_and_found() -> None:
    """Not of what was measured; not of the order in which names come."""
    outputs = {"a/c/0": [10, 5], "b": [3, 7]}
    seal = seal_of([record_of(0, objects=outputs, facts={"n": 1}, seconds=1.0)])
    same = seal_of([record_of(0, objects=dict(reversed(outputs.items())), facts={"n": 1}, seconds=2.0)])
    assert (seal.digest, seal.to_bytes()) == (same.digest, same.to_bytes())
    np.testing.assert_array_equal(Seal.entries_from(seal.to_bytes()), seal.entries)
    assert dict(seal.entries.tolist()) == {name_hash("a/c/0"): 5, name_hash("b"): 7}
    others = [record_of(0, objects={**outputs, "b": [3, 8]}, facts={"n": 1}), record_of(0, objects=outputs, facts={})]
    assert len({seal.digest, *(seal_of([other]).digest for other in others)}) == 3
    assert Seal.entries_from(seal.to_bytes()[:-1]) is None
    assert Seal.entries_from(b"") is None


def sealed_store(root: Path) -> tuple[Store, str]:
    """Return a store whose first stage is sealed, and the inputs of the next one."""
    store = Store(root)
    store.ledger.begin()
    with store.noting_outputs() as outputs:
        write_outputs(store, 0.0)
        store.ledger.write({**record_of(0), **outputs.to_json()})
    sealed = store.ledger.seal(0, "i", STAGE, range(1), "f")
    assert sealed is not None
    return store, sealed.after


def write_outputs(store: Store, value: float) -> None:
    store.put_array("array", np.full((4, 3), value), (2, 3))
    store.write_json("object.json", {"value": value})
    store.write_arrays("arrays.npz", {"x": np.full(4, value)})


@pytest.mark.parametrize("where", ["the driver", "a worker", "another process"])
def test_what_a_late_writer_put_in_the_place_of_an_output_is_damage(tmp_path: Path, where: str) -> None:
    """Whole as it is, and of the same size."""
    driver, inputs = sealed_store(tmp_path)
    stores = {
        "the driver": driver,
        "a worker": Store(tmp_path, driver.ledger.epoch),
        "another process": Store(tmp_path),
    }
    store = stores[where]
    store.ledger.enter(inputs if where == "a worker" else None)
    reads = {
        "array": lambda: store.open("array")[...],
        "array/c/1/0": lambda: store.open("array")[2:, 1],
        "object.json": lambda: store.need_json("object.json"),
        "arrays.npz": lambda: store.read_arrays("arrays.npz"),
    }
    for read in reads.values():
        read()
    for name, read in reads.items():
        write_outputs(Store(tmp_path), 1.0)
        with pytest.raises(DamagedError, match="is whole, and not what its unit wrote") as raised:
            read()
        assert all(name.partition("/")[0] in path for path in raised.value.paths)


def test_a_unit_reads_what_stages_before_it_wrote(tmp_path: Path) -> None:
    """What its own stage writes again, to other bytes, is not compared with what it wrote before."""
    driver, _ = sealed_store(tmp_path)
    worker = Store(tmp_path, driver.ledger.epoch)
    worker.ledger.enter("i")
    write_outputs(worker, 2.0)
    assert worker.need_json("object.json") == {"value": 2.0}
    assert worker.open("array")[0, 0] == 2.0


def test_checksums_are_loaded_once_for_the_units_of_a_stage(tmp_path: Path) -> None:
    """And each time for None, which stands for all stages that are sealed by then."""
    driver, inputs = sealed_store(tmp_path)
    worker = Store(tmp_path, driver.ledger.epoch).ledger
    assert [worker.enter(inputs), worker.enter(inputs), worker.enter(None), worker.enter(None)] == [
        True,
        False,
        True,
        True,
    ]


def test_a_unit_of_inputs_that_are_gone_is_refused(tmp_path: Path) -> None:
    driver, _ = sealed_store(tmp_path)
    with pytest.raises(StoreError, match="has gone on since this unit was asked for"):
        Store(tmp_path, driver.ledger.epoch).ledger.enter("other")


@pytest.mark.parametrize("reads", ["with the inputs of the unit", "with none"])
def test_damage_is_seen_after_a_stage_was_made_again(tmp_path: Path, reads: str) -> None:
    """A unit of the next stage failed; seals are forgotten and made again, between which the same thread reads."""
    store, after = sealed_store(tmp_path)
    store.ledger.enter(after)
    store.ledger.begin()
    if reads == "with the inputs of the unit":  # another thread's unit may still read
        store.ledger.enter(after)
    store.read_json("object.json")
    assert store.ledger.seal(0, "i", STAGE, range(1), "f") is not None
    store.ledger.enter(after)
    write_outputs(Store(tmp_path), 1.0)
    with pytest.raises(DamagedError, match="not what its unit wrote"):
        store.open("array")[...]


def test_the_record_says_what_was_written_and_not_what_lies_there(tmp_path: Path) -> None:
    """A late writer may come between the end of a unit and its record."""
    store = Store(tmp_path)
    store.ledger.begin()
    with store.noting_outputs() as outputs:
        write_outputs(store, 0.0)
        before = outputs.to_json()
        write_outputs(Store(tmp_path), 1.0)
        assert outputs.to_json() == before
    store.ledger.write({**record_of(0), **before})
    assert store.ledger.seal(0, "i", STAGE, range(1), "f") is not None
    store.ledger.enter(None)
    with pytest.raises(DamagedError, match="not what its unit wrote"):
        store.open("array")[...]
    assert Outputs().to_json() == {"chunks": {}, "objects": {}}
