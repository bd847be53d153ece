"""Results depend on the processor: what computed is recorded, a mixture is told of, and workers can be pinned."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dask
import pytest

from daskfs.errors import JobError, RunStoppedError
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.clusters.worker_environment import worker_environment
from daskfs.execution.connection import connect
from daskfs.job.job import load_job, make_cluster
from daskfs.runs.pipeline import run_job
from daskfs.stages import units
from daskfs.stages.processors import computed_by
from tests.cli.command import daskfs, texts
from tests.execution.runs import HERE, Stop, records, write_job

SOURCE = "synthetic:mixture?n_samples=300&n_features=8&n_classes=3&n_informative=4&seed=2"
MIXED = "computed by different processors (a; b)"
GiB = 2**30


def small_job(folder: Path) -> Path:
    return write_job(folder, SOURCE, methods=["VarianceScore"], evaluate=None)


@pytest.mark.cluster
def test_every_record_says_what_computed_it(tmp_path: Path) -> None:
    assert daskfs("run", small_job(tmp_path), "-q", *HERE).code == 0
    kinds = {record["computed_by"] for record in records(tmp_path / "run").values()}
    assert kinds == {computed_by()}
    assert "NumPy" in computed_by()
    assert "different processors" not in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.cluster
def test_a_run_on_two_kinds_of_processors_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = small_job(tmp_path)
    monkeypatch.setattr(units, "computed_by", lambda: "a")
    with pytest.raises(RunStoppedError):
        run_job(load_job(job, ["cluster.workers=0"]), Stop("ingest", 0))
    monkeypatch.setattr(units, "computed_by", lambda: "b")
    outcome = daskfs("run", job, *HERE)
    assert outcome.code == 0
    assert outcome.err.count(MIXED) == 1
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [text for text in texts(run) if MIXED in text]
    assert MIXED in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.cluster
def test_workers_are_pinned_to_kernels_that_all_nodes_have() -> None:
    with connect(ClusterSettings(workers=1, memory_limit=GiB, cpu_target="x86-64-v3")) as client:
        assert client is not None
        (found,) = client.run(computed_by).values()
    assert "Haswell" in found
    assert "AVX512" not in found
    assert "X86_V4" not in found
    assert "NUMBA_CPU_NAME" not in os.environ  # of the driver, whose other clusters would take it over


def test_workers_elsewhere_are_pinned_by_their_environment() -> None:
    settings = ClusterSettings(workers=1, memory_limit=GiB, cpu_target="x86-64-v3")
    with dask.config.set(settings.told_to_dask):
        environment = worker_environment(settings)
    assert (environment["OPENBLAS_CORETYPE"], environment["NUMBA_CPU_NAME"]) == ("Haswell", "haswell")


@pytest.mark.parametrize("cluster", [{"workers": 0}, {"address": "tcp://h:1"}])
def test_workers_of_others_are_not_pinned(cluster: dict[str, object]) -> None:
    with pytest.raises(JobError, match=r"cpu_target is for workers that daskfs starts: set OPENBLAS_CORETYPE"):
        make_cluster({**cluster, "cpu_target": "x86-64-v3"})
