"""From a job and its data to a plan: which stages, with which parameters, at which size.

Of the data it takes what opening the source tells: its shape, type, names and identity, and whether it has labels.
Most formats say so in their metadata; a text table is scanned to its end, and a bundled data set is loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import InputError, JobError
from daskfs.graph.components import EDGES_AT_ONCE
from daskfs.graph.edges import GIVEN, GIVEN_BLOCK
from daskfs.graph.given import Graph, NeighborLists, WeightMatrix, given_bytes
from daskfs.graph.givenfiles import open_graph
from daskfs.graph.partition import resolved
from daskfs.graph.spec import GraphSpec, Lists, MixedGraph, Weighting
from daskfs.job import DataBlock, EvaluateBlock, Job
from daskfs.kernels.labels import Task
from daskfs.methods.registry import Method
from daskfs.plan.candidates import plan_redundancy
from daskfs.plan.graph import plan_edges, plan_lists, plan_weights
from daskfs.plan.rescaled import plan_rescaled
from daskfs.plan.scores import compiled_bytes, plan_finish, plan_scores, slab_columns
from daskfs.plan.stages import (
    DESCENT_BYTES,
    PROCESS_BYTES,
    WEIGHT_BYTES,
    Plan,
    Stage,
    available_bytes,
    digest,
    fingerprinted,
)
from daskfs.plan.tiles import plan_ingest, plan_shape, serves_in_place
from daskfs.ranking.redundancy import check_counts, numbered_choice
from daskfs.scores.slab import graph_needs, method_to_json
from daskfs.sources import Source, SourceSpec, open_source
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.tiles import Shape, TileInfo, read_tile_info
from daskfs.version import __version__

GIVEN_ENTRY_BYTES = 120
"""What an edge of a graph from outside takes in the block that streams by."""
LABEL_SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".txt")

WEIGHTED = frozenset(
    {
        "targets",
        "mixed",
        "edges-summary",
        "weights",
        "score",
        "trade-off",
        "comoments",
        "bins",
        "distance-maps",
        "distance-values",
        "correlate",
        "rescaled-rows",
        "rescaled-solve",
        "rescaled-tables",
    }
)
"""Functions that read the weights of rows."""
PARQUET_BYTES = 48 * 2**20
"""What pyarrow adds to the process that writes the tables."""


@dataclass(frozen=True)
class TilePlan:
    """How X becomes tiles: nothing to do for a finished tile store, else the stages that fill one."""

    url: str
    shape: Shape
    fingerprint: str
    has_labels: bool
    task: Task | None = None
    write_x: bool = False
    stages: tuple[Stage, ...] = ()
    has_weights: bool = False
    n_classes: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able values; :meth:`from_json` is the inverse."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TilePlan:
        """Rebuild from JSON."""
        return cls(
            **{**raw, "shape": Shape(**raw["shape"]), "stages": tuple(Stage(**stage) for stage in raw["stages"])}
        )


def source_spec(data: DataBlock) -> SourceSpec:
    """Return the part of the data block that says how to open the source; paths become absolute, as workers need
    them.
    """
    source = data.source
    if not source.startswith(("sklearn:", "synthetic:")) and "://" not in source:
        source = str(Path(source).expanduser().absolute())
    return SourceSpec(
        source,
        data.array,
        _absolute(data.labels),
        _absolute(data.feature_names),
        tuple(data.exclude),
        _absolute(data.weights),
    )


def _absolute(reference: str | None) -> str | None:
    """Make a reference to a file (``file`` or ``file:member``) absolute, and leave names of columns and members
    alone.
    """
    if reference is None:
        return None
    path, colon, member = reference.rpartition(":")
    for file, rest in ((reference, ""), (path, colon + member)):
        # only what ends like a file: a column may have the name of one that happens to lie here
        if file and Path(file).suffix in LABEL_SUFFIXES and Path(file).expanduser().is_file():
            return str(Path(file).expanduser().absolute()) + rest
    return reference


def plan_tiles(data: DataBlock, tiles_url: str, memory_limit: int | None) -> TilePlan:
    """Decide how a source becomes tiles: it is a tile store, it serves in place, or it is converted into
    `tiles_url`.
    """
    spec = source_spec(data)
    if (Path(spec.source) / layout.TILES_JSON).is_file():
        return _finished_tiles(data, spec)
    source = open_source(spec)
    info = source.info
    shape = plan_shape(
        info.n_samples,
        info.n_features,
        info.dtype.name,
        info.nnz if info.is_sparse else None,
        memory_limit,
    )
    x_path = _path_in_place(source, memory_limit)
    if x_path is not None:
        rows, columns = source.chunks  # type: ignore[attr-defined]
        rows, columns = min(rows, info.n_samples), min(columns, info.n_features)
        shape = dataclasses.replace(shape, tile_rows=rows, tile_columns=columns)
    raw = dataclasses.asdict(spec)
    beside = [_file_identity(ref) for ref in (data.labels, data.feature_names, data.weights) if ref is not None]
    fingerprint = digest(dict(info.identity), raw, beside, data.task, layout.FORMAT_VERSION, __version__)
    parameters = {
        "source": raw,
        "shape": dataclasses.asdict(shape),
        "task": data.task,
        "write_x": x_path is None,
        "x_path": x_path,
        "fingerprint": fingerprint,
    }
    stages = plan_ingest(shape, parameters, x_path is None, min(info.row_multiple, info.n_samples))
    return TilePlan(tiles_url, shape, fingerprint, info.has_labels, None, x_path is None, stages, info.has_weights)


def _file_identity(reference: str) -> tuple[int, int] | None:
    """Return size and time of a file beside the source that holds labels, names or weights, None when there is no such
    file.
    """
    for path in (Path(reference), Path(reference.rpartition(":")[0] or reference)):
        if path.is_file():
            return path.stat().st_size, path.stat().st_mtime_ns
    return None


def _finished_tiles(data: DataBlock, spec: SourceSpec) -> TilePlan:
    given = [key for key in ("array", "labels", "feature_names", "weights") if getattr(data, key) is not None]
    if given or data.exclude:
        key = given[0] if given else "exclude"
        msg = f"data.{key} was settled when {spec.source} was converted: leave it out, or convert again with it."
        raise JobError(msg)
    info: TileInfo | None = read_tile_info(Store(Path(spec.source)))
    assert info is not None
    if data.task not in ("auto", info.task):
        msg = f"data.task is {data.task}, and {spec.source} was converted with task {info.task}."
        raise JobError(msg)
    has_weights = info.facts.get("weights") is not None
    return TilePlan(
        spec.source,
        info.shape,
        info.fingerprint,
        info.task is not None,
        info.task,
        has_weights=has_weights,
        n_classes=len(info.classes) or None,
    )


def _path_in_place(source: Source, memory_limit: int | None) -> str | None:
    path, chunks = getattr(source, "array_path", None), getattr(source, "chunks", None)
    info = source.info
    if path is None or chunks is None or np.dtype(getattr(source, "stored_dtype", info.dtype)) != info.dtype:
        return None
    if not serves_in_place(info.n_samples, tuple(chunks), info.n_features, info.dtype.name, memory_limit):
        return None
    return str(path)


def needed_lists(
    methods: Sequence[Method], n_samples: int, complete: Callable[[GraphSpec], GraphSpec] = lambda spec: spec
) -> dict[str, tuple[Lists, int]]:
    """Return the neighbor lists that the methods stand on, with the largest number of neighbors, by name; those over X
    first, as others are made from them.

    Parameters
    ----------
    methods
        The methods.
    n_samples
        Number of rows of X.
    complete
        Adds to a spec of lists over X how they are to be searched.
    """
    found: dict[str, tuple[Lists, int]] = {}
    for method in methods:
        for name, (lists, k) in method.parameters.lists(n_samples).items():
            if isinstance(lists, GraphSpec):
                lists = complete(lists)
            elif isinstance(lists, MixedGraph):
                lists = dataclasses.replace(lists, base=complete(lists.base))
            found[name] = (lists, max(k, found.get(name, (lists, 0))[1]))
    return dict(sorted(found.items(), key=lambda item: not isinstance(item[1][0], GraphSpec)))


def plan_run(
    job: Job, tiles: TilePlan, task: Task | None, memory_limit: int | None, names: Sequence[str] | None = None
) -> Plan:
    """Plan everything after the tiles.

    Parameters
    ----------
    job
        The job.
    tiles
        Shape of the data.
    task
        Task of the labels; None when there are none, or not known yet.
    memory_limit
        Of one worker, bytes.
    names
        Of the features; None where they are not known yet.

    Raises
    ------
    InputError, JobError
        Where the data cannot serve the job: as many neighbours as rows, more features selected than there are.
    """
    shape = tiles.shape
    methods = job.make_methods(task)
    given = precomputed_graph(job, methods)
    if isinstance(given, WeightMatrix):
        methods = job.make_methods(task, on_matrix=True)
    weightings = graph_needs(methods)
    lists = needed_lists(methods, shape.n_samples, job.completed)
    stages: list[Stage] = []
    process = PROCESS_BYTES
    if given is not None:
        check_given(given, methods, shape.n_samples)
        lists = limited_lists(lists, given)
        stages.append(plan_given(given, shape.n_samples, longest_given(lists, given), process))
    else:
        process += _descent_bytes(lists, shape, memory_limit)
    stages += plan_all_lists(shape, lists, memory_limit, given)
    widths = {name: k for name, (_, k) in lists.items()}
    for name, k in dict.fromkeys((w.graph, w.n_neighbors) for w in weightings):
        if name != GIVEN:
            stages += plan_edges(shape.n_samples, name, k, process, widths[name])
    streaming = [plan_weights(shape.n_samples, w, process, widths.get(w.graph)) for w in weightings]
    scaled = any(need.scaling is not None for method in methods for need in method.needs)
    columns = slab_columns(shape, scaled, memory_limit)
    raw_methods = [method_to_json(m) for m in methods]
    beside = max(method.criterion.row_bytes for method in methods) * shape.n_samples
    labels = label_bytes(methods, weightings, shape.n_samples)
    slabs = plan_scores(shape, raw_methods, weightings, scaled, columns, process + beside, widths, labels)
    n_fields = sum(len(method.fields) for method in methods)
    streaming.append(dataclasses.replace(slabs, bytes_written=8 * n_fields * shape.n_features))
    stages += plan_streams(streaming, given, shape.n_samples, process)
    process += compiled_bytes(shape, scaled)
    stages += plan_finishes(shape, methods, columns, process, memory_limit, tiles.n_classes)
    n_selected = selected_count(job, shape.n_features)
    wanted = wanted_filter(job, names)
    if wanted is not None:
        stages += plan_redundancy(shape, raw_methods, wanted, columns, process)
    filtered = {} if wanted is None else {"filtered": True}
    table = process + PARQUET_BYTES + 600 * shape.n_features * len(methods)
    stages.append(Stage("rank", "rank", 1, {"methods": raw_methods, "n_features": n_selected, **filtered}, table))
    if (evaluate := wanted_evaluation(job, tiles.has_labels)) is not None:
        stages += _plan_evaluation(evaluate, shape, raw_methods, columns, process, filtered)
    start = digest(tiles.fingerprint, dataclasses.asdict(shape), __version__)
    settled = fingerprinted(plan_weighted(stages, shape.n_samples) if tiles.has_weights else stages, start)
    facts: dict[str, Any] = {"n_selected": n_selected, "shape": dataclasses.asdict(shape)}
    facts["given"] = None if given is None else dict(given.identity)
    facts["job"] = digest(start, job.identity(), facts["given"])
    return Plan(tiles.url, settled, digest(facts["job"], [stage.fingerprint for stage in settled]), facts=facts)


def plan_all_lists(
    shape: Shape, lists: Mapping[str, tuple[Lists, int]], memory_limit: int | None, given: Graph | None = None
) -> list[Stage]:
    """Stages of all neighbor lists of :func:`needed_lists` that are to be found: those over X are not where a graph is
    given; :class:`InputError` where the rows cannot serve.
    """
    stages: list[Stage] = []
    widths = {name: k for name, (_, k) in lists.items()}
    for wanted, k in lists.values():
        if isinstance(wanted, GraphSpec):
            if given is not None:
                continue
            check_neighbors(k or 1, shape.n_samples)
            check_sparse(wanted, shape.is_sparse)
        stages += plan_lists(shape, wanted, k, memory_limit, widths)
    return stages


def limited_lists(lists: Mapping[str, tuple[Lists, int]], given: Graph) -> dict[str, tuple[Lists, int]]:
    """Return the lists with those over X no longer than lists from outside are."""
    longest = given.n_neighbors if isinstance(given, NeighborLists) else None
    return {
        name: (wanted, min(k, longest) if longest and isinstance(wanted, GraphSpec) else k)
        for name, (wanted, k) in lists.items()
    }


def longest_given(lists: Mapping[str, tuple[Lists, int]], given: Graph) -> int:
    """Return how much of each list from outside is needed; 0 of a matrix."""
    return lists[given.name][1] if isinstance(given, NeighborLists) else 0


def plan_weighted(stages: Sequence[Stage], n_samples: int) -> list[Stage]:
    """Return the stages with what the weights of rows take, where these are read: the weights themselves, those of the
    rows that count, and the marks of these.
    """
    return [
        dataclasses.replace(
            stage,
            peak_bytes=stage.peak_bytes + WEIGHT_BYTES * n_samples,
            bytes_read=stage.bytes_read + stage.n_units * 8 * n_samples,
        )
        if stage.function in WEIGHTED
        else stage
        for stage in stages
    ]


def label_bytes(methods: Sequence[Method], weightings: Sequence[Weighting], n_samples: int) -> int:
    """Return what a scoring unit reads of labels: once for all methods, and once for each graph whose weights go by
    them.
    """
    by_label = {(w.graph, w.n_neighbors) for w in weightings if w.labelled_factor != 1}
    reads = any(method.criterion.needs_labels for method in methods) + len(by_label)
    return 8 * reads * n_samples


def plan_finishes(
    shape: Shape,
    methods: Sequence[Method],
    columns: int,
    process: int,
    memory_limit: int | None = None,
    n_classes: int | None = None,
) -> list[Stage]:
    """Stages of the methods whose scores take more than one slab."""
    single = [
        stage
        for method in methods
        if (finish := method.finish) and finish != "rescaled"
        for stage in plan_finish(shape, method_to_json(method), finish, columns, process)
    ]
    return single + plan_rescaled(shape, methods, columns, process, memory_limit, n_classes)


def _descent_bytes(lists: Mapping[str, tuple[Lists, int]], shape: Shape, memory_limit: int | None) -> int:
    available = available_bytes(memory_limit)
    specs = [spec for spec, _ in lists.values() if isinstance(spec, GraphSpec)]
    descends = any(resolved(spec, shape, available).engine == "pynndescent" for spec in specs)
    return DESCENT_BYTES if descends else 0


# ------------------------------------------------------------------ a graph from outside
def precomputed_path(job: Job) -> Path | None:
    """Return the absolute path of the job's graph, as workers need it; None for a graph that is to be found."""
    path = job.graph.precomputed
    return None if path is None else Path(path).expanduser().absolute()


