"""System calls of a command that change files, with what they write, as strace sees them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRACED = (
    "open,openat,creat,write,pwrite64,writev,pwritev,lseek,ftruncate,truncate,fallocate,mmap,rename,renameat,renameat2,link,"
    "linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,sync_file_range,sendfile,copy_file_range"
)
OPENS = ("open", "openat", "creat")
WRITES = ("write", "pwrite64")
KINDS = {
    "ftruncate": "resize",
    "truncate": "resize",
    "fsync": "sync",
    "fdatasync": "sync",
    "rename": "rename",
    "renameat": "rename",
    "renameat2": "rename",
    "link": "link",
    "linkat": "link",
    "unlink": "unlink",
    "unlinkat": "unlink",
    "rmdir": "rmdir",
    "mkdir": "mkdir",
    "mkdirat": "mkdir",
}
"""Kinds of steps by system call."""
LINE = re.compile(r"(\d+) +(.*)")
CALL = re.compile(r"(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
STRING = re.compile(r'<((?:\\x[0-9a-f]{2})+)>|"((?:\\x[0-9a-f]{2})*)"')


class Step(NamedTuple):
    """A change of a file or a name below the traced folder.

    `kind` is "create", "write" or one of :data:`KINDS`; `number` is the place of a write, at the end if negative, a
    size, or whether a file was emptied when it was opened.
    """

    kind: str
    path: str
    to: str = ""
    number: int = 0
    data: bytes = b""


def traced(command: list[str], folder: Path) -> list[Step]:
    """Run a command, and return what it and its children did below a folder, in order."""
    with tempfile.NamedTemporaryFile("r", encoding="ascii") as trace:
        strace = ["strace", "-f", "-y", "-xx", "-qq", "-s", str(10**8), "-e", "signal=none", "-e", f"trace={TRACED}"]
        subprocess.run([*strace, "-o", trace.name, *command], check=True, capture_output=True)
        return list(_steps(_calls(trace), str(folder)))


def daskfs_command(*arguments: object) -> list[str]:
    """Return the ``daskfs`` command for a process of its own."""
    return [sys.executable, "-m", "daskfs", *map(str, arguments)]


def _calls(lines: Iterator[str]) -> Iterator[tuple[str, str, int]]:
    """Yield name, arguments and result of the calls that succeeded, in the order of their ends."""
    begun: dict[str, str] = {}
    for line in lines:
        found = LINE.match(line)
        if found is None:
            continue
        process, text = found[1], found[2].rstrip("\n")
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>")
            continue
        if text.startswith("<... "):
            text = begun.pop(process, "") + text.partition(" resumed>")[2]
        call = CALL.match(text)
        if call is not None and not call[3].startswith("-"):
            yield call[1], call[2], int(call[3], 0)


def _steps(calls: Iterator[tuple[str, str, int]], folder: str) -> Iterator[Step]:
    places: dict[str, int] = {}  # of the next write, by file
    for name, arguments, result in calls:
        strings = [bytes.fromhex((one[1] or one[2] or "").replace("\\x", "")) for one in STRING.finditer(arguments)]
        if any(one == os.fsencode(folder) or one.startswith(os.fsencode(f"{folder}/")) for one in strings):
            yield from _changes(name, arguments, strings, result, places)


def _changes(name: str, arguments: str, strings: list[bytes], result: int, places: dict[str, int]) -> Iterator[Step]:
    """Yield what a call changed; `strings` are the paths and data among its arguments."""
    last = int(arguments.rsplit(",", 1)[-1]) if re.search(r", \d+$", arguments) else 0
    if name in WRITES:
        path = os.fsdecode(strings[0])
        place = last if name == "pwrite64" else places.get(path, 0)
        yield Step("write", path, number=place, data=strings[-1][:result])
        if name == "write" and place >= 0:
            places[path] = place + result
        return
    paths = list(map(os.fsdecode, strings))
    if name.endswith("at") or name == "renameat2":  # each after its folder
        paths = [str(Path(paths[place]) / paths[place + 1]) for place in range(0, len(paths), 2)]
    if name in OPENS:
        if re.search(r"O_WRONLY|O_RDWR|O_CREAT", arguments):
            places[paths[0]] = -1 if "O_APPEND" in arguments else 0
            yield Step("create", paths[0], number=int("O_TRUNC" in arguments))
    elif name == "lseek":
        places[paths[0]] = min(places.get(paths[0], 0), 0) or result
    elif name in KINDS:
        kind = "rmdir" if "AT_REMOVEDIR" in arguments else KINDS[name]
        yield Step(kind, paths[0], paths[-1], last)
    elif name in ("sendfile", "copy_file_range"):  # of what is not known here
        to = paths[0] if name == "sendfile" else paths[-1]
        yield Step("write", to, number=places.get(to, 0), data=bytes(result))
        places[to] = places.get(to, 0) + result
    elif name != "mmap" or ("PROT_WRITE" in arguments and "MAP_SHARED" in arguments):
        msg = f"{name} of {paths} is not followed"
        raise NotImplementedError(msg)
