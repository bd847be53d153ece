"""Names from data that would act on a page, on a terminal or in a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from daskfs.execution.progress import LiveProgress, PlainProgress
from daskfs.ranking.tables import csv_bytes
from tests.cli.command import daskfs, refused, rows_of
from tests.report.test_render import assert_sound

pytestmark = [pytest.mark.cluster, pytest.mark.figures]

INPUT = 3
NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "]]></text></svg><script>alert(1)</script>",
    "</style></title><iframe src=//x>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "\u202eright to left",
)
CLASSES = ("<b onclick=alert(1)>bold", "\x1b[2Jcleared", "=1+1", "</td><script>alert(2)</script>")
FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
FOLDER = '"><img src=x onerror=alert(1)> \x1b[31m'


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished study on a table with such names, below a directory with one."""
    folder = tmp_path_factory.mktemp("hostile") / FOLDER
    folder.mkdir()
    rng = np.random.default_rng(0)
    y = np.arange(80) % len(CLASSES)
    X = rng.normal(size=(80, len(NAMES))) + y[:, None] * rng.random(len(NAMES))
    with (folder / "X.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*NAMES, CLASSES[0]])
        rows.writerows([*row, CLASSES[code]] for row, code in zip(X.tolist(), y, strict=True))
    study = {
        "datasets": {name: {"source": str(folder / "X.csv"), "labels": CLASSES[0]} for name in ("one", "two")},
        "methods": ["VarianceScore", "FisherScore", "LaplacianScore"],
        "select": {"n_features": 4, "redundancy": {"threshold": 0.9}},
        "evaluate": {"n_selected": [2, 4], "n_splits": 2},
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "study"), "title": NAMES[0] + NAMES[5]},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    outcome = daskfs("compare", folder / "study.yaml")
    assert outcome.code == 0, outcome.err
    for text in (outcome.out, outcome.err):
        assert text
        assert all(line.isprintable() for line in text.splitlines())
    return folder


@pytest.mark.parametrize("page", ["comparison.html", "one/report.html"])
def test_pages_show_names_as_text(run: Path, page: str) -> None:
    html = (run / "study" / page).read_text(encoding="utf-8")
    of_runs = {f"{name}/report.html" for name in ("one", "two")}
    links = of_runs if page == "comparison.html" else {file.name for file in (run / "study" / "one").glob("*.csv")}
    found = assert_sound(html, links)
    assert "<script>alert(1)</script>" in found.text
    assert "\x1b" not in html
    if page != "comparison.html":
        for name in (*NAMES[:5], *NAMES[6:10], CLASSES[0], CLASSES[3]):
            assert name in found.text


def test_tables_run_nothing_in_a_spreadsheet(run: Path) -> None:
    ranking = run / "study" / "one" / "ranking.csv"
    assert {row["name"] for row in rows_of(ranking)} == {f"'{name}" if name[0] in "=@" else name for name in NAMES}
    assert set(pq.read_table(ranking.with_suffix(".parquet"))["name"].to_pylist()) == set(NAMES)
    for path in (run / "study").rglob("*.csv"):
        for row in rows_of(path):
            assert not [text for text in row.values() if text.startswith(FORMULAS) and not is_number(text)], path


@given(st.lists(st.text("=+-@\t\r\n'\",;a1"), min_size=1))
def test_a_quote_more_defuses_a_name(names: list[str]) -> None:
    rows = [(name, -0.5, -1, None) for name in names]
    cells = list(csv.reader(io.StringIO(csv_bytes(["a", "b", "c", "d"], rows).decode(), newline="")))[1:]
    assert [row[1:] for row in cells] == [["-0.5", "-1", ""]] * len(names)
    written = [row[0] for row in cells]
    assert not [text for text in written if text.startswith(FORMULAS)]
    assert [text[bool(re.match("'+[=+@\t\r\n-]", text)) :] for text in written] == names
    assert len(set(written)) == len(set(names))


def test_the_command_line_writes_plain_lines(run: Path) -> None:
    source = run / "X.csv"
    outcomes = [
        daskfs("inspect", source, "--labels", CLASSES[0]),
        daskfs("plan", run / "study.yaml"),
        daskfs("status", run / "study" / "one"),
        daskfs("report", run / "study" / "one"),
        daskfs("inspect", source, "--labels", "\x1b[31mnone"),
        daskfs("inspect", source, "--exclude", "\x1b[31mnone\r\n"),
        daskfs("status", run / "\x1b[31mnone"),
        daskfs("run", run / "\x1b[31mnone.yaml"),
    ]
    for outcome in outcomes:
        text = outcome.out + outcome.err
        assert text
        assert all(line.isprintable() for line in text.splitlines()), text
        assert "\r" not in text
    assert [outcome.code for outcome in outcomes[2:]] == [0, 0, INPUT, INPUT, INPUT, 2]


def test_values_in_a_bad_table_are_told_as_text(run: Path, tmp_path: Path) -> None:
    lines = (run / "X.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "X.csv").write_text("".join([*lines[:3], "\x1b[31m," * len(NAMES) + "b\n", *lines[3:]]))
    outcome = daskfs("inspect", tmp_path / "X.csv", "--labels", CLASSES[0])
    refused(outcome, INPUT, "X.csv")
    assert outcome.err[:-1].isprintable()


def test_progress_writes_plain_lines(capfd: pytest.CaptureFixture[str]) -> None:
    for progress in (PlainProgress(), LiveProgress()):
        progress.message("\x1b[31mred\x07\rbegins\nagain [bold]not bold[/bold]")
        progress.close()
        told = capfd.readouterr().err
        assert "\x1b[31m" not in told
        assert "\x07" not in told
        assert " [31mred  begins again [bold]not bold[/bold]" in " ".join(told.splitlines())
