"""Benchmark of threads: one worker of two threads against two workers of one, and against one of one thread.

    python -m tests.benchmarks.threads [--jobs dense sparse exact svm rescaled text] [--scale 1.0]

Runs each job three times and prints Markdown: the seconds of every stage that takes one, from the beginning of its
first unit to the end of its last, and their ratios to those of one thread. 0.5 is the best.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.scale import show
from tests.events import read_events
from tests.execution.runs import command, write_job

LEAST_SECONDS = 1.0
"""Stages that take less with one thread are left out."""
CLUSTERS = {"one": (1, 1), "workers": (2, 1), "threads": (1, 2)}
"""Workers and their threads."""


def jobs(scale: float) -> dict[str, dict[str, Any]]:
    """Return the jobs, whose rows are multiplied by `scale`."""

    def source(kind: str, n_samples: int, **parameters: Any) -> str:
        given = "".join(f"&{key}={value}" for key, value in parameters.items())
        return f"synthetic:{kind}?n_samples={max(400, int(scale * n_samples))}{given}"

    graph = ["VarianceScore", "LaplacianScore", "SSelect"]
    return {
        "dense": {
            "source": source("lowrank", 300_000, n_features=128, noise=0.5),
            "methods": [*graph[:2], "SupervisedLaplacianScore", "SemiSupervisedLaplacianScore"],
            "transform": {"graph": "zscore"},
        },
        "cells": {
            "source": source("mixture", 300_000, n_features=64, n_classes=100),
            "methods": ["LaplacianScore"],
            "graph": {"engine": "cells", "n_neighbors": 10},
        },
        "exact": {
            "source": source("mixture", 30_000, n_features=64),
            "methods": ["LaplacianScore"],
            "graph": {"engine": "exact", "n_neighbors": 10},
        },
        "sparse": {"source": source("sparse", 100_000, n_features=20_000), "methods": [*graph, "FisherScore"]},
        "rescaled": {"source": source("mixture", 100_000, n_features=128), "methods": ["RLSR", "SSUFS"]},
        "svm": {"source": source("nonlinear", 60_000, n_features=52), "methods": ["SVMRFE"]},
        "pairs": {"source": source("mixture", 20_000, n_features=300), "methods": ["RRPC", "InformationGainScore"]},
        "evaluation": {
            "source": source("mixture", 20_000, n_features=64),
            "methods": graph,
            "evaluate": {"n_selected": [5, 20], "models": ["knn", "linear-svm"], "setting": "inductive"},
        },
    }


def stage_seconds(job: dict[str, Any], n_workers: int, n_threads: int) -> dict[str, float]:
    """Run a job; return the seconds of each stage, and those of the whole job as "all"."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = {"workers": n_workers, "threads": n_threads, "memory_limit": "6GiB"}
        blocks = {"evaluate": None, **job, "cluster": cluster}
        file = write_job(Path(folder), **blocks)
        done = subprocess.run(command("run", file, "--json", "-q"), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        result = json.loads(done.stdout)
        events = read_events(Path(folder) / "run")
    begins: dict[str, float] = {}
    ends: dict[str, float] = {}
    for event in events:
        name = event["stage"].partition("-")[0]
        begins[name] = min(begins.get(name, event["ended"]), event["ended"] - event["seconds"])
        ends[name] = max(ends.get(name, 0.0), event["ended"])
    return {**{name: ends[name] - begins[name] for name in begins}, "all": result["seconds"]}


def table(name: str, job: dict[str, Any], least: float) -> Iterator[dict[str, Any]]:
    """Yield a row for each stage that takes `least` seconds or more with one thread."""
    found = {kind: stage_seconds(job, *cluster) for kind, cluster in CLUSTERS.items()}
    for stage, seconds in found["one"].items():
        if seconds >= least:
            workers, threads = found["workers"][stage], found["threads"][stage]
            yield {
                "job": name,
                "stage": stage,
                "one thread, s": seconds,
                "two workers": f"{workers / seconds:.2f}",
                "two threads": f"{threads / seconds:.2f}",
            }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", choices=jobs(1.0), default=list(jobs(1.0)))
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows")
    options = parser.parse_args(arguments)
    known = jobs(options.scale)
    rows: list[dict[str, Any]] = []
    for name in options.jobs:
        print(name, file=sys.stderr)
        rows += table(name, known[name], LEAST_SECONDS if options.scale >= 1 else 0.0)
    show(rows)


if __name__ == "__main__":
    main()
