"""Ranking of data at hand: arrays, frames, AnnData, dask collections, paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from daskfs.api.run import RunResult, ScratchDirectory, run
from daskfs.errors import DaskfsError, InputError, JobError
from daskfs.estimators.opening import (
    ANOTHER_OUTPUT,
    as_source,
    backing_file,
    is_anndata,
    is_dask_frame,
    matrix_at_hand,
    member_of,
    names_of,
    not_resumed,
    open_client,
    variable_of,
)
from daskfs.job.keys import set_key
from daskfs.runs.proposal import propose_job
from daskfs.sources.base import SAMPLE_COLUMNS
from daskfs.sources.checks import check_length, check_values, split_reference, unknown_name
from daskfs.sources.labels import class_name
from daskfs.sources.sample_columns import SAMPLE_COLUMN_KINDS, whole
from daskfs.sources.values import as_column, is_of, unmasked
from daskfs.tiles.ingest import REMEDY

if TYPE_CHECKING:
    from distributed import Client


NAMES_OF_FILES = {"source": "X", "labels": "y", "rep": "use_rep", "names": "feature names"}
"""Names in messages for temporary files, by their stems."""


def rank(
    X: Any,
    y: Any = None,
    *,
    methods: str | Sequence[str | Mapping[str, Any]] = (),
    n_features: int | None = None,
    fdr: float | None = None,
    task: Literal["auto", "classification", "regression"] = "auto",
    redundancy: float | None = None,
    layer: str | None = None,
    use_rep: Any = None,
    graph: str | None = None,
    groups: Any = None,
    batch: Any = None,
    times: Any = None,
    weights: Any = None,
    missing: Literal["refuse", "mean", "pairwise"] = "refuse",
    missing_values: Sequence[str | float] = (),
    evaluate: Mapping[str, Any] | bool | None = True,
    key_added: str | None = None,
    settings: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    client: Client | None = None,
    progress: Literal["auto"] | bool = "auto",
) -> RunResult:
    """Rank the features of data at hand, as ``daskfs rank`` does those of a source.

    Parameters
    ----------
    X
        Array or sparse matrix, shape (n_samples, n_features); DataFrame of pandas, Polars or dask; dask or Zarr array;
        AnnData; or the path or URL of any source. Columns of a table that hold no numbers are left out.
    y
        Labels: shape (n_samples,), or a column of the table or of ``obs``, or what ``data.labels`` of a job names.
        Missing ones, and -1 among classes, are unlabeled rows. None: methods that need no labels.
    methods
        Methods as in a job: names, dictionaries with a name and parameters, or "all"; by default some that the labels
        allow. Two and more are ranked by their consensus, too.
    n_features
        Number of selected features; None for half of them.
    fdr
        False discovery rate, such as 0.05, up to which features are selected instead of a number: only those that are
        more than chance, with p-values in the ranking. None for no tests.
    task
        Task of the labels; "auto": whole numbers and text are classes, other numbers a target. Classes that pandas
        turned to floats, as some are missing, need "classification".
    redundancy
        Correlation above which a feature is put after all that are not redundant; None for no filter.
    layer
        Of an AnnData: the layer to rank instead of its X.
    use_rep
        Another representation of the rows, in which they are compared, shape (n_samples, n_columns); of an AnnData also
        the name of one in ``obsm``.
    graph
        Of an AnnData: the matrix of weights in ``obsp`` that methods use instead of searching neighbors.
    groups
        Group of each row, shape (n_samples,), or named like `y`: no fold trains and tests on rows of one group.
    batch
        Batch of each row, likewise: features are scored within each batch.
    times
        Time of each row, numbers or dates, likewise: models are trained on earlier rows than they are tested on.
    weights
        Number of rows that each row counts for, likewise; None for 1.
    missing
        What becomes of NaN in X, as ``data.missing``: "refuse", "mean" or "pairwise".
    missing_values
        Words and numbers that mean missing values, in X, labels and the values of rows, as ``data.missing_values``.
    evaluate
        Keys of the block ``evaluate``; True for its defaults, None or False for no evaluation.
    key_added
        Of an AnnData: write the columns to its ``var``, and facts to ``uns`` under this key, as
        :meth:`RunResult.to_anndata` does: ``rank_METHOD`` under "daskfs", and ``KEY_rank_METHOD`` under any other key,
        so that several rankings stand side by side; None to write nothing.
    settings
        Other keys of the job by block, or dotted, such as ``{"data": {"row_names": "barcode"}, "evaluate": None,
        "cluster.workers": 2}``; they replace what the other parameters say.
    output
        Directory or URL of the run; None for a temporary one, which is deleted with the result.
    client
        Client whose workers run the units; by default the current one, if X is a dask collection or lies in a file.
    progress
        As in :func:`daskfs.run`.

    Returns
    -------
    RunResult

    Raises
    ------
    ValueError
        For data, labels or settings that cannot be used, naming the column, row or key.

    Examples
    --------
    >>> import daskfs
    >>> from sklearn.datasets import load_iris
    >>> iris = load_iris(as_frame=True)
    >>> result = daskfs.rank(iris.data, iris.target, methods=["FisherScore", "VarianceScore"], n_features=2)
    >>> result.selected("FisherScore")
    ['petal length (cm)', 'petal width (cm)']
    """
    folder, kind = ScratchDirectory(), type(X).__name__
    scratch = folder.path
    adata = X if is_anndata(X) else None
    if adata is not None:
        use_rep = member_of(X, "obsm", use_rep)
    elif layer is not None or graph is not None or key_added is not None or isinstance(use_rep, str):
        msg = (
            "layer, graph, key_added and the name of a representation are of an AnnData, and X is none: leave them out."
        )
        raise InputError(msg)
    X, columns, data, graph_keys = open_container(X, layer, graph, scratch)
    if use_rep is not None:
        np.save(scratch / "rep.npy", np.asarray(unmasked(use_rep)))
        graph_keys["use_rep"] = str(scratch / "rep.npy")
    is_elsewhere = isinstance(X, str | Path) or is_of(X, "dask") or is_of(X, "zarr")
    roles = {"labels": y, "groups": groups, "batch": batch, "times": times, "weights": weights}
    roles |= {"task": None if task == "auto" else task, "missing": None if missing == "refuse" else missing}
    roles |= {"missing_values": list(missing_values) or None}
    of_data, others = _settings(settings)
    keys = {"data": {"source": "X", **data, **{key: value for key, value in roles.items() if value is not None}}}
    _set(keys, of_data)
    of = X if adata is None else adata
    data = {key: _reference(of, key, value, scratch) for key, value in keys["data"].items()}
    if is_dask_frame(X):  # whose columns of rows are files now
        names = [value for key, value in keys["data"].items() if isinstance(value, str) and data[key] != value]
        data["exclude"] = [*data.get("exclude", ()), *names]
    client = open_client(client, by_default=is_elsewhere)
    is_resumed = output is not None and is_elsewhere and not any(scratch.iterdir())
    remedy = "nothing is kept" if output is None else ANOTHER_OUTPUT
    with nullcontext() if is_resumed else not_resumed(remedy), _named_as_given(scratch):
        data["source"], _alive = as_source(X, scratch, client, columns)
        proposal = propose_job(
            data.pop("source"),
            data=data,
            methods=methods,
            n_features=n_features,
            fdr=fdr,
            redundancy=redundancy,
            output=str(scratch / "run" if output is None else output),
        )
        job = deepcopy(proposal.job)
        if evaluate is not True:
            job["evaluate"] = dict(evaluate) if evaluate else None
        if graph_keys:  # in which rows are compared as they are
            job = {**job, "graph": graph_keys, "transform": {}}
        _set(job, others)
        manifest = run(job, client=client, progress=progress)
    # files that are deleted with the result are no source that anyone can open
    path, words = rf"{re.escape(str(scratch))}/(\w+)[.\w]*", {**NAMES_OF_FILES, "source": kind}
    text = json.dumps({key: manifest[key] for key in ("data", "job")})
    facts = json.loads(re.sub(path, lambda match: f"{words.get(match[1], match[1])} in memory", text))
    result = RunResult({**manifest, **facts}, manifest.url, folder if output is None else None)
    if key_added is not None:
        result.to_anndata(adata, key_added)
    return result


@contextmanager
def _named_as_given(scratch: Path) -> Iterator[None]:
    """Let errors about files in `scratch` name what was passed instead, and parameters instead of keys."""
    try:
        yield
    except DaskfsError as error:
        if error.failure.startswith(str(scratch)):  # its run is deleted, and the error carries the traceback
            error.__notes__ = [note for note in error.__notes__ if error.failure not in note]
            error.failure = ""
        if not isinstance(error, InputError):
            raise
        path = rf"{re.escape(str(scratch))}/(\w+)(\.\w+)*"
        message = re.sub(path, lambda match: NAMES_OF_FILES.get(match[1], match[1]), str(error))
        message = message.replace(REMEDY, ", or pass missing='mean' or missing='pairwise' where they are missing")
        if message == str(error):
            raise
        raise type(error)(message) from error


def _settings(settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the block ``data``, by which the source is opened, and the others."""
    if not isinstance(settings or {}, Mapping):
        msg = f'settings is a mapping, such as {{"evaluate": None, "cluster.workers": 2}}; it is {settings!r}.'
        raise JobError(msg)
    keys: dict[str, Any] = {str(key): value for key, value in deepcopy(dict(settings or {})).items()}
    if not isinstance(keys.get("data", {}), Mapping):
        msg = f"settings: data is a mapping of its keys; it is {keys['data']!r}."
        raise JobError(msg)
    of_data = {key: value for key, value in keys.items() if key.partition(".")[0] == "data"}
    return of_data, {key: value for key, value in keys.items() if key not in of_data}


