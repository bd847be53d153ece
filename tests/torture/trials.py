"""Trials of what may happen to a run: what each command says afterwards, and what the same command makes of it."""

from __future__ import annotations

import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from daskfs import load_job, run_job
from daskfs.errors import RunStoppedError
from tests.cli.command import Outcome, daskfs
from tests.cli.test_moved_runs import arrays, convert, job_of, tables, write_data
from tests.execution.runs import Stop

STOPPED = {"finished": None, "in ingest": ("ingest", 0), "after scores": ("score", 0)}
"""States of runs by the unit at which they were stopped."""
LIMIT_SECONDS = 120
"""A command that takes longer is stuck."""
OUTCOMES = ("same", "told", "made again", "refused", "wrong", "stuck", "traceback")
FAULTS = ("wrong", "stuck", "traceback")
"""Outcomes that must not be."""


@dataclass(frozen=True)
class Trial:
    """What happened to `what` of a run, and `how`.

    `outcome` is one of :data:`OUTCOMES`, `detail` repeats or explains a fault.
    """

    run: str
    what: str
    how: str
    outcome: str
    detail: str = ""


class StuckError(Exception):
    """A command takes too long."""


@contextmanager
def limited(seconds: int = LIMIT_SECONDS) -> Iterator[None]:
    """Raise :class:`StuckError` in the main thread after some seconds."""

    def stop(*_: object) -> None:
        raise StuckError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Run:
    """A run of small data in one state, of which a folder keeps a whole copy.

    Parameters
    ----------
    folder
        Folder that does not exist.
    kind
        One of :data:`tests.cli.test_moved_runs.KINDS`.
    state
        One of :data:`STOPPED`.
    """

    def __init__(self, folder: Path, kind: str, state: str = "finished") -> None:
        self.kind, self.state = kind, state
        self.work, self.whole = folder / "work", folder / "whole"
        self.work.mkdir(parents=True)
        write_data(self.work)
        if kind == "tiles elsewhere":
            convert(self.work)
        self.run = self.work / "run"
        self.job = job_of(self.work, self.run, kind)
        assert daskfs("run", self.job, "-q").code == 0
        self.expected, self.exported = tables(self.run), self._export()
        shutil.rmtree(self.run)
        stop = STOPPED[state]
        with suppress(RunStoppedError):
            run_job(load_job(self.job), None if stop is None else Stop(*stop))
        self.work.rename(self.whole)
        self.restore()

    def restore(self) -> None:
        """Make all files whole."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.whole, self.work)

    def attempt(self, what: str, how: str, damage: Callable[[], str], leaves: str = "nothing") -> Trial:
        """Do damage to whole files, call commands that read, and then the run.

        `damage` returns what it did. After the run `verify` finds "nothing", what it "removes", or "anything".
        """
        self.restore()
        done = ""
        try:
            with limited():
                done = damage()
                outcome, detail = self._outcome(leaves)
        except StuckError as error:
            outcome, detail = "stuck", str(error)
        except Exception:  # noqa: BLE001 - whatever a command lets through
            outcome, detail = "traceback", traceback.format_exc()
        return Trial(f"{self.kind}, {self.state}", what, how, outcome, f"{done}: {detail}" if outcome in FAULTS else "")

    def _export(self) -> dict[str, bytes] | Outcome:
        out = self.work / "out.npz"
        out.unlink(missing_ok=True)
        outcome = daskfs("export", self.run, out, "--data", "FisherScore", "-q")
        if outcome.code != 0:
            return outcome
        return {name: values for name, values in arrays(out).items() if name != "daskfs.npy"}  # with times of the run

    def _of_changed_source(self) -> dict[str, bytes]:
        """Return the tables of a run from the beginning: nothing of a changed source was used before."""
        run = self.work / "anew"
        job = yaml.safe_load(self.job.read_text()) | {"output": {"path": str(run)}}
        (self.work / "anew.yaml").write_text(yaml.safe_dump(job))
        assert daskfs("run", self.work / "anew.yaml", "-q").code == 0
        return tables(run)

    def _outcome(self, leaves: str) -> tuple[str, str]:
        """Return what becomes of the run, and what is wrong with that."""
        verified = daskfs("verify", self.run, "-q")
        readers: list[object] = [verified, daskfs("status", self.run), daskfs("report", self.run)]
        exported = self._export()
        for found in (*readers, exported):
            if isinstance(found, Outcome) and found.code not in (0, 3):
                return "wrong", f"exit code {found.code}: {found.err}"
        if not isinstance(exported, Outcome) and exported != self.exported:
            return "wrong", "the export differs"
        again = daskfs("run", self.job)
        if again.code == 3:
            return "refused", ""
        if again.code != 0:
            return "wrong", f"exit code {again.code}: {again.err}"
        expected = self._of_changed_source() if "takes over the directory" in again.err else self.expected
        if tables(self.run) != expected:
            return "wrong", "tables differ"
        after = daskfs("verify", self.run, "-q")
        is_whole = after.code == 0
        if "again" in again.err and is_whole:
            return "made again", ""
        if not is_whole and leaves == "nothing":
            return "wrong", f"verify after the run: {after.out}"
        if not is_whole and leaves == "removes":  # what no unit reads any more
            daskfs("verify", self.run, "-q", "--remove")
            again = daskfs("run", self.job)
            if again.code != 0 or tables(self.run) != self.expected or daskfs("verify", self.run, "-q").code != 0:
                return "wrong", f"after verify --remove: {again.err}"
        return ("told" if verified.code or not is_whole else "same"), ""
