"""What a worker process really takes is at most what was planned, for every stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.execution.runs import run, write_job

pytestmark = pytest.mark.cluster

SHAPES = {
    "tall": "synthetic:mixture?n_samples=50000&n_features=24&n_classes=4&n_informative=8&seed=1",
    "wide": "synthetic:mixture?n_samples=1500&n_features=20000&n_classes=4&n_informative=50&seed=1",
    "sparse": "synthetic:sparse?n_samples=20000&n_features=10000&density=0.003&n_classes=4&n_informative=50&seed=1",
}
APPROXIMATE = {
    "tall": "synthetic:mixture?n_samples=250000&n_features=32&n_classes=4&n_informative=8&seed=1",
    "wide": "synthetic:lowrank?n_samples=20000&n_features=2000&rank=10&seed=1",
    "sparse": "synthetic:sparse?n_samples=30000&n_features=5000&density=0.01&n_classes=4&n_informative=50&seed=1",
}


def measured_over_planned(folder: Path, source: str, **blocks: object) -> dict[str, float]:
    evaluate = {"n_selected": [10], "max_samples": 2000}
    job = write_job(folder, source, cluster={"workers": 2, "memory_limit": "4GiB"}, evaluate=evaluate, **blocks)
    result = run(job)
    return {s["name"]: s["peak_bytes"] / s["planned_peak_bytes"] for s in result["stages"]}


@pytest.mark.parametrize("shape", SHAPES)
def test_measured_peak_is_at_most_the_planned_one(tmp_path: Path, shape: str) -> None:
    methods = ["LaplacianScore", "FisherScore", {"name": "LaplacianScore", "label": "scaled", "score_scaling": "unit"}]
    ratios = measured_over_planned(tmp_path, SHAPES[shape], methods=methods)
    assert max(ratios.values()) <= 1.0, ratios


@pytest.mark.long
@pytest.mark.parametrize("shape", APPROXIMATE)
def test_measured_peak_with_the_approximate_search(tmp_path: Path, shape: str) -> None:
    ratios = measured_over_planned(tmp_path, APPROXIMATE[shape], graph={"engine": "pynndescent", "n_neighbors": 10})
    assert max(ratios.values()) <= 1.0, ratios
