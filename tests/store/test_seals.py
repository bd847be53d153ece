"""What is read is what earlier stages recorded."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from daskfs.errors import DamagedError
from daskfs.store import layout, seals
from daskfs.store.outputs import Outputs
from daskfs.store.seals import entries_from, entries_to_bytes, name_hash, seal_of
from daskfs.store.store import Store
from tests.store.test_record_files import STAGE, record_of


def test_a_seal_is_of_what_was_written_and_found() -> None:
    """Not of what was measured; not of the order in which names come."""
    outputs = {"a/c/0": [10, 5], "b": [3, 7]}
    seal = seal_of([record_of(0, objects=outputs, facts={"n": 1}, seconds=1.0)])
    same = seal_of([record_of(0, objects=dict(reversed(outputs.items())), facts={"n": 1}, seconds=2.0)])
    assert (seal.digest, entries_to_bytes(seal.entries)) == (same.digest, entries_to_bytes(same.entries))
    np.testing.assert_array_equal(entries_from(entries_to_bytes(seal.entries)), seal.entries)
    assert dict(seal.entries.tolist()) == {name_hash("a/c/0"): 5, name_hash("b"): 7}
    others = [record_of(0, objects={**outputs, "b": [3, 8]}, facts={"n": 1}), record_of(0, objects=outputs, facts={})]
    assert len({seal.digest, *(seal_of([other]).digest for other in others)}) == 3
    assert entries_from(entries_to_bytes(seal.entries)[:-1]) is None
    assert entries_from(b"") is None


def sealed_store(root: Path) -> tuple[Store, str]:
    """Return a store whose first stage is sealed, and the inputs of the next one."""
    store = Store(root)
    store.begin_epoch()
    with store.outputs.collect() as outputs:
        write_outputs(store, 0.0)
        store.records.write({**record_of(0), **outputs.to_json()})
    sealed = store.seals.seal(0, "i", STAGE, store.records.matching(STAGE, range(1), "f", "i"), 1)
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
        "a worker": Store(tmp_path, driver.epoch.name),
        "another process": Store(tmp_path),
    }
    store = stores[where]
    store.seals.enter(inputs if where == "a worker" else None)
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
    worker = Store(tmp_path, driver.epoch.name)
    worker.seals.enter("i")
    write_outputs(worker, 2.0)
    assert worker.need_json("object.json") == {"value": 2.0}
    assert worker.open("array")[0, 0] == 2.0


def test_checksums_are_loaded_once_for_the_units_of_a_stage(tmp_path: Path) -> None:
    """And each time for None, which stands for all stages that are sealed by then."""
    driver, inputs = sealed_store(tmp_path)
    worker = Store(tmp_path, driver.epoch.name).seals
    assert [worker.enter(inputs), worker.enter(inputs), worker.enter(None), worker.enter(None)] == [
        True,
        False,
        True,
        True,
    ]


def test_a_unit_of_inputs_that_are_gone_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = sealed_store(tmp_path)
    monkeypatch.setattr(seals, "SEAL_PATIENCE", 0.0)
    with pytest.raises(OSError, match="no seal names the inputs of this unit"):
        Store(tmp_path, driver.epoch.name).seals.enter("other")


def test_an_older_index_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that a client repeated may bring it back for a while."""
    driver, first = sealed_store(tmp_path)
    index = tmp_path / layout.SEALS.format(driver.epoch.name)
    older = index.read_bytes()
    driver.records.write({**record_of(0, facts={}), "stage": "second", "inputs": first})
    second = driver.seals.seal(1, first, "second", driver.records.matching("second", range(1), "f"), 1)
    assert second is not None
    newer, reads = index.read_bytes(), list[bool]()
    index.write_bytes(older)

    def wait(_: float) -> None:
        reads.append(True)
        index.write_bytes(newer)

    monkeypatch.setattr(time, "sleep", wait)
    Store(tmp_path, driver.epoch.name).seals.enter(second.after)
    assert reads


@pytest.mark.parametrize("reads", ["with the inputs of the unit", "with none"])
def test_damage_is_seen_after_a_stage_was_made_again(tmp_path: Path, reads: str) -> None:
    """A unit of the next stage failed; seals are forgotten and made again, between which the same thread reads."""
    store, after = sealed_store(tmp_path)
    store.seals.enter(after)
    store.begin_epoch()
    if reads == "with the inputs of the unit":  # another thread's unit may still read
        store.seals.enter(after)
    store.read_json("object.json")
    assert store.seals.seal(0, "i", STAGE, store.records.matching(STAGE, range(1), "f", "i"), 1) is not None
    store.seals.enter(after)
    write_outputs(Store(tmp_path), 1.0)
    with pytest.raises(DamagedError, match="not what its unit wrote"):
        store.open("array")[...]


def test_the_record_says_what_was_written_and_not_what_lies_there(tmp_path: Path) -> None:
    """A late writer may come between the end of a unit and its record."""
    store = Store(tmp_path)
    store.begin_epoch()
    with store.outputs.collect() as outputs:
        write_outputs(store, 0.0)
        before = outputs.to_json()
        write_outputs(Store(tmp_path), 1.0)
        assert outputs.to_json() == before
    store.records.write({**record_of(0), **before})
    assert store.seals.seal(0, "i", STAGE, store.records.matching(STAGE, range(1), "f", "i"), 1) is not None
    store.seals.enter(None)
    with pytest.raises(DamagedError, match="not what its unit wrote"):
        store.open("array")[...]
    assert Outputs().to_json() == {"chunks": {}, "objects": {}}
