"""Plans of many jobs, as they were: units, bytes and planned peaks change where somebody means to change them.

`python -m tests.execution.test_planned` writes `planned.json` again; what differs belongs into the same commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from daskfs import make_job
from daskfs.errors import MemoryPlanError
from daskfs.runs.status import plan_job

PLANNED = Path(__file__).with_name("planned.json")
KEYS = ("units", "bytes_read", "bytes_written", "peak_bytes")
SIZES = {
    "small": (200, 20),
    "middle": (20_000, 300),
    "wide": (3_000, 30_000),
    "tall": (10**7, 100),
    "large": (10**6, 2000),
}
MANY: dict[str, list[Any]] = {
    "unlabeled": [
        "LaplacianScore",
        "VarianceScore",
        {"name": "LaplacianScore", "label": "scaled", "score_scaling": "zscore", "t": "median"},
        {"name": "RRPC", "n_candidates": 8},
        {"name": "SSUFS", "max_iter": 2},
    ],
    "classification": [
        "FisherScore",
        "LSDF",
        "InformationGainScore",
        {"name": "SSelect", "trade_off": "auto"},
        {"name": "RLSR", "max_iter": 3},
        {"name": "DSSFS", "solver": "cg", "max_iter": 3},
        {"name": "SVMRFE", "label": "exact", "large_n": "exact"},
        {"name": "SVMRFE", "label": "landmarks", "large_n": "landmarks"},
    ],
    "regression": ["PearsonScore", "SupervisedLaplacianScore", "SemiSupervisedLaplacianScore"],
}
FEW = {name: methods[:2] for name, methods in MANY.items()}
PAIRWISE = {**FEW, "classification": ["FisherScore"]}
VARIANTS: dict[str, tuple[dict[str, list[Any]], dict[str, Any]]] = {
    "plain": (MANY, {}),
    "little memory": (MANY, {"cluster": {"workers": 2, "memory_limit": "1GiB"}}),
    "exact": (FEW, {"graph": {"engine": "exact"}}),
    "cells": (FEW, {"graph": {"engine": "cells"}}),
    "descent": (FEW, {"graph": {"engine": "descent"}}),
    "descent, little memory": (
        FEW,
        {"graph": {"engine": "descent"}, "cluster": {"workers": 2, "memory_limit": "2GiB"}},
    ),
    "cosine": (FEW, {"graph": {"metric": "cosine"}}),
    "transformed": (FEW, {"transform": {"graph": "total+log1p+zscore", "score": "log1p+unit"}}),
    "by correlation": (
        FEW,
        {"select": {"n_features": 10, "redundancy": {"measure": "correlation", "n_candidates": 40}}},
    ),
    "by distance": (
        FEW,
        {"select": {"n_features": 10, "redundancy": {"measure": "distance_correlation", "n_candidates": 40}}},
    ),
    "both settings": (FEW, {"evaluate": {"setting": "both", "n_selected": [5], "n_splits": 3}}),
    "mean": (FEW, {"data": {"missing": "mean"}}),
    "pairwise": (PAIRWISE, {"data": {"missing": "pairwise"}}),
    "sparse": (FEW, {}),
}


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield jobs by name."""
    for size, (n_samples, n_features) in SIZES.items():
        for task in MANY:
            for variant, (methods, blocks) in VARIANTS.items():
                model = "sparse" if variant == "sparse" else "nonlinear" if task == "regression" else "mixture"
                if task == "regression" and variant == "sparse":
                    continue
                few = "&n_classes=3&n_informative=4" if model != "nonlinear" else ""
                source = f"synthetic:{model}?n_samples={n_samples}&n_features={n_features}&seed=1{few}"
                data = {"source": source, **blocks.get("data", {})}
                cluster = {"workers": 2, "memory_limit": "8GiB"}
                job = {"cluster": cluster, **blocks, "data": data, "methods": methods[task]}
                yield f"{size}, {task}, {variant}", job


def planned(job: dict[str, Any], folder: Path) -> dict[str, list[int]] | str:
    """Return the numbers of each stage, or the error that refuses the job."""
    try:
        result = plan_job(make_job({**job, "output": {"path": str(folder / "run")}}))
    except MemoryPlanError as error:
        return str(error)
    return {stage["stage"]: [stage[key] for key in KEYS] for stage in result["stages"]}


@pytest.mark.parametrize("size", SIZES)
def test_plans_are_as_they_were(tmp_path: Path, size: str) -> None:
    known = json.loads(PLANNED.read_text())
    for name, job in jobs():
        if name.startswith(size):
            assert planned(job, tmp_path) == known[name], f"{name}; see the top of this file"
    assert known.keys() == {name for name, _ in jobs()}


def test_the_jobs_reach_every_family_of_stages() -> None:
    stages = {
        stage.partition("-")[0]
        for plan in json.loads(PLANNED.read_text()).values()
        if isinstance(plan, dict)
        for stage in plan
    }
    assert {"neighbors", "cells", "build", "targets", "mixed", "svm", "rescaled", "filter", "evaluation"} <= stages


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        found = {name: planned(job, Path(folder)) for name, job in jobs()}
    PLANNED.write_text(json.dumps(found, separators=(",", ":")).replace("},", "},\n") + "\n")
