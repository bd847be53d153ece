"""Jobs by metrics of pynndescent: the same bytes on any cluster and after a kill, and the scores of the selectors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import LaplacianScore, SemiSupervisedLaplacianScore, SSelect
from daskfs.graph import partition
from tests.cli.command import rows_of
from tests.execution.runs import HERE, recorded, run, write_job

N, M = 6000, 60
N_GROUPS = 6
KILLED = f"""
import os, signal
from daskfs import cli
from daskfs.graph import partition, partitioned_search

def search(*arguments):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    return whole_search(*arguments)

partition.GROUP_ROWS = {N // N_GROUPS}
whole_search, left = partitioned_search.pynndescent_neighbors, iter(range(2))
partitioned_search.pynndescent_neighbors = search
cli.main()
"""
"""A program that is killed when it searches its third group."""


def binary(n: int) -> sp.csr_matrix:
    """Sparse rows of noisy prototypes."""
    rng = np.random.default_rng(0)
    prototypes = rng.random((30, M)) < 0.2
    rows = (prototypes[rng.integers(0, 30, n)] & (rng.random((n, M)) < 0.7)) | (rng.random((n, M)) < 0.03)
    return sp.csr_matrix(rows.astype(np.float32))


def job(folder: Path, X: sp.csr_matrix, methods: list[Any], graph: dict[str, Any], **blocks: Any) -> Path:
    """Write rows, labels of every other row, and a job on them."""
    folder.mkdir(exist_ok=True)
    sp.save_npz(folder / "X.npz", X)
    np.save(folder / "y.npy", target(X) if blocks.pop("task", None) == "regression" else classes(X))
    data = {"source": str(folder / "X.npz"), "labels": str(folder / "y.npy")}
    return write_job(folder, "", **{"data": data, "methods": methods, "graph": graph, "evaluate": None, **blocks})


def classes(X: sp.csr_matrix) -> np.ndarray:
    y = np.asarray(X[:, :10].sum(axis=1)).ravel() > 2
    return np.where(np.arange(X.shape[0]) % 2 == 0, y.astype(int), -1)


def target(X: sp.csr_matrix) -> np.ndarray:
    y = np.asarray(X @ np.linspace(0, 1, M)).ravel()
    return np.where(np.arange(X.shape[0]) % 2 == 0, y, np.nan)


GRAPHS: dict[str, dict[str, Any]] = {
    "jaccard": {"metric": "jaccard", "n_neighbors": 8},
    "hellinger": {"metric": "hellinger", "n_neighbors": 8},
    "arguments": {"metric": "minkowski", "metric_kwds": {"p": 3}, "n_neighbors": 8},
}


@pytest.mark.parametrize("case", GRAPHS)
def test_scores_of_a_job_are_those_of_selectors(tmp_path: Path, case: str) -> None:
    X, graph = binary(300), GRAPHS[case]
    X.data[:] = np.random.default_rng(1).integers(1, 9, X.nnz)
    methods = [{"name": "LaplacianScore"}, {"name": "SSelect"}]
    run(job(tmp_path / "classes", X, methods, graph), *HERE)
    ssls = {"name": "SemiSupervisedLaplacianScore", "n_neighbors": 8, "graph_scaling": None}
    run(job(tmp_path / "target", X, [ssls], {**graph, "n_neighbors": 8}, task="regression"), *HERE)
    own = {key: value for key, value in graph.items() if key != "n_neighbors"}
    for folder, selector, y in (
        ("classes", LaplacianScore(n_neighbors=8, **own), classes(X)),
        ("classes", SSelect(n_neighbors=8, **own), classes(X)),
        ("target", SemiSupervisedLaplacianScore(n_neighbors=8, graph_scaling=None, **own), target(X)),
    ):
        rows = [row for row in rows_of(tmp_path / folder / "run/ranking.csv") if row["method"] == selector._criterion]
        found = np.array([float(row["score"]) for row in sorted(rows, key=lambda row: int(row["feature"]))])
        np.testing.assert_allclose(found, selector.fit(X, y).scores_, rtol=1e-12)


@pytest.mark.cluster
@pytest.mark.long
@pytest.mark.release
def test_any_cluster_and_a_kill_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of groups that are found one at a time, two in one process, by two workers, and after SIGKILL."""
    monkeypatch.setattr(partition, "GROUP_ROWS", N // N_GROUPS)
    graph = {"engine": "pynndescent", **GRAPHS["jaccard"]}
    methods = [{"name": "LaplacianScore"}, {"name": "SSelect"}]

    def ran(name: str, cluster: dict[str, Any], start: Callable[[Path], Any] = run) -> Path:
        start(job(tmp_path / name, binary(N), methods, graph, cluster=cluster))
        return tmp_path / name / "run"

    def killed(path: Path) -> None:
        ended = subprocess.run([sys.executable, "-c", KILLED, "run", str(path), "-q"], check=False)
        assert ended.returncode == -signal.SIGKILL
        assert len(recorded(path.parent / "run", "build-jaccard")) == 2
        run(path)

    expected = ran("one", {"workers": 0, "threads": 1})
    summary = json.loads((expected / "run.json").read_text())["graphs"][0]
    assert summary["groups"]["n_groups"] >= 4
    assert summary["recall"]["value"] >= 0.98
    runs = [
        ran("threads", {"workers": 0, "threads": 2}),
        ran("workers", {"workers": 2, "memory_limit": "2GiB"}),
        ran("killed", {"workers": 0, "threads": 1}, killed),
    ]
    for other in runs:
        assert (other / "ranking.csv").read_bytes() == (expected / "ranking.csv").read_bytes()
        assert len(recorded(other, "build-jaccard")) >= 4
