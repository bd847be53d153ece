"""Test of features of small ratios of quadratic forms of graphs, by permutation of their values over the rows.

The graph must not come from the tested feature: one that helped to find the neighbors varies little between them,
informative or not. So a feature is tested on the graph that the other half of the features makes, unless the graph is
of other data (a representation, a precomputed graph, the target).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskfs.criteria.invariants import ratio_terms
from daskfs.criteria.statistics import (
    Need,
    NeedHalves,
    NeedInvariants,
    NeedMoments,
    NeedTails,
    Statistics,
    tested_halves,
)
from daskfs.kernels.statistics.permutation import ratio_pvalues
from daskfs.store import layout
from daskfs.store.context import Context


@dataclass(frozen=True)
class RatioTest:
    """Permutation test of a ratio f'Af / f'Bf, small for good.

    Functions take the parameters, and a half of the features whose graph is meant, or None for the graph itself:
    `invariants` returns the need for those of the graph, `ratio_needs` the needs of the ratio, and `ratio`, from the
    statistics, the ratio of each column, (width,), float64. `of_labeled` exchanges values between labeled rows only.
    """

    invariants: Callable[[Any, int | None], NeedInvariants]
    ratio_needs: Callable[[Any, int | None], tuple[Need[Any], ...]]
    ratio: Callable[[Statistics, Any, int | None], np.ndarray]
    of_labeled: bool = False

    def needs(self, parameters: Any) -> tuple[Need[Any], ...]:
        """Return the statistics needed: ratios and invariants on the graph, or on those of both halves."""
        scaling = parameters.score_scaling
        # the forms take the moments of all rows as well
        needs: list[Need[Any]] = [NeedMoments(scaling), NeedTails(scaling, self.of_labeled)]
        for half in _halves(parameters):
            needs += [*self.ratio_needs(parameters, half), self.invariants(parameters, half)]
            needs += [] if half is None else [NeedHalves()]
        return tuple(dict.fromkeys(needs))

    def pvalues(self, statistics: Statistics, parameters: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the p-values of the columns, (width,), float64, and a mask of those in doubt."""
        tails = statistics[NeedTails(parameters.score_scaling, self.of_labeled)]
        pvalues, in_doubt = np.full(tails.moments[2].shape, np.nan), np.zeros(tails.moments[2].shape, bool)
        for half in _halves(parameters):
            invariants = statistics[self.invariants(parameters, half)]
            all_pvalues, all_doubts = ratio_pvalues(self.ratio(statistics, parameters, half), invariants, tails)
            if half is None:
                return all_pvalues, all_doubts
            is_tested = statistics[NeedHalves()] == half
            pvalues[is_tested], in_doubt[is_tested] = all_pvalues[is_tested], all_doubts[is_tested]
        return pvalues, in_doubt

    def permuted(
        self,
        context: Context,
        parameters: Any,
        numbers: np.ndarray,
        columns: np.ndarray,
        cache: MutableMapping[Any, Any],
    ) -> np.ndarray:
        """Return p-values by permutation, NaN on a graph of too many edges.

        `numbers`, shape (width,), int64, are features, and `columns`, shape (n_samples, width), their values as they
        are scored. `cache` has what a unit has read: terms of ratios, and the halves of the features.
        """
        from daskfs.kernels.statistics.permuted import permuted_pvalues

        rows = np.flatnonzero(context.labeled_rows()) if self.of_labeled else np.arange(columns.shape[0])
        pvalues = np.full(numbers.size, np.nan)
        for half in _halves(parameters):
            places = np.arange(numbers.size)
            if half is not None:
                if layout.HALVES not in cache:
                    cache[layout.HALVES] = tested_halves(context.store)
                places = np.flatnonzero(cache[layout.HALVES][numbers] == half)
            need = self.invariants(parameters, half)
            if places.size and need not in cache:
                cache[need] = ratio_terms(context, need)
            if places.size and cache[need] is not None:
                pvalues[places] = permuted_pvalues(columns[:, places], cache[need], rows)
        return pvalues


def _halves(parameters: Any) -> tuple[int | None, ...]:
    return getattr(parameters, "halves", (None,))
