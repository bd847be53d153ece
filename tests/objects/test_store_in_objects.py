"""The store below a URL: the same records as on disk, and what is damaged told from what cannot be read just now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import places
from daskfs.errors import DamagedError, WriteError
from daskfs.places import ObjectPath, clients, place
from daskfs.store import log
from daskfs.store.log import Log
from daskfs.store.store import Store
from tests.objects.proxy import Proxy, proxy
from tests.objects.server import reach


@pytest.fixture
def store(bucket: str) -> Store:
    return Store(place(bucket))


def recorded(store: Store) -> dict[str, Any]:
    """Do a unit that writes every kind of thing, and return its record."""
    values = np.random.default_rng(0).standard_normal((10, 7))
    store.create("X", (20, 7), "f8", (4, 4))
    with store.noting_outputs() as outputs:
        store.open("X")[4:14] = values
        store.put_array("small", np.zeros(3, "i4"))
        store.write_json("a.json", {"b": 1})
        store.write_arrays("c.npz", {"x": np.arange(4)}, {"y": 2})
        written = dict(outputs)
    store.write_record("s", 2, "f", written, {})
    np.testing.assert_array_equal(store.open("X")[4:14], values)
    np.testing.assert_array_equal(store.open("X")[4:14:3], values[::3])
    np.testing.assert_array_equal(store.open("X")[5, 2:6], values[1, 2:6])
    assert store.read_arrays("c.npz")[1] == {"y": 2}
    record = store.read_record("s", 2)
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
    assert store.is_done("s", 2, "f")
    assert not store.is_done("s", 2, "g")
    assert store.not_done("s", range(4), "f") == [0, 1, 3]
    assert store.lost("s", range(4), "f") == []
    assert (store.n_recorded("s"), store.n_recorded("t")) == (3, 0)
    for name, data in (("X/c/1/0", None), ("X/c/2/1", b"short"), ("a.json", b'{\n "b": 2\n}')):
        store.path(name).unlink() if data is None else places.put(store.path(name), data)
    assert store.not_done("s", range(4), "f") == [0, 1, 2, 3]
    assert sorted(store.lost("s", range(4), "f")) == ["X/c/1/0", "X/c/2/1", "a.json"]
    store.delete("X")
    assert not list(places.files_below(store.path("X")))


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
    monkeypatch.setattr(clients, "PAUSE_SECONDS", 0.0)
    with proxy(Proxy(server)) as between:
        reach(monkeypatch, between.url)
        store = Store(place(bucket))
        recorded(store)
        for name, value in how.items():
            setattr(between, name, value)
        reads = (
            lambda: Store(store.root).open("X"),
            lambda: store.is_done("s", 2, "f"),
            lambda: store.lost("s", range(3), "f"),
            lambda: store.read_arrays("c.npz"),
            lambda: store.open("X")[4:8],
            lambda: store.open("X")[4:8:2],
        )
        for read in reads:
            with pytest.raises(OSError, match=r"error|denied|Service Unavailable") as caught:
                read()
            assert not isinstance(caught.value, FileNotFoundError)
    reach(monkeypatch, server)
    assert Store(store.root).is_done("s", 2, "f")


def test_a_store_that_nobody_may_write_to(bucket: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(Proxy(server)) as between:
        reach(monkeypatch, between.url)
        store = Store(place(bucket))
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
    puts: list[int] = []
    monkeypatch.setattr(log, "put", lambda where, data: puts.append(len(data)) or places.put(where, data))
    monkeypatch.setattr(log, "SHARE", 0)
    monkeypatch.setattr(log, "PUT_SECONDS", 3600.0)
    written = Log(path)
    for number in range(1000):
        written.add(f"{number:04d}")
    assert len(puts) < 100
    there = path.read_text().splitlines()
    assert there == ["before", *(f"{number:04d}" for number in range(len(there) - 1))]
    assert len(there) > 900
    written.flush()
    written.flush()
    assert path.read_text().splitlines() == ["before", *(f"{number:04d}" for number in range(1000))]
    monkeypatch.setattr(log, "PUT_SECONDS", 0.0)
    written.add("last")
    assert path.read_text().endswith("\nlast\n")
