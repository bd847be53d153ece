"""sSelect: a feature as a two-way cut of the graph, scored by the cut and by its agreement with the labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from daskfs.criteria.laplacian import GraphParameters, quotient
from daskfs.criteria.registry import Criterion
from daskfs.criteria.statistics import GraphForms, NeedGraphForms, NeedSignTable, SignTable, Statistics, statistic_of
from daskfs.kernels.statistics.mutual_information import normalized_mutual_information

TradeOff = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class SSelectParameters(GraphParameters):
    """Parameters of sSelect.

    `trade_off` is the weight of the graph term; "auto" chooses it by the cut value of the data reduced to the first
    `n_cut_features` features, None for half of them and 50 at most.
    """

    n_neighbors: PositiveInt = 10
    trade_off: TradeOff | Literal["auto"] = 0.1
    n_cut_features: PositiveInt | None = None

    @model_validator(mode="after")
    def _cuts_by_lengths_or_cosines(self) -> SSelectParameters:
        if self.trade_off == "auto" and self.metric not in ("euclidean", "cosine"):
            msg = f"trade_off 'auto' cuts rows by Euclidean distances or cosines, not by '{self.metric}': give a number"
            raise ValueError(msg)
        return self


def _statistics(parameters: SSelectParameters) -> tuple[NeedGraphForms, NeedSignTable]:
    scaling, weighting = parameters.score_scaling, parameters.weighting
    return NeedGraphForms(scaling, weighting), NeedSignTable(scaling, weighting)


def sselect_fields(statistics: Statistics, parameters: SSelectParameters) -> Mapping[str, np.ndarray]:
    """Return trade_off * g'Lg / g'Dg + (1 - trade_off) (1 - NMI(sign g, y)) and both terms, each (width,), float64.

    NaN where the graph term is NaN. With trade_off "auto" the score is NaN until :func:`mix_terms` makes it from both.
    """
    table = statistic_of(statistics, _statistics(parameters)[1], SignTable)
    graph_term = quotient(statistic_of(statistics, _statistics(parameters)[0], GraphForms))
    label_term = 1.0 - normalized_mutual_information(table.upper, table.counts)
    label_term[np.isnan(graph_term)] = np.nan
    open_score = np.full_like(graph_term, np.nan)
    trade_off = parameters.trade_off
    score = open_score if trade_off == "auto" else mix_terms(graph_term, label_term, float(trade_off))
    return {"score": score, "graph_term": graph_term, "label_term": label_term}


def mix_terms(graph_term: np.ndarray, label_term: np.ndarray, trade_off: float) -> np.ndarray:
    """Return the score from its terms, all (n_features,), float64: the graph term at 1, the label term at 0."""
    return trade_off * graph_term + (1.0 - trade_off) * label_term


def _finish(parameters: SSelectParameters) -> str:
    return "trade-off" if parameters.trade_off == "auto" else ""


CRITERIA = (
    Criterion(
        name="SSelect",
        summary=(
            "How well the feature, as a two-way cut of the neighbor graph, keeps neighbors together and the classes of "
            "the labeled rows apart; small is good."
        ),
        citation="Zhao and Liu (2007), SIAM Data Mining, Eq. 3.8",
        direction="ascending",
        fields=("score", "graph_term", "label_term"),
        parameters=SSelectParameters,
        statistics=_statistics,
        score=sselect_fields,
        reason="constant on the rows that have an edge",
        finish=_finish,
        needs_labels=True,
        one_class_serves=True,
        tasks=("classification",),
        uses_graph=True,
    ),
)
