"""The command that inspect ends with: it has the options that are needed, and runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.optional import anndata as ad
from tests.optional import h5py
from tests.optional import pandas as pd

from .command import daskfs

N = 60
RNG = np.random.default_rng(0)
Y = np.arange(N) % 3
TABLE = pd.DataFrame(RNG.normal(size=(N, 4)), columns=["a", "b c", "d", "e"])


def csv(folder: Path) -> list[str]:
    TABLE.assign(outcome=Y, word="x").to_csv(folder / "a table.csv", index=False)
    return [str(folder / "a table.csv"), "--labels=outcome"]


def csv_with_gaps(folder: Path) -> list[str]:
    TABLE.mask(TABLE > 1.5).assign(outcome=Y, empty=np.nan).to_csv(folder / "X.csv", index=False)
    return [str(folder / "X.csv"), "--labels=outcome", "--missing=mean"]


def csv_of_europe(folder: Path) -> list[str]:
    TABLE.assign(outcome=Y).to_csv(folder / "X.csv", index=False, sep="|")
    return [str(folder / "X.csv"), "--delimiter=|", "--labels=outcome"]


def parquet_of_identifiers(folder: Path) -> list[str]:
    TABLE.assign(key=2**60 + np.arange(N), target=RNG.normal(size=N)).to_parquet(folder / "X.parquet")
    return [str(folder / "X.parquet"), "--labels=target", "--exclude=key"]


def without_labels(folder: Path) -> list[str]:
    np.save(folder / "X.npy", TABLE.to_numpy())
    return [str(folder / "X.npy")]


def hdf5(folder: Path) -> list[str]:
    with h5py.File(folder / "X.h5", "w") as file:
        file["A"], file["B"], file["y"] = TABLE.to_numpy(), TABLE.to_numpy(), Y
    return [str(folder / "X.h5"), "--array=B", "--labels=y"]


def layers(folder: Path) -> list[str]:
    obs = pd.DataFrame({"label": pd.Categorical([f"c{y}" for y in Y])}, index=[f"r{row}" for row in range(N)])
    counts = sp.csr_matrix(RNG.poisson(2, size=(N, 4)).astype(np.float32))
    ad.AnnData(obs=obs, var=pd.DataFrame(index=list("abcd")), layers={"counts": counts}).write_h5ad(folder / "X.h5ad")
    return [str(folder / "X.h5ad"), "--array=layers/counts", "--labels=label"]


SOURCES = [csv, csv_with_gaps, csv_of_europe, parquet_of_identifiers, without_labels, hdf5, layers]
KEYS = ("--array", "--delimiter")
"""Options that inspect is given, too."""


@pytest.mark.parametrize("write", SOURCES, ids=lambda write: write.__name__)
def test_command_runs(tmp_path: Path, write: Callable[[Path], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, *options = write(tmp_path)
    outcome = daskfs("inspect", source, *(option for option in options if option.startswith(KEYS)))
    assert outcome.code == 0, outcome.err
    *_, last = outcome.out.splitlines()
    words = shlex.split(last.removeprefix("next: "))
    assert words == ["daskfs", "rank", source, *options]
    ranked = daskfs(*words[1:], "--evaluate", "null", "--methods", "VarianceScore", "--quiet")
    assert ranked.code == 0, ranked.err


def test_command_of_tiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source, *options = csv_with_gaps(tmp_path)
    assert daskfs("convert", source, "tiles", *options, "--exclude", "empty", "--workers", "0").code == 0
    assert daskfs("inspect", "tiles").out.splitlines()[-1] == "next: daskfs rank tiles"
    assert daskfs("rank", "tiles", "--evaluate", "null").code == 0
