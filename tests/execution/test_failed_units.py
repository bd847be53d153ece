"""A failure says where: in a file of the run, by ``--traceback``, and by ``daskfs unit``, for every kind of stage."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import daskfs
from daskfs.errors import UnitError
from daskfs.execution.pool import Pool
from daskfs.execution.progress import Silent
from daskfs.job.job import load_job
from daskfs.runs.pipeline import run_job
from daskfs.stages import failures
from daskfs.stages.kind import UnitFunction, all_kinds, kind_of, name_of
from daskfs.stages.parameters import StageParameters
from daskfs.store.context import Context
from tests.cli.command import basic_job, write_job
from tests.cli.command import daskfs as command
from tests.events import read_events
from tests.execution.halting import n_executing
from tests.execution.runs import HERE
from tests.execution.staged import threads_as_workers
from tests.execution.test_kills import IN_NO_JOB, JOBS, Halts, Undisturbed, errors_of, halting_run, wait_until

if TYPE_CHECKING:
    from distributed import Client
    from distributed.scheduler import WorkerState

SECRET = "\x1b[1ms3://me:hunter2@bucket/key"


def mistaken(run: UnitFunction[Any]) -> UnitFunction[Any]:
    """Return a unit function of the same parameters that fails as a program does that has a mistake."""

    @functools.wraps(run)
    def fail_on_purpose(context: Context, parameters: StageParameters, unit: int) -> dict[str, Any]:
        del context, unit
        raise KeyError(SECRET, *parameters.to_json())

    return fail_on_purpose


@contextlib.contextmanager
def failing(*references: str) -> Iterator[None]:
    """Let all units of some kinds fail."""
    with pytest.MonkeyPatch.context() as patch:
        for reference in references:
            module, _, name = reference.partition(":")
            found = kind_of(reference)
            kind = dataclasses.replace(found, run=mistaken(found.run))
            patch.setattr(importlib.import_module(module), name, kind)
        yield


def contents(folder: Path) -> dict[str, str]:
    """Return a hash of each file below a folder by its name."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def stages_of(run: Path) -> list[dict[str, Any]]:
    """Return the stages of a run, those of its tiles first."""
    plans = [json.loads((run / place / "plan.json").read_text()) for place in ("tiles", ".")]
    return [stage for plan in plans for stage in plan["stages"]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.long
@pytest.mark.parametrize("name", JOBS)
def test_any_unit_of_a_finished_run_runs_again_and_leaves_no_trace(undisturbed: Undisturbed, name: str) -> None:
    """Also those whose inputs were deleted since; the last unit of each stage, of a loop of its second round."""
    run = undisturbed.run(name)
    before = contents(run)
    for stage in stages_of(run):
        number = stage["n_units"] + (stage["n_units"] - 1 if stage["loop"] else -1)
        outcome = command("unit", run, stage["name"], number)
        assert outcome.code == 0, (stage["name"], outcome.err)
        assert "is done" in outcome.out
    assert contents(run) == before


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("name", "n_workers"), [*((name, 2) for name in JOBS), *((name, 0) for name in JOBS if name != "ranked")]
)
def test_a_unit_of_any_kind_that_fails_is_located(
    undisturbed: Undisturbed, name: str, n_workers: int, tmp_path: Path
) -> None:
    """All kinds have the mistake; the one that fails is mended, until the run ends."""
    job = load_job(JOBS[name](undisturbed.data, tmp_path), [f"cluster.workers={n_workers}"])
    references = {name_of(stage["kind"]): stage["kind"] for stage in stages_of(undisturbed.run(name))}
    n_kinds = len(references)
    run = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(threads_as_workers(2))[1] if n_workers else None
        connect = functools.partial(contextlib.nullcontext, client)
        while references:
            with failing(*references.values()), pytest.raises(UnitError, match="failed: KeyError") as caught:
                run_job(job, connect=lambda _: connect())
            if client is not None:  # others may run still
                wait_until(lambda: sum(client.run(n_executing).values()) == 0, None, "all units ended")
            path = Path(caught.value.failure)
            assert f"({path})" in "".join(caught.value.__notes__)
            text = path.read_text()
            function = re.search(r"^stage: .* of kind (\S+)$", text, re.M)[1]  # type: ignore[index]
            kind = references.pop(function)
            assert re.search(r"test_failed_units\.py\", line \d+, in fail_on_purpose", text), (kind, text)
            assert "hunter2" not in text
            assert "\x1b" not in text
            manifest = json.loads((run / "run.json").read_text())
            assert (manifest["status"], str(path) in manifest["error"]) == ("failed", True)
            shown = command("status", run)
            assert f"failure: {path}" in shown.out
            stage, number = re.fullmatch(r"(.*)-(\d+)-[0-9a-f]{12}-1\.txt", path.name).groups()
            where = next((own for own in [run, *run.glob("batches/*")] if path.is_relative_to(own / "failures")), run)
            before = contents(run)
            with failing(kind):
                outcome = command("unit", where, stage, number)
            assert "in fail_on_purpose" in outcome.err
            assert "hunter2" not in outcome.err
            assert outcome.code == 1
            assert contents(run) == before
        run_job(job, connect=lambda _: connect())
    assert (run / "ranking.csv").read_bytes() == (undisturbed.run(name) / "ranking.csv").read_bytes()
    assert command("verify", run).code == 0
    assert len(list(run.rglob("failures/*.txt"))) >= n_kinds


