"""Cuts of power: what a disk may hold of the writes of a run at some moment, and what the same command makes of it."""

from __future__ import annotations

import dataclasses
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cli.test_moved_runs import KINDS
from tests.torture.tracing import Step, daskfs_command, traced
from tests.torture.trials import Run, Trial

LOSSES = ("none", "emptied", "cut", "zeros", "half zeros")
"""What may be left of data that were not synced."""
NAMES = {
    "in order": "names as of some moment since the last sync of anything",
    "in any order": "some of the newest names are lost, one by one",
    "of a folder": "all names of a folder since some moment are lost",
}
"""What may be left of names, by file system: ext4 and XFS keep their order, POSIX promises none."""
NEWEST = 60


class Disk:
    """Files and names of a disk while steps are replayed.

    Attributes
    ----------
    names
        Number of the file of each name.
    files, synced
        Content of each file, now and when it was last synced.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.folders: set[str] = set()
        self.files: list[bytearray] = []
        self.synced: dict[int, bytes] = {}

    def apply(self, step: Step) -> None:
        """Apply a step; one about a name that was lost changes nothing."""
        if step.kind == "mkdir":
            self.folders.add(step.path)
        elif step.kind == "rmdir":
            self.folders.discard(step.path)
        elif step.kind == "create" and step.path not in self.names:
            self.names[step.path] = len(self.files)
            self.files.append(bytearray())
        elif step.path in self.names:
            self._apply_to_file(step, self.names[step.path])
        elif step.kind == "rename" and step.path in self.folders:
            self._move_folder(step)

    def _apply_to_file(self, step: Step, number: int) -> None:
        held = self.files[number]
        if step.kind in ("write", "resize", "create"):
            size = {"write": step.number, "resize": step.number, "create": 0 if step.number else len(held)}[step.kind]
            place = len(held) if size < 0 else size
            held.extend(bytes(max(0, place - len(held))))
            if step.kind == "write":
                held[place : place + len(step.data)] = step.data
            else:
                del held[place:]
        elif step.kind == "sync":
            self.synced[number] = bytes(held)
        elif step.kind in ("link", "rename"):
            self.names[step.to] = number
        if step.kind in ("unlink", "rename"):
            del self.names[step.path]

    def _move_folder(self, step: Step) -> None:
        for held in (self.folders, self.names):
            for name in [one for one in held if one == step.path or one.startswith(f"{step.path}/")]:
                moved = step.to + name.removeprefix(step.path)
                if isinstance(held, set):
                    held.discard(name)
                    held.add(moved)
                else:
                    held[moved] = held.pop(name)

    def content(self, number: int, draw: random.Random) -> bytes:
        """Return what may be left of a file."""
        whole, synced = bytes(self.files[number]), self.synced.get(number)
        if synced == whole:
            return whole
        loss = draw.choice(LOSSES)
        if loss == "none":
            return whole
        kept = synced if synced is not None and whole.startswith(synced) else b""
        place = draw.randrange(len(kept), len(whole) + 1)
        lost = {"emptied": b"", "cut": whole[len(kept) : place], "zeros": bytes(len(whole) - len(kept))}
        lost["half zeros"] = whole[len(kept) : place] + bytes(len(whole) - place)
        return kept + lost[loss]

    def write(self, root: Path, draw: random.Random) -> None:
        """Write what may be left, below a root."""
        for folder in sorted(self.folders):
            Path(folder).mkdir(parents=True, exist_ok=True)
        for name, number in self.names.items():
            path = Path(name)
            if path.is_relative_to(root):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(self.content(number, draw))


IS_NAME = ("create", "rename", "link", "unlink", "mkdir", "rmdir")


def after_cut(steps: Sequence[Step], draw: random.Random) -> tuple[Disk, str, str]:
    """Return what a disk may hold after a cut amid steps, how names were lost, and where."""
    end, how = draw.randrange(1, len(steps) + 1), draw.choice(list(NAMES))
    begun = steps[:end]
    named = [place for place, step in enumerate(begun) if step.kind in IS_NAME]
    synced = max((place for place, step in enumerate(begun) if step.kind == "sync"), default=0)
    lost: set[int] = set()
    if how == "in order":
        since = [place for place in named if place > synced]
        lost = set(since[draw.randrange(len(since) + 1) :])
    elif how == "in any order":
        lost = {place for place in named[-NEWEST:] if draw.random() < 0.3}
    elif named:
        folder = str(Path(begun[draw.choice(named)].path).parent)
        inside = [place for place in named if str(Path(begun[place].path).parent) == folder]
        lost = set(inside[draw.randrange(len(inside)) :])
    disk = Disk()
    for place, step in enumerate(begun):
        if place in lost:
            if step.kind == "create":  # the file is there, without a name
                disk.names.pop(step.path, None)
            continue
        disk.apply(step)
    return disk, how, f"cut after {end} of {len(steps)} steps, names lost {how} ({len(lost)})"


def trials(folder: Path, number: int, seed: int, kinds: Sequence[str] = tuple(KINDS)) -> Iterator[Trial]:
    """Yield as many trials of cuts amid runs of some kinds, drawn by a seed."""
    draw = random.Random(seed)
    runs = [Run(folder / str(place), kind) for place, kind in enumerate(kinds)]
    for run in runs:  # as they are before their command
        shutil.rmtree(run.whole / "run")
        run.restore()
    recorded = [traced(daskfs_command("run", run.job, "-q"), run.run) for run in runs]
    for place in range(number):
        run, steps = runs[place % len(runs)], recorded[place % len(runs)]
        disk, how, where = after_cut(steps, draw)

        def damage(disk: Disk = disk, run: Run = run, where: str = where) -> str:
            disk.write(run.run, draw)
            return where

        trial = run.attempt("cut of power", how, damage)
        if trial.outcome == "refused" and how == "in order":  # what a run has begun, it goes on with
            trial = dataclasses.replace(trial, outcome="wrong", detail=f"{where}: refused")
        yield trial
