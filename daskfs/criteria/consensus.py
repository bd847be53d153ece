"""Consensus: the features by the median of their ranks over the other methods of a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from daskfs.criteria.criterion import Criterion, Parameters
from daskfs.criteria.registry import COMBINED_FIELDS, Method
from daskfs.errors import JobError
from daskfs.kernels.aggregate import combine_ranks

BASELINE = "RandomOrder"
"""Criterion that does not vote."""


CONSENSUS = Criterion(
    name="Consensus",
    summary="median of the ranks that the other methods give, small is good",
    citation="Fagin, Kumar and Sivakumar (2003), SIGMOD, section 2.2",
    direction="ascending",
    fields=COMBINED_FIELDS,
    parameters=Parameters,
    reason="no rank in any method",
    ranked_by=COMBINED_FIELDS[-1],
    combines=True,
    untested="the ranks of other methods are combined",
)
CRITERIA = (CONSENSUS,)


def with_consensus(methods: Sequence[Method]) -> list[Method]:
    """Return the methods with their consensus; :class:`JobError` if fewer than two of them vote."""
    if sum(map(votes, methods)) < 2:
        msg = "consensus is made of the rankings of two methods or more, and the job has fewer: add one."
        raise JobError(msg)
    return [*methods, Method(CONSENSUS.name, CONSENSUS, Parameters())]


def votes(method: Method) -> bool:
    """Return whether a method counts in a consensus: a random order, or another consensus, does not."""
    return not method.criterion.combines and method.criterion.name != BASELINE


def seeing_labels(methods: Sequence[Method]) -> list[str]:
    """Return the labels of the methods whose rankings depend on labels of rows: a consensus of such ones does, too."""
    saw = [method.label for method in methods if method.criterion.needs_labels]
    return [*saw, *(method.label for method in methods if saw and method.criterion.combines)]


def consensus_table(ranks: Iterable[np.ndarray]) -> np.ndarray:
    """Combine the ranks of the methods that vote; methods of the same ranks count once.

    `ranks` are those of each method, shape (n_features,), float64: 1 = best, ties shared, NaN for an excluded feature.
    The table has shape (4, n_features), as :func:`daskfs.kernels.aggregate.combine_ranks` returns it.
    """
    table = np.stack(list(ranks))
    _, differing = np.unique(np.nan_to_num(table), axis=0, return_index=True)  # NaN would differ from NaN
    return combine_ranks(table[differing])
