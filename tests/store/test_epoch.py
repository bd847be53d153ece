"""What counts, and who may write, after a driver has begun an epoch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from daskfs.errors import InUseError, StoreError
from daskfs.store import epoch as epochs
from daskfs.store.completeness import units_not_done
from daskfs.store.store import Store
from tests.store.test_record_files import STAGE, begun, record_of


def test_what_a_late_writer_records_does_not_count(tmp_path: Path) -> None:
    """Neither for who took over, nor for anybody who looks later; what it recorded before does."""
    old = begun(tmp_path)
    old.records.write(record_of(0))
    new = begun(tmp_path)
    late = Store(tmp_path, old.epoch.name)
    late.epoch._checked = np.inf  # it looked right before, and was frozen since
    late.records.write(record_of(0, fingerprint="other"))
    late.records.write(record_of(1))
    for store in (new, Store(tmp_path), begun(tmp_path)):
        assert units_not_done(store, STAGE, range(3), "f") == [1, 2]


def test_nothing_counts_in_a_store_that_starts_over(tmp_path: Path) -> None:
    begun(tmp_path).records.write(record_of(0))
    assert units_not_done(begun(tmp_path, fresh=True), STAGE, [0], "f") == [0]
    assert units_not_done(Store(tmp_path), STAGE, [0], "f") == [0]


@pytest.mark.parametrize("how", ["taken over", "deleted"])
def test_a_process_whose_epoch_has_ended_writes_nothing(tmp_path: Path, how: str) -> None:
    """Nor does it remove what it finds damaged: that may be another one's."""
    store = Store(tmp_path)
    store.begin_epoch()
    store.put_array("a", np.arange(6.0))
    chunk = tmp_path / "a/c/0"
    content = bytearray(chunk.read_bytes())
    content[-1] ^= 1
    chunk.write_bytes(content)
    worker = Store(tmp_path, store.epoch.name)
    if how == "deleted":
        (tmp_path / ".epoch").unlink()
    else:
        Store(tmp_path).begin_epoch()
    for act in (
        lambda: worker.write_bytes("x", b"1"),
        lambda: worker.create("b", (2,), "f8", (2,)),
        lambda: worker.open("a").__setitem__(..., np.ones(6)),
        lambda: worker.records.write(record_of(0)),
        lambda: worker.open("a")[...],
    ):
        expected = (StoreError, "was deleted or moved") if how == "deleted" else (InUseError, "was taken over")
        with pytest.raises(expected[0], match=expected[1]):
            act()
    assert chunk.read_bytes() == bytes(content)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["a"]


def test_a_look_counts_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = begun(tmp_path)
    store.epoch.check()
    Store(tmp_path).begin_epoch()
    store.epoch.check()
    monkeypatch.setattr(epochs, "CHECK_SECONDS", {False: 0.0})
    with pytest.raises(StoreError, match="taken over"):
        store.epoch.check()
