"""Runs that nothing changes."""

from __future__ import annotations

import pytest

from tests.export.runs import Ranked, dense_run, sparse_run


@pytest.fixture(scope="package")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Ranked:
    return dense_run(tmp_path_factory.mktemp("dense"))


@pytest.fixture(scope="package")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Ranked:
    return sparse_run(tmp_path_factory.mktemp("sparse"))


@pytest.fixture(params=["dense", "sparse"])
def ranked(request: pytest.FixtureRequest) -> Ranked:
    found: Ranked = request.getfixturevalue(request.param)
    return found
