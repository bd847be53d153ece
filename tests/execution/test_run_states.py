"""What is told of runs and conversions whose driver was killed, lives, or may live elsewhere."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np
import pytest

from daskfs.runs import manifest
from daskfs.storage import LocalPath
from daskfs.store.lease import LockState, Owner
from daskfs.store.store import Store
from tests.cli.command import N_SAMPLES, basic_job, daskfs, refused, write_job
from tests.execution.damage import status_of, verified
from tests.execution.halting import FOLDER_KEY
from tests.execution.runs import write_document

pytestmark = pytest.mark.cluster

GOES_ON = "; the same command goes on"
FAR = Owner(12, "far")


@contextlib.contextmanager
def halted(folder: Path, point: str, *arguments: object) -> Iterator[Owner]:
    """Yield the process of a command that halts where a unit begins after others have records, and then kill it."""
    folder.mkdir()
    (folder / "wanted").write_text(f"{point} begun")
    environment = {**os.environ, FOLDER_KEY: str(folder)}
    line = [sys.executable, "-m", "tests.execution.halting", *map(str, arguments), "-q"]
    with subprocess.Popen(line, env=environment) as process:
        try:
            while not (folder / point).exists():
                assert process.poll() is None
                threading.Event().wait(0.01)
            yield Owner(process.pid)
        finally:
            process.kill()


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Owner]:
    """A job of two batches, whose driver was killed amid the second one, and the process that it was."""
    folder = tmp_path_factory.mktemp("killed")
    job = basic_job(folder)
    np.save(folder / "batch.npy", np.arange(N_SAMPLES) % 2)
    job["data"]["batch"] = str(folder / "batch.npy")
    path = write_job(folder, job)
    with halted(folder / "halts", "rank", "run", path) as owner:
        status = status_of(folder / "run")
        assert (status["status"], status["owner"]) == ("running", {"process": owner.process, "host": owner.host})
        assert [batch["status"] for batch in status["batches"].values()] == ["running"]
    return path, owner


def copied(killed: tuple[Path, Owner], folder: Path) -> Path:
    shutil.copytree(killed[0].parent / "run", folder / "run")
    return folder / "run"


def test_a_killed_run_is_told_and_goes_on(killed: tuple[Path, Owner], tmp_path: Path) -> None:
    run, (job, owner) = copied(killed, tmp_path), killed
    begun = json.loads((run / "run.json").read_text())
    slow = {"stage": "score", "unit": 0, "worker": "tcp://10.0.0.1:1", "since": "12:00"}
    write_document(run / "run.json", {**begun, "slow": [slow]})
    status = status_of(run)
    assert (status["status"], status["owner"]) == ("killed", {"process": owner.process, "host": owner.host})
    assert status["state"] == f"killed: {owner} is gone, last unit done at {status['last_unit']}{GOES_ON}"
    assert [batch["status"] for batch in status["batches"].values()] == ["killed"]
    assert status["slow"] == [], "nothing runs"
    files = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    status_of(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == files
    assert verified(run / "tiles")["status"] == "done"
    (run / "tiles/tiles.json").rename(tmp_path / "tiles.json")
    assert verified(run / "tiles")["status"] == "unfinished"
    (tmp_path / "tiles.json").rename(run / "tiles/tiles.json")
    assert daskfs("run", job, "-q", "--set", f"output.path={run}").code == 0
    done = daskfs("status", run, "--json").json
    assert (done["status"], [batch["status"] for batch in done["batches"].values()]) == ("done", ["done"] * 2)


NO_LOCKS = mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)))


def denied(self: LocalPath) -> IO[Any]:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))


DENIED = mock.patch.object(LocalPath, "open_whole", denied)  # by which nothing else is opened here


@pytest.mark.parametrize(
    ("surroundings", "holder", "status", "words"),
    [
        (contextlib.nullcontext(), FAR, "unknown", "; only its own host may see its lock"),
        (contextlib.nullcontext(), "", "unknown", "; only its own host may see its lock"),
        (DENIED, FAR, "unknown", ".lock cannot be locked: Permission denied"),
        (NO_LOCKS, FAR, "unknown", ".lock cannot be locked: No locks available"),
        (NO_LOCKS, Owner(), "unknown", ".lock cannot be locked: No locks available"),
        (NO_LOCKS, "its own", "killed", GOES_ON),
    ],
    ids=["far", "nameless", "denied", "no-locks-far", "no-locks-alive", "no-locks-gone"],
)
def test_a_lock_that_says_little(
    killed: tuple[Path, Owner], tmp_path: Path, surroundings: Any, holder: Owner | str, status: str, words: str
) -> None:
    run = copied(killed, tmp_path)
    if holder != "its own":
        (run / ".lock").write_text(str(holder))
    with surroundings:
        found = status_of(run)
    seen = None if "denied" in words else Owner.parse((run / ".lock").read_text())
    assert (found["status"], found["state"].endswith(words)) == (status, True), found["state"]
    named = "its process is not named" if seen is None else str(seen)
    assert found["state"].startswith(f"{status}: {named}")
    assert found["owner"] == (None if seen is None else {"process": seen.process, "host": seen.host})


def test_a_lock_that_is_missing(killed: tuple[Path, Owner], tmp_path: Path) -> None:
    run = copied(killed, tmp_path)
    (run / ".lock").unlink()
    assert status_of(run)["status"] == "unknown"


def test_a_killed_conversion_is_told_and_goes_on(tmp_path: Path) -> None:
    store, own = tmp_path / "x.zarr", basic_job(tmp_path)
    words = ("convert", tmp_path / "X.npy", store, "--workers", 0)
    with halted(tmp_path / "halts", "columns", *words):
        assert verified(store)["status"] == "running"
        refused(daskfs("inspect", store), 3, f"the tile store {store} is not finished (running)")
    state = f"unfinished: {Owner.parse((store / '.lock').read_text())} has left it{GOES_ON}"
    checked = verified(store)
    assert (checked["status"], checked["notes"]) == ("unfinished", [f"{store} is not finished: {state}"])
    job = write_job(tmp_path, {**own, "data": {"source": str(store)}, "methods": ["VarianceScore"]})
    for command in (("inspect", store), ("run", job, "-q"), ("convert", store, tmp_path / "again", "-q")):
        refused(daskfs(*command), 3, f"the tile store {store} is not finished ({state})")
    assert daskfs(*words, "-q").code == 0
    assert (verified(store)["status"], verified(store)["notes"]) == ("done", [])


def test_who_looks_at_a_lock_does_not_keep_others_from_it(tmp_path: Path) -> None:
    basic_job(tmp_path)
    (tmp_path / "x.zarr").mkdir()
    flock, n_looks = fcntl.flock, 0
    with (tmp_path / "x.zarr/.lock").open("w") as look:
        flock(look, fcntl.LOCK_SH)

        def ending(handle: int, kind: int) -> None:
            nonlocal n_looks
            if kind == fcntl.LOCK_UN:
                n_looks += 1
                flock(look, fcntl.LOCK_UN)
            flock(handle, kind)

        with mock.patch("fcntl.flock", ending):
            outcome = daskfs("convert", tmp_path / "X.npy", tmp_path / "x.zarr", "--workers", 0, "-q")
    assert (outcome.code, n_looks) == (0, 1), outcome.err


def test_a_run_that_ends_while_it_is_looked_at(killed: tuple[Path, Owner], tmp_path: Path) -> None:
    run, look = copied(killed, tmp_path), manifest.lock_state
    whole = json.loads((run / "run.json").read_text())

    def ending(store: Store) -> LockState:
        write_document(run / "run.json", {**whole, "status": "done"})
        return look(store)

    with mock.patch.object(manifest, "lock_state", ending):
        assert daskfs("status", run, "--json").json["status"] == "done"


def test_a_report_is_written_under_the_lock_of_its_run(tmp_path: Path) -> None:
    assert daskfs("run", write_job(tmp_path, basic_job(tmp_path)), "-q").code == 0
    run = tmp_path / "run"
    before = (run / "report.html").read_bytes()
    with manifest.lock_directory(Store(run), "run.json", "daskfs run", "output.path", lambda _: None):
        refused(daskfs("report", run), 4, str(run))
        assert (run / "report.html").read_bytes() == before
    assert daskfs("report", run).code == 0
