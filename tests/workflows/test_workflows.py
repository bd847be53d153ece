"""The shipped workflows and the README's commands do what they say."""

from __future__ import annotations

import csv
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from sklearn.datasets import load_diabetes, load_digits, load_wine

from daskfs.criteria.registry import criteria
from daskfs.job.job import load_job
from daskfs.runs.status import plan_job
from tests.events import read_events
from tests.execution.runs import command, run, run_here
from tests.workflows.papers import load_paper, tables

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "daskfs/job/examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_plans(path: Path, tmp_path: Path) -> None:
    plan = plan_job(load_job(path, [f"output.path={tmp_path / 'run'}"]))
    assert plan["peak_bytes"] <= plan["memory_limit"]
    assert not (tmp_path / "run").exists()


@pytest.mark.long
@pytest.mark.cluster
def test_quickstart_says_where_ranking_and_report_are(tmp_path: Path) -> None:
    arguments = command("run", EXAMPLES / "digits.yaml", "--set", f"output.path={tmp_path / 'run'}")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ranking = re.search(r"^ranking: (.*)$", done.stdout, re.MULTILINE)
    report = re.search(r"^report: +(.*)$", done.stdout, re.MULTILINE)
    assert ranking
    assert report
    assert Path(report[1]).stat().st_size > 50_000
    with Path(ranking[1]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 * 64
    assert [row["name"] for row in rows if row["note"]] == 5 * ["pixel_0_0", "pixel_4_0", "pixel_4_7"]


@pytest.mark.long
@pytest.mark.cluster
def test_large_workflow_in_short_form_uses_both_workers(tmp_path: Path) -> None:
    source = "synthetic:lowrank?n_samples=12000&n_features=64&rank=10&seed=0"
    run(EXAMPLES / "large.yaml", "--set", f"data.source={source}", "--set", f"output.path={tmp_path / 'run'}")
    assert len({event["process"] for event in read_events(tmp_path / "run")}) == 2
    with (tmp_path / "run/selected_features.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = [row["name"] for row in rows if row["method"] == "PearsonScore"]
    assert len(names) == 16
    assert all(name.startswith("informative") for name in names[:6])


def script(*arguments: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)


def write_set(path: Path, data: Any, **more: Any) -> Path:
    np.savez(path, X=data.data, y=data.target, **more)
    return path


class TestPartlyLabeled:
    def test_each_class_keeps_its_share(self, tmp_path: Path) -> None:
        source, target = write_set(tmp_path / "wine.npz", load_wine()), tmp_path / "few.npz"
        done = script("workflows/partly_labeled.py", source, target, "--share", "0.1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("178 rows, 18 with a label\n")
        with np.load(source) as before, np.load(target) as after:
            kept = after["y"] >= 0
            assert np.bincount(after["y"][kept]).tolist() == [6, 7, 5]
            assert np.array_equal(after["y"][kept], before["y"][kept])
            assert np.array_equal(after["X"], before["X"])

    def test_classes_minus_one_and_one_are_numbered(self, tmp_path: Path) -> None:
        y = np.array([1, -1, -1, 1, -1])
        np.savez(tmp_path / "signs.npz", X=np.eye(5), y=y)
        done = script("workflows/partly_labeled.py", tmp_path / "signs.npz", tmp_path / "few.npz", "--share", 0.3)
        assert done.stdout.endswith("5 rows, 2 with a label\n"), done.stderr
        with np.load(tmp_path / "few.npz") as after:
            kept = after["y"] >= 0
            assert kept.sum() == 2
            assert np.array_equal(after["y"][kept], (y[kept] + 1) // 2)

    def test_rows_without_target_come_last(self, tmp_path: Path) -> None:
        data = load_diabetes()
        source = write_set(tmp_path / "diabetes.npz", data, X_unlabeled=data.data[:7] + 1)
        assert script("workflows/partly_labeled.py", source, tmp_path / "few.npz", "--share", "0.5").returncode == 0
        with np.load(tmp_path / "few.npz") as after:
            assert after["X"].shape == (449, 10)
            assert np.isnan(after["y"][442:]).all()
            assert np.isfinite(after["y"]).sum() == 221

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        source, target = write_set(tmp_path / "wine.npz", load_wine()), tmp_path / "few.npz"
        target.write_text("mine")
        done = script("workflows/partly_labeled.py", source, target)
        assert (done.returncode, target.read_text()) == (2, "mine")
        assert "exists already" in done.stderr


@pytest.mark.parametrize("workflow", ["classification", "regression"])
def test_every_criterion_is_in_the_workflow_of_its_task(workflow: str) -> None:
    job = load_job(EXAMPLES / f"{workflow}.yaml")
    assert {method.name for method in job.methods} == {n for n, c in criteria().items() if job.data.task in c.tasks}


@pytest.mark.long
@pytest.mark.parametrize(("workflow", "data"), [("classification", load_wine()), ("regression", load_diabetes())])
def test_every_criterion_ranks_by_few_labels(workflow: str, data: Any, tmp_path: Path) -> None:
    source = write_set(tmp_path / "all.npz", data)
    assert script("workflows/partly_labeled.py", source, tmp_path / "few.npz", "--share", "0.3").returncode == 0
    settings = {
        "data.source": tmp_path / "few.npz",
        "data.labels": "y",
        "select.n_features": 5,
        "evaluate.n_selected": "[2, 5]",
        "output.path": tmp_path / "run",
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result = run_here(EXAMPLES / f"{workflow}.yaml", *overrides)
    labels = [method["label"] for method in result["methods"]]
    text = Path(result["report"]).read_text(encoding="utf-8")
    assert all(label in text for label in labels)
    with (tmp_path / "run/evaluation.csv").open(newline="") as file:
        evaluated = {row["method"] for row in csv.DictReader(file)}
    no_feature = "MajorityClass" if workflow == "classification" else "MedianTarget"
    assert evaluated == {*labels, "AllFeatures", no_feature}  # a random order is among the methods


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.release
def test_machines_select_as_well_as_fisher(tmp_path: Path) -> None:
    result = run(EXAMPLES / "svm.yaml", "--set", f"output.path={tmp_path / 'run'}")
    labels = [method["label"] for method in result["methods"]]
    assert result["eliminations"].keys() == {label for label in labels if label != "FisherScore"}
    assert {found["route"] for found in result["eliminations"].values()} == {"exact", "landmarks"}
    with (tmp_path / "run/evaluation.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["n_selected"] == "8"]
    accuracy = {label: np.mean([float(row["value"]) for row in rows if row["method"] == label]) for label in labels}
    assert min(accuracy.values()) > accuracy["FisherScore"] - 0.02 > 0.9


@pytest.mark.long
def test_sselect_experiment_in_small_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = load_digits(n_class=2)
    np.savez(tmp_path / "zero_one.npz", X=data.data[:150], y=data.target[:150])
    arguments = ("--data", tmp_path, "--sets", "zero_one", "absent", "--draws", 1, "--labels", 2, "--workers", 0)
    program = load_paper("sselect", monkeypatch)
    program.main([str(argument) for argument in (*arguments, "--output", tmp_path / "runs")])
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    (header, row, mean), (trade_offs, accuracies, cuts) = tables(lines)
    best, report = lines[-2], captured.err.splitlines()[-1]
    assert f"skipped absent: {tmp_path}/absent.npz is not there" in captured.err
    assert header[:4] == ["labels", "sSelect", "Fisher", "Laplacian"]
    own, fisher, laplacian, over_fisher, over_laplacian = map(float, row[1:6])
    assert row[6:] == ["-", "-"]
    assert min(own, fisher, laplacian) > 0.5
    assert max(own, fisher, laplacian) <= 1
    assert over_fisher == pytest.approx(own - fisher, abs=2e-4)
    assert over_laplacian == pytest.approx(own - laplacian, abs=2e-4)
    assert [float(cell) for cell in mean[4:6]] == [over_fisher, over_laplacian]
    assert trade_offs[1:] == [f"{step / 10:.1f}" for step in range(11)]
    assert [accuracies[0], cuts[0]] == ["10 features, 2 labels, accuracy", "10 features, 2 labels, cut"]
    found = [[float(cell) for cell in row[1:]] for row in (accuracies, cuts)]
    assert best.startswith("- 10 features, 2 labels: best accuracy")
    chosen = [float(word) for word in re.findall(r"at (\d\.\d)", best)]
    assert [found[0][round(10 * chosen[0])], found[1][round(10 * chosen[1])]] == [max(found[0]), min(found[1])]
    assert best.endswith("the paper's best: 0.1 to 0.3")
    assert Path(report.removeprefix("report: ")).is_file()


def test_gains_stand_beside_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    program = load_paper("sselect", monkeypatch)
    accuracy = {"sSelect": 0.9, "Fisher": 0.8, "Laplacian": 0.6}
    result = {2: {method: np.full((1, 1), value) for method, value in accuracy.items()}}
    for name, printed in {"PCMAC": [0.0610, 0.1254], "BASEHOCK": [0.0560, 0.1389]}.items():
        ((_, row, _),) = tables(program.table(name, result))
        assert [float(cell) for cell in row[4:]] == [0.1, 0.3, *printed]


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("sselect", "none of PCMAC.npz, BASEHOCK.npz."),
        ("ssufs", "none of binaryalphadigs.npz, colon.npz, segment.npz, Isolet.npz, wdbc.npz."),
    ],
)
def test_experiment_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, missing: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        load_paper(name, monkeypatch).main(["--data", str(tmp_path)])
    assert stop.value.code == 2
    assert missing in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.cluster
def test_ssufs_experiment_in_small_form(tmp_path: Path) -> None:
    write_set(tmp_path / "segment.npz", load_wine())
    arguments = ("--data", tmp_path, "--sets", "segment", "colon", "--draws", 2, "--gammas", 1, 100, "--workers", 1)
    done = script("workflows/papers/ssufs.py", *arguments, "--etas", 0.1, 1000)
    assert done.returncode == 0, done.stderr
    assert f"skipped colon: {tmp_path}/colon.npz is not there" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("segment: accuracy of a linear SVM, mean over [3, 4, 5, 6,")
    ((header, *rows),) = tables(lines)
    assert header == ["", "paper", "measured", "gamma", "eta", "eta used"]
    assert [row[0] for row in rows] == ["sSelect", "LSDF", "PRPC", "RLSR", "DSSFS", "SSUFS"]
    printed, measured = ([float(row[column].split(" ± ")[0]) for row in rows] for column in (1, 2))
    assert printed == [0.670, 0.869, 0.854, 0.928, 0.928, 0.922]
    assert all(0.85 < value <= 1 for value in measured)
    assert [row[3] for row in rows[:3]] == [""] * 3
    assert all(set(row[3].split(", ")) <= {"1", "100"} for row in rows[3:])
    assert rows[5][3] == rows[3][3]
    assert [row[4:] for row in rows[:5]] == [["", ""]] * 5
    assert set(rows[5][4].split(", ")) <= {"0.1", "1000"}
    assert all(0 < float(bound) <= 1000 for bound in rows[5][5].split(" to "))
    gain = float(lines[-2].removeprefix("- SSUFS less RLSR: ").partition(",")[0])
    assert gain == pytest.approx(measured[5] - measured[3], abs=1.1e-3)
    assert lines[-2].endswith("; in the paper -0.006")


def svm_cells(lines: list[str]) -> dict[str, tuple[str, float, float]]:
    """Return what a table has for each method: the paper's cell, the mean error, and the share with both features."""
    ((header, *rows),) = tables(lines)
    assert header == ["", "paper", "measured", "standard error", "both kept"]
    return {row[0]: (row[1], float(row[2].split(" ± ")[0]), float(row[4])) for row in rows}


@pytest.mark.long
@pytest.mark.cluster
def test_svm_experiment_in_small_form(tmp_path: Path) -> None:
    methods, output = ("SVM-RFE", "SVM-RFE by quarters"), tmp_path / "errors.csv"
    arguments = ("--sizes", 100, "--repeats", 2, "--methods", *methods, "--output", output, "--workers", 1)
    done = script("workflows/papers/svm.py", *arguments)
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title == "100 labeled rows: test error in %, mean and deviation over 2 repeats"
    cells = svm_cells(lines)
    assert [cell[0] for cell in cells.values()] == ["5.8 ± 3", "-"]
    with output.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for method in methods:
        own = [row for row in rows if row["method"] == method]
        assert [(row["n_labeled"], row["repeat"]) for row in own] == [("100", "0"), ("100", "1")]
        assert cells[method][1] == pytest.approx(np.mean([float(row["error"]) for row in own]), abs=0.051)
        assert cells[method][2] == pytest.approx(np.mean([row["n_right"] == "2" for row in own]), abs=0.0051)
    # 3.1 % of the rows are beyond every machine, and half of them are right by chance
    assert all(2 < float(row["error"]) < 60 for row in rows)
    assert [line.split(":")[0] for line in lines if line.startswith("- ")] == ["- SVM-RFE <= 8 %"]
    assert done.stderr.splitlines()[-1].startswith("4 tasks in ")


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.release
def test_svm_experiment_holds_its_bars() -> None:
    retrained = ("SVM-RFE^r", "SVM-RMB^r", "LapSVM-RMB^r")
    methods = ("SVM-RFE", "SVM-RMB", "SVM-RMB, slack recomputed", "LapSVM-RFE", "SVM-RFE by quarters", *retrained)
    done = script("workflows/papers/svm.py", "--sizes", 100, "--repeats", 4, "--methods", *methods)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    held = {line.split(":")[0]: line.rsplit(": ", 1)[1] for line in lines if line.startswith("- ")}
    assert len(held) == 6
    assert set(held.values()) == {"holds"}
    cells = svm_cells(lines)
    assert len(cells) == 8
    # sums of alpha that are kept do not look at labels, and err as the paper's do
    assert cells["SVM-RMB"][1] > 20
    assert cells["SVM-RFE by quarters"][2] == 1.0


@pytest.fixture
def svm_paper(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load_paper("svm", monkeypatch)


def test_svm_experiment_names_tasks_that_fail(svm_paper: Any) -> None:
    tasks = [
        svm_paper.Task("SVM-RFE", 20, 0, {"step": 0.5}),
        svm_paper.Task("SVM-RFE^r", 20, 1, {"C": -1.0}),
        svm_paper.Task("LapSVM-RFE", 20, 2, {"step": 0.5, "laplacian": True}),
    ]
    options = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    local = LocalCluster(1, threads_per_worker=1, processes=False, dashboard_address=None, scheduler_kwargs=options)
    with local as cluster, Client(cluster) as client:
        found, failed = svm_paper.run_all(tasks, client)
    assert [(one.method, one.repeat) for one in found] == [("SVM-RFE", 0), ("LapSVM-RFE", 2)]
    assert len(failed) == 1
    assert failed[0].startswith("failed: SVM-RFE^r, 20 labeled rows, repeat 1: InputError: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--repeats", 0), "--repeats is 0: 1 at least."),
        (("--sizes", 10, 1), "--sizes 1: 2 labeled rows at least"),
        (("--methods", "SVM"), "invalid choice: 'SVM'"),
        (("--output", ROOT / "README.md"), "README.md exists already"),
    ],
)
def test_svm_experiment_refuses(
    svm_paper: Any, capsys: pytest.CaptureFixture[str], arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(SystemExit) as stop:
        svm_paper.main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def readme_commands() -> list[list[str]]:
    blocks = re.findall(
        r"<!-- (?:quickstart|test) command -->\n```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    return [shlex.split(part) for block in blocks for part in block.split("&&")]


def test_readme_commands_name_what_exists() -> None:
    """The commands themselves are run by .ci/run and, for the first, by the test above."""
    for words in readme_commands():
        for word in words:
            if word.endswith(".yaml"):
                assert (ROOT / word).is_file()
    assert "<!-- test command -->" in (ROOT / ".ci/run").read_text()
