"""A store: named arrays and small objects under one root, on disk, in an object store or in memory, and the records of
finished units.
"""

from __future__ import annotations

import copy
import io
import json
import math
import re
import threading
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any, Literal

import numpy as np

from daskfs.errors import DamagedError, StoreError
from daskfs.places import (
    ObjectPath,
    Place,
    each,
    files_below,
    name_below,
    open_whole,
    put,
    read_buffer,
    remove,
    says_nothing,
    sizes,
)
from daskfs.store import layout
from daskfs.store.arrays import (
    CHECKSUM_BYTES,
    MADE_AGAIN,
    METADATA,
    Array,
    ChunkedArray,
    Written,
    count_bytes,
    counted_bytes,
    open_zarr,
    zarr_document,
)
from daskfs.store.writing import try_to_remove, writing

DELETE_ATTEMPTS = 5
MAX_OPENED = 4096
"""Arrays that are kept open, 3 kB each; a loop opens others in every round. A unit that searches a group opens four of
each unit before it.
"""
MAX_CHUNK_BYTES = 2**30
"""Largest chunk of an array that one unit owns; Blosc takes less than 2**31 bytes."""
CUT_BYTES = 2**26
"""Chunks of what is larger: reading takes one of them beside the array."""
FACTS = "facts"
NPY_START = 10
"""Bytes before the header of an array in ``.npy`` format 1.0; the last two are its length."""
NPY_PIECE = 2**18
UNFINISHED_WRITE = re.compile(r"\..+\.\d+\.\d+\.tmp|.+\.[0-9a-f]{32}\.partial")
"""Names that :meth:`Store.write_bytes` and Zarr give to what they have not put in place yet."""
LOOKED_AT = 4096
"""Units whose outputs are looked at together in an object store."""


@dataclass(frozen=True)
class Output:
    """What a unit wrote at a path: size and checksum, which of a chunk is the CRC-32C at its end, else the CRC-32 of
    all. None for a chunk on disk, which is asked when the unit is recorded.
    """

    kind: Literal["chunks", "objects"]
    written: Written | None


Outputs = dict[Place, Output]
Record = dict[str, Any]


