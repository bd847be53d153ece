"""Workers that join while a run is under way, and are not like the driver: each is refused with what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from daskfs.errors import ClusterError, UnitError
from daskfs.execution.pool import Pool
from daskfs.execution.progress import Silent
from daskfs.job.job import load_job
from daskfs.runs.pipeline import run_job
from daskfs.stages.stage import Stage
from daskfs.version import __version__
from tests.cli.command import daskfs, refused
from tests.execution.runs import write_job
from tests.execution.test_worker import Cluster, wait_until

pytestmark = pytest.mark.cluster

CLUSTER = 4
SOURCE = "synthetic:mixture?n_samples=600&n_features=16&n_classes=3&n_informative=8&seed=2"
MANY_UNITS = {"n_selected": [2, 4], "n_splits": 5, "n_repeats": 200, "max_samples": 300, "setting": "transductive"}
ANOTHER_VERSION = "import daskfs.version\ndaskfs.version.__version__ = '9.9.9'\n"
WITHOUT_CHECKS = """
from daskfs.stages import units
units.run_stored_unit = lambda url, identity, stage_name, unit, reached=(): {}
"""
WITHOUT_A_RECORD = """
from daskfs.stages import units
units.run_stored_unit = lambda *_, **__: None
"""
ANOTHER_NUMPY = """
import importlib.metadata as metadata
metadata.version = lambda name, version=metadata.version: "1.0" if name == "numpy" else version(name)
"""


class Joining(Silent):
    """Starts another worker when the first unit is done."""

    def __init__(self, start: Callable[[], object]) -> None:
        self.start, self.n_done = start, 0

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del stage, unit, facts
        self.n_done += 1
        if self.n_done == 1:
            self.start()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a worker like the driver."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start_worker("--no-nanny", "--memory-limit", "1GiB")
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The same, where no other worker is left afterwards."""
    yield shared
    for process in shared.processes[2:]:
        process.kill()
        process.wait()
    del shared.processes[2:]
    wait_until(lambda: len(Pool(shared.client).identities()) == 1)


def job_on(cluster: Cluster, folder: Path) -> Path:
    where = {"scheduler_file": str(cluster.file), "wait_seconds": 20}
    return write_job(folder, SOURCE, methods=["VarianceScore"], cluster=where, evaluate=MANY_UNITS)


def start(cluster: Cluster, folder: Path, text: str = "", memory: str = "1GiB") -> None:
    """Start a worker that runs some text first."""
    path = folder / "first.py"
    path.write_text(text)
    cluster.start_worker("--no-nanny", "--memory-limit", memory, "--preload", path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ANOTHER_VERSION, rf"worker at tcp://.* has daskfs 9\.9\.9 \(the driver: {__version__}\): install the same"),
        pytest.param(
            WITHOUT_CHECKS,
            rf"the workers cannot run units of daskfs {__version__}: .*unexpected keyword argument",
            marks=pytest.mark.long,
        ),
        (WITHOUT_A_RECORD, r"left no record in .*: do the workers share it\?"),
    ],
    ids=["version", "signature", "record"],
)
def test_a_late_worker_with_another_daskfs(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, told: str
) -> None:
    monkeypatch.setattr("daskfs.store.record_files.RECORD_PATIENCE", 0.5)  # for a record that never comes
    with pytest.raises((ClusterError, UnitError), match=told):
        run_job(load_job(job_on(cluster, tmp_path)), Joining(lambda: start(cluster, tmp_path, text)))


def test_a_late_worker_with_too_little_memory(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"worker at tcp://.* is too small .*stage .* needs .* is 250 MiB"):
        run_job(load_job(job_on(cluster, tmp_path)), Joining(lambda: start(cluster, tmp_path, memory="250MiB")))


def test_a_worker_with_other_libraries_at_the_start(cluster: Cluster, tmp_path: Path) -> None:
    start(cluster, tmp_path, ANOTHER_NUMPY)
    told = "has numpy 1.0 (the driver: ", "install the same everywhere"
    refused(daskfs("run", job_on(cluster, tmp_path), "-q"), CLUSTER, *told)
