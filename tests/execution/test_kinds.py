"""A kind of stage stands in one place: whatever uses it finds it by the reference in the plan."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs.criteria import slab
from daskfs.errors import MemoryPlanError, StoreError
from daskfs.execution.pool import Pool
from daskfs.execution.progress import Silent
from daskfs.execution.submission import run_stages
from daskfs.plan.chain import with_weights
from daskfs.stages.cost import PROCESS, Array, Cost, Fixed, MiB, Objects, Workers, held_from, total
from daskfs.stages.kind import StageKind, all_kinds, kind_of
from daskfs.stages.limits import check_memory
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from daskfs.stages.units import create_arrays
from daskfs.store.context import Context
from daskfs.store.store import Store
from tests.cli.command import basic_job, daskfs, refused, write_job
from tests.execution.runs import write_document


class RowParameters(StageParameters):
    """The table."""

    table: str


def write_row(context: Context, parameters: RowParameters, unit: int) -> dict[str, Any]:
    """Write one row of a table."""
    context.store.open(parameters.table)[unit] = unit + 1
    return {"row": unit}


def create_table(context: Context, parameters: RowParameters) -> None:
    """Create the table."""
    context.store.create(parameters.table, (3, 2), np.float64, (1, 2))


def table_cost(n_columns: int) -> Cost:
    """Return what a unit holds."""
    return (PROCESS, Array("a row", (n_columns,)))


NEW = StageKind(
    "new",
    "daskfs.criteria.slab",
    write_row,
    table_cost,
    arrays=create_table,
    reads_weights=True,
    finds_lists=True,
    advice=lambda parameters: f" Smaller {parameters.table} need less.",
)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Stage of a kind that nothing but its module names."""
    monkeypatch.setattr(slab, "NEW_STAGE", NEW, raising=False)
    return Stage.of(NEW, "rows", 3, RowParameters("table"), NEW.cost(2))


def test_a_new_kind_is_planned_checked_and_run(tmp_path: Path, stage: Stage) -> None:
    assert kind_of(stage.kind) is NEW
    assert NEW in list(all_kinds())
    assert (stage.kind_name, stage.peak_bytes) == ("new", PROCESS.nbytes + 16)
    (weighted,) = with_weights([stage], 10)
    assert weighted.peak_bytes - stage.peak_bytes == total(weighted.cost[2:]) == 3 * 8 * 10
    with pytest.raises(MemoryPlanError, match=r"Smaller table need less\."):
        check_memory([stage], Workers(300 * MiB))
    context = Context(Store(tmp_path))
    stages = with_fingerprints([stage], "")
    context.store.write_json("plan.json", Plan(str(tmp_path), stages, "identity").to_json(str(tmp_path)))
    create_arrays(context, stages)
    run_stages(context, stages, Pool(), "identity", Silent().unit_done)
    assert context.store.open("table")[...].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_a_plan_is_read_as_it_was_written(stage: Stage) -> None:
    cost = (*stage.cost, Objects("names", 3, 100), Fixed("buffer", 5))
    plan = Plan("/tiles", with_fingerprints([dataclasses.replace(stage, cost=cost)], "start"), "identity", "start")
    assert Plan.from_json(json.loads(json.dumps(plan.to_json("somewhere"))), "somewhere") == plan
    assert tuple(held_from(dataclasses.asdict(held)) for held in cost) == cost


def test_a_hostile_plan_runs_nothing(tmp_path: Path) -> None:
    """Neither another function of the package, nor of Python."""
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    path = tmp_path / "run" / "plan.json"
    raw = json.loads(path.read_text())
    for reference in ("os:system", "daskfs.runs.pipeline:run_job", "daskfs.store.store:Store"):
        raw["stages"][-1]["kind"] = reference
        write_document(path, raw)
        context = Context(Store(tmp_path / "run"))
        with pytest.raises(StoreError, match="which this daskfs does not have"):
            create_arrays(context, Plan.from_json(raw, "somewhere").stages)


# ------------------------------------------------------------------------------------------------- plan --explain STAGE
def test_every_stage_is_explained(tmp_path: Path) -> None:
    methods = ["LaplacianScore", "FisherScore", "SVMRFE", "RLSR", "RRPC"]
    redundancy = {"measure": "distance_correlation", "n_candidates": 8}
    job = write_job(tmp_path, basic_job(tmp_path, methods=methods, select={"redundancy": redundancy}))
    for stage in daskfs("plan", job, "--json").json["stages"]:
        assert sum(held["bytes"] for held in stage["cost"]) == stage["peak_bytes"], stage
        shown = daskfs("plan", job, "--explain", stage["stage"]).out.splitlines()
        assert shown[0].endswith(str(PROCESS))
        assert shown[-1].endswith(f"peak of each unit of {stage['stage']}")
    one = daskfs("plan", job, "--explain", "score", "--json").json
    assert one["cost"][0] == {"held": str(PROCESS), "bytes": PROCESS.nbytes}


def test_a_stage_that_is_not_planned(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    refused(daskfs("plan", job, "--explain", "scores"), 2, "no stage 'scores' in this plan", "score, ")
