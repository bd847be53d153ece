"""What every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest


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
