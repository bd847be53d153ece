"""Ways to spoil a job, its files and its output: each changes what :func:`tests.cli.command.basic_job` made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

from daskfs.store import documents
from tests.execution.runs import write_document

from .command import daskfs, labels, matrix

Job = dict[str, Any]
Spoil = Callable[[Path, Job], object]


def setting(**blocks: Any) -> Spoil:
    """Change whole blocks; ``@`` in text stands for the folder."""

    def spoil(folder: Path, job: Job) -> None:
        job.update(json.loads(json.dumps(blocks).replace("@", str(folder))))

    return spoil


def data(**keys: Any) -> Spoil:
    """Change keys of the data block."""

    def spoil(folder: Path, job: Job) -> None:
        job["data"].update(json.loads(json.dumps(keys).replace("@", str(folder))))

    return spoil


def spoilt(row: int, column: int, value: float) -> np.ndarray:
    X = matrix()
    X[row, column] = value
    return X


def npy(X: np.ndarray) -> Spoil:
    return lambda folder, _: np.save(folder / "X.npy", X)


def target(y: Any, **blocks: Any) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        np.save(folder / "y.npy", np.asarray(y))
        job.update(blocks)

    return spoil


def csv(X: np.ndarray, *, text: str | None = None, **keys: Any) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        lines = ["a,b,c,d,class", *(",".join(map(str, [*x, y])) for x, y in zip(X, labels(), strict=True))]
        content = "\n".join(lines).replace("nan", "") + "\n" if text is None else text
        (folder / "X.csv").write_text(content, encoding="utf-8")
        job["data"] = {"source": str(folder / "X.csv"), "labels": "class", **keys}

    return spoil


def parquet(X: np.ndarray) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        columns = {name: pa.array(X[:, i], from_pandas=True) for i, name in enumerate("abcd")}
        pq.write_table(pa.table({**columns, "class": labels()}), folder / "X.parquet", compression="none")
        job["data"] = {"source": str(folder / "X.parquet"), "labels": "class"}

    return spoil


def npz(X: np.ndarray) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        np.savez(folder / "X.npz", X=X, y=labels())
        job["data"] = {"source": str(folder / "X.npz"), "labels": "y"}

    return spoil


def sparse(X: np.ndarray) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        sp.save_npz(folder / "X.npz", sp.csr_array(X))
        job["data"]["source"] = str(folder / "X.npz")

    return spoil


def zarr_array(X: np.ndarray, version: int = 3) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        zarr.create_array(folder / "X.zarr", data=X, chunks=(8, 2), zarr_format=version)  # type: ignore[arg-type]
        job["data"]["source"] = str(folder / "X.zarr")

    return spoil


def cut(write: Spoil, name: str, keep: float) -> Spoil:
    """Cut off the end of a file that `write` wrote."""

    def spoil(folder: Path, job: Job) -> None:
        write(folder, job)
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return spoil


def converted(change: Callable[[Path], object]) -> Spoil:
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
        if name in documents.DOCUMENT_NAMES:
            write_document(folder / name, {**document, **values})
        else:
            (folder / name).write_text(json.dumps({**document, **values}), encoding="utf-8")

    return change


def of_another_version(store: Path) -> None:
    """Let a tile store say that another daskfs wrote it, which left no checksums of it."""
    edit("tiles.json", format_version=99)(store)
    (store / ".epoch").unlink()


def shorten(folder: Path) -> None:
    chunk = folder / "X" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-9])


def alter(folder: Path) -> None:
    chunk = folder / "X" / "c" / "0" / "0"
    content = bytearray(chunk.read_bytes())
    content[len(content) // 2] ^= 0xFF
    chunk.write_bytes(content)


def output(make: Callable[[Path], object]) -> Spoil:
    """Put something where the output goes."""
    return lambda folder, _: make(folder / "run")


def foreign(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("mine", encoding="utf-8")


def run_json(text: str) -> Spoil:
    def make(path: Path) -> None:
        path.mkdir()
        (path / "run.json").write_text(text, encoding="utf-8")

    return output(make)


def cluster(**keys: Any) -> Spoil:
    return setting(cluster={"wait_seconds": 1, **keys})


def scheduler_file(text: str) -> Spoil:
    def spoil(folder: Path, job: Job) -> None:
        (folder / "scheduler.json").write_text(text, encoding="utf-8")
        cluster(scheduler_file="@/scheduler.json")(folder, job)

    return spoil


def text(name: str, content: str | bytes, **keys: Any) -> Spoil:
    """Write a file and take it for the source, with more keys of the data block."""

    def spoil(folder: Path, job: Job) -> None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        job["data"] = json.loads(json.dumps({"source": f"@/{name}", **keys}).replace("@", str(folder)))
        job["methods"] = ["VarianceScore"]

    return spoil


def separate_file(key: str, content: str | bytes | Any, **blocks: Any) -> Spoil:
    """Write what a key of the data block names: an array, or text in a file of lines."""

    def spoil(folder: Path, job: Job) -> None:
        path = folder / (f"{key}.txt" if isinstance(content, str | bytes) else f"{key}.npy")
        if isinstance(content, str | bytes):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        else:
            np.save(path, np.asarray(content))
        job["data"][key] = str(path)
        job.update(blocks)

    return spoil


def folder_named(name: str, **keys: Any) -> Spoil:
    """Make a directory where a file should be."""

    def spoil(folder: Path, job: Job) -> None:
        (folder / name).mkdir()
        data(**keys)(folder, job)

    return spoil


def job_text(content: str | bytes) -> Spoil:
    """Write the job file itself."""

    def spoil(folder: Path, job: Job) -> None:
        del job
        written = content if isinstance(content, bytes) else content.replace("@", str(folder)).encode()
        (folder / "job.yaml").write_bytes(written)

    return spoil


def study(**blocks: Any) -> Spoil:
    """Write a study of one data set as the job file."""

    def spoil(folder: Path, job: Job) -> None:
        raw = {
            "datasets": {"mine": {"source": "@/X.npy", "labels": "@/y.npy"}},
            "methods": ["VarianceScore"],
            "cluster": {"workers": 0},
            "output": {"path": "@/study"},
            **blocks,
        }
        job.clear()
        job.update(json.loads(json.dumps(raw).replace("@", str(folder))))

    return spoil


def both(*spoils: Spoil) -> Spoil:
    """Do one after the other."""

    def spoil(folder: Path, job: Job) -> None:
        for one in spoils:
            one(folder, job)

    return spoil


def nothing(folder: Path, job: Job) -> None:
    """Leave everything as it is."""


def bomb() -> str:
    """Return YAML in which nine anchors stand for nine times the one before."""
    lines = ["a: &a [1]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines) + "\n"


def merged(n_mappings: int) -> str:
    """Return YAML in which each mapping merges the one before and has one key more."""
    links = [f"m{i}: &m{i} {{<<: *m{i - 1}, k{i}: 1}}" for i in range(1, n_mappings)]
    return "\n".join(["m0: &m0 {k0: 1}", *links]) + "\n"
