"""Open X: arrays in memory as they are, anything else as tiles in a temporary directory."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from numbers import Number
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import ClusterError, DaskfsError, InputError, first_few, nearest
from daskfs.kernels.labels import Labels
from daskfs.kernels.missing import has_missing
from daskfs.sources.checks import unknown_name
from daskfs.sources.collection import Collection, stored_array
from daskfs.sources.sample_columns import check_weights
from daskfs.sources.values import is_of, unmasked
from daskfs.stages.cost import Workers
from daskfs.storage import first_line
from daskfs.store import layout
from daskfs.store.context import Context, put_labels, put_weights
from daskfs.store.store import Store
from daskfs.store.value_checks import check_digits

if TYPE_CHECKING:
    from distributed import Client

    from daskfs.execution.pool import Pool


ANOTHER_OUTPUT = (
    "values in memory are not recognized by another call: choose another output, or delete this one; daskfs.open_run "
    "opens it if it is finished"
)
"""Remedy for a run of values that lay in a temporary file."""
LISTED_COLUMNS = 5
"""Maximum number of columns that a message names."""


def open_client(client: Client | None, *, by_default: bool = True) -> Client | None:
    """Return the client that a caller passed, or by default that of this thread; None if there is none.

    Raises :class:`ClusterError` if it is closed, or its scheduler does not answer.
    """
    from daskfs.execution.pool import Pool

    if client is None and by_default and "distributed" in sys.modules:
        from distributed import get_client

        with suppress(ValueError):
            client = get_client()
    if client is not None and client.status in ("closing", "closed"):
        msg = "the client is closed: make a new one."
        raise ClusterError(msg)
    Pool(client).identities()
    return client


@contextmanager
def not_resumed(remedy: str = "nothing is kept") -> Iterator[None]:
    """Let errors of work that the same call does not resume give a remedy, instead of how the same command goes on."""
    try:
        yield
    except DaskfsError as error:
        message = re.sub("[;,]( and)? the same command goes on.*", f"; {remedy}.", str(error))
        message = re.sub("holds a run of another job; .*", f"holds the run of an earlier call; {remedy}.", message)
        error.args = (message,)
        raise


@contextmanager
def refused_queries() -> Iterator[None]:
    """Turn the errors of Polars for a query, such as one with two columns of one name, into :class:`InputError`."""
    errors: Any = sys.modules["polars"].exceptions.PolarsError if "polars" in sys.modules else ()
    try:
        yield
    except errors as error:
        msg = f"X is a query that Polars refuses: {first_line(error)}"
        raise InputError(msg) from error


def pool_of_threads(n_jobs: int | None, client: Client | None = None) -> Pool:
    """Return the pool of a client's workers, or without a client of `n_jobs` threads of this process."""
    from joblib import effective_n_jobs

    from daskfs.execution.pool import Pool

    return Pool(client, threads=effective_n_jobs(n_jobs))


def is_stored(X: Any) -> bool:
    """Return whether X is a path or URL, a Zarr array or group, a dask collection or a Polars LazyFrame."""
    return isinstance(X, str | Path) or is_of(X, "zarr") or is_of(X, "dask") or is_query(X)


def is_query(X: Any) -> bool:
    """Return whether X is a Polars LazyFrame."""
    return is_of(X, "polars") and hasattr(X, "sink_parquet")


def is_dask_frame(X: Any) -> bool:
    """Return whether X is a dask DataFrame."""
    return is_of(X, "dask") and hasattr(X, "to_parquet")


def is_anndata(X: Any) -> bool:
    """Return whether X is an AnnData."""
    return is_of(X, "anndata") and hasattr(X, "obs")


def unpacked(X: Any, y: Any, use_rep: Any) -> tuple[Any, Any, Any, list[Any] | None, str | None]:
    """Return X, y and use_rep, of an AnnData its members, the names of the columns, and that of the labels.

    The names of the columns are None if X itself has none. That of the labels is y where it is, as ``data.labels`` of a
    job, the name of labels of the source that X is the path or URL of; else None.
    """
    label_name = y if isinstance(y, str) and isinstance(X, str | Path) else None
    if label_name is not None:
        from daskfs.job.job import make_data
        from daskfs.runs.tiles import source_spec
        from daskfs.sources import open_source

        y = open_source(source_spec(make_data({"source": str(X), "labels": label_name}))).read_labels()
    elif is_anndata(X):
        y, use_rep = member_of(X, "obs", y), member_of(X, "obsm", use_rep)
    return matrix_at_hand(X), y, use_rep, names_of(X), label_name


