"""What a run warns of."""

from __future__ import annotations

from typing import Any

import pytest

from daskfs.report.model import Graph
from daskfs.report.summary import graph_warnings

pytestmark = pytest.mark.figures


def graph(n_alone: int = 0, **weighting: Any) -> Graph:
    """Facts of a graph with `n_alone` rows that no list names."""
    weightings = [{"kind": "heat", "n_underflow": 0, "n_isolated": n_alone, **weighting}]
    facts = {"name": "g", "recall": None, "n_neighbors": 5, "n_edges": 50, "n_isolated": n_alone}
    return Graph.model_validate({**facts, "weightings": weightings})


def test_nothing_is_wrong() -> None:
    assert graph_warnings([graph()]) == []


def test_weights_that_underflow_and_rows_that_lose_their_edges() -> None:
    assert graph_warnings([graph(n_underflow=7, n_isolated=3)]) == [
        "graph g, weights heat: 7 of 50 weights are 0 and 3 rows have no edge left; raise t or scale the data"
    ]
    assert graph_warnings([graph(kind="cosine", n_underflow=7)]) == [
        "graph g, weights cosine: 7 of 50 weights are 0 and 0 rows have no edge left; choose other weights"
    ]


def test_rows_without_edges_in_the_graph_are_no_matter_of_its_weights() -> None:
    assert graph_warnings([graph(4)]) == ["graph g: 4 rows have no edge; raise graph.n_neighbors"]
