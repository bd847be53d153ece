"""Keys of the block ``evaluate`` of a job that stages read as the job has them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from daskfs.block import Keys


class EvaluationKeys(Keys):
    """Keys that decide how rows and labels are drawn and models trained."""

    n_splits: int = Field(5, ge=2, description="Folds.")
    n_repeats: int = Field(1, ge=1, le=10_000, description="Times that folds are drawn anew.")
    scaling: Literal["zscore"] | None = Field(
        "zscore", description="Rescaling of the features before a model, by the training rows. null: none."
    )
    setting: Literal["transductive", "inductive", "both"] = Field(
        "inductive",
        description=(
            "inductive: the selection is made anew within each training fold. transductive: it sees the rows that "
            "models are tested on, and their labels, as in the papers. both: the two, and the gap between them. Where "
            "it is not named, an evaluation that does not fit is thinned, and says so; else it is refused."
        ),
    )
    labels: tuple[float | int, ...] | None = Field(
        None,
        description=(
            "How many labels a selection sees, drawn n_draws times: a whole number of rows of each class (in "
            "regression of all), or a share of each class. null: all."
        ),
    )
    n_draws: PositiveInt = Field(5, description="Draws of labels, of every amount; the same for all methods.")
    train_on: Literal["all", "labeled"] = Field(
        "all",
        description=(
            "Labels that models are trained with: all of the training folds, or those alone that the selection saw; "
            "then in the transductive setting all other rows are tested."
        ),
    )
    n_classes: tuple[Annotated[int, Field(ge=2)], ...] | None = Field(
        None, min_length=1, description="Evaluate among so many classes, drawn n_subsets times, instead of among all."
    )
    random_state: int = Field(0, ge=0, lt=2**31, description="Seed of rows in use, folds, draws and models.")
