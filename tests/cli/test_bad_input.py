"""What cannot work: the exit code, one line that names the thing, and no ranking left behind."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs.store.layout import FORMAT_VERSION

from .command import N_FEATURES, N_SAMPLES, basic_job, daskfs, labels, matrix, refused, write_job

USAGE, INPUT, CLUSTER = 2, 3, 4
THIS_VERSION = f'{{"format_version": {FORMAT_VERSION}}}'
Job = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A job that is refused: `spoil` changes the files in the folder and the job, `parts` are in the message."""

    spoil: Callable[[Path, Job], object]
    code: int
    parts: tuple[str, ...]


@pytest.fixture(autouse=True, scope="module")
def no_report() -> Iterator[None]:
    """Leave out the plots, which take most of the time of so small a run."""
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        yield


# ---------------------------------------------------------------------- ways to spoil it
def setting(**blocks: Any) -> Callable[[Path, Job], None]:
    """Change whole blocks; ``@`` in text stands for the folder."""

    def spoil(folder: Path, job: Job) -> None:
        job.update(json.loads(json.dumps(blocks).replace("@", str(folder))))

    return spoil


def data(**keys: Any) -> Callable[[Path, Job], None]:
    """Change keys of the data block."""

    def spoil(folder: Path, job: Job) -> None:
        job["data"].update(json.loads(json.dumps(keys).replace("@", str(folder))))

    return spoil


def spoilt(row: int, column: int, value: float) -> np.ndarray:
    X = matrix()
    X[row, column] = value
    return X


def npy(X: np.ndarray) -> Callable[[Path, Job], None]:
    return lambda folder, _: np.save(folder / "X.npy", X)


def target(y: Any, **blocks: Any) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        np.save(folder / "y.npy", np.asarray(y))
        job.update(blocks)

    return spoil


def csv(X: np.ndarray, *, text: str | None = None, **keys: Any) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        lines = ["a,b,c,d,class", *(",".join(map(str, [*x, y])) for x, y in zip(X, labels(), strict=True))]
        content = "\n".join(lines).replace("nan", "") + "\n" if text is None else text
        (folder / "X.csv").write_text(content, encoding="utf-8")
        job["data"] = {"source": str(folder / "X.csv"), "labels": "class", **keys}

    return spoil


def parquet(X: np.ndarray) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        columns = {name: pa.array(X[:, i], from_pandas=True) for i, name in enumerate("abcd")}
        pq.write_table(pa.table({**columns, "class": labels()}), folder / "X.parquet", compression="none")
        job["data"] = {"source": str(folder / "X.parquet"), "labels": "class"}

    return spoil


def npz(X: np.ndarray) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        np.savez(folder / "X.npz", X=X, y=labels())
        job["data"] = {"source": str(folder / "X.npz"), "labels": "y"}

    return spoil


def sparse(X: np.ndarray) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        sp.save_npz(folder / "X.npz", sp.csr_array(X))
        job["data"]["source"] = str(folder / "X.npz")

    return spoil


def zarr_array(X: np.ndarray, version: int = 3) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        zarr.create_array(folder / "X.zarr", data=X, chunks=(8, 2), zarr_format=version)  # type: ignore[arg-type]
        job["data"]["source"] = str(folder / "X.zarr")

    return spoil


def cut(write: Callable[[Path, Job], object], name: str, keep: float) -> Callable[[Path, Job], None]:
    """Cut off the end of a file that `write` wrote."""

    def spoil(folder: Path, job: Job) -> None:
        write(folder, job)
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return spoil


def converted(change: Callable[[Path], object]) -> Callable[[Path, Job], None]:
    """Run on a tile store that is damaged after it was converted."""

    def spoil(folder: Path, job: Job) -> None:
        arguments = ("convert", folder / "X.npy", folder / "t.zarr", "--labels", folder / "y.npy", "--workers", 0, "-q")
        assert daskfs(*arguments).code == 0
        change(folder / "t.zarr")
        job["data"] = {"source": str(folder / "t.zarr")}

    return spoil


