"""Missing values through the command line: means in their place are those of data filled beforehand, to the bit; and
features that are scored from the rows that have them.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs import RRPC, FisherScore, LaplacianScore, RedundancyFilter, VarianceScore, distance_correlation_matrix
from daskfs.criteria.registry import criteria
from daskfs.errors import JobError
from daskfs.evaluation.models import ModelSpec
from daskfs.evaluation.predictors import evaluate_model
from daskfs.runs import tiles as planned_tiles
from daskfs.tiles.shapes import plan_shape
from tests.execution.runs import lose_record

from .command import Outcome, daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

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
    ("write", "blocks"),
    [
        (npy, {"methods": METHODS}),
        pytest.param(csr, EVERYTHING, marks=pytest.mark.long),
        (in_place, EVERYTHING),
        (csv, {}),
    ],
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
    for name in ("fill/c/0/0", "observed/c/1/0/0", "row_sums/c/2"):
        (tmp_path / "run" / "tiles" / name).unlink()
    lose_record(tmp_path / "run" / "tiles", "facts", 1)
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
    path = job(tmp_path, npy(tmp_path / "X", holes()), "run", "median")
    refused(daskfs("run", path, "--quiet"), 2, "data.missing", "'refuse', 'mean' or 'pairwise'")


# -------------------------------------------------------------------------------------------------------- pairwise
ONE_BY_ONE = [name for name in METHODS if isinstance(name, str) and not criteria()[name].is_joint]
TOGETHER = [name for name, criterion in criteria().items() if criterion.is_joint]


def scores_of(folder: Path) -> dict[str, dict[str, float]]:
    """Return the scores of a run by method and feature, NaN for excluded ones."""
    found: dict[str, dict[str, float]] = {}
    for row in rows_of(folder / "ranking.csv"):
        found.setdefault(row["method"], {})[row["feature"]] = float(row["score"] or "nan")
    return found


TRANSFORMS = [{"graph": "zscore", "score": "zscore"}, EVERYTHING["transform"]]


@pytest.mark.parametrize("transform", [{}, *(pytest.param(one, marks=pytest.mark.long) for one in TRANSFORMS)])
def test_pairwise_scores_of_every_source(
    tmp_path: Path, transform: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same ranking to the bit, whatever the tiles are; of dense and sparse rows to rounding."""
    blocks = {"methods": ONE_BY_ONE, "transform": transform}
    found = ran(tmp_path, npy(tmp_path / "X", holes()), "run", "pairwise", **blocks).json
    missing = found["data"]["missing"]
    assert (missing["policy"], missing["total"]) == ("pairwise", int(np.isnan(holes()).sum()))
    assert (missing["n_columns"], missing["n_unobserved"]) == (7, 1)
    assert "scored from the rows that have them" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    ran(tmp_path, csr(tmp_path / "X", holes()), "sparse", "pairwise", **blocks)
    ran(tmp_path, csv(tmp_path / "X", holes()), "csv", "pairwise", **blocks)
    cut(monkeypatch, 64, 3)
    ran(tmp_path, csr(tmp_path / "X", holes()), "sparse_cut", "pairwise", **blocks)
    cut(monkeypatch, N_SAMPLES, 2)
    ran(tmp_path, npy(tmp_path / "X", holes()), "cut", "pairwise", **blocks)
    ran(tmp_path, in_place(tmp_path / "X", holes()), "in_place", "pairwise", **blocks)
    assert daskfs("verify", tmp_path / "in_place").code == 0
    tables = {
        path.name: (path / "ranking.csv").read_text() for path in tmp_path.iterdir() if (path / "run.json").is_file()
    }
    assert tables["cut"] == tables["run"]
    assert tables["sparse_cut"] == tables["sparse"]
    assert re.sub(r",f(\d),", r",x\1,", tables["csv"]) == tables["run"]
    dense = scores_of(tmp_path / "run")
    for name in ("sparse", "in_place"):
        other = scores_of(tmp_path / name)
        for method in ONE_BY_ONE:
            for feature, score in dense[method].items():
                np.testing.assert_allclose(other[method][feature], score, rtol=1e-9, err_msg=f"{name}: {method}")
    notes = {row["feature"]: row["note"] for row in rows_of(tmp_path / "run" / "ranking.csv")}
    assert notes["6"] == "no value known"
    if not transform:
        assert notes["5"] == "constant feature"
        X = holes()[:, :5]
        np.testing.assert_allclose([dense["VarianceScore"][str(c)] for c in range(5)], np.nanvar(X, axis=0), rtol=1e-12)


