"""Whole jobs on real data sets, from the command line: each ends with a report, and no worker takes 1 GB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.benchmarks.main_job import REAL
from tests.cli.command import daskfs, rows_of
from tests.execution.runs import run, write_job
from tests.optional import anndata
from tests.optional import pandas as pd

pytestmark = [pytest.mark.shared_data, pytest.mark.cluster]


def real_run(shared_data: Path, folder: Path, name: str) -> dict[str, Any]:
    settings = REAL[name]
    data = {"source": str(shared_data / f"{name}.npz"), "labels": "y", "task": settings["task"]}
    job = write_job(
        folder,
        "replaced",
        data=data,
        transform={"graph": settings.get("graph")},
        graph={"n_neighbors": 10},
        methods=settings["methods"],
        cluster={"workers": 2, "memory_limit": "1GB"},
    )
    return run(job)


@pytest.mark.parametrize("name", REAL)
def test_job_ends_with_a_report(shared_data: Path, tmp_path: Path, name: str) -> None:
    result = real_run(shared_data, tmp_path, name)
    assert Path(result["report"]).stat().st_size > 30_000
    assert max(stage["peak_bytes"] for stage in result["stages"]) < 10**9
    assert all(stage["peak_bytes"] <= stage["planned_peak_bytes"] for stage in result["stages"])
    assert result["data"]["sparse"] == (name == "PCMAC")


ROOT = Path(__file__).parents[2]
MADELON = {28, 48, 64, 105, 128, 153, 241, 281, 318, 336, 338, 378, 433, 442, 451, 453, 455, 472, 475, 493}
"""The columns that tell madelon's classes, five of them together and the others by what they share with these."""
MACHINES: dict[tuple[str, float], list[dict[str, Any]]] = {
    ("colon", 1.0): [
        {"label": "plain"},
        {"label": "narrow", "gamma": 0.0005, "C": 100},
        {"label": "bound", "criterion": "rmb"},
        {"label": "laplacian", "laplacian": True},
        {"label": "landmarks", "large_n": "landmarks", "n_landmarks": 40},
    ],
    ("colon", 0.2): [
        {"label": "bound", "criterion": "rmb"},
        {"label": "laplacian", "laplacian": True},
        {"label": "laplacian landmarks", "laplacian": True, "large_n": "landmarks"},
    ],
    ("madelon", 1.0): [
        {"label": "plain", "C": 1},
        {"label": "bound", "C": 1, "criterion": "rmb"},
        {"label": "landmarks", "large_n": "landmarks"},
    ],
    ("madelon", 0.1): [
        {"label": "plain", "C": 1},
        {"label": "laplacian", "C": 1, "laplacian": True, "gamma_intrinsic": 0.001, "large_n": "exact"},
        {"label": "laplacian landmarks", "laplacian": True, "gamma_intrinsic": 0.001, "large_n": "landmarks"},
    ],
}


def machines_run(shared_data: Path, folder: Path, name: str, share: float) -> dict[str, Any]:
    """Run a job of machines and the Fisher score with a share of the labels, which are -1 and 1 in the files."""
    source = folder / f"{name}.npz"
    script = [sys.executable, ROOT / "workflows/partly_labeled.py", shared_data / source.name, source]
    subprocess.run([*map(str, script), "--share", str(share)], check=True, capture_output=True)
    job = write_job(
        folder,
        "replaced",
        data={"source": str(source), "labels": "y", "task": "classification"},
        methods=["FisherScore", *({"name": "SVMRFE", **settings} for settings in MACHINES[name, share])],
        select={"n_features": 20},
        evaluate={
            "setting": "transductive",  # as in the papers, whose figures the accuracies are held against
            "models": [{"name": "knn", "metrics": ["accuracy"]}],
            "n_selected": [5, 10, 20],
            "n_repeats": 3 if name == "colon" else 1,
        },
        cluster={"workers": 2, "memory_limit": "1500MB"},
    )
    result = run(job)
    labels = ["FisherScore", *(settings["label"] for settings in MACHINES[name, share])]
    text = Path(result["report"]).read_text(encoding="utf-8")
    assert all(label in text for label in labels)
    assert all(stage["peak_bytes"] <= stage["planned_peak_bytes"] < 1.5e9 for stage in result["stages"])
    for settings in MACHINES[name, share]:
        found = result["eliminations"][settings["label"]]
        assert found["route"] == settings.get("large_n", "exact")
        left = [seen["n_left"] for seen in found["rounds"]]
        assert left[0] == {"colon": 2000, "madelon": 500}[name]
        assert left[-1] == 2
    return result


