"""Objects of an object store as paths."""

from __future__ import annotations

import errno
import io
import itertools
import os
import stat
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, overload

from daskfs.errors import InputError
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials, redact_credentials
from daskfs.storage.clients import as_os_errors, client_of, pause, with_retries

SCHEMES = ("s3://", "gs://", "az://")
EXTRA = "object"
BUFFER_BYTES = 2**22
"""Bytes per request of an object that is read sequentially."""
PIECE_BYTES = 2**21
PIECES_AT_ONCE = 8
"""Reads of more than a piece take several concurrent requests: a single one is dominated by latency."""
PART_BYTES = 2**23
"""Bytes per part of an object that is written block by block; stores take at most 10,000 parts."""
PARTS_AT_ONCE = 3
AT_ONCE = 16
"""Maximum number of concurrent requests."""
AHEAD_BYTES = 2**25
"""Bytes of objects that are prefetched."""
LISTED = 1000
"""Names per listing or deletion request."""
Fill = Callable[[Iterable[tuple[int, memoryview]]], None]
"""Function that fills buffers with bytes from given offsets of a file; ``EOFError`` if the file is too short."""
Tag = tuple[str | None, str | None]
"""ETag and version of an object; some stores compare the first, some the second."""
TAG_KEYS = ("e_tag", "version")
T = TypeVar("T")
R = TypeVar("R")


# ------------------------------------------------------------------------------------------------------ concurrency
_inside = threading.local()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    mark = partial(setattr, _inside, "pool", True)  # noqa: FBT003 - setattr takes no keywords
    return ThreadPoolExecutor(AT_ONCE, "daskfs-objects", mark)


def map_ordered(function: Callable[[T], R], items: Iterable[T], at_once: int = AT_ONCE) -> Iterator[R]:
    """Map a function over items in threads, in order, `at_once` calls at a time.

    Nested calls run sequentially: threads of one pool would wait for each other.
    """
    if getattr(_inside, "pool", False):
        yield from map(function, items)
        return
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(_threads().submit(function, item))
            if len(waiting) >= at_once:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


# --------------------------------------------------------------------------------------------------------------- paths
@dataclass(frozen=True)
class ObjectStatus:
    """Metadata of an object, like the result of :meth:`pathlib.Path.stat`.

    Stores record the second of a change; the nanoseconds of `st_mtime_ns` are a hash of the object's tag.
    """

    st_size: int
    st_mtime_ns: int
    st_mode: int = stat.S_IFREG

    @property
    def st_mtime(self) -> float:
        """Time of the last change, in seconds since 1970."""
        return self.st_mtime_ns / 1e9


def is_url(name: object) -> bool:
    """Return whether a name is the URL of an object or a bucket."""
    return isinstance(name, str) and name.startswith(SCHEMES)


