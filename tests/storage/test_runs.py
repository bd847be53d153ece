"""Runs and tiles in an object store, by the command line: the same results, resumed, locked, checked and told of."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
import pytest
import yaml
import zarr

from daskfs import load_job, run_job, storage
from daskfs.execution.progress import Silent
from daskfs.stages.stage import Stage
from daskfs.storage import ObjectPath, as_path, clients
from daskfs.store import second_look
from daskfs.store.layout import is_seal
from daskfs.store.lease import LEASE_KEY, hold_lease
from tests.cli.command import daskfs, refused, texts
from tests.execution.damage import OUTPUTS, one_of_each_kind, run_quietly, status_of, storage_job, verified
from tests.execution.runs import HERE, command, started, wait_for_units, write_document, write_job
from tests.storage.proxy import FAULTS, Proxy, proxy
from tests.storage.server import KEY, SECRET, reach

pytestmark = [pytest.mark.cluster, pytest.mark.platforms]
FEW = {
    "methods": ["LaplacianScore", "FisherScore"],
    "evaluate": None,
}
"""Blocks of a job that runs in a second."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job, and its run on disk, in the folder of the job."""
    job = storage_job(tmp_path_factory.mktemp("local"))
    run_quietly(job)
    return job


@dataclass(frozen=True)
class Finished:
    """URL of a run, and all that was to be seen of it."""

    url: str
    told: str


@pytest.fixture(scope="module")
def finished(local: Path, server: str) -> Iterator[Finished]:
    """A run of the same job by two worker processes, for tests that leave it as it is. Its job says how the store is
    reached, and its environment nothing but who may.
    """
    blocks = {"storage": {"s3://runs": {"endpoint": server, "region": "us-east-1"}}, "cluster": {"workers": 2}}
    job = local.with_name("finished.yaml")
    job.write_text(yaml.safe_dump({**yaml.safe_load(local.read_text()), **blocks}))
    with pytest.MonkeyPatch.context() as patched:
        reach(patched, server)
        patched.delenv("AWS_ENDPOINT_URL")
        patched.delenv("AWS_REGION")
        told = _told(job, *at("s3://runs/finished"))
    assert "forkserver" in told
    yield Finished("s3://runs/finished", told)
    clients._client.cache_clear()


