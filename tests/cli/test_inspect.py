"""What ``daskfs inspect`` shows of a source before it is used: every column, and every member."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs.sources import column_profile, description
from daskfs.sources.column_profile import ColumnProfile
from tests.cli.command import daskfs, refused
from tests.optional import anndata, h5py
from tests.optional import pandas as pd

N = 60
DESCRIBED = {
    "id": ("text", 0, N, "row name"),
    "x": ("number", 0, N, "feature"),
    "n": ("integer", 9, 5, "feature"),
    "one": ("integer", 0, 1, "constant"),
    "nothing": ("empty", N, 0, "empty"),
    "flag": ("boolean", 0, 2, "feature"),
    "seen": ("date", 0, N, "time"),
    "city": ("text", 0, 2, "label or group"),
    "patient": ("integer", 0, 20, "group"),
    "remark": ("text", 1, 55, "text"),
    "outcome": ("text", 0, 2, "label"),
    "row": ("integer", 0, N, "row name"),
}
"""Type, missing and distinct values of the columns of :func:`frame`, and what they look like."""


def frame() -> Any:
    rows = np.arange(N)
    return pd.DataFrame(
        {
            "id": [f"p{row}" for row in rows],
            "x": np.random.default_rng(0).normal(size=N),
            "n": pd.array([None if row % 7 == 0 else row % 5 for row in rows], dtype="Int64"),
            "one": 1,
            "nothing": np.nan,
            "flag": rows % 5 == 0,
            "seen": pd.date_range("2024-01-01", periods=N),
            "city": np.where(rows % 3, "Rome", "Oslo"),
            "patient": rows // 3 + 100 * (rows // 30),
            "remark": [None, *(f"note {row % 55}" for row in rows[1:])],
            "outcome": pd.Categorical(np.where(rows % 2, "ill", "well")),
            "row": rows + 1,
        }
    )


def described(*arguments: object) -> dict[str, tuple[Any, ...]]:
    columns = daskfs("inspect", *arguments, "--json").json["columns"]
    return {one["name"]: (one["type"], one["n_missing"], one["n_distinct"], one["looks_like"]) for one in columns}


@pytest.mark.parametrize("form", ["csv", "csv.gz", "parquet"])
def test_every_column_of_a_table(tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one range or many; what holds no numbers is no feature."""
    path = tmp_path / f"table.{form}"
    if form == "parquet":
        frame().to_parquet(path, row_group_size=20)
    else:
        frame().to_csv(path, index=False)
    assert described(path) == DESCRIBED
    monkeypatch.setattr("daskfs.sources.csv_table.RANGE_BYTES", 700)
    path.rename(path.with_name(f"again.{form}"))
    assert described(path.with_name(f"again.{form}")) == DESCRIBED
    found = daskfs("inspect", path.with_name(f"again.{form}"), "--labels", "outcome", "--json").json
    assert (found["n_features"], found["classes"]) == (6, {"ill": 30, "well": 30})


def test_an_index_of_pandas_is_row_names(tmp_path: Path) -> None:
    frame()[["x"]].to_csv(tmp_path / "table.csv")
    assert described(tmp_path / "table.csv")[""][3] == "row name"
    lines = daskfs("inspect", tmp_path / "table.csv").out.splitlines()
    assert lines[-4:-1] == [
        "  name  type     n_missing  n_distinct  looks_like",
        "        integer  0          60          row name",
        "  x     number   0          60          feature",
    ]


def test_parts_of_a_table_are_described_together(tmp_path: Path) -> None:
    for part in range(2):
        table = pa.table({"a": [1.0 + part, None], "b": ["u", "v"] if part else ["w", None]})
        pq.write_table(table, tmp_path / f"part-{part}.parquet")
    assert described(tmp_path) == {"a": ("integer", 2, 2, "feature"), "b": ("text", 1, 3, "label or group")}


