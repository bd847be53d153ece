"""Stage "consensus": one ranking combined from those of all methods of a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daskfs.criteria.consensus import CONSENSUS, consensus_table, votes
from daskfs.criteria.registry import COMBINED_FIELDS, Method
from daskfs.ranking.tables import method_scores
from daskfs.stages.cost import WORD, Array, Cost
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from daskfs.store import layout
from daskfs.store.context import Context


class ConsensusParameters(StageParameters):
    """Parameters of "consensus": the methods that vote."""

    methods: tuple[Method, ...]


def combine_methods(context: Context, parameters: ConsensusParameters, unit: int) -> dict[str, Any]:
    """Write the table of the consensus."""
    del unit
    table = consensus_table(method.ranks(method_scores(context.store, method)) for method in parameters.methods)
    context.store.put_array(layout.SCORES.format(CONSENSUS.name), table)
    return {"n_methods": len(parameters.methods)}


def plan_consensus(methods: Sequence[Method], n_features: int, process: Cost) -> list[Stage]:
    """Return the stage of the consensus of some methods; none if it is not among them."""
    if not any(method.criterion.combines for method in methods):
        return []
    parameters = ConsensusParameters(tuple(filter(votes, methods)))
    n_voting, table = len(parameters.methods), WORD * n_features * len(COMBINED_FIELDS)
    cost, read = CONSENSUS_STAGE.cost(n_voting, n_features, process), n_voting * table
    return [Stage.of(CONSENSUS_STAGE, "consensus", 1, parameters, cost, bytes_read=read, bytes_written=table)]


def consensus_cost(n_methods: int, n_features: int, process: Cost) -> Cost:
    """Return the memory of the unit."""
    return (
        *process,
        Array("a table, its ranks and the combined table", (4, len(COMBINED_FIELDS), n_features)),
        Array("ranks of methods, those that differ, these sorted, and as chunks", (4, n_methods, n_features)),
    )


CONSENSUS_STAGE = StageKind("consensus", __name__, combine_methods, consensus_cost)
