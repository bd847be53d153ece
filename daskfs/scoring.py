"""Scoring a matrix from Python: the same stages as a job's, on a store in memory, or on disk when X is not in
memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from daskfs.graph.given import Graph, store_graph
from daskfs.graph.spec import GraphSpec
from daskfs.kernels.blocks import is_sparse
from daskfs.kernels.correlationspec import CorrelationSpec
from daskfs.kernels.labels import Labels
from daskfs.kernels.missing import filled_by_means, has_missing, observed
from daskfs.kernels.moments import tree_moments
from daskfs.kernels.scaling import row_norms, row_sums, without_zscore
from daskfs.methods.registry import Method, check_labels
from daskfs.plan.candidates import plan_redundancy
from daskfs.plan.correlations import plan_correlation
from daskfs.plan.graph import plan_graph
from daskfs.plan.scores import slab_columns
from daskfs.plan.stages import Plan, Stage, digest, fingerprinted
from daskfs.planning.lists import (
    check_pairwise,
    check_sparse,
    limited_lists,
    longest_given,
    needed_lists,
    plan_all_lists,
)
from daskfs.planning.methods import check_missing, is_scaled, plan_methods
from daskfs.planning.transforms import asked_scalings, plan_transforms
from daskfs.ranking.dropped import dropped_features, selectable
from daskfs.ranking.tables import method_scores
from daskfs.scores.distances import FeatureCorrelations, stored_feature_correlations
from daskfs.scores.slab import method_to_json
from daskfs.sources.frames import check_input, is_of
from daskfs.store import layout
from daskfs.store.context import Context, put_beside, put_labels
from daskfs.store.finite import check_finite
from daskfs.store.store import Store
from daskfs.store.tiles import Shape, TileInfo, Tiles

if TYPE_CHECKING:
    from distributed import Client


def memory_context(
    X: np.ndarray | sp.csr_matrix, labels: Labels | None, weights: np.ndarray | None = None, missing: str = "refuse"
) -> Context:
    """Return a context whose tiles are a matrix in memory; nothing is copied or written.

    Parameters
    ----------
    X
        Dense or CSR; under the policy "mean" its missing values are filled in their place, where they may be.
    labels, weights
        Of its rows.
    missing
        What becomes of NaN: "refuse", "mean" or "pairwise", as ``data.missing`` of a job says.
    """
    check_finite(X, 0, None, "X", may_miss=missing != "refuse")
    if missing == "mean":
        X = filled_by_means(X)
    fill, facts = None, {}
    if missing == "pairwise" and has_missing(X):
        known = observed(X)
        fill = np.stack([known.values(X.shape[0], X.dtype), known.missing])
        facts["missing"] = {"policy": missing, "total": int(known.missing.sum())}
    check_finite(X, 0, None, "X", may_miss=fill is not None)
    n_samples, n_features = X.shape
    sparse = is_sparse(X)
    shape = Shape(
        n_samples, n_features, X.dtype.name, sparse, int(X.nnz) if is_sparse(X) else None, n_samples, n_features
    )
    store = _LazyMoments(X)
    if fill is not None:
        store.put_array(layout.FILL, fill)
    task, classes = (labels.task, labels.classes) if labels is not None else (None, ())
    put_labels(store, labels)
    put_beside(store, "weights", weights)
    info = TileInfo(shape, "memory", "memory", None, task, classes, facts=facts)
    return Context(store, Tiles(store, info, X))


class _LazyMoments(Store):
    """A store in memory that takes moments, norms and sums of a matrix only when a scaling asks for them."""

    def __init__(self, X: np.ndarray | sp.csr_matrix) -> None:
        super().__init__(None)
        self._X = X

    def open(self, name: str) -> Any:
        """Return an array, computing moments, norms or sums at the first call."""
        if name == layout.COLUMNS and name not in self._memory:
            m = tree_moments(self._X)
            self.put_array(name, np.stack([m.mean, m.variance, *m.extremes, np.full_like(m.mean, np.nan)]))
        elif name == layout.ROW_NORMS and name not in self._memory:
            self.put_array(name, row_norms(self._X))
        elif name == layout.ROW_SUMS and name not in self._memory:
            self.put_array(name, row_sums(self._X))
        return super().open(name)


def score_features(
    context: Context,
    methods: Sequence[Method],
    labels: Labels | None,
    given: Graph | None = None,
    client: Client | None = None,
    *,
    known: Mapping[str, tuple[np.ndarray, np.ndarray]] = MappingProxyType({}),
    memory_limit: int | None = None,
) -> dict[str, np.ndarray]:
    """Return the fields of each method over all features, shape (n_fields, n_features), by label.

    Parameters
    ----------
    context
        Tiles and a store for what follows from them.
    methods
        Methods to score.
    labels
        Labels, checked against what the methods need.
    given
        A graph that is not to be found.
    client
        Runs the units; needs a store on disk.
    known
        Neighbor lists over X that are there already, indices and distances by name, at least as long as needed.
    memory_limit
        Of the process, bytes; None where nobody planned.
    """
    for method in methods:
        check_labels(method.criterion, method.label, labels, context.weights())
    shape = context.tiles.shape
    lists = needed_lists(methods, shape.n_samples)
    if given is not None:
        lists = limited_lists(lists, given)
    counts = (len(labels.classes), int(labels.is_labelled.sum())) if labels is not None else (None, None)
    tiles = context.tiles
    check_missing(tiles.missing_policy, methods)
    columns = slab_columns(shape, is_scaled(methods), memory_limit, pairwise=tiles.is_pairwise)
    unknown = {name: found for name, found in lists.items() if name not in known}
    searched = {} if given is not None else unknown
    stages = plan_transforms(shape, asked_scalings(methods, searched, weighted=tiles.scales.is_weighted))
    if given is None:
        check_pairwise(tiles.missing_policy, unknown)
    stages += plan_all_lists(shape, unknown, memory_limit, given, pairwise=tiles.is_pairwise)
    stages += plan_methods(shape, methods, lists, columns, 0, memory_limit, counts, given, pairwise=tiles.is_pairwise)
    for name, (indices, distances) in known.items():
        context.store.put_array(layout.KNN_INDICES.format(name), indices)
        context.store.put_array(layout.KNN_DISTANCES.format(name), distances)
    if given is not None:
        store_graph(context.store, given, shape.n_samples, longest_given(lists, given))
    run_all(context, stages, client)
    return {m.label: context.store.open(layout.SCORES.format(m.label))[...] for m in methods}


def filter_features(
    context: Context, method: Method, wanted: Mapping[str, Any], names: Sequence[str], client: Client | None = None
) -> tuple[np.ndarray, list[tuple[int, str]]]:
    """Walk down the ranking of a method that :func:`score_features` scored in the same context.

    Parameters
    ----------
    context, client
        As there.
    method
        The method.
    wanted
        As :func:`daskfs.plan.candidates.plan_redundancy` takes it.
    names
        Of all features.

    Returns
    -------
    kept, dropped
        Features that may be selected, best first, int64; and features that may not, with the reason, by rank.
    """
    shape = context.tiles.shape
    check_missing(context.tiles.missing_policy, [], *(["a filter of redundant features"] if wanted["measure"] else []))
    columns = slab_columns(shape, False, None)
    stages = plan_transforms(shape, asked_scalings([], {}, [without_zscore(wanted["scaling"])]))
    run_all(context, stages + plan_redundancy(shape, [method_to_json(method)], wanted, columns, 0), client)
    table = method_scores(context.store, method)
    kept = selectable(context.store, method, table, filtered=True)
    return kept, dropped_features(context.store, method, table, names)


def find_correlations(context: Context, spec: CorrelationSpec, client: Client | None = None) -> FeatureCorrelations:
    """Return the distance correlations of all features with each other."""
    check_missing(context.tiles.missing_policy, [], "distance correlation")
    shape = context.tiles.shape
    columns = slab_columns(shape, spec.felt is not None, None)
    stages = plan_transforms(shape, asked_scalings([], {}, [spec.felt]))
    run_all(context, stages + plan_correlation(shape, spec, columns, 0), client)
    return stored_feature_correlations(context, spec)


def find_lists(
    context: Context, spec: GraphSpec, k: int, client: Client | None = None
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Return neighbour lists (indices, distances), each (n_samples, k), and the estimated recall, None for an exact
    search.
    """
    tiles, store = context.tiles, context.store
    wanted = {spec.name: (spec, k)}
    check_sparse(spec, tiles.shape.is_sparse)
    check_pairwise(tiles.missing_policy, wanted)
    stages = plan_transforms(tiles.shape, asked_scalings([], wanted, weighted=tiles.scales.is_weighted))
    stages += plan_graph(tiles.shape, spec, k, pairwise=tiles.is_pairwise)
    run_all(context, stages, client)
    recall = store.read_json(layout.RECALL_SUMMARY.format(spec.name))
    indices, distances = (
        store.open(layout.KNN_INDICES.format(spec.name))[...].astype(np.int64),
        store.open(layout.KNN_DISTANCES.format(spec.name))[...],
    )
    return indices, distances, recall["value"] if recall else None


