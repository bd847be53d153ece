"""The command as its users start it: processes, signals, a real cluster."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .command import basic_job, daskfs, matrix, rows_of, write_job

pytestmark = pytest.mark.cluster

HEAVY = (
    "numpy",
    "scipy",
    "dask",
    "distributed",
    "sklearn",
    "zarr",
    "pyarrow",
    "matplotlib",
    "numba",
    "yaml",
)
"""Packages that the help needs none of. It needs pydantic: options follow from the fields of a block of the job."""
N_TASKS = 50
STOPPED = """
import os, signal, sys
from daskfs import cli
from daskfs.execution.progress import PlainProgress

def unit_done(self, stage, unit, facts):
    told(self, stage, unit, facts)
    if (stage.name, unit) == ("evaluate", 3):
        os.kill(os.getpid(), number)

number, told = int(sys.argv.pop()), PlainProgress.unit_done
if number == signal.SIGHUP:
    signal.signal(number, signal.SIG_DFL)  # also where the tests run below nohup
PlainProgress.unit_done = unit_done
cli.main()
"""
"""A program that gets a signal amid its evaluation."""
PYTHON = (sys.executable, "-m", "daskfs")


def finish(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def test_building_the_command_imports_nothing_heavy() -> None:
    code = (
        "import sys, typer\n"
        "from daskfs.cli import app\n"
        "command = typer.main.get_command(app)\n"
        "assert set(command.commands) >= {'run', 'plan', 'status', 'report', 'convert', 'inspect'}\n"
        f"print(sorted(set({HEAVY!r}) & set(sys.modules)))\n"
    )
    done = finish(sys.executable, "-c", code)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert all(importlib.util.find_spec(name) for name in HEAVY)


def test_help_loads_nothing_heavy() -> None:
    done = finish(sys.executable, "-X", "importtime", "-m", "daskfs", "--help")
    assert done.returncode == 0
    assert "Exit codes: 0 done" in " ".join(done.stdout.split())
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


def test_a_thread_of_zarr_that_does_not_end_is_no_error() -> None:
    """On a busy machine it may not end in time."""
    code = (
        "import sys, threading, zarr.core.sync\n"
        "from daskfs.cli import main\n"
        "zarr.core.sync._get_loop().call_soon_threadsafe(threading.Event().wait)\n"
        "sys.argv = ['daskfs', '--version']\n"
        "main()\n"
    )
    done = finish(sys.executable, "-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_libraries_are_listed_while_another_thread_imports() -> None:
    """Units of a worker do so at its start; threadpoolctl before 3.7 then hung the process."""
    code = (
        "import _ctypes, threading, sklearn.neighbors, threadpoolctl\n"
        "from pathlib import Path\n"
        "paths = [str(path) for path in Path(sklearn.neighbors.__file__).parent.glob('*.so')]\n"
        "is_done = threading.Event()\n"
        "def load():\n"
        "    while not is_done.is_set():\n"
        "        for path in paths:\n"
        "            _ctypes.dlclose(_ctypes.dlopen(path, 2))\n"
        "thread = threading.Thread(target=load)\n"
        "thread.start()\n"
        "found = [threadpoolctl.ThreadpoolController() for _ in range(50)]\n"
        "is_done.set()\n"
        "thread.join()\n"
        "print(len(paths) > 3, len(found))\n"
    )
    done = finish(sys.executable, "-c", code)
    assert (done.stdout, done.stderr) == ("True 50\n", "")


def test_module_and_script_are_the_same_command(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("daskfs")
    gone = tmp_path / "gone.yaml"
    results = {
        (done.returncode, done.stdout, done.stderr)
        for done in (finish(*PYTHON, "plan", gone), finish(script, "plan", gone))
    }
    assert results == {(2, "", f"daskfs: cannot read the job file {gone}: No such file or directory.\n")}


@pytest.mark.long
def test_an_error_on_a_worker_is_one_line(tmp_path: Path) -> None:
    X = matrix()
    X[7, 2] = np.nan
    job = basic_job(tmp_path, cluster={"workers": 1})
    np.save(tmp_path / "X.npy", X)
    done = finish(*PYTHON, "run", write_job(tmp_path, job), "-q")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-1].startswith(f"daskfs: column 2 of {tmp_path / 'X.npy'} has NaN in row 7; ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run" / "ranking.csv").exists()


@pytest.mark.long
def test_a_local_cluster_does_not_mind_another_one(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path, cluster={"workers": 1}))
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # another process that has it is as good
            taken.bind(("", 8787))
            taken.listen()
        done = finish(*PYTHON, "run", job, "-q")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("is_program", [True, False])
def test_signals_after_the_one_that_stopped_a_run(is_program: bool) -> None:
    """A program ends with what it has to say; in somebody's own process they mean what they meant before."""
    code = (
        "import contextlib, os, signal\n"
        "from daskfs.errors import RunStoppedError\n"
        "from daskfs.execution.signals import end_process_when_stopped, stoppable\n"
        f"{'end_process_when_stopped()' if is_program else ''}\n"
        "with contextlib.suppress(RunStoppedError), stoppable():\n"
        "    signal.raise_signal(signal.SIGUSR1)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    assert finish(sys.executable, "-c", code).returncode == (0 if is_program else -signal.SIGTERM)


def test_an_error_that_a_codec_makes_of_a_signal_keeps_its_message() -> None:
    """Python raises another one of the same type, "decoding with ... failed (...)", if a signal interrupts a codec."""
    code = (
        "import signal\n"
        "from daskfs.errors import RunStoppedError\n"
        "from daskfs.execution.signals import stoppable\n"
        "try:\n"
        "    with stoppable():\n"
        "        try:\n"
        "            signal.raise_signal(signal.SIGUSR1)\n"
        "        except RunStoppedError as error:\n"
        "            raise RunStoppedError(f'decoding failed ({error})') from error\n"
        "except RunStoppedError as error:\n"
        "    print(error)\n"
    )
    assert finish(sys.executable, "-c", code).stdout.startswith("stopped by SIGUSR1; ")


LONG = [pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)]


