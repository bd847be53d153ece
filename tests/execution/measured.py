"""Jobs whose stages are measured: what a worker process really takes is at most what was planned.

Workers load compiled passes from numba's cache, which the default tier fills: the first process that compiles them
takes some 100 MB more until it ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import make_job
from daskfs.job.job import Job
from daskfs.runs.plan import plan_run
from daskfs.runs.tiles import plan_tiles
from daskfs.stages.cost import Workers
from daskfs.stages.stage import Stage
from tests.execution.runs import run, write_job

GiB = 2**30
Row = dict[str, Any]
"""What is told of a stage."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A job, and the stages of it that are held to their plan.

    `of` is how the names of these stages begin; a worker that had hundreds of MB may not give all of them back, and
    later stages that take next to nothing start from there. With `bytes_too`, so are the bytes they read and write.
    """

    source: str
    methods: Sequence[Any]
    blocks: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    of: tuple[str, ...] = ("",)
    bytes_too: bool = False
    memory_limit: str = "4GiB"
    data: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def job(self, **blocks: Any) -> dict[str, Any]:
        """Return the blocks of the job but where it goes."""
        cluster = {"workers": 1, "memory_limit": self.memory_limit}
        data = {"source": self.source, **self.data}
        job = {"data": data, "methods": list(self.methods), "evaluate": None, "cluster": cluster}
        return {**job, **self.blocks, **blocks}

    def planned(self) -> list[Stage]:
        """Return the stages that are held to their plan, without running anything."""
        job: Job = make_job({"output": {"path": "never-made"}, **self.job()})
        tiles = plan_tiles(job.data, "never-made/tiles", Workers(4 * GiB))
        task = tiles.task or ("regression" if job.data.task == "regression" else "classification")
        stages = (*tiles.stages, *plan_run(job, tiles, task, Workers(4 * GiB)).stages)
        return [stage for stage in stages if stage.name.startswith(self.of)]


def measured(folder: Path, case: Case, **blocks: Any) -> list[Row]:
    """Run a job on a worker of its own, hold its stages to their plan, and return them."""
    stages = run(write_job(folder, case.source, **case.job(**blocks)))["stages"]
    own = [stage for stage in stages if stage["name"].startswith(case.of)]
    assert own
    ratios = {stage["name"]: stage["peak_bytes"] / stage["planned_peak_bytes"] for stage in own}
    assert max(ratios.values()) <= 1.0, ratios
    for stage in own if case.bytes_too else ():
        assert stage["bytes_read"] <= 1.2 * stage["planned_bytes_read"], stage
        assert stage["bytes_written"] <= 1.1 * stage["planned_bytes_written"], stage
    return own


def apart(cases: Iterable[Any], *rare: Any) -> list[Any]:
    """Return the parameters of a test, of which the `rare` ones are tried before a release alone."""
    return [
        pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.release if one in rare else ())
        for one in cases
    ]


def with_weights(folder: Path, source: str, weights: np.ndarray) -> dict[str, str]:
    """Return the data block of a source whose rows have weights."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "w.npy", weights)
    return {"source": source, "weights": str(folder / "w.npy")}
