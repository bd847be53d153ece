"""The shipped workflows and the README's commands do what they say."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits, load_wine

from daskfs.job import load_job
from daskfs.methods.registry import criteria
from daskfs.status import plan_job
from tests.execution.runs import command, run

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / "workflows").glob("*.yaml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_every_workflow_plans(path: Path, tmp_path: Path) -> None:
    plan = plan_job(load_job(path, [f"output.path={tmp_path / 'run'}"]))
    assert plan["peak_bytes"] <= plan["memory_limit"]
    assert not (tmp_path / "run").exists()


@pytest.mark.cluster
def test_quickstart_says_where_ranking_and_report_are(tmp_path: Path) -> None:
    arguments = command("run", ROOT / "workflows/quickstart.yaml", "--set", f"output.path={tmp_path / 'run'}")
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ranking = re.search(r"^ranking: (.*)$", done.stdout, re.MULTILINE)
    report = re.search(r"^report: +(.*)$", done.stdout, re.MULTILINE)
    assert ranking
    assert report
    assert Path(report[1]).stat().st_size > 50_000
    with Path(ranking[1]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 64
    assert [row["name"] for row in rows if row["note"]] == 4 * ["pixel_0_0", "pixel_4_0", "pixel_4_7"]


@pytest.mark.cluster
def test_large_workflow_in_short_form_uses_both_workers(tmp_path: Path) -> None:
    source = "synthetic:lowrank?n_samples=20000&n_features=64&rank=10&seed=0"
    run(ROOT / "workflows/large.yaml", "--set", f"data.source={source}", "--set", f"output.path={tmp_path / 'run'}")
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert len({event["process"] for event in events}) == 2
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


class TestPartlyLabelled:
    def test_each_class_keeps_its_share(self, tmp_path: Path) -> None:
        source, target = write_set(tmp_path / "wine.npz", load_wine()), tmp_path / "few.npz"
        done = script("workflows/partly_labelled.py", source, target, "--share", "0.1")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("178 rows, 18 with a label\n")
        with np.load(source) as before, np.load(target) as after:
            kept = after["y"] >= 0
            assert np.bincount(after["y"][kept]).tolist() == [6, 7, 5]
            assert np.array_equal(after["y"][kept], before["y"][kept])
            assert np.array_equal(after["X"], before["X"])

    def test_rows_without_target_come_last(self, tmp_path: Path) -> None:
        data = load_diabetes()
        source = write_set(tmp_path / "diabetes.npz", data, X_unlabeled=data.data[:7] + 1)
        assert script("workflows/partly_labelled.py", source, tmp_path / "few.npz", "--share", "0.5").returncode == 0
        with np.load(tmp_path / "few.npz") as after:
            assert after["X"].shape == (449, 10)
            assert np.isnan(after["y"][442:]).all()
            assert np.isfinite(after["y"]).sum() == 221

    def test_nothing_is_overwritten(self, tmp_path: Path) -> None:
        source, target = write_set(tmp_path / "wine.npz", load_wine()), tmp_path / "few.npz"
        target.write_text("mine")
        done = script("workflows/partly_labelled.py", source, target)
        assert (done.returncode, target.read_text()) == (2, "mine")
        assert "exists already" in done.stderr


@pytest.mark.cluster
@pytest.mark.parametrize(("workflow", "data"), [("classification", load_wine()), ("regression", load_diabetes())])
def test_every_criterion_ranks_by_few_labels(workflow: str, data: Any, tmp_path: Path) -> None:
    source = write_set(tmp_path / "all.npz", data)
    assert script("workflows/partly_labelled.py", source, tmp_path / "few.npz", "--share", "0.3").returncode == 0
    settings = {
        "data.source": tmp_path / "few.npz",
        "data.labels": "y",
        "select.n_features": 5,
        "evaluate.n_selected": "[2, 5]",
        "output.path": tmp_path / "run",
    }
    overrides = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result = run(ROOT / "workflows" / f"{workflow}.yaml", *overrides)
    labels = [method["label"] for method in result["methods"]]
    text = Path(result["report"]).read_text(encoding="utf-8")
    assert all(label in text for label in labels)
    with (tmp_path / "run/evaluation.csv").open(newline="") as file:
        evaluated = {row["method"] for row in csv.DictReader(file)}
    assert evaluated == set(labels)
    task = load_job(ROOT / "workflows" / f"{workflow}.yaml").data.task
    assert {method["name"] for method in result["methods"]} == {
        name for name, criterion in criteria().items() if task in criterion.tasks
    }


@pytest.mark.cluster
def test_sselect_experiment_in_small_form(tmp_path: Path) -> None:
    data = load_digits(n_class=2)
    write_set(tmp_path / "zero_one.npz", data)
    arguments = ("--data", tmp_path, "--set", "zero_one", "--draws", 1, "--labels", 2)
    done = script("workflows/papers/sselect.py", *arguments)
    assert done.returncode == 0, done.stderr
    header, row, mean = done.stdout.splitlines()[1:]
    assert header.split()[:4] == ["labels", "sSelect", "Fisher", "Laplacian"]
    own, fisher, laplacian, over_fisher, over_laplacian = map(float, row.split()[1:])
    assert min(own, fisher, laplacian) > 0.5
    assert max(own, fisher, laplacian) <= 1
    assert over_fisher == pytest.approx(own - fisher, abs=2e-4)
    assert over_laplacian == pytest.approx(own - laplacian, abs=2e-4)
    assert [float(cell) for cell in mean.split()[1:]] == [over_fisher, over_laplacian]


def test_sselect_experiment_names_what_is_missing(tmp_path: Path) -> None:
    done = script("workflows/papers/sselect.py", "--data", tmp_path)
    assert done.returncode == 2
    assert "PCMAC.npz is not there" in done.stderr


@pytest.mark.cluster
def test_ssufs_experiment_in_small_form(tmp_path: Path) -> None:
    write_set(tmp_path / "segment.npz", load_wine())
    arguments = ("--data", tmp_path, "--sets", "segment", "colon", "--draws", 1, "--gammas", 1, 100, "--workers", 1)
    done = script("workflows/papers/ssufs.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"skipped colon: {tmp_path}/colon.npz is not there" in done.stderr
    title, header, *rows = done.stdout.splitlines()
    assert title.startswith("segment: accuracy of a linear SVM, mean over [3, 4, 5, 6,")
    assert header.split() == ["paper", "measured", "gamma"]
    cells = [row.replace(" +- ", " ").split() for row in rows]
    assert [row[0] for row in cells] == ["sSelect", "LSDF", "PRPC", "RLSR", "DSSFS", "SSUFS"]
    assert [float(row[1]) for row in cells] == [0.670, 0.869, 0.854, 0.928, 0.928, 0.922]
    assert all(0.85 < float(row[3]) <= 1 for row in cells)
    assert all({row[5].strip(","), row[-1]} <= {"1", "100"} for row in cells[3:])


def test_ssufs_experiment_names_what_is_missing(tmp_path: Path) -> None:
    done = script("workflows/papers/ssufs.py", "--data", tmp_path)
    assert done.returncode == 2
    assert "binaryalphadigs.npz, colon.npz, segment.npz, Isolet.npz" in done.stderr


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
