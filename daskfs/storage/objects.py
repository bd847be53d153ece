"""Objects of a store, as paths."""

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache, partial, total_ordering
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, overload

from daskfs.errors import InputError
from daskfs.redaction import CREDENTIALS_BELONG, has_credentials, redact_credentials
from daskfs.storage.clients import as_os_errors, client_of, pause, with_retries

SCHEMES = ("s3://", "gs://", "az://")
EXTRA = "object"
BUFFER_BYTES = 2**22
"""What is asked for at once of an object that is read piece by piece."""
PIECE_BYTES = 2**21
PIECES_AT_ONCE = 8
"""More bytes of an object than a piece has come in several requests at a time: one alone waits more than it reads."""
AT_ONCE = 16
"""Objects that are asked for at a time."""
AHEAD_BYTES = 2**25
"""Bytes of objects that are on their way while one is worked on."""
LISTED = 1000
"""Names that a store is asked for at a time."""
Fill = Callable[[Iterable[tuple[int, memoryview]]], None]
"""Fills buffers with the bytes from offsets of a file on; ``EOFError`` where it ends before."""
Tag = tuple[str | None, str | None]
"""What tells a version of an object from others: some stores go by the first, some by the second."""
TAG_KEYS = ("e_tag", "version")
T = TypeVar("T")
R = TypeVar("R")


# ------------------------------------------------------------------------------------------------------ several at once
_inside = threading.local()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, "daskfs-objects", partial(setattr, _inside, "pool", True))


