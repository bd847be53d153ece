"""Benchmark of the neighbor graph. Everything that is compared runs side by side in one call; read the ratios.

    OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1 python -m tests.benchmarks.graph [--tables NAME ...] [--scale 1.0]

Tables: ``auto`` (CPU of what ``engine: auto`` chooses against exact search and one in-memory NN-descent), ``descent``
(CPU of the graph against NNDescent, faiss and hnswlib in memory, which the extra ``bench`` installs), ``ranking``
(scores on an approximate graph against the exact one), ``wide`` (projected search), ``sparse`` (a job on sparse data),
``workers`` (two workers against one), ``metrics`` (``engine: pynndescent`` over one group and over five, against
NNDescent by hand), ``big`` (a job on data larger than the workers' memory; takes long) and ``spaces`` (features by
graphs in different spaces, on the classes of a file: ``--data``).
``--scale`` shrinks the numbers of rows.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats

from daskfs import LaplacianScore, VarianceScore, knn_graph
from daskfs.kernels.neighbors.exact import exact_neighbors
from daskfs.kernels.neighbors.rows import prepare_rows
from daskfs.kernels.statistics.moments import row_blocks
from tests.benchmarks.main_job import MiB, show
from tests.events import read_events
from tests.execution.runs import command, write_job

CHECKED_ROWS = 1000
DESCENT_LENGTHS = (11, 12, 13, 14, 15, 17, 20, 24, 30, 40)
DESCENT_RECALL = 0.988
RECALL = 0.98
"""Recall that libraries are held to; our search aims at it by itself."""
PROBES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
SEARCHED = (20, 30, 45, 70, 100, 150, 220)
METRICS = (
    *((name, "dense") for name in ("manhattan", "chebyshev", "canberra", "braycurtis", "minkowski")),
    *((name, "sparse") for name in ("jaccard", "correlation", "manhattan")),
)
N_GROUPS = 5
GRAPH_STAGES = ("cells", "assign", "build", "merge", "recall")


# ------------------------------------------------------------------------------------ data
def mixture(n_samples: int, n_features: int) -> np.ndarray:
    """Return a hundred Gaussian clusters with unit noise, whose features separate them more and more."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((100, n_features)) * np.linspace(0.02, 2, n_features)
    return (centers[rng.integers(0, 100, n_samples)] + rng.standard_normal((n_samples, n_features))).astype(np.float32)


def low_rank(n_samples: int, n_features: int, rank: int = 10) -> np.ndarray:
    """Return a few latent dimensions plus noise."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((n_samples, rank)) @ rng.standard_normal((rank, n_features))
    return (latent + 0.5 * rng.standard_normal((n_samples, n_features))).astype(np.float32)


def patches(n_samples: int, n_features: int) -> np.ndarray:
    """Return patches of the two photographs that scikit-learn ships: 8 x 8 gray, or 13 x 13 in color."""
    from sklearn.datasets import load_sample_images
    from sklearn.feature_extraction.image import extract_patches_2d

    size = 8 if n_features <= 64 else 13
    parts = []
    for image in load_sample_images().images:
        pixels = image.astype(np.float32)
        pixels = pixels.mean(axis=2) if size == 8 else pixels
        found = extract_patches_2d(pixels, (size, size), max_patches=n_samples // 2, random_state=0)
        parts.append(found.reshape(len(found), -1))
    X = np.concatenate(parts)
    return np.ascontiguousarray(X[np.random.default_rng(0).permutation(len(X))])


def curves(n_samples: int, n_features: int) -> np.ndarray:
    """Return smooth curves: mixtures of four waves, sampled at as many places as there are features, plus noise."""
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(1, 5)[:, None] * np.linspace(0, np.pi, n_features) + rng.random((4, 1)))
    noise = 0.05 * rng.standard_normal((n_samples, n_features))
    return (rng.standard_normal((n_samples, 4)) @ waves + noise).astype(np.float32)


def uniform(n_samples: int, n_features: int) -> np.ndarray:
    """Return noise without structure."""
    return np.random.default_rng(0).random((n_samples, n_features), dtype=np.float32)


def digits(n_samples: int, n_features: int) -> np.ndarray:
    """Return images of scikit-learn's digits, each turned, scaled and shifted at random, of as many pixels."""
    from scipy.ndimage import affine_transform
    from sklearn.datasets import load_digits

    rng, side, images = np.random.default_rng(0), round(n_features**0.5), load_digits().images
    found = np.empty((n_samples, side, side), np.float32)
    for row in range(n_samples):
        angle, zoom = rng.uniform(-0.3, 0.3), 8 / side * rng.uniform(0.85, 1.15)
        turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        shift = np.full(2, 3.5) - turn @ np.full(2, (side - 1) / 2) + rng.uniform(-0.7, 0.7, 2)
        affine_transform(images[row % len(images)], turn, shift, output=found[row], order=1)
    return found.reshape(n_samples, -1)


