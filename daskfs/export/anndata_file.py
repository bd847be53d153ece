"""Exports as AnnData: a ``.h5ad`` file or a Zarr group.

The table is ``var``, the facts are ``uns["daskfs"]``, and reduced data also have ``X`` and ``obs``. The package anndata
writes the elements; X is written block by block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daskfs.errors import InputError, JobError
from daskfs.export.arrays import X, put_dense, put_row_names
from daskfs.export.collect import KEY, RunContents, is_ours, reduced_table
from daskfs.export.selected_data import Reduced

if TYPE_CHECKING:
    import pandas as pd

INDEX = "_index"
H5AD = ".h5ad"
ZARR_ENDING = ".zarr"
OBS = {"labels": "label", "weights": "weight", "groups": "group", "times": "time", "batch": "batch"}
"""Names in obs of the labels and the per-sample columns."""


def need_anndata() -> None:
    """Raise :class:`JobError` if the packages that write AnnData are missing."""
    if find_spec("anndata") is None or find_spec("h5py") is None:
        msg = "AnnData is written by the packages anndata and h5py: pip install 'daskfs[anndata]'."
        raise JobError(msg)


def write_anndata(path: Path, contents: RunContents, reduced: Reduced | None, *, as_zarr: bool) -> None:
    """Write an AnnData file or group; without reduced data it has no rows."""
    if as_zarr:
        import zarr

        with quiet_zarr():
            _write_elements(zarr.create_group(store=str(path), zarr_format=3), contents, reduced)
    else:
        import h5py

        with h5py.File(path, "w") as root:
            _write_elements(root, contents, reduced)


def _write_elements(root: Any, contents: RunContents, reduced: Reduced | None) -> None:
    from anndata.io import write_elem

    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name in ("layers", "obsm", "varm", "obsp", "varp"):
        write_elem(root, name, {})
    write_elem(root, "var", _frame(*reduced_table(contents, None if reduced is None else reduced.features)))
    if reduced is None:
        write_elem(root, "obs", _frame([], {}))
    else:
        _write_obs(root, reduced)
        _write_x(root, reduced)
    write_elem(root, "uns", {KEY: storable(contents.facts)})


def add_columns(adata: Any, contents: RunContents, facts: Mapping[str, Any], key_added: str) -> None:
    """Add the columns of a run to ``adata.var``, and its facts to ``uns[key_added]``, in place of earlier ones.

    Under another key than :data:`daskfs.export.collect.KEY`, the names of columns begin with it. Raise
    :class:`InputError` unless ``adata.var_names`` are the names of the features, in any order.
    """
    names, var_names = contents.names, list(map(str, adata.var_names))
    if sorted(names) != sorted(var_names) or len({*names}) < len(names):
        feature_names, columns = {*names}, {*var_names}
        strange = next((name for name in var_names if name not in feature_names), None)
        lacking = next((name for name in names if name not in columns), None)
        what = f"has '{strange}'" if strange is not None else f"lacks '{lacking}'" if lacking else "has names twice"
        msg = f"adata.var_names {what}: it should name the {len(names)} features of {contents.store.url}, each once."
        raise InputError(msg)
    earlier, prefix = adata.uns.get(key_added, {}), "" if key_added == KEY else f"{key_added}_"
    adata.var = adata.var.drop(columns=[name for name in adata.var.columns if is_ours(name, earlier, prefix)])
    place = {name: number for number, name in enumerate(names)}
    order = [place[name] for name in var_names]
    for name, values in contents.columns.items():
        adata.var[f"{prefix}{name}"] = values[order]
    adata.uns[key_added] = storable({**contents.facts, **facts})


@contextmanager
def quiet_zarr() -> Iterator[None]:
    """Turn off anndata's sharding of Zarr v3; anndata warns if this option is not set."""
    import anndata

    with anndata.settings.override(auto_shard_zarr_v3=False):
        yield


def _frame(names: list[str], columns: Mapping[str, np.ndarray]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(dict(columns), index=pd.Index(names, dtype=object))


def _write_obs(root: Any, reduced: Reduced) -> None:
    """Write labels and per-sample columns one by one, and row names in parts.

    A DataFrame would hold a string for each row.
    """
    import pandas as pd
    from anndata.io import write_elem

    group = root.create_group("obs")
    names = put_row_names(group, INDEX, reduced)
    names.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    columns: dict[str, Any] = dict(reduced.row_arrays())
    labels = reduced.contents.tiles.labels()
    if labels is not None and labels.task == "classification":
        classes = pd.Index(list(labels.classes), dtype=object)
        columns["labels"] = pd.Categorical.from_codes(labels.values, categories=classes)
    group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": INDEX})
    group.attrs["column-order"] = [OBS[name] for name in columns]
    for name, values in columns.items():
        is_text = isinstance(values, np.ndarray) and values.dtype.kind in "UO"
        write_elem(group, OBS[name], pd.Categorical(values.astype(object)) if is_text else values)


def _write_x(root: Any, reduced: Reduced) -> None:
    from anndata.io import sparse_dataset, write_elem

    if not reduced.info.is_sparse:
        put_dense(root, reduced).attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
        return
    for number, block in enumerate(reduced.blocks()):
        if number == 0:
            # the first block sets the dtype of all indices
            block.indices, block.indptr = block.indices.astype(np.int64), block.indptr.astype(np.int64)
            write_elem(root, X, block)
            parts = sparse_dataset(root[X])
        else:
            parts.append(block)


def storable(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert facts for ``uns``: numbers and text unchanged, methods one by one, all else as JSON text.

    Few elements are made, as each is a file of a Zarr group.
    """
    methods = {label: _in_text(method_facts) for label, method_facts in facts["methods"].items()}
    return {**_in_text({key: value for key, value in facts.items() if key != "methods"}), "methods": methods}


def _in_text(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value if isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)
        for key, value in facts.items()
    }
