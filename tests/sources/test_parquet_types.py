"""Columns of Parquet files: what pandas wrote from an index names rows, and every type of number is one."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskfs import FisherScore
from daskfs.data_block import DataBlock
from daskfs.errors import InputError
from daskfs.runs.inspection import inspect_data
from daskfs.sources import open_source
from daskfs.sources.base import SourceSpec
from daskfs.sources.tables import TableSource
from daskfs.tiles.shapes import plan_shape
from tests.cli.command import daskfs, rows_of
from tests.optional import pandas as pd

N = 60
Y = np.arange(N) % 2
X = np.random.default_rng(0).normal(size=(N, 2)) + Y[:, None] * [2, 0]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "lab": Y})
SHUFFLED = np.random.default_rng(1).permutation(N)
"""Whole numbers that pandas does not take for a range."""
INDICES: dict[str, Any] = {
    "integers": pd.Index(SHUFFLED + 1000, name="patient_id"),
    "text": pd.Index([f"p{i}" for i in range(N)], name="patient_id"),
    "floats": pd.Index(np.arange(N) / 7, name="patient_id"),
    "dates": pd.date_range("2024-01-01", periods=N, name="patient_id"),
    "two levels": pd.MultiIndex.from_arrays([np.arange(N), np.arange(N) % 3], names=["patient_id", "visit"]),
    "without a name": pd.Index(SHUFFLED),
    "a range": pd.RangeIndex(N),
}


def whole(frame: pd.DataFrame, folder: Path) -> Path:
    frame.to_parquet(folder / "p.parquet")
    return folder / "p.parquet"


def in_parts(frame: pd.DataFrame, folder: Path) -> Path:
    (folder / "p").mkdir()
    for part, start in enumerate(range(0, N, 25)):
        frame.iloc[start : start + 25].to_parquet(folder / "p" / f"{part}.parquet")
    return folder / "p"


@pytest.mark.parametrize("write", [whole, in_parts])
@pytest.mark.parametrize("index", INDICES)
def test_an_index_names_rows_and_is_no_feature(
    tmp_path: Path, index: str, write: Callable[[pd.DataFrame, Path], Path]
) -> None:
    path = write(FRAME.set_index(INDICES[index]), tmp_path)
    selector = FisherScore(1).fit(str(path), "lab")
    assert selector.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(selector.scores_, FisherScore(1).fit(FRAME[["a", "b"]], Y).scores_)
    assert open_source(SourceSpec(source=str(path), labels="lab")).info.has_row_names is (
        index not in ("floats", "a range")
    )
    columns = daskfs("inspect", path, "--labels", "lab", "--json").json["columns"]
    named = {column["name"] for column in columns if column["looks_like"] == "row name"}
    assert named == {column["name"] for column in columns} - {"a", "b", "lab"}


def test_an_index_serves_as_any_column(tmp_path: Path) -> None:
    path = whole(FRAME.set_index(pd.Index(Y, name="lab2")), tmp_path)
    selector = FisherScore(1).fit(str(path), "lab2")
    assert selector.feature_names_in_.tolist() == ["a", "b", "lab"]


TYPES: dict[str, Any] = {
    **{f"decimal{bits}": kind for bits, kind in ((128, pa.decimal128(20, 4)), (256, pa.decimal256(50, 4)))},
    "dictionary": pa.dictionary(pa.int32(), pa.float64()),
    "double": pa.float64(),
}


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_every_type_of_number_is_one(tmp_path: Path, kind: str, nulls: bool) -> None:
    """As a feature and as a target; the values are the doubles nearest to what is written."""
    written = [Decimal(int(value * 10_000)) / 10_000 for value in X[:, 0]]
    values: list[Any] = [None if nulls and row == 3 else value for row, value in enumerate(written)]
    cells = values if "decimal" in kind else [None if value is None else float(value) for value in values]
    column = pa.array(cells, TYPES[kind].value_type if kind == "dictionary" else TYPES[kind])
    column = column.dictionary_encode() if kind == "dictionary" else column
    pq.write_table(pa.table({"a": column, "b": X[:, 1], "t": column}), tmp_path / "X.parquet")
    expected = np.array([np.nan if value is None else float(value) for value in values])
    source = open_source(SourceSpec(source=str(tmp_path / "X.parquet"), labels="t"))
    np.testing.assert_array_equal(source.read_rows(0, N)[:, 0], expected)
    labels = source.read_labels()
    assert labels is not None
    np.testing.assert_array_equal(labels.astype(float), expected)
    words = (
        "--labels",
        "t",
        "--output",
        tmp_path / "run",
        "--set",
        "data.missing=mean",
        "--set",
        "evaluate=null",
        "-q",
    )
    outcome = daskfs("rank", tmp_path / "X.parquet", *words)
    assert outcome.code == 0, outcome.err
    assert {row["name"] for row in rows_of(tmp_path / "run" / "ranking.csv")} == {"a", "b"}


def test_whole_decimals_are_classes(tmp_path: Path) -> None:
    column = pa.array([Decimal(int(y)) for y in Y], pa.decimal128(38, 0))
    pq.write_table(
        pa.table({"a": X[:, 0], "small": column.cast(pa.decimal128(18, 0)), "wide": column}), tmp_path / "X.parquet"
    )
    for name in ("small", "wide"):
        selector = FisherScore(1).fit(str(tmp_path / "X.parquet"), name)
        assert selector.scores_[0] == FisherScore(1).fit(X[:, :1], Y).scores_[0]


def test_rows_of_columns_of_one_name(tmp_path: Path) -> None:
    X = np.arange(300.0).reshape(60, 5)
    names = ["a", "b", "a", "c", "a"]
    table = pa.Table.from_arrays(list(map(pa.array, X.T)), names=names)
    pq.write_table(table, tmp_path / "X.parquet", row_group_size=25)
    source = open_source(SourceSpec(source=str(tmp_path / "X.parquet")))
    for start, stop in [*((start, min(start + 7, 60)) for start in range(0, 60, 7)), (3, 55), (20, 30), (0, 2)]:
        assert np.array_equal(source.read_rows(start, stop), X[start:stop])


def test_labels_that_are_not_valid_unicode(tmp_path: Path) -> None:
    names = pa.Array.from_buffers(pa.string(), 40, pa.array([b"a", b"\xff\xfe"] * 20, pa.binary()).buffers())
    pq.write_table(pa.table({"x": np.arange(40.0), "kind": names}), tmp_path / "X.parquet")
    with pytest.raises(InputError, match=r"X\.parquet:kind holds text that is not valid Unicode"):
        open_source(SourceSpec(source=str(tmp_path / "X.parquet"), labels="kind")).read_labels()


def test_inspect_decodes_a_row_group_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 18 MB, which tiles cut into several bands."""
    pq.write_table(pa.table({f"g{column}": np.arange(1100.0) for column in range(2000)}), tmp_path / "X.parquet")
    read, blocks = TableSource.read_rows, list[tuple[int, int]]()

    def counted(source: TableSource, start: int, stop: int) -> Any:
        blocks.append((start, stop))
        return read(source, start, stop)

    monkeypatch.setattr(TableSource, "read_rows", counted)
    assert inspect_data(DataBlock(source=str(tmp_path / "X.parquet")))["tile_rows"] < 1100
    assert blocks == [(0, 1100)]


@pytest.mark.parametrize(("row_multiple", "n_bands"), [(1, 10), (150, 10), (300, 1)])
def test_few_rows_of_one_row_group_are_one_band(row_multiple: int, n_bands: int) -> None:
    assert plan_shape(300, 20_000, "float64", None, None, row_multiple).n_bands == n_bands
