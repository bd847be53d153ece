"""Faults of storage: what is damaged, missing, full, locked, or changes under a run is named, and mended or refused."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import shutil
import stat
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from daskfs import load_job, run_job
from daskfs.errors import DamagedError, InputError, JobError, StoreError, WriteError
from daskfs.execution.progress import Silent
from daskfs.graph import partitioned_search
from daskfs.graph.neighbors import SearchParameters
from daskfs.stages.stage import Stage
from daskfs.store.context import Context
from daskfs.store.layout import EVENTS
from daskfs.store.lease import Owner
from daskfs.store.store import Store
from daskfs.tiles import shapes
from tests.cli.command import daskfs, refused, texts
from tests.execution.damage import (
    OUTPUTS,
    WAYS,
    Damage,
    delete,
    flip,
    kind_of,
    one_of_each_kind,
    run_quietly,
    storage_job,
    truncate,
    verified,
    write_data,
)
from tests.execution.runs import command, kill, lose_record, recorded, started, wait_for_units, write_job

pytestmark = pytest.mark.cluster


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTPUTS if (folder / name).exists()}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Job of a finished run; each test leaves it finished and whole."""
    job = storage_job(tmp_path_factory.mktemp("storage"))
    run_quietly(job)
    return job


@pytest.fixture
def folder(job: Path) -> Path:
    return job.parent / "run"


# ------------------------------------------------------------------------------------------------ nothing is made up
def test_no_chunk_that_is_missing_or_damaged_is_read_as_something(folder: Path) -> None:
    """Of every kind of array, in every way: an error that names the chunk, which is gone afterwards."""
    chunks = {kind: path for kind, path in one_of_each_kind(folder).items() if "c/#" in kind}
    assert len(chunks) > 20
    for path in chunks.values():
        array = next(parent for parent in path.parents if (parent / "zarr.json").exists())
        content = path.read_bytes()
        for way in ("truncated", "flipped", "emptied", "deleted", "directory"):
            WAYS[way](path)
            with pytest.raises(DamagedError) as raised:
                Store(folder).open(str(array.relative_to(folder)))[...]
            assert raised.value.paths == (str(path),)
            assert not os.path.lexists(path)
            path.write_bytes(content)
        Store(folder).open(str(array.relative_to(folder)))[...]


# ------------------------------------------------------------------------------------------------ amid a run
MOMENTS = {
    # when this unit is done, that file is damaged: so it is found by a later stage, and this unit runs again
    ("ingest", 1): ("tiles/X/c/1/2", ("ingest", 1)),
    ("columns", 0): ("tiles/columns/c/0/0", ("columns", 0)),
    ("neighbors-euclidean", 1): ("knn/euclidean/indices/c/1/0", ("neighbors-euclidean", 1)),
    ("edges-summary-euclidean-5", 0): ("edges/euclidean-5/of/0-0.bin", ("edges-euclidean-5", 0)),
    ("weights-*", 0): ("weights/*/degrees/c/0", ("weights-*", 0)),
    ("score", 2): ("scores/LaplacianScore/c/0/1", ("score", 1)),
    ("svm-rows-*", 0): ("svm/*/kept/*/0.npz", ("svm-rows-*", 0)),
    ("rank", 0): ("tiles/labels/c/0", ("labels", 0)),
    ("gather", 1): ("evaluation/columns/0/c/0/0", ("gather", 0)),
    ("design", 0): ("evaluation/worlds/0.npz", ("design", 0)),
}


@pytest.fixture(scope="module")
def stage_names(job: Path) -> list[str]:
    return [stage["name"] for stage in json.loads((job.parent / "run/plan.json").read_text())["stages"]] + [
        "labels",
        "ingest",
        "columns",
    ]


def named(pattern: str, names: list[str]) -> str:
    """Return the first stage whose name begins so."""
    return next(name for name in names if name == pattern or name.startswith(pattern.removesuffix("*")))


