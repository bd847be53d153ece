"""Workers that are frozen, and units that take much longer than others: the others go on without them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from daskfs.evaluation import trials
from daskfs.evaluation.design import EvaluationParameters
from daskfs.evaluation.trials import evaluate_selection
from daskfs.execution import in_flight, pool, stragglers
from daskfs.execution.pool import Pool
from daskfs.execution.progress import Silent
from daskfs.execution.stragglers import FEWEST, Pace
from daskfs.job.job import load_job
from daskfs.runs.pipeline import run_job
from daskfs.store.context import Context
from tests.cli.command import daskfs, refused, texts
from tests.execution.damage import storage_job
from tests.execution.runs import wait_for_units
from tests.execution.staged import Lines, halted, here, run_made_up, threads_as_workers
from tests.execution.test_ends import CLUSTER, Outside, driver, job_on


def test_what_is_slow_law() -> None:
    found = Pace()
    for n_ended in range(20):
        is_known = n_ended >= FEWEST
        assert found.usual == (8.0 if is_known else math.inf)
        assert found.is_copied_after(24.1) == found.is_told_after(80.1) == is_known
        assert not found.is_copied_after(24.0)
        assert not found.is_told_after(80.0)
        found.add(8.0)
    quick = Pace()
    for _ in range(FEWEST):
        quick.add(0.01)
    assert (quick.is_copied_after(4.9), quick.is_copied_after(5.1)) == (False, True)
    assert (quick.is_told_after(59.0), quick.is_told_after(61.0)) == (False, True)


def test_clocks_of_units_law() -> None:
    """They begin when a worker has the unit, and anew when it moves, or another one ends at its worker."""
    found = Pace()
    assert found.seconds("a", 5.0) == 0
    found.see({"a": "one", "b": "one", "c": "two"}, 10.0)
    found.see({"a": "one", "b": "one", "c": "one"}, 12.0)
    assert [found.seconds(key, 15.0) for key in "abc"] == [5, 5, 3]
    found.see({"a": "one", "b": "one", "c": "two"}, 15.0)
    found.end("a", 16.0)
    assert [found.seconds(key, 20.0) for key in "abc"] == [0, 4, 5]
    found.see({"c": "two"}, 21.0)
    assert [found.seconds(key, 22.0) for key in "abc"] == [0, 0, 7]


@pytest.mark.cluster
def test_a_slow_unit_runs_elsewhere_and_the_first_result_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first worker halts until the stage has ended."""
    for name in ("COPIED_TIMES", "COPIED_SECONDS", "TOLD_TIMES", "TOLD_SECONDS"):
        monkeypatch.setattr(stragglers, name, 0.0)
    monkeypatch.setattr(in_flight, "LOOK_SECONDS", 0.05)
    begun, ended, told = Counter[tuple[int, str]](), threading.Event(), Lines()

    def unit(number: int) -> None:
        begun[number, here()] += 1
        if number == 4 and sum(n for (other, _), n in begun.items() if other == 4) == 1:
            halted(ended)

    with threads_as_workers(2) as (_, client):
        done = run_made_up(tmp_path, 12, unit, Pool(client, tell=told))
        ended.set()
        assert sorted(done) == list(range(12))
        assert sorted(times for (number, _), times in begun.items() if number == 4) == [1, 1]
    assert len([message for message in told if "unit 4 of stage made-up has been running for" in message]) == 1
    assert len([message for message in told if "unit 4 of stage made-up is slow at tcp://" in message]) == 1


_gate = threading.Event()


def evaluate_or_halt(context: Context, parameters: EvaluationParameters, unit: int) -> dict[str, Any] | None:
    if unit == 3:
        halted(_gate)
    return evaluate_selection(context, parameters, unit)


class _Watching(Silent):
    """Asks for the status of a run when it tells of a slow unit, which goes on then."""

    def __init__(self, run: Path) -> None:
        self.run, self.printed = run, ""

    def message(self, text: str) -> None:
        if "unit 3 of stage evaluate has been running for" in text:
            self.printed = daskfs("status", self.run).out
            _gate.set()


@pytest.mark.cluster
def test_status_tells_of_a_slow_unit_until_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOLD_TIMES", "TOLD_SECONDS"):
        monkeypatch.setattr(stragglers, name, 0.0)
    monkeypatch.setattr(in_flight, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(trials, "EVALUATE_STAGE", dataclasses.replace(trials.EVALUATE_STAGE, run=evaluate_or_halt))
    _gate.clear()
    progress = _Watching(tmp_path / "run")
    with threads_as_workers(2) as (_, client):
        job = load_job(storage_job(tmp_path, methods=["FisherScore"], cluster={"workers": 2}))
        manifest = run_job(job, progress, connect=lambda _: contextlib.nullcontext(client))
    assert "unit 3 of stage evaluate has been running at tcp://" in progress.printed
    assert "slow" not in manifest
    assert daskfs("status", tmp_path / "run", "--json").json["slow"] == []


@pytest.mark.long
@pytest.mark.cluster
def test_a_frozen_worker_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of several; without any other the run does not begin."""
    monkeypatch.setattr(pool, "ANSWER_SECONDS", 2.0)
    with Outside(tmp_path / "outside", n_workers=2) as outside:
        outside.workers[0].send_signal(signal.SIGSTOP)
        patience = ("--set", "cluster.wait_seconds=4")
        outcome = daskfs("run", job_on(outside, evaluate=None), *patience)
        assert outcome.code == 0, outcome.err
        (warning,) = texts(json.loads((outside.folder / "run" / "run.json").read_text()))
        assert warning.startswith("1 of 2 workers do not answer, and get no units until they do: tcp://")
        assert warning in outcome.err
        outside.workers[1].send_signal(signal.SIGSTOP)
        refused(
            daskfs("run", job_on(outside), "-q", "--overwrite", *patience), CLUSTER, "no worker answered within 4 s"
        )


@pytest.mark.long
@pytest.mark.cluster
def test_a_worker_that_freezes_amid_a_run(tmp_path: Path) -> None:
    """Its units run on the other one, and those that wait do not wait for it."""
    evaluate = {"setting": "transductive", "n_selected": [2, 4], "n_splits": 5, "n_repeats": 100, "max_samples": 300}
    with Outside(tmp_path / "outside", n_workers=2) as outside:
        with driver(job_on(outside, evaluate=evaluate), "--set", "cluster.wait_seconds=4") as process:
            wait_for_units(process, "evaluate", 1)
            outside.workers[0].send_signal(signal.SIGSTOP)
            _, err = process.communicate(timeout=240)  # Dask itself gives up on a worker after 300 s
        assert process.returncode == 0, err
