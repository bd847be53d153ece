"""Ranking of data at hand: arrays, frames, AnnData, dask collections, paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import scipy.sparse as sp

from daskfs.api.run import RunResult, ScratchDirectory, run
from daskfs.errors import InputError
from daskfs.estimators.opening import as_source, current_client, is_anndata, is_of, member_of, unpacked
from daskfs.runs.proposal import propose_job

if TYPE_CHECKING:
    from distributed import Client


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
    key_added
        Of an AnnData: write the columns to its ``var``, and facts to ``uns`` under this key, as
        :meth:`RunResult.to_anndata` does; None to write nothing.
    settings
        Other keys of the job by block, such as ``{"data": {"groups": "donor"}, "evaluate": None}``; they replace what
        the other parameters say.
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
        For data or labels that cannot be used, naming the column, row or key.

    Examples
    --------
    >>> import daskfs
    >>> from sklearn.datasets import load_iris
    >>> iris = load_iris(as_frame=True)
    >>> result = daskfs.rank(iris.data, iris.target, methods=["FisherScore", "VarianceScore"], n_features=2)
    >>> result.selected("FisherScore")
    ['petal length (cm)', 'petal width (cm)']
    """
    folder = ScratchDirectory()
    scratch = folder.path
    data: dict[str, Any] = {}
    compared: dict[str, Any] = {}
    adata = X if is_anndata(X) else None
    if adata is not None:
        use_rep = member_of(X, "obsm", use_rep)
        X, y, data, compared = _of_anndata(X, y, layer, graph, scratch)
    elif layer is not None or graph is not None or key_added is not None or isinstance(use_rep, str):
        msg = (
            "layer, graph, key_added and the name of a representation are of an AnnData, and X is none: leave them out."
        )
        raise InputError(msg)
    if use_rep is not None:
        np.save(scratch / "rep.npy", np.asarray(use_rep))
        compared["use_rep"] = str(scratch / "rep.npy")
    is_elsewhere = isinstance(X, str | Path) or is_of(X, "dask") or is_of(X, "zarr")
    labels = y if y is None or isinstance(y, str) else _written_labels(y, scratch)
    named = {key: value for key, value in {"labels": labels, "task": task}.items() if value not in (None, "auto")}
    proposal = propose_job(
        as_source(X, scratch),
        data={**named, **data, **((settings or {}).get("data") or {})},
        methods=methods,
        n_features=n_features,
        fdr=fdr,
        redundancy=redundancy,
        output=str(scratch / "run" if output is None else output),
    )
    job = {**proposal.job, "data": {**proposal.job["data"], **data}}
    if compared:  # in which rows are compared as they are
        job = {**job, "graph": compared, "transform": {}}
    for block, keys in (settings or {}).items():
        job[block] = {**job.get(block, {}), **keys} if isinstance(keys, Mapping) else keys
    chosen = client or (current_client() if is_elsewhere else None)
    found = run(job, client=chosen, progress=progress)
    result = RunResult(found, found.url, folder if output is None else None)
    if key_added is not None:
        result.to_anndata(adata, key_added)
    return result


def _of_anndata(
    adata: Any, y: Any, layer: str | None, graph: str | None, scratch: Path
) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """Return X and y of an AnnData, or the file that backs it, and entries of the blocks ``data`` and ``graph``."""
    values, weights = member_of(adata, "layers", layer), member_of(adata, "obsp", graph)
    X, labels, _, names = unpacked(adata, y, None)
    assert names is not None
    if isinstance(X, str):
        given = {} if graph is None else {"precomputed": f"{X}:obsp/{graph}"}
        return X, labels, {} if layer is None else {"array": f"layers/{layer}"}, given
    given = {} if graph is None else {"precomputed": str(scratch / "graph.npz")}
    if graph is not None:
        sp.save_npz(scratch / "graph.npz", sp.csr_matrix(weights), compressed=False)
    (scratch / "names.txt").write_text("\n".join(names), encoding="utf-8")
    return X if layer is None else values, labels, {"feature_names": str(scratch / "names.txt")}, given


def _written_labels(y: Any, scratch: Path) -> str:
    """Write labels as a file, objects line by line, which the reader takes for numbers if all are; return its path."""
    import pandas as pd

    # a nullable integer that is missing would turn the others, which are classes, to floats
    values = np.asarray(y, dtype=object) if pd.api.types.is_extension_array_dtype(y) else np.asarray(y)
    if values.dtype.kind != "O":
        np.save(scratch / "labels.npy", values)
        return str(scratch / "labels.npy")
    lines = ["" if pd.isna(value) else str(value) for value in values]
    if any("\n" in line for line in lines):
        msg = "y holds a text of several lines: classes are names of one line."
        raise InputError(msg)
    (scratch / "labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(scratch / "labels.txt")
