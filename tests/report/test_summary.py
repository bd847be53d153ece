"""What a run warns of, and what its report shows of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs.criteria.consensus import CONSENSUS
from daskfs.criteria.registry import criteria
from daskfs.graph.halves import feature_axis
from daskfs.report.method_view import FIELD_MEANINGS
from daskfs.report.model import GraphReport
from daskfs.report.summary import graph_warnings
from tests.cli.command import daskfs, write_job
from tests.report.test_render import assert_sound

pytestmark = pytest.mark.figures


def graph(n_alone: int = 0, **weighting: Any) -> GraphReport:
    """Facts of a graph with `n_alone` rows that no list names."""
    weightings = [{"kind": "heat", "n_underflow": 0, "n_isolated": n_alone, **weighting}]
    facts = {"name": "g", "recall": None, "n_neighbors": 5, "n_edges": 50, "n_isolated": n_alone}
    return GraphReport.model_validate({**facts, "weightings": weightings})


def told(graph: GraphReport) -> list[str]:
    return list(map(str, graph_warnings([graph])))


def test_nothing_is_wrong() -> None:
    assert told(graph()) == []


def test_weights_that_underflow_and_rows_that_lose_their_edges() -> None:
    assert told(graph(n_underflow=7, n_isolated=3)) == [
        "graph g: weights heat: 7 of 50 weights are 0 and 3 rows have no edge left; raise t or scale the data"
    ]
    assert told(graph(kind="cosine", n_underflow=7)) == [
        "graph g: weights cosine: 7 of 50 weights are 0 and 0 rows have no edge left; choose other weights"
    ]


def test_rows_without_edges_in_the_graph_are_no_matter_of_its_weights() -> None:
    assert told(graph(4)) == ["graph g: 4 rows have no edge; raise graph.n_neighbors"]


def spectra(folder: Path, names: list[str], **data: Any) -> str:
    """Run a job on a table of these columns, and return its report."""
    X = np.random.default_rng(0).normal(size=(40, len(names)))
    lines = [",".join([*names, "fat"]), *(",".join(map(str, [*row, row[0] * 2])) for row in X)]
    (folder / "spectra.csv").write_text("\n".join(lines))
    job = {
        "data": {"source": str(folder / "spectra.csv"), "labels": "fat", **data},
        "methods": ["PearsonScore", "VarianceScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    assert daskfs("run", write_job(folder, job), "-q").code == 0
    return (folder / "run" / "report.html").read_text()


def test_features_along_an_axis_are_drawn_along_it(tmp_path: Path) -> None:
    """By names that are numbers in order, or, if the job says so, by position; a change of that key is no other run."""
    numbers = [f"{850 + 2.5 * place}" for place in range(9)]
    html = spectra(tmp_path, numbers)
    assert html.count("Scores of PearsonScore along feature") == 2  # as label and as title
    assert "dots are the first features" in html
    plain = tmp_path / "plain"
    plain.mkdir()
    assert " along " not in spectra(plain, ["b", "a", "c"])
    asked = tmp_path / "asked"
    asked.mkdir()
    named = spectra(asked, ["b", "a", "c"], feature_axis="wavelength (nm)")
    assert "Scores of PearsonScore along wavelength (nm)" in named
    assert (
        daskfs("run", asked / "job.yaml", "--set", "data.feature_axis=depth", "-q", "--json").json["recomputed"] == {}
    )
    assert feature_axis(["3", "2", "1"]) is not None
    assert feature_axis(["1", "3", "2"]) is None
    assert feature_axis(["1", "nan"]) is None
    assert feature_axis(["7"]) is None


def test_a_report_names_its_source_once_and_leads_to_its_tables(tmp_path: Path) -> None:
    html = spectra(tmp_path, ["b", "a", "c"])
    assert html[: html.index('id="job"')].count(str(tmp_path)) == 1
    assert "<title>Feature ranking of spectra.csv</title>" in html
    page = assert_sound(html, links={file.name for file in (tmp_path / "run").glob("*.csv")})
    found = [link["href"] for link in page.named("a") if str(link["href"]).endswith(".csv")]
    assert found == ["ranking.csv", "selected_features.csv"]
    assert not re.search(r'href="[^"#]*parquet', html)


def test_every_column_of_a_method_is_explained() -> None:
    fields = {field for criterion in (*criteria().values(), CONSENSUS) for field in criterion.fields}
    assert fields - {"score"} | {"pvalue", "qvalue"} == {*FIELD_MEANINGS}