@pytest.mark.long
def test_every_kind_failed(undisturbed: Undisturbed) -> None:
    kinds = {name_of(stage["kind"]) for name in JOBS for stage in stages_of(undisturbed.run(name))}
    assert kinds == {kind.name for kind in all_kinds()} - IN_NO_JOB


# --------------------------------------------------------------------------------------------------what is kept of it
SCORE = "daskfs.criteria.slab:SCORE_STAGE"


def test_the_traceback_is_shown_only_if_asked(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    with failing(SCORE):
        plain, full = command("run", job, "-q"), command("run", job, "-q", "--traceback")
    assert (plain.code, plain.err.count("Traceback"), plain.err.count("\n")) == (1, 0, 1)
    assert re.search(r"failures/score-0-[0-9a-f]{12}-1\.txt\)$", plain.err.rstrip())
    assert "in fail_on_purpose" in full.err
    assert "hunter2" not in plain.err + full.err
    assert read_events(tmp_path / "run", "failed")[-1]["file"] in full.err
    assert command("status", tmp_path / "run", "--json").json["failures"][-1]["file"] in full.err
    assert command("run", job, "-q").code == 0
    assert {"run_started", "stage_started", "unit", "failed", "done"} <= {
        json.loads(line)["event"] for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    }


def test_many_failures_fill_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "MAX_FILES", 2)
    monkeypatch.setattr(failures, "MAX_FAILURE_BYTES", 1000)
    job = write_job(tmp_path, basic_job(tmp_path))
    with failing(SCORE):
        outcomes = [command("run", job, "-q") for _ in range(4)]
    files = list((tmp_path / "run" / "failures").iterdir())
    assert len(files) == 2
    assert all(path.stat().st_size <= 1000 for path in files)
    assert "[...]" in files[0].read_text()
    assert ["failures/" in outcome.err for outcome in outcomes] == [True, True, False, False]


def test_a_failure_outside_of_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))

    def fail(*_: object) -> None:
        raise RecursionError(SECRET)

    with monkeypatch.context() as patch:
        patch.setattr("daskfs.report.summary.run_facts", fail)
        outcome = command("run", job, "-q")
    assert (outcome.code, outcome.err.count("Traceback")) == (1, 0)
    path = tmp_path / "run" / "failures" / "run.txt"
    assert str(path) in outcome.err
    assert "in fail\n" in path.read_text()
    assert "hunter2" not in path.read_text() + outcome.err
    assert command("status", tmp_path / "run", "--json").json["status"] == "failed"
    assert command("run", job, "-q").code == 0


