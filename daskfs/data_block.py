"""The block ``data`` of a job: where X and labels are, and how they are read.

Options of the command line, the JSON Schema, the reference of keys, and the specification by which workers open a
source follow from these fields.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from daskfs.block import Block, Keys


class SourceKeys(Keys):
    """Keys that decide what is read; the first sentence of a description is the help of the key's option."""

    source: str = Field(
        min_length=1,
        description=(
            "Where X is: a file, a directory or pattern (data/*.parquet) of parts of a table, or a directory of tiles "
            "or of a Zarr array or group, on this machine or at an s3://, gs:// or az:// URL; sklearn:NAME, or "
            "synthetic:KIND?PARAMETERS."
        ),
    )
    labels: str | None = Field(
        None,
        description=("Column, member, path or URL that holds the labels. sklearn: and synthetic: bring their own."),
    )
    unlabeled: int | float | str = Field(
        "auto",
        description=(
            "Label that means an unlabeled row, beside NaN and empty cells: auto, none or a value. auto: -1 among "
            "classes, unless the others are all 1: -1 and 1 alone are two classes. none: no label does."
        ),
    )
    weights: str | None = Field(
        None,
        description=(
            "Column, member or path that holds how many rows each row counts for. 0 leaves a row out of the scores. "
            "z-scores are by weight. Neighbors are found, missing values filled, the median of 'total' taken and "
            "models of an evaluation fitted without weights."
        ),
    )
    groups: str | None = Field(
        None,
        description=(
            "Column, member or path that holds the group of each row, which folds keep together. Numbers, text or "
            "dates: a patient, a batch. Folds of the evaluation never have rows of one group on both sides."
        ),
    )
    times: str | None = Field(
        None,
        description=(
            "Column, member or path that holds the time of each row: numbers, or ISO dates or datetimes. Folds of "
            "the evaluation train on rows that are all earlier than those they test."
        ),
    )
    batch: str | None = Field(
        None,
        description=(
            "Column, member or path that holds the batch of each row, within which features are scored. Numbers or "
            "text: a donor, a plate, a lane of a sequencer. Features are ranked by the median of their ranks over "
            "batches."
        ),
    )
    only_batch: str | None = Field(
        None, description="Of tiles with batches: take the rows of this one only, as a data set of their own."
    )
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
            "(xarray, NetCDF). By default in the order of the array."
        ),
    )
    transpose: bool = Field(
        default=False,
        description="Take the columns of a Matrix Market file for the rows of X: files of features x cells.",
    )
    exclude: tuple[str, ...] = Field(
        (),
        description=(
            "Table columns that are no features and that no other key names: by name, by pattern (meta_*), or with "
            "non-numeric all that hold no numbers, or no value."
        ),
    )
    delimiter: str | None = Field(
        None,
        min_length=1,
        max_length=1,
        description="Of a table of text: what is between cells; by default a comma, a tab or a semicolon.",
    )
    decimal: Literal[".", ","] | None = Field(
        None,
        description=(
            "Of a table of text: a decimal point, or comma; by default the comma if cells between semicolons have some."
        ),
    )
    missing: Literal["refuse", "mean", "pairwise"] = Field(
        "refuse",
        description=(
            "What becomes of missing values (NaN): refuse, mean or pairwise. refuse: an error with their counts. mean: "
            "before anything else, they are taken to be the mean of their column over the rows that have one, each row "
            "counting for one; in an evaluation over the rows that a selection sees, or a model is trained on. Nothing "
            "filled is written. "
            "pairwise: a feature is scored from the rows that have it, and from the edges between them; rows are "
            "neighbors by what both have, as scikit-learn's nan_euclidean_distances measures it; models of an "
            "evaluation are as under mean. Methods that compare features, or rows, with each other refuse it: RRPC, "
            "RLSR, DSSFS, SSUFS, SVMRFE and select.redundancy."
        ),
    )
    missing_values: tuple[str | float, ...] = Field(
        (),
        description=(
            "Words and numbers that mean a missing value in features, labels and columns of rows, beside NaN, empty "
            "cells, NA, N/A and null: [-999, '?']."
        ),
    )
    feature_names: str | None = Field(
        None,
        description=(
            "Member, or path to a text file, with the feature names, one a line. Of columns between tabs the first "
            "counts, or one by its number (names.tsv:2); of 10x's features.tsv, the second."
        ),
    )
    row_names: str | None = Field(
        None,
        description=(
            "Column, member or path with the names of the rows; by default what the source says: AnnData's index of "
            "obs, barcodes of 10x, text along a named dimension. Of columns between tabs the first counts, or one "
            "by its number (names.tsv:2). Exports of data give them back."
        ),
    )
    max_samples: PositiveInt | None = Field(
        None,
        description=(
            "Use at most so many rows, in eight stretches that are spread over the source: for a first look at data "
            "that take long. None: all of them."
        ),
    )


class DataBlock(SourceKeys, Block):
    """Location of the data: each path is a file path, or the URL of an object (``s3://``, ``gs://``, ``az://``)."""

    path_keys = ("source",)
    path_or_name_keys = ("labels", "weights", "groups", "times", "batch", "row_names", "feature_names")

    task: Literal["auto", "classification", "regression"] = Field(
        "auto",
        description=(
            "Of the labels: auto, classification or regression. auto: whole numbers and text are classes, other "
            "numbers a target."
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
