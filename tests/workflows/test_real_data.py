"""Whole jobs on real data sets, from the command line: each ends with a report, and no worker takes 1 GB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.main_job import REAL
from tests.execution.runs import run, write_job

pytestmark = [pytest.mark.shared_data, pytest.mark.cluster]


def real_run(shared_data: Path, folder: Path, name: str) -> dict[str, Any]:
    settings = REAL[name]
    data = {"source": str(shared_data / f"{name}.npz"), "labels": "y", "task": settings["task"]}
    job = write_job(
        folder,
        "replaced",
        data=data,
        transform={"graph": settings.get("graph")},
        graph={"n_neighbors": 10},
        methods=settings["methods"],
        cluster={"workers": 2, "memory_limit": "1GB"},
    )
    return run(job)


@pytest.mark.parametrize("name", REAL)
def test_job_ends_with_a_report(shared_data: Path, tmp_path: Path, name: str) -> None:
    result = real_run(shared_data, tmp_path, name)
    assert Path(result["report"]).stat().st_size > 30_000
    assert max(stage["peak_bytes"] for stage in result["stages"]) < 10**9
    assert all(stage["peak_bytes"] <= stage["planned_peak_bytes"] for stage in result["stages"])
    assert result["data"]["sparse"] == (name == "PCMAC")
