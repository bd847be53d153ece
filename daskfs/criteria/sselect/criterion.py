"""sSelect: a feature as a two-way cut of the graph, scored by the cut and by its agreement with the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from daskfs.criteria.criterion import Criterion
from daskfs.criteria.laplacian import GraphParameters, quotient
from daskfs.criteria.statistics import GraphForms, NeedGraphForms, NeedOfValues, SeenColumns, Statistics
from daskfs.graph.spec import Weighting
from daskfs.kernels.labels import Labels
from daskfs.kernels.statistics.contingency import class_table
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.kernels.statistics.mutual_information import cut_point, normalized_mutual_information


@dataclass(frozen=True)
class SignTable:
    """Labeled rows of each class at or above the mean of a column.

    `upper`, shape (n_classes, width), has their numbers, and `counts`, shape (n_classes,), those of all; float64.
    """

    upper: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True)
class NeedSignTable(NeedOfValues[SignTable]):
    """Classes of the labeled rows at or above the mean by degrees of one weighted graph."""

    weighting: Weighting
    reads_labels = True

    @property
    def forms(self) -> tuple[NeedGraphForms]:
        """The forms that provide the mean."""
        return (NeedGraphForms(self.scaling, self.weighting),)

    def compute(self, columns: SeenColumns) -> SignTable:
        """Return the table."""
        return sign_table(columns.values, columns.statistics[self.forms[0]], columns.known, columns.weights)


def sign_table(F: np.ndarray, forms: GraphForms, labels: Labels, weights: np.ndarray | None = None) -> SignTable:
    """Count the labeled rows of each class at or above the mean of each column of a panel F, (n_samples, width).

    `forms`, of a weighted graph, have the means. Rows of weight 0 have no label. `weights`, shape (n_samples,),
    float64, are how many rows each row counts for; None for one each.
    """
    variance = np.zeros_like(forms.denominator)
    np.divide(forms.denominator, forms.volume, out=variance, where=np.greater(forms.volume, 0))
    point = cut_point(forms.mean, np.sqrt(variance))
    codes, n_classes = labels.values, len(labels.classes)
    upper = np.zeros((n_classes, F.shape[1]))
    labeled_rows = np.flatnonzero(codes >= 0)
    for block in row_blocks(labeled_rows.size):
        rows = labeled_rows[block]
        upper += class_table(codes[rows], n_classes, F[rows] >= point, None if weights is None else weights[rows])
    counts = np.bincount(codes[labeled_rows], None if weights is None else weights[labeled_rows], minlength=n_classes)
    return SignTable(upper, counts.astype(np.float64))


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
    of_graph, of_signs = _statistics(parameters)
    graph_term, table = quotient(statistics[of_graph]), statistics[of_signs]
    label_term = 1.0 - normalized_mutual_information(table.upper, table.counts)
    label_term[np.isnan(graph_term)] = np.nan
    trade_off = np.nan if parameters.trade_off == "auto" else parameters.trade_off
    return {"score": mix_terms(graph_term, label_term, trade_off), "graph_term": graph_term, "label_term": label_term}


def mix_terms(graph_term: np.ndarray, label_term: np.ndarray, trade_off: float) -> np.ndarray:
    """Return the score from its terms, all (n_features,), float64: the graph term at 1, the label term at 0."""
    return trade_off * graph_term + (1.0 - trade_off) * label_term


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
        finish=lambda parameters: "trade-off" if parameters.trade_off == "auto" else "",
        needs_labels=True,
        one_class_serves=True,
        tasks=("classification",),
        uses_graph=True,
    ),
)
