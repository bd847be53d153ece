"""Benchmark of ``daskfs plan --estimate``: estimated seconds of jobs against those that they take.

    python -m tests.benchmarks.estimates [--jobs cells components ...] [--scale 1.0] [--workers 2] [--stages]
        [--large] [--folder FOLDER]

Prints Markdown: for each job the seconds of its estimate, of the job, and their ratio; with `--stages` the same for
every stage that takes two seconds or more. `--large` estimates 10^8 rows x 1,000 features on 50 workers of four
threads and 128 GiB, and 10^9 x 500 on 500 of one and 32 GiB, with storage that moves 5 and 50 GB in a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from tests.benchmarks.scale import show
from tests.execution.runs import command, write_job

SHOWN_SECONDS = 2.0
LARGE = {
    "10^8 x 1,000": (10**8, 1000, {"workers": 50, "threads": 4, "memory_limit": "128GiB"}, "5GB"),
    "10^9 x 500": (10**9, 500, {"workers": 500, "threads": 1, "memory_limit": "32GiB"}, "50GB"),
}


def jobs(scale: float, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the jobs, whose rows are multiplied by `scale`; their files are written to `folder`."""

    def rows(count: int) -> int:
        return max(600, int(scale * count))

    def source(kind: str, n_samples: int, **parameters: Any) -> str:
        given = "".join(f"&{key}={value}" for key, value in parameters.items())
        return f"synthetic:{kind}?n_samples={rows(n_samples)}{given}"

    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows(1_000_000), 40)).astype(np.float32)
    X[:, :8] += rng.integers(0, 4, len(X))[:, None]
    zarr.create_array(str(folder / "X.zarr"), data=X, chunks=(50_000, 40))
    n = rows(150_000)
    np.savetxt(
        folder / "table.csv",
        X[:n],
        fmt="%.5g",
        delimiter=",",
        header=",".join(map("f{}".format, range(40))),
        comments="",
    )
    graph = {"graph": {"n_neighbors": 10}}
    return {
        "cells": {
            **graph,
            "source": source("mixture", 400_000, n_classes=100),
            "methods": ["LaplacianScore", "SSelect"],
        },
        "components": {
            **graph,
            "source": source("lowrank", 400_000, n_features=200, noise=0.5),
            "transform": {"graph": "zscore+pca=50"},
            "methods": ["LaplacianScore", "SupervisedLaplacianScore"],
        },
        "descent": {**graph, "source": source("lowrank", 300_000, n_features=64), "methods": ["LaplacianScore"]},
        "exact": {"graph": {"engine": "exact"}, "source": source("mixture", 90_000), "methods": ["LaplacianScore"]},
        "sparse": {
            "source": source("sparse", 150_000, n_features=20_000),
            "methods": ["LaplacianScore", "FisherScore"],
        },
        "zarr": {**graph, "source": str(folder / "X.zarr"), "methods": ["LaplacianScore", "VarianceScore"]},
        "csv": {**graph, "source": str(folder / "table.csv"), "methods": ["LaplacianScore"]},
        "filters": {
            "source": source("mixture", 1_500_000),
            "methods": ["FisherScore", "InformationGainScore", "KolmogorovSmirnovScore", "VarianceScore"],
        },
        "rescaled": {"source": source("mixture", 300_000), "methods": ["RLSR"]},
        "svm": {"source": source("nonlinear", 200_000), "methods": ["SVMRFE"]},
        "evaluation": {
            "source": source("mixture", 300_000),
            "methods": ["LaplacianScore", "FisherScore"],
            "evaluate": {"n_selected": [5, 20], "max_samples": 4000, "setting": "inductive"},
        },
    }


def called(*arguments: object) -> dict[str, Any]:
    """Call the command, and return the object that it prints."""
    done = subprocess.run(command(*arguments, "--json"), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return dict(json.loads(done.stdout))


def compared(name: str, job: dict[str, Any], n_workers: int, *, stages: bool) -> Iterator[dict[str, Any]]:
    """Yield rows of a job, and of its longer stages: seconds as estimated and as measured, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = {"workers": n_workers, "memory_limit": "4GiB"}
        file = write_job(Path(folder), **{"evaluate": None, **job, "cluster": cluster})
        began = time.perf_counter()
        planned = called("plan", file, "--estimate")
        took = time.perf_counter() - began
        done = called("run", file, "-q")
    estimated, seconds = planned["estimate"]["seconds"], done["seconds"]
    yield {
        "job": name,
        "stage": "all",
        "estimate": estimated,
        "measured": seconds,
        "ratio": f"{estimated / seconds:.2f}",
        "took": took,
    }
    busy = {stage["name"]: stage["seconds"] for stage in done["stages"]}
    for row in planned["stages"] if stages else ():
        estimated = row["busy_seconds"]
        if max(estimated, busy[row["stage"]]) >= SHOWN_SECONDS:
            measured = busy[row["stage"]]
            ratio = f"{estimated / measured:.2f}" if measured else "-"
            yield {
                "job": name,
                "stage": row["stage"],
                "estimate": estimated,
                "measured": measured,
                "ratio": ratio,
                "took": "",
            }


def large(name: str) -> Iterator[dict[str, Any]]:
    """Yield the estimated stages of a large job that take a minute or more, and all of it."""
    n_samples, n_features, cluster, bandwidth = LARGE[name]
    with tempfile.TemporaryDirectory() as folder:
        file = write_job(
            Path(folder),
            f"synthetic:lowrank?n_samples={n_samples}&n_features={n_features}&rank=10&noise=0.5",
            transform={"graph": "zscore+pca=50"},
            graph={"n_neighbors": 10},
            methods=["LaplacianScore", "VarianceScore"],
            evaluate=None,
            cluster=cluster,
        )
        planned = called("plan", file, "--estimate", "--bandwidth", bandwidth)
    for row in planned["stages"]:
        if row["seconds"] >= 60:
            yield {
                "data": name,
                "stage": row["stage"],
                "units": row["units"],
                "one unit, s": row["unit_seconds"],
                "minutes": row["seconds"] / 60,
                "bound by": row["bound"],
            }
    yield {
        "data": name,
        "stage": "all",
        "units": sum(row["units"] for row in planned["stages"]),
        "one unit, s": "",
        "minutes": planned["estimate"]["seconds"] / 60,
        "bound by": "",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="*", help="their names; none for all")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the rows")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--stages", action="store_true")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args(arguments)
    if options.large:
        show([row for name in LARGE for row in large(name)])
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        known = jobs(options.scale, Path(folder))
        for name in options.jobs or known:
            rows += compared(name, known[name], options.workers, stages=options.stages)
            print(rows[-1] if not options.stages else rows, file=sys.stderr)
    show(rows)


if __name__ == "__main__":
    main()
