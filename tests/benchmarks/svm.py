"""Benchmark of SVMRFE. Everything that is compared runs side by side in one call; read the ratios.

    OMP_NUM_THREADS=1 python -m tests.benchmarks.svm [--tables scale landmarks error exact] [--small] [--folder FOLDER]
        [--data FOLDER]

Tables: ``scale`` (jobs on a million rows of Weston's nonlinear problem in Zarr, by two workers of 1.5 GB, which take
the landmark route by themselves: a round as a multiple of one pass of reading X by the same workers, and whether both
relevant features stay longest), ``landmarks`` (how many are enough: the same question over seeds, and seconds of a
fit), ``error`` (the landmark route of Laplacian machines against the exact one) and ``exact`` (a round of the exact
route at its upper sizes, and where its time goes). ``--small`` is all of it in seconds. ``--data`` holds real data sets
for ``error``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from distributed import Client
from scipy.stats import spearmanr
from sklearn.datasets import load_digits, make_moons
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from daskfs import SVMRFE
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.job.job import load_job
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.runs.pipeline import run_job
from daskfs.sources.base import SourceSpec
from daskfs.sources.synthetic import SyntheticSource
from daskfs.tiles.shapes import plan_shape
from tests.benchmarks.main_job import MiB, show
from tests.benchmarks.rescaled import events_of, seconds_of_pass
from tests.execution.runs import write_job

WORKERS = 2
MEMORY_LIMIT = 1_500_000_000
SUMS, SOLVE = "svm-sums", "svm-solve"
RELEVANT = 2


@dataclass(frozen=True)
class Size:
    """How large the tables are."""

    rows: int = 1_000_000
    columns: int = 52
    seeds: int = 5
    repeats: int = 5
    landmark_rows: tuple[int, ...] = (1000, 10_000)
    landmark_seeds: int = 5
    error_rows: int = 1000
    error_seeds: int = 3
    exact_rows: tuple[int, ...] = (2000, 5000)
    graph_rows: tuple[int, ...] = (2000, 4000)


SMALL = Size(
    rows=40_000,
    seeds=1,
    repeats=1,
    landmark_rows=(400,),
    landmark_seeds=1,
    error_rows=300,
    error_seeds=1,
    exact_rows=(200,),
    graph_rows=(200,),
)


# ------------------------------------------------------------------------------------ data
def nonlinear(n_samples: int, n_features: int, seed: int) -> SyntheticSource:
    """Return Weston's nonlinear problem."""
    parameters = f"n_samples={n_samples}&n_features={n_features}&seed={seed}"
    return SyntheticSource(SourceSpec(source=f"synthetic:nonlinear?{parameters}"))


def relevant(source: SyntheticSource) -> list[int]:
    """Return the numbers of the informative features."""
    return [i for i, name in enumerate(source.info.feature_names or ()) if not name.startswith("noise")]


