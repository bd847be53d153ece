"""Local workers come from a fork server, which has imported what units need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.cluster]

METHODS = """
import os
from daskfs.execution.clusters.forkserver import begin, start_method

if __name__ == "__main__":
    wanted = {"OMP_NUM_THREADS": "1", "MALLOC_TRIM_THRESHOLD_": "12345"}
    before = dict(os.environ)
    begin(wanted)
    found = [start_method(wanted), start_method({**wanted, "OMP_NUM_THREADS": "2"}), start_method(wanted)]
    assert dict(os.environ) == before
    print(*found)
"""


def test_a_process_has_one_environment_for_all_that_it_forks(tmp_path: Path) -> None:
    """Numerical libraries read theirs when they are imported, so workers of another one are spawned."""
    (tmp_path / "methods.py").write_text(METHODS)
    done = subprocess.run([sys.executable, tmp_path / "methods.py"], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (["forkserver", "spawn", "forkserver"], "")