def cell_types(n_samples: int, n_features: int) -> np.ndarray:
    """Return log-normalized counts of two thousand genes in twenty types of cells, in their principal components."""
    from sklearn.utils.extmath import randomized_svd

    rng = np.random.default_rng(0)
    types = rng.gamma(0.3, 1.0, (20, 2000)) + 0.02
    counts = np.empty((n_samples, 2000), np.float32)
    for rows in row_blocks(n_samples, 10_000):
        n_rows = rows.stop - rows.start
        rates = types[rng.integers(0, 20, n_rows)] * rng.gamma(2.0, 0.5, (n_rows, 1))
        counts[rows] = rng.poisson(rates * rng.gamma(4.0, 0.25, (n_rows, 2000)))
        counts[rows] = np.log1p(counts[rows] * (1000 / np.maximum(counts[rows].sum(axis=1, keepdims=True), 1)))
    counts -= counts.mean(axis=0)
    _, _, axes = randomized_svd(counts[:: max(1, n_samples // 10_000)], n_features, random_state=0)
    return np.ascontiguousarray(counts @ axes.T)


def windows(n_samples: int, n_features: int) -> np.ndarray:
    """Return windows of a sensor's signal: one coordinate of the Lorenz attractor, with noise."""
    state, signal = np.array([1.0, 1.0, 20.0]), np.empty(n_samples + n_features)
    for step in range(signal.size):
        x, y, z = state
        state = state + 0.01 * np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
        signal[step] = state[0]
    signal += 0.1 * np.random.default_rng(0).standard_normal(signal.size)
    return np.lib.stride_tricks.sliding_window_view(signal.astype(np.float32), n_features)[:n_samples].copy()


DATA: dict[str, Callable[[int, int], np.ndarray]] = {"mixture": mixture, "low rank": low_rank, "patches": patches}
OWN = {"digits": digits, "cell types": cell_types, "windows": windows}
"""Further kinds of data, chosen before anything was measured on them."""
LATENT: Callable[[int, int], np.ndarray] = partial(low_rank, rank=12)
SIZES: list[tuple[str, Callable[[int, int], np.ndarray], int, int]] = [
    ("mixture", mixture, 100_000, 64),
    ("latent", LATENT, 100_000, 64),
    ("curves", curves, 60_000, 200),
    ("latent", LATENT, 25_000, 512),
    ("uniform", uniform, 60_000, 64),
    ("uniform", uniform, 20_000, 200),
]


# ---------------------------------------------------------------------------------- tables
def checked(X: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return some rows and the exact distance to their k-th neighbor."""
    rows = np.sort(np.random.default_rng(1).choice(len(X), min(CHECKED_ROWS, len(X)), replace=False))
    base = prepare_rows(X, "euclidean")
    return rows, exact_neighbors(base.part(rows), rows, base, 0, k)[1][:, -1:]


def recall_of(distances: np.ndarray, farthest: np.ndarray) -> float:
    """Return the share of neighbors within the exact k-th distance."""
    return float((distances <= farthest * (1 + 1e-6)).mean())


def cpu(action: Callable[..., Any]) -> tuple[float, Any]:
    """Return CPU seconds of all threads of this process, and the result."""
    started = time.process_time()
    result = action()
    return time.process_time() - started, result


def _descent(X: np.ndarray, k: int, rows: np.ndarray, farthest: np.ndarray, recall: float) -> tuple[int, float, float]:
    """Return the shortest lists with which NNDescent reaches a recall, the recall, and CPU seconds; nan without it."""
    try:
        from pynndescent import NNDescent
    except ImportError:
        return 0, np.nan, np.nan

    NNDescent(X[:2000], n_neighbors=5, n_jobs=1)  # compiles what such rows need
    for length in DESCENT_LENGTHS:
        spent, index = cpu(lambda length=length: NNDescent(X, n_neighbors=length + 1, random_state=0, n_jobs=1))
        near = index.neighbor_graph[0][rows][:, 1:]
        near_distances = np.sqrt(((X[rows][:, None].astype(np.float64) - X[near]) ** 2).sum(axis=2))
        reached = recall_of(np.sort(near_distances, axis=1)[:, :k], farthest)
        if reached >= recall:
            break
    return length, reached, spent


def auto_table(rows_of: Callable[[int], int], k: int = 10) -> Iterator[dict[str, Any]]:
    """CPU of exact search, of what "auto" chooses, and of NNDescent at a recall of at least 0.988."""
    for name, make, n_samples, n_features in SIZES:
        X = make(rows_of(n_samples), n_features)
        rows, farthest = checked(X, k)
        exact, _ = cpu(lambda X=X: knn_graph(X, k, engine="exact"))
        auto, graph = cpu(lambda X=X: knn_graph(X, k))
        _, reached, descent = _descent(X, k, rows, farthest, DESCENT_RECALL)
        yield {
            "data": name,
            "shape": f"{X.shape[0]} x {X.shape[1]}",
            "exact_cpu": exact,
            "auto_cpu": auto,
            "auto_recall": recall_of(graph.distances[rows], farthest),
            "auto_is": "exact" if graph.recall is None else "approximate",
            "descent_cpu": descent,
            "descent_recall": reached,
        }


def fit_table(n_samples: int, n_features: int, k: int = 5) -> Iterator[dict[str, Any]]:
    """CPU of an estimator with an exact graph and with that of "auto"."""
    for name, make in {**DATA, "latent": LATENT}.items():
        if name == "patches":
            continue
        X = make(n_samples, n_features)
        exact, reference = cpu(
            lambda X=X: LaplacianScore(n_neighbors=k, graph=knn_graph(X, k, engine="exact")).fit(X).scores_
        )
        auto, scores = cpu(lambda X=X: LaplacianScore(n_neighbors=k).fit(X).scores_)
        shape = f"{n_samples} x {n_features}"
        agreement = _agreement(scores, reference)
        yield {"data": name, "shape": shape, "exact_cpu": exact, "auto_cpu": auto, **agreement}


def descent_table(shapes: list[tuple[int, int]], k: int = 10) -> Iterator[dict[str, Any]]:
    """CPU of our search, in memory and through a store, against libraries in memory, each of at least `RECALL`."""
    for engine in ("cells", "descent"):
        knn_graph(mixture(6000, 8), k, engine=engine)  # compiles
    for n_samples, n_features in shapes:
        for name, make in ({**DATA, **OWN} if n_features < 100 else DATA).items():
            X = make(n_samples, n_features)
            rows, farthest = checked(X, k)
            in_memory, graph = cpu(lambda X=X: knn_graph(X, k))
            stored, n_groups = _stored_cpu(X, k)
            _, reached, descent = _descent(X, k, rows, farthest, RECALL)
            others = {
                "nndescent": (descent, reached),
                "faiss": _inverted_lists(X, k, rows, farthest),
                "hnswlib": _small_worlds(X, k, rows, farthest),
            }
            best = min((seconds for seconds, recall in others.values() if recall >= RECALL), default=np.nan)
            yield {
                "data": name,
                "shape": f"{X.shape[0]} x {X.shape[1]}",
                "groups": n_groups,
                "recall": recall_of(graph.distances[rows], farthest),
                "cpu_memory": in_memory,
                "cpu_stored": stored,
                **{f"{other}_cpu": seconds for other, (seconds, _) in others.items()},
                **{f"{other}_recall": recall for other, (_, recall) in others.items()},
                "ratio_memory": in_memory / best,
                "ratio_stored": stored / best,
            }


def _recall_of_rows(X: np.ndarray, rows: np.ndarray, found: np.ndarray, farthest: np.ndarray) -> float:
    """Return the recall of lists of `rows` in any order, which may hold the row itself."""
    lengths = np.sqrt(((X[rows][:, None].astype(np.float64) - X[found]) ** 2).sum(axis=2))
    lengths[found == rows[:, None]] = np.inf
    return recall_of(np.sort(lengths, axis=1)[:, : found.shape[1] - 1], farthest)


def _inverted_lists(X: np.ndarray, k: int, rows: np.ndarray, farthest: np.ndarray) -> tuple[float, float]:
    """Return CPU seconds and recall of faiss's IVF-Flat with the fewest probes that reach `RECALL`; nan without it."""
    try:
        import faiss
    except ImportError:
        return np.nan, np.nan
    faiss.omp_set_num_threads(1)
    n_lists = int(4 * np.sqrt(len(X)))

    def build() -> Any:
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(X.shape[1]), X.shape[1], n_lists)
        index.train(X)  # takes a sample itself
        index.add(X)
        return index

    built, index = cpu(build)
    for index.nprobe in PROBES:
        recall = _recall_of_rows(X, rows, index.search(X[rows], k + 1)[1], farthest)
        if recall >= RECALL:
            break
    return built + cpu(lambda: index.search(X, k + 1))[0], recall


def _small_worlds(X: np.ndarray, k: int, rows: np.ndarray, farthest: np.ndarray) -> tuple[float, float]:
    """Return CPU seconds and recall of hnswlib with the shortest search that reaches `RECALL`; nan without it."""
    try:
        import hnswlib
    except ImportError:
        return np.nan, np.nan
    index = hnswlib.Index("l2", X.shape[1])
    index.set_num_threads(1)
    index.init_index(len(X), ef_construction=100, M=16, random_seed=0)
    built, _ = cpu(lambda: index.add_items(X, num_threads=1))
    for length in SEARCHED:
        index.set_ef(length)
        recall = _recall_of_rows(X, rows, index.knn_query(X[rows], k + 1)[0].astype(np.int64), farthest)
        if recall >= RECALL:
            break
    return built + cpu(lambda: index.knn_query(X, k + 1, num_threads=1))[0], recall


def _stored_cpu(X: np.ndarray, k: int) -> tuple[float, int]:
    """Return CPU seconds of the graph stages of a job in this process, tiles and spill on disk, and the groups."""
    from daskfs.estimators.opening import stored_context
    from daskfs.graph.plan import plan_graph
    from daskfs.graph.spec import GraphSpec
    from daskfs.stages.stage import digest, with_fingerprints
    from daskfs.stages.units import create_arrays, run_unit

    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/X.npy", X)
        with stored_context(f"{folder}/X.npy") as (context, _, _):
            stages = with_fingerprints(plan_graph(context.tiles.shape, GraphSpec(), k), digest("benchmark"))
            create_arrays(context, stages)

            def build() -> None:
                for stage in stages:
                    for unit in range(stage.n_units):
                        run_unit(context, stage, unit)

            return cpu(build)[0], next((stage.n_units for stage in stages if stage.kind_name == "build"), 1)


def ranking_table(n_samples: int, k: int = 10) -> Iterator[dict[str, Any]]:
    """Scores on the graph by cells against those on the exact graph."""
    for name, make in {**DATA, "uniform": uniform}.items():
        X = make(n_samples, 64)
        exact = LaplacianScore(n_neighbors=k, graph=knn_graph(X, k, engine="exact")).fit(X).scores_
        graph = knn_graph(X, k, engine="cells")
        scores = LaplacianScore(n_neighbors=k, graph=graph).fit(X).scores_
        yield {"data": name, "rows": n_samples, "recall": graph.recall, **_agreement(scores, exact)}


def _agreement(scores: np.ndarray, exact: np.ndarray) -> dict[str, float]:
    top, true = (set(np.argsort(s, kind="stable")[:20].tolist()) for s in (scores, exact))
    return {"spearman": float(scipy.stats.spearmanr(scores, exact).statistic), "top_20": len(top & true)}


def wide_table(shapes: list[tuple[int, int]], k: int = 10) -> Iterator[dict[str, Any]]:
    """Search on a projection, for both engines."""
    for n_samples, n_features in shapes:
        X = low_rank(n_samples, n_features)
        rows, farthest = checked(X, k)
        exact = LaplacianScore(n_neighbors=k, graph=knn_graph(X, k, engine="exact")).fit(X).scores_
        for engine in ("cells", "descent"):
            spent, graph = cpu(lambda X=X, engine=engine: knn_graph(X, k, engine=engine, projection=128))
            scores = LaplacianScore(n_neighbors=k, graph=graph).fit(X).scores_
            yield {
                "engine": engine,
                "shape": f"{n_samples} x {n_features}",
                "cpu": spent,
                "recall": recall_of(graph.distances[rows], farthest),
                "estimated": graph.recall,
                **_agreement(scores, exact),
            }


def space_table(file: Path, k: int = 5, n_selected: int = 50) -> Iterator[dict[str, Any]]:
    """How well the first features by Laplacian Score tell the classes, with the graph in different spaces."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score
    from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    with np.load(file, allow_pickle=False) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=10, random_state=0)
    for space in (None, "zscore", "pca=20", "zscore+pca=20", "variance alone"):
        if space == "variance alone":
            selector: Any = VarianceScore(n_features_to_select=n_selected)
        else:
            selector = LaplacianScore(n_features_to_select=n_selected, n_neighbors=k, graph_scaling=space)
        chosen = selector.fit_transform(X)
        clusters = KMeans(np.unique(y).size, n_init=20, random_state=0).fit_predict(chosen)
        accuracy = cross_val_score(KNeighborsClassifier(k), chosen, y, cv=folds).mean()
        yield {"graph from": space or "columns", "rand_index": adjusted_rand_score(y, clusters), "accuracy": accuracy}


def run(folder: Path, **job: Any) -> tuple[dict[str, Any], list[dict[str, Any]], float]:
    """Run a job from the command line; return its result, its events and its seconds."""
    file = write_job(folder, "replaced", evaluate=None, **job)
    started = time.perf_counter()
    done = subprocess.run(command("run", file, "--json", "-q"), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    seconds = time.perf_counter() - started
    result = json.loads(done.stdout)
    return result, read_events(Path(result["ranking"]).parent), seconds


def stage_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row for each stage: seconds, planned and measured bytes and peaks."""
    return [
        {
            "stage": stage["name"],
            "units": stage["units"],
            "seconds": stage["seconds"],
            "peak_mib": stage["peak_bytes"] / MiB,
            "planned_mib": stage["planned_peak_bytes"] / MiB,
            "read_mib": stage["bytes_read"] / MiB,
            "planned_read": stage["planned_bytes_read"] / MiB,
            "write_mib": stage["bytes_written"] / MiB,
            "planned_write": stage["planned_bytes_written"] / MiB,
        }
        for stage in result["stages"]
    ]


def workers_table(n_samples: int) -> Iterator[dict[str, Any]]:
    """Seconds of the build step with one worker and with two, and of its units."""
    source = f"synthetic:lowrank?n_samples={n_samples}&n_features=128&rank=10&noise=0.5&seed=0"
    for workers in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            _, events, seconds = run(
                Path(folder),
                data={"source": source},
                graph={"n_neighbors": 10, "engine": "cells"},
                methods=["LaplacianScore"],
                cluster={"workers": workers, "memory_limit": "3GiB"},
            )
        units = [event for event in events if event["stage"].startswith("build")]
        began = min(event["time"] - event["seconds"] for event in units)
        yield {
            "workers": workers,
            "build_seconds": max(event["time"] for event in units) - began,
            "units": len(units),
            "unit_min": min(event["seconds"] for event in units),
            "unit_max": max(event["seconds"] for event in units),
            "unit_sum": sum(event["seconds"] for event in units),
            "job_seconds": seconds,
        }


def metric_data(n_samples: int, form: str) -> Any:
    """Return rows of ten latent dimensions, or sparse binary rows that share parts of sixty sets."""
    if form == "dense":
        return low_rank(n_samples, 32)
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    sets = rng.integers(0, 1000, (60, 60))
    columns = np.where(rng.random((n_samples, 60)) < 0.6, sets[rng.integers(0, 60, n_samples)], -1)
    columns[:, :10] = rng.integers(0, 1000, (n_samples, 10))
    rows, places = np.nonzero(columns >= 0)
    X = csr_matrix((np.ones(rows.size, np.float32), (rows, columns[rows, places])), (n_samples, 1000))
    X.data[:] = 1
    return X


def search_by_metric(n_samples: int, metric: str, form: str, n_groups: int, k: int = 10) -> dict[str, float]:
    """Search in this process, by daskfs over some groups, or, of 0 groups, by NNDescent; compile beforehand."""
    from pynndescent import NNDescent

    from daskfs.graph import partition
    from daskfs.kernels.neighbors.metrics import checked_metric

    X, kwds = metric_data(n_samples, form), {"p": 3} if metric == "minkowski" else {}

    def search(part: Any) -> np.ndarray:
        if n_groups:
            partition.GROUP_ROWS = -(-part.shape[0] // n_groups)
            graph = knn_graph(part, k, metric=metric, metric_kwds=kwds or None, engine="pynndescent")
            return np.asarray(graph.distances)
        index = NNDescent(part, metric=metric, metric_kwds=kwds, n_neighbors=16, random_state=0, n_jobs=1)
        return np.asarray(index.neighbor_graph[1][:, 1 : k + 1])  # without the row itself

    compiled, _ = cpu(lambda: search(X[:2000]))
    spent, found = cpu(lambda: search(X))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows = np.sort(np.random.default_rng(1).choice(n_samples, CHECKED_ROWS, replace=False))
    base = prepare_rows(X, checked_metric(metric, kwds or None))
    farthest = exact_neighbors(base.part(rows), rows, base, 0, k)[1][:, -1:]
    recall = float((found[rows] <= farthest * (1 + 1e-5) + 1e-6).mean())
    return {"compile_cpu": compiled, "cpu": spent, "recall": recall, "peak_mib": peak}


def metric_table(n_samples: int) -> Iterator[dict[str, Any]]:
    """``engine: pynndescent`` over one group and over several beside NNDescent, each in a process of its own."""
    for metric, form in METRICS:
        for n_groups in (0, 1, N_GROUPS):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                measured = pool.submit(search_by_metric, n_samples, metric, form, n_groups).result()
            by = {0: "NNDescent", 1: "one group"}.get(n_groups, f"{n_groups} groups")
            yield {"metric": metric, "rows": form, "by": by, **measured}


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = ("auto", "descent", "ranking", "wide", "sparse", "workers", "metrics", "big", "spaces")
    parser.add_argument("--tables", nargs="+", choices=names, default=list(names[:-3]))
    parser.add_argument("--scale", type=float, default=1.0, help="Multiplies rows, and columns of wide data.")
    parser.add_argument("--big-source", default="synthetic:lowrank?n_samples=4000000&n_features=512&rank=10&noise=0.5")
    parser.add_argument("--data", type=Path, help="File of the table spaces: .npz of X and classes y.")
    options = parser.parse_args(arguments)

    def rows(count: int) -> int:
        return max(2000, int(count * options.scale))

    def columns(count: int) -> int:
        return max(300, int(count * options.scale))

    if "auto" in options.tables:
        show("CPU seconds of engine: auto, k = 10, against exact search and one NNDescent", list(auto_table(rows)))
        show("CPU seconds of LaplacianScore(n_neighbors=5).fit", list(fit_table(rows(100_000), 100)))
    if "descent" in options.tables:
        title = "CPU seconds of the graph, k = 10, against the best of NNDescent, faiss and hnswlib in memory"
        shapes = [(100_000, 64), (25_000, 512), (200_000, 64), (50_000, 512)]
        show(title, list(descent_table([(rows(n), n_columns) for n, n_columns in shapes])))
    if "ranking" in options.tables:
        show("Laplacian Score on the graph by cells against the exact graph", list(ranking_table(rows(50_000))))
    if "wide" in options.tables:
        shapes = [(rows(20_000), columns(4000)), (rows(5000), columns(20_000))]
        show("search on a projection of 128 columns", list(wide_table(shapes)))
    if "sparse" in options.tables:
        with tempfile.TemporaryDirectory() as folder:
            source = f"synthetic:sparse?n_samples={rows(200_000)}&n_features=20000&density=0.002"
            result, _, seconds = run(
                Path(folder),
                data={"source": source},
                graph={"n_neighbors": 10},
                methods=["LaplacianScore"],
                cluster={"workers": 2, "memory_limit": "2GB"},
            )
        show(f"sparse job, 2 workers of 2 GB: {seconds:.0f} s", stage_rows(result))
    if "workers" in options.tables:
        show("two workers against one", list(workers_table(rows(200_000))))
    if "metrics" in options.tables:
        title = f"engine: pynndescent and NNDescent, {rows(30_000):,} rows, k = 10"
        show(title, list(metric_table(rows(30_000))))
    if "spaces" in options.tables:
        show("first 50 features by Laplacian Score, k = 5, by the space of the graph", list(space_table(options.data)))
    if "big" in options.tables:
        with tempfile.TemporaryDirectory() as folder:
            result, _, seconds = run(
                Path(folder),
                data={"source": options.big_source},
                graph={"n_neighbors": 10},
                methods=["LaplacianScore"],
                cluster={"workers": 2, "memory_limit": "2GiB"},
            )
        show(f"data larger than memory, 2 workers of 2 GiB: {seconds:.0f} s", stage_rows(result))


if __name__ == "__main__":
    main()