@pytest.mark.parametrize("number", [signal.SIGTERM, *LONG], ids=lambda number: number.name)
def test_a_stopped_run_can_be_resumed(tmp_path: Path, number: signal.Signals) -> None:
    evaluate = {"n_selected": 2, "n_splits": 5, "n_repeats": N_TASKS, "n_neighbors": 3, "setting": "transductive"}
    evaluate["baselines"] = False
    job = basic_job(tmp_path, methods=["VarianceScore"], evaluate=evaluate)
    path = write_job(tmp_path, job)
    stopped = finish(sys.executable, "-c", STOPPED, "run", path, int(number))
    assert (stopped.returncode, stopped.stdout) == (75, ""), stopped.stderr
    message = stopped.stderr.splitlines()[-1]
    assert message.startswith(f"daskfs: stopped by {number.name}; the same command goes on")
    assert "Traceback" not in stopped.stderr
    assert not (tmp_path / "run" / "evaluation.csv").exists()
    status = daskfs("status", tmp_path / "run", "--json").json
    assert status["status"] == "stopped"
    assert status["error"].startswith(f"stopped by {number.name}")
    done = {stage["stage"]: stage["done"] for stage in status["stages"]}
    assert done["rank"] == done["gather"] == 1
    assert done["evaluate"] < N_TASKS
    if number == signal.SIGINT:
        ranking = (tmp_path / "run" / "ranking.csv").read_bytes()
        again = finish(*PYTHON, "run", path, "--json", "-q")
        assert (again.returncode, again.stderr) == (0, "")
        left = {"evaluate": N_TASKS - done["evaluate"], "evaluation-tables": 1}
        assert json.loads(again.stdout)["recomputed"] == left
        assert len(rows_of(tmp_path / "run" / "evaluation.csv")) == N_TASKS * 5
        assert (tmp_path / "run" / "ranking.csv").read_bytes() == ranking
