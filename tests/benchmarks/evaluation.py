"""Benchmark of the evaluation: every method of the registry on four data sets of different kinds, in one study.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.evaluation [--data FOLDER] [--setting both] [--small] [--workers 2]

Prints for each data set, and for all, the number of tasks, wall time, the share of it that workers were busy with units
(the rest is scheduling, and waiting for the last unit of a stage) and what a task costs beside its own seconds; and how
often neighbors were searched against how many sets of rows there are. Without a folder of real data sets, all are
bundled or made.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.evaluation.design import Design, EvaluationParameters
from daskfs.evaluation.rows import seen_by
from daskfs.evaluation.trials import EVALUATE_STAGE
from daskfs.runs.benchmark import make_study, run_study
from daskfs.stages.stage import Plan
from daskfs.store import layout
from daskfs.store.context import Context
from daskfs.store.store import Store
from tests.benchmarks.main_job import show
from tests.events import read_events

REAL = ("colon", "segment", "tecator", "PCMAC")
MADE: dict[str, dict[str, Any]] = {
    "classes": {"source": "sklearn:wine"},
    "many rows": {"source": "synthetic:mixture?n_samples=3000&n_features=20&n_classes=5&n_informative=8&seed=1"},
    "target": {"source": "sklearn:diabetes"},
    "sparse": {
        "source": "synthetic:sparse?n_samples=600&n_features=400&density=0.03&n_classes=2&n_informative=9&seed=1"
    },
}
SMALL: dict[str, dict[str, Any]] = {
    "target": {"source": "sklearn:diabetes"},
    "sparse": {"source": "synthetic:sparse?n_samples=120&n_features=40&density=0.1&n_classes=2&n_informative=9&seed=1"},
}
FEW_ROUNDS = [{"name": name, "max_iter": 3} for name in ("RLSR", "DSSFS", "SSUFS")]
SEARCHES = ("neighbors-", "cells-", "build-")


@dataclass(frozen=True)
class Run:
    """A finished run of a study."""

    name: str
    folder: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """Return ``run.json``."""
        found: dict[str, Any] = json.loads((self.folder / layout.RUN_JSON).read_text())
        return found

    def events(self) -> list[dict[str, Any]]:
        """Return what was told of each unit."""
        return read_events(self.folder)

    def design(self) -> tuple[Context, EvaluationParameters]:
        """Return the store of the run, and the parameters of its evaluation."""
        store = Store(self.folder)
        plan = Plan.from_json(store.read_json(layout.PLAN_JSON) or {}, store.url)
        parameters = plan.parameters_of(EVALUATE_STAGE)
        assert parameters is not None
        return Context(store), parameters


def timed(events: list[dict[str, Any]], threads: int) -> dict[str, float]:
    """Return tasks, wall time from the first unit's begin to the last one's end, and what workers did with it."""
    wall = max(e["time"] for e in events) - min(e["time"] - e["seconds"] for e in events)
    busy = sum(e["seconds"] for e in events)
    share = busy / (wall * threads)
    return {
        "tasks": len(events),
        "wall_s": wall,
        "busy": share,
        "overhead": 1 - share,
        "ms_per_task": 1000 * (wall * threads - busy) / len(events),
    }


def sets_of_rows(run: Run) -> dict[str, bytes]:
    """Return the rows that selections stand on, by the names of their sets."""
    context, parameters = run.design()
    design = Design(parameters)
    found: dict[str, bytes] = {}
    for number in range(design.n_selections):
        selection = design.selection(number)
        rows = seen_by(context, parameters, selection).places.tobytes()
        assert found.setdefault(selection.rows, rows) == rows, "one name, two sets of rows"
    return found


def searched(run: Run) -> dict[str, float]:
    """Return how often neighbor lists were searched, and of how many different sets of rows.

    Raises
    ------
    AssertionError
        Where a unit ran twice, or lists of the same rows were found under two names.
    """
    context, parameters = run.design()
    events = [(event["stage"], event["unit"]) for event in run.events()]
    assert len(set(events)) == len(events), "a unit ran twice"
    sets = sets_of_rows(run)
    n_units = sum(stage == "evaluation-lists" for stage, _ in events)
    whole = context.tiles.shape.n_samples
    of_run = {stage for stage, _ in events if stage.startswith(SEARCHES)}
    ways = {stage.partition("-")[2] for stage in of_run}
    # the run's own lists serve selections of all rows
    serves = parameters.anew is not None and parameters.anew.lists_of_run
    own = [rows for rows in sets.values() if len(rows) == 8 * whole] if serves else []
    assert len(set(sets.values())) == len(sets), "lists of the same rows under two names"
    assert n_units == (len(sets) - len(own) if ways else 0), "lists for other sets of rows than there are"
    return {"sets_of_rows": len(sets), "searched_in_run": len(own) if ways else 0, "searched_in_evaluation": n_units}


def study_of(
    datasets: dict[str, Any], folder: Path, setting: str, workers: int, *, small: bool = False
) -> dict[str, Any]:
    """Return the study: all methods, five draws of labels; in the small form fewer rounds, draws, folds and sizes."""
    size = {"n_draws": 1, "n_splits": 2, "n_selected": [4], "max_samples": 100}
    if not small:
        size = {"n_draws": 5, "n_splits": 3, "n_selected": [5, 10, 20, 50]}
    return {
        "datasets": datasets,
        "methods": [*FEW_ROUNDS, "all"] if small else "all",
        "evaluate": {"setting": setting, "labels": [10], **size},
        "cluster": {"workers": workers, "memory_limit": "4GiB"},
        "output": {"path": str(folder)},
    }


def real_data(folder: Path, scratch: Path) -> dict[str, Any]:
    """Return data blocks of real sets; classes are named in words, as some sets number them -1 and 1, and -1 is no
    label.
    """
    blocks = {}
    for name in REAL:
        labels = "y"
        with np.load(folder / f"{name}.npz") as file:
            if file["task"] == "classification":
                labels = str(scratch / f"{name}.txt")
                Path(labels).write_text("\n".join(f"class {code}" for code in file["y"]) + "\n")
        blocks[name] = {"source": str(folder / f"{name}.npz"), "labels": labels}
    return blocks


def runs_of(result: dict[str, Any]) -> Iterator[Run]:
    """Yield the runs of a study that is done."""
    for one in result["data_sets"]:
        yield Run(one["name"], Path(one["run"]))


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="Folder with colon, segment, tecator and PCMAC as .npz.")
    parser.add_argument("--setting", default="transductive", choices=["transductive", "inductive", "both"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="Few rows and rounds.")
    parser.add_argument("--folder", type=Path, help="Where the study goes; a temporary one by default.")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch) / "study"
        datasets = SMALL if options.small else MADE
        if options.data is not None:
            datasets = real_data(options.data, Path(scratch))
        study = study_of(datasets, folder, options.setting, options.workers, small=options.small)
        result = run_study(make_study(study))
        threads = max(1, options.workers)
        rows, events = [], []
        for run in runs_of(result):
            events += run.events()
            known = {"data_set": run.name, "methods": len(run.manifest["methods"])}
            rows.append({**known, **timed(run.events(), threads), **searched(run)})
        rows.append({"data_set": "all", "methods": "", **timed(events, threads)})
        show("one study, every method", rows)
        costs = [(run.name, run.manifest["evaluation"]) for run in runs_of(result)]
        keys = ("n_selections", "n_tests", "busy_seconds", "wall_seconds", "overhead")
        show("evaluation stages", [{"data_set": name, **{key: cost[key] for key in keys}} for name, cost in costs])
        for row in result["average_ranks"]:
            print(f"average rank {row['average_rank']:.2f}  {row['method']}")
        print(f"wall time with the start of workers: {result['wall_seconds']:.1f} s")


if __name__ == "__main__":
    main()
