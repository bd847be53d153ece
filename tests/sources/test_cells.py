"""What cells of text tables mean: a number is read under one meaning, or its column is refused by name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from sklearn.datasets import dump_svmlight_file

from daskfs import FisherScore, run_job
from daskfs.errors import InputError
from daskfs.job.job import make_job
from daskfs.sources import open_source
from daskfs.sources.base import SourceSpec
from daskfs.sources.cells import Numerals
from tests.cli.command import daskfs, refused, rows_of
from tests.optional import h5py

Y = np.arange(60) % 2
V = 900 + 20 * np.arange(60) + 300 * Y
THOUSANDS: dict[str, Callable[[int], str]] = {
    "comma": lambda v: f"{v:,}",
    "point": lambda v: f"{v:,}".replace(",", "."),
    "quoted comma": lambda v: f'"{v:,}"',
}
BESIDE: dict[str, Callable[[int], str]] = {
    "whole": lambda i: str(i * 7 % 10),
    "points": lambda i: f"{i / 7:.2f}",
    "commas": lambda i: f"{i / 7:.2f}".replace(".", ","),
}
DELIMITERS = {"tab": "\t", "semicolon": ";", "comma": ","}


def table(folder: Path, delimiter: str, cells: Sequence[tuple[str, ...]]) -> str:
    """Write a table of columns v, w and the labels."""
    path = folder / ("X.tsv" if delimiter == "\t" else "X.csv")
    lines = (delimiter.join((*row, str(y))) for row, y in zip(cells, Y, strict=True))
    path.write_text("\n".join([delimiter.join(("v", "w", "lab")), *lines]) + "\n")
    return str(path)


def is_open(delimiter: str, sign: str, beside: str) -> bool:
    """Return whether a table can be written so, and its other cells do not settle that the sign is of decimals."""
    is_cut = delimiter == "comma" and (sign == "comma" or beside == "commas")
    return not is_cut and (sign.split()[-1], beside) not in (("comma", "commas"), ("point", "points"))


@pytest.mark.parametrize(
    ("delimiter", "sign", "beside"), [one for one in itertools.product(DELIMITERS, THOUSANDS, BESIDE) if is_open(*one)]
)
def test_signs_between_thousands_are_never_decimal_signs(
    tmp_path: Path, delimiter: str, sign: str, beside: str
) -> None:
    cells = [(THOUSANDS[sign](int(v)), BESIDE[beside](i)) for i, v in enumerate(V)]
    path = table(tmp_path, DELIMITERS[delimiter], cells)
    with pytest.raises(InputError, match=r"column 'v' has text in .*set data\.decimal"):
        FisherScore(1).fit(path, "lab")
    outcome = daskfs("rank", path, "--labels", "lab", "--output", tmp_path / "run", "-q")
    refused(outcome, 3, "'v' has text", "data.decimal")


@pytest.mark.parametrize("form", ["1.220,50", "1,220.50", "1 220", "1'220", "1\u00a0220,5", "-1.220.007"])
def test_columns_of_parted_numbers_are_no_text(tmp_path: Path, form: str) -> None:
    cells = [(f'"{form}"', str(i)) for i in range(60)]
    path = table(tmp_path, ";", cells)
    outcome = daskfs("rank", path, "--labels", "lab", "--output", tmp_path / "run", "-q")
    refused(outcome, 3, "'v' has text", "remove separators of thousands")


@pytest.mark.parametrize("decimal", [".", ","])
def test_three_decimals_are_read_where_the_sign_is_said_or_settled(tmp_path: Path, decimal: str) -> None:
    values = np.column_stack([V / 1000, np.arange(60)])
    cells = [(f"{v:.3f}".replace(".", decimal), str(i)) for i, v in enumerate(V / 1000)]
    path = table(tmp_path, ";", cells)
    source = open_source(SourceSpec(source=path, labels="lab", decimal=decimal))
    np.testing.assert_array_equal(source.read_rows(0, 60), values)
    source = open_source(SourceSpec(source=path, labels="lab"))  # 0.900 can be no thousand
    np.testing.assert_array_equal(source.read_rows(0, 60), values)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1,5", "2"], Numerals(",")),
        (["0,125"], Numerals(",")),
        (["1,220", "900"], Numerals(".", is_sure=False)),
        (["1.220", "0.5"], Numerals(".")),
        (["1.220,5", "1,5"], Numerals(",")),
        (["1.5", "2.5", "1,5"], Numerals(".")),
        (["a,b", "x.y"], Numerals(".", is_sure=False)),
        ([], Numerals(".", is_sure=False)),
    ],
)
def test_the_sign_is_that_of_cells_that_can_mean_one_thing_only(cells: list[str], expected: Numerals) -> None:
    assert Numerals.of_table(cells) == expected


@pytest.mark.parametrize("place", [3, 59])
@pytest.mark.parametrize("odd", ["?", "None", "-", "#N/A", "12%", "true"])
def test_columns_of_numbers_are_not_left_out_for_a_few_cells(tmp_path: Path, odd: str, place: int) -> None:
    cells = [(odd if i == place else str(v), str(i)) for i, v in enumerate(V)]
    path = table(tmp_path, ",", cells)
    outcome = daskfs("rank", path, "--labels", "lab", "--output", tmp_path / "run", "-q")
    refused(outcome, 3, f"column 'v' has text in 1 of 60 cells of rows 0:60, such as {odd!r} in row {place}")
    assert f"data.missing_values to [{odd!r}]" in outcome.err
    (tmp_path / "two").mkdir()
    both = table(tmp_path / "two", ",", [(first, first) for first, _ in cells])
    outcome = daskfs("rank", both, "--labels", "lab", "--output", tmp_path / "run", "-q")
    refused(outcome, 3, "2 columns hold cells that are no numbers", f"data.missing_values to [{odd!r}]")
    columns = {column["name"]: column for column in daskfs("inspect", path, "--json").json["columns"]}
    assert (columns["v"]["type"], columns["w"]["type"]) == ("mixed", "integer")
    assert f"{odd!r} in row {place}" in columns["v"]["looks_like"]


@pytest.mark.parametrize("blank", ["", " ", "\t", "NA", " NA ", " NaN "])
def test_white_space_is_missing(tmp_path: Path, blank: str) -> None:
    cells = [(blank if i in (3, 17) else str(v), str(i)) for i, v in enumerate(V)]
    path = table(tmp_path, ";", cells)
    values = open_source(SourceSpec(source=path, labels="lab")).read_rows(0, 60)
    assert np.flatnonzero(np.isnan(values[:, 0])).tolist() == [3, 17]
    with pytest.raises(InputError, match=r"NaN.*'v'|'v'.*NaN"):
        FisherScore(1).fit(path, "lab")


# ------------------------------------------------------------------------------------------------------ missing values
WRITTEN = ("csv", "parquet", "npy", "npz", "h5", "zarr", "svmlight")


def written(folder: Path, kind: str, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Write X and y in a format, and return the keys of ``data`` for them."""
    path = folder / f"X.{kind}"
    names = [f"f{i}" for i in range(X.shape[1])]
    if kind == "csv":
        lines = [",".join(map(repr, [*row, int(label)])) for row, label in zip(X.tolist(), y, strict=True)]
        path.write_text("\n".join([",".join([*names, "y"]), *lines]) + "\n")
    elif kind == "parquet":
        pq.write_table(pa.table({**dict(zip(names, X.T, strict=True)), "y": y}), path)
    elif kind == "npy":
        np.save(path, X)
        np.save(folder / "y.npy", y)
        return {"source": str(path), "labels": str(folder / "y.npy")}
    elif kind == "npz":
        np.savez(path, X=X, y=y)
    elif kind == "h5":
        with h5py.File(path, "w") as file:
            file["X"], file["y"] = X, y
    elif kind == "zarr":
        group = zarr.open_group(path, mode="w")
        group.create_array("X", data=X, chunks=X.shape)
        group.create_array("y", data=y)
    else:
        dump_svmlight_file(X, y, str(path))
        return {"source": str(path), "labels": "target"}
    return {"source": str(path), "labels": "y"}


