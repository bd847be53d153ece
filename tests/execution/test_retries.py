"""Units that fail: which are tried again, when and where, and what becomes of the others."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import KilledWorker
from distributed.protocol.pickle import dumps, loads

from daskfs.criteria import slab
from daskfs.criteria.slab import score_slab
from daskfs.errors import InputError, PassingError, UnitError
from daskfs.execution import retries
from daskfs.execution.pool import Pool
from daskfs.execution.retries import PAUSES, Retries
from daskfs.stages import units
from daskfs.stages.stage import Stage
from daskfs.stages.units import run_unit
from daskfs.store.context import Context
from tests.cli.command import basic_job, daskfs, write_job
from tests.execution.staged import Lines, halted, here, run_made_up, threads_as_workers

STALE = "[Errno 116] Stale file handle"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again without a pause."""
    monkeypatch.setattr(retries, "PAUSES", tuple(0.0 for _ in PAUSES))


# ---------------------------------------------------------------------------------------------------- what is decided
def test_pauses_law() -> None:
    """A unit that is set aside comes once, after its pause, which gets longer; at last it does not come any more."""
    assert list(PAUSES) == [1, 5, 30, 120]
    found, now = Retries(), 0.0
    for pause in PAUSES:
        assert f"tried again in {pause:g} s" in found.set_aside(3, PassingError("unit 3 failed"), now)
        assert (found.next_due, found.take_due(now + pause - 0.5)) == (now + pause, [])
        now += pause
        assert found.take_due(now) == [3]
        assert found.next_due is None
        found.check()
    assert "tried 5 times" in found.set_aside(3, PassingError("unit 3 failed"), now)
    assert found.next_due is None
    with pytest.raises(UnitError, match=r"^unit 3 failed$"):
        found.check()


def test_all_units_that_failed_are_named() -> None:
    found = Retries()
    for unit, _ in itertools.product((7, 2, 5), range(len(PAUSES) + 1)):
        found.set_aside(unit, PassingError(f"unit {unit} failed: {STALE}"), 0.0)
    with pytest.raises(UnitError, match=r"unit 2 failed: .*; so did, in the same stage, units 5, 7"):
        found.check()


@pytest.mark.parametrize(("allowed", "n_asked"), [(3, 3), (10, 1), (0, 11)])
def test_deaths_of_workers_have_one_limit_on_every_scheduler(allowed: int, n_asked: int) -> None:
    found = Retries()
    with dask.config.set({"distributed.scheduler.allowed-failures": 10}):
        again = list(itertools.takewhile(bool, (found.survives(0, allowed + 1) for _ in range(100))))
        assert len(again) + 1 == n_asked
        assert found.survives(1, 1)


def test_what_a_worker_raises_reaches_the_driver() -> None:
    error = PassingError("unit 1 failed")
    error.worker = "tcp://there"
    again = loads(dumps(error))
    assert (str(again), again.worker) == ("unit 1 failed", "tcp://there")


# --------------------------------------------------------------------------------------------------------- as it runs
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("threads", [1, 3])
def test_units_that_fail_in_passing_come_again_after_the_others(tmp_path: Path, threads: int) -> None:
    begun: Counter[int] = Counter()

    def unit(number: int) -> None:
        begun[number] += 1
        if number == 0 and begun[0] <= len(PAUSES):
            raise OSError(116, "Stale file handle")

    told = Lines()
    done = run_made_up(tmp_path, 12, unit, Pool(threads=threads, tell=told))
    assert sorted(done) == list(range(12))
    assert begun == {number: 1 for number in range(1, 12)} | {0: len(PAUSES) + 1}
    assert len(told) == len(PAUSES)
    assert all(f"unit 0 of stage made-up failed: OSError: {STALE}; it is tried again in" in message for message in told)


@pytest.mark.parametrize("error", [PermissionError(13, "no"), ValueError("no")])
def test_failures_that_do_not_pass_end_the_run(tmp_path: Path, error: Exception) -> None:
    begun = []

    def unit(number: int) -> None:
        begun.append(number)
        raise error

    with pytest.raises(UnitError, match="unit 0 of stage made-up failed"):
        run_made_up(tmp_path, 3, unit, Pool())
    assert begun == [0]