def edit(name: str, **values: Any) -> Callable[[Path], object]:
    """Change keys of a JSON file."""

    def change(folder: Path) -> None:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps({**document, **values}), encoding="utf-8")

    return change


def shorten(folder: Path) -> None:
    chunk = folder / "X" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-9])


def alter(folder: Path) -> None:
    chunk = folder / "X" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 0xFF
    chunk.write_bytes(content)


def output(make: Callable[[Path], object]) -> Callable[[Path, Job], None]:
    """Put something where the output goes."""
    return lambda folder, _: make(folder / "run")


def foreign(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("mine", encoding="utf-8")


def run_json(text: str) -> Callable[[Path, Job], None]:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "run.json").write_text(text, encoding="utf-8")

    return output(make)


def cluster(**keys: Any) -> Callable[[Path, Job], None]:
    return setting(cluster={"wait_seconds": 1, **keys})


def scheduler_file(text: str) -> Callable[[Path, Job], None]:
    def spoil(folder: Path, job: Job) -> None:
        (folder / "scheduler.json").write_text(text, encoding="utf-8")
        cluster(scheduler_file="@/scheduler.json")(folder, job)

    return spoil


ONE_CLASS = ["a"] * 9 + [""] * (N_SAMPLES - 9)
CASES: dict[str, Case] = {
    # values
    "NaN in npy": Case(npy(spoilt(7, 2, np.nan)), INPUT, ("column 2 ", "NaN in row 7", "X.npy", "1 missing")),
    "infinity in npy": Case(npy(spoilt(29, 0, np.inf)), INPUT, ("column 0 ", "infinite value in row 29")),
    "NaN in float32": Case(npy(spoilt(0, 3, np.nan).astype("f4")), INPUT, ("column 3 ", "row 0")),
    "missing cell in csv": Case(csv(spoilt(4, 1, np.nan)), INPUT, ("column 1 ('b')", "NaN in row 4", "X.csv")),
    "null in parquet": Case(parquet(spoilt(11, 2, np.nan)), INPUT, ("column 2 ('c')", "NaN in row 11")),
    "NaN in npz": Case(npz(spoilt(3, 0, np.nan)), INPUT, ("column 0 ", "row 3", "X.npz")),
    "NaN in sparse": Case(sparse(spoilt(13, 1, np.nan)), INPUT, ("column 1 ", "NaN in row 13")),
    "negative infinity in sparse": Case(
        sparse(spoilt(13, 1, -np.inf)), INPUT, ("column 1 ", "infinite value in row 13")
    ),
    "NaN in zarr": Case(zarr_array(spoilt(20, 2, np.nan)), INPUT, ("column 2 ", "NaN in row 20")),
    "text in csv": Case(
        csv(matrix(), text="a,b,class\n1,2,u\n3,x,v\n"), INPUT, ("column 'b' has text", "'x' in row 1", "data.exclude")
    ),
    "text in npy": Case(npy(matrix().astype(str)), INPUT, ("X.npy", "real numbers")),
    "objects in npy": Case(npy(np.array([[1, None]], dtype=object)), INPUT, ("X.npy", "never unpickled")),
    "all constant": Case(
        npy(np.ones((N_SAMPLES, 2))), INPUT, ("VarianceScore can rank none of the 2 features", "constant")
    ),
    "logarithm of a negative value": Case(
        setting(transform={"score": "log1p"}),
        INPUT,
        ("log1p",),
    ),
    "values too large to square": Case(
        npy(matrix() * 1e200),
        INPUT,
        ("up to 5.12e+200", "squares overflow", "Rescale"),
    ),
    # labels
    "unknown label column": Case(
        csv(matrix(), labels="clas"), INPUT, ("no such file", "no column 'clas'", "Did you mean 'class'?")
    ),
    "unknown label member": Case(
        lambda folder, job: (npz(matrix())(folder, job), data(labels="Y")(folder, job)),
        INPUT,
        ("no member 'Y'", "'X', 'y'", "Did you mean 'y'?"),
    ),
    "label file is missing": Case(data(labels="@/gone.npy"), INPUT, ("data.labels", "gone.npy", "no such file")),
    "one label too many": Case(target(np.zeros(31, int)), INPUT, ("31 values", "30 rows", "y.npy")),
    "one label too few": Case(target(np.zeros(29, int)), INPUT, ("29 values", "30 rows", "y.npy")),
    "no label at all": Case(target(np.full(N_SAMPLES, -1)), INPUT, ("labels are empty: no row has a class",)),
    "no target at all": Case(target(np.full(N_SAMPLES, np.nan)), INPUT, ("labels are empty: no row has a target",)),
    "infinite target": Case(target([np.inf] * N_SAMPLES), INPUT, ("inf in row 0", "finite")),
    "labels in two columns": Case(target(np.zeros((N_SAMPLES, 2))), INPUT, ("(30, 2)", "one value for each row")),
    "one class": Case(
        target(np.full(N_SAMPLES, 7)),
        INPUT,
        ("method FisherScore needs labels that differ", "all 30 labelled rows have one class"),
    ),
    "one class that has a label": Case(
        target(ONE_CLASS), INPUT, ("method FisherScore needs labels that differ", "all 9 labelled rows have one class")
    ),
    "one class besides -1": Case(
        target(np.where(np.arange(N_SAMPLES) < 3, 0, -1)), INPUT, ("one class, '0'", "-1 means an unlabelled row")
    ),
    "one target": Case(
        target(np.full(N_SAMPLES, 7.5), methods=["PearsonScore"]), INPUT, ("all 30 labelled rows have one value",)
    ),
    "text as target": Case(
        lambda folder, job: (target(["high"] * N_SAMPLES)(folder, job), data(task="regression")(folder, job)),
        INPUT,
        ("'high' in row 0", "regression needs numbers"),
    ),
    "classes for regression": Case(
        data(task="regression"), INPUT, ("method FisherScore is for classification", "data.task is regression")
    ),
    "floats as classes": Case(
        target(np.linspace(0.1, 1, N_SAMPLES)), INPUT, ("method FisherScore is for classification", "regression")
    ),
    "no labels for the method": Case(
        setting(data={"source": "@/X.npy"}), INPUT, ("method FisherScore needs labels", "set data.labels")
    ),
    "no labels for the evaluation": Case(
        setting(data={"source": "@/X.npy"}, methods=["VarianceScore"], evaluate={}),
        INPUT,
        ("evaluate needs labels", "data.labels", "evaluate: null"),
    ),
    # counts
    "as many neighbors as rows": Case(
        setting(methods=[{"name": "LaplacianScore", "n_neighbors": 30}]),
        INPUT,
        ("n_neighbors is 30", "n_samples=30 rows", "at most 29"),
    ),
    "graph neighbors": Case(
        setting(methods=["LaplacianScore"], graph={"n_neighbors": 99}), INPUT, ("n_neighbors is 99", "at most 29")
    ),
    "no feature selected": Case(setting(select={"n_features": 0}), USAGE, ("'select.n_features'", "greater than 0")),
    "more selected than there are": Case(
        setting(select={"n_features": 5}), USAGE, ("select.n_features is 5", f"have {N_FEATURES} features")
    ),
    "evaluation neighbors": Case(
        setting(evaluate={"n_neighbors": 25, "n_splits": 5}),
        INPUT,
        ("evaluate.n_neighbors is 25", "a training fold has 24 rows"),
    ),
    "evaluation folds": Case(
        setting(evaluate={"n_splits": 31}), INPUT, ("evaluate.n_splits is 31", "only 30 rows have a label")
    ),
    "evaluation of one class": Case(
        target(ONE_CLASS, evaluate={}, methods=["VarianceScore"]),
        INPUT,
        ("evaluate needs at least two classes",),
    ),
    "all weights underflow": Case(
        setting(methods=[{"name": "LaplacianScore", "t": 1e-300}]),
        INPUT,
        ("heat weights", "are 0 with t = 1e-300", "Raise t", "'median'"),
    ),
    "t of almost nothing": Case(
        setting(methods=[{"name": "LaplacianScore", "t": 5e-324}]),
        INPUT,
        ("heat weights", "Raise t"),
    ),
    # the job
    "unknown method": Case(
        setting(methods=["FisherScor"]), USAGE, ("job.yaml", "unknown method 'FisherScor'", "'FisherScore'?")
    ),
    "unknown parameter": Case(
        setting(methods=[{"name": "LaplacianScore", "k": 3}]), USAGE, ("no parameter 'k'", "n_neighbors")
    ),
    "unknown key": Case(setting(sellect={}), USAGE, ("unknown key 'sellect'", "Did you mean 'select'?")),
    "unknown nested key": Case(setting(graph={"matric": "x"}), USAGE, ("'graph.matric'", "Did you mean 'metric'?")),
    "no method": Case(setting(methods=[]), USAGE, ("'methods'",)),
    "two methods of one label": Case(
        setting(methods=["FisherScore", "FisherScore"]), USAGE, ("two methods are called 'FisherScore'", "label")
    ),
    "label that leaves the store": Case(
        setting(methods=[{"name": "FisherScore", "label": "../x"}]), USAGE, ("method label '../x'",)
    ),
    "label that is a path": Case(
        setting(methods=[{"name": "FisherScore", "label": "/etc/x"}]), USAGE, ("method label '/etc/x'",)
    ),
    "label with a line break": Case(
        setting(methods=[{"name": "FisherScore", "label": "a\nTraceback"}]), USAGE, ("method label 'a Traceback'",)
    ),
    "infinite parameter": Case(
        setting(methods=[{"name": "LaplacianScore", "t": float("inf")}]),
        USAGE,
        ("LaplacianScore", "'t"),
    ),
    "parameter of several types": Case(
        setting(methods=[{"name": "LaplacianScore", "t": "wide"}]),
        USAGE,
        ("parameter 't':", "'median'"),
    ),
    "memory limit that is no size": Case(
        setting(cluster={"workers": 0, "memory_limit": "5i"}), USAGE, ("cluster.memory_limit", "not a size")
    ),
    "cosine weights of distances": Case(
        setting(methods=[{"name": "LaplacianScore", "weights": "cosine"}]), USAGE, ("cosine", "metric")
    ),
    # files
    "file is missing": Case(data(source="@/gone.npy"), INPUT, ("gone.npy does not exist",)),
    "unknown ending": Case(
        lambda folder, job: ((folder / "X.mat").write_text("x"), data(source="@/X.mat")(folder, job)),
        INPUT,
        ("X.mat has the unknown ending '.mat'", ".parquet", "sklearn:NAME"),
    ),
    "directory that is no store": Case(data(source="@"), INPUT, ("is a directory without zarr.json",)),
    "address": Case(data(source="s3://bucket/X.npy"), INPUT, ("s3://bucket/X.npy", "local path")),
    "unknown bundled data": Case(data(source="sklearn:digit"), INPUT, ("'digit'", "Did you mean 'digits'?")),
    "array of a plain file": Case(data(array="Z"), INPUT, ("data.array", "single matrix")),
    "columns of a plain file": Case(data(exclude=["a"]), INPUT, ("data.exclude", "'a'")),
    "unknown column to leave out": Case(csv(matrix(), exclude=["e"]), INPUT, ("data.exclude", "'e'")),
    "names are missing": Case(data(feature_names="@/gone.txt"), INPUT, ("data.feature_names", "gone.txt")),
    "names are too few": Case(
        lambda folder, job: ((folder / "n.txt").write_text("a\nb\nc\n"), data(feature_names="@/n.txt")(folder, job)),
        INPUT,
        ("n.txt has 3 names", "X has 4 columns"),
    ),
    "names are no text": Case(data(feature_names="@/X.npy"), INPUT, ("X.npy is not a text file",)),
    "npy cut": Case(cut(npy(matrix()), "X.npy", 0.9), INPUT, ("X.npy", "truncated")),
    "npy empty": Case(cut(npy(matrix()), "X.npy", 0), INPUT, ("X.npy", "truncated")),
    "npz cut": Case(cut(npz(matrix()), "X.npz", 0.9), INPUT, ("X.npz", "truncated or not an .npz")),
    "sparse cut": Case(cut(sparse(matrix()), "X.npz", 0.5), INPUT, ("X.npz", "truncated or not an .npz")),
    "parquet cut": Case(cut(parquet(matrix()), "X.parquet", 0.9), INPUT, ("X.parquet", "truncated or not a Parquet")),
    "csv cut within a quoted cell": Case(
        csv(matrix(), text='a,b\n1,"2'), INPUT, ("X.csv", "odd number of double quotes")
    ),
    "csv cut within a row": Case(
        csv(matrix(), text="a,b,class\n1,2,u\n3"), INPUT, ("row 1", "has 1 cells, the header has 3")
    ),
    "csv empty": Case(csv(matrix(), text=""), INPUT, ("X.csv is empty",)),
    "csv without rows": Case(csv(matrix(), text="a,b,class\n"), INPUT, ("X.csv has a header but no rows",)),
    "zarr 3 metadata cut": Case(cut(zarr_array(matrix()), "X.zarr/zarr.json", 0.5), INPUT, ("zarr.json", "truncated")),
    "zarr 3 chunk cut": Case(cut(zarr_array(matrix()), "X.zarr/c/1/0", 0.5), INPUT, ("X.zarr", "damaged")),
    "zarr 2 chunk cut": Case(cut(zarr_array(matrix(), 2), "X.zarr/1.0", 0.5), INPUT, ("X.zarr", "damaged")),
    # stores
    "tile missing": Case(
        converted(lambda store: (store / "X" / "c" / "0" / "0").unlink()), INPUT, ("X/c/0/0 is missing",)
    ),
    "tile shortened": Case(converted(shorten), INPUT, ("cannot decode chunk", "X/c/0/0")),
    "tile altered": Case(converted(alter), INPUT, ("cannot decode chunk", "X/c/0/0")),
    "tiles of another version": Case(
        converted(edit("tiles.json", format_version=99)), INPUT, ("tiles.json", "format version 99", "convert")
    ),
    "tiles.json cut": Case(
        converted(lambda store: (store / "tiles.json").write_text('{"shape": ')), INPUT, ("tiles.json is damaged",)
    ),
    "tiles.json without a shape": Case(
        converted(lambda store: (store / "tiles.json").write_text(THIS_VERSION)),
        INPUT,
        ("tiles.json is damaged",),
    ),
    "labels of a tile store": Case(
        lambda folder, job: (converted(lambda _: None)(folder, job), data(labels="y")(folder, job)),
        USAGE,
        ("data.labels was settled", "t.zarr"),
    ),
    "task of a tile store": Case(
        lambda folder, job: (converted(lambda _: None)(folder, job), data(task="regression")(folder, job)),
        USAGE,
        ("data.task is regression", "converted with task classification"),
    ),
    # the output
    "output is a file": Case(output(lambda path: path.write_text("")), INPUT, ("output.path", "/run", "is a file")),
    "output below a file": Case(setting(output={"path": "@/X.npy/run"}), INPUT, ("output.path", "X.npy/run")),
    "output holds other files": Case(output(foreign), INPUT, ("is not a daskfs run", "thesis.txt", "output.path")),
    "run.json of another version": Case(
        run_json('{"format_version": 99}'), INPUT, ("format version 99", "--overwrite", "output.path")
    ),
    "run.json cut": Case(run_json('{"format_'), INPUT, ("run.json is damaged",)),
    "run.json is a list": Case(run_json("[]"), INPUT, ("run.json",)),
    # memory and cluster
    "memory limit too small": Case(
        setting(cluster={"workers": 0, "memory_limit": "100MiB"}),
        USAGE,
        ("stage labels needs", "cluster.memory_limit is 100 MiB", "Set cluster.memory_limit to", "MiB or more"),
    ),
    "nobody at the address": Case(
        cluster(address="tcp://127.0.0.1:1"), CLUSTER, ("cannot reach", "tcp://127.0.0.1:1", "within 1 s")
    ),
    "address without a port": Case(cluster(address="127.0.0.1"), CLUSTER, ("cannot reach", "127.0.0.1", "port")),
    "address of unknown kind": Case(cluster(address="pigeon://a:1"), CLUSTER, ("pigeon://a:1",)),
    "scheduler file is missing": Case(cluster(scheduler_file="@/gone.json"), CLUSTER, ("gone.json does not exist",)),
    "scheduler file is cut": Case(
        scheduler_file('{"address": '),
        CLUSTER,
        ("scheduler.json",),
    ),
    "scheduler file without address": Case(scheduler_file("{}"), CLUSTER, ("scheduler.json",)),
}


