"""A finished run of an earlier version, as it left it: it can be looked at, and is never continued in silence."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

from daskfs.version import CHANGED_SINCE
from tests.cli.command import daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

STORED = Path(__file__).parent / "run_of_0_1_0.tar.gz"
"""Of the job below, without a report, from the last commit of version 0.1.0."""
WRITTEN_IN = "/tmp/oldrun"


def unpacked(run: Path) -> Path:
    """Unpack the run into a directory, and return it."""
    with tarfile.open(STORED) as archive:
        archive.extractall(run, filter="data")
    for path in (run / "run.json", run / "plan.json"):
        path.write_text(path.read_text().replace(WRITTEN_IN, str(run)))
    return run


def job_of(run: Path) -> Path:
    """Write the job of the run."""
    found: dict[str, Any] = {
        "data": {"source": "sklearn:iris"},
        "methods": ["FisherScore", "LaplacianScore"],
        "evaluate": {"n_selected": [1, 2]},
        "cluster": {"workers": 0},
        "output": {"path": str(run)},
    }
    return write_job(run.parent, found)


def test_it_can_be_looked_at(tmp_path: Path) -> None:
    run, other = unpacked(tmp_path / "run"), unpacked(tmp_path / "other")
    assert daskfs("status", run).out.startswith(f"{run}: done")
    assert daskfs("report", run).code == 0
    page = (run / "report.html").read_text()
    assert "This evaluation is transductive." in page
    assert "FisherScore saw their labels, too" in page
    assert daskfs("verify", run, "-q").code == 0
    assert daskfs("export", run, tmp_path / "ranking.parquet").code == 0
    compared = daskfs("compare", run, other, "--output", tmp_path / "both", "--json").json
    assert {row["method"] for row in compared["average_ranks"]} == {"FisherScore", "LaplacianScore"}


def test_it_is_not_continued(tmp_path: Path) -> None:
    """One message says what changed and what to do."""
    job = job_of(unpacked(tmp_path / "run"))
    before = (tmp_path / "run" / "ranking.csv").read_bytes()
    outcome = daskfs("run", job, "-q")
    refused(outcome, 3, "was begun by daskfs 0.1.0", CHANGED_SINCE["0.1.0"], "Let daskfs 0.1.0 finish it")
    assert (tmp_path / "run" / "ranking.csv").read_bytes() == before
    assert daskfs("run", job, "-q", "--overwrite").code == 0
    assert {row["setting"] for row in rows_of(tmp_path / "run" / "evaluation.csv")} == {"inductive"}
