"""Standard streams that fail: messages are not the work, and results are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from daskfs.execution.streams import Messages
from tests.cli.command import basic_job, daskfs, write_job

COMMAND = f"{sys.executable} -m daskfs"
FAILED = "daskfs: stdout cannot be written: No space left on device. Only what is printed is lost: the run, "


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path, basic_job(tmp_path))


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(
    "streams",
    [
        "2>/dev/full",
        "2>&-",
        ">&- 2>&-",
        "<&- >&- 2>&-",
        "2> >(exec 0<&-)",
        ">&-",
        "-v 2>/dev/full",
        "> >(cat >/dev/null)",
    ],
)
def test_a_run_whose_messages_are_lost_is_done(job: Path, streams: str) -> None:
    done = shell(f"{COMMAND} run {job} {streams}")
    assert done.returncode == 0, done.stderr
    assert daskfs("status", job, "--json").json["status"] == "done"
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_is_no_failure(job: Path) -> None:
    done = shell(f"set -o pipefail; {COMMAND} run {job} 2>&1 >/dev/null | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert daskfs("status", job, "--json").json["status"] == "done"


def test_what_was_lost_is_told_where_it_can_be() -> None:
    class Disk:
        is_full, text, closed = True, "", False

        def write(self, text: str) -> None:
            if self.is_full:
                raise OSError(28, "No space left on device")
            self.text += text

        def flush(self) -> None:
            pass

    disk = Disk()
    messages = Messages(disk)  # type: ignore[arg-type]
    messages.write("a\n")
    disk.is_full = False
    messages.tell_lost()
    assert disk.text == "daskfs: messages could not be written here: [Errno 28] No space left on device.\n"


@pytest.mark.parametrize("verb", ["run", "plan", "status", "methods", "schema", "init --example digits", "--version"])
def test_results_that_cannot_be_printed_are_a_failure(job: Path, verb: str) -> None:
    assert daskfs("run", job, "-q").code == 0
    target = str(job) if verb in ("run", "plan", "status") else ""
    for options in ("", "--json") if target else ("",):
        done = shell(f"{COMMAND} {verb} {target} {options} >/dev/full")
        last = done.stderr.splitlines()[-1]
        assert (done.returncode, last.startswith(FAILED), "Traceback" in done.stderr) == (1, True, False), done.stderr


def test_a_reader_of_results_that_goes_is_named(job: Path) -> None:
    done = shell(f"{COMMAND} run {job} -q > >(exec 0<&-); echo $?")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "stdout cannot be written: Broken pipe" in done.stderr
    assert daskfs("status", job, "--json").json["status"] == "done"