class Store:
    """Arrays, small objects and records under one root.

    Parameters
    ----------
    root
        Directory or URL, or None for a store that lives in this process only; its arrays are NumPy arrays and nothing
        is written.
    """

    def __init__(self, root: Place | None) -> None:
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

    def path(self, name: str) -> Place:
        """Return the path of a name; not of a store in memory."""
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
        document = zarr_document(shape, np.dtype(dtype), clipped)
        found = self._document(metadata)
        array = None if found is None else self._described(path, found)
        if array is None or (array.shape, array.dtype, array.chunks) != (shape, np.dtype(dtype), clipped):
            self._opened.pop(name, None)
            with writing(path):
                # where the metadata alone are lost, chunks stay: their units' records say whether they belong here
                if array is not None:
                    remove(path)
                put(metadata, document, synced=False)
            found = document
        assert found is not None
        self._note({metadata: Output("objects", (len(found), zlib.crc32(found)))})

    @staticmethod
    def _document(metadata: Place) -> bytes | None:
        try:
            return metadata.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except IsADirectoryError:
            remove(metadata)
            return None

    @staticmethod
    def _described(path: Place, document: bytes) -> Any:
        """Return the array that metadata describe, None where nobody can read them."""
        try:
            return open_zarr(path, document)
        except StoreError:
            return None

    def open(self, name: str) -> Array:
        """Return an array of the store; :class:`StoreError` when it is not there."""
        if self.root is None:
            return self._memory[name]
        found = self._opened.get(name)
        if found is None:
            found = ChunkedArray(self.path(name), self._array_at(self.path(name)), self._note_chunks)
            for oldest in list(self._opened)[: len(self._opened) + 1 - MAX_OPENED]:
                self._opened.pop(oldest, None)
            self._opened[name] = found
        return found

    def read_each(self, parts: Iterable[tuple[str, Any]], part_bytes: int = 1) -> Iterator[np.ndarray]:
        """Yield what selections of arrays hold, in their order; in an object store, while those that follow are read,
        as many as `part_bytes` of each allow (:func:`daskfs.places.each`).
        """

        def read(part: tuple[str, Any]) -> tuple[np.ndarray, int]:
            with counted_bytes() as counted:
                return self.open(part[0])[part[1]], counted.read

        for values, n_bytes in each(self.root, read, parts, part_bytes):
            count_bytes(read=n_bytes)
            yield values

    @staticmethod
    def _array_at(path: Place) -> Any:
        try:
            return open_zarr(path)
        except StoreError as error:
            try_to_remove(path / METADATA)
            msg = f"{str(error).removesuffix('.')}. {MADE_AGAIN}"
            raise DamagedError(msg, [path / METADATA]) from error

    def put_array(self, name: str, values: np.ndarray, chunks: tuple[int, ...] | None = None) -> None:
        """Store a whole array that one unit owns, of any size."""
        self.create(name, values.shape, values.dtype, _cut(chunks or values.shape, values.dtype.itemsize))
        if values.size:
            self.open(name)[...] = values

    # ----------------------------------------------------------------- objects
    def write_bytes(self, name: str, data: bytes | memoryview) -> None:
        """Write a small object so that readers see the old one or the new one, never a part."""
        if self.root is None:
            self._objects[name] = bytes(data)
            return
        path = self.path(name)
        with writing(path):
            put(path, data)
        self._note({path: Output("objects", (len(data), zlib.crc32(data)))})

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
        named: dict[str, Any] = {f"a-{key}": np.asarray(values, order="C") for key, values in arrays.items()}
        kinds = {key: [values.dtype.str, values.shape] for key, values in named.items()}
        text = json.dumps({"facts": facts or {}, "arrays": kinds}, sort_keys=True, allow_nan=False).encode()
        buffer = io.BytesIO()
        named[FACTS] = np.frombuffer(text, np.uint8)
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
            file = open_whole(self.path(name))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise self._damaged(name, missing) from error
        except IsADirectoryError as error:
            msg = f"{self.url}/{name} is damaged: it is a directory."
            raise self._damaged(name, msg) from error
        try:
            with file, zipfile.ZipFile(file) as archive:
                told = json.loads(_values_of(archive, FACTS))
                arrays = {
                    key.removeprefix("a-"): np.frombuffer(_values_of(archive, key), np.dtype(kind)).reshape(shape)
                    for key, (kind, shape) in told["arrays"].items()
                }
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            msg = f"{self.url}/{name} is damaged: {error}"
            raise self._damaged(name, msg) from error
        count_bytes(read=sum(values.nbytes for values in arrays.values()))
        return arrays, told["facts"]

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
                remove(path)
                return
            except OSError:  # a worker that the cluster has given up may still be writing there
                if attempt == DELETE_ATTEMPTS:
                    raise

    def remove_unfinished(self) -> None:
        """Delete what processes that were killed had written beside its place and never put there. Objects are put in
        place whole.
        """
        if not isinstance(self.root, Path):
            return
        for path in files_below(self.root):
            if UNFINISHED_WRITE.fullmatch(path.name):
                with suppress(OSError):  # it costs room, nothing else
                    path.unlink()

    # ----------------------------------------------------------------- records
    def _note_chunks(self, written: Mapping[Place, Written | None]) -> None:
        self._note({path: Output("chunks", known) for path, known in written.items()})

    def _note(self, outputs: Outputs) -> None:
        written = getattr(self._written, "paths", None)
        if written is not None:
            written.update(outputs)

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
            for path, output in outputs.items():
                known = output.written or _written_chunk(path)
                found[output.kind][name_below(path, root)] = list(known)
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

    def records(self, stage: str, units: Iterable[int]) -> Iterator[Record | None]:
        """Yield what :meth:`read_record` returns of some units, in their order."""
        return each(self.root, lambda unit: self.read_record(stage, unit), units)

    def need_records(self, stage: str, units: Iterable[int]) -> Iterator[Record]:
        """Yield what :meth:`need_record` returns of some units, in their order."""
        return each(self.root, lambda unit: self.need_record(stage, unit), units)

    def n_recorded(self, stage: str) -> int:
        """Return one more than the number of the last unit of a stage that has a record."""
        return max((unit + 1 for unit in self.recorded(stage)), default=0)

    def recorded(self, stage: str) -> Iterator[int]:
        """Yield the units of a stage that have a record, whatever it says, in no order."""
        names: Iterable[str]
        if self.root is None:
            names = (name for name in self._objects if name.startswith(layout.records_of(stage)))
        else:
            names = (path.name for path in self.path(layout.records_of(stage)).glob("*.json"))
        return (layout.recorded_unit(name) for name in names if layout.is_record(name))

    def is_done(self, stage: str, unit: int, fingerprint: str) -> bool:
        """Return whether a unit has a record of the same inputs and everything it wrote is there in the size recorded.

        Of arrays only the sizes of chunks are looked at: chunks carry checksums, and reading a damaged one removes it.
        """
        return not self.not_done(stage, [unit], fingerprint)

    def fresh_record(self, stage: str, unit: int, fingerprint: str) -> Record | None:
        """Return the record of a unit that has just ended elsewhere, None where it is not done as seen from here.

        What is put into an object store is there for all at once, and the record was put last: it says enough. A shared
        disk may show it before the rest.
        """
        record = self.read_record(stage, unit)
        if record is None or (record.get("fingerprint"), record.get("unit")) != (fingerprint, unit):
            return None
        is_seen = isinstance(self.root, ObjectPath) or not self._lost_outputs(stage, {unit: record})[unit]
        return record if is_seen else None

    def not_done(self, stage: str, units: Sequence[int], fingerprint: str) -> list[int]:
        """Return those of some units of a stage that are not done."""
        return [unit for unit, lost in self._examined(stage, units, fingerprint) if lost is None or lost]

    def lost(self, stage: str, units: Sequence[int], fingerprint: str) -> list[str]:
        """Return the names of what units with a record of the same inputs wrote and what is not there as recorded; of
        the record itself where it is damaged. None of a unit that never was done.
        """
        return [name for _, lost in self._examined(stage, units, fingerprint) for name in lost or ()]

    def _examined(self, stage: str, units: Sequence[int], fingerprint: str) -> Iterator[tuple[int, list[str] | None]]:
        """Yield units with what of them is lost, None for one that never was done.

        In an object store, many are looked at together: who asks for one after the other waits for each.
        """
        is_remote = isinstance(self.root, ObjectPath)
        n_together = LOOKED_AT if is_remote else 1
        known = set(self.recorded(stage)) if is_remote and len(units) > 1 else set(units)
        for start in range(0, len(units), n_together):
            some = units[start : start + n_together]
            lost: dict[int, list[str] | None] = dict.fromkeys(some)
            records = {}
            present = [unit for unit in some if unit in known]
            for unit, record in zip(
                present, each(self.root, lambda n: self._any_record(stage, n), present), strict=True
            ):
                if record is not None and record.get("unit") != unit:
                    lost[unit] = [layout.record_name(stage, unit)]
                elif record is not None and record.get("fingerprint") == fingerprint:
                    records[unit] = record
            yield from (lost | self._lost_outputs(stage, records)).items()

    def _any_record(self, stage: str, unit: int) -> Record | None:
        """Return a unit's record, an empty one where it is damaged, None where there is none."""
        try:
            return self.read_json(layout.record_name(stage, unit))
        except DamagedError:
            return {}

    def _lost_outputs(self, stage: str, records: Mapping[int, Record]) -> dict[int, list[str]]:
        """Return, by unit, the names of what is not there as its record says; the record's own where it makes no
        sense.
        """
        lost: dict[int, list[str]] = {unit: [] for unit in records}
        if self.root is None:
            return lost
        wanted: list[tuple[int, str, Any, bool]] = []
        for unit, record in records.items():
            chunks, objects = record.get("chunks"), record.get("objects")
            if isinstance(chunks, dict) and isinstance(objects, dict):
                wanted += [(unit, name, stated, False) for name, stated in chunks.items()]
                wanted += [(unit, name, stated, True) for name, stated in objects.items()]
            else:  # a record that daskfs did not write
                lost[unit] = [layout.record_name(stage, unit)]
        for unit, name, _, _ in [one for one in wanted if not _is_stated(one[2])]:
            lost[unit].append(name)
        wanted = [one for one in wanted if _is_stated(one[2])]
        found = sizes(self.root, [name for _, name, _, _ in wanted], whole=len(records) > 1)
        whole = [name for _, name, stated, is_object in wanted if is_object and found.get(name) == stated[0]]
        checksums = dict(zip(whole, each(self.root, self._checksum, whole), strict=True))
        for unit, name, (size, checksum), is_object in wanted:
            if found.get(name) != size or (is_object and checksums.get(name) != checksum):
                lost[unit].append(name)
        return lost

    def _checksum(self, name: str) -> int | None:
        """Return the CRC-32 of a small object, None where it is gone or cannot be read."""
        try:
            return zlib.crc32(read_buffer(self.path(name)))
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and says_nothing(self.root, error):
                raise
            return None


