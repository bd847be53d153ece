"""A tile store that is replaced while a run reads it ends the run; nothing made from other tiles is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import load_job, run_job
from daskfs.errors import StoreError
from daskfs.execution.progress import Silent
from daskfs.stages.stage import Stage
from daskfs.stages.units import run_stored_unit
from tests.cli.command import daskfs, refused
from tests.execution.runs import asked_of, run_here, write_job

pytestmark = pytest.mark.cluster

STORE_ERROR = 3
CHANGED = "changed since the run in"


class Replace(Silent):
    """Puts other tiles in the place of those of a run when a stage is done."""

    def __init__(self, stage: str, tiles: Path) -> None:
        self.stage, self.tiles = stage, tiles

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del facts
        if (stage.name, unit) == (self.stage, 0):
            exchange(self.tiles)


def exchange(tiles: Path) -> None:
    for old, new in (("tiles", "aside"), ("other", "tiles"), ("aside", "other")):
        (tiles.parent / old).rename(tiles.parent / new)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("other", "tiles"):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(60, 8)) * np.arange(1, 9))
        assert daskfs("convert", tmp_path / f"{name}.npy", tmp_path / name, "--workers", 0).code == 0
    return write_job(tmp_path, str(tmp_path / "tiles"), evaluate=None, cluster={"workers": 0})


@pytest.mark.parametrize("stage", ["neighbors-euclidean", "rank"])
def test_replaced_tiles_end_a_run(job: Path, tmp_path: Path, stage: str) -> None:
    tiles, run = tmp_path / "tiles", tmp_path / "run"
    with pytest.raises(StoreError, match=f"{tiles} {CHANGED} {run} began.*--overwrite"):
        run_job(load_job(job), Replace(stage, tiles))
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    refused(daskfs("run", job, "-q"), STORE_ERROR, str(tiles), CHANGED)
    if stage != "rank":
        with pytest.raises(StoreError, match=CHANGED):  # in a process that comes late
            run_stored_unit(*asked_of(run, "score", 0))
    exchange(tiles)
    again = run_here(job)
    assert again["recomputed"].keys().isdisjoint({"neighbors-euclidean"})
    run_here(job, "--set", f"output.path={tmp_path / 'undisturbed'}")
    assert (run / "ranking.csv").read_bytes() == (tmp_path / "undisturbed" / "ranking.csv").read_bytes()


def test_tiles_that_vanish_during_a_run_end_it(job: Path, tmp_path: Path) -> None:
    class Move(Replace):
        def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            del unit, facts
            if stage.name == self.stage:
                self.tiles.rename(self.tiles.with_name("gone"))

    with pytest.raises(StoreError, match=CHANGED):
        run_job(load_job(job), Move("neighbors-euclidean", tmp_path / "tiles"))
