"""Benchmark of the driver with many workers: the real driver, scheduler, store and records, and units that sleep.

    python -m tests.benchmarks.scale [--workers 50 200 500] [--units 10000] [--seconds 5] [--events none slow die late]
        [--flat 10000 100000] [--small]

A unit sleeps for `seconds`, a fifth more or less, writes one chunk of an array, and its record. A stage of one unit
follows, which reads a chunk. Driver, scheduler and workers are processes of their own; each worker process has many
workers, of one thread each. The first table is of the rate, the second one (`--flat`) of the driver's memory with units
that do not sleep. Events befall one worker in twenty: they take twice as long, die after half of the units, or arrive
after a quarter. Prints Markdown.

All processes share the cores of this machine, so that the workers may be late. "sustained" is what driver and scheduler
would do on a core each: units per second at which the busier one of the two takes all of it. What the heartbeats of the
workers take from the scheduler ("idle", measured before the first unit) is left out of its milliseconds per unit, and
then taken from the core. Without `--folder`, a disk that syncs one
file after the other may limit the workers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil

from daskfs.criteria import slab
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import pool_of
from daskfs.execution.progress import Silent
from daskfs.report.summary import stage_facts
from daskfs.runs.manifest import lock_directory
from daskfs.runs.runner import Runner
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.processors import computed_by
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from daskfs.stages.units import create_arrays
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.log import Log
from daskfs.store.store import Store

WIDTH = 64
"""Features of a unit: the columns of its chunk."""
SPREAD = 0.2
SHARE = 0.05
"""Share of the workers that are slow, die or arrive late."""
AFTER = {"die": 0.5, "late": 0.25}
"""Share of the units after which the event is."""
SLOWER = 2.0
PER_PROCESS = 125
IDLE_SECONDS = 10.0
N_SEEN = 10
"""Number of times that the driver's memory is looked at."""
QUIET = {
    "logging.distributed": "error",
    # these cost a worker a thousandth of a core, and 500 of them on one machine all of it
    "distributed.admin.tick.interval": "5s",
    "distributed.admin.system-monitor.interval": "20s",
    "distributed.worker.memory.monitor-interval": "20s",
    "distributed.worker.profile.enabled": False,
}
"""Dask settings of workers that share a machine with all others."""
SCALED, CLOSING = "scaled", "closing"
ARRAY = layout.SCORES.format(SCALED)
MiB = 2**20
_factor = [1.0]
"""How much longer units take in this process."""


class ScaledParameters(StageParameters):
    """Mean seconds of a unit, and number of units."""

    seconds: float
    n_units: int


def sleep(context: Context, parameters: ScaledParameters, unit: int) -> None:
    """Take as long as a unit does, and write what it would."""
    spread = 1 + SPREAD * (2 * (unit * 0.6180339887 % 1) - 1)
    time.sleep(parameters.seconds * spread * _factor[0])
    start = unit * WIDTH
    context.store.open(ARRAY)[:, start : start + WIDTH] = np.full((1, WIDTH), float(unit))


def create(context: Context, parameters: ScaledParameters) -> None:
    """Create the array that the units share."""
    context.store.create(ARRAY, (1, parameters.n_units * WIDTH), float, (1, WIDTH))


def close(context: Context, parameters: StageParameters, unit: int) -> dict[str, Any]:
    """Read a chunk, whose checksum is compared with the seal."""
    del parameters
    return {"found": float(context.store.open(ARRAY)[:, : (unit + 1) * WIDTH].sum())}


def know_kinds() -> None:
    """Let a process find the kinds of stages."""
    slab.SCALED_STAGE = StageKind(SCALED, slab.__name__, sleep, tuple, create)  # type: ignore[attr-defined]
    slab.CLOSING_STAGE = StageKind(CLOSING, slab.__name__, close, tuple)  # type: ignore[attr-defined]


def settings_of(**own: Any) -> Any:
    """Return a block with Dask's settings of a cluster that daskfs starts, and some more."""
    from distributed.config import initialize_logging

    found = dask.config.set({**ClusterSettings(tls=False).told_to_dask, **own})
    initialize_logging(dask.config.config)
    return found