def precomputed_graph(job: Job, methods: list[Method]) -> Graph | None:
    """Open the job's graph; None when it names none, or no method uses one."""
    path = precomputed_path(job)
    if path is None or not any(method.criterion.uses_graph for method in methods):
        return None
    return open_graph(path)


def check_given(graph: Graph, methods: list[Method], n_samples: int) -> None:
    """Raise :class:`InputError` or :class:`JobError` when a graph from outside cannot serve the rows or the methods."""
    if isinstance(graph, WeightMatrix):
        graph.check_size(n_samples)
    for method in methods:
        for spec, k in method.parameters.lists(n_samples).values():
            if not isinstance(spec, GraphSpec):
                continue
            if isinstance(graph, WeightMatrix):
                msg = (
                    f"method {method.label} stands on distances, and graph.precomputed {graph.where} is a matrix of "
                    "weights: give it neighbor lists, of a run or of KNNGraph.save, or run it in a job of its own."
                )
                raise JobError(msg)
            if (spec.metric, spec.scaling) != (graph.metric, graph.scaling):
                msg = (
                    f"method {method.label} stands on neighbors by metric {spec.metric} and scaling "
                    f"{spec.scaling or 'null'}, and graph.precomputed {graph.where} holds neighbors by metric "
                    f"{graph.metric} and scaling {graph.scaling or 'null'}: set graph.metric and transform.graph to "
                    "these."
                )
                raise JobError(msg)
            graph.check_size(n_samples, min(k, getattr(method.parameters, "n_neighbors", k)))


