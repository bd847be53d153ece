"""Criteria: facts for readers, the statistics needed of a panel, and its scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import AfterValidator, Field

from daskfs.block import Keys
from daskfs.criteria.scaling_field import ScalingChoice
from daskfs.criteria.statistics import Need, Statistics
from daskfs.graph.spec import ListsSpec, Weighting
from daskfs.kernels.labels import Task
from daskfs.kernels.order import Direction
from daskfs.kernels.statistics.permutation import FDRMethod

if TYPE_CHECKING:
    from daskfs.store.context import Context

PVALUE = "pvalue"
"""Last field of a method that tests its features."""
FILLED_IN = {
    "foreign_graph": "it follows from graph.use_rep and graph.precomputed",
    "task": "it follows from the labels, or from data.task",
    "graph": "it is built from the data, or graph.precomputed names one",
}
"""Parameters of criteria that a job does not set, and why."""


def _has_a_square(value: float) -> float:
    if not 1e-100 <= value <= 1e100:
        msg = "a positive number should lie between 1e-100 and 1e+100"
        raise ValueError(msg)
    return value


PositiveNumber = Annotated[float, Field(gt=0), AfterValidator(_has_a_square)]
"""A positive number whose square and inverse are positive and finite."""


class Parameters(Keys):
    """Parameters that every method has."""

    score_scaling: ScalingChoice = None

    @classmethod
    def public_fields(cls) -> tuple[str, ...]:
        """Return the names that a user may set."""
        return tuple(name for name in cls.model_fields if name not in FILLED_IN)

    def lists(self, n_samples: int) -> Mapping[str, tuple[ListsSpec, int]]:
        """Return the neighbor lists needed, with n_neighbors, by name; lists that others are made from come first."""
        del n_samples
        return {}

    def weightings(self) -> tuple[Weighting, ...]:
        """Return the weighted graphs that stages after the slabs read."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """Return the parameters that have no effect with these settings."""
        return ()

    def more_fields(self) -> tuple[str, ...]:
        """Return the fields that these parameters add to the criterion's own."""
        return ()

    def redrawn(self, place: tuple[int, ...]) -> Self:
        """Return the parameters for one ranking of an evaluation.

        Only a random ranking differs: its seed follows from `place`, which identifies the rows and the draw.
        """
        del place
        return self


class TestedParameters(Parameters):
    """Parameters of methods that can test every feature."""

    significance: bool = False
    fdr_method: FDRMethod = "bh"


@dataclass(frozen=True)
class Significance:
    """Test of single features by a criterion.

    Attributes
    ----------
    needs
        Function of the parameters that names the statistics needed in addition to those of the score.
    pvalues
        Function of statistics and parameters; returns the probability of a score at least as good for a feature that
        has nothing to do with the labels or the graph, (width,), float64, NaN for an excluded feature; with
        `permuted` also a mask of those in doubt.
    permuted
        Function of a context, parameters, the numbers and values of features in doubt, and what the unit holds, as
        :meth:`daskfs.criteria.ratio_test.RatioTest.permuted`; returns their p-values. None if none are in doubt.
    meaning
        Function of the parameters: what features that pass do, for a reader.
    """

    needs: Callable[[Any], tuple[Need[Any], ...]]
    pvalues: Callable[[Statistics, Any], Any]
    permuted: Callable[[Context, Any, np.ndarray, np.ndarray, MutableMapping[Any, Any]], np.ndarray] | None = None
    meaning: Callable[[Any], str] = lambda _: "follow the labels"


@dataclass(frozen=True)
class Criterion:
    """Entry of the registry.

    Attributes
    ----------
    statistics
        Function of the parameters that names the statistics needed of a panel; none if X is not scored.
    score
        Function of statistics and parameters; returns the fields, each (width,), float64, "score" first.
    slab_fields
        Fields that the slabs pass to the stages of `finish`; empty for all fields.
    reason
        Why a feature with a score of NaN is excluded.
    unscored
        Why a ranked feature has no score.
    ranked_by
        Field that ranks instead of the score, smallest first, NaN for an excluded feature.
    finish
        Stages that make the table from that of the slabs, if a slab alone cannot score; or a function of the
        parameters.
    one_class_serves
        Whether labeled rows of one class are no error, as something else can rank.
    is_joint
        Whether features, or rows, are compared with each other, so that each row needs all features.
    pairs_features
        Whether every pair of features is compared, in time quadratic in their number.
    combines
        Whether rankings of other methods are combined, instead of X scored; a job asks for it by a key of its own.
    is_outside
        Whether a selector of another library ranks, which no job may name.
    significance
        Test of single features; None if no distribution of the score is known.
    package
        Distribution and version of a criterion of another package, such as ``mine==1.0``; empty for those of daskfs.
    untested
        Why features have no p-value.
    """

    name: str
    summary: str
    citation: str
    direction: Direction
    fields: tuple[str, ...]
    parameters: type[Parameters]
    statistics: Callable[[Any], tuple[Need[Any], ...]] = lambda _: ()
    score: Callable[[Statistics, Any], Mapping[str, np.ndarray]] = lambda _, __: {}
    reason: str = "constant feature"
    unscored: str = ""
    ranked_by: str = ""
    finish: str | Callable[[Any], str] = ""
    needs_labels: bool = False
    one_class_serves: bool = False
    is_joint: bool = False
    pairs_features: bool = False
    combines: bool = False
    is_outside: bool = False
    slab_fields: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ("classification", "regression")
    uses_graph: bool = False
    significance: Significance | None = None
    package: str = ""
    untested: str = "the distribution of its score under chance is not known"

    families: ClassVar[tuple[str, ...]] = (
        "filters",
        "laplacian",
        "supervised",
        "semisupervised",
        "lsdf",
        "sselect.criterion",
        "rrpc.criterion",
        "rescaled_regression.criterion",
        "svmrfe.criterion",
        "random_order",
        "consensus",
        "outside",
    )
