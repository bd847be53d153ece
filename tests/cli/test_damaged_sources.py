"""Sources that lost or changed bytes in a way that a read of rows does not see."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from daskfs import FisherScore
from daskfs.errors import InputError
from daskfs.sources import SourceSpec, open_source

from .command import basic_job, daskfs, labels, matrix, refused, texts, told, write_job

COLUMNS = ("labels", "groups", "weights", "times", "batch")
STORED = ("zarr 2", "zarr 3", "shards")


def zarr_group(folder: Path, form: str) -> Path:
    """Write X and per-sample columns in three chunks (or shards) of ten rows each."""
    path = folder / "s.zarr"
    group = zarr.open_group(path, mode="w", zarr_format=2 if form == "zarr 2" else 3)
    values = {name: labels() + 1 for name in COLUMNS} | {"times": np.arange(30), "X": matrix()}
    for name, array in values.items():
        rest = array.shape[1:]
        rows, shards = (5, (10, *rest)) if form == "shards" else (10, None)
        group.create_array(name, data=array, chunks=(rows, *rest), shards=shards)
    return path


def remove_chunks(array: Path, *rows: int) -> None:
    for row in rows:
        names = {f"{row}", f"{row}.0", f"c/{row}", f"c/{row}/0"}
        (found,) = [file for file in array.rglob("*") if str(file.relative_to(array)) in names and file.is_file()]
        found.unlink()


@pytest.mark.parametrize("form", STORED)
def test_absent_chunks_of_x_are_told_by_every_verb(form: str, tmp_path: Path) -> None:
    path, unit = zarr_group(tmp_path, form), "shards" if form == "shards" else "chunks"
    remove_chunks(path / "X", 1)
    warning = f"1 of 3 {unit} of {path / 'X'} are absent and read as 0: restore them if the copy is incomplete"
    job = write_job(tmp_path, basic_job(tmp_path, data={"source": str(path), "labels": "labels"}))
    outcome = daskfs("run", job, "-q")
    assert (outcome.code, told(outcome)) == (0, f"daskfs: warning: {warning}.\n")
    assert warning in texts(json.loads((tmp_path / "run" / "run.json").read_text()))
    assert daskfs("inspect", path, "--json").json["warnings"][0] == warning
    converted = daskfs("convert", path, tmp_path / "tiles", "--workers", "0", "-q", "--json")
    assert converted.json["warnings"][0] == warning
    again = write_job(
        tmp_path, basic_job(tmp_path, data={"source": str(tmp_path / "tiles")}, methods=["VarianceScore"])
    )
    assert warning in daskfs("run", again, "-q", "--overwrite").err


@pytest.mark.parametrize("form", STORED)
@pytest.mark.parametrize("key", COLUMNS)
def test_absent_chunks_of_columns_are_refused_unless_all_are(form: str, key: str, tmp_path: Path) -> None:
    path = zarr_group(tmp_path, form)
    assert not [
        text for text in daskfs("inspect", path, f"--{key}", key, "--json").json["warnings"] if "absent" in text
    ]
    remove_chunks(path / key, 1)
    outcome = daskfs("inspect", path, f"--{key}", key)
    unit, first = "shards" if form == "shards" else "chunks", "1" if form == "zarr 2" else "c/1"
    refused(outcome, 3, f"1 of 3 {unit} of {path / key}", f"the first of which is {first}:", "write_empty_chunks")
    remove_chunks(path / key, 0, 2)
    if key == "times":
        (warning, *_) = daskfs("inspect", path, "--times", key, "--json").json["warnings"]
        assert warning.startswith(f"3 of 3 {unit} of {path / key} are absent")


def test_chunks_outside_the_grid_do_not_count(tmp_path: Path) -> None:
    """A shortened array may keep files of its former chunks, and a copy may bring files of its own."""
    path = zarr_group(tmp_path, "zarr 3")
    remove_chunks(path / "X", 1)
    for name in ("c/3/0", "c/1/1", "c/01/0", "c/1", ".DS_Store"):
        file = path / "X" / name
        if not file.is_dir():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"0")
    (warning, *_) = daskfs("inspect", path, "--json").json["warnings"]
    assert warning.startswith("1 of 3 chunks")


def flip(path: Path, member: str) -> None:
    """Flip a bit of the last value of a member, which is stored without compression."""
    with zipfile.ZipFile(path) as archive:
        entry = archive.getinfo(f"{member}.npy")
    data = bytearray(path.read_bytes())
    start = entry.header_offset + 30 + int.from_bytes(data[entry.header_offset + 26 :][:2], "little")
    start += int.from_bytes(data[entry.header_offset + 28 :][:2], "little")
    data[start + entry.file_size - 8] ^= 1
    path.write_bytes(data)


MEMBERS = {
    **dict.fromkeys(("X", *COLUMNS), False),
    "feature_names": False,
    "row_names": False,
    **dict.fromkeys(("data", "indices", "indptr", "shape"), True),
}


@pytest.mark.parametrize(("member", "is_sparse"), MEMBERS.items())
def test_a_flipped_bit_of_a_stored_member_is_found(member: str, is_sparse: bool, tmp_path: Path) -> None:
    values: dict[str, Any] = {name: labels() + 1 for name in COLUMNS}
    values |= {"feature_names": np.array(list("abcd")), "row_names": np.arange(30).astype(str)}
    if is_sparse:
        sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(matrix()), compressed=False)
    else:
        np.savez(tmp_path / "X.npz", allow_pickle=False, X=matrix(), **values)
    flip(tmp_path / "X.npz", member)
    data = {"source": str(tmp_path / "X.npz")}
    keys = {member: member} if member in values else {}
    job = write_job(tmp_path, basic_job(tmp_path, data=data | keys, methods=["VarianceScore"]))
    outcome = daskfs("run", job, "-q")
    refused(outcome, 3, f"{tmp_path / 'X.npz'}:{member} is damaged: Bad CRC-32")
    assert not (tmp_path / "run" / "ranking.csv").exists()
    if member == "X":
        with pytest.raises(InputError, match=r"X\.npz:X is damaged: Bad CRC-32"):
            FisherScore(1).fit(tmp_path / "X.npz", labels())
        assert "X.npz:X is damaged" in daskfs("inspect", tmp_path / "X.npz").err


@pytest.mark.parametrize("key", ["labels", "row_names", "graph"])
def test_a_flipped_bit_of_a_file_beside_the_source_is_found(key: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "side.npz", X=matrix() if key == "graph" else labels())
    flip(tmp_path / "side.npz", "X")
    job = basic_job(tmp_path, methods=["LaplacianScore"])
    if key == "graph":
        job["graph"] = {"use_rep": str(tmp_path / "side.npz")}
    else:
        job["data"][key] = f"{tmp_path / 'side.npz'}:X"
    refused(daskfs("run", write_job(tmp_path, job), "-q"), 3, "side.npz:X is damaged: Bad CRC-32")


@pytest.mark.parametrize("code", [0x110000, 0xD800, 0xDFFF])
@pytest.mark.parametrize("form", ["npy", "npz", "zarr"])
def test_text_beyond_unicode_is_refused_by_row(code: int, form: str, tmp_path: Path) -> None:
    text, names = np.array(["u", "vw"] * 15), np.array(["a", "b", "c", "d"])
    text.view(np.uint32)[3] = names.view(np.uint32)[1] = code
    if form == "zarr":
        group = zarr.open_group(tmp_path / "X.zarr", mode="w", zarr_format=2)
        for name, values in (("X", matrix()), ("text", text), ("names", names)):
            group.create_array(name, data=values)
    elif form == "npz":
        np.savez(tmp_path / "X.npz", X=matrix(), text=text, names=names)
    else:
        np.save(tmp_path / "X.npy", matrix())
        np.save(tmp_path / "text.npy", text)
    source, told_of = tmp_path / f"X.{form}", tmp_path / "text.npy" if form == "npy" else "text"
    for key in ("labels", "groups", "batch", "row_names"):
        outcome = daskfs("inspect", source, f"--{key.replace('_', '-')}", told_of)
        refused(outcome, 3, "text", "in row 1 that is not valid Unicode")
    if form != "npy":
        refused(daskfs("inspect", source, "--feature-names", "names"), 3, "names has text in row 1 that is not valid")
        (column,) = daskfs("inspect", source, "--json").json["columns"]
        assert (column["name"], column["type"]) == ("text", "unreadable")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):  # names of sockets are short
        made.bind(path.name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [fifo, device, unix_socket, Path.mkdir])
def test_what_is_no_file_is_refused_by_name(make: Callable[[Path], None], tmp_path: Path) -> None:
    """None of these is waited for or read without an end: as a source, a job file, a file beside it, or a chunk."""
    make(tmp_path / "none.csv")
    wanted = str(tmp_path / "none.csv")
    for verb in ("run", "plan"):
        refused(daskfs(verb, wanted), 2, wanted)
    refused(daskfs("inspect", wanted), 3, wanted)
    np.save(tmp_path / "X.npy", matrix())
    for option in ("--labels", "--groups", "--row-names", "--feature-names"):
        refused(daskfs("inspect", tmp_path / "X.npy", option, wanted), 3, wanted)
    job = basic_job(tmp_path, select={"n_features": 2, "redundancy": {"groups": wanted, "max_per_group": 1}})
    refused(daskfs("plan", write_job(tmp_path, job)), 2, wanted)
    path = zarr_group(tmp_path, "zarr 3")
    for name in ("labels/c/2", "X/c/1/0", "X/zarr.json"):
        (path / name).unlink()
        make(path / name)
        refused(daskfs("inspect", path, "--labels", "labels", "--array", "X"), 3, str(path))


def test_a_chunk_that_became_a_pipe_after_planning(tmp_path: Path) -> None:
    path = zarr_group(tmp_path, "zarr 3")
    source = open_source(SourceSpec(source=str(path), labels="labels"))
    (path / "X" / "c" / "1" / "0").unlink()
    os.mkfifo(path / "X" / "c" / "1" / "0")
    with pytest.raises(InputError, match="c/1/0 is a pipe, a device or a socket"):
        source.read_rows(0, 30)


def test_a_job_file_without_an_end_in_sight(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"#" * (17 << 20))
    refused(daskfs("run", tmp_path / "job.yaml"), 2, "job.yaml", "more than 16 MiB")


def test_text_of_parquet_that_is_not_utf8(tmp_path: Path) -> None:
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"u\xff", b"v"], pa.binary()).buffers())
    pq.write_table(pa.table({"a": [1.0, 2.0], "text": text}), tmp_path / "X.parquet")
    for options in ((), ("--labels", "text"), ("--row-names", "text")):
        refused(daskfs("inspect", tmp_path / "X.parquet", *options), 3, "X.parquet: column 'text'", "not valid Unicode")
