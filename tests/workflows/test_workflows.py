"""The shipped workflows and the README's commands do what they say."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from daskfs.job import load_job
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
