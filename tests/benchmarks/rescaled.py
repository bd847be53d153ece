"""Benchmark of RLSR and SSUFS. Everything that is compared runs side by side in one call; read the ratios.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.rescaled [--tables TABLE ...] [--small] [--folder FOLDER]

Tables: ``scale`` (a job on a million rows in Zarr, 1 % of them labeled, by two workers of 2 GB: a round as a multiple
of one pass of reading X by the same workers), ``wide`` (the solver by rows of X against the one by its Gram matrix, for
fewer rows than features: one system, and all that finds the weights), ``text`` (CSR counts of words, all rows labeled:
seconds of the solutions, and of the processor for the whole fit) and ``overhead`` (`fit` on small data beside a method
that takes one pass). ``--small`` is all of it in seconds. Files of X are dropped from the page cache before a pass that
is called cold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr
from distributed import Client
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from daskfs import RLSR, LaplacianScore
from daskfs.criteria.registry import make_method
from daskfs.criteria.rescaled_regression.passes import solution_of
from daskfs.criteria.row_blocks import row_parts
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.job.job import load_job
from daskfs.kernels.labels import Labels
from daskfs.kernels.regression.grams import MatrixGram, RowsGram
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.plan.inline import memory_context, score_features
from daskfs.runs.pipeline import run_job
from daskfs.store.context import Context, open_tiles
from daskfs.tiles.row_partitions import block_rows
from daskfs.tiles.shapes import plan_shape
from tests.benchmarks.main_job import MiB, show
from tests.events import read_events
from tests.execution.runs import write_job

N_CLASSES = 5
LABELED = 0.01
WORKERS = 2
MEMORY_LIMIT = 2 * 10**9
LOOP = ("rescaled-rows", "rescaled-solve")
TABLES = ["scale", "wide", "text", "overhead"]
INFORMATIVE = 40
COPIED = 20


@dataclass(frozen=True)
class Size:
    """How large the tables are. `gammas` are shares of the number of rows."""

    rows: int = 1_000_000
    columns: int = 500
    rounds: int = 20
    wide: tuple[int, int] = (2000, 5000)
    text: tuple[tuple[int, int], ...] = ((1993, 4862), (2000, 10_000))
    gammas: tuple[float, ...] = (1e-3, 1e-2, 3e-2, 1e-1)
    repeats: int = 5


SMALL = Size(rows=40_000, columns=40, rounds=4, wide=(60, 200), text=((60, 300),), gammas=(1e-2,), repeats=1)


# ------------------------------------------------------------------------------------ data
class Classes:
    """Rows of five Gaussian classes: forty features differ between them, less and less, twenty more are nearly copies
    of the first ones, and the others are noise.
    """

    def __init__(self, n_features: int) -> None:
        self.generator = np.random.default_rng(0)
        informative = min(INFORMATIVE, n_features // 2)
        self.centers = np.zeros((N_CLASSES, n_features), np.float32)
        strength = np.linspace(1.0, 0.2, informative)
        self.centers[:, :informative] = strength * self.generator.standard_normal((N_CLASSES, informative))
        self.copies = slice(informative, informative + min(COPIED, informative // 2))

    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the next rows, float32, and their classes."""
        y = self.generator.integers(0, N_CLASSES, count)
        X = self.generator.standard_normal((count, self.centers.shape[1]), dtype=np.float32)
        X += self.centers[y]
        X[:, self.copies] *= 0.3
        X[:, self.copies] += X[:, : self.copies.stop - self.copies.start]
        return X, y

    def few_labels(self, y: np.ndarray, share: float) -> np.ndarray:
        """Return the classes of some rows, and -1 for the others."""
        return np.where(self.generator.random(y.size) < share, y, -1)


