"""What tables may look like: text tables and Parquet files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, csv_table, open_source


def read_csv(folder: Path, content: str, **fields: Any) -> np.ndarray:
    (folder / "X.csv").write_bytes(content.encode())
    source = open_source(SourceSpec(source=str(folder / "X.csv"), **fields))
    whole = source.read_rows(0, source.info.n_samples)
    rows = [source.read_rows(row, row + 1) for row in range(source.info.n_samples)]
    np.testing.assert_array_equal(np.vstack(rows), whole)
    return whole


def write(folder: Path, content: str) -> Path:
    (folder / "X.csv").write_text(content)
    return folder / "X.csv"


NAN = np.nan
MIXED = {
    "id": ["r1", "r2", "r3"],
    "a": [1.5, 2.0, 4.0],
    "flag": [True, False, True],
    "city": ["Rome", "Oslo", "Rome"],
    "when": ["2024-01-01", "2024-01-02", "2024-01-03"],
    "meta_1": [1.0, 2.0, 3.0],
}


def mixed_table(folder: Path, form: str) -> Path:
    """Write a table as pandas does, with an index that has no name, and return its path."""
    path = folder / f"mixed.{form}"
    if form == "csv":
        lines = [",".join(["", *MIXED])]
        lines += [",".join(map(str, (f"row{n}", *row))) for n, row in enumerate(zip(*MIXED.values(), strict=True))]
        path.write_text("\n".join(lines) + "\n")
    else:
        days = np.array(MIXED["when"], dtype="datetime64[s]")
        pq.write_table(pa.table({**MIXED, "when": days, "__index_level_0__": ["row0", "row1", "row2"]}), path)
    return path


@pytest.mark.parametrize("form", ["csv", "parquet"])
class TestMixedTables:
    def test_all_columns_without_numbers_are_named_at_once(self, tmp_path: Path, form: str) -> None:
        with pytest.raises(InputError, match="3 columns hold no numbers") as caught:
            open_source(SourceSpec(source=str(mixed_table(tmp_path, form)))).read_rows(
                0, 3
            )  # of text, the cells decide
        message = str(caught.value)
        assert all(repr(name) in message for name in ("id", "city", "when"))
        assert 'data.exclude to ["id", "city", "when"], or to ["non-numeric"]' in message

    @pytest.mark.parametrize(
        ("exclude", "kept"),
        [
            (("non-numeric",), ("a", "flag", "meta_1")),
            (("non-numeric", "meta_*"), ("a", "flag")),
            (("?d", "c*", "when", "a"), ("flag", "meta_1")),
        ],
    )
    def test_what_is_left_out(self, tmp_path: Path, form: str, exclude: tuple[str, ...], kept: tuple[str, ...]) -> None:
        source = open_source(SourceSpec(source=str(mixed_table(tmp_path, form)), exclude=exclude))
        assert source.info.feature_names == kept
        expected = np.column_stack([np.array(MIXED[name], dtype=float) for name in kept])
        np.testing.assert_array_equal(source.read_rows(0, 3), expected)

    def test_the_index_of_pandas_is_the_row_names(self, tmp_path: Path, form: str) -> None:
        for given, expected in ((None, [b"row0", b"row1", b"row2"]), ("id", [b"r1", b"r2", b"r3"])):
            spec = SourceSpec(source=str(mixed_table(tmp_path, form)), row_names=given, exclude=("non-numeric",))
            source = open_source(spec)
            assert source.info.feature_names == ("a", "flag", "meta_1")
            parts = source.read_row_names()
            assert parts is not None
            assert np.concatenate(list(parts)).tolist() == expected

    def test_patterns_and_names_that_fit_nothing(self, tmp_path: Path, form: str) -> None:
        for entry in ("x_*", "nonnumeric"):
            with pytest.raises(InputError, match=r"data\.exclude names"):
                open_source(SourceSpec(source=str(mixed_table(tmp_path, form)), exclude=(entry,)))


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("a,b\n1,2\n3,4", [[1, 2], [3, 4]]),
        ("a,b\n1,2\n3,4\n\n\n", [[1, 2], [3, 4]]),
        ("a,b\r\n1,2\r\n3,4\r\n\r\n", [[1, 2], [3, 4]]),
        ("a,b\n1,\nNA,4\nnan,NaN\n", [[1, NAN], [NAN, 4], [NAN, NAN]]),
        ('a,b\n"1"," 2"\n 3 ,-4e-3\n', [[1, 2], [3, -0.004]]),
        ("a,b\ntrue,1\nFalse,0\n,1\n", [[1, 1], [0, 0], [NAN, 1]]),
        ("a,b\n1,inf\n2,-inf\n", [[1, np.inf], [2, -np.inf]]),
        ("a\n1\n\n3\n", [[1], [NAN], [3]]),
        ("a\r\n1\r\n\r\n3", [[1], [NAN], [3]]),
        ('"a\nb",c\n1,2\n', [[1, 2]]),
        ("a,2\n1,2\n", [[1, 2]]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 4096])
def test_text_tables(
    content: str, values: list[list[float]], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_table, "RANGE_BYTES", size)
    monkeypatch.setattr(csv_table, "CSV_SCAN_BYTES", size)
    csv_table.scan.cache_clear()
    np.testing.assert_array_equal(read_csv(tmp_path, content), np.array(values, dtype=float))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["3", "-1", "7"], np.array([3, -1, 7])),
        (["3", "", "7"], np.array([3, None, 7], dtype=object)),
        (["3", "0.5", "7"], np.array([3, 0.5, 7])),
        (["3", "NA", "0.5"], np.array([3, NAN, 0.5])),
        (["u", "", "u"], np.array(["u", None, "u"], dtype=object)),
        (["3", '"x, ""y"""', " z "], np.array(["3", 'x, "y"', "z"], dtype=object)),
        (["0x10", "0x11", "0x12"], np.array(["0x10", "0x11", "0x12"], dtype=object)),
        (["", "", ""], np.array([None, None, None], dtype=object)),
    ],
)
def test_label_columns(cells: list[str], expected: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One row a range: the type of the labels must not depend on the range that a value is in.
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 1)
    csv_table.scan.cache_clear()
    (tmp_path / "X.csv").write_text("a,y\n" + "".join(f"1,{cell}\n" for cell in cells))
    y = open_source(SourceSpec(source=str(tmp_path / "X.csv"), labels="y")).read_labels()
    assert y is not None
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)


