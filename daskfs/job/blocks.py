"""Blocks of a job file, each checked key by key."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import (
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
)

from daskfs.graph.spec import Engine
from daskfs.job.base import Block
from daskfs.job.redundancy import RedundancyBlock
from daskfs.kernels.scaling import Scaling
from daskfs.methods.laplacian import GraphChoice

_BYTES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*((?:[kmgt]i?)?)b?\s*", re.IGNORECASE)

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: str | int) -> int:
    """Return a number of bytes from ``"2GiB"``, ``"500 MB"`` or an integer."""
    match = _BYTES.fullmatch(str(text))
    size = int(float(match[1]) * _UNITS[match[2].lower()]) if match else 0
    if size <= 0:
        msg = f"'{text}' is not a size: write for example 2GiB, 500MB or a number of bytes"
        raise ValueError(msg)
    return size


class DataBlock(Block):
    """Where the data are."""

    source: str = Field(
        min_length=1,
        description="A path (.npy, .npz, .csv, .tsv, .parquet, Zarr, tiles), sklearn:NAME or synthetic:...",
    )
    array: str | None = Field(None, description="Member of an .npz or path in a Zarr group that holds X.")
    labels: str | None = Field(
        None, description="A column, a member, or a path; sklearn: and synthetic: bring their own."
    )
    weights: str | None = Field(
        None,
        description=(
            "How many rows each row counts for: a column, a member, or a path; 0 leaves a row out of the scores. "
            "Neighbors are found, values scaled and models of an evaluation fitted without weights."
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
    feature_names: str | None = Field(None, description="A member, or a path to a text file with one name a line.")
    exclude: tuple[str, ...] = Field((), description="Table columns that are no features and that no key here names.")
    task: Literal["auto", "classification", "regression"] = "auto"
    image_shape: tuple[PositiveInt, PositiveInt] | None = Field(
        None, description="Rows and columns of the images whose pixels the features are: scores are shown as images."
    )
    image_order: Literal["C", "F"] = Field(
        "C", description="Whether features go along the rows of an image (C), or down its columns (F), as in MATLAB."
    )

    @field_validator("times")
    @classmethod
    def _no_groups_beside_times(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("groups") is not None:
            msg = "folds go by groups or by times, not by both: name one of them"
            raise ValueError(msg)
        return value


class TransformBlock(Block):
    """Scaling on the fly, separately for the graph and for the scores."""

    graph: Scaling | None = None
    score: Scaling | None = None


class GraphBlock(GraphChoice, Block):
    """Defaults of every method that uses the neighbor graph."""

    engine: Engine = "auto"
    recall: float = Field(
        0.98, gt=0.5, lt=1, description="Share of the true neighbors that an approximate search aims at."
    )
    projection: PositiveInt | Literal["auto"] | None = Field(
        "auto", description="Columns that an approximate search compares rows in; null for all; auto for wide data."
    )
    random_state: NonNegativeInt = 0
    precomputed: str | None = Field(
        None,
        description=(
            "A graph that is not to be found: the run that found one (or RUN/knn/NAME), or a sparse matrix of weights, "
            "in an .npz file or a Zarr group in AnnData's layout."
        ),
    )


class SelectBlock(Block):
    """Which features count as selected."""

    n_features: PositiveInt | None = Field(None, description="How many. None: half of them.")
    redundancy: RedundancyBlock | None = None


class ClusterBlock(Block):
    """A local cluster by default; an address or a scheduler file joins one that runs. workers: 0 runs in this
    process.
    """

    workers: NonNegativeInt = 2
    threads: PositiveInt = 1
    memory_limit: str | int | None = Field(
        None, description="Of one worker, for example 2GiB. None shares the machine's."
    )
    address: str | None = None
    scheduler_file: str | None = None
    wait_seconds: PositiveFloat = 120.0
    dashboard: bool = False
    local_directory: str | None = None
    tls: bool = Field(
        False,
        description=(
            "Encrypt what processes tell each other. A local cluster makes its own certificates (daskfs[tls]); for one "
            "that runs, Dask's configuration names them (distributed.comm.tls)."
        ),
    )

    @field_validator("tls")
    @classmethod
    def _not_of_a_plain_address(cls, value: bool, info: ValidationInfo) -> bool:
        address = info.data.get("address")
        if value and address and not address.startswith("tls://"):
            msg = f"cluster.address {address} is none of a scheduler with TLS, which begins with tls://"
            raise ValueError(msg)
        return value

    @field_validator("memory_limit")
    @classmethod
    def _in_bytes(cls, value: str | int | None) -> int | None:
        return None if value is None else parse_bytes(value)


class OutputBlock(Block):
    """Where the run lies."""

    path: str = Field(min_length=1)
    title: str | None = None
