"""Objects of an object store as paths."""

from __future__ import annotations

import errno
import io
import itertools
import os
import stat
import tempfile
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import IO, Any, TypeVar, overload

from daskfs.storage.clients import PATIENCE, RETRY_PAUSE_SECONDS, as_os_errors, client_of, pause, with_retries
from daskfs.storage.local import LocalPath
from daskfs.storage.object_names import PureObjectPath

REQUEST_BYTES = 2**22
"""Bytes per request of an object that is read sequentially."""
RANGE_PIECE_BYTES = 2**21
PIECES_AT_ONCE = 8
"""Reads of more than a piece take several concurrent requests: a single one is dominated by latency."""
PART_BYTES = 2**23
"""Bytes per part of an object that is written block by block; stores take at most 10,000 parts."""
PARTS_AT_ONCE = 3
MAX_REQUESTS = 16
THREADS_NAME = "daskfs-objects"
AHEAD_BYTES = 2**25
"""Bytes of objects that are prefetched."""
UNCONDITIONAL = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK)
"""Errors of stores without conditional writes."""
UNDECIDED = (errno.EEXIST, errno.EIO)
"""Errors of a conditional write that leave open what is there now."""
LONGEST_PAUSE_SECONDS = 10.0
NAMES_PER_REQUEST = 1000
Fill = Callable[[Iterable[tuple[int, memoryview]]], None]
"""Function that fills buffers with bytes from given offsets of a file; ``EOFError`` if the file is too short."""
Tag = tuple[str | None, str | None]
"""ETag and version of an object; some stores compare the first, some the second."""
TAG_KEYS = ("e_tag", "version")
NEW: Tag = (None, None)
"""Tag of an object that does not exist."""
ZARR_METADATA = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")
T = TypeVar("T")
R = TypeVar("R")


# ------------------------------------------------------------------------------------------------------ concurrency
@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_REQUESTS, THREADS_NAME)


def map_ordered(function: Callable[[T], R], items: Iterable[T], at_once: int = MAX_REQUESTS) -> Iterator[R]:
    """Map a function over items in threads, in order, `at_once` calls at a time.

    Nested calls run sequentially: threads of one pool would wait for each other.
    """
    if threading.current_thread().name.startswith(THREADS_NAME):
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


