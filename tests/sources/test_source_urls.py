"""Sources at URLs, read from a server that speaks S3: jobs give what they give on files, and changes are found."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread, get_ident
from typing import Any
from unittest import mock
from urllib.request import Request, urlopen

import numpy as np
import pytest
import yaml
from sklearn.datasets import load_iris

from daskfs import LaplacianScore, VarianceScore, knn_graph, load_job
from daskfs import storage as places
from daskfs.execution.progress import Silent
from daskfs.runs.pipeline import run_job
from daskfs.sources.hdf5 import open_file
from daskfs.stages.stage import Stage
from daskfs.storage import ObjectPath, as_path, clients, objects
from tests.cli.command import basic_job, daskfs, labels, matrix, refused, write_job
from tests.cli.test_given import MATRICES, saved
from tests.execution.runs import recorded
from tests.optional import h5py
from tests.storage.server import KEY, environment, object_server, reach

from .writers import KINDS

pytestmark = pytest.mark.platforms

USAGE, INPUT = 2, 3


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with object_server() as url:
        yield url


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectPath:
    """A place in a bucket for this test alone, which the environment says how to reach."""
    reach(monkeypatch, server)
    return as_path("s3://data") / tmp_path.name  # type: ignore[return-value]


@pytest.fixture(autouse=True, scope="module")
def no_report() -> Iterator[None]:
    """Leave out the plots, which take most of the time of so small a run."""
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        yield


def upload(folder: Path, bucket: ObjectPath) -> None:
    """Put what lies in a folder there."""
    for path in folder.rglob("*"):
        if path.is_file():
            (bucket / path.relative_to(folder).as_posix()).write_bytes(path.read_bytes())


def finished(folder: Path, name: str, **blocks: Any) -> bytes:
    """Run a job in this process, and return its ranking."""
    raw = {"evaluate": None, "cluster": {"workers": 0}, "output": {"path": str(folder / name)}, **blocks}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(raw))
    outcome = daskfs("run", path, "-q")
    assert outcome.code == 0, outcome.err
    return (folder / name / "ranking.csv").read_bytes()


# ------------------------------------------------------------------------------------------------------- what is read
IN_JOBS = ("npy-fortran", "npz-deflated", "csr-parts", "csv", "parquet", "zarr2", "zarr3-shards", "zarr-array")
"""The other kinds are read in the same ways; that all give the values of files is in the contract."""


@pytest.mark.parametrize("name", IN_JOBS)
def test_rankings_are_those_of_files(name: str, bucket: ObjectPath, tmp_path: Path) -> None:
    kind, methods = KINDS[name], [{"name": "LaplacianScore", "n_neighbors": 4}, "FisherScore"]
    folder = tmp_path / "here"
    folder.mkdir()
    X, y = load_iris(return_X_y=True)
    file = kind.write(folder, np.column_stack([X, X[:, 0] ** 2]), y)
    upload(folder, bucket)
    found = list[Any]()
    for root in (as_path(folder), bucket):
        spec = kind.fields(root)
        spec["exclude"] = list(spec.get("exclude", ()))
        data = {"source": str(root / file), **spec}
        found.append(finished(tmp_path, f"run{len(found)}", data=data, methods=methods, graph={"n_neighbors": 4}))
    assert found[0] == found[1]


def test_a_zarr_array_is_used_where_it_lies(bucket: ObjectPath, tmp_path: Path) -> None:
    file = KINDS["zarr3"].write(tmp_path, matrix()[:, :3], labels())
    upload(tmp_path / file, bucket / file)
    finished(tmp_path, "run", data={"source": str(bucket / file)}, methods=["VarianceScore"])
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["in_place"] == str(bucket / file / "X")
    assert not (tmp_path / "run" / "tiles" / "X").exists()


@pytest.mark.parametrize("name", ["labels", "weights", "groups", "times"])
@pytest.mark.parametrize("ending", ["npy", "csv", "txt"])
def test_separate_files(name: str, ending: str, bucket: ObjectPath, tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["FisherScore"])
    values = np.arange(30) % 3 + 1
    if ending == "npy":
        np.save(tmp_path / "separate.npy", values)
    else:
        header = "value\n" if ending == "csv" else ""
        (tmp_path / f"separate.{ending}").write_text(header + "\n".join(map(str, values)))
    upload(tmp_path, bucket)
    outcomes = []
    for root in (tmp_path, bucket):
        job["data"][name] = str(root / f"separate.{ending}")
        outcomes.append(daskfs("inspect", job["data"]["source"], f"--{name}", job["data"][name], "--json").json)
        assert outcomes[-1].pop("next").endswith(f"--{name}={job['data'][name]}")
    assert outcomes[0] == outcomes[1]


def test_groups_of_features_and_the_job_file(bucket: ObjectPath, tmp_path: Path) -> None:
    (tmp_path / "groups.csv").write_text("feature,group\nx0,g\nx1,g\n")
    upload(tmp_path, bucket)
    redundancy = {"measure": None, "groups": str(bucket / "groups.csv"), "max_per_group": 1}
    job = basic_job(tmp_path, select={"n_features": 2, "redundancy": redundancy})
    (bucket / "job.yaml").write_bytes(yaml.safe_dump(job).encode())
    outcome = daskfs("run", bucket / "job.yaml", "-q")
    assert outcome.code == 0, outcome.err
    assert "g" in (tmp_path / "run" / "dropped_features.csv").read_text()


@pytest.mark.parametrize("form", ["lists", *MATRICES])
def test_graphs(form: str, bucket: ObjectPath, tmp_path: Path) -> None:
    folder = tmp_path / "graph"
    folder.mkdir()
    path = saved(folder) if form == "lists" else MATRICES[form](folder)
    upload(folder, bucket)
    url = bucket / path.relative_to(folder).as_posix()
    blocks = {**basic_job(tmp_path, methods=["LaplacianScore"]), "output": None}
    del blocks["output"]
    local = finished(tmp_path, "here", **blocks, graph={"precomputed": str(path)})
    assert finished(tmp_path, "there", **blocks, graph={"precomputed": str(url)}) == local
    file = bucket / "file.h5ad" if form == "h5ad" else url
    again(next(path for path, _ in file.objects() if path.name == "0") if file.is_dir() else file)
    refused(daskfs("run", tmp_path / "there.yaml", "-q"), INPUT, str(url))


def test_from_python(bucket: ObjectPath, tmp_path: Path) -> None:
    X = np.random.default_rng(1).normal(size=(200, 6))
    np.save(tmp_path / "X.npy", X)
    upload(tmp_path, bucket)
    url = str(bucket / "X.npy")
    graph = knn_graph(url, 5)
    np.testing.assert_array_equal(graph.indices, knn_graph(X, 5).indices)
    graph.save(str(bucket / "lists"))
    mine = LaplacianScore(n_neighbors=5, graph=str(bucket / "lists")).fit(url).scores_
    np.testing.assert_array_equal(mine, LaplacianScore(n_neighbors=5).fit(str(tmp_path / "X.npy")).scores_)
    with pytest.raises(FileExistsError, match="exists"):
        graph.save(str(bucket / "lists"))


# ----------------------------------------------------------------------------------------------------------- storage
@pytest.mark.cluster
def test_a_job_says_how_its_bucket_is_reached(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are told as well; and where the bucket is reached from is no part of what the run is."""
    for name, value in environment(server).items():
        if name.endswith(("_ID", "_KEY")):
            monkeypatch.setenv(name, value)
    job = basic_job(tmp_path, cluster={"workers": 1, "memory_limit": "1GiB"})
    storage = {"s3://data": {"endpoint": server, "region": "us-east-1"}}
    with places.reached_by({"s3://data": places.Access(server, "us-east-1")}):
        (as_path("s3://data") / "own/X.npy").write_bytes((tmp_path / "X.npy").read_bytes())
    job["data"]["source"] = "s3://data/own/X.npy"
    path = write_job(tmp_path, {**job, "storage": storage})
    outcome = daskfs("run", path, "-q")
    assert outcome.code == 0, outcome.err
    assert places.configured() == {}
    moved = {"s3://data": {"endpoint": server.replace("127.0.0.1", "localhost"), "region": "eu-central-1"}}
    outcome = daskfs("run", write_job(tmp_path, {**job, "storage": moved}), "-q", "--json")
    assert outcome.json["recomputed"] == {}
    assert daskfs("plan", path, "--json").code == 0