def test_columns_of_true_and_false_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 1)
    csv_table.scan.cache_clear()
    values = read_csv(tmp_path, "a,b\ntrue,1\nfalse,2\n0.5,3\n")
    np.testing.assert_array_equal(values, [[1, 1], [0, 2], [0.5, 3]])


def parquet(folder: Path, table: pa.Table, **fields: Any) -> tuple[np.ndarray, np.ndarray | None]:
    pq.write_table(table, folder / "X.parquet", row_group_size=2)
    source = open_source(SourceSpec(source=str(folder / "X.parquet"), **fields))
    block = source.read_rows(0, source.info.n_samples)
    assert block.dtype == source.info.dtype
    return block, source.read_labels()


@pytest.mark.parametrize(
    ("columns", "dtype"),
    [
        ({"a": pa.array([1, 2, 3], pa.int8()), "b": pa.array([4, 5, 6], pa.uint8())}, "int16"),
        ({"a": pa.array([1, 2, 3], pa.int8()), "b": pa.array([True, False, True])}, "int16"),
        ({"a": pa.array([1, 2, 3], pa.int8()), "b": pa.array([4, 5, 6], pa.uint16())}, "float64"),
        ({"a": pa.array([1, 2, 3], pa.int8()), "b": pa.array([4, None, 6], pa.int8())}, "float64"),
        ({"a": pa.array([1, 2, 3], pa.int64())}, "float64"),
        ({"a": pa.array([2**60, None, 3], pa.int64())}, "float64"),
        ({"a": pa.array([1, 2, 3], pa.float32()), "b": pa.array([4, 5, None], pa.float32())}, "float32"),
        ({"a": pa.array([1, 2, 3], pa.float32()), "b": pa.array([4, 5, 6], pa.float64())}, "float64"),
        ({"a": pa.array([True, None, False])}, "float64"),
        ({"a": pa.array([None, None, None]), "b": pa.array([1.0, 2, 3])}, "float64"),
    ],
)
def test_parquet_types(columns: dict[str, pa.Array], dtype: str, tmp_path: Path) -> None:
    block, _ = parquet(tmp_path, pa.table(columns))
    assert block.dtype == np.dtype(dtype)
    for position, column in enumerate(columns.values()):
        expected = [NAN if value is None else float(value) for value in column.to_pylist()]
        np.testing.assert_array_equal(block[:, position].astype(float), expected)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (pa.array([2, 0, 1]), np.array([2, 0, 1])),
        (pa.array([2, None, 1]), np.array([2, None, 1], dtype=object)),
        (pa.array([0.5, None, 1]), np.array([0.5, NAN, 1])),
        (pa.array(["u", None, "v"]), np.array(["u", None, "v"], dtype=object)),
        (pa.array(["u", "v", "u"]).dictionary_encode(), np.array(["u", "v", "u"], dtype=object)),
        (pa.array([True, False, True]), np.array([True, False, True])),
    ],
)
def test_parquet_labels(labels: pa.Array, expected: np.ndarray, tmp_path: Path) -> None:
    block, y = parquet(tmp_path, pa.table({"a": [1.0, 2, 3], "y": labels}), labels="y")
    assert y is not None
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(block, [[1], [2], [3]])