def _told(job: Path, *arguments: object) -> str:
    """Run a job, and return what it says, and how it and its workers were called."""
    process = subprocess.Popen(
        command("run", job, "-v", *arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    found = []
    for line in process.stdout:
        found.append(line)
        if " done in " in line:
            with contextlib.suppress(psutil.NoSuchProcess):
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                found += [" ".join(one.cmdline()) for one in family]
    assert process.wait() == 0, "".join(found)
    return "".join(found)


def at(url: str) -> tuple[str, str]:
    return "--set", f"output.path={url}"


def same_outputs(job: Path, url: str) -> None:
    """Check that a run has the outputs of the one on disk."""
    for name in OUTPUTS:
        assert ObjectPath.of(f"{url}/{name}").read_bytes() == (job.parent / "run" / name).read_bytes(), name


def small_job(folder: Path, url: str, **blocks: Any) -> Path:
    """Write data, and a job whose run lies at a URL."""
    return storage_job(folder, **FEW, output={"path": url}, **blocks)


def everything(url: str) -> dict[str, bytes]:
    """Return all objects below a URL."""
    root = ObjectPath.of(url)
    return {path.name_below(root): path.read_bytes() for path, _ in root.objects()}


# ---------------------------------------------------------------------------------------------------------- whole runs
def test_the_results_are_those_of_a_run_on_disk(local: Path, finished: Finished, bucket: str) -> None:
    del bucket
    same_outputs(local, finished.url)
    names = {kind for kind in one_of_each_kind(local.parent / "run") if not kind.startswith("spill/")}
    there = set(everything(finished.url))
    assert {name for name in names if "#" not in name} <= there
    assert ".lock" not in there
    assert json.loads(ObjectPath.of(f"{finished.url}/run.json").read_bytes())["ranking"] == "ranking.csv"


def test_a_second_start_finds_nothing_to_do(local: Path, finished: Finished, bucket: str) -> None:
    del bucket
    outcome = daskfs("run", local, *at(finished.url), *HERE)
    assert outcome.code == 0, outcome.err
    assert "nothing to do" in outcome.out
    assert f"report:  {finished.url}/report.html" in outcome.out


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the files of a small job, and of its ranking."""
    folder = tmp_path_factory.mktemp("small")
    run_quietly(small_job(folder, str(folder / "run")))
    return folder


@pytest.mark.parametrize(
    ("kinds", "fault_rate"),
    [
        (FAULTS, 0.1),
        (("lost",), 0.2),
        (("conflict",), 0.3),
        (("repeated",), 0.5),
        (("flipped",), 0.2),
        (("truncated",), 0.2),
        (("missing",), 0.2),
        (("behind",), 1.0),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "",
)
def test_the_results_through_an_unreliable_store(
    ranked: Path,
    tmp_path: Path,
    server: str,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    kinds: tuple[str, ...],
    fault_rate: float,
) -> None:
    """One command is enough, and nothing that is whole is made again."""
    monkeypatch.setitem(second_look.LOOK_PAUSE_SECONDS, True, 0.01)
    job = small_job(tmp_path, bucket)
    with proxy(Proxy(server, fault_rate=fault_rate, kinds=kinds, seed=1)) as unreliable:
        reach(monkeypatch, unreliable.url)
        result = run_quietly(job)
        reach(monkeypatch, server)
    assert ObjectPath.of(f"{bucket}/ranking.csv").read_bytes() == (ranked / "run" / "ranking.csv").read_bytes()
    assert verified(bucket)["problems"] == []
    assert [line for line in result.get("damages", ()) if "made again" in line] == []
    assert unreliable.faults.total() > (0 if kinds == ("behind",) else 3)
    assert set(unreliable.faults) == set(kinds)


@pytest.mark.long
def test_the_results_of_workers_through_an_unreliable_store(
    local: Path, server: str, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy is in this process: a driver of its own never waits for it with the lock of the interpreter."""
    with proxy(Proxy(server, fault_rate=0.05, seed=2)) as unreliable:
        reach(monkeypatch, unreliable.url)
        _told(local, *at(bucket), "--set", "cluster.workers=2")
        reach(monkeypatch, server)
    same_outputs(local, bucket)
    assert unreliable.faults.total() > 20
    assert len(unreliable.faults) == len(FAULTS)


def test_a_zarr_array_in_the_store_is_used_where_it_lies(tmp_path: Path, bucket: str) -> None:
    X = np.random.default_rng(3).standard_normal((4096, 32)).astype("f4")
    y = np.arange(4096) % 3
    X[:, 5] += y
    np.save(tmp_path / "y.npy", y)
    for where in (ObjectPath.of(f"{bucket}/X.zarr"), as_path(tmp_path / "X.zarr")):
        array = zarr.create_array(store=where.zarr_store(), shape=X.shape, chunks=(1024, 16), dtype="f4")
        array[...] = X
    outputs = []
    for source, output in ((f"{bucket}/X.zarr", f"{bucket}/run"), (tmp_path / "X.zarr", tmp_path / "run")):
        data = {"source": str(source), "labels": str(tmp_path / "y.npy")}
        result = run_quietly(
            write_job(tmp_path, "", **FEW, data=data, cluster={"workers": 0}, output={"path": str(output)})
        )
        assert result["data"]["in_place"] == str(source)
        outputs.append(storage.as_path(result["ranking"]).read_bytes())
    assert outputs[0] == outputs[1]


def test_tiles_in_the_store_serve_runs(tmp_path: Path, local: Path, bucket: str) -> None:
    data = yaml.safe_load(local.read_text())["data"]
    options = [
        part for key in ("labels", "weights", "feature_names") for part in (f"--{key}".replace("_", "-"), data[key])
    ]
    outcome = daskfs("convert", data["source"], f"{bucket}/x.zarr", *options, "--workers", 0, "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["store"] == f"{bucket}/x.zarr"
    again = daskfs("convert", data["source"], f"{bucket}/x.zarr", *options, "--workers", 0, "-q", "--json")
    assert again.json["recomputed"] == {}
    inspected = daskfs("inspect", f"{bucket}/x.zarr", "--json")
    assert (inspected.json["n_samples"], inspected.json["n_labeled"]) == (4500, 300)
    assert verified(f"{bucket}/x.zarr")["checked"]["chunks"] > 3
    job = storage_job(tmp_path, data={"source": f"{bucket}/x.zarr"}, output={"path": f"{bucket}/run"})
    run_quietly(job)
    same_outputs(local, f"{bucket}/run")


# ----------------------------------------------------------------------------------------------------- kills and locks
def test_a_killed_run_goes_on(local: Path, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASK_DASKFS__LEASE_SECONDS", "2")
    job = tmp_path / "job.yaml"
    job.write_text(yaml.safe_dump({**yaml.safe_load(local.read_text()), "output": {"path": bucket}}))
    with started(job) as process:
        wait_for_units(process, "score", 1)
        lock = json.loads(ObjectPath.of(f"{bucket}/.lock").read_bytes())
        assert lock["owner"].startswith(f"process {process.pid} on ")
        process.kill()
        process.wait()
    while daskfs("status", bucket, "--json").json["status"] == "running":  # until the lease ends
        threading.Event().wait(0.1)
    status = status_of(bucket)
    assert (status["status"], status["owner"]["process"]) == ("killed", process.pid)
    assert status["state"].startswith(f"killed: {lock['owner']} is gone, last unit done at 2")
    done = {name: data for name, data in everything(bucket).items() if "records/" in name and not is_seal(name)}
    assert done
    outcome = daskfs("run", job, "--json")
    assert outcome.code == 0, outcome.err
    assert f"is locked by {lock['owner']}: waiting up to 120 s for its end" in outcome.err
    same_outputs(local, bucket)
    after = everything(bucket)
    assert {name: after[name] for name in done} == done
    assert len(done) + sum(outcome.json["recomputed"].values()) >= sum(s["units"] for s in outcome.json["stages"])
    assert ".lock" not in after


def test_a_run_without_a_lock_is_of_unknown_status(tmp_path: Path, bucket: str) -> None:
    """It may be in a store that has none."""
    run_quietly(small_job(tmp_path, bucket))
    manifest = ObjectPath.of(f"{bucket}/run.json")
    write_document(manifest, {**json.loads(manifest.read_bytes()), "status": "running"})
    for lock in (None, b"{"):
        if lock is not None:
            ObjectPath.of(f"{bucket}/.lock").write_bytes(lock)
        assert status_of(bucket)["status"] == "unknown"
    with dask.config.set({LEASE_KEY: 30}):
        ObjectPath.of(f"{bucket}/.lock").unlink()
        with hold_lease(ObjectPath.of(f"{bucket}/.lock"), "output.path", print):
            assert status_of(bucket)["status"] == "running"


def test_a_second_run_is_refused_while_one_lives(tmp_path: Path, bucket: str) -> None:
    job = small_job(tmp_path, bucket)
    run_quietly(job)
    with dask.config.set({LEASE_KEY: 3}), hold_lease(ObjectPath.of(f"{bucket}/.lock"), "output.path", print):
        outcome = daskfs("run", job, "-q", "--set", "cluster.wait_seconds=.1")
        refused(outcome, 4, "another daskfs process is running in", bucket, "choose another output.path")
        assert any("is running in" in note for note in verified(bucket)["notes"])
        refused(daskfs("verify", bucket, "--remove", "-q"), 4, "another daskfs process is running in")


def test_a_corrected_job_takes_over_what_was_not_scored(tmp_path: Path, bucket: str) -> None:
    np.save(tmp_path / "X.npy", np.random.default_rng(0).normal(size=(40, 5)))
    np.save(tmp_path / "y.npy", np.arange(40) / 3)
    data = {"source": str(tmp_path / "X.npy"), "labels": str(tmp_path / "y.npy")}
    job = write_job(tmp_path, "", **FEW, data=data, output={"path": bucket})
    refused(daskfs("run", job, "-q", *HERE), 3, "FisherScore is for classification")
    own = ("tiles/plan.json", ".epoch", "tiles/.epoch")
    before = {name: data for name, data in everything(bucket).items() if name not in own and not is_seal(name)}
    outcome = daskfs("run", job, "--json", *HERE, "--set", "methods=[VarianceScore]")
    assert "Nothing was scored in it: this run takes over the directory and its tiles.\n" in outcome.err
    assert outcome.json["recomputed"] == {"score": 1, "rank": 1}
    after = everything(bucket)
    assert {name for name, data in before.items() if after.get(name) != data} == {
        "run.json",
        "plan.json",
        "events.jsonl",
        "failures/run.txt",
    }
    refused(daskfs("run", job, "-q", *HERE), 3, "holds a run of another job", "VarianceScore")
    assert everything(bucket) == after


# -------------------------------------------------------------------------------------------------------------- damage
def test_what_is_deleted_or_altered_is_found_and_made_again(tmp_path: Path, bucket: str) -> None:
    job = small_job(tmp_path, bucket)
    run_quietly(job)
    before = everything(bucket)
    ranking = before["ranking.csv"]
    chunk = ObjectPath.of(f"{bucket}/scores/FisherScore/c/0/0")
    (record,) = ObjectPath.of(f"{bucket}/records/rank").glob("000000*.json")
    data = before["scores/FisherScore/c/0/0"]
    chunk.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    ObjectPath.of(f"{bucket}/tiles/X/c/0/0").unlink()
    record.write_bytes(b"{")
    found = {one["path"]: one["problem"] for one in verified(bucket, "--remove")["problems"]}
    assert found[str(chunk)] == "the chunk is damaged: its checksum is not that of its bytes"
    assert found[f"{bucket}/tiles/X/c/0/0"] == "the chunk is missing"
    assert "the record is damaged" in found[str(record)]
    assert not chunk.is_file()
    outcome = daskfs("run", job, "--json")
    assert outcome.code == 0, outcome.err
    assert f"{bucket}/tiles/X/c/0/0" in outcome.err
    after = everything(bucket)
    assert after["ranking.csv"] == ranking
    assert {name for name in after if "records/" not in name} == {name for name in before if "records/" not in name}
    assert verified(bucket)["problems"] == []


class Deleting(Silent):
    """Deletes an object when the tiles are there."""

    def __init__(self, url: str) -> None:
        self.url = url

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del unit, facts
        if stage.kind_name == "columns":
            ObjectPath.of(self.url).unlink()


def test_a_chunk_that_goes_missing_amid_a_run_is_made_again(tmp_path: Path, bucket: str) -> None:
    job, lost = small_job(tmp_path, bucket), f"{bucket}/tiles/X/c/1/1"
    result = run_job(load_job(job), Deleting(lost))
    assert f"{lost}: damaged or missing, and made again" in texts(result)
    assert ObjectPath.of(lost).is_file()
    run_quietly(job, *at(f"{bucket}-whole"))
    assert (
        ObjectPath.of(f"{bucket}-whole/ranking.csv").read_bytes() == ObjectPath.of(f"{bucket}/ranking.csv").read_bytes()
    )


# ----------------------------------------------------------------------------------------------------- the other verbs
def test_status_plan_report_and_verify(local: Path, finished: Finished, bucket: str) -> None:
    del bucket
    status = daskfs("status", finished.url, "--json").json
    assert (status["run"], status["status"]) == (finished.url, "done")
    assert all(stage["done"] == stage["units"] for stage in status["stages"])
    assert status["last_unit"] is not None
    plan = daskfs("plan", local, *at(finished.url), "--json")
    assert (plan.code, plan.json["output"]) == (0, finished.url)
    assert sum(s["done"] for s in plan.json["stages"]) == sum(s["units"] for s in plan.json["stages"])
    before = ObjectPath.of(f"{finished.url}/report.html").read_bytes()
    report = daskfs("report", finished.url)
    assert (report.code, report.out) == (0, f"{finished.url}/report.html\n")
    assert len(ObjectPath.of(f"{finished.url}/report.html").read_bytes()) > len(before) // 2
    checked = verified(finished.url)
    assert (checked["problems"], checked["left_over"], checked["not_done"]) == ([], [], 0)
    assert checked["checked"]["chunks"] > 20
    lines = map(json.loads, ObjectPath.of(f"{finished.url}/events.jsonl").read_text().splitlines())
    events = [event for event in lines if event["event"] == "unit"]
    assert len(events) == sum(stage["units"] * (stage.get("rounds") or 1) for stage in status["stages"])
    assert {event["stage"] for event in events} == {stage["stage"] for stage in status["stages"]}


def test_compare(local: Path, finished: Finished, bucket: str) -> None:
    outcome = daskfs("compare", finished.url, local.parent / "run", "--output", f"{bucket}/comparison", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["page"] == f"{bucket}/comparison/comparison.html"
    assert [one["name"] for one in outcome.json["data_sets"]] == ["finished", "run"]
    assert b"../../finished/report.html" in ObjectPath.of(f"{bucket}/comparison/comparison.html").read_bytes()


def test_a_study(tmp_path: Path, local: Path, bucket: str) -> None:
    data = yaml.safe_load(local.read_text())["data"]
    study = {
        "datasets": {"one": data, "two": data},
        "methods": ["VarianceScore", "FisherScore"],
        "evaluate": {"n_selected": [4], "models": ["knn"], "max_samples": 300},
        "cluster": {"workers": 0},
        "output": {"path": f"{bucket}/study"},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    outcome = daskfs("compare", tmp_path / "study.yaml", "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(ObjectPath.of(f"{bucket}/study/study.json").read_bytes())["status"] == "done"
    assert ObjectPath.of(f"{bucket}/study/two/ranking.csv").is_file()


# ----------------------------------------------------------------------------------------- what cannot be, and secrets
def test_a_wrong_bucket(tmp_path: Path, bucket: str) -> None:
    del bucket
    job = small_job(tmp_path, "s3://no-such-bucket/run")
    refused(daskfs("run", job, "-q"), 3, "output.path s3://no-such-bucket/run: there is no such bucket")
    refused(daskfs("status", "s3://no-such-bucket/run"), 3, "s3://no-such-bucket/run")
    refused(daskfs("verify", "s3://no-such-bucket/run", "-q"), 3, "s3://no-such-bucket/run")


@pytest.mark.parametrize(
    ("output", "parts"),
    [
        ("s3://", ("output.path", "s3:// names no bucket: write s3://BUCKET/NAME.")),
        ("s3://runs/../x", ("output.path", "holds '..'")),
        ("http://example.org/run", ("output.path", "cannot be written to: URLs begin with s3://, gs://, az://")),
    ],
)
def test_a_name_that_nothing_is_written_to(tmp_path: Path, output: str, parts: tuple[str, ...]) -> None:
    refused(daskfs("run", small_job(tmp_path, output), "-q"), 2, *parts)
    refused(daskfs("convert", "sklearn:digits", output, "-q"), 2, *parts[1:])


def test_a_folder_of_others_is_not_touched(tmp_path: Path, bucket: str) -> None:
    ObjectPath.of(f"{bucket}/mine.txt").write_bytes(b"mine")
    refused(daskfs("run", small_job(tmp_path, bucket), "-q"), 3, bucket, "is not a daskfs run (it holds mine.txt)")
    assert everything(bucket) == {"mine.txt": b"mine"}


def test_who_may_not(tmp_path: Path, server: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy(Proxy(server, denied="/")) as closed:
        reach(monkeypatch, closed.url)
        begun = time.monotonic()
        refused(daskfs("run", small_job(tmp_path, bucket), "-q"), 3, bucket, "access is denied")
        refused(daskfs("status", bucket), 3, bucket, "access is denied")
        assert time.monotonic() - begun < 30


def test_where_nobody_listens(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "RETRIES", {**clients.RETRIES, "max_retries": 1})  # else it takes half a minute
    reach(monkeypatch, "http://127.0.0.1:9")
    begun = time.monotonic()
    refused(daskfs("run", small_job(tmp_path, bucket), "-q"), 1, f"cannot write to output.path {bucket}", "HTTP error")
    refused(daskfs("status", bucket), 1, f"{bucket}/run.json", "HTTP error")
    assert time.monotonic() - begun < 60


def test_credentials_are_nowhere(finished: Finished, bucket: str) -> None:
    del bucket
    for name, data in everything(finished.url).items():
        assert SECRET.encode() not in data, name
        assert KEY.encode() not in data, name
    assert SECRET not in finished.told
    assert KEY not in finished.told