def _cut(chunks: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return a chunk shape, of fewer rows where such a chunk is too large for Blosc."""
    cut = list(chunks)
    if math.prod(cut) * itemsize > MAX_CHUNK_BYTES:
        for axis, size in enumerate(cut):
            others = math.prod(cut) // size * itemsize
            cut[axis] = min(size, max(1, CUT_BYTES // others))
    return tuple(cut)


def _values_of(archive: zipfile.ZipFile, name: str) -> bytearray:
    """Return the bytes of an array in C order. Its header is passed over: NumPy parses one with ``ast``, which fails
    when another thread, or what the garbage collector calls, does the same meanwhile (python/cpython#106905).
    """
    member = archive.getinfo(f"{name}.npy")
    with archive.open(member) as file:
        start = NPY_START + int.from_bytes(file.read(NPY_START)[-2:], "little")
        file.read(start - NPY_START)
        values = bytearray(member.file_size - start)
        filled = 0
        while filled < len(values):
            piece = file.read(min(NPY_PIECE, len(values) - filled))
            if not piece:
                raise EOFError(f"{member.filename} ends after {filled:,} of {len(values):,} bytes")
            values[filled : filled + len(piece)] = piece
            filled += len(piece)
    return values


def _is_stated(stated: Any) -> bool:
    """Return whether a record says size and checksum of an output; it may not be daskfs that wrote it."""
    return isinstance(stated, list) and len(stated) == 2


def _written_chunk(path: Place) -> Written:
    with path.open("rb") as file:
        size = file.seek(0, SEEK_END)
        file.seek(size - CHECKSUM_BYTES)
        return size, int.from_bytes(file.read(), "little")
