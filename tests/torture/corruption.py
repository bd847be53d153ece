"""Corrupted files of finished and half-done runs: what each command says of them, and what a run makes of them."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cli.test_moved_runs import KINDS
from tests.torture.trials import STOPPED, Run, Trial

X = "chunk of X"
MORE_OF_X = 6
"""How many more times chunks of X are drawn than other kinds: their values are in every table."""
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
    if "X" in path.parts and path.name.isdigit():
        return X
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


def trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of runs of all kinds and states, drawn by a seed."""
    draw = random.Random(seed)
    pairs = [(kind, state) for kind in KINDS for state in STOPPED]
    runs: dict[tuple[str, str], Run] = {}
    for place in range(number):
        pair = pairs[place % len(pairs)]
        if pair not in runs:
            runs[pair] = Run(folder / f"{pairs.index(pair)}", *pair)
        yield _trial(runs[pair], draw)


def _trial(run: Run, draw: random.Random) -> Trial:
    folders = [run.run, *([run.work / "tiles"] if run.kind == "tiles elsewhere" else [])]
    run.restore()
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())
    of_kinds: dict[str, list[Path]] = {}
    for path in files:
        of_kinds.setdefault(kind_of(path), []).append(path)
    kind = draw.choice([*sorted(of_kinds), *[X] * MORE_OF_X * (X in of_kinds)])
    path, how = draw.choice(of_kinds[kind]), draw.choice(HOWS)

    def damage() -> str:
        corrupt(path, how, files, draw)
        return f"{path.relative_to(run.work)} {how}"

    return run.attempt(kind, how, damage, "removes" if path.is_relative_to(run.run) else "anything")
