"""Memory and cores that this process may use: of the machine, its control groups and its batch job.

Dask reads the root of the control groups, which is the own group in a container and never in a batch job.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil

MiB = 2**20
UNITS = {"": 1, "K": 2**10, "M": MiB, "G": 2**30, "T": 2**40}
LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Files of a control group: of version 2, where the kernel slows a group above ``memory.high``, and of version 1."""
CORES = ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"), ("LSB_DJOB_NUMPROC",), ("NSLOTS",), ("PBS_NCPUS",)
"""Cores of a job by the variables of SLURM, LSF, Grid Engine and PBS; of each, the first one that is set."""
JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "JOB_ID", "PBS_JOBID")


class Memory(NamedTuple):
    """Bytes of memory, and what limits them to it."""

    nbytes: int
    source: str

    def __str__(self) -> str:
        return f"{self.nbytes / MiB:.0f} MiB ({self.source})"


def machine_memory(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Memory:
    """Return the smallest limit on the memory of this process and those that it starts.

    `root` holds ``proc`` and the mounted control groups; `environment` has the variables of a batch system.
    """
    machine = Memory(psutil.virtual_memory().total, "the machine")
    return min([machine, *_of_groups(root), *_of_batch_system(environment)], key=lambda memory: memory.nbytes)


def machine_cores(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores of this process: by its affinity, its control group, and its batch job."""
    return min(_cores(environment, *names) for names in ((), *CORES))


def job_scratch(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the directory for temporary files that is named after this batch job, and deleted with it; else None."""
    folder = environment.get("TMPDIR", "")
    numbers = (environment.get(name, "").partition(".")[0] for name in JOBS)  # 123.server in PBS
    is_own = any(number.isdecimal() and number in re.findall(r"\d+", folder) for number in numbers)
    return Path(folder).absolute() if is_own else None


def _cores(environment: Mapping[str, str], *names: str) -> int:
    from dask.system import CPU_COUNT

    text = next((environment[name] for name in names if name in environment), "")
    return max(1, int(text)) if text.isdecimal() else CPU_COUNT


def _of_groups(root: Path) -> Iterator[Memory]:
    """Yield the limits of the control groups of this process and of their parents, of both versions."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:  # no Linux
        return
    path_by_controllers = {names: path for _, names, path in (line.split(":", 2) for line in groups)}
    own_v1 = next((path for names, path in path_by_controllers.items() if "memory" in names.split(",")), None)
    for line in mounts:
        left, _, right = line.partition(" - ")
        kind, _, options = (*right.split(" ", 2), "", "")[:3]
        is_v1 = kind == "cgroup" and "memory" in options.split(",")
        path = own_v1 if is_v1 else path_by_controllers.get("") if kind == "cgroup2" else None
        if path is None:
            continue
        # blanks are octal numbers; a container mounts a part of the hierarchy, and sees nothing outside of it
        part, point = (re.sub(r"\\([0-7]{3})", lambda n: chr(int(n[1], 8)), text) for text in left.split(" ")[3:5])
        mounted = group = root / point.lstrip("/")
        if PurePosixPath(path).is_relative_to(part) and ".." not in path:
            group = mounted / PurePosixPath(path).relative_to(part)
        for folder in (group, *(parent for parent in group.parents if parent.is_relative_to(mounted))):
            for file in (folder / name for name in LIMITS):
                text = file.read_text().strip() if os.access(file, os.R_OK) else ""
                if text.isdecimal():  # else "max"
                    yield Memory(int(text), f"/{file.relative_to(root)}")


def _of_batch_system(environment: Mapping[str, str]) -> Iterator[Memory]:
    """Yield what the variables of a batch system say; a node's whole memory is 0."""
    cores, gpus = _cores(environment, *CORES[0]), _size(environment.get("SLURM_GPUS_ON_NODE", ""))
    for name, times, unit in (
        ("SLURM_MEM_PER_NODE", 1, "M"),
        ("SLURM_MEM_PER_CPU", cores, "M"),
        ("SLURM_MEM_PER_GPU", gpus, "M"),
        ("SGE_HGR_m_mem_free", 1, ""),
        ("PBS_RESC_MEM", 1, ""),
    ):
        if nbytes := times * _size(environment.get(name, ""), unit):
            yield Memory(nbytes, name if times == 1 else f"{name} x {times}")
    text = environment.get("LSB_CG_MEMLIMIT", "")
    if re.fullmatch("(0x)?[0-9A-Fa-f]+", text) and (nbytes := int(text, 16)):
        yield Memory(nbytes, "LSB_CG_MEMLIMIT")


def _size(text: str, unit: str = "") -> int:
    """Return a size in bytes, such as 4096, 16gb or 9.200G; 0 for any other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([KMGT]?)(?:i?B)?", text.strip(), re.ASCII | re.IGNORECASE)
    return 0 if match is None else int(float(match[1]) * UNITS[match[2].upper() or unit])
