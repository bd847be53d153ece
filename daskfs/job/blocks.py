"""Blocks of a job file, each checked key by key."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from daskfs.block import Block, expand_variables
from daskfs.criteria.laplacian import GraphChoice
from daskfs.criteria.scaling_field import GraphScalingChoice, ScalingChoice
from daskfs.execution.clusters.blocks import KubernetesBlock, SlurmBlock
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.job.redundancy import RedundancyBlock, read_groups
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.storage import as_output_path

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


class TransformBlock(Block):
    """Scaling on the fly, separately for the graph and for the scores: a chain of steps, in order.

    total scales each row to a sum equal to the median of the nonzero row sums, total=10000 to that sum; log1p takes
    log(1 + x); then unit divides rows by their norm, or zscore standardizes columns, of the values after the other
    steps. For the graph, pca=50 may come last: rows are compared in their first 50 principal components.
    """

    graph: GraphScalingChoice = None
    score: ScalingChoice = None


class GraphBlock(GraphChoice, Block):
    """Defaults of every method that uses the neighbor graph."""

    path_keys = ("precomputed",)
    path_or_name_keys = ("use_rep",)

    engine: Engine = Field(
        "auto",
        description=(
            "exact: compare all pairs. cells: k-means cells, each row against near ones. descent: NN-descent from "
            "random trees. pynndescent: that library's, for any metric. auto: by sizes and a sample of the rows."
        ),
    )
    recall: float = Field(
        0.98, gt=0.5, lt=1, description="Share of the true neighbors that an approximate search aims at."
    )
    projection: PositiveInt | Literal["auto"] | None = Field(
        "auto", description="Columns that an approximate search compares rows in; null for all; auto for wide data."
    )
    random_state: NonNegativeInt = Field(
        0, description="Seed of samples and trees of a search, and of halves of features."
    )
    precomputed: str | None = Field(
        None,
        description=(
            "A graph that is not to be found: the run that found one (or RUN/knn/NAME), or a sparse matrix of weights, "
            "in an .npz file or in AnnData's layout (FILE.zarr/obsp/NAME, FILE.h5ad:obsp/NAME); a path, or a URL."
        ),
    )
    use_rep: str | None = Field(
        None,
        description=(
            "Another representation of the same rows, in which they are compared as it gives them: a member of "
            "data.source (obsm/X_pca), or any other source of as many rows, by its path, FILE:MEMBER, or URL. Scores "
            "remain those of X. Where both name their rows, the names must agree."
        ),
    )

    @property
    def search(self) -> GraphSpec:
        """The search options, as a specification of neighbor lists has them."""
        return GraphSpec(
            engine=self.engine, recall=self.recall, projection=self.projection, random_state=self.random_state
        )

    @model_validator(mode="after")
    def _one_graph(self) -> GraphBlock:
        if self.precomputed is not None and self.use_rep is not None:
            msg = "graph.precomputed is a graph already, and graph.use_rep says how to make one: leave one out"
            raise ValueError(msg)
        return self


class SignificanceBlock(Block):
    """Tests of every feature, by the methods that have them."""

    blocks: str | dict[str, str] | None = Field(
        None,
        description=(
            "Block of each feature, for tests on a graph of X: no feature is tested on a graph that another one of its "
            "block has made. By names, expressions or a CSV file, as in select.redundancy.groups."
        ),
    )
    gap: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description=(
            "Distance along the axis of the features within which none is in a graph that tests another one: in units "
            "of the names where these are ascending or descending numbers, else in columns."
        ),
    )
    fdr_method: FDRMethod = Field(
        "bh",
        description=(
            "Of q-values. bh: Benjamini and Hochberg. by: Benjamini and Yekutieli, for tests that depend on each other "
            "in any way."
        ),
    )

    def block_of(self) -> dict[str, str]:
        """Return the blocks by name or expression; :class:`JobError` for a file that cannot be read."""
        return read_groups(self.blocks, "significance.blocks")


class SelectBlock(Block):
    """Number of selected features, and the filter of redundant ones."""

    n_features: PositiveInt | None = Field(None, description="How many. None: half of them.")
    fdr: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description=(
            "Instead of a number: the features that are more than chance, with at most this expected share of false "
            "ones among them. None is selected by a method without p-values."
        ),
    )
    redundancy: RedundancyBlock | None = Field(
        None, description="Pass over features that are similar to a better one, or unwanted."
    )

    @model_validator(mode="after")
    def _one_rule(self) -> SelectBlock:
        if self.n_features is not None and self.fdr is not None:
            msg = "n_features and fdr both say how many features are selected: leave one of them out"
            raise ValueError(msg)
        return self


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
    memory_limit: str | int | None = Field(
        None, description="Of one worker, for example 2GiB. None shares the machine's."
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

    @field_validator("memory_limit")
    @classmethod
    def _in_bytes(cls, value: str | int | None) -> int | None:
        return None if value is None else parse_bytes(value)

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


class OutputBlock(Block):
    """Location and title of the run."""

    path_keys = ("path",)

    path: str = Field(min_length=1, description="Directory, or URL (s3://, gs://, az://), of the run.")
    title: str | None = Field(None, description="Of the report. None: the name of the source.")

    @field_validator("path")
    @classmethod
    def _can_be_written_to(cls, value: str) -> str:
        as_output_path(value)
        return value
