"""``daskfs compare``: one study over several data sets, and runs that are finished."""

from __future__ import annotations

import html
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daskfs import compare_runs, load_study, make_study, run_study
from daskfs.criteria.registry import criteria
from daskfs.errors import DamagedError, InputError, JobError, StoreError
from daskfs.execution import connection
from daskfs.execution.cluster import ClusterSettings
from daskfs.runs.benchmark import members
from tests.cli.command import daskfs, refused, rows_of
from tests.execution.runs import write_document
from tests.report.test_render import assert_sound

pytestmark = [pytest.mark.cluster, pytest.mark.figures]

METHODS = ["VarianceScore", "PearsonScore", "FisherScore"]
NAMES = ("few", "many", "target")


def make_data(folder: Path) -> dict[str, Any]:
    """Write two data sets of classes, and one of a target; return their blocks."""
    rng = np.random.default_rng(0)
    blocks = {}
    for name, n_samples, n_features in (("few", 60, 6), ("many", 90, 8), ("target", 60, 6)):
        X, y = rng.normal(size=(n_samples, n_features)), np.arange(n_samples) % (2 if name == "few" else 3)
        X[:, 3:5] += 1.5 * rng.normal(size=(3, 2))[y]
        X[:, 0] *= 9
        labels = {"y": X[:, 3] - X[:, 4] + 0.1} if name == "target" else {"y": y}
        np.savez(folder / f"{name}.npz", X=X, **labels)
        blocks[name] = {"source": str(folder / f"{name}.npz"), "labels": "y"}
    return blocks


def study_of(folder: Path, **blocks: Any) -> dict[str, Any]:
    """Return a study on them that runs in this process."""
    study = {
        "datasets": make_data(folder),
        "methods": METHODS,
        "evaluate": {"setting": "inductive", "labels": [8], "n_draws": 2, "n_splits": 2, "n_selected": [1, 2]},
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "study")},
    }
    return {**study, **blocks}


def write_study(folder: Path, study: dict[str, Any]) -> Path:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a study that is done; nothing may change it."""
    folder = tmp_path_factory.mktemp("study")
    outcome = daskfs("compare", write_study(folder, study_of(folder)), "-q", "--json")
    assert outcome.code == 0, outcome.err
    (folder / "result.json").write_text(outcome.out)
    return folder


def result_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


# ----------------------------------------------------------------------------------------------------------- a study
def test_each_data_set_has_a_run_of_its_own(finished: Path) -> None:
    for name in NAMES:
        manifest = json.loads((finished / "study" / name / "run.json").read_text())
        assert manifest["status"] == "done"
        assert (finished / "study" / name / "report.html").is_file()
        methods = [method["label"] for method in manifest["methods"]]
        assert methods == (METHODS[:2] if name == "target" else METHODS)
    stored = json.loads((finished / "study/study.json").read_text())
    assert stored["status"] == "done"
    assert stored["average_ranks"] == result_of(finished)["average_ranks"]


def test_methods_that_a_task_cannot_have_are_left_out_and_noted(finished: Path) -> None:
    notes = result_of(finished)["notes"]
    assert len(notes) == 2
    assert re.match("target: left out, method FisherScore is for classification", notes[0])
    assert notes[1] == "FisherScore has no value on 1 of 3 data sets and is not ranked."


def test_values_are_means_of_the_evaluations(finished: Path) -> None:
    """Over draws, folds and numbers of features; ranks are by the metric's direction."""
    rows = rows_of(finished / "study/means.csv")
    assert [(row["data_set"], row["method"]) for row in rows] == [
        (name, method) for name in NAMES for method in (METHODS[:2] if name == "target" else METHODS)
    ]
    for name in NAMES:
        values = rows_of(finished / "study" / name / "evaluation.csv")
        own = [row for row in rows if row["data_set"] == name]
        for row in own:
            found = [float(v["value"]) for v in values if v["method"] == row["method"]]
            assert float(row["mean"]) == pytest.approx(np.mean(found), rel=1e-12)
            assert row["metric"] == ("rmse" if name == "target" else "balanced_accuracy")
        best = min if name == "target" else max
        first = min(own, key=lambda row: float(row["rank"]))
        assert float(first["mean"]) == best(float(row["mean"]) for row in own)
        assert first["method"] == "PearsonScore"


def test_ranks_over_data_sets(finished: Path) -> None:
    rows = rows_of(finished / "study/average_ranks.csv")
    assert rows == [
        {"method": "PearsonScore", "average_rank": "1.0", "n_data_sets": "3"},
        {"method": "VarianceScore", "average_rank": "2.0", "n_data_sets": "3"},
    ]
    found = result_of(finished)
    assert found["friedman"]["chi_square"] == pytest.approx(3)  # two methods, three sets, one order
    assert found["critical_difference"] == pytest.approx(1.959964 * np.sqrt(2 * 3 / (6 * 3)), rel=1e-5)
    assert found["alike"] == [[0, 1]]


