"""What a worker process really takes is at most what was planned, for methods that go over the rows again and again;
and what stages read and write.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.execution.measured import Case, apart, measured, with_weights
from tests.execution.runs import run, write_job

pytestmark = [pytest.mark.cluster, pytest.mark.long]

FEW_ROUNDS = {"max_iter": 3, "gamma": 50}
ITERATED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tall": (
        "synthetic:mixture?n_samples=300000&n_features=40&n_classes=4&n_informative=8&seed=1",
        [{"name": "RLSR"}, {"name": "SSUFS"}, {"name": "DSSFS"}, {"name": "RLSR", "label": "cg", "solver": "cg"}],
    ),
    "wide": (
        "synthetic:mixture?n_samples=1200&n_features=6000&n_classes=4&n_informative=50&seed=1",
        [
            {"name": "RLSR"},
            {"name": "SSUFS", "correlation": "matrix_free", "n_correlation_rows": 200},
            {"name": "RLSR", "label": "scaled", "score_scaling": "unit"},
        ],
    ),
    "square": (
        "synthetic:mixture?n_samples=4000&n_features=2500&n_classes=4&n_informative=50&seed=1",
        [{"name": "RLSR"}, {"name": "SSUFS", "n_correlation_rows": 1000}],
    ),
    "sparse": (
        "synthetic:sparse?n_samples=60000&n_features=1500&density=0.02&n_classes=4&n_informative=50&seed=1",
        [{"name": "RLSR"}, {"name": "DSSFS"}, {"name": "RLSR", "label": "cg", "solver": "cg"}],
    ),
}


def few_rounds(methods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**FEW_ROUNDS, "max_iter": 1 if "solver" in method else 3, **method} for method in methods]


OF_LOOPS = ("rescaled-", "distances-", "correlations-")
LOOPS = {
    name: Case(source, few_rounds(methods), of=OF_LOOPS, bytes_too=True, memory_limit="2GiB")
    for name, (source, methods) in ITERATED.items()
}


@pytest.mark.parametrize("shape", apart(LOOPS, "wide", "square"))
def test_measured_peak_and_bytes_of_loops(tmp_path: Path, shape: str) -> None:
    """With all rows held, that fit."""
    stages = measured(tmp_path, LOOPS[shape])
    assert max(stage["rounds"] or 0 for stage in stages) >= 3


def test_rows_that_do_not_fit_are_read_in_every_round(tmp_path: Path) -> None:
    """And those that do in the first two: all rows in the first, and in the second those without a label."""
    source, _ = ITERATED["tall"]
    read = {}
    for limit in ("560MiB", "2GiB"):
        job = write_job(
            tmp_path / limit,
            source,
            methods=[{"name": "DSSFS", **FEW_ROUNDS, "max_iter": 4, "tol": 0}],
            evaluate=None,
            cluster={"workers": 1, "memory_limit": limit},
        )
        stages = {stage["name"]: stage for stage in run(job)["stages"]}
        rows = stages["rescaled-rows-zscore-cholesky-dragged"]
        assert rows["peak_bytes"] <= rows["planned_peak_bytes"]
        read[limit] = rows["bytes_read"] / (300_000 * 40 * 4)
    assert read["560MiB"] > read["2GiB"] + 1, read
    assert read["2GiB"] < 3, read
    assert (tmp_path / "560MiB/run/ranking.csv").read_bytes() == (tmp_path / "2GiB/run/ranking.csv").read_bytes()


MARKS = {"name": "SVMRFE", "large_n": "landmarks", "step": 0.8}
EXACT = {"name": "SVMRFE", "large_n": "exact", "step": 0.8}
GRAPH = {"laplacian": True, "gamma_intrinsic": 0.01}
ELIMINATED: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "landmarks": (
        "synthetic:mixture?n_samples=100000&n_features=24&n_classes=2&n_informative=8&seed=1",
        [MARKS, {**MARKS, **GRAPH, "label": "graph", "n_landmarks": 100}],
    ),
    "wide-landmarks": (
        "synthetic:mixture?n_samples=17000&n_features=2000&n_classes=2&n_informative=50&seed=1",
        [MARKS, {**MARKS, **GRAPH, "label": "graph"}, {**MARKS, "label": "scaled", "score_scaling": "unit"}],
    ),
    "sparse-landmarks": (
        "synthetic:sparse?n_samples=40000&n_features=1500&density=0.02&n_classes=3&n_informative=50&seed=1",
        [MARKS, {**MARKS, **GRAPH, "label": "graph"}],
    ),
    "exact": (
        "synthetic:nonlinear?n_samples=1500&n_features=300&seed=1",
        [EXACT, {**EXACT, "label": "bound", "criterion": "rmb", "step": 0.95}],
    ),
    "graphs": (
        "synthetic:mixture?n_samples=700&n_features=400&n_classes=2&n_informative=20&seed=1",
        [
            {**EXACT, **GRAPH},
            {**EXACT, **GRAPH, "label": "kept", "rebuild_graph": False},
            {**EXACT, **GRAPH, "label": "one by one", "criterion": "rmb", "step": 390},
            {**EXACT, **GRAPH, "label": "unit", "score_scaling": "unit"},
        ],
    ),
    "wide-exact": (
        "synthetic:mixture?n_samples=1000&n_features=6000&n_classes=2&n_informative=20&seed=1",
        [{**EXACT, "label": f"C = {C}", "C": C} for C in (1, 3, 10, 30)],
    ),
    "sparse-exact": (
        "synthetic:sparse?n_samples=1000&n_features=4000&density=0.01&n_classes=3&n_informative=50&seed=1",
        [EXACT, {**EXACT, **GRAPH, "label": "graph"}],
    ),
}
ELIMINATIONS = {
    name: Case(source, methods, of=("svm-",), bytes_too=True, memory_limit="3GiB")
    for name, (source, methods) in ELIMINATED.items()
}


@pytest.mark.parametrize(
    ("shape", "weighted"),
    apart(
        [*((name, False) for name in ELIMINATIONS), *((name, True) for name in ("landmarks", "exact", "graphs"))],
        ("exact", False),
        ("sparse-exact", False),
    ),
)
def test_measured_peak_and_bytes_of_eliminations(tmp_path: Path, shape: str, weighted: bool) -> None:
    case, more = ELIMINATIONS[shape], {}
    if weighted:
        n_samples = int(case.source.partition("n_samples=")[2].partition("&")[0])
        more["data"] = with_weights(tmp_path, case.source, np.arange(n_samples) % 5 / 2.0)
    stages = measured(tmp_path, case, **more)
    assert max(stage["rounds"] or 0 for stage in stages) >= 3