@refused_queries()
def names_of(X: Any) -> list[Any] | None:
    """Return the names of the columns of a table, a query, an AnnData or an xarray object; None if there are none."""
    if is_anndata(X):
        return list(map(str, X.var_names))
    if is_of(X, "xarray"):
        X = variable_of(X)
        return list(map(str, X[X.dims[1]].values)) if X.dims[1] in X.coords else None
    # columns of Arrow are arrays
    columns = X.collect_schema().names() if is_query(X) else getattr(X, "column_names", getattr(X, "columns", None))
    return None if columns is None else list(columns)


def variable_of(X: Any) -> Any:
    """Return a DataArray of xarray, of a Dataset the only one of two dimensions, rows first.

    Raises :class:`InputError` if there is another number of them, or of dimensions.
    """
    if hasattr(X, "data_vars"):
        names = [str(name) for name, one in X.data_vars.items() if one.ndim == 2]
        if len(names) != 1:
            msg = f"X is a Dataset with {len(names)} variables of two dimensions ({', '.join(names)}): pass X[name]."
            raise InputError(msg)
        X = X[names[0]]
    if X.ndim != 2:
        msg = f"X has the dimensions {', '.join(X.dims)}: pass X.stack(...) of two, rows first."
        raise InputError(msg)
    return X


def member_of(adata: Any, group: str, member: Any) -> Any:
    """Return the member of a group of an AnnData, such as ``obs``, by its name; anything but a name as it is.

    Raises :class:`InputError` for an unknown name.
    """
    if not isinstance(member, str):
        return member
    members = list(map(str, getattr(adata, group)))
    if member not in members:
        msg = f"adata.{group} has no {member!r}.{nearest(member, members)} It has {', '.join(members) or 'nothing'}."
        raise InputError(msg)
    member_values = getattr(adata, group)[member]
    return np.asarray(unmasked(member_values)) if group == "obsm" else member_values


def matrix_of(adata: Any) -> Any:
    """Return X of an AnnData, or the path of the file that backs it; :class:`InputError` if it has none."""
    matrix = backing_file(adata) or adata.X
    if matrix is None:
        groups = {"layers": adata.layers, "raw": [] if adata.raw is None else ["X"], "obsm": adata.obsm}
        paths = [f"{group}/{name}" for group, names in groups.items() for name in names]
        layer = next(iter(adata.layers), "NAME")
        msg = f"{unknown_name('X', 'matrix', paths, 'adata')} Set adata.X, or use daskfs.rank(adata, layer={layer!r})."
        raise InputError(msg)
    return matrix


def backing_file(adata: Any) -> str | None:
    """Return the path of the file that backs an AnnData, None if it is in memory.

    Raises :class:`InputError` for a view of one that is backed: the file has other rows or features.
    """
    if not adata.isbacked:
        return None
    if adata.is_view:
        msg = "the AnnData is a view of one that is backed by a file: pass the view's to_memory(), or the whole."
        raise InputError(msg)
    return str(adata.filename)


def _not_numeric(frame: Any) -> Iterator[tuple[Any, Any]]:
    """Yield names and types of the non-numeric columns of a DataFrame; none for other objects."""
    if is_of(frame, "pandas") and hasattr(frame, "columns"):
        for number, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes, strict=True)):
            if not _is_numeric(frame, number, dtype):
                yield name, dtype
    elif is_of(frame, "polars") and hasattr(frame, "collect_schema"):
        from polars import Boolean, Null

        for name, dtype in frame.collect_schema().items():
            if not (dtype.is_numeric() or dtype in (Boolean, Null)):
                yield name, dtype


def _check_objects(X: Any) -> None:
    """Refuse integers among Python objects that float64 does not hold."""
    if isinstance(X, np.ndarray) and X.dtype == object:
        check_digits(X, 0, lambda column: f"column {column}", "X")


def _wide_integers(frame: Any) -> Iterator[tuple[list[Any], np.ndarray]]:
    """Yield names and values of the columns of each type of 64-bit integers of a DataFrame, 0 where missing."""
    for kind in ("int64", "uint64"):
        if is_of(frame, "pandas") and hasattr(frame, "columns"):
            places = [n for n, dtype in enumerate(frame.dtypes) if str(dtype).lower().partition("[")[0] == kind]
            yield list(frame.columns[places]), frame.iloc[:, places].to_numpy(kind, na_value=0)
        elif is_of(frame, "polars") and not is_query(frame):
            names = [name for name, dtype in frame.schema.items() if str(dtype).lower() == kind]
            yield names, frame.select(names).fill_null(0).to_numpy()


