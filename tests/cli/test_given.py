"""Jobs on a graph from outside: the same ranking as on the graph that is found, and what cannot serve."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs import LaplacianScore, knn_graph
from tests.optional import h5py

from .command import N_SAMPLES, Outcome, basic_job, daskfs, matrix, refused, rows_of, texts, write_job

pytestmark = pytest.mark.cluster

USAGE, INPUT = 2, 3
METHODS = ["LaplacianScore", {"name": "LaplacianScore", "label": "binary", "weights": "binary", "n_neighbors": 3}]


def weights() -> sp.csr_matrix:
    """Symmetric weights, with a diagonal."""
    lists = knn_graph(matrix(), 5).to_csr()
    lists.data = np.exp(-lists.data)
    return sp.csr_matrix(lists.maximum(lists.T) + sp.diags(np.linspace(0, 1, N_SAMPLES)))


def saved(folder: Path, **options: Any) -> Path:
    knn_graph(matrix(), 5, **options).save(folder / "lists")
    return folder / "lists"


def npz(folder: Path) -> Path:
    sp.save_npz(folder / "S.npz", weights())
    return folder / "S.npz"


def h5ad(folder: Path) -> Path:
    with h5py.File(folder / "file.h5ad", "w") as file:
        group = file.create_group("obsp/connectivities")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": weights().shape})
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(weights(), name)
    return folder / "file.h5ad:obsp" / "connectivities"


def anndata(folder: Path, version: int, form: str) -> Path:
    attributes = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": [N_SAMPLES, N_SAMPLES]}
    root = zarr.open_group(folder / "file.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
    group = root.create_group("obsp/connectivities", attributes=attributes)
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(weights().asformat(form), name), chunks=(20,))
    return folder / "file.zarr" / "obsp" / "connectivities"


def run(folder: Path, name: str, precomputed: object = None, **blocks: Any) -> Outcome:
    """Run a job into ``folder / name``."""
    job = basic_job(folder, methods=METHODS, output={"path": str(folder / name)})
    graph = {**blocks.pop("graph", {}), **({} if precomputed is None else {"precomputed": str(precomputed)})}
    return daskfs("run", write_job(folder, {**job, **blocks, "graph": graph}), "-q", "--json")


def again(folder: Path, *arguments: str) -> Outcome:
    """Run the last job of a folder again; its data are not touched."""
    return daskfs("run", folder / "job.yaml", "-q", "--json", *arguments)


def ranking(folder: Path, name: str) -> bytes:
    return (folder / name / "ranking.csv").read_bytes()


def stages(outcome: Outcome) -> list[str]:
    return [stage["name"] for stage in outcome.json["stages"]]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run that found its graph; nothing may change it."""
    folder = tmp_path_factory.mktemp("searched")
    assert run(folder, "run").code == 0
    return folder


# --------------------------------------------------------------------------------- lists
@pytest.mark.parametrize("path", ["run", "run/knn/euclidean"])
def test_the_same_bytes_as_the_run_that_found_the_graph(searched: Path, tmp_path: Path, path: str) -> None:
    before = {file: file.stat().st_mtime_ns for file in (searched / "run").rglob("*")}
    outcome = run(tmp_path, "again", searched / path)
    assert outcome.code == 0, outcome.err
    assert ranking(tmp_path, "again") == ranking(searched, "run")
    assert stages(outcome)[3] == "graph-given"
    assert not [name for name in stages(outcome) if name.startswith(("neighbors", "cells", "build", "recall"))]
    assert {file: file.stat().st_mtime_ns for file in (searched / "run").rglob("*")} == before


def test_shorter_lists_and_other_weights_than_those_of_the_run(searched: Path, tmp_path: Path) -> None:
    methods = [{"name": "LaplacianScore", "n_neighbors": 2, "t": "median", "self_loops": True}]
    assert run(tmp_path, "found", methods=methods).code == 0
    assert run(tmp_path, "given", searched / "run", methods=methods).code == 0
    assert ranking(tmp_path, "given") == ranking(tmp_path, "found")


