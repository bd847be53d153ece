"""Looks at a source before its run: opened with all keys that say how, and asked for by options of every verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import daskfs as package
from daskfs.cli import NO_OPTIONS
from daskfs.data_block import DataBlock
from daskfs.errors import InputError
from tests.cli.command import daskfs, texts
from tests.optional import anndata as ad
from tests.optional import h5py
from tests.optional import pandas as pd

N = 60
Y = np.arange(N) % 2
X = np.random.default_rng(0).poisson(3, size=(N, 4)) + Y[:, None] * [3, 0, 0, 0]


def hdf5(folder: Path) -> tuple[Path, dict[str, Any]]:
    with h5py.File(folder / "two.h5", "w") as file:
        file["A"], file["B"], file["y"] = X[:, ::-1], X, Y
    return folder / "two.h5", {"labels": "y", "array": "B"}


def layers(folder: Path) -> tuple[Path, dict[str, Any]]:
    adata = ad.AnnData(obs={"lab": Y.astype(str)}, var={"n": range(4)}, layers={"counts": X})
    adata.write_h5ad(folder / "raw.h5ad")
    return folder / "raw.h5ad", {"labels": "lab", "array": "layers/counts"}


def text(folder: Path) -> tuple[Path, dict[str, Any]]:
    lines = ["|".join(map(str, (*row, y))) for row, y in zip(X, Y, strict=True)]
    (folder / "X.csv").write_text("\n".join(["a|b|c|d|lab", *lines]) + "\n")
    return folder / "X.csv", {"labels": "lab", "delimiter": "|"}


SOURCES = {"hdf5": hdf5, "layers": layers, "text": text}


def test_options_are_keys_of_the_data_block() -> None:
    for verb in ("convert", "rank", "init", "inspect"):
        help_text = daskfs(verb, "--help").out
        flags = {f"--{key.replace('_', '-')}" for key in {*DataBlock.model_fields} - NO_OPTIONS}
        assert not [flag for flag in flags if flag not in help_text]


@pytest.mark.parametrize("way", ["options", "overrides"])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_verb_opens_it_alike(tmp_path: Path, kind: str, way: str) -> None:
    path, keys = SOURCES[kind](tmp_path)
    words = [word for key, value in keys.items() for word in (f"--{key}", value)]
    if way == "overrides":
        words = [word for key, value in keys.items() for word in ("--set", f"data.{key}='{value}'")]
    if way == "options":
        assert daskfs("inspect", path, *words, "--json").json["n_features"] == 4
    ranked = daskfs("rank", path, *words, "--evaluate", "null", "-q", "--json", "--output", tmp_path / "run")
    assert ranked.code == 0, ranked.err
    printed = daskfs("init", path, *words)
    assert printed.code == 0, printed.err
    job = yaml.safe_load(printed.out)
    assert {key: job["data"][key] for key in keys} == keys
    result = package.rank(str(path), settings={"data": keys, "evaluate": None}, methods="FisherScore")
    assert result.selected("FisherScore", n=1) == [ranked_first(tmp_path / "run")]


def ranked_first(run: Path) -> str:
    from tests.cli.command import rows_of

    rows = rows_of(run / "ranking.csv")
    return next(row["name"] for row in rows if (row["method"], row["rank"]) == ("FisherScore", "1"))


def test_a_gap_is_answered_by_the_option_to_add(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,b,lab\n" + "".join(f"{'' if i == 3 else i},{i % 7},{i % 2}\n" for i in range(N)))
    words = ("rank", tmp_path / "X.csv", "--labels", "lab", "--output", tmp_path / "run", "--evaluate", "null", "-q")
    refused = daskfs(*words)
    assert refused.code == 3
    assert "--missing mean" in refused.err
    done = daskfs(*words, "--missing", "mean")
    assert done.code == 0, done.err


def test_columns_that_are_left_out_stand_in_the_record(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,site,lab\n" + "".join(f"{i % 7},north {i % 3},{i % 2}\n" for i in range(N)))
    words = ("--labels", "lab", "--output", tmp_path / "run", "--evaluate", "null", "--methods", "FisherScore")
    assert daskfs("rank", tmp_path / "X.csv", *words, "-q").code == 0
    told = "these columns hold no numbers, and are left out: 'site'"
    assert told in texts(json.loads((tmp_path / "run" / "run.json").read_text()))
    assert "site" in (tmp_path / "run" / "report.html").read_text()


def test_a_proposed_job_fills_the_gaps_that_were_seen(tmp_path: Path) -> None:
    for name, gap in (("gaps", ""), ("none", "0")):
        rows = "".join(f"{gap if i == 3 else i},{i % 7},{i % 2}\n" for i in range(N))
        (tmp_path / f"{name}.csv").write_text("a,b,lab\n" + rows)
        printed = daskfs("init", tmp_path / f"{name}.csv", "--labels", "lab")
        assert yaml.safe_load(printed.out)["data"].get("missing") == ("mean" if name == "gaps" else None)


def test_in_python_a_gap_is_answered_by_the_parameter() -> None:
    frame = pd.DataFrame(X.astype(float), columns=list("abcd"))
    frame.loc[3, "b"] = np.nan
    with pytest.raises(InputError, match=r"'b'\) of X has NaN in row 3.*missing='mean'") as refused:
        package.rank(frame, Y, evaluate=None)
    assert "daskfs-" not in str(refused.value)
    result = package.rank(frame, Y, evaluate=None, missing="mean")
    assert result.selected("FisherScore", n=1) == ["a"]