def _set(job: dict[str, Any], settings: Mapping[str, Any]) -> None:
    """Set keys of a job, of which blocks replace the keys that they name; :class:`JobError` for anything but keys."""
    for key, value in settings.items():
        if isinstance(value, Mapping) and isinstance(job.get(key), Mapping):
            job[key] = {**job[key], **value}
        else:
            set_key(job, key, value, "settings")


def open_container(
    X: Any, layer: str | None, graph: str | None, scratch: Path
) -> tuple[Any, list[Any] | None, dict[str, Any], dict[str, Any]]:
    """Return the matrix and names of an AnnData or an xarray object, and keys of the blocks ``data`` and ``graph``.

    Anything else is returned as it is, without names and keys.
    """
    if is_of(X, "xarray"):
        return variable_of(X).data, names_of(X), {}, {}
    if not is_anndata(X):
        return X, None, {}, {}
    names, data, graph_keys = list(map(str, X.var_names)), dict[str, Any](), dict[str, Any]()
    values, weights = member_of(X, "layers", layer), member_of(X, "obsp", graph)
    matrix = matrix_at_hand(X if layer is None else backing_file(X) or values)
    if isinstance(matrix, str):  # the file that backs X
        data = {} if layer is None else {"array": f"layers/{layer}"}
        graph_keys = {} if graph is None else {"precomputed": f"{matrix}:obsp/{graph}"}
        return matrix, names, data, graph_keys
    if graph is not None:
        graph_keys["precomputed"] = str(scratch / "graph.npz")
        sp.save_npz(graph_keys["precomputed"], sp.csr_matrix(unmasked(weights)), compressed=False)
    if not is_of(matrix, "dask"):  # a collection has its names
        data["feature_names"] = str(scratch / "names.txt")
        Path(data["feature_names"]).write_text("\n".join(names), encoding="utf-8")
    return matrix, names, data, graph_keys


