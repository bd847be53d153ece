"""``daskfs verify``: every file of a run is checked, what is wrong is named, and 'run' mends what it names."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import daskfs as package
from daskfs.errors import StoreError
from daskfs.storage.local import MOVED_ASIDE
from daskfs.store import layout
from daskfs.store.records import decode, encode, lines_of
from tests.cli.command import daskfs, refused, texts
from tests.execution.damage import (
    OUTPUTS,
    WAYS,
    delete,
    flip,
    kind_of,
    one_of_each_kind,
    run_quietly,
    storage_job,
    verified,
    write_data,
)
from tests.execution.runs import record_file, recorded, records

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Job of a finished run, of which ``folder`` gives each test a whole one."""
    job = storage_job(tmp_path_factory.mktemp("verify"))
    run_quietly(job)
    shutil.copytree(job.parent / "run", job.parent / "whole")
    return job


@pytest.fixture
def folder(job: Path) -> Iterator[Path]:
    folder = job.parent / "run"
    yield folder
    shutil.rmtree(folder)
    shutil.copytree(job.parent / "whole", folder)


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTPUTS}


def without_served(folder: Path, recomputed: dict[str, int]) -> dict[str, int]:
    """Leave out stages whose outputs were cleared when they had served: these run again for those that need them."""
    stages = json.loads((folder / "plan.json").read_text())["stages"]
    served = {stage["name"] for stage in stages if stage["needed_until"] or stage["loop"]}
    return {name: count for name, count in recomputed.items() if name not in served}


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells whether anything was written."""
    return {str(p): (p.lstat().st_size, p.lstat().st_mtime_ns) for p in sorted(folder.rglob("*"))}


def test_a_whole_run_is_clean(folder: Path) -> None:
    before = snapshot(folder)
    assert {path.name for path in folder.iterdir()} <= {*layout.RUN_NAMES, *layout.OWNERSHIP}
    result = package.verify_run(folder, threads=3)
    assert (result["problems"], result["left_over"], result["notes"], result["not_done"]) == ([], [], [], 0)
    assert result["status"] == "done"
    n_records = len(records(folder))
    assert result["checked"]["records"] == n_records
    assert result["checked"]["chunks"] > 30
    assert result["checked"]["bytes"] > 10**6
    assert snapshot(folder) == before
    outcome = daskfs("verify", folder)
    assert (outcome.code, outcome.out.count("\n")) == (0, 1)
    assert f"checked {n_records} records" in outcome.out
    assert "stage verify score" in outcome.err


LONG = [way for way in WAYS if way not in ("flipped", "deleted")]


@pytest.mark.parametrize("way", ["flipped", "deleted", *(pytest.param(way, marks=pytest.mark.long) for way in LONG)])
def test_every_kind_of_file_is_checked_and_run_mends_what_is_named(job: Path, folder: Path, way: str) -> None:
    """One file of each kind is damaged: exactly these are named, exactly their units run again, to the same bytes."""
    before, files = outputs(folder), one_of_each_kind(folder)
    assert len(files) > 40
    if way == "neighbor":
        files = {kind: path for kind, path in files.items() if path.name != "zarr.json"}
    for path in files.values():
        WAYS[way](path)
    found = verified(folder)["problems"]
    assert {problem["path"] for problem in found} == {str(path) for path in files.values()}
    units = {(problem["stage"], problem["unit"]) for problem in found}
    verified(folder, "--remove")
    assert not any(os.path.lexists(path) for path in files.values())
    result = run_quietly(job)
    assert without_served(folder, result["recomputed"]) == dict(Counter(stage for stage, _ in units))
    assert "made again" in " ".join(texts(result))
    assert outputs(folder) == before
    again = verified(folder)
    aside = list(
        folder.rglob(f"*{MOVED_ASIDE}*")
    )  # somebody's folder in the place of a file is kept, and told of in ours
    assert len(aside) == (len(files) if way == "directory" else 0)
    assert (again["problems"], set(again["left_over"])) == (
        [],
        {str(path / "inside") for path in aside if path.parent != folder},
    )


def test_records_are_checked(job: Path, folder: Path) -> None:
    """Truncated, emptied, of another unit, of another plan, without parts, a directory, and lost."""
    before = outputs(folder)

    def record(stage: str, unit: int = 0) -> Path:
        return record_file(folder, stage, unit)

    def changed(path: Path, **keys: Any) -> None:
        unit, line = next(lines_of(path.name, path.read_bytes()))
        path.write_bytes(encode({**decode(path.parent.name, unit, line), **keys}))

    score = [record("score", unit) for unit in range(3)]
    gathered, tables = record("gather", 1), record("evaluation-tables")
    score[0].write_bytes(score[0].read_bytes()[:40])
    shutil.copyfile(score[2], score[1])
    changed(record("rank"), fingerprint="0" * 24)
    changed(record("edges-euclidean-5"), chunks=None)
    changed(record("design"), objects={"evaluation/rows/zarr.json": "x"})
    record("gather", 0).write_bytes(b"[1]")
    gathered.unlink()
    gathered.mkdir()
    for path in tables.parent.glob("000000*"):  # also of runs that made it before
        path.unlink()
    damaged = [score[0], score[1], record("rank"), record("edges-euclidean-5"), record("design")]
    damaged += [record("gather", 0), gathered, tables.with_name("000000.json")]
    found = verified(folder)["problems"]
    assert sorted(problem["path"] for problem in found) == sorted(map(str, damaged))
    result = run_quietly(job)  # a record is read whole, so that nothing has to be removed first
    assert result["recomputed"] == dict(Counter(path.parent.name for path in damaged))
    assert outputs(folder) == before
    assert verified(folder)["problems"] == []


def test_a_record_among_others_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the same file stays as it is."""
    monkeypatch.setattr("daskfs.store.record_files.MERGED_WHEN_FINISHED", 2)
    job, folder = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None), tmp_path / "run"
    run_quietly(job)
    (path,) = (folder / "records/score").glob("*.jsonl")
    before, records_before = (folder / "ranking.csv").read_bytes(), recorded(folder, "score")
    assert sorted(records_before) == [0, 1, 2]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line.replace(b'"facts"', b'"fact5"') if b" 1 {" in line else line for line in lines))
    (problem,) = verified(folder, "--remove")["problems"]
    assert (problem["path"], problem["stage"], problem["unit"]) == (str(path), "score", 1)
    assert path.exists()
    assert run_quietly(job)["recomputed"] == {"score": 1}
    after = recorded(folder, "score")
    assert [unit for unit, record in after.items() if record != records_before[unit]] == [1]
    assert (folder / "ranking.csv").read_bytes() == before
    assert verified(folder)["problems"] == []


