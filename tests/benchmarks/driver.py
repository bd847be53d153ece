"""Benchmark of the driver: what a start of the local cluster, a unit and a small job cost, with TLS and without.

    python -m tests.benchmarks.driver [--units 1000] [--repeats 3] [--rows 351] [--columns 34] [--job-repeats 3]

A trivial unit returns at once, on two processes; the small job is one of `rows` x `columns` on the default cluster.
Rounds with TLS and without follow each other. Ratios are of medians, to those without TLS.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from distributed.security import Security

from daskfs.criteria import slab
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import pool_of
from daskfs.execution.submission import run_stage
from daskfs.job.job import make_job
from daskfs.runs.pipeline import run_job
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from daskfs.storage import as_path
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from tests.benchmarks.main_job import show

TRIVIAL = "trivial"
GiB = 2**30


def do_nothing(context: Context, parameters: StageParameters, unit: int) -> None:
    """Be a trivial unit."""
    del context, parameters, unit


KIND = StageKind(TRIVIAL, "daskfs.criteria.slab", do_nothing, tuple)


def know_trivial() -> None:
    """Let a worker find the trivial kind of stage."""
    slab.TRIVIAL_STAGE = KIND  # type: ignore[attr-defined]


@contextmanager
def prepared() -> Iterator[None]:
    """Know the trivial kind of stage, without warnings of what has no TLS, which is the point here."""
    logger = logging.getLogger("daskfs")
    level = logger.level
    logger.setLevel(logging.ERROR)
    know_trivial()
    try:
        yield
    finally:
        logger.setLevel(level)
        del slab.TRIVIAL_STAGE  # type: ignore[attr-defined]


def timed_units(n_units: int, *, tls: bool) -> dict[str, float]:
    """Return the seconds that a cluster of two processes takes to start and end, and how many units a second it ran."""
    began = time.perf_counter()
    with (
        TemporaryDirectory() as folder,
        connect(ClusterSettings(workers=2, memory_limit=GiB, tls=tls)) as client,
    ):
        assert client is not None
        started = time.perf_counter() - began
        client.run(know_trivial)
        store = Store(as_path(folder))
        store.begin_epoch()
        (stage,) = with_fingerprints([Stage(TRIVIAL, KIND.reference, n_units, StageParameters(), 0, 0, 0)], "")
        plan = Plan(store.url, (stage,), "trivial")
        store.write_json(layout.PLAN_JSON, plan.to_json(store.url))
        pool = pool_of(ClusterSettings(workers=2), client)
        pieces = range(20), range(20, n_units)
        for piece in pieces:  # the first of them imports what units need
            began = time.perf_counter()
            run_stage(Context(store), stage, piece, pool, plan.identity, lambda *_: None)
        return {"start_seconds": started, "units_per_second": len(pieces[1]) / (time.perf_counter() - began)}


def timed_job(rows: int, columns: int, *, tls: bool) -> dict[str, float]:
    """Return how long a small job takes on a cluster."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        source = f"synthetic:mixture?n_samples={rows}&n_features={columns}&n_classes=2&n_informative=4"
        job = make_job(
            {
                "data": {"source": source},
                "methods": ["LaplacianScore", "FisherScore", "VarianceScore"],
                "cluster": {"memory_limit": "1GiB", "tls": tls},
                "output": {"path": str(Path(folder) / "run")},
            }
        )
        run_job(job)
        return {"job_seconds": time.perf_counter() - began}


def compared(measure: Callable[..., dict[str, float]], repeats: int, *arguments: int) -> list[dict[str, Any]]:
    """Return medians without TLS and with it, rounds of which follow each other, and their ratios."""
    found: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for _ in range(repeats):
        for tls, rounds in found.items():
            rounds.append(measure(*arguments, tls=tls))
    medians = {
        tls: {key: statistics.median(one[key] for one in rounds) for key in rounds[0]} for tls, rounds in found.items()
    }
    return [
        {
            "figure": key,
            "plain": round(plain, 3),
            "tls": round(medians[True][key], 3),
            "ratio": round(medians[True][key] / plain, 3),
        }
        for key, plain in medians[False].items()
    ]


def measure(given: argparse.Namespace) -> None:
    began = time.perf_counter()
    Security.temporary()
    print(f"a certificate takes {time.perf_counter() - began:.3f} s, with the import of cryptography")
    rows = compared(timed_units, given.repeats, given.units)
    if given.job_repeats:
        rows += compared(timed_job, given.job_repeats, given.rows, given.columns)
    show("with TLS and without", rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--units", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", type=int, default=351)
    parser.add_argument("--columns", type=int, default=34)
    parser.add_argument("--job-repeats", type=int, default=3)
    given = parser.parse_args(arguments)
    with prepared():
        measure(given)


if __name__ == "__main__":
    main()