@pytest.mark.parametrize("missing", ["mean", "pairwise"])
@pytest.mark.parametrize("kind", WRITTEN)
def test_marked_values_are_missing_in_any_source(tmp_path: Path, kind: str, missing: str) -> None:
    """In features and labels: the ranking is that of NaN and unlabeled rows."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 90)
    X = rng.normal(size=(90, 5)) + y[:, None] * np.linspace(0, 2, 5)
    gaps, unlabeled = rng.random(X.shape) < 0.1, rng.random(90) < 0.2
    blocks = {"methods": ["FisherScore", "VarianceScore"], "evaluate": None, "cluster": {"workers": 0}}
    rankings = []
    for name, marker in (("marked", -999.0), ("nan", np.nan)):
        folder = tmp_path / name
        folder.mkdir()
        values, labels = np.where(gaps, marker, X), np.where(unlabeled, -999 if name == "marked" else -1, y)
        source = written(folder, kind if name == "marked" else "npz", values, labels)
        keys = {"missing_values": [-999, "?"]} if name == "marked" else {}
        job = {"data": {**source, **keys, "missing": missing}, **blocks, "output": {"path": str(folder / "run")}}
        run_job(make_job(job))
        rows = rows_of(folder / "run" / "ranking.csv")
        rankings.append([(row["method"], row["feature"], row["rank"], float(row["score"])) for row in rows])
    if kind == "svmlight":  # sums of sparse columns have another order
        assert [row[:3] for row in rankings[0]] == [row[:3] for row in rankings[1]]
        np.testing.assert_allclose([row[3] for row in rankings[0]], [row[3] for row in rankings[1]], rtol=1e-12)
    else:
        assert rankings[0] == rankings[1]


def test_words_are_missing_where_a_table_has_them(tmp_path: Path) -> None:
    cells = [("?" if i == 3 else str(v), "unknown" if i == 7 else str(i)) for i, v in enumerate(V)]
    path = table(tmp_path, ",", cells)
    spec = SourceSpec(source=path, labels="lab", weights="w", missing_values=("?", "unknown"))
    source = open_source(spec)
    assert np.flatnonzero(np.isnan(source.read_rows(0, 60)[:, 0])).tolist() == [3]
    with pytest.raises(InputError, match=r"w has no weight in row 7"):
        source.read_sample_column("weights")


def test_zero_is_no_marker_in_sparse_data(tmp_path: Path) -> None:
    dump_svmlight_file(np.eye(4), np.arange(4), str(tmp_path / "X.svmlight"))
    with pytest.raises(InputError, match=r"data\.missing_values has 0, and X is sparse"):
        open_source(SourceSpec(source=str(tmp_path / "X.svmlight"), missing_values=(0,)))