def test_public_data_need_no_credentials(
    server: str, bucket: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job says so, or the environment."""
    job = basic_job(tmp_path, data={"source": str(bucket / "X.npy")}, methods=["VarianceScore"])
    upload(tmp_path, bucket)
    url = f"{server}/data/{(bucket / 'X.npy').key}?acl"
    signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}
    urlopen(Request(url, method="PUT", headers={"x-amz-acl": "public-read", **signed}), timeout=30).close()
    for name in environment(server):
        monkeypatch.delenv(name)
    job["storage"] = {"s3://data": {"endpoint": server, "region": "us-east-1", "anonymous": True}}
    assert daskfs("plan", write_job(tmp_path, job)).code == 0
    reach(monkeypatch, server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert daskfs("inspect", bucket / "X.npy").code == 0


# ----------------------------------------------------------------------------------------------------------- changes
def again(path: ObjectPath) -> None:
    """Put the same bytes there once more, but for one: the time that the server keeps is that of a second."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def in_bands(folder: Path, bucket: ObjectPath, name: str) -> Path:
    """Write a job on a source of several bands."""
    X = np.random.default_rng(0).normal(size=(30_000, 20))
    if name == "zarr":
        import zarr

        zarr.create_array(store=str(folder / "X.zarr"), data=X, chunks=(8192, 20))
    else:
        np.save(folder / "X.npy", X)
    upload(folder, bucket)
    job = basic_job(folder, methods=["VarianceScore"])
    job["data"] = {"source": str(bucket / f"X.{name}")}
    return write_job(folder, job)


@pytest.mark.parametrize("name", ["npy", "zarr"])
def test_a_source_that_changes(name: str, bucket: ObjectPath, tmp_path: Path) -> None:
    """While it is read, by name, and nothing of the new state is recorded; then the run starts over, as none of the
    two states was scored.
    """
    job = in_bands(tmp_path, bucket, name)
    changing = bucket / ("X.npy" if name == "npy" else "X.zarr/c/3/0")

    class Change(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: Any) -> None:
            del facts
            if (stage.name, unit) == ("ingest", 0):
                again(changing)

    with pytest.raises(ValueError, match=rf"{bucket}/X.{name} changed after its reading was planned"):
        run_job(load_job(job), Change())
    assert list(recorded(tmp_path / "run/tiles", "ingest")) == [0]
    assert daskfs("run", job, "-q").code == 0


def test_a_source_that_goes_away(bucket: ObjectPath, tmp_path: Path) -> None:
    job = in_bands(tmp_path, bucket, "npy")

    class Change(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: Any) -> None:
            del facts
            if (stage.name, unit) == ("ingest", 0):
                (bucket / "X.npy").unlink()

    with pytest.raises(ValueError, match=r"X.npy went away after its reading was planned"):
        run_job(load_job(job), Change())


# ------------------------------------------------------------------------------------------------- what is not there
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "no object": ("s3://data/none.npy", ("s3://data/none.npy does not exist",)),
    "no bucket": ("s3://nobody/X.npy", ("s3://nobody/X.npy", "there is no such bucket")),
    "folder": ("s3://data/folder", ("s3://data/folder stands for .csv and .parquet files",)),
    "bucket": ("s3://data", ("s3://data is a directory without zarr.json",)),
    "no name": ("s3://", ("s3:// names no bucket: write s3://BUCKET/NAME",)),
    "outside": ("s3://data/../X.npy", ("holds '..'",)),
    "http": ("http://127.0.0.1/X.npy", ("http://127.0.0.1/X.npy is no path", "s3://, gs://, az://")),
    "ending": ("s3://data/folder/x.mat", ("unknown ending '.mat'",)),
    "text": ("s3://data/folder/text.npy", ("text.npy is truncated or not in .npy format",)),
    "damaged archive": ("s3://data/folder/text.npz", ("text.npz is truncated or not an .npz file",)),
    "damaged table": ("s3://data/folder/text.parquet", ("text.parquet is truncated or not a Parquet file",)),
    "empty table": ("s3://data/folder/empty.csv", ("empty.csv is empty",)),
    "account": ("az://container/X.npy", ("az://container", "AZURE_STORAGE_ACCOUNT_NAME")),
    "secret": ("s3://me:secret@data/X.npy", ("credentials belong in the environment",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reach(monkeypatch, server)
    folder = ObjectPath("s3://data", "folder")
    for name in ("x.mat", "text.npy", "text.npz", "text.parquet"):
        (folder / name).write_bytes(b"some text, and no data in any format" * 3)
    (folder / "empty.csv").write_bytes(b"")
    source, parts = REFUSED[case]
    outcome = daskfs("inspect", source)
    assert outcome.code == (USAGE if case == "secret" else INPUT)
    refused(outcome, outcome.code, *parts)
    assert "secret" not in outcome.err


@pytest.mark.parametrize("key", ["labels", "feature-names"])
@pytest.mark.parametrize("url", ["s3://data/none.txt", "https://host/none.txt"])
def test_no_such_separate_file(
    key: str, url: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach(monkeypatch, server)
    basic_job(tmp_path)
    hint = ("URLs begin with s3://",) if url.startswith("https") else ()
    refused(daskfs("inspect", tmp_path / "X.npy", f"--{key}", url), INPUT, url, "no such file", *hint)


def test_no_such_job_file(bucket: ObjectPath) -> None:
    refused(
        daskfs("run", bucket / "none.yaml"), USAGE, f"cannot read the job file {bucket}/none.yaml: there is no such"
    )
    refused(daskfs("run", "s3://"), USAGE, "s3:// names no bucket")


class _Denying(BaseHTTPRequestHandler):
    def _deny(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = _deny  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


def test_access_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denying) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        reach(monkeypatch, f"http://127.0.0.1:{server.server_port}")
        refused(daskfs("inspect", "s3://denied/X.npy"), INPUT, "s3://denied/X.npy", "access is denied")
        basic_job(tmp_path)
        outcome = daskfs("inspect", tmp_path / "X.npy", "--labels", "s3://denied/y.npy")
        refused(outcome, INPUT, "s3://denied/y.npy cannot be read: access is denied")
        server.shutdown()


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    reach(monkeypatch, "http://127.0.0.1:1")
    monkeypatch.setitem(clients.RETRIES, "max_retries", 2)
    outcome = daskfs("inspect", "s3://lonely/X.npy")
    refused(outcome, INPUT, "s3://lonely/X.npy/tiles.json cannot be read", "is its endpoint")


def test_without_obstore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    refused(daskfs("inspect", "s3://data/X.npy"), INPUT, "s3://data/X.npy", "pip install 'daskfs[object]'")
    with pytest.raises(ValueError, match=r"daskfs\[object\]"):
        VarianceScore().fit("s3://data/X.npy")


# ------------------------------------------------------------------------------------------------------- how it reads
def test_objects_are_read_in_parts(bucket: ObjectPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing asks for more of an object than it needs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from daskfs.sources import SourceSpec, open_source

    X = np.random.default_rng(0).normal(size=(40_000, 16))
    np.save(tmp_path / "X.npy", X)
    np.savez(tmp_path / "X.npz", X=X)
    pq.write_table(
        pa.table({f"x{i}": column for i, column in enumerate(X.T)}), tmp_path / "X.parquet", row_group_size=4000
    )
    np.savetxt(tmp_path / "X.csv", X, delimiter=",", header=",".join(f"x{i}" for i in range(16)), comments="")
    upload(tmp_path, bucket)
    monkeypatch.setattr("daskfs.sources.csv_table.RANGE_BYTES", 2**19)
    asked: list[int] = []
    real: Callable[..., memoryview] = ObjectPath.read_range

    def counted(self: ObjectPath, start: int, stop: int) -> memoryview:
        asked.append(stop - start)
        return real(self, start, stop)

    monkeypatch.setattr(ObjectPath, "read_range", counted)
    monkeypatch.setattr(ObjectPath, "read_buffer", lambda self: pytest.fail(f"{self} was read whole"))
    for ending in ("npy", "npz", "parquet", "csv"):
        source = open_source(SourceSpec(source=str(bucket / f"X.{ending}")))
        asked.clear()
        np.testing.assert_allclose(source.read_rows(20_000, 20_100), X[20_000:20_100], rtol=1e-12)
        assert 0 < sum(asked) < (bucket / f"X.{ending}").stat().st_size / 5, ending


def test_hdf5_is_read_in_the_thread_that_holds_its_lock(bucket: ObjectPath, tmp_path: Path) -> None:
    """Else the garbage collector of a request thread may free an HDF5 object, and wait for that lock for ever."""
    X = np.random.default_rng(0).normal(size=(40, 30))
    with h5py.File(tmp_path / "X.h5", "w") as file:
        file.create_dataset("X", data=X, chunks=(8, 30), compression="lzf")
    upload(tmp_path, bucket)
    readers, read_range = set[int](), ObjectPath.read_range

    def noted(path: ObjectPath, start: int, stop: int) -> memoryview:
        readers.add(get_ident())
        return read_range(path, start, stop)

    with (
        mock.patch.object(objects, "RANGE_PIECE_BYTES", 512),  # else so small a file takes one request
        mock.patch.object(ObjectPath, "read_range", noted),
        open_file(bucket / "X.h5") as file,
    ):
        np.testing.assert_array_equal(file["X"][...], X)
    assert readers == {get_ident()}