def parameters() -> list[Any]:
    return [pytest.param(case, id=name) for name, case in CASES.items()]


@pytest.mark.parametrize("case", parameters())
def test_refused(tmp_path: Path, case: Case) -> None:
    job = basic_job(tmp_path)
    case.spoil(tmp_path, job)
    outcome = daskfs("run", write_job(tmp_path, job), "-q")
    refused(outcome, case.code, *case.parts)
    assert not list(tmp_path.rglob("ranking.csv"))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 50


# ------------------------------------------------------------------------- the job file
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (None, "cannot read the job file"),
        ("", "it is empty"),
        ("- a\n- b\n", "it holds a list"),
        ("data: [", "is not YAML"),
        ("data: !!python/object/apply:os.getcwd []\n", "is not YAML"),
    ],
)
@pytest.mark.parametrize("verb", ["run", "plan"])
def test_job_files_that_are_none(tmp_path: Path, verb: str, text: str | None, part: str) -> None:
    if text is not None:
        (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    refused(daskfs(verb, tmp_path / "job.yaml"), USAGE, "job.yaml", part)


def test_bad_override(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    refused(daskfs("run", job, "--set", "graph.n_neighbors"), USAGE, "--set graph.n_neighbors", "key=value")
    refused(daskfs("run", job, "--set", "graph.k=5"), USAGE, "unknown key 'graph.k'")


# -------------------------------------------------------------------- the second attempt
def test_a_job_can_be_mended_after_it_was_refused(tmp_path: Path) -> None:
    job = basic_job(tmp_path)
    job["methods"] = ["Fisher"]
    assert daskfs("run", write_job(tmp_path, job), "-q").code == USAGE
    job["methods"] = ["FisherScore"]
    assert daskfs("run", write_job(tmp_path, job), "-q").code == 0


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ({"data": {"source": "@/gone.npy"}}, {"data": {"source": "@/X.npy"}}),
        ({"select": {"n_features": 99}}, {"select": {"n_features": 2}}),
        ({"methods": [{"name": "LaplacianScore", "n_neighbors": 30}]}, {"methods": ["LaplacianScore"]}),
    ],
)
def test_a_job_that_did_nothing_claims_no_directory(tmp_path: Path, wrong: Job, right: Job) -> None:
    job = basic_job(tmp_path, methods=["VarianceScore"])
    setting(**wrong)(tmp_path, job)
    assert daskfs("run", write_job(tmp_path, job), "-q").code in (USAGE, INPUT)
    setting(**right)(tmp_path, job)
    assert daskfs("run", write_job(tmp_path, job), "-q").err == ""