@pytest.mark.parametrize(
    "way", ["deleted", *(pytest.param(way, marks=pytest.mark.long) for way in ("flipped", "truncated"))]
)
def test_what_is_damaged_amid_a_run_is_made_again_by_it(
    job: Path, stage_names: list[str], tmp_path: Path, way: str
) -> None:
    """Ten files, each damaged when it has just been written: each unit behind one runs once more, and no other."""
    mine = storage_job(tmp_path)
    folder = tmp_path / "run"
    damaged = []

    def damage(pattern: str) -> Callable[[], None]:
        def act() -> None:
            path = next(folder.glob(pattern))
            damaged.append(path)
            WAYS[way](path)

        return act

    progress = Damage(
        {(named(stage, stage_names), unit): damage(pattern) for (stage, unit), (pattern, _) in MOMENTS.items()}
    )
    result = run_job(load_job(mine), progress)
    assert (len(damaged), progress.moments) == (len(MOMENTS), {})
    assert outputs(folder) == outputs(job.parent / "run")
    first = run_units(job.parent / "run")
    again = {stage: count - first[stage] for stage, count in result["recomputed"].items() if count != first[stage]}
    expected: dict[str, int] = {}
    for stage, _ in (where for _, where in MOMENTS.values()):
        expected[named(stage, stage_names)] = expected.get(named(stage, stage_names), 0) + 1
    assert again == expected
    for path in damaged:
        assert [text for text in progress.said if str(path) in text], f"{path} was not told of"
        assert [text for text in texts(result) if str(path) in text and "made again" in text]
        assert str(path) in (folder / "report.html").read_text()
    assert json.loads((folder / "run.json").read_text())["warnings"] == result["warnings"]
    assert verified(folder)["problems"] == []


def run_units(folder: Path) -> dict[str, int]:
    """Return how many units a whole run has, by stage."""
    return {stage["name"]: stage["units"] for stage in json.loads((folder / "run.json").read_text())["stages"]}


@pytest.mark.long
def test_objects_and_metadata_that_go_amid_a_run(job: Path, tmp_path: Path, stage_names: list[str]) -> None:
    """Small files that stages read, tables of contents of arrays, and the plan itself."""
    mine, folder = storage_job(tmp_path), tmp_path / "run"

    def act(change: Callable[[Path], None], pattern: str) -> Callable[[], None]:
        return lambda: change(next(folder.glob(pattern)))

    weights = named("weights-*", stage_names)
    progress = Damage(
        {
            ("labels", 0): act(delete, "tiles/labels.json"),
            ("ingest", 0): act(flip, "tiles/sample_weights.json"),
            ("columns", 0): act(delete, "tiles/feature_names.json"),
            ("neighbors-euclidean", 0): act(truncate, "knn/euclidean/distances/zarr.json"),
            ("neighbors-euclidean", 1): act(delete, "plan.json"),
            ("edges-euclidean-5", 0): act(delete, "edges/euclidean-5/parts/zarr.json"),
            (weights, 0): act(delete, f"weights/{weights.removeprefix('weights-')}/parts/c/0/0"),
            ("edges-summary-euclidean-5", 0): act(truncate, "scores/LaplacianScore/zarr.json"),
            ("design", 0): act(delete, "evaluation/beside.npz"),
            ("evaluate", 4): lambda: lose_record(folder, "evaluate", 1),
        }
    )
    result = run_job(load_job(mine), progress)
    assert progress.moments == {}
    assert outputs(folder) == outputs(job.parent / "run")
    first = run_units(job.parent / "run")
    again = {stage: count - first[stage] for stage, count in result["recomputed"].items() if count != first[stage]}
    assert again == {"labels": 2, weights: 1, "design": 1}  # the record is known, and put again
    assert verified(folder)["problems"] == []


def test_damaged_twice_is_refused_with_the_path(tmp_path: Path) -> None:
    mine, folder = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None), tmp_path / "run"

    class Again(Silent):
        def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            del facts
            if (stage.name, unit) == ("ingest", 0):
                flip(folder / "tiles/X/c/0/0")

    with pytest.raises(DamagedError, match=r"tiles/X/c/0/0") as raised:
        run_job(load_job(mine), Again())
    assert raised.value.exit_code == 3
    assert not (folder / "ranking.csv").exists()
    run_quietly(mine)