def _is_numeric(frame: Any, number: int, dtype: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    dtype = dtype.categories.dtype if hasattr(dtype, "categories") else dtype
    if dtype == np.dtype(object):
        return all(isinstance(value, (Number, np.bool_)) for value in frame.iloc[:, number].dropna())
    return bool(is_numeric_dtype(dtype) or is_bool_dtype(dtype))


@contextmanager
def stored_context(
    X: Any,
    missing: str = "refuse",
    n_jobs: int | None = None,
    client: Client | None = None,
    labels: str | None = None,
) -> Iterator[tuple[Context, tuple[str, ...] | None, Pool]]:
    """Yield a context for an X that is not in memory, its feature names, and the pool that runs units.

    Parameters are those of :func:`open_input`; `labels` is its `label_name`. Tiles and results are in a temporary
    directory (Dask's ``temporary-directory``, which workers must share), deleted at the end. A Zarr array is used in
    place if its chunks are usable as tiles.
    """
    import dask

    from daskfs.execution.cluster import ClusterSettings
    from daskfs.execution.pool import granted_workers
    from daskfs.execution.progress import progress_of_call
    from daskfs.job.job import make_data
    from daskfs.runs.runner import Runner, fill_tiles
    from daskfs.runs.tiles import plan_tiles
    from daskfs.stages.limits import check_memory
    from daskfs.store.context import open_tiles

    directory = tempfile.TemporaryDirectory(prefix="daskfs-", dir=dask.config.get("temporary-directory", None))
    with not_resumed(), directory as scratch:
        pool = pool_of_threads(n_jobs, open_client(client))
        source, _alive = as_source(X, Path(scratch), pool.client)
        data = make_data({"source": source, "missing": missing, "labels": labels})
        workers = Workers(count=pool.n_threads)
        if pool.client is not None:
            address: Any = pool.client.scheduler
            workers = granted_workers(ClusterSettings(address=str(address.address)), pool.client)
        tiles_plan = plan_tiles(data, f"{scratch}/{layout.TILES_DIR}", workers)
        check_memory(tiles_plan.stages, workers, is_joined=True)
        if tiles_plan.stages:
            with closing(progress_of_call()) as progress:
                fill_tiles(tiles_plan, Runner(pool, progress, progress.unit_done))
        tiles = open_tiles(tiles_plan.url)
        names = tiles.store.read_json(layout.FEATURE_NAMES, list)
        yield Context(Store(Path(scratch) / "run"), tiles), tuple(names) if names else None, pool


@refused_queries()
def as_source(
    X: Any, scratch: Path, client: Client | None = None, names: Sequence[Any] | None = None
) -> tuple[str, Collection | None]:
    """Return ``data.source`` of X, which is written into `scratch` if it lies nowhere yet and is no dask collection.

    X is a path, a Zarr array or group, a dask array or DataFrame, a DataFrame of pandas or Polars, or a matrix. The
    workers of `client`, threads for None, compute a dask collection, and `names` are those of the columns of a dask
    array. Also return the collection, which has to be kept as long as the source is read; None for none.
    """
    if is_of(X, "dask"):
        array = None if is_dask_frame(X) or names is not None else stored_array(X)
        if array is None or (path := _path_of(array)) is None:
            collection = Collection(X, names, client)
            return collection.source, collection
        return path, None
    X = unmasked(X)
    if isinstance(X, str | Path):
        return str(X), None
    if is_of(X, "zarr"):
        if (path := _path_of(X)) is None:
            msg = f"the Zarr array lies in a {type(X.store).__name__}; pass its path or URL, or X[...]."
            raise TypeError(msg)
        return path, None
    return str(_write_matrix(X, scratch)), None


def _path_of(array: Any) -> str | None:
    """Return the path of a Zarr array or group on this machine, None for other stores."""
    root = getattr(array.store, "root", None)
    if root is None and "file" in str(getattr(getattr(array.store, "fs", None), "protocol", "")):
        root = array.store.path
    return None if root is None else str(Path(root) / array.path)


def _write_matrix(X: Any, scratch: Path) -> Path:
    """Write a query, or a DataFrame or a matrix in memory; return the path of the file."""
    import scipy.sparse as sp

    path = scratch / "source.parquet"
    if is_query(X):
        X.sink_parquet(str(path))
    elif is_of(X, "polars"):
        X.write_parquet(path)
    elif is_of(X, "pandas"):
        import pyarrow as pa
        import pyarrow.parquet as pq

        # columns may have any names, and several of them one
        table = pa.Table.from_pandas(numbered(X), preserve_index=False).replace_schema_metadata(None)
        pq.write_table(table.rename_columns(list(map(str, X.columns))), path)
    elif sp.issparse(X):
        path = scratch / "source.npz"
        sp.save_npz(path, sp.csr_matrix(X), compressed=False)
    else:
        path, values = scratch / "source.npy", np.asarray(X)
        _check_objects(values)
        try:
            np.save(path, values.astype(np.float64) if values.dtype == object else values)
        except (TypeError, ValueError) as error:
            msg = f"X holds what is no number: {error}."
            raise InputError(msg) from None
    return path


def numbered(frame: Any) -> Any:
    """Return a DataFrame of pandas whose columns are named by their positions, integers."""
    return frame.set_axis(range(frame.shape[1]), axis=1)


def repeated_names(X: Any) -> bool:
    """Return whether X is a DataFrame of pandas of which several columns have one name."""
    return is_of(X, "pandas") and hasattr(X, "columns") and not X.columns.is_unique


@refused_queries()
def matrix_at_hand(X: Any) -> Any:
    """Return X as selectors take it: of an AnnData the matrix, or the path of the file, of xarray the array.

    Columns of pandas of which several have one name are named by their positions. Raises :class:`InputError` for
    non-numeric columns of a DataFrame, which the message names, and for integers that float64 does not hold; of a Dask
    DataFrame or Polars query only by its schema.
    """
    X = matrix_of(X) if is_anndata(X) else variable_of(X).data if is_of(X, "xarray") else X
    X = X if is_of(X, "dask") else unmasked(X)
    frame = X._meta if is_of(X, "dask") else X
    if bad := [f"{name!r} ({dtype})" for name, dtype in _not_numeric(frame)]:
        names = first_few(bad, LISTED_COLUMNS)
        msg = f"columns of X hold no numbers: {names}. Drop them, or encode them as numbers."
        raise InputError(msg)
    _check_objects(X)
    for columns, values in _wide_integers(X):
        check_digits(values, 0, [f"column {name!r}" for name in columns].__getitem__, "X")
    return numbered(X) if repeated_names(X) else X


@contextmanager
def open_input(
    X: Any,
    labels: Labels | None,
    sample_weight: Any = None,
    missing: str = "refuse",
    n_jobs: int | None = None,
    client: Client | None = None,
    label_name: str | None = None,
) -> Iterator[tuple[Context, tuple[str, ...] | None, Pool]]:
    """Yield a context for X, its feature names if it has any, and the pool that runs units.

    :class:`InputError` for invalid weights, and for another number of them, or of labels, than of rows.

    Parameters
    ----------
    X
        Shape (n_samples, n_features): an array or CSR matrix in memory, or anything that :func:`is_stored`.
    labels
        Labels of the rows.
    sample_weight
        Row weights, shape (n_samples,), finite and not negative; None for 1.
    missing
        Treatment of NaN, as in :func:`memory_context`. Existing tiles keep their own policy if this is "refuse".
    n_jobs
        Number of threads without a Dask client, with scikit-learn's meaning.
    client
        Client whose workers run the units if X is not in memory; by default the current one.
    label_name
        Name of the labels in the source that X is the path of, which are not part of X; None for labels of the caller.
    """
    weights = None
    if sample_weight is not None:
        # a stored X is not open yet: the number of rows is compared below
        n_weights = np.size(sample_weight) if is_stored(X) else X.shape[0]
        weights = check_weights(sample_weight, n_weights, "sample_weight")
    if is_stored(X):
        opening: Any = stored_context(X, missing, n_jobs, client, label_name)
    else:
        from daskfs.plan.inline import memory_context

        X = X.copy() if missing == "mean" and has_missing(X) else X
        opening = nullcontext((memory_context(X, labels, weights, missing), None, pool_of_threads(n_jobs)))
    with opening as (context, names, pool):
        n_samples = context.tiles.shape.n_samples
        for name, values in (("y", None if labels is None else labels.values), ("sample_weight", weights)):
            if values is not None and values.shape[0] != n_samples:
                msg = f"{name} has {values.shape[0]} values, and X has {n_samples} rows."
                raise InputError(msg)
        if is_stored(X):
            if labels is not None:
                put_labels(context.store, labels)
            put_weights(context.store, weights)
        yield context, names, pool