@pytest.fixture
def finished(tmp_path: Path) -> tuple[Path, bytes]:
    """Return the job file of a finished run and its ranking."""
    job = write_job(tmp_path, basic_job(tmp_path))
    assert daskfs("run", job, "-q").code == 0
    return job, (tmp_path / "run" / "ranking.csv").read_bytes()


def test_another_job_names_the_keys_that_differ(finished: tuple[Path, bytes]) -> None:
    job, ranking = finished
    changes = ("--set", "select.n_features=1", "--set", "graph.n_neighbors=3", "--set", "methods=[FisherScore]")
    parts = ("holds a run of another job", "graph.n_neighbors, methods, select.n_features", "--overwrite")
    refused(daskfs("run", job, "-q", *changes), INPUT, *parts)
    assert (job.parent / "run" / "ranking.csv").read_bytes() == ranking


@pytest.mark.parametrize("change", ["X", "y"])
def test_data_that_changed_since_the_run_began(finished: tuple[Path, bytes], change: str) -> None:
    job, ranking = finished
    values = {"X": matrix() * 2, "y": labels()[::-1]}[change]
    np.save(job.parent / f"{change}.npy", values)
    os.utime(job.parent / f"{change}.npy", ns=(1, 1))
    refused(daskfs("run", job, "-q"), INPUT, "changed since the run", "--overwrite", "output.path")
    assert (job.parent / "run" / "ranking.csv").read_bytes() == ranking