def test_differences_are_those_of_the_runs_best_minus_other(finished: Path) -> None:
    rows = rows_of(finished / "study/comparisons.csv")
    assert [(row["data_set"], row["other"]) for row in rows] == [
        ("few", "VarianceScore"),
        ("few", "FisherScore"),
        ("many", "VarianceScore"),
        ("many", "FisherScore"),
        ("target", "VarianceScore"),
    ]
    for row in rows:
        own = rows_of(finished / "study" / row["data_set"] / "comparisons.csv")
        pair = {row["best"], row["other"]}
        (found,) = [o for o in own if {o["method"], o["other"]} == pair and o["n_selected"] == ""]
        sign = 1 if found["method"] == row["best"] else -1
        assert float(row["difference"]) == sign * float(found["difference"])
        assert float(row["low"]) <= float(row["difference"]) <= float(row["high"])
        assert row["p_value"] == found["p_value"]
        assert row["best"] == "PearsonScore"
        assert float(row["difference"]) * (-1 if row["metric"] == "rmse" else 1) >= 0


def test_page(finished: Path) -> None:
    html = (finished / "study/comparison.html").read_text(encoding="utf-8")
    links = [f"{name}/report.html" for name in NAMES]
    page = assert_sound(html, links)
    assert [href for href in page.values("href") if not href.startswith("#")] == links
    assert all((finished / "study" / link).is_file() for link in links)
    for text in (
        "The evaluations are inductive.",
        "Average ranks: PearsonScore 1.00",
        "VarianceScore (2.00)",
        "infinite",
    ):
        assert text in html


def test_again_there_is_nothing_to_do_and_what_is_lost_is_made(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "copy")
    study = yaml.safe_load((finished / "study.yaml").read_text())
    study["output"]["path"] = str(folder / "study")
    path = write_study(folder, study)
    before = (folder / "study/average_ranks.csv").read_bytes()
    outcome = daskfs("compare", path, "-q")
    assert "nothing to do" in outcome.out
    (folder / "study/many/evaluation/orders/3.npz").unlink()
    (folder / "study/average_ranks.csv").unlink()
    outcome = daskfs("compare", path, "-q", "--json")
    assert outcome.json["recomputed"] == {"few": {}, "many": {"select": 1}, "target": {}}
    assert (folder / "study/average_ranks.csv").read_bytes() == before


def test_another_job_needs_overwrite(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "copy")
    study = yaml.safe_load((finished / "study.yaml").read_text())
    study["output"]["path"] = str(folder / "study")
    path = write_study(folder, study)
    keys = ("--set", "datasets.few.evaluate.n_draws=1")
    refused(daskfs("compare", path, "-q", *keys), 3, "evaluate.n_draws", "--overwrite", "(data set few)")
    outcome = daskfs("compare", path, "-q", "--json", "--overwrite", *keys, "--set", "compare.n_selected=2")
    assert outcome.code == 0, outcome.err
    values = rows_of(folder / "study/few/evaluation.csv")
    own = [float(v["value"]) for v in values if (v["method"], v["n_selected"]) == ("PearsonScore", "2")]
    assert len(own) == 2  # one draw, two folds
    means = {(r["data_set"], r["method"]): float(r["mean"]) for r in rows_of(folder / "study/means.csv")}
    assert means["few", "PearsonScore"] == pytest.approx(np.mean(own))


def test_bad_data_of_one_set_end_the_study_and_the_others_stay(tmp_path: Path) -> None:
    study = study_of(tmp_path, evaluate={"n_splits": 2, "n_selected": 2, "baselines": False})
    X = np.load(tmp_path / "many.npz")["X"]
    X[7, 2] = np.nan
    np.savez(tmp_path / "many.npz", X=X, y=np.arange(90) % 3)
    path = write_study(tmp_path, study)
    refused(daskfs("compare", path, "-q"), 3, "row 7", "(data set many)")
    assert json.loads((tmp_path / "study/few/run.json").read_text())["status"] == "done"
    assert json.loads((tmp_path / "study/study.json").read_text())["status"] == "running"
    X[7, 2] = 0
    np.savez(tmp_path / "many.npz", X=X, y=np.arange(90) % 3)
    outcome = daskfs("compare", path, "-q", "--json")
    assert outcome.json["recomputed"]["few"] == {}
    assert outcome.json["recomputed"]["many"]["evaluate"] == 3 * 2