def map_ordered(function: Callable[[T], R], items: Iterable[T], at_once: int = AT_ONCE) -> Iterator[R]:
    """Yield what a function returns for each item, in their order, while it works on those that follow. What it reads
    itself by this function comes one after the other: threads would wait for each other.
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
    """What is known of an object without reading it, as :meth:`pathlib.Path.stat` says it of a file.

    Stores know the second of a change; below that, `st_mtime_ns` holds what tells the object's tag from others.
    """

    st_size: int
    st_mtime_ns: int
    st_mode: int = stat.S_IFREG

    @property
    def st_mtime(self) -> float:
        """When it was put there, in seconds since 1970."""
        return self.st_mtime_ns / 1e9


def is_url(name: object) -> bool:
    """Return whether a name is that of an object or a bucket."""
    return isinstance(name, str) and name.startswith(SCHEMES)


@total_ordering
class ObjectPath:
    """An object, or what lies below a name, as a path.

    Parameters
    ----------
    root
        ``scheme://bucket``.
    key
        Name within the bucket, without a slash at either end; empty for the bucket.
    """

    __slots__ = ("key", "root")

    def __init__(self, root: str, key: str = "") -> None:
        self.root, self.key = root, key

    @classmethod
    def of(cls, url: str) -> ObjectPath:
        """Return the path that a URL names."""
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

    # --------------------------------------------------------------------------------------------------------- its name
    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __repr__(self) -> str:
        return f"ObjectPath({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPath) and (self.root, self.key) == (other.root, other.key)

    def __lt__(self, other: ObjectPath) -> bool:
        return (self.root, self.key) < (other.root, other.key)

    def __hash__(self) -> int:
        return hash((self.root, self.key))

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectPath, (self.root, self.key)

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
        """The last part's ending, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def stem(self) -> str:
        """The last part without its ending."""
        return PurePosixPath(self.name).stem

    @property
    def parent(self) -> ObjectPath:
        """What this lies in; the bucket lies in itself."""
        return ObjectPath(self.root, "/".join(self._parts[:-1]))

    def with_name(self, name: str) -> ObjectPath:
        """Return the path of another name beside this one."""
        return self.parent / name

    def is_relative_to(self, other: object) -> bool:
        """Return whether this lies below another path, or is that path."""
        return isinstance(other, ObjectPath) and self.parts[: len(other.parts)] == other.parts

    def relative_to(self, other: ObjectPath) -> PurePosixPath:
        """Return the name below another path; ``ValueError`` where it does not lie there."""
        if not self.is_relative_to(other):
            msg = f"{self} does not lie in {other}."
            raise ValueError(msg)
        return PurePosixPath(*self.parts[len(other.parts) :])

    def resolve(self) -> ObjectPath:
        """Return the path itself."""
        return self

    # ------------------------------------------------------------------------------------------------------- what it is
    def stat(self) -> ObjectStatus:
        """Return size and time of the object; ``FileNotFoundError`` where there is none."""
        import obstore

        if not self.key:
            raise FileNotFoundError(errno.ENOENT, "a bucket is no object", str(self))
        return with_retries(self, lambda: _status(obstore.head(client_of(self.root), self.key)))

    def is_file(self) -> bool:
        """Return whether there is an object of this name."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether anything lies below this name."""
        return next(iter(self._listed(1)), None) is not None

    def exists(self) -> bool:
        """Return whether there is an object of this name, or anything below it."""
        return self.is_file() or self.is_dir()

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def _listed(self, at_once: int = LISTED) -> Iterator[Mapping[str, Any]]:
        import obstore

        # the prefix ends where a name does: "a/b" lists what is in "a/b/", and not "a/bc"
        prefix, last = f"{self.key}/" if self.key else None, None
        begun = time.monotonic()
        for attempt in itertools.count(1):
            try:
                with as_os_errors(self):
                    for found in obstore.list(client_of(self.root), prefix, offset=last, chunk_size=at_once):
                        yield from found
                        last = found[-1]["path"]
                return
            except OSError as error:
                pause(error, attempt, begun)

    def objects(self) -> Iterator[tuple[ObjectPath, ObjectStatus]]:
        """Yield all objects below this name, each with what is known of it; one request serves a thousand."""
        for found in self._listed():
            yield ObjectPath(self.root, found["path"]), _status(found)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what lies directly below this name; ``FileNotFoundError`` where nothing does."""
        import obstore

        prefix = f"{self.key}/" if self.key else None
        found = with_retries(self, lambda: obstore.list_with_delimiter(client_of(self.root), prefix))
        names = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        if not names:
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(self))
        for name in names:
            yield ObjectPath(self.root, str(name).strip("/"))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield what lies directly below this name and fits a pattern of one part."""
        with suppress(FileNotFoundError):
            yield from (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def rglob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield the objects below this name whose last part fits a pattern."""
        for path, _ in self.objects():
            if fnmatchcase(path.name, pattern):
                yield path

    # ------------------------------------------------------------------------------------------------ reading, writing
    def read_bytes(self) -> bytes:
        """Return the object."""
        return bytes(self.read_buffer())

    def read_buffer(self) -> memoryview:
        """Return the object, which nothing copies."""
        import obstore

        return memoryview(with_retries(self, lambda: obstore.get(client_of(self.root), self.key).bytes()))

    def read_range(self, start: int, stop: int) -> memoryview:
        """Return some bytes of the object; of none that ends before `start` there are any."""
        import obstore

        found = with_retries(self, lambda: obstore.get_range(client_of(self.root), self.key, start=start, end=stop))
        return memoryview(found)

    def fill(self, parts: Iterable[tuple[int, memoryview]]) -> None:
        """Fill buffers with the bytes from offsets on, as :data:`Fill` says."""
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
            raise EOFError(f"{self} ended while it was being read")
        view[:] = found

    @contextmanager
    def stream(self, block_bytes: int) -> Iterator[tuple[int, Iterator[memoryview]]]:
        """Ask for the object once: its size, and its bytes, some at a time. What reading raises is an :class:`OSError`
        within the block.
        """
        import obstore

        with as_os_errors(self):
            found = obstore.get(client_of(self.root), self.key)
            yield int(found.meta["size"]), (memoryview(block) for block in found.stream(min_chunk_size=block_bytes))

    def zarr_store(self) -> Any:
        """Return what Zarr opens an array or group from that lies below this name."""
        from zarr.storage import ObjectStore, StorePath

        # below a client of the whole bucket: one for each array would share no connection
        return StorePath(ObjectStore(client_of(self.root)), self.key)

    def read_end(self, size: int) -> bytes:
        """Return the last bytes of the object."""
        import obstore

        options: Any = {"range": {"suffix": size}}
        return bytes(with_retries(self, lambda: obstore.get(client_of(self.root), self.key, options=options).bytes()))

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
        """Open the object for reading, in binary or as text. `buffering` is as elsewhere, the default 4 MiB."""
        if mode not in ("r", "rb"):
            msg = f"objects are opened for reading, not with mode {mode!r}"
            raise ValueError(msg)
        raw = ObjectFile(self)
        if mode == "rb" and buffering == 0:
            return raw  # type: ignore[return-value]
        file = io.BufferedReader(raw, BUFFER_BYTES if buffering < 2 else buffering)
        return file if mode == "rb" else io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Put an object in place, whole."""
        import obstore

        with_retries(self, lambda: obstore.put(client_of(self.root), self.key, data))

    def upload(self, file: Path) -> None:
        """Put an object in place, whole, from a file that need not fit memory."""
        import obstore

        with_retries(self, lambda: obstore.put(client_of(self.root), self.key, file))

    def put_if(self, data: bytes, tag: Tag) -> Tag:
        """Put an object in place if it still has a tag, or, for one of nothing, if there is no object yet; return its
        new tag. ``FileExistsError`` where it has another one, which may be the one that an earlier request gave it
        whose answer was lost: what is written has to say whose it is.
        """
        import obstore

        had: Any = {key: value for key, value in zip(TAG_KEYS, tag, strict=True) if value is not None}
        done = with_retries(self, lambda: obstore.put(client_of(self.root), self.key, data, mode=had or "create"))
        return done["e_tag"], done["version"]

    def read_tagged(self) -> tuple[bytes, Tag]:
        """Return the object and its tag, which is another one after every change."""
        import obstore

        def request() -> tuple[bytes, Tag]:
            found = obstore.get(client_of(self.root), self.key)
            return bytes(found.bytes()), (found.meta["e_tag"], found.meta["version"])

        return with_retries(self, request)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; stores do not say whether there was one, so `missing_ok` changes nothing."""
        import obstore

        del missing_ok
        with suppress(FileNotFoundError):
            with_retries(self, lambda: obstore.delete(client_of(self.root), self.key))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder is there when something is in it."""


def _status(meta: Mapping[str, Any]) -> ObjectStatus:
    seconds = int(meta["last_modified"].timestamp())
    tag = zlib.crc32(str(meta["e_tag"]).encode()) % 10**9
    return ObjectStatus(int(meta["size"]), seconds * 10**9 + tag)


class ObjectFile(io.RawIOBase):
    """An object that is read piece by piece, large ones several at a time."""

    def __init__(self, path: ObjectPath) -> None:
        super().__init__()
        self._path, self._size, self._place = path, path.stat().st_size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def readinto(self, buffer: Any) -> int:
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
        # that of the base class asks for 8 KiB at a time
        return self.read(max(self._size - self._place, 0)) or b""


def delete_objects(paths: Iterable[ObjectPath]) -> None:
    """Delete objects of one bucket, as many in a request as it takes; what is not there is as good as deleted."""
    import obstore

    found = list(paths)
    for start in range(0, len(found), LISTED):
        delete = partial(obstore.delete, client_of(found[0].root), [path.key for path in found[start : start + LISTED]])
        with suppress(FileNotFoundError):
            with_retries(found[start], delete)