@dataclass(frozen=True, order=True, repr=False, slots=True)
class ObjectPath:
    """Path of an object, or of a prefix of object names.

    Parameters
    ----------
    root
        ``scheme://bucket``.
    key
        Name within the bucket, without a slash at either end; empty for the bucket.
    """

    root: str
    key: str = ""

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """Return the path of a URL; raise :class:`InputError` if it is invalid or obstore is not installed."""
        if has_credentials(url):
            msg = f"{redact_credentials(url)}: {CREDENTIALS_BELONG}."
            raise InputError(msg)
        if find_spec("obstore") is None:
            msg = f"{url} is read and written by the package obstore: pip install 'daskfs[{EXTRA}]'."
            raise InputError(msg)
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        if not bucket:
            msg = f"{url} names no bucket: write {scheme}://BUCKET/NAME."
            raise InputError(msg)
        parts = [part for part in key.split("/") if part not in ("", ".")]
        if ".." in parts:
            msg = f"{url} holds '..', which means nothing in an object store."
            raise InputError(msg)
        return cls(f"{scheme}://{bucket}", "/".join(parts))

    # ------------------------------------------------------------------------------------------------------------ name
    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __truediv__(self, name: str | PurePosixPath) -> ObjectPath:
        added = [part for part in str(name).split("/") if part not in ("", ".")]
        if ".." in added:
            msg = f"{name} leads out of {self}."
            raise ValueError(msg)
        return ObjectPath(self.root, "/".join([*self._parts, *added]))

    @property
    def _parts(self) -> list[str]:
        return self.key.split("/") if self.key else []

    @property
    def parts(self) -> tuple[str, ...]:
        """The bucket, and the parts of the name."""
        return (self.root, *self._parts)

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self._parts[-1] if self.key else ""

    @property
    def suffix(self) -> str:
        """The last part's extension, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The last part without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> ObjectPath:
        """The path without its last part; a bucket is its own parent."""
        return ObjectPath(self.root, "/".join(self._parts[:-1]))

    def with_name(self, name: str) -> ObjectPath:
        """Return the path with another last part."""
        return self.parent / name

    def is_relative_to(self, other: object) -> bool:
        """Return whether this is below another path, or is that path."""
        return isinstance(other, ObjectPath) and self.parts[: len(other.parts)] == other.parts

    def relative_to(self, other: ObjectPath) -> PurePosixPath:
        """Return the name below another path; raise ``ValueError`` if it is not below it."""
        if not self.is_relative_to(other):
            msg = f"{self} does not lie in {other}."
            raise ValueError(msg)
        return PurePosixPath(*self.parts[len(other.parts) :])

    def resolve(self) -> ObjectPath:
        """Return the path itself."""
        return self

    # -------------------------------------------------------------------------------------------- metadata and listing
    def stat(self) -> ObjectStatus:
        """Return size and time of the object; raise ``FileNotFoundError`` if it does not exist."""
        if not self.key:
            raise FileNotFoundError(errno.ENOENT, "a bucket is no object", str(self))
        return with_retries(self, lambda: _status(client_of(self.root).head(self.key)))

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether any object is below this name."""
        return next(iter(self._listed(1)), None) is not None

    def exists(self) -> bool:
        """Return whether there is an object of this name, or anything below it."""
        return self.is_file() or self.is_dir()

    def _listed(self, at_once: int = LISTED) -> Iterator[Mapping[str, Any]]:
        # the prefix ends where a name does: "a/b" lists what is in "a/b/", and not "a/bc"
        prefix, last = f"{self.key}/" if self.key else None, None
        begun = time.monotonic()
        for attempt in itertools.count(1):
            try:
                with as_os_errors(self):
                    for found in client_of(self.root).list(prefix, offset=last, chunk_size=at_once):
                        yield from found
                        last = found[-1]["path"]
                return
            except OSError as error:
                pause(error, attempt, begun)

    def objects(self) -> Iterator[tuple[ObjectPath, ObjectStatus]]:
        """Yield all objects below this name with their metadata, one request per thousand."""
        for found in self._listed():
            yield ObjectPath(self.root, found["path"]), _status(found)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the direct children of this name; raise ``FileNotFoundError`` if it has none."""
        prefix = f"{self.key}/" if self.key else None
        found = with_retries(self, lambda: client_of(self.root).list_with_delimiter(prefix))
        names = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        if not names:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(self))
        for name in names:
            yield ObjectPath(self.root, str(name).strip("/"))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield the direct children of this name that match a pattern of one part."""
        with suppress(FileNotFoundError):
            yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    # ------------------------------------------------------------------------------------------------ reading, writing
    def read_bytes(self) -> bytes:
        """Return the object."""
        return bytes(self.read_buffer())

    def read_buffer(self) -> memoryview:
        """Return the object without a copy."""
        return memoryview(with_retries(self, lambda: client_of(self.root).get(self.key).bytes()))

    def read_range(self, start: int, stop: int) -> memoryview:
        """Return bytes ``start:stop`` of the object, fewer if it ends before `stop`; ``EOFError`` if before `start`."""
        found = with_retries(self, lambda: client_of(self.root).get_range(self.key, start=start, end=stop))
        return memoryview(found)

    def fill(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers with bytes from given offsets, see :data:`Fill`."""
        pieces = [
            (offset + begin, view[begin : begin + PIECE_BYTES])
            for offset, view in parts
            for begin in range(0, len(view), PIECE_BYTES)
        ]
        if len(pieces) < 2:
            for piece in pieces:
                self._fill_piece(piece)
            return
        largest = max(len(view) for _, view in pieces)
        for _ in map_ordered(self._fill_piece, pieces, min(AT_ONCE, PIECES_AT_ONCE * PIECE_BYTES // largest)):
            pass

    def _fill_piece(self, piece: tuple[int, memoryview]) -> None:
        offset, view = piece
        found = self.read_range(offset, offset + len(view))
        if len(found) < len(view):
            msg = f"{self} ended while it was being read"
            raise EOFError(msg)
        view[:] = found

    def zarr_store(self) -> Any:
        """Return the Zarr store of the array or group at this path."""
        from zarr.storage import ObjectStore, StorePath

        # a path within the client of the bucket: one client for each array would share no connection
        return StorePath(ObjectStore(client_of(self.root)), self.key)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the object as text."""
        return self.read_bytes().decode(encoding)

    @overload
    def open(
        self, mode: str = "r", buffering: int = -1, encoding: None = None, newline: str | None = None
    ) -> IO[Any]: ...
    @overload
    def open(self, mode: str = "r", buffering: int = -1, encoding: str = "", newline: str | None = None) -> IO[str]: ...
    def open(
        self, mode: str = "r", buffering: int = -1, encoding: str | None = None, newline: str | None = None
    ) -> IO[Any]:
        """Open the object for reading, binary or text; `buffering` is as in :func:`open`, with a default of 4 MiB."""
        if mode not in ("r", "rb"):
            msg = f"objects are opened for reading, not with mode {mode!r}"
            raise ValueError(msg)
        raw = ObjectFile(self)
        if mode == "rb" and buffering == 0:
            return raw  # type: ignore[return-value]
        file = io.BufferedReader(raw, BUFFER_BYTES if buffering < 2 else buffering)
        return file if mode == "rb" else io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Write the object atomically."""
        with_retries(self, lambda: client_of(self.root).put(self.key, data))

    def write_blocks(self, blocks: Iterable[bytes | memoryview]) -> None:
        """Write the object atomically from blocks; those of a large one need not fit memory together.

        The client retries requests of a large one; blocks are generated once.
        """
        waiting, size, rest = [], 0, iter(blocks)
        for block in rest:
            waiting.append(block)
            size += len(block)
            if size > PART_BYTES:
                break
        else:  # one request instead of three
            self.write_bytes(b"".join(waiting))
            return
        with as_os_errors(self):
            blocks = itertools.chain(waiting, rest)
            client_of(self.root).put(self.key, blocks, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def upload(self, file: Path) -> None:
        """Write the object atomically from a file that need not fit memory."""
        with_retries(self, lambda: client_of(self.root).put(self.key, file))

    def put_if(self, data: bytes, tag: Tag) -> Tag:
        """Write the object if it still has a tag, or, for an empty tag, if it does not exist; return its new tag.

        Raise ``FileExistsError`` if it has another one. That may be from an earlier attempt whose response was lost, so
        `data` must identify its writer.
        """
        had: Any = {key: value for key, value in zip(TAG_KEYS, tag, strict=True) if value is not None}
        done = with_retries(self, lambda: client_of(self.root).put(self.key, data, mode=had or "create"))
        return done["e_tag"], done["version"]

    def read_tagged(self) -> tuple[bytes, Tag]:
        """Return the object and its tag, which changes with every write."""

        def request() -> tuple[bytes, Tag]:
            found = client_of(self.root).get(self.key)
            return bytes(found.bytes()), (found.meta["e_tag"], found.meta["version"])

        return with_retries(self, request)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object; stores do not report whether it existed, so `missing_ok` has no effect."""
        del missing_ok
        with suppress(FileNotFoundError):
            with_retries(self, lambda: client_of(self.root).delete(self.key))


def _status(meta: Mapping[str, Any]) -> ObjectStatus:
    seconds = int(meta["last_modified"].timestamp())
    tag = zlib.crc32(str(meta["e_tag"]).encode()) % 10**9
    return ObjectStatus(int(meta["size"]), seconds * 10**9 + tag)


class ObjectFile(io.RawIOBase):
    """Raw file over an object; large reads take several concurrent requests."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path, self._size, self._place = path, path.stat().st_size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read, in bytes."""
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in bytes, at least 0, and return it."""
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, and return the number of bytes read, 0 at the end of the object."""
        stop = min(self._place + len(buffer), self._size)
        if stop <= self._place:
            return 0
        size = stop - self._place
        self._path.fill([(self._place, memoryview(buffer).cast("B")[:size])])
        self._place = stop
        return size

    def readall(self) -> bytes:
        """Return the bytes from the current offset to the end of the object."""
        # the base class would request 8 KiB at a time
        return self.read(max(self._size - self._place, 0)) or b""


def delete_objects(paths: Iterable[ObjectPath]) -> None:
    """Delete objects of one bucket, a thousand per request; ignore missing ones."""
    found = list(paths)
    for start in range(0, len(found), LISTED):
        delete = partial(client_of(found[0].root).delete, [path.key for path in found[start : start + LISTED]])
        with suppress(FileNotFoundError):
            with_retries(found[start], delete)