def test_data_without_labels_or_with_labels_that_serve_nothing(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    del study["datasets"]["many"]["labels"]
    refused(daskfs("compare", write_study(tmp_path, study), "-q"), 3, "datasets.many.labels", "(data set many)")
    study = study_of(tmp_path, methods=["FisherScore"])
    path = write_study(tmp_path, study)
    refused(daskfs("compare", path, "-q"), 3, "no method serves", "FisherScore is for class", "(data set target)")
    assert not (tmp_path / "study/few").exists()


def test_plan_of_a_study(tmp_path: Path) -> None:
    path = write_study(tmp_path, study_of(tmp_path, methods="all"))
    planned = daskfs("compare", path, "--plan", "--json").json
    assert list(planned["data_sets"]) == list(NAMES)
    every = list(criteria())
    selections = {
        name: next(s["units"] for s in plan["stages"] if s["stage"] == "select")
        for name, plan in planned["data_sets"].items()
    }
    serving = {task: sum(task in criteria()[name].tasks for name in every) for task in ("classification", "regression")}
    assert selections["few"] == serving["classification"] * 2 * 2
    assert selections["target"] == serving["regression"] * 2 * 2
    assert planned["units"] == sum(s["units"] for p in planned["data_sets"].values() for s in p["stages"])
    assert not (tmp_path / "study").exists()
    text = daskfs("compare", path, "--plan").out
    assert "data set target\n60 rows x 6 features" in text
    assert "note: target: left out, method LSDF is for classification" in text


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"datasets": {}}, ["datasets"]),
        ({"datasets": ["a.npz"]}, ["datasets names data sets"]),
        ({"datasets": {"a/b": "sklearn:wine"}}, ["data set label 'a/b'"]),
        ({"datasets": {"study.json": "sklearn:wine"}}, ["'study.json' looks like a file"]),
        ({"datasets": {"wine": {"source": "sklearn:wine", "lables": "y"}}}, ["data set wine", "lables", "labels"]),
        ({"datasets": {"wine": {"source": "sklearn:wine", "evaluate": None}}}, ["evaluate of 'wine' is null"]),
        ({"datasets": {"wine": {"source": "sklearn:wine", "evaluate": {"n_split": 2}}}}, ["wine", "n_splits"]),
        ({"methods": "some"}, ["methods is 'all' or a list"]),
        ({"methods": ["Fisher"]}, ["data set few", "FisherScore"]),
        ({"compare": {"metrics": "r2"}}, ["compare.metrics", "metric"]),
        ({"data": {"source": "sklearn:wine"}}, ["unknown key 'data'", "datasets"]),
    ],
)
def test_wrong_keys(tmp_path: Path, change: dict[str, Any], parts: list[str]) -> None:
    path = write_study(tmp_path, study_of(tmp_path, **change))
    refused(daskfs("compare", path, "-q"), 2, str(path), *parts)
    assert not (tmp_path / "study").exists()


def test_all_beside_methods_with_parameters(tmp_path: Path) -> None:
    """A method that the list names stays as it is named; with a label it stands beside its default."""
    own = [{"name": "SSelect", "trade_off": 0.3}, "all", {"name": "RLSR", "label": "long", "max_iter": 99}]
    study = make_study(study_of(tmp_path, methods=own))
    (few, *_) = members(study)
    labels = [method.label for method in few.job.make_methods("classification")]
    assert labels[0] == "SSelect"
    assert labels[-1] == "long"
    assert sorted(labels) == sorted([*(n for n, c in criteria().items() if "classification" in c.tasks), "long"])


