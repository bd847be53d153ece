"""A small fit is a small thing: nothing heavy is imported, nothing compiled, nothing written. Examples hold."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import daskfs
from tests import optional

SMALL_FITS = """
import sys
import numpy as np
from daskfs import FisherScore, LaplacianScore, PearsonScore, SSelect, VarianceScore, knn_graph
from daskfs import LSDF, RRPC, RedundancyFilter, SemiSupervisedLaplacianScore, SupervisedLaplacianScore
from daskfs import DSSFS, RLSR, SSUFS, SVMRFE, distance_correlation_matrix
X = np.random.default_rng(0).normal(size=(150, 12))
y = np.arange(150) % 3
for selector in (VarianceScore(), LaplacianScore(), FisherScore(), PearsonScore(), SSelect(trade_off="auto")):
    selector.fit(X, y).transform(X)
LaplacianScore(graph=knn_graph(X, 5)).fit(X)
RRPC().fit(X, y)
RedundancyFilter(FisherScore(), measure="distance_correlation").fit(X, y)
partly = np.where(np.arange(150) % 5, -1, y)
LSDF().fit(X, partly)
for selector in (RLSR(), DSSFS(), SSUFS(greedy_filter=True), RLSR(solver="woodbury")):
    selector.fit(X, partly)
for selector in (SVMRFE(), SVMRFE(laplacian=True, criterion="rmb"), SVMRFE(large_n="landmarks")):
    selector.fit(X, partly)
for correlation in ("exact", "feature_map"):
    distance_correlation_matrix(X, correlation=correlation)
for selector in (SupervisedLaplacianScore(), SemiSupervisedLaplacianScore()):
    selector.fit(X, np.where(partly < 0, np.nan, X[:, 0]))
heavy = {"zarr", "distributed", "numba", "matplotlib", "bokeh"}
print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
"""


@pytest.mark.cluster
def test_fits_on_few_rows_import_nothing_heavy(tmp_path: Path) -> None:
    """pandas and pyarrow do not count: scikit-learn imports them by itself where they are installed."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", SMALL_FITS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
    assert not list(tmp_path.iterdir())


SMALL_RUN = """
import sys
from daskfs import make_job, run_job
run_job(make_job({
    "data": {"source": "synthetic:mixture?n_samples=60&n_features=8&n_informative=4"},
    "methods": ["FisherScore", "LaplacianScore"], "evaluate": None,
    "cluster": {"workers": 0}, "output": {"path": "run"},
}))
print(sorted({"sklearn", "scipy.stats", "scipy.spatial", "distributed", "numba"} & set(sys.modules)))
"""


@pytest.mark.cluster
def test_runs_that_only_rank_import_no_models(tmp_path: Path) -> None:
    """Each process of a run would take about as long for them as for all else that it imports."""
    command = [sys.executable, "-W", "error", "-c", SMALL_RUN]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip().endswith("[]")


PUBLIC = sorted(set(daskfs.__all__) - {"__version__"})
HOMES = sorted({getattr(getattr(daskfs, name), "__module__", f"daskfs.{name}") for name in PUBLIC})


JOBS = [
    "daskfs.runs.comparison",
    "daskfs.export.api",
    "daskfs.runs.pipeline",
    "daskfs.runs.benchmark",
    "daskfs.runs.estimate",
    "daskfs.runs.verification",
]
"""Modules whose examples run whole jobs."""


@pytest.mark.parametrize("module", [pytest.param(m, marks=pytest.mark.cluster if m in JOBS else ()) for m in HOMES])
def test_docstring_examples(module: str) -> None:
    """Those that need a package that is missing come last."""
    found = doctest.DocTestFinder().find(importlib.import_module(module))
    assert sum(len(text.examples) for text in found) >= 3
    wanting = []
    for text in found:
        try:
            doctest.DebugRunner().run(text)
        except doctest.DocTestFailure as wrong:
            pytest.fail(f"{text.name}: {wrong.example.source}gives\n{wrong.got}instead of\n{wrong.example.want}")
        except doctest.UnexpectedException as unexpected:
            wanting.append(unexpected.exc_info[1])
            if not optional.missing(wanting[-1]):
                raise wanting[-1] from None
    for error in wanting:
        raise error


def test_every_public_name_has_an_example() -> None:
    assert [name for name in PUBLIC if ">>> " not in (getattr(daskfs, name).__doc__ or "")] == []
