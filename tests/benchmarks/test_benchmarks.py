"""The benchmarks run in small form, so that they cannot rot; nothing here is timed."""

from __future__ import annotations

import numpy as np
import pytest

from daskfs import LaplacianScore
from tests.benchmarks import graph, main_job


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
