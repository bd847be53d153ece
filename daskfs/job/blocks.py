"""Blocks of a job file, each checked key by key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from daskfs.block import Block
from daskfs.criteria.laplacian import GraphChoice
from daskfs.criteria.scaling_field import GraphScalingChoice, ScalingChoice
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.job.redundancy import RedundancyBlock, read_groups
from daskfs.kernels.statistics.permutation import FDRMethod
from daskfs.storage import as_output_path


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