@pytest.mark.parametrize("form", ["saved", "run"])
def test_another_metric_and_scaling(tmp_path: Path, form: str) -> None:
    blocks = {
        "graph": {"metric": "cosine"},
        "transform": {"graph": "unit"},
        "methods": ["LaplacianScore", {"name": "LaplacianScore", "label": "cosines", "weights": "cosine"}],
    }
    assert run(tmp_path, "found", **blocks).code == 0
    path = tmp_path / "found" if form == "run" else saved(tmp_path, metric="cosine", graph_scaling="unit")
    assert run(tmp_path, "given", path, **blocks).code == 0
    assert ranking(tmp_path, "given") == ranking(tmp_path, "found")


def test_relative_paths(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(searched)
    assert run(tmp_path, "again", "run").code == 0
    plan = json.loads((tmp_path / "again" / "plan.json").read_text())
    stage = next(stage for stage in plan["stages"] if stage["name"] == "graph-given")
    assert stage["parameters"]["path"] == str(searched / "run" / "knn" / "euclidean")
    assert ranking(tmp_path, "again") == ranking(searched, "run")


# ------------------------------------------------------------------------------- matrices
MATRICES: dict[str, Callable[[Path], Path]] = {
    "npz": npz,
    "h5ad": h5ad,
    "zarr 2": lambda folder: anndata(folder, 2, "csr"),
    "zarr 3": lambda folder: anndata(folder, 3, "csr"),
    "zarr 3 csc": lambda folder: anndata(folder, 3, "csc"),
}


@pytest.mark.parametrize("form", MATRICES)
def test_scores_of_the_estimator_on_the_same_matrix(tmp_path: Path, form: str) -> None:
    outcome = run(tmp_path, "run", MATRICES[form](tmp_path))
    assert outcome.code == 0, outcome.err
    expected = LaplacianScore(graph=weights()).fit(matrix()).scores_
    for label in ("LaplacianScore", "binary"):
        rows = [row for row in rows_of(tmp_path / "run" / "ranking.csv") if row["method"] == label]
        found = {int(row["feature"]): float(row["score"] or "nan") for row in rows}
        np.testing.assert_allclose([found[i] for i in range(4)], expected, rtol=1e-12)
    wanted = ["graph-given", "weights", "score", "rank", "edges-summary-given"]
    assert [name for name in stages(outcome)[3:] if not name.startswith("weights-")] == [wanted[0], *wanted[2:]]
    assert (tmp_path / "run" / "given").is_dir()
    assert not (tmp_path / "run" / "spill" / "given").exists()


def test_one_weighting_serves_all_methods_on_a_matrix(tmp_path: Path) -> None:
    graph = run(tmp_path, "run", npz(tmp_path)).json["graphs"]
    assert len(graph) == 1
    assert [(w["kind"], w["t"], w["t_rule"], w["used_by"]) for w in graph[0]["weightings"]] == [
        ("given", None, None, ["LaplacianScore", "binary"])
    ]
    upper = sp.triu(weights(), k=1)
    assert graph[0]["n_edges"] == upper.nnz == sum(graph[0]["weight_histogram"]["counts"])
    assert graph[0]["n_components"] >= 1


def test_a_graph_that_no_method_uses_is_not_opened(tmp_path: Path) -> None:
    outcome = run(tmp_path, "run", tmp_path / "gone", methods=["VarianceScore"])
    assert outcome.code == 0
    assert outcome.json["graphs"] == []


# --------------------------------------------------------------------------- what it says
@pytest.mark.parametrize(("form", "name"), [("lists", "euclidean, k = 5"), ("matrix", "given")])
def test_a_given_graph_is_not_called_exact(tmp_path: Path, form: str, name: str) -> None:
    path = saved(tmp_path) if form == "lists" else npz(tmp_path)
    job = basic_job(tmp_path, methods=["LaplacianScore"], graph={"precomputed": str(path)})
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "-v")
    assert (outcome.code, outcome.err) == (0, "")
    graphs = [line for line in outcome.out.splitlines() if line.startswith("graph")]
    assert graphs[0].startswith(f"graph {name}: given, ")
    assert graphs[0].endswith(" components")
    assert "exact" not in outcome.out
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["graphs"][0]
    assert (facts["engine"], facts["recall"], facts["source"]) == ("given", None, str(path))
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "exact search" not in page
    assert "not measured" not in page
    assert str(path) in page
    assert ("Edge weights of given" in page) == (form == "matrix")


