"""Arrays, small objects and records: on disk and in memory alike, and nothing missing goes unseen."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import DTypeLike

from daskfs.errors import StoreError
from daskfs.storage import as_path
from daskfs.store.arrays import counted_bytes, open_zarr
from daskfs.store.completeness import units_not_done
from daskfs.store.outputs import Outputs
from daskfs.store.records import Record
from daskfs.store.store import Store, remove_unfinished


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path if request.param == "disk" else None)


def test_arrays_read_back(store: Store) -> None:
    values = np.arange(35, dtype=np.float32).reshape(5, 7)
    store.create("a/b", values.shape, values.dtype, (2, 3))
    store.open("a/b")[...] = values
    np.testing.assert_array_equal(store.open("a/b")[1:4, 2:], values[1:4, 2:])
    store.put_array("a/c", np.array([3, -1]))
    assert store.open("a/c")[...].tolist() == [3, -1]


def test_objects_read_back_and_are_deleted(store: Store) -> None:
    assert store.read_json("x.json") is None
    store.write_json("x.json", {"b": [1, None], "a": "é"})
    assert store.read_json("x.json") == {"b": [1, None], "a": "é"}
    store.delete("x.json")
    store.delete("x.json")
    assert store.read_bytes("x.json") is None


def test_create_keeps_what_fits_and_replaces_what_does_not(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("a", (4, 4), np.float64, (2, 2))
    store.open("a")[...] = np.eye(4)
    store.create("a", (4, 4), np.float64, (2, 2))
    np.testing.assert_array_equal(store.open("a")[...], np.eye(4))
    store.create("a", (4, 4), np.float32, (2, 2))
    with pytest.raises(StoreError, match=r"c/0/0 is missing"):
        store.open("a")[...]


def test_chunks_of_zeros_are_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put_array("a", np.zeros((4, 4)), (2, 2))
    assert len(list((tmp_path / "a").glob("c/*/*"))) == 4
    np.testing.assert_array_equal(store.open("a")[...], np.zeros((4, 4)))


class Noting(Store):
    """Notes the chunk shape of the last array, and stores nothing."""

    chunks: tuple[int, ...]

    def create(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> None:
        del name, shape, dtype
        self.chunks = chunks

    def open(self, name: str) -> Any:
        del name
        return {}


@given(
    st.lists(st.integers(1, 2**16), min_size=1, max_size=3).filter(lambda shape: math.prod(shape) < 2**45),
    st.sampled_from(["u1", "f4", "f8"]),
)
@example([2**31 - 16], "u1")
@example([10**6, 540], "f4")
@example([1, 2**29], "f8")
@example([2**29, 1], "f8")
def test_no_array_is_too_large_for_its_chunks(shape: list[int], dtype: str) -> None:
    store, whole = Noting(None), np.broadcast_to(np.zeros(1, dtype), shape)
    for chunks in (None, tuple(shape)):
        store.put_array("a", whole, chunks)
        size = math.prod(store.chunks) * whole.itemsize
        assert store.chunks == tuple(shape) if whole.nbytes <= 2**30 else 2**20 <= size <= 2**26


@pytest.mark.parametrize("shape", [(1000,), (40, 25), (1, 1000), (3, 5, 70)])
def test_arrays_of_one_unit_may_have_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    monkeypatch.setattr("daskfs.store.store.MAX_CHUNK_BYTES", 4000)
    monkeypatch.setattr("daskfs.store.store.CUT_BYTES", 400)
    store, values = Store(tmp_path), np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    store.put_array("a", values)
    assert len([path for path in (tmp_path / "a" / "c").rglob("*") if path.is_file()]) >= 20
    np.testing.assert_array_equal(store.open("a")[...], values)


INDEX = st.integers(-5, 4) | st.slices(5)


@given(INDEX | st.tuples(INDEX, INDEX) | st.just(...))
def test_a_selection_is_that_of_numpy(in_folder: Store, selection: Any) -> None:
    values = np.arange(25.0).reshape(5, 5)
    in_folder.put_array("a", values, (2, 3))
    np.testing.assert_array_equal(in_folder.open("a")[selection], values[selection])


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8, np.bool_])
def test_any_part_is_what_zarr_reads(tmp_path: Path, dtype: DTypeLike) -> None:
    """Whole chunks, parts of one, parts of many, and the ragged ones at the ends."""
    values = np.random.default_rng(0).integers(0, 2, (23, 17)).astype(dtype)
    store = Store(tmp_path)
    store.put_array("a", values, (8, 5))
    array, plain = store.open("a"), open_zarr(as_path(tmp_path / "a"))
    for first in range(0, 23, 4):
        for last in range(first, 24, 3):
            for part in (np.s_[first:last], np.s_[first:last, 5:10], np.s_[first:last, 3:16], np.s_[first:last, -3:]):
                found = array[part]
                assert found.dtype == values.dtype
                np.testing.assert_array_equal(found, plain[part])
    for odd in (np.s_[3], np.s_[2:20:3, 4], np.s_[-5:, ::2]):
        np.testing.assert_array_equal(array[odd], values[odd])


@pytest.mark.parametrize("harm", ["delete", "truncate", "flip"])
def test_a_harmed_chunk_is_named(tmp_path: Path, harm: str) -> None:
    store = Store(tmp_path)
    store.put_array("a", np.random.default_rng(0).standard_normal((40, 40)), (20, 20))
    chunk = tmp_path / "a/c/1/0"
    content = bytearray(chunk.read_bytes())
    if harm == "delete":
        chunk.unlink()
    elif harm == "truncate":
        chunk.write_bytes(content[:-9])
    else:
        content[len(content) // 2] ^= 16
        chunk.write_bytes(content)
    np.testing.assert_array_equal(store.open("a")[:20].shape, (20, 40))
    with pytest.raises(StoreError, match=r"c/1/0"):
        store.open("a")[20:]


def test_no_array_where_none_was_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no readable Zarr array"):
        Store(tmp_path).open("a")


def test_a_damaged_object_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": ')
    with pytest.raises(StoreError, match=r"x\.json is damaged"):
        Store(tmp_path).read_json("x.json")


def test_bytes_are_counted_in_whole_chunks(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.create("a", (4, 4), np.float64, (2, 2))
    with counted_bytes() as counted:
        store.open("a")[...] = np.eye(4)
        store.open("a")[0:1, 0:1]
    assert (counted.written, counted.read) == (4 * 4 * 8, 2 * 2 * 8)


def record_of(unit: int, outputs: Outputs | None = None, fingerprint: str = "f") -> Record:
    whose = {"stage": "score", "unit": unit, "fingerprint": fingerprint}
    return {**whose, **(outputs or Outputs()).to_json(), "seconds": 1.0}


class TestRecords:
    def finish(self, store: Store, fingerprint: str = "f") -> None:
        store.begin_epoch()
        with store.outputs.collect() as outputs:
            store.put_array("a", np.ones(8), (4,))
            store.write_bytes("x.bin", b"12345")
        store.records.write(record_of(3, outputs, fingerprint))

    def test_done_means_same_inputs_and_all_outputs_there(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        assert units_not_done(store, "score", [3], "f") == [3]
        self.finish(store)
        assert units_not_done(store, "score", [3, 4], "f") == [4]
        assert units_not_done(store, "score", [3], "other") == [3]

    @pytest.mark.parametrize("name", ["a/c/1", "x.bin"])
    @pytest.mark.parametrize("harm", ["delete", "truncate"])
    def test_a_record_without_its_data_does_not_count(self, tmp_path: Path, name: str, harm: str) -> None:
        store = Store(tmp_path)
        self.finish(store)
        path = tmp_path / name
        if harm == "delete":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
        assert units_not_done(store, "score", [3], "f") == [3]

    def test_a_torn_record_does_not_count(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        self.finish(store)
        (record,) = tmp_path.glob("records/score/*.json")
        record.write_bytes(record.read_bytes()[:30])
        assert units_not_done(Store(tmp_path), "score", [3], "f") == [3]

    def test_outputs_of_other_threads_are_not_noted(self, tmp_path: Path) -> None:
        import threading

        store = Store(tmp_path)
        with store.outputs.collect() as outputs:
            thread = threading.Thread(target=store.write_bytes, args=("elsewhere", b"1"))
            thread.start()
            thread.join()
            store.write_bytes("here", b"1")
            assert outputs.objects.keys() == {"here"}


class TestArraysInOneObject:
    def test_they_read_back(self, store: Store) -> None:
        arrays = {"a": np.arange(6.0).reshape(2, 3), "b-0": np.array(2), "none": np.zeros((0, 3)), "facts": np.ones(1)}
        facts = {"seconds": 0.1 + 0.2, "names": ["é"], "is": None}
        store.write_arrays("x/y.npz", arrays, facts)
        found, told = store.read_arrays("x/y.npz")
        assert found.keys() == arrays.keys()
        for name, values in arrays.items():
            assert (found[name].dtype, found[name].shape) == (values.dtype, values.shape)
            np.testing.assert_array_equal(found[name], values)
        assert told == facts
        store.write_arrays("x/y.npz", {"a": np.zeros(1)})
        assert store.read_arrays("x/y.npz")[0]["a"].shape == (1,)
        store.delete("x")
        with pytest.raises(StoreError, match=r"x/y\.npz is missing"):
            store.read_arrays("x/y.npz")

    def test_they_are_read_without_the_parser_of_python(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``ast`` fails now and then in threads, in versions of Python that are about (python/cpython#106905)."""

        def fails(_text: str) -> None:
            msg = "AST constructor recursion depth mismatch"
            raise SystemError(msg)

        Store(tmp_path).write_arrays("x.npz", {"a": np.asfortranarray(np.arange(6.0).reshape(2, 3))})
        with np.load(tmp_path / "x.npz") as found:
            np.testing.assert_array_equal(found["a-a"], np.arange(6.0).reshape(2, 3))
        monkeypatch.setattr("ast.literal_eval", fails)
        found, _ = Store(tmp_path).read_arrays("x.npz")
        np.testing.assert_array_equal(found["a"], np.arange(6.0).reshape(2, 3))
        found["a"][0, 0] = 7.0  # whoever reads it may change it

    def test_the_same_values_are_the_same_bytes(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        for name in ("a", "b"):
            store.write_arrays(name, {"x": np.arange(5)}, {"n": 1})
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()

    def test_bytes_are_counted(self, store: Store) -> None:
        with counted_bytes() as counted:
            store.write_arrays("a", {"x": np.arange(5), "y": np.zeros((2, 2))})
            store.read_arrays("a")
            store.read_arrays("a")
        assert (counted.written, counted.read) == (72, 144)

    def test_damage_is_named_wherever_it_is(self, tmp_path: Path) -> None:
        store = Store(tmp_path)
        store.write_arrays("a", {"x": np.arange(9.0)}, {"n": 1})
        whole = (tmp_path / "a").read_bytes()
        place = whole.index(np.arange(9.0).tobytes())
        altered = bytearray(whole)
        altered[place + 20] ^= 1
        for damaged in (b"", b"text", whole[:-9], whole[: place + 9], bytes(altered)):
            (tmp_path / "a").write_bytes(damaged)
            with pytest.raises(StoreError, match=r"/a is damaged"):
                store.read_arrays("a")


def test_arrays_that_were_used_last_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskfs.store.store.MAX_OPENED", 3)
    store = Store(tmp_path)
    for name in "abcde":
        store.put_array(name, np.array([1]))
        assert store.open(name) is store.open(name)
    assert len(store._opened) == 3
    assert store.open("a")[...].tolist() == [1]


def test_the_last_recorded_unit_is_counted(store: Store) -> None:
    store.begin_epoch()
    assert store.records.n_units("score") == 0
    store.records.write(record_of(3))
    store.records.write({**record_of(10_000_000), "stage": "scores"})
    assert store.records.n_units("score") == 4
    store.records.write(record_of(1_234_567))
    assert store.records.n_units("score") == 1_234_568


def test_deletes_what_somebody_still_writes_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that the cluster has given up may end its unit all the same."""
    store = Store(tmp_path)
    store.write_json("sums/3/0.json", {})
    remove_folder, written = os.rmdir, list[str]()

    def written_meanwhile(path: str, **options: int) -> None:
        written.append(path)
        store.write_json("sums/3/1.json", {})
        remove_folder(path, **options)

    monkeypatch.setattr(os, "rmdir", written_meanwhile)
    store.delete("sums/3")
    assert written
    assert [path.name for path in (tmp_path / "sums").rglob("*")] == ["3", "1.json"]


def test_folders_of_a_killed_deletion_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies in them."""
    store = Store(tmp_path)
    store.write_json("sums/3/0.json", {})
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        store.delete("sums/3")
    assert list(tmp_path.rglob("0.json"))
    remove_unfinished(store)
    assert list((tmp_path / "sums").iterdir()) == []
