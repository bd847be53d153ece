"""What a run leaves behind: tables, run.json and the report, also where names are awkward."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from .command import N_FEATURES, N_SAMPLES, basic_job, daskfs, labels, matrix, rows_of, told, write_job

pytestmark = pytest.mark.cluster

METHODS = ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]
EVALUATE = {
    "n_selected": [3, 1, 50],
    "n_splits": 3,
    "n_repeats": 2,
    "n_neighbors": 3,
    "random_state": 4,
    "baselines": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a finished run; nothing may change it."""
    folder = tmp_path_factory.mktemp("outputs")
    job = basic_job(folder, methods=METHODS, evaluate=EVALUATE, select={"n_features": 2})
    job["output"]["title"] = "Title & <more>"
    outcome = daskfs("run", write_job(folder, job), "-q")
    assert (outcome.code, told(outcome)) == (0, "")
    return folder / "run"


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {
        key: "" if value is None else repr(value) if isinstance(value, float) else str(value)
        for key, value in row.items()
    }


# ------------------------------------------------------------------------------ tables
def test_ranking_has_one_row_for_each_method_and_feature(run: Path) -> None:
    rows = rows_of(run / "ranking.csv")
    assert list(rows[0]) == ["method", "rank", "feature", "name", "score", "note"]
    assert [row["method"] for row in rows] == [name for name in METHODS for _ in range(N_FEATURES)]
    for start in range(0, len(rows), N_FEATURES):
        part = rows[start : start + N_FEATURES]
        assert [row["rank"] for row in part] == ["1", "2", "3", "4"]
        assert {(row["feature"], row["name"]) for row in part} == {(str(i), f"x{i}") for i in range(N_FEATURES)}


def test_excluded_features_come_last_without_a_score_and_with_a_note(run: Path) -> None:
    rows = rows_of(run / "ranking.csv")
    excluded = [row for row in rows if not row["score"]]
    assert [(row["rank"], row["name"], row["note"]) for row in excluded] == [("4", "x3", "constant feature")] * len(
        METHODS
    )
    assert all(row["note"] == "" for row in rows if row["score"])


def test_scores_are_exact_and_in_order(run: Path) -> None:
    rows = rows_of(run / "ranking.csv")
    scores = {name: [float(row["score"]) for row in rows if row["method"] == name and row["score"]] for name in METHODS}
    assert scores["LaplacianScore"] == sorted(scores["LaplacianScore"])
    assert scores["FisherScore"] == sorted(scores["FisherScore"], reverse=True)
    np.testing.assert_allclose(scores["VarianceScore"], sorted(matrix()[:, :3].var(axis=0), reverse=True), rtol=1e-13)


@pytest.mark.parametrize("name", ["ranking", "evaluation"])
def test_parquet_holds_what_the_csv_holds(run: Path, name: str) -> None:
    assert [as_text(row) for row in pq.read_table(run / f"{name}.parquet").to_pylist()] == rows_of(run / f"{name}.csv")


def test_parquet_has_types(run: Path) -> None:
    types = {field.name: str(field.type) for field in pq.read_schema(run / "ranking.parquet")}
    assert types == {
        "method": "string",
        "rank": "int64",
        "feature": "int64",
        "name": "string",
        "score": "double",
        "note": "string",
    }


def test_selected_features_are_the_first_of_each_ranking(run: Path) -> None:
    selected = rows_of(run / "selected_features.csv")
    first = [row for row in rows_of(run / "ranking.csv") if int(row["rank"]) <= 2]
    assert selected == [{key: row[key] for key in ("method", "rank", "feature", "name", "score")} for row in first]


def test_excluded_features_are_never_selected(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path, select={"n_features": N_FEATURES}))
    assert daskfs("run", job, "-q").code == 0
    selected = rows_of(tmp_path / "run" / "selected_features.csv")
    assert [row["method"] for row in selected] == ["VarianceScore"] * 3 + ["FisherScore"] * 3
    assert "x3" not in {row["name"] for row in selected}


