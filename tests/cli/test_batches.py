"""data.batch: scores within batches, combined by their ranks."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import yaml
import zarr

from daskfs import load_job, run_job
from daskfs.errors import RunStoppedError
from daskfs.job.job import Job
from daskfs.runs import pipeline
from daskfs.sources.base import SourceSpec
from daskfs.store import layout
from daskfs.store.context import open_tiles
from daskfs.store.store import Store
from daskfs.store.subset import TilePart
from tests.cli.command import but_trust, daskfs, refused, rows_of
from tests.execution.runs import Stop, records

pytestmark = pytest.mark.cluster

METHODS = ["VarianceScore", "FisherScore", {"name": "LaplacianScore", "n_neighbors": 4}]
LABELS = ["VarianceScore", "FisherScore", "LaplacianScore"]
N = 120
BATCHES = np.array(["b", "a, 1", "c"])[np.arange(N) % 3]
CLASSES = (np.arange(N) // 3) % 2
TABLES = ("ranking.csv", "ranking.parquet", "batches.csv", "batches.parquet", "selected_features.csv")


def matrix() -> np.ndarray:
    """Feature 0 tells classes apart, feature 1 batches and nothing else, feature 5 is constant, feature 6 is so in one
    batch.
    """
    X = np.random.default_rng(0).normal(size=(N, 8))
    X[:, 0] += CLASSES * 4
    X[:, 1] += (np.arange(N) % 3) * 20
    X[:, 5] = 1
    X[BATCHES == "c", 6] = 2
    return np.round(X * 64) / 64


def job_of(folder: Path, X: Any = None, name: str = "job", **blocks: Any) -> Path:
    """Write data and a job on them, whose run lies in ``folder / name``."""
    X = matrix() if X is None else X
    source = folder / ("X.npz" if sp.issparse(X) else "X.npy")
    if sp.issparse(X):
        sp.save_npz(source, X)
    else:
        np.save(source, X)
    np.save(folder / "y.npy", CLASSES[: X.shape[0]])
    (folder / "batch.txt").write_text("\n".join(BATCHES[: X.shape[0]]) + "\n")
    job: dict[str, Any] = {
        "data": {"source": str(source), "labels": str(folder / "y.npy"), "batch": str(folder / "batch.txt")},
        "methods": METHODS,
        "select": {"n_features": 3},
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / name)},
    }
    job |= {key: {**job[key], **value} if key == "data" else value for key, value in blocks.items()}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def done(job: Path, *options: str) -> dict[str, Any]:
    outcome = daskfs("run", job, "-q", "--json", *options)
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = outcome.json
    return found


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run, which nothing changes."""
    folder = tmp_path_factory.mktemp("batches")
    done(job_of(folder))
    return folder


def order_of(folder: Path, method: str, name: str = "job") -> list[int]:
    rows = [row for row in rows_of(folder / name / "ranking.csv") if row["method"] == method and row["score"]]
    return [int(row["feature"]) for row in rows]


