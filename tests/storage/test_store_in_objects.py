"""The store below a URL: the same records as on disk, and what is damaged told from what cannot be read just now."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from daskfs import load_job, run_job, storage
from daskfs.errors import DamagedError, WriteError
from daskfs.graph import partition
from daskfs.storage import ObjectPath, as_path, clients
from daskfs.store import layout, log
from daskfs.store.arrays import counted_bytes
from daskfs.store.completeness import lost_outputs, units_not_done
from daskfs.store.log import Log
from daskfs.store.shards import ShardWriter, read_pieces, stored_pieces
from daskfs.store.store import Store
from tests.execution.runs import write_job
from tests.storage.proxy import Proxy, proxy
from tests.storage.server import reach

pytestmark = pytest.mark.platforms

KINDS = ("rows/.*npz", "rows/.*bin", "lists/.*npz", "lists/.*bin")


@pytest.fixture
def store(bucket: str) -> Store:
    return Store(as_path(bucket))


def recorded(store: Store) -> dict[str, Any]:
    """Do a unit that writes every kind of thing, and return its record."""
    values = np.random.default_rng(0).standard_normal((10, 7))
    store.create("X", (20, 7), "f8", (4, 4))
    with store.outputs.collect() as outputs:
        store.open("X")[4:14] = values
        store.put_array("small", np.zeros(3, "i4"))
        store.write_json("a.json", {"b": 1})
        store.write_arrays("c.npz", {"x": np.arange(4)}, {"y": 2})
    store.begin_epoch()
    store.records.write({"stage": "s", "unit": 2, "fingerprint": "f", **outputs.to_json()})
    np.testing.assert_array_equal(store.open("X")[4:14], values)
    np.testing.assert_array_equal(store.open("X")[4:14:3], values[::3])
    np.testing.assert_array_equal(store.open("X")[5, 2:6], values[1, 2:6])
    assert store.read_arrays("c.npz")[1] == {"y": 2}
    record = store.records.get("s", 2)
    assert record is not None
    return record


def test_records_are_those_of_a_store_on_disk(store: Store, tmp_path: Path) -> None:
    there, here = recorded(store), recorded(Store(tmp_path / "s"))
    assert len(there["chunks"]) == 7
    assert {name: size for name, (size, _) in there["objects"].items() if name != "c.npz"} == {
        name: size for name, (size, _) in here["objects"].items() if name != "c.npz"
    }
    assert there["chunks"] == here["chunks"]
    assert there["objects"]["X/zarr.json" if "X/zarr.json" in there["objects"] else "small/zarr.json"]


def test_what_is_done(store: Store) -> None:
    recorded(store)
    assert units_not_done(store, "s", [2], "g") == [2]
    assert units_not_done(store, "s", range(4), "f") == [0, 1, 3]
    assert lost_outputs(store, "s", range(4), "f") == []
    assert (store.records.n_units("s"), store.records.n_units("t")) == (3, 0)
    for name, data in (("X/c/1/0", None), ("X/c/2/1", b"short"), ("a.json", b'{\n "b": 2\n}')):
        store.path(name).unlink() if data is None else store.path(name).put(data)
    assert units_not_done(store, "s", range(4), "f") == [0, 1, 2, 3]
    assert sorted(lost_outputs(store, "s", range(4), "f")) == ["X/c/1/0", "X/c/2/1", "a.json"]
    store.delete("X")
    assert not list(store.path("X").files_below())


class TestReadsOverlap:
    @pytest.fixture
    def together(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """Let four reads of chunks wait for each other; return their keys."""
        barrier, keys, read = threading.Barrier(4), [], ObjectPath.read_buffer

        def read_together(path: ObjectPath) -> memoryview:
            if "/c/" in path.key:
                barrier.wait(10)
                keys.append(path.key)
            return read(path)

        monkeypatch.setattr(ObjectPath, "read_buffer", read_together)
        return keys

    def test_of_chunks(self, store: Store, together: list[str]) -> None:
        values = np.arange(96.0).reshape(16, 6)
        store.put_array("a", values, (4, 3))
        with counted_bytes() as counted:
            np.testing.assert_array_equal(store.open("a")[2:15], values[2:15])
        assert (counted.read, len(together)) == (values.nbytes, 8)

    def test_of_arrays(self, store: Store, together: list[str]) -> None:
        for number in range(4):
            store.put_array(f"a/{number}", np.full((6, 2), number), (3, 2))
        with counted_bytes() as counted:
            found = store.read_each((f"a/{number}", slice(1, 3)) for number in range(4))
            np.testing.assert_array_equal(list(found), [np.full((2, 2), number) for number in range(4)])
        assert (counted.read, len(together)) == (4 * 3 * 2 * 8, 4)

    def test_of_several_chunks_of_several_arrays(self, store: Store) -> None:
        for number in range(40):  # more than there are threads, of which each reads its chunks alone
            store.put_array(f"a/{number}", np.full(6, number), (2,))
        found = store.read_each((f"a/{number}", ...) for number in range(40))
        np.testing.assert_array_equal(list(found), [np.full(6, number) for number in range(40)])

    def test_as_far_as_memory_was_planned(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(storage, "AHEAD_BYTES", 2 * 64)
        reading, most, lock, read = 0, 0, threading.Lock(), ObjectPath.read_buffer

        def count(path: ObjectPath) -> memoryview:
            nonlocal reading, most
            with lock:
                reading += 1
                most = max(most, reading)
            found = read(path)
            with lock:
                reading -= 1
            return found

        store.put_array("a", np.arange(80.0), (8,))
        monkeypatch.setattr(ObjectPath, "read_buffer", count)
        np.testing.assert_array_equal(store.open("a")[...], np.arange(80.0))
        assert most <= 3  # the one that is decoded next, and two behind it


def test_an_approximate_search_reads_what_many_units_wrote_at_once(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of objects of which a unit reads many, two are read at the same time."""
    met = {kind: threading.Event() for kind in KINDS}
    read, read_range = ObjectPath.read_buffer, ObjectPath.read_range
    waiting, missed, lock = dict.fromkeys(KINDS, 0), [], threading.Lock()

    def meet(path: ObjectPath) -> None:
        kind = next((kind for kind in KINDS if re.search(kind, path.key)), None)
        if kind is not None and not met[kind].is_set():
            with lock:
                waiting[kind] += 1
                if waiting[kind] == 2:
                    met[kind].set()
            if not met[kind].wait(2):
                missed.append(kind)
                met[kind].set()

    def meet_whole(path: ObjectPath) -> memoryview:
        meet(path)
        return read(path)

    def meet_range(path: ObjectPath, start: int, stop: int) -> memoryview:
        meet(path)
        return read_range(path, start, stop)

    monkeypatch.setattr(ObjectPath, "read_buffer", meet_whole)
    monkeypatch.setattr(ObjectPath, "read_range", meet_range)
    monkeypatch.setattr(partition, "GROUP_ROWS", 5000)
    source = "synthetic:mixture?n_samples=20000&n_features=16&seed=0"
    blocks = {"graph": {"engine": "cells"}, "methods": ["LaplacianScore"], "evaluate": None, "cluster": {"workers": 0}}
    run_job(load_job(write_job(tmp_path, source, **blocks, output={"path": bucket})))
    assert (missed, [kind for kind in KINDS if not waiting[kind]]) == ([], [])