def test_half_of_the_features_are_selected_by_default(tmp_path: Path) -> None:
    assert daskfs("run", write_job(tmp_path, basic_job(tmp_path)), "-q").code == 0
    assert len(rows_of(tmp_path / "run" / "selected_features.csv")) == 2 * (N_FEATURES // 2)


# -------------------------------------------------------------------------- evaluation
def test_evaluation_has_one_row_for_each_fold(run: Path) -> None:
    rows = rows_of(run / "evaluation.csv")
    assert list(rows[0])[:7] == ["method", "n_selected", "n_labeled", "repeat", "fold", "metric", "value"]
    keys = [(row["method"], row["n_selected"], row["repeat"], row["fold"]) for row in rows]
    # methods last, as their rankings are made of the same rows
    assert keys == [(m, n, r, f) for r in "01" for f in "012" for m in METHODS for n in "13"]
    seen = str(N_SAMPLES * 2 // 3)  # those of the training rows
    assert {(row["n_labeled"], row["metric"]) for row in rows} == {(seen, "balanced_accuracy")}
    assert all(0 <= float(row["value"]) <= 1 for row in rows)


def test_folds_are_the_same_for_all_methods(run: Path) -> None:
    # three features are left without the constant one: whatever the ranking, three selected ones are the same set
    values = defaultdict(list)
    for row in rows_of(run / "evaluation.csv"):
        if row["n_selected"] == "3":
            values[row["method"]].append(row["value"])
    assert len(values) == len(METHODS)
    assert len({tuple(value) for value in values.values()}) == 1
    assert len(set(values["FisherScore"])) > 1


def test_regression_is_evaluated_by_its_error(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["PearsonScore"], evaluate={**EVALUATE, "n_selected": 2})
    np.save(tmp_path / "y.npy", matrix()[:, 1] * 2 + 0.5)
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert rows_of(tmp_path / "run" / "ranking.csv")[0]["name"] == "x1"
    rows = rows_of(tmp_path / "run" / "evaluation.csv")
    assert {row["metric"] for row in rows} == {"rmse"}
    assert all(float(row["value"]) > 0 for row in rows)


def test_unlabeled_rows_are_left_out_of_the_evaluation(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["FisherScore"], evaluate={**EVALUATE, "n_selected": 2})
    np.save(tmp_path / "y.npy", np.where(np.arange(N_SAMPLES) < 12, -1, labels()))
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--json")
    assert outcome.json["data"]["n_labeled"] == 18
    assert {row["n_labeled"] for row in rows_of(tmp_path / "run" / "evaluation.csv")} == {"12"}


def test_without_labels_there_is_no_evaluation(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["VarianceScore"])
    del job["evaluate"], job["data"]["labels"]
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    assert not (tmp_path / "run" / "evaluation.csv").exists()


# ----------------------------------------------------------------------------- run.json
def test_run_json_says_what_was_done(run: Path) -> None:
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert (facts["status"], facts["title"], facts["n_selected"]) == ("done", "Title & <more>", 2)
    assert facts["versions"].keys() >= {"daskfs", "python", "numpy", "scipy", "scikit-learn", "dask", "zarr"}
    assert facts["data"]["classes"] == {"0": 10, "1": 10, "2": 10}
    assert (facts["data"]["n_samples"], facts["data"]["n_features"]) == (N_SAMPLES, N_FEATURES)
    assert facts["data"]["n_constant"] == 1
    assert [method["label"] for method in facts["methods"]] == METHODS
    assert facts["methods"][0]["parameters"]["n_neighbors"] == 5
    assert facts["job"]["evaluate"]["random_state"] == 4
    assert facts["seconds"] > 0
    graph = facts["graphs"][0]
    assert (graph["metric"], graph["engine"], graph["recall"]) == ("euclidean", "exact", None)
    assert graph["weightings"][0]["used_by"] == ["LaplacianScore"]
    for stage in facts["stages"]:
        assert 0 < stage["peak_bytes"] <= facts["peak_bytes"]
        assert stage["units"] >= 1
        assert stage["seconds"] >= 0
    assert {stage["name"] for stage in facts["stages"]} >= {"ingest", "score", "rank", "evaluate"}
    assert (run / facts["ranking"], run / facts["report"]) == (run / "ranking.csv", run / "report.html")


# ---------------------------------------------------------------------------- the report
def test_report_escapes_its_title_and_needs_no_network(run: Path) -> None:
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Title &amp; &lt;more&gt;" in page
    assert "<more>" not in page
    assert 'src="http' not in page
    assert "<script" not in page


NAMES = ["a,b", 'say "so"', "two\nlines", "<script>alert('x')</script> & größe 特徴"]


def run_with_names(folder: Path, names: Sequence[str]) -> Path:
    job = basic_job(folder, data={"source": str(folder / "X.npz"), "labels": "y", "feature_names": "names"})
    np.savez(folder / "X.npz", X=matrix(), y=labels(), names=np.array(names))
    outcome = daskfs("run", write_job(folder, job), "-q")
    assert (outcome.code, told(outcome)) == (0, "")
    return folder / "run"


def test_awkward_names_survive_the_tables_and_are_escaped_in_the_report(tmp_path: Path) -> None:
    run = run_with_names(tmp_path, NAMES)
    rows = rows_of(run / "ranking.csv")
    assert {(int(row["feature"]), row["name"]) for row in rows} == set(enumerate(NAMES))
    assert [row["name"] for row in pq.read_table(run / "ranking.parquet").to_pylist()] == [row["name"] for row in rows]
    assert {row["name"] for row in rows_of(run / "selected_features.csv")} <= set(NAMES)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert html.escape(NAMES[3], quote=False).split("&#39;")[0][:20] in page
    assert "größe 特徴" in page


def test_awkward_names_come_through_a_csv_file(tmp_path: Path) -> None:
    header = ",".join('"' + name.replace('"', '""') + '"' for name in [*NAMES, "y"])
    lines = [header, *(",".join(map(str, [*row, y])) for row, y in zip(matrix(), labels(), strict=True))]
    (tmp_path / "X.csv").write_text("\n".join(lines), encoding="utf-8", newline="")
    job = basic_job(tmp_path, data={"source": str(tmp_path / "X.csv"), "labels": "y"})
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    rows = rows_of(tmp_path / "run" / "ranking.csv")
    assert {(int(row["feature"]), row["name"]) for row in rows} == set(enumerate(NAMES))


def test_equal_and_empty_names_keep_their_number(tmp_path: Path) -> None:
    rows = rows_of(run_with_names(tmp_path, ["a", "a", "", "b"]) / "ranking.csv")
    assert {(row["feature"], row["name"]) for row in rows} == {("0", "a"), ("1", "a"), ("2", ""), ("3", "b")}


def test_carriage_returns_in_names(tmp_path: Path) -> None:
    rows = rows_of(run_with_names(tmp_path, ["a\rb", "c\r\nd", "e", "f"]) / "ranking.csv")
    assert {row["name"] for row in rows} == {"a\rb", "c\r\nd", "e", "f"}


@pytest.mark.parametrize("label", ["größe k=5 (mean)", "-rf", "a+b.c"])
def test_method_labels_name_rows_and_directories(tmp_path: Path, label: str) -> None:
    job = basic_job(
        tmp_path, methods=[{"name": "VarianceScore", "label": label}], evaluate={**EVALUATE, "n_selected": 1}
    )
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    shown = f"'{label}" if label.startswith("-") else label  # which a spreadsheet would run
    for name in ("ranking.csv", "selected_features.csv", "evaluation.csv"):
        assert {row["method"] for row in rows_of(tmp_path / "run" / name)} == {shown}
    assert label in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