def rows_of(source: SyntheticSource) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows and their classes."""
    n = source.info.n_samples
    return np.asarray(source.read_rows(0, n)), np.asarray(source.read_labels())


def store_nonlinear(folder: Path, source: SyntheticSource) -> Path:
    """Write X as a Zarr array, in chunks that a job reads where they lie, and the labels beside it."""
    n, d = source.info.n_samples, source.info.n_features
    shape = plan_shape(n, d, "float32", None, MEMORY_LIMIT)
    chunks = (shape.tile_rows, shape.tile_columns)
    X = zarr.create_array(folder / "X.zarr", shape=(n, d), dtype=np.float32, chunks=chunks)
    for rows in row_blocks(n, shape.tile_rows):
        X[rows] = source.read_rows(rows.start, rows.stop)
    np.save(folder / "y.npy", np.asarray(source.read_labels()))
    return folder


# ------------------------------------------------------------------------------------ scale
def rounds_of(run: Path) -> list[float]:
    """Return the seconds of each round but the first, which begins where nobody has noted it."""
    ends = [event["time"] for event in events_of(run) if event["stage"].startswith(SOLVE)]
    return [float(gap) for gap in np.diff(ends)]


def scale_table(folder: Path, size: Size, n_landmarks: list[int], ridge: float) -> Iterator[dict[str, Any]]:
    """Run a job for each seed of the data, and read X by the same workers after it."""
    with connect(ClusterSettings(workers=WORKERS, memory_limit=MEMORY_LIMIT, tls=False)) as client:
        assert client is not None
        for seed in range(size.seeds):
            source = nonlinear(size.rows, size.columns, seed)
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                stored = store_nonlinear(Path(scratch), source)
                for m in n_landmarks:
                    yield {"seed": seed, **_scale_row(stored, m, ridge, relevant(source), client, size)}


def _scale_row(
    stored: Path, n_landmarks: int, ridge: float, informative: list[int], client: Client, size: Size
) -> dict[str, Any]:
    folder = stored / f"m{n_landmarks}"
    job = write_job(
        folder,
        "replaced",
        data={"source": str(stored / "X.zarr"), "labels": str(stored / "y.npy"), "task": "classification"},
        methods=[{"name": "SVMRFE", "n_landmarks": n_landmarks, "gamma": 1.0 / size.columns, "ridge": ridge}],
        select={"n_features": RELEVANT},
        evaluate=None,
        cluster={"address": client.scheduler.address, "memory_limit": MEMORY_LIMIT},
    )
    started = time.perf_counter()
    result = run_job(load_job(job))
    seconds = time.perf_counter() - started
    run = folder / "run"
    (found,) = (json.loads(path.read_text()) for path in run.glob("solutions/*/elimination.json"))
    warm = [seconds_of_pass(client, str(run / "tiles")) for _ in range(size.repeats)]
    rounds = rounds_of(run)
    loop = [stage for stage in result["stages"] if stage["name"].startswith((SUMS, SOLVE))]
    peak, planned = (max(stage[key] for stage in loop) for key in ("peak_bytes", "planned_peak_bytes"))
    return {
        "m": n_landmarks,
        "route": found["route"],
        "hit": picked(run) == set(informative),
        "rounds": len(rounds) + 1,
        "warm_pass": statistics.median(warm),
        "median_round": statistics.median(rounds),
        "ratio": statistics.median(rounds) / statistics.median(warm),
        "first_ratio": rounds[0] / statistics.median(warm),
        "peak_mib": peak / MiB,
        "planned_mib": planned / MiB,
        "job": seconds,
    }


def picked(run: Path) -> set[int]:
    """Return the numbers of the features that a run with one method selected."""
    lines = (run / "selected_features.csv").read_text().splitlines()
    place = lines[0].split(",").index("feature")
    return {int(line.split(",")[place]) for line in lines[1:]}


# ------------------------------------------------------------------------------------ landmarks
def landmark_table(size: Size, n_landmarks: list[int], ridges: list[float]) -> Iterator[dict[str, Any]]:
    """Fit with several numbers of landmarks, each seed with data and landmarks of its own."""
    for n in size.landmark_rows:
        for ridge in ridges:
            for m in n_landmarks:
                hits, seconds = [], []
                for seed in range(size.landmark_seeds):
                    source = nonlinear(n, size.columns, seed)
                    X, y = rows_of(source)
                    started = time.perf_counter()
                    way = dict[str, Any](large_n="landmarks", n_landmarks=m, ridge=ridge, random_state=seed)
                    selector = SVMRFE(RELEVANT, gamma=1.0 / size.columns, **way).fit(X, y)
                    seconds.append(time.perf_counter() - started)
                    hits.append(selector.get_support(indices=True).tolist() == relevant(source))
                yield {"rows": n, "ridge": ridge, "m": m, "hits": sum(hits), "of": len(hits), "seconds": min(seconds)}


# ------------------------------------------------------------------------------------ error
Data = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows, their classes, and rows and classes that nobody is fitted to."""


def noisy_moons(n: int, seed: int) -> Data:
    """Two moons, and eight columns of noise."""
    rng = np.random.default_rng(seed)
    X, y = make_moons(2 * n, noise=0.1, random_state=seed)
    X = np.hstack([X, rng.standard_normal((2 * n, 8))])
    return X[:n], y[:n], X[n:], y[n:]


def weston(n: int, seed: int) -> Data:
    """Weston's nonlinear problem; the relevant columns come first."""
    source = nonlinear(2 * n, 52, seed)
    X, y = rows_of(source)
    first = relevant(source)
    X = X[:, first + [i for i in range(X.shape[1]) if i not in first]]
    return X[:n], y[:n], X[n:], y[n:]


