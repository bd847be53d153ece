"""Columns of a table without any value: left out by rank and init, refused by name by run and fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import daskfs as package
from daskfs.errors import InputError
from tests.optional import pandas as pd

from .command import daskfs, refused, write_job

N = 60
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(RNG.normal(size=(N, 3)), columns=list("abc")).assign(
    empty=np.nan, late=np.r_[np.full(N - 1, np.nan), 1.5], lab=np.arange(N) % 3
)


def csv(folder: Path) -> str:
    TABLE.astype({"empty": object}).assign(empty=[" ", "NA", ""] * (N // 3)).to_csv(folder / "X.csv", index=False)
    return "X.csv"


def parquet(folder: Path) -> str:
    TABLE.to_parquet(folder / "X.parquet", row_group_size=25)
    return "X.parquet"


def parquet_of_nan(folder: Path) -> str:
    import polars as pl

    pl.DataFrame({name: TABLE[name].to_numpy() for name in TABLE}).write_parquet(folder / "X.parquet")
    return "X.parquet"


def parquet_of_nulls(folder: Path) -> str:
    TABLE.assign(empty=None).to_parquet(folder / "X.parquet")
    return "X.parquet"


def in_parts(write: str) -> Callable[[Path], str]:
    def parts(folder: Path) -> str:
        (folder / "X").mkdir()
        for place, rows in enumerate(np.array_split(np.arange(N), 3)):
            getattr(TABLE.iloc[rows], f"to_{write}")(folder / "X" / f"{place}.{write}", index=False)
        return "X"

    return parts


SOURCES: dict[str, Callable[[Path], str]] = {
    "csv": csv,
    "parquet": parquet,
    "NaN of Parquet": parquet_of_nan,
    "nulls of Parquet": parquet_of_nulls,
    "parts of CSV": in_parts("csv"),
    "parts of Parquet": in_parts("parquet"),
}


@pytest.mark.parametrize("write", SOURCES.values(), ids=SOURCES)
def test_left_out_by_rank(tmp_path: Path, write: Callable[[Path], str]) -> None:
    source = tmp_path / write(tmp_path)
    keys = ("--labels", "lab", "--missing", "mean", "--methods", "VarianceScore", "--evaluate", "null")
    outcome = daskfs("rank", source, *keys, "--output", tmp_path / "run", "--json")
    assert outcome.code == 0, outcome.err
    assert "these columns hold no numbers, and are left out: 'empty'" in outcome.err
    assert "left out: 'empty'" in (tmp_path / "run" / "run.json").read_text()
    assert "empty" not in (tmp_path / "run" / "ranking.csv").read_text()
    assert "late" in (tmp_path / "run" / "ranking.csv").read_text()
    job = yaml.safe_load(daskfs("init", source, "--labels", "lab").out)
    assert job["data"]["exclude"] == ["non-numeric"]
    assert daskfs("inspect", source, "--labels", "lab", "--json").json["n_features"] == 4


def test_refused_by_run(tmp_path: Path) -> None:
    source = str(tmp_path / parquet(tmp_path))
    job = {
        "data": {"source": source, "labels": "lab"},
        "methods": ["VarianceScore"],
        "output": {"path": str(tmp_path / "run")},
    }
    told = ("column 3 ('empty') has no value in rows 0:60: leave it out (of a table by data.exclude",)
    refused(daskfs("run", write_job(tmp_path, job), "--quiet"), 3, *told)


def test_refused_by_fit() -> None:
    X: Any = TABLE.drop(columns=["late", "lab"])
    with pytest.raises(InputError, match=r"'empty'.* has no value in rows 0:60: leave it out"):
        package.VarianceScore().fit(X)
