"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# machines are shared and noisy: no deadline; and CI judges a change by the same examples every time
settings.register_profile("daskfs", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("daskfs")

# SciPy reads it when it is first imported; without it scikit-learn skips its array-API check of estimators
os.environ.setdefault("SCIPY_ARRAY_API", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--shared-data", default=None, help="Folder with the real data sets (.npz) of tests marked shared_data."
    )


@pytest.fixture
def shared_data(request: pytest.FixtureRequest) -> Path:
    """Folder with real data sets, given by ``--shared-data``."""
    folder = request.config.getoption("--shared-data")
    if folder is None:
        pytest.skip("no --shared-data FOLDER given")
    return Path(folder)
