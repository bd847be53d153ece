"""Shards: whatever pieces a unit writes, each segment reads its own, and nothing that was not written by that unit."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskfs.errors import DamagedError, StoreError
from daskfs.storage import local
from daskfs.store import layout, shards
from daskfs.store.arrays import counted_bytes
from daskfs.store.completeness import units_not_done
from daskfs.store.outputs import Outputs
from daskfs.store.shards import Piece, ShardWriter, read_pieces, stored_pieces
from daskfs.store.store import Store

NAME = "spill/g/rows/7"
COLUMNS = {"row": ("i8", ()), "value": ("f4", (3,)), "cell": ("i4", ())}


def pieces_of(seed: int, sizes: list[tuple[int, str, int]]) -> list[Piece]:
    """Return pieces of random values, by segment, column and number of rows."""
    rng = np.random.default_rng(seed)
    return [
        (segment, column, (100 * rng.standard_normal((n_rows, *COLUMNS[column][1]))).astype(COLUMNS[column][0]))
        for segment, column, n_rows in sizes
    ]


SIZES = [(0, "row", 40), (0, "value", 25), (0, "value", 15), (2, "row", 9), (2, "value", 9), (2, "cell", 30)]


def write(store: Store, *parts: list[Piece], name: str = NAME) -> Outputs:
    with store.outputs.collect() as outputs:
        writer = ShardWriter(store, name)
        for pieces in parts:
            writer.write(iter(pieces))
        writer.close()
    return outputs


def read(store: Store, segment: int, name: str = NAME) -> list[tuple[str, np.ndarray]]:
    found = stored_pieces(store, [name], segment)
    return list(zip((piece.column for piece in found), read_pieces(store, found), strict=True))


def sizes() -> st.SearchStrategy[list[tuple[int, str, int]]]:
    return st.lists(st.tuples(st.integers(0, 3), st.sampled_from(sorted(COLUMNS)), st.integers(0, 50)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(st.lists(sizes(), max_size=3), st.integers(0, 9), st.sampled_from([64, 2**12, 2**22]), st.booleans())
def test_each_segment_reads_what_was_written_for_it(
    parts: list[list[tuple[int, str, int]]], seed: int, cut: int, is_stored: bool
) -> None:
    """In order, with its dtype and shape, however pieces are cut and read together, and counted as they are."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(shards, "CUT_BYTES", cut)
        patched.setattr(shards, "ADJACENT_BYTES", cut)
        store = Store(Path(folder) if is_stored else None)
        written = [pieces_of(seed + i, some) for i, some in enumerate(parts)]
        with counted_bytes() as counted:
            write(store, *written)
        assert counted.written == sum(values.nbytes for some in written for *_, values in some)
        for segment in range(5):
            with counted_bytes() as counted:
                found = read(store, segment)
            own = [(column, values) for some in written for number, column, values in some if number == segment]
            assert counted.read == sum(values.nbytes for _, values in own)
            for column, (dtype, row_shape) in COLUMNS.items():
                empty = [np.empty((0, *row_shape), dtype)]
                expected = np.concatenate(empty + [values for name, values in own if name == column])
                together = np.concatenate(empty + [values for name, values in found if name == column])
                assert together.dtype == expected.dtype
                np.testing.assert_array_equal(together, expected)
            assert [name for name, _ in itertools.groupby(found, lambda one: one[0])] == [
                name for name, _ in itertools.groupby((one for one in own if len(one[1])), lambda one: one[0])
            ]


def test_a_unit_writes_two_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    outputs = write(store, pieces_of(0, SIZES))
    shard, index = layout.SHARD.format(NAME, 0), layout.SHARD_INDEX.format(NAME)
    assert (list(outputs.chunks), list(outputs.objects)) == ([shard], [index])
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {shard, index}
    assert outputs.chunks[shard][0] == (tmp_path / shard).stat().st_size
    store.delete("spill/g")
    assert not list((tmp_path / "spill").rglob("*"))


def test_the_same_values_are_the_same_bytes(tmp_path: Path) -> None:
    first, again = (write(Store(tmp_path / name), pieces_of(0, SIZES)) for name in "ab")
    assert first == again


