"""A store: named arrays and small objects under one root, on disk or in memory, and the records of finished units."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import StoreError
from daskfs.store import layout
from daskfs.store.arrays import Array, ChunkedArray, count_bytes, create_zarr, open_zarr

DELETE_ATTEMPTS = 5
MAX_OPENED = 1024
"""Arrays that are kept open; a loop opens others in every round."""
FACTS = "facts"
Outputs = dict[Path, int | None]
"""Paths that a unit wrote, with the CRC-32 of small objects."""


class Store:
    """Arrays, small objects and records under one root.

    Parameters
    ----------
    root
        Directory, or None for a store that lives in this process only; its arrays are NumPy arrays and nothing is
        written.
    """

    def __init__(self, root: Path | None) -> None:
        self.root = root
        self._memory: dict[str, np.ndarray] = {}
        self._objects: dict[str, bytes] = {}
        self._together: dict[str, tuple[dict[str, np.ndarray], dict[str, Any]]] = {}
        self._opened: dict[str, ChunkedArray] = {}
        self._written = threading.local()

    @property
    def url(self) -> str:
        """Where the store lies, for messages and for opening it elsewhere."""
        return str(self.root) if self.root is not None else "memory"

    def path(self, name: str) -> Path:
        """Return the path of a name; only for stores on disk."""
        assert self.root is not None
        return self.root / name

    # ------------------------------------------------------------------ arrays
    def create(self, name: str, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> None:
        """Make sure that an array with this shape, dtype and chunk shape exists, replacing one that differs."""
        if self.root is None:
            self._memory[name] = np.zeros(shape, dtype)
            return
        path = self.path(name)
        clipped = tuple(max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True))
        if (path / "zarr.json").exists() and self._fits(path, shape, dtype, clipped):
            return
        self._opened.pop(name, None)
        create_zarr(path, shape, dtype, clipped)
        self._note([path / "zarr.json"])

    @staticmethod
    def _fits(path: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> bool:
        try:
            array = open_zarr(path)
        except StoreError:  # damaged metadata: made anew
            return False
        return bool(array.shape == shape and array.dtype == np.dtype(dtype) and array.chunks == chunks)

    def open(self, name: str) -> Array:
        """Return an array of the store; :class:`StoreError` when it is not there."""
        if self.root is None:
            return self._memory[name]
        found = self._opened.get(name)
        if found is None:
            found = ChunkedArray(self.path(name), open_zarr(self.path(name)), self._note)
            for oldest in list(self._opened)[: len(self._opened) + 1 - MAX_OPENED]:
                self._opened.pop(oldest, None)
            self._opened[name] = found
        return found

    def put_array(self, name: str, values: np.ndarray, chunks: tuple[int, ...] | None = None) -> None:
        """Store a whole array that one unit owns."""
        self.create(name, values.shape, values.dtype, chunks or values.shape)
        if values.size:
            self.open(name)[...] = values

    # ----------------------------------------------------------------- objects
    def write_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Write a small object so that readers see the old one or the new one, never a part."""
        if self.root is None:
            self._objects[name] = bytes(data)
            return
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        self._note([path], zlib.crc32(data))

    def read_bytes(self, name: str) -> bytes | None:
        """Return a small object, or None when it is not there."""
        if self.root is None:
            return self._objects.get(name)
        try:
            return self.path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write_json(self, name: str, value: Any) -> None:
        """Write an object as JSON with sorted keys."""
        self.write_bytes(name, json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode())

    def read_json(self, name: str) -> Any:
        """Return a JSON object, None when it is not there; :class:`StoreError` when it is damaged."""
        data = self.read_bytes(name)
        if data is None:
            return None
        try:
            return json.loads(data)
        except ValueError as error:
            msg = f"{self.url}/{name} is damaged: {error}"
            raise StoreError(msg) from error

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any] | None = None) -> None:
        """Write arrays that are small, and facts beside them, as one object; they cost one file instead of one folder
        each.
        """
        count_bytes(written=sum(values.nbytes for values in arrays.values()))
        if self.root is None:  # to pack and unpack them takes longer than a round of few rows
            self._together[name] = (
                {key: values.copy() for key, values in arrays.items()},
                copy.deepcopy(dict(facts or {})),
            )
            return
        text = json.dumps(facts or {}, sort_keys=True, allow_nan=False).encode()
        named: dict[str, Any] = {FACTS: np.frombuffer(text, np.uint8)}
        named |= {f"a-{key}": values for key, values in arrays.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **named)
        self.write_bytes(name, buffer.getbuffer())

    def read_arrays(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Return what :meth:`write_arrays` wrote; :class:`StoreError` when it is not there or damaged."""
        if name in self._together:
            held, known = self._together[name]
            count_bytes(read=sum(values.nbytes for values in held.values()))
            return {key: values.copy() for key, values in held.items()}, copy.deepcopy(known)
        missing = f"{self.url}/{name} is missing."
        if self.root is None:
            raise StoreError(missing)
        try:
            file = self.path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(missing) from error
        try:
            with file, np.load(file, allow_pickle=False) as found:
                arrays = {key.removeprefix("a-"): found[key] for key in found.files if key != FACTS}
                facts: dict[str, Any] = json.loads(found[FACTS].tobytes())
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            msg = f"{self.url}/{name} is damaged: {error}"
            raise StoreError(msg) from error
        count_bytes(read=sum(values.nbytes for values in arrays.values()))
        return arrays, facts

    def delete(self, name: str) -> None:
        """Delete an object, an array or everything below a name; nothing happens when it is not there."""
        held: tuple[dict[str, Any], ...] = (self._objects, self._together, self._memory, self._opened)
        for names in held:
            for known in [known for known in names if known == name or known.startswith(f"{name}/")]:
                del names[known]
        if self.root is None:
            return
        path = self.path(name)
        for attempt in range(1, DELETE_ATTEMPTS + 1):
            try:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
                return
            except OSError:  # a worker that the cluster has given up may still be writing there
                if attempt == DELETE_ATTEMPTS:
                    raise

    # ----------------------------------------------------------------- records
    def _note(self, paths: list[Path], checksum: int | None = None) -> None:
        written = getattr(self._written, "paths", None)
        if written is not None:
            written.update(dict.fromkeys(paths, checksum))

    @contextmanager
    def noting_outputs(self) -> Iterator[Outputs]:
        """Collect the paths that this thread writes, with a CRC-32 of small objects; chunks carry their own."""
        self._written.paths = {}
        try:
            yield self._written.paths
        finally:
            self._written.paths = None

    def write_record(self, stage: str, unit: int, fingerprint: str, outputs: Outputs, facts: dict[str, Any]) -> None:
        """Record a finished unit; called after everything it wrote is in place."""
        root = self.root
        sizes: dict[str, list[int | None]] = {}
        if root is not None:
            sizes = {str(p.relative_to(root)): [p.stat().st_size, checksum] for p, checksum in sorted(outputs.items())}
        self.write_json(layout.record_name(stage, unit), {"fingerprint": fingerprint, "outputs": sizes, **facts})

    def read_record(self, stage: str, unit: int) -> dict[str, Any] | None:
        """Return a unit's record, None when there is none or it is damaged."""
        try:
            record = self.read_json(layout.record_name(stage, unit))
        except StoreError:
            return None
        return record if isinstance(record, dict) else None

    def n_recorded(self, stage: str) -> int:
        """Return one more than the number of the last unit of a stage that has a record."""
        names: Iterable[str]
        if self.root is None:
            names = (name for name in self._objects if name.startswith(layout.records_of(stage)))
        else:
            folder = self.path(layout.records_of(stage))
            names = (path.name for path in folder.glob("*.json")) if folder.is_dir() else ()
        return max((layout.recorded_unit(name) + 1 for name in names), default=0)

    def is_done(self, stage: str, unit: int, fingerprint: str) -> bool:
        """Return whether a unit has a record of the same inputs and everything it wrote is there in the size recorded.

        Of arrays only the sizes of chunks are looked at: chunks carry checksums, and reading a damaged one removes it.
        """
        record = self.read_record(stage, unit)
        if record is None or record.get("fingerprint") != fingerprint:
            return False
        if self.root is None:
            return True
        return all(self._is_whole(self.root / name, *found) for name, found in record.get("outputs", {}).items())

    @staticmethod
    def _is_whole(path: Path, size: int, checksum: int | None) -> bool:
        try:
            if path.stat().st_size != size:
                return False
            return checksum is None or zlib.crc32(path.read_bytes()) == checksum
        except FileNotFoundError:
            return False
