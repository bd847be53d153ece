"""A run is a folder: it can be moved, copied, archived and sent, and reads and writes nothing outside of it."""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from daskfs import load_job, open_run, run_job
from daskfs.errors import RunStoppedError
from tests.cli.command import daskfs, refused
from tests.execution.runs import Stop, write_document

pytestmark = pytest.mark.cluster

N_SAMPLES, N_FEATURES = 90, 8
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "graph": {"methods": ["LaplacianScore", "FisherScore"], "graph": {"n_neighbors": 4}},
    "batches": {"data": {"batch": "batch.txt"}},
    "evaluation": {"evaluate": {"n_selected": [2, 4], "n_splits": 3, "models": ["knn"]}},
    "tiles elsewhere": {"data": {"source": "tiles", "labels": None, "feature_names": None}},
}
TABLES = ("ranking.csv", "selected_features.csv", "ranking.parquet", "batches.csv", "evaluation.csv")


def write_data(folder: Path, prefix: str = "a", factor: int = 1) -> None:
    rng = np.random.default_rng(1)
    y = np.arange(N_SAMPLES) % 3
    X = np.round(rng.normal(size=(N_SAMPLES, N_FEATURES)) * 64) / 64
    X[:, :3] += y[:, None]
    np.savez(folder / f"{prefix}.npz", X=X[:, ::factor] * factor, y=y)
    (folder / f"{prefix}.txt").write_text("".join(f"{prefix}{number}\n" for number in range(N_FEATURES)))
    (folder / "batch.txt").write_text("".join(f"{'xyz'[number // 30]}\n" for number in range(N_SAMPLES)))


def job_of(folder: Path, run: Path, kind: str = "plain", prefix: str = "a") -> Path:
    """Write a job file for data of :func:`write_data`, whose run lies in `run`."""
    blocks = KINDS[kind]
    data: dict[str, Any] = {
        "source": str(folder / f"{prefix}.npz"),
        "array": "X",
        "labels": "y",
        "feature_names": str(folder / f"{prefix}.txt"),
    }
    data |= {key: value and str(folder / value) for key, value in blocks.get("data", {}).items()}
    if kind == "tiles elsewhere":
        del data["array"]
    job = {"methods": ["VarianceScore", "FisherScore"], "evaluate": None, **blocks}
    job |= {"data": data, "select": {"n_features": 3}, "cluster": {"workers": 0}, "output": {"path": str(run)}}
    path = folder / f"{run.name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def prepared(folder: Path, kind: str) -> None:
    write_data(folder)
    if kind == "tiles elsewhere":
        convert(folder)


def convert(folder: Path, prefix: str = "a") -> None:
    names = ("--array", "X", "--labels", "y", "--feature-names", folder / f"{prefix}.txt")
    outcome = daskfs("convert", folder / f"{prefix}.npz", folder / "tiles", *names, "--workers", 0, "-q")
    assert outcome.code == 0, outcome.err


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of each file."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def tables(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in TABLES if (run / name).exists()}