def split(X: np.ndarray, y: np.ndarray, n: int, seed: int) -> Data:
    """Draw rows to fit and rows to ask afterwards."""
    order = np.random.default_rng(seed).permutation(len(X))
    n = min(n, 2 * len(X) // 3)
    return X[order[:n]], y[order[:n]], X[order[n:]], y[order[n:]]


def with_few_labels(y: np.ndarray, n_labeled: int, seed: int) -> np.ndarray:
    """Return the classes of as many rows of each class as there may be of `n_labeled`, and -1 for the others."""
    rng, classes = np.random.default_rng(seed), np.unique(y)
    codes = np.full(y.size, -1)
    for c in classes:
        rows = np.flatnonzero(y == c)
        rows = rng.choice(rows, min(rows.size, max(2, n_labeled // classes.size)), replace=False)
        codes[rows] = np.searchsorted(classes, c)
    return codes


def first_criteria(X: np.ndarray, codes: np.ndarray, **parameters: Any) -> np.ndarray:
    """Return the criteria of the first round: all features but one leave in it."""
    once = {**parameters, "step": X.shape[1] - 1, "n_singly": 1}
    return np.asarray(SVMRFE(1, **once).fit(X, codes).scores_)


def accuracy(data: Data, codes: np.ndarray, columns: np.ndarray) -> float:
    """Return the share of other rows that a machine tells right that was trained with a few labels and features."""
    X, y, X_test, y_test = data
    known = codes >= 0
    scaler = StandardScaler().fit(X[:, columns])
    machine = SVC(C=10.0, gamma=1.0 / columns.size).fit(scaler.transform(X[:, columns])[known], y[known])
    return float(machine.score(scaler.transform(X_test[:, columns]), y_test))


@dataclass(frozen=True)
class Compared:
    """A way to rank, and what it found: criteria of the first round and the ranking."""

    first: np.ndarray
    ranking: np.ndarray


def compared(X: np.ndarray, codes: np.ndarray, **parameters: Any) -> Compared:
    """Rank with some parameters."""
    return Compared(first_criteria(X, codes, **parameters), SVMRFE(1, **parameters).fit(X, codes).ranking_)


def error_row(data: Data, n_labeled: int, n_kept: int, seed: int, ways: Mapping[str, Mapping[str, Any]]) -> Any:
    """Compare ways with the first of them; return for each what :func:`error_table` averages."""
    X, y = data[:2]
    codes = with_few_labels(y, n_labeled, seed)
    found = {name: compared(X, codes, **way) for name, way in ways.items()}
    exact = next(iter(found.values()))
    own = set(np.flatnonzero(exact.ranking <= n_kept))
    rows = {}
    for name, one in found.items():
        kept = np.flatnonzero(one.ranking <= n_kept)
        rows[name] = {
            "first": float(spearmanr(one.first, exact.first, nan_policy="omit")[0]),
            "ranking": float(spearmanr(one.ranking, exact.ranking)[0]),
            "same": len(own & set(kept)) / n_kept,
            "informative": len({0, 1} & set(kept)) / 2,
            "accuracy": accuracy(data, codes, kept),
        }
    return rows


def ways_of(
    n_landmarks: list[int], gamma: float, gamma_intrinsic: float, ridges: list[float]
) -> dict[str, dict[str, Any]]:
    """Return the exact route and the landmark route, with and without a graph; what comes first is the measure."""
    graph: dict[str, Any] = {"laplacian": True, "gamma_intrinsic": gamma_intrinsic}
    marks = [
        (m, ridge, {"large_n": "landmarks", "n_landmarks": m, "ridge": ridge}) for m in n_landmarks for ridge in ridges
    ]
    ways = {
        "graph, exact": {**graph, "large_n": "exact"},
        **{f"graph {m}, {ridge:g}": {**graph, **way} for m, ridge, way in marks},
        "plain, exact": {"large_n": "exact"},
        **{f"plain {m}, {ridge:g}": way for m, ridge, way in marks},
    }
    return {name: {"gamma": gamma, **way} for name, way in ways.items()}


def error_problems(size: Size, folder: Path | None) -> dict[str, tuple[Any, int, int]]:
    """Return what makes each problem, how many rows of it are labeled, and how many features are kept."""
    digits = load_digits(return_X_y=True)
    problems: dict[str, tuple[Any, int, int]] = {
        "weston": (lambda seed: weston(size.error_rows, seed), 100, 2),
        "moons": (lambda seed: noisy_moons(size.error_rows, seed), 10, 2),
        "digits": (lambda seed: split(digits[0], digits[1], size.error_rows, seed), 100, 16),
    }
    for name, n_kept in (("Isolet", 60), ("USPS2007", 40)):
        if folder is not None and (folder / f"{name}.npz").exists():
            with np.load(folder / f"{name}.npz", allow_pickle=False) as raw:
                X, y = np.asarray(raw["X"], dtype=np.float64), np.asarray(raw["y"]).ravel()
            problems[name] = (lambda seed, X=X, y=y: split(X, y, size.error_rows, seed), 200, n_kept)
    return problems


def error_table(
    size: Size,
    folder: Path | None,
    problems: list[str] | None,
    n_landmarks: list[int],
    gammas: list[float],
    ridges: list[float],
) -> Iterator[list[dict[str, Any]]]:
    """Compare the landmark route of Laplacian machines with the exact one, in the mean over seeds: Spearman's rho of
    the criteria of the first round and of rankings, the share of features kept that are the same, and how well these
    serve.
    """
    for name, (make, n_labeled, n_kept) in error_problems(size, folder).items():
        if problems and name not in problems:
            continue
        for gamma in gammas:
            ways = ways_of(n_landmarks, 1.0 / make(0)[0].shape[1], gamma, ridges)
            found = [error_row(make(s), n_labeled, n_kept, s, ways) for s in range(size.error_seeds)]
            yield [
                {
                    "data": name,
                    "gamma_I": gamma,
                    "way": way,
                    **{key: statistics.mean(row[way][key] for row in found) for key in keys},
                }
                for way, keys in found[0].items()
            ]


# ------------------------------------------------------------------------------------ exact
def exact_table(folder: Path, size: Size, n_features: int) -> Iterator[dict[str, Any]]:
    """Run jobs on the exact route, without workers; of several rounds, the seconds of each."""
    way = {"name": "SVMRFE", "large_n": "exact"}
    cases = [(n, False) for n in size.exact_rows] + [(n, True) for n in size.graph_rows]
    for n, laplacian in cases:
        source = nonlinear(n, n_features, 0)
        X, y = rows_of(source)
        labels = np.where(np.arange(n) < (n // 10 if laplacian else n), y, -1)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            np.save(Path(scratch) / "X.npy", X)
            np.save(Path(scratch) / "y.npy", labels)
            job = write_job(
                Path(scratch),
                "replaced",
                data={"source": f"{scratch}/X.npy", "labels": f"{scratch}/y.npy", "task": "classification"},
                methods=[{**way, "step": 0.9, "gamma": 1.0 / n_features, "laplacian": laplacian}],
                select={"n_features": RELEVANT},
                evaluate=None,
                cluster={"workers": 0, "memory_limit": 12 * 10**9},
            )
            result = run_job(load_job(job))
            run = Path(scratch) / "run"
            judging = [e for e in events_of(run) if e["stage"].startswith("svm-judge")]
            (stage,) = (s for s in result["stages"] if s["name"].startswith("svm-judge"))
            (found,) = (json.loads(path.read_text()) for path in run.glob("solutions/*/elimination.json"))
            seconds = [event["seconds"] for event in judging]
            yield {
                "rows": n,
                "labeled": int((labels >= 0).sum()),
                "laplacian": laplacian,
                "hit": picked(run) == set(relevant(source)),
                "support": found["rounds"][0]["n_support"],
                "first_round": seconds[0],
                "second_round": seconds[1],
                "median_round": statistics.median(seconds),
                "peak_mib": stage["peak_bytes"] / MiB,
                "planned_mib": stage["planned_peak_bytes"] / MiB,
            }


# ------------------------------------------------------------------------------------ main
def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    tables = ["scale", "landmarks", "error", "exact"]
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    parser.add_argument("--landmarks", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.1])
    parser.add_argument("--ridges", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--problems", nargs="+", help="Of error; all without.")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--folder", type=Path, help="Where X goes, to be deleted at the end.")
    parser.add_argument("--data", type=Path, help="Folder with Isolet.npz, USPS2007.npz.")
    options = parser.parse_args(arguments)
    size = SMALL if options.small else Size()
    warnings.simplefilter("ignore", UserWarning)
    if "scale" in options.tables:
        title = f"{size.rows} x {size.columns} float32, {WORKERS} workers of {MEMORY_LIMIT / 1e9:g} GB; seconds"
        for row in scale_table(options.folder, size, options.landmarks, options.ridges[0]):
            show(title, [row])
    if "landmarks" in options.tables:
        show(
            "landmarks; hits of seeds, seconds of a fit", list(landmark_table(size, options.landmarks, options.ridges))
        )
    if "error" in options.tables:
        for rows in error_table(
            size, options.data, options.problems, options.landmarks, options.gammas, options.ridges
        ):
            show("means over seeds, against the exact Laplacian machine", rows)
    if "exact" in options.tables:
        for row in exact_table(options.folder, size, 500 if not options.small else 30):
            show("exact route; seconds of a round", [row])


if __name__ == "__main__":
    main()