def store_classes(folder: Path, n_samples: int, n_features: int, memory_limit: int) -> tuple[Path, Path]:
    """Write X as a Zarr array, in chunks that a job reads where they lie, and the labels beside it."""
    shape = plan_shape(n_samples, n_features, "float32", None, memory_limit)
    chunks = (shape.tile_rows, shape.tile_columns)
    X = zarr.create_array(folder / "X.zarr", shape=(n_samples, n_features), dtype=np.float32, chunks=chunks)
    made, labels = Classes(n_features), np.empty(n_samples, np.int32)
    for rows in row_blocks(n_samples, shape.tile_rows):
        values, y = made.rows(rows.stop - rows.start)
        X[rows], labels[rows] = values, made.few_labels(y, LABELED)
    labels[:N_CLASSES] = np.arange(N_CLASSES)
    np.save(folder / "y.npy", labels)
    return folder / "X.zarr", folder / "y.npy"


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the files below a folder."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


# ------------------------------------------------------------------------------------ scale
def read_part(url: str, start: int, stop: int) -> None:
    """Read some rows in the blocks that a round takes them in, and keep nothing."""
    tiles = open_tiles(url)
    for _ in tiles.aligned_rows(slice(start, stop), block_rows(tiles.shape)):
        pass


def seconds_of_pass(client: Client, url: str) -> float:
    """Return the seconds that all workers together take to read X once, a part of the rows each at a time."""
    cut = row_parts(open_tiles(url).shape)
    parts = [cut.rows(part) for part in range(cut.n_parts)]
    started = time.perf_counter()
    client.gather([client.submit(read_part, url, part.start, part.stop, pure=False) for part in parts])
    return time.perf_counter() - started


def events_of(run: Path) -> list[dict[str, Any]]:
    """Return what the events of a run say, in order."""
    return read_events(run)


def rounds_of(run: Path) -> list[float]:
    """Return the seconds of each round but the first, which begins where nobody has noted it."""
    ends = [event["time"] for event in events_of(run) if event["stage"].startswith("rescaled-solve")]
    return [float(gap) for gap in np.diff(ends)]


