"""Stages "candidates" and "filter": drop redundant, unwanted, or too many features of a group from each ranking."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from daskfs.criteria.registry import Method
from daskfs.criteria.rrpc.correlations import (
    BinsParameters,
    distance_weights,
    drawing_cost,
    fewer_candidates,
    stored_bins,
    stored_bins_cost,
    stored_comoments_cost,
    stored_correlations,
)
from daskfs.errors import InputError, JobError, nearest
from daskfs.kernels.distance_correlation.histograms import BINS, DISTANCE_ROWS, distance_correlations_with
from daskfs.kernels.greedy import filter_redundant
from daskfs.kernels.scaling import Scaling
from daskfs.ranking.tables import method_scores
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.store import layout
from daskfs.store.context import Context

REDUNDANCY = "redundancy"
Measure = Literal["correlation", "distance_correlation"]
"""Similarity of features, of which those above a threshold are redundant."""


# ------------------------------------------------------------------------ names to numbers
@dataclass(frozen=True)
class FeatureChoice:
    """Numbers of features that are selected first, and of those that never are; groups by numbers as text."""

    keep: tuple[int, ...] = ()
    drop: tuple[int, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RedundancySpec:
    """A filter of rankings; fields are those of :class:`daskfs.job.redundancy.RedundancyBlock`.

    `scaling` is that of the values that are compared, and `n_wanted` the number of features to select, if that is set.
    """

    measure: Measure | None
    threshold: float
    demote: bool
    n_candidates: int
    max_per_group: int | None
    choice: FeatureChoice
    scaling: Scaling | None
    n_wanted: int | None = None


def numbered_choice(
    names: Sequence[str],
    keep: Sequence[str],
    drop: Sequence[str],
    groups: Mapping[str, str] | None,
    where: str = "",
) -> FeatureChoice:
    """Return a choice by numbers of features instead of names.

    Parameters
    ----------
    names
        Names of all features, of which `keep` and `drop` list some.
    groups
        Group of each feature: by its name, or by a regular expression that matches the whole name. A name takes
        precedence over expressions, and the first matching expression over later ones.
    where
        Prefix of the keys in messages.

    Raises
    ------
    JobError
        For a name that no feature has, an expression that is invalid or matches no name, a feature in both lists, or if
        no feature is left to select.
    """
    numbers = _numbers_by_name(names)
    first, never = (_numbers_of(list_, numbers, f"{where}{key}") for list_, key in ((keep, "keep"), (drop, "drop")))
    if both := sorted(set(first) & set(never)):
        msg = f"'{names[both[0]]}' is in {where}keep and in {where}drop: leave it in one of them."
        raise JobError(msg)
    if never and len(never) == len(names):
        msg = f"{where}drop names all {len(names)} features: nothing is left to select."
        raise JobError(msg)
    return FeatureChoice(tuple(first), tuple(never), numbered_groups(groups or {}, names, f"{where}groups"))


def check_counts(n_selected: int, n_keep: int, n_candidates: int | None, where: str = "") -> None:
    """Raise :class:`JobError` if `keep` is too long, or the candidates are too few, for the features to select.

    `n_candidates` is None if all ranked features are considered; `where` is a prefix of the keys in messages.
    """
    if n_keep > n_selected:
        msg = f"{where}keep has {n_keep} names, and {n_selected} features are to be selected."
        raise JobError(msg)
    if n_candidates is not None and n_candidates + n_keep < n_selected:
        msg = f"{where}n_candidates is {n_candidates}, and {n_selected} features are to be selected: raise it."
        raise JobError(msg)


def _numbers_of(feature_names: Sequence[str], numbers: Mapping[str, list[int]], key: str) -> list[int]:
    feature_numbers: list[int] = []
    for name in feature_names:
        if name not in numbers:
            msg = f"{key} names '{name}', and no feature has that name.{nearest(name, tuple(numbers))}"
            raise JobError(msg)
        feature_numbers += numbers[name]
    return sorted(set(feature_numbers))


def _numbers_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for number, name in enumerate(names):
        numbers.setdefault(name, []).append(number)
    return numbers


def numbered_groups(groups: Mapping[str, str], names: Sequence[str], key: str) -> dict[str, str]:
    """Return the groups of :func:`numbered_choice` by numbers of features as text; `key` is that of messages."""
    numbers = _numbers_by_name(names)
    exact: dict[int, str] = {}
    matched: dict[int, str] = {}
    for pattern, group in groups.items():
        if pattern in numbers:
            exact.update(dict.fromkeys(numbers[pattern], group))
            continue
        try:
            expression = re.compile(pattern)
        except re.error as error:
            msg = f"{key}: '{pattern}' is no feature's name and no regular expression ({error})."
            raise JobError(msg) from error
        matches = [number for number, name in enumerate(names) if expression.fullmatch(name)]
        if not matches:
            msg = f"{key}: '{pattern}' is no feature's name and matches none.{nearest(pattern, tuple(numbers))}"
            raise JobError(msg)
        for number in matches:
            matched.setdefault(number, group)
    return {str(number): group for number, group in sorted({**matched, **exact}.items())}


# ---------------------------------------------------------------------------------- stages
class CandidateListsParameters(StageParameters):
    """Parameters of "candidates"."""

    methods: tuple[Method, ...]
    redundancy: RedundancySpec


class FilterParameters(CandidateListsParameters):
    """Parameters of "filter", with those of the stage that bins candidates, if there is one."""

    bins: BinsParameters | None


def list_candidates(context: Context, parameters: CandidateListsParameters, unit: int) -> None:
    """Write the candidates of each method; :class:`InputError` if all features that a method ranks are dropped.

    Candidates are the features to keep, then the ranking without those to keep or drop, with a measure its first
    `n_candidates`.
    """
    del unit
    redundancy = parameters.redundancy
    keep, drop = set(redundancy.choice.keep), set(redundancy.choice.drop)
    for method in parameters.methods:
        table = method_scores(context.store, method)
        order, n_ranked = method.order(table), int(np.count_nonzero(~method.is_excluded(table)))
        first = [feature for feature in order.tolist() if feature in keep]
        rest = [feature for feature in order[:n_ranked].tolist() if feature not in keep and feature not in drop]
        if redundancy.measure is not None:
            rest = rest[: redundancy.n_candidates]
        if n_ranked and not first and not rest:
            msg = f"method {method.label} can select nothing: every feature that it ranks is in drop."
            raise InputError(msg)
        features = np.array(first + rest, dtype=np.int64)
        context.store.put_array(layout.CANDIDATES.format(REDUNDANCY, method.label), features)


def filter_ranking(context: Context, parameters: FilterParameters, unit: int) -> dict[str, Any]:
    """Write the features of one method that may be selected, best first, and why each other one was dropped."""
    method, redundancy = parameters.methods[unit], parameters.redundancy
    features = context.store.open(layout.CANDIDATES.format(REDUNDANCY, method.label))[...]
    keep, groups = set(redundancy.choice.keep), redundancy.choice.groups
    n_keep = sum(feature in keep for feature in features.tolist())
    in_group = {
        place: groups[str(feature)] for place, feature in enumerate(features.tolist()) if str(feature) in groups
    }
    similarity = _similarity(context, parameters, method, features)
    kept_places, passed = filter_redundant(
        range(features.size), similarity, redundancy.threshold, range(n_keep), in_group, redundancy.max_per_group
    )
    demoted = [place for place, (why, *_) in passed.items() if why == "redundant" and redundancy.demote]
    context.store.put_array(layout.FILTERED.format(method.label), features[[*kept_places, *sorted(demoted)]])
    rows = []
    for place, (why, other, value) in passed.items():
        what = [int(features[other]), value] if why == "redundant" else [in_group[place]]
        rows.append([int(features[place]), why, *what])
    rows += [[feature, "name"] for feature in redundancy.choice.drop]
    context.store.write_json(layout.FILTERED_JSON.format(method.label), rows)
    return {"n_candidates": int(features.size), "n_kept": len(kept_places)}


def _similarity(
    context: Context, parameters: FilterParameters, method: Method, features: np.ndarray
) -> Callable[[int, Sequence[int]], np.ndarray] | None:
    """Return a function of a candidate's index and other indices that returns their similarities; None for none."""
    measure = parameters.redundancy.measure
    if measure is None or features.size == 0:
        return None
    if measure == "correlation":
        correlation = stored_correlations(context, REDUNDANCY, method.label)
        np.abs(correlation, out=correlation)
        return lambda place, others: correlation[place, others]
    assert parameters.bins is not None
    columns, weights = stored_bins(context, parameters.bins, features), distance_weights(context)
    return lambda place, others: distance_correlations_with(columns[place], [columns[k] for k in others], weights)