def test_rows_without_edges_are_told_of(tmp_path: Path) -> None:
    S = weights().tolil()
    S[:4], S[:, :4] = 0, 0
    sp.save_npz(tmp_path / "S.npz", S.tocsr())
    outcome = run(tmp_path, "run", tmp_path / "S.npz")
    assert outcome.code == 0
    assert texts(json.loads((tmp_path / "run" / "run.json").read_text())) == ["graph given: 4 rows have no edge"]


@pytest.mark.parametrize("form", ["lists", "matrix"])
def test_the_plan_holds_the_stage_and_what_it_takes(tmp_path: Path, form: str) -> None:
    path = saved(tmp_path) if form == "lists" else npz(tmp_path)
    job = basic_job(tmp_path, methods=["LaplacianScore"], graph={"precomputed": str(path)})
    rows = {row["stage"]: row for row in daskfs("plan", write_job(tmp_path, job), "--json").json["stages"]}
    assert rows["graph-given"]["units"] == 1
    assert rows["graph-given"]["bytes_read"] > 0
    assert rows["graph-given"]["bytes_written"] > 0
    assert stages(again(tmp_path)) == list(rows)


def test_methods_refuse_a_graph_of_their_own(tmp_path: Path) -> None:
    job = basic_job(tmp_path, methods=[{"name": "LaplacianScore", "graph": "x.npz"}])
    refused(daskfs("run", write_job(tmp_path, job), "-q"), USAGE, "no parameter 'graph'", "graph.precomputed")


# ---------------------------------------------------------------------------- the second time
@pytest.mark.parametrize("form", ["lists", "matrix"])
def test_the_same_command_goes_on(tmp_path: Path, form: str) -> None:
    path = saved(tmp_path) if form == "lists" else npz(tmp_path)
    assert run(tmp_path, "run", path).code == 0
    first = ranking(tmp_path, "run")
    assert again(tmp_path).json["recomputed"] == {}
    chunk = {"lists": "knn/euclidean/indices/c/0/0", "matrix": "given/weight/c/0"}[form]
    (tmp_path / "run" / chunk).unlink()
    assert again(tmp_path).json["recomputed"] == {"graph-given": 1}
    assert ranking(tmp_path, "run") == first


@pytest.mark.parametrize("form", ["lists", "npz", "h5ad", "zarr 2", "zarr 3"])
def test_a_graph_that_changed_since_the_run_began(tmp_path: Path, form: str) -> None:
    path = saved(tmp_path) if form == "lists" else MATRICES[form](tmp_path)
    assert run(tmp_path, "run", path).code == 0
    first = ranking(tmp_path, "run")
    file = tmp_path / "file.h5ad" if form == "h5ad" else path
    file = file if file.is_file() else sorted(file for file in path.rglob("*") if file.is_file())[0]
    os.utime(file, ns=(1, 1))
    refused(again(tmp_path), INPUT, str(path), "changed since the run", "--overwrite", "output.path")
    assert ranking(tmp_path, "run") == first
    assert again(tmp_path, "--overwrite").code == 0
    assert ranking(tmp_path, "run") == first


def test_overwrite_leaves_no_other_graph_behind(tmp_path: Path) -> None:
    assert run(tmp_path, "run", npz(tmp_path)).code == 0
    job = basic_job(tmp_path, methods=METHODS)
    assert daskfs("run", write_job(tmp_path, job), "-q", "--overwrite").code == 0
    assert not (tmp_path / "run" / "given").exists()


def test_a_run_does_not_delete_its_own_graph(searched: Path, tmp_path: Path) -> None:
    shutil.copytree(searched / "run", tmp_path / "run")
    job = basic_job(tmp_path, methods=METHODS, graph={"precomputed": str(tmp_path / "run")})
    outcome = daskfs("run", write_job(tmp_path, job), "-q", "--overwrite")
    refused(outcome, USAGE, "graph.precomputed", "lies in output.path", "choose another")
    assert ranking(tmp_path, "run") == ranking(searched, "run")


# ----------------------------------------------------------------------------- what is refused
def other_rows(folder: Path) -> Path:
    knn_graph(matrix()[:-1], 5).save(folder / "lists")
    return folder / "lists"


def other_size(folder: Path) -> Path:
    sp.save_npz(folder / "S.npz", weights()[:-1, :-1])
    return folder / "S.npz"


def with_value(value: float) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        S = weights().tolil()
        S[7, 2] = value
        sp.save_npz(folder / "S.npz", S.tocsr())
        return folder / "S.npz"

    return write


