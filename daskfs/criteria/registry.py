"""Registry of criteria; ``CONTRIBUTING.md`` lists what a new one needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from pydantic import ValidationError
from pydantic_core import CoreSchema, core_schema

from daskfs.criteria.criterion import PVALUE, Criterion, Parameters, Significance, TestedParameters
from daskfs.criteria.entry_points import facts_of, installed_names, load_criterion, stored_criterion
from daskfs.criteria.statistics import Need, Statistics
from daskfs.errors import InputError, JobError, nearest
from daskfs.kernels.aggregate import shared_ranks
from daskfs.kernels.labels import LabelCounts
from daskfs.kernels.order import Direction, rank_order
from daskfs.kernels.statistics.permutation import qvalues
from daskfs.run_warning import CHANGES, RunWarning

COMBINED_FIELDS = ("score", "mean_rank", "n_rankings", "place")
"""Fields of :func:`daskfs.kernels.aggregate.combine_ranks`; the score is the median rank."""


@dataclass(frozen=True)
class Method:
    """A criterion with its parameters, under the label that tables and plots show."""

    label: str
    criterion: Criterion
    parameters: Parameters
    combined: bool = False
    """Whether the table holds the result of :func:`daskfs.kernels.aggregate.combine_ranks` over batches."""

    @property
    def needs(self) -> tuple[Need[Any], ...]:
        """Statistics that the criterion needs."""
        return (*self.criterion.statistics(self.parameters), *(self.test.needs(self.parameters) if self.test else ()))

    @property
    def test(self) -> Significance | None:
        """Test of single features; None if it is not asked for, or there is none."""
        is_asked = isinstance(self.parameters, TestedParameters) and self.parameters.significance
        return self.criterion.significance if is_asked and not self.combined else None

    @property
    def untested(self) -> str:
        """Why features have no p-value though these are asked for; empty if they have."""
        if self.test is not None:
            return ""
        return "ranks of batches are combined" if self.criterion.significance else self.criterion.untested

    def score(self, statistics: Statistics) -> tuple[Mapping[str, np.ndarray], np.ndarray | None]:
        """Return the fields of a panel by name, each (width,), float64, and a mask of p-values in doubt or None."""
        fields, test = self.criterion.score(statistics, self.parameters), self.test
        if test is None:
            return fields, None
        outcome = test.pvalues(statistics, self.parameters)
        pvalues, in_doubt = (outcome, None) if test.permuted is None else outcome
        return {**fields, PVALUE: pvalues}, in_doubt

    def to_json(self) -> dict[str, Any]:
        """Return the method as JSON-able values; :meth:`from_json` is the inverse."""
        parameters = self.parameters.model_dump(mode="json")
        if hasattr(self.parameters, "graph"):
            parameters["graph"] = self.parameters.graph
        values = {"name": self.criterion.name, "label": self.label, "parameters": parameters}
        if self.criterion.package:
            values["criterion"] = facts_of(self.criterion, self.parameters)
        return {**values, "combined": True} if self.combined else values

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Method:
        """Rebuild a method; :class:`ValueError` if it is damaged."""
        try:
            if "criterion" in raw:
                method = Method(raw["label"], *stored_criterion(raw["criterion"], raw["parameters"]))
            else:
                method = make_method(raw["name"], raw["parameters"], raw["label"])
            return replace(method, combined=bool(raw.get("combined")))
        except (JobError, KeyError, TypeError) as error:
            msg = f"no method: {error}"
            raise ValueError(msg) from error

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> CoreSchema:
        written = core_schema.plain_serializer_function_ser_schema(cls.to_json)
        return core_schema.no_info_plain_validator_function(cls.from_json, serialization=written)

    def without_tests(self) -> Method:
        """Return the method without p-values."""
        if self.test is None:
            return self
        return replace(self, parameters=self.parameters.model_copy(update={"significance": False}))

    def pvalues(self, table: np.ndarray) -> np.ndarray | None:
        """Return the p-values of a table, shape (n_features,), float64, NaN for none; None if nothing is tested."""
        return table[self.fields.index(PVALUE)] if PVALUE in self.fields else None

    def qvalues(self, pvalues: np.ndarray) -> np.ndarray:
        """Return the q-values of p-values, both of shape (n_features,), float64, by the method's `fdr_method`."""
        assert isinstance(self.parameters, TestedParameters)
        return qvalues(pvalues, self.parameters.fdr_method)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the rows of the method's table."""
        if self.combined:
            return COMBINED_FIELDS
        return (*self.criterion.fields, *self.parameters.more_fields(), *([PVALUE] if self.test else []))

    @property
    def slab_fields(self) -> tuple[str, ...]:
        """Names of the rows of the table that the slabs make."""
        return self.criterion.slab_fields or self.fields

    @property
    def finish(self) -> str:
        """Name of the stages that make the method's table from that of its slabs; empty if the slabs score it."""
        finish = "" if self.combined else self.criterion.finish
        return finish if isinstance(finish, str) else finish(self.parameters)

    @property
    def direction(self) -> Direction:
        """Whether small or large scores are good."""
        return "ascending" if self.combined else self.criterion.direction

    @property
    def ranked_by(self) -> str:
        """Name of the field that ranks instead of the score, smallest first; empty if the score ranks."""
        return COMBINED_FIELDS[-1] if self.combined else self.criterion.ranked_by

    @property
    def reason(self) -> str:
        """Reason why a feature is excluded."""
        return "no rank in any batch" if self.combined else self.criterion.reason

    def ranking_values(self, table: np.ndarray) -> tuple[np.ndarray, Direction]:
        """Return the values of a table that rank, shape (n_features,), float64, and their direction."""
        if by := self.ranked_by:
            return table[self.fields.index(by)], "ascending"
        return table[0], self.direction

    def ranks(self, table: np.ndarray) -> np.ndarray:
        """Return the rank of each feature, shape (n_features,), float64: 1 = best, ties shared, NaN if excluded."""
        return shared_ranks(*self.ranking_values(table))

    def order(self, table: np.ndarray) -> np.ndarray:
        """Return the feature numbers, best first, excluded ones last; shape (n_features,), int64."""
        return rank_order(*self.ranking_values(table))

    def ranked_features(self, table: np.ndarray) -> np.ndarray:
        """Return the features that have a rank, best first; shape (n_ranked,), int64."""
        return self.order(table)[: int(np.count_nonzero(~self.is_excluded(table)))]

    def is_excluded(self, table: np.ndarray) -> np.ndarray:
        """Return the mask of features without a rank, shape (n_features,), bool."""
        return np.isnan(self.ranking_values(table)[0])

    def notes(self, table: np.ndarray, constant: np.ndarray) -> np.ndarray:
        """Return why each feature has no rank or no score, shape (n_features,), object; empty where it has both.

        `constant` are the reasons that hold for any method, as of :meth:`daskfs.store.tiles.Tiles.constant_notes`.
        """
        why = np.where(constant == "", self.reason, constant)
        unscored = np.where(np.isnan(table[0]), self.criterion.unscored, "")
        return np.where(self.is_excluded(table), why, unscored).astype(object)

    def check_ranks_any(self, table: np.ndarray, n_samples: int) -> None:
        """Raise :class:`InputError` if every feature is excluded."""
        if self.is_excluded(table).all():
            why = f"every one is excluded ({self.reason}, n_samples={n_samples})"
            msg = f"method {self.label} can rank none of the {table.shape[1]} features: {why}."
            raise InputError(msg)


