"""Scoring of a matrix from Python: the stages of a job, on a store in memory, or on disk if X is not in memory."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.criteria.distance_correlation.matrix import FeatureCorrelations, stored_feature_correlations
from daskfs.criteria.registry import Method, check_labels
from daskfs.errors import DaskfsWarning
from daskfs.graph.halves import NO_BLOCKS, FeatureBlocks
from daskfs.graph.partition import open_lists
from daskfs.graph.partitioned_search import expected_misses
from daskfs.graph.precomputed import Graph
from daskfs.graph.precomputed_stage import store_graph
from daskfs.graph.representation import Representation
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import Block, is_sparse
from daskfs.kernels.distance_correlation.spec import CorrelationSpec
from daskfs.kernels.labels import LabelCounts, Labels
from daskfs.kernels.missing import filled_by_means, has_missing, observe
from daskfs.kernels.scaling import row_norms, row_sums
from daskfs.kernels.statistics.column_hash import column_hashes, first_equal
from daskfs.kernels.statistics.moments import tree_moments
from daskfs.plan.chain import Chain, Data, check_missing
from daskfs.plan.lists import limited_lists, longest_given, needed_lists
from daskfs.ranking.dropped import dropped_features, selectable
from daskfs.ranking.redundancy import RedundancySpec
from daskfs.ranking.tables import method_scores
from daskfs.stages.stage import Plan, Stage, digest, with_fingerprints
from daskfs.store import layout
from daskfs.store.arrays import StoredArray
from daskfs.store.context import Context, put_labels, put_weights
from daskfs.store.readers import MemoryReader
from daskfs.store.shape import Shape
from daskfs.store.store import Store
from daskfs.store.tiles import TileInfo, Tiles
from daskfs.store.value_checks import check_finite

if TYPE_CHECKING:
    from daskfs.execution.pool import Pool

BAND_ROWS = 2**15
"""Rows of a band of dense X in memory: units of a stage that reads all rows take some of these."""


def memory_context(
    X: Block, labels: Labels | None, weights: np.ndarray | None = None, missing: str = "refuse"
) -> Context:
    """Return a context whose tiles are a matrix in memory; nothing is copied or written.

    Parameters
    ----------
    X
        Dense or CSR, shape (n_samples, n_features), floating; the policy "mean" fills missing values in place, or in a
        copy if X is read-only.
    weights
        Weights of the rows, shape (n_samples,), float64, or None.
    missing
        Policy for NaN: "refuse", "mean" or "pairwise", as ``data.missing`` of a job.
    """
    check_finite(X, 0, None, "X", may_miss=missing != "refuse")
    if missing == "mean":
        X = filled_by_means(X)
    fill, facts = None, {}
    if missing == "pairwise" and has_missing(X):
        observed = observe(X)
        fill = np.stack([observed.values(X.shape[0], X.dtype), observed.missing])
        facts["missing"] = {"policy": missing, "total": int(observed.missing.sum())}
    check_finite(X, 0, None, "X", may_miss=fill is not None, whole=True)
    n_samples, n_features = X.shape
    nnz, rows = (int(X.nnz), n_samples) if is_sparse(X) else (None, min(n_samples, BAND_ROWS))
    shape = Shape(n_samples, n_features, X.dtype.name, is_sparse(X), nnz, rows, n_features)
    store = _LazyMoments(X)
    if fill is not None:
        store.put_array(layout.FILL, fill)
    task, classes = (labels.task, labels.classes) if labels is not None else (None, ())
    put_labels(store, labels)
    put_weights(store, weights)
    info = TileInfo(shape, "memory", "memory", None, task, classes, facts=facts)
    return Context(store, Tiles(store, info, MemoryReader(shape, X, None if fill is None else fill[0])))


class _LazyMoments(Store):
    """Store in memory that computes moments, norms and sums of a matrix when a scaling first reads them."""

    def __init__(self, X: Block) -> None:
        super().__init__(None)
        self._X = X

    def open(self, name: str) -> Any:
        """Return an array; compute moments, norms or sums at the first call."""
        if name == layout.COLUMNS and name not in self._memory:
            m = tree_moments(self._X)
            self.put_array(name, np.stack([m.mean, m.variance, *m.extremes, np.full_like(m.mean, np.nan), m.rest]))
        elif name == layout.ROW_NORMS and name not in self._memory:
            self.put_array(name, row_norms(self._X))
        elif name == layout.ROW_SUMS and name not in self._memory:
            self.put_array(name, row_sums(self._X))
        elif name == layout.FIRST_EQUAL and name not in self._memory:
            table = dict(zip(layout.COLUMN_ROWS, self.open(layout.COLUMNS), strict=True))
            is_constant = np.equal(table["minimum"], table["maximum"])  # each a group of its own, as in tiles
            first = first_equal(column_hashes(self._X, 0))
            self.put_array(name, np.where(is_constant, np.arange(first.size), first))
        return super().open(name)


def data_of(context: Context, labels: Labels | None = None) -> Data:
    """Return the sizes of the tiles of a context."""
    counts = (None, None) if labels is None else (len(labels.classes), int(labels.is_labeled.sum()))
    tiles = context.tiles
    return Data(tiles.shape, tiles.missing_policy, tiles.scales.is_weighted, *counts)


@dataclass(frozen=True)
class EnclosingRun:
    """A run whose unit scores features.

    `known` are lists over X found already, by name: indices (integers) and distances (float64), each of shape
    (n_samples, k), at least as long as needed. `memory_limit` is in bytes, None if memory is not planned.
    """

    known: Mapping[str, tuple[np.ndarray, np.ndarray]]
    memory_limit: int | None


def score_features(
    context: Context,
    methods: Sequence[Method],
    labels: Labels | None,
    given: Graph | Representation | None = None,
    pool: Pool | None = None,
    *,
    run: EnclosingRun | None = None,
    blocks: FeatureBlocks = NO_BLOCKS,
) -> dict[str, np.ndarray]:
    """Return the fields of each method over all features, shape (n_fields, n_features), float64, by label.

    Parameters
    ----------
    context
        Tiles, and a store for the results.
    labels
        Labels, checked against the needs of the methods.
    given
        Precomputed graph; or the representation, held by the store, in which rows are compared. None to compare rows of
        X.
    pool
        Workers or threads that run the units; workers need a store on disk. None for this thread.
    run
        The run that this is a part of, which shows its own progress; None for none.
    blocks
        Features that are in no graph that tests one of them.
    """
    run, quiet = run or EnclosingRun({}, None), run is not None
    counts = None if labels is None else LabelCounts.of(labels, context.weights())
    for method in methods:
        check_labels(method.criterion, method.label, counts)
    n_samples = context.tiles.shape.n_samples
    graph, rep = (None, given) if isinstance(given, Representation) else (given, None)
    lists = needed_lists(methods, n_samples) if rep is None else needed_lists(methods, n_samples, rep.completed)
    if graph is not None:
        lists = limited_lists(lists, graph)
    check_missing(context.tiles.missing_policy, methods)
    chain = Chain(
        data_of(context, labels),
        methods,
        lists,
        frozenset(run.known),
        graph,
        rep,
        is_stored=True,
        memory_limit=run.memory_limit,
        blocks=blocks,
        base=(),
    )
    stages = chain.stages()
    for name, (indices, distances) in run.known.items():
        context.store.put_array(layout.KNN_INDICES.format(name), indices)
        context.store.put_array(layout.KNN_DISTANCES.format(name), distances)
    if graph is not None:
        store_graph(context.store, graph, n_samples, longest_given(lists, graph))
    run_all(context, stages, pool, quiet=quiet)
    return {m.label: context.store.open(layout.SCORES.format(m.label))[...] for m in methods}


def filter_features(
    context: Context, method: Method, redundancy: RedundancySpec, names: Sequence[str], pool: Pool | None = None
) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """Filter redundant features from the ranking of a method that :func:`score_features` scored in the same context.

    `names` are those of all features, and `pool` is as there. Returned are the features that may be selected, best
    first, shape (n_kept,), int64; and the others with the reason, by rank.
    """
    check_missing(context.tiles.missing_policy, [], *(["a filter of redundant features"] if redundancy.measure else []))
    run_all(context, Chain(data_of(context), redundancy=redundancy, filtered=[method], base=()).stages(), pool)
    table = method_scores(context.store, method)
    kept_features = selectable(context.store, method, table, filtered=True)
    return kept_features, dropped_features(context.store, method, table, names)


def find_correlations(context: Context, spec: CorrelationSpec, pool: Pool | None = None) -> FeatureCorrelations:
    """Return the distance correlations of all features with each other."""
    check_missing(context.tiles.missing_policy, [], "distance correlation")
    run_all(context, Chain(data_of(context), correlation=spec, base=()).stages(), pool)
    return stored_feature_correlations(context, spec)


def find_lists(
    context: Context, spec: GraphSpec, k: int, pool: Pool | None = None
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Return neighbor lists and the estimated recall, None for an exact search.

    The lists are indices (int64) and distances (float64), each of shape (n_samples, k).
    """
    indices, distances, recall = stored_lists(context, spec, k, pool)
    return indices[...].astype(np.int64), distances[...], recall