def run_all(context: Context, stages: Sequence[Stage], client: Client | None) -> None:
    """Run all units of some stages: on a cluster, or in this process."""
    from daskfs.execution.cluster import Pool
    from daskfs.execution.units import create_arrays
    from daskfs.execution.waves import pending_units, run_stages

    stages = fingerprinted(stages, context.tiles.info.fingerprint)
    identity = digest(stages[-1].fingerprint, context.store.url)
    if context.store.root is not None:
        context.store.ledger.begin()
        plan = Plan(context.tiles.store.url, tuple(stages), identity)
        context.store.write_json(layout.PLAN_JSON, plan.to_json())
    # what an earlier call has made in the same store stays
    create_arrays(context, [stage for stage in stages if pending_units(context, stage, stages)])
    run_stages(context, stages, Pool(client), identity, _ignore)


def _ignore(stage: Stage, unit: int, facts: dict[str, Any]) -> None:
    del stage, unit, facts


# --------------------------------------------------------------- X that is not in memory
def current_client() -> Client | None:
    """Return the client that this thread would use, None when there is none."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        return get_client()
    except ValueError:
        return None


def is_stored(X: Any) -> bool:
    """Return whether X is a path or URL, a Zarr array or group member, a dask collection or a query of Polars."""
    return isinstance(X, str | Path) or is_of(X, "zarr") or is_of(X, "dask") or is_query(X)


def is_query(X: Any) -> bool:
    """Return whether X is a LazyFrame of Polars."""
    return is_of(X, "polars") and hasattr(X, "sink_parquet")


def is_dask_frame(X: Any) -> bool:
    """Return whether X is a dask DataFrame."""
    return is_of(X, "dask") and hasattr(X, "to_parquet")


@contextmanager
def stored_context(X: Any, missing: str = "refuse") -> Iterator[tuple[Context, tuple[str, ...] | None, Client | None]]:
    """Yield a context for X that is not in memory, its feature names, and the client to use.

    Tiles and results lie in a temporary directory (Dask's ``temporary-directory``, which workers must share) that is
    deleted at the end; a Zarr array whose chunks serve is not copied.
    """
    import dask

    from daskfs.execution.cluster import Pool
    from daskfs.execution.progress import Silent
    from daskfs.job.job import make_data
    from daskfs.pipeline import Runner, fill_tiles
    from daskfs.planning.tiles import plan_tiles
    from daskfs.store.context import open_tiles

    client = current_client()
    with tempfile.TemporaryDirectory(prefix="daskfs-", dir=dask.config.get("temporary-directory", None)) as scratch:
        source, member = _as_path(X, Path(scratch))
        data = make_data({"source": source, "array": member, "missing": missing})
        tiles_plan = plan_tiles(data, f"{scratch}/{layout.TILES_DIR}", None)
        if tiles_plan.stages:
            fill_tiles(tiles_plan, Runner(Pool(client), Silent(), _ignore))
        tiles = open_tiles(tiles_plan.url)
        names = tiles.store.read_json(layout.FEATURE_NAMES, list)
        yield Context(Store(Path(scratch) / "run"), tiles), tuple(names) if names else None, client


def _as_path(X: Any, scratch: Path) -> tuple[str, str | None]:
    if isinstance(X, str | Path):
        return str(X), None
    if is_of(X, "zarr"):
        root = getattr(X.store, "root", None)
        if root is None:
            msg = f"the Zarr array lies in a {type(X.store).__name__}; pass its path or URL, or X[...]."
            raise TypeError(msg)
        return str(Path(root) / X.path), None
    if is_query(X):
        path = scratch / "source.parquet"
        X.sink_parquet(str(path))
        return str(path), None
    if is_dask_frame(X):
        return _parts_of(X, scratch), None
    if is_sparse(X._meta):
        msg = "X is a dask array of sparse blocks: save it (AnnData, or scipy.sparse.save_npz), and pass the path."
        raise TypeError(msg)
    array = X.compute_chunk_sizes() if any(np.isnan(size) for sizes in X.chunks for size in sizes) else X
    path = scratch / "source.zarr"
    array.rechunk({0: "auto", 1: -1} if array.shape[1] < 2**14 else "auto").to_zarr(str(path))
    return str(path), None


GROUP_BYTES = 2**24


def _parts_of(X: Any, scratch: Path) -> str:
    """Write a dask DataFrame as parts of a table, a partition at a time, whatever their lengths; return the directory.

    Columns whose names are no text, or equal, are called by their numbers.
    """
    path = scratch / "source"
    if len({name for name in X.columns if isinstance(name, str)}) < len(X.columns):
        X = X.map_partitions(_numbered, meta=_numbered(X._meta))
    rows = max(1, GROUP_BYTES // (8 * max(1, len(X.columns))))
    X.to_parquet(str(path), write_index=False, row_group_size=rows)
    return str(path)


def _numbered(frame: Any) -> Any:
    return frame.set_axis([str(number) for number in range(frame.shape[1])], axis=1)


SMALL_BYTES = 2**26


def loaded_if_small(X: Any) -> Any:
    """Return a dask collection that fits one block as an array or a DataFrame, anything else as it is;
    :class:`InputError` for AnnData, and for columns that hold no numbers.
    """
    check_input(X)
    if not is_of(X, "dask"):
        return X
    size = 8 * len(X) * len(X.columns) if is_dask_frame(X) else X.nbytes
    if size > SMALL_BYTES:
        return X
    X = X.compute()
    check_input(X)
    return X


@contextmanager
def opened(
    X: Any, labels: Labels | None, weights: np.ndarray | None = None, missing: str = "refuse"
) -> Iterator[tuple[Context, tuple[str, ...] | None, Client | None]]:
    """Yield a context for X, feature names where X brings some, and the client to use.

    Parameters
    ----------
    X
        An array or CSR matrix in memory, or anything that :func:`is_stored`.
    labels
        Labels of its rows.
    weights
        How many rows each row counts for, checked, shape (n_samples,), float64; None for one each.
    missing
        What becomes of NaN, as :func:`memory_context` takes it. Tiles that were written before have their own policy,
        which stays where this is "refuse".
    """
    if not is_stored(X):
        X = X.copy() if missing == "mean" and has_missing(X) else X
        yield memory_context(X, labels, weights, missing), None, None
        return
    with stored_context(X, missing) as (context, names, client):
        if labels is not None:
            put_labels(context.store, labels)
        put_beside(context.store, "weights", weights)
        yield context, names, client