@cache
def _all_criteria() -> Mapping[str, Criterion]:
    modules = (import_module(f"daskfs.criteria.{family}") for family in Criterion.families)
    return {criterion.name: criterion for module in modules for criterion in module.CRITERIA}


@cache
def criteria() -> Mapping[str, Criterion]:
    """Return the criteria that a job may list, by name, in the order of their families."""
    return {name: one for name, one in _all_criteria().items() if not (one.combines or one.is_outside)}


def installed_criteria() -> Mapping[str, Criterion]:
    """Return the criteria of :func:`criteria`, and those of other packages, which it imports."""
    return {**criteria(), **{name: criterion_named(name) for name in installed_names()}}


def criterion_named(name: str) -> Criterion:
    """Return a criterion, or the consensus of several, by name; :class:`JobError` with the nearest name."""
    criterion = _all_criteria().get(name) or load_criterion(name)
    if criterion is None or criterion.is_outside:
        names = (*criteria(), *installed_names())
        msg = f"unknown method '{name}'.{nearest(name, names)} Methods: {', '.join(names)}."
        raise JobError(msg)
    return criterion


def make_method(name: str, parameters: Mapping[str, Any], label: str | None = None, *, strict: bool = False) -> Method:
    """Return a method with checked parameters; :class:`JobError` names an unknown or wrong one."""
    criterion = _all_criteria().get(name) or criterion_named(name)
    try:
        checked = criterion.parameters.model_validate(dict(parameters), strict=strict)
    except ValidationError as error:
        raise JobError(_first_problem(error, criterion)) from None
    return Method(label or name, criterion, checked)


