"""Stages that run beside others: on a cluster at the same time, and as few of them again as needed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from daskfs.errors import InputError
from daskfs.execution.pool import Pool
from daskfs.stages.stage import Stage
from tests.execution.runs import lose_record, recorded
from tests.execution.staged import halted, made_up, run_all, threads_as_workers

Done = list[tuple[str, int]]


def stages_of(folder: Path, begins_with: str = "second", **calls: Any) -> list[Stage]:
    """Return stages "first", "second" and "last", and before the last one "beside"."""
    sizes = {"first": 2, "second": 3, "beside": 1, "last": 2}
    own = {"beside": {"begins_with": begins_with}}
    return [
        made_up(folder, name, size, calls.get(name, lambda unit: {"unit": unit}), **own.get(name, {}))
        for name, size in sizes.items()
    ]


def run(folder: Path, pool: Pool, **calls: Any) -> Done:
    done: Done = []
    run_all(folder, stages_of(folder, **calls), pool, lambda stage, unit, _: done.append((stage.name, unit)))
    return done


def test_units_run_while_those_of_other_stages_do(tmp_path: Path) -> None:
    """Each of the two waits for the other one; the stage after both waits for them."""
    is_beside, is_second = threading.Event(), threading.Event()

    def beside(_: int) -> None:
        is_beside.set()
        halted(is_second)

    def second(unit: int) -> None:
        halted(is_beside)
        if unit == 2:
            is_second.set()

    with threads_as_workers(2) as (_, client):
        done = run(tmp_path, Pool(client), beside=beside, second=second)
    assert {name for name, _ in done[:2]} == {"first"}
    assert {name for name, _ in done[-2:]} == {"last"}
    assert len(done) == 8


@pytest.mark.parametrize("on_cluster", [False, True])
def test_what_is_lost_runs_again_and_nothing_else(tmp_path: Path, on_cluster: bool) -> None:
    """What its inputs were is what they are; if others were made again with the same bytes, it is not."""
    with threads_as_workers(2) as (_, client):
        pool = Pool(client if on_cluster else None)
        assert len(run(tmp_path, pool)) == 8
        assert run(tmp_path, pool) == []
        for lost in (("beside", 0), ("second", 1), ("first", 0)):
            lose_record(tmp_path / "made-up", *lost)
            assert run(tmp_path, pool) == [lost]
        lose_record(tmp_path / "made-up", "second", 1)
        changed = run(tmp_path, pool, second=lambda unit: {"unit": -unit})
        assert changed == [("second", 1), *changed[1:]], "whose facts differ"
        assert sorted(changed[1:]) == [("last", 0), ("last", 1)], "which come after it; those beside it read less"
        lose_record(tmp_path / "made-up", "first", 1)
        changed = run(tmp_path, pool, first=lambda unit: {"unit": -unit}, second=lambda unit: {"unit": -unit})
        assert sorted(changed) == [
            ("beside", 0),
            ("first", 1),
            ("last", 0),
            ("last", 1),
            *(("second", unit) for unit in range(3)),
        ]


@pytest.mark.parametrize("begins_with", ["first", "second"])
def test_every_stage_is_sealed(tmp_path: Path, begins_with: str) -> None:
    """Else readers would not compare checksums of its outputs. Before the first stage there are no inputs."""
    stages = stages_of(tmp_path, begins_with)
    run_all(tmp_path, stages, Pool(), lambda *_: None)
    sealed = (tmp_path / "made-up" / "records").glob("*/*.seal")
    assert sorted(path.parent.name for path in sealed) == sorted(stage.name for stage in stages)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_an_error_beside_stops_the_others(tmp_path: Path, on_cluster: bool) -> None:
    is_raised = threading.Event()

    def beside(_: int) -> None:
        is_raised.set()
        msg = "labels are wrong"
        raise InputError(msg)

    def second(_: int) -> None:
        halted(is_raised)

    done: Done = []
    stages = stages_of(tmp_path, beside=beside, second=second)
    with threads_as_workers(2) as (_, client):
        pool = Pool(client if on_cluster else None)
        with pytest.raises(InputError, match="labels are wrong"):
            run_all(tmp_path, stages, pool, lambda stage, unit, _: done.append((stage.name, unit)))
    # a unit may end after the driver has given it up, and is in no report
    kept = {(stage.name, unit) for stage in stages for unit in recorded(tmp_path / "made-up", stage.name)}
    assert {*done} <= kept
    assert {name for name, _ in kept} <= {"first", "second"}
    again = run(tmp_path, Pool())
    assert (len({*kept, *again}), len(kept) + len(again)) == (8, 8), "what was done is kept"
