"""Dask collections as sources: the driver knows their graph, and a unit is given the blocks that hold its rows.

Nothing of a graph is stored. A collection is identified by dask's token, and has to be passed again to go on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sp

from daskfs.errors import InputError
from daskfs.kernels.blocks import Block, is_sparse, stack_blocks
from daskfs.kernels.digits import as_floats
from daskfs.run_warning import RunWarning
from daskfs.sources.base import SourceSpec
from daskfs.sources.checks import COLLECTION, block_dtype, check_shape, not_numbers, refuse_options
from daskfs.sources.labeled import LabeledSource
from daskfs.sources.parquet import numbers_of_column
from daskfs.sources.resolve import NON_NUMERIC, resolve_columns, resolve_feature_names
from daskfs.sources.tables import common_dtype, left_out_warnings
from daskfs.sources.values import is_of, unmasked

if TYPE_CHECKING:
    from distributed import Client

WHERE = "X"
"""Name of a collection in messages."""
DENSER, LARGE_BYTES = 4.0, 2**26
"""How many times more values than planned sparse rows may have, if they take more than these bytes."""
OTHER_TOKENS = (
    "A collection is known by dask's token, which is another one in each process for random numbers without a seed and "
    "for functions that dask cannot tell apart."
)


@dataclass(frozen=True)
class Layout:
    """Facts about a collection that a unit needs beside its blocks.

    Parameters
    ----------
    starts
        First row of each row of blocks, and the number of rows, shape (n_blocks + 1,), int64.
    dtypes
        Dtype of each column, None for one that holds no numbers; of an array a single one for all.
    is_frame
        Whether blocks are DataFrames, whose columns are chosen by name.
    names
        Names of the columns, None if they have none.
    nnz
        Number of values of sparse blocks, estimated from the first ones; None for dense blocks.
    """

    token: str
    starts: np.ndarray
    dtypes: tuple[np.dtype[Any] | None, ...]
    n_columns: int
    is_frame: bool
    names: tuple[str, ...] | None
    nnz: int | None

    def blocks_of(self, rows: slice) -> range:
        """Return the numbers of the rows of blocks that overlap some rows."""
        first = int(np.searchsorted(self.starts, rows.start, "right")) - 1
        return range(first, int(np.searchsorted(self.starts, rows.stop, "left")))


class Collection:
    """A dask array of two dimensions, or a dask DataFrame, of which blocks become tiles.

    Unknown sizes of chunks are counted first, and blocks that are sparse computed as far as those of the first rows,
    which are kept: sizes of others are estimated from theirs.

    Parameters
    ----------
    names
        Names of the columns of an array, None if they have none.
    client
        Client whose workers compute; None for threads.

    Attributes
    ----------
    source
        ``data.source`` of a job over the collection, as long as this object exists.
    computed
        Blocks that were computed on the way, by key: values, or futures of the client.
    """

    def __init__(self, X: Any, names: Sequence[Any] | None = None, client: Client | None = None) -> None:
        from dask.base import optimize, tokenize
        from dask.core import get_dependencies

        token = tokenize(X)
        self._client = client
        is_frame = hasattr(X, "to_parquet")
        with nullcontext() if client is None else client.as_current():
            if not is_frame and np.isnan(sum(map(sum, X.chunks))):
                X = X.compute_chunk_sizes()
            sizes = X.map_partitions(len).compute() if is_frame else X.chunks[0]
        check_shape((sum(sizes), len(X.columns)) if is_frame else X.shape, WHERE)
        # DataFrames of Dask before 2025 have no expression of their own
        optimized = X.optimize() if hasattr(X, "optimize") else optimize(X)[0]  # type: ignore[no-untyped-call]
        self.graph: dict[Any, Any] = dict(optimized.__dask_graph__())
        self.needs = {key: get_dependencies(self.graph, key) for key in self.graph}
        keys = optimized.__dask_keys__()
        self.keys: list[list[Any]] = [[key] for key in keys] if is_frame else keys
        self.computed: dict[Any, Any] = {}
        starts = np.cumsum([0, *sizes], dtype=np.int64)
        column_names = X.columns if is_frame else names
        self.layout = Layout(
            token,
            starts,
            tuple(map(_column_dtype, X._meta.dtypes)) if is_frame else (_dtype_of(X._meta),),
            len(X.columns) if is_frame else X.shape[1],
            is_frame,
            None if column_names is None else tuple(map(str, column_names)),
            None if is_frame or not sp.issparse(as_scipy(X._meta)) else self._estimate_nnz(starts),
        )
        self.source = f"{COLLECTION}{token}"
        _collections[self.source] = self

    def _estimate_nnz(self, starts: np.ndarray) -> int:
        """Return the number of values if all rows have as many as those of the first blocks, which are kept."""
        first = next(number for number, size in enumerate(np.diff(starts)) if size)
        self.computed = self.started(self.keys[first], {})
        if self._client is None:
            counts = [_count_values(block) for block in self.computed.values()]
        else:
            counts = [self._client.submit(_count_values, block).result() for block in self.computed.values()]
        return max(1, round(sum(counts) * starts[-1] / (starts[first + 1] - starts[first])))

    def needed(self, keys: Iterable[Any], done: Container[Any] = ()) -> list[Any]:
        """Return some tasks and all that they need, each before what it needs; nothing below those in `done`."""
        order, left, found_keys = list[Any](), [(key, False) for key in keys], set[Any]()
        while left:
            key, is_behind = left.pop()
            if is_behind:
                order.append(key)
            elif key not in found_keys:
                found_keys.add(key)
                left.append((key, True))
                if key not in done:
                    left += [(below, False) for below in self.needs[key] if below not in found_keys]
        return order[::-1]

    def started(self, keys: Iterable[Any], computed: Mapping[Any, Any], client: Any = None) -> dict[Any, Any]:
        """Compute tasks, but those in `computed`; return their values by key, or their futures where a client computes.

        `client` is None for that of the collection.
        """
        from dask.base import get_scheduler
        from dask.threaded import get

        # threads, unless Dask's configuration says otherwise
        here: Any = get_scheduler() or get  # type: ignore[no-untyped-call]
        missing = [key for key in dict.fromkeys(keys) if key not in computed]
        graph = {key: computed[key] if key in computed else self.graph[key] for key in self.needed(missing, computed)}
        client = client or self._client
        values = here(graph, missing) if client is None else client.get(graph, missing, sync=False)
        return {**computed, **dict(zip(missing, values, strict=True))}

    def blocks(self, numbers: range) -> Iterator[list[Any]]:
        """Yield some rows of blocks, computed one after another."""
        for number in numbers:
            value_by_key = self.started(self.keys[number], self.computed)
            blocks = [value_by_key[key] for key in self.keys[number]]
            yield blocks if self._client is None else [block.result() for block in blocks]


_collections: WeakValueDictionary[str, Collection] = WeakValueDictionary()
_given: ContextVar[tuple[Layout, Mapping[int, Sequence[Any]]] | None] = ContextVar("daskfs-blocks", default=None)


@contextmanager
def given_blocks(layout: Layout | None, blocks: Sequence[Sequence[Any]]) -> Iterator[None]:
    """Let :func:`open_collection` open these rows of blocks, each behind its number; nothing without a layout."""
    token = _given.set(None if layout is None else (layout, {row[0]: row[1:] for row in blocks}))
    try:
        yield
    finally:
        _given.reset(token)


def is_gone(source: str) -> bool:
    """Return whether a source is a collection that this process does not have."""
    return source.startswith(COLLECTION) and source not in _collections


def collection_of(source: str) -> Collection:
    """Return the collection that ``data.source`` stands for; :class:`InputError` if this process has none."""
    if (collection := _collections.get(source)) is None:
        msg = (
            f"data.source is {source}, a dask collection that another process passed: pass it again, as "
            f"daskfs.run(job, data=X). {OTHER_TOKENS}"
        )
        raise InputError(msg)
    return collection


def open_collection(spec: SourceSpec) -> CollectionSource:
    """Open a collection: in a unit the blocks that it was given, else the collection that was passed."""
    if (given_blocks := _given.get()) is not None:
        layout, rows = given_blocks
        return CollectionSource(spec, layout, lambda numbers: (rows[number] for number in numbers))
    collection = collection_of(spec.source)
    return CollectionSource(spec, collection.layout, collection.blocks)


class CollectionSource(LabeledSource):
    """Rows of a dask collection. Labels and values of rows can only come from files.

    `blocks` returns the blocks of some rows of blocks: for each row those side by side. `left_out` are the columns of a
    DataFrame that "non-numeric" leaves out; None for an array.
    """

    def __init__(self, spec: SourceSpec, layout: Layout, blocks: Callable[[range], Iterable[Sequence[Any]]]) -> None:
        refuse_options(spec, *(["exclude"] if layout.is_frame else []))
        super().__init__(spec)
        self._layout, self._blocks = layout, blocks
        features, names = list(range(layout.n_columns)), layout.names
        self.left_out: tuple[str, ...] | None = None
        if layout.is_frame and names is not None:
            features = resolve_columns(spec, names, self.refs)
            other = [(names[column], "holds no numbers") for column in features if layout.dtypes[column] is None]
            if other and NON_NUMERIC not in spec.exclude:
                raise not_numbers(WHERE, other)
            features = [column for column in features if layout.dtypes[column] is not None]
            self.left_out = tuple(name for name, _ in other)
        shape = check_shape((int(layout.starts[-1]), len(features)), WHERE)
        dtypes = {layout.dtypes[column if layout.is_frame else 0] for column in features}
        dtype = common_dtype({dtype for dtype in dtypes if dtype is not None}, WHERE)
        own_names = None if names is None else [names[column] for column in features]
        self._features, feature_names = features, resolve_feature_names(spec, shape[1], own_names)
        identity = {"kind": "dask", "token": layout.token, "shape": [*shape]}
        largest = int(np.diff(layout.starts).max())
        self.info = self.describe(shape, dtype, feature_names, identity, layout.nnz, largest)

    def verify(self) -> list[RunWarning]:
        """Return a warning that names the columns that "non-numeric" leaves out."""
        return left_out_warnings(self.left_out or ())

    def _read_rows(self, start: int, stop: int) -> Block:
        numbers, starts = self._layout.blocks_of(slice(start, stop)), self._layout.starts
        parts = list[Any]()
        for number, row in zip(numbers, self._blocks(numbers), strict=True):
            first, last = int(starts[number]), int(starts[number + 1])
            whole = beside([self._values(block, first) for block in row])
            if whole.shape != (last - first, self.info.n_features):
                msg = (
                    f"rows {first}:{last} of X have shape {whole.shape}, where dask says "
                    f"{(last - first, self.info.n_features)}: pass X after compute_chunk_sizes()."
                )
                raise InputError(msg)
            parts.append(whole[max(start - first, 0) : stop - first])
        stacked = stack_blocks(parts)
        if not is_sparse(stacked):
            return np.ascontiguousarray(stacked)
        stacked.sum_duplicates()
        expected = (self.info.nnz or 0) * (stop - start) / self.info.n_samples
        if stacked.nnz > DENSER * expected and stacked.data.nbytes > LARGE_BYTES:
            msg = (
                f"rows {start}:{stop} of X hold {stacked.nnz:,} values, and memory was planned for {expected:,.0f}, as "
                "the first block has few: pass X with rows like these in its first block, or save X and pass the path."
            )
            raise InputError(msg)
        return stacked

    def _values(self, block: Any, first: int) -> Any:
        """Return a block, whose first row is `first`, as values of ``info.dtype``, dense or CSR."""
        info = self.info
        if hasattr(block, "iloc"):
            return self._values_of_frame(block)
        block = as_scipy(block)
        if sp.issparse(block) != info.is_sparse:
            kind = "dense" if info.is_sparse else "sparse"
            msg = (
                f"the block of X from row {first} on is {kind}, and dask says otherwise: pass X.map_blocks(function, "
                "meta=block), with an empty block of the kind that all blocks are."
            )
            raise InputError(msg)
        values = block.data if info.is_sparse else unmasked(block)
        if values.dtype.kind not in "biuf" or (values.dtype.kind == "f" and info.dtype.kind in "iu"):
            msg = (
                f"the block of X from row {first} on has dtype {values.dtype}, and dask says otherwise: pass "
                "X.astype(float)."
            )
            raise InputError(msg)
        if not info.is_sparse:
            return as_floats(values, info.dtype)
        return sp.csr_matrix((as_floats(values, info.dtype), block.indices, block.indptr), shape=block.shape)

    def _values_of_frame(self, frame: Any) -> np.ndarray:
        import pyarrow as pa

        frame = frame.iloc[:, self._features]
        table = pa.Table.from_pandas(frame.set_axis(range(frame.shape[1]), axis=1), preserve_index=False)
        values = np.empty((table.num_rows, table.num_columns), self.info.dtype)
        for place, column in enumerate(table.columns):
            values[:, place] = as_floats(numbers_of_column(column), values.dtype)
        return values


def as_scipy(block: Any) -> Any:
    """Return a sparse block, also of the package ``sparse``, as CSR, and any other as it is."""
    if hasattr(block, "to_scipy_sparse"):
        block = block.to_scipy_sparse()
    return sp.csr_matrix(block) if sp.issparse(block) else block


def beside(blocks: Sequence[Any]) -> Any:
    """Return blocks of the same rows as one, dense or CSR."""
    if len(blocks) == 1:
        return blocks[0]
    return sp.hstack(blocks, format="csr") if sp.issparse(blocks[0]) else np.concatenate(blocks, axis=1)


def _count_values(block: Any) -> int:
    return int(as_scipy(block).nnz)


def _dtype_of(meta: Any) -> np.dtype[Any]:
    """Return the dtype in which blocks are read, of an array whose empty block is `meta`."""
    dtype = block_dtype(np.dtype(meta.dtype), WHERE)
    return np.dtype(np.float64) if isinstance(meta, np.ma.MaskedArray) and dtype.kind in "iu" else dtype


def _column_dtype(dtype: Any) -> np.dtype[Any] | None:
    """Return the dtype in which a column of pandas is read, None if it holds no numbers."""
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    dtype = dtype.categories.dtype if hasattr(dtype, "categories") else dtype
    if not (is_numeric_dtype(dtype) or is_bool_dtype(dtype)):
        return None
    numpy_dtype = np.dtype(getattr(dtype, "numpy_dtype", dtype))  # of decimals it is object
    may_miss = not isinstance(dtype, np.dtype) and numpy_dtype.kind in "iubO"
    return np.dtype(np.float64) if may_miss else block_dtype(numpy_dtype, WHERE)


def stored_array(X: Any) -> Any:
    """Return the Zarr array that a dask array reads, if it is nothing but all of that; else None.

    An array with attributes is none, since they may say how a source decodes its values, which dask does not.
    """
    from dask.array.core import getter, getter_inline, getter_nofancy

    layers, getters = list(X.dask.layers.values()), (getter, getter_inline, getter_nofancy)
    arrays = [one for layer in layers[:1] for one in dict(layer).values() if is_of(one, "zarr")]
    if len(layers) != 2 or len(arrays) != 1 or dict(arrays[0].attrs):
        return None
    if (arrays[0].shape, arrays[0].dtype) != (X.shape, X.dtype):
        return None
    tasks = dict(layers[1]).values()
    return arrays[0] if all(getattr(task, "func", None) in getters for task in tasks) else None
