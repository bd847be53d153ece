"""Rankings as tables: what the run's own files say, in every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

from tests.cli.command import daskfs as call
from tests.cli.command import rows_of
from tests.export.runs import METHODS, Ranked
from tests.optional import anndata

pytestmark = pytest.mark.cluster

FORMATS = {"h5ad": None, "zarr": None, "parquet": None, "npz": None, "anndata.zarr": "anndata"}


def read_table(path: Path, kind: str) -> tuple[list[str], dict[str, np.ndarray], dict[str, Any]]:
    """Return names, columns and facts of an exported table."""
    if kind in ("h5ad", "anndata.zarr"):
        found = anndata.read_h5ad(path) if kind == "h5ad" else anndata.read_zarr(path)
        columns = {name: found.var[name].to_numpy() for name in found.var}
        facts = found.uns["daskfs"]
        assert json.loads(facts["job"])["select"]["n_features"] == 3
        return list(found.var_names), columns, {**facts, "versions": json.loads(facts["versions"])}
    if kind == "zarr":
        group: Any = zarr.open_group(path, mode="r")
        assert group.metadata.zarr_format == 3
        arrays = {name: array[...] for name, array in group.arrays()}
        return [str(name) for name in arrays.pop("name")], arrays, dict(group.attrs["daskfs"])
    if kind == "parquet":
        table = pq.read_table(path)
        columns = {name: table[name].to_numpy() for name in table.column_names}
        return columns.pop("name").tolist(), columns, json.loads(table.schema.metadata[b"daskfs"])
    with np.load(path, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    return arrays.pop("name").tolist(), arrays, json.loads(str(arrays.pop("daskfs")))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_says_what_the_run_does(dense: Ranked, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"table.{kind}"
    options = ["--to", FORMATS[kind]] if FORMATS[kind] else []
    outcome = call("export", dense.run, out, *options, "-q", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["path"] == str(out)
    names, columns, facts = read_table(out, kind)
    assert names == dense.names
    rows, selected = rows_of(dense.run / "ranking.csv"), rows_of(dense.run / "selected_features.csv")
    assert set(columns) == {f"{p}_{m}" for p in ("rank", "score", "selected") for m in METHODS}
    for method in METHODS:
        own = {int(row["feature"]): row for row in rows if row["method"] == method}
        assert columns[f"rank_{method}"].tolist() == [int(own[f]["rank"]) for f in range(7)]
        scores = [float(own[f]["score"] or "nan") for f in range(7)]
        np.testing.assert_array_equal(columns[f"score_{method}"], scores)
        chosen = {int(row["feature"]) for row in selected if row["method"] == method}
        assert np.flatnonzero(columns[f"selected_{method}"]).tolist() == sorted(chosen)
        assert facts["methods"][method]["method"] == method
        assert facts["methods"][method]["citation"]
    assert facts["n_selected"] == 3
    assert facts["versions"]["numpy"] == np.__version__
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_the_facts_hold_the_job(dense: Ranked, tmp_path: Path) -> None:
    assert call("export", dense.run, tmp_path / "t.npz", "-q").code == 0
    _, _, facts = read_table(tmp_path / "t.npz", "npz")
    manifest = json.loads((dense.run / "run.json").read_text())
    assert facts["job"] == manifest["job"]
    assert facts["seeds"] == {"graph": 0}
    assert facts["methods"]["LaplacianScore"]["parameters"]["n_neighbors"] > 0
    assert facts["methods"]["LaplacianScore"]["direction"] == "ascending"


def test_redundant_features_are_not_selected(dense: Ranked, tmp_path: Path) -> None:
    assert call("export", dense.run, tmp_path / "t.parquet", "-q").code == 0
    _, columns, _ = read_table(tmp_path / "t.parquet", "parquet")
    for method in METHODS:  # columns 2 and 6 are the same
        assert not (columns[f"selected_{method}"][2] and columns[f"selected_{method}"][6])
        assert not columns[f"selected_{method}"][5]
