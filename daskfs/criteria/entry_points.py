"""Criteria of other packages: entry points of the group ``daskfs.criteria``, loaded by the name that a job gives.

A plan has the facts of such a criterion beside its parameters, so that whoever reads a run imports no other package. A
unit loads the criterion when it needs its statistics or score, in the version that the plan names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Self

from pydantic import ConfigDict, PrivateAttr

from daskfs.criteria.criterion import Criterion, Parameters, Significance, TestedParameters
from daskfs.errors import InputError, JobError
from daskfs.graph.spec import ListsSpec, Weighting

ENTRY_POINTS = "daskfs.criteria"
OF_SCORING = {"parameters", "statistics", "score", "finish", "significance"}
"""Fields of a criterion that readers of a run do not need; all others are text, switches and lists of text."""


def installed_names() -> tuple[str, ...]:
    """Return the names of the criteria that other packages define, sorted, without importing these packages."""
    return tuple(sorted({point.name for point in entry_points(group=ENTRY_POINTS)}))


@cache
def load_criterion(name: str) -> Criterion | None:
    """Load a criterion of another package; None if no package has it.

    Raises :class:`JobError` if two packages define it, it cannot be imported, or no job can use it.
    """
    points = entry_points(group=ENTRY_POINTS, name=name)
    packages = sorted({f"{point.dist.name}=={point.dist.version}" if point.dist else "?" for point in points})
    if not packages:
        return None
    if len(packages) > 1:
        msg = f"method {name} is defined by {' and '.join(packages)}: uninstall one of them."
        raise JobError(msg)
    where = f"method {name} of {packages[0]}"
    try:
        criterion = next(iter(points)).load()
    except (ImportError, AttributeError) as error:
        msg = f"{where} cannot be loaded: {error}"
        raise JobError(msg) from error
    if problem := _problem(criterion, name):
        msg = f"{where} cannot be used: {problem}."
        raise JobError(msg)
    return replace(criterion, package=packages[0])


def _problem(criterion: object, name: str) -> str:
    """Return why a job cannot use an object as a criterion; empty if it can."""
    if not isinstance(criterion, Criterion):
        return f"it is of type {type(criterion).__name__}, and no daskfs.criteria.criterion.Criterion"
    if criterion.name != name:
        return f"its name is '{criterion.name}'"
    if criterion.finish or criterion.slab_fields or criterion.combines or criterion.is_outside:
        return "only daskfs itself has criteria with stages of their own (finish, slab_fields, combines, is_outside)"
    if criterion.fields[:1] != ("score",):
        return "its fields do not begin with 'score'"
    return ""


class StoredParameters(Parameters):
    """Parameters of a criterion of another package as a plan has them, which the criterion itself checks later."""

    model_config = ConfigDict(extra="allow")
    _criterion: tuple[str, str] = PrivateAttr(default=("", ""))
    """Name and package of the criterion."""

    def load(self) -> Parameters:
        """Return the parameters as the criterion defines them."""
        kind = _load_version(*self._criterion).parameters
        stored = self.model_dump()
        return kind.model_validate({key: value for key, value in stored.items() if key in kind.model_fields})

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the neighbor lists needed, as the criterion's own parameters do."""
        return self.load().lists(n_samples)

    def weightings(self) -> tuple[Weighting, ...]:
        """Return the weighted graphs that stages after the slabs read, as the criterion's own parameters do."""
        return self.load().weightings()

    def redrawn(self, place: tuple[int, ...]) -> Self:
        """Return the parameters for one ranking of an evaluation, as the criterion's own parameters do."""
        drawn = type(self).model_validate(self.load().redrawn(place).model_dump())
        drawn._criterion = self._criterion
        return drawn


class StoredTestedParameters(StoredParameters, TestedParameters):
    """The same, of a criterion that can test every feature."""

    model_config = ConfigDict(extra="allow")


def _load_version(name: str, package: str) -> Criterion:
    """Load a criterion in the version that a plan names; :class:`InputError` if this process has not that one."""
    criterion = load_criterion(name)
    if criterion is None or criterion.package != package:
        there = "is not installed" if criterion is None else f"is installed as {criterion.package}"
        msg = f"method {name} is of {package}, which {there} in this process: install it wherever units run."
        raise InputError(msg)
    return criterion


def facts_of(criterion: Criterion, parameters: Parameters) -> dict[str, Any]:
    """Return the facts of a criterion that :func:`stored_criterion` takes, JSON-able."""
    values = {field.name: getattr(criterion, field.name) for field in fields(criterion) if field.name not in OF_SCORING}
    facts = {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
    facts["fields"] = [*criterion.fields, *parameters.more_fields()]
    if (test := criterion.significance) is not None:
        facts["test"] = {"is_permuted": test.permuted is not None, "meaning": test.meaning(parameters)}
    return facts


def stored_criterion(facts: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[Criterion, StoredParameters]:
    """Return a criterion of another package with the facts of :func:`facts_of`, and its parameters.

    It loads the criterion itself when it first scores.
    """
    facts = {key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()}
    test = facts.pop("test", None)
    source = (facts["name"], facts["package"])
    significance = test and Significance(
        lambda p: _significance(source).needs(p.load()),
        lambda statistics, p: _significance(source).pvalues(statistics, p.load()),
        (lambda context, p, *rest: _significance(source).permuted(context, p.load(), *rest))
        if test["is_permuted"]
        else None,
        lambda _: str(test["meaning"]),
    )
    kind = StoredParameters if test is None else StoredTestedParameters
    criterion = Criterion(
        **facts,
        parameters=kind,
        statistics=lambda p: _load_version(*source).statistics(p.load()),
        score=lambda statistics, p: _load_version(*source).score(statistics, p.load()),
        significance=significance,
    )
    parameters = kind.model_validate(values)
    parameters._criterion = source
    return criterion, parameters


def _significance(source: tuple[str, str]) -> Any:
    return _load_version(*source).significance
