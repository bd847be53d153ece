"""What a user sees while a job runs: bars on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

import pytest

from daskfs.criteria.slab import SCORE_STAGE
from daskfs.execution.progress import PlainProgress
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Stage
from tests.execution.runs import command, write_job

STAGE = Stage("score", SCORE_STAGE.reference, 5, StageParameters(), 0)


def shown_on_a_terminal(job: Path) -> tuple[str, bytes]:
    """Run a job whose stderr is a terminal; return what it shows there, without what moves the cursor, and its
    stdout.
    """
    try:
        terminal, end = pty.openpty()
    except OSError as error:
        pytest.skip(f"there are no pseudo-terminals: {error}")
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140"}
    process = subprocess.Popen(command("run", job), stdout=subprocess.PIPE, stderr=end, env=environment)
    os.close(end)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # how Linux ends a terminal whose other side is closed
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate()
    os.close(terminal)
    assert process.returncode == 0
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode()), out


@pytest.mark.cluster
def test_live_display_on_a_terminal(tmp_path: Path) -> None:
    source = "synthetic:mixture?n_samples=3000&n_features=16&n_classes=3&n_informative=4&seed=0"
    methods = ["LaplacianScore", {"name": "RLSR", "max_iter": 3, "tol": 0}]
    job = write_job(tmp_path, source, cluster={"workers": 0}, evaluate=None, methods=methods)
    text, out = shown_on_a_terminal(job)
    assert re.search(r"score\s+\S+\s+1/1 \d+ MiB/s\s+0:00:\d\d left 0:00:00", text), text
    assert re.search(r"rescaled-zscore-cholesky\s+\S+\s+6/6 round 3, \d+ MiB/s\s+0:00:\d\d left 0:00:00", text), text
    assert b"ranking: " in out
    assert b"MiB/s" not in out


def test_plain_lines_go_on_while_a_unit_runs(capsys: pytest.CaptureFixture[str]) -> None:
    said = threading.Semaphore(0)

    class Told(PlainProgress):
        def message(self, text: str) -> None:
            super().message(text)
            said.release()

    progress = Told(seconds=0.01)
    progress.start_stage(STAGE, 4)
    assert said.acquire(timeout=30)  # the line of the stage
    progress.unit_done(STAGE, 1, {"bytes_read": 2**20, "seconds": 0.5})
    for _ in range(3):
        assert said.acquire(timeout=30)
    progress.close()
    out, err = capsys.readouterr()
    assert out == ""
    assert "stage score: 4 of 5 units to run" in err
    assert re.search(r"stage score: 1/4 units, \d+ MiB/s, about \d+ s left in this stage", err)


def test_verbose_tells_every_unit(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(verbose=True)
    progress.start_stage(STAGE, 5)
    progress.unit_done(STAGE, 3, {"seconds": 1.25, "peak_bytes": 2**28})
    progress.close()
    assert "unit 3 of stage score done in 1.25 s, peak 256 MiB" in capsys.readouterr().err


LOOP = [
    Stage(f"{name}-x", name, 2, StageParameters(), 0, loop="rescaled-x", max_rounds=None) for name in ("rows", "solve")
]


def test_plain_lines_of_a_loop_name_the_round(capsys: pytest.CaptureFixture[str]) -> None:
    said = threading.Semaphore(0)

    class Told(PlainProgress):
        def message(self, text: str) -> None:
            super().message(text)
            said.release()

    progress = Told(seconds=0.01)
    progress.start_stage(LOOP[0], 2)
    assert said.acquire(timeout=30)
    for stage in LOOP:
        progress.unit_done(stage, 2 * 16, {"bytes_read": 2**20})
    for _ in range(4):
        assert said.acquire(timeout=30)
    progress.close()
    err = capsys.readouterr().err
    assert "loop rescaled-x begins" in err
    assert re.search(r"loop rescaled-x: round 17, \d+ MiB/s\n", err)


def test_verbose_names_the_round_of_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    progress = PlainProgress(verbose=True)
    progress.start_stage(LOOP[0], 2)
    progress.unit_done(LOOP[1], 2 * 16 + 1, {"seconds": 1.25, "peak_bytes": 2**28})
    progress.close()
    assert "unit 33 of stage solve-x done in 1.25 s, peak 256 MiB, round 17" in capsys.readouterr().err