def plan_given(graph: Graph, n_samples: int, k: int, process_bytes: int) -> Stage:
    """Stage that reads a graph from outside into the run store."""
    held, read, written = given_bytes(graph, n_samples, k)
    metric, scaling = (graph.metric, graph.scaling) if isinstance(graph, NeighborLists) else (None, None)
    parameters = {
        "path": graph.where,
        "identity": dict(graph.identity),
        "graph": {"metric": metric, "scaling": scaling, "engine": GIVEN},
        "k": k,
    }
    return Stage("graph-given", "given", 1, parameters, process_bytes + held, read, written)


def plan_streams(stages: list[Stage], graph: Graph | None, n_samples: int, process_bytes: int) -> list[Stage]:
    """Stages over all edges, with what it takes where these are a matrix's; and one before them that describes it."""
    if not isinstance(graph, WeightMatrix):
        return stages
    entries = min(graph.n_entries, GIVEN_BLOCK)
    block, read = GIVEN_ENTRY_BYTES * entries, 12 * graph.n_entries
    describe = Stage(
        f"edges-summary-{GIVEN}",
        "edges-summary",
        1,
        {"name": GIVEN, "n_neighbors": 0},
        process_bytes + 24 * n_samples + block + 128 * min(EDGES_AT_ONCE, entries),
        read + 4 * graph.n_entries,
    )
    streamed = [
        s
        if s.parameters.get("weighting", {}).get("graph", GIVEN) != GIVEN
        else dataclasses.replace(s, peak_bytes=s.peak_bytes + block, bytes_read=s.bytes_read + s.n_units * read)
        for s in stages
    ]
    return [describe, *streamed]


