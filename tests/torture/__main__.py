"""Try many corruptions, and print a table of their outcomes.

    python -m tests.torture [--number 200] [--seed 0]

The exit code is 1 if a table was wrong, a command stuck, or ended with a traceback; each such trial is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.torture.corruption import FAULTS, FILES, OUTCOMES, Trial, trials


def table(found: Iterable[Trial]) -> str:
    """Return the numbers of trials by kind of file and outcome, as a Markdown table."""
    counts = Counter((trial.file, trial.outcome) for trial in found)
    lines = [f"| file | tried | {' | '.join(OUTCOMES)} |", "| --- " * (len(OUTCOMES) + 2) + "|"]
    for file in (*FILES, "all"):
        numbers = [sum(n for (kind, one), n in counts.items() if file in (kind, "all") and one == o) for o in OUTCOMES]
        lines.append(f"| {file} | {sum(numbers)} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines)


def main() -> int:
    """Run the trials, and print their table."""
    parser = argparse.ArgumentParser(description="Corrupt files of runs, and see what becomes of them.")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for place, trial in enumerate(trials(Path(folder), options.number, options.seed)):
            found.append(trial)
            if trial.outcome in FAULTS:
                print(
                    f"trial {place} of seed {options.seed}: {trial.run}, {trial.state}: {trial.outcome}: {trial.detail}"
                )
    print(table(found))
    return int(any(trial.outcome in FAULTS for trial in found))


if __name__ == "__main__":
    sys.exit(main())
