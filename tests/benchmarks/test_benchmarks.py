"""The benchmarks run in small form, so that they cannot rot; nothing here is timed."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import LaplacianScore, __version__
from daskfs.graph import neighbors
from daskfs.store.context import Context
from tests.benchmarks import (
    client,
    compared,
    correlations,
    dask_collections,
    driver,
    estimates,
    evaluation,
    graph,
    late_workers,
    main_job,
    objects_latency,
    out_of_core,
    rescaled,
    scale,
    scoring,
    significance,
    sources,
    threads,
    wide,
)
from tests.execution.runs import local_client
from tests.storage.server import environment

pytestmark = pytest.mark.long


def test_the_dense_computation_is_the_same_score() -> None:
    X = np.random.default_rng(0).standard_normal((120, 6))
    ours = LaplacianScore(n_neighbors=119, weights="binary").fit(X).scores_
    np.testing.assert_allclose(ours, 120 / 119, rtol=1e-12)
    near = LaplacianScore(n_neighbors=7, t=2.0).fit(X).scores_
    assert np.corrcoef(near, main_job.dense_laplacian_score(X, 7))[0, 1] > 0.9


def test_collections_take_processor_time_in_driver_and_workers(tmp_path: Path) -> None:
    with local_client(2) as client:
        rows = dict(dask_collections.measure(tmp_path, 2000, 8, client))
        sparse = dask_collections.measure_sparse(tmp_path, 600, 3000, client)
    assert len(rows) == 4
    assert all(driver > 0 for driver, _ in rows.values())
    assert sparse["markers first by FisherScore"] > 0.8
    assert min(value for name, value in sparse.items() if name.startswith("peak")) > 1


def test_small_form_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    main_job.main(["--rows", "200", "--score-rows", "3000"])
    printed = capsys.readouterr()
    assert "fit_seconds" in printed.out
    assert "score_seconds" in printed.out
    assert "skipped" in printed.err


def test_comparison_with_other_packages_in_small_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = compared.TABLES["information"]
    monkeypatch.setitem(compared.TABLES, "information", dataclasses.replace(table, data=table.data[:1]))
    compared.main(
        ["--tables", "information", "versions", "--scale", "0.05", "--repeats", "1", "--output", str(tmp_path)]
    )
    header, _, *rows = (tmp_path / "information.md").read_text().splitlines()
    assert header.startswith("| data | package | CPU, s |")
    assert {row.split(" | ")[1] for row in rows} >= {"daskfs", "scikit-learn"}
    assert f"| daskfs | {__version__}" in (tmp_path / "versions.md").read_text()


def test_graph_tables_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    graph.main(["--tables", "ranking", "--scale", "0.02"])
    assert "spearman" in capsys.readouterr().out


def test_latency_of_objects_in_small_form(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in environment(""):
        monkeypatch.setenv(name, "")  # what is set by the benchmark goes with the test
    objects_latency.main(["--rows", "500", "--columns", "16", "--delays", "0"])
    printed = capsys.readouterr().out
    assert "delay 0 ms" in printed
    assert "merge-euclidean" in printed
    assert "nothing to do" in printed


@pytest.mark.release
def test_graph_tables_that_compile_or_start_workers(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one kind of data."""
    for name, rest in (("DATA", {"mixture": graph.mixture}), ("OWN", {}), ("SIZES", graph.SIZES[:1])):
        monkeypatch.setattr(graph, name, rest)
    monkeypatch.setattr(graph, "DESCENT_LENGTHS", graph.DESCENT_LENGTHS[:1])
    graph.main(["--tables", "auto", "descent", "wide", "sparse", "workers", "--scale", "0.02"])
    printed = capsys.readouterr().out
    assert "auto_recall" in printed
    assert "build_seconds" in printed
    assert "ratio_stored" in printed
    assert "estimated" in printed
    assert "planned_write" in printed


