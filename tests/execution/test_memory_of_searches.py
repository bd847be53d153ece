"""What a worker process really takes is at most what was planned, for approximate searches; and what these read and
write.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from daskfs.graph import partition
from daskfs.graph.plan import plan_graph
from daskfs.graph.spec import GraphSpec
from daskfs.stages.kind import name_of
from daskfs.store.shape import Shape
from tests.execution.measured import Case, GiB, apart, measured
from tests.execution.runs import recorded, run_here, write_job

pytestmark = [pytest.mark.cluster, pytest.mark.long]

BY_CELLS = {"graph": {"engine": "cells", "n_neighbors": 10}}
BY_DESCENT = {"graph": {"engine": "descent", "n_neighbors": 10}}
BY_PYNNDESCENT = {"graph": {"engine": "pynndescent", "metric": "manhattan", "n_neighbors": 10}}
ONLY_LAPLACIAN = ("LaplacianScore",)
TALL = "synthetic:mixture?n_samples={}&n_features=32&n_classes=4&n_informative=8&seed=1"
WIDE = "synthetic:lowrank?n_samples={}&n_features=2000&rank=10&seed=1"
SPARSE = "synthetic:sparse?n_samples={}&n_features=5000&density=0.01&n_classes=4&n_informative=50&seed=1"
SEARCHES = {
    "tall by cells": Case(TALL.format(150_000), ONLY_LAPLACIAN, BY_CELLS),
    "wide by cells": Case(WIDE.format(12_000), ONLY_LAPLACIAN, BY_CELLS),
    "sparse by cells": Case(SPARSE.format(16_000), ONLY_LAPLACIAN, BY_CELLS),
    "tall by descent": Case(TALL.format(60_000), ONLY_LAPLACIAN, BY_DESCENT),
    "sparse by descent": Case(SPARSE.format(16_000), ONLY_LAPLACIAN, BY_DESCENT),
    # fewer groups than above, of nearly as many rows: NNDescent takes minutes for many
    "tall by pynndescent": Case(TALL.format(30_000), ONLY_LAPLACIAN, BY_PYNNDESCENT),
    "sparse by pynndescent": Case(SPARSE.format(12_000), ONLY_LAPLACIAN, BY_PYNNDESCENT),
    # compared in few components whatever happens
    "very wide": Case(
        "synthetic:lowrank?n_samples=4096&n_features=16000&rank=10&seed=1",
        ONLY_LAPLACIAN,
        BY_CELLS,
        of=("cells-", "assign-", "build-", "merge-", "recall-"),
    ),
    # what goes with the number of neighbors is as large as the rows
    "long lists": Case(
        "synthetic:lowrank?n_samples=30000&n_features=150&rank=8&seed=1",
        [{"name": "LaplacianScore", "n_neighbors": 60}],
        {"graph": {"engine": "cells"}},
    ),
    # rows without near neighbors: the sample sends the search to all rows
    "noise": Case("synthetic:mixture?n_samples=30000&n_features=64&n_classes=2&n_informative=2&seed=1", ONLY_LAPLACIAN),
    # every row labeled: what is known of each row, and lists by target and X, are large beside the rows
    "lists by target": Case(
        "synthetic:lowrank?n_samples=100000&n_features=12&rank=6&seed=1",
        ("SupervisedLaplacianScore", "SemiSupervisedLaplacianScore"),
        {"graph": {"engine": "cells"}},
    ),
}


@pytest.mark.parametrize("shape", apart(SEARCHES, "sparse by pynndescent", "tall by pynndescent", "very wide"))
def test_measured_peak_of_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """In one process, which holds what it has compiled; few rows go to several groups, as many do."""
    monkeypatch.setattr(partition, "GROUP_ROWS", 5000)
    monkeypatch.setattr(partition, "GROUP_BYTES", 2**27)
    stages = measured(tmp_path, SEARCHES[shape])
    units = {stage["name"].partition("-")[0]: stage["units"] for stage in stages}
    assert units["build"] >= 2
    assert units["assign"] >= 4


INCOMPLETE = {
    "tall": (20_000, 40),
    "wide": (4000, 1500),
    "very wide": (4096, 8200),
    "many rows": (120_000, 20),
    "sparse": (12_000, 3000),
}


def incomplete_case(folder: Path, shape: str, engine: str) -> Case:
    """Return a job on rows of which one value in ten is missing; of sparse ones, one in ten that is stored."""
    rng, size = np.random.default_rng(0), INCOMPLETE[shape]
    if shape == "sparse":
        X = sp.random(*size, 0.01, format="csr", dtype=np.float32, random_state=0)
        X.data[rng.random(X.nnz) < 0.1] = np.nan
        sp.save_npz(folder / "X.npz", X)
    else:
        low = (rng.normal(size=(size[0], 8)) @ rng.normal(size=(8, size[1]))).astype(np.float32)
        low += 0.05 * rng.standard_normal(size, dtype=np.float32)
        low[rng.random(size, dtype=np.float32) < 0.1] = np.nan
        np.save(folder / "X.npy", low)
    source = folder / ("X.npz" if shape == "sparse" else "X.npy")
    blocks = {"graph": {"engine": engine, "n_neighbors": 10}}
    own = ("neighbors-", "cells-", "assign-", "build-", "merge-", "recall-")
    return Case(str(source), ONLY_LAPLACIAN, blocks, of=own, data={"missing": "pairwise"})


EXACTLY = [(shape, "exact") for shape in INCOMPLETE if shape not in ("many rows", "very wide")]
BY_CELLS_TOO = [(shape, "cells") for shape in INCOMPLETE]


@pytest.mark.parametrize(
    ("shape", "engine"),
    apart([*EXACTLY, *BY_CELLS_TOO], ("sparse", "exact"), ("very wide", "cells"), ("many rows", "cells")),
)
def test_measured_peak_of_searches_of_incomplete_rows(tmp_path: Path, shape: str, engine: str) -> None:
    measured(tmp_path, incomplete_case(tmp_path, shape, engine))


BYTES = {
    "dense": "synthetic:mixture?n_samples=24000&n_features=40&n_classes=4&n_informative=16&seed=3",
    "sparse": "synthetic:sparse?n_samples=16000&n_features=3000&density=0.01&n_classes=4&n_informative=50&seed=1",
}


@pytest.mark.parametrize("shape", ["dense", "sparse"])
def test_bytes_of_an_approximate_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """Within a quarter of the plan, once the plan knows how many copies of rows there are and how many cells each looks
    into: data decide these.
    """
    run_here(write_job(tmp_path, BYTES[shape], graph={"engine": "cells"}, cluster={"workers": 0}, evaluate=None))
    folder = tmp_path / "run"
    planned = json.loads((folder / "plan.json").read_text())
    records: dict[str, list[dict[str, Any]]] = {}
    for stage in planned["stages"]:
        records[stage["name"]] = list(recorded(folder, stage["name"]).values())
    size = Shape(**planned["facts"]["shape"])
    n_copies = sum(record["facts"]["n_copies"] for record in records["assign-euclidean"])
    cells = json.loads((folder / "knn/euclidean/cells.json").read_text())
    monkeypatch.setattr("daskfs.graph.plan.PLANNED_COPIES", n_copies / size.n_samples)
    monkeypatch.setattr("daskfs.graph.plan.PLANNED_CELLS", cells["cells_per_row"] / cells["copies"])
    spec = GraphSpec(**next(s for s in planned["stages"] if name_of(s["kind"]) == "cells")["parameters"]["graph"])
    for stage in plan_graph(size, spec, 5, GiB):
        read, written = (sum(record[key] for record in records[stage.name]) for key in ("bytes_read", "bytes_written"))
        assert stage.n_units == len(records[stage.name])
        assert read == pytest.approx(stage.bytes_read, rel=0.25, abs=2**17), stage.name
        assert written == pytest.approx(stage.bytes_written, rel=0.25, abs=2**17), stage.name
