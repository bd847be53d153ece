"""The same values through every source, in files and in memory: one ranking, equal in bytes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

import daskfs
from tests.optional import anndata as ad
from tests.optional import dask_dataframe as dd
from tests.optional import h5py
from tests.optional import pandas as pd
from tests.optional import polars as pl

Write = Callable[[Path], tuple[Any, dict[str, Any]]]
"""Writes the values, and returns a source or an object with the arguments of ``daskfs.rank``."""
N = 80
RNG = np.random.default_rng(3)
Y = RNG.integers(0, 3, N)
GAPS = np.arange(N) % 11 == 5


def table() -> dict[str, list[Any]]:
    """Return columns as Python values, None where one is missing."""
    plain = RNG.normal(size=N) + Y
    columns: dict[str, np.ndarray | list[Any]] = {
        "plain": plain,
        "gaps": [None if gap else float(value) for gap, value in zip(GAPS, plain[::-1], strict=True)],
        "whole": RNG.integers(-500, 500, N) + 300 * Y,
        "whole with gaps": [None if gap else int(value) for gap, value in zip(GAPS, 7 * Y + np.arange(N), strict=True)],
        "truth": Y > 0,
        "truth with gaps": [None if gap else bool(value) for gap, value in zip(GAPS, Y == 1, strict=True)],
        "three decimals": np.round(plain, 3),
        "marked": [-999.0 if gap else float(value) for gap, value in zip(GAPS, plain * 2, strict=True)],
        "far": 1e6 + plain,
        "constant": np.full(N, 4.25),
    }
    return {name: [v.item() if isinstance(v, np.generic) else v for v in values] for name, values in columns.items()}


TABLE = table()
LABELS = [None if row % 7 == 3 else f"class {y}" for row, y in enumerate(Y)]
PATIENTS = [f"p{row // 4}" for row in range(N)]
NAMES = list(TABLE)


def matrix() -> np.ndarray:
    return np.array([[np.nan if v is None else float(v) for v in column] for column in TABLE.values()]).T


def frame(**more: list[Any]) -> pd.DataFrame:
    """Return a frame of pandas, whose types have a missing value of their own where one is needed."""
    found = pd.DataFrame({name: pd.Series(values) for name, values in {**TABLE, **more}.items()})
    return found.astype({"whole with gaps": "Int64", "truth with gaps": "boolean"})


def named() -> dict[str, Any]:
    return {"y": "lab", "groups": "patient"}


def given() -> dict[str, Any]:
    return {"y": LABELS, "groups": PATIENTS}


def csv(folder: Path) -> tuple[Any, dict[str, Any]]:
    frame(lab=LABELS, patient=PATIENTS).to_csv(folder / "X.csv", index=False)
    return folder / "X.csv", named()


def csv_of_europe(folder: Path) -> tuple[Any, dict[str, Any]]:
    frame(lab=LABELS, patient=PATIENTS).to_csv(folder / "X.csv", index=False, sep=";", decimal=",")
    return folder / "X.csv", named()


def arrow() -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in {**TABLE, "lab": LABELS, "patient": PATIENTS}.items()})


def parquet(folder: Path) -> tuple[Any, dict[str, Any]]:
    pq.write_table(arrow(), folder / "X.parquet")
    return folder / "X.parquet", named()


def parquet_of_pandas(folder: Path) -> tuple[Any, dict[str, Any]]:
    index = pd.Index([f"row {row}" for row in range(N)], name="sample")
    frame(lab=LABELS, patient=PATIENTS).set_index(index).to_parquet(folder / "X.parquet")
    return folder / "X.parquet", named()


def of_pandas(folder: Path) -> tuple[Any, dict[str, Any]]:
    del folder
    return frame(), given()


def of_polars(folder: Path) -> tuple[Any, dict[str, Any]]:
    del folder
    return pl.DataFrame(TABLE), given()


def of_arrow(folder: Path) -> tuple[Any, dict[str, Any]]:
    del folder
    return arrow().select(NAMES), given()


def of_dask(folder: Path) -> tuple[Any, dict[str, Any]]:
    del folder
    return dd.from_pandas(frame(), npartitions=3), given()


def arrays(folder: Path) -> tuple[Any, dict[str, Any]]:
    names = folder / "names.txt"
    names.write_text("\n".join(NAMES) + "\n")
    return matrix(), {**given(), "settings": {"data.feature_names": str(names)}}


def masked(folder: Path) -> tuple[Any, dict[str, Any]]:
    X, more = arrays(folder)
    return np.ma.masked_invalid(X), more


def lazy(folder: Path) -> tuple[Any, dict[str, Any]]:
    X, more = arrays(folder)
    return da.from_array(X, chunks=(30, 4)), more


def cells() -> ad.AnnData:
    obs = pd.DataFrame({"lab": pd.Categorical(LABELS), "patient": PATIENTS}, index=[f"c{row}" for row in range(N)])
    return ad.AnnData(matrix(), obs=obs, var=pd.DataFrame(index=NAMES))


def of_anndata(folder: Path) -> tuple[Any, dict[str, Any]]:
    del folder
    return cells(), named()


def h5ad(folder: Path) -> tuple[Any, dict[str, Any]]:
    cells().write_h5ad(folder / "X.h5ad")
    return folder / "X.h5ad", named()


def hdf5(folder: Path) -> tuple[Any, dict[str, Any]]:
    with h5py.File(folder / "X.h5", "w") as file:
        file["X"] = matrix()
        for name, values in (("lab", [label or "" for label in LABELS]), ("patient", PATIENTS), ("names", NAMES)):
            file[name] = values
    return folder / "X.h5", {**named(), "settings": {"data.feature_names": "names"}}


def npz(folder: Path) -> tuple[Any, dict[str, Any]]:
    labels = np.array([label or "" for label in LABELS])
    np.savez(folder / "X.npz", X=matrix(), lab=labels, patient=np.array(PATIENTS), names=np.array(NAMES))
    return folder / "X.npz", {**named(), "settings": {"data.feature_names": "names"}}


def group(folder: Path) -> tuple[Any, dict[str, Any]]:
    root = zarr.open_group(folder / "X.zarr", mode="w")
    root.create_array("X", data=matrix())
    for name, values in (("lab", [label or "" for label in LABELS]), ("patient", PATIENTS), ("names", NAMES)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr warns that other programs may not read text
            root.create_array(name, data=np.array(values))
    return folder / "X.zarr", {**named(), "settings": {"data.feature_names": "names"}}


SOURCES: list[Write] = [
    csv,
    csv_of_europe,
    parquet,
    parquet_of_pandas,
    of_pandas,
    of_polars,
    of_arrow,
    of_dask,
    masked,
    lazy,
    of_anndata,
    h5ad,
    hdf5,
    npz,
    group,
]


def ranked(folder: Path, write: Write) -> tuple[bytes, dict[str, int]]:
    X, keys = write(folder)
    keys = {"missing": "mean", "missing_values": [-999], "evaluate": False, "task": "classification", **keys}
    keys["settings"] = {**keys.get("settings", {}), "transform": {"graph": "zscore"}}
    methods = ["FisherScore", "VarianceScore", "LaplacianScore"]
    daskfs.rank(str(X) if isinstance(X, Path) else X, methods=methods, output=folder / "run", progress=False, **keys)
    facts = json.loads((folder / "run" / "run.json").read_text())
    return (folder / "run" / "ranking.csv").read_bytes(), facts["data"]["classes"]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, int]]:
    return ranked(tmp_path_factory.mktemp("arrays"), arrays)


@pytest.mark.parametrize("write", SOURCES, ids=lambda write: write.__name__)
def test_values_mean_the_same(tmp_path: Path, write: Write, expected: tuple[bytes, dict[str, int]]) -> None:
    assert ranked(tmp_path, write) == expected
