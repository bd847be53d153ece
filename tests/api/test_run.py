"""``daskfs.run`` and what it returns: from a file, from dictionaries, on a cluster of the caller."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import daskfs
from daskfs.errors import InputError, JobError, StoreError
from tests.cli.command import rows_of, write_job
from tests.execution.runs import Stop, local_client
from tests.optional import anndata

pytestmark = pytest.mark.cluster


def job_of(folder: Path, **blocks: Any) -> dict[str, Any]:
    job = {
        "data": {"source": "sklearn:wine"},
        "methods": ["FisherScore", {"name": "LaplacianScore", "n_neighbors": 4}],
        "transform": {"graph": "zscore"},
        "select": {"n_features": 5},
        "evaluate": {"n_selected": [2, 4], "n_splits": 3},
        "output": {"path": str(folder / "run")},
    }
    return {**job, **blocks}


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> daskfs.RunResult:
    """Return the result of a run; nothing may change it."""
    return daskfs.run(job_of(tmp_path_factory.mktemp("run")))


def test_it_is_the_content_of_run_json(result: daskfs.RunResult) -> None:
    stored = json.loads(Path(result.url, "run.json").read_text())
    del stored["written"]  # by whom, and its checksum
    paths = {key: str(Path(result.url, stored[key])) for key in ("ranking", "report")}  # where it lies now
    assert {key: result[key] for key in stored} == {**stored, **paths}
    assert {*result} - {*stored} == {"recomputed"}
    assert len(result) == len(stored) + 1
    assert result.report == result["report"] == str(Path(result.url, "report.html"))
    assert [one.to_json() for one in result.warnings] == stored["warnings"]


def test_tables_are_frames(result: daskfs.RunResult) -> None:
    for name, frame in (("ranking", result.ranking), ("evaluation", result.evaluation)):
        rows = rows_of(Path(result.url, f"{name}.csv"))
        assert list(frame.columns) == list(rows[0])
        assert len(frame) == len(rows)
    assert result.ranking["score"].dtype == np.float64
    assert set(result.evaluation_summary["method"]) >= {*result.methods, "RandomOrder", "AllFeatures"}


def test_selected_features_are_those_of_the_verdict_the_method_or_the_number(result: daskfs.RunResult) -> None:
    assert result.verdict is not None
    assert result.best is not None
    assert result.best == result.verdict["method"]
    ranked = {label: list(result.ranking.query("method == @label")["name"]) for label in result.methods}
    assert result.selected() == ranked[result.best][: result.verdict["n_selected"]]
    assert result.selected("LaplacianScore") == ranked["LaplacianScore"][:5]
    assert result.selected("LaplacianScore", 3) == ranked["LaplacianScore"][:3]
    with pytest.raises(JobError, match=r"no method of .* is called 'LaplaceScore'. Did you mean 'LaplacianScore'"):
        result.selected("LaplaceScore")
    with pytest.raises(JobError, match="n_features is 99"):
        result.selected("FisherScore", 99)


def test_it_shows_the_verdict_and_the_first_features(result: daskfs.RunResult) -> None:
    first = result["best"][0]["features"][0]
    for text in (repr(result), result._repr_html_()):
        assert str(result.best) in text
        assert "balanced accuracy" in text
        assert first in text
    assert result.url in repr(result)
    named = daskfs.RunResult({**result, "best": [{"method": "<b>", "features": ["a&b"], "is_best": True}]}, result.url)
    assert "<b>" not in named._repr_html_()
    assert "a&amp;b" in named._repr_html_()


def test_plots_are_those_of_the_report_on_axes(result: daskfs.RunResult, tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(5)
    assert result.plot_scores("LaplacianScore", ax=axes[0]) is axes[0]
    scores = result.ranking.query("method == 'LaplacianScore'")["score"].to_numpy()
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), scores)
    assert axes[0].get_ylabel() == "score (small is good)"
    result.plot_evaluation(ax=axes[1])
    assert {text.get_text() for text in axes[1].texts} >= {*result.methods, "RandomOrder"}
    assert result.plot_stability(ax=axes[2]).get_ylabel().startswith("Kuncheva index")
    result.plot_top("LaplacianScore", 3, ax=axes[3])
    named = [label.get_text().removesuffix("…") for label in axes[3].get_yticklabels()]
    assert all(map(str.startswith, result.selected("LaplacianScore", 3), named))
    np.testing.assert_array_equal(axes[3].lines[0].get_xdata(), scores[:3])
    result.plot_agreement(ax=axes[4])
    assert {label.get_text() for label in axes[4].get_yticklabels()} == {*result.methods}
    assert [axes[4].texts[place].get_text() for place in (0, -1)] == ["1.00", "1.00"]
    figure.savefig(tmp_path / "figure.png")
    with pytest.raises(JobError, match="has no features along an axis to draw"):
        result.plot_along(ax=axes[0])
    with pytest.raises(JobError, match="has no image of its features to draw"):
        result.plot_image(ax=axes[0])
    with pytest.raises(JobError, match="Did you mean 'FisherScore'"):
        result.plot_scores("FischerScore")


def test_plots_make_axes_of_their_own(tmp_path: Path) -> None:
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    mpl.use("agg")
    X = np.random.default_rng(0).normal(size=(40, 5))
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "names.txt").write_text("850\n852\n854\n856\n858\n")
    data: dict[str, Any] = {"source": str(tmp_path / "X.npy"), "feature_names": str(tmp_path / "names.txt")}
    spectra = daskfs.run(job_of(tmp_path, data=data, methods=["VarianceScore"], evaluate=None))
    axes = spectra.plot_along()
    assert axes.lines[0].get_xdata().tolist() == [850, 852, 854, 856, 858]
    data = {"source": "sklearn:digits", "image_shape": [8, 8]}
    output = {"path": str(tmp_path / "digits")}
    images = daskfs.run(job_of(tmp_path, data=data, methods=["VarianceScore"], evaluate=None, output=output))
    shown = images.plot_image().images[0].get_array()
    assert shown.shape == (8, 8)
    assert shown.argmax() == images.ranking["feature"][0]
    with pytest.raises(JobError, match="has no second method to draw"):
        images.plot_agreement()
    plt.close("all")
    with pytest.raises(JobError, match="has no evaluation to draw"):
        spectra.plot_evaluation()


def test_the_graph_is_what_selectors_take(result: daskfs.RunResult) -> None:
    graph = result.graph
    assert graph is not None
    assert (graph.indices.shape, graph.graph_scaling) == ((178, 4), "zscore")
    order = np.argsort(daskfs.LaplacianScore(graph=graph, n_neighbors=4).fit(wine()).ranking_)
    names = list(result.ranking.query("method == 'LaplacianScore'")["feature"])
    assert order.tolist() == names


def wine() -> np.ndarray:
    from sklearn.datasets import load_wine

    return np.asarray(load_wine().data)


def test_the_same_job_from_a_file_and_again(tmp_path: Path) -> None:
    job = job_of(tmp_path, evaluate=None)
    first = daskfs.run(write_job(tmp_path, job))
    assert sum(first["recomputed"].values()) > 0
    assert daskfs.run(daskfs.make_job(job), progress=False)["recomputed"] == {}
    assert (first.verdict, first.best, len(first.evaluation), len(first.evaluation_summary)) == (None, None, 0, 0)
    with pytest.raises(JobError, match="name a method: the run has FisherScore, LaplacianScore"):
        first.selected()
    with pytest.raises(JobError, match="progress is 'always'"):
        daskfs.run(job, progress="always")  # type: ignore[arg-type]
    other = daskfs.run({**job, "methods": ["VarianceScore"]}, overwrite=True)
    assert (other.best, other.graph) == ("VarianceScore", None)


def test_on_the_cluster_of_the_caller(tmp_path: Path) -> None:
    with local_client(2) as client:
        assert isinstance(client, Client)
        there = daskfs.run(job_of(tmp_path / "there", cluster={"workers": 0}), client=client)
    here = daskfs.run(job_of(tmp_path / "here"))
    assert there.ranking.equals(here.ranking)
    assert there.evaluation.equals(here.evaluation)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    """Worker processes do not run it again, and it finds its own path as before."""
    job = job_of(tmp_path, evaluate=None, cluster={"workers": 2})
    script = tmp_path / "script.py"
    body = f"print('once', __file__)\nimport daskfs\nprint(daskfs.run({job!r}).methods, __file__)\n"
    script.write_text(body)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"once {script}", f"['FisherScore', 'LaplacianScore'] {script}"], done.stderr
    assert not done.stderr


def test_runs_that_are_opened_again(result: daskfs.RunResult, tmp_path: Path) -> None:
    again = daskfs.open_run(result.url)
    assert again.ranking.equals(result.ranking)
    assert again["verdict"] == result.verdict
    with pytest.raises(StoreError, match="is not a daskfs run"):
        daskfs.open_run(tmp_path)
    job = daskfs.make_job(job_of(tmp_path))
    with pytest.raises(daskfs.errors.RunStoppedError):
        daskfs.run_job(job, Stop("score", 0))
    with pytest.raises(StoreError, match=r"is not finished \(stopped, .*\): 'daskfs status .* shows how far"):
        daskfs.open_run(tmp_path / "run")


def test_columns_of_an_anndata(result: daskfs.RunResult) -> None:
    """By name, whatever the order; those of an earlier run are replaced, others stay."""
    names = list(result.ranking.query("method == 'FisherScore'").sort_values("feature")["name"])
    turned = np.arange(len(names))[::-1]
    cells = anndata.AnnData(np.ones((3, len(names)), np.float32))
    cells.var_names = [names[place] for place in turned]
    cells.var["mine"], cells.var["rank_Gone"] = 1, 2
    cells.uns["daskfs"] = {"methods": {"Gone": {}}}
    result.to_anndata(cells)
    ranks = result.ranking.query("method == 'FisherScore'").set_index("name")["rank"]
    assert cells.var["rank_FisherScore"].to_dict() == ranks.to_dict()
    assert cells.var["selected_LaplacianScore"].sum() == 5
    assert ("mine" in cells.var, "rank_Gone" in cells.var) == (True, False)
    assert {*cells.uns["daskfs"]["methods"]} == {*result.methods}
    other = result.to_anndata(cells, "second", copy=True)
    assert "second" not in cells.uns
    assert set(other.uns) - set(cells.uns) == {"second"}
    added = other.var.columns.difference(cells.var.columns)
    assert sorted(added.str.removeprefix("second_")) == sorted(name for name in cells.var.columns if name != "mine")
    assert result.to_anndata(other, "second") is None
    assert list(other.var.columns) == [*cells.var.columns, *(f"second_{name}" for name in result._contents.columns)]
    strange = copy.copy(cells)
    strange.var_names = ["other", *cells.var_names[1:]]
    with pytest.raises(InputError, match="has 'other'"):
        result.to_anndata(strange)