def test_metadata_alone_are_written_again(job: Path, folder: Path) -> None:
    """Of the arrays that units share nothing is computed again."""
    shared = ["tiles/X", "tiles/partials", "tiles/row_norms", "knn/euclidean/indices", "scores/FisherScore"]
    metadata = [folder / name / "zarr.json" for name in shared]
    before = {path: path.read_bytes() for path in metadata}
    for path, way in zip(metadata, ("truncated", "emptied", "deleted", "directory", "neighbor"), strict=True):
        if way == "neighbor":
            shutil.copyfile(folder / "scores/RLSR/zarr.json", path)
            content = json.loads(path.read_text())
            path.write_text(json.dumps({**content, "shape": [9, 9]}))
        else:
            WAYS[way](path)
    assert sorted(problem["path"] for problem in verified(folder)["problems"]) == sorted(map(str, metadata))
    verified(folder, "--remove")
    (aside,) = metadata[3].parent.glob("zarr.json.aside-*")  # whose folder it was, nobody knows
    shutil.rmtree(aside)
    result = run_quietly(job)
    assert result["recomputed"] == {}
    assert {path: path.read_bytes() for path in metadata} == before
    assert all(any(str(path) in warning for warning in texts(result)) for path in metadata)
    assert verified(folder)["problems"] == []


