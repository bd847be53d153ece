"""Parts of tables: which files they are, and what is said of those that do not fit together."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source, tables
from daskfs.sources.multifile import find_parts
from daskfs.sources.state import as_planned, changed_file, source_state
from daskfs.sources.tables import TableSource
from daskfs.storage import StoragePath, as_path
from tests.optional import pandas as pd

from .objects import folder_as_bucket


def csv(folder: Path, **parts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in parts.items():
        (folder / f"{name.replace('_', '-')}.csv").write_text(content)
    return folder


def parquet(folder: Path, *tables: dict[str, object]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, columns in enumerate(tables):
        pq.write_table(pa.table(columns), folder / f"{number}.parquet")
    return folder


@pytest.fixture(params=["files", "objects"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoragePath:
    return as_path(tmp_path) if request.param == "files" else folder_as_bucket(tmp_path, monkeypatch)


def test_natural_order(root: StoragePath, tmp_path: Path) -> None:
    names = ["part-1", "part-2", "part-10", "part-10b", "part-11", "q"]
    csv(tmp_path, **{name: f"a\n{number}\n" for number, name in reversed(list(enumerate(names)))})
    for name in (".", "*.csv", "*"):
        source = open_source(SourceSpec(source=str(root if name == "." else root / name)))
        assert source.read_rows(0, 6).ravel().tolist() == list(range(6))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*/*.csv", ["year=1/a.csv", "year=2/a.csv", "year=2/b.csv"]),
        ("year=2/*", ["year=2/a.csv", "year=2/b.csv"]),
        ("year=[1-2]/a.csv", ["year=1/a.csv", "year=2/a.csv"]),
        ("**/a.csv", ["a.csv", "year=1/a.csv", "year=2/a.csv"]),
        ("year=?/b.*", ["year=2/b.csv"]),
        ("year=3/*", None),
    ],
)
def test_patterns(pattern: str, expected: list[str] | None, root: StoragePath, tmp_path: Path) -> None:
    for folder, name in itertools.product(("year=1", "year=2"), ("a", "_b", ".c")):
        csv(tmp_path / folder, **{name: "a\n1\n"})
        (tmp_path / folder / f"{name.replace('_', '-')}.csv").rename(tmp_path / folder / f"{name}.csv")
    csv(tmp_path / "year=2", b="a\n1\n")
    csv(tmp_path / "_temporary", a="a\n1\n")
    csv(tmp_path, a="a\n1\n")
    found = find_parts(root / pattern)
    assert (None if found is None else [path.name_below(root) for path in found.states]) == expected


def test_a_name_that_looks_like_a_pattern_is_a_name(tmp_path: Path) -> None:
    csv(tmp_path, a="a\n1\n")
    (tmp_path / "a.csv").rename(tmp_path / "[a].csv")
    csv(tmp_path, a="a\n2\n")
    assert open_source(SourceSpec(source=str(tmp_path / "[a].csv"))).read_rows(0, 1) == 1


@pytest.mark.parametrize(
    ("tables", "dtype"),
    [
        (({"a": pa.array([1], pa.int8())}, {"a": pa.array([2], pa.uint8())}), "int16"),
        (({"a": pa.array([1], pa.int8())}, {"a": pa.array([None], pa.int8())}), "float64"),
        (({"a": pa.array([1], pa.float32())}, {"a": pa.array([2], pa.float32())}), "float32"),
        (({"a": pa.array([1], pa.float32())}, {"a": pa.array([2.0])}), "float64"),
        (({"a": pa.array([1])}, {"a": pa.array([None], pa.null())}), "float64"),
    ],
)
def test_types_of_parts(tables: tuple[dict[str, Any], ...], dtype: str, tmp_path: Path) -> None:
    source = open_source(SourceSpec(source=str(parquet(tmp_path, *tables))))
    block = source.read_rows(0, 2)
    assert (source.info.dtype, block.dtype) == (np.dtype(dtype), np.dtype(dtype))
    second = tables[1]["a"].to_pylist()[0]
    np.testing.assert_array_equal(block.ravel().astype(float), [1, np.nan if second is None else second])


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((pa.array([3]), pa.array([4])), [3, 4]),
        ((pa.array([3]), pa.array([None], pa.null())), [3, None]),
        ((pa.array([3]), pa.array([0.5])), [3.0, 0.5]),
        ((pa.array(["u"]).dictionary_encode(), pa.array(["v"]).dictionary_encode()), ["u", "v"]),
        ((pa.array(["u"]).dictionary_encode(), pa.array(["v"])), ["u", "v"]),
        ((pa.array(["u"]), pa.array([], pa.string())), ["u"]),
    ],
)
def test_labels_over_parts(parts: tuple[pa.Array, ...], expected: list[object], tmp_path: Path) -> None:
    tables = [{"a": np.arange(len(part), dtype=float), "y": part} for part in parts]
    source = open_source(SourceSpec(source=str(parquet(tmp_path, *tables)), labels="y"))
    assert source.read_labels().tolist() == expected


def test_text_labels_are_numbers_only_where_all_parts_say_so(tmp_path: Path) -> None:
    csv(tmp_path, a="a,y\n1,7\n", b="a,y\n1,\n", c="a,y\n1,u\n")
    assert open_source(SourceSpec(source=str(tmp_path), labels="y")).read_labels().tolist() == ["7", None, "u"]


def hive(folder: Path) -> None:
    csv(folder / "year=2024", a="a\n1\n")


CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "column lacking": (lambda d: csv(d, a="a,b\n1,2\n", b="a\n1\n"), ("b.csv has no column 'b'", "a.csv")),
    "column more": (lambda d: csv(d, a="a\n1\n", b="a,b\n1,2\n"), ("b.csv has a column 'b' more",)),
    "other order": (lambda d: csv(d, a="a,b,c\n1,2,3\n", b="a,c,b\n1,2,3\n"), ("b.csv", "another order", "column 1")),
    "twice": (lambda d: csv(d, a="a,b\n1,2\n", b="a,b,b\n1,2,3\n"), ("b.csv", "another order, or twice", "column 2")),
    "text in one": (lambda d: parquet(d, {"a": [1.0]}, {"a": ["x"]}), ("1.parquet", "'a' holds text", "data.exclude")),
    "one broken": (
        lambda d: (parquet(d, {"a": [1.0]}) / "2.parquet").write_text("PAR1"),
        ("2.parquet", "truncated or not a Parquet file"),
    ),
    "one empty": (
        lambda d: (parquet(d, {"a": [1.0]}) / "2.parquet").write_text(""),
        ("2.parquet", "truncated or not a Parquet file"),
    ),
    "all empty": (lambda d: csv(d, a="", b=""), ("has only empty files",)),
    "no rows": (lambda d: csv(d, a="a\n", b="a\n"), ("has a header but no rows",)),
    "no rows in Parquet": (lambda d: parquet(d, {"a": pa.array([], pa.int8())}), ("shape (0, 1)",)),
    "two formats": (lambda d: parquet(csv(d, a="a\n1\n"), {"a": [1.0]}), (".csv and .parquet files", "*.csv")),
    "compressed": (lambda d: (csv(d, a="a\n1\n") / "b.csv.xz").write_text("x"), ("b.csv.xz is compressed",)),
    "folders of a column": (hive, ("'year=2024'", "stand for the values of a column", "/*/*")),
    "nothing": (lambda d: (d / "a.json").write_text("{}"), ("zarr.json", ".parquet")),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str, root: StoragePath, tmp_path: Path) -> None:
    make, parts = CASES[case]
    make(tmp_path)
    with pytest.raises(InputError) as caught:
        open_source(SourceSpec(source=str(root)))
    assert [part for part in parts if part not in str(caught.value)] == [], str(caught.value)


def test_a_pattern_without_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not exist, and as a pattern fits no .*\.parquet"):
        open_source(SourceSpec(source=str(tmp_path / "*.parquet")))


def test_labels_of_two_kinds_name_the_part(tmp_path: Path) -> None:
    parquet(tmp_path, {"a": [1.0], "y": [1]}, {"a": [1.0], "y": ["u"]})
    source = open_source(SourceSpec(source=str(tmp_path), labels="y"))
    with pytest.raises(InputError, match=r"1\.parquet: column 'y' has type string, and int64 in files before"):
        source.read_labels()


def test_a_wrong_cell_names_the_part(tmp_path: Path) -> None:
    csv(tmp_path, a="a\n1\n", b="a\n1\ntwo\n")
    source = open_source(SourceSpec(source=str(tmp_path)))
    with pytest.raises(InputError, match=r"b\.csv: column 'a' has text in 1 of 2 .*such as 'two' in row 1"):
        source.read_rows(0, 3)


def later(folder: Path) -> None:
    time = (folder / "a.csv").stat().st_mtime_ns + 1_000_000
    os.utime(folder / "a.csv", ns=(time, time))


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "longer": (lambda d: csv(d, a="a\n1\n2\n"), "a.csv"),
    "later": (later, "a.csv"),
    "gone": (lambda d: (d / "b.csv").unlink(), "b.csv"),
    "come": (lambda d: csv(d, c="a\n1\n"), "c.csv"),
    "all gone": (lambda d: [(d / name).unlink() for name in ("a.csv", "b.csv")], "a.csv"),
}


@pytest.mark.parametrize("form", [".", "*.csv"])
@pytest.mark.parametrize("case", CHANGES)
def test_changes_are_seen(case: str, form: str, tmp_path: Path) -> None:
    csv(tmp_path, a="a\n1\n", b="a\n2\n")
    spec = SourceSpec(source=str(tmp_path if form == "." else tmp_path / form))
    source = open_source(spec)
    planned = source_state(spec, source)
    assert changed_file(spec, planned, source) is None
    with as_planned(spec, source, planned):
        source.read_rows(0, 2)
    change, name = CHANGES[case]
    change(tmp_path)
    assert changed_file(spec, planned, source) == str(tmp_path / name)
    assert changed_file(spec, planned) == spec.source
    with pytest.raises(InputError, match=name), as_planned(spec, source, planned):
        pass
    of_rows = {row: changed_file(spec, planned, source, slice(row, row + 1)) for row in (0, 1)}
    is_in = {"later": [0], "longer": [0], "gone": [1], "come": [], "all gone": [0, 1]}[case]
    own = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    assert of_rows == {row: own[row] if row in is_in else None for row in (0, 1)}, "of their own parts only"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_with_known_sizes_only_parts_that_are_read_are_opened(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the first one, for its columns; rows, labels and names are those of a source that has opened all."""
    X = np.arange(60, dtype=np.float32).reshape(20, 3)
    for number, rows in enumerate((slice(0, 7), slice(7, 7), slice(7, 8), slice(8, 20))):
        table = pd.DataFrame(X[rows], columns=["a", "b", "c"]).assign(y=X[rows, 0] > 9, name=np.arange(20)[rows])
        path = tmp_path / f"part-{number}.{ending}"
        table.to_parquet(path) if ending == "parquet" else table.to_csv(path, index=False)
    spec, opened = SourceSpec(source=str(tmp_path), labels="y", row_names="name"), list[str]()
    whole = open_source(spec)
    assert isinstance(whole, TableSource)
    open_table = tables.open_table

    def noted(path: StoragePath, spec: SourceSpec) -> tables.Table:
        opened.append(path.name)
        return open_table(path, spec)

    monkeypatch.setattr(tables, "open_table", noted)
    for start, stop in ((0, 7), (7, 8), (6, 9), (8, 20), (19, 20)):
        opened.clear()
        source = open_source(spec, whole.part_sizes)
        block = source.read_rows(start, stop)
        np.testing.assert_array_equal(block, whole.read_rows(start, stop))
        assert block.dtype == whole.info.dtype
        own = {name for name, first, last in (("0", 0, 7), ("2", 7, 8), ("3", 8, 20)) if first < stop and last > start}
        assert sorted(opened) == sorted(f"part-{number}.{ending}" for number in own | {"0"})
    assert isinstance(source, TableSource)
    for found, expected in ((source.read_labels(), whole.read_labels()), (named(source), named(whole))):
        assert found is not None
        assert expected is not None
        np.testing.assert_array_equal(found, expected)


def named(source: TableSource) -> np.ndarray:
    return np.concatenate(list(source.read_row_names() or ()))


def test_what_is_no_part_changes_nothing(tmp_path: Path) -> None:
    csv(tmp_path, a="a\n1\n")
    spec = SourceSpec(source=str(tmp_path))
    source = open_source(spec)
    planned = source_state(spec, source)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / "about.json").write_text("{}")
    assert changed_file(spec, planned, source) is None
