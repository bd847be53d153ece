"""Sparse data stay sparse: no stage of a job holds more of them dense than the one block that it works on."""

from __future__ import annotations

import dataclasses
import functools
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from daskfs.kernels.neighbors.distance_bounds import TILE_BYTES
from daskfs.kernels.panel import backend
from daskfs.stages import units
from daskfs.stages.kind import StageKind, kind_of, name_of
from daskfs.store.context import Context
from tests.execution.runs import run_here, write_job

N_SAMPLES, N_FEATURES = 2048, 12_000
SPARSE = "synthetic:sparse?n_samples={}&n_features={}&density=0.01&n_classes=3&n_informative=40&seed=1"
METHODS = ["VarianceScore", "LaplacianScore", "FisherScore", "SSelect"]
SEARCHES = {"neighbors", "cells", "assign", "build"}


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """By kind of stage, the bytes that any of its units took at once, as Python and NumPy allocate them."""
    found: dict[str, int] = {}

    def traced(reference: str) -> StageKind[Any]:
        kind = kind_of(reference)

        @functools.wraps(kind.run)
        def measured(context: Context, parameters: Any, unit: int) -> dict[str, Any] | None:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            facts = kind.run(context, parameters, unit)
            found[kind.name] = max(found.get(kind.name, 0), tracemalloc.get_traced_memory()[1] - before)
            return facts

        return dataclasses.replace(kind, run=measured)

    monkeypatch.setattr(units, "kind_of", traced)
    monkeypatch.setattr(backend, "COMPILED_VALUES", 2**40)  # to compile takes more than what is looked for
    yield found
    tracemalloc.stop()


@pytest.mark.long
@pytest.mark.parametrize("engine", ["exact", "cells"])
def test_one_dense_block_at_a_time(tmp_path: Path, peaks: dict[str, int], engine: str) -> None:
    blocks = {
        "methods": METHODS,
        "graph": {"engine": engine, "n_neighbors": 5},
        "evaluate": {"setting": "transductive", "n_selected": [10], "n_splits": 2, "max_samples": 600},
    }
    run_here(write_job(tmp_path / "first", SPARSE.format(300, 60), **blocks))  # imports what there is to import
    peaks.clear()
    tracemalloc.start()
    run_here(write_job(tmp_path, SPARSE.format(N_SAMPLES, N_FEATURES), **blocks))
    stages = json.loads((tmp_path / "run" / "plan.json").read_text())["stages"]
    columns = next(stage["parameters"]["slab_columns"] for stage in stages if name_of(stage["kind"]) == "score")
    assert columns <= N_FEATURES // 8
    dense_block = 4 * N_SAMPLES * columns
    assert dense_block < peaks["score"] < 1.5 * dense_block
    assert {"ingest", "score", "gather", "evaluate"} < peaks.keys()
    for function, peak in peaks.items():
        # distances of blocks of rows take a size of their own, whatever the columns are
        assert peak < (2 * TILE_BYTES if function in SEARCHES else 2 * dense_block), function
