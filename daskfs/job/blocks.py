"""Blocks of a job file, each checked key by key."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, ValidationInfo, field_validator, model_validator

from daskfs.criteria.block import Block, expand_variables
from daskfs.criteria.laplacian import GraphChoice
from daskfs.criteria.scaling_field import GraphScalingChoice, ScalingChoice
from daskfs.execution.clusters.blocks import KubernetesBlock, SlurmBlock
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.job.redundancy import RedundancyBlock, read_groups
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.sources import SUPPORTED
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


MissingChoice = Literal["refuse", "mean", "pairwise"]


class DataBlock(Block):
    """Location of the data: each path is a file path, or the URL of an object (``s3://``, ``gs://``, ``az://``)."""

    path_keys = ("source",)
    path_or_name_keys = ("labels", "weights", "groups", "times", "batch", "row_names", "feature_names")

    source: str = Field(min_length=1, description=f"Where X is: {SUPPORTED}.")
    array: str | None = Field(
        None,
        description=(
            "Member of an .npz or HDF5 file or of a Zarr group that holds X; of AnnData layers/NAME, raw/X, obsm/NAME."
        ),
    )
    dims: tuple[str, str] | None = Field(
        None,
        description=(
            "Names of the dimensions along the rows and the columns of X, of an array whose dimensions have names "
            "(xarray, NetCDF); by default in the order of the array."
        ),
    )
    labels: str | None = Field(
        None, description="A column, a member, or a path or URL; sklearn: and synthetic: bring their own."
    )
    unlabeled: int | float | str = Field(
        "auto",
        description=(
            "The label that means an unlabeled row, beside NaN and empty cells. auto: -1 among classes, unless the "
            "others are all 1: -1 and 1 alone are two classes. none: no label does."
        ),
    )
    weights: str | None = Field(
        None,
        description=(
            "How many rows each row counts for: a column, a member, or a path; 0 leaves a row out of the scores. "
            "z-scores are by weight. Neighbors are found, missing values filled, the median of 'total' taken and "
            "models of an evaluation fitted without weights."
        ),
    )
    groups: str | None = Field(
        None,
        description=(
            "A column, a member, or a path, with the group of each row (numbers, text or dates): a patient, a batch. "
            "Folds of the evaluation never have rows of one group on both sides."
        ),
    )
    times: str | None = Field(
        None,
        description=(
            "A column, a member, or a path, with the time of each row: numbers, or ISO dates or datetimes. Folds of "
            "the evaluation train on rows that are all earlier than those they test."
        ),
    )
    batch: str | None = Field(
        None,
        description=(
            "A column, a member, or a path, with the batch of each row (numbers or text): a donor, a plate, a lane of "
            "a sequencer. Features are scored within each batch, and ranked by the median of their ranks over batches."
        ),
    )
    row_names: str | None = Field(
        None,
        description=(
            "What the rows are called: a column, a member, or a path (of columns between tabs the first counts, or one "
            "by its number, names.tsv:2). By default what the source says: AnnData's index of obs, barcodes of 10x, "
            "text along a named dimension. Exports of data give them back."
        ),
    )
    only_batch: str | None = Field(
        None, description="Of tiles with batches: take the rows of this one only, as a data set of their own."
    )
    feature_names: str | None = Field(
        None,
        description=(
            "A member, or a path to a text file with one name a line. Of columns between tabs the first counts, or one "
            "by its number (names.tsv:2); of 10x's features.tsv, the second."
        ),
    )
    delimiter: str | None = Field(
        None, min_length=1, max_length=1, description="Of a table of text: what is between cells. None: , tab or ;"
    )
    decimal: Literal[".", ","] | None = Field(
        None, description="Of a table of text: a decimal point, or comma. None: the comma if cells between ; have some."
    )
    transpose: bool = Field(
        default=False,
        description="Take the columns of a Matrix Market file for the rows of X: files of features x cells.",
    )
    exclude: tuple[str, ...] = Field(
        (),
        description=(
            "Table columns that are no features and that no key here names: by name, by pattern (meta_*), or with "
            "non-numeric all that hold no numbers, or no value."
        ),
    )
    task: Literal["auto", "classification", "regression"] = Field(
        "auto", description="Of the labels. auto: whole numbers and text are classes, other numbers a target."
    )
    missing_values: tuple[str | float, ...] = Field(
        (),
        description=(
            "Words and numbers that mean a missing value in features, labels and columns of rows, beside NaN, empty "
            "cells, NA, N/A and null: [-999, '?']."
        ),
    )
    missing: MissingChoice = Field(
        "refuse",
        description=(
            "What becomes of missing values (NaN). refuse: an error with their counts. mean: before anything else, "
            "they are taken to be the mean of their column over the rows that have one, each row counting for one; in "
            "an evaluation over the rows that a selection sees, or a model is trained on. Nothing filled is written. "
            "pairwise: a feature is scored from the rows that have it, and from the edges between them; rows are "
            "neighbors by what both have, as scikit-learn's nan_euclidean_distances measures it; models of an "
            "evaluation are as under mean. Methods that compare features, or rows, with each other refuse it: RRPC, "
            "RLSR, DSSFS, SSUFS, SVMRFE and select.redundancy."
        ),
    )
    max_samples: PositiveInt | None = Field(
        None,
        description=(
            "Use at most so many rows, in eight stretches that are spread over the source: for a first look at data "
            "that take long. None: all of them."
        ),
    )
    append: bool = Field(
        default=False,
        description=(
            "Whether rows may have been added at the end of the source since the run in output.path: files of a "
            "directory, or rows of a Zarr array. Tiles of the rows before are kept, and rankings made again."
        ),
    )
    image_shape: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="Rows and columns of the images whose pixels the features are: scores are shown as images."
    )
    image_order: Literal["C", "F"] = Field(
        "C", description="Whether features go along the rows of an image (C), or down its columns (F), as in MATLAB."
    )
    feature_axis: str | None = Field(
        None,
        description=(
            "What the features lie along, such as wavelength (nm): the report draws scores along it, by names that are "
            "numbers, else by position. Names that are ascending or descending numbers are drawn without it."
        ),
    )

    @model_validator(mode="after")
    def _append_to_all_rows(self) -> DataBlock:
        if self.append and self.max_samples is not None:
            msg = "append keeps the rows before, and max_samples takes others of more rows: leave one of them out"
            raise ValueError(msg)
        return self

    @field_validator("times")
    @classmethod
    def _no_groups_with_times(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("groups") is not None:
            msg = "folds go by groups or by times, not by both: name one of them"
            raise ValueError(msg)
        return value


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
