"""Weights of rows through the command line: named like labels, stored with the tiles, shown, and refused by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from daskfs import FisherScore, LaplacianScore, VarianceScore
from daskfs.criteria.registry import criteria
from tests.execution.runs import lose_record, recorded, write_document

from .command import N_SAMPLES, basic_job, daskfs, labels, matrix, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

METHODS = ["VarianceScore", "FisherScore", "LaplacianScore"]
Data = dict[str, Any]


def weights() -> np.ndarray:
    """Return weights, shape (30,), with zeros."""
    return np.arange(N_SAMPLES) % 4 / 2


def from_npy(folder: Path) -> Data:
    np.save(folder / "w.npy", weights())
    return {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy"), "weights": str(folder / "w.npy")}


def from_text(folder: Path) -> Data:
    (folder / "w.txt").write_text("\n".join(map(str, weights())) + "\n", encoding="utf-8")
    return {**from_npy(folder), "weights": str(folder / "w.txt")}


def from_column_of_another_table(folder: Path) -> Data:
    lines = ["id,w", *(f"{i},{w}" for i, w in enumerate(weights()))]
    (folder / "w.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {**from_npy(folder), "weights": f"{folder / 'w.csv'}:w"}


def from_csv(folder: Path) -> Data:
    lines = ["a,w,b,c,class,d"]
    rows = zip(matrix(), weights(), labels(), strict=True)
    lines += [f"{x[0]},{w},{x[1]},{x[2]},{y},{x[3]}" for x, w, y in rows]
    (folder / "X.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"source": str(folder / "X.csv"), "labels": "class", "weights": "w"}


def from_parquet(folder: Path) -> Data:
    columns = [pa.array(weights()), pa.array(labels()), *(pa.array(column) for column in matrix().T)]
    pq.write_table(pa.Table.from_arrays(columns, names=["w", "class", *"abcd"]), folder / "X.parquet")
    return {"source": str(folder / "X.parquet"), "labels": "class", "weights": "w"}


def from_npz(folder: Path) -> Data:
    np.savez(folder / "X.npz", X=matrix(), y=labels(), w=weights()[:, None])
    return {"source": str(folder / "X.npz"), "labels": "y", "weights": "w"}


def from_zarr(folder: Path) -> Data:
    group = zarr.open_group(folder / "X.zarr", mode="w")
    for name, values in (("X", matrix()), ("y", labels()), ("w", weights())):
        group.create_array(name, data=values)
    return {"source": str(folder / "X.zarr"), "labels": "y", "weights": "w"}


FORMATS: dict[str, Callable[[Path], Data]] = {
    "npy": from_npy,
    "text": from_text,
    "column of another table": from_column_of_another_table,
    "csv": from_csv,
    "parquet": from_parquet,
    "npz": from_npz,
    "zarr": from_zarr,
}


def options(data: Data) -> list[str]:
    """Return the options of a verb that name the same data."""
    return [data["source"], "--labels", data["labels"], "--weights", data["weights"]]


def assert_weighted(run: Path) -> None:
    fitted = {
        "VarianceScore": VarianceScore().fit(matrix(), sample_weight=weights()),
        "FisherScore": FisherScore().fit(matrix(), labels(), sample_weight=weights()),
        "LaplacianScore": LaplacianScore().fit(matrix(), sample_weight=weights()),
    }
    for row in rows_of(run / "ranking.csv"):
        score = fitted[row["method"]].scores_[int(row["feature"])]
        assert float(row["score"] or "nan") == pytest.approx(score, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("name", FORMATS)
def test_scores_of_every_format(tmp_path: Path, name: str) -> None:
    job = basic_job(tmp_path, methods=METHODS)
    job["data"] = FORMATS[name](tmp_path)
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    facts = outcome.json["data"]
    assert facts["n_features"] == 4
    assert facts["weights"] == {"n_counted": 22, "total": 21.5, "minimum": 0.0, "maximum": 1.5}
    assert_weighted(tmp_path / "run")


WITHOUT_NEIGHBORS = [
    name for name, row in criteria().items() if "classification" in row.tasks and not row.parameters().lists(N_SAMPLES)
]


@pytest.mark.parametrize(("missing", "scaling"), [("refuse", "zscore"), ("pairwise", "total=9+log1p+zscore")])
def test_z_scores_take_a_weight_of_two_for_a_row_that_is_there_twice(
    tmp_path: Path, missing: str, scaling: str
) -> None:
    """Under every criterion that finds no neighbors; of several bands, and of rows of weight 0 that are far away."""
    own, X = np.arange(N_SAMPLES) % 4, np.abs(matrix())
    if missing == "pairwise":
        X[::7, 0] = np.nan
    X[own == 0] = 1e3
    rows = np.repeat(np.arange(N_SAMPLES), own)
    assert {"RLSR", "DSSFS", "SSUFS", "SVMRFE"} < set(WITHOUT_NEIGHBORS)
    joint = {name for name, row in criteria().items() if row.is_joint}
    methods = [name for name in WITHOUT_NEIGHBORS if missing == "refuse" or name not in joint]
    tables = []
    for name, values, y, w in (("weighted", X, labels(), own), ("repeated", X[rows], labels()[rows], None)):
        (folder := tmp_path / name).mkdir()
        job = basic_job(folder, methods=methods, transform={"score": scaling})
        group = zarr.open_group(folder / "X.zarr", mode="w")
        group.create_array("X", data=values, chunks=(8, 3))
        group.create_array("y", data=y)
        job["data"] = {"source": str(folder / "X.zarr"), "labels": "y", "missing": missing}
        if w is not None:
            group.create_array("w", data=w)
            job["data"]["weights"] = "w"
        path = write_job(folder, job)
        assert daskfs("run", path, "-q").code == 0
        assert daskfs("run", path, "-q", "--json").json["recomputed"] == {}
        tables.append({(row["method"], row["feature"]): row["score"] for row in rows_of(folder / "run/ranking.csv")})
    assert len(recorded(tmp_path / "weighted/run", "transform")) == 4
    assert tables[0].keys() == tables[1].keys()
    for key, score in tables[0].items():
        expected = float(tables[1][key] or "nan")
        assert float(score or "nan") == pytest.approx(expected, rel=1e-6, abs=1e-8, nan_ok=True), key


@pytest.mark.parametrize("name", ["npy", "csv", "npz"])
def test_inspect_and_convert_show_them(tmp_path: Path, name: str) -> None:
    basic_job(tmp_path)
    data = FORMATS[name](tmp_path)
    shown = {"n_counted": 22, "total": 21.5, "minimum": 0.0, "maximum": 1.5}
    assert daskfs("inspect", *options(data), "--json").json["weights"] == shown
    source, *named = options(data)
    target = tmp_path / "t.zarr"
    assert daskfs("convert", source, target, *named, "--workers", 0, "-q", "--json").json["weights"] == shown
    assert daskfs("inspect", target, "--json").json["weights"] == shown
    assert "weights: 22 rows count for 21.5, each for 0 to 1.5\n" in daskfs("inspect", target).out


def test_without_weights_none_are_shown(tmp_path: Path) -> None:
    basic_job(tmp_path)
    assert daskfs("inspect", tmp_path / "X.npy", "--json").json["weights"] is None
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t", "--workers", 0, "-q", "--json").json["weights"] is None
    assert not (tmp_path / "t" / "sample_weights").exists()


def test_a_run_on_converted_tiles_goes_on_with_their_weights(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=METHODS)
    source, *named = options(from_csv(tmp_path))
    assert daskfs("convert", source, tmp_path / "t.zarr", *named, "--workers", 0, "-q").code == 0
    job["data"] = {"source": str(tmp_path / "t.zarr")}
    path = write_job(tmp_path, job)
    assert daskfs("run", path, "-q").code == 0
    assert_weighted(tmp_path / "run")
    before = (tmp_path / "run" / "ranking.csv").read_bytes()
    records = tmp_path / "run" / "records"
    for stage in records.glob("score/*.json"):
        stage.unlink()
    (tmp_path / "run" / "ranking.csv").unlink()
    again = daskfs("run", path, "-q", "--json")
    assert (again.code, again.json["recomputed"]["score"]) == (0, 1)
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == before
    assert daskfs("run", path, "-q", "--json").json["recomputed"] == {}


def test_a_conversion_that_was_begun_is_finished(tmp_path: Path) -> None:
    basic_job(tmp_path)
    source, *named = options(from_npy(tmp_path))
    command = ("convert", source, tmp_path / "t.zarr", *named, "--workers", 0, "-q", "--json")
    assert daskfs(*command).code == 0
    (tmp_path / "t.zarr" / "sample_weights" / "c" / "0").unlink()
    again = daskfs(*command)
    assert again.code == 0
    assert again.json["recomputed"]["labels"] == 1
    assert daskfs(*command).json["recomputed"] == {}


def test_a_run_of_a_daskfs_that_computes_other_values_is_not_resumed(tmp_path: Path) -> None:
    """Such as one whose z-scores are without weights; what it recorded is kept."""
    job = basic_job(tmp_path)
    job["data"] = from_npy(tmp_path)
    path, run = write_job(tmp_path, job), tmp_path / "run"
    assert daskfs("run", path, "-q").code == 0
    plan = json.loads((run / "plan.json").read_text())
    plan["facts"]["job"] = "of another daskfs"
    write_document(run / "plan.json", plan)
    lose_record(run, "rank", 0)
    refused(daskfs("run", path, "-q"), 3, str(run), "computes other values", "--overwrite")
    assert json.loads((run / "plan.json").read_text())["facts"] == plan["facts"]
    assert daskfs("run", path, "-q", "--overwrite").code == 0


def test_other_weights_are_another_run(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    job["data"] = from_npy(tmp_path)
    path = write_job(tmp_path, job)
    assert daskfs("run", path, "-q").code == 0
    np.save(tmp_path / "w.npy", np.full(N_SAMPLES, 2.0))
    refused(daskfs("run", path, "-q"), 3, "changed since the run", "--overwrite")
    job["data"].pop("weights")
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, "another job", "--overwrite")


def test_evaluation_is_the_same_with_and_without_them(tmp_path: Path) -> None:
    """Models that judge selections take every row for one."""
    evaluate = {"n_selected": [3], "n_splits": 3, "n_neighbors": 3}
    tables = []
    for weighted in (False, True):
        folder = tmp_path / str(weighted)
        folder.mkdir()
        job = basic_job(folder, evaluate=evaluate, methods=[{"name": "VarianceScore", "label": "v"}])
        data = from_npy(folder)
        job["data"] = data if weighted else {key: data[key] for key in ("source", "labels")}
        assert daskfs("run", write_job(folder, job), "-q").code == 0
        tables.append((folder / "run" / "evaluation.csv").read_bytes())
    assert tables[0] == tables[1]


def wrong(row: int, value: float) -> Callable[[Path], Data]:
    def write(folder: Path) -> Data:
        data = from_npy(folder)
        changed = weights()
        changed[row] = value
        np.save(folder / "w.npy", changed)
        return data

    return write


def named(**data: str) -> Callable[[Path], Data]:
    return lambda folder: {**from_csv(folder), **data}


@pytest.mark.parametrize(
    ("write", "parts"),
    [
        (wrong(7, -1.0), ("w.npy", "the weight -1 in row 7")),
        (wrong(3, np.nan), ("w.npy", "no weight in row 3")),
        (wrong(4, np.inf), ("w.npy", "the weight inf in row 4")),
        (named(weights="ww"), ("data.weights", "no column 'ww'", "Did you mean 'w'?")),
        (named(weights="class"), ("data.labels and data.weights both name 'class'",)),
        (named(weights="gone.npy"), ("data.weights", "gone.npy")),
        (named(weights="w", exclude=["w"]), ("column 'w' is both data.weights and in data.exclude",)),  # type: ignore[arg-type]
    ],
    ids=["negative", "missing", "infinite", "unknown", "labels", "no file", "excluded"],
)
def test_refused(tmp_path: Path, write: Callable[[Path], Data], parts: tuple[str, ...]) -> None:
    job = basic_job(tmp_path)
    job["data"] = write(tmp_path)
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, *parts)
    if "exclude" not in job["data"]:
        refused(daskfs("inspect", *options(job["data"])), 3, *parts)


def test_refused_of_converted_tiles(tmp_path: Path) -> None:
    basic_job(tmp_path)
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t", "--workers", 0, "-q").code == 0
    np.save(tmp_path / "w.npy", weights())
    job = basic_job(tmp_path, data={"source": str(tmp_path / "t"), "weights": str(tmp_path / "w.npy")})
    job["methods"] = ["VarianceScore"]
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 2, "data.weights was settled when", "convert again with it")


def test_a_bare_true_is_no_name(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    job["data"]["weights"] = True
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 2, "data.weights")


def test_the_plan_counts_their_bytes(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    plain = daskfs("plan", write_job(tmp_path, job), "--json").json
    job["data"] = from_npy(tmp_path)
    weighted = daskfs("plan", write_job(tmp_path, job), "--json").json
    written = [next(s for s in p["stages"] if s["stage"] == "labels")["bytes_written"] for p in (plain, weighted)]
    assert written == [8 * N_SAMPLES, 16 * N_SAMPLES]
    peaks = [next(s for s in p["stages"] if s["stage"] == "score")["peak_bytes"] for p in (plain, weighted)]
    assert peaks[1] - peaks[0] == 32 * N_SAMPLES  # weights, and labels of the rows that count
