"""Finished runs to export, with X as it was."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import zarr

from tests.cli.command import daskfs, write_job

METHODS = ["VarianceScore", "FisherScore", "LaplacianScore"]


@dataclass(frozen=True)
class Ranked:
    """A run over X; `labels` holds an empty text where a row has no label."""

    folder: Path
    X: np.ndarray | sp.csr_matrix
    names: list[str]
    labels: np.ndarray

    @property
    def run(self) -> Path:
        """Its directory."""
        return self.folder / "run"


def finished(folder: Path, job: dict[str, Any]) -> None:
    """Run a job in this process."""
    whole = {"evaluate": None, "cluster": {"workers": 0}, "output": {"path": str(folder / "run")}, **job}
    outcome = daskfs("run", write_job(folder, whole), "-q")
    assert outcome.code == 0, outcome.err


def dense_run(folder: Path) -> Ranked:
    """Return a run over a Zarr group of eight bands and two tile columns, with labels, names, weights and groups."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 7)).astype(np.float32)
    labels = np.array(["b", "a", ""])[np.arange(60) % 3]
    X[:, 2] += np.arange(60) % 3
    X[:, 5] = 1.5  # constant
    X[:, 6] = X[:, 2]
    names = ["ä", "b,c", "c", "d", "e", "f", "g"]
    group = zarr.create_group(folder / "data.zarr")
    group.create_array("X", data=X, chunks=(8, 4))
    group.create_array("weights", data=rng.integers(1, 4, 60).astype(np.float64))
    group.create_array("groups", data=np.arange(60) // 6)
    (folder / "labels.txt").write_text("\n".join(labels) + "\n")
    (folder / "names.txt").write_text("\n".join(names) + "\n")
    data = {
        "source": str(folder / "data.zarr"),
        "labels": str(folder / "labels.txt"),
        "feature_names": str(folder / "names.txt"),
        "weights": "weights",
        "groups": "groups",
    }
    select = {"n_features": 3, "redundancy": {"threshold": 0.9}}
    finished(folder, {"data": data, "methods": METHODS, "select": select})
    return Ranked(folder, X, names, labels)


def sparse_run(folder: Path) -> Ranked:
    """Return a run over sparse data of several bands, with dates."""
    rng = np.random.default_rng(4)
    X = sp.random(30_000, 40, 0.3, format="csr", dtype=np.float32, random_state=rng)
    labels = (np.arange(30_000) % 2).astype(str)
    sp.save_npz(folder / "X.npz", X)
    np.save(folder / "y.npy", np.arange(30_000) % 2)
    np.save(folder / "times.npy", np.datetime64("2024-01-01T00:00") + np.arange(30_000))
    data = {
        "source": str(folder / "X.npz"),
        "labels": str(folder / "y.npy"),
        "times": str(folder / "times.npy"),
    }
    finished(folder, {"data": data, "methods": METHODS[:2], "select": {"n_features": 5}})
    return Ranked(folder, X, [f"x{i}" for i in range(40)], labels)