@pytest.mark.cluster
@pytest.mark.usefixtures("at_once")
def test_a_unit_that_fails_in_passing_comes_to_another_worker(tmp_path: Path) -> None:
    """Others go on; what never does names all of its units when the others are done."""
    with threads_as_workers(3) as (_, client):
        where: dict[int, list[str]] = {}

        def passing(number: int) -> None:
            where.setdefault(number, []).append(here())
            if number == 4 and len(where[4]) < 4:
                msg = "nobody answers"
                raise TimeoutError(msg)

        assert sorted(run_made_up(tmp_path / "a", 20, passing, Pool(client))) == list(range(20))
        assert all(before != after for before, after in itertools.pairwise(where[4]))
        assert {len(workers) for number, workers in where.items() if number != 4} == {1}

        def lasting(number: int) -> None:
            if number in (3, 8):
                raise OSError(116, "Stale file handle")

        done: list[int] = []
        with pytest.raises(UnitError, match=r"unit 3 of stage made-up failed.* so did, in the same stage, unit 8"):
            run_made_up(tmp_path / "b", 20, lasting, Pool(client), done)
        assert sorted(done) == sorted(set(range(20)) - {3, 8})


@pytest.mark.cluster
def test_units_that_run_when_another_one_ends_the_stage_are_recorded(tmp_path: Path) -> None:
    """The one that runs halts until the driver has said that it waits for it."""
    begun, told, done = threading.Event(), threading.Event(), list[int]()

    def unit(number: int) -> None:
        if number == 0:
            begun.set()
            halted(told)
        else:
            halted(begun)
            msg = f"row {number} is no number"
            raise InputError(msg)

    def tell(text: str, event: str = "message", **facts: Any) -> None:
        del facts
        assert "row 1 is no number" in text or event != "message"
        if event == "message":
            told.set()

    with threads_as_workers(2) as (_, client), pytest.raises(InputError, match="row 1 is no number"):
        run_made_up(tmp_path, 2, unit, Pool(client, tell=tell), done)
    assert done == [0]


_raised: list[Exception] = []


def killed() -> KilledWorker:
    """Return what a scheduler says of a task on whose workers it has given up, by Dask's own limit."""
    worker = SimpleNamespace(address="tcp://gone", name="w0", host="gone", memory_limit=2**30)
    return KilledWorker("score", worker, 3)  # type: ignore[arg-type]


def score_troubled(context: Context, parameters: slab.ScoreParameters, unit: int) -> None:
    """Score a slab when all that is to go wrong has."""
    if _raised:
        raise _raised.pop()
    score_slab(context, parameters, unit)


def run_or_be_killed(context: Context, stage: Stage, unit: int, inputs: str | None = None) -> dict[str, Any]:
    """Run a unit, unless its worker is to die."""
    if stage.name == "score" and _raised and isinstance(_raised[-1], KilledWorker):
        raise _raised.pop()
    return run_unit(context, stage, unit, inputs)


@pytest.mark.cluster
@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("is_joined", [False, True])
def test_a_run_outlives_servers_that_are_away_and_workers_that_die(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_joined: bool
) -> None:
    monkeypatch.setattr(slab, "SCORE_STAGE", dataclasses.replace(slab.SCORE_STAGE, run=score_troubled))
    _raised[:] = [OSError(116, "Stale file handle") for _ in PAUSES]
    if not is_joined:
        outcome = daskfs("run", write_job(tmp_path, basic_job(tmp_path)))
        assert outcome.code == 0, outcome.err
        assert f"{STALE}; it is tried again in" in outcome.err
        return
    monkeypatch.setattr(units, "run_unit", run_or_be_killed)
    with threads_as_workers(1) as (_, client):
        _raised.extend(killed() for _ in range(2))
        job = write_job(tmp_path, basic_job(tmp_path, cluster={"address": client.scheduler.address}))
        outcome = daskfs("run", job, "-q")
        assert outcome.code == 0, outcome.err
        assert not _raised
        _raised[:] = [killed() for _ in range(3)]
        outcome = daskfs("run", job, "-q", "--overwrite", "--set", "methods=[FisherScore]")
        assert outcome.code == 1
        assert "on each of the workers that died" in outcome.err
        assert outcome.err.count("\n") == 1
