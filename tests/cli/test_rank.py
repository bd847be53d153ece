"""From a file to a verdict with one command, and the job that does the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from numpy.typing import NDArray
from sklearn.datasets import dump_svmlight_file

from daskfs import rank
from daskfs.job.examples import example_names
from daskfs.job.job import load_job, make_job
from daskfs.runs import proposal
from tests.cli.command import daskfs, refused, rows_of, told
from tests.optional import anndata
from tests.optional import pandas as pd

pytestmark = pytest.mark.cluster
USAGE, INPUT = 2, 3
N = 60
FloatArray = NDArray[np.float64]


def values(n_features: int = 8) -> FloatArray:
    """Return rows of two classes, which the first column tells apart best."""
    X = np.random.default_rng(4).normal(size=(N, n_features))
    X[:, 0] += 2.5 * (np.arange(N) % 2)
    return X


def classes() -> NDArray[np.int64]:
    return np.arange(N) % 2


def frame() -> Any:
    """Return a table as people have them: with an id, text, dates, booleans and categories."""
    table = pd.DataFrame(values(), columns=[f"g{place}" for place in range(8)])
    table.insert(0, "id", [f"patient {row}" for row in range(N)])
    table["city"] = np.where(np.arange(N) % 3, "Rome", "Oslo")
    table["seen"] = pd.date_range("2024-01-01", periods=N)
    table["is_treated"] = np.arange(N) % 5 == 0
    table["kind"] = pd.Categorical(np.where(np.arange(N) % 4, "a", "b"))
    table["outcome"] = np.where(classes(), "ill", "well")
    return table


def h5ad(folder: Path) -> tuple[str, ...]:
    cells = anndata.AnnData(values().astype(np.float32), obs={"cell_type": np.where(classes(), "T", "B")})
    cells.var_names = [f"g{place}" for place in range(8)]
    cells.write_h5ad(folder / "cells.h5ad")
    return str(folder / "cells.h5ad"), "--labels", "cell_type"


def csv(folder: Path) -> tuple[str, ...]:
    frame().to_csv(folder / "table.csv")
    return str(folder / "table.csv"), "--labels", "outcome"


def parquet(folder: Path) -> tuple[str, ...]:
    frame().to_parquet(folder / "table.parquet")
    return str(folder / "table.parquet"), "--labels", "outcome"


def svmlight(folder: Path) -> tuple[str, ...]:
    dump_svmlight_file(values(), 2 * classes() - 1, str(folder / "data.svm"), zero_based=False)
    return str(folder / "data.svm"), "--labels", "target"


def spectra(folder: Path) -> tuple[str, ...]:
    X = values()
    table = pd.DataFrame(X, columns=[str(850 + 2 * place) for place in range(8)])
    table["fat"] = X[:, 0] + 0.3 * X[:, 1]
    table.to_csv(folder / "spectra.csv", index=False)
    return str(folder / "spectra.csv"), "--labels", "fat"


@pytest.mark.parametrize("form", [h5ad, csv, parquet, svmlight, spectra])
def test_one_command_ends_with_a_verdict(tmp_path: Path, form: Callable[[Path], tuple[str, ...]]) -> None:
    outcome = daskfs("rank", *form(tmp_path), "--output", tmp_path / "run", "-q")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert " features: " in lines[0]
    assert " on held-out rows, best of " in lines[0]
    ranked = rows_of(tmp_path / "run" / "ranking.csv")
    supervised = next(row for row in ranked if row["method"] in ("FisherScore", "PearsonScore") and row["rank"] == "1")
    assert supervised["feature"] == "0"
    table = form in (csv, parquet)
    assert ("these columns hold no numbers, and are left out: 'id', 'city', 'seen', 'kind'" in outcome.err) is table
    assert {row["name"] for row in ranked} == set(
        [f"g{place}" for place in range(8)] + ["is_treated"] if table else {row["name"] for row in ranked}
    )


def test_choices_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without labels rows are ranked by what needs none; the run lies below the working directory."""
    monkeypatch.chdir(tmp_path)
    np.save("some data.npy", values())
    outcome = daskfs("rank", "some data.npy", "-q", "--json")
    assert (outcome.code, told(outcome)) == (0, "")
    job = outcome.json["job"]
    assert Path("runs/some-data/report.html").is_file()
    assert [method["name"] for method in job["methods"]] == ["LaplacianScore", "VarianceScore"]
    again = ("--methods", "VarianceScore, LaplacianScore", "--n-features", 3, "--redundancy", 0.9, "--overwrite")
    job = daskfs("rank", "some data.npy", "-q", "--json", *again).json["job"]
    assert [method["name"] for method in job["methods"]] == ["VarianceScore", "LaplacianScore"]
    assert (job["select"]["n_features"], job["select"]["redundancy"]["threshold"]) == (3, 0.9)


