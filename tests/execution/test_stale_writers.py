"""Whoever writes late, into a run that has gone on or begun anew, changes no result: docs/protocol.md."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import functools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from daskfs.errors import RunStoppedError, StoreError
from daskfs.job.job import load_job
from daskfs.runs.pipeline import run_job
from daskfs.sources.npz import NpzSource
from daskfs.stages.units import run_stored_unit
from daskfs.store import epoch as epochs
from daskfs.store import layout
from tests.cli.command import daskfs, refused
from tests.execution.damage import METHODS, OUTPUTS, Damage, run_quietly, storage_job, verified
from tests.execution.runs import Stop, asked_of, record_file, recorded, write_document

pytestmark = pytest.mark.cluster


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in OUTPUTS if (folder / name).exists()}


def other_job(folder: Path, **blocks: Any) -> Path:
    """Write the same job on other values, of the same shape and names."""
    job = storage_job(folder, **blocks)
    with np.load(folder / "X.npz") as found:
        arrays = dict(found)
    np.savez(folder / "X.npz", **{**arrays, "X": arrays["X"][::-1] * 3 + 1, "y": np.roll(arrays["y"], 15)})
    return job


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return the directories of a run, and of one of the same job on other data."""
    folder = tmp_path_factory.mktemp("runs")
    for job in (storage_job(folder / "this"), other_job(folder / "other")):
        run_quietly(job)
    return folder / "this/run", folder / "other/run"


SMALL: dict[str, Any] = {"methods": ["FisherScore"], "evaluate": None}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run of one method."""
    folder = tmp_path_factory.mktemp("small")
    run_quietly(storage_job(folder, **SMALL))
    return folder / "run"


def stages_of(folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return where the records of each stage lie, and the stage."""
    found = {}
    for store in (folder / "tiles", folder):
        plan = json.loads((store / "plan.json").read_text())
        found.update({stage["name"]: (store, stage) for stage in plan["stages"]})
    return found


@pytest.mark.long
@pytest.mark.parametrize("first", range(4))
def test_what_a_run_that_has_ended_writes_late_is_made_again(
    runs: tuple[Path, Path], tmp_path: Path, first: int
) -> None:
    """When a stage is done, all that is left of it is replaced by what another run wrote under the same names, whole
    as it is: in every fourth stage.
    """
    this, other = runs
    mine = tmp_path / "run"
    replaced: Counter[str] = Counter()

    def late(stage: str, store: Path) -> None:
        for record in recorded(store, stage).values():
            for name in (*record["chunks"], *record["objects"]):
                theirs = other / store.relative_to(mine) / name
                if theirs.exists() and theirs.read_bytes() != (store / name).read_bytes():
                    shutil.copyfile(theirs, store / name)
                    replaced[stage] += 1

    moments: dict[tuple[str, int], Callable[[], None]] = {}
    for name, (store, stage) in list(stages_of(this).items())[first::4]:
        if not stage["loop"] and not stage["needed_until"]:
            moments[name, int(stage["n_units"]) - 1] = partial(late, name, mine / store.relative_to(this))
    progress = Damage(moments)
    result = run_job(load_job(storage_job(tmp_path)), progress)
    assert len(replaced) > 1
    assert sum(result["recomputed"].values()) > sum(stage["units"] for stage in result["stages"])
    assert outputs(mine) == outputs(this)
    assert verified(mine)["problems"] == []


@pytest.mark.parametrize("sees", [True, False])
def test_a_unit_that_outlives_its_run(small: Path, tmp_path: Path, sees: bool) -> None:
    """The run is started over, on other data, while the unit reads. It sees that before it writes; where it looked a
    moment before, and was frozen, what it writes is damage.
    """
    job = storage_job(tmp_path, **SMALL)
    other = other_job(tmp_path / "other", output={"path": str(tmp_path / "run")}, **SMALL)
    with pytest.raises(RunStoppedError):
        run_job(load_job(other), Stop("labels", 0))
    tiles = tmp_path / "run/tiles"
    asked = asked_of(tiles, "ingest", 0)
    read, begun = NpzSource.read_rows, list[int]()

    def started_over(self: NpzSource, start: int, stop: int) -> Any:
        rows = read(self, start, stop)
        if not begun:
            begun.append(start)
            run_quietly(job, "--overwrite")
        return rows

    seconds = {False: 0.0 if sees else np.inf}
    with mock.patch.object(NpzSource, "read_rows", started_over), mock.patch.object(epochs, "CHECK_SECONDS", seconds):
        if sees:
            with pytest.raises(StoreError, match="was taken over by another daskfs process"):
                run_stored_unit(*asked)
        else:
            run_stored_unit(*asked)
    assert begun
    assert bool(verified(tmp_path / "run")["problems"]) != sees
    run_quietly(job)
    assert verified(tmp_path / "run")["problems"] == []
    assert run_quietly(job)["recomputed"] == {}
    assert outputs(tmp_path / "run") == outputs(small)


