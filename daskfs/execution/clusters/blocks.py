"""Blocks of a job file for clusters that are started elsewhere."""

from __future__ import annotations

import re
from typing import Any

from pydantic import Field, field_validator

from daskfs.block import Block
from daskfs.execution.clusters.walltime import walltime_seconds
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials

_QUOTES = re.compile("[\"']")


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
