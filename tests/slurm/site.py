"""A SLURM of its own on the loopback interface, for as long as a test needs it: Debian's slurm-wlm and munge, several
nodes that are one daemon each, no systemd, no control groups, no accounting.

Everything lies in one folder, ports are free ones, and the daemons are children of this process, which ends them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
CPUS, MEGABYTES = 4, 20_000
"""Of each node; the machine may have less."""
KILL_SECONDS = 30
"""From SIGTERM to SIGKILL, as SLURM has it unless told otherwise."""
REQUEUE_SECONDS = 5
"""How long a job that was requeued waits; SLURM derives it from how long a credential is good, two minutes unless told
otherwise.
"""
GRACE_SECONDS = 10
"""From the signal of a preemption to the end of the job."""
PATIENCE = 120.0

CONFIGURATION = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={requeue}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait={kill}
MinJobAge=30
OverTimeLimit=0
PropagateResourceLimits=NONE
"""


def missing() -> list[str]:
    """Return the programs that are not installed; Debian's packages slurm-wlm and munge have them."""
    return [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]


def search_path() -> str:
    """Return where programs are looked for, daemons too."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def free_ports(number: int) -> list[int]:
    """Return ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def wait_until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Return what a condition gives once it gives something."""
    deadline = time.monotonic() + patience
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not happen in {patience:g} s: {what}"
        threading.Event().wait(0.1)
    return found


@dataclass
class Site:
    """A running SLURM."""

    folder: Path
    n_nodes: int = 3
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """What commands of SLURM, and programs that use them, find it by."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}
        return {**own, "SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": search_path()}

    def __enter__(self) -> Site:
        with contextlib.ExitStack() as stack:
            stack.callback(self._end)
            self._start()
            stack.pop_all()
        return self

    def __exit__(self, *problem: object) -> None:
        self._end()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munged trusts no folder that others write to
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        host = socket.gethostname().partition(".")[0]
        port, *ports = free_ports(1 + self.n_nodes)
        names = [f"n{number + 1}" for number in range(self.n_nodes)]
        text = CONFIGURATION.format(
            host=host,
            port=port,
            user=getpass.getuser(),
            folder=self.folder,
            requeue=REQUEUE_SECONDS,
            kill=KILL_SECONDS,
        )
        for name, own in zip(names, ports, strict=True):
            text += f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs={CPUS} "
            text += f"RealMemory={MEGABYTES} State=UNKNOWN\n"
        text += f"PartitionName=batch Nodes={','.join(names)} Default=YES MaxTime=INFINITE State=UP PreemptMode=OFF\n"
        text += (
            f"PartitionName=low Nodes={','.join(names)} PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE_SECONDS}\n"
        )
        text += f"PartitionName=urgent Nodes={','.join(names)} PriorityTier=9 PreemptMode=OFF\n"
        text += f"PartitionName=closed Nodes={names[0]} MaxTime=INFINITE State=DOWN\n"
        (self.folder / "slurm.conf").write_text(text)
        munge = [f"--{what}={self.folder}/munge.{what.removesuffix('-file')}" for what in ("key-file", "socket")]
        munge += [f"--{what}-file={self.folder}/munge.{what}" for what in ("pid", "seed", "log")]
        self._daemon("munged", "--foreground", "--force", *munge)
        self.wait(lambda: self.run("munge", "--no-input", f"--socket={self.folder}/munge.socket").returncode == 0)
        self._daemon("slurmctld", "-D", "-c", "-f", str(self.folder / "slurm.conf"))
        for name in names:
            (self.folder / f"spool.{name}").mkdir()
            self._daemon("slurmd", "-D", "-N", name, "-f", str(self.folder / "slurm.conf"))
        self.wait(lambda: self.ask("sinfo", "-h", "-N", "-p", "batch", "-t", "idle", "-o", "%N") == names)

    def _daemon(self, *words: str) -> None:
        number = len(self.daemons)
        with (self.folder / f"{words[0]}.{number}.output").open("wb") as output:
            self.daemons.append(subprocess.Popen(words, stdout=output, stderr=output, env=self.environment))

    def _end(self) -> None:
        if len(self.daemons) > 1:
            for job in self.jobs():
                self.run("scancel", job)
                self.run("scancel", "--signal=KILL", "--full", job)
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not self.jobs(), "the end of all jobs", 2 * KILL_SECONDS)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def wait(self, condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
        """Return what a condition gives once it gives something; name the logs where it does not."""
        return wait_until(condition, f"see {self.folder}/*.output, {self.folder}/*.log", patience)

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        """Run a command of SLURM."""
        argv = [str(word) for word in words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=self.environment, timeout=60)

    def ask(self, *words: object) -> list[str]:
        """Return the lines that a command prints."""
        return self.run(*words).stdout.split()

    def jobs(self, name: str | None = None) -> list[str]:
        """Return the jobs that have not ended, those of a name, or all, by their ids."""
        return self.ask("squeue", "-h", "-o", "%i", *(() if name is None else (f"--name={name}",)))

    def running(self, name: str) -> list[str]:
        """Return the jobs of a name that run."""
        return self.ask("squeue", "-h", "-o", "%i", "-t", "RUNNING", f"--name={name}")

    def submit(self, *words: object, **environment: str) -> str:
        """Submit a job, and return its id."""
        argv = ["sbatch", "--parsable", *map(str, words)]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, env=self.environment | environment, cwd=self.folder
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def show(self, job: str) -> dict[str, str]:
        """Return what SLURM knows of a job, which may have ended a moment ago."""
        pairs = (word.partition("=") for word in self.ask("scontrol", "show", "job", job))
        return {key: value for key, _, value in pairs}

    def end_of(self, job: str, patience: float = 2 * PATIENCE) -> dict[str, str]:
        """Wait for the end of a job, and return what SLURM knows of it."""
        last = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")

        def ended() -> dict[str, str] | None:
            found = self.show(job)
            return found if found.get("JobState") in last else None

        return dict(self.wait(ended, patience))


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Site]:
    """Yield a SLURM that ends with the block."""
    with Site(folder) as site:
        yield site
