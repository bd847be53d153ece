"""Try what may happen to runs, and print a table of the outcomes.

    python -m tests.torture [--kind corruption] [--number 200] [--seed 0]

The exit code is 1 if a table was wrong, a command stuck, or ended with a traceback; each such trial is printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.torture import corruption, mutants, power, store, surroundings
from tests.torture.trials import FAULTS, OUTCOMES, Trial

KINDS = {
    "corruption": corruption.trials,
    "power": power.trials,
    "store": store.trials,
    "limits": surroundings.limited_trials,
    "clocks": surroundings.clock_trials,
    "sources": surroundings.source_trials,
    "mutants": mutants.trials,
}


def table(found: Sequence[Trial]) -> str:
    """Return the numbers of trials by what was damaged, how, and outcome, as a Markdown table."""
    rows = {(trial.what, ""): 0 for trial in found} | {("", trial.how): 0 for trial in found} | {("all", ""): 0}
    lines = [f"| what | how | tried | {' | '.join(OUTCOMES)} |", "| --- " * (len(OUTCOMES) + 3) + "|"]
    for what, how in sorted(rows):
        those = [trial for trial in found if what in (trial.what, "all") or how == trial.how]
        counts = Counter(trial.outcome for trial in those)
        lines.append(f"| {what} | {how} | {len(those)} | {' | '.join(str(counts[one]) for one in OUTCOMES)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the trials, and print their table."""
    parser = argparse.ArgumentParser(description="Try what may happen to runs.")
    parser.add_argument("--kind", choices=KINDS, default="corruption")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for place, trial in enumerate(KINDS[options.kind](Path(folder), options.number, options.seed)):
            found.append(trial)
            if trial.outcome in FAULTS:
                print(f"trial {place} of seed {options.seed}: {trial.run}: {trial.outcome}: {trial.detail}", flush=True)
    print(table(found))
    return int(any(trial.outcome in FAULTS for trial in found))


if __name__ == "__main__":
    sys.exit(main())
