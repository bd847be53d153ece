"""The benchmarks run in small form, so that they cannot rot; nothing here is timed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from daskfs import LaplacianScore
from tests.benchmarks import correlations, graph, main_job, papers, rescaled, scoring


def test_the_dense_computation_is_the_same_score() -> None:
    X = np.random.default_rng(0).standard_normal((120, 6))
    ours = LaplacianScore(n_neighbors=119, weights="binary").fit(X).scores_
    np.testing.assert_allclose(ours, 120 / 119, rtol=1e-12)
    near = LaplacianScore(n_neighbors=7, t=2.0).fit(X).scores_
    assert np.corrcoef(near, main_job.dense_laplacian_score(X, 7))[0, 1] > 0.9


def test_small_form_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main_job.main(["--rows", "200", "--score-rows", "3000"])
    printed = capsys.readouterr()
    assert "fit_seconds" in printed.out
    assert "score_seconds" in printed.out
    assert "skipped" in printed.err


def test_graph_tables_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    graph.main(["--tables", "ranking", "workers", "--scale", "0.02"])
    printed = capsys.readouterr().out
    assert "spearman" in printed
    assert "build_seconds" in printed


@pytest.mark.long
def test_graph_tables_that_compile(capsys: pytest.CaptureFixture[str]) -> None:
    graph.main(["--tables", "descent", "wide", "sparse", "--scale", "0.02"])
    printed = capsys.readouterr().out
    assert "ratio_stored" in printed
    assert "estimated" in printed
    assert "planned_write" in printed


@pytest.mark.filterwarnings("ignore:.* labelled rows have no edge")  # a quotient is far from all others now and then
def test_published_problems_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    papers.main(["--sets", "4"])
    assert "SLS, k = 5" in capsys.readouterr().out
    row = next(row for row in papers.hit_rates(10, 500) if row["criterion"] == "SLS, k = 5")
    assert row["cos * sin"] >= 0.5
    assert row["quotient"] == 1


def test_scoring_pass_in_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """X and the graph are read once for all criteria of a job."""
    figures = tmp_path / "figures.json"
    size = ["--rows", "6000", "--columns", "600", "--workers", "1", "--repeats", "1"]
    scoring.main([*size, "--order", "random", "--json", str(figures)])
    assert "gathered_gb_per_cpu_second" in capsys.readouterr().out
    found = json.loads(figures.read_text())
    one, eight = found["read"]
    assert (one["criteria"], eight["criteria"]) == ("one", "eight")
    assert 1 < eight["ratio"] <= 1.1
    for row in found["read"]:
        assert row["read_mib"] == pytest.approx(row["planned"], rel=0.1)
    assert [row["order"] for row in found["timed"]] == ["random"]
    assert found["timed"][0]["peak_over_planned"] <= 1


@pytest.mark.cluster
def test_rescaled_regression_in_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of two workers that hold all rows, nobody reads X again; and no unit takes more than it was planned to."""
    with warnings.catch_warnings():
        rescaled.main(["--small", "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.split()[:1] in (["RLSR"], ["SSUFS"])]
    header = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["method"])
    assert len(rows) == 2
    for row in rows:
        found = dict(zip(header, row, strict=True))
        assert float(found["held"]) == 1
        assert float(found["peak_mib"]) <= float(found["planned_mib"])
    assert "woodbury" in printed
    assert "rlsr_ms" in printed
    assert not list(tmp_path.iterdir())


def test_distance_correlations_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    correlations.main(["--rows", "200", "--seeds", "1", "--large", "2000", "--features", "20", "--wide", "30"])
    printed = capsys.readouterr().out
    assert "product_seconds" in printed
    for row in correlations.errors(300, 1):
        assert row["mean_8"] <= row["max_8"] <= row["bound_8"] + 1e-12