# ------------------------------------------------------------------------------------------------------ processes
def schedule(pipe: Connection) -> None:
    """Be the scheduler, and tell its address."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            pipe.send(scheduler.address)
            await scheduler.finished()

    with settings_of(**{"logging.distributed": "error"}):
        asyncio.run(serve())


def work(address: str, n_workers: int, factor: float, pipe: Connection) -> None:
    """Be some workers, and tell when they are there."""
    from distributed import Worker

    know_kinds()
    _factor[0] = factor
    computed_by()  # imports what the first unit of a worker does

    async def serve() -> None:
        workers = [Worker(address, nthreads=1, memory_limit=0, dashboard=False) for _ in range(n_workers)]
        await asyncio.gather(*workers)
        pipe.send(time.time())
        await asyncio.gather(*(worker.finished() for worker in workers))

    with tempfile.TemporaryDirectory() as folder, settings_of(**QUIET, **{"temporary-directory": folder}):
        asyncio.run(serve())


def drive(address: str, folder: str, n_units: int, seconds: float, pipe: Connection) -> None:
    """Be the driver: run the stages as a job does, and tell of what it took."""
    know_kinds()
    store, process = Store(as_path(folder)), psutil.Process()
    kinds = {SCALED: slab.SCALED_STAGE, CLOSING: slab.CLOSING_STAGE}  # type: ignore[attr-defined]
    parameters = ScaledParameters(seconds, n_units)
    stages = [
        Stage(SCALED, kinds[SCALED].reference, n_units, parameters, 0),
        Stage(CLOSING, kinds[CLOSING].reference, 1, StageParameters(), 0),
    ]
    plan = Plan(store.url, with_fingerprints(stages, ""), SCALED)
    settings = ClusterSettings(address=address, tls=False)
    log, seen, n_done = Log(store.path(layout.EVENTS)), list[float](), 0
    told, started_at = sorted({int(share * n_units) for share in AFTER.values()}), time.time()

    with lock_directory(store, layout.RUN_JSON, "benchmark", "--folder", print) as lock, connect(settings) as client:

        def report(stage: Stage, unit: int, facts: dict[str, Any]) -> None:
            nonlocal n_done
            event = {"time": round(time.time(), 3), "stage": stage.name, "unit": unit, **facts}
            lock.check()
            store.epoch.check()
            log.add(json.dumps(event))
            n_done += 1
            if n_done % max(1, n_units // N_SEEN) == 0:
                seen.append(process.memory_info().rss / MiB)
            if n_done in told:
                pipe.send(n_done)

        store.begin_epoch()
        store.write_json(layout.PLAN_JSON, plan.to_json(store.url))
        context = Context(store)
        create_arrays(context, plan.stages)
        runner = Runner(pool_of(settings, client), Silent(), report)
        connected = time.time() - started_at
        pipe.send("begin")
        begun, cpu = time.time(), time.process_time()
        runner.run(context, plan.stages, plan.identity)
        log.flush()
        assert sum(stage_facts(context, stage)["units"] for stage in plan.stages) == n_done
        found = {"begun": begun, "ended": time.time(), "cpu": time.process_time() - cpu, "seen": seen}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        begun = time.time()
        Runner(pool_of(settings, client), Silent(), report).run(Context(Store(as_path(folder))), plan.stages, SCALED)
        pipe.send({**found, "connect": connected, "peak": peak, "resume": time.time() - begun})
        pipe.recv()


Started = tuple[Any, Connection]


@contextmanager
def started(target: Any, *arguments: Any) -> Iterator[Started]:
    """Run a function in a process of its own, with the other end of a pipe; kill it at the end."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=target, args=(*arguments, there), daemon=True)
    process.start()
    there.close()
    try:
        yield process, here
    finally:
        process.kill()
        process.join()


# ------------------------------------------------------------------------------------------------------ measurement
@dataclass(frozen=True)
class Case:
    """One run: workers, units, seconds of each, and what befalls some of the workers."""

    workers: int
    units: int
    seconds: float
    event: str = "none"

    @property
    def n_special(self) -> int:
        """Workers that the event befalls."""
        return 0 if self.event == "none" else max(1, round(SHARE * self.workers))


