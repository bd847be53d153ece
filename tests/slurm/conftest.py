"""What tests on SLURM share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.execution.halting import FOLDER_KEY
from tests.slurm.site import Site, missing, wait_until

ROOT = Path(__file__).parents[2]
CUSTOMIZED = f"""import os, sys
if {FOLDER_KEY!r} in os.environ and {{"worker", "distributed.cli.dask_worker"}} & {{*sys.orig_argv}}:
    import tests.execution.halting
"""
"""Makes workers, whoever starts them, halt where a test wants them to."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A SLURM of three nodes."""
    if lacking := missing():
        pytest.skip(f"needs Debian's slurm-wlm and munge: there is no {', '.join(lacking)}")
    with Site(tmp_path_factory.mktemp("slurm") / "site") as site:
        yield site


class Halts:
    """Where workers halt; see :mod:`tests.execution.halting`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "site").mkdir(parents=True)
        (folder / "site" / "sitecustomize.py").write_text(CUSTOMIZED)
        (folder / "starts").touch()
        self.want("nothing")

    @property
    def environment(self) -> dict[str, str]:
        return {FOLDER_KEY: str(self.folder), "PYTHONPATH": f"{self.folder / 'site'}{os.pathsep}{ROOT}"}

    def want(self, point: str) -> None:
        """Let the first that gets to a point halt there."""
        (self.folder / "wanted.next").write_text(f"{point} begun")
        (self.folder / "wanted.next").rename(self.folder / "wanted")

    def process_at(self, point: str) -> Path:
        """Wait until a worker has halted, and return what the system shows of its process."""
        wait_until((self.folder / point).exists, f"a unit of {point}")
        return Path("/proc") / (self.folder / point).read_text()

    def job_at(self, point: str) -> str:
        """Wait until a worker has halted, and return its job of SLURM."""
        environment = (self.process_at(point) / "environ").read_bytes().split(b"\0")
        (job,) = (entry.partition(b"=")[2].decode() for entry in environment if entry.startswith(b"SLURM_JOB_ID="))
        return job

    def scheduler_of(self, point: str) -> str:
        """Return the address of the scheduler of a worker that has halted, as dask-jobqueue has told it."""
        words = (self.process_at(point) / "cmdline").read_text().split("\0")
        (address,) = (word for word in words if word.startswith("tcp://"))
        return address

    def go_on(self, point: str) -> None:
        (self.folder / f"{point}.go").touch()

    def starts(self) -> list[str]:
        """Return the units that have begun, once for each time."""
        return (self.folder / "starts").read_text().splitlines()


@pytest.fixture
def halts(tmp_path: Path) -> Halts:
    return Halts(tmp_path / "halts")


def environment() -> dict[str, str]:
    """Return what programs of this project are found by."""
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(ROOT),
    }
