"""The block ``cluster`` of a job file, and its blocks for clusters that are started elsewhere."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from daskfs.block import Block, expand_variables
from daskfs.execution.clusters.walltime import walltime_seconds
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials

_QUOTES = re.compile("[\"']")
# dask.utils.parse_bytes takes "GiB" as 1 GiB, "1e9", "-5MB" and "1_0" (10), and raises OverflowError for "1e400"
_BYTES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*((?:[kmgt]i?)?)b?\s*", re.IGNORECASE)

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str | int) -> int:
    """Return a number of bytes from ``"2GiB"``, ``"500 MB"`` or an integer; ``ValueError`` for other text or for 0."""
    match = _BYTES.fullmatch(str(text))
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size <= 0:
        msg = f"'{text}' is not a size: write for example 2GiB, 500MB or a number of bytes"
        raise ValueError(msg)
    return size


class SlurmBlock(Block):
    """Workers as SLURM jobs, one job each; the driver submits them. Keys are named as in dask-jobqueue."""

    path_keys = ("python", "log_directory", "shared_temp_directory")

    queue: str | None = Field(None, min_length=1, description="The partition. None: the site's default.")
    account: str | None = Field(None, min_length=1, description="What the jobs are charged to.")
    walltime: str = Field(
        "00:30:00", description="Of one job. A worker leaves before it has passed, and another takes its place."
    )
    interface: str | None = Field(
        None,
        min_length=1,
        description="Network interface, such as ib0, that scheduler and workers listen on. None: the one to outside.",
    )
    python: str | None = Field(None, min_length=1, description="Interpreter of the workers. None: that of the driver.")
    log_directory: str | None = Field(None, min_length=1, description="For output of the jobs. None: here.")
    shared_temp_directory: str | None = Field(
        None,
        min_length=1,
        description="Where all nodes find the run's certificate while it lasts, which only you can read. None: here.",
    )
    job_script_prologue: tuple[str, ...] = Field((), description="Lines of the job before the worker starts.")
    job_extra_directives: tuple[str, ...] = Field((), description="Options of sbatch, such as --constraint=avx512.")
    job_directives_skip: tuple[str, ...] = Field(
        (), description="Lines to leave out that hold one of these, such as --mem where a site refuses it."
    )

    @field_validator("walltime", mode="before")
    @classmethod
    def _is_walltime(cls, value: Any) -> Any:
        if isinstance(value, int):  # YAML reads 12:00:00 as a number of seconds, SLURM reads a number as minutes
            msg = "a wall time stands in quotes, '12:00:00'"
            raise ValueError(msg)
        if isinstance(value, str):
            walltime_seconds(value)
        return value

    @field_validator("job_script_prologue")
    @classmethod
    def _prologue_holds_no_credentials(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # a shell variable that is expanded when the job starts is not a credential
        words = [word for line in value for word in line.split() if "=$" not in word and '="$' not in word]
        if any(has_credentials(f"?{re.sub(_QUOTES, '', word)}") for word in words):
            raise ValueError(CREDENTIALS_BELONG)
        return value


class KubernetesBlock(Block):
    """Workers and a scheduler as pods, started by Dask's operator."""

    image: str = Field(min_length=1, description="Holds daskfs, of the driver's version.")
    namespace: str | None = Field(None, min_length=1, description="None: the driver's own.")
    service_account: str | None = Field(None, min_length=1, description="Of the pods: what grants access to a store.")
    env: dict[str, str] = Field({}, description="Environment variables of the pods; credentials belong in secrets.")
    secrets: tuple[str, ...] = Field((), description="Secrets whose entries are environment variables of the pods.")
    volume_claims: dict[str, str] = Field(
        {}, description="Claims of volumes that all pods share, and where each is mounted."
    )
    node_selector: dict[str, str] = Field({}, description="Labels of the nodes for workers, such as spot ones.")
    tolerations: tuple[dict[str, str | int], ...] = Field((), description="Taints of nodes that workers bear.")

    @field_validator("env")
    @classmethod
    def _holds_no_credentials(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if has_credentials(text) or has_credentials(f"?{name}={text}"):
                msg = f"'{name}': put it into a secret of Kubernetes, and name that in secrets; {CREDENTIALS_BELONG}"
                raise ValueError(msg)
        return value


class ClusterBlock(Block):
    """A local cluster by default.

    An address or a scheduler file joins a running cluster, slurm and kubernetes start workers elsewhere.
    """

    path_keys = ("scheduler_file",)

    workers: NonNegativeInt | Literal["auto"] = Field(
        "auto",
        description=(
            "Worker processes; 0 runs in this process. auto: as many as the machine has cores and memory for; none for "
            "data that one core ranks in a few seconds."
        ),
    )
    threads: PositiveInt = Field(1, description="Of each worker.")
    memory_limit: int | None = Field(
        None, description="Of one worker, in bytes or for example 2GiB. None shares the machine's."
    )
    address: str | None = Field(None, description="Scheduler of a running cluster, such as tcp://10.0.0.1:8786.")
    scheduler_file: str | None = Field(None, description="File that a running scheduler wrote its address to.")
    slurm: SlurmBlock | None = Field(None, description="Start workers as jobs of SLURM.")
    kubernetes: KubernetesBlock | None = Field(None, description="Start scheduler and workers as pods.")
    wait_seconds: PositiveFloat = Field(
        120.0,
        description=(
            "Longest time without any worker or the scheduler, at the start and later, and for another daskfs process "
            "to leave the output; then exit code 4."
        ),
    )
    dashboard: bool = Field(default=False, description="Whether a local cluster shows Dask's dashboard.")
    local_directory: str | None = Field(
        None, description="Directory for temporary files of local workers. None: the system's."
    )
    tls: bool | None = Field(
        None,
        description=(
            "TLS between processes. None: for a cluster that is started, which makes its own certificate. With false "
            "any user of the machine, and of the network with slurm, can run code as you. Pods of kubernetes have "
            "none: keep others out by a NetworkPolicy. True refuses an address without TLS; Dask's configuration names "
            "the certificates for one that has it (distributed.comm.tls)."
        ),
    )
    cpu_target: Literal["x86-64-v3"] | None = Field(
        None,
        description=(
            "Kernels of BLAS, NumPy and numba in workers that daskfs starts: with x86-64-v3 those for AVX2 on every "
            "node, so that nodes of several kinds give the same bits. None: what each finds fastest."
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] | None = Field(
        None,
        description=(
            "Write the log of daskfs (loggers of the standard library below daskfs) to stderr, of the driver and of "
            "each worker, from this level on. None: as Python's logging is configured there."
        ),
    )

    @field_validator("tls")
    @classmethod
    def _not_of_a_plain_address(cls, value: bool | None, info: ValidationInfo) -> bool | None:  # noqa: FBT001 - called by pydantic
        address = info.data.get("address")
        if value and address and not address.startswith("tls://"):
            msg = f"cluster.address {address} is none of a scheduler with TLS, which begins with tls://"
            raise ValueError(msg)
        return value

    @field_validator("local_directory")
    @classmethod
    def _of_the_node(cls, value: str | None, info: ValidationInfo) -> str | None:
        # the shell of a SLURM job expands its own variables
        return expand_variables(value) if value is not None and info.data.get("slurm") is None else value

    @field_validator("memory_limit", mode="before", json_schema_input_type=str | int | None)
    @classmethod
    def _in_bytes(cls, value: str | int | None) -> int | None:
        # a boolean is refused by the validator of all keys, which comes after this one
        return value if value is None or isinstance(value, bool) else parse_bytes(value)

    @model_validator(mode="after")
    def _one_kind(self) -> ClusterBlock:
        named = [key for key in ("address", "scheduler_file", "slurm", "kubernetes") if getattr(self, key) is not None]
        if len(named) > 1:
            msg = f"cluster.{named[0]} and cluster.{named[1]} are two clusters: leave one out, or set it to null"
            raise ValueError(msg)
        if self.cpu_target and (self.address or self.scheduler_file or not self.workers):
            msg = (
                "cluster.cpu_target is for workers that daskfs starts: set OPENBLAS_CORETYPE=Haswell, "
                "NUMBA_CPU_NAME=haswell and NPY_DISABLE_CPU_FEATURES where others are started"
            )
            raise ValueError(msg)
        if self.slurm is None and self.kubernetes is None:
            return self
        if not self.workers:
            msg = f"cluster.workers is 0, and cluster.{named[0]} starts workers: ask for 1 or more"
            raise ValueError(msg)
        if self.memory_limit is None:
            msg = f"cluster.{named[0]} asks for the memory of each worker: set cluster.memory_limit, for example 4GiB"
            raise ValueError(msg)
        if self.tls and self.kubernetes is not None:
            msg = "cluster.tls is not for cluster.kubernetes: keep others from its pods by a NetworkPolicy"
            raise ValueError(msg)
        return self