@pytest.mark.long
def test_spilled_rows_that_are_damaged_amid_a_run(tmp_path: Path) -> None:
    """An approximate search writes what it needs only for a while."""
    blocks: dict[str, Any] = {"methods": ["LaplacianScore"], "evaluate": None, "graph": {"engine": "cells"}}
    run_quietly(storage_job(tmp_path / "whole", **blocks))
    mine, folder = storage_job(tmp_path / "mine", **blocks), tmp_path / "mine/run"
    name = "euclidean"

    def act(parent: str, pattern: str) -> Callable[[], None]:
        return lambda: flip(next(iter((folder / parent).rglob(pattern))))

    progress = Damage(
        {
            (f"cells-{name}", 0): act(f"knn/{name}/cells", "c/0/0"),
            (f"assign-{name}", 0): act(f"spill/{name}/rows", "*.bin"),
            (f"build-{name}", 0): act(f"spill/{name}/lists", "*.bin"),
        }
    )
    result = run_job(load_job(mine), progress)
    assert progress.moments == {}
    assert outputs(folder) == outputs(tmp_path / "whole/run")
    first = run_units(tmp_path / "whole/run")
    again = {stage: count - first[stage] for stage, count in result["recomputed"].items() if count != first[stage]}
    assert again == {f"cells-{name}": 1, f"assign-{name}": 1, f"build-{name}": 1}
    assert not list((folder / "spill").rglob("*/*"))
    result = verified(folder)
    assert (result["problems"], result["left_over"]) == ([], [])


# ------------------------------------------------------------------------------------------------ at the next start
@pytest.mark.long
def test_whole_folders_that_are_deleted(job: Path, folder: Path) -> None:
    before, first = outputs(folder), run_units(folder)
    gone = {"knn": ("neighbors-",), "tiles/X": ("ingest",), "evaluation": ("design", "orders", "gather", "evaluate")}
    for name in gone:
        shutil.rmtree(folder / name)
    shutil.rmtree(folder / "records/rank")
    result = run_quietly(job)
    expected = {name: count for name, count in first.items() if name == "rank" or name.startswith(gone["knn"])}
    expected |= {name: first[name] for name in ("ingest", "design", "orders")}
    assert 0 < result["recomputed"].pop("gather") <= first["gather"], (
        "of slabs without a feature in use nothing is lost"
    )
    assert result["recomputed"] == expected
    assert outputs(folder) == before
    assert verified(folder)["problems"] == []


def test_it_is_told_on_stderr_and_at_the_end(job: Path, folder: Path) -> None:
    chunk = folder / "scores/FisherScore/c/0/1"
    for quiet in ((), ("-q",)):
        truncate(chunk)
        outcome = daskfs("run", job, *quiet)
        assert outcome.code == 0
        lines = [line for line in outcome.err.splitlines() if str(chunk) in line]
        assert f"daskfs: warning: {chunk}: damaged or missing, and made again." in lines
        assert any("damaged or missing: made again." in line for line in lines) != bool(quiet)


