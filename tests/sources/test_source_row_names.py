"""What the rows are called: by the source itself, by one of its columns or members, and by files beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from daskfs.errors import InputError
from daskfs.sources import Source, SourceSpec, csv_table, open_source, row_names
from daskfs.storage import as_path
from tests.optional import h5py
from tests.optional import pandas as pd
from tests.sources.array_source import ArraySource

from .objects import folder_as_bucket
from .writers import KINDS, N_SAMPLES, labels, matrix

NAMES = [f"row {number} é" for number in range(N_SAMPLES)]
OWN = {name: "cell{}" for name in ("h5ad-csr", "h5ad-dense", "h5ad-csc", "anndata-zarr2", "anndata-zarr3")}
OWN["tenx"] = "AAC-{}"


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that names come in many stretches, and tables in many ranges."""
    monkeypatch.setattr(row_names, "NAMES_AT_ONCE", 4)
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 150)
    csv_table.scan.cache_clear()


def names_of(source: Source) -> list[str] | None:
    parts = source.read_row_names()
    assert source.info.has_row_names == (parts is not None)
    if parts is None:
        return None
    found = list(parts)
    assert [part.size for part in found[:-1]] == [4] * (len(found) - 1)
    assert all(part.dtype.kind == "S" for part in found)
    return [name.decode() for part in found for name in part.tolist()]


def opened(source: Path | str, **spec: Any) -> Source:
    return open_source(SourceSpec(source=str(source), **spec))


