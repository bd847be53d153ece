"""What a worker process really takes is at most what was planned, for every stage; and what stages read and write."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import knn_graph
from daskfs.stages import cost
from daskfs.stages.kind import all_kinds
from tests.execution.measured import Case, apart, measured, with_weights
from tests.execution.test_evaluation import EVALUATIONS
from tests.execution.test_memory_of_loops import ELIMINATIONS, LOOPS
from tests.execution.test_memory_of_searches import SEARCHES

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

SHAPES = {
    "tall": "synthetic:mixture?n_samples=30000&n_features=24&n_classes=4&n_informative=8&seed=1",
    "wide": "synthetic:mixture?n_samples=1500&n_features=20000&n_classes=4&n_informative=50&seed=1",
    "short": "synthetic:sparse?n_samples=12000&n_features=5000&density=0.006&n_classes=4&n_informative=50&seed=1",
    "sparse": "synthetic:sparse?n_samples=20000&n_features=10000&density=0.003&n_classes=4&n_informative=50&seed=1",
}
SCORED: tuple[Any, ...] = (
    "LaplacianScore",
    "FisherScore",
    {"name": "LaplacianScore", "label": "scaled", "score_scaling": "unit"},
    {"name": "SSelect", "trade_off": "auto", "n_cut_features": 300},
    "KolmogorovSmirnovScore",
    "InformationGainScore",
)
EVALUATED = {"evaluate": {"setting": "transductive", "n_selected": [10], "max_samples": 2000}}
IMAGES = {"tall": {"image_shape": [4, 6]}}
SCORES = {name: Case(source, SCORED, EVALUATED, data=IMAGES.get(name, {})) for name, source in SHAPES.items()}
# one process that has done all of it keeps some 100 MB of what the widest stages took when the evaluation begins
SCORES["wide"] = dataclasses.replace(
    SCORES["wide"], blocks={**EVALUATED, "cluster": {"workers": 2, "memory_limit": "4GiB"}}
)
PICKED: tuple[Any, ...] = (
    "RRPC",
    {"name": "RRPC", "label": "scaled", "score_scaling": "unit", "n_candidates": 300},
)
SELECTIONS = {
    (name, measure): Case(
        SHAPES[name],
        PICKED,
        {"select": {"n_features": 5, "redundancy": {"measure": measure, "n_candidates": 100}}},
        of=("candidates-", "comoments-", "greedy-", "filter"),
    )
    for name in ("tall", "wide", "sparse")
    for measure in ("correlation", "distance_correlation")
}
CHAINED = {"name": "LaplacianScore", "graph_scaling": "total+log1p+zscore", "score_scaling": "total+log1p+unit"}
PREPARED = {
    name: Case(
        source,
        (CHAINED,),
        of=("fill", "facts", "columns", "transform", "score"),
        bytes_too=True,
        data={"missing": "mean"},
    )
    for name, source in SHAPES.items()
    if name in ("short", "sparse")
}
PROJECTED = {
    name: Case(
        SHAPES[name],
        ({"name": "LaplacianScore", "graph_scaling": "log1p+zscore+pca=20" if name == "sparse" else "pca=20"},),
        of=("pca", "neighbors"),
        bytes_too=True,
    )
    for name in ("tall", "wide", "sparse")
}
"""Principal components from one pass, from few rows, and from several passes."""
TESTED = {
    name: Case(
        SHAPES[name],
        (
            {"name": "LaplacianScore", "significance": True, **({"score_scaling": "unit"} if name == "wide" else {})},
            {"name": "LSDF", "significance": True},
        ),
        of=("halves", "invariants", "score"),
        bytes_too=True,
    )
    for name in ("tall", "wide", "short")
}
"""Features tested on the graphs of halves, of sparse rows by permutation."""
BY_COLUMNS: tuple[Any, ...] = (
    "FisherScore",
    "KolmogorovSmirnovScore",
    {"name": "PearsonScore", "score_scaling": "zscore"},
)
MANY_ROWS = "synthetic:mixture?n_samples={}&n_features=6&n_classes=4&n_informative=4&seed=1"
WEIGHTED = Case(
    MANY_ROWS.format(2_000_000), ("FisherScore", "KolmogorovSmirnovScore", "InformationGainScore"), EVALUATED
)
MANY_LABELS = Case(MANY_ROWS.format(3_000_000), ("VarianceScore",), EVALUATED, of=("labels", "design"))
COMPILED = Case(
    "synthetic:mixture?n_samples=280000&n_features=64&n_classes=4&n_informative=8&seed=1",
    ("VarianceScore", "FisherScore"),
    of=("score",),
    memory_limit="1GiB",
)

IN_STRETCHES = Case(
    "synthetic:lowrank?n_samples=900000&n_features=4&rank=2&seed=1",
    [{"name": "SupervisedLaplacianScore", "n_neighbors": 64}],
    of=("targets-", "entries-", "edges-", "weights-", "score"),
    bytes_too=True,
    data={"task": "regression"},
)
"""So many list entries that several units share them; lists by target are found at once."""


def given_case(folder: Path, n_samples: int) -> Case:
    """Return a job on a graph that was there before."""
    X = np.random.default_rng(0).normal(size=(n_samples, 6))
    np.save(folder / "X.npy", X)
    knn_graph(X, 20).save(folder / "graph.zarr")
    blocks = {"graph": {"precomputed": str(folder / "graph.zarr"), "n_neighbors": 20}}
    return Case(
        str(folder / "X.npy"), [{"name": "LaplacianScore", "n_neighbors": 20}], blocks, of=("graph-given", "edges")
    )


def represented_case(folder: Path, n_samples: int) -> Case:
    """Return a job on a graph of another representation of the rows."""
    np.save(folder / "rep.npy", np.random.default_rng(0).normal(size=(n_samples, 40)))
    methods = [{"name": "LaplacianScore", "n_neighbors": 5, "t": "median"}]
    blocks = {"graph": {"use_rep": str(folder / "rep.npy"), "engine": "cells"}}
    return Case(MANY_ROWS.format(n_samples), methods, blocks, of=("representation", "cells", "median"), bytes_too=True)


def batched_case(folder: Path, n_features: int, n_batches: int) -> Case:
    """Return a job on data with batches. Combining their rankings takes less than the worker keeps of the batches'
    runs, which wrote tables with Arrow, so it is not held to its plan here.
    """
    np.save(folder / "batch.npy", np.arange(20 * n_batches) % n_batches)
    source = f"synthetic:mixture?n_samples={20 * n_batches}&n_features={n_features}&n_classes=2&n_informative=4&seed=1"
    data = {"batch": str(folder / "batch.npy")}
    methods, blocks = ("VarianceScore", "FisherScore"), {"consensus": True}
    return Case(source, methods, blocks, of=("batch-tables", "consensus"), bytes_too=True, data=data)


def test_every_kind_of_stage_is_measured(tmp_path: Path) -> None:
    """By one of the cases here, of loops, of searches or of evaluations."""
    tables: tuple[Any, ...] = (
        SCORES,
        SELECTIONS,
        PREPARED,
        PROJECTED,
        TESTED,
        SEARCHES,
        LOOPS,
        ELIMINATIONS,
        EVALUATIONS,
    )
    cases = [case for table in tables for case in table.values()]
    cases += [given_case(tmp_path, 200), represented_case(tmp_path, 3000), IN_STRETCHES]
    cases += [dataclasses.replace(batched_case(tmp_path, 10, 2), of=("",))]
    found = {stage.kind_name for case in cases for stage in case.planned()}
    assert found == {kind.name for kind in all_kinds()}


@pytest.mark.parametrize("shape", apart(["tall", "short", "wide", "sparse"], "short", "wide"))
def test_measured_peak_is_at_most_the_planned_one(tmp_path: Path, shape: str) -> None:
    measured(tmp_path, SCORES[shape])


def test_measured_peak_and_bytes_of_batches(tmp_path: Path) -> None:
    measured(tmp_path, batched_case(tmp_path, 60_000, 5))


@pytest.mark.parametrize("shape", apart(["short", "sparse"], "sparse"))
def test_measured_peak_and_bytes_of_transforms_and_means(tmp_path: Path, shape: str) -> None:
    names = {stage["name"] for stage in measured(tmp_path, PREPARED[shape])}
    assert {"fill", "facts", "transform", "transform-columns"} <= names


def test_measured_peak_and_bytes_of_a_representation(tmp_path: Path) -> None:
    measured(tmp_path, represented_case(tmp_path, 300_000))


@pytest.mark.parametrize("shape", PROJECTED)
def test_measured_peak_and_bytes_of_principal_components(tmp_path: Path, shape: str) -> None:
    names = {stage["name"].partition("-log1p")[0] for stage in measured(tmp_path, PROJECTED[shape])}
    assert shape != "sparse" or {"pca-basis-0", "pca-images-4", "pca-basis-5", "pca-rows"} <= names


@pytest.mark.parametrize("shape", apart(TESTED, "short"))
def test_measured_peak_and_bytes_of_tests(tmp_path: Path, shape: str) -> None:
    measured(tmp_path, TESTED[shape])


@pytest.mark.parametrize(
    ("shape", "stages"),
    [
        pytest.param((400_000, 64), ("facts", "score"), id="tall"),
        pytest.param((3000, 4096), ("score", "select"), id="wide", marks=pytest.mark.release),
    ],
)
def test_measured_peak_of_scores_from_rows_that_have_a_feature(
    tmp_path: Path, shape: tuple[int, int], stages: tuple[str, ...]
) -> None:
    """Most columns lack rows of their own; some lack none, and some the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=shape).astype(np.float32)
    gone = rng.random(shape) < 0.1
    gone[:, :10] = False
    gone[:, 10:20] = gone[:, 10:11]
    X[gone] = np.nan
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", np.where(rng.random(len(X)) < 0.3, np.arange(len(X)) % 3, -1))
    data = with_weights(tmp_path, str(tmp_path / "X.npy"), rng.integers(0, 3, len(X)).astype(np.float64))
    data |= {"labels": str(tmp_path / "y.npy"), "missing": "pairwise"}
    methods = BY_COLUMNS if "select" not in stages else (BY_COLUMNS[0], {"name": "LaplacianScore", "n_neighbors": 3})
    inductive = {"n_selected": [5], "setting": "inductive", "n_splits": 2, "n_repeats": 1}
    blocks = {"evaluate": inductive} if "select" in stages else {}
    measured(tmp_path, Case(data["source"], methods, blocks, of=stages, bytes_too=True, data=data))


