"""The warning of a graph that a few columns of large scale decide: on the terminal, in run.json and in the report, and
from Python.
"""

from __future__ import annotations

import html
import json
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from daskfs import LSDF, LaplacianScore, RedundancyFilter, SemiSupervisedLaplacianScore, VarianceScore, knn_graph
from daskfs.graph.dominance import DOMINANT_SHARE, FEW_COLUMNS, dominant_columns
from tests.cli.command import basic_job, daskfs, texts, write_job
from tests.optional import pandas as pd

NAMES = [*(f"share{i}" for i in range(9)), "years", "smoker", "trial"]
WARNING = (
    "graph euclidean: 1 of 12 columns that vary ('years') makes 95% of the mean squared distance between rows and "
    "decides which rows are neighbors; unless that is meant, set "
)


def mixed() -> np.ndarray:
    """Return X, shape (90, 12): nine values in 0..1, whole numbers in 0..16, and two binary columns."""
    rng = np.random.default_rng(3)
    return np.column_stack([rng.random((90, 9)), rng.integers(0, 17, 90), rng.integers(0, 2, (90, 2))])


def told(call: Callable[..., object]) -> list[str]:
    """Return the warnings of a call; all of them point at this file."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(Path(one.filename) == Path(__file__) for one in found)
    return [str(one.message) for one in found]


# ------------------------------------------------------------------------------------------------ jobs
def job_of(folder: Path, form: str) -> dict[str, Any]:
    """Return a job on the data in one form."""
    job = basic_job(folder, methods=["LaplacianScore", {"name": "LaplacianScore", "label": "ten", "n_neighbors": 10}])
    path, data = folder / f"{form}.parquet", pd.DataFrame(mixed(), columns=NAMES)
    if form == "sparse":
        path = folder / "X.npz"
        sp.save_npz(path, sp.csr_matrix(mixed()))
        (folder / "names.txt").write_text("\n".join(NAMES))
        job["data"] = {"feature_names": str(folder / "names.txt")}
    elif form == "incomplete":
        data = data.mask(np.random.default_rng(0).random(data.shape) < 0.05)
        job["data"] = {"missing": "pairwise"}
    else:
        job["data"] = {}
    if form != "sparse":
        data.to_parquet(path)
    job["data"]["source"] = str(path)
    return job


@pytest.mark.cluster
@pytest.mark.parametrize("form", ["dense", "sparse", "incomplete"])
def test_a_run_warns_once_for_all_methods_on_the_same_neighbors(form: str, tmp_path: Path) -> None:
    warning = WARNING + "transform: {graph: zscore}"
    path = write_job(tmp_path, job_of(tmp_path, form))
    outcome = daskfs("run", path, "-q")
    assert (outcome.code, outcome.err) == (0, f"daskfs: warning: {warning}.\n")
    assert texts(json.loads((tmp_path / "run/run.json").read_text())) == [warning]
    assert warning in html.unescape((tmp_path / "run/report.html").read_text())
    assert daskfs("run", path, "-q").err == outcome.err  # nothing to do


@pytest.mark.parametrize(
    "blocks",
    [
        {"transform": {"graph": "zscore"}},
        {"transform": {"graph": "log1p"}},
        {"graph": {"metric": "cosine"}},
        {"methods": ["VarianceScore"]},
        {"data": {"source": "sklearn:iris"}},
    ],
    ids=lambda blocks: next(iter(blocks)),
)
@pytest.mark.cluster
def test_no_warning(blocks: dict[str, Any], tmp_path: Path) -> None:
    outcome = daskfs("run", write_job(tmp_path, {**job_of(tmp_path, "dense"), **blocks}), "-q")
    assert (outcome.code, "graph " in outcome.err) == (0, False)


@pytest.mark.cluster
def test_nor_for_a_graph_from_outside(tmp_path: Path) -> None:
    told(lambda: knn_graph(mixed()).save(tmp_path / "lists.zarr"))
    job = {**job_of(tmp_path, "dense"), "graph": {"precomputed": str(tmp_path / "lists.zarr")}}
    job["methods"] = ["LaplacianScore"]
    assert daskfs("run", write_job(tmp_path, job), "-q").err == ""


# ---------------------------------------------------------------------------------------------- Python
class TestPython:
    @pytest.mark.parametrize("selector", [LaplacianScore, LSDF, SemiSupervisedLaplacianScore])
    def test_selectors(self, selector: Any) -> None:
        X, y = pd.DataFrame(mixed(), columns=NAMES), np.arange(90) % 3 - 1
        assert told(lambda: selector(graph_scaling=None).fit(X, y)) == [WARNING + "graph_scaling='zscore'."]
        assert told(lambda: selector(graph_scaling="zscore").fit(X, y)) == []

    def test_the_graph(self, tmp_path: Path) -> None:
        X = pd.DataFrame(mixed(), columns=NAMES)
        X.to_parquet(tmp_path / "X.parquet")
        for data in (X, tmp_path / "X.parquet"):
            assert told(lambda data=data: knn_graph(data)) == [WARNING + "graph_scaling='zscore'."]
        assert told(lambda: knn_graph(mixed())) == [WARNING.replace("years", "x9") + "graph_scaling='zscore'."]
        for options in ({"graph_scaling": "zscore"}, {"metric": "cosine"}):
            assert told(lambda options=options: knn_graph(mixed(), **options)) == []

    def test_not_where_no_neighbors_are_searched(self) -> None:
        graph = knn_graph(mixed(), graph_scaling="zscore")
        for selector in (LaplacianScore(graph=graph), VarianceScore(), RedundancyFilter(VarianceScore())):
            assert told(lambda selector=selector: selector.fit(mixed())) == []

    def test_names_steer_no_terminal(self) -> None:
        X = pd.DataFrame(mixed(), columns=[*NAMES[:9], "ye\x1b[31m\nars", *NAMES[10:]])
        (found,) = told(lambda: knn_graph(X))
        assert found == WARNING.replace("years", "ye [31m ars") + "graph_scaling='zscore'."

    @pytest.mark.parametrize(
        ("load", "part"),
        [
            (load_wine, "1 of 13 columns that vary ('proline') makes over 99% of"),
            (partial(load_diabetes, scaled=False), "2 of 10 columns that vary ('s1', 's2') make 76% of"),
            (load_breast_cancer, "2 of 30 columns that vary ('worst area', 'mean area') make over 99% of"),
        ],
    )
    def test_tables_of_mixed_units(self, load: Any, part: str) -> None:
        table = load()
        (found,) = told(lambda: knn_graph(pd.DataFrame(table.data, columns=table.feature_names)))
        assert part in found

    @pytest.mark.parametrize("load", [load_iris, load_digits, load_diabetes])
    def test_tables_of_one_unit(self, load: Any) -> None:
        assert told(lambda: knn_graph(load().data)) == []


# ------------------------------------------------------------------------------------------------ rule
@given(
    # multiples of a power of two, whose sums are exact in any order: none is nearly DOMINANT_SHARE without being it
    arrays(np.float64, st.integers(0, 60), elements=st.sampled_from([0.0, 2.0**-10, 0.375, 1.0, 5.0, 70.0, 1e4])),
    st.integers(-300, 300),
)
@example(np.array([5.0, 70.0, *[1.0] * 29]), 0)  # 78 of 104 are DOMINANT_SHARE exactly
def test_the_fewest_that_make_nearly_all(variance: np.ndarray, exponent: int) -> None:
    columns, share = dominant_columns(variance)
    scaled = dominant_columns(variance * 2.0**exponent)  # a unit that all columns share does not matter
    assert (scaled[0].tolist(), scaled[1]) == (columns.tolist(), share)
    n_varying = int(np.count_nonzero(variance))
    made = np.sort(variance)[::-1].cumsum() / (variance.sum() or 1)
    n_needed = int(np.searchsorted(made, DOMINANT_SHARE)) + 1
    if n_varying < 3 or n_needed > max(1, min(FEW_COLUMNS, n_varying // FEW_COLUMNS)):
        assert (columns.size, share) == (0, 0.0)
    else:
        assert share == made[columns.size - 1]
        assert columns.size == n_needed
        assert variance[columns].min() >= np.delete(variance, columns).max()


def test_variances_at_the_ends_of_the_range() -> None:
    assert dominant_columns(np.array([1e308, 1e308, 1e308, 1e308]))[0].size == 0
    assert dominant_columns(np.array([1e308, 1e300, 1e300]))[0].tolist() == [0]
    assert dominant_columns(np.array([np.inf, 1.0, 1.0]))[0].size == 0
    assert dominant_columns(np.array([5e-324, 0.0, 5e-324, 5e-324]))[0].size == 0
