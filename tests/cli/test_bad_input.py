"""What cannot work: the exit code, one line that names the thing, and no ranking left behind."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from daskfs.sources import READERS
from daskfs.store.layout import FORMAT_VERSION

from .command import N_FEATURES, N_SAMPLES, basic_job, daskfs, labels, matrix, refused, write_job
from .spoiled import (
    Job,
    Spoil,
    alter,
    bomb,
    both,
    cluster,
    converted,
    csv,
    cut,
    data,
    edit,
    folder_named,
    foreign,
    job_text,
    merged,
    nothing,
    npy,
    npz,
    of_another_version,
    output,
    parquet,
    run_json,
    scheduler_file,
    separate_file,
    setting,
    shorten,
    sparse,
    spoilt,
    study,
    target,
    text,
    zarr_array,
)

pytestmark = pytest.mark.cluster

USAGE, INPUT, CLUSTER = 2, 3, 4
THIS_VERSION = f'{{"format_version": {FORMAT_VERSION}}}'
RUN = ("run", "@/job.yaml", "-q")


@dataclass(frozen=True)
class Case:
    """A call that is refused: `spoil` changes the files in the folder and the job, `parts` are in the message; in the
    arguments ``@`` stands for the folder.
    """

    spoil: Spoil
    code: int
    parts: tuple[str, ...]
    arguments: tuple[str, ...] = RUN


@pytest.fixture(autouse=True, scope="module")
def no_report() -> Iterator[None]:
    """Leave out the plots, which take most of the time of so small a run."""
    with mock.patch("daskfs.report.render.render_report", return_value=""):
        yield


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
        ("method FisherScore needs labels that differ", "all 30 labeled rows have one class"),
    ),
    "one class that has a label": Case(
        target(ONE_CLASS), INPUT, ("method FisherScore needs labels that differ", "all 9 labeled rows have one class")
    ),
    "one class besides -1": Case(
        target(np.where(np.arange(N_SAMPLES) < 3, 0, -1)), INPUT, ("one class, '0'", "-1 means an unlabeled row")
    ),
    "one target": Case(
        target(np.full(N_SAMPLES, 7.5), methods=["PearsonScore"]), INPUT, ("all 30 labeled rows have one value",)
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
        ("model knn of evaluate.models looks at n_neighbors = 25 rows", "a training fold has 24"),
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
    "address": Case(data(source="https://host/X.npy"), INPUT, ("https://host/X.npy", "s3://, gs://, az://")),
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
    # how buckets are reached
    "storage of no bucket": Case(
        setting(storage={"http://b": {}}), USAGE, ("key 'storage'", "'http://b' names no bucket", "s3://, gs://, az://")
    ),
    "storage of an object": Case(setting(storage={"s3://b/X.npy": {}}), USAGE, ("key 'storage'", "write s3://b,")),
    "storage without a name": Case(setting(storage={"s3://": {}}), USAGE, ("key 'storage'", "names no bucket")),
    "storage that is a list": Case(setting(storage=["s3://b"]), USAGE, ("key 'storage'", "storage names buckets")),
    "storage of a bucket twice": Case(
        setting(storage={"s3://b": {}, "s3://b/": {}}), USAGE, ("key 'storage'", "s3://b is there twice")
    ),
    "unknown key of a bucket": Case(
        setting(storage={"s3://b": {"endpont": "http://h"}}), USAGE, ("'storage.s3://b.endpont'", "'endpoint'?")
    ),
    "endpoint that is no URL": Case(
        setting(storage={"s3://b": {"endpoint": "minio:9000"}}),
        USAGE,
        ("key 'storage.s3://b.endpoint'", "such as http://minio:9000"),
    ),
    "bucket with a password": Case(
        setting(storage={"s3://b?sig=s3cr3t": {}}), USAGE, ("key 'storage'", "credentials belong in the environment")
    ),
    "bucket that is a switch": Case(
        setting(storage={"s3://b": {"anonymous": "maybe"}}), USAGE, ("key 'storage.s3://b.anonymous'",)
    ),
    # stores
    "tile missing": Case(
        converted(lambda store: (store / "X" / "c" / "0" / "0").unlink()), INPUT, ("X/c/0/0 is missing",)
    ),
    "tile shortened": Case(converted(shorten), INPUT, ("cannot decode chunk", "X/c/0/0")),
    "tile altered": Case(converted(alter), INPUT, ("cannot decode chunk", "X/c/0/0")),
    "tiles of another version": Case(
        converted(of_another_version), INPUT, ("tiles.json", "format version 99", "convert")
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
    "output is empty": Case(setting(output={"path": ""}), USAGE, ("key 'output.path'", "at least 1 character")),
    "output has a name that is too long": Case(
        setting(output={"path": "@/" + "n" * 300}), INPUT, ("output.path", "nnn", "too long")
    ),
    "output on a read-only file system": Case(setting(output={"path": "/proc/run"}), INPUT, ("output.path /proc/run",)),
    "run.json is empty": Case(run_json(""), INPUT, ("run.json is damaged",)),
    "run.json is null": Case(run_json("null"), INPUT, ("run.json is damaged",)),
    "run.json nested too deep": Case(run_json("[" * 5000), INPUT, ("run.json is damaged",)),
    "plan where another run.json lies": Case(
        run_json("[]"), INPUT, ("run.json is damaged", "a list"), ("plan", "@/job.yaml")
    ),
    # memory and cluster
    "memory limit too small": Case(
        setting(cluster={"workers": 0, "memory_limit": "100MiB"}),
        USAGE,
        ("needs", "cluster.memory_limit is 100 MiB", "Set cluster.memory_limit to", "MiB or more"),
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
    # values, types and shapes
    "complex numbers": Case(npy(matrix() * 1j), INPUT, ("X.npy has dtype complex128", "real numbers")),
    "dates": Case(npy(np.zeros((30, 4), "M8[s]")), INPUT, ("X.npy has dtype datetime64[s]",)),
    "raw bytes": Case(npy(np.zeros((30, 4), "V8")), INPUT, ("X.npy has dtype |V8",)),
    "structures": Case(npy(np.zeros((30, 4), [("a", "f4"), ("b", "i4")])), INPUT, ("X.npy has dtype [('a', '<f4')",)),
    "long doubles beyond float64": Case(
        npy(np.full((30, 4), np.longdouble("1e4000"))), INPUT, ("column 0 ", "infinite value in row 0")
    ),
    "infinite half": Case(npy(np.full((30, 4), np.inf, np.float16)), INPUT, ("column 0 ", "infinite value in row 0")),
    "no rows": Case(npy(np.zeros((0, 4))), INPUT, ("X.npy has shape (0, 4)", "nothing in it")),
    "no features": Case(npy(np.zeros((30, 0))), INPUT, ("X.npy has shape (30, 0)", "nothing in it")),
    "one dimension": Case(npy(np.zeros(30)), INPUT, ("X.npy has shape (30,)", "two dimensions")),
    "three dimensions": Case(npy(np.zeros((5, 3, 2))), INPUT, ("X.npy has shape (5, 3, 2)", "two dimensions")),
    "a single number": Case(npy(np.array(1.0)), INPUT, ("X.npy has shape ()", "two dimensions")),
    "one row": Case(
        both(npy(np.ones((1, 4))), setting(data={"source": "@/X.npy"}, methods=["VarianceScore"])),
        INPUT,
        ("VarianceScore can rank none of the 4 features",),
    ),
    "one row has no neighbors": Case(
        both(npy(np.ones((1, 4))), setting(data={"source": "@/X.npy"}, methods=["LaplacianScore"])),
        INPUT,
        ("n_neighbors is 5", "n_samples=1 rows", "at most 0"),
    ),
    # files that are none
    "source is empty": Case(data(source=""), USAGE, ("key 'data.source'", "at least 1 character")),
    "name that is too long": Case(data(source="@/" + "n" * 300 + ".npy"), INPUT, ("nnn", "too long")),
    "pipe": Case(
        both(lambda folder, _: os.mkfifo(folder / "F.npy"), data(source="@/F.npy")),
        INPUT,
        ("F.npy is neither a file nor a directory",),
    ),
    "directory called .npy": Case(folder_named("D.npy", source="@/D.npy"), INPUT, ("D.npy is a directory without",)),
    "directory of labels": Case(folder_named("D.npy", labels="@/D.npy"), INPUT, ("data.labels", "no such file")),
    "directory of names": Case(folder_named("D.txt", feature_names="@/D.txt"), INPUT, ("data.feature_names", "D.txt")),
    "Zarr array that is a file": Case(text("Z.zarr", "hello"), INPUT, ("Z.zarr has the unknown ending '.zarr'",)),
    "no npy": Case(text("Z.npy", b"\0" * 99), INPUT, ("Z.npy is truncated or not in .npy format",)),
    "no npz": Case(text("Z.npz", b"\0" * 99), INPUT, ("Z.npz is truncated or not an .npz file",)),
    "empty npz": Case(text("Z.npz", ""), INPUT, ("Z.npz is truncated or not an .npz file",)),
    "no parquet": Case(text("Z.parquet", b"\0" * 99), INPUT, ("Z.parquet is truncated or not a Parquet file",)),
    "empty parquet": Case(text("Z.parquet", ""), INPUT, ("Z.parquet is truncated or not a Parquet file",)),
    "unknown synthetic data": Case(data(source="synthetic:foo"), INPUT, ("no 'synthetic:foo'", "'mixture'")),
    "synthetic data without a size": Case(data(source="synthetic:mixture?n_samples=x"), INPUT, ("n_samples",)),
    "bundled data without a name": Case(data(source="sklearn:"), INPUT, ("data set ''", "'iris'")),
    # tables
    "csv in UTF-16": Case(text("Z.csv", "a,b\n1,2\n".encode("utf-16")), INPUT, ("Z.csv is in UTF-16", "UTF-8")),
    "csv in UTF-16 without a mark": Case(text("Z.csv", "a,b\n1,2\n".encode("utf-16-le")), INPUT, ("Z.csv",)),
    "csv header in Latin-1": Case(text("Z.csv", b"\xe4,b\n1,2\n"), INPUT, ("Z.csv: the header line", "UTF-8")),
    "csv cell in Latin-1": Case(text("Z.csv", b"a,b\n1,\xe4\n"), INPUT, ("Z.csv is not in UTF-8", "Row #1")),
    "csv of NUL": Case(
        text("Z.csv", b"\0" * 99), INPUT, ("Z.csv: the header line holds a NUL character at character 0",)
    ),
    "csv cell of NUL": Case(text("Z.csv", "a,b\n1,\0\n"), INPUT, ("column 'b' has text", "row 0")),
    "csv with a label column twice": Case(
        text("Z.csv", "a,y,y\n1,2,3\n", labels="y"), INPUT, ("Z.csv has more than one column 'y'",)
    ),
    "csv without a name for a column": Case(text("Z.csv", "a,,b\n1,2,3\n"), INPUT, ("Z.csv: column 1 has no name",)),
    "csv row too long": Case(text("Z.csv", "a,b\n1,2\n1,2,3\n"), INPUT, ("row 1", "has 3 cells, the header has 2")),
    "csv blank line": Case(text("Z.csv", "a,b\n1,2\n\n3,4\n"), INPUT, ("row 1", "blank line")),
    "csv of numbers alone": Case(text("Z.csv", "1,2\n3,4\n"), INPUT, ("Z.csv: the first line holds only numbers",)),
    "csv number beyond float64": Case(text("Z.csv", "a,b\n1,1e999\n2,3\n"), INPUT, ("column 1 ('b')", "infinite")),
    "csv whole number beyond float64": Case(
        text("Z.csv", f"a,b\n1,{'9' * 400}\n2,3\n"), INPUT, ("column 1 ('b')", "infinite value in row 0")
    ),
    "csv hexadecimal": Case(text("Z.csv", "a,b\n1,0x10\n"), INPUT, ("column 'b' has text", "'0x10' in row 0")),
    "csv of several columns without numbers": Case(
        text("Z.csv", "id,a,city,seen\np1,1,Rome,2024-01-01\np2,2,Oslo,2024-01-02\n"),
        INPUT,
        ("3 columns hold no numbers", "'city'", 'Set data.exclude to ["id", "city", "seen"], or to ["non-numeric"]'),
    ),
    "csv by another delimiter": Case(
        text("Z.csv", "a;b\n1,5;3\n", delimiter=","), INPUT, ("row 0", "has 2 cells, the header has 1")
    ),
    "csv of dates": Case(text("Z.csv", "a,b\n2020-01-01,1\n"), INPUT, ("column 'a' has text", "'2020-01-01' in row 0")),
    "csv of labels alone": Case(text("Z.csv", "y\n1\n2\n", labels="y"), INPUT, ("no feature column left",)),
    "csv label left out": Case(
        text("Z.csv", "a,y\n1,2\n", labels="y", exclude=["y"]), INPUT, ("'y' is both data.labels and in data.exclude",)
    ),
    "csv column of two uses": Case(
        text("Z.csv", "a,y\n1,2\n", labels="y", weights="y"), INPUT, ("data.labels and data.weights both name 'y'",)
    ),
    # labels
    "labels as objects": Case(separate_file("labels", np.array([None] * 30)), INPUT, ("labels.npy", "never unpickled")),
    "labels as dates": Case(
        separate_file("labels", np.zeros(30, "M8[s]")), INPUT, ("labels.npy has dtype datetime64[s]",)
    ),
    "labels in three dimensions": Case(separate_file("labels", np.zeros((30, 1, 1))), INPUT, ("(30, 1, 1)",)),
    "labels that are blank": Case(
        separate_file("labels", np.full(30, "")), INPUT, ("labels are empty: no row has a class",)
    ),
    "labels in UTF-16": Case(
        separate_file("labels", "u\nv\n".encode("utf-16")), INPUT, ("labels.txt is not text in UTF-8",)
    ),
    "label file empty": Case(separate_file("labels", ""), INPUT, ("labels have 0 values, X has 30 rows",)),
    "infinite label": Case(
        separate_file("labels", np.where(labels() > 0, np.inf, 1.0)), INPUT, ("inf in row 1", "finite")
    ),
    "a class with one row": Case(
        target(np.arange(30) > 0, methods=["VarianceScore"], evaluate={"n_splits": 2}),
        INPUT,
        ("evaluate.n_splits = 2", "holds class 'True' only", "label more rows"),
    ),
    # per-sample columns
    "no weight": Case(
        separate_file("weights", np.full(30, np.nan)), INPUT, ("weights.npy has no weight in row 0", "29 more")
    ),
    "infinite weight": Case(
        separate_file("weights", np.r_[1.0, np.inf, np.ones(28)]), INPUT, ("the weight inf in row 1",)
    ),
    "negative weight": Case(separate_file("weights", -np.ones(30)), INPUT, ("the weight -1 in row 0",)),
    "weights of zero": Case(separate_file("weights", np.zeros(30)), INPUT, ("every row a weight of zero",)),
    "weights that overflow": Case(
        separate_file("weights", np.full(30, 1e308)), INPUT, ("1e+308", "overflow", "divide them")
    ),
    "weights as text": Case(separate_file("weights", np.full(30, "heavy")), INPUT, ("'heavy' in row 0", "numbers")),
    "one weight too few": Case(
        separate_file("weights", np.ones(29)), INPUT, ("weights have 29 values, X has 30 rows",)
    ),
    "no group": Case(separate_file("groups", np.full(30, np.nan)), INPUT, ("groups.npy has no group in row 0",)),
    "complex groups": Case(separate_file("groups", np.ones(30) * 1j), INPUT, ("groups.npy has dtype complex128",)),
    "fewer groups than folds": Case(
        separate_file("groups", np.arange(30) % 2, evaluate={"n_splits": 5}),
        INPUT,
        ("data.groups has 2 groups", "evaluate.n_splits is 5", "lower evaluate.n_splits"),
    ),
    "no time": Case(separate_file("times", np.full(30, "NaT", "M8[s]")), INPUT, ("times.npy has no time in row 0",)),
    "infinite time": Case(separate_file("times", np.r_[np.inf, np.ones(29)]), INPUT, ("the time inf in row 0",)),
    "words for times": Case(separate_file("times", np.full(30, "noon")), INPUT, ("'noon' in row 0", "ISO dates")),
    "fewer times than folds": Case(
        separate_file("times", np.arange(30) % 4, evaluate={"n_splits": 5}),
        INPUT,
        ("data.times has 4 distinct times", "lower evaluate.n_splits"),
    ),
    "groups and times": Case(
        both(separate_file("groups", np.arange(30)), separate_file("times", np.arange(30))),
        USAGE,
        ("key 'data.times'", "groups or by times"),
    ),
    "names in UTF-16": Case(
        separate_file("feature_names", "a\nb\nc\nd\n".encode("utf-16")),
        INPUT,
        ("feature_names.txt is not a text file in UTF-8",),
    ),
    "names in bytes that are no text": Case(
        lambda folder, job: (
            np.savez(folder / "Z.npz", X=matrix(), n=np.array([b"\xe4", b"b", b"c", b"d"])),
            data(source="@/Z.npz", feature_names="n")(folder, job),
        ),
        INPUT,
        ("Z.npz:n", "UTF-8"),
    ),
    # stores
    "tiles.json is a list": Case(
        converted(lambda store: (store / "tiles.json").write_text("[]")), INPUT, ("tiles.json is damaged",)
    ),
    "tiles.json is null": Case(
        converted(lambda store: (store / "tiles.json").write_text("null")), INPUT, ("tiles.json is damaged",)
    ),
    "tiles.json in Latin-1": Case(
        converted(lambda store: (store / "tiles.json").write_bytes(b'{"a": "\xe4"}')), INPUT, ("tiles.json is damaged",)
    ),
    "tile metadata cut": Case(
        converted(lambda store: (store / "X" / "zarr.json").write_text('{"zarr')), INPUT, ("t.zarr/X",)
    ),
    "tile empty": Case(converted(lambda store: (store / "X" / "c" / "0" / "0").write_bytes(b"")), INPUT, ("X/c/0/0",)),
    # numbers in the job
    "NaN for a parameter": Case(
        setting(methods=[{"name": "RLSR", "gamma": float("nan")}]), USAGE, ("parameter 'gamma'", "finite number")
    ),
    "infinity for a parameter": Case(
        setting(methods=[{"name": "SSUFS", "eta": float("inf")}]), USAGE, ("parameter 'eta'", "finite number")
    ),
    "number too large for a parameter": Case(
        setting(methods=[{"name": "RLSR", "gamma": 1e300}]),
        USAGE,
        ("parameter 'gamma'", "between 1e-100 and 1e+100", "got 1e+300"),
    ),
    "number too small for a parameter": Case(
        setting(methods=[{"name": "LSDF", "same_class_weight": 5e-324}]), USAGE, ("'same_class_weight'", "1e-100")
    ),
    "true for a count": Case(
        setting(methods=[{"name": "LaplacianScore", "n_neighbors": True}]),
        USAGE,
        ("parameter 'n_neighbors'", "true and false mean nothing here"),
    ),
    "true for a key": Case(setting(select={"n_features": True}), USAGE, ("'select.n_features'", "mean nothing here")),
    "a share for a count": Case(setting(evaluate={"n_splits": 2.5}), USAGE, ("'evaluate.n_splits'", "got 2.5")),
    "negative count": Case(setting(evaluate={"n_repeats": -1}), USAGE, ("'evaluate.n_repeats'", "got -1")),
    "huge count of draws": Case(
        setting(evaluate={"n_classes": 2, "n_subsets": 10**12}), USAGE, ("'evaluate.n_subsets'", "10000")
    ),
    "seed that nobody takes": Case(
        setting(evaluate={"random_state": 2**40}), USAGE, ("'evaluate.random_state'", "less than")
    ),
    "huge number of folds": Case(setting(evaluate={"n_splits": 10**12}), USAGE, ("stage", "cluster.memory_limit")),
    "huge number of neighbors": Case(
        setting(methods=[{"name": "LaplacianScore", "n_neighbors": 10**12}]), INPUT, ("n_neighbors is 1000000000000",)
    ),
    "whole number beyond 64 bits": Case(
        setting(select={"n_features": 2**64}), USAGE, ("job.yaml", "65 bits", "too large")
    ),
    "grid of very many": Case(
        setting(methods=[{"name": "SVMRFE", "grid": {key: list(range(1, 99)) for key in ("C", "step", "n_singly")}}]),
        USAGE,
        ("grid stands for 941192 combinations", "1000 are the most"),
    ),
    "grid of nothing": Case(setting(methods=[{"name": "RLSR", "grid": {"gamma": []}}]), USAGE, ("'gamma'", "a list")),
    "threshold of one": Case(
        setting(select={"redundancy": {"threshold": 1}}), USAGE, ("'select.redundancy.threshold'",)
    ),
    "group by an expression that is none": Case(
        setting(select={"redundancy": {"groups": {"(": "a"}, "max_per_group": 1}}), USAGE, ("select.redundancy.groups",)
    ),
    "unknown feature to keep": Case(setting(select={"redundancy": {"keep": ["x9"]}}), USAGE, ("'x9'",)),
    "unknown model": Case(setting(evaluate={"models": ["knnn"]}), USAGE, ("knnn", "Did you mean 'knn'?")),
    "unknown metric": Case(
        setting(evaluate={"models": [{"name": "knn", "metrics": "acuracy"}]}), USAGE, ("'acuracy'", "Did you mean")
    ),
    "unknown model parameter": Case(
        setting(evaluate={"models": [{"name": "ridge", "alfa": 1}]}),
        USAGE,
        ("evaluate.models.0.alfa", "Did you mean 'alpha'?"),
    ),
    "unknown task": Case(data(task="ranking"), USAGE, ("'data.task'", "'classification'")),
    "methods that are a word": Case(setting(methods="FisherScore"), USAGE, ("'methods'", "methods is a list")),
    "method without a name": Case(setting(methods=[{"label": "x"}]), USAGE, ("'methods.0.name' is missing",)),
    "data that is text": Case(setting(data="X.npy"), USAGE, ("'data'", "Keys should stand here, such as source")),
    "no data": Case(lambda _, job: job.pop("data"), USAGE, ("key 'data' is missing",)),
    "no output": Case(lambda _, job: job.pop("output"), USAGE, ("key 'output' is missing",)),
    "NUL in a path": Case(setting(output={"path": "a\0b"}), USAGE, ("NUL character", "'a\\x00b'")),
    "graph that is missing": Case(
        setting(methods=["LaplacianScore"], graph={"precomputed": "@/gone.npz"}), INPUT, ("gone.npz does not exist",)
    ),
    "graph that is none": Case(
        setting(methods=["LaplacianScore"], graph={"precomputed": "@/X.npy"}), INPUT, ("X.npy is not a graph",)
    ),
    # the job file
    "job file of bytes": Case(job_text(bytes(range(256))), USAGE, ("job.yaml is not YAML",)),
    "job file in UTF-16": Case(job_text("data: x".encode("utf-16")), USAGE, ("job.yaml is not YAML", "utf-8")),
    "job file in Latin-1": Case(job_text(b"data: \xe4"), USAGE, ("job.yaml is not YAML", "utf-8")),
    "job file with a NUL": Case(job_text("data: a\0b"), USAGE, ("job.yaml is not YAML", "#x0000")),
    "job file of one word": Case(job_text("hello"), USAGE, ("job.yaml must hold keys", "'hello'")),
    "job file of two documents": Case(job_text("a: 1\n---\nb: 2\n"), USAGE, ("another document in line 2",)),
    "job file with a tab": Case(job_text("data:\n\tsource: x\n"), USAGE, ("is not YAML", "line 2, column 1")),
    "job file with a key twice": Case(job_text("data: {}\ndata: {}\n"), USAGE, ("key 'data' is there twice", "line 2")),
    "job file with a list as a key": Case(job_text("? [a]\n: 1\n"), USAGE, ("unhashable key in line 1",)),
    "job file with a date that is none": Case(job_text("data: 2020-13-41"), USAGE, ("month must be in 1..12",)),
    "job file with a number of 5000 digits": Case(
        job_text(f"data: {'9' * 5000}"), USAGE, ("is not YAML", "5000 digits")
    ),
    "job file with a number by sixties": Case(job_text(f"data: {'59:' * 3000}59"), USAGE, ("bits is too large",)),
    "job file nested too deep": Case(job_text("data: " + "[" * 5000), USAGE, ("more than 50 deep",)),
    "job file nested a bit too deep": Case(job_text("data: " + "[" * 99 + "]" * 99), USAGE, ("more than 50 deep",)),
    "job file that holds itself": Case(job_text("data: &a {source: *a}"), USAGE, ("an alias stands for something",)),
    "job file of aliases": Case(job_text(bomb()), USAGE, ("its aliases repeat",)),
    "job file of merge keys": Case(job_text(merged(1001)), USAGE, ("its merge keys repeat", "in line 999")),
    "job file with an object": Case(job_text("data: !!python/object:os.x {}"), USAGE, ("is not YAML", "python/object")),
    "job file that is a directory": Case(
        lambda folder, _: (folder / "job.yaml").mkdir(), USAGE, ("cannot read the job file", "Is a directory")
    ),
    # --set
    "override without a value": Case(nothing, USAGE, ("--set graph: write key=value",), (*RUN, "--set", "graph")),
    "override without a key": Case(nothing, USAGE, ("--set =5: write key=value",), (*RUN, "--set", "=5")),
    "override of an unknown key": Case(nothing, USAGE, ("unknown key 'graph.k'",), (*RUN, "--set", "graph.k=5")),
    "override that is no YAML": Case(nothing, USAGE, ("'[' is not a YAML value",), (*RUN, "--set", "methods=[")),
    "override below a value": Case(
        nothing, USAGE, ("'data.source' holds a value",), (*RUN, "--set", "data.source.x=1")
    ),
    "override of a list's entry that is none": Case(
        nothing, USAGE, ("'methods' is a list of 2", "'7'"), (*RUN, "--set", "methods.7.name=x")
    ),
    "override that is infinite": Case(nothing, USAGE, ("'graph.t'",), (*RUN, "--set", "graph.t=.inf")),
    "override by aliases": Case(nothing, USAGE, ("is not a YAML value",), (*RUN, "--set", "methods=&a [*a]")),
    # arguments
    "no verb of that name": Case(nothing, USAGE, ("No such command 'rum'", "--help"), ("rum",)),
    "no job file": Case(nothing, USAGE, ("Missing argument 'JOB'", "run --help"), ("run",)),
    "two job files": Case(nothing, USAGE, ("unexpected extra argument", "run --help"), ("run", "a", "b")),
    "unknown option": Case(
        nothing, USAGE, ("No such option", "--fast", "plan --help"), ("plan", "@/job.yaml", "--fast")
    ),
    "option without its value": Case(nothing, USAGE, ("'--set' requires an argument",), ("run", "@/job.yaml", "--set")),
    "negative workers": Case(
        nothing, USAGE, ("'--workers'", "0"), ("convert", "@/X.npy", "@/t.zarr", "--workers", "-1")
    ),
    "workers that are no number": Case(
        nothing, USAGE, ("'--workers'", "integer"), ("convert", "@/X.npy", "@/t.zarr", "--workers", "few")
    ),
    "memory that is none": Case(
        nothing,
        USAGE,
        ("'memory_limit'", "'-1GiB' is not a size"),
        ("convert", "@/X.npy", "@/t.zarr", "--workers", "0", "--memory-limit=-1GiB"),
    ),
    "methods of something": Case(nothing, USAGE, ("unexpected extra argument",), ("methods", "LaplacianScore")),
    "schema of something": Case(nothing, USAGE, ("unexpected extra argument",), ("schema", "job")),
    "inspect nothing": Case(nothing, USAGE, ("Missing argument",), ("inspect",)),
    "inspect an unknown task": Case(
        nothing, USAGE, ("'data.task'", "'guess'"), ("inspect", "@/X.npy", "--task", "guess")
    ),
    "inspect labels that do not fit": Case(
        separate_file("labels", np.zeros(7)),
        INPUT,
        ("7 values", "30 rows"),
        ("inspect", "@/X.npy", "--labels", "@/labels.npy"),
    ),
    "convert with an unknown column": Case(
        nothing, INPUT, ("data.exclude", "'z'"), ("convert", "@/X.npy", "@/t.zarr", "--workers", "0", "--exclude", "z")
    ),
    "verify nothing": Case(nothing, USAGE, ("Missing argument",), ("verify",)),
    "verify a directory of something else": Case(nothing, INPUT, ("daskfs",), ("verify", "@")),
    "verify a file": Case(nothing, INPUT, ("X.npy",), ("verify", "@/X.npy")),
    "verify what is not there": Case(nothing, INPUT, ("gone",), ("verify", "@/gone")),
    "verify with no threads": Case(nothing, USAGE, ("'--threads'",), ("verify", "@", "--threads", "0")),
    "status of what is not there": Case(nothing, INPUT, ("gone is not a daskfs run",), ("status", "@/gone")),
    "report of a file": Case(nothing, INPUT, ("X.npy is not a daskfs run",), ("report", "@/X.npy")),
    # comparing
    "study without data sets": Case(study(datasets={}), USAGE, ("'datasets'",), ("compare", "@/job.yaml")),
    "study of a list": Case(study(datasets=["a"]), USAGE, ("datasets names data sets",), ("compare", "@/job.yaml")),
    "study with an unknown key": Case(study(data={}), USAGE, ("unknown key 'data'",), ("compare", "@/job.yaml")),
    "study with a name that leaves it": Case(
        study(datasets={"../x": "sklearn:iris"}), USAGE, ("data set label '../x'",), ("compare", "@/job.yaml")
    ),
    "study of a data set of one number": Case(
        study(datasets={"a": 5}), USAGE, ("key 'datasets.a'", "got 5"), ("compare", "@/job.yaml")
    ),
    "study without its files": Case(
        study(datasets={"mine": "@/gone.npy"}), INPUT, ("gone.npy does not exist",), ("compare", "@/job.yaml")
    ),
    "study and another": Case(study(), USAGE, ("leave out",), ("compare", "@/job.yaml", "@/job.yaml")),
    "compare runs into nowhere": Case(nothing, USAGE, ("is no study file", "--output"), ("compare", "@", "@")),
    "compare what are no runs": Case(
        nothing, INPUT, ("is not a daskfs run",), ("compare", "@/a", "@/b", "--output", "@/c")
    ),
}


def parameters() -> list[Any]:
    return [pytest.param(case, id=name) for name, case in CASES.items()]


@pytest.mark.parametrize("case", parameters())
def test_refused(tmp_path: Path, case: Case) -> None:
    job = basic_job(tmp_path)
    case.spoil(tmp_path, job)
    if not (tmp_path / "job.yaml").exists():
        write_job(tmp_path, job)
    outcome = daskfs(*(argument.replace("@", str(tmp_path)) for argument in case.arguments))
    refused(outcome, case.code, *case.parts)
    assert not list(tmp_path.rglob("ranking.csv"))
    for manifest in tmp_path.rglob("run.json"):
        assert '"done"' not in manifest.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("write", "name"),
    [
        pytest.param(npy(matrix()), "X.npy", id="npy"),
        pytest.param(npz(matrix()), "X.npz", id="npz"),
        pytest.param(sparse(matrix()), "X.npz", id="sparse"),
        pytest.param(parquet(matrix()), "X.parquet", id="parquet"),
        pytest.param(zarr_array(matrix()), "X.zarr/c/1/0", id="chunk of Zarr 3"),
        pytest.param(zarr_array(matrix()), "X.zarr/zarr.json", id="metadata of Zarr 3"),
        pytest.param(zarr_array(matrix(), 2), "X.zarr/1.0", id="chunk of Zarr 2"),
        pytest.param(zarr_array(matrix(), 2), "X.zarr/.zarray", id="metadata of Zarr 2"),
    ],
)
def test_a_file_cut_anywhere(tmp_path: Path, write: Spoil, name: str) -> None:
    job = basic_job(tmp_path)
    write(tmp_path, job)
    whole = (tmp_path / name).read_bytes()
    for length in sorted({0, 1, *range(6, len(whole), max(1, len(whole) // 8)), len(whole) - 1}):
        (tmp_path / name).write_bytes(whole[:length])
        refused(daskfs("run", write_job(tmp_path, job), "-q", "--overwrite"), INPUT, name.split("/", maxsplit=1)[0])
        assert not list(tmp_path.rglob("ranking.csv"))


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 200


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


@pytest.mark.parametrize("verb", ["run", "plan"])
def test_data_in_place_of_a_job(tmp_path: Path, verb: str) -> None:
    for name in ("sklearn:iris", *(str(tmp_path / f"X{ending}") for ending in (*READERS, ".zarr") if ending != ".txt")):
        refused(daskfs(verb, name), USAGE, f"{name} is data, and no job file: 'daskfs rank {name}'")


@pytest.mark.parametrize("verb", [["rank"], ["inspect"], ["init"], ["convert", "tiles.zarr"]])
def test_a_job_in_place_of_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    job = write_job(tmp_path, basic_job(tmp_path))
    refused(daskfs(verb[0], job, *verb[1:]), INPUT, f"{job} is a job file, and no data: 'daskfs run {job}' runs it")


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


def test_another_job_names_the_keys_that_differ_and_their_values(finished: tuple[Path, bytes]) -> None:
    job, ranking = finished
    changes = ["--set", "select.n_features=1", "--set", "graph.n_neighbors=3", "--set", "methods=[FisherScore]"]
    keys = (
        "these keys differ: graph.n_neighbors: 5 -> 3; methods: [VarianceScore, FisherScore] -> [FisherScore]; "
        "select.n_features: null -> 1."
    )
    refused(daskfs("run", job, "-q", *changes), INPUT, "holds a run of another job", keys, "--overwrite")
    changes = ["--set", "methods.1={name: LaplacianScore, t: 2}", "--set", "evaluate={n_selected: 2}"]
    keys = "methods.1.name: FisherScore -> LaplacianScore; methods.1.t: unset -> 2."
    refused(daskfs("run", job, "-q", *changes), INPUT, "differ: evaluate: null -> {", "...", keys)
    several = {"t": 1, "recall": 0.9, "weights": "binary", "random_state": 1, "n_neighbors": 4, "self_loops": True}
    changes = [part for key, value in several.items() for part in ("--set", f"graph.{key}={value}")]
    refused(daskfs("run", job, "-q", *changes), INPUT, "n_neighbors: 5 -> 4; ", "graph.t: mean -> 1.0; and 1 more.")
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
        at_once = ("--set", "cluster.wait_seconds=.1")
        outcome = daskfs("run", job, "-q", *at_once)
        refused(outcome, CLUSTER, "another daskfs process is running in", "run", "output.path")
        target = ("convert", tmp_path / "X.npy", tmp_path / "run", "--workers", 0, "-q")
        refused(daskfs(*target), CLUSTER, "another daskfs process is running in")
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
    refused(daskfs("inspect", tmp_path / "X.npy", "--task", "guess"), USAGE, "'data.task'", "'guess'")
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
    refused(daskfs("convert", tmp_path / "X.npy", tmp_path / "a", *small), USAGE, "memory_limit is 10 MiB")
    assert daskfs("convert", tmp_path / "X.npy", tmp_path / "t.zarr", *options).code == 0
    refused(daskfs("convert", tmp_path / "t.zarr", tmp_path / "b", *options), INPUT, "already is a tile store")
    np.save(tmp_path / "Z.npy", matrix() * 2)
    refused(
        daskfs("convert", tmp_path / "Z.npy", tmp_path / "t.zarr", *options), INPUT, "else than tiles of these data"
    )
    np.save(tmp_path / "N.npy", spoilt(2, 1, np.nan))
    refused(daskfs("convert", tmp_path / "N.npy", tmp_path / "n", *options), INPUT, "column 1", "row 2")
    refused(
        daskfs("inspect", tmp_path / "n"),
        INPUT,
        f"the tile store {tmp_path / 'n'} is not finished (unfinished: process ",
    )


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
