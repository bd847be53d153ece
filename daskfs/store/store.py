"""A store: named arrays and small objects under one root, on disk or in memory, and the records of finished units."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import shutil
import stat
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from daskfs.errors import DamagedError, StoreError
from daskfs.store import layout
from daskfs.store.arrays import MADE_AGAIN, Array, ChunkedArray, count_bytes, create_zarr, open_zarr, stored_checksum
from daskfs.store.writing import remove, try_to_remove, writing

DELETE_ATTEMPTS = 5
MAX_OPENED = 1024
"""Arrays that are kept open; a loop opens others in every round."""
FACTS = "facts"
METADATA = "zarr.json"
UNFINISHED_WRITE = re.compile(r"\..+\.\d+\.\d+\.tmp|.+\.[0-9a-f]{32}\.partial")
"""Names that :meth:`Store.write_bytes` and Zarr give to what they have not put in place yet."""
_PARSING = threading.Lock()
"""NumPy parses headers with ``ast``, which fails in several threads at a time (python/cpython#106905)."""
Outputs = dict[Path, int | None]
"""Paths that a unit wrote, with the CRC-32 of small objects, None for chunks, which end in their own."""


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
        path, metadata = self.path(name), self.path(name) / METADATA
        clipped = tuple(max(1, min(c, s)) for c, s in zip(chunks, shape, strict=True))
        if metadata.exists() and self._fits(path, shape, dtype, clipped):
            self._note_object(metadata)
            return
        self._opened.pop(name, None)
        # where the metadata alone are lost, chunks stay: their units' records say whether they belong here
        create_zarr(path, shape, dtype, clipped, overwrite=metadata.exists())
        self._note_object(metadata)

    @staticmethod
    def _fits(path: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...]) -> bool:
        try:
            array = open_zarr(path)
        except StoreError:
            remove(path / METADATA)
            return False
        return bool(array.shape == shape and array.dtype == np.dtype(dtype) and array.chunks == chunks)

    def open(self, name: str) -> Array:
        """Return an array of the store; :class:`StoreError` when it is not there."""
        if self.root is None:
            return self._memory[name]
        found = self._opened.get(name)
        if found is None:
            found = ChunkedArray(self.path(name), self._array_at(self.path(name)), self._note)
            for oldest in list(self._opened)[: len(self._opened) + 1 - MAX_OPENED]:
                self._opened.pop(oldest, None)
            self._opened[name] = found
        return found

    @staticmethod
    def _array_at(path: Path) -> Any:
        try:
            return open_zarr(path)
        except StoreError as error:
            try_to_remove(path / METADATA)
            msg = f"{str(error).removesuffix('.')}. {MADE_AGAIN}"
            raise DamagedError(msg, [path / METADATA]) from error

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
        temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with temporary.open("wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                if path.is_dir():  # nobody but us writes here
                    remove(path)
                temporary.replace(path)
            except BaseException:  # a part of it would take room on a disk that is full, and nobody would look for it
                temporary.unlink(missing_ok=True)
                raise
        self._note([path], zlib.crc32(data))

    def append_line(self, name: str, text: str) -> None:
        """Add a line to a log on disk; one before it that was cut off when its writer ended stays a line of its own."""
        path = self.path(name)
        with writing(path), path.open("ab+") as file:
            end = file.seek(0, os.SEEK_END)
            if end:
                file.seek(end - 1)
            is_cut = bool(end) and file.read(1) != b"\n"
            file.write((b"\n" if is_cut else b"") + text.encode() + b"\n")

    def read_bytes(self, name: str) -> bytes | None:
        """Return a small object, or None when it is not there."""
        if self.root is None:
            return self._objects.get(name)
        try:
            return self.path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError as error:
            msg = f"{self.url}/{name} is damaged: it is a directory."
            raise self._damaged(name, msg) from error

    def write_json(self, name: str, value: Any) -> None:
        """Write an object as JSON with sorted keys."""
        self.write_bytes(name, json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode())

    def read_json(self, name: str, kind: type = dict) -> Any:
        """Return a JSON object, or a list where that is the `kind`, None when it is not there; :class:`DamagedError`
        when it is damaged.
        """
        data = self.read_bytes(name)
        if data is None:
            return None
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as error:
            msg = f"{self.url}/{name} is damaged: {error}"
            raise self._damaged(name, msg) from error
        if not isinstance(found, kind):
            msg = f"{self.url}/{name} is damaged: it holds {'a list' if isinstance(found, list) else 'no object'}."
            raise self._damaged(name, msg)
        return found

    def need_json(self, name: str, kind: type = dict) -> Any:
        """Return a JSON object that a stage before has written; :class:`DamagedError` when it is missing or damaged."""
        found = self.read_json(name, kind)
        if found is None:
            msg = f"{self.url}/{name} is missing: {MADE_AGAIN}"
            raise self._damaged(name, msg)
        return found

    def _damaged(self, name: str, message: str) -> DamagedError:
        return DamagedError(message, [] if self.root is None else [self.path(name)])

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
            raise self._damaged(name, missing)
        try:
            file = self.path(name).open("rb")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._damaged(name, missing) from error
        except IsADirectoryError as error:
            msg = f"{self.url}/{name} is damaged: it is a directory."
            raise self._damaged(name, msg) from error
        try:
            with file, _PARSING, np.load(file, allow_pickle=False) as found:
                arrays = {key.removeprefix("a-"): found[key] for key in found.files if key != FACTS}
                facts: dict[str, Any] = json.loads(found[FACTS].tobytes())
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            msg = f"{self.url}/{name} is damaged: {error}"
            raise self._damaged(name, msg) from error
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

    def remove_unfinished(self) -> None:
        """Delete what processes that were killed had written beside its place and never put there."""
        assert self.root is not None
        for folder, _, names in os.walk(self.root):
            for name in names:
                if UNFINISHED_WRITE.fullmatch(name):
                    with suppress(OSError):  # it costs room, nothing else
                        Path(folder, name).unlink()

    # ----------------------------------------------------------------- records
    def _note_object(self, path: Path) -> None:
        if getattr(self._written, "paths", None) is not None:
            self._note([path], zlib.crc32(path.read_bytes()))

    def _note(self, paths: list[Path], checksum: int | None = None) -> None:
        written = getattr(self._written, "paths", None)
        if written is not None:
            written.update(dict.fromkeys(paths, checksum))

    @contextmanager
    def noting_outputs(self) -> Iterator[Outputs]:
        """Collect the paths that this thread writes."""
        self._written.paths = {}
        try:
            yield self._written.paths
        finally:
            self._written.paths = None

    def write_record(self, stage: str, unit: int, fingerprint: str, outputs: Outputs, facts: dict[str, Any]) -> None:
        """Record a finished unit; called after everything it wrote is in place."""
        root = self.root
        found: dict[str, dict[str, list[int]]] = {"chunks": {}, "objects": {}}
        if root is not None:
            for path, checksum in sorted(outputs.items()):
                kind, stored = ("chunks", stored_checksum(path)) if checksum is None else ("objects", checksum)
                found[kind][str(path.relative_to(root))] = [path.stat().st_size, stored]
        whose = {"stage": stage, "unit": unit, "fingerprint": fingerprint}
        self.write_json(layout.record_name(stage, unit), {**whose, **found, **facts})

    def read_record(self, stage: str, unit: int) -> dict[str, Any] | None:
        """Return a unit's record, None when there is none or it is damaged."""
        try:
            record = self.read_json(layout.record_name(stage, unit))
        except StoreError:
            return None
        return record if isinstance(record, dict) else None

    def need_record(self, stage: str, unit: int) -> dict[str, Any]:
        """Return the record of a unit that is done; :class:`DamagedError` when it is missing or damaged."""
        return dict(self.need_json(layout.record_name(stage, unit)))

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
        if record is None or (record.get("fingerprint"), record.get("unit")) != (fingerprint, unit):
            return False
        return self.root is None or next(self._lost_outputs(record, layout.record_name(stage, unit)), None) is None

    def lost(self, stage: str, unit: int, fingerprint: str) -> list[str]:
        """Return the names of what a unit with a record of the same inputs wrote and what is not there as recorded; of
        the record itself where it is damaged. None of a unit that never was done.
        """
        name = layout.record_name(stage, unit)
        try:
            record = self.read_json(name)
        except DamagedError:
            return [name]
        if record is None or self.root is None:
            return []
        if not isinstance(record, dict) or record.get("unit") != unit:
            return [name]
        return list(self._lost_outputs(record, name)) if record.get("fingerprint") == fingerprint else []

    def _lost_outputs(self, record: dict[str, Any], own_name: str) -> Iterator[str]:
        chunks, objects = record.get("chunks"), record.get("objects")
        if not isinstance(chunks, dict) or not isinstance(objects, dict):  # a record that daskfs did not write
            yield own_name
            return
        for name, stated in chunks.items():
            if not self._is_as_recorded(name, stated, look_inside=False):
                yield name
        for name, stated in objects.items():
            if not self._is_as_recorded(name, stated, look_inside=True):
                yield name

    def _is_as_recorded(self, name: str, stated: Any, *, look_inside: bool) -> bool:
        try:
            size, checksum = stated
            status = self.path(name).stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                return False
            return not look_inside or zlib.crc32(self.path(name).read_bytes()) == checksum
        except (OSError, TypeError, ValueError):  # it is not there, or daskfs did not write the record
            return False
