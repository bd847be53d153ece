"""Benchmark of the scoring pass: what all criteria of a job cost beside reading and decoding the tiles.

    python -m tests.benchmarks.scoring [--rows 1000000] [--columns 1024] [--folder FOLDER] [--json FILE]

Makes a store, a graph of k = 10 whose neighbors lie near each other in the store (as after partitioning) or anywhere,
and plans the stages from the edges on. In one run, in turn and by the same worker processes, it times

- ``zarr``: every unit reads the tiles of its slab with Zarr alone and keeps nothing;
- ``read``: every unit reads its slab as scoring does, into panels;
- ``score``: the units of the stage, with eight criteria.

Read the ratios; CPU ratios hold on a busy machine, too. ``gathered`` is the rate at which neighbors' rows pass through
the score stage, all its other work included. Keep the page cache warm: the store must fit into memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client

from daskfs.criteria.plan import plan_scores, scored_columns
from daskfs.criteria.registry import Method, make_method
from daskfs.criteria.slab import SCORE_STAGE, ScoreParameters, graph_needs, reads_labels, slab_range
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.connection import connect
from daskfs.execution.pool import Pool
from daskfs.graph.plan import plan_edges, plan_weights
from daskfs.graph.precomputed import NeighborLists
from daskfs.graph.precomputed_stage import store_graph
from daskfs.kernels.labels import Labels
from daskfs.kernels.statistics.moments import row_blocks
from daskfs.plan.chain import label_bytes
from daskfs.plan.inline import run_all
from daskfs.stages.cost import PROCESS, Cost
from daskfs.stages.stage import digest
from daskfs.stages.units import run_stored_unit
from daskfs.store import layout
from daskfs.store.arrays import open_zarr
from daskfs.store.context import Context, open_tiles, put_labels
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.store.tiles import TileInfo
from daskfs.tiles.shapes import plan_shape
from tests.benchmarks.main_job import MiB, show
from tests.execution.runs import asked_of, lose_record

K = 10
MUTUAL, ONE_SIDED = 3, 4
"""Offsets that rows list in both directions, and in one: 10 entries and 7 edges a row, as in graphs of real data."""
LABELED = 0.1
ONE: list[tuple[str, dict[str, Any]]] = [("LaplacianScore", {"n_neighbors": K})]
EIGHT: list[tuple[str, dict[str, Any]]] = [
    *ONE,
    ("LaplacianScore", {"n_neighbors": K, "weights": "binary", "self_loops": True}),
    ("SSelect", {"n_neighbors": K, "t": "median"}),
    ("LSDF", {"n_neighbors": K}),
    ("SupervisedLaplacianScore", {"task": "classification"}),
    ("FisherScore", {}),
    ("PearsonScore", {"task": "classification"}),
    ("VarianceScore", {}),
]
"""Four of them are on the graph, each with weights of its own."""


# ------------------------------------------------------------------------------------ data
def make_tiles(folder: Path, n_samples: int, n_features: int, memory_limit: int) -> Shape:
    """Store ten smooth components and as much noise in float32: its bytes compress as little as those of measurements
    do. A tenth of the rows is labeled.
    """
    shape = plan_shape(n_samples, n_features, "float32", None, memory_limit)
    store = Store(folder)
    store.create(layout.X, (n_samples, n_features), np.float32, (shape.tile_rows, shape.tile_columns))
    rng = np.random.default_rng(0)
    loadings = rng.standard_normal((10, n_features), dtype=np.float32)
    periods = np.arange(1, 11) * 20 * np.pi / n_samples
    X = store.open(layout.X)
    for index in range(shape.n_bands):
        band = shape.band(index)
        latent = np.sin(np.arange(band.start, band.stop)[:, None] * periods).astype(np.float32)
        for columns in row_blocks(n_features, shape.tile_columns):
            noise = rng.standard_normal((len(latent), columns.stop - columns.start), dtype=np.float32)
            X[band, columns] = latent @ loadings[:, columns] + noise
    labels = np.where(rng.random(n_samples) < LABELED, rng.integers(0, 2, n_samples), -1).astype(np.int32)
    put_labels(store, Labels("classification", labels, ("a", "b")))
    info = TileInfo(shape, digest(n_samples, n_features), "benchmark", None, "classification", ("a", "b"))
    store.write_json(layout.TILES_JSON, asdict(info))
    return shape


def make_lists(n_samples: int, near: bool) -> NeighborLists:
    """Return lists of ten neighbors: within a thousand rows, or the same graph with the rows renumbered at random."""
    rng = np.random.default_rng(1)
    reach = max(2, min(1000, n_samples // 4) // (MUTUAL + ONE_SIDED))
    rows = np.arange(n_samples)[:, None]
    shared = reach * np.arange(1, MUTUAL + 1)
    alone = reach * np.arange(MUTUAL + 1, K - MUTUAL + 1) + rng.integers(1, reach, (n_samples, ONE_SIDED))
    alone *= np.where(rng.random((n_samples, ONE_SIDED)) < 0.5, 1, -1)
    indices = np.concatenate([rows + shared, rows - shared, rows + alone], axis=1) % n_samples
    distances = np.sort(rng.uniform(1, 2, (n_samples, K)), axis=1)
    if not near:
        number = rng.permutation(n_samples)
        renumbered = np.empty_like(indices)
        renumbered[number] = number[indices]
        indices = renumbered
    return NeighborLists("graph", indices, distances, "euclidean", None)


def prepare(
    tiles: Path, run: Path, names: list[tuple[str, dict[str, Any]]], lists: NeighborLists, memory_limit: int
) -> tuple[Context, list[Any], list[Method]]:
    """Store the graph in a run store, and plan the stages from the edges to the scores."""
    context = Context(Store(run), open_tiles(str(tiles)))
    shape = context.tiles.shape
    methods = [make_method(name, parameters, f"{name}-{i}") for i, (name, parameters) in enumerate(names)]
    weightings = graph_needs(methods)
    stages = []
    if weightings:
        store_graph(context.store, lists, shape.n_samples, K)
        stages += plan_edges(shape.n_samples, lists.name, K, (PROCESS,))
        stages += plan_weights(shape.n_samples, weightings, (PROCESS,))

    def cost(columns: int) -> Cost:
        way = {"weighted": False, "scaled": False, "pairwise": False}
        return SCORE_STAGE.cost(shape, columns, (), weightings, methods, **way)

    columns = scored_columns(shape, memory_limit, cost)
    labels = label_bytes(weightings, shape.n_samples, labeled=reads_labels(methods, pairwise=False))
    scores = plan_scores(shape, methods, weightings, columns, (PROCESS, *cost(columns)))
    stages.append(replace(scores, bytes_read=scores.bytes_read + scores.n_units * labels))
    return context, stages, methods


# ------------------------------------------------------------------------------------ work
def read_slab(tiles: str, columns: int, unit: int, with_zarr: bool) -> None:
    """Read the slab of one unit."""
    opened = open_tiles(tiles)
    shape = opened.shape
    wanted = slab_range(unit, columns, shape.n_features)
    if not with_zarr:
        opened.read_panels(wanted.start, wanted.stop)
        return
    X = open_zarr(opened.store.path(layout.X))
    for index in range(shape.n_bands):
        for part in row_blocks(wanted.stop - wanted.start, shape.tile_columns):
            X[shape.band(index), wanted.start + part.start : wanted.start + part.stop]


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Call a function and return the CPU seconds of this process, user and system, and its result."""
    started = time.process_time()  # os.times counts in ticks, of which a small slab takes none
    result = function(*arguments)
    return time.process_time() - started, result