@pytest.mark.parametrize("form", ["h5ad", "zarr"])
def test_obs_layers_and_matrices_of_anndata(tmp_path: Path, form: str) -> None:
    table = frame()[["n", "city", "patient", "outcome"]].set_index(pd.Index([f"c{row}" for row in range(N)]))
    cells = anndata.AnnData(np.ones((N, 5), np.float32), table)
    cells.layers["counts"] = sp.csr_matrix(np.eye(N, 5))
    cells.obsm["X_pca"], cells.obsp["near"] = np.ones((N, 2)), sp.eye(N, format="csr")
    path = tmp_path / f"cells.{form}"
    if form == "h5ad":
        cells.write_h5ad(path)
    else:  # as AnnData.write_zarr, which newer versions let choose no format
        anndata.io.write_elem(zarr.open_group(path, mode="w", zarr_format=2), "/", cells)
    found = described(path)
    assert {name: found[name] for name in table.columns} == {name: DESCRIBED[name] for name in table.columns}
    assert found["_index"][3] == "row name"
    members = {one["name"]: (one["shape"], one.get("nnz")) for one in daskfs("inspect", path, "--json").json["members"]}
    assert members == {
        "X": ([N, 5], None),
        "layers/counts": ([N, 5], 5),
        "obsm/X_pca": ([N, 2], None),
        "obsp/near": ([N, N], N),
    }


def write_members(folder: Path, form: str, arrays: dict[str, np.ndarray]) -> Path:
    path = folder / f"data.{form}"
    if form == "npz":
        np.savez(path, **arrays)  # type: ignore[arg-type]
    elif form == "h5":
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    else:
        group = zarr.open_group(path, mode="w")
        for name, values in arrays.items():
            group.create_array(name, data=values)
    return path


@pytest.mark.parametrize("form", ["npz", "h5", "zarr"])
def test_members_without_a_matrix_named_x_are_described_and_not_refused(tmp_path: Path, form: str) -> None:
    """But what an option names must be there."""
    arrays = {"counts": np.ones((N, 3)), "more": np.ones((N, 2)), "y": np.arange(N) % 3, "other": np.ones(5)}
    path = write_members(tmp_path, form, arrays)
    found = daskfs("inspect", path, "--json").json
    assert {one["name"]: one["shape"] for one in found["members"]} == {k: list(v.shape) for k, v in arrays.items()}
    assert described(path) == {"y": ("integer", 0, 3, "label")}
    assert "Name the matrix by data.array" in found["problem"]
    assert any(
        line.split() == ["counts", "60", "x", "3", "float64"] for line in daskfs("inspect", path).out.splitlines()
    )
    assert daskfs("inspect", path, "--array", "counts", "--labels", "y", "--json").json["n_features"] == 3
    refused(daskfs("inspect", path, "--array", "gone"), 3, "'gone'")


def test_a_table_without_numbers_is_described(tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("a,b\nx,u\ny,u\n")
    assert described(tmp_path / "words.csv") == {"a": ("text", 0, 2, "row name"), "b": ("text", 0, 1, "constant")}
    assert "no feature column left" in daskfs("inspect", tmp_path / "words.csv").out


def test_many_columns_are_counted_and_not_listed(tmp_path: Path) -> None:
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(5, 100)), columns=[f"g{place}" for place in range(100)])
    wide.insert(50, "kind", list("ababa"))
    wide.to_csv(tmp_path / "wide.csv", index=False)
    lines = daskfs("inspect", tmp_path / "wide.csv").out.splitlines()
    assert lines[-2] == "  and 61 more"
    assert sum("label or group" in line for line in lines) == 1
    assert len(described(tmp_path / "wide.csv")) == 101


def test_distinct_values_are_counted_up_to_a_bound() -> None:
    assert description._most_distinct(10**6) == description.FEWEST_DISTINCT
    for values, look in ((range(9), "feature"), ("abcdefghi", "row name"), ("abcdeabcd", "text")):
        profile = ColumnProfile("v", most=4)
        for start in range(0, 9, 3):
            profile.add(column_profile.as_cells(np.array(list(values[start : start + 3]))))
        assert profile.to_json()["n_distinct"] is None
        assert profile.looks_like() == look
