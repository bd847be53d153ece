"""What a user sees while a job runs: bars on a terminal, plain lines elsewhere, always on stderr."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from pathlib import Path

import pytest

from daskfs.execution.progress import PlainProgress
from daskfs.plan import Stage
from tests.execution.runs import command, write_job

STAGE = Stage("score", "score", 5, {}, 0)


def test_live_display_on_a_terminal(tmp_path: Path) -> None:
    source = "synthetic:mixture?n_samples=3000&n_features=16&n_classes=3&n_informative=4&seed=0"
    job = write_job(tmp_path, source, cluster={"workers": 0}, evaluate=None)
    terminal, end = pty.openpty()
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
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"score\s+\S+\s+1/1 \d+ MiB/s 0:00:\d\d left 0:00:00", text), text
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
