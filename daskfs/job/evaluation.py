"""Job-file block of the evaluation of rankings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import Field, PositiveInt, field_validator, model_validator

from daskfs.block import Block
from daskfs.evaluation.keys import EvaluationKeys
from daskfs.evaluation.models import ModelSpec, make_model
from daskfs.job.methods import Words, check_names, is_plain, with_parameters
from daskfs.kernels.labels import Task

MODEL_LABEL_BYTES = 60
SIZES = (5, 10, 20, 50, 100)
"""Numbers of selected features that are evaluated by default."""


class ModelBlock(Block):
    """One model of the evaluation: its name, an optional label, its parameters, and its metrics."""

    name: str
    label: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    metrics: Words = ()

    @field_validator("parameters")
    @classmethod
    def _plain_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        for key, entry in value.items():
            if not is_plain(entry):
                msg = f"'{key}' should be a finite number, text, true, false, null, or a list of these"
                raise ValueError(msg)
        return value


class EvaluateBlock(EvaluationKeys, Block):
    """Cross-validated prediction on the first features of each ranking, and by baselines."""

    n_selected: tuple[PositiveInt, ...] = Field(
        SIZES, min_length=1, description="Numbers of first features that models are trained on; larger ones are cut."
    )
    models: tuple[ModelBlock, ...] = Field(
        (ModelBlock(name="knn"),),
        min_length=1,
        description=(
            "knn, linear-svm, rbf-svm, ridge, kmeans, 1nn-loo, cut, or a classifier, regressor or clusterer of "
            "scikit-learn by class name; each with parameters, a label, and metrics (names of scikit-learn's scorers)."
        ),
    )
    n_neighbors: PositiveInt = Field(5, description="Of the model knn, where it does not say its own.")
    max_samples: PositiveInt = Field(10_000, description="At most so many labeled rows, thinned within classes.")
    baselines: bool = Field(
        default=True,
        description=(
            "Test a random order of the features, all features, and the majority class or median target, too."
        ),
    )
    n_subsets: int = Field(20, ge=1, le=10_000, description="Draws of classes, of every number of them.")
    informative: tuple[str, ...] = Field(
        (), description="Names of features that are known to matter: the share of them that is selected is told."
    )

    @field_validator("models", mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        entries = value if isinstance(value, list | tuple) else [value]
        return [with_parameters(entry, tuple(ModelBlock.model_fields)) for entry in entries]

    @field_validator("n_selected", "labels", "n_classes", "informative", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int | float | str) and not isinstance(value, bool) else value

    @field_validator("n_selected", "n_classes")
    @classmethod
    def _sort_sizes(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if value is None else tuple(sorted(set(value)))

    @field_validator("labels", mode="before")
    @classmethod
    def _amounts(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        for amount in value:
            is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not is_number or not (0 < amount < 1 or (amount >= 1 and amount % 1 == 0)):
                msg = f"{amount!r} is no amount: write a whole number of rows, or a share between 0 and 1"
                raise ValueError(msg)
        return tuple(sorted({float(amount) if amount < 1 else int(amount) for amount in value}))

    @model_validator(mode="after")
    def _fit_together(self) -> EvaluateBlock:
        if self.labels is not None and not self.labels:
            msg = "labels is empty: name amounts, or null for all labels"
            raise ValueError(msg)
        if self.train_on == "labeled" and self.labels is None:
            msg = "train_on 'labeled' needs labels: how many rows are labeled"
            raise ValueError(msg)
        if self.train_on == "labeled" and self.setting == "both":
            msg = "train_on 'labeled' tests other rows in each setting: set setting to one of the two"
            raise ValueError(msg)
        return self

    @property
    def is_thinned(self) -> bool:
        """Whether rows may be left out until the evaluation fits: the job does not name a setting."""
        return "setting" not in self.model_fields_set

    @property
    def is_sized(self) -> bool:
        """Whether the job sets the size of the evaluation."""
        return bool({"max_samples", "labels", "n_classes", "n_repeats", "n_splits"} & self.model_fields_set)

    @property
    def ranks_anew(self) -> bool:
        """Whether rankings are recomputed for the evaluation, instead of testing the run's own."""
        return self.setting != "transductive" or self.labels is not None or self.n_classes is not None

    def model_specs(self, task: Task | None) -> tuple[ModelSpec, ...]:
        """Return the models with the block's defaults filled in; `task` is None if not known yet.

        Raises
        ------
        JobError
            For an unknown name, parameter or metric; for an invalid label; for a model that does not serve the task.
        """
        specs = []
        for place, entry in enumerate(self.models):
            block_defaults = {"n_neighbors": self.n_neighbors} if entry.name == "knn" else {}
            key = f"evaluate.models.{place}"
            made = make_model(entry.name, entry.parameters, entry.label, entry.metrics, task=task, key=key)
            specs.append(replace(made, parameters={**block_defaults, **entry.parameters}))
        check_names([spec.label for spec in specs], "model", MODEL_LABEL_BYTES, "it heads columns of tables")
        return tuple(specs)