def stored_lists(
    context: Context, spec: GraphSpec, k: int, pool: Pool | None = None
) -> tuple[StoredArray, StoredArray, float | None]:
    """Return the lists of :func:`find_lists` as arrays of the store; indices may be int32."""
    store = context.store
    run_all(context, Chain(data_of(context), lists={spec.name: (spec, k)}, base=()).stages(), pool)
    recall = store.read_json(layout.RECALL_SUMMARY.format(spec.name))
    return *open_lists(store, spec.name), recall["value"] if recall else None


def run_all(context: Context, stages: Sequence[Stage], pool: Pool | None, *, quiet: bool = False) -> None:
    """Run all units of some stages; `pool` is that of :func:`score_features`.

    If `quiet`, leave out the warning before a search that a sample says will find few neighbors, and the progress in a
    notebook.
    """
    from daskfs.execution.pool import Pool
    from daskfs.execution.progress import Silent, progress_of_call
    from daskfs.execution.submission import pending_units, run_stages
    from daskfs.stages.units import create_arrays

    start = context.tiles.info.fingerprint
    stages = with_fingerprints(stages, start)
    identity = digest(stages[-1].fingerprint, context.store.url)
    if context.store.root is not None:
        context.store.begin_epoch()
        plan = Plan(context.tiles.store.url, tuple(stages), identity, start)
        context.store.write_json(layout.PLAN_JSON, plan.to_json(context.store.url))
    # arrays of an earlier call in the same store are kept
    create_arrays(context, [stage for stage in stages if pending_units(context, stage, stages)])
    progress = Silent() if quiet else progress_of_call()

    def begin(stage: Stage, n_pending: int) -> None:
        progress.start_stage(stage, n_pending)
        if not quiet and (warning := expected_misses(context, stage)) is not None:
            warnings.warn(f"{warning}.", DaskfsWarning, stacklevel=3)

    try:
        run_stages(context, stages, pool or Pool(), identity, progress.unit_done, begin)
    finally:
        progress.close()