def test_pieces_that_follow_each_other_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = Store(tmp_path), list[int]()
    write(store, pieces_of(0, SIZES))
    fill = local.fill_from

    def noting(descriptor: int, parts: list[tuple[int, memoryview]]) -> None:
        asked.extend(len(view) for _, view in parts)
        fill(descriptor, parts)

    monkeypatch.setattr(local, "fill_from", noting)
    found = stored_pieces(store, [NAME], 0)
    list(read_pieces(store, found))
    assert asked == [sum(piece.size for piece in found)]
    asked.clear()
    list(read_pieces(store, found[::2]))
    assert asked == [found[0].size, found[2].size]


# ------------------------------------------------------------------------------------------------------------- damage
@pytest.fixture
def sealed(tmp_path: Path) -> Store:
    """A store with the shard of a finished unit, as a unit of a later stage finds it."""
    store = Store(tmp_path / "store")
    store.begin_epoch()
    outputs = write(store, pieces_of(0, SIZES))
    store.records.write({"stage": "s", "unit": 0, "fingerprint": "f", "inputs": "", **outputs.to_json(), "facts": {}})
    sealed = store.seals.seal(0, "", "s", store.records.matching("s", range(1), "f", ""), 1)
    assert sealed is not None
    store.seals.enter(sealed.after)
    return store


def altered(content: bytes) -> Iterator[bytes]:
    """Yield contents that differ in one byte, and shorter ones."""
    for place in range(0, len(content), max(1, len(content) // 60)):
        yield content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]
    yield from (content[: len(content) // 2], content[:-6], b"")


def test_every_damage_is_found_and_its_unit_runs_again(sealed: Store) -> None:
    """Of a shard by the segment that reads it, of an index by all."""
    for name in (layout.SHARD.format(NAME, 0), layout.SHARD_INDEX.format(NAME)):
        path = sealed.path(name)
        content = path.read_bytes()
        whole = [read(sealed, segment) for segment in (0, 2)]
        unread = content[:-4]  # its last bytes are for those who verify the whole file
        for damaged in altered(content if name.endswith(".npz") else unread):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError, match=rf"{NAME}.* is (damaged|missing)") as caught:
                assert [read(sealed, segment) for segment in (0, 2)]
            assert caught.value.paths == (str(path),)
            path.unlink(missing_ok=True)
            assert units_not_done(sealed, "s", [0], "f") == [0]
        with pytest.raises(DamagedError, match="is missing"):
            read(sealed, 0)
        path.write_bytes(content)
        assert units_not_done(sealed, "s", [0], "f") == []
        for before, segment in zip(whole, (0, 2), strict=True):
            for (_, values), (_, expected) in zip(read(sealed, segment), before, strict=True):
                np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("which", [layout.SHARD.format(NAME, 0), layout.SHARD_INDEX.format(NAME)])
def test_what_a_late_writer_replaced_is_not_read(sealed: Store, tmp_path: Path, which: str) -> None:
    """A whole shard of the same size, or a whole index, of another run."""
    late = Store(tmp_path / "late")
    write(late, pieces_of(1, SIZES))
    sealed.path(which).write_bytes(late.path(which).read_bytes())
    with pytest.raises(DamagedError, match="damaged"):
        read(sealed, 0)


def test_a_folder_in_its_place_is_damage(sealed: Store) -> None:
    path = sealed.path(layout.SHARD.format(NAME, 0))
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedError, match="is damaged"):
        read(sealed, 0)


def test_a_process_whose_epoch_ends_amid_a_shard_puts_nothing_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it delete what it finds damaged."""
    monkeypatch.setattr("daskfs.store.epoch.CHECK_SECONDS", {False: 0.0})
    store = Store(tmp_path)
    store.begin_epoch()
    write(store, pieces_of(0, SIZES))
    shard = tmp_path / layout.SHARD.format(NAME, 0)
    before = shard.read_bytes()

    def taken_over() -> Iterator[Piece]:
        yield from pieces_of(1, SIZES)
        Store(tmp_path).begin_epoch()

    with pytest.raises(StoreError, match="taken over"):
        ShardWriter(store, NAME).write(taken_over())
    assert [path.read_bytes() for path in shard.parent.glob("*.bin")] == [before]
    assert not list(shard.parent.glob(".*"))
    shard.write_bytes(before[:9])
    with pytest.raises(StoreError, match="taken over"):
        read(store, 0)
    assert shard.read_bytes() == before[:9]
