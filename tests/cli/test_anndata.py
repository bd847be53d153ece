"""Single cells from an AnnData file to the report."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import yaml

from daskfs import FisherScore, evaluate_selectors
from daskfs.errors import ExitCode, InputError
from tests.optional import anndata
from tests.optional import pandas as pd

from .command import basic_job, daskfs, refused, rows_of, write_job

pytestmark = pytest.mark.cluster

N_CELLS, N_GENES, N_MARKERS = 120, 40, 6
TYPES = ("B", "NK", "T")


def cells() -> tuple[sp.csr_matrix, list[str | None]]:
    """Return log counts of cells, of which the first genes mark the types, and the types that are known."""
    rng = np.random.default_rng(0)
    kind = np.arange(N_CELLS) % 3
    rates = np.full((3, N_GENES), 0.4)
    for marker in range(N_MARKERS):
        rates[marker % 3, marker] = 6
    X = np.log1p(rng.poisson(rates[kind])).astype(np.float32)
    return sp.csr_matrix(X), [TYPES[k] if row % 4 else None for row, k in enumerate(kind)]


@pytest.fixture(scope="module")
def h5ad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, types = cells()
    obs = pd.DataFrame(
        {"cell_type": pd.Categorical(types), "donor": pd.Categorical([f"d{row % 5}" for row in range(N_CELLS)])},
        index=[f"cell{row}" for row in range(N_CELLS)],
    )
    data = anndata.AnnData(X, obs, pd.DataFrame(index=[f"gene{i}" for i in range(N_GENES)]))
    data.layers["csc"] = X.tocsc()
    kernel = np.exp(-((X.toarray()[:, None] - X.toarray()[None]) ** 2).sum(axis=2))
    data.obsp["connectivities"] = sp.csr_matrix(np.where(kernel > 1e-4, kernel, 0))
    path = tmp_path_factory.mktemp("h5ad") / "cells.h5ad"
    data.write_h5ad(path, compression="gzip")
    return path


def job_on(folder: Path, path: Path, **data: Any) -> dict[str, Any]:
    job = basic_job(folder, methods=["LaplacianScore", "FisherScore", "SSelect"])
    job["data"] = {"source": str(path), "labels": "cell_type", **data}
    job["evaluate"] = {"n_selected": 4, "n_splits": 3, "n_neighbors": 3}
    return job


def test_from_the_file_to_the_report(h5ad: Path, tmp_path: Path) -> None:
    outcome = daskfs("run", write_job(tmp_path, job_on(tmp_path, h5ad, groups="donor")), "-q", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    facts = outcome.json["data"]
    assert (facts["n_samples"], facts["n_features"], facts["n_labeled"]) == (N_CELLS, N_GENES, 90)
    rows = [row for row in rows_of(tmp_path / "run" / "ranking.csv") if row["method"] == "FisherScore"]
    assert {row["name"] for row in rows[:N_MARKERS]} == {f"gene{i}" for i in range(N_MARKERS)}
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "gene0" in report
    assert "cells.h5ad" in report
    assert daskfs("verify", tmp_path / "run").code == 0


def test_the_same_ranking_as_from_other_files(h5ad: Path, tmp_path: Path) -> None:
    X, types = cells()
    sp.save_npz(tmp_path / "X.npz", X)
    (tmp_path / "y.txt").write_text("\n".join(kind or "" for kind in types) + "\n")
    (tmp_path / "names.txt").write_text("\n".join(f"gene{i}" for i in range(N_GENES)))
    separate = {"labels": str(tmp_path / "y.txt"), "feature_names": str(tmp_path / "names.txt")}
    tables = []
    for number, job in enumerate(
        (
            job_on(tmp_path, tmp_path / "X.npz", **separate),
            job_on(tmp_path, h5ad),
            job_on(tmp_path, h5ad, array="layers/csc"),
        )
    ):
        job.update(evaluate=None, output={"path": str(tmp_path / f"run{number}")})
        assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
        tables.append((tmp_path / f"run{number}" / "ranking.csv").read_bytes())
    assert tables[0] == tables[1] == tables[2]


def test_a_graph_of_the_same_file(h5ad: Path, tmp_path: Path) -> None:
    job = job_on(tmp_path, h5ad)
    job.update(methods=["LaplacianScore"], evaluate=None, graph={"precomputed": f"{h5ad}:obsp/connectivities"})
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0
    best = {row["name"] for row in rows_of(tmp_path / "run" / "ranking.csv")[:3]}
    assert best <= {f"gene{i}" for i in range(N_MARKERS)}


def test_what_is_not_there_is_named(h5ad: Path, tmp_path: Path) -> None:
    for data, parts in (
        ({"labels": "celltype"}, ("column of obs 'celltype'", "Did you mean 'cell_type'?")),
        ({"array": "counts"}, ("no matrix 'counts'", "'layers/csc'")),
        ({"feature_names": "symbol"}, ("column of var 'symbol'",)),
    ):
        refused(daskfs("run", write_job(tmp_path, job_on(tmp_path, h5ad, **data))), ExitCode.INPUT, str(h5ad), *parts)


def test_a_file_that_changed_since_the_run_began(h5ad: Path, tmp_path: Path) -> None:
    path = tmp_path / "cells.h5ad"
    path.write_bytes(h5ad.read_bytes())
    job = write_job(tmp_path, job_on(tmp_path, path))
    assert daskfs("run", job, "-q").code == 0
    os.utime(path, ns=(1, 1))
    refused(daskfs("run", job, "-q"), ExitCode.INPUT, "cells.h5ad", "changed")


def test_without_h5py(h5ad: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = ("cells.h5ad", "pip install 'daskfs[hdf5]'")
    study = {"datasets": {"cells": {"source": str(h5ad), "labels": "cell_type"}}, "methods": ["FisherScore"]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**study, "output": {"path": str(tmp_path / "study")}}))
    assert daskfs("run", write_job(tmp_path, basic_job(tmp_path)), "-q").code == 0
    ranked = tmp_path / "run"
    job = write_job(tmp_path, {**job_on(tmp_path, h5ad), "output": {"path": str(tmp_path / "other")}})
    monkeypatch.setitem(sys.modules, "h5py", None)
    for arguments in (
        ("inspect", h5ad),
        ("convert", h5ad, tmp_path / "tiles", "--labels", "cell_type", "--workers", 0),
        ("plan", job),
        ("run", job),
        ("compare", tmp_path / "study.yaml"),
    ):
        refused(daskfs(*arguments), ExitCode.INPUT, *told)
    refused(daskfs("export", ranked, "--into", h5ad), ExitCode.USAGE, "h5py", "pip install 'daskfs[anndata]'")
    refused(daskfs("export", ranked, tmp_path / "t.h5ad"), ExitCode.USAGE, "pip install 'daskfs[anndata]'")
    types = [str(one) for one in cells()[1]]
    with pytest.raises(InputError, match=r"cells.h5ad .* pip install 'daskfs\[hdf5\]'"):
        FisherScore().fit(str(h5ad), types)
    with pytest.raises(InputError, match=r"pip install 'daskfs\[hdf5\]'"):
        evaluate_selectors([FisherScore()], str(h5ad), types)
