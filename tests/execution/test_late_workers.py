"""Workers that come, freeze or are slow while a stage runs: those that are there get its units."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from daskfs.execution.in_flight import PER_THREAD, SUBMITTED_TOGETHER, room
from daskfs.execution.pool import Pool
from daskfs.store import record_files
from daskfs.store.record_files import RecordFiles
from daskfs.store.record_index import RecordIndex
from tests.cli.command import basic_job, daskfs, write_job
from tests.execution.staged import halted, here, run_made_up, threads_as_workers


def test_room_for_units_law() -> None:
    """Each thread has one that runs and one that waits; of units that any worker may run, some more ask for workers."""
    for threads in (0, 1, 2, 7, 64, 4000):
        placed, anywhere = room(threads, is_placed=True), room(threads)
        assert placed == PER_THREAD * max(threads, 1)
        assert anywhere > placed
        assert anywhere - placed == room(0) - PER_THREAD, "no more than a few wait, however many workers there are"


@pytest.mark.cluster
@pytest.mark.parametrize("loop", ["", "rounds"])
def test_workers_that_join_amid_a_stage_get_units(tmp_path: Path, loop: str) -> None:
    """All units halt until each of four workers, one of which is there at first, has begun some."""
    n_units, seen, another = 30, set(), threading.Event()

    with threads_as_workers(1) as (cluster, client):

        def unit(number: int) -> dict[str, bool]:
            seen.add(here())
            if number == 0:
                cluster.scale(4)
            if len(seen) == 4:
                another.set()
            halted(another)
            return {"finished": True}

        done = run_made_up(tmp_path, n_units, unit, Pool(client), loop=loop)
    assert sorted(done) == list(range(n_units))
    assert len(seen) == 4


@pytest.mark.cluster
def test_an_adaptive_cluster_grows_and_may_begin_without_workers(tmp_path: Path) -> None:
    """The same for a job: it asks for its first worker, whose units halt in the next cluster until there are more."""
    with threads_as_workers(0) as (cluster, client):
        cluster.adapt(minimum=0, maximum=2, interval="50ms", target_duration="50ms", wait_count=20)
        where = {"address": client.scheduler.address}
        outcome = daskfs("run", write_job(tmp_path, basic_job(tmp_path, cluster=where)), "-q")
        assert outcome.code == 0, outcome.err
    seen, another = set(), threading.Event()
    with threads_as_workers(1) as (cluster, client):
        cluster.adapt(minimum=1, maximum=4, interval="50ms", target_duration="50ms")

        def unit(number: int) -> None:
            del number
            seen.add(here())
            if len(seen) == 4:
                another.set()
            halted(another)

        run_made_up(tmp_path, 30, unit, Pool(client))
    assert len(seen) == 4


@pytest.mark.cluster
def test_units_are_submitted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first ones, as many as half of those that wait in the scheduler."""
    n_units, n_workers, sent = 90, 2, list[int]()
    submit = Client.map

    def counted(self: Client, call: Any, *columns: Any, **options: Any) -> Any:
        sent.append(len(columns[0]))
        return submit(self, call, *columns, **options)

    monkeypatch.setattr(Client, "map", counted)
    with threads_as_workers(n_workers) as (_, client):
        done = run_made_up(tmp_path, n_units, lambda _: None, Pool(client))
    assert sorted(done) == list(range(n_units))
    assert sum(sent) == n_units
    assert sent[0] == room(n_workers)
    assert all(n >= SUBMITTED_TOGETHER for n in sent[:-1])


@pytest.mark.cluster
def test_records_are_noted_by_the_thread_that_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads only read them: a merge goes through all that are noted."""
    n_units, threads, merged = 40, set[str](), list[int]()
    note, merge = RecordFiles.note, RecordIndex.merge

    def noted(self: RecordFiles, stage: str, unit: int, line: bytes) -> None:
        if stage in self._views:
            threads.add(threading.current_thread().name)
        note(self, stage, unit, line)

    def counted(self: RecordIndex, file: str, lines: Mapping[int, bytes]) -> None:
        threads.add(threading.current_thread().name)
        merged.extend(lines)
        merge(self, file, lines)

    monkeypatch.setattr(record_files, "TOGETHER", 4)
    monkeypatch.setattr(RecordFiles, "note", noted)
    monkeypatch.setattr(RecordIndex, "merge", counted)
    with threads_as_workers(2) as (_, client):
        run_made_up(tmp_path, n_units, lambda _: None, Pool(client))
    assert len(merged) > n_units - record_files.MERGED_WHEN_FINISHED
    assert len(set(merged)) == len(merged)
    assert threads == {threading.current_thread().name}
