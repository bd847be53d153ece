"""Some trials of each kind, by a fixed seed: no wrong table, nothing stuck, no traceback, no misleading message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.torture.__main__ import KINDS
from tests.torture.trials import FAULTS

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]
NUMBERS = {"corruption": 70, "power": 40, "store": 6, "limits": 9, "clocks": 6, "sources": 18, "mutants": 400}
NEEDS = {"power": "strace", "clocks": "faketime"}


@pytest.mark.parametrize("kind", KINDS)
def test_no_trial_ends_badly(tmp_path: Path, kind: str) -> None:
    if kind in NEEDS and shutil.which(NEEDS[kind]) is None:
        pytest.skip(f"{NEEDS[kind]} is not installed")
    found = list(KINDS[kind](tmp_path, NUMBERS[kind], 1))
    assert [trial for trial in found if trial.outcome in FAULTS] == []
    assert {"same", "told", "made again"} & {trial.outcome for trial in found}
