"""Methods and warnings have one order in the terminal, the report, ``run.json``, ``repr`` and ``--json``."""

from __future__ import annotations

import html
import json
import re
from typing import Any, NamedTuple

import numpy as np
import pytest

import daskfs
from daskfs.report.trust import doubts_of
from daskfs.run_warning import LEVELS, RunWarning, merge_warnings
from tests.cli.command import daskfs as command
from tests.optional import pandas as pd

pytestmark = pytest.mark.cluster


class Outputs(NamedTuple):
    """What a run shows."""

    run: dict[str, Any]
    in_json: dict[str, Any]
    terminal: str
    stderr: str
    result: daskfs.RunResult
    page: str


def texts_of(markup: str, tag: str) -> list[str]:
    """Return the texts of all elements of a tag, in which no other one of it lies."""
    found = re.findall(rf"<{tag}\b[^>]*>(.*?)</{tag}>", markup, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", text)).strip() for text in found]


def between(markup: str, start: str, end: str) -> str:
    """Return what lies between two texts."""
    return markup.partition(start)[2].partition(end)[0]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """Rank a table with a leak, a column of text and one of groups; what is shown is wide enough for all methods."""
    folder = tmp_path_factory.mktemp("order")
    rng, n = np.random.default_rng(0), 90
    X = rng.normal(size=(n, 12))
    y = X[:, 3] * 2 + X[:, 4] + rng.normal(size=n)
    table = pd.DataFrame({f"s{number}": X[:, number] for number in range(12)})
    table = table.assign(after=3 - 2 * y, note="text", site=[f"p{row % 5}" for row in range(n)], y=y)
    table.to_csv(folder / "plant.csv", index=False)
    sizes = "evaluate={n_selected: [2, 4], n_splits: 3}"
    options = ("--labels", "y", "--output", folder / "run", "--set", "cluster.workers=0", "--set", sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        first = command("rank", folder / "plant.csv", *options, "-v")
        assert first.code == 0, first.err
        again = command("rank", folder / "plant.csv", *options, "--json", "-q")
    run = json.loads((folder / "run" / "run.json").read_text())
    page = (folder / "run" / "report.html").read_text()
    return Outputs(run, again.json, first.out, first.err, daskfs.open_run(folder / "run"), page)


def test_methods(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run = outputs.run
    order = [one["method"] for one in run["best"]]
    best, others = run["verdict"]["method"], [method["label"] for method in run["methods"]]
    others.remove(best)
    assert order == [best, *sorted(others, key=lambda label: label != "Consensus")]
    assert [one["is_best"] for one in run["best"]] == [True] + [False] * len(others)
    assert outputs.in_json["best"] == run["best"]
    heading = [f"{best} (best)", *order[1:]]
    for shown in (outputs.terminal, repr(outputs.result)):
        (line,) = [line for line in shown.splitlines() if line.lstrip().startswith(heading[0])][-1:]
        assert re.split(r" {2,}", line.strip()) == heading
    assert texts_of(outputs.result._repr_html_(), "th")[: len(order) + 1] == ["", *heading]
    table = between(outputs.page, '<table class="first">', "</thead>")
    assert texts_of(table, "th")[1:] == heading
    contents = between(between(outputs.page, '<nav class="toc"', "</nav>"), 'href="#ranking"', "</ul>")
    assert texts_of(contents, "a")[-len(order) :] == order


def test_the_ranking_is_shown_before_the_evaluation(outputs: Outputs) -> None:
    """In the order of the job, as the best is not known yet; stdout holds the final one alone."""
    lines = [line.partition(" ")[2] for line in outputs.stderr.splitlines()]
    place = lines.index("first features, before the evaluation:")
    labels = [method["label"] for method in outputs.run["methods"]]
    assert lines[place + 1].split() == sorted(labels, key=lambda label: label != "Consensus")
    assert any(line.startswith("the evaluation follows: ") for line in lines[place:])
    assert not [line for line in lines[:place] if line.startswith("stage evaluate")]
    assert outputs.terminal.count("before the evaluation") == 0


def test_warnings(outputs: Outputs) -> None:
    warnings = outputs.run["warnings"]
    kinds = [one["kind"] for one in warnings]
    assert kinds[:2] == ["leak: repeats the target", "columns left out"]
    assert "groups" in kinds
    left_out = warnings[1]["subject"]
    named = f"{len(left_out)}: {', '.join(map(repr, left_out))}"
    assert f"<dt>Columns left out</dt><dd>{named}</dd>" in html.unescape(outputs.page)
    levels = [LEVELS.index(one["level"]) for one in warnings]
    assert levels == sorted(levels)
    assert outputs.in_json["warnings"] == warnings
    assert [one.to_json() for one in outputs.result.warnings] == warnings
    texts = [f"{one['text']}." for one in warnings]
    assert [line.removeprefix("daskfs: warning: ") for line in outputs.stderr.splitlines()][-len(texts) :] == texts
    assert texts_of(between(outputs.page, '<section id="notices">', "</section>"), "p") == texts
    told = [
        line.removeprefix("warning: ") for line in repr(outputs.result).splitlines() if line.startswith("warning: ")
    ]
    assert told == [text for text, one in zip(texts, warnings, strict=True) if one["level"] in ("voids", "changes")]
    assert texts_of(outputs.result._repr_html_(), "li") == [one["text"] for one in warnings]


def test_doubts_stand_beside_the_verdict(outputs: Outputs) -> None:
    (doubt,) = outputs.run["verdict"]["doubts"]
    assert doubt == "rests on after, which repeats the target"
    headline = between(outputs.page, '<p class="verdict">', "</p>")
    first = outputs.terminal.splitlines()
    for shown in (headline, next(line for line in first if " features: " in line), repr(outputs.result)):
        assert f"({doubt})" in shown


@pytest.mark.parametrize("setting", ["inductive", "transductive"])
def test_doubts_are_of_the_method_and_setting_of_the_verdict(setting: str) -> None:
    warnings = [
        RunWarning("leak: separates the classes", "voids", "t", ("x1",)),
        RunWarning("leak: separates the classes", "voids", "t", ("F",)),  # a feature that is named like a method
        RunWarning("no better than random", "voids", "t", ("G",)),
        RunWarning("labels seen", "voids", "t", ("F",)),
        RunWarning("copies of rows", "voids", "t"),
    ]
    found = doubts_of({"method": "F", "setting": setting}, ["x0", "x1"], warnings)
    assert found[0] == "rests on x1, which separates the classes"
    assert found[-1] == "models were trained on copies of tested rows"
    assert found[1:-1] == ([] if setting == "inductive" else ["it saw the labels of the tested rows"])


def test_equal_warnings_are_one() -> None:
    def short(method: str, count: int) -> RunWarning:
        return RunWarning("short", "limits", f"ranks {count}", (method,), "method")

    hint, void = RunWarning("a", "hint", "do"), RunWarning("b", "voids", "no")
    merged = merge_warnings([hint, short("A", 4), short("B", 5), *map(lambda m: short(m, 4), "CDE"), void, hint])
    assert list(map(str, merged)) == ["no", "4 methods (A, C, D and 1 more): ranks 4", "method B: ranks 5", "do"]
    assert [RunWarning.from_json(one.to_json()).to_json() for one in merged] == [one.to_json() for one in merged]
