"""Integers that float64 does not hold: refused by column and row from every source, accepted where it holds them."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

import daskfs
from daskfs.data_block import DataBlock
from daskfs.errors import InputError
from daskfs.kernels.digits import as_floats, loses_digits
from daskfs.runs.inspection import inspect_data
from tests.optional import anndata as ad
from tests.optional import dask_dataframe as dd
from tests.optional import h5py
from tests.optional import pandas as pd
from tests.optional import polars as pl
from tests.optional import xarray as xr

BIG = 2**62
RNG = np.random.default_rng(0)
NAMES = ["x0", "x1", "x2"]
N, ROW = 40, 23
Write = Callable[[Path, np.ndarray], Any]
"""Writes integers, shape (40, 3), and returns a source or an object."""


def integers(big: int) -> np.ndarray:
    """Return integers of which one, in row 23 of the second column, is `big`."""
    X = np.arange(1, 3 * N + 1, dtype=np.int64).reshape(N, 3) * 37 % 101
    X[ROW, 1] = big
    return X


def frame(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES)


def csv(folder: Path, X: np.ndarray) -> Any:
    frame(X).to_csv(folder / "X.csv", index=False)
    return folder / "X.csv"


def csv_of_europe(folder: Path, X: np.ndarray) -> Any:
    frame(X).assign(more=0.5).to_csv(folder / "X.csv", index=False, sep=";", decimal=",")
    return folder / "X.csv"


def csv_in_parts(folder: Path, X: np.ndarray) -> Any:
    (folder / "X").mkdir()
    for place, rows in enumerate(np.array_split(X, 3)):
        frame(rows).to_csv(folder / "X" / f"{place}.csv", index=False)
    return folder / "X"


def parquet(folder: Path, X: np.ndarray, **kinds: Any) -> Any:
    columns = {name: pa.array(column.tolist(), kinds.get(name)) for name, column in zip(NAMES, X.T, strict=True)}
    pq.write_table(pa.table(columns), folder / "X.parquet", row_group_size=7)
    return folder / "X.parquet"


def parquet_unsigned(folder: Path, X: np.ndarray) -> Any:
    return parquet(folder, np.abs(X), x1=pa.uint64())


def parquet_with_gaps(folder: Path, X: np.ndarray) -> Any:
    columns = {name: pa.array(column.tolist()) for name, column in zip(NAMES, X.T, strict=True)}
    columns["x2"] = pa.array([None, *X[1:, 2].tolist()])
    columns["x1"] = pa.array([*X[:-1, 1].tolist(), None])
    pq.write_table(pa.table(columns), folder / "X.parquet")
    return folder / "X.parquet"


def parquet_decimal(folder: Path, X: np.ndarray) -> Any:
    columns = {name: list(map(decimal.Decimal, column.tolist())) for name, column in zip(NAMES, X.T, strict=True)}
    pq.write_table(pa.table({k: pa.array(v, pa.decimal128(19, 0)) for k, v in columns.items()}), folder / "X.parquet")
    return folder / "X.parquet"


def parquet_wide_decimal(folder: Path, X: np.ndarray) -> Any:
    columns = {k: [decimal.Decimal(v * 16) for v in column.tolist()] for k, column in zip(NAMES, X.T, strict=True)}
    pq.write_table(pa.table({k: pa.array(v, pa.decimal128(30, 0)) for k, v in columns.items()}), folder / "X.parquet")
    return folder / "X.parquet"


def npy(folder: Path, X: np.ndarray) -> Any:
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def npy_fortran(folder: Path, X: np.ndarray) -> Any:
    return npy(folder, np.asfortranarray(X))


def npy_big_endian(folder: Path, X: np.ndarray) -> Any:
    return npy(folder, X.astype(">i8"))


def npz(folder: Path, X: np.ndarray) -> Any:
    np.savez_compressed(folder / "X.npz", X=X)
    return folder / "X.npz"


def npz_csr(folder: Path, X: np.ndarray) -> Any:
    sp.save_npz(folder / "X.npz", sp.csr_matrix(X))
    return folder / "X.npz"


def npz_csc(folder: Path, X: np.ndarray) -> Any:
    sp.save_npz(folder / "X.npz", sp.csc_matrix(X))
    return folder / "X.npz"


def hdf5(folder: Path, X: np.ndarray) -> Any:
    with h5py.File(folder / "X.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(7, 2))
    return folder / "X.h5"


def zarr_array(folder: Path, X: np.ndarray) -> Any:
    zarr.create_array(folder / "X.zarr", data=X, chunks=(7, 2))
    return folder / "X.zarr"


def zarr_in_memory_of_disk(folder: Path, X: np.ndarray) -> Any:
    return zarr.open_array(zarr_array(folder, X))


def netcdf(folder: Path, X: np.ndarray) -> Any:
    xr.Dataset({"X": (("row", "column"), X)}).to_netcdf(folder / "X.nc", engine="h5netcdf")
    return folder / "X.nc"


def netcdf_filled(folder: Path, X: np.ndarray) -> Any:
    encoding = {"X": {"_FillValue": -1}}
    xr.Dataset({"X": (("row", "column"), X)}).to_netcdf(folder / "X.nc", engine="h5netcdf", encoding=encoding)
    return folder / "X.nc"


def h5ad(folder: Path, X: np.ndarray) -> Any:
    of_anndata(folder, X).write_h5ad(folder / "X.h5ad")
    return folder / "X.h5ad"


def h5ad_sparse(folder: Path, X: np.ndarray) -> Any:
    of_anndata(folder, sp.csr_matrix(X)).write_h5ad(folder / "X.h5ad")
    return folder / "X.h5ad"


def svmlight(folder: Path, X: np.ndarray) -> Any:
    lines = (" ".join(["1 qid:4", *(f"{i}:{v}" for i, v in enumerate(row, 1) if v), "# 5:5"]) for row in X.tolist())
    (folder / "X.svm").write_text("\n".join(lines) + "\n")
    return folder / "X.svm"


def mtx(folder: Path, X: np.ndarray) -> Any:
    lines = [f"{i + 1} {j + 1} {v}" for i, row in enumerate(X.tolist()) for j, v in enumerate(row) if v]
    head = ["%%MatrixMarket matrix coordinate integer general", f"{N} 3 {len(lines)}"]
    (folder / "X.mtx").write_text("\n".join([*head, *lines]) + "\n")
    return folder / "X.mtx"


def mtx_array(folder: Path, X: np.ndarray) -> Any:
    lines = ["%%MatrixMarket matrix array integer general", f"{N} 3", *map(str, X.T.ravel().tolist())]
    (folder / "X.mtx").write_text(" \n ".join(lines) + "\n")
    return folder / "X.mtx"


def of_anndata(folder: Path, X: Any) -> ad.AnnData:
    del folder
    return ad.AnnData(X, obs=pd.DataFrame(index=[f"c{row}" for row in range(N)]), var=pd.DataFrame(index=NAMES))


FILES: list[Write] = [
    csv,
    csv_of_europe,
    csv_in_parts,
    parquet,
    parquet_unsigned,
    parquet_with_gaps,
    parquet_decimal,
    parquet_wide_decimal,
    npy,
    npy_fortran,
    npy_big_endian,
    npz,
    npz_csr,
    npz_csc,
    hdf5,
    zarr_array,
    zarr_in_memory_of_disk,
    netcdf,
    netcdf_filled,
    h5ad,
    h5ad_sparse,
    svmlight,
    mtx,
    mtx_array,
]
IN_MEMORY: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda X: X,
    "unsigned": lambda X: X.view(np.uint64),
    "masked": lambda X: np.ma.masked_less(X, 2),
    "objects": lambda X: X.astype(object),
    "csr": sp.csr_matrix,
    "pandas": frame,
    "pandas with floats": lambda X: frame(X).assign(more=0.5),
    "pandas with gaps": lambda X: (
        frame(X).assign(x2=pd.Series([None, *X[1:, 2]], dtype="Int64")).astype({"x1": "Int64"})
    ),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES).with_columns(pl.lit(0.5).alias("more")),
    "polars query": lambda X: pl.LazyFrame(X, schema=NAMES),
    "arrow": lambda X: pa.table(dict(zip(NAMES, X.T, strict=True))),
    "dask": lambda X: da.from_array(X, chunks=(9, 2)),
    "dask frame": lambda X: dd.from_pandas(frame(X), npartitions=3),
    "anndata": lambda X: of_anndata(Path(), X),
}


def rank(X: Any, folder: Path, run: str = "run", **keys: Any) -> Any:
    X = str(X) if isinstance(X, Path) else X
    return daskfs.rank(X, methods="VarianceScore", evaluate=False, progress=False, output=folder / run, **keys)


def has_gaps(X: Any) -> bool:
    return isinstance(X, pd.DataFrame) and bool(X.isna().any(axis=None))


def message_of(call: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


def check_message(message: str) -> None:
    assert "x1" in message or "column 1" in message
    for words in ("2^53", f"in row {ROW}", "1 values", "Subtract an offset", "data.exclude"):
        assert words in message, message


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_files(tmp_path: Path, write: Write) -> None:
    check_message(message_of(lambda: rank(write(tmp_path, integers(BIG + 1)), tmp_path)))


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_integers_that_float64_holds(tmp_path: Path, write: Write) -> None:
    rank(write(tmp_path, integers(BIG)), tmp_path, missing="mean")


@pytest.mark.parametrize("make", IN_MEMORY.values(), ids=IN_MEMORY)
def test_memory(tmp_path: Path, make: Callable[[np.ndarray], Any]) -> None:
    check_message(message_of(lambda: rank(make(integers(BIG + 1)), tmp_path, missing="mean")))
    rank(make(integers(BIG)), tmp_path, missing="mean")


@pytest.mark.parametrize("make", IN_MEMORY.values(), ids=IN_MEMORY)
def test_fit(make: Callable[[np.ndarray], Any]) -> None:
    selector = daskfs.VarianceScore()
    check_message(message_of(lambda: selector.fit(make(integers(BIG + 1)))))
    if "masked" not in (X := make(integers(BIG))).__class__.__name__.lower() and not has_gaps(X):
        assert selector.fit(X).ranking_[1] == 1


def test_marks_are_the_integers_that_change() -> None:
    bits = RNG.integers(0, 64, 2000)
    signed = RNG.integers(-(2**63), 2**63 - 1, 2000, endpoint=True) >> bits << RNG.integers(0, 12, 2000)
    for values in (signed, signed.view(np.uint64), signed.astype(object), signed.astype(">i8")):
        expected = [int(float(int(value))) != int(value) for value in values]
        assert np.array_equal(loses_digits(values), expected)
        if values.dtype != object:
            assert np.array_equal(loses_digits(as_floats(values)), expected)
            assert np.array_equal(as_floats(values)[~np.array(expected)], values.astype(float)[~np.array(expected)])


@pytest.mark.parametrize("write", FILES, ids=lambda write: write.__name__)
def test_inspect(tmp_path: Path, write: Write) -> None:
    found = inspect_data(DataBlock(source=str(source_path(write(tmp_path, integers(BIG + 1))))))
    assert list(found["beyond_2_53"].values()) == [1]
    assert found["n_missing"] == (2 if write is parquet_with_gaps else 0)


def source_path(X: Any) -> Any:
    return X if isinstance(X, Path) else Path(X.store.root) / X.path


def test_decimals_and_exponents_are_no_integers(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,b\n" + "".join(f"{row}e22,4611686018427387905.{row}\n" for row in range(1, 9)))
    rank(tmp_path / "X.csv", tmp_path)
    (tmp_path / "X.csv").write_text("a,b\n" + "".join(f"{row},{BIG + row}\n" for row in range(9)))
    for word in ("column 1 ('b')", "row 1", "8 values"):
        assert word in message_of(lambda: rank(tmp_path / "X.csv", tmp_path, "other"))


def labels_of(folder: Path, y: np.ndarray) -> Iterator[tuple[Any, Any]]:
    X = RNG.normal(size=(N, 3))
    table = pd.DataFrame(X, columns=NAMES).assign(y=y)
    table.to_csv(folder / "a.csv", index=False)
    table.to_csv(folder / "b.csv", index=False, sep=";", decimal=",")
    table.to_parquet(folder / "X.parquet")
    np.savez(folder / "X.npz", X=X, y=y)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)
    np.savetxt(folder / "y.txt", y, fmt="%d")
    with h5py.File(folder / "X.h5", "w") as file:
        file["X"], file["y"] = X, y
    for name in ("a.csv", "b.csv", "X.parquet", "X.npz", "X.h5"):
        yield folder / name, "y"
    for name in ("y.npy", "y.txt"):
        yield folder / "X.npy", str(folder / name)
    for values in (y, y.tolist(), [None, *y[1:].tolist()], y.astype(object), pd.Series(y), pl.Series(y)):
        yield X, values


def test_labels_stay_exact(tmp_path: Path) -> None:
    for place, (X, y) in enumerate(labels_of(tmp_path, BIG + np.arange(N) % 2)):
        rank(X, tmp_path, str(place), y=y)
        facts = json.loads((tmp_path / str(place) / "run.json").read_text())
        assert list(facts["data"]["classes"]) == [str(BIG), str(BIG + 1)]


def test_targets_of_svmlight(tmp_path: Path) -> None:
    (tmp_path / "X.svm").write_text("".join(f"{BIG + row % 2} 1:{row} 2:0.5\n" for row in range(20)))
    message = message_of(lambda: rank(tmp_path / "X.svm", tmp_path, y="target", task="classification"))
    assert f"row 1 has the target '{BIG + 1}', an integer that float64 does not hold" in message
