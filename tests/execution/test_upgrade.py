"""Finished runs of earlier versions, as they left them: they can be looked at, and are never continued in silence."""

from __future__ import annotations

import json
import tarfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from daskfs.version import CHANGED_SINCE
from tests.cli.command import daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

JOBS: dict[str, dict[str, Any]] = {
    "0.1.0": {"methods": ["FisherScore", "LaplacianScore"], "evaluate": {"n_selected": [1, 2]}},
    "0.2.0": {
        "methods": ["FisherScore", "LaplacianScore", "LSDF"],
        "evaluate": {"n_selected": [1, 2], "labels": [5], "n_draws": 2, "train_on": "labelled"},
    },
}
"""Jobs by version; ``run_of_VERSION.tar.gz`` holds the run of each, without a report."""
TRANSDUCTIVE = "This evaluation is transductive."
SHOWN = {
    "0.1.0": ("FisherScore saw their labels, too", TRANSDUCTIVE),
    "0.2.0": ("the labels that the selection saw",),
}
"""What the report shows of facts that the versions wrote otherwise."""
WRITTEN_IN = "/tmp/oldrun"


def unpacked(version: str, run: Path) -> Path:
    """Unpack the run into a directory, and return it."""
    with tarfile.open(Path(__file__).parent / f"run_of_{version.replace('.', '_')}.tar.gz") as archive:
        options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 and later
        archive.extractall(run, **options)
    for path in (run / "run.json", run / "plan.json", run / "tiles" / "plan.json"):
        path.write_text(path.read_text().replace(WRITTEN_IN, str(run)))
    return run


def job_of(version: str, run: Path) -> Path:
    """Write the job of the run."""
    found: dict[str, Any] = {
        "data": {"source": "sklearn:iris"},
        **JOBS[version],
        "cluster": {"workers": 0},
        "output": {"path": str(run)},
    }
    return write_job(run.parent, found)


def respelled(version: str) -> AbstractContextManager[object]:
    """Expect the note on a value in a former spelling, where the job has one."""
    if JOBS[version]["evaluate"].get("train_on") == "labelled":
        return pytest.warns(FutureWarning, match="train_on 'labelled' is spelled 'labeled' now")
    return nullcontext()


@pytest.mark.parametrize("version", JOBS)
def test_it_can_be_looked_at(version: str, tmp_path: Path) -> None:
    run, other = unpacked(version, tmp_path / "run"), unpacked(version, tmp_path / "other")
    assert daskfs("status", run).out.startswith(f"{run}: done")
    assert daskfs("report", run).code == 0
    page = (run / "report.html").read_text()
    assert all(text in page for text in SHOWN[version])
    assert daskfs("verify", run, "-q").code == 0
    assert daskfs("export", run, tmp_path / "ranking.parquet").code == 0
    compared = daskfs("compare", run, other, "--output", tmp_path / "both", "--json").json
    assert {row["method"] for row in compared["average_ranks"]} == set(JOBS[version]["methods"])


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("stages", {"a": 1}),
        ("data", 3),
        ("graphs", [None]),
        ("versions", "x"),
        ("evaluation", 3),
        ("batches", [7]),
        ("batches", [{}]),
        ("recomputed", 3),
        ("damages", 3),
    ],
)
def test_damaged_facts_are_named(key: str, wrong: object, tmp_path: Path) -> None:
    run = unpacked("0.2.0", tmp_path / "run")
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, key: wrong}))
    refused(daskfs("report", run), 3, f"{run}/run.json is damaged: {key}", "Restore it from a copy")


def test_facts_that_are_null_have_defaults(tmp_path: Path) -> None:
    run = unpacked("0.2.0", tmp_path / "run")
    facts = json.loads((run / "run.json").read_text())
    missing: dict[str, object] = {
        "stages": [{}],
        "batches": None,
        "damages": None,
        "recomputed": None,
        "versions": {"dask": None},
    }
    (run / "run.json").write_text(json.dumps({**facts, **missing}))
    assert daskfs("report", run).code == 0


@pytest.mark.parametrize("version", JOBS)
def test_it_is_not_continued(version: str, tmp_path: Path) -> None:
    """One message says what changed and what to do."""
    run = unpacked(version, tmp_path / "run")
    job = job_of(version, run)
    before = (run / "ranking.csv").read_bytes()
    with respelled(version):
        outcome = daskfs("run", job, "-q")
    refused(outcome, 3, f"was begun by daskfs {version}", CHANGED_SINCE[version], f"Let daskfs {version} finish it")
    assert (run / "ranking.csv").read_bytes() == before
    with respelled(version):
        assert daskfs("run", job, "-q", "--overwrite").code == 0
    assert {row["setting"] for row in rows_of(run / "evaluation.csv")} == {"inductive"}
