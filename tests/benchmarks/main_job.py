"""Benchmark of the main job. Everything that is compared runs side by side in one call; read the ratios.

    python -m tests.benchmarks.main_job [--data FOLDER] [--rows 500 2000 8000]

Prints three tables: `fit` of an estimator against the dense n x n computation that it replaces; a scoring pass
against merely reading the tiles; and, with a folder of real data sets, wall time and measured peak of whole jobs from
the command line.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.criteria.slab import ScoreParameters
from tests.execution.runs import command, write_job

MiB = 2**20
REAL: dict[str, dict[str, Any]] = {
    "Isolet": {"task": "classification", "methods": ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]},
    "COIL20": {"task": "classification", "methods": ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]},
    "PCMAC": {"task": "classification", "methods": ["LaplacianScore", "FisherScore", "PearsonScore", "VarianceScore"]},
    "house_16H": {"task": "regression", "methods": ["LaplacianScore", "PearsonScore"], "graph": "zscore"},
    "BlogFeedback": {"task": "regression", "methods": ["LaplacianScore", "PearsonScore"], "graph": "zscore"},
}


def best_of(action: Callable[..., object], repeats: int) -> float:
    """Return the least seconds of some calls."""
    seconds = []
    for _ in range(repeats):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def dense_laplacian_score(X: np.ndarray, k: int) -> np.ndarray:
    """Score as the public in-memory implementations do: n x n distances, an n x n weight matrix, dense products."""
    squares = (X**2).sum(axis=1)
    distances = np.maximum(squares[:, None] + squares[None, :] - 2 * X @ X.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    near = np.argsort(distances, axis=1)[:, :k]
    S = np.zeros_like(distances)
    rows = np.arange(X.shape[0])[:, None]
    S[rows, near] = np.exp(-distances[rows, near] / distances[rows, near].mean())
    S = np.maximum(S, S.T)
    degrees = S.sum(axis=1)
    F = X - (degrees @ X) / degrees.sum()
    return (degrees @ F**2 - (F * (S @ F)).sum(axis=0)) / (degrees @ F**2)


def estimator_table(rows: list[int], n_features: int = 64, k: int = 5) -> list[dict[str, float]]:
    """Time ``LaplacianScore().fit`` against the dense computation."""
    from daskfs import LaplacianScore

    table = []
    for n_samples in rows:
        X = np.random.default_rng(0).standard_normal((n_samples, 4)) @ np.random.default_rng(1).standard_normal(
            (4, n_features)
        )
        X += 0.1 * np.random.default_rng(2).standard_normal(X.shape)
        repeats = 5 if n_samples <= 2000 else 1
        fit = best_of(lambda X=X: LaplacianScore(n_neighbors=k).fit(X), repeats)
        dense = best_of(lambda X=X: dense_laplacian_score(X, k), repeats)
        table.append({"rows": n_samples, "fit_seconds": fit, "dense_seconds": dense, "ratio": fit / dense})
    return table


def scoring_table(n_samples: int, n_features: int) -> dict[str, float]:
    """Time the scoring pass over tiles against reading and decoding the same tiles, one process, warm cache."""
    from daskfs.job.job import make_job
    from daskfs.runs.pipeline import run_job
    from daskfs.stages.stage import Plan
    from daskfs.stages.units import run_unit
    from daskfs.store import layout
    from daskfs.store.context import Context
    from daskfs.store.store import Store

    with tempfile.TemporaryDirectory() as folder:
        source = f"synthetic:lowrank?n_samples={n_samples}&n_features={n_features}&rank=10&seed=0"
        job = {
            "data": {"source": source},
            "graph": {"n_neighbors": 10, "engine": "exact"},
            "methods": ["LaplacianScore", "PearsonScore", "VarianceScore"],
            "evaluate": None,
            "cluster": {"workers": 0},
            "output": {"path": folder + "/run"},
        }
        run_job(make_job(job))
        store = Store(Path(folder) / "run")
        plan = Plan.from_json(store.read_json(layout.PLAN_JSON), store.url)
        stage, context = plan.stage("score"), Context(store)

        def score() -> None:
            for unit in range(stage.n_units):
                run_unit(context, stage, unit)

        def read() -> None:
            assert isinstance(stage.parameters, ScoreParameters)
            width = stage.parameters.slab_columns
            for start in range(0, n_features, width):
                context.tiles.read_panels(start, min(start + width, n_features))

        read()
        scoring, reading = best_of(score, 3), best_of(read, 3)
        return {"score_seconds": scoring, "read_seconds": reading, "ratio": scoring / reading}


def job_table(data: Path, names: list[str]) -> list[dict[str, Any]]:
    """Run whole jobs from the command line, two workers with 1 GB each."""
    table = []
    for name in names:
        settings = REAL[name]
        with tempfile.TemporaryDirectory() as folder:
            job = write_job(
                Path(folder),
                "replaced",
                data={"source": str(data / f"{name}.npz"), "labels": "y", "task": settings["task"]},
                transform={"graph": settings.get("graph")},
                graph={"n_neighbors": 10},
                methods=settings["methods"],
                cluster={"workers": 2, "memory_limit": "1GB"},
            )
            started = time.perf_counter()
            done = subprocess.run(command("run", job, "--json", "-q"), capture_output=True, text=True, check=True)
            seconds = time.perf_counter() - started
            result = json.loads(done.stdout)
            peak = max(stage["peak_bytes"] for stage in result["stages"])
            shape = f"{result['data']['n_samples']} x {result['data']['n_features']}"
            n2 = 24 * result["data"]["n_samples"] ** 2
            table.append(
                {"data": name, "shape": shape, "seconds": seconds, "peak_mib": peak / MiB, "of_dense_n2": peak / n2}
            )
    return table


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table."""
    print(f"\n{title}")
    print("".join(f"{key:>16}" for key in rows[0]))
    for row in rows:
        print("".join(f"{v:>16.4g}" if isinstance(v, float) else f"{v!s:>16}" for v in row.values()))


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="Folder with Isolet.npz, COIL20.npz, ...")
    parser.add_argument("--rows", type=int, nargs="+", default=[500, 2000, 8000])
    parser.add_argument("--score-rows", type=int, default=40_000)
    options = parser.parse_args(arguments)
    show("fit against the dense n x n computation, 64 features", estimator_table(options.rows))
    show("scoring pass against reading the tiles, 128 features, k = 10", [scoring_table(options.score_rows, 128)])
    if options.data is None:
        print("\nno --data FOLDER: jobs on real data skipped", file=sys.stderr)
        return
    names = [name for name in REAL if (options.data / f"{name}.npz").exists()]
    for name in sorted(set(REAL) - set(names)):
        print(f"skipped {name}: not in {options.data}", file=sys.stderr)
    show(
        "whole jobs, 2 workers; peak of the largest worker, and as a share of the 24 n^2 bytes of dense peers",
        job_table(options.data, names),
    )


if __name__ == "__main__":
    main()
