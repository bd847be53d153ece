"""Clusters that exist already: by address and by scheduler file, several runs at once, labels given from Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import dask.array as da
import numpy as np
import pytest
from distributed import Client

import daskfs
from daskfs import FisherScore, LaplacianScore
from daskfs.errors import ClusterError
from daskfs.execution.pool import Pool
from tests.cases import case
from tests.execution.runs import command, local_client, local_cluster, run, run_here, write_job

pytestmark = pytest.mark.cluster

SOURCE = "synthetic:mixture?n_samples=6000&n_features=64&n_classes=3&n_informative=8&seed=2"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with local_client(2) as client:
        yield client


def joined(folder: Path, client: Client, **cluster: object) -> Path:
    methods = ["LaplacianScore", "FisherScore"]
    where = {"address": client.scheduler.address, **cluster}
    return write_job(folder, SOURCE, methods=methods, cluster=where, evaluate={"n_selected": [4], "max_samples": 500})


@pytest.mark.long
def test_two_runs_on_one_scheduler_keep_apart(client: Client, tmp_path: Path) -> None:
    jobs = [joined(tmp_path / name, client) for name in ("a", "b")]
    processes = [
        subprocess.Popen(command("run", job, "-q"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for job in jobs
    ]
    for process in processes:
        _, errors = process.communicate(timeout=200)
        assert process.returncode == 0, errors
    run_here(write_job(tmp_path / "c", SOURCE, methods=["LaplacianScore", "FisherScore"], evaluate=None))
    rankings = {(tmp_path / name / "run/ranking.csv").read_bytes() for name in "abc"}
    assert len(rankings) == 1


@pytest.mark.long
def test_scheduler_file_and_a_new_plan_in_the_same_place(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": client.scheduler.address}))
    job = joined(tmp_path, client)
    first = run(job, "--set", "cluster.address=null", "--set", f"cluster.scheduler_file={file}")
    ranking = (tmp_path / "run/ranking.csv").read_bytes()
    again = run(job, "--overwrite", "--set", "cluster.memory_limit=700MiB")
    assert again["recomputed"].keys() == first["recomputed"].keys()
    assert (tmp_path / "run/ranking.csv").read_bytes() == ranking


def test_labels_given_to_an_estimator_reach_the_workers(client: Client, tmp_path: Path) -> None:
    assert client.nthreads()
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((300, 7)), generator.integers(0, 3, 300)
    np.savez(tmp_path / "X.npz", X=X, y=1 - y % 2)
    path = str(tmp_path / "X.npz")
    np.testing.assert_allclose(FisherScore().fit(path, y).scores_, FisherScore().fit(X, y).scores_, rtol=1e-12)
    np.testing.assert_allclose(LaplacianScore().fit(path).scores_, LaplacianScore().fit(X).scores_, rtol=1e-12)


def test_workers_are_listed_while_the_client_refreshes(two_workers: str) -> None:
    """At intervals a client takes the scheduler's identity without workers: here after each of its calls."""
    sync = Client.sync

    def refreshing(client: Client, *arguments: Any, **options: Any) -> Any:
        answer = sync(client, *arguments, **options)
        sync(client, client._update_scheduler_info)
        return answer

    with Client(two_workers) as client, mock.patch.object(Client, "sync", refreshing):
        assert len(Pool(client).identities()) == 2


CALLS: dict[str, Any] = {
    "run": lambda folder, client, _: daskfs.run(write_job(folder, SOURCE), client=client),
    "run with data": lambda folder, client, X: daskfs.run(write_job(folder, SOURCE), data=X, client=client),
    "rank": lambda _, client, X: daskfs.rank(X, client=client),
    "rank in memory": lambda _, client, X: daskfs.rank(X.compute(scheduler="sync"), client=client),
    "knn_graph": lambda _, client, X: daskfs.knn_graph(X, client=client),
    "correlations": lambda _, client, X: daskfs.distance_correlation_matrix(X, client=client),
    "evaluate": lambda _, client, X: daskfs.evaluate_selectors(FisherScore(), X, np.arange(60) % 2, client=client),
    "fit": lambda _, client, X: call_with(client, lambda: LaplacianScore().fit(X)),
}


def call_with(client: Client, call: Any) -> None:
    with client.as_current():
        call()


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_client_that_reaches_no_scheduler(tmp_path: Path, *, is_closed: bool) -> None:
    X = da.from_array(np.random.default_rng(0).normal(size=(60, 4)), chunks=(30, 4))
    with local_cluster(1) as cluster:
        client = Client(cluster.scheduler_address, timeout=3, set_as_default=False)
        if is_closed:
            client.close()
    message = "the client is closed: make a new one" if is_closed else "the (client is closed|scheduler went away)"
    with closing(client):
        for name, call in CALLS.items():
            if not (is_closed and name == "fit"):  # a closed client is no current one
                with case(name), pytest.raises(ClusterError, match=message):
                    call(tmp_path, client, X)