def test_a_shard_of_several_parts(store: Store) -> None:
    """It is sent while it is made, in few requests, and read by ranges; one that is too short is damage."""
    rng, parts = np.random.default_rng(0), 6
    values = rng.standard_normal((parts, 2**18 + 3))
    for name, own in (("large", values), ("small", values[:, :9])):
        with store.outputs.collect() as outputs:
            writer = ShardWriter(store, name)
            writer.write((segment, "value", one) for segment, one in enumerate(own))
            writer.close()
        shard = store.path(layout.SHARD.format(name, 0))
        size, checksum = outputs.chunks[shard.name]
        data = shard.read_bytes()
        assert (len(data), int.from_bytes(data[-4:], "little")) == (size, checksum)
        for segment in (parts - 1, 2):
            (found,) = read_pieces(store, stored_pieces(store, [name], segment))
            np.testing.assert_array_equal(found, own[segment])
    shard.write_bytes(shard.read_bytes()[:40])
    with pytest.raises(DamagedError, match=r"small-0.bin is damaged: .* ended while it was being read"):
        list(read_pieces(store, stored_pieces(store, ["small"], parts - 1)))
    assert not shard.is_file()


def test_damage_is_named_and_removed(store: Store) -> None:
    recorded(store)
    chunk = store.path("X/c/1/0")
    data = chunk.read_bytes()
    chunk.write_bytes(data[:10] + b"?" + data[11:])
    with pytest.raises(DamagedError, match=r"cannot decode chunk .*/X/c/1/0: the checksum .* It was removed") as caught:
        store.open("X")[4:14]
    assert caught.value.paths == (str(chunk),)
    with pytest.raises(DamagedError, match=r"chunk .*/X/c/1/0 is missing"):
        store.open("X")[4:8]
    with pytest.raises(DamagedError, match=r"chunk .*/X/c/1/0 is missing"):
        store.open("X")[4:8:2]
    store.path("X/zarr.json").write_bytes(b"{")
    with pytest.raises(DamagedError, match="no readable Zarr array"):
        Store(store.root).open("X")
    assert not store.path("X/zarr.json").is_file()