EUROPEAN = 'name;class;a;"b;c"\nx;1,5;0,25;1\n"y;z";2,5;;-3,5\nw;1,5;1e1;,5\n'
VALUES = [[0.25, 1.0], [NAN, -3.5], [10.0, 0.5]]


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".txt", ".tsv.gz"])
@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiters_and_decimal_commas_with_and_without_compression(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, delimiter: str
) -> None:
    """They are found in the table, but for a delimiter that is none of the usual ones, and tabs in a .tsv file."""
    monkeypatch.setattr(csv_table, "RANGE_BYTES", 16)
    named: dict[str, Any] = (
        {"delimiter": delimiter} if delimiter == "|" or (ending == ".tsv.gz" and delimiter == ";") else {}
    )
    content = EUROPEAN.replace(";", delimiter).encode()
    path = tmp_path / f"X{ending}"
    path.write_bytes(gzip.compress(content) if ending.endswith(".gz") else content)
    source = open_source(SourceSpec(source=str(path), labels="class", row_names="name", **named))
    assert source.info.feature_names == ("a", f"b{delimiter}c")
    np.testing.assert_array_equal(np.vstack([source.read_rows(row, row + 1) for row in range(3)]), VALUES)
    labels, names = source.read_labels(), source.read_row_names()
    assert labels is not None
    assert labels.tolist() == [1.5, 2.5, 1.5]
    assert names is not None
    assert np.concatenate(list(names)).tolist() == [b"x", f"y{delimiter}z".encode(), b"w"]


def test_decimal_commas_that_are_not_meant_or_not_found(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"such as '1,5' in row 0 \(set data.decimal to a comma if it is one\)"):
        read_csv(tmp_path, "a;b\n1,5;2\n", decimal=".")
    late = "a;b\n" + "1;2\n" * csv_table.HEAD_BYTES + "1,5;2\n"
    with pytest.raises(InputError, match=r"set data\.decimal to a comma"):
        open_source(SourceSpec(source=str(write(tmp_path, late)))).read_rows(
            csv_table.HEAD_BYTES, csv_table.HEAD_BYTES + 1
        )
    assert open_source(SourceSpec(source=str(write(tmp_path, late)), decimal=",")).read_rows(65536, 65537)[0, 0] == 1.5


def test_a_damaged_file_of_gzip_is_refused_and_a_new_one_read_anew(tmp_path: Path) -> None:
    path, content = tmp_path / "X.csv.gz", gzip.compress(b"a,b\n1,2\n" * 100)
    path.write_bytes(content[:-20])
    with pytest.raises(InputError, match=r"X\.csv\.gz is damaged, or not compressed by gzip"):
        open_source(SourceSpec(source=str(path)))
    path.write_bytes(gzip.compress(b"a,b\n3,4\n"))
    assert open_source(SourceSpec(source=str(path))).read_rows(0, 1).tolist() == [[3.0, 4.0]]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_header_may_be_longer_than_the_cells_that_csv_allows(tmp_path: Path, delimiter: str) -> None:
    names = [f"{'a long name of a probe':>40} {column}" for column in range(4000)]
    rows = [names, ["1"] * 4000, ["2"] * 4000]
    (tmp_path / "wide.csv").write_text("".join(f"{delimiter.join(row)}\n" for row in rows))
    source = open_source(SourceSpec(source=str(tmp_path / "wide.csv")))
    assert source.info.feature_names == tuple(name.strip() for name in names)
    np.testing.assert_array_equal(source.read_rows(0, 2), np.outer([1, 2], np.ones(4000)))


def test_delimiters_are_of_text(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.ones((2, 2)))
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "X.parquet")
    for name in ("X.npy", "X.parquet"):
        options: list[dict[str, Any]] = [{"delimiter": ";"}, {"decimal": ","}]
        for option in options:
            with pytest.raises(InputError, match=f"data.{next(iter(option))} is for tables of text"):
                open_source(SourceSpec(source=str(tmp_path / name), **option))