def test_what_compares_features_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is written; of tiles as well."""
    source, tiles = npy(tmp_path / "X", holes()), tmp_path / "tiles.zarr"
    for name in TOGETHER:
        path = job(tmp_path, source, "run", "pairwise", methods=["VarianceScore", name])
        refused(daskfs("run", path, "--quiet"), 2, f"method {name} compares", "data.missing: mean")
        refused(daskfs("plan", path), 2, f"method {name} compares")
    select = {"n_features": 3, "redundancy": {"threshold": 0.9}}
    path = job(tmp_path, source, "run", "pairwise", select=select)
    refused(daskfs("run", path, "--quiet"), 2, "select.redundancy compares", "data.missing: mean")
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name != ".lock"]
    arguments = ("--labels", tmp_path / "y.npy", "--missing", "pairwise", "--workers", 0, "--quiet")
    assert daskfs("convert", source, tiles, *arguments).code == 0
    path = job(tmp_path, tiles, "run", None, data={"source": str(tiles)}, methods=["RRPC"])
    refused(daskfs("run", path, "--quiet"), 2, "method RRPC compares", "data.missing: mean")
    path = job(tmp_path, tiles, "run", None, data={"source": str(tiles), "missing": "mean"})
    refused(daskfs("run", path, "--quiet"), 2, "data.missing is mean", "converted with pairwise")
    chosen = {"n_features": 3, "redundancy": {"measure": None, "drop": ["x0"]}}
    ran(tmp_path, tiles, "from_tiles", None, data={"source": str(tiles)}, select=chosen)
    ran(tmp_path, source, "run", "pairwise", select=chosen)
    rankings = [(tmp_path / folder / "ranking.csv").read_bytes() for folder in ("run", "from_tiles")]
    assert rankings[0] == rankings[1]
    assert json.loads(daskfs("inspect", tiles, "--json").out)["missing_policy"] == "pairwise"


def test_estimators_on_tiles_with_missing_values(tmp_path: Path) -> None:
    """What arrays are refused, tiles may lack; scores are those of a job."""
    source, tiles = npy(tmp_path / "X", holes()), tmp_path / "tiles.zarr"
    assert daskfs("convert", source, tiles, "--missing", "pairwise", "--workers", 0, "--quiet").code == 0
    ran(tmp_path, source, "run", "pairwise")
    found = scores_of(tmp_path / "run")
    for selector in (VarianceScore(), LaplacianScore(), FisherScore()):
        fitted = selector.fit(str(tiles), codes())
        expected = [found[type(selector).__name__][str(c)] for c in range(N_FEATURES)]
        np.testing.assert_array_equal(fitted.scores_, expected)
    for refused_selector in (RRPC(), RedundancyFilter(VarianceScore())):
        with pytest.raises(JobError, match=r"set data\.missing: mean"):
            refused_selector.fit(str(tiles), codes())
    with pytest.raises(JobError, match=r"distance correlation compares"):
        distance_correlation_matrix(str(tiles))
    with pytest.raises(ValueError, match="NaN"):
        VarianceScore().fit(holes())


@pytest.mark.long
@pytest.mark.parametrize("write", [npy, csr])
def test_pairwise_rankings_of_an_evaluation(tmp_path: Path, write: Writer) -> None:
    """Rankings made anew are pairwise over the rows that they see: over all of them, that of the run."""
    per_class = N_SAMPLES // 3  # a draw of all labels
    evaluate = {
        "n_selected": [4],
        "setting": "both",
        "labels": [per_class],
        "n_draws": 2,
        "n_splits": 3,
        "n_repeats": 1,
    }
    blocks = {"methods": ONE_BY_ONE, "evaluate": evaluate, "select": {"n_features": 4}}
    np.save(tmp_path / "w.npy", np.arange(N_SAMPLES) % 4 / 2)
    np.save(tmp_path / "y.npy", codes())
    source = write(tmp_path / "X", holes())
    data = {"source": str(source), "labels": str(tmp_path / "y.npy"), "missing": "pairwise"}
    for name, weights in (("plain", {}), ("weighted", {"weights": str(tmp_path / "w.npy")})):
        ran(tmp_path, source, name, **blocks, data={**data, **weights})
        rows = rows_of(tmp_path / name / "evaluation.csv")
        assert {row["setting"] for row in rows} == {"transductive", "inductive"}
        assert all(np.isfinite(float(row["value"])) for row in rows)
        frequencies = rows_of(tmp_path / name / "selection_frequency.csv")
        selected = {(row["method"], row["feature"]) for row in rows_of(tmp_path / name / "selected_features.csv")}
        anew = {
            (row["method"], row["feature"])
            for row in frequencies
            if row["setting"] == "transductive" and float(row["frequency"]) == 1
        }
        chance = {pair for pair in selected if pair[0] == "RandomOrder"}
        assert selected - chance <= anew


def test_pairwise_batches(tmp_path: Path) -> None:
    """Each batch is scored from its own rows; one in which nobody has a feature gives it the last rank."""
    X = holes()
    batch = np.arange(N_SAMPLES) // 75
    X[batch == 1, 2] = np.nan
    np.save(tmp_path / "b.npy", batch)
    source = npy(tmp_path / "X", X)
    np.save(tmp_path / "y.npy", codes())
    data = {"source": str(source), "labels": str(tmp_path / "y.npy"), "missing": "pairwise"}
    methods = ["VarianceScore", "FisherScore", "LaplacianScore"]
    ran(tmp_path, source, "run", data={**data, "batch": str(tmp_path / "b.npy")}, methods=methods)
    for number in range(2):
        ran(
            tmp_path,
            npy(tmp_path / "part", X[batch == number]),
            f"alone{number}",
            methods=methods,
            data={
                **data,
                "source": str(tmp_path / "part.npy"),
                "labels": str(label_file(tmp_path, codes()[batch == number])),
            },
        )
        alone, within = (scores_of(tmp_path / name) for name in (f"alone{number}", f"run/batches/{number}"))
        for method in methods:
            np.testing.assert_array_equal(list(within[method].values()), list(alone[method].values()))
    rows = {(r["method"], r["feature"], r["batch"]): r for r in rows_of(tmp_path / "run" / "batches.csv")}
    assert rows["FisherScore", "2", "1"]["rank"] == ""
    assert rows["FisherScore", "2", "0"]["rank"] != ""


def label_file(folder: Path, labels: np.ndarray) -> Path:
    np.save(folder / "own.npy", labels)
    return folder / "own.npy"


def test_pairwise_of_complete_data_is_refuse(tmp_path: Path) -> None:
    evaluate = {"n_selected": [2], "labels": [0.5], "n_draws": 1, "n_splits": 2, "n_repeats": 1}
    for name, missing in (("refuse", None), ("pairwise", "pairwise")):
        ran(tmp_path, npy(tmp_path / "X", filled()), name, missing, methods=ONE_BY_ONE, evaluate=evaluate)
    for table in ("ranking.csv", "evaluation.csv"):
        assert (tmp_path / "refuse" / table).read_bytes() == (tmp_path / "pairwise" / table).read_bytes()
