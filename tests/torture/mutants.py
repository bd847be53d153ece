"""Mutated files of every source: what ``inspect`` says of them, and whether X is what other readers find."""

from __future__ import annotations

import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
import zarr
from sklearn.datasets import load_svmlight_file

from daskfs.errors import DaskfsError
from daskfs.job.job import make_data
from daskfs.runs.inspection import inspect_data
from daskfs.storage import as_path
from tests.optional import h5py
from tests.sources.writers import KINDS, labels, matrix
from tests.torture.corruption import CONTENTS
from tests.torture.trials import FAULTS, StuckError, Trial, limited

MAX_SHOWN = 5000
"""Maximum number of bytes of a mutated file that are shown of a fault."""
HEAP, HEAP_BYTES = b"GCOL", 4096
"""Begin and size of a global heap of HDF5, which is not mutated: the library itself (HDF5 2.0, also through h5py) reads
one that holds an object of size 0 for ever, and no signal of Python interrupts it.
"""
OF_TEXT = ("csv", "tsv", "txt", "svmlight", "libsvm", "mtx", "mtx-shuffled", "mtx-array", "mtx-array-transposed")
TOKENS = (
    b"nan",
    b"inf",
    b"-",
    b"1e999",
    b"9007199254740993",
    b'"',
    b"\n",
    b",",
    b"\t",
    b"\x00",
    b"\xff",
    b"\\",
    b" ",
    b"0",
)
"""What is put into text; numbers that float64 does not hold among it."""


def _token(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice(TOKENS) + data[place + draw.randrange(3) :]


def _slice(data: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.randrange(1, 40))


def _without(data: bytes, draw: random.Random) -> bytes:
    start, stop = _slice(data, draw)
    return data[:start] + data[stop:]


def _twice(data: bytes, draw: random.Random) -> bytes:
    start, stop = _slice(data, draw)
    return data[:stop] + data[start:]


def _several(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randrange(2, 9)):
        data = CONTENTS["a flipped bit"](data, draw)
    return data


MUTATIONS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    **CONTENTS,
    "a token": _token,
    "bytes left out": _without,
    "bytes twice": _twice,
    "several bits": _several,
}


# ------------------------------------------------------------------------------------------------------- other readers
def _hdf5(name: str) -> Callable[[Path], Any]:
    def read(path: Path) -> Any:
        with h5py.File(path) as file:
            if isinstance(found := file[name], h5py.Dataset):
                return found[:]
            parts = [found[part][:] for part in ("data", "indices", "indptr")]
            kind, shape = found.attrs.get("encoding-type", "csr_matrix"), found.get("shape", found.attrs.get("shape"))
            return {"csr_matrix": sp.csr_array, "csc_matrix": sp.csc_array}[kind](tuple(parts), shape=tuple(shape[:]))

    return read


def _table(path: Path, **options: Any) -> Any:
    return pd.read_csv(path, float_precision="round_trip", **options).drop(columns=["id", "y"]).to_numpy()


def _parquet(path: Path) -> Any:
    table = pq.read_table(path, use_threads=False)
    kept = [place for place, name in enumerate(table.column_names) if name not in ("y", "e")]
    return np.stack([table.column(place).cast(pa.float64()).to_numpy() for place in kept], axis=1)


def _csr_parts(path: Path) -> Any:
    with np.load(path) as found:
        return sp.csr_array((found["data"], found["indices"], found["indptr"]), shape=found["shape"])


