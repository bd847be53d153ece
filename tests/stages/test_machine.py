"""The memory and cores of this process: the least of the machine, its control groups, and its batch job."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from dask.system import CPU_COUNT

from daskfs.stages.machine import machine_cores, machine_memory
from tests.execution.runs import write_job

MiB, GiB = 2**20, 2**30
TOTAL = psutil.virtual_memory().total
V1 = "30 25 0:26 {part} {point} rw,nosuid shared:9 - cgroup cgroup rw,memory"
V2 = "30 25 0:26 {part} {point} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
OTHERS = "29 25 0:25 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n31 25 0:27 / /proc rw - proc proc rw"


def tree(root: Path, version: int, group: str, limits: dict[str, str], *, part: str = "/", point: str = "/cg") -> Path:
    """Write a tree with a process in a group; `limits` are texts by file, relative to the mounted directory."""
    (root / "proc/self").mkdir(parents=True)
    own = f"0::{group}" if version == 2 else f"9:name=systemd:/other\n4:cpuset,memory:{group}\n0::/"
    (root / "proc/self/cgroup").write_text(own + "\n")
    line = (V2 if version == 2 else V1).format(part=part, point=point.replace(" ", "\\040"))
    (root / "proc/self/mountinfo").write_text(f"{OTHERS}\n{line}\n")
    for path, text in limits.items():
        file = root / point.lstrip("/") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("version", "name", "unlimited"),
    [(2, "memory.max", "max"), (2, "memory.high", "max"), (1, "memory.limit_in_bytes", "9223372036854771712")],
)
@pytest.mark.parametrize("point", ["/sys/fs/cgroup", "/mnt/two words"])
@pytest.mark.parametrize(
    ("group", "part", "limited"),
    [
        ("/slurm/job_7/step_0", "/", "slurm/job_7/step_0"),
        ("/slurm/job_7/step_0", "/", "slurm/job_7"),
        ("/slurm/job_7/step_0", "/", "."),
        ("/kubepods/pod1/c1", "/kubepods/pod1/c1", "."),  # a container that sees its own part
        ("/kubepods/pod1/c1/inner", "/kubepods/pod1/c1", "inner"),
        ("/", "/", "."),  # a namespace of its own
        ("/../../sibling", "/", "."),  # outside of its namespace
        ("/elsewhere", "/kubepods/pod1", "."),
    ],
)
def test_the_least_limit_of_a_group_and_its_parents(
    version: int, name: str, unlimited: str, point: str, group: str, part: str, limited: str, tmp_path: Path
) -> None:
    limits = {f"{folder}/{name}": unlimited for folder in (".", "slurm", "slurm/job_7", "slurm/job_7/step_0", "inner")}
    root = tree(tmp_path, version, group, {**limits, f"{limited}/{name}": str(GiB)}, part=part, point=point)
    assert machine_memory(root, {}) == (GiB, os.path.normpath(f"{point}/{limited}/{name}"))


def test_without_a_limit_it_is_the_machine(tmp_path: Path) -> None:
    assert machine_memory(tmp_path / "no Linux", {}) == (TOTAL, "the machine")
    root = tree(tmp_path, 2, "/a", {"a/memory.max": "max", "b/memory.max": "4096"})
    assert machine_memory(root, {}) == (TOTAL, "the machine"), "another group's limit is none"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "1024"}, (GiB, "SLURM_MEM_PER_NODE")),
        ({"SLURM_MEM_PER_NODE": "0"}, (TOTAL, "the machine")),
        ({"SLURM_MEM_PER_NODE": str(2**40)}, (TOTAL, "the machine")),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "3"}, (1536 * MiB, "SLURM_MEM_PER_CPU x 3")),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_PER_TASK": "1"}, (512 * MiB, "SLURM_MEM_PER_CPU")),
        ({"SLURM_MEM_PER_CPU": "512", "SLURM_CPUS_ON_NODE": "1", "SLURM_CPUS_PER_TASK": "8"}, 512 * MiB),
        ({"SLURM_MEM_PER_GPU": "256", "SLURM_GPUS_ON_NODE": "2"}, 512 * MiB),
        ({"LSB_CG_MEMLIMIT": "0x40000000"}, (GiB, "LSB_CG_MEMLIMIT")),
        ({"LSB_CG_MEMLIMIT": "40000000"}, GiB),
        ({"SGE_HGR_m_mem_free": "1.500G"}, (1536 * MiB, "SGE_HGR_m_mem_free")),
        ({"PBS_RESC_MEM": "1073741824"}, GiB),
        ({"PBS_RESC_MEM": "1gb"}, GiB),
        ({"PBS_RESC_MEM": "1gb", "SLURM_MEM_PER_NODE": "512"}, (512 * MiB, "SLURM_MEM_PER_NODE")),
        *(({name: text}, TOTAL) for name in ("SLURM_MEM_PER_NODE", "LSB_CG_MEMLIMIT") for text in ("", "all", "1.2.3")),
    ],
)
def test_what_batch_systems_say(environment: dict[str, str], expected: tuple[int, str] | int, tmp_path: Path) -> None:
    found = machine_memory(tmp_path, environment)
    assert found == expected if isinstance(expected, tuple) else found.nbytes == expected


def test_cores_are_those_of_the_job() -> None:
    assert machine_cores({}) == machine_cores({"SLURM_CPUS_ON_NODE": "100000"}) == CPU_COUNT
    for name in ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK", "LSB_DJOB_NUMPROC", "NSLOTS", "PBS_NCPUS"):
        assert machine_cores({name: "1"}) == 1, name
    assert machine_cores({"SLURM_CPUS_ON_NODE": str(CPU_COUNT), "SLURM_CPUS_PER_TASK": "1"}) == CPU_COUNT


@pytest.fixture
def group() -> Iterator[Path | None]:
    """A control group of version 1 with 1 GiB; None where this user or system cannot make one."""
    path = Path(f"/sys/fs/cgroup/memory/daskfs_test_{os.getpid()}")
    try:
        path.mkdir()
    except OSError:
        yield None
        return
    (path / "memory.limit_in_bytes").write_text(str(GiB))
    yield path
    left = [int(line) for line in (path / "cgroup.procs").read_text().split()]
    psutil.wait_procs([psutil.Process(pid) for pid in left if psutil.pid_exists(pid)], timeout=60)
    path.rmdir()


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder whose files take no memory of the group, as those of a file system in memory do."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.long
@pytest.mark.parametrize(("workers", "code"), [("auto", 0), (2, 2)])
def test_a_run_in_one_gigabyte(group: Path | None, on_disk: Path, workers: int | str, code: int) -> None:
    """In a control group, which the kernel enforces; where there can be none, by what SLURM says."""
    source = "synthetic:lowrank?n_samples=200000&n_features=600"
    job = write_job(on_disk, source, methods=["LaplacianScore"], evaluate=None, cluster={"workers": workers})
    environment = {**os.environ, "TMPDIR": str(on_disk), **({} if group else {"SLURM_MEM_PER_NODE": "1024"})}

    def enter() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text("0")

    command = [sys.executable, "-m", "daskfs", "run", str(job)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, preexec_fn=enter, check=False, env=environment
    )
    assert done.returncode == code, done.stderr
    if group is not None:
        assert "oom_kill 0" in (group / "memory.oom_control").read_text()
        assert int((group / "memory.max_usage_in_bytes").read_text()) <= GiB
    if code:
        assert "MiB or more, or start fewer workers: with the driver they would need " in done.stderr
        limit = "SLURM_MEM_PER_NODE" if group is None else f"{group}/memory.limit_in_bytes"
        assert f"MiB, and there are 1024 MiB ({limit})." in done.stderr
