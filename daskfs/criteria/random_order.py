"""RandomOrder: the features in random order, as a baseline for other rankings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from pydantic import NonNegativeInt

from daskfs.criteria.criterion import Criterion, Parameters
from daskfs.criteria.statistics import Need, NeedMoments, SeenColumns, Statistics


class ChanceParameters(Parameters):
    """Parameters of RandomOrder."""

    random_state: NonNegativeInt = 0

    def redrawn(self, place: tuple[int, ...]) -> Self:
        """Return a copy whose seed is derived from this seed and `place`."""
        seed = np.random.SeedSequence([self.random_state, *place]).generate_state(1, np.uint64)[0]
        return self.model_copy(update={"random_state": int(seed)})


def uniform_numbers(features: np.ndarray, random_state: int) -> np.ndarray:
    """Draw a number in [0, 1) for each feature, shape (width,), float64; seed and feature index alone decide it.

    `features` are indices, shape (width,), int64, and the seed is at least 0. The raw output of a NumPy bit generator
    is the same in all versions of NumPy (NEP 19); that of :meth:`numpy.random.Generator.random` need not be.
    """
    n_features = int(features.max(initial=-1)) + 1
    integers = np.random.PCG64(random_state).random_raw(n_features)[features]
    return (integers >> np.uint64(11)).astype(np.float64) * 2.0**-53


@dataclass(frozen=True)
class NeedNumbers(Need[np.ndarray]):
    """Numbers of the panel's columns among all features, shape (width,), int64."""

    scaling: None = None

    def compute(self, columns: SeenColumns) -> np.ndarray:
        """Return the numbers."""
        return columns.numbers


def chance_fields(statistics: Statistics, parameters: ChanceParameters) -> Mapping[str, np.ndarray]:
    """Return the numbers drawn, shape (width,), float64; NaN for a constant feature."""
    numbers = uniform_numbers(statistics[NeedNumbers()], parameters.random_state)
    return {"score": np.where(statistics[NeedMoments(parameters.score_scaling)].is_constant, np.nan, numbers)}


CRITERIA = (
    Criterion(
        name="RandomOrder",
        summary="A number drawn for each feature, whatever its values, as a baseline; large is good.",
        citation="O'Neill (2014), HMC-CS-2014-0905 (the generator PCG64)",
        direction="descending",
        fields=("score",),
        parameters=ChanceParameters,
        statistics=lambda parameters: (NeedMoments(parameters.score_scaling), NeedNumbers()),
        score=chance_fields,
        untested="it draws the order",
    ),
)