def test_one_cluster_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for once, at the first run that has a unit left."""
    asked, real = [], connection.connect

    def counted(settings: ClusterSettings) -> Any:
        asked.append(settings)
        return real(settings)

    monkeypatch.setattr(connection, "connect", counted)
    study = make_study(study_of(tmp_path, methods=["VarianceScore"], evaluate={"n_splits": 2, "n_selected": [2]}))
    run_study(study)
    assert len(asked) == 1
    run_study(study)
    assert len(asked) == 1


@pytest.mark.cluster
@pytest.mark.long
def test_workers_change_no_bit(finished: Path, tmp_path: Path) -> None:
    study = yaml.safe_load((finished / "study.yaml").read_text())
    study |= {"output": {"path": str(tmp_path / "study")}, "cluster": {"workers": 2, "memory_limit": "1GiB"}}
    run_study(load_study(write_study(tmp_path, study)))
    for name in ("average_ranks.csv", "means.csv", "comparisons.csv"):
        assert (tmp_path / "study" / name).read_bytes() == (finished / "study" / name).read_bytes()


# ------------------------------------------------------------------------------------------------------ finished runs
def test_finished_runs(finished: Path, tmp_path: Path) -> None:
    runs = [finished / "study" / name for name in NAMES]
    outcome = daskfs("compare", *runs, "--output", tmp_path / "compared")
    assert outcome.code == 0, outcome.err
    assert "average rank 1.00: PearsonScore\n" in outcome.out
    assert "\nFriedman: p = 0.08330\nIman and Davenport: p = less than 0.001\n" in outcome.out
    for name in ("average_ranks.csv", "means.csv", "comparisons.csv"):
        assert (tmp_path / "compared" / name).read_bytes() == (finished / "study" / name).read_bytes()
    found = compare_runs(runs[:2], tmp_path / "two", compare_by={"n_selected": 1})
    assert found["notes"] == []
    assert found["average_ranks"][0]["method"] == "PearsonScore"
    assert len(found["average_ranks"]) == 3
    alone = compare_runs(runs[:1], tmp_path / "one")
    assert alone["friedman"] is None
    assert "tested over two data sets" in alone["notes"][0]
    links = [f"{Path('..')}/{name}/report.html" for name in NAMES]
    shutil.copytree(finished / "study", tmp_path / "elsewhere")
    moved = compare_runs([tmp_path / "elsewhere" / name for name in NAMES], tmp_path / "elsewhere" / "all")
    assert_sound(Path(moved["page"]).read_text(encoding="utf-8"), links)


def test_the_terminal_gives_each_p_as_json_and_the_page_do(tmp_path: Path) -> None:
    rng, y = np.random.default_rng(0), np.arange(30) % 2
    blocks = {}
    for name, size in (("a", 1), ("b", 2), ("c", 99)):  # the feature that tells classes apart varies most in the last
        np.savez(tmp_path / f"{name}.npz", X=np.column_stack([y * size, rng.normal(size=30) * 9]), y=y)
        blocks[name] = {"source": str(tmp_path / f"{name}.npz"), "labels": "y"}
    evaluate = {"n_splits": 2, "n_selected": 1}
    methods = ["VarianceScore", "PearsonScore"]
    path = write_study(tmp_path, study_of(tmp_path, datasets=blocks, methods=methods, evaluate=evaluate))
    told = daskfs("compare", path, "-q").out
    found = daskfs("compare", path, "-q", "--json").json["friedman"]
    # of three data sets, two rank the methods in one order, and they are tied on the third
    assert (found["chi_square"], found["f"]) == pytest.approx((2, 4))
    (friedman,) = re.findall(r"^Friedman: p = (.*)$", told, re.MULTILINE)
    (iman_davenport,) = re.findall(r"^Iman and Davenport: p = (.*)$", told, re.MULTILINE)
    assert (float(friedman), float(iman_davenport)) == (round(found["p_chi_square"], 4), round(found["p_f"], 4))
    assert friedman != iman_davenport
    page = re.sub(r"<[^>]*>|\s", " ", (tmp_path / "study/comparison.html").read_text(encoding="utf-8"))
    assert re.search(f"Friedman's chi-square +2.000, p = {friedman} ", html.unescape(page))
    assert re.search(f"Iman and Davenport's F +4.000, p = {iman_davenport} ", html.unescape(page))


def test_runs_that_cannot_be_compared(finished: Path, tmp_path: Path) -> None:
    few = finished / "study/few"
    refused(daskfs("compare", few), 2, "--output")
    refused(daskfs("compare", few, "--output", tmp_path / "o", "--plan"), 2, "--plan are for studies")
    refused(daskfs("compare", few, "--output", tmp_path / "o", "--set", "evaluate.n_splits=2"), 2, "compare.model")
    refused(daskfs("compare", few, tmp_path / "none", "--output", tmp_path / "o"), 3, "is not a daskfs run")
    refused(daskfs("compare", few, "--output", tmp_path / "o", "--set", "compare.model=svm"), 2, "'svm'", "knn")
    refused(daskfs("compare", few, "--output", tmp_path / "o", "--set", "compare.n_selected=4"), 2, "1, 2")
    refused(daskfs("compare", few, "--output", tmp_path / "o", "--set", "compare.setting=transductive"), 2, "setting")
    refused(daskfs("compare", few, "--output", few), 3, "is not a daskfs comparison")
    study = finished / "study.yaml"
    refused(daskfs("compare", study, few, "-q"), 2, "leave out")
    shutil.copytree(few, tmp_path / "half")
    manifest = json.loads((tmp_path / "half/run.json").read_text())
    write_document(tmp_path / "half/run.json", {**manifest, "status": "running"})
    with pytest.raises(StoreError, match="is not finished"):
        compare_runs([few, tmp_path / "half"], tmp_path / "o")
    shutil.copytree(few, tmp_path / "without")
    (tmp_path / "without/evaluation_summary.parquet").unlink()
    with pytest.raises(DamagedError, match="is missing: 'daskfs run' makes it again"):
        compare_runs([few, tmp_path / "without"], tmp_path / "o")
    shutil.rmtree(tmp_path / "without/records")  # cut down to its tables
    with pytest.raises(InputError, match="has no evaluation"):
        compare_runs([few, tmp_path / "without"], tmp_path / "o")
    with pytest.raises(JobError, match="name the runs"):
        compare_runs([], tmp_path / "o")
