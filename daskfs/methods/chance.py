"""A random order of the features: what any ranking is to be held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import numpy as np
from pydantic import NonNegativeInt

from daskfs.kernels.moments import Moments
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import Need, NeedMoments, NeedNumbers, Statistics

_STEP, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


class ChanceParameters(Parameters):
    """Parameters of RandomOrder."""

    random_state: NonNegativeInt = 0

    def redrawn(self, place: tuple[int, ...]) -> Self:
        """Return the same with a seed that follows from this one and the place."""
        seed = np.random.SeedSequence([self.random_state, *place]).generate_state(1, np.uint64)[0]
        return self.model_copy(update={"random_state": int(seed)})


def split_mix(state: np.uint64, steps: np.ndarray) -> np.ndarray:
    """Return what the generator SplitMix64 of Steele, Lea and Flood (2014) gives in some steps, from 0, after a state;
    shape of `steps`, uint64.
    """
    with np.errstate(over="ignore"):  # sums and products are modulo 2**64
        z = state + (steps.astype(np.uint64) + np.uint64(1)) * _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
    return np.asarray(z ^ (z >> np.uint64(31)))


def uniform_numbers(features: np.ndarray, random_state: int) -> np.ndarray:
    """Return a number in [0, 1) for each feature, which its number and the seed decide: no slab needs to know of
    another.

    Parameters
    ----------
    features
        Numbers of features, shape (width,).
    random_state
        Seed, spread to the state of the generator.
    """
    state = np.random.SeedSequence(random_state).generate_state(1, np.uint64)[0]
    return (split_mix(state, features) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def chance_needs(parameters: ChanceParameters) -> tuple[Need, ...]:
    """Return what tells constant features, and the numbers of all."""
    return (NeedMoments(parameters.score_scaling), NeedNumbers())


def chance_fields(statistics: Statistics, parameters: ChanceParameters) -> Mapping[str, np.ndarray]:
    """Return the numbers that were drawn; NaN for a constant feature."""
    moments, numbers = (statistics[need] for need in chance_needs(parameters))
    assert isinstance(moments, Moments)
    assert isinstance(numbers, np.ndarray)
    drawn = uniform_numbers(numbers, parameters.random_state)
    return {"score": np.where(moments.is_constant, np.nan, drawn)}


CRITERIA = (
    Criterion(
        name="RandomOrder",
        summary="A number drawn for each feature, whatever its values, as a baseline; large is good.",
        citation="Steele, Lea and Flood (2014), OOPSLA (the generator SplitMix64)",
        direction="descending",
        fields=("score",),
        parameters=ChanceParameters,
        statistics=chance_needs,
        score=chance_fields,
    ),
)
