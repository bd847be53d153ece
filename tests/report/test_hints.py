"""Hints are given where they change the answer, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.command import daskfs
from tests.optional import anndata as ad
from tests.optional import pandas as pd

N, GENES = 120, 60
KINDS = {"counts", "logarithms", "groups", "classes or target", "largest size"}
RNG = np.random.default_rng(7)
DONORS = np.array([f"donor{number}" for number in RNG.integers(0, 6, N)])
CLASSES = np.array(["a", "b", "c"])[np.arange(N) % 3]


def counts(n: int = N) -> np.ndarray:
    """Return counts whose totals differ between rows, shape (n, 60)."""
    rng = np.random.default_rng(3)
    mean = rng.gamma(0.4, 2.0, GENES) * rng.uniform(0.5, 3, (n, 1))
    return rng.poisson(rng.gamma(0.5, mean / 0.5)).astype(np.float32)


def hints_of(*arguments: object) -> list[str]:
    """Rank by one command without evaluation, and return the kinds of its hints."""
    quick = ("--set", "evaluate=null", "--set", "cluster.workers=0", "--json", "-q", "--overwrite")
    outcome = daskfs("rank", *arguments, *quick)
    assert outcome.code == 0, outcome.err
    return [one["kind"] for one in outcome.json["warnings"] if one["kind"] in KINDS]


# ---------------------------------------------------------------------------------------------------------- AnnData
def cells(X: np.ndarray, **obs: Any) -> Any:
    index = [f"cell{row}" for row in range(len(X))]
    return ad.AnnData(X, obs=pd.DataFrame({"cell_type": CLASSES, **obs}, index=index))


CELLS: dict[str, tuple[Callable[[], Any], tuple[str, ...], list[str]]] = {
    "raw counts": (lambda: cells(counts()), (), ["counts"]),
    "raw counts with logarithms": (
        lambda: cells(counts()),
        ("transform.graph=total+log1p", "transform.score=total+log1p"),
        [],
    ),
    "log values": (lambda: cells(np.log1p(counts())), (), []),
    "log values with logarithms": (lambda: cells(np.log1p(counts())), ("transform.score=log1p",), ["logarithms"]),
    "counts of one total": (
        lambda: cells(RNG.multinomial(200, np.full(GENES, 1 / GENES), N).astype(np.float32)),
        (),
        [],
    ),
    "standardized": (lambda: cells(RNG.normal(size=(N, GENES)).astype(np.float32)), (), []),
    "donors": (lambda: cells(np.log1p(counts()), donor=DONORS), (), ["groups"]),
    "donors that are named": (lambda: cells(np.log1p(counts()), donor=DONORS), ("data.groups=donor",), []),
    "a donor for each cell": (
        lambda: cells(np.log1p(counts()), donor=[f"d{row}" for row in range(N)]),
        (),
        [],
    ),
    "one batch": (lambda: cells(np.log1p(counts()), batch="b1"), (), []),
}


@pytest.mark.parametrize("name", CELLS)
def test_hints_on_cells(tmp_path: Path, name: str) -> None:
    make, settings, expected = CELLS[name]
    make().write_h5ad(tmp_path / "cells.h5ad")
    options = [word for one in settings for word in ("--set", one)]
    methods = ("--methods", "LaplacianScore", "--labels", "cell_type", "--output", tmp_path / "run")
    assert hints_of(tmp_path / "cells.h5ad", *methods, *options) == expected


# ----------------------------------------------------------------------------------------------------------- tables
def table(**columns: Any) -> Any:
    features = {f"s{number}": RNG.normal(size=N) for number in range(5)}
    return pd.DataFrame({**features, "y": CLASSES, **columns})


TABLES: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a site": (lambda: table(site=DONORS), ["groups"]),
    "a patient by number": (lambda: table(patient=np.arange(N) // 4), ["groups"]),
    "plates and batches": (lambda: table(plate=DONORS, batch=CLASSES), ["groups", "groups"]),
    "a subject of every row": (lambda: table(subject=[f"s{row}" for row in range(N)]), []),
    "a measurement of the site": (lambda: table(site_height=RNG.normal(size=N)), []),
    "a text that is no group": (lambda: table(comment=DONORS), []),
    "ratings": (lambda: table(**{f"r{n}": RNG.integers(1, 6, N) for n in range(40)}), []),
    "amounts taken for classes": (lambda: table(y=RNG.integers(18, 60, N)), ["classes or target"]),
    "classes taken for a target": (lambda: table(y=np.array([0.5, 1.5, 2.5])[np.arange(N) % 3]), ["classes or target"]),
    "a target": (lambda: table(y=RNG.normal(size=N)), []),
}


@pytest.mark.parametrize("name", TABLES)
def test_hints_on_tables(tmp_path: Path, name: str) -> None:
    make, expected = TABLES[name]
    make().to_csv(tmp_path / "table.csv", index=False)
    options = ("--labels", "y", "--methods", "VarianceScore", "--output", tmp_path / "run")
    assert hints_of(tmp_path / "table.csv", *options) == expected


def test_a_column_that_cannot_be_read_gives_no_hint(tmp_path: Path) -> None:
    """Text that is no Unicode, and lists, are refused as groups, and a ranking does without them."""
    raw = pa.array([b"\xff\xfe" if row % 2 else b"ok" for row in range(N)], pa.binary()).view(pa.string())
    columns = {"s": RNG.normal(size=N), "y": CLASSES, "site": raw, "batch": pa.array([[1, 2]] * N)}
    pq.write_table(pa.table(columns), tmp_path / "table.parquet")
    options = ("--labels", "y", "--methods", "VarianceScore", "--output", tmp_path / "run")
    quick = ("--set", "evaluate=null", "--set", "cluster.workers=0", "--json", "-q")
    outcome = daskfs("rank", tmp_path / "table.parquet", *options, *quick)
    assert outcome.code == 0, outcome.err
    assert not [one for one in outcome.json["warnings"] if one["kind"] == "groups"]


# ------------------------------------------------------------------------------------------------------------ sizes
@pytest.mark.parametrize(("sizes", "is_hinted"), [((2, 4), True), ((2, 12, 40), False), ((2, 4, 60), False)])
def test_a_best_size_that_is_the_largest(tmp_path: Path, sizes: tuple[int, ...], is_hinted: bool) -> None:
    """Twelve of sixty features tell the classes; more than that are worse, and all are no more than all."""
    X, y = np.random.default_rng(0).normal(size=(N, 60)), np.arange(N) % 3
    X[:, :12] += np.random.default_rng(1).permuted(np.tile([0.0, 1.0, 2.0], (12, 1)), axis=1).T[y]
    np.savez(tmp_path / "X.npz", X=X, y=y)
    evaluate = f"evaluate={{n_selected: {list(sizes)}, n_splits: 3}}"
    options = ("--methods", "FisherScore", "--labels", "y", "--output", tmp_path / "run", "--set", evaluate)
    outcome = daskfs("rank", tmp_path / "X.npz", "--array", "X", *options, "--set", "cluster.workers=0", "--json", "-q")
    found = [one["text"] for one in outcome.json["warnings"] if one["kind"] == "largest size"]
    assert bool(found) == is_hinted, outcome.json["verdict"]
    assert all("--set evaluate.n_selected=[2,4,8,16]" in text for text in found)


# ------------------------------------------------------------------------------------------------------ shared data
@pytest.mark.shared_data
def test_hints_on_real_data(tmp_path: Path, shared_data: Path) -> None:
    """Word counts are counts, but for short texts (CNAE9); images, spectra, expression values and tables are not."""
    found = {}
    for path in sorted(shared_data.glob("*.npz")):
        methods = ("--methods", "VarianceScore", "--labels", "y", "--output", tmp_path / path.stem)
        array = () if "indptr" in np.load(path).files else ("--array", "X")
        found[path.stem] = hints_of(path, *methods, *array)
    assert {name: kinds for name, kinds in found.items() if kinds} == {
        name: ["counts"] for name in ("BASEHOCK", "PCMAC", "RELATHE")
    }
