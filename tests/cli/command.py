"""Calling the ``daskfs`` command in this process, on data small enough that no cluster starts."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import typer
import yaml

from daskfs.cli import run_command_line

N_SAMPLES, N_FEATURES = 30, 4

# Typer builds all commands from their functions at each call, which a process makes once
BUILT = mock.patch.object(typer.main, "get_command", functools.cache(typer.main.get_command))


@dataclass(frozen=True)
class Outcome:
    """What one call left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON object on stdout."""
        return json.loads(self.out)


def daskfs(*arguments: object) -> Outcome:
    """Call the command; warnings and unexpected errors fail the test that called it."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["daskfs", *(str(argument) for argument in arguments)]
    code = 0
    called = mock.patch.object(sys, "argv", argv)
    with BUILT, called, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run_command_line()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


TRUST = ("verdict: ", "feature ", "copies of rows")
"""Beginnings of warnings about data, which tests/report/test_trust.py is about; small data sets give rise to some."""
KINDS_OF_TRUST = (
    "leak: ",
    "no better than random",
    "copies of",
    "few labels",
    "names twice",
    "classes or target",
    "largest size",
    "sizes not evaluated",
)
"""Beginnings of the kinds of warnings and hints about data and the sizes that were tried."""


def but_trust(warnings: list[dict[str, Any]]) -> list[str]:
    """Return the texts of the warnings of a run that are not about how far data can be trusted."""
    return [one["text"] for one in warnings if not one["kind"].startswith(KINDS_OF_TRUST)]


def texts(result: Mapping[str, Any]) -> list[str]:
    """Return the texts of all warnings of a run."""
    return [one["text"] for one in result["warnings"]]


def told(outcome: Outcome) -> str:
    """Return what a call left on stderr, without such warnings."""
    passed = tuple(f"daskfs: warning: {beginning}" for beginning in TRUST)
    return "".join(line for line in outcome.err.splitlines(keepends=True) if not line.startswith(passed))


def matrix() -> np.ndarray:
    """Return X, shape (30, 4), with zeros, float64; feature 3 is constant."""
    rng = np.random.default_rng(5)
    X = rng.integers(-32, 33, size=(N_SAMPLES, N_FEATURES)) / 8
    X[:, 1] += labels()
    X[rng.random(X.shape) < 0.2] = 0
    X[:, 3] = 2.5
    return X


def labels() -> np.ndarray:
    """Return classes, shape (30,)."""
    return np.arange(N_SAMPLES) % 3


def basic_job(folder: Path, **blocks: Any) -> dict[str, Any]:
    """Write X.npy and y.npy, and return a job on them that runs in this process, without evaluation."""
    np.save(folder / "X.npy", matrix())
    np.save(folder / "y.npy", labels())
    job = {
        "data": {"source": str(folder / "X.npy"), "labels": str(folder / "y.npy")},
        "methods": ["VarianceScore", "FisherScore"],
        "evaluate": None,
        "cluster": {"workers": 0},
        "output": {"path": str(folder / "run")},
    }
    return {**job, **blocks}


def write_job(folder: Path, job: dict[str, Any]) -> Path:
    """Write a job file."""
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(job, allow_unicode=True), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file, every cell as text."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refused(outcome: Outcome, code: int, *parts: str) -> None:
    """Check that a call ended with an exit code and one line on stderr that holds `parts`, and nothing on stdout."""
    assert outcome.err.startswith("daskfs: "), outcome.err
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.endswith("\n")
    assert [part for part in parts if part not in outcome.err] == [], outcome.err
    assert (outcome.code, outcome.out) == (code, "")