@dataclass(frozen=True, order=True, repr=False, slots=True)
class ObjectPath(PureObjectPath):
    """Path of an object, or of a prefix of object names.

    It has the methods of :class:`daskfs.storage.local.LocalPath`.
    """

    # -------------------------------------------------------------------------------------------- metadata and listing
    is_remote = True
    """Whether each access is a request to a service."""

    def errors(self) -> Any:
        """Return a context that turns errors of this path into :class:`OSError`."""
        return as_os_errors(self)

    def refresh(self) -> None:
        """Do nothing: a written object is visible at once."""

    def drop_cached(self) -> None:
        """Do nothing: each read is a request."""

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
        return next(iter(self._list_pages(1)), None) is not None

    def exists(self) -> bool:
        """Return whether there is an object of this name, or anything below it."""
        return self.is_file() or self.is_dir()

    is_there = exists

    def _list_pages(self, at_once: int = NAMES_PER_REQUEST) -> Iterator[Mapping[str, Any]]:
        # the prefix ends where a name does: "a/b" lists what is in "a/b/", and not "a/bc"
        prefix, last = f"{self.key}/" if self.key else None, None
        begun = time.monotonic()
        for attempt in itertools.count(1):
            try:
                with as_os_errors(self):
                    for page in client_of(self.root).list(prefix, offset=last, chunk_size=at_once):
                        yield from page
                        last = page[-1]["path"]
                return
            except OSError as error:
                pause(error, attempt, begun)

    def objects(self) -> Iterator[tuple[ObjectPath, ObjectStatus]]:
        """Yield all objects below this name with their metadata, one request per thousand."""
        for meta in self._list_pages():
            yield ObjectPath(self.root, meta["path"]), _status(meta)

    def files_matching(self, pattern: Sequence[str]) -> Iterator[tuple[ObjectPath, ObjectStatus]]:
        """Yield the objects below this name that match the parts of a pattern, and their status."""
        for path, status in self.objects():
            if _fits(path.name_below(self).split("/"), pattern):
                yield path, status

    def files_below(self) -> Iterator[ObjectPath]:
        """Yield this object, and every one below this name, in order."""
        if self.key and self.is_file():
            yield self
        yield from (path for path, _ in self.objects())

    def sizes_in(self, prefix: str) -> list[tuple[str, int]]:
        """Return names and sizes of all objects below this name, after a prefix."""
        return [(f"{prefix}{path.name_below(self)}", status.st_size) for path, status in self.objects()]

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the direct children of this name; raise ``FileNotFoundError`` if it has none."""
        prefix = f"{self.key}/" if self.key else None
        listing = with_retries(self, lambda: client_of(self.root).list_with_delimiter(prefix))
        names = [*listing["common_prefixes"], *(one["path"] for one in listing["objects"])]
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

    read_own = read_bytes

    def read_buffer(self) -> memoryview:
        """Return the object without a copy."""
        return memoryview(with_retries(self, lambda: client_of(self.root).get(self.key).bytes()))

    def read_range(self, start: int, stop: int) -> memoryview:
        """Return bytes ``start:stop`` of the object, fewer if it ends before `stop`; ``EOFError`` if before `start`."""
        block = with_retries(self, lambda: client_of(self.root).get_range(self.key, start=start, end=stop))
        return memoryview(block)

    def open_whole(self) -> IO[bytes]:
        """Fetch an object that fits memory by one request."""
        return io.BytesIO(self.read_bytes())

    @contextmanager
    def open_ranges(self, *, is_source: bool = True) -> Iterator[Fill]:
        """Yield a function that reads parts of the object."""
        del is_source
        yield self.fill

    def blocks_ahead(self, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
        """Yield the first `size` bytes of the object, block by block.

        Blocks are prefetched, and retried one by one if a connection breaks.
        """
        ranges = [(start, min(start + block_bytes, size)) for start in range(0, size, block_bytes)]
        return map_ordered(lambda part: self.read_range(*part), ranges, PIECES_AT_ONCE)

    @contextmanager
    def stream(self, block_bytes: int) -> Iterator[tuple[int, Iterator[bytes | memoryview]]]:
        """Open the object for one sequential read: yield its size and an iterator over its blocks."""
        with as_os_errors(self):
            answer = client_of(self.root).get(self.key)
            yield int(answer.meta["size"]), (memoryview(block) for block in answer.stream(min_chunk_size=block_bytes))

    def fill(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers with bytes from given offsets, see :data:`Fill`."""
        pieces = [
            (offset + begin, view[begin : begin + RANGE_PIECE_BYTES])
            for offset, view in parts
            for begin in range(0, len(view), RANGE_PIECE_BYTES)
        ]
        if len(pieces) < 2:
            for piece in pieces:
                self.fill_piece(piece)
            return
        largest = max(len(view) for _, view in pieces)
        for _ in map_ordered(self.fill_piece, pieces, min(MAX_REQUESTS, PIECES_AT_ONCE * RANGE_PIECE_BYTES // largest)):
            pass

    def fill_piece(self, piece: tuple[int, memoryview]) -> None:
        """Fill a buffer with bytes from an offset by one request, in the calling thread."""
        offset, view = piece
        block = self.read_range(offset, offset + len(view))
        if len(block) < len(view):
            msg = f"{self} ended while it was being read"
            raise EOFError(msg)
        view[:] = block

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
        file = io.BufferedReader(raw, REQUEST_BYTES if buffering < 2 else buffering)
        return file if mode == "rb" else io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def put(self, data: bytes | memoryview, *, synced: bool = True) -> None:
        """Write the object atomically; every object that a store has acknowledged is synced."""
        del synced
        with_retries(self, lambda: client_of(self.root).put(self.key, data))

    write_bytes = put

    def put_blocks(self, blocks: Iterable[bytes | memoryview], *, synced: bool = True) -> None:
        """Write the object atomically from blocks; those of a large one need not fit memory together.

        The client retries requests of a large one; blocks are generated once.
        """
        del synced
        waiting, size, rest = [], 0, iter(blocks)
        while size <= PART_BYTES and (block := next(rest, None)) is not None:
            waiting.append(block)
            size += len(block)
        if size <= PART_BYTES:  # one request instead of three
            self.put(b"".join(waiting))
            return
        with as_os_errors(self):
            blocks = itertools.chain(waiting, rest)
            client_of(self.root).put(self.key, blocks, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def put_first(self, data: bytes) -> bool:
        """Write the object unless it exists with other contents; return whether it has these.

        If a store has no conditional writes, the last one stays.
        """
        try:
            self.put_if(data, NEW)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in UNCONDITIONAL:
                raise
            self.put(data)
        return True

    def put_if(self, data: bytes, tag: Tag, is_own: Callable[[bytes], bool] | None = None) -> Tag:
        """Write the object if it still has a tag, or, for :data:`NEW`, if it does not exist; return its new tag.

        After a conflict, a time-out or any error that leaves open whether the object was written, it is read: codes of
        stores mean different things, and an answer may be lost. Contents for which `is_own` is true, by default those
        equal to `data`, count as written by this call, so `data` must identify its writer. If nothing has changed, it
        is written again, for as long as clients repeat other requests.

        Raises
        ------
        FileExistsError
            If it has another tag, and other contents.
        FileNotFoundError
            If it was deleted, or there is no such bucket.
        """
        had: Any = {key: value for key, value in zip(TAG_KEYS, tag, strict=True) if value is not None}
        is_ours, deadline = is_own or data.__eq__, time.monotonic() + PATIENCE.total_seconds()
        for attempt in itertools.count():
            try:
                with as_os_errors(self):
                    done = client_of(self.root).put(self.key, data, mode=had or "create")
                return done["e_tag"], done["version"]
            except OSError as error:
                if error.errno not in UNDECIDED:
                    raise
                failure = error
            current, there = self._read_if_there()
            if there != tag and not is_ours(current):  # one bad answer does not decide
                current, there = self._read_if_there()
            if there != tag:
                if is_ours(current):
                    return there
                if there == NEW:
                    raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self)) from failure
                raise FileExistsError(errno.EEXIST, "another process has written it", str(self)) from failure
            if time.monotonic() > deadline:
                raise OSError(errno.EIO, failure.strerror, str(self)) from failure
            time.sleep(min(RETRY_PAUSE_SECONDS * 2**attempt, LONGEST_PAUSE_SECONDS))
        raise AssertionError

    def _read_if_there(self) -> tuple[bytes, Tag]:
        try:
            return self.read_tagged()
        except FileNotFoundError:
            return b"", NEW

    def read_tagged(self) -> tuple[bytes, Tag]:
        """Return the object and its tag, which changes with every write."""

        def request() -> tuple[bytes, Tag]:
            answer = client_of(self.root).get(self.key)
            return bytes(answer.bytes()), (answer.meta["e_tag"], answer.meta["version"])

        return with_retries(self, request)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object; stores do not report whether it existed, so `missing_ok` has no effect."""
        del missing_ok
        with suppress(FileNotFoundError):
            with_retries(self, lambda: client_of(self.root).delete(self.key))

    def remove(self) -> None:
        """Delete the object, and all below this name."""
        self.unlink()
        delete_objects(path for path, _ in self.objects())

    def put_tree(self, tree: LocalPath) -> None:
        """Upload a file, or a Zarr group or array, in place of what is here.

        Metadata goes last, so that a partial upload is not a group or array.
        """
        if tree.is_file():
            with_retries(self, lambda: client_of(self.root).put(self.key, tree))
            return
        self.remove()
        files = sorted(tree.files_below(), key=lambda path: (path.parent == tree and path.name in ZARR_METADATA, path))
        for path in files:
            (self / path.name_below(tree)).put_tree(path)

    @contextmanager
    def replacement(self) -> Iterator[LocalPath]:
        """Yield a temporary local path of a file or a folder, which is put here if the block ends without an error."""
        with tempfile.TemporaryDirectory(prefix="daskfs-export-") as folder:
            temporary = LocalPath(folder, self.name)
            yield temporary
            self.put_tree(temporary)

    def remove_below(self, root: object) -> None:
        """Delete the object, which lies below a root, if present."""
        del root
        self.unlink()


def _fits(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the parts of a path match those of a pattern; ``**`` matches any number of folders."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        return any(_fits(names[skipped:], pattern[1:]) for skipped in range(len(names)))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


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
        self._fill(self._place, memoryview(buffer).cast("B")[:size])
        self._place = stop
        return size

    def _fill(self, start: int, view: memoryview) -> None:
        self._path.fill([(start, view)])

    def readall(self) -> bytes:
        """Return the bytes from the current offset to the end of the object."""
        # the base class would request 8 KiB at a time
        return self.read(max(self._size - self._place, 0)) or b""


def delete_objects(paths: Iterable[ObjectPath]) -> None:
    """Delete objects of one bucket, a thousand per request; ignore missing ones."""
    objects = list(paths)
    for start in range(0, len(objects), NAMES_PER_REQUEST):
        delete = partial(
            client_of(objects[0].root).delete, [path.key for path in objects[start : start + NAMES_PER_REQUEST]]
        )
        with suppress(FileNotFoundError):
            with_retries(objects[start], delete)
