"""Dask's configuration of a site or a user: files and variables, named where they decide or where they are wrong."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "DASK_"
FOLDERS = ("/etc/dask", "~/.config/dask")
"""Where Dask looks for files, beside the folder that ``DASK_CONFIG`` names and that of the Python environment."""
LONGEST = 200
"""Characters of another library's message that are shown."""
READERS = ("config", "preloading")
"""Modules of Dask that read the configuration, and import what it names."""
PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("dask", "distributed"))


def source_of(key: str) -> str | None:
    """Return the variable or the file that sets a key, such as "jobqueue.slurm.queue"; None if none does."""
    wanted = key.replace("-", "_").lower()
    for name in os.environ:
        if name.startswith(VARIABLE) and name.removeprefix(VARIABLE).replace("__", ".").lower() == wanted:
            return name
    return next((str(path) for path in reversed(list(_files())) if _holds(path, wanted.split("."))), None)


def configured_by() -> str:
    """Return the variables and files that configure Dask here, for a message; empty if there are none."""
    variables = sorted(name for name in os.environ if name.startswith(VARIABLE) and "DASKFS" not in name)
    return ", ".join([*variables, *map(str, _files())])


def explain(error: BaseException) -> str | None:
    """Return a message for an error that Dask's configuration gave rise to; None for any other."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    files = [frame.f_code.co_filename for frame in frames]
    read = any(name.endswith(f"{part}{file}.py") for name in files for part in PACKAGES for file in READERS)
    imported = any(
        frame.f_code.co_name == "<module>" and any(part in name for part in PACKAGES)
        for frame, name in zip(frames, files, strict=True)
    )
    if not (read or imported) or not (named := configured_by()):
        return None
    return f"Dask cannot be configured ({_first_line(error)}): correct what is wrong in {named}."


def root_cause(error: BaseException) -> str:
    """Return the type and first line of the error that an error began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')[:LONGEST]}" if lines else type(error).__name__


def _files() -> Iterator[Path]:
    for folder in (*FOLDERS, os.environ.get("DASK_CONFIG", "")):
        path = Path(folder).expanduser() if folder else None
        if path is not None and path.is_dir():
            found = sorted(path for path in path.iterdir() if path.suffix in (".yaml", ".yml", ".json"))
            yield from (file for file in found if _content(file) is not None)
        elif path is not None and path.is_file():
            yield path


def _content(path: Path) -> Any:
    """Return what a file holds: None if nothing, as those that packages of Dask write; a text if it is broken."""
    import yaml

    try:
        return yaml.safe_load(path.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        return str(error)


def _holds(path: Path, names: list[str]) -> bool:
    found = _content(path)
    for name in names:
        keys = {str(key).replace("-", "_").lower(): key for key in found} if isinstance(found, dict) else {}
        if name not in keys:
            return False
        found = found[keys[name]]
    return True
