"""Statistics of a panel, from which criteria compute scores.

A criterion names the statistics it needs. The needs of all methods that score the same slab are deduplicated, each
statistic is computed once per panel, and each criterion turns a few short arrays into scores.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np

from daskfs.errors import InputError
from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.panel.backend import Passes
from daskfs.kernels.scaling import Scaling
from daskfs.kernels.statistics.distributions import GATHERED_COLUMNS, SORT_BYTES, Distributions, distributions
from daskfs.kernels.statistics.moments import (
    GROUPED_BYTES,
    ClassMoments,
    Moments,
    TargetMoments,
    class_moments,
    column_moments,
    target_moments,
)
from daskfs.kernels.statistics.permutation import RatioInvariants, Tails, column_tails
from daskfs.stages.cost import Array, Cost, Objects
from daskfs.store import layout
from daskfs.store.store import Store
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
        numerator, denominator, mean = self.numerator[columns], self.denominator[columns], self.mean[..., columns]
        return GraphForms(numerator, denominator, mean, self.is_constant[columns], volume)

    def among(self, width: int, columns: np.ndarray) -> GraphForms:
        """Return the forms of a panel of `width` columns, of which these are at some indices, int64; NaN elsewhere."""
        fields, is_constant = np.full((4, width), np.nan), np.ones(width, bool)
        fields[:, columns] = self.numerator, self.denominator, *self.mean
        is_constant[columns] = self.is_constant
        return GraphForms(fields[0], fields[1], fields[2:], is_constant, self.volume)


NO_FORMS = GraphForms(np.empty(0), np.empty(0), np.empty((2, 0)), np.empty(0, bool), 0.0)
"""Forms of no column."""


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
N = TypeVar("N", bound="Need[Any]")


@dataclass(frozen=True)
class SeenColumns:
    """Columns of a panel in the rows that have them, as a need sees them.

    `numbers`, shape (width,), int64, are those of the features, and `values`, shape (n_rows, width), are rescaled. Rows
    of weight 0 have no label; `labels` are None if no need reads them. `weights`, shape (n_rows,), float64, are how
    many rows each row counts for; None for one each. `passes` is the backend of the sums, `needs` are all needs of
    these values, and `statistics` those computed so far. `held` is what the unit has read of the run store.
    """

    numbers: np.ndarray
    values: np.ndarray
    labels: Labels | None
    weights: np.ndarray | None
    passes: Passes
    needs: Sequence[Need[Any]]
    store: Store
    held: MutableMapping[Any, Any]
    statistics: Statistics

    @property
    def known(self) -> Labels:
        """The labels, for a need that reads them."""
        assert self.labels is not None
        return self.labels

    def once(self, name: str, read: Callable[[Store], T]) -> T:
        """Return the value of `read` for the store, which is called once for a name in each unit."""
        if name not in self.held:
            self.held[name] = read(self.store)
        return cast("T", self.held[name])


class Statistics(dict["Need[Any]", Any]):
    """Statistics of some columns, by the needs that ask for them."""

    def __getitem__(self, need: Need[T]) -> T:
        return cast("T", super().__getitem__(need))


class Need(ABC, Generic[T_co]):
    """A statistic that criteria ask for, which computes itself."""

    scaling: Scaling | None
    """Scaling of the values that it is of."""
    reads_labels: ClassVar[bool] = False
    """Whether it depends on the label of each row; it is then computed only where some row has one."""

    @property
    def forms(self) -> tuple[NeedGraphForms, ...]:
        """Graph forms that are to be found before."""
        return ()

    @abstractmethod
    def compute(self, columns: SeenColumns) -> T_co:
        """Return the statistic."""

    def cost(self, columns: Array) -> Cost:
        """List what computing it takes in addition to the columns, of shape (n_samples, n_columns)."""
        del columns
        return ()


@dataclass(frozen=True)
class NeedOfValues(Need[T_co]):
    """Need of the columns of a panel, rescaled."""

    scaling: Scaling | None


class NeedMoments(NeedOfValues[Moments]):
    """Moments over all rows."""

    def compute(self, columns: SeenColumns) -> Moments:
        """Return the moments."""
        return column_moments(columns.values, columns.weights, columns.passes)


def grouped_rows(columns: Array, each: int = GROUPED_BYTES) -> Cost:
    """List what statistics by label hold for each row."""
    return (Objects("labeled rows by class or in order", columns.shape[0], each),)


class NeedClassMoments(NeedOfValues[ClassMoments]):
    """Moments of each class over labeled rows."""

    reads_labels = True

    def compute(self, columns: SeenColumns) -> ClassMoments:
        """Return the moments."""
        classes = len(columns.known.classes)
        return class_moments(columns.values, columns.known.values, classes, columns.weights, columns.passes)

    def cost(self, columns: Array) -> Cost:
        """List the rows by class."""
        return grouped_rows(columns)


class NeedTargetMoments(NeedOfValues[TargetMoments]):
    """Joint moments with the target over labeled rows."""

    reads_labels = True

    def compute(self, columns: SeenColumns) -> TargetMoments:
        """Return the moments; :class:`InputError` for targets whose squares float64 does not hold."""
        F, weights, target = columns.values, columns.weights, np.asarray(columns.known.values, np.float64)
        low, high = np.nanmin(target), np.nanmax(target)
        if max(-low, high) > MAX_MAGNITUDE or 0 < high - low < 1 / MAX_MAGNITUDE:
            msg = f"targets from {low:g} to {high:g} have squares that float64 does not hold: rescale them."
            raise InputError(msg)
        if (is_labeled := columns.known.is_labeled).all():
            return target_moments(F, target, weights, columns.passes)
        rows = np.flatnonzero(is_labeled)
        return target_moments(F, target[rows], None if weights is None else weights[rows], columns.passes, rows)

    def cost(self, columns: Array) -> Cost:
        """List the labeled rows."""
        return grouped_rows(columns)


@dataclass(frozen=True)
class NeedDistributions(NeedOfValues[Distributions]):
    """Distributions of the classes over labeled rows: their distances, or a table of classes against `n_bins` bins.

    All of these of one panel come from one sort.
    """

    n_bins: int | None = None
    reads_labels = True

    def compute(self, columns: SeenColumns) -> Distributions:
        """Return the distributions that all needs of these values ask for."""
        together = needs_of(columns.needs, NeedDistributions)
        for other in together:
            if other in columns.statistics:
                return columns.statistics[other]
        bins = [need.n_bins for need in together if need.n_bins is not None]
        distances = any(need.n_bins is None for need in together)
        return distributions(columns.values, columns.known.values, bins, columns.weights, distances=distances)

    def cost(self, columns: Array) -> Cost:
        """List the rows in order, and the columns that are sorted."""
        n_samples, n_columns = columns.shape
        size = (n_samples, min(n_columns, GATHERED_COLUMNS))
        copied = Array("labeled rows of the columns that are sorted", size, columns.dtype)
        return (*grouped_rows(columns, max(GROUPED_BYTES, SORT_BYTES)), copied)


@dataclass(frozen=True)
class NeedGraphForms(NeedOfValues[GraphForms]):
    """Quadratic forms of one weighted graph; only of the features that `half` tests unless it is None, else NaN.

    Those of all columns of a slab are found together, in one stream of the graph.
    """

    weighting: Weighting
    half: int | None = None

    @property
    def forms(self) -> tuple[NeedGraphForms, ...]:
        """The forms themselves."""
        return (self,)

    def compute(self, columns: SeenColumns) -> GraphForms:
        """Return the forms, which the stream has added."""
        return columns.statistics[self]


@dataclass(frozen=True)
class NeedTails(NeedOfValues[Tails]):
    """Central moments of higher order, over all rows or over those with a label."""

    of_labeled: bool = False

    @property
    def reads_labels(self) -> bool:  # type: ignore[override]
        """Whether only rows with a label count."""
        return self.of_labeled

    def compute(self, columns: SeenColumns) -> Tails:
        """Return the moments."""
        F, passes, statistics, of_all = columns.values, columns.passes, columns.statistics, NeedMoments(self.scaling)
        if not self.of_labeled or columns.known.is_labeled.all():
            moments = statistics[of_all] if of_all in statistics else column_moments(F, None, passes)
            return column_tails(F, moments, passes)
        rows = np.flatnonzero(columns.known.is_labeled)
        return column_tails(F, column_moments(F, None, passes, rows), passes, rows)


@dataclass(frozen=True)
class NeedInvariants(Need[RatioInvariants]):
    """Invariants of the Laplacian of a graph and of D, as :mod:`daskfs.criteria.invariants` stores them."""

    weighting: Weighting
    denominator: Denominator = "degree"
    scaling: None = None

    @property
    def key(self) -> str:
        """Short text that is safe as a store key."""
        return f"{self.weighting.key}-{self.denominator}"

    def compute(self, columns: SeenColumns) -> RatioInvariants:
        """Return the invariants."""
        name = layout.INVARIANTS.format(self.key)
        return columns.once(name, lambda store: RatioInvariants.from_json(store.need_json(name)))


@dataclass(frozen=True)
class NeedHalves(Need[np.ndarray]):
    """Half of the features that tests each of the panel's columns, 0 or 1, 2 for none, shape (width,), uint8."""

    scaling: None = None

    def compute(self, columns: SeenColumns) -> np.ndarray:
        """Return the halves."""
        return columns.once(layout.HALVES, tested_halves)[columns.numbers]


def tested_halves(store: Store) -> np.ndarray:
    """Return the half of the features that tests each, 0 or 1, 2 for none, shape (n_features,), uint8."""
    return store.open(layout.HALVES)[2]


def needs_of(needs: Iterable[Need[Any]], kind: type[N]) -> list[N]:
    """Return the needs of a kind, each once."""
    return list(dict.fromkeys(need for need in needs if isinstance(need, kind)))
