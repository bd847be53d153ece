"""A hundred corruptions of runs, by a fixed seed: no wrong table, nothing stuck, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.corruption import FAULTS, OUTCOMES, trials

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]


def test_no_corruption_gives_a_wrong_table(tmp_path: Path) -> None:
    found = list(trials(tmp_path, 100, 1))
    assert [trial for trial in found if trial.outcome in FAULTS] == []
    assert {trial.outcome for trial in found} == {*OUTCOMES} - {*FAULTS}
