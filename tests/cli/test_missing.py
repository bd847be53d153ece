"""Missing values through the command line: means in their place are those of data filled beforehand, to the bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs.evaluation.modelspec import ModelSpec
from daskfs.evaluation.predictors import evaluate_model
from daskfs.methods.registry import criteria
from daskfs.planning import tiles as planned_tiles

from .command import Outcome, daskfs, refused, rows_of, write_job

N_SAMPLES, N_FEATURES = 150, 8
METHODS: list[Any] = [
    {"name": "SVMRFE", "step": 3, "n_singly": 2} if name == "SVMRFE" else name
    for name, criterion in criteria().items()
    if "classification" in criterion.tasks
]


def holes() -> np.ndarray:
    """Return counts in which values are missing; column 5 has one value where it has some, and column 6 has none."""
    rng = np.random.default_rng(2)
    X = rng.poisson(1.5, (N_SAMPLES, N_FEATURES)) / 8
    X[:, 1] += codes() / 8
    X[:, 5] = 0.1
    X[rng.random(X.shape) < 0.15] = np.nan
    X[:, 6] = np.nan
    X[:, 7] = np.nan_to_num(X[:, 7])
    return X


def codes() -> np.ndarray:
    return np.arange(N_SAMPLES) % 3


def filled() -> np.ndarray:
    X = holes()
    means = np.array([column[~np.isnan(column)].mean() if np.isfinite(column).any() else 0.0 for column in X.T])
    means[5] = 0.1
    return np.where(np.isnan(X), means, X)


def npy(path: Path, X: np.ndarray) -> Path:
    np.save(path.with_suffix(".npy"), X)
    return path.with_suffix(".npy")


def csr(path: Path, X: np.ndarray) -> Path:
    sp.save_npz(path.with_suffix(".npz"), sp.csr_matrix(X))
    return path.with_suffix(".npz")


def in_place(path: Path, X: np.ndarray) -> Path:
    folder = path.with_suffix(".zarr")
    zarr.create_array(store=str(folder), shape=X.shape, dtype=X.dtype, chunks=(64, 8))[...] = X
    return folder


def csv(path: Path, X: np.ndarray) -> Path:
    lines = [",".join(f"f{i}" for i in range(X.shape[1]))]
    lines += [",".join("" if np.isnan(x) else repr(float(x)) for x in row) for row in X]
    path.with_suffix(".csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path.with_suffix(".csv")


Writer = Callable[[Path, np.ndarray], Path]


def job(folder: Path, source: Path, output: str, missing: str | None = "mean", **blocks: Any) -> Path:
    np.save(folder / "y.npy", codes())
    data = {"source": str(source), "labels": str(folder / "y.npy")}
    whole = {
        "data": data if missing is None else {**data, "missing": missing},
        "methods": ["VarianceScore", "FisherScore", "LaplacianScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / output)},
    }
    return write_job(folder, {**whole, **blocks})


def ran(*arguments: Any, **blocks: Any) -> Outcome:
    outcome = daskfs("run", job(*arguments, **blocks), "--json", "--quiet")
    assert outcome.code == 0, outcome.err
    return outcome


def cut(monkeypatch: pytest.MonkeyPatch, rows: int, columns: int) -> None:
    """Cut X into several tiles, small as it is."""
    plan_shape = planned_tiles.plan_shape
    monkeypatch.setattr(
        planned_tiles,
        "plan_shape",
        lambda *given: dataclasses.replace(plan_shape(*given), tile_rows=rows, tile_columns=columns),
    )


EVERYTHING: dict[str, Any] = {
    "methods": METHODS,
    "transform": {"graph": "total+log1p+zscore", "score": ["total", "log1p"]},
    "select": {"n_features": 3, "redundancy": {"threshold": 0.9}},
}


@pytest.mark.parametrize(
    ("write", "blocks"), [(npy, {"methods": METHODS}), (csr, EVERYTHING), (in_place, EVERYTHING), (csv, {})]
)
def test_ranking_of_the_filled_data(
    tmp_path: Path, write: Writer, blocks: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the tiles of either are."""
    found = ran(tmp_path, write(tmp_path / "X", holes()), "run", **blocks).json
    if write is csr:
        cut(monkeypatch, 64, 3)
    ran(tmp_path, write(tmp_path / "filled", filled()), "whole", None, **blocks)
    for name in ("ranking.csv", "selected_features.csv"):
        run, whole = ((tmp_path / folder / name).read_text() for folder in ("run", "whole"))
        assert run.replace("no value known", "constant feature") == whole, name
    missing = found["data"]["missing"]
    assert (missing["policy"], missing["total"]) == ("mean", int(np.isnan(holes()).sum()))
    assert (missing["n_columns"], missing["n_unobserved"]) == (7, 1)
    assert missing["columns"][0][1] == int(np.isnan(holes()[:, 0]).sum())
    notes = {row["feature"]: row["note"] for row in rows_of(tmp_path / "run" / "ranking.csv")}
    # made to add up with others, what was constant is so no more
    assert (notes["5"], notes["6"]) == ("constant feature" if blocks is not EVERYTHING else "", "no value known")
    assert "taken to be the means of these" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_lost_units_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all stages that fill the tiles."""
    cut(monkeypatch, 64, 3)
    path = job(tmp_path, npy(tmp_path / "X", holes()), "run")
    first = daskfs("run", path, "--json", "--quiet").json["recomputed"]
    assert (first["ingest"], first["fill"], first["facts"]) == (3, 1, 3)
    ranking = (tmp_path / "run" / "ranking.csv").read_bytes()
    for name in ("fill/c/0/0", "observed/c/1/0/0", "row_sums/c/2", "records/facts/000001.json"):
        (tmp_path / "run" / "tiles" / name).unlink()
    again = daskfs("run", path, "--json", "--quiet").json["recomputed"]
    assert (again["ingest"], again["fill"], again["facts"]) == (1, 1, 2)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
    assert daskfs("run", path, "--json", "--quiet").json["recomputed"] == {}
    assert daskfs("verify", tmp_path / "run").code == 0


def test_finished_tiles_say_what_became_of_missing_values(tmp_path: Path) -> None:
    source, tiles = npy(tmp_path / "X", holes()), tmp_path / "tiles.zarr"
    np.save(tmp_path / "y.npy", codes())
    outcome = daskfs(
        "convert", source, tiles, "--labels", tmp_path / "y.npy", "--missing", "mean", "--workers", 0, "--quiet"
    )
    assert outcome.code == 0, outcome.err
    ran(tmp_path, source, "run")
    own = {"data": {"source": str(tiles), "missing": "mean"}}
    ran(tmp_path, tiles, "from_tiles", **own)
    rankings = [(tmp_path / folder / "ranking.csv").read_bytes() for folder in ("run", "from_tiles")]
    assert rankings[0] == rankings[1]
    plain = tmp_path / "plain.zarr"
    assert daskfs("convert", npy(tmp_path / "F", filled()), plain, "--workers", 0, "--quiet").code == 0
    path = job(tmp_path, plain, "refused", data={"source": str(plain), "missing": "mean"}, methods=["VarianceScore"])
    refused(daskfs("run", path, "--quiet"), 2, "data.missing is mean", "converted with refuse")


def test_evaluation_sees_no_means_of_tested_rows(tmp_path: Path) -> None:
    """Rankings made anew fill their own rows, and models those that they are trained on."""
    evaluate = {"n_selected": [2, 4], "setting": "both", "labels": [0.5], "n_draws": 1, "n_splits": 3, "n_repeats": 1}
    methods = ["LaplacianScore", "FisherScore"]
    for write, name in ((npy, "dense"), (csr, "sparse")):
        ran(tmp_path, write(tmp_path / "X", holes()), name, methods=methods, evaluate=evaluate)
    dense, sparse = (rows_of(tmp_path / name / "evaluation.csv") for name in ("dense", "sparse"))
    assert len(dense) == len(sparse) > 10
    assert all(np.isfinite(float(row["value"])) for row in dense)
    ran(tmp_path, npy(tmp_path / "X", holes()), "plain", methods=methods, evaluate={"n_selected": [2, 4]})

    X, y = holes()[:, :3], codes()
    train, test = np.arange(100), np.arange(100, N_SAMPLES)
    means = np.nanmean(X[train], axis=0)
    spec = ModelSpec("knn", "knn")
    values = [
        evaluate_model(spec, "classification", part, y, train, test, "zscore", 0)
        for part in (X, np.where(np.isnan(X), means, X))
    ]
    assert values[0] == values[1]


def test_refused_with_counts_of_columns(tmp_path: Path) -> None:
    outcome = daskfs("run", job(tmp_path, csv(tmp_path / "X", holes()), "run", None), "--quiet")
    count = int(np.isnan(holes()[:, 0]).sum())
    parts = (f"column 0 ('f0') {count}, column 1 ('f1')", "column 6 ('f6') 150", "in 7 columns", "data.missing to mean")
    refused(outcome, 3, *parts)


@pytest.mark.parametrize("write", [npy, csr])
def test_infinite_values_are_none(tmp_path: Path, write: Writer) -> None:
    X = holes()
    X[9, 0] = np.inf
    path = job(tmp_path, write(tmp_path / "X", X), "run")
    refused(daskfs("run", path, "--quiet"), 3, "column 0 ", "an infinite value in row 9", "1 missing or infinite")


def test_unknown_policy(tmp_path: Path) -> None:
    path = job(tmp_path, npy(tmp_path / "X", holes()), "run", "pairwise")
    refused(daskfs("run", path, "--quiet"), 2, "data.missing", "'refuse' or 'mean'")
