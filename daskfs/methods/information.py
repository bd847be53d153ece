"""Information gain: what the bin of a feature's value tells of the class."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from daskfs.kernels.distributions import SORT_BYTES, Distributions
from daskfs.methods.registry import Criterion, Parameters
from daskfs.methods.statistics import NeedDistributions, Statistics


class InformationParameters(Parameters):
    """`n_bins` is the number of bins of equal frequency; equal values are never parted, so fewer may be in use."""

    n_bins: int = Field(10, ge=2, le=1000)

    def more_fields(self) -> tuple[str, ...]:
        """Return the names of the edges."""
        return tuple(f"edge_{number}" for number in range(1, self.n_bins))


def _statistics(parameters: InformationParameters) -> tuple[NeedDistributions]:
    return (NeedDistributions(parameters.score_scaling, parameters.n_bins),)


def information_fields(statistics: Statistics, parameters: InformationParameters) -> Mapping[str, np.ndarray]:
    """H(Y) - H(Y | bin of F) in bits over labelled rows; NaN where the feature is constant on these.

    ``edge_1``, ... are the least values of the bins in use but the first, ascending and NaN beyond the last.
    """
    found = statistics[_statistics(parameters)[0]]
    assert isinstance(found, Distributions)
    edges = found.edges[parameters.n_bins]
    return {
        "score": np.where(found.is_constant, np.nan, found.gains[parameters.n_bins]),
        "bins_in_use": 1.0 + np.count_nonzero(~np.isnan(edges), axis=0),
        **dict(zip(parameters.more_fields(), edges, strict=True)),
    }


CRITERIA = (
    Criterion(
        name="InformationGainScore",
        summary="Entropy of the class less that within bins of equal frequency of the feature, in bits; large is good.",
        citation="Quinlan (1986), Machine Learning 1, section 4; Zhao and Liu (2007), Algorithm 2 (named there)",
        direction="descending",
        fields=("score", "bins_in_use"),
        parameters=InformationParameters,
        statistics=_statistics,
        score=information_fields,
        reason="constant on the labelled rows",
        needs_labels=True,
        tasks=("classification",),
        row_bytes=SORT_BYTES,
    ),
)
