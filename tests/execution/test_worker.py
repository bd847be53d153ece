"""What worker processes set up."""

from __future__ import annotations

import sys

import pytest
from distributed import Client, LocalCluster

from daskfs.execution.worker import warmed


def is_imported(module: str) -> bool:
    return module in sys.modules


@pytest.mark.cluster
def test_what_a_warm_up_needs_is_imported_before_any_unit() -> None:
    """In workers that are there, and in those that come later."""
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        assert client.run(is_imported, "turtledemo") == dict.fromkeys(client.scheduler_info()["workers"], False)
        with warmed(client, "operator:neg", 1, "turtledemo"):
            assert set(client.run(is_imported, "turtledemo").values()) == {True}
            cluster.scale(2)
            client.wait_for_workers(2)
            assert list(client.run(is_imported, "turtledemo").values()) == [True, True]
