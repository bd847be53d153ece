"""Sources that lost or changed bytes in a way that a read of rows does not see."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from daskfs import FisherScore
from daskfs.errors import InputError

from .command import basic_job, daskfs, labels, matrix, refused, told, write_job

COLUMNS = ("labels", "groups", "weights", "times", "batch")
STORED = {"zarr 2": {"zarr_format": 2}, "zarr 3": {"zarr_format": 3}, "shards": {"shards": (10,)}}


def zarr_group(folder: Path, form: str) -> Path:
    """Write X and per-sample columns in three chunks (or shards) of ten rows each."""
    options: dict[str, Any] = dict(STORED[form])
    path, shards = folder / "s.zarr", options.pop("shards", None)
    group = zarr.open_group(path, mode="w", **options)
    values = {name: labels() + 1 for name in COLUMNS} | {"times": np.arange(30), "X": matrix()}
    for name, array in values.items():
        rest = array.shape[1:]
        cut = {"chunks": (10, *rest)} if shards is None else {"chunks": (5, *rest), "shards": (*shards, *rest)}
        group.create_array(name, data=array, **cut)
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
    assert warning in json.loads((tmp_path / "run" / "run.json").read_text())["warnings"]
    assert daskfs("inspect", path, "--json").json["warnings"] == [warning]
    converted = daskfs("convert", path, tmp_path / "tiles", "--workers", "0", "-q", "--json")
    assert converted.json["warnings"] == [warning]
    again = write_job(
        tmp_path, basic_job(tmp_path, data={"source": str(tmp_path / "tiles")}, methods=["VarianceScore"])
    )
    assert warning in daskfs("run", again, "-q", "--overwrite").err


@pytest.mark.parametrize("form", STORED)
@pytest.mark.parametrize("key", COLUMNS)
def test_absent_chunks_of_columns_are_refused_unless_all_are(form: str, key: str, tmp_path: Path) -> None:
    path = zarr_group(tmp_path, form)
    assert daskfs("inspect", path, f"--{key}", key, "--json").json["warnings"] == []
    remove_chunks(path / key, 1)
    outcome = daskfs("inspect", path, f"--{key}", key)
    unit, first = "shards" if form == "shards" else "chunks", "1" if form == "zarr 2" else "c/1"
    refused(outcome, 3, f"1 of 3 {unit} of {path / key}", f"the first of which is {first}:", "write_empty_chunks")
    remove_chunks(path / key, 0, 2)
    if key == "times":
        (warning,) = daskfs("inspect", path, "--times", key, "--json").json["warnings"]
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
    (warning,) = daskfs("inspect", path, "--json").json["warnings"]
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
    values = {name: labels() + 1 for name in COLUMNS}
    values |= {"feature_names": np.array(list("abcd")), "row_names": np.arange(30).astype(str)}
    if is_sparse:
        sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(matrix()), compressed=False)
    else:
        np.savez(tmp_path / "X.npz", X=matrix(), **values)
    flip(tmp_path / "X.npz", member)
    data = {"source": str(tmp_path / "X.npz")}
    keys = {member: member} if member in values else {}
    job = write_job(tmp_path, basic_job(tmp_path, data=data | keys, methods=["VarianceScore"]))
    outcome = daskfs("run", job, "-q")
    refused(outcome, 3, f"{tmp_path / 'X.npz'}:{member} is damaged: Bad CRC-32")
    assert not (tmp_path / "run" / "ranking.csv").exists()
    if member == "X":
        with pytest.raises(InputError, match="X.npz:X is damaged: Bad CRC-32"):
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