def check_neighbors(k: int, n_samples: int) -> None:
    """Raise :class:`InputError` unless every row has k others."""
    if k >= n_samples:
        msg = f"n_neighbors is {k}, and X has n_samples={n_samples} rows: at most {n_samples - 1} neighbors exist."
        raise InputError(msg)


def check_sparse(spec: GraphSpec, is_sparse: bool) -> None:
    """Raise :class:`InputError` for z-scores under cosine of sparse rows, which cannot be centered and stay sparse."""
    if is_sparse and (spec.metric, spec.scaling) == ("cosine", "zscore"):
        msg = "metric 'cosine' with scaling 'zscore' needs dense X: sparse rows cannot be centered."
        raise InputError(msg)


def selected_count(job: Job, n_features: int) -> int:
    """Return how many features count as selected; :class:`JobError` when there are not so many."""
    wanted = job.select.n_features
    if wanted is not None and wanted > n_features:
        msg = f"select.n_features is {wanted}, and the data have {n_features} features."
        raise JobError(msg)
    block = job.select.redundancy
    if wanted is not None and block is not None:
        reach = None if block.measure is None else block.n_candidates
        check_counts(wanted, len(set(block.keep)), reach, "select.redundancy.")
    return wanted if wanted is not None else max(1, n_features // 2)


def listed_names(job: Job, tiles: TilePlan) -> Sequence[str] | None:
    """Return the names of the features before the tiles are there, None for a job that lists none of them."""
    block = job.select.redundancy
    if block is None or not (block.keep or block.drop or block.groups):
        return None
    if tiles.stages:
        names = open_source(source_spec(job.data)).info.feature_names
    else:
        names = Store(Path(tiles.url)).read_json(layout.FEATURE_NAMES)
    return names if names is not None else [f"x{i}" for i in range(tiles.shape.n_features)]


def wanted_filter(job: Job, names: Sequence[str] | None) -> dict[str, Any] | None:
    """Return what the job's redundancy filter does, None when there is none.

    Parameters
    ----------
    job
        The job.
    names
        Of the features, whose numbers take their place; :class:`JobError` for one that is not there. None leaves lists
        and groups open.
    """
    block = job.select.redundancy
    if block is None:
        return None
    scalars = block.model_dump(include={"measure", "threshold", "n_candidates", "max_per_group"})
    known = names if names is not None else block.keep
    drop, groups = (block.drop, block.group_of()) if names is not None else ((), {})
    choice = numbered_choice(known, block.keep, drop, groups, "select.redundancy.")
    return {**scalars, **choice, "scaling": job.transform.score, "n_wanted": job.select.n_features}


def wanted_evaluation(job: Job, has_labels: bool) -> EvaluateBlock | None:
    """Return the evaluation to do: none without labels, unless the job asks for it in so many words."""
    if job.evaluate is None or has_labels:
        return job.evaluate
    if "evaluate" in job.model_fields_set:
        msg = "evaluate needs labels, and the data have none: set data.labels, or evaluate: null."
        raise InputError(msg)
    return None


def _plan_evaluation(
    evaluate: EvaluateBlock,
    shape: Shape,
    methods: list[dict[str, Any]],
    slab: int,
    process: int,
    filtered: Mapping[str, bool],
) -> list[Stage]:
    sizes = [n for n in evaluate.n_selected if n <= shape.n_features] or [shape.n_features]
    rows = min(evaluate.max_samples, shape.n_samples)
    common = {**evaluate.model_dump(), "n_selected": sizes, "slab_columns": slab}
    n_slabs = -(-shape.n_features // slab)
    n_tasks = len(methods) * len(sizes) * evaluate.n_repeats
    used = min(len(methods) * max(sizes), shape.n_features)
    band = 3 * shape.tile_rows * slab * shape.itemsize + 40 * shape.n_samples
    gather = process + band + 3 * rows * min(used, slab) * shape.itemsize
    model = process + 8 * rows * (10 * max(sizes) + used) + 40 * shape.n_samples + 64 * 2**20
    labels = [method["label"] for method in methods]
    return [
        Stage(
            "design",
            "design",
            1,
            {**common, **filtered, "methods": methods},
            process + 60 * shape.n_samples + 200 * shape.n_features,
        ),
        Stage("gather", "gather", n_slabs, common, gather, shape.x_bytes, rows * used * shape.itemsize),
        Stage(
            "evaluate", "evaluate", n_tasks, {**common, "labels": labels}, model, n_tasks * rows * used * shape.itemsize
        ),
        Stage(
            "evaluation-tables",
            "evaluation-tables",
            1,
            {"n_tasks": n_tasks},
            process + 2000 * n_tasks * evaluate.n_splits,
        ),
    ]
