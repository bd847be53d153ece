"""Statistics of a panel, from which criteria compute scores.

A criterion names the statistics it needs. The needs of all methods that score the same slab are deduplicated, each
statistic is computed once per panel, and each criterion turns a few short arrays into scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.panel.backend import PLAIN, Passes
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.contingency import class_table
from daskfs.kernels.statistics.distributions import Distributions, distributions
from daskfs.kernels.statistics.moments import (
    ClassMoments,
    Moments,
    TargetMoments,
    class_moments,
    column_moments,
    row_blocks,
    target_moments,
)
from daskfs.kernels.statistics.mutual_information import cut_point
from daskfs.kernels.statistics.permutation import RatioInvariants, Tails, column_tails
from daskfs.store.value_checks import MAX_MAGNITUDE

Denominator = Literal["degree", "variance"]
"""Diagonal of D in f~'D f~: the degrees of a graph, or ones."""


@dataclass(frozen=True)
class GraphForms:
    """Quadratic forms of a graph: f'Lf and f~'D f~, each (width,), and the mean by degrees, f'D1 / 1'D1, float64.

    `mean`, shape (2, width), is rounded and what that leaves out. `is_constant`, shape (width,), bool, marks columns
    whose score is NaN. `volume` is the sum of the degrees, 1'D1; of shape (width,) where each column has its own graph,
    of the rows that have a value.
    """

    numerator: np.ndarray
    denominator: np.ndarray
    mean: np.ndarray
    is_constant: np.ndarray
    volume: float | np.ndarray

    def part(self, columns: np.ndarray) -> GraphForms:
        """Return the forms of the columns with the given indices, int64."""
        volume = self.volume[columns] if isinstance(self.volume, np.ndarray) else self.volume
        rest = (self.numerator, self.denominator, self.mean, self.is_constant)
        numerator, denominator, mean, is_constant = (values[..., columns] for values in rest)
        return GraphForms(numerator, denominator, mean, is_constant, volume)

    def among(self, width: int, columns: np.ndarray) -> GraphForms:
        """Return the forms of a panel of `width` columns, of which these are at some indices, int64; NaN elsewhere."""
        found, is_constant = np.full((4, width), np.nan), np.ones(width, bool)
        found[:, columns] = self.numerator, self.denominator, *self.mean
        is_constant[columns] = self.is_constant
        return GraphForms(found[0], found[1], found[2:], is_constant, self.volume)


NO_FORMS = GraphForms(np.empty(0), np.empty(0), np.empty((2, 0)), np.empty(0, bool), 0.0)
"""Forms of no column."""


@dataclass(frozen=True)
class SignTable:
    """Labeled rows of each class at or above the mean of a column.

    `upper`, shape (n_classes, width), has their numbers, and `counts`, shape (n_classes,), those of all; float64.
    """

    upper: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class _OfColumns:
    """Need of the columns of a panel, rescaled."""

    scaling: Scaling | None


class NeedMoments(_OfColumns):
    """Moments over all rows."""


class NeedClassMoments(_OfColumns):
    """Moments of each class over labeled rows."""


class NeedTargetMoments(_OfColumns):
    """Joint moments with the target over labeled rows."""


@dataclass(frozen=True)
class NeedDistributions(_OfColumns):
    """Distributions of the classes over labeled rows: their distances, or a table of classes against `n_bins` bins.

    All of these of one panel come from one sort.
    """

    n_bins: int | None = None


@dataclass(frozen=True)
class NeedGraphForms(_OfColumns):
    """Quadratic forms of one weighted graph; only of the features that `half` tests unless it is None, else NaN."""

    weighting: Weighting
    half: int | None = None


@dataclass(frozen=True)
class NeedSignTable(_OfColumns):
    """Classes of the labeled rows at or above the mean by degrees of one weighted graph."""

    weighting: Weighting

    @property
    def forms(self) -> NeedGraphForms:
        """The need that provides the mean."""
        return NeedGraphForms(self.scaling, self.weighting)


@dataclass(frozen=True)
class NeedNumbers:
    """Numbers of the panel's columns among all features, shape (width,), int64."""

    scaling: None = None


@dataclass(frozen=True)
class NeedTails(_OfColumns):
    """Central moments of higher order, over all rows or over those with a label."""

    of_labeled: bool = False


@dataclass(frozen=True)
class NeedInvariants:
    """Invariants of the Laplacian of a graph and of D; see :mod:`daskfs.criteria.invariants`."""

    weighting: Weighting
    denominator: Denominator = "degree"
    scaling: None = None

    @property
    def key(self) -> str:
        """Short text that is safe as a store key."""
        return f"{self.weighting.key}-{self.denominator}"


@dataclass(frozen=True)
class NeedHalves:
    """Half of the features that tests each of the panel's columns, 0 or 1, 2 for none, shape (width,), uint8."""

    scaling: None = None