def measured(client: Client, function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> dict[str, float]:
    """Run calls on a cluster, and return the seconds that passed and those of the processors."""
    started = time.perf_counter()
    futures = [client.submit(timed, function, *call, pure=False) for call in calls]
    cpu = sum(seconds for seconds, _ in client.gather(futures))
    return {"wall": time.perf_counter() - started, "cpu": cpu}


def score_again(url: str, stage: str, unit: int) -> None:
    """Run a unit that is recorded."""
    lose_record(Path(url), stage, unit)
    run_stored_unit(*asked_of(Path(url), stage, unit))


def compare(client: Client, context: Context, memory_limit: int, lists: NeighborLists, repeats: int) -> dict[str, Any]:
    """Time the score stage of eight criteria against reading, in turn, and return the least of each."""
    tiles = Path(context.tiles.store.url)
    _, stages, methods = prepare(tiles, Path(context.store.url), EIGHT, lists, memory_limit)
    run_all(context, stages, Pool(client))
    score, n_units = stages[-1], stages[-1].n_units
    assert isinstance(score.parameters, ScoreParameters)
    columns = score.parameters.slab_columns
    sides: dict[str, tuple[Callable[..., Any], list[Any]]] = {
        "zarr": (read_slab, [(str(tiles), columns, unit, True) for unit in range(n_units)]),
        "read": (read_slab, [(str(tiles), columns, unit, False) for unit in range(n_units)]),
        "score": (score_again, [(context.store.url, "score", unit) for unit in range(n_units)]),
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, (function, calls) in sides.items():
            runs[name].append(measured(client, function, calls))
    best = {name: {kind: min(run[kind] for run in runs[name]) for kind in ("wall", "cpu")} for name in sides}
    records = [context.store.records.get("score", unit) or {} for unit in range(n_units)]
    summary = context.store.read_json(layout.GRAPH_SUMMARY.format(lists.name, K))
    shape = context.tiles.shape
    gathered = 2 * summary["n_edges"] * shape.n_features * shape.itemsize
    return {
        "units": n_units,
        "slab_columns": columns,
        "weightings": len(graph_needs(methods)),
        "edges_per_row": summary["n_edges"] / shape.n_samples,
        **{f"{name}_{kind}": best[name][kind] for name in sides for kind in ("wall", "cpu")},
        **{
            f"{kind}_over_{side}": best["score"][kind] / best[side][kind]
            for side in ("zarr", "read")
            for kind in ("wall", "cpu")
        },
        "x_gb_per_second": shape.x_bytes / best["score"]["wall"] / 1e9,
        "gathered_gb_per_cpu_second": gathered / best["score"]["cpu"] / 1e9,
        "peak_over_planned": max(record["peak_bytes"] for record in records) / score.peak_bytes,
    }


def bytes_table(tiles: Path, folder: Path, lists: NeighborLists, memory_limit: int) -> list[dict[str, Any]]:
    """Bytes that the score stage reads with one criterion and with eight."""
    table: list[dict[str, Any]] = []
    for label, names in (("one", ONE), ("eight", EIGHT)):
        context, stages, _ = prepare(tiles, folder / label, names, lists, memory_limit)
        run_all(context, stages, None)
        n_units = stages[-1].n_units
        read = sum((context.store.records.get("score", unit) or {})["bytes_read"] for unit in range(n_units))
        planned = stages[-1].bytes_read
        table.append({"criteria": label, "read_mib": read / MiB, "planned": planned / MiB})
    for row in table:
        row["ratio"] = row["read_mib"] / table[0]["read_mib"]
    return table


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, print the tables and write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", type=float, default=4.0, help="Of one worker, GiB.")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--order", nargs="+", choices=["near", "random"], default=["near", "random"])
    parser.add_argument("--folder", type=Path, help="Where the store goes, and stays for the next run.")
    parser.add_argument("--json", type=Path, help="File for the figures.")
    options = parser.parse_args(arguments)
    limit = int(options.memory_limit * 2**30)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        kept = Path(options.folder or scratch) / f"tiles-{options.rows}-{options.columns}-{limit}"
        if not (kept / layout.TILES_JSON).exists():
            make_tiles(kept, options.rows, options.columns, limit)
        table = []
        settings = ClusterSettings(workers=options.workers, memory_limit=limit)
        for order in options.order:
            lists = make_lists(options.rows, order == "near")
            context = Context(Store(Path(scratch) / order), open_tiles(str(kept)))
            with connect(settings) as client:
                assert client is not None
                table.append({"order": order, **compare(client, context, limit, lists, options.repeats)})
        read = bytes_table(kept, Path(scratch), make_lists(options.rows, True), limit)
    title = f"{options.rows} x {options.columns} float32, eight criteria, {options.workers} workers"
    for name in ("zarr", "read", "score"):
        show(f"{title}: {name}", [{"order": row["order"], **_part(row, name)} for row in table])
    show("what that is", [{k: v for k, v in row.items() if not k.startswith(("zarr_", "read_"))} for row in table])
    show("bytes that the score stage reads", read)
    if options.json is not None:
        options.json.write_text(json.dumps({"title": title, "timed": table, "read": read}, indent=1))


def _part(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {
        key: row[key] for key in (f"{name}_wall", f"{name}_cpu", f"wall_over_{name}", f"cpu_over_{name}") if key in row
    }


if __name__ == "__main__":
    main()
