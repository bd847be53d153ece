"""Which search `engine: auto` means: by the sizes of the data, and by the sample that cells are cut from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs import knn_graph
from daskfs.graph import engine
from daskfs.graph.engine import MAX_DIMENSION, engine_of_sample, resolve_engine
from daskfs.graph.partitioned_search import CellsParameters
from daskfs.graph.plan import plan_graph
from daskfs.graph.spec import Engine, GraphSpec
from daskfs.stages.cost import total
from daskfs.tiles.shapes import plan_shape
from tests.cases import each
from tests.execution.runs import run_here, write_job

GiB = 2**30


def noise(n_samples: int, n_features: int) -> np.ndarray:
    """Return rows whose neighbors are hardly nearer than all others."""
    return np.random.default_rng(0).random((n_samples, n_features), dtype=np.float32)


@pytest.fixture
def small_data_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sizes speak for cells whatever they are, so that only the sample is against them."""
    monkeypatch.setattr(engine, "SOON", 0.0)
    for cost in ("cells_seconds", "sample_seconds"):
        monkeypatch.setattr(engine, cost, lambda *_: 0.0)


# ------------------------------------------------------------------------------- sizes
def test_rows_of_more_than_a_second_are_searched_by_cells() -> None:
    X = np.random.default_rng(0).normal(size=(40_000, 3)) @ np.random.default_rng(1).normal(size=(3, 8))
    graph = knn_graph(X.astype(np.float32), 5)
    assert graph.recall is not None
    assert graph.recall > 0.97


@each(("n", "m"), [(100_000, 64), (60_000, 200), (25_000, 512), (100_000, 100)])
@each("k", [5, 10])
def test_sizes_that_people_have(n: int, m: int, k: int) -> None:
    """Whatever memory a worker has, and whether there are workers at all."""
    for memory in (None, 2 * GiB, 64 * GiB):
        stages = plan_graph(plan_shape(n, m, "float32", None, memory), GraphSpec(), k, memory)
        assert stages[0].name == "cells-euclidean"


def test_long_lists_ask_for_more_of_cells_than_of_an_exact_search() -> None:
    shape = plan_shape(40_000, 64, "float32", None, GiB)
    assert resolve_engine(GraphSpec(), shape, k=10).engine == "cells"
    assert resolve_engine(GraphSpec(), shape, k=200).engine == "exact"


# ------------------------------------------------------------------------------- the sample
@pytest.mark.usefixtures("small_data_are_large")
def test_rows_without_near_neighbors_are_searched_exactly() -> None:
    """And only those, and only where nobody asked for cells."""
    X = noise(8000, 128)
    exact, auto, cells = (knn_graph(X, 5, engine=engine, recall=0.99) for engine in ("exact", "auto", "cells"))
    assert auto.recall is None
    np.testing.assert_array_equal(auto.indices, exact.indices)
    assert auto.distances.tobytes() == exact.distances.tobytes()
    assert cells.recall is not None
    assert cells.recall < 0.98
    found = knn_graph(X[:, :3] @ noise(3, 20), 5, recall=0.99).recall
    assert found is not None
    assert found > 0.98


@pytest.mark.cluster
@pytest.mark.usefixtures("small_data_are_large")
def test_a_run_says_so(tmp_path: Path) -> None:
    """Of sparse rows, of which few directions keep nothing."""
    columns = np.random.default_rng(0).random((1500, 3000)).argpartition(60, axis=1)[:, :60]
    ones = np.ones(columns.size, np.float32)
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix((ones, columns.ravel(), 60 * np.arange(1501)), shape=(1500, 3000)))
    blocks = {"methods": ["LaplacianScore"], "evaluate": None}
    by_sample = run_here(write_job(tmp_path / "auto", str(tmp_path / "X.npz"), **blocks))
    assert {"cells-euclidean", "merge-euclidean"} < {stage["name"] for stage in by_sample["stages"]}
    graph = by_sample["graphs"][0]
    assert (graph["engine"], graph["recall"], graph["groups"]) == ("exact", None, None)
    assert not by_sample["warnings"]
    summary = json.loads((tmp_path / "auto/run/knn/euclidean/cells.json").read_text())
    assert summary["expected_recall"] < 0.5
    run_here(write_job(tmp_path / "exact", str(tmp_path / "X.npz"), graph={"engine": "exact"}, **blocks))
    assert (tmp_path / "auto/run/ranking.csv").read_bytes() == (tmp_path / "exact/run/ranking.csv").read_bytes()


def test_what_the_sample_says_is_weighed_against_sizes() -> None:
    shape, spec = plan_shape(20_000, 1000, "float32", None, GiB), GraphSpec(engine="cells", recall=0.98)

    def chosen(compared: int | None, n_met: float, recall: float, dimension: float = 99, *others: Engine) -> Engine:
        searched = replace(spec, projection=compared)
        return engine_of_sample(searched, shape, 10, others or ["exact", "descent"], n_met, recall, dimension)

    assert chosen(64, 2500, 0.97) == "cells"
    assert chosen(64, 2500, 0.95) == "exact"
    assert chosen(None, 10_000, 0.99) == "exact"  # half of the rows in all columns take as long as an exact search
    assert chosen(None, 500, 0.99) == "cells"
    assert chosen(32, 6000, 0.98, MAX_DIMENSION) == "descent"
    assert chosen(32, 6000, 0.98, MAX_DIMENSION, "exact") == "cells"
    assert chosen(32, 6000, 0.98, MAX_DIMENSION + 1) == "cells"
    assert chosen(32, 500, 0.98, 5) == "cells"  # that find the neighbors sooner
    assert chosen(32, 500, 0.90, 5) == "descent"


@each(
    ("shape", "memory", "chosen", "others"),
    [
        ((60_000, 64), None, "auto", ["exact", "descent"]),
        ((60_000, 64), GiB, "auto", ["exact", "descent"]),
        ((60_000, 64), GiB, "cells", []),  # somebody asked for cells
        ((300_000, 64), None, "auto", ["descent"]),  # an exact search takes minutes
        ((60_000, 200), GiB // 2, "auto", ["descent"]),  # or does not fit a worker
    ],
)
def test_when_the_sample_may_decide(
    shape: tuple[int, int], memory: int | None, chosen: Engine, others: list[Engine]
) -> None:
    stage = plan_graph(plan_shape(*shape, "float32", None, memory), GraphSpec(engine=chosen), 10, memory)[0]
    assert isinstance(stage.parameters, CellsParameters)
    assert list(stage.parameters.others) == others


def test_an_exact_search_by_sample_is_planned_for() -> None:
    shape = plan_shape(60_000, 200, "float32", None, 4 * GiB)
    asked, unasked = (plan_graph(shape, GraphSpec(engine=engine), 10, 4 * GiB) for engine in ("auto", "cells"))
    exact = plan_graph(shape, GraphSpec(engine="exact"), 10, 4 * GiB)[0]
    for stage, other in zip(asked, unasked, strict=True):
        assert (stage.name, stage.n_units) == (other.name, other.n_units)
        assert total(stage.cost) == stage.peak_bytes
        if stage.kind_name == "merge":  # its units write longer lists than those of an exact search
            assert other.peak_bytes < exact.peak_bytes < stage.peak_bytes
        else:
            assert stage.peak_bytes == other.peak_bytes