def test_a_refused_job_leaves_no_file_and_a_folder_of_failures_is_not_foreign(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert command("run", job, "-q", "--set", "data.labels=nowhere.npy").code == 3
    assert not list(tmp_path.rglob("failures"))
    (tmp_path / "run" / "failures").mkdir(parents=True)
    (tmp_path / "run" / "failures" / "score-0-000000000000-1.txt").write_text("of a run before")
    assert command("run", job, "-q").code == 0
    assert command("verify", tmp_path / "run", "--json").json["left_over"] == []
    assert command("run", job, "-q", "--set", "methods=[FisherScore]", "--overwrite").code == 0
    assert not (tmp_path / "run" / "failures").exists()


def test_a_conversion_that_fails(tmp_path: Path) -> None:
    basic_job(tmp_path)
    with failing("daskfs.tiles.ingest:INGEST_STAGE"):
        outcome = command("convert", tmp_path / "X.npy", tmp_path / "X.zarr", "--workers", 0, "-q")
    (path,) = (tmp_path / "X.zarr" / "failures").iterdir()
    assert f"({path})" in outcome.err
    assert "in fail_on_purpose" in path.read_text()
    assert command("convert", tmp_path / "X.npy", tmp_path / "X.zarr", "--workers", 0, "-q").code == 0
    assert command("verify", tmp_path / "X.zarr").code == 0


def test_a_temporary_run_names_no_file(tmp_path: Path) -> None:
    basic_job(tmp_path)
    with failing(SCORE), pytest.raises(UnitError) as caught:
        daskfs.rank(str(tmp_path / "X.npy"), str(tmp_path / "y.npy"), methods="FisherScore", evaluate=None)
    assert "failures" not in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "in fail_on_purpose" in failures.traceback_of(caught.value)


def test_units_that_are_not_there(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    with failing(SCORE):
        command("run", job, "-q")
    run = tmp_path / "run"
    for arguments, code, message in (
        (("scores", 0), 2, "Did you mean 'score'?"),
        (("score", 1), 2, "has units 0 to 0, and no unit 1"),
        (("rank", 0), 3, "needs stage score, of which 1 units are not done"),
    ):
        outcome = command("unit", run, *arguments)
        assert (outcome.code, message in outcome.err) == (code, True), outcome.err
    assert daskfs.run_unit(run, "score", 0)["seconds"] >= 0


@pytest.mark.long
@pytest.mark.cluster
def test_a_killed_worker_leaves_its_last_words(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The driver writes for it, as no second worker may try: its signal, and its memory when it last reported."""
    job = JOBS["target"](undisturbed.data, tmp_path, dask={"distributed.scheduler.allowed-failures": 0})
    halts = Halts(tmp_path / "halts", "begun")
    halts.want("score")
    with halting_run(job, halts) as process:
        os.kill(halts.wait_for("score", process), signal.SIGKILL)
        halts.want("")
        assert process.wait() == 1
        message = errors_of(process)
    (path,) = (tmp_path / "run" / "failures").iterdir()
    text = path.read_text()
    assert f"({path})" in message
    assert "its end: ended by signal 9 (Killed)" in text
    assert re.search(r"its memory: \d+ bytes at its last report, of at most 2147483648", text)
    assert f"failure: {path}" in command("status", tmp_path / "run").out
    assert command("run", job, "-q", *HERE).code == 0


class Forgetful:
    """A cluster that forgets a job when it has replaced it, which is at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def complete(self, n_workers: int) -> None:
        """Begin to replace lost workers."""

    def last_words(self, worker: str, name: object) -> str:
        """Return the state of the job, once."""
        self.asked.append((worker, name))
        return "job 3 TIMEOUT" if len(self.asked) == 1 else ""


def test_last_words_stay_when_the_cluster_has_replaced_the_worker() -> None:
    """Of one that nobody asked about while it lived, too."""
    cluster = Forgetful()
    pool = Pool(cast("Client", SimpleNamespace(cluster=cluster)))
    state = cast("WorkerState", SimpleNamespace(name="w0", host="node-1", memory_limit=2**30))
    words = pool.last_words("tcp://gone", state)
    assert words == pool.last_words("tcp://gone", state)
    assert cluster.asked == [("tcp://gone", "w0")] * 2
    assert list(words.values()) == [
        "tcp://gone, name w0, host node-1",
        "not reported before its end, of at most 1073741824",
        "job 3 TIMEOUT",
    ]


# ------------------------------------------------------------------------------------------------------------- the log
def test_the_log_is_silent_until_a_level_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    assert command("run", job, "-q").err == ""
    assert capfd.readouterr().err == ""
    with caplog.at_level("DEBUG", logger="daskfs"):
        daskfs.run(str(job), progress=False, overwrite=True)
    assert any("unit 0 of stage score is done" in record.getMessage() for record in caplog.records)


def watching(run: Path) -> type[Silent]:
    """Return a display that asks for the status of a run at each unit."""

    class Watching(Silent):
        shown: list[dict[str, Any]] = []  # noqa: RUF012 - of this class alone

        def unit_done(self, stage: Any, unit: int, facts: dict[str, Any]) -> None:
            del stage, unit, facts
            self.shown.append(command("status", run, "--json").json)

    return Watching


def test_status_says_what_each_worker_does(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    display = watching(tmp_path / "run")
    run_job(load_job(job), display())
    seen = [units for shown in display.shown for units in shown["workers"].values()]  # type: ignore[attr-defined]
    assert {"stage": "score", "unit": 0} in [unit for units in seen for unit in units] or seen == []
    ended = command("status", tmp_path / "run", "--json").json
    assert (ended["workers"], ended["slow"], ended["retries"], ended["failures"]) == ({}, [], [], [])
    assert ended["slowest"]["seconds"] >= 0