OTHERS: dict[str, Callable[[Path], Any]] = {
    **dict.fromkeys(("npy", "npy-fortran", "npy-big-endian"), np.load),
    "npz": lambda path: np.load(path)["X"],
    "npz-deflated": lambda path: np.load(path)["values"],
    "csr-parts": _csr_parts,
    **dict.fromkeys(("csr-scipy", "csc-scipy"), sp.load_npz),
    "csv": _table,
    **dict.fromkeys(("tsv", "txt"), lambda path: _table(path, delimiter="\t")),
    **dict.fromkeys(("parquet", "parquet-float32"), _parquet),
    **dict.fromkeys(("zarr2", "zarr3", "zarr3-shards"), lambda path: zarr.open_group(path, mode="r")["X"][:]),  # type: ignore[index]
    "zarr-array": lambda path: zarr.open_array(path, mode="r")[:],
    **dict.fromkeys(("hdf5", "hdf5-big-endian"), _hdf5("X")),
    "hdf5-csr": _hdf5("group"),
    "h5ad-csr": _hdf5("X"),
    "h5ad-dense": _hdf5("layers/dense"),
    "h5ad-csc": _hdf5("layers/csc"),
    **dict.fromkeys(("svmlight", "libsvm"), lambda path: load_svmlight_file(str(path))[0]),
    **dict.fromkeys(("mtx", "mtx-shuffled", "mtx-array"), lambda path: scipy.io.mmread(path, spmatrix=False)),
    **dict.fromkeys(("mtx-transposed", "mtx-array-transposed"), lambda path: scipy.io.mmread(path, spmatrix=False).T),
}
"""Readers of X by kind of source, of the libraries that wrote it; the other kinds are only read."""


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)


def trials(folder: Path, number: int, seed: int) -> Iterator[Trial]:
    """Yield as many trials of files of all kinds, drawn by a seed."""
    draw = random.Random(seed)
    names: dict[str, str] = {}
    for place in range(number):
        kind = list(KINDS)[place % len(KINDS)]
        if kind not in names:
            (folder / kind).mkdir(parents=True)
            names[kind] = KINDS[kind].write(folder / kind, matrix(), labels())
        yield _trial(folder / kind, kind, names[kind], draw)


def _trial(folder: Path, kind: str, name: str, draw: random.Random) -> Trial:
    path = draw.choice(sorted(one for one in folder.rglob("*") if one.is_file()))
    whole = path.read_bytes()
    heaps = [whole[start : start + HEAP_BYTES] for start in range(len(whole)) if whole.startswith(HEAP, start)]
    mutant, how = b"", ""
    while not how or not all(heap in mutant for heap in heaps):
        how = draw.choice(list(MUTATIONS))
        mutant = MUTATIONS[how](whole, draw)
    path.write_bytes(mutant)
    try:
        with limited(20), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome, detail = _outcome(folder, kind, name)
    except StuckError:
        outcome, detail = "stuck", ""
    except Exception:  # noqa: BLE001 - whatever a reader lets through
        outcome, detail = "traceback", traceback.format_exc()
    mutated = path.read_bytes()
    path.write_bytes(whole)
    if outcome in FAULTS:
        detail = f"{path.relative_to(folder)} {how}, {mutated[:MAX_SHOWN]!r}: {detail}"
    return Trial(kind, kind, how, outcome, detail)


def _outcome(folder: Path, kind: str, name: str) -> tuple[str, str]:
    """Return what becomes of mutated data, and what is wrong with that."""
    fields = {
        key: [*value] if isinstance(value, tuple) else value
        for key, value in KINDS[kind].fields(as_path(folder)).items()
    }
    try:
        inspect_data(make_data({"source": str(folder / name), "missing": "mean", **fields}))
        source = KINDS[kind].open(as_path(folder), name)
        X = _dense(source.read_rows(0, source.info.n_samples))
        source.read_labels()
        source.verify()
    except DaskfsError as error:
        is_named = str(error).startswith(("labels ", "X has ")) or any(
            str(one.relative_to(folder)) in str(error) for one in [folder / name, *folder.rglob("*")]
        )
        return ("refused", "") if is_named else ("wrong", f"no file is named: {error}")
    if kind not in OTHERS:
        return ("same" if np.array_equal(X, matrix()) else "told"), ""
    try:
        other, again = (_dense(OTHERS[kind](folder / name)) for _ in range(2))
    except Exception as error:  # noqa: BLE001 - whatever other readers refuse
        return "told", f"others refuse it: {error!r}"
    if other.shape != again.shape or not np.array_equal(other, again, equal_nan=True):
        return "told", "others read memory that is not of the file"
    if X.shape == other.shape and kind in OF_TEXT:  # whole numbers that float64 does not hold are missing
        other[np.isnan(X) & (np.abs(other) >= 2**53)] = np.nan
    if X.shape != other.shape or not np.array_equal(X, other, equal_nan=True):
        return "wrong", f"other values than others read: {X.shape}, {other.shape}"
    return ("same" if np.array_equal(X, matrix()) else "told"), ""