def arrays(file: Path) -> dict[str, bytes]:
    """Return the members of an .npz file, which holds the time of its writing, too."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def move(run: Path, to: Path) -> None:
    run.rename(to)


def copy_and_delete(run: Path, to: Path) -> None:
    shutil.copytree(run, to)
    shutil.rmtree(run)


def copy_and_spoil(run: Path, to: Path) -> None:
    """Leave the original there, with other contents."""
    shutil.copytree(run, to)
    for path in run.rglob("*"):
        if path.is_file():
            path.write_bytes(b"spoilt")


def archive(run: Path, to: Path) -> None:
    with tarfile.open(to.with_suffix(".tar"), "w") as tar:
        tar.add(run, "run")
    shutil.rmtree(run)
    with tarfile.open(to.with_suffix(".tar")) as tar:
        tar.extractall(to.parent / "unpacked", filter="data")
    (to.parent / "unpacked" / "run").rename(to)


def mount_elsewhere(run: Path, to: Path) -> None:
    """Copy a run to another folder, which a link leads to: as another mount point."""
    disk = to.parent / "disk"
    shutil.copytree(run, disk)
    shutil.rmtree(run)
    to.symlink_to(disk)


WAYS = [move, copy_and_delete, copy_and_spoil, archive, mount_elsewhere]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_is_the_same_elsewhere(tmp_path: Path, kind: str, way: Callable[[Path, Path], None]) -> None:
    prepared(tmp_path, kind)
    (tmp_path / "deep").mkdir()
    old, new = tmp_path / "old", tmp_path / "deep" / "new"
    assert daskfs("run", job_of(tmp_path, old, kind), "-q").code == 0
    assert daskfs("export", old, tmp_path / "before.npz", "--data", "FisherScore", "-q").code == 0
    assert daskfs("report", old).code == 0  # without what the first call ran
    expected, page = tables(old), (old / "report.html").read_bytes()
    way(old, new)
    there = contents(old) if old.exists() else {}
    assert daskfs("report", new).code == 0
    assert (new / "report.html").read_bytes() == page
    verified = daskfs("verify", new, "-q", "--json")
    assert (verified.code, verified.json["problems"]) == (0, []), verified.err
    assert daskfs("export", new, tmp_path / "after.npz", "--data", "FisherScore", "-q").code == 0
    assert arrays(tmp_path / "after.npz") == arrays(tmp_path / "before.npz")
    assert {name[0] for name in open_run(new).selected("FisherScore", 2)} == {"a"}
    assert open_run(new).report == str(new / "report.html")
    again = daskfs("run", job_of(tmp_path, new, kind), "-q", "--json")
    assert (again.code, again.json["recomputed"]) == (0, {}), again.err
    assert tables(new) == expected
    if way is copy_and_spoil:
        assert contents(old) == there
    else:
        assert not old.exists()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "stage"), [("plain", "ingest"), ("plain", "score"), ("batches", "labels"), ("graph", "score")]
)
def test_a_run_goes_on_elsewhere(tmp_path: Path, kind: str, stage: str, way: Callable[[Path, Path], None]) -> None:
    prepared(tmp_path, kind)
    old, new, clean = tmp_path / "old", tmp_path / "new", tmp_path / "clean"
    assert daskfs("run", job_of(tmp_path, clean, kind), "-q").code == 0
    with pytest.raises(RunStoppedError):
        run_job(load_job(job_of(tmp_path, old, kind)), Stop(stage, 0))
    way(old, new)
    before = contents(old) if old.exists() else None
    outcome = daskfs("run", job_of(tmp_path, new, kind), "-q")
    assert outcome.code == 0, outcome.err
    assert tables(new) == tables(clean)
    assert (contents(old) if old.exists() else None) == before


def test_a_run_of_batches_that_moves_between_its_batches_goes_on(tmp_path: Path) -> None:
    """The run of a batch reads the tiles of the run that it belongs to, where they lie now."""
    write_data(tmp_path)
    old, new, clean = tmp_path / "old", tmp_path / "new", tmp_path / "clean"
    assert daskfs("run", job_of(tmp_path, clean, "batches"), "-q").code == 0

    class StopInBatch(Stop):
        def unit_done(self, stage: Any, unit: int, facts: dict[str, Any]) -> None:
            if (old / "batches" / "1" / "run.json").exists():
                super().unit_done(stage, unit, facts)

    with pytest.raises(RunStoppedError):
        run_job(load_job(job_of(tmp_path, old, "batches")), StopInBatch("score", 0))
    old.rename(new)
    outcome = daskfs("run", job_of(tmp_path, new, "batches"), "-q")
    assert outcome.code == 0, outcome.err
    assert not old.exists()
    assert tables(new) == tables(clean)
    assert daskfs("verify", new, "-q").code == 0


# ------------------------------------------------------------------------------------------------------- other tiles
READERS: dict[str, Callable[[Path, Path], tuple[object, ...]]] = {
    "export": lambda run, out: ("export", run, out / "t.npz", "-q"),
    "export --data": lambda run, out: ("export", run, out / "d.npz", "--data", "FisherScore", "-q"),
    "report": lambda run, _: ("report", run),
    "run": lambda run, _: ("run", run.with_suffix(".yaml"), "-q"),
}


@pytest.mark.parametrize("reader", READERS)
def test_tiles_that_were_replaced_are_not_those_of_a_run(tmp_path: Path, reader: str) -> None:
    write_data(tmp_path)
    write_data(tmp_path, "b", 3)
    (tmp_path / "b.txt").write_text("b0\nb1\nb2\n")
    convert(tmp_path)
    run = tmp_path / "run"
    assert daskfs("run", job_of(tmp_path, run, "tiles elsewhere"), "-q").code == 0
    shutil.rmtree(tmp_path / "tiles")
    convert(tmp_path, "b")
    refused(daskfs(*READERS[reader](run, tmp_path)), 3, f"{tmp_path / 'tiles'} changed since the run in {run} began")


def test_a_run_that_made_way_for_another_keeps_its_own_tiles(tmp_path: Path) -> None:
    write_data(tmp_path)
    write_data(tmp_path, "b")
    run, kept = tmp_path / "run", tmp_path / "kept"
    assert daskfs("run", job_of(tmp_path, run), "-q").code == 0
    run.rename(kept)
    assert daskfs("run", job_of(tmp_path, run, prefix="b"), "-q").code == 0
    assert daskfs("export", kept, tmp_path / "t.npz", "-q").code == 0
    assert [str(name)[0] for name in np.load(tmp_path / "t.npz")["name"]] == ["a"] * N_FEATURES
    (kept / "ranking.csv").unlink()
    before = contents(run)
    assert daskfs("run", job_of(tmp_path, kept), "-q").code == 0
    assert contents(run) == before


@pytest.mark.parametrize("where", ["run.json", "plan.json"])
@pytest.mark.parametrize("address", ["/home", "../home", "tiles/../../home", "batches/../../home"])
def test_a_received_run_writes_nowhere_else(tmp_path: Path, where: str, address: str) -> None:
    write_data(tmp_path)
    home, run = tmp_path / "home", tmp_path / "run"
    (home / "X").mkdir(parents=True)
    for name in ("plan.json", "labels.json", "X/notes.txt"):
        (home / name).write_text("mine")
    job = job_of(tmp_path, run)
    assert daskfs("run", job, "-q").code == 0
    shutil.rmtree(run / "tiles")
    document = json.loads((run / where).read_text())
    one = document["tiles"] if where == "run.json" else document
    one["url" if where == "run.json" else "tiles_url"] = str(home) if address == "/home" else address
    write_document(run / where, document)
    before = contents(home)
    outcomes = [daskfs("run", job, "-q"), daskfs("report", run), daskfs("verify", run, "-q"), daskfs("status", run)]
    assert contents(home) == before
    assert all("Traceback" not in outcome.err for outcome in outcomes)


# ------------------------------------------------------------------------------------------------------------- links
FILES = (".lock", "events.jsonl", "run.json", "plan.json", ".epoch", "ranking.parquet")
LINKED = (*FILES, "tiles", "tiles/X", "records", "scores")


@pytest.mark.parametrize("name", LINKED)
def test_nothing_is_opened_through_a_link(tmp_path: Path, name: str) -> None:
    """Others may be able to write to the directory; the folders above it may be links."""
    write_data(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "scratch").symlink_to(tmp_path / "real")
    run = tmp_path / "scratch" / "run"
    job = job_of(tmp_path, run)
    assert daskfs("run", job, "-q").code == 0
    victim = tmp_path / "victim"
    (run / name).rename(victim)
    (run / name).symlink_to(victim)
    before = contents(victim) if victim.is_dir() else victim.read_bytes()
    outcomes = [
        daskfs("verify", run, "--remove", "-q"),
        daskfs("report", run),
        daskfs("status", run),
        daskfs("run", job, "-q", "--overwrite"),
        daskfs("convert", tmp_path / "a.npz", run / "tiles", "--array", "X", "--workers", 0, "-q"),
    ]
    assert (contents(victim) if victim.is_dir() else victim.read_bytes()) == before
    assert [outcome.err for outcome in outcomes if "Traceback" in outcome.err or outcome.code == 1] == []
    if name == ".lock":
        refused(daskfs("run", job, "-q"), 3, f"{run / name} is a symbolic link")


@pytest.mark.parametrize("what", ["flipped", "deleted"])
def test_a_run_leaves_other_tiles_as_they_are(tmp_path: Path, what: str) -> None:
    write_data(tmp_path)
    convert(tmp_path)
    chunk = tmp_path / "tiles" / "X" / "c" / "0" / "0"
    whole = chunk.read_bytes()
    chunk.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    if what == "deleted":
        chunk.unlink()
    before = contents(tmp_path / "tiles")
    job = job_of(tmp_path, tmp_path / "run", "tiles elsewhere")
    outcome = daskfs("run", job, "-q")
    refused(outcome, 3, str(chunk), "'daskfs verify --remove', then 'daskfs convert' make it again")
    assert contents(tmp_path / "tiles") == before
    assert daskfs("verify", tmp_path / "tiles", "--remove", "-q").code == 3
    convert(tmp_path)
    assert daskfs("run", job, "-q").code == 0
