"""The same data through every kind of source: one ranking, to the bit among those of one type and storage."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import numpy as np
import pytest
import yaml

from tests.cli.command import daskfs, rows_of

from .writers import KINDS

METHODS = ["VarianceScore", "FisherScore", "SSelect", {"name": "LaplacianScore", "n_neighbors": 4}]
ALIKE = {"float64 dense": "npy", "float32 dense": "npz", "float64 sparse": "csr-parts", "float32 sparse": "csr-scipy"}
Ranking = list[tuple[str, str, str]]


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return values that float32 holds, many of them 0 and no two distances of rows equal, and classes."""
    rng = np.random.default_rng(8)
    X = rng.integers(-990, 990, size=(90, 5)) / 8 * np.array([1.0, 0.25, 0.5, 1.0, 0.125])
    X = np.round(8 * X) / 8
    X[rng.random(X.shape) < 0.3] = 0
    y = np.arange(90) % 3
    X[:, 1] += 4 * y
    return X, y


@cache
def rankings() -> dict[str, Ranking]:
    """Return method, feature and score of each rank, by kind of source."""
    found = {}
    for name, kind in KINDS.items():
        with TemporaryDirectory() as folder, mock.patch("daskfs.report.render.render_report", return_value=""):
            root = Path(folder)
            spec = {k: v.replace("@", folder) if isinstance(v, str) else v for k, v in kind.spec.items()}
            job = {
                "data": {"source": str(root / kind.write(root, *data())), **spec},
                "methods": METHODS,
                "evaluate": None,
                "cluster": {"workers": 0},
                "output": {"path": str(root / "run")},
            }
            job["data"] = {k: list(v) if isinstance(v, tuple) else v for k, v in job["data"].items()}
            (root / "job.yaml").write_text(yaml.safe_dump(job))
            outcome = daskfs("run", root / "job.yaml", "-q")
            assert outcome.code == 0, f"{name}: {outcome.err}"
            found[name] = [(row["method"], row["feature"], row["score"]) for row in rows_of(root / "run/ranking.csv")]
    return found


@pytest.mark.parametrize("name", KINDS)
def test_scores_are_those_of_an_array(name: str) -> None:
    kind, all_of_them = KINDS[name], rankings()
    alike = ALIKE[f"{kind.dtype} {'sparse' if kind.is_sparse else 'dense'}"]
    assert all_of_them[name] == all_of_them[alike]
    assert [row[:2] for row in all_of_them[name]] == [row[:2] for row in all_of_them["npy"]]


def test_they_are_rankings_of_something() -> None:
    orders = {method: [f for m, f, _ in rankings()["npy"] if m == method] for method, _, _ in rankings()["npy"]}
    assert len(orders) == len(METHODS)
    assert len(set(map(tuple, orders.values()))) > 1
    assert all(score for _, _, score in rankings()["npy"])