def test_other_keys_of_the_job_are_set(tmp_path: Path) -> None:
    source, *labels = csv(tmp_path)
    keys = ("--set", "data.groups=city", "--set", "evaluate={n_selected: 2, n_splits: 2}")
    assert "groups: city" in daskfs("init", source, *labels, *keys).out
    outcome = daskfs("rank", source, *labels, *keys, "--output", tmp_path / "run", "-q", "--json")
    assert outcome.code == 0, outcome.err
    job = outcome.json["job"]
    assert (job["data"]["groups"], job["evaluate"]["n_selected"]) == ("city", [2])
    assert outcome.json["data"]["groups"]["n_groups"] > 1


def test_floats_are_a_target_unless_they_are_said_to_be_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Classes become floats where a frame has rows without one."""
    monkeypatch.chdir(tmp_path)
    y = classes().astype(float)
    y[::3] = np.nan
    np.save("X.npy", values())
    np.save("y.npy", y)
    told_so = daskfs("rank", "X.npy", "--labels", "y.npy", "--task", "classification", "-q", "--json").json
    assert told_so["data"]["task"] == told_so["job"]["data"]["task"] == "classification"
    assert rank(values(), y, methods=["LSDF"], task="classification")["data"]["n_labeled"] == np.isfinite(y).sum()
    assert (
        "data.task is regression"
        in daskfs("rank", "X.npy", "--labels", "y.npy", "--methods", "LSDF", "--output", "few").err
    )


def test_init_prints_the_same_job(tmp_path: Path) -> None:
    arguments = csv(tmp_path)
    printed = daskfs("init", *arguments)
    assert printed.code == 0, printed.err
    assert "# These columns hold no numbers: id, city, seen, kind." in printed.out
    (tmp_path / "job.yaml").write_text(printed.out)
    expected = proposal.propose_job(arguments[0], data={"labels": "outcome"}).job
    assert yaml.safe_load(printed.out) == expected
    assert load_job(tmp_path / "job.yaml") == make_job(expected)


def test_init_prints_examples_as_they_are_shipped(tmp_path: Path) -> None:
    for name in example_names():
        printed = daskfs("init", "--example", name)
        assert (printed.code, printed.err) == (0, "")
        (tmp_path / f"{name}.yaml").write_text(printed.out)
        assert load_job(tmp_path / f"{name}.yaml").output.path == f"runs/{name}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--example", "digit"), "Did you mean 'digits'? Examples: classification, digits,"),
        (("X.npy", "--example", "digits"), "leave out the source and other options."),
        ((), "name a source, or an example with --example NAME."),
    ],
)
def test_init_is_of_a_source_or_an_example(arguments: tuple[str, ...], message: str) -> None:
    outcome = daskfs("init", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_paths_are_shown_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", values())
    assert daskfs("rank", "X.npy", "-q").out.endswith("ranking: runs/X/ranking.csv\nreport:  runs/X/report.html\n")


def test_tiles(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", values())
    np.save(tmp_path / "y.npy", classes())
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t", "--labels", tmp_path / "y.npy", "-q").code == 0
    found = proposal.propose_job(str(tmp_path / "t")).job
    assert found["methods"] == list(proposal.METHODS["classification"])


def test_sources_and_choices_that_are_refused(tmp_path: Path) -> None:
    path = csv(tmp_path)[0]
    refused(daskfs("rank", tmp_path / "gone.csv", "-q"), INPUT, "gone.csv does not exist")
    refused(daskfs("rank", path, "--labels", "result", "-q"), INPUT, "'result'", "outcome")
    pq.write_table(pa.table({"a": ["x", "y"], "b": ["x", "y"]}), tmp_path / "text.parquet")
    refused(daskfs("rank", tmp_path / "text.parquet", "-q"), INPUT, "text.parquet", "no feature column left")
    outcome = daskfs("rank", path, "--labels", "outcome", "--methods", "FisherSore", "-q")
    assert outcome.code == USAGE
    assert "Did you mean 'FisherScore'?" in outcome.err
