"""Make the pages of a clone those of a release: ``python -m tests.release`` changes the working tree.

In a clone, ``pip install .`` is the line that works, and links of the README lead to files; in a release, it is ``pip
install daskfs``, and links are the addresses of rendered pages, below that of the documentation in ``pyproject.toml``.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGED = ("README.md", "docs/index.md", "docs/start/index.md")
CLONE = "in a clone of the repository"


def address() -> str:
    """Return the address below which files of the repository are rendered."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return str(urls["Documentation"]).removesuffix("/docs/index.md")


def released(name: str, text: str) -> str:
    """Return the text of a file of :data:`CHANGED` for a release; that of a released one is the same."""
    text = text.replace(f"`pip install .` {CLONE}", "`pip install daskfs`")
    text = text.replace(f"pip install .  # {CLONE}", "pip install daskfs")
    text = re.sub(r"'\.\[(?!test\])", "'daskfs[", text)
    if name != "README.md":
        return text
    text = re.sub(r"\]\((?!http)([^)]+\.png)\)", rf"]({address()}/\1?raw=true)", text)
    return re.sub(r"\]\((?!http)([^)]+)\)", rf"]({address()}/\1)", text)


def main() -> None:
    """Write the files of a release."""
    for name in CHANGED:
        path = ROOT / name
        path.write_text(released(name, path.read_text()))


if __name__ == "__main__":
    main()
