"""Memory limits: too small a one is refused before anything starts, with one that would do; and a unit that takes more
than it was planned to is named.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from daskfs import make_job
from daskfs.criteria.slab import SCORE_STAGE
from daskfs.errors import MemoryPlanError
from daskfs.runs.status import plan_job
from daskfs.stages.cost import PROCESS_BYTES, MiB, Workers
from daskfs.stages.limits import check_memory
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from tests.cli.command import daskfs
from tests.execution.outgrowing import WAY_KEY
from tests.execution.runs import local_cluster, run, write_job

TALL = "synthetic:mixture?n_samples=9000&n_features=24&n_classes=3&n_informative=8&seed=1"
ENOUGH = re.compile(r"(\d+) MiB or more")
MACHINE = re.compile(r"Set cluster.memory_limit to (\d+) MiB or more, or start fewer workers\.")


def enough(message: str) -> int:
    """Return the limit, in MiB, that a refusal names."""
    found = ENOUGH.search(message)
    assert found is not None, message
    return int(found[1])


# ------------------------------------------------------------------------------------------- what would do really does
JOBS: dict[str, dict[str, Any]] = {
    "tall": {
        "data": {"source": "synthetic:mixture?n_samples=300000&n_features=40&n_classes=4&seed=1"},
        "methods": ["LaplacianScore", "RLSR", "RRPC", {"name": "SVMRFE", "large_n": "landmarks"}],
    },
    "wide": {
        "data": {"source": "synthetic:mixture?n_samples=2000&n_features=20000&n_classes=4&seed=1"},
        "methods": ["LaplacianScore", {"name": "SSelect", "trade_off": "auto"}, "InformationGainScore"],
    },
    "sparse": {
        "data": {"source": "synthetic:sparse?n_samples=20000&n_features=4000&density=0.005&n_classes=4&seed=1"},
        "methods": ["LSDF", {"name": "SSUFS", "n_correlation_rows": 500}],
        "evaluate": {"setting": "inductive", "labels": [50]},
    },
    "by cells": {
        "data": {"source": "synthetic:lowrank?n_samples=400000&n_features=64&rank=8&seed=1"},
        "methods": ["SemiSupervisedLaplacianScore"],
        "graph": {"engine": "cells"},
    },
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("limit", [410, 480])
@pytest.mark.parametrize("name", JOBS)
def test_a_plan_under_the_limit_that_is_named_is_not_refused(name: str, limit: int, threads: int) -> None:
    """Though another limit cuts tiles and groups otherwise; and a limit far below it is."""

    def planned(mebibytes: int) -> dict[str, Any]:
        cluster = {"workers": 2, "threads": threads, "memory_limit": f"{mebibytes}MiB"}
        job = {"output": {"path": "never-made"}, "evaluate": None, **JOBS[name], "cluster": cluster}
        return plan_job(make_job(job))

    with pytest.raises(MemoryPlanError) as refused:
        planned(limit)
    named = enough(str(refused.value))
    assert limit < named
    assert planned(named)["peak_bytes"] <= 0.9 * named * MiB
    with pytest.raises(MemoryPlanError):
        planned(int(0.8 * named))


def test_stages_that_grow_with_their_limit() -> None:
    """The one that is named is one under which all of them fit."""

    def planned_at(limit: int) -> Sequence[Stage]:
        sizes = PROCESS_BYTES + limit // 8, 500 * MiB
        return [
            Stage(name, SCORE_STAGE.reference, 1, StageParameters(), size)
            for name, size in zip(("grows", "stays"), sizes, strict=True)
        ]

    for limit in (420, 450, 500):
        with pytest.raises(MemoryPlanError) as refused:
            check_memory(planned_at(limit * MiB), Workers(limit * MiB), planned_at=planned_at)
        named = enough(str(refused.value)) * MiB
        check_memory(planned_at(named), Workers(named), planned_at=planned_at)


# --------------------------------------------------------------------------------------------------------- as users see
def set_limit(mebibytes: int) -> tuple[str, str]:
    return "--set", f"cluster.memory_limit={mebibytes}MiB"


@pytest.mark.long
@pytest.mark.cluster
def test_runs_and_plans_begin_under_the_limit_that_is_named(tmp_path: Path) -> None:
    job = write_job(tmp_path, TALL, cluster={"workers": 1}, evaluate=None)
    refused = daskfs("run", job, *set_limit(420))
    assert refused.code == 2
    assert "stage assign-euclidean needs " in refused.err
    assert MACHINE.search(refused.err)
    assert refused.err.count("\n") == 1
    assert not (tmp_path / "run" / "run.json").exists()
    assert daskfs("plan", job, *set_limit(420)).err == refused.err
    named = enough(refused.err)
    assert daskfs("plan", job, *set_limit(named)).code == 0
    result = run(job, *set_limit(named))
    assert result["status"] == "done"
    assert max(stage["peak_bytes"] for stage in result["stages"]) <= 0.9 * named * MiB


@pytest.mark.cluster
def test_conversions_begin_under_the_limit_that_is_named(tmp_path: Path) -> None:
    source = "synthetic:mixture?n_samples=3000&n_features=3000&n_classes=3&seed=1"
    call = "convert", source, tmp_path / "tiles", "--workers", "0", "-q"
    refused = daskfs(*call, "--memory-limit", "430MiB")
    assert refused.code == 2
    assert "stage ingest needs " in refused.err
    assert not (tmp_path / "tiles" / "plan.json").exists()
    assert daskfs(*call, "--memory-limit", f"{enough(refused.err)}MiB").code == 0


@pytest.mark.cluster
def test_workers_that_are_there_must_have_the_limit_that_is_named(tmp_path: Path) -> None:
    def outcome(limit: int) -> Any:
        with local_cluster(1, limit * MiB) as cluster:
            where = {"address": cluster.scheduler_address}
            return daskfs("run", write_job(tmp_path, TALL, cluster=where, evaluate=None), "-q")

    refused = outcome(440)
    assert refused.code == 2
    assert "the limit of the cluster's workers, or cluster.memory_limit, is 440 MiB" in refused.err
    assert f"Start workers with one of {enough(refused.err)} MiB or more.\n" in refused.err
    assert not (tmp_path / "run" / "run.json").exists()
    assert outcome(enough(refused.err)).code == 0


@pytest.mark.long
# --------------------------------------------------------------------------------------- more than was planned, at last
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("taken", "unit [1-9] of stage score was running, or next, on each of the workers that died, at last tls://"),
        ("denied", "unit [1-9] of stage score failed: MemoryError: Unable to allocate 8.00 GiB"),
    ],
)
def test_a_unit_that_outgrows_its_worker_is_named(tmp_path: Path, way: str, told: str) -> None:
    """With what it was planned at, and not a word of Dask's. Every unit but the first does, and the next ones may
    before the driver has heard of one: any of them is named, with its file.
    """
    source = "synthetic:mixture?n_samples=3000&n_features=200&n_classes=3&seed=1"
    job = write_job(tmp_path, source, methods=["VarianceScore"], evaluate=None, cluster={"workers": 1})
    done = subprocess.run(
        [sys.executable, "-m", "tests.execution.outgrowing", "run", str(job), "-q", *set_limit(1024)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, WAY_KEY: way},
    )
    assert done.returncode == 1, done.stderr
    assert re.search(told, done.stderr), done.stderr
    planned = json.loads((tmp_path / "run" / "plan.json").read_text())["stages"]
    peak = next(stage["peak_bytes"] for stage in planned if stage["name"] == "score")
    assert f"planned at {peak // MiB} MiB" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stdout == ""
    (path,) = (path for path in (tmp_path / "run" / "failures").iterdir() if f"({path})" in done.stderr)
    text = path.read_text()
    if way == "taken":
        memory = r"(\d+ bytes at its last report|not reported before its end), of at most 1073741824"
        assert re.search(rf"its memory: {memory}", text), text
        assert "its end: ended by signal 15 (Terminated)" in text or "its end: ended by signal 9 (Killed)" in text, text
    else:
        assert "in outgrow" in text