def test_a_run_of_another_version_of_daskfs(finished: tuple[Path, bytes]) -> None:
    job, _ = finished
    edit("run.json", daskfs_version="0.0.1")(job.parent / "run")
    refused(daskfs("run", job, "-q"), INPUT, "begun by daskfs 0.0.1", "--overwrite")


def test_a_run_of_another_format_version(finished: tuple[Path, bytes]) -> None:
    job, _ = finished
    run = job.parent / "run"
    edit("run.json", format_version=99)(run)
    refused(daskfs("run", job, "-q"), INPUT, "format version 99", "--overwrite")
    refused(daskfs("status", run), INPUT, "format version 99")
    refused(daskfs("report", run), INPUT, "format version 99")


def test_a_plan_of_another_format_version(finished: tuple[Path, bytes]) -> None:
    job, _ = finished
    edit("plan.json", format_version=99)(job.parent / "run")
    refused(daskfs("status", job.parent / "run"), INPUT, "format version 99")
    refused(daskfs("run", job, "-q"), INPUT, "format version 99")


def test_a_directory_that_another_process_holds(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        refused(daskfs("run", job, "-q"), INPUT, "another daskfs process is running in", "run", "output.path")
        target = ("convert", tmp_path / "X.npy", tmp_path / "run", "--workers", 0, "-q")
        refused(daskfs(*target), INPUT, "another daskfs process is running in")
    assert daskfs("run", job, "-q").code == 0


def test_a_refused_directory_keeps_its_files_even_with_overwrite(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    foreign(tmp_path / "run")
    refused(daskfs("run", job, "-q", "--overwrite"), INPUT, "is not a daskfs run", "thesis.txt")
    assert (tmp_path / "run" / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_overwrite_deletes_nothing_that_daskfs_did_not_write(tmp_path: Path) -> None:
    job = write_job(tmp_path, basic_job(tmp_path))
    foreign(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"tool": "another"}', encoding="utf-8")
    assert daskfs("run", job, "-q", "--overwrite").code in (0, INPUT)
    assert (tmp_path / "run" / "thesis.txt").exists()


def test_a_deleted_report_is_written_again(finished: tuple[Path, bytes]) -> None:
    job, _ = finished
    (job.parent / "run" / "report.html").unlink()
    assert daskfs("run", job, "-q").code == 0
    assert (job.parent / "run" / "report.html").exists()


@pytest.mark.parametrize("name", ["scores/FisherScore/c/0/0", "tiles/labels/c/0", "tiles/columns/c/0/0"])
def test_a_chunk_of_a_run_that_is_gone_is_made_again(finished: tuple[Path, bytes], name: str) -> None:
    job, ranking = finished
    (job.parent / "run" / name).unlink()
    again = daskfs("run", job, "-q", "--json")
    assert again.code == 0
    assert sum(again.json["recomputed"].values()) >= 1
    assert (job.parent / "run" / "ranking.csv").read_bytes() == ranking


# ------------------------------------------------------------------------- other verbs
@pytest.mark.parametrize("verb", ["status", "report"])
def test_directories_that_are_no_run(tmp_path: Path, verb: str) -> None:
    refused(daskfs(verb, tmp_path), INPUT, str(tmp_path), "is not a daskfs run", "run.json")
    refused(daskfs(verb, tmp_path / "gone"), INPUT, "gone is not a daskfs run")


@pytest.mark.parametrize("verb", ["status", "report"])
def test_a_file_is_no_run(tmp_path: Path, verb: str) -> None:
    basic_job(tmp_path)
    refused(daskfs(verb, tmp_path / "X.npy"), INPUT, "X.npy is not a daskfs run")


@pytest.mark.parametrize("verb", ["status", "report"])
@pytest.mark.parametrize("text", ["[]", THIS_VERSION])
def test_a_run_json_without_its_keys(tmp_path: Path, verb: str, text: str) -> None:
    (tmp_path / "run.json").write_text(text, encoding="utf-8")
    refused(daskfs(verb, tmp_path), INPUT, "run.json")


def test_inspect_refuses_what_run_refuses(tmp_path: Path) -> None:
    basic_job(tmp_path)
    refused(daskfs("inspect", tmp_path / "gone.npy"), INPUT, "gone.npy does not exist")
    refused(daskfs("inspect", tmp_path), INPUT, "no Zarr array")
    refused(daskfs("inspect", tmp_path / "X.npy", "--labels", "z"), INPUT, "data.labels", "'z'")
    refused(daskfs("inspect", tmp_path / "X.npy", "--task", "guess"), USAGE, "'task'", "'guess'")
    np.save(tmp_path / "y.npy", np.zeros(N_SAMPLES + 1, int))
    refused(daskfs("inspect", tmp_path / "X.npy", "--labels", tmp_path / "y.npy"), INPUT, "31 values", "30 rows")


def test_convert_refuses(tmp_path: Path) -> None:
    basic_job(tmp_path)
    options = ("--workers", 0, "-q")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine", encoding="utf-8")
    refused(daskfs("convert", tmp_path / "gone.npy", tmp_path / "a", *options), INPUT, "gone.npy does not exist")
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "full", *options), INPUT, "thesis.txt", "another target")
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "y.npy", *options), INPUT, "y.npy", "is a file")
    size = (*options, "--memory-limit", "5i")
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "a", *size), USAGE, "memory_limit", "not a size")
    small = (*options, "--memory-limit", "10MiB")
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "a", *small), USAGE, "stage labels", "10 MiB")
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t.zarr", *options).code == 0
    refused(daskfs("convert", tmp_path / "t.zarr", tmp_path / "b", *options), INPUT, "already is a tile store")
    np.save(tmp_path / "Z.npy", matrix() * 2)
    refused(
        daskfs("convert", tmp_path / "Z.npy", tmp_path / "t.zarr", *options), INPUT, "else than tiles of these data"
    )
    np.save(tmp_path / "N.npy", spoilt(2, 1, np.nan))
    refused(daskfs("convert", tmp_path / "N.npy", tmp_path / "n", *options), INPUT, "column 1", "row 2")
    refused(daskfs("inspect", tmp_path / "n"), INPUT, "n is a directory without")


def test_convert_into_a_run(finished: tuple[Path, bytes]) -> None:
    job, ranking = finished
    run = job.parent / "run"
    refused(daskfs("convert", job.parent / "X.npy", run, "--workers", 0, "-q"), INPUT, "something else than tiles")
    assert (run / "ranking.csv").read_bytes() == ranking


def test_plan_into_a_file(tmp_path: Path) -> None:
    job = basic_job(tmp_path, output={"path": str(tmp_path / "X.npy")})
    refused(daskfs("plan", write_job(tmp_path, job)), INPUT, "output.path", "X.npy")


def test_names_from_the_data_cannot_forge_lines(tmp_path: Path) -> None:
    names = np.array(["a", "b\nTraceback (most recent call last):\x1b[2J", "c", "d"])
    np.savez(tmp_path / "X.npz", X=spoilt(7, 1, np.nan), y=labels(), names=names)
    job = basic_job(tmp_path, data={"source": str(tmp_path / "X.npz"), "labels": "y", "feature_names": "names"})
    outcome = daskfs("run", write_job(tmp_path, job), "-q")
    refused(outcome, INPUT, "column 1 ('b Traceback", "row 7")
    assert "\x1b" not in outcome.err