@pytest.mark.parametrize("name", KINDS)
def test_of_the_source_itself_and_of_a_file_beside_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of its own; and X is the same."""
    kind = KINDS[name]
    written = kind.write(tmp_path, matrix(), labels())
    own = [OWN[name].format(row) for row in range(N_SAMPLES)] if name in OWN else None
    for root in (as_path(tmp_path), folder_as_bucket(tmp_path, monkeypatch)):
        assert names_of(kind.open(root, written)) == own, root
    (tmp_path / "rows.txt").write_text("\n".join(NAMES) + "\n\n")
    source = dataclasses.replace(kind, spec={**kind.spec, "row_names": "@/rows.txt"}).open(as_path(tmp_path), written)
    assert names_of(source) == names_of(source) == NAMES
    assert source.info.feature_names == kind.names
    assert source.info.n_features == matrix().shape[1]


@pytest.mark.parametrize("scheme", ["sklearn:iris", "synthetic:mixture?n_samples=150"])
def test_of_data_for_trials(scheme: str, tmp_path: Path) -> None:
    assert names_of(opened(scheme)) is None
    np.save(tmp_path / "rows.npy", np.arange(150) + 1000)
    assert names_of(opened(scheme, row_names=str(tmp_path / "rows.npy"))) == [str(row + 1000) for row in range(150)]
    assert names_of(ArraySource(np.eye(3))) is None


# --------------------------------------------------------------- inside the source
def test_a_column_of_a_table_is_no_feature(tmp_path: Path) -> None:
    lines = ["id,a,b", *(f'"{name}",{row},1' for row, name in enumerate(NAMES))]
    (tmp_path / "X.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    source = opened(tmp_path / "X.csv", row_names="id")
    assert names_of(source) == NAMES
    assert source.info.feature_names == ("a", "b")
    with pytest.raises(InputError, match=r"'id' is both data\.row_names and in data\.exclude"):
        opened(tmp_path / "X.csv", row_names="id", exclude=("id",))


def test_columns_of_parquet_files(tmp_path: Path) -> None:
    """Text, categories, whole numbers and dates; the index of pandas; parts of a table one after the other."""
    days = pd.date_range("2024-01-01", periods=N_SAMPLES)
    frame = pd.DataFrame({"a": 1.0, "kind": pd.Categorical(NAMES), "number": np.arange(N_SAMPLES)}, index=NAMES)
    frame["day"] = days.date
    frame.iloc[:9].to_parquet(tmp_path / "part-1.parquet", row_group_size=5)
    frame.iloc[9:].to_parquet(tmp_path / "part-2.parquet")
    own = {
        "kind": NAMES,
        "number": [str(row) for row in range(N_SAMPLES)],
        "__index_level_0__": NAMES,
        "day": [str(day.date()) for day in days],
    }
    for column, names in own.items():
        source = opened(tmp_path, row_names=column, exclude=tuple(name for name in own if name != column))
        assert (names_of(source), source.info.feature_names) == (names, ("a",)), column


def test_members(tmp_path: Path) -> None:
    X, raw = matrix(), np.array([name.encode() for name in NAMES])
    np.savez_compressed(tmp_path / "X.npz", X=X, rows=np.array(NAMES), bytes=raw)
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file["X"] = X
        file["beside/rows"] = np.array(NAMES, dtype=h5py.string_dtype())
        file["ascii"] = np.array([[f"cell-{row}".encode()] for row in range(N_SAMPLES)])
    group = zarr.open_group(tmp_path / "X.zarr", mode="w")
    group.create_array("X", data=X)
    group.create_array("rows", shape=(N_SAMPLES,), dtype=str, chunks=(5,))[...] = np.array(NAMES, dtype=object)
    assert names_of(opened(tmp_path / "X.h5", row_names="ascii")) == [f"cell-{row}" for row in range(N_SAMPLES)]
    for path, member in (
        ("X.npz", "rows"),
        ("X.npz", "bytes"),
        ("X.h5", "beside/rows"),
        ("X.zarr", "rows"),
    ):
        assert names_of(opened(tmp_path / path, row_names=member)) == NAMES, (path, member)


def test_text_along_the_dimension_of_the_rows(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    coordinates = {"cell": np.array(NAMES, dtype=object), "number": ("cell", np.arange(N_SAMPLES) * 2)}
    dataset = xr.Dataset({"X": (("gene", "cell"), matrix().T.copy())}, coordinates)
    dataset.to_zarr(tmp_path / "X.zarr", consolidated=False)
    dataset.to_netcdf(tmp_path / "X.nc", engine="h5netcdf")
    for path in ("X.zarr", "X.nc"):
        assert names_of(opened(tmp_path / path, dims=("cell", "gene"))) == NAMES
        numbered = opened(tmp_path / path, dims=("cell", "gene"), row_names="number")
        assert names_of(numbered) == [str(2 * row) for row in range(N_SAMPLES)]


def test_columns_of_obs(tmp_path: Path) -> None:
    import anndata

    obs = pd.DataFrame({"barcode": NAMES, "kind": pd.Categorical(NAMES)}, index=[f"c{row}" for row in range(N_SAMPLES)])
    anndata.AnnData(matrix(), obs).write_h5ad(tmp_path / "X.h5ad")
    assert names_of(opened(tmp_path / "X.h5ad", row_names="kind")) == NAMES
    assert names_of(opened(tmp_path / "X.h5ad", row_names="barcode")) == NAMES
    assert names_of(opened(tmp_path / "X.h5ad")) == obs.index.tolist()
    with pytest.raises(InputError, match=r"has no column of obs 'barcodes'.*Did you mean 'barcode'"):
        opened(tmp_path / "X.h5ad", row_names="barcodes")


# --------------------------------------------------------------- beside the source
FILES: dict[str, Callable[[Path], str]] = {
    "lines": lambda folder: written(folder / "rows.txt", "\ufeff" + "\r\n".join(NAMES)),
    "first of columns": lambda folder: written(folder / "rows.tsv", "".join(f"{name}\tx\n" for name in NAMES)),
    "a column": lambda folder: written(folder / "rows.tsv", "".join(f"x\t{name}\n" for name in NAMES)) + ":2",
    "table": lambda folder: written(folder / "rows.csv", "\n".join(["name", *NAMES])),
    "column of a table": lambda folder: (
        written(folder / "rows.csv", "\n".join(["k,id", *(f"1,{n}" for n in NAMES)])) + ":id"
    ),
}


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


@pytest.fixture
def npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", matrix())
    return tmp_path / "X.npy"


@pytest.mark.parametrize("form", FILES)
def test_text_files(form: str, npy: Path, tmp_path: Path) -> None:
    assert names_of(opened(npy, row_names=FILES[form](tmp_path))) == NAMES


def test_arrays(npy: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", a=np.array(NAMES)[::-1], b=np.array(NAMES))
    np.save(tmp_path / "days.npy", np.datetime64("2024-02-28") + np.arange(N_SAMPLES))
    assert names_of(opened(npy, row_names=f"{tmp_path}/rows.npz:b")) == NAMES
    found = names_of(opened(npy, row_names=f"{tmp_path}/days.npy"))
    assert found is not None
    assert found[:3] == ["2024-02-28", "2024-02-29", "2024-03-01"]


# --------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([*NAMES[:7], "", *NAMES[8:]], "has no name in row 7: give every row one, or name others by data.row_names"),
        (NAMES[:-1], "has 22 names of rows, X has 23 rows"),
        ([*NAMES, "a", "b"], "has 25 names of rows, X has 23 rows"),
        ([*NAMES[:5], "x" * 513, *NAMES[6:]], "has a name in row 5 with 513 bytes, more than 512"),
        ([*NAMES[:5], "x\0", *NAMES[6:]], "has a name in row 5 with a character of code 0"),
    ],
)
def test_names_that_are_none(names: list[str], message: str, npy: Path, tmp_path: Path) -> None:
    source = opened(npy, row_names=written(tmp_path / "rows.txt", "\n".join(names)))
    with pytest.raises(InputError, match=rf"rows\.txt {message}"):
        names_of(source)


def test_what_is_no_text(npy: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "floats.npy", np.linspace(0, 1, N_SAMPLES))
    np.save(tmp_path / "bytes.npy", np.array([b"a"] * 20 + [b"\xff"] * 3))
    np.save(tmp_path / "days.npy", np.array(["2024-01-01"] * 22 + ["NaT"], dtype="M8[D]"))
    np.savez(tmp_path / "two.npz", a=1, b=2)
    written(tmp_path / "two.csv", "a,b\n1,2\n")
    (tmp_path / "latin.txt").write_bytes("é\n".encode("latin-1") * N_SAMPLES)
    table = pa.table(
        {"a": np.arange(N_SAMPLES) / 2, "b": np.arange(N_SAMPLES) / 2, "none": pa.nulls(N_SAMPLES, pa.string())}
    )
    pq.write_table(table, tmp_path / "X.parquet")
    for source, name, message in (
        (npy, f"{tmp_path}/floats.npy", "dtype float64; names of rows are text or whole numbers"),
        (npy, f"{tmp_path}/bytes.npy", "a name in row 20 that is not valid Unicode"),
        (npy, f"{tmp_path}/days.npy", "no name in row 22"),
        (npy, f"{tmp_path}/two.npz", "has members 'a', 'b'; name one"),
        (npy, f"{tmp_path}/two.csv", "has columns 'a', 'b'; name one"),
        (npy, f"{tmp_path}/two.csv:c", "no column 'c'"),
        (npy, f"{tmp_path}/latin.txt", "not a text file in UTF-8"),
        (npy, f"{tmp_path}/latin.txt:x", "columns between tabs have numbers, not 'x'"),
        (npy, f"{tmp_path}/nothing.txt", "there is no such file"),
        (tmp_path / "X.parquet", "a", "has type double; names of rows are text"),
        (tmp_path / "X.parquet", "none", "no name in row 0"),
    ):
        with pytest.raises(InputError, match=message):
            names_of(opened(source, row_names=name, exclude=("none",) if source != npy and name != "none" else ()))