@pytest.mark.parametrize("weighted", apart([False, True], False))
def test_measured_peak_of_dense_transforms_and_means(tmp_path: Path, weighted: bool) -> None:
    X = np.random.default_rng(0).poisson(2.0, (25_000, 400)).astype(np.float32)
    X[np.random.default_rng(1).random(X.shape) < 0.05] = np.nan
    np.save(tmp_path / "X.npy", X)
    case = dataclasses.replace(PREPARED["short"], source=str(tmp_path / "X.npy"))
    weights = with_weights(tmp_path, case.source, np.arange(25_000) % 4 / 3) if weighted else {}
    measured(tmp_path, dataclasses.replace(case, data={**case.data, **weights}))


def test_measured_peak_with_weights_of_rows(tmp_path: Path) -> None:
    measured(tmp_path, WEIGHTED, data=with_weights(tmp_path, WEIGHTED.source, np.arange(2_000_000) % 4 / 3))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("method", BY_COLUMNS[:2])
def test_measured_peak_of_a_slab_of_one_column(tmp_path: Path, method: str, weighted: bool) -> None:
    """What a criterion takes for each row is more than the values."""
    n_samples = 8_000_000
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(n_samples, 1)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(n_samples) % 3)
    data = {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy")}
    if weighted:
        data |= with_weights(tmp_path, data["source"], np.arange(n_samples) % 4 / 3)
    measured(tmp_path, Case(data["source"], (method,), of=("score",), bytes_too=True, data=data))


@pytest.mark.parametrize("key", apart(["groups", "times", "row_names"], "times"))
def test_measured_peak_with_text_columns(tmp_path: Path, key: str) -> None:
    """Groups that four rows each share, times of which each is another, and names of rows as long as they can be."""
    n_samples = 3_000_000
    if key == "groups":
        values = np.array([f"patient-number-{i:010d}" for i in range(n_samples // 4)]).repeat(4)
    elif key == "row_names":
        values = np.array([f"{row:x<512}" if row < 2**17 else f"{row}" for row in range(n_samples)], dtype=object)
    else:
        values = (np.datetime64("2001-01-01T00:00:00.000") + 60_000 * np.arange(n_samples)).astype(str)
    if key != "row_names":
        values = np.random.default_rng(0).permutation(values)
    (tmp_path / "column.txt").write_text("\n".join(values) + "\n")
    measured(tmp_path, MANY_LABELS, data={"source": MANY_LABELS.source, key: str(tmp_path / "column.txt")})


def test_measured_peak_and_bytes_of_edges_in_stretches(tmp_path: Path) -> None:
    units = {stage["name"]: stage["units"] for stage in measured(tmp_path, IN_STRETCHES)}
    assert all(count > 1 for name, count in units.items() if name.startswith(("entries-", "edges-target", "weights-")))


def test_measured_peak_of_compiled_passes(tmp_path: Path) -> None:
    (stage,) = measured(tmp_path, COMPILED)
    assert stage["planned_peak_bytes"] > cost.PROCESS_BYTES + cost.COMPILED.nbytes


def test_measured_peak_of_a_graph_that_is_given(tmp_path: Path) -> None:
    measured(tmp_path, given_case(tmp_path, 40_000))


@pytest.mark.parametrize(("shape", "measure"), apart(SELECTIONS, ("sparse", "distance_correlation")))
def test_measured_peak_and_bytes_of_selection(tmp_path: Path, shape: str, measure: str) -> None:
    """Of greedy picks and of the redundancy filter."""
    stages = {stage["name"]: stage for stage in measured(tmp_path, SELECTIONS[shape, measure])}
    own = [stage for name, stage in stages.items() if not name.startswith("candidates-")]
    assert len(own) == 7
    for stage in own:
        assert stage["bytes_written"] <= 1.1 * stage["planned_bytes_written"], stage
    reading = {"comoments-RRPC", "comoments-scaled", "filter-comoments"} & set(stages)
    assert len(reading) == (3 if measure == "correlation" else 2)
    for name in reading:
        assert stages[name]["bytes_read"] <= 1.2 * stages[name]["planned_bytes_read"], stages[name]
