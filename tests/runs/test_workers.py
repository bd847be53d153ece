"""The number of workers where a job leaves it to daskfs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from daskfs.execution.cluster import ClusterSettings
from daskfs.job.job import make_job
from daskfs.runs import workers
from daskfs.runs.workers import settled_cluster
from daskfs.stages.machine import Memory, machine_memory
from tests.cli.command import daskfs
from tests.execution.runs import write_job

SIZED = "synthetic:mixture?n_samples={}&n_features={}&n_classes=2&n_informative=4&seed=1"
MACHINE = 24 * 2**30


def settled(n_samples: int, n_features: int = 64, methods: Any = ("LaplacianScore",), **blocks: Any) -> ClusterSettings:
    source = SIZED.format(n_samples, n_features)
    job = {"data": {"source": source}, "methods": list(methods), "output": {"path": "run"}, **blocks}
    return settled_cluster(make_job(job))


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "machine_cores", lambda: 16)
    monkeypatch.setattr(workers, "machine_memory", lambda: Memory(MACHINE, "the machine"))


def test_small_data_need_none_and_more_take_what_the_machine_has() -> None:
    assert settled(351, 34).workers == 0
    assert settled(300_000).workers == 16
    assert settled(300_000, cluster={"threads": 4}).workers == 4
    assert settled(300_000, cluster={"memory_limit": "8GiB"}).workers == 2, "the driver needs some, too"
    assert settled(300_000, cluster={"memory_limit": "80GiB"}).workers == 1


def test_one_process_has_it_all_where_there_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "machine_memory", lambda: Memory(2**30, "SLURM_MEM_PER_NODE"))
    assert settled(300_000).workers == 0
    assert settled(300_000, cluster={"workers": 2}).workers == 2


def test_what_takes_long_counts_and_not_only_how_much_there_is() -> None:
    """An evaluation ranks again in every fold; joint methods compare all features."""
    assert settled(20_000, 100, ["VarianceScore"], evaluate=None).workers == 0
    assert settled(20_000, 100, ["VarianceScore"], evaluate={"n_repeats": 40}).workers == 16
    assert settled(1000, 3000, ["RLSR"], evaluate=None).workers == 16
    assert settled(1000, 3000, ["VarianceScore"], evaluate=None).workers == 0


def test_what_a_job_names_is_kept() -> None:
    for number in (0, 3):
        assert settled(300_000, cluster={"workers": number}).workers == number
    assert settled(351, cluster={"slurm": {}, "memory_limit": "4GiB"}).workers == workers.ELSEWHERE
    assert settled(351, cluster={"address": "tcp://127.0.0.1:1"}).is_joined


@pytest.mark.cluster
def test_a_run_of_small_data_starts_none(tmp_path: Path) -> None:
    job = write_job(tmp_path, "sklearn:iris", cluster={}, evaluate=None)
    planned = daskfs("plan", job, "--json").json
    assert planned["memory_limit"] == machine_memory().nbytes, "one process has it all"
    assert daskfs("run", job, "-q").code == 0


def test_memory_of_more_workers_than_fit_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "1024")
    cluster = {"workers": 2, "memory_limit": "800MiB"}
    job = write_job(tmp_path, "sklearn:iris", methods=["VarianceScore"], cluster=cluster, evaluate=None)
    told = "2 x 800 MiB for workers and 512 MiB for the driver are more than 1024 MiB (SLURM_MEM_PER_NODE)"
    assert told in daskfs("plan", job).out
    planned = daskfs("plan", job, "--set", "cluster.workers=1", "--set", "cluster.memory_limit=null", "--json").json
    assert (planned["memory_limit"], planned["memory"]) == (512 * 2**20, "1024 MiB (SLURM_MEM_PER_NODE)")
    assert told in daskfs("run", job).err