def _reference(X: Any, key: str, value: Any, scratch: Path) -> Any:
    """Return the value of a key of the block ``data`` of the job: a path for values of rows in memory.

    :class:`InputError` for values that cannot serve, and for a name that X, an AnnData or a frame, does not have.
    """
    if key not in ("labels", *SAMPLE_COLUMNS, "row_names") or value is None:
        return value
    if not isinstance(value, str):
        return _write_values(X, key, value, scratch)
    if isinstance(X, str | Path) or is_of(X, "zarr"):
        return value
    if is_anndata(X) and (value in X.obs or split_reference(value) is None):
        return _write_values(X, key, member_of(X, "obs", value), scratch)
    column_names = [] if is_anndata(X) else list(map(str, names_of(X) or ()))
    if column_names.count(value) > 1:
        msg = f"X has more than one column {value!r}: rename one, or pass the values as {NAMES_OF_FILES.get(key, key)}."
        raise InputError(msg)
    if is_dask_frame(X) and value in column_names:
        return _write_values(X, key, X[value], scratch)
    if value not in column_names and split_reference(value) is None:
        raise unknown_name(value, "column", column_names, "X")
    return value


def _write_values(X: Any, key: str, values: Any, scratch: Path) -> str:
    """Write values of the rows of X as a file, whose reader finds the same values; return its path."""
    column = check_values(as_column(values), "y" if key == "labels" else key, key)
    if isinstance(n_samples := getattr(X, "shape", (None,))[0], int):
        check_length(len(column), n_samples, None, key)
    if key in SAMPLE_COLUMN_KINDS:
        whole(SAMPLE_COLUMN_KINDS[key], column, len(column), key, key)  # whose messages name the key, and no file
    path = scratch / f"{key}.npy"
    if column.dtype.kind == "O":
        is_name = [key == "labels" or value is None or isinstance(value, bytes) for value in column]
        names = [
            class_name(value) or "" if as_name else str(value) for value, as_name in zip(column, is_name, strict=True)
        ]
        if key == "labels" and not any(isinstance(value, str | bytes | bool | np.bool_) for value in column):
            # numbers of which some are missing, which the reader of lines takes for numbers
            path = scratch / "labels.txt"
            path.write_text("".join(f"{'' if value is None else value}\n" for value in column), encoding="utf-8")
            return str(path)
        column = np.array(names)
    np.save(path, column)
    return str(path)