NeedOfStore = NeedInvariants | NeedHalves
"""Needs that stages before have stored."""
NeedOfLabels = NeedClassMoments | NeedTargetMoments | NeedDistributions
Need = NeedMoments | NeedOfLabels | NeedTails | NeedGraphForms | NeedSignTable | NeedNumbers | NeedOfStore
Statistic = (
    Moments
    | ClassMoments
    | TargetMoments
    | Distributions
    | Tails
    | GraphForms
    | SignTable
    | RatioInvariants
    | np.ndarray
)
Statistics = Mapping[Need, Statistic]
Kind = TypeVar("Kind")


def statistic_of(statistics: Statistics, need: Need, kind: type[Kind]) -> Kind:
    """Return the statistic of a need, which is of a kind."""
    found = statistics[need]
    assert isinstance(found, kind)
    return found


def need_reads_labels(need: Need) -> bool:
    """Return whether a statistic depends on the label of each row."""
    return isinstance(need, NeedOfLabels | NeedSignTable) or (isinstance(need, NeedTails) and need.of_labeled)


def panel_statistic(
    need: Need, F: np.ndarray, labels: Labels | None, weights: np.ndarray | None = None, passes: Passes = PLAIN
) -> Statistic:
    """Compute a statistic that needs the panel and the labels only.

    Parameters
    ----------
    need
        :class:`NeedMoments` or one of :data:`NeedOfLabels`. Graph forms of all panels of a slab are
        computed together, in one stream of the graph.
    F
        Panel, shape (n_samples, width).
    labels
        Labels; rows of weight 0 have none.
    weights
        Shape (n_samples,), float64: how many rows each row counts for; None for one each.
    passes
        Backend of the sums.
    """
    if isinstance(need, NeedMoments):
        return column_moments(F, weights, passes)
    assert labels is not None
    if isinstance(need, NeedClassMoments):
        return class_moments(F, labels.values, len(labels.classes), weights, passes)
    if isinstance(need, NeedDistributions):
        return distribution_statistics([need], F, labels, weights)[need]
    target = np.asarray(labels.values, np.float64)
    low, high = np.nanmin(target), np.nanmax(target)
    if max(-low, high) > MAX_MAGNITUDE or 0 < high - low < 1 / MAX_MAGNITUDE:
        msg = f"targets from {low:g} to {high:g} have squares that float64 does not hold: rescale them."
        raise InputError(msg)
    if (is_labeled := labels.is_labeled).all():
        return target_moments(F, target, weights, passes)
    known = np.flatnonzero(is_labeled)
    return target_moments(F, target[known], None if weights is None else weights[known], passes, known)


def panel_tails(
    need: NeedTails, F: np.ndarray, labels: Labels | None, moments: Statistic | None, passes: Passes = PLAIN
) -> Tails:
    """Return the higher moments of a panel; `moments` are those of all rows if they are known, else None."""
    if not need.of_labeled or (labels is not None and labels.is_labeled.all()):
        known = moments if isinstance(moments, Moments) else column_moments(F, None, passes)
        return column_tails(F, known, passes)
    assert labels is not None
    rows = np.flatnonzero(labels.is_labeled)
    return column_tails(F, column_moments(F, None, passes, rows), passes, rows)


def distribution_statistics(
    needs: Sequence[NeedDistributions], F: np.ndarray, labels: Labels | None, weights: np.ndarray | None = None
) -> dict[Need, Statistic]:
    """Return the distributions of a panel that any method needs, from one sort of its columns.

    The parameters are those of :func:`panel_statistic`.
    """
    if not needs:
        return {}
    assert labels is not None
    bins = [need.n_bins for need in needs if need.n_bins is not None]
    distances = any(need.n_bins is None for need in needs)
    found = distributions(F, labels.values, bins, weights, distances=distances)
    return {need: found for need in needs}


def sign_table(F: np.ndarray, forms: GraphForms, labels: Labels, weights: np.ndarray | None = None) -> SignTable:
    """Count the labeled rows of each class at or above the mean of each column.

    Parameters
    ----------
    F
        Panel, shape (n_samples, width).
    forms
        Forms of a weighted graph, with the means.
    labels
        Classes; rows of weight 0 have none.
    weights
        Shape (n_samples,), float64: how many rows each row counts for; None for one each.
    """
    variance = np.zeros_like(forms.denominator)
    np.divide(forms.denominator, forms.volume, out=variance, where=np.greater(forms.volume, 0))
    point = cut_point(forms.mean, np.sqrt(variance))
    codes, n_classes = labels.values, len(labels.classes)
    upper = np.zeros((n_classes, F.shape[1]))
    known = np.flatnonzero(codes >= 0)
    for some in row_blocks(known.size):
        rows = known[some]
        upper += class_table(codes[rows], n_classes, F[rows] >= point, None if weights is None else weights[rows])
    counts = np.bincount(codes[known], None if weights is None else weights[known], minlength=n_classes)
    return SignTable(upper, counts.astype(np.float64))