@pytest.mark.parametrize("how", [{"fault_rate": 1.0}, {"denied": "/"}])
def test_a_read_that_fails_is_no_damage(
    bucket: str, server: str, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    monkeypatch.setattr(clients, "RETRIES", {"max_retries": 0})
    monkeypatch.setattr(clients, "RETRY_PAUSE_SECONDS", 0.0)
    with proxy(Proxy(server)) as between:
        reach(monkeypatch, between.url)
        store = Store(as_path(bucket))
        recorded(store)
        for name, value in how.items():
            setattr(between, name, value)
        reads = (
            lambda: Store(store.root).open("X"),
            lambda: units_not_done(Store(store.root), "s", [2], "f"),
            lambda: lost_outputs(Store(store.root), "s", range(3), "f"),
            lambda: store.read_arrays("c.npz"),
            lambda: store.open("X")[4:8],
            lambda: store.open("X")[4:8:2],
        )
        for read in reads:
            with pytest.raises(OSError, match=r"error|denied|Service Unavailable") as caught:
                read()
            assert not isinstance(caught.value, FileNotFoundError)
    reach(monkeypatch, server)
    assert units_not_done(Store(store.root), "s", [2], "f") == []


def test_a_store_that_nobody_may_write_to(bucket: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(Proxy(server)) as between:
        reach(monkeypatch, between.url)
        store = Store(as_path(bucket))
        store.create("X", (4,), "f8", (4,))
        array = store.open("X")
        between.denied = "/"
        with pytest.raises(WriteError, match=r"cannot write s3://.*/X: access is denied .* the same command goes on"):
            array[:] = np.ones(4)
        with pytest.raises(WriteError, match=r"cannot write s3://.*/a\.json: access is denied"):
            store.write_json("a.json", {})


def test_a_log(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ObjectPath.of(f"{bucket}/events.jsonl")
    path.write_bytes(b"before\n")
    put = mock.Mock(side_effect=ObjectPath.put)
    monkeypatch.setattr(ObjectPath, "put", lambda self, data: put(self, data))
    monkeypatch.setattr(log, "WRITE_INTERVAL", 0)
    monkeypatch.setattr(log, "PUT_SECONDS", 3600.0)
    written = Log(path)
    for number in range(1000):
        written.add(f"{number:04d}")
    assert put.call_count < 100
    there = path.read_text().splitlines()
    assert there == ["before", *(f"{number:04d}" for number in range(len(there) - 1))]
    assert len(there) > 900
    written.flush()
    written.flush()
    assert path.read_text().splitlines() == ["before", *(f"{number:04d}" for number in range(1000))]
    monkeypatch.setattr(log, "PUT_SECONDS", 0.0)
    written.add("last")
    assert path.read_text().endswith("\nlast\n")
