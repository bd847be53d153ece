"""A stage whose units a test makes up, run as those of a run are: on workers that are threads of this process, or here.

A unit is a function of its number, so that a test can count, halt and fail its units without a clock.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster, get_worker

from daskfs.criteria import slab
from daskfs.execution.pool import Pool
from daskfs.execution.submission import Report, run_stages
from daskfs.stages.kind import StageKind
from daskfs.stages.parameters import StageParameters
from daskfs.stages.stage import Plan, Stage, with_fingerprints
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store

SECONDS = 60.0
"""How long a unit may be halted; none is for as long where all goes well."""
Call = Callable[[int], dict[str, Any] | None]
_called: dict[str, Call] = {}


class Called(StageParameters):
    """The key of what units call."""

    call: str


def call(context: Context, parameters: Called, unit: int) -> dict[str, Any] | None:
    """Run a unit that a test has made up, and return its facts."""
    del context
    return _called[parameters.call](unit)


MADE_UP = StageKind("made-up", "daskfs.criteria.slab", call, tuple)
"""A kind that lies in a folder of stages as long as its units run."""


class Lines(list[str]):
    """Lines that a pool tells."""

    def __call__(self, text: str, event: str = "message", **facts: Any) -> None:
        """Keep a line."""
        del event, facts
        self += [text] if text else []


def halted(gate: threading.Event) -> None:
    """Halt a unit until a gate opens."""
    assert gate.wait(SECONDS), "nothing has let the unit go on"


def here() -> str:
    """Return the address of the worker that runs a unit."""
    return str(get_worker().address)


def run_made_up(
    folder: Path, n_units: int, call: Call, pool: Pool, done: list[int] | None = None, **stage: Any
) -> list[int]:
    """Run units that a test makes up; return their numbers in the order of their ends, which `done` has anyhow."""
    done = [] if done is None else done
    made = made_up(folder, "made-up", n_units, call, **stage)
    run_all(folder, [made], pool, lambda _, unit, __: done.append(unit))
    return done


def made_up(folder: Path, name: str, n_units: int, call: Call, **stage: Any) -> Stage:
    """Return a stage whose units a test makes up."""
    key = f"{folder}/{name}"
    _called[key] = call
    return Stage(name, MADE_UP.reference, n_units, Called(key), 0, **stage)


def run_all(folder: Path, stages: Sequence[Stage], pool: Pool, report: Report) -> Context:
    """Run the pending units of made-up stages; return their context."""
    url = str(folder / "made-up")
    plan = Plan(url, with_fingerprints(stages, ""), url)
    store = Store(Path(url))
    store.begin_epoch()
    store.write_json(layout.PLAN_JSON, plan.to_json(store.url))
    context = Context(store)
    with contextlib.ExitStack() as stack:
        slab.MADE_UP_STAGE = MADE_UP  # type: ignore[attr-defined]
        stack.callback(delattr, slab, "MADE_UP_STAGE")
        run_stages(context, plan.stages, pool, url, report)
    return context


@contextlib.contextmanager
def threads_as_workers(n_workers: int) -> Iterator[tuple[LocalCluster, Client]]:
    """Yield a cluster of workers of one thread that are threads of this process, and its client."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client