def held_share(run: Path) -> float:
    """Return the share of X that no pass reads any more, to judge by the bytes that the units of the last one read."""
    passes = [event for event in events_of(run) if event["stage"].startswith(LOOP[0])]
    n_parts = json.loads((run / "plan.json").read_text())["stages"]
    n_parts = next(stage["n_units"] for stage in n_parts if stage["name"].startswith(LOOP[0]))
    read = [event["bytes_read"] for event in passes if event["unit"] // n_parts == passes[-1]["unit"] // n_parts]
    other_bytes = min(read) * len(read)  # states and labels
    return 1.0 - (sum(read) - other_bytes) / open_tiles(str(run / "tiles")).shape.x_bytes


def job_of(folder: Path, name: str, source: tuple[Path, Path], gamma: float, size: Size, address: str) -> Path:
    """Write the job of one method and return its path."""
    X, labels = source
    method = {"name": name, "gamma": gamma, "max_iter": size.rounds}
    data = {"source": str(X), "labels": str(labels), "task": "classification"}
    cluster = {"address": address, "memory_limit": MEMORY_LIMIT}
    return write_job(folder, "replaced", data=data, methods=[method], cluster=cluster)


def scale_table(folder: Path, size: Size, methods: list[str]) -> Iterator[dict[str, Any]]:
    """Run a job for each method, and read X by the same workers before and after it."""
    source = store_classes(folder, size.rows, size.columns, MEMORY_LIMIT)
    with connect(ClusterSettings(workers=WORKERS, memory_limit=MEMORY_LIMIT, tls=False)) as client:
        assert client is not None
        for name in methods:
            path = job_of(folder / name, name, source, 1e-3 * size.rows, size, str(client.scheduler.address))
            started = time.perf_counter()
            result = run_job(load_job(path))
            seconds = time.perf_counter() - started
            run = folder / name / "run"
            url = str(run / "tiles")
            warm = [seconds_of_pass(client, url) for _ in range(size.repeats)]
            drop_from_cache(source[0])
            cold = seconds_of_pass(client, url)
            yield {"method": name, **_scale_row(result, run, warm, cold), "job": seconds}


def _scale_row(result: dict[str, Any], run: Path, warm: list[float], cold: float) -> dict[str, Any]:
    rounds = rounds_of(run)
    loop = [stage for stage in result["stages"] if stage["name"].startswith(LOOP)]
    peak, planned = (max(stage[key] for stage in loop) for key in ("peak_bytes", "planned_peak_bytes"))
    return {
        "rounds": len(rounds) + 1,
        "warm_pass": min(warm),
        "cold_pass": cold,
        "least_round": min(rounds),
        "median_round": statistics.median(rounds),
        "over_warm": min(rounds) / min(warm),
        "median_ratio": statistics.median(rounds) / statistics.median(warm),
        "held": held_share(run),
        "peak_mib": peak / MiB,
        "planned_mib": planned / MiB,
    }


# ------------------------------------------------------------------------------------ in memory
def wide_table(size: Size) -> Iterator[dict[str, Any]]:
    """Fit by the rows of X and by its Gram matrix, in turn, and compare medians of seconds: of all stages, and of those
    that find the weights ("W step": what holds S, and the solutions) without passes over the rows, which both share.
    """
    n_samples, n_features = size.wide
    made = Classes(n_features)
    X, y = made.rows(n_samples)
    codes = made.few_labels(y, 0.4)
    codes[:N_CLASSES] = np.arange(N_CLASSES)
    labels = Labels("classification", codes, tuple(map(str, range(N_CLASSES))))
    for share in size.gammas:
        found: dict[str, list[tuple[float, float]]] = {"woodbury": [], "cholesky": []}
        facts: dict[str, Any] = {}
        for _ in range(min(3, size.repeats)):
            for solver, seconds in found.items():
                method = make_method("RLSR", {"gamma": share * n_samples, "solver": solver})
                context = memory_context(X, labels)
                started = time.perf_counter()
                score_features(context, [method], labels)
                whole = time.perf_counter() - started
                by_stage = stage_seconds(context, solver)
                seconds.append((whole, sum(s for stage, s in by_stage.items() if not stage.startswith(LOOP[0]))))
                facts = solution_of(context.store, method)[1]
        whole_ratio, step_ratio = (
            statistics.median(s[i] for s in found["cholesky"]) / statistics.median(s[i] for s in found["woodbury"])
            for i in (0, 1)
        )
        yield {
            "gamma/n": share,
            "rounds": facts["n_iter"],
            "active": facts["n_active"],
            **{f"{solver} W step": statistics.median(s[1] for s in seconds) for solver, seconds in found.items()},
            "ratio W step": step_ratio,
            "ratio fit": whole_ratio,
        }


def stage_seconds(context: Context, solver: str) -> dict[str, float]:
    """Return the seconds of the stages of one solver, all rounds together."""
    names = [f"rescaled-{stage}-zscore-{solver}" for stage in ("comoments", "scale", "rows", "solve")]
    return {name: seconds_of(context, name) for name in names}


def seconds_of(context: Context, stage: str) -> float:
    """Return the seconds of all units of a stage."""
    stored = context.store.records
    records = [*stored.each(stage, range(stored.n_units(stage)))]
    return float(sum(record["seconds"] for record in records if record))


def system_table(size: Size) -> Iterator[dict[str, Any]]:
    """Update all weights once for fixed Theta, by each kind of system; S is part of it where it is made."""
    n_samples, n_features = size.wide
    made = Classes(n_features)
    X, y = made.rows(n_samples)
    rows = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
    cross = rows.T @ np.eye(N_CLASSES)[y]
    for share in size.gammas:
        scale = np.full(n_features, 1.0 / np.sqrt(share * n_samples * n_features))  # theta = 1 / n_features
        seconds: dict[str, list[float]] = {"woodbury": [], "with S": [], "cholesky": []}
        for _ in range(min(3, size.repeats)):
            started = time.perf_counter()
            by_rows = RowsGram(rows).among(np.arange(n_features)).solver(scale)(cross)
            seconds["woodbury"].append(time.perf_counter() - started)
            started = time.perf_counter()
            gram = MatrixGram(rows.T @ rows)
            made_after = time.perf_counter() - started
            by_matrix = gram.among(np.arange(n_features)).solver(scale)(cross)
            seconds["with S"].append(time.perf_counter() - started)
            seconds["cholesky"].append(seconds["with S"][-1] - made_after)
        medians = {name: statistics.median(found) for name, found in seconds.items()}
        yield {
            "gamma/n": share,
            **medians,
            "ratio": medians["cholesky"] / medians["woodbury"],
            "ratio with S": medians["with S"] / medians["woodbury"],
            "difference": float(np.abs(by_rows - by_matrix).max() / np.abs(by_matrix).max()),
        }


def text_rows(n_samples: int, n_words: int) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return counts of words, CSR float32 with 1 % non-zeros, and the two classes of the rows.

    Words are as frequent as in a language, and three in ten differ between classes.
    """
    generator = np.random.default_rng(0)
    y = generator.integers(0, 2, n_samples)
    frequency = 1.0 / (np.arange(n_words) + 10.0)
    tilt = generator.normal(size=n_words) * (generator.random(n_words) < 0.3)
    length = generator.lognormal(np.log(0.016 * n_words), 0.7, n_samples).astype(int) + 5
    shares = [frequency * np.exp(side * tilt / 2.0) for side in (-1, 1)]
    found = [generator.multinomial(count, shares[k] / shares[k].sum()) for count, k in zip(length, y, strict=True)]
    return sp.csr_matrix(sp.vstack([sp.csr_matrix(row.astype(np.float32)) for row in found])), y


def text_table(size: Size, methods: list[str]) -> Iterator[dict[str, Any]]:
    """Fit text of several sizes, all of it labeled."""
    for n_samples, n_features in size.text:
        X, y = text_rows(n_samples, n_features)
        labels = Labels("classification", y, ("0", "1"))
        for name in methods:
            method, context = make_method(name, {}), memory_context(X, labels)
            started = time.process_time()
            score_features(context, [method], labels)
            seconds = time.process_time() - started
            facts = solution_of(context.store, method)[1]
            key = "zscore-woodbury" + ("-dragged" if name == "DSSFS" else "")
            yield {
                "words": n_features,
                "method": name,
                "cpu": seconds,
                "solve": seconds_of(context, f"rescaled-solve-{key}"),
                "rounds": facts["n_iter"],
                "active": facts["n_active"],
                "kkt": facts["kkt_active"],
            }


def overhead_table(repeats: int) -> Iterator[dict[str, Any]]:
    """Fit small data, in milliseconds of the processor."""
    made = Classes(30)
    X, y = made.rows(200)
    digits, target = load_digits(return_X_y=True)
    for name, values, classes in (("200 x 30", X, y), ("digits", digits, target)):
        labels = np.where(np.arange(classes.size) % 5 < 2, classes, -1)
        rlsr, laplacian = [], []
        for _ in range(3 * repeats):
            started = time.process_time()
            fitted = RLSR().fit(values, labels)
            between = time.process_time()
            LaplacianScore().fit(values)
            rlsr.append(between - started)
            laplacian.append(time.process_time() - between)
        ms = {"rlsr_ms": 1e3 * statistics.median(rlsr), "laplacian_ms": 1e3 * statistics.median(laplacian)}
        yield {"data": name, "rounds": fitted.n_iter_, **ms, "ms_per_round": ms["rlsr_ms"] / fitted.n_iter_}


# ------------------------------------------------------------------------------------ main
def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--methods", nargs="+", choices=["RLSR", "SSUFS", "DSSFS"], default=["RLSR", "SSUFS"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=Path, help="Where the 2 GB of X go, to be deleted at the end.")
    options = parser.parse_args(arguments)
    size = SMALL if options.small else Size()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if "scale" in options.tables:
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            title = f"{size.rows} x {size.columns} float32, {WORKERS} workers of {MEMORY_LIMIT / 1e9:g} GB; seconds"
            for row in scale_table(Path(scratch), size, options.methods):
                show(title, [row])
    if "wide" in options.tables:
        shape = f"{size.wide[0]} x {size.wide[1]}, in memory"
        show(f"one update of all weights, {shape}", list(system_table(size)))
        show(f"RLSR, {shape}", list(wide_table(size)))
    if "text" in options.tables:
        show("text, all rows labeled; seconds", list(text_table(size, options.methods)))
    if "overhead" in options.tables:
        show("fit of small data", list(overhead_table(size.repeats)))


if __name__ == "__main__":
    main()
