"""Sources larger than what may be held: the peak of what reading allocates."""

from __future__ import annotations

import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskfs.sources import Source, SourceSpec, csv_table, mtx, open_source, svmlight
from daskfs.sources.zipped import _unpack

MIB = 1 << 20
N_ROWS, N_COLUMNS = 400_000, 64
SIZE = N_ROWS * N_COLUMNS * 8


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    _unpack.cache_clear()
    yield
    _unpack.cache_clear()


def peak_of(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def write_npy(path: Path, fortran: bool) -> None:
    """Write 200 MB of zeros, which take no room on disk, but for a value at the start of three rows."""
    with path.open("wb") as file:
        header = {"descr": "<f8", "fortran_order": fortran, "shape": (N_ROWS, N_COLUMNS)}
        np.lib.format.write_array_header_1_0(file, header)
        start = file.tell()
        for row in (0, N_ROWS // 2, N_ROWS - 1):
            file.seek(start + row * 8 * (1 if fortran else N_COLUMNS))
            file.write(np.float64(row + 1).tobytes())
        file.truncate(start + SIZE)


def write_npz(path: Path, method: int) -> None:
    write_npy(path.with_suffix(".npy"), fortran=False)
    with zipfile.ZipFile(path, "w", method, compresslevel=1) as archive:
        archive.write(path.with_suffix(".npy"), "X.npy")


def check_rows(source: Source) -> None:
    assert source.info.n_samples == N_ROWS
    for row in (0, N_ROWS // 2, N_ROWS - 1):
        first = max(0, row - 500)
        block = source.read_rows(first, min(row + 500, N_ROWS))
        assert isinstance(block, np.ndarray)
        assert block[row - first, 0] == row + 1
        assert np.count_nonzero(block) == 1


@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=pytest.mark.long) for name in ("C.npy", "stored.npz")), "F.npy", "deflated.npz"]
)
def test_rows_of_a_file_of_200_mb(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if path.suffix == ".npy":
        write_npy(path, fortran=name == "F.npy")
    else:
        write_npz(path, zipfile.ZIP_STORED if name == "stored.npz" else zipfile.ZIP_DEFLATED)
    peak = peak_of(lambda: check_rows(open_source(SourceSpec(source=str(path)))))
    # The blocks take half a megabyte, the rest is buffers and modules.
    assert peak < 24 * MIB < SIZE / 8


def test_an_evicted_member_stays_readable(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "X.npz", X=np.eye(3))
    source = open_source(SourceSpec(source=str(tmp_path / "X.npz")))
    _unpack.cache_clear()
    np.testing.assert_array_equal(source.read_rows(0, 3), np.eye(3))


def test_rows_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "RANGE_BYTES", MIB)
    monkeypatch.setattr(csv_table, "CSV_SCAN_BYTES", MIB)
    path = tmp_path / "X.csv"
    line = ",".join(["0.125"] * 20) + "\n"
    path.write_text(",".join(f"c{index}" for index in range(20)) + "\n" + line * 100_000)
    arrow_before = pa.default_memory_pool().bytes_allocated()

    def read() -> None:
        source = open_source(SourceSpec(source=str(path)))
        assert source.info.n_samples == 100_000
        block = source.read_rows(50_000, 50_100)
        assert isinstance(block, np.ndarray)
        assert np.all(block == 0.125)

    assert path.stat().st_size > 11 * MIB
    assert peak_of(read) < 8 * MIB
    assert pa.default_memory_pool().bytes_allocated() - arrow_before < MIB


def test_rows_of_a_parquet_file_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daskfs.sources.parquet.BATCH_BYTES", MIB)
    X = np.random.default_rng(0).normal(size=(200_000, 8))
    table = pa.table({f"c{index}": column for index, column in enumerate(X.T)})
    pq.write_table(table, tmp_path / "X.parquet", row_group_size=50_000)
    del table
    source = open_source(SourceSpec(source=str(tmp_path / "X.parquet")))
    assert source.info.row_multiple == 50_000
    np.testing.assert_array_equal(source.read_rows(99_990, 100_010), X[99_990:100_010])
    assert peak_of(lambda: source.read_rows(99_000, 101_000)) < 2 * MIB


def test_wide_generated_rows_are_drawn_in_parts() -> None:
    source = open_source(SourceSpec(source="synthetic:mixture?n_samples=4096&n_features=20000"))
    # A whole block of rows would take 330 MB.
    assert peak_of(lambda: source.read_rows(40, 50)) < 16 * MIB


def write_svmlight(path: Path) -> None:
    line = " ".join(f"{feature}:0.125" for feature in range(1, 61)) + "\n"
    path.write_text("".join(f"{row % 3} {line}" for row in range(24_000)))


def write_mtx(path: Path) -> None:
    """Write entries sorted by rows."""
    lines = (f"{row} {column} 0.125\n" for row in range(1, 24_001) for column in range(1, 61))
    path.write_text("%%MatrixMarket matrix coordinate real general\n24000 60 1440000\n" + "".join(lines))


@pytest.mark.parametrize(
    ("name", "write"), [("X.svm", write_svmlight), pytest.param("X.mtx", write_mtx, marks=pytest.mark.long)]
)
def test_rows_of_a_text_file_of_12_mb(name: str, write: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 11 * MIB

    def read() -> None:
        source = open_source(SourceSpec(source=str(tmp_path / name)))
        assert source.info.n_samples == 24_000
        block = source.read_rows(10_000, 10_100)
        assert block.nnz == 6000
        assert np.all(block.data == 0.125)

    open_source(SourceSpec(source=str(tmp_path / name))).read_rows(0, 1)  # modules are there
    svmlight.scan.cache_clear()
    mtx.scan.cache_clear()
    # What a range of 1 MiB takes while it is scanned or parsed; the values alone are 17 MB.
    assert peak_of(read) < 12 * MIB