def accuracies(folder: Path) -> dict[str, dict[int, float]]:
    """Return the mean accuracy of each method with the first features, by their number."""
    found: dict[str, dict[int, list[float]]] = {}
    for row in rows_of(folder / "run/evaluation.csv"):
        found.setdefault(row["method"], {}).setdefault(int(row["n_selected"]), []).append(float(row["value"]))
    return {method: {n: float(np.mean(values)) for n, values in by.items()} for method, by in found.items()}


def telling(folder: Path) -> dict[str, int]:
    """Return how many of the 20 features that tell madelon's classes each method has among its first 20."""
    rows = [row for row in rows_of(folder / "run/ranking.csv") if int(row["rank"]) <= 20]
    return {
        method: sum(int(r["feature"]) in MADELON for r in rows if r["method"] == method)
        for method in accuracies(folder)
    }


@pytest.mark.parametrize(("name", "share"), MACHINES)
def test_machines_end_with_a_report(shared_data: Path, tmp_path: Path, name: str, share: float) -> None:
    machines_run(shared_data, tmp_path, name, share)
    if (name, share) == ("colon", 1.0):
        accuracy = accuracies(tmp_path)
        assert min(accuracy[settings["label"]][10] for settings in MACHINES[name, share]) > 0.88
        assert accuracy["narrow"][20] > accuracy["FisherScore"][20] + 0.05
    if (name, share) == ("madelon", 1.0):
        found, accuracy = telling(tmp_path), accuracies(tmp_path)
        assert found["FisherScore"] < found["landmarks"] < found["plain"]
        assert found["plain"] >= 18
        assert accuracy["plain"][20] > accuracy["FisherScore"][20] + 0.08


def test_cells_from_anndata_to_a_ranking_in_their_file(shared_data: Path, tmp_path: Path) -> None:
    """Counts of 8,989 genes in 182 cells: a sparse layer, some cells without a stage, genes by name."""
    with np.load(shared_data / "sc_mECS.npz") as stored:
        X, y = sp.csr_matrix(stored["X"]), stored["y"]
    stages = pd.Categorical.from_codes(np.where(np.arange(y.size) % 4 == 3, -1, y - y.min()), ["G1", "S", "G2M"])
    cells = anndata.AnnData(X)
    cells.obs["stage"] = stages
    cells.var_names = [f"gene{i:04}" for i in range(X.shape[1])]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    job = write_job(
        tmp_path,
        str(tmp_path / "cells.h5ad"),
        data={"source": str(tmp_path / "cells.h5ad"), "labels": "stage"},
        graph={"n_neighbors": 10},
        methods=["LaplacianScore", "VarianceScore", "FisherScore", "SSelect"],
        select={"n_features": 50},
        evaluate={"n_selected": [10, 50]},
        cluster={"workers": 2, "memory_limit": "1GB"},
    )
    result = run(job)
    assert all(stage["peak_bytes"] <= stage["planned_peak_bytes"] for stage in result["stages"])
    assert (result["data"]["sparse"], result["data"]["n_labeled"]) == (True, int((stages.codes >= 0).sum()))
    folder = Path(result["ranking"]).parent
    assert daskfs("export", folder, "--into", tmp_path / "cells.h5ad").code == 0
    read = anndata.read_h5ad(tmp_path / "cells.h5ad")
    assert read.var_names.tolist() == cells.var_names.tolist()
    assert (read.X != X).nnz == 0
    for method in ("LaplacianScore", "VarianceScore", "FisherScore", "SSelect"):
        best = [row["name"] for row in rows_of(folder / "ranking.csv") if row["method"] == method][:50]
        ordered = read.var.sort_values(f"rank_{method}").index[:50].tolist()
        assert ordered == best
        assert read.var.index[read.var[f"selected_{method}"]].tolist() == sorted(best)