def of_representation(method: Method) -> Method:
    """Return a method whose neighbors are rows of a representation, compared as they are, in one graph for all rounds.

    Methods that search no neighbors are unchanged.
    """
    settled: dict[str, Any] = {"graph_scaling": None, "rebuild_graph": False, "foreign_graph": True}
    if getattr(method.parameters, "laplacian", False):
        settled["large_n"] = "exact"  # landmarks have a graph of their own
    own_settings = {key: value for key, value in settled.items() if key in type(method.parameters).model_fields}
    return replace(method, parameters=method.parameters.model_copy(update=own_settings))


def _first_problem(error: ValidationError, criterion: Criterion) -> str:
    problem = error.errors()[0]
    key = str(problem["loc"][0]) if problem["loc"] else ""
    if problem["type"] == "extra_forbidden":
        valid = criterion.parameters.public_fields()
        return f"method {criterion.name} has no parameter '{key}'.{nearest(key, valid)} Parameters: {', '.join(valid)}."
    if not key:
        return f"method {criterion.name}: {problem['msg'].removeprefix('Value error, ')}."
    # a parameter of several types has one error for each
    messages = dict.fromkeys(
        p["msg"].removeprefix("Value error, ") for p in error.errors() if p["loc"] and p["loc"][0] == key
    )
    return f"method {criterion.name}, parameter '{key}': {'; or: '.join(messages)} (got {problem['input']!r})."


def check_labels(criterion: Criterion, label: str, labels: LabelCounts | None) -> None:
    """Raise :class:`InputError` if the labels of the rows that count do not suffice for a method."""
    if not criterion.needs_labels:
        return
    if labels is None:
        msg = f"method {label} needs labels, and the data have none: set data.labels."
        raise InputError(msg)
    if labels.task not in criterion.tasks:
        others = ", ".join(name for name, one in criteria().items() if one.needs_labels and labels.task in one.tasks)
        msg = (
            f"method {label} is for {' or '.join(criterion.tasks)}, and data.task is {labels.task}: set data.task, if "
            f"the labels are otherwise, or take a method for {labels.task} ({others})."
        )
        raise InputError(msg)
    if not labels.n_labeled:
        msg = f"method {label} needs labels, and none of the {labels.n_samples} rows has one."
        raise InputError(msg)
    if not labels.n_counted:
        msg = f"method {label} needs labels, and every labeled row has sample weight 0."
        raise InputError(msg)
    if not (criterion.one_class_serves or labels.is_varied):
        what = "one class" if labels.task == "classification" else "one value"
        msg = f"method {label} needs labels that differ, and all {labels.n_counted} labeled rows have {what}."
        raise InputError(msg)


def label_warnings(method: Method, labels: LabelCounts | None) -> list[RunWarning]:
    """List the warnings about labels that suffice for a method."""
    if labels is None or not method.criterion.one_class_serves or labels.is_varied or not labels.n_counted:
        return []
    text = f"all {labels.n_counted} labeled rows have one class, which tells no feature apart; only the graph ranks"
    return [RunWarning("one class", CHANGES, text, (method.label,), "method")]
