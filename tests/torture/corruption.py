"""Corrupted files of finished and half-done runs: what each command says of them, and what a run makes of them."""

from __future__ import annotations

import random
import re
import shutil
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from daskfs import load_job, run_job
from daskfs.errors import RunStoppedError
from tests.cli.command import Outcome, daskfs
from tests.cli.test_moved_runs import KINDS, arrays, convert, job_of, tables, write_data
from tests.execution.runs import Stop

STOPPED = {"finished": None, "in ingest": ("ingest", 0), "after scores": ("score", 0)}
"""States of runs by the unit at which they were stopped."""
LIMIT_SECONDS = 120
"""A command that takes longer is stuck."""
OUTCOMES = ("same", "told", "made again", "refused", "wrong", "stuck", "traceback")
FAULTS = ("wrong", "stuck", "traceback")
"""Outcomes that must not be."""
FILES = {
    "run.json": r"run\.json",
    "plan.json": r"plan\.json",
    ".epoch": r"\.epoch",
    "lock and events": r"\.lock|events\.jsonl",
    "record": r".*\.jsonl?",
    "seal": r".*\.seals?",
    "metadata of Zarr": r"zarr\.json",
    "chunk": r"\d+",
    "table": r".*\.(csv|parquet)",
    "report.html": r"report\.html",
    "other object": r".*",
}
"""Kinds of files by the names of their files; records lie in a folder of their own."""


def kind_of(path: Path) -> str:
    """Return the kind of a file of a run."""
    kinds = (kind for kind, pattern in FILES.items() if re.fullmatch(pattern, path.name))
    return next(kind for kind in kinds if kind != "record" or "records" in path.parts)


# ------------------------------------------------------------------------------------------------------- corruptions
def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data or b"x")
    changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _zeros(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data) + 1)
    return data[:start] + bytes(len(data[start : start + 64])) + data[start + 64 :]


def _digit(data: bytes, draw: random.Random) -> bytes:
    places = [place for place, sign in enumerate(data) if chr(sign).isdigit()] or [0]
    place = draw.choice(places)
    return data[:place] + b"%d" % draw.randrange(10) + data[place + 1 :]


CONTENTS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "a flipped bit": _flip,
    "another digit": _digit,
    "cut": lambda data, draw: data[: draw.randrange(len(data) + 1)],
    "emptied": lambda *_: b"",
    "zeros": _zeros,
    "more bytes": lambda data, draw: data + draw.randbytes(draw.randrange(1, 200)),
    "other bytes": lambda data, draw: draw.randbytes(len(data)),
}
HOWS = (*CONTENTS, "deleted", "of another file", "a folder")


def corrupt(path: Path, how: str, files: list[Path], draw: random.Random) -> None:
    """Corrupt a file in one of :data:`HOWS`; `files` are those of which another one is taken."""
    data = path.read_bytes()
    path.unlink()
    if how == "a folder":
        path.mkdir()
    elif how == "of another file":
        shutil.copyfile(draw.choice([one for one in files if one != path]), path)
    elif how != "deleted":
        path.write_bytes(CONTENTS[how](data, draw))


# ------------------------------------------------------------------------------------------------------------ trials
@dataclass(frozen=True)
class Trial:
    """A corruption that was tried: `outcome` is one of :data:`OUTCOMES`, `detail` what repeats or explains a fault."""

    run: str
    state: str
    file: str
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
        Empty folder.
    kind
        One of :data:`tests.cli.test_moved_runs.KINDS`.
    state
        One of :data:`STOPPED`.
    """

    def __init__(self, folder: Path, kind: str, state: str) -> None:
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

    def _export(self) -> dict[str, bytes] | Outcome:
        out = self.work / "out.npz"
        out.unlink(missing_ok=True)
        outcome = daskfs("export", self.run, out, "--data", "FisherScore", "-q")
        if outcome.code != 0:
            return outcome
        return {name: values for name, values in arrays(out).items() if name != "daskfs.npy"}  # with times of the run

    def try_one(self, draw: random.Random) -> Trial:
        """Corrupt one file, call commands that read, then the run."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.whole, self.work)
        folders = [self.run, *([self.work / "tiles"] if self.kind == "tiles elsewhere" else [])]
        files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
        of_kinds: dict[str, list[Path]] = {}
        for path in files:
            of_kinds.setdefault(kind_of(path), []).append(path)
        kind = draw.choice(sorted(of_kinds))
        path, how = draw.choice(of_kinds[kind]), draw.choice(HOWS)
        corrupt(path, how, files, draw)
        where = f"{path.relative_to(self.work)} {how}"
        try:
            with limited():
                outcome, detail = self._outcome(path)
        except StuckError:
            outcome, detail = "stuck", where
        except Exception:  # noqa: BLE001 - whatever a command lets through
            outcome, detail = "traceback", f"{where}\n{traceback.format_exc()}"
        return Trial(self.kind, self.state, kind, how, outcome, f"{where}: {detail}" if detail else "")

    def _outcome(self, path: Path) -> tuple[str, str]:
        """Return what becomes of the run after the corruption of a file, and what is wrong with that."""
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
        if tables(self.run) != self.expected:
            return "wrong", "tables differ"
        if "again" in again.err:
            return "made again", ""
        if daskfs("verify", self.run, "-q").code != 0:  # what no unit reads any more, or lies outside
            if path.is_relative_to(self.run):
                daskfs("verify", self.run, "-q", "--remove")
                again = daskfs("run", self.job)
                if again.code != 0 or tables(self.run) != self.expected or daskfs("verify", self.run, "-q").code != 0:
                    return "wrong", f"after verify --remove: {again.err}"
            return "told", ""
        return ("told" if verified.code else "same"), ""


def trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of runs of all kinds and states, drawn by a seed."""
    draw = random.Random(seed)
    pairs = [(kind, state) for kind in KINDS for state in STOPPED]
    runs: dict[tuple[str, str], Run] = {}
    for place in range(number):
        pair = pairs[place % len(pairs)]
        if pair not in runs:
            runs[pair] = Run(folder / f"{pairs.index(pair)}", *pair)
        yield runs[pair].try_one(draw)