FEATURE_BYTES = 400
"""Bytes of a feature in a method's table, in its order as Python integers, and in the keep, drop and group lists."""
CANDIDATE_BYTES = 400
"""Bytes of a candidate with its group, and the reason why it was dropped, as Python objects and as JSON."""


def candidates_cost(n_features: int, process: Cost) -> Cost:
    """Return the memory of listing the candidates."""
    return (*process, Objects("features in tables, lists and groups", n_features, FEATURE_BYTES))


def filter_cost(n_samples: int, n_features: int, count: int, measure: str | None, process: Cost) -> Cost:
    """Return the memory of filtering `count` candidates."""
    comparison: Cost = ()
    if measure == "correlation":
        comparison = stored_comoments_cost(count)
    elif measure == "distance_correlation":
        rows = min(n_samples, DISTANCE_ROWS)
        comparison = (
            *stored_bins_cost(count, rows),
            Array("pairs of bins of two candidates, weights of rows, and what counts them", (5, rows)),
            Array("joint histograms of two candidates", (8, BINS, BINS)),
        )
    return (
        *candidates_cost(n_features, process),
        *comparison,
        Objects("candidates, and why they were passed over", count, CANDIDATE_BYTES),
        Array("weights of rows", (n_samples,)),
        *drawing_cost(n_samples),
    )


CANDIDATES_STAGE = StageKind("candidates", __name__, list_candidates, candidates_cost)
FILTER_STAGE = StageKind("filter", __name__, filter_ranking, filter_cost, advice=fewer_candidates)
