"""Which lines and branches do tests reach?

    python -m tests.coverage -m "not platforms and not shared_data" [OTHER OPTIONS OF PYTEST]

Runs the tests and prints the share of lines and branches by folder, then the lines of functions that nothing reached.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def by_folder(files: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the counts of each folder, and of all under an empty name."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * len(COUNTS))
    for name, file in files.items():
        for folder in (str(Path(name).parent), ""):
            counts[folder] = [n + file["summary"][key] for n, key in zip(counts[folder], COUNTS, strict=True)]
    return counts


def unreached(files: Mapping[str, Any]) -> list[str]:
    """Return the functions of which no line ran."""
    return [
        f"{name}:{function['missing_lines'][0]} {called}"
        for name, file in sorted(files.items())
        for called, function in sorted(file.get("functions", {}).items())
        if called and function["summary"]["covered_lines"] == 0 < function["summary"]["num_statements"]
    ]


def main(options: Sequence[str]) -> int:
    """Run the tests, print, and return the exit code of pytest."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "--cov", "--cov-report", f"json:{report}", *options], check=False
        )
        files = json.loads(report.read_text())["files"]
    for name, (lines, n_lines, branches, n_branches) in sorted(by_folder(files).items()):
        shares = lines / max(n_lines, 1), branches / max(n_branches, 1)
        print("{:7.1%} of lines {:7.1%} of branches".format(*shares), f"{n_lines:6} lines", name or "in all")
    print(*unreached(files), sep="\n")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
