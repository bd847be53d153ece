"""Every verb on a tiny data set: what it prints for people, and for programs."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs.criteria.registry import criteria
from daskfs.errors import RunStoppedError
from daskfs.evaluation import trials
from daskfs.version import __version__

from .command import (
    N_FEATURES,
    N_SAMPLES,
    basic_job,
    but_trust,
    daskfs,
    labels,
    matrix,
    refused,
    rows_of,
    told,
    write_job,
)

pytestmark = pytest.mark.cluster

METHODS = ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]
STAGES = [
    "ingest",
    "labels",
    "columns",
    "neighbors",
    "edges",
    "weights",
    "score",
    "rank",
    "design",
    "evaluation",
    "evaluation",
    "evaluation",
    "select",
    "evaluate",
    "evaluation",
    "edges",
]


def full_job(folder: Path, **blocks: Any) -> dict[str, Any]:
    evaluate = {"n_selected": [1, 2], "n_splits": 3, "n_repeats": 2, "n_neighbors": 3, "baselines": False}
    return basic_job(folder, **{"methods": METHODS, "evaluate": evaluate, "select": {"n_features": 2}, **blocks})


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run, with its job file; nothing may change it."""
    folder = tmp_path_factory.mktemp("done")
    outcome = daskfs("run", write_job(folder, full_job(folder)), "--quiet")
    assert (outcome.code, outcome.err) == (0, "")
    (folder / "stdout.txt").write_text(outcome.out, encoding="utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ---------------------------------------------------------------------------------- run
def test_run_ends_with_a_verdict_and_the_first_features(done: Path) -> None:
    lines = (done / "stdout.txt").read_text(encoding="utf-8").splitlines()
    run = json.loads((done / "run" / "run.json").read_text())
    verdict, best = run["verdict"], {one["method"]: one["features"] for one in run["best"]}
    assert lines[0] == (
        f"{verdict['method']} with {verdict['n_selected']} of {N_FEATURES} features: balanced accuracy "
        f"{verdict['score']:.3f} [{verdict['low']:.3f}, {verdict['high']:.3f}] on held-out rows, best of 8 compared"
    )
    assert lines[1].startswith("two folds select ")  # baselines are left out
    first = verdict["method"]
    assert list(best) == [first, *(method for method in METHODS if method != first)]
    assert lines[2].split() == [first, "(best)", *list(best)[1:]]
    ranked = rows_of(done / "run" / "ranking.csv")
    for method, names in best.items():
        own = [row for row in ranked if row["method"] == method and not row["note"]]  # the constant one is excluded
        assert names == [row["name"] for row in sorted(own, key=lambda row: int(row["rank"]))]
    assert lines[3].split() == ["1", *(names[0] for names in best.values())]
    about = f"{done / 'X.npy'}: {N_SAMPLES} rows x {N_FEATURES} features, {N_SAMPLES} labeled; "
    assert lines[-3].startswith(about)
    assert " units ran, " in lines[-3]
    assert lines[-2:] == [f"ranking: {done / 'run' / 'ranking.csv'}", f"report:  {done / 'run' / 'report.html'}"]
    assert all(Path(line.split()[1]).is_file() for line in lines[-2:])
    page = (done / "run" / "report.html").read_text()
    assert f"{lines[0]}." in page
    assert page.index(lines[0]) < page.index(METHODS[1])


def test_version_and_completion() -> None:
    assert daskfs("--version").out == f"daskfs {__version__}\n"
    shown = daskfs("--help").out
    assert "--show-completion" in shown
    assert "Feature ranking on Dask" in shown


def test_graphs_and_stages_are_told_where_asked_for(done: Path) -> None:
    lines = daskfs("run", done / "job.yaml", "-q", "-v").out.splitlines()
    assert lines[0].startswith("graph euclidean, k = 5: exact, exact, ")
    assert [line.split()[1].split("-")[0].rstrip(":") for line in lines if line.startswith("stage ")][
        : len(STAGES)
    ] == STAGES
    assert lines[-1].startswith("report: ")


def test_second_run_has_nothing_to_do(done: Path) -> None:
    before = contents(done / "run")
    again = daskfs("run", done / "job.yaml")
    assert again.code == 0
    assert "; nothing to do" in again.out
    told, note = again.err.splitlines()
    assert "nothing to do: every unit is recorded" in told
    assert note == "daskfs: note: 1 hint in the report."
    assert contents(done / "run") == before


def test_run_tells_progress_on_stderr_only(tmp_path: Path) -> None:
    outcome = daskfs("run", write_job(tmp_path, basic_job(tmp_path)), "--json")
    assert outcome.code == 0
    assert {"labels", "ingest", "columns", "score", "rank"} == {
        line.split("stage ")[1].split(":")[0] for line in outcome.err.splitlines()
    }
    assert outcome.json["status"] == "done"
    assert outcome.json["recomputed"] == {"labels": 1, "ingest": 1, "columns": 1, "score": 1, "rank": 1}
    again = daskfs("run", tmp_path / "job.yaml", "--json", "-q")
    assert (again.json["recomputed"], again.err) == ({}, "")


def test_run_warns_of_weights_that_underflow(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["LaplacianScore"], graph={"n_neighbors": 2, "t": 0.1})
    X = matrix()
    X[0] += 100.0
    np.save(tmp_path / "X.npy", X)
    outcome = daskfs("run", write_job(tmp_path, job), "--json", "-q")
    (graph,) = outcome.json["graphs"]
    (weighting,) = graph["weightings"]
    assert weighting["n_underflow"] >= 2
    assert weighting["n_isolated"] >= 1
    (text,) = but_trust(outcome.json["warnings"])
    assert text == (
        f"graph euclidean, k = 2: weights heat: {weighting['n_underflow']} of {graph['n_edges']} weights are 0 and "
        f"{weighting['n_isolated']} rows have no edge left; raise t or scale the data"
    )
    assert told(outcome) == f"daskfs: warning: {text}.\n"
    again = daskfs("run", tmp_path / "job.yaml", "-q", "-v")
    assert f"{graph['n_components']} components" in again.out


def test_run_makes_up_for_a_deleted_table(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    table = tmp_path / "run" / "ranking.csv"
    before = table.read_bytes()
    table.unlink()
    assert daskfs("run", job, "-q", "--json").json["recomputed"] == {"rank": 1}
    assert table.read_bytes() == before


def test_overwrite_starts_over(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    other = daskfs("run", job, "-q", "--overwrite", "--json", "--set", "methods=[VarianceScore]")
    assert other.code == 0
    assert other.json["recomputed"] == {"labels": 1, "ingest": 1, "columns": 1, "score": 1, "rank": 1}
    assert {row["method"] for row in rows_of(tmp_path / "run" / "ranking.csv")} == {"VarianceScore"}
    assert not (tmp_path / "run" / "scores" / "FisherScore").exists()


def test_overwrite_reads_the_data_as_they_are_now(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    np.save(tmp_path / "X.npy", np.hstack([matrix(), matrix()[:, ::-1] * 3]))
    assert daskfs("run", job, "-q", "--overwrite").code == 0
    rows = [row for row in rows_of(tmp_path / "run" / "ranking.csv") if row["method"] == "VarianceScore"]
    assert len(rows) == 2 * N_FEATURES
    X = np.hstack([matrix(), matrix()[:, ::-1] * 3])
    assert int(rows[0]["feature"]) == int(np.argmax(X.var(axis=0)))


def test_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = basic_job(tmp_path, data={"source": "X.npy", "labels": "y.npy"}, output={"path": "deep/run"})
    write_job(tmp_path, job)
    monkeypatch.chdir(tmp_path)
    outcome = daskfs("run", "job.yaml", "-q", "--json")
    assert outcome.code == 0
    assert outcome.json["ranking"] == str(tmp_path / "deep" / "run" / "ranking.csv")


# --------------------------------------------------------------------------------- plan
def test_plan_writes_nothing_and_shows_what_would_run(tmp_path: Path) -> None:
    job = write_job(tmp_path, full_job(tmp_path))
    before = contents(tmp_path)
    outcome = daskfs("plan", job)
    assert (outcome.code, outcome.err) == (0, "")
    assert contents(tmp_path) == before
    assert not (tmp_path / "run").exists()
    lines = outcome.out.splitlines()
    assert lines[0].startswith(f"{N_SAMPLES} rows x {N_FEATURES} features, dense float64")
    assert lines[-1] == f"output: {tmp_path / 'run'}"
    plan = daskfs("plan", job, "--json").json
    assert [stage["stage"].split("-")[0] for stage in plan["stages"]][: len(STAGES)] == STAGES
    assert all(stage["done"] == 0 and stage["units"] >= 1 for stage in plan["stages"])
    assert plan["peak_bytes"] == max(stage["peak_bytes"] for stage in plan["stages"])
    assert plan["shape"]["n_samples"] == N_SAMPLES


def test_plan_of_a_finished_run_shows_every_unit_done(done: Path) -> None:
    before = contents(done)
    plan = daskfs("plan", done / "job.yaml", "--json").json
    assert [stage["done"] for stage in plan["stages"]] == [stage["units"] for stage in plan["stages"]]
    assert next(stage for stage in plan["stages"] if stage["stage"] == "evaluate")["units"] == len(METHODS) * 6
    assert contents(done) == before


def test_plan_of_another_job_counts_nothing_of_this_one_as_done(done: Path) -> None:
    plan = daskfs("plan", done / "job.yaml", "--json", "--set", "methods=[VarianceScore]").json
    by_name = {stage["stage"]: stage["done"] for stage in plan["stages"]}
    assert by_name["score"] == by_name["rank"] == 0


def test_memory_limit_of_the_plan(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    plan = daskfs("plan", job, "--json", "--set", "cluster.memory_limit=3GiB").json
    assert plan["memory_limit"] == 3 * 2**30
    assert "its limit: 3072 MiB" in daskfs("plan", job, "--set", "cluster.memory_limit=3GiB").out


# ------------------------------------------------------------------------------- status
def test_status_of_a_finished_run(done: Path) -> None:
    outcome = daskfs("status", done / "run")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines()[0].startswith(f"{done / 'run'}: done, last unit done at 2")
    status = daskfs("status", done / "run", "--json").json
    assert (status["status"], status["error"]) == ("done", None)
    assert all(stage["done"] == stage["units"] and stage["seconds_left"] == 0 for stage in status["stages"])


def test_status_of_a_half_done_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @functools.wraps(trials.EVALUATE_STAGE.run)
    def stop(*_: object) -> None:
        msg = "stopped by a test"
        raise RunStoppedError(msg)

    job = write_job(tmp_path, full_job(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(trials, "EVALUATE_STAGE", dataclasses.replace(trials.EVALUATE_STAGE, run=stop))
        refused(daskfs("run", job, "-q"), 75, "stopped by a test", "unit 0 of stage evaluate")
    status = daskfs("status", tmp_path / "run", "--json").json
    by_name = {stage["stage"]: stage for stage in status["stages"]}
    assert (status["status"], status["error"]) == (
        "stopped",
        "stopped by a test (in unit 0 of stage evaluate)",
    )
    assert by_name["ingest"]["done"] == by_name["columns"]["done"] == 1
    assert by_name["evaluate"]["done"] == 0
    assert by_name["evaluate"]["units"] == 24
    lines = daskfs("status", tmp_path / "run").out.splitlines()
    assert lines[0].startswith(f"{tmp_path / 'run'}: stopped, last unit done at 2")
    assert lines[1].startswith("stopped by a test")
    assert ["evaluate", "0", "of", "24"] in [line.split() for line in lines]
    refused(daskfs("report", tmp_path / "run"), 3, "is not finished", "daskfs status")
    planned = {stage["stage"]: stage["done"] for stage in daskfs("plan", job, "--json").json["stages"]}
    assert planned == {name: stage["done"] for name, stage in by_name.items()}
    rest = daskfs("run", job, "-q", "--json")
    assert rest.json["recomputed"] == {"evaluate": 24, "evaluation-tables": 1}
    status = daskfs("status", tmp_path / "run", "--json").json
    assert (status["status"], status["error"]) == ("done", None)
    assert "error" not in json.loads((tmp_path / "run/run.json").read_text())


# ------------------------------------------------------------------------------- report
def test_report_is_written_again(done: Path) -> None:
    report = done / "run" / "report.html"
    report.unlink()
    outcome = daskfs("report", done / "run")
    assert (outcome.code, outcome.out, outcome.err) == (0, f"{report}\n", "")
    assert report.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert daskfs("report", done / "run", "--json").json == {"report": str(report)}


# ------------------------------------------------------------------- convert and inspect
def test_convert_describes_what_it_wrote_and_goes_on(tmp_path: Path) -> None:
    basic_job(tmp_path)
    arguments = ("convert", tmp_path / "X.npy", tmp_path / "t.zarr", "--labels", tmp_path / "y.npy", "--workers", 0)
    first = daskfs(*arguments, "--json")
    assert first.code == 0
    assert first.json["recomputed"] == {"labels": 1, "ingest": 1, "columns": 1}
    assert (first.json["n_samples"], first.json["n_labeled"]) == (N_SAMPLES, N_SAMPLES)
    assert first.json["classes"] == {"0": 10, "1": 10, "2": 10}
    assert (first.json["n_constant"], first.json["constant"]) == (1, ["x3"])
    assert "stage ingest" in first.err
    again = daskfs(*arguments, "--json", "--quiet")
    assert (again.json["recomputed"], again.err) == ({}, "")
    lines = daskfs(*arguments, "-q").out.splitlines()
    assert f"store: {tmp_path / 't.zarr'}" in lines
    assert "classes: {'0': 10, '1': 10, '2': 10}" in lines


def test_convert_resumes_where_a_record_is_missing(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(9000, 40))
    np.save(tmp_path / "X.npy", X)
    arguments = ("convert", tmp_path / "X.npy", tmp_path / "t.zarr", "--workers", 0, "--json", "-q")
    units = daskfs(*arguments).json["recomputed"]["ingest"]
    assert units > 1
    before = contents(tmp_path / "t.zarr" / "X")
    (tmp_path / "t.zarr" / "tiles.json").unlink()
    next(iter(sorted((tmp_path / "t.zarr" / "X").rglob("c/0/0")))).unlink()
    assert daskfs(*arguments).json["recomputed"] == {"ingest": 1, "columns": 1}
    assert contents(tmp_path / "t.zarr" / "X") == before


def test_a_converted_store_ranks_as_its_source(tmp_path: Path) -> None:
    job = full_job(tmp_path)
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    source = ("convert", tmp_path / "X.npy", tmp_path / "t.zarr", "--labels", tmp_path / "y.npy", "--workers", 0, "-q")
    assert daskfs(*source).code == 0
    job["data"], job["output"] = {"source": str(tmp_path / "t.zarr")}, {"path": str(tmp_path / "second")}
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    for name in ("ranking.csv", "selected_features.csv", "evaluation.csv"):
        assert (tmp_path / "second" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    assert not (tmp_path / "second" / "tiles").exists()


def test_inspect_of_a_source_counts_what_is_wrong_with_it(tmp_path: Path) -> None:
    X = matrix()
    X[[3, 4], 0], X[5, 2] = np.nan, -np.inf
    names = ["a", "b", "c", "d"]
    text = [",".join([*names, "y"]), *(",".join([*map(str, row), f"c{y}"]) for row, y in zip(X, labels(), strict=True))]
    (tmp_path / "X.csv").write_text("\n".join(text), encoding="utf-8")
    before = contents(tmp_path)
    found = daskfs("inspect", tmp_path / "X.csv", "--labels", "y", "--json").json
    assert contents(tmp_path) == before
    assert (found["n_samples"], found["n_features"], found["task"]) == (N_SAMPLES, N_FEATURES, "classification")
    assert (found["n_missing"], found["missing"]) == (2, {"a": 2})
    assert (found["n_infinite"], found["infinite"]) == (1, {"c": 1})
    assert (found["n_constant"], found["constant"]) == (1, ["d"])
    assert found["classes"] == {"c0": 10, "c1": 10, "c2": 10}
    lines = daskfs("inspect", tmp_path / "X.csv", "--labels", "y").out.splitlines()
    assert "missing: {'a': 2}" in lines
    without = daskfs("inspect", tmp_path / "X.csv", "--exclude", "y", "--exclude", "a", "--json").json
    assert (without["n_features"], without["n_missing"], without["n_labeled"]) == (3, 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inspect_counts_what_is_not_finite_in_any_dtype(tmp_path: Path, dtype: str) -> None:
    X = matrix().astype(dtype)
    X[[3, 4], 0], X[5, 2] = np.nan, -np.inf
    np.save(tmp_path / "X.npy", X)
    found = daskfs("inspect", tmp_path / "X.npy", "--json").json
    assert (found["missing"], found["infinite"]) == ({"x0": 2}, {"x2": 1})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inspect_of_sparse_data(tmp_path: Path, dtype: str) -> None:
    import scipy.sparse as sp

    X = np.zeros((6, 4), dtype)
    X[0, 0], X[1:3, 1], X[:, 3] = np.nan, np.inf, 7.0
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(X))
    found = daskfs("inspect", tmp_path / "X.npz", "--json").json
    assert (found["is_sparse"], found["missing"], found["infinite"]) == (True, {"x0": 1}, {"x1": 2})
    assert found["constant"] == ["x2", "x3"]


def test_inspect_of_a_tile_store(tmp_path: Path) -> None:
    basic_job(tmp_path)
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t.zarr", "--workers", 0, "-q").code == 0
    found = daskfs("inspect", tmp_path / "t.zarr", "--json").json
    assert (found["store"], found["n_features"]) == (str(tmp_path / "t.zarr"), N_FEATURES)
    assert (found["task"], found["n_labeled"]) == (None, 0)
    assert (found["missing_policy"], found["n_missing"], found["missing"]) == ("refuse", 0, {})


@pytest.mark.parametrize("sparse", [False, True])
def test_inspect_tells_missing_values_of_tiles_as_of_their_source(tmp_path: Path, sparse: bool) -> None:
    """The 20 columns with the most of them, these first, however many columns there are."""
    import scipy.sparse as sp

    X = np.random.default_rng(0).normal(size=(60, 30))
    for column in range(25):
        X[: column + 1, column] = np.nan
    source = tmp_path / ("X.npz" if sparse else "X.npy")
    sp.save_npz(source, sp.csr_array(X)) if sparse else np.save(source, X)
    assert daskfs("convert", source, tmp_path / "t.zarr", "--missing", "mean", "--workers", 0, "-q").code == 0
    expected = {f"x{column}": column + 1 for column in reversed(range(5, 25))}
    for path in (source, tmp_path / "t.zarr"):
        found = daskfs("inspect", path, "--json").json
        assert (found["n_missing"], list(found["missing"])) == (25 * 26 // 2, list(expected))
        assert found["missing"] == expected
        line = next(line for line in daskfs("inspect", path).out.splitlines() if line.startswith("missing: "))
        assert line == f"missing: {expected}"
    assert "missing_policy: mean" in daskfs("inspect", tmp_path / "t.zarr").out.splitlines()


# --------------------------------------------------------------- methods, schema, usage
def test_methods_lists_the_registry() -> None:
    found = daskfs("methods", "--json").json["methods"]
    assert [row["name"] for row in found] == list(criteria())
    laplacian = next(row for row in found if row["name"] == "LaplacianScore")
    assert (laplacian["direction"], laplacian["uses_graph"], laplacian["needs_labels"]) == ("ascending", True, False)
    assert laplacian["parameters"]["n_neighbors"] == 5
    assert "graph" not in laplacian["parameters"]
    lines = daskfs("methods").out.splitlines()
    assert [line.split()[0] for line in lines] == list(criteria())
    assert all(row["citation"] in line for row, line in zip(found, lines, strict=True))


def test_schema_is_json_either_way() -> None:
    assert daskfs("schema").out == daskfs("schema", "--json").out
    assert daskfs("schema").json["properties"].keys() >= {"data", "methods", "output"}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("rank",),
        ("run",),
        ("run", "a.yaml", "b.yaml"),
        ("run", "a.yaml", "--workers", "2"),
        ("convert", "X.npy"),
        ("convert", "X.npy", "t.zarr", "--workers", "-1"),
        ("convert", "X.npy", "t.zarr", "--workers", "two"),
        ("status",),
    ],
)
def test_usage_errors(arguments: tuple[str, ...]) -> None:
    assert daskfs(*arguments).code == 2


@pytest.mark.parametrize("verb", ["run", "plan", "status", "report", "convert", "inspect", "methods", "schema"])
def test_every_verb_has_help_and_json(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    outcome = daskfs(verb, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert "--json" in outcome.out
    assert "75 interrupted but resumable" in outcome.out


def test_control_c_is_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    basic_job(tmp_path)
    monkeypatch.setattr("daskfs.runs.inspection.inspect_data", interrupt)
    refused(daskfs("inspect", tmp_path / "X.npy"), 75, "interrupted")


def test_failures_of_the_system_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, os.strerror(28), "disk")

    basic_job(tmp_path)
    monkeypatch.setattr("daskfs.runs.inspection.inspect_data", fail)
    refused(daskfs("inspect", tmp_path / "X.npy"), 1, os.strerror(28))


def test_json_of_every_verb_is_one_object(done: Path, tmp_path: Path) -> None:
    calls = [
        ("run", done / "job.yaml"),
        ("plan", done / "job.yaml"),
        ("status", done / "run"),
        ("report", done / "run"),
        ("inspect", done / "X.npy"),
        ("convert", done / "X.npy", tmp_path / "t.zarr", "--workers", 0),
        ("methods",),
        ("schema",),
    ]
    for call in calls:
        assert isinstance(json.loads(daskfs(*call, "--json").out), dict), call
