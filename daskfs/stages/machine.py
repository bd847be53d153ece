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
from dask.system import CPU_COUNT

MiB = 2**20
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LIMITS = ("memory.max", "memory.high", "memory.limit_in_bytes")
"""Files of a control group: of version 2, where the kernel slows a group above ``memory.high``, and of version 1."""
CORES = ("SLURM_CPUS_ON_NODE", "SLURM_CPUS_PER_TASK"), ("LSB_DJOB_NUMPROC",), ("NSLOTS",), ("PBS_NCPUS",)
"""Cores of a job by the variables of SLURM, LSF, SGE and PBS; of each, the first one that is set."""
JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "JOB_ID", "PBS_JOBID")
"""Variables of batch jobs."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


class Memory(NamedTuple):
    """Bytes of memory, and what limits them to it."""

    nbytes: int
    source: str

    def __str__(self) -> str:
        return f"{self.nbytes / MiB:.0f} MiB ({self.source})"


def machine_memory(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> Memory:
    """Return the smallest limit on the memory of this process and those that it starts.

    Parameters
    ----------
    root
        Directory that holds ``proc`` and the mounted control groups.
    environment
        Variables of the batch system: SLURM, LSF, Univa's and Altair's Grid Engine, and sites of PBS that set one.
    """
    machine = Memory(psutil.virtual_memory().total, "the machine")
    return min([machine, *_of_groups(root), *_of_batch_system(environment)], key=lambda memory: memory.nbytes)


def machine_cores(environment: Mapping[str, str] = os.environ) -> int:
    """Return the number of cores of this process: by its affinity, its control group, and its batch job."""
    return min([CPU_COUNT, *(_cores(environment, *names) for names in CORES)])


def job_scratch(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the directory for temporary files of a batch job, which is deleted with it; None outside of one."""
    folder = environment.get("TMPDIR") if any(name in environment for name in JOBS) else None
    return Path(folder).absolute() if folder else None


def _cores(environment: Mapping[str, str], *names: str) -> int:
    text = next((environment[name] for name in names if name in environment), "")
    return max(1, int(text)) if text.isdecimal() else CPU_COUNT


def _of_groups(root: Path) -> Iterator[Memory]:
    """Yield the limits of the control groups of this process and of their parents."""
    for group, mounted in _memory_groups(root):
        for directory in (group, *group.parents):
            for path in (directory / name for name in LIMITS):
                try:
                    text = path.read_text().strip()
                except OSError:  # the other version's, or not mounted here
                    continue
                if text.isdecimal():  # else "max"
                    yield Memory(int(text), f"/{path.relative_to(root)}")
            if directory == mounted:
                break


def _memory_groups(root: Path) -> Iterator[tuple[Path, Path]]:
    """Yield directories of control groups of this process, each with the directory where its hierarchy is mounted."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:  # no Linux
        return
    paths = {controllers: path for _, controllers, path in (line.split(":", 2) for line in groups)}
    for line in mounts:
        options, _, mount = line.partition(" - ")
        kind, _, controllers = (*mount.split(" ", 2), "", "")[:3]
        if kind == "cgroup" and "memory" in controllers.split(","):
            path = next((path for names, path in paths.items() if "memory" in names.split(",")), None)
        else:
            path = paths.get("") if kind == "cgroup2" else None
        if path is not None:
            part, point = (_unescaped(text) for text in options.split(" ")[3:5])
            mounted = root / point.lstrip("/")
            # a container mounts a part of the hierarchy; a group outside of it cannot be seen
            is_inside = PurePosixPath(path).is_relative_to(part) and ".." not in path
            yield (mounted / PurePosixPath(path).relative_to(part) if is_inside else mounted), mounted


def _unescaped(text: str) -> str:
    """Return a path of ``mountinfo``, which holds blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


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
    found = _SIZE.fullmatch(text.strip())
    return 0 if found is None else int(float(found[1]) * UNITS[found[2].upper() or unit])