def cpu_of(processes: Sequence[Any]) -> float:
    """Return the CPU seconds that running processes have taken."""
    return sum(sum(psutil.Process(one.pid).cpu_times()[:2]) for one in processes)


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """Run a case and return its figures."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        scheduler, pipe = stack.enter_context(started(schedule))
        address = pipe.recv()

        def join(n_workers: int, factor: float) -> list[Started]:
            sizes = [len(part) for part in np.array_split(range(n_workers), -(-n_workers // PER_PROCESS))]
            return [stack.enter_context(started(work, address, size, factor)) for size in sizes if size]

        usual = join(case.workers - case.n_special, 1.0)
        special = join(case.n_special, SLOWER if case.event == "slow" else 1.0) if case.event in ("slow", "die") else []
        for _, one in (*usual, *special):
            one.recv()
        idle = cpu_of([scheduler])
        time.sleep(IDLE_SECONDS if case.workers > PER_PROCESS else 1.0)
        idle = (cpu_of([scheduler]) - idle) / (IDLE_SECONDS if case.workers > PER_PROCESS else 1.0)
        driver, told = stack.enter_context(started(drive, address, str(folder), case.units, case.seconds))
        assert told.recv() == "begin"
        working, changed = [process for process, _ in usual], 0.0
        before = [cpu_of([scheduler]), cpu_of(working)]
        after = AFTER.get(case.event)
        while isinstance(message := told.recv(), int):
            if after is None or message != int(after * case.units):
                continue
            if case.event == "die":
                for process, _ in special:
                    process.kill()
                changed = time.time()
            else:
                (one,) = [pipe for _, pipe in join(case.n_special, 1.0)]
                changed = one.recv()
        scheduling, took = cpu_of([scheduler]) - before[0], cpu_of(working) - before[1]
        memory = psutil.Process(scheduler.pid).memory_info().rss / MiB
        assert driver.is_alive()
        told.send("end")
    others = {"scheduler": scheduling, "idle": idle, "workers": took, "memory": memory, "changed": changed}
    return figures(case, message, others, folder)


def figures(case: Case, driver: Mapping[str, Any], others: Mapping[str, float], folder: Path) -> dict[str, Any]:
    """Return the row of a case from what its processes told, and from the log of its units."""
    events = [json.loads(line) for line in (folder / layout.EVENTS).read_text().splitlines()]
    ends = np.array([event["ended"] for event in events if event["stage"] == SCALED])
    begins = ends - [event["seconds"] for event in events if event["stage"] == SCALED]
    (closing,) = [(e["ended"] - e["seconds"], e["ended"]) for e in events if e["stage"] == CLOSING]
    assert len(ends) == case.units
    assert len({event["unit"] for event in events}) == case.units

    def busy(start: float, stop: float) -> float:
        """Share of the time of the workers that are there in which they run units."""
        taken = np.clip(np.minimum(ends, stop) - np.maximum(begins, start), 0, None).sum()
        there = case.workers * (stop - start)
        changed = min(max(others["changed"], start), stop)
        absent = {"die": stop - changed, "late": changed - start}.get(case.event, 0.0)
        return float(taken / (there - case.n_special * absent))

    serial = begins.min() - driver["begun"] + max(0.0, closing[0] - ends.max()) + driver["ended"] - closing[1]
    took = driver["ended"] - driver["begun"]
    each = {**others, "driver": driver["cpu"], "scheduler": others["scheduler"] - others["idle"] * took}
    ms = {name: 1000 * each[name] / case.units for name in ("driver", "scheduler", "workers")}
    return {
        "workers": case.workers,
        "units": case.units,
        "seconds": case.seconds,
        "event": case.event,
        "units/s": case.units / float(ends.max() - begins.min()),
        "busy": f"{100 * busy(ends.min(), begins.max()):.1f} %",
        "busy with start and end": f"{100 * busy(driver['begun'], ends.max()):.1f} %",
        "driver ms": ms["driver"],
        "scheduler ms": ms["scheduler"],
        "workers ms": ms["workers"],
        "scheduler idle": f"{100 * others['idle']:.0f} %",
        "sustained/s": 1000 * min(1 / ms["driver"], (1 - others["idle"]) / ms["scheduler"]),
        "connect s": driver["connect"],
        "serial s": float(serial),
        "resume s": driver["resume"],
        "driver MiB": f"{driver['seen'][0]:.0f} to {driver['seen'][-1]:.0f}",
        "peak MiB": driver["peak"],
        "scheduler MiB": others["memory"],
    }


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table in Markdown."""
    print(f"| {' | '.join(rows[0])} |\n|{' --- |' * len(rows[0])}")
    for row in rows:
        cells = (f"{v:.3g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in row.values())
        print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[50, 200, 500])
    parser.add_argument(
        "--units", type=int, default=10_000, help="of the largest number of workers; others in proportion"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--events", nargs="*", default=["none", "slow", "die", "late"], help="with the most workers")
    parser.add_argument("--flat", type=int, nargs="*", default=[10_000, 100_000], help="units that do not sleep")
    parser.add_argument("--flat-workers", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="where stores are made, for example /dev/shm")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args(arguments)
    if given.small:
        given.workers, given.units, given.seconds, given.events, given.flat = [4], 60, 0.05, ["die"], []
    most = max(given.workers, default=0)
    cases = [Case(n, given.units * n // most, given.seconds) for n in given.workers if n != most]
    cases += [Case(most, given.units, given.seconds, event) for event in given.events if most]
    flat = [Case(given.flat_workers, n, 0.0) for n in given.flat]
    if given.folder is not None:
        given.folder.mkdir(parents=True, exist_ok=True)
    print(f"{os.cpu_count()} cores for all processes\n")
    for title, some in (("Units that sleep", cases), ("Units that do not sleep", flat)):
        rows = []
        for case in some:
            with tempfile.TemporaryDirectory(dir=given.folder) as folder:
                rows.append(measured(case, Path(folder) / "run"))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        if rows:
            print(f"\n{title}\n")
            show(rows)


if __name__ == "__main__":
    main()
