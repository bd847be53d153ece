"""Warnings of daskfs are errors in every run of the tests, and those of libraries where DASKFS_WARNINGS=error."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from daskfs.errors import DaskfsWarning
from tests.test_architecture import PACKAGE, module_of, tree_of

WARN = {"warn", "warnings.warn", "warn_explicit", "warnings.warn_explicit"}
TESTS = """
import warnings
import pytest
from daskfs.errors import DaskfsFutureWarning, DaskfsWarning
from daskfs.estimators.rescaled import DaskfsConvergenceWarning

@pytest.mark.parametrize("category", [DeprecationWarning, FutureWarning, RuntimeWarning, UserWarning])
def test_library(category):
    warnings.warn("of a library", category, stacklevel=1)

@pytest.mark.parametrize("category", [DaskfsConvergenceWarning, DaskfsFutureWarning, DaskfsWarning])
def test_daskfs(category):
    warnings.warn("of daskfs", category, stacklevel=1)

def test_exception():
    warnings.warn("The 'mode.chained_assignment' option is deprecated", DeprecationWarning, stacklevel=1)
"""


def test_daskfs_issues_warnings_of_its_own_categories() -> None:
    """The filter of pyproject.toml goes by category: a module would select those of libraries that it calls, too."""
    issued = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in WARN:
                name = ast.unparse(node.args[1]) if len(node.args) > 1 else "UserWarning"
                category = getattr(import_module(f"daskfs.{module_of(path)}"), name, None)
                assert category is not None, f"{path}:{node.lineno} issues a {name}"
                assert issubclass(category, DaskfsWarning), f"{path}:{node.lineno} issues a {name}"
                issued.add(name)
    assert {"DaskfsWarning", "DaskfsConvergenceWarning"} <= issued


@pytest.mark.cluster
@pytest.mark.parametrize(("action", "outcomes"), [("", "3 failed, 5 passed"), ("error", "7 failed, 1 passed")])
def test_warnings_of_libraries_are_errors_on_demand(action: str, outcomes: str, tmp_path: Path) -> None:
    (tmp_path / "test_categories.py").write_text(TESTS)
    options = ["-c", "pyproject.toml", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0"]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONWARN"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path / "test_categories.py")],
        cwd=PACKAGE.parent,
        env={**inherited, "DASKFS_WARNINGS": action},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcomes in done.stdout, done.stdout + done.stderr
