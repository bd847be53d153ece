"""Files and variables of a site or a user that configure Dask, for messages about them."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

CONFIGURATION_FOLDERS = (os.environ.get("DASK_ROOT_CONFIG", "/etc/dask"), f"{sys.prefix}/etc/dask", "~/.config/dask")
"""Where Dask looks for files, beside the path that ``DASK_CONFIG`` names."""
CONFIGURATION_READERS = ("config", "preloading")
"""Modules of Dask that read the configuration, and import what it names."""
PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("dask", "distributed"))
MESSAGE_CHARACTERS = 200
"""Characters of another library's message that are shown."""


def configured_by() -> str:
    """Return the variables and files that configure Dask here, for a message; empty if there are none."""
    folders = [Path(name).expanduser() for name in (*CONFIGURATION_FOLDERS, os.environ.get("DASK_CONFIG", "")) if name]
    files = [path for folder in folders for path in ([folder] if folder.is_file() else sorted(folder.glob("*.y*ml")))]
    variables = sorted(name for name in os.environ if name.startswith("DASK_") and "DASKFS" not in name)
    return ", ".join([*variables, *(str(path) for path in files if not _is_comment(path))])


def _is_comment(path: Path) -> bool:
    """Return whether a file sets nothing, as those that packages of Dask write."""
    lines = path.read_text(errors="replace").splitlines() if os.access(path, os.R_OK) else ["?"]
    return all(not line.strip() or line.startswith("#") for line in lines)


def explain(error: BaseException) -> str | None:
    """Return a message for an error that Dask's configuration gave rise to; None for any other."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    places = [f"{part}{file}.py" for part in PACKAGES for file in CONFIGURATION_READERS]
    read = any(code.co_filename.endswith(place) for code in codes for place in places)
    imported = any(code.co_name == "<module>" and part in code.co_filename for code in codes for part in PACKAGES)
    is_incomplete = isinstance(error, ImportError) and not read  # a package that Dask needs is missing
    if is_incomplete or not (read or imported) or not (named := configured_by()):
        return None
    return f"Dask cannot be configured ({_first_line(error)}): correct what is wrong in {named}."


def root_cause(error: BaseException) -> str:
    """Return the type and first line of the error that an error began with."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0].rstrip('.')[:MESSAGE_CHARACTERS]}"
