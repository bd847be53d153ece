"""Ways to write data that cannot be used. A maker writes below a directory and returns the spec to open."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
import zarr

from daskfs.sources import SourceSpec

X = np.arange(24.0).reshape(6, 4)
y = np.array([0, 1, 0, 1, 0, 1])

Make = Callable[[Path], SourceSpec]


def spec(path: Path, **fields: Any) -> SourceSpec:
    return SourceSpec(source=str(path), **fields)


def text(name: str, content: str | bytes, /, **fields: Any) -> Make:
    def make(folder: Path) -> SourceSpec:
        data = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(data)
        return spec(folder / name, **fields)

    return make


def npy(values: np.ndarray, /, **fields: Any) -> Make:
    def make(folder: Path) -> SourceSpec:
        np.save(folder / "X.npy", values)
        return spec(folder / "X.npy", **fields)

    return make


def npz(fields: dict[str, Any] | None = None, **members: Any) -> Make:
    def make(folder: Path) -> SourceSpec:
        np.savez(folder / "X.npz", **members)
        return spec(folder / "X.npz", **(fields or {}))

    return make


def array_bytes() -> bytes:
    stream = io.BytesIO()
    np.save(stream, X)
    return stream.getvalue()


def zipped_array() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("X.npy", array_bytes())
    return stream.getvalue()


def csr(**changes: Any) -> Make:
    matrix = sp.csr_matrix(X)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": X.shape}
    return npz(**{**parts, **changes})


def cut(make: Make, keep: float, file: str = "") -> Make:
    """Cut off the end of what `make` wrote."""

    def truncated(folder: Path) -> SourceSpec:
        made = make(folder)
        path = Path(made.source) / file
        data = path.read_bytes()
        path.write_bytes(data[: int(len(data) * keep)])
        return made

    return truncated


def damage(make: Make, position: float, file: str = "") -> Make:
    """Overwrite sixteen bytes within what `make` wrote."""

    def damaged(folder: Path) -> SourceSpec:
        made = make(folder)
        path = Path(made.source) / file
        data = bytearray(path.read_bytes())
        place = int(len(data) * position)
        data[place : place + 16] = b"\xff" * len(data[place : place + 16])
        path.write_bytes(bytes(data))
        return made

    return damaged


def deflated(folder: Path) -> SourceSpec:
    rng = np.random.default_rng(0)
    np.savez_compressed(folder / "X.npz", X=rng.integers(0, 9, size=(500, 4)).astype(float))
    return spec(folder / "X.npz")


def bzipped(folder: Path) -> SourceSpec:
    np.save(folder / "X.npy", X)
    with zipfile.ZipFile(folder / "X.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.write(folder / "X.npy", "X.npy")
    return spec(folder / "X.npz")


def parquet(**columns: Any) -> Make:
    fields = {key.removeprefix("spec_"): columns.pop(key) for key in list(columns) if key.startswith("spec_")}

    def make(folder: Path) -> SourceSpec:
        pq.write_table(pa.table(columns), folder / "X.parquet", compression="none")
        return spec(folder / "X.parquet", **fields)

    return make


def zarr_group(version: int, fields: dict[str, Any] | None = None, **arrays: np.ndarray) -> Make:
    def make(folder: Path) -> SourceSpec:
        group = zarr.open_group(folder / "X.zarr", mode="w", zarr_format=version)  # type: ignore[arg-type]
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=array.shape)
        return spec(folder / "X.zarr", **(fields or {}))

    return make


def edited_metadata(version: int, change: Callable[[dict[str, Any]], Any]) -> Make:
    def make(folder: Path) -> SourceSpec:
        made = zarr_group(version, X=X)(folder)
        file = folder / "X.zarr" / "X" / ("zarr.json" if version == 3 else ".zarray")
        document = json.loads(file.read_text())
        change(document)
        file.write_text(json.dumps(document))
        return made

    return make


def with_file(make: Make, name: str, content: str) -> Make:
    def made(folder: Path) -> SourceSpec:
        (folder / name).write_text(content)
        found = make(folder)
        return SourceSpec(
            source=found.source,
            array=found.array,
            labels=found.labels and found.labels.replace("@", str(folder)),
            feature_names=found.feature_names and found.feature_names.replace("@", str(folder)),
            exclude=found.exclude,
        )

    return made
