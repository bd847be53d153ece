"""The log of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_events(run: Path, event: str = "unit") -> list[dict[str, Any]]:
    """Return the events of one kind in ``events.jsonl`` of a run, in order."""
    events: list[dict[str, Any]] = list(map(json.loads, (run / "events.jsonl").read_text().splitlines()))
    return [one for one in events if one["event"] == event]
