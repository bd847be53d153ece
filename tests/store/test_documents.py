"""What a driver writes beside the outputs of units is compared, too, and counts in its own epoch."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskfs import load_job, open_run, run_job
from daskfs.errors import DamagedError, RunStoppedError, StoreError
from daskfs.store import layout
from daskfs.store.documents import DOCUMENT_NAMES
from daskfs.store.store import Store
from tests.cli.command import basic_job, daskfs, refused, texts, write_job
from tests.cli.test_moved_runs import tables
from tests.execution.runs import Stop

VALUE: dict[str, Any] = {"format_version": layout.FORMAT_VERSION, "a": [1, 0.1, None], "b": {"c": "x"}}


@pytest.mark.parametrize("name", DOCUMENT_NAMES)
def test_every_changed_byte_is_damage(tmp_path: Path, name: str) -> None:
    store = Store(tmp_path)
    store.begin_epoch()
    store.write_json(name, VALUE)
    whole = (tmp_path / name).read_bytes()
    assert store.read_json(name) == VALUE
    for place in range(len(whole)):
        for bit in (0, 2, 5):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            (tmp_path / name).write_bytes(changed)
            try:
                found = Store(tmp_path).read_json(name)
            except StoreError:
                continue
            # the same JSON, in other white space, or of another format version, which is refused as that
            assert found == VALUE or found.get("format_version") != layout.FORMAT_VERSION


@pytest.mark.parametrize("name", DOCUMENT_NAMES)
def test_what_a_late_driver_writes_does_not_count(tmp_path: Path, name: str) -> None:
    first = Store(tmp_path)
    first.begin_epoch()
    first.write_json(name, VALUE)
    late = Store(tmp_path, first.epoch.name)
    late.epoch._checked = np.inf  # it looked right before, and was frozen since
    second = Store(tmp_path)
    second.begin_epoch()
    assert Store(tmp_path).read_json(name) == VALUE, "which the second has taken over"
    late.write_json(name, {**VALUE, "a": "late"})
    with pytest.raises(DamagedError, match="had lost the run to another one: 'daskfs run' makes it again"):
        Store(tmp_path).read_json(name)
    third = Store(tmp_path)
    third.begin_epoch()
    with pytest.raises(StoreError, match="had lost the run to another one"):
        third.read_json(name)
    third.write_json(name, VALUE)
    assert Store(tmp_path).read_json(name) == VALUE


def test_an_edited_run_is_told_and_made_again(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    (tmp_path / "other").mkdir()
    other = write_job(tmp_path / "other", {**basic_job(tmp_path), "methods": ["VarianceScore"]})
    assert daskfs("run", job, "-q").code == 0
    run, file = tmp_path / "run", tmp_path / "run" / "run.json"
    whole, before = file.read_text(), tables(run)
    best = json.loads(whole)["best"]
    for key, value in {"best": [], "warnings": ["x"], "status": "failed", "n_selected": 1}.items():
        file.write_text(json.dumps({**json.loads(whole), key: value}))
        for verb in (("report", run), ("status", run), ("export", run, tmp_path / "t.npz")):
            refused(daskfs(*verb), 3, "run.json is damaged: its checksum", "'daskfs run' makes it again")
        assert "run.json" in daskfs("verify", run, "-q", "--json").json["problems"][0]["path"]
        with pytest.raises(DamagedError, match=r"run\.json is damaged"):
            open_run(run)
        refused(
            daskfs("run", other, "-q"), 3, "run.json is damaged or missing, and plan.json is not the plan of this job"
        )
        outcome = daskfs("run", job, "--json")
        assert outcome.code == 0
        assert sum(outcome.json["recomputed"].values()) == 0
        assert outcome.json["best"] == best
        assert texts(outcome.json) == [f"{file}: damaged or missing, and made again"]
        assert daskfs("verify", run).code == 0
        assert tables(run) == before
    file.unlink()
    assert "run.json" in daskfs("verify", run, "-q", "--json").json["problems"][0]["path"]
    assert daskfs("run", job, "-q").code == 0
    assert tables(run) == before
    (run / "plan.json").unlink()
    file.write_bytes(b"")
    refused(daskfs("run", job, "-q"), 3, "plan.json is not the plan of this job", "--overwrite")
    assert tables(run) == before


def test_a_run_without_scores_is_begun_again_if_nothing_tells_of_its_job(tmp_path: Path) -> None:
    path = write_job(tmp_path, basic_job(tmp_path))
    with pytest.raises(RunStoppedError):
        run_job(load_job(path), Stop("ingest", 0))
    (tmp_path / "run" / "run.json").write_bytes(b"{")
    outcome = daskfs("run", path)
    assert outcome.code == 0
    assert "run.json is damaged. Nothing was scored in it: this run takes over the directory" in outcome.err


def test_a_changed_number_in_a_plan_is_no_other_ranking(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=["RandomOrder", "VarianceScore"])
    clean = write_job(tmp_path, {**job, "output": {"path": str(tmp_path / "clean")}})
    assert daskfs("run", clean, "-q").code == 0
    path, run = write_job(tmp_path, job), tmp_path / "run"
    with pytest.raises(RunStoppedError):
        run_job(load_job(path), Stop("score", 0))
    shutil.copytree(run, tmp_path / "stopped")
    text = (run / "plan.json").read_text()
    (place,) = [match.start(1) for match in re.finditer(r'"random_state": (\d)', text)][:1]
    digits = [i for i, sign in enumerate(text) if sign.isdigit()]
    for changed in (place, *digits[:: len(digits) // 12]):
        shutil.rmtree(run)
        shutil.copytree(tmp_path / "stopped", run)
        (run / "plan.json").write_text(f"{text[:changed]}{9 - int(text[changed])}{text[changed + 1 :]}")
        outcome = daskfs("run", path, "-q")
        assert outcome.code == 0 or "format version" in outcome.err, outcome.err
        if outcome.code == 0:
            assert tables(run) == tables(tmp_path / "clean")


def test_a_lost_table_is_an_error(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path, evaluate={"n_selected": [1, 2], "n_splits": 2, "models": ["knn"]}))
    assert daskfs("run", job, "-q").code == 0
    run = tmp_path / "run"
    for name in ("ranking", "evaluation", "evaluation_summary"):
        (run / f"{name}.parquet").unlink()
        with pytest.raises(DamagedError, match=rf"{name}\.parquet is missing: 'daskfs run' makes it again"):
            getattr(open_run(run), name)
    assert daskfs("run", job, "-q").code == 0
    assert len(open_run(run).ranking) == 8
    for path in (run / "records", run / "tiles"):  # cut down to its tables
        Store(path).target("").remove()
    (run / ".epoch").unlink()
    assert len(open_run(run).ranking) == 8