def test_estimates_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    estimates.main(["--jobs", "csv", "--scale", "0.01", "--workers", "1", "--stages"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows if "all" in row] == ["| csv"]


def test_threads_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    threads.main(["--jobs", "exact", "--scale", "0.02"])
    stages = {line.split(" | ")[1] for line in capsys.readouterr().out.splitlines()[2:]}
    assert stages >= {"ingest", "neighbors", "rank", "all"}


def test_run_that_is_killed_and_resumed_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    out_of_core.main(["--rows", "20000", "--columns", "64", "--kill", "ingest"])
    printed = capsys.readouterr().out
    assert "pca-rows" in printed
    assert "SupervisedLaplacianScore" in printed


def test_scoring_pass_in_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """X and the graph are read once for all criteria of a job."""
    figures = tmp_path / "figures.json"
    size = ["--rows", "6000", "--columns", "600", "--workers", "1", "--repeats", "1"]
    scoring.main([*size, "--order", "random", "--json", str(figures)])
    assert "gathered_gb_per_cpu_second" in capsys.readouterr().out
    found = json.loads(figures.read_text())
    one, eight = found["read"]
    assert (one["criteria"], eight["criteria"]) == ("one", "eight")
    assert 1 < eight["ratio"] <= 1.15  # labels and the degrees of more weights are read as well
    for row in found["read"]:
        assert row["read_mib"] == pytest.approx(row["planned"], rel=0.1)
    assert [row["order"] for row in found["timed"]] == ["random"]
    assert found["timed"][0]["peak_over_planned"] <= 1


def test_evaluation_in_small_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every method on data of several kinds; no graph is built twice of the same rows, counted at the search itself."""
    searches: list[tuple[str, bytes]] = []
    kind = neighbors.NEIGHBORS_STAGE

    def counted(context: Context, parameters: neighbors.ListsParameters, unit: int) -> Any:
        X = context.tiles.read_rows(slice(0, context.tiles.shape.n_samples))
        rows = X.toarray() if sp.issparse(X) else X
        searches.append((parameters.graph.name, rows.tobytes()))
        return kind.run(context, parameters, unit)

    monkeypatch.setattr(neighbors, "NEIGHBORS_STAGE", dataclasses.replace(kind, run=counted))
    evaluation.main(["--small", "--workers", "0", "--setting", "inductive", "--folder", str(tmp_path / "study")])
    printed = capsys.readouterr().out
    assert "searched_in_evaluation" in printed
    assert "average rank" in printed
    assert len(searches) >= 2 * 2
    assert len(set(searches)) == len(searches)


@pytest.mark.cluster
@pytest.mark.parametrize("method", ["RLSR", pytest.param("SSUFS", marks=pytest.mark.long)])
def test_rescaled_regression_in_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    """Of two workers that hold all rows, nobody reads X again; and no unit takes more than it was planned to."""
    with warnings.catch_warnings():
        rescaled.main(["--small", "--methods", method, "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    (row,) = [line.split() for line in printed.splitlines() if line.split()[:1] == [method]]
    header = next(line.split() for line in printed.splitlines() if line.split()[:1] == ["method"])
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


@pytest.mark.cluster
def test_support_vector_machines_in_small_form(tmp_path: Path) -> None:
    """Memory and labels lead to the landmark route by themselves, and no unit takes more than it was planned to.

    In a process of its own: some units run in it, and this one holds what other tests have left.
    """
    command = [sys.executable, "-m", "tests.benchmarks.svm", "--small", "--landmarks", "60", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    for route, first in (("landmarks", "seed"), ("exact", "rows")):
        header = next(place for place, line in enumerate(lines) if line[:1] == [first] and "peak_mib" in line)
        found = dict(zip(lines[header], lines[header + 1], strict=True))
        assert found.get("route", "exact") == route
        assert float(found["peak_mib"]) <= float(found["planned_mib"])
    assert any("informative" in line for line in lines)
    assert any("hits" in line for line in lines)
    assert not list(tmp_path.iterdir())


def test_sources_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    sources.main(["--rows", "1000", "--kinds", "parquet parts", "svmlight", "mtx", "h5ad csr", "xarray zarr"])
    printed = capsys.readouterr().out
    assert "convert_ratio" in printed
    assert "without" in printed


@pytest.mark.cluster
def test_the_callers_cluster_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    client.main(["--rows", "2000", "--columns", "20"])
    assert "LaplacianScore().fit" in capsys.readouterr().out


def test_moments_beside_permutations(capsys: pytest.CaptureFixture[str]) -> None:
    significance.main(["--tables", "moments"])
    assert "type III" in capsys.readouterr().out


def test_the_driver_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    driver.main(["--units", "40", "--repeats", "1", "--job-repeats", "0"])
    assert "units_per_second" in capsys.readouterr().out


@pytest.mark.cluster
def test_late_workers_in_small_form(capsys: pytest.CaptureFixture[str]) -> None:
    late_workers.main(["--units", "4", "--seconds", "0.01", "--workers", "2", "--after", "0"])
    assert "ideal" in capsys.readouterr().out


@pytest.mark.cluster
def test_the_driver_with_many_workers_in_small_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of four workers dies after half of the units, and all units are done once."""
    scale.main(["--small", "--folder", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "sustained/s" in printed
    assert "| 4 | 60 | 0.05 | die |" in printed


def test_wide_tables(tmp_path: Path) -> None:
    assert {ending for ending, seconds in wide.measure(tmp_path, 12) if seconds >= 0} == {*wide.WRITERS}