@pytest.mark.parametrize("way", ["flipped", "deleted", "directory", "emptied"])
def test_files_of_no_unit_are_checked(job: Path, folder: Path, way: str) -> None:
    paths = [folder / "plan.json", folder / "report.html"]
    for path in paths:
        if way == "flipped" and path.name == "plan.json":
            path.write_bytes(path.read_bytes().replace(b"{", b"(", 1))
        else:
            WAYS[way](path)
    named = {problem["path"] for problem in verified(folder)["problems"]}
    assert named == set(map(str, paths))
    verified(folder, "--remove")
    assert run_quietly(job)["recomputed"] == {}
    assert verified(folder)["problems"] == []
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_manifest_that_cannot_be_read_is_refused_by_readers_and_made_again(job: Path, folder: Path) -> None:
    manifest = folder / "run.json"
    manifest.write_bytes(manifest.read_bytes()[:200])
    assert [problem["path"] for problem in verified(folder)["problems"]] == [str(manifest)]
    assert verified(folder, "--remove")["removed"] == 0
    for reader in ("status", "report"):
        refused(daskfs(reader, folder), 3, str(manifest), "is damaged", "'daskfs run' makes it again")
    assert run_quietly(job)["recomputed"] == {}
    assert verified(folder)["problems"] == []


def test_overwrite_starts_over_where_the_manifest_is_damaged(tmp_path: Path) -> None:
    job = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    (tmp_path / "run/run.json").write_text("{")
    (tmp_path / "run/mine.txt").write_text("not of a run")
    refused(daskfs("run", job, "-q", "--overwrite"), 3, "run.json", "was not written by daskfs")
    (tmp_path / "run/mine.txt").unlink()
    assert run_quietly(job, "--overwrite")["recomputed"]


def test_what_no_record_knows_is_left_over_and_stays(folder: Path) -> None:
    strays = [folder / "scores/RLSR/c/0/9", folder / "records/score/000099.json", folder / "knn/.x.12.tmp"]
    strays += [folder / "tiles/X/c/7/7", folder / "scores/RLSR/c/.partial"]
    mine = folder / "notes.txt"
    for path in (*strays, mine):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    with (folder / "events.jsonl").open("a") as events:
        events.write('{"time": 1')
    result = verified(folder, "--remove")
    assert sorted(result["left_over"]) == sorted(map(str, strays))
    assert result["n_left_over"] == len(strays)
    assert [note for note in result["notes"] if "events.jsonl: 1 lines" in note]
    assert all(path.exists() for path in (*strays, mine))
    assert "left over: " + str(strays[0]) in daskfs("verify", folder, "-q").out


def test_an_unfinished_run_is_not_a_damaged_one(tmp_path: Path) -> None:
    from daskfs import load_job, run_job
    from daskfs.errors import RunStoppedError
    from tests.execution.runs import Stop

    job = storage_job(tmp_path)
    for stage, unit in (("ingest", 0), ("edges-euclidean-5", 0), ("svm-judge", 4)):
        with pytest.raises(RunStoppedError):
            run_job(load_job(job), Stop(stage, unit))
        result = verified(tmp_path / "run")
        assert (result["problems"], result["status"]) == ([], "stopped")
        assert result["not_done"] > 0
    flip(next((tmp_path / "run/knn/euclidean/indices").glob("c/*/*")))
    assert len(verified(tmp_path / "run")["problems"]) == 1


