"""Signals that stop a run, and those that somebody else handles."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from daskfs.errors import RunStoppedError
from daskfs.execution.signals import SIGNALS, UNLESS_HANDLED, stoppable

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
    before = signal.getsignal(number)
    with pytest.raises(RunStoppedError, match=f"stopped by {number.name}; the same command goes on"), stoppable():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


@pytest.mark.parametrize("number", UNLESS_HANDLED, ids=lambda number: number.name)
@pytest.mark.parametrize(("how", "expected"), [("ignored", "went on 0"), ("handled", "went on 1")])
def test_others_keep_their_signals(number: signal.Signals, how: str, expected: str) -> None:
    """``nohup`` ignores SIGHUP, and submitit handles SIGUSR2."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(int(number)), how], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected
