"""``export_run`` and ``export_into``: the results of a finished run in other formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from daskfs.errors import JobError, nearest
from daskfs.execution.cluster import ClusterSettings
from daskfs.execution.progress import Progress, Silent
from daskfs.execution.signals import stoppable
from daskfs.export.anndata_file import H5AD, ZARR_ENDING, need_anndata, write_anndata
from daskfs.export.append_anndata import add_to_anndata
from daskfs.export.arrays import write_npz, write_parquet, write_zarr
from daskfs.export.collect import RunContents, chosen_features, read_run
from daskfs.export.selected_data import Reduced
from daskfs.kernels.labels import Task
from daskfs.runs.conversion import write_tiles
from daskfs.runs.manifest import refuse_foreign
from daskfs.runs.tiles import plan_source
from daskfs.storage import StoragePath, as_output_path, as_path
from daskfs.store import layout
from daskfs.store.store import Store
from daskfs.store.write_errors import explain_write_errors

Format = Literal["anndata", "zarr", "parquet", "npz", "tiles"]
FORMAT_BY_ENDING: Mapping[str, Format] = {
    H5AD: "anndata",
    ZARR_ENDING: "zarr",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
}
GROUP_METADATA = ("zarr.json", ".zgroup")
"""Files that make a folder a Zarr group."""
Writer = Callable[[Path, RunContents, Reduced | None], None]
WRITERS: Mapping[str, Writer] = {"zarr": write_zarr, "parquet": write_parquet, "npz": write_npz}


def export_run(
    run: str | Path,
    out: str | Path,
    *,
    to: Format | None = None,
    data: str | None = None,
    n_features: int | None = None,
    overwrite: bool = False,
    cluster: ClusterSettings | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the rankings of a finished run, or its data with only the selected features, in another format.

    The table has a row for each feature, in the order of X: its name, and for each method ``rank_METHOD``,
    ``score_METHOD`` (NaN for an excluded feature) and ``selected_METHOD``. Parameters, versions and citations are
    included.

    Parameters
    ----------
    run
        Directory or URL of the run.
    out
        Path or URL to write, published when complete.
    to
        "anndata" (`out` ends in ``.h5ad`` or ``.zarr``), "zarr", "parquet", "npz", or, for data, "tiles", which a job
        takes as its source; None chooses by the suffix of `out`.
    data
        Label of a method: write all rows of its selected features, with labels and per-sample columns, and the table of
        these features. Rows are streamed; sparse rows stay sparse, except for "parquet".
    n_features
        Number of the method's best features to write, without redundant ones, as in the run. None: as many as the run
        selected.
    overwrite
        Replace an existing file, Zarr group, or tiles.
    cluster
        Workers for "tiles", which resume like a conversion.
    progress
        Receives progress.

    Returns
    -------
    dict
        ``path``, ``format``, ``n_features``, ``n_samples`` (0 for a table) and ``methods``.

    Raises
    ------
    daskfs.errors.DaskfsError
        Any of its kinds; no partial output is left at `out`, except tiles to resume.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from daskfs import export_run, make_job, run_job
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = {
    ...         "data": {"source": "sklearn:digits"},
    ...         "methods": ["VarianceScore"],
    ...         "evaluate": None,
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": f"{folder}/run"},
    ...     }
    ...     _ = run_job(make_job(job))
    ...     _ = export_run(f"{folder}/run", f"{folder}/table.npz")
    ...     with np.load(f"{folder}/table.npz") as table:
    ...         print(table["name"][table["rank_VarianceScore"] <= 3])
    ['pixel_4_2' 'pixel_5_2' 'pixel_5_3']
    """
    progress = progress or Silent()
    kind = _format(out, to)
    if n_features is not None and data is None:
        msg = "n_features says how many features of the data: name a method by data."
        raise JobError(msg)
    if kind == "tiles" and data is None:
        msg = "tiles hold data: name the method whose features they are to hold by data."
        raise JobError(msg)
    if kind == "anndata":
        need_anndata()
    with closing(progress), stoppable():
        contents = read_run(str(run))
        features = None if data is None else np.sort(chosen_features(contents, data, n_features))
        if features is not None and not features.size:
            msg = f"method {data} of {contents.store.url} selects no feature: say how many of its best are exported."
            raise JobError(msg)
        reduced = None if features is None else Reduced(contents, features, progress)
        path = as_output_path(out)
        for where in (contents.store.path(""), contents.tiles.store.path("")):
            if path.lies_in(where) or where.lies_in(path):
                msg = f"{path} and {where}, which is read, lie in each other: choose another place."
                raise JobError(msg)
        if kind == "tiles":
            assert reduced is not None
            _export_tiles(reduced, path, cluster, overwrite=overwrite)
        else:
            _check_replaceable(path, overwrite=overwrite)
            anndata: Writer = partial(write_anndata, as_zarr=path.suffix.lower() == ZARR_ENDING)
            with explain_write_errors(path), path.replacement() as local:
                WRITERS.get(kind, anndata)(local, contents, reduced)
    return {
        "path": str(path),
        "format": kind,
        "n_features": len(contents.names) if features is None else int(features.size),
        "n_samples": 0 if reduced is None else reduced.info.n_samples,
        "methods": list(contents.selectable),
    }


def export_into(run: str | Path, file: str | Path) -> dict[str, Any]:
    """Add the rankings of a finished run to an AnnData file or Zarr group with the same feature names.

    Columns of ``var`` and ``uns["daskfs"]`` replace those of an earlier export. All else is unchanged.

    Parameters
    ----------
    run
        Directory or URL of the run.
    file
        A ``.h5ad`` file, which is replaced by a changed copy, or a Zarr group.

    Returns
    -------
    dict
        ``path``, ``n_features`` and ``methods``.

    Raises
    ------
    InputError
        If the names differ, naming the first that does.
    StoreError
        If the run is not finished.

    Examples
    --------
    >>> import tempfile
    >>> import anndata
    >>> from sklearn.datasets import load_iris
    >>> from daskfs import export_into, make_job, run_job
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     iris = load_iris(as_frame=True)
    ...     anndata.AnnData(iris.data.set_axis(iris.data.index.astype(str))).write_h5ad(f"{folder}/iris.h5ad")
    ...     job = {
    ...         "data": {"source": f"{folder}/iris.h5ad"},
    ...         "methods": ["VarianceScore"],
    ...         "cluster": {"workers": 0},
    ...         "output": {"path": f"{folder}/run"},
    ...     }
    ...     _ = run_job(make_job(job))
    ...     _ = export_into(f"{folder}/run", f"{folder}/iris.h5ad")
    ...     found = anndata.read_h5ad(f"{folder}/iris.h5ad")
    >>> found.var["rank_VarianceScore"].to_dict()
    {'sepal length (cm)': 2, 'sepal width (cm)': 4, 'petal length (cm)': 1, 'petal width (cm)': 3}
    """
    need_anndata()
    with stoppable():
        contents = read_run(str(run))
        path = add_to_anndata(contents, file)
    return {"path": str(path), "n_features": len(contents.names), "methods": list(contents.selectable)}


def _format(out: str | Path, to: str | None) -> str:
    suffix = as_path(out).suffix.lower()
    kind = to or FORMAT_BY_ENDING.get(suffix)
    formats, remark = get_args(Format), f"As CSV, the rankings are the run's own {layout.RANKING_CSV}."
    if kind is None:
        msg = f"the ending of {out} names no format: name one by --to (to=): {', '.join(formats)}. {remark}"
        raise JobError(msg)
    if kind not in formats:
        msg = f"there is no format '{kind}'.{nearest(kind, formats)} Formats: {', '.join(formats)}. {remark}"
        raise JobError(msg)
    if kind == "anndata" and suffix not in (H5AD, ZARR_ENDING):
        msg = f"{out} ends neither in {H5AD} nor in {ZARR_ENDING}, as AnnData does: choose another name."
        raise JobError(msg)
    return kind


def _check_replaceable(target: StoragePath, *, overwrite: bool) -> None:
    """Raise :class:`JobError` if `target` exists, unless it is a file or a Zarr group and `overwrite` is true."""
    if not target.is_there():
        return
    if not overwrite:
        msg = f"{target} exists: choose another place, or replace it with --overwrite."
        raise JobError(msg)
    if target.is_dir() and not any((target / name).is_file() for name in GROUP_METADATA):
        msg = f"{target} is a directory and no Zarr group: it is not replaced; choose another place."
        raise JobError(msg)


def _export_tiles(reduced: Reduced, target: StoragePath, cluster: ClusterSettings | None, *, overwrite: bool) -> None:
    """Write the reduced data as tiles, or resume it: a conversion whose source is some columns of the run's tiles."""
    store = Store(target)
    refuse_foreign(store, layout.PLAN_JSON, "tile store", "target")
    if overwrite:
        if (target / layout.RUN_JSON).is_there():
            msg = f"{target} is a run: it is not replaced; choose another place."
            raise JobError(msg)
        with explain_write_errors(target):
            target.remove()
    task: Task | Literal["auto"] = reduced.contents.tiles.info.task or "auto"
    settings = cluster or ClusterSettings(workers=0)
    write_tiles(
        lambda workers: plan_source(reduced.spec, task, store.url, workers), store.url, settings, reduced.progress
    )