# ------------------------------------------------------------------------------------------------ no room
def mounted(path: Path, size: str) -> None:
    path.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes=4000", "tmpfs", str(path)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"no file system of a few KiB can be mounted here: {done.stderr.decode().strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mount a file system of a given size, or make it larger."""
    path = tmp_path / "disk"

    def resize(size: str) -> Path:
        if os.path.ismount(path):
            subprocess.run(["mount", "-o", f"remount,size={size}", str(path)], check=True)
        else:
            mounted(path, size)
        return path

    yield resize
    if os.path.ismount(path):
        subprocess.run(["umount", "-l", str(path)], check=True)


def temporary_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix in (".tmp", ".partial")]


def filled_up(disk: Path, left: int) -> Path:
    """Take all room but so many bytes."""
    ballast = disk / "ballast"
    status = os.statvfs(disk)
    ballast.write_bytes(b"\0" * max(status.f_bavail * status.f_frsize - left, 0))
    return ballast


class FillUp(Silent):
    """Fills a disk up when a unit is done."""

    def __init__(self, disk: Path, stage: str, left: int) -> None:
        self.disk, self.stage, self.left = disk, stage, left

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del unit, facts
        if stage.name.startswith(self.stage) and not (self.disk / "ballast").exists():
            filled_up(self.disk, self.left)


class Disk:
    """A disk of a size, which holds nothing but what a search spills into a folder.

    Parameters
    ----------
    folder
        Folder of a run.
    size
        Bytes.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size, self.most = folder, size, 0

    def usage(self, path: Path) -> mock.Mock:
        del path
        return mock.Mock(free=self.size - self.spilled())

    def spilled(self) -> int:
        found = sum(path.stat().st_size for path in (self.folder / "spill").rglob("*") if path.is_file())
        self.most = max(self.most, found)
        return found


class Spilling(Silent):
    """Looks at a disk whenever a unit is done, and stops the run after one of them."""

    def __init__(self, disk: Disk, last: str = "") -> None:
        self.disk, self.last = disk, last

    def unit_done(self, stage: Stage, unit: int, facts: dict[str, Any]) -> None:
        del facts
        self.disk.spilled()
        if f"{stage.name} {unit}" == self.last:
            raise InputError(self.last)


@pytest.mark.parametrize(
    "source",
    [
        "mixture?n_features=40&n_samples=9000",
        pytest.param("sparse?n_features=2000&density=0.05&n_samples=4000", marks=pytest.mark.long),
    ],
)
def test_a_search_asks_for_room_before_it_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """It is refused with all sizes, goes on where there is room, counts what it has spilled, and takes what it said."""
    blocks: dict[str, Any] = {"methods": ["LaplacianScore"], "evaluate": None, "graph": {"engine": "cells"}}
    job = write_job(tmp_path, f"synthetic:{source}&seed=1", **blocks, cluster={"workers": 0})
    disk = Disk(tmp_path / "run", 2**15)
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    monkeypatch.setattr(shapes, "MIN_TILE_BYTES", 2**16)
    with pytest.raises(JobError, match=r"output\.path .* 0 B are written, and \S+ \wiB are free") as raised:
        run_job(load_job(job))
    assert raised.value.exit_code == 2
    assert disk.spilled() == 0
    assert list(recorded(disk.folder, "cells-euclidean")) == [0]

    asked: list[int] = []
    spilled_bytes = partitioned_search.spilled_bytes

    def noting(context: Context, parameters: SearchParameters) -> int:
        asked.append(spilled_bytes(context, parameters))
        disk.size = asked[0]
        return asked[-1]

    monkeypatch.setattr(partitioned_search, "spilled_bytes", noting)
    disk.size = 2**40
    with pytest.raises(InputError, match="assign"):
        run_job(load_job(job), Spilling(disk, "assign-euclidean 1"))
    result = run_job(load_job(job), Spilling(disk))
    n_units = next(stage["units"] for stage in result["stages"] if stage["name"] == "assign-euclidean")
    assert result["recomputed"]["assign-euclidean"] == n_units - 2 > 0
    assert len(asked) == 3  # before "assign", the rest of it, and "build"
    assert 0.7 * asked[0] < disk.most <= asked[0]


FULL = ("labels", "ingest", "neighbors-", "weights-", "score", "svm-rows", "rank", "evaluate", "evaluation-tables")


def test_a_full_disk_at_every_stage(job: Path, small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    """It fills up again and again, once in every stage: each call ends with one line, and the next one goes on."""
    disk = small_disk("64m")
    mine = storage_job(tmp_path, output={"path": str(disk / "run")})
    for stage in FULL:
        with pytest.raises(WriteError, match="No space left") as raised:
            run_job(load_job(mine), FillUp(disk, stage, 0))
        assert str(disk / "run") in str(raised.value)
        assert raised.value.exit_code == 1
        assert temporary_files(disk) == []
        assert not (disk / "run/report.html").exists()
        assert daskfs("status", disk / "run", "--json").json["status"] != "done"
        (disk / "ballast").unlink()
    result = run_quietly(mine)
    assert outputs(disk / "run") == outputs(job.parent / "run")
    assert not [text for text in texts(result) if "made again" in text], "nothing was damaged by that"
    assert verified(disk / "run")["problems"] == []


def test_a_disk_that_is_full_from_the_beginning(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    """One line that names the path, no traceback; once there is room, the same command does it."""
    disk = small_disk("40k")
    mine = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None, output={"path": str(disk / "run")})
    refused(daskfs("run", mine, "-q"), 1, str(disk / "run"), "No space left", "Make room")
    assert temporary_files(disk) == []
    filled_up(disk, 0)
    refused(daskfs("run", mine, "-q"), 1, str(disk / "run"), "No space left", "Make room")
    (disk / "ballast").unlink()
    small_disk("400k")
    refused(daskfs("run", mine, "-q"), 1, str(disk / "run"), "No space left", "Make room")
    assert temporary_files(disk) == []
    small_disk("32m")
    result = run_quietly(mine)
    assert result["recomputed"]["rank"] == 1
    assert verified(disk / "run")["problems"] == []


def test_a_disk_that_is_too_small_to_convert_to(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    disk, source = small_disk("300k"), write_data(tmp_path)
    arguments = ("convert", source, disk / "x.zarr", "--workers", 0, "-q")
    refused(daskfs(*arguments), 1, str(disk / "x.zarr"), "No space left", "Make room")
    assert temporary_files(disk) == []
    refused(daskfs("inspect", disk / "x.zarr"), 3)
    small_disk("32m")
    assert daskfs(*arguments).code == 0
    assert verified(disk / "x.zarr")["problems"] == []


# ------------------------------------------------------------------------------------------------ not writable, gone
def test_a_read_only_disk(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    disk = small_disk("32m")
    mine = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None, output={"path": str(disk / "run")})
    run_quietly(mine)
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused(daskfs("report", disk / "run"), 3, str(disk / "run"), "Read-only")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    truncate(disk / "run/scores/VarianceScore/c/0/1")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused(daskfs("run", mine, "-q"), 3, str(disk / "run"), "Read-only")
    assert len(verified(disk / "run")["problems"]) == 1, "to look at it, nobody needs to write"
    refused(daskfs("verify", disk / "run", "-q", "--remove"), 3, str(disk / "run"), "Read-only")
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert run_quietly(mine)["recomputed"] == {"score": 1}


def test_a_damaged_tile_store_that_nobody_may_write_to(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    """It is the source of a run, which names the chunk, and cannot remove it."""
    disk = small_disk("32m")
    assert daskfs("convert", write_data(tmp_path), disk / "x.zarr", "--workers", 0, "-q").code == 0
    flip(disk / "x.zarr/X/c/0/1")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    mine = storage_job(tmp_path, data={"source": str(disk / "x.zarr")}, methods=["VarianceScore"], evaluate=None)
    refused(daskfs("run", mine, "-q"), 3, str(disk / "x.zarr/X/c/0/1"), "Delete it", "daskfs convert")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_what_will_not_pass_is_not_tried_again(tmp_path: Path, code: int) -> None:
    """A quota, or a file system that the system has made read-only after an error of its disk."""
    mine = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    with mock.patch("os.fsync", side_effect=OSError(code, os.strerror(code))) as tried:
        refused(daskfs("run", mine, "-q"), 1, str(tmp_path / "run"), os.strerror(code), "the same command goes on")
    assert tried.call_count <= 2, "the manifest, and what it says of the end"
    assert temporary_files(tmp_path) == []
    assert run_quietly(mine)["recomputed"]["rank"] == 1


@pytest.mark.parametrize("moved", [False, True])
def test_an_output_that_vanishes_amid_a_run(tmp_path: Path, moved: bool) -> None:
    mine, folder = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None), tmp_path / "run"

    def vanish() -> None:
        if moved:
            folder.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(folder)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(StoreError, match="was deleted or moved away while"):
            run_job(load_job(mine), Damage({("ingest", 0): vanish}))
        gc.collect()
    assert not [str(warning.message) for warning in warned if EVENTS in str(warning.message)], "the log was closed"
    assert not (folder / "run.json").exists()
    shutil.rmtree(folder, ignore_errors=True)
    if moved:
        (tmp_path / "elsewhere").rename(folder)
    assert run_quietly(mine)["recomputed"]["rank"] == 1


# ------------------------------------------------------------------------------------------------ two at once
@pytest.mark.long
def test_two_runs_in_one_place(tmp_path: Path) -> None:
    """One wins, the other is refused, and told of who has it; a lock that a killed run leaves does not hold."""
    mine = storage_job(tmp_path, cluster={"workers": 1, "memory_limit": "1GiB"})
    with started(mine) as process:
        wait_for_units(process, "labels", 1)
        here = ("--set", "cluster.workers=0", "--set", "cluster.wait_seconds=.1")
        refused(daskfs("run", mine, "-q", *here), 4, str(tmp_path / "run"), f"process {process.pid} on")
        refused(daskfs("run", mine, "-q", "--overwrite", *here), 4, "another daskfs process is running")
        kill(process)
    assert (tmp_path / "run/.lock").exists()
    assert run_quietly(mine, *here)["recomputed"]["rank"] == 1


def test_a_run_waits_for_the_one_before(tmp_path: Path) -> None:
    """Whose task a scheduler has given up, or whose node is lost; it says at once who has the directory."""
    mine, told = storage_job(tmp_path), list[str]()
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/.lock").open("w") as lock:
        lock.write("process 12 on far")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)

        class Releasing(Silent):
            def message(self, text: str) -> None:
                told.append(text)
                fcntl.flock(lock, fcntl.LOCK_UN)

        assert run_job(load_job(mine), Releasing())["status"] == "done"
    assert told[0] == f"{tmp_path / 'run'} is locked by process 12 on far: waiting up to 120 s for its end."


@pytest.mark.long
def test_a_run_that_waits_can_be_stopped(tmp_path: Path) -> None:
    mine = storage_job(tmp_path)
    (tmp_path / "run").mkdir()
    with (tmp_path / "run/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(command("run", mine), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "is locked by another process: waiting up to 120 s" in process.stderr.readline()
        process.terminate()
        assert "stopped by SIGTERM" in process.communicate(timeout=60)[1]
    assert process.returncode == 75


def test_a_group_goes_on_with_a_run(tmp_path: Path) -> None:
    """With a umask of 002, every file may be written by the group: a colleague resumes."""
    mine, before = storage_job(tmp_path), os.umask(0o002)
    try:
        run_quietly(mine)
    finally:
        os.umask(before)
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(files) > 9
    assert [path for path in files if not path.stat().st_mode & stat.S_IWGRP] == []


@pytest.mark.parametrize("verb", ["convert", "compare"])
def test_two_others_in_one_place(job: Path, tmp_path: Path, verb: str) -> None:
    target = tmp_path / "target"
    arguments: list[object] = ["convert", write_data(tmp_path), target, "--workers", 0, "-q"]
    if verb == "compare":
        shutil.copytree(job.parent / "run", tmp_path / "b")
        arguments = ["compare", job.parent / "run", tmp_path / "b", "--output", target]
    target.mkdir()
    with (target / ".lock").open("w") as lock:
        lock.write("process 12 on far")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(daskfs(*arguments), 4, str(target), "another daskfs process is running", "process 12 on far")


@pytest.mark.long
def test_two_converts_at_once(tmp_path: Path) -> None:
    """Started together, each of them ends with the store, or is refused because of the other."""
    source = write_data(tmp_path)
    line = command("convert", source, tmp_path / "x.zarr", "--workers", 0, "-q")
    both = [subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    assert 0 in [code for _, code in ends]
    assert all(code == 0 or (code == 4 and "another daskfs process is running" in text) for text, code in ends), ends
    assert verified(tmp_path / "x.zarr")["problems"] == []


@pytest.mark.parametrize("problem", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_warned_of(tmp_path: Path, problem: int) -> None:
    mine = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    with mock.patch("fcntl.flock", side_effect=OSError(problem, os.strerror(problem))):
        result = run_quietly(mine)
        assert (tmp_path / "run/.lock").read_text() == str(Owner()), "for those who ask whether it is gone"
        outcome = daskfs("convert", tmp_path / "X.npz", tmp_path / "x.zarr", "--workers", 0, "-q")
    assert [text for text in texts(result) if "has no locks" in text and str(tmp_path / "run") in text]
    assert (outcome.code, "has no locks" in outcome.err) == (0, True)


def test_tiles_of_a_run_are_not_converted_into(job: Path, folder: Path) -> None:
    outcome = daskfs("convert", job.parent / "X.npz", folder / "tiles", "--workers", 0, "-q")
    refused(outcome, 3, str(folder / "tiles"), "daskfs run")


# ------------------------------------------------------------------------------------------------ changing sources
SEPARATE_FILES = {"labels": "y.npy", "weights": "w.npy", "groups": "g.csv", "feature_names": "names.txt"}


def write_parts(folder: Path, ending: str) -> dict[str, str]:
    """Write X in a format, and SEPARATE_FILES; return a data block."""
    with np.load(write_data(folder)) as found:
        X, y, w, names = (found[key] for key in ("X", "y", "w", "names"))
    np.save(folder / "y.npy", y)
    np.save(folder / "w.npy", w)
    (folder / "g.csv").write_text("group\n" + "\n".join(str(i % 7) for i in range(len(y))) + "\n")
    (folder / "names.txt").write_text("\n".join(names) + "\n")
    path = folder / f"data.{ending}"
    if ending == "npy":
        np.save(path, X)
    elif ending == "npz":
        np.savez(path, X=X)
    elif ending == "csv":
        np.savetxt(path, X, "%.4f", delimiter=",", header=",".join(names), comments="")
    elif ending == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), path, row_group_size=1000)
    else:
        import zarr

        zarr.create_array(store=str(path), shape=X.shape, dtype="f8", chunks=(500, 10))[...] = X
    return {"source": str(path), **{key: str(folder / name) for key, name in SEPARATE_FILES.items()}}


def touch(path: Path) -> None:
    """Change a file by one byte's worth of nothing: its time alone."""
    found = path / "zarr.json" if path.is_dir() else path
    status = found.stat()
    os.utime(found, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def shorten(path: Path) -> None:
    found = path / "c/0/0" if path.is_dir() else path
    found.write_bytes(found.read_bytes()[: found.stat().st_size // 2])


def take_away(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def replace(path: Path) -> None:
    """Put another file of the same size there, as programs do that write a new one and rename it."""
    found = path / "c/0/0" if path.is_dir() else path
    other = found.with_name("other")
    other.write_bytes(found.read_bytes()[::-1])
    other.replace(found)


FORMATS = ("npy", *(pytest.param(name, marks=pytest.mark.long) for name in ("npz", "csv", "parquet", "zarr")))
CHANGES = {"touched": touch, "shortened": shorten, "deleted": take_away, "replaced": replace}


@pytest.mark.parametrize("ending", FORMATS)
def test_a_source_that_changes_between_runs(tmp_path: Path, ending: str) -> None:
    """X, and each separate file: refused by name, and nothing of the run is touched."""
    data = write_parts(tmp_path, ending)
    mine = storage_job(tmp_path, data=data, methods=["FisherScore"], evaluate=None)
    run_quietly(mine)
    for key in ("source", *SEPARATE_FILES):
        path = Path(data[key])
        status = (path / "zarr.json" if path.is_dir() else path).stat()
        touch(path)
        refused(daskfs("run", mine, "-q"), 3, "changed since the run", data["source"])
        os.utime(path / "zarr.json" if path.is_dir() else path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run_quietly(mine)["recomputed"] == {}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ending", FORMATS)
def test_a_source_that_changes_while_it_is_read(tmp_path: Path, ending: str, change: str) -> None:
    """After the first band of several: refused by name, with exit code 3, and no unit of the new state is recorded. As
    nothing was scored, the next run starts over on what is whole.
    """
    data = write_parts(tmp_path, ending)
    mine = storage_job(tmp_path, data=data, methods=["FisherScore"], evaluate=None)
    progress = Damage({("ingest", 0): lambda: CHANGES[change](Path(data["source"]))})
    with pytest.raises(InputError) as raised:
        run_job(load_job(mine), progress)
    assert (raised.value.exit_code, data["source"] in str(raised.value)) == (3, True)
    assert list(recorded(tmp_path / "run/tiles", "ingest")) == [0]
    outcome = daskfs("run", mine, "-q")
    if change == "touched":
        assert outcome.code == 0
    else:
        refused(outcome, 3, str(tmp_path))  # the source, or labels of which a shorter table has too few rows


@pytest.mark.parametrize("key", SEPARATE_FILES)
def test_separate_files_that_change_while_they_are_read(tmp_path: Path, key: str) -> None:
    """The change comes amid the unit that reads them, which then is not recorded."""
    from daskfs.store.context import put_label_parts
    from daskfs.tiles import ingest

    data = write_parts(tmp_path, "npy")
    mine = storage_job(tmp_path, data=data, methods=["FisherScore"], evaluate=None)

    def changed_meanwhile(*arguments: Any) -> None:
        put_label_parts(*arguments)
        touch(Path(data[key]))

    with (
        mock.patch.object(ingest, "put_label_parts", changed_meanwhile),
        pytest.raises(InputError, match="changed") as raised,
    ):
        run_job(load_job(mine))
    assert data[key] in str(raised.value)
    assert not (tmp_path / "run/tiles/records").exists()


def test_a_source_that_changes_amid_a_unit(tmp_path: Path) -> None:
    """What was read of it may be of either state: nothing of it is kept."""
    from daskfs.sources.npy import NpySource

    data = write_parts(tmp_path, "npy")
    mine = storage_job(tmp_path, data=data, methods=["FisherScore"], evaluate=None)
    real = NpySource.read_rows

    def changed_meanwhile(self: NpySource, start: int, stop: int) -> Any:
        rows = real(self, start, stop)
        replace(Path(data["source"]))
        return rows

    with mock.patch.object(NpySource, "read_rows", changed_meanwhile), pytest.raises(InputError, match="changed after"):
        run_job(load_job(mine))
    assert not (tmp_path / "run/tiles/records/ingest").exists()


def test_a_source_that_cannot_change(tmp_path: Path) -> None:
    mine = storage_job(tmp_path, data={"source": "sklearn:iris"}, methods=["FisherScore"], evaluate=None)
    run_quietly(mine)
    assert run_quietly(mine)["recomputed"] == {}


def test_a_graph_that_changes_after_it_was_planned(job: Path, tmp_path: Path) -> None:
    lists = tmp_path / "euclidean"
    shutil.copytree(job.parent / "run/knn/euclidean", lists)
    mine = storage_job(tmp_path, methods=["LaplacianScore"], evaluate=None, graph={"precomputed": str(lists)})

    class Touch(Silent):
        def start_stage(self, stage: Stage, n_pending: int) -> None:
            if stage.name == "graph-given" and n_pending:
                touch(lists / "indices/c/0/0")

    with pytest.raises(InputError, match="changed after its reading") as raised:
        run_job(load_job(mine), Touch())
    assert str(lists) in str(raised.value)


# ------------------------------------------------------------------------------------------------ sources as stores
def test_a_foreign_array_reads_missing_chunks_as_its_fill_value_and_refuses_damaged_ones(tmp_path: Path) -> None:
    import zarr

    with np.load(write_data(tmp_path)) as found:
        X = found["X"]
    path = tmp_path / "x.zarr"
    zarr.create_array(store=str(path), shape=X.shape, dtype="f8", chunks=(2048, 48), fill_value=0.5)[...] = X
    (path / "c/1/1").unlink()
    blocks: dict[str, Any] = {"data": {"source": str(path)}, "methods": ["VarianceScore"], "evaluate": None}
    mine = storage_job(tmp_path, **blocks)
    first = run_quietly(mine)
    assert first["data"]["in_place"] == str(path)
    X[2048:4096, 48:] = 0.5
    np.save(tmp_path / "same.npy", X)
    other = storage_job(tmp_path / "other", **{**blocks, "data": {"source": str(tmp_path / "same.npy")}})
    run_quietly(other)
    folders = (tmp_path / "run", tmp_path / "other/run")
    ours, theirs = (Store(folder).open("scores/VarianceScore")[...] for folder in folders)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    chunk = path / "c/0/0"
    status = chunk.stat()
    chunk.write_bytes(chunk.read_bytes()[:-9])
    os.utime(chunk, ns=(status.st_atime_ns, status.st_mtime_ns))
    (tmp_path / "run/scores/VarianceScore/c/0/0").unlink()
    outcome = daskfs("run", mine, "-q")
    refused(outcome, 3, str(path))


def test_kinds_of_this_run(folder: Path) -> None:
    """The tables above are of everything that the issue names."""
    kinds = {kind_of(str(path.relative_to(folder))) for path in folder.rglob("*") if path.is_file()}
    assert {"tiles/X/c/#/#", "tiles/partials/c/#/#/#", "tiles/labels/c/#", "tiles/row_norms/c/#"} <= kinds
    assert {"knn/euclidean/indices/c/#/#", "edges/euclidean-#/of/#-#.bin", "scores/RLSR/c/#/#"} <= kinds
