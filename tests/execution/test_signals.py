"""Signals that stop a run, and those that somebody else handles."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daskfs import load_job, run_job
from daskfs.errors import InputError, RunStoppedError
from daskfs.execution.progress import Silent
from daskfs.execution.signals import SIGNALS, UNLESS_HANDLED, stoppable
from tests.execution.runs import write_job

CODE = """
import signal, sys
from daskfs.execution.signals import stoppable
number, handled = signal.Signals(int(sys.argv[1])), []
if sys.argv[2] != "default":
    signal.signal(number, signal.SIG_IGN if sys.argv[2] == "ignored" else lambda *_: handled.append(1))
try:
    with stoppable():
        signal.raise_signal(number)
    print("went on", len(handled))
except Exception as error:
    print(error)
signal.raise_signal(number) if sys.argv[2] != "default" else None
"""


@pytest.mark.parametrize("number", [*SIGNALS, *UNLESS_HANDLED], ids=lambda number: number.name)
def test_a_signal_stops_a_run(number: signal.Signals) -> None:
    """Also where the tests run below ``nohup``."""
    outside = signal.signal(number, signal.SIG_DFL if number == signal.SIGHUP else signal.getsignal(number))
    before = signal.getsignal(number)
    with pytest.raises(RunStoppedError, match=f"stopped by {number.name}; the same command goes on"), stoppable():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before
    signal.signal(number, outside)


@pytest.mark.parametrize("number", UNLESS_HANDLED, ids=lambda number: number.name)
@pytest.mark.parametrize(("how", "expected"), [("ignored", "went on 0"), ("handled", "went on 1")])
def test_others_keep_their_signals(number: signal.Signals, how: str, expected: str) -> None:
    """``nohup`` ignores SIGHUP, and submitit handles SIGUSR2."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(int(number)), how], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize("kind", [RunStoppedError, InputError])
def test_a_run_says_which_signal_stopped_it(kind: type[Exception], tmp_path: Path) -> None:
    """Whatever a codec or a library makes of the error that the signal raises in it."""
    job = write_job(tmp_path, "sklearn:iris", methods=["VarianceScore"], evaluate=None, cluster={"workers": 0})

    class Interrupted(Silent):
        def unit_done(self, *_: object) -> None:
            try:
                signal.raise_signal(signal.SIGTERM)
            except RunStoppedError as error:
                msg = f"decoding with 'cp437' codec failed ({error})"
                raise kind(msg) from error

    with pytest.raises(RunStoppedError, match=r"^stopped by SIGTERM"):
        run_job(load_job(job), Interrupted())
    manifest = json.loads((tmp_path / "run" / "run.json").read_text())
    assert manifest["status"] == "stopped"
    assert manifest["error"].startswith("stopped by SIGTERM; the same command goes on")
