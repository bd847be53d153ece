"""Run a command while other processes keep every core busy, and end with its exit code.

    python -m tests.load python -m pytest

What passes on a quiet machine only is told apart so.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence


def spin() -> None:
    """Compute until this process is ended."""
    while True:
        sum(range(100_000))


def main(command: Sequence[str]) -> int:
    """Run the command."""
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    context = multiprocessing.get_context("spawn")
    others = [context.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for other in others:
        other.start()
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        for other in others:
            other.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