@pytest.fixture(scope="module")
def tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted store, and a job that reads it."""
    folder = tmp_path_factory.mktemp("tiles")
    source = write_data(folder)
    options = ("--labels", "y", "--weights", "w", "--feature-names", "names", "--workers", 0, "-q")
    assert daskfs("convert", source, folder / "tiles.zarr", *options).code == 0
    return folder / "tiles.zarr"


def convert_again(tiles: Path) -> dict[str, int]:
    options = ("--labels", "y", "--weights", "w", "--feature-names", "names", "--workers", 0, "--json", "-q")
    outcome = daskfs("convert", tiles.parent / "X.npz", tiles, *options)
    assert outcome.code == 0, outcome.err
    assert "made again" in outcome.err
    recomputed: dict[str, int] = outcome.json["recomputed"]
    return recomputed


@pytest.mark.parametrize("way", ["flipped", "deleted", "emptied"])
def test_a_tile_store_is_checked_and_convert_mends_it(tiles: Path, way: str) -> None:
    files = one_of_each_kind(tiles)
    for path in files.values():
        WAYS[way](path)
    found = verified(tiles)
    assert {problem["path"] for problem in found["problems"]} == {str(path) for path in files.values()}
    verified(tiles, "--remove")
    assert convert_again(tiles) == {"labels": 1, "ingest": 1, "columns": 1}
    assert verified(tiles)["problems"] == []


def test_a_run_that_reads_a_tile_store(tiles: Path, tmp_path: Path) -> None:
    """Its source is checked with it; 'run' refuses what is damaged there, and 'convert' mends it."""
    job = storage_job(tmp_path, data={"source": str(tiles)}, methods=["LaplacianScore"], evaluate=None)
    run_quietly(job)
    folder = tmp_path / "run"
    assert verified(folder)["problems"] == []
    before = (folder / "ranking.csv").read_bytes()
    chunk = tiles / "X/c/0/1"
    flip(chunk)
    assert [problem["path"] for problem in verified(folder, "--remove")["problems"]] == [str(chunk)]
    assert chunk.exists(), "what lies outside of the run is not its own to delete"
    delete(folder / "scores/LaplacianScore/c/0/1")
    refused(daskfs("run", job, "-q"), 3, str(chunk), "daskfs convert")
    assert chunk.exists()
    verified(tiles, "--remove")
    assert convert_again(tiles) == {"ingest": 1}
    assert run_quietly(job)["recomputed"] == {"score": 1}
    assert (folder / "ranking.csv").read_bytes() == before
    assert verified(folder)["problems"] == []


def test_x_that_is_used_where_it_lies(tmp_path: Path) -> None:
    """What another program wrote is compared with the norms and moments that the run took of it."""
    X = np.load(write_data(tmp_path))["X"]
    array: Any = zarr.create_array(store=str(tmp_path / "x.zarr"), shape=X.shape, dtype="f4", chunks=(2048, 48))
    array[...] = X
    job = storage_job(tmp_path, data={"source": str(tmp_path / "x.zarr")}, methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    result = verified(tmp_path / "run")
    assert result["problems"] == []
    assert "used where it lies" in result["notes"][0]
    chunk = tmp_path / "x.zarr/c/1/0"
    state = chunk.stat()
    content = chunk.read_bytes()
    array[2100, 3] += 1.0
    os.utime(chunk, ns=(state.st_atime_ns, state.st_mtime_ns))
    problems = [problem for problem in verified(tmp_path / "run")["problems"] if "rows" in problem["problem"]]
    assert "rows 2048:4096 are not those" in problems[0]["problem"]
    chunk.write_bytes(content[:-20])
    found = [problem["problem"] for problem in verified(tmp_path / "run")["problems"]]
    assert any("cannot decode" in text and "c/1/0" in text for text in found), found
    assert any("the source changed" in text for text in found)


def test_a_source_that_changed_is_a_problem_of_a_run(tmp_path: Path) -> None:
    job = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    source = tmp_path / "X.npz"
    os.utime(source, ns=(0, 0))
    (problem,) = verified(tmp_path / "run")["problems"]
    assert (problem["path"], "changed since" in problem["problem"]) == (str(source), True)
    refused(daskfs("run", job, "-q"), 3, str(source), "changed since")
    source.unlink()
    (problem,) = verified(tmp_path / "run")["problems"]
    assert "is gone" in problem["problem"]


def test_directories_that_are_neither(tmp_path: Path) -> None:
    refused(daskfs("verify", tmp_path, "-q"), 3, str(tmp_path), "neither a daskfs run nor a tile store")
    with pytest.raises(StoreError, match="neither"):
        package.verify_run(tmp_path / "nowhere")


def test_a_run_in_progress_is_looked_at_and_not_touched(folder: Path) -> None:
    import fcntl

    with (folder / ".lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert any("a process is running" in note for note in verified(folder)["notes"])
        refused(daskfs("verify", folder, "-q", "--remove"), 4, "another daskfs process is running")


def test_kinds_are_told_apart() -> None:
    assert kind_of("tiles/X/c/0/12") == "tiles/X/c/#/#"
    assert kind_of("evaluation/orders/3.npz") == "evaluation/orders/#.npz"