# ----------------------------------------------------------------------------------------------------------- results
def test_ranks_within_batches_are_those_of_runs_over_their_rows(ran: Path, tmp_path: Path) -> None:
    rows = rows_of(ran / "job" / "batches.csv")
    assert [*dict.fromkeys(row["batch"] for row in rows)] == ["a, 1", "b", "c"]
    for name in np.unique(BATCHES):
        own = name == BATCHES
        np.save(tmp_path / "X.npy", matrix()[own])
        np.save(tmp_path / "y.npy", CLASSES[own])
        data = {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy")}
        job = {"data": data, "methods": METHODS, "evaluate": None, "cluster": {"workers": 0}}
        path = tmp_path / "alone.yaml"
        path.write_text(yaml.safe_dump({**job, "output": {"path": str(tmp_path / str(ord(name[0])))}}))
        done(path)
        alone = {(row["method"], row["feature"]): row for row in rows_of(tmp_path / str(ord(name[0])) / "ranking.csv")}
        for row in (row for row in rows if row["batch"] == name):
            other = alone[row["method"], row["feature"]]
            assert row["rank"] == (other["rank"] if other["score"] else "")
            assert (row["score"] or "0") == (other["score"] or "0") or float(row["score"]) == float(other["score"])


def test_the_score_is_the_median_rank(ran: Path) -> None:
    ranks: dict[tuple[str, str], list[float]] = {}
    for row in rows_of(ran / "job" / "batches.csv"):
        ranks.setdefault((row["method"], row["feature"]), []).append(float(row["rank"] or 8))
    for method in LABELS:
        rows = [row for row in rows_of(ran / "job" / "ranking.csv") if row["method"] == method]
        keys = []
        for row in rows[:-1]:
            own = ranks[method, row["feature"]]
            assert float(row["score"]) == np.median(own)
            keys.append((np.median(own), sum(own), int(row["feature"])))
        assert keys == sorted(keys)
        assert (rows[-1]["feature"], rows[-1]["score"], rows[-1]["note"]) == ("5", "", "constant feature")


def test_what_differs_between_batches_only_cannot_lead(ran: Path, tmp_path: Path) -> None:
    done(job_of(tmp_path, data={"batch": None}))
    assert order_of(tmp_path, "VarianceScore")[0] == 1
    assert order_of(tmp_path, "LaplacianScore")[0] == 1
    for method in LABELS:
        assert order_of(ran, method)[0] == 0


def test_run_json_and_report_tell_of_batches(ran: Path) -> None:
    manifest = json.loads((ran / "job" / "run.json").read_text())
    assert [(b["name"], b["n_rows"], b["n_labeled"], b["classes"]) for b in manifest["batches"]] == [
        (name, 40, 40, {"0": 20, "1": 20}) for name in ("a, 1", "b", "c")
    ]
    assert manifest["data"]["batch"] == {"names": ["a, 1", "b", "c"], "rows": [40, 40, 40]}
    page = (ran / "job" / "report.html").read_text()
    for text in ("<h2>Batches</h2>", "Kendall", "Spearman", "a, 1"):
        assert text in page


@pytest.mark.parametrize("kind", ["chunks", "sparse", "float32"])
def test_the_same_ranking_from_other_tiles(ran: Path, tmp_path: Path, kind: str) -> None:
    if kind == "chunks":
        zarr.create_array(tmp_path / "X.zarr", data=matrix(), chunks=(16, 3))
        done(job_of(tmp_path, data={"source": str(tmp_path / "X.zarr")}))
    else:
        X = matrix()
        done(job_of(tmp_path, sp.csr_matrix(X) if kind == "sparse" else X.astype(np.float32)))
    for method in LABELS:
        assert order_of(tmp_path, method) == order_of(ran, method)
    if kind == "chunks":
        for name in TABLES:
            assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()


def test_a_row_of_weight_two_and_groups_beside_batches(tmp_path: Path) -> None:
    weights = np.arange(N) % 2 + 1.0
    np.save(tmp_path / "w.npy", weights)
    more = {"weights": str(tmp_path / "w.npy"), "groups": str(tmp_path / "batch.txt")}
    evaluate = {"n_selected": [2], "n_splits": 3, "models": ["knn"]}
    done(job_of(tmp_path, data=more, methods=["FisherScore"], evaluate=evaluate))
    done(job_of(tmp_path, data={"weights": more["weights"]}, methods=["FisherScore"], name="plain"))
    own = rows_of(tmp_path / "job" / "ranking.csv")
    assert own == rows_of(tmp_path / "plain" / "ranking.csv")
    X, fisher = matrix(), {}
    for feature in range(5):  # of batch b
        x, w, y = X[BATCHES == "b", feature], weights[BATCHES == "b"], CLASSES[BATCHES == "b"]
        means = [np.average(x[y == c], weights=w[y == c]) for c in (0, 1)]
        sums = [w[y == c].sum() for c in (0, 1)]
        within = sum(np.sum(w[y == c] * (x[y == c] - means[c]) ** 2) for c in (0, 1))
        between = sum(sums[c] * (means[c] - np.average(x, weights=w)) ** 2 for c in (0, 1))
        fisher[feature] = between / within
    rows = {
        int(r["feature"]): float(r["score"])
        for r in rows_of(tmp_path / "job" / "batches.csv")
        if r["batch"] == "b" and r["score"]
    }
    assert sorted(fisher, key=fisher.__getitem__) == sorted(range(5), key=rows.__getitem__)


def test_the_table_runs_no_name_of_a_batch_in_a_spreadsheet(tmp_path: Path) -> None:
    names = {"a, 1": "=1+1", "b": "-b", "c": "c"}
    (tmp_path / "names.txt").write_text("\n".join(names[name] for name in BATCHES) + "\n")
    done(job_of(tmp_path, methods=["VarianceScore"], data={"batch": str(tmp_path / "names.txt")}))
    table = tmp_path / "job" / "batches.csv"
    assert {row["batch"] for row in rows_of(table)} == {"'=1+1", "'-b", "c"}
    assert set(pq.read_table(table.with_suffix(".parquet"))["batch"].to_pylist()) == set(names.values())


def test_missing_values_are_filled_within_batches(tmp_path: Path) -> None:
    X = matrix()
    X[np.arange(0, N, 7), 2] = np.nan
    filled = X.copy()
    for name in np.unique(BATCHES):
        part = filled[name == BATCHES, 2]
        part[np.isnan(part)] = np.nanmean(part)
        filled[name == BATCHES, 2] = part
    done(job_of(tmp_path, X, data={"missing": "mean"}))
    first = rows_of(tmp_path / "job" / "batches.csv")
    done(job_of(tmp_path, filled, name="filled"))
    assert [row["rank"] for row in first] == [row["rank"] for row in rows_of(tmp_path / "filled" / "batches.csv")]


def test_the_redundancy_filter_goes_down_the_combined_ranking(tmp_path: Path) -> None:
    X = matrix()
    X[:, 4] = X[:, 0] * 2
    done(job_of(tmp_path, X, select={"n_features": 2, "redundancy": {"threshold": 0.95}}))
    for method in LABELS:
        chosen = [
            int(r["feature"]) for r in rows_of(tmp_path / "job" / "selected_features.csv") if r["method"] == method
        ]
        assert len({0, 4} & set(chosen)) <= 1


# ------------------------------------------------------------------------------------------------------- evaluation
def test_an_evaluation_combines_within_what_it_sees(tmp_path: Path) -> None:
    evaluate = {"n_selected": [3], "setting": "both", "n_splits": 2, "models": ["knn"], "baselines": False}
    result = done(job_of(tmp_path, evaluate=evaluate))
    (warning,) = but_trust(result["warnings"])
    assert "saw the labels of the rows that models are tested on" in warning
    store = Store(tmp_path / "job")
    for number, method in enumerate(LABELS):  # of the transductive setting, which sees all rows
        arrays, facts = store.read_arrays(layout.EVALUATION_ORDER.format(number))
        assert arrays["order"].tolist() == order_of(tmp_path, method)
        assert facts["n_ranked"] == 7
    values = [
        float(row["value"]) for row in rows_of(tmp_path / "job" / "evaluation.csv") if row["method"] == "FisherScore"
    ]
    assert len(values) == 4
    assert min(values) > 0.5


def test_neighbors_of_an_evaluation_are_searched_as_in_the_run(tmp_path: Path) -> None:
    evaluate = {"n_selected": [2], "labels": 10, "models": ["knn"], "n_splits": 2, "setting": "transductive"}
    graph = {"engine": "exact", "n_neighbors": 3}
    done(
        job_of(
            tmp_path,
            evaluate=evaluate,
            graph=graph,
            methods=["LaplacianScore", "SSelect"],
            transform={"graph": "zscore"},
        )
    )
    arrays, _ = Store(tmp_path / "job").read_arrays(layout.EVALUATION_ORDER.format(0))
    assert arrays["order"].tolist() == order_of(tmp_path, "LaplacianScore")


# ---------------------------------------------------------------------------------------------- tiles with batches
def test_tiles_carry_batches_along(ran: Path, tmp_path: Path) -> None:
    job_of(tmp_path)
    tiles = tmp_path / "tiles.zarr"
    options = ["--labels", tmp_path / "y.npy", "--batch", tmp_path / "batch.txt"]
    outcome = daskfs("convert", tmp_path / "X.npy", tiles, *options, "--workers", 0, "-q")
    assert outcome.code == 0, outcome.err
    assert "batch: a, 1 (40 rows), b (40 rows), c (40 rows)" in outcome.out
    assert "batch: a, 1 (40 rows)" in daskfs("inspect", tmp_path / "X.npy", *options).out
    done(job_of(tmp_path, data={"source": str(tiles), "labels": None, "batch": None}))
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()
    whole, part = (TilePart(SourceSpec(source=str(tiles), only_batch=name), str(tiles)).info for name in (None, "c"))
    assert (whole.n_samples, whole.row_multiple) == (120, open_tiles(str(tiles)).shape.tile_rows)
    assert (part.n_samples, part.row_multiple) == (40, 1), "rows of a batch may lie in any tile"
    job = job_of(tmp_path, data={"source": str(tiles), "labels": None, "batch": None, "only_batch": "c"}, name="c")
    done(job)
    ranks = {(r["method"], r["feature"]): r["rank"] for r in rows_of(ran / "job" / "batches.csv") if r["batch"] == "c"}
    for row in rows_of(tmp_path / "c" / "ranking.csv"):
        assert ranks[row["method"], row["feature"]] == (row["rank"] if row["score"] else "")
    other = ("-q", "--set", f"output.path={tmp_path}/other", "--set")
    refused(daskfs("run", job, *other, "data.only_batch=d"), 2, "only_batch is 'd'", "no batch")
    refused(daskfs("run", job, *other, f"data.batch={tmp_path}/batch.txt"), 2, "data.batch was settled")
    refused(daskfs("run", job, *other, f"data.source={tmp_path}/X.npy"), 2, "data.only_batch is for tiles")


def test_exported_tiles_keep_batches(ran: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.zarr"
    assert daskfs("export", ran / "job", out, "--to", "tiles", "--data", "FisherScore", "-q").code == 0
    assert daskfs("inspect", out, "--json").json["batch"] == {"names": ["a, 1", "b", "c"], "rows": [40, 40, 40]}


# ------------------------------------------------------------------------------------------------------ what may fail
def test_a_row_without_a_batch_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    (tmp_path / "batch.txt").write_text("\n".join(["a", "", *BATCHES[2:]]) + "\n")
    refused(daskfs("run", job, "-q"), 3, "batch.txt has no batch in row 1")


def test_batches_that_cannot_serve_are_left_out_and_told(tmp_path: Path) -> None:
    names = BATCHES.copy()
    names[[4, 9, 14]] = "d"  # too few rows for four neighbors
    names[20] = "e"
    labels = np.where(names == "b", -1, CLASSES)  # one batch without labels
    labels[names == "c"] = 1
    job = job_of(tmp_path)
    (tmp_path / "batch.txt").write_text("\n".join(names) + "\n")
    np.save(tmp_path / "y.npy", labels)
    outcome = daskfs("run", job, "-q")
    assert outcome.code == 0, outcome.err
    assert "batch b: left out for method FisherScore" in outcome.err
    assert "batch c: left out for method FisherScore: method FisherScore needs labels that differ" in outcome.err
    assert "batch d: left out for method LaplacianScore" in outcome.err
    assert "batch e: left out for method VarianceScore: it has one row" in outcome.err
    table = [(row["method"], row["batch"]) for row in rows_of(tmp_path / "job" / "batches.csv")]
    assert dict.fromkeys(batch for method, batch in table if method == "FisherScore").keys() == {"a, 1", "d"}
    assert dict.fromkeys(batch for method, batch in table if method == "LaplacianScore").keys() == {"a, 1", "b", "c"}
    assert not (tmp_path / "job/batches/4").exists()
    again = daskfs("run", job, "-q")
    assert (again.code, again.err) == (0, outcome.err)
    assert "nothing to do" in again.out


def test_a_method_that_no_batch_serves_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    (tmp_path / "batch.txt").write_text("\n".join(CLASSES.astype(str)) + "\n")
    refused(daskfs("run", job, "-q"), 3, "no batch serves method FisherScore; batch '0'", "one class")


def test_a_graph_of_all_rows_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", a=np.zeros(1))
    sp.save_npz(tmp_path / "g.npz", sp.csr_matrix(np.ones((N, N))))
    job = job_of(tmp_path, graph={"precomputed": str(tmp_path / "g.npz")}, methods=["LaplacianScore"])
    refused(daskfs("run", job, "-q"), 2, "graph.precomputed", "data.batch")


def test_too_little_memory_is_told_with_the_batch(tmp_path: Path) -> None:
    job = job_of(tmp_path, cluster={"workers": 1, "memory_limit": "200MiB"})
    refused(daskfs("run", job, "-q"), 2, "cluster.memory_limit")


# --------------------------------------------------------------------------------------- resuming, damage, looking on
@pytest.mark.parametrize(("stage", "unit"), [("ingest", 0), ("score", 1)])
def test_a_run_that_was_stopped_goes_on(ran: Path, tmp_path: Path, stage: str, unit: int) -> None:
    job = job_of(tmp_path)
    assert daskfs("plan", job).out.count("batches are known, and planned, when the tiles are there") == 1

    class InBatch(Stop):
        seen = 0

        def unit_done(self, stage: Any, unit: int, facts: dict[str, Any]) -> None:
            del unit, facts
            self.seen += stage.name.partition(" of batch")[0] == self.stage
            if self.seen == 3:  # of the second batch, or of the last stage of the run itself
                msg = "stopped."
                raise RunStoppedError(msg)

    with pytest.raises(RunStoppedError):
        run_job(load_job(job), InBatch(stage, unit))
    status = daskfs("status", tmp_path / "job")
    assert status.code == 0, status.err
    assert "batch a, 1" in status.out
    assert daskfs("verify", tmp_path / "job", "-q").code == 0
    before = records(tmp_path / "job/batches/0")
    assert before
    assert "batch a, 1: 40 rows, 0 units to run" in daskfs("plan", job).out
    result = done(job)
    assert not [key for key in result["recomputed"] if key.startswith("batch a, 1")]
    assert records(tmp_path / "job/batches/0") == before
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()
    assert sum(done(job)["recomputed"].values()) == 0


TOGETHER = {"workers": 2, "threads": 8, "memory_limit": "8GiB"}
"""Workers for 16 units, which rank two batches at a time."""


def meeting(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None] = lambda: None) -> None:
    """Let the first two batches wait for each other, and then call `then` once."""
    together, begun, rank = threading.Barrier(2, then, timeout=60), itertools.count(), pipeline._run

    def met(job: Job, *arguments: Any, **options: Any) -> dict[str, Any]:
        if job.data.only_batch is not None and next(begun) < 2:
            together.wait()
        return rank(job, *arguments, **options)

    monkeypatch.setattr(pipeline, "_run", met)


def test_batches_are_ranked_at_the_same_time(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting(monkeypatch)
    run_job(load_job(job_of(tmp_path, cluster=TOGETHER)))
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()


def test_a_signal_stops_all_batches_that_are_ranked(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(tmp_path, cluster=TOGETHER)
    meeting(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RunStoppedError, match="SIGTERM"):
        run_job(load_job(job))
    assert json.loads((tmp_path / "job/run.json").read_text())["status"] == "stopped"
    assert not (tmp_path / "job/batches/2").exists(), "the third one has not begun"
    for number in (0, 1):
        stopped = json.loads((tmp_path / f"job/batches/{number}/run.json").read_text())
        assert stopped["status"] == "stopped", stopped
    run_job(load_job(job))
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()


def test_what_is_damaged_in_a_batch_is_found_and_made_again(ran: Path, tmp_path: Path) -> None:
    job = job_of(tmp_path)
    done(job)
    chunk = next(p for p in (tmp_path / "job/batches/1/scores/FisherScore/c").rglob("*") if p.is_file())
    chunk.write_bytes(b"\0" * chunk.stat().st_size)
    (tmp_path / "job/batches/2/tiles/tiles.json").unlink()
    verified = daskfs("verify", tmp_path / "job", "-q", "--json", "--remove")
    assert verified.code == 3
    assert {Path(p["path"]).name for p in verified.json["problems"]} >= {chunk.name, "tiles.json"}
    result = done(job)
    assert {key.split(",")[0] for key in result["recomputed"] if key.startswith("batch b")} == {"batch b"}
    assert daskfs("verify", tmp_path / "job", "-q").code == 0
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()


def test_starting_over_deletes_the_runs_of_batches(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    done(job)
    done(job, "--overwrite", "--set", "data.batch=null")
    assert not (tmp_path / "job/batches").exists()
    assert not (tmp_path / "job/batches.csv").exists()


@pytest.mark.long
@pytest.mark.cluster
def test_workers_change_no_byte(ran: Path, tmp_path: Path, two_workers: str) -> None:
    done(job_of(tmp_path, cluster={"address": two_workers}))
    for name in TABLES:
        assert (tmp_path / "job" / name).read_bytes() == (ran / "job" / name).read_bytes()