def out_of_range(folder: Path) -> Path:
    path = saved(folder)
    indices = zarr.open_array(path / "indices", mode="r+")
    indices[12, 3] = 30
    return path


def cut(name: str, write: Callable[[Path], Path]) -> Callable[[Path], Path]:
    def spoil(folder: Path) -> Path:
        path = write(folder)
        file = path / name if name else path
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        return path

    return spoil


def lacking(name: str) -> Callable[[Path], Path]:
    def spoil(folder: Path) -> Path:
        path = saved(folder)
        (path / name).unlink()
        return path

    return spoil


def tables(folder: Path) -> Path:
    np.save(folder / "S.npy", weights().toarray())
    return folder / "S.npy"


NO_GRAPH = ("A graph is a daskfs run", "RUN/knn/NAME", ".npz", "AnnData")
CASES: dict[str, tuple[Callable[[Path], Path], dict[str, Any], int, tuple[str, ...]]] = {
    "missing": (lambda folder: folder / "gone", {}, INPUT, ("gone does not exist", *NO_GRAPH)),
    "a table": (tables, {}, INPUT, ("S.npy is not a graph", *NO_GRAPH)),
    "a directory": (lambda folder: folder, {}, INPUT, ("is not a graph", *NO_GRAPH)),
    "lists of other rows": (other_rows, {}, INPUT, ("lists has 29 rows", "n_samples=30")),
    "matrix of other rows": (other_size, {}, INPUT, ("S.npz has shape (29, 29)", "n_samples=30")),
    "index out of range": (
        out_of_range,
        {},
        INPUT,
        ("lists: row 12 lists a row that is none of the 30", "graph-given"),
    ),
    "NaN": (with_value(np.nan), {}, INPUT, ("S.npz contains NaN: row 7, column 2",)),
    "negative": (with_value(-1.0), {}, INPUT, ("S.npz has negative weights: row 7, column 2 holds -1",)),
    "npz cut": (cut("", npz), {}, INPUT, ("S.npz is truncated or not an .npz file",)),
    "zarr 2 metadata cut": (cut(".zattrs", MATRICES["zarr 2"]), {}, INPUT, (".zattrs is truncated or not JSON",)),
    "zarr 2 chunk cut": (cut("data/0", MATRICES["zarr 2"]), {}, INPUT, ("data/0", "truncated or damaged")),
    "zarr 3 chunk cut": (cut("data/c/1", MATRICES["zarr 3"]), {}, INPUT, ("connectivities/data is damaged within",)),
    "lists cut": (cut("distances/c/0/0", saved), {}, INPUT, ("lists/distances is damaged within rows 0:30",)),
    "chunk of lists gone": (lacking("indices/c/0/0"), {}, INPUT, ("indices has 0 of its 1 chunks",)),
    "unnamed lists": (lacking("zarr.json"), {}, INPUT, ("does not say what its distances are", "euclidean-zscore")),
    "another metric": (
        saved,
        {"graph": {"metric": "cosine"}},
        USAGE,
        ("method LaplacianScore", "metric cosine and scaling null", "lists", "metric euclidean and scaling null"),
    ),
    "another scaling": (
        lambda folder: saved(folder, graph_scaling="unit"),
        {"transform": {"graph": "zscore"}},
        USAGE,
        ("metric euclidean and scaling zscore", "metric euclidean and scaling unit", "transform.graph"),
    ),
    "too few neighbors": (
        saved,
        {"methods": ["LaplacianScore", {"name": "LaplacianScore", "label": "wide", "n_neighbors": 6}]},
        INPUT,
        ("n_neighbors is 6", "lists has 5 neighbors a row"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(tmp_path: Path, case: str) -> None:
    write, blocks, code, parts = CASES[case]
    refused(run(tmp_path, "run", write(tmp_path), **blocks), code, *parts)
    assert not list(tmp_path.rglob("ranking.csv"))


def test_a_job_can_be_mended_after_its_graph_was_refused(tmp_path: Path) -> None:
    refused(run(tmp_path, "run", tmp_path / "gone"), INPUT, "gone does not exist")
    assert run(tmp_path, "run", npz(tmp_path)).code == 0


def test_a_path_is_text(tmp_path: Path) -> None:
    outcome = run(tmp_path, "run", graph={"precomputed": 5})
    refused(outcome, USAGE, "key 'graph.precomputed'", "valid string")
