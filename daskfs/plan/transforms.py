"""Scalings that need statistics of rescaled values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from daskfs.criteria.registry import Method
from daskfs.graph.spec import GraphSpec, ListsSpec, MixedGraph
from daskfs.kernels.scaling import Scaling, chain_of, components_of, ends_with, steps_of


def asked_scalings(
    methods: Sequence[Method],
    lists: Mapping[str, tuple[ListsSpec, int]],
    other_scalings: Iterable[Scaling | None] = (),
    *,
    weighted: bool = False,
) -> tuple[Scaling, ...]:
    """Return the scalings whose statistics need a pass of their own, sorted by name.

    "zscore" and "pca" need moments after another step, or if rows have weights. "unit" needs norms after another step,
    for scores only, which read some columns of all rows; the graph reads whole rows and computes their norms from them.
    `other_scalings` are of columns that the redundancy filter or the distance correlations compare.
    """
    over_rows = [spec.base if isinstance(spec, MixedGraph) else spec for spec, _ in lists.values()]
    by_rows = {spec.scaling for spec in over_rows if isinstance(spec, GraphSpec)}
    by_rows |= {getattr(method.parameters, "graph_scaling", None) for method in methods if method.finish == "trade-off"}
    components = {scaling for scaling in by_rows if scaling and components_of(scaling) is not None}
    by_rows = {chain_of(scaling) for scaling in by_rows}
    by_columns = {method.parameters.score_scaling for method in methods} | set(other_scalings)
    scalings = {scaling for scaling in by_rows if ends_with(scaling, "zscore")} | by_columns
    several = {scaling for scaling in scalings if scaling and steps_of(scaling).first and steps_of(scaling).last}
    if weighted:
        several |= {"zscore"} & scalings
    # principal components need the means of columns, which "zscore" has, and tiles have if rows have no weights
    several |= {
        scaling
        for scaling in components
        if not ends_with(chain_of(scaling), "zscore") and (weighted or chain_of(scaling) is not None)
    }
    return tuple(sorted(several))
