"""The same data through every kind of source: one ranking, to the bit among those of one type and storage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from unittest import mock

import numpy as np
import pytest
import yaml

from daskfs.storage import as_path
from tests.cli.command import daskfs, rows_of

from .writers import KINDS

pytestmark = pytest.mark.cluster

METHODS = ["VarianceScore", "FisherScore", "SSelect", {"name": "LaplacianScore", "n_neighbors": 4}]
ALIKE = {"float64 dense": "npy", "float32 dense": "npz", "float64 sparse": "csr-parts", "float32 sparse": "csr-scipy"}
QUICK = {*ALIKE.values(), "csv", "parquet", "zarr3", "hdf5", "h5ad-csc", "netcdf", "mtx-transposed", "csv-parts"}
"""One of each family of readers; that all kinds give the same matrix, the contract of sources checks."""
Ranking = list[tuple[str, str, str]]


def values() -> tuple[np.ndarray, np.ndarray]:
    """Return values that float32 holds, many of them 0 and no two distances of rows equal, and classes."""
    rng = np.random.default_rng(8)
    X = rng.integers(-990, 990, size=(90, 5)) / 8 * np.array([1.0, 0.25, 0.5, 1.0, 0.125])
    X = np.round(8 * X) / 8
    X[rng.random(X.shape) < 0.3] = 0
    y = np.arange(90) % 3
    X[:, 1] += 4 * y
    return X, y


@pytest.fixture(scope="module")
def ranking(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ranking]:
    """Returns method, feature and score of each rank, for a kind of source."""

    @cache
    def ranked(name: str) -> Ranking:
        kind, root = KINDS[name], tmp_path_factory.mktemp("kind")
        data = {"source": str(root / kind.write(root, *values())), **kind.fields(as_path(root))}
        job = {
            "data": {k: list(v) if isinstance(v, tuple) else v for k, v in data.items()},
            "methods": METHODS,
            "evaluate": None,
            "cluster": {"workers": 0},
            "output": {"path": str(root / "run")},
        }
        (root / "job.yaml").write_text(yaml.safe_dump(job))
        with mock.patch("daskfs.report.render.render_report", return_value=""):
            outcome = daskfs("run", root / "job.yaml", "-q")
        assert outcome.code == 0, outcome.err
        return [(row["method"], row["feature"], row["score"]) for row in rows_of(root / "run/ranking.csv")]

    return ranked


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in KINDS])
def test_scores_are_those_of_an_array(name: str, ranking: Callable[[str], Ranking]) -> None:
    kind = KINDS[name]
    alike = ALIKE[f"{kind.dtype} {'sparse' if kind.is_sparse else 'dense'}"]
    assert ranking(name) == ranking(alike)
    assert [row[:2] for row in ranking(name)] == [row[:2] for row in ranking("npy")]


def test_they_are_rankings_of_something(ranking: Callable[[str], Ranking]) -> None:
    rows = ranking("npy")
    orders = {method: [f for m, f, _ in rows if m == method] for method, _, _ in rows}
    assert len(orders) == len(METHODS)
    assert len(set(map(tuple, orders.values()))) > 1
    assert all(score for _, _, score in rows)