def test_two_drivers_where_nothing_locks(tmp_path: Path, small: Path) -> None:
    """As on a network file system without locks: the one that came first stops, and the other one's result stays."""
    job = storage_job(tmp_path, **SMALL)

    def second() -> None:
        assert run_quietly(job)["status"] == "done"

    refused = OSError(errno.ENOLCK, "No locks available")
    with (
        mock.patch.object(fcntl, "flock", side_effect=refused),
        mock.patch.object(epochs, "CHECK_SECONDS", {False: 0.0}),
        pytest.raises(StoreError, match="was taken over by another daskfs process"),
    ):
        run_job(load_job(job), Damage({("score", 0): second}))
    assert outputs(tmp_path / "run") == outputs(small)
    assert verified(tmp_path / "run")["problems"] == []
    assert daskfs("status", tmp_path / "run", "--json").json["status"] == "done"  # the first one leaves that alone


def test_what_was_made_of_other_inputs_is_made_again(tmp_path: Path) -> None:
    """A unit is made again to other bytes, as on another processor: all that read them follow."""
    job = storage_job(tmp_path, methods=METHODS[:2], evaluate=None)
    first = run_quietly(job)
    run = tmp_path / "run"
    stages = [name for name in stages_of(run) if name in first["recomputed"]]
    position = stages.index("neighbors-euclidean")
    chunk = run / "knn/euclidean/distances/c/0/0"
    chunk.unlink()
    from daskfs.graph import neighbors

    kind = neighbors.NEIGHBORS_STAGE

    @functools.wraps(kind.run)
    def otherwise(context: Any, parameters: Any, unit: int) -> Any:
        facts = kind.run(context, parameters, unit)
        array = context.store.open(layout.KNN_DISTANCES.format("euclidean"))
        rows = slice(0, array.chunks[0])
        array[rows] = array[rows] * (1 + 1e-12)
        return facts

    with mock.patch.object(neighbors, "NEIGHBORS_STAGE", dataclasses.replace(kind, run=otherwise)):
        again = run_quietly(job)["recomputed"]
    assert again == {stages[position]: 1, **{name: first["recomputed"][name] for name in stages[position + 1 :]}}
    assert verified(run)["problems"] == []


# ---------------------------------------------------------------------------------------------------- hostile records
def test_a_record_removes_nothing_outside(tmp_path: Path) -> None:
    """Whether it says so by its name, or a link leads there."""
    from daskfs.store.records import decode, encode

    job = storage_job(tmp_path / "job", methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    run, victim = tmp_path / "job/run", tmp_path / "job/victim"
    victim.mkdir()
    (victim / "mine").write_text("x")
    (run / "link").symlink_to(tmp_path / "job")
    path, whole = record_file(run, "score", 0), tmp_path / "whole"
    run.rename(whole)
    record = decode("score", 0, (whole / path.relative_to(run)).read_bytes().strip())
    names = ("../victim", str(victim), "link/victim")
    for how, kind, name in product(("run", "verify --remove"), ("chunks", "objects"), names):
        shutil.copytree(whole, run, symlinks=True)
        path.write_bytes(encode({**record, kind: {**record[kind], name: [1, 2]}}))
        if how == "run":
            outcome = daskfs("run", job, "-q")
            assert outcome.code == (0 if name != "link/victim" else 3), outcome.err
        else:
            daskfs("verify", run, "--remove", "-q")
        assert (victim / "mine").read_text() == "x", (how, kind, name)
        shutil.rmtree(run)


def test_what_a_killed_driver_had_begun_to_write_is_nothing(tmp_path: Path) -> None:
    """A driver that is killed while it begins leaves a manifest under the name that it has until it is whole."""
    job = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    begun = tmp_path / "run/.run.json.5095.140320027528064.tmp"
    begun.parent.mkdir()
    begun.write_text("{")
    run_quietly(job)
    assert not begun.exists()


def test_a_plan_deletes_nothing_outside(tmp_path: Path) -> None:
    """Also the plan of tiles, which lies in the manifest; that of the run is made again."""
    job = storage_job(tmp_path / "job", methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    run, victim = tmp_path / "job/run", tmp_path / "job/victim"
    victim.mkdir()
    for file, key in product(("plan.json", "run.json"), ("clears", "name")):
        content = (run / file).read_bytes()
        found = json.loads(content)
        (found if file == "plan.json" else found["tiles"])["stages"][0][key] = "../victim"
        write_document(run / file, found)
        outcome = daskfs("run", job, "-q")
        if file == "run.json":
            refused(outcome, 3, "../victim", "is damaged, in 'tiles'")
        else:
            assert (outcome.code, "plan.json: damaged or missing, and made again" in outcome.err) == (0, True)
        assert victim.exists(), (file, key)
        (run / file).write_bytes(content)


def test_a_folder_in_the_place_of_a_file_is_moved_aside(tmp_path: Path) -> None:
    job = storage_job(tmp_path, methods=["VarianceScore"], evaluate=None)
    run_quietly(job)
    run = tmp_path / "run"
    before = outputs(run)
    (run / "ranking.csv").unlink()
    (run / "ranking.csv").mkdir()
    (run / "ranking.csv/mine").write_text("x")
    assert run_quietly(job)["recomputed"] == {"rank": 1}
    assert outputs(run) == before
    (aside,) = run.glob("ranking.csv.aside-*/mine")
    assert aside.read_text() == "x"
