"""Where data lie: paths of this machine, and objects of a store that is named by a URL, through one interface.

``s3://bucket/key``, ``gs://bucket/key`` and ``az://container/key`` are read and written by obstore (extra ``object``):
of the libraries that were tried it was twice as fast as s3fs, and cheaper where requests fail, as it asks again itself.
One client for each bucket is kept in each process: those that a task brought along would share no connection
(obstore#536).

An :class:`ObjectPath` does what the code asks of a :class:`pathlib.Path`, so nothing else knows which of both it has.
What differs: folders are there while anything is in them; an object is put in place whole, or not at all; and nothing
can be appended to, renamed or locked. An upload in parts that was cut off leaves parts which nobody sees and the
provider keeps: a rule of the bucket clears them (on S3, AbortIncompleteMultipartUpload).
"""

from __future__ import annotations

import errno
import io
import itertools
import os
import posixpath
import shutil
import stat
import threading
import time
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache, partial, total_ordering
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar, overload

from daskfs.errors import InputError, JobError
from daskfs.shown import CREDENTIALS_BELONG, has_credentials, masked

SCHEMES = ("s3://", "gs://", "az://")
EXTRA = "object"
RETRIES = {
    "max_retries": 10,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
}
ASKED = 6
"""Times that a request is made whose answer was cut off, at most."""
PAUSE_SECONDS = 0.02
GAVE_UP_SECONDS = 3.0
"""An error after that is one that the client has asked again for."""
BUFFER_BYTES = 2**22
"""What is asked for at once of an object that is read piece by piece."""
PIECE_BYTES = 2**21
PIECES_AT_ONCE = 8
"""More bytes of an object than a piece has come in several requests at a time: one alone waits more than it reads."""
AT_ONCE = 16
"""Requests for what is known of objects, at a time."""
LISTED = 1000
"""Names that a store is asked for at a time."""
CREDENTIAL_HOSTS = ("169.254.169.254", "169.254.170.2", "metadata.google.internal")
"""What clients ask for credentials when the environment holds none."""
NO_CREDENTIALS = (
    "the environment holds no credentials for it; of a public bucket say so by storage: {BUCKET: {anonymous: true}}"
)
Fill = Callable[[Iterable[tuple[int, memoryview]]], None]
"""Fills buffers with the bytes from offsets of a file on; ``EOFError`` where it ends before."""
Tag = tuple[str | None, str | None]
"""What tells a version of an object from others: some stores go by the first, some by the second."""
TAG_KEYS = ("e_tag", "version")
T = TypeVar("T")
R = TypeVar("R")


# ------------------------------------------------------------------------------------------------------------- clients
@dataclass(frozen=True)
class Access:
    """How the objects below a URL are reached. Credentials come from the environment, or from the provider's chain.

    Parameters
    ----------
    endpoint
        URL of the service, where it is not the provider's own.
    region
        Of a bucket, where the environment does not say it.
    anonymous
        Ask without credentials.
    """

    endpoint: str | None = None
    region: str | None = None
    anonymous: bool = False


_access: dict[str, Access] = {}


def configure(access: Mapping[str, Access]) -> None:
    """Say how buckets are reached, by their URLs (``s3://bucket``); for this process, until it is said again."""
    _access.clear()
    _access.update(access)


def configured() -> dict[str, Access]:
    """Return what :func:`configure` was told last."""
    return dict(_access)


AccessRows = tuple[tuple[str, str | None, str | None, bool], ...]
"""How buckets are reached, as it goes along with a unit: URL, endpoint, region, anonymous."""


def access_rows() -> AccessRows:
    """Return what :func:`configured` does, for another process; credentials are no part of it."""
    return tuple((root, one.endpoint, one.region, one.anonymous) for root, one in sorted(_access.items()))


def take_over(rows: AccessRows) -> None:
    """Reach buckets as another process does; those that it does not name are reached as before."""
    _access.update({root: Access(endpoint, region, anonymous) for root, endpoint, region, anonymous in rows})


@contextmanager
def reached_by(access: Mapping[str, Access]) -> Iterator[None]:
    """Reach buckets in these ways, and then again as before."""
    before = configured()
    configure(access)
    try:
        yield
    finally:
        configure(before)


def is_url(name: object) -> bool:
    """Return whether a name is that of an object or a bucket."""
    return isinstance(name, str) and name.startswith(SCHEMES)


def client_of(root: str) -> Any:
    """Return the obstore client of a bucket; :class:`InputError` where it cannot do with how that is to be reached."""
    return _client(root, _access.get(root, Access()))


@lru_cache(maxsize=4096)
def _client(root: str, access: Access) -> Any:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    endpoint = "base_url" if root.startswith("gs:") else "endpoint"
    options: dict[str, Any] = {endpoint: access.endpoint, "region": access.region if root.startswith("s3:") else None}
    options = {key: value for key, value in options.items() if value is not None}
    if access.anonymous:
        options["skip_signature"] = True
    named = access.endpoint or next((value for key, value in os.environ.items() if _names_endpoint(key)), "")
    try:
        connect: Any = from_url  # its types know no mapping of options
        return connect(
            root,
            client_options={"allow_http": named.startswith("http://")},
            retry_config=RETRIES,
            **options,
        )
    except (BaseError, ValueError, TypeError) as error:
        hint = ": set AZURE_STORAGE_ACCOUNT_NAME" if "Account must be specified" in str(error) else ""
        msg = f"{root} cannot be reached: {first_line(error)}{hint}"
        raise InputError(msg) from error


def _names_endpoint(key: str) -> bool:
    return key in ("AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AZURE_STORAGE_ENDPOINT")


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says; clients add what they were asked, over many lines."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextmanager
def as_os_errors(name: object) -> Iterator[None]:
    """Turn what obstore raises about an object into the :class:`OSError` that a file would raise."""
    from obstore import exceptions

    try:
        yield
    except (exceptions.NotFoundError, FileNotFoundError) as error:
        what = "bucket" if _lacks_bucket(error) else "object"
        raise FileNotFoundError(errno.ENOENT, f"there is no such {what}", str(name)) from error
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
        raise FileExistsError(errno.EEXIST, "another process has written it", str(name)) from error
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"access is denied ({first_line(error)})", str(name)) from error
    except exceptions.NotSupportedError as error:
        raise OSError(errno.EOPNOTSUPP, first_line(error), str(name)) from error
    except exceptions.BaseError as error:
        if any(host in str(error) for host in CREDENTIAL_HOSTS):
            raise PermissionError(errno.EACCES, NO_CREDENTIALS, str(name)) from error
        if _lacks_bucket(error):
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", str(name)) from error
        hint = "; nobody answers: is its endpoint the right one?" if "error sending request" in str(error) else ""
        number = errno.EOPNOTSUPP if "<Code>NotImplemented</Code>" in str(error) else errno.EIO
        raise OSError(number, first_line(error) + hint, str(name)) from error


def _lacks_bucket(error: BaseException) -> bool:
    return any(said in str(error) for said in ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"))


def asked(where: object, request: Callable[[], R]) -> R:
    """Return what a request comes to that changes nothing when it is made twice.

    The client asks again itself where a store is busy or a connection breaks. It gives up at once where the answer is
    cut off that there is no such object, and where something is to be deleted: then it is asked again here.
    """
    begun = time.monotonic()
    for attempt in itertools.count(1):
        try:
            with as_os_errors(where):
                return request()
        except OSError as error:
            _pause(error, attempt, begun)
    raise AssertionError


def _pause(error: OSError, attempt: int, begun: float) -> None:
    """Wait before a request is made again; raise its error where that makes no sense."""
    if error.errno != errno.EIO or attempt == ASKED or time.monotonic() - begun > GAVE_UP_SECONDS:
        raise error
    time.sleep(PAUSE_SECONDS * 2**attempt)


def errors_of(where: Place) -> Any:
    """Return a context in which what goes wrong with a place is an :class:`OSError`."""
    return as_os_errors(where) if isinstance(where, ObjectPath) else nullcontext()


# ------------------------------------------------------------------------------------------------------ several at once
@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix="daskfs-objects")


def in_order(function: Callable[[T], R], items: Iterable[T], at_once: int = AT_ONCE) -> Iterator[R]:
    """Yield what a function returns for each item, in their order, while it works on those that follow.

    The function must not come here itself: threads would wait for each other.
    """
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
            msg = f"{masked(url)}: {CREDENTIALS_BELONG}."
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

    def expanduser(self) -> ObjectPath:
        """Return the path itself."""
        return self

    def absolute(self) -> ObjectPath:
        """Return the path itself."""
        return self

    def resolve(self) -> ObjectPath:
        """Return the path itself."""
        return self

    # ------------------------------------------------------------------------------------------------------- what it is
    def stat(self) -> ObjectStatus:
        """Return size and time of the object; ``FileNotFoundError`` where there is none."""
        import obstore

        if not self.key:
            raise FileNotFoundError(errno.ENOENT, "a bucket is no object", str(self))
        return asked(self, lambda: _status(obstore.head(client_of(self.root), self.key)))

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
                _pause(error, attempt, begun)

    def objects(self) -> Iterator[tuple[ObjectPath, ObjectStatus]]:
        """Yield all objects below this name, each with what is known of it; one request serves a thousand."""
        for found in self._listed():
            yield ObjectPath(self.root, found["path"]), _status(found)

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield what lies directly below this name; ``FileNotFoundError`` where nothing does."""
        import obstore

        prefix = f"{self.key}/" if self.key else None
        found = asked(self, lambda: obstore.list_with_delimiter(client_of(self.root), prefix))
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

        return memoryview(asked(self, lambda: obstore.get(client_of(self.root), self.key).bytes()))

    def read_range(self, start: int, stop: int) -> memoryview:
        """Return some bytes of the object; of none that ends before `start` there are any."""
        import obstore

        found = asked(self, lambda: obstore.get_range(client_of(self.root), self.key, start=start, end=stop))
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
        for _ in in_order(self._fill_piece, pieces, min(AT_ONCE, PIECES_AT_ONCE * PIECE_BYTES // largest)):
            pass

    def _fill_piece(self, piece: tuple[int, memoryview]) -> None:
        offset, view = piece
        found = self.read_range(offset, offset + len(view))
        if len(found) < len(view):
            raise EOFError(f"{self} ended while it was being read")
        view[:] = found

    def read_end(self, size: int) -> bytes:
        """Return the last bytes of the object."""
        import obstore

        options: Any = {"range": {"suffix": size}}
        return bytes(asked(self, lambda: obstore.get(client_of(self.root), self.key, options=options).bytes()))

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
        raw = _ObjectFile(self)
        if mode == "rb" and buffering == 0:
            return raw  # type: ignore[return-value]
        file = io.BufferedReader(raw, BUFFER_BYTES if buffering < 2 else buffering)
        return file if mode == "rb" else io.TextIOWrapper(file, encoding=encoding or "utf-8", newline=newline)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Put an object in place, whole."""
        import obstore

        asked(self, lambda: obstore.put(client_of(self.root), self.key, data))

    def put_if(self, data: bytes, tag: Tag) -> Tag:
        """Put an object in place if it still has a tag, or, for one of nothing, if there is no object yet; return its
        new tag. ``FileExistsError`` where it has another one, which may be the one that an earlier request gave it
        whose answer was lost: what is written has to say whose it is.
        """
        import obstore

        had: Any = {key: value for key, value in zip(TAG_KEYS, tag, strict=True) if value is not None}
        done = asked(self, lambda: obstore.put(client_of(self.root), self.key, data, mode=had or "create"))
        return done["e_tag"], done["version"]

    def read_tagged(self) -> tuple[bytes, Tag]:
        """Return the object and its tag, which is another one after every change."""
        import obstore

        def request() -> tuple[bytes, Tag]:
            found = obstore.get(client_of(self.root), self.key)
            return bytes(found.bytes()), (found.meta["e_tag"], found.meta["version"])

        return asked(self, request)

    def unlink(self, missing_ok: bool = False) -> None:
        """Delete the object; stores do not say whether there was one, so `missing_ok` changes nothing."""
        import obstore

        del missing_ok
        with suppress(FileNotFoundError):
            asked(self, lambda: obstore.delete(client_of(self.root), self.key))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Do nothing: a folder is there when something is in it."""


def _status(meta: Mapping[str, Any]) -> ObjectStatus:
    seconds = int(meta["last_modified"].timestamp())
    tag = zlib.crc32(str(meta["e_tag"]).encode()) % 10**9
    return ObjectStatus(int(meta["size"]), seconds * 10**9 + tag)


class _ObjectFile(io.RawIOBase):
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
        self._path.fill([(self._place, memoryview(buffer).cast("B")[:size])])
        self._place = stop
        return size

    def readall(self) -> bytes:
        # that of the base class asks for 8 KiB at a time
        return self.read(max(self._size - self._place, 0)) or b""


Place = Path | ObjectPath


def place(name: str | Path | ObjectPath) -> Place:
    """Return the path that a name stands for: of a URL an :class:`ObjectPath`, else an absolute one of this machine."""
    if isinstance(name, ObjectPath):
        return name
    return ObjectPath.of(str(name)) if is_url(name) else Path(name).expanduser().absolute()


def place_to_write(name: str | Path) -> Place:
    """Return the path of what is to be written; :class:`JobError` for the name of a URL that nothing is written to."""
    try:
        found = place(name)
    except InputError as error:
        raise JobError(str(error)) from None
    if "://" in str(name) and isinstance(found, Path):
        raise JobError(f"{name} cannot be written to: URLs begin with {', '.join(SCHEMES)}.")
    return found


# ---------------------------------------------------------------------------- what both kinds of paths do their own way
def put(where: Place, data: bytes | memoryview, *, synced: bool = True) -> None:
    """Write a file or an object so that readers see the old one or the new one, never a part; `synced`: also after a
    loss of power. A folder of that name gives way to it.
    """
    if isinstance(where, ObjectPath):
        where.write_bytes(data)
        return
    where.parent.mkdir(parents=True, exist_ok=True)
    temporary = where.with_name(f".{where.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        if where.is_dir():
            remove(where)
        temporary.replace(where)
    except BaseException:  # a part of it would take room on a disk that is full, and nobody would look for it
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def reading(where: Place) -> Iterator[Fill]:
    """Lend what reads parts of a file or an object."""
    if isinstance(where, ObjectPath):
        yield where.fill
        return
    descriptor = os.open(where, os.O_RDONLY)
    try:
        yield partial(fill_from, descriptor)
    finally:
        os.close(descriptor)


def fill_from(descriptor: int, parts: Iterable[tuple[int, memoryview]]) -> None:
    """Fill buffers from an open file, as :data:`Fill` says. Nothing is left behind for other threads to trip over."""
    for start, whole in parts:
        offset, view = start, whole
        while len(view):
            count = os.preadv(descriptor, [view], offset)
            if count == 0:
                raise EOFError("the file ended while it was being read")
            view, offset = view[count:], offset + count


def blocks_ahead(where: Place, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
    """Yield the first bytes of a file or an object, some at a time; of an object the next ones are on their way
    meanwhile, and a block alone is asked for again where a connection breaks.
    """
    if isinstance(where, ObjectPath):
        ranges = [(start, min(start + block_bytes, size)) for start in range(0, size, block_bytes)]
        yield from in_order(lambda part: where.read_range(*part), ranges, PIECES_AT_ONCE)
        return
    with where.open("rb", buffering=0) as file:
        yield from iter(lambda: file.read(block_bytes), b"")


@contextmanager
def zip_archive(where: Place, at_once: int = BUFFER_BYTES) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; of an object, so many bytes are asked for at a time."""
    with where.open("rb", at_once if isinstance(where, ObjectPath) else -1) as file, zipfile.ZipFile(file) as archive:
        yield archive


def is_there(where: Place) -> bool:
    """Return whether a name is taken: by a file, a link to nowhere, an object or a folder."""
    return where.exists() if isinstance(where, ObjectPath) else os.path.lexists(where)


def remove(where: Place) -> None:
    """Delete a file or an object, or a folder with all that is in it; nothing happens where there is neither."""
    if isinstance(where, ObjectPath):
        where.unlink()
        delete_objects(path for path, _ in where.objects())
    elif where.is_dir() and not where.is_symlink():
        shutil.rmtree(where)
    else:
        where.unlink(missing_ok=True)


def delete_objects(paths: Iterable[ObjectPath]) -> None:
    """Delete objects of one bucket, as many in a request as it takes; what is not there is as good as deleted."""
    import obstore

    found = list(paths)
    for start in range(0, len(found), LISTED):
        delete = partial(obstore.delete, client_of(found[0].root), [path.key for path in found[start : start + LISTED]])
        with suppress(FileNotFoundError):
            asked(found[start], delete)


def files_below(where: Place) -> Iterator[Place]:
    """Yield a file or an object, or every one below a folder, in order; nothing where there is neither."""
    if isinstance(where, ObjectPath):
        if where.key and where.is_file():
            yield where
        yield from (path for path, _ in where.objects())
    elif not where.is_dir():
        if os.path.lexists(where):
            yield where
    else:
        for folder, folders, names in os.walk(where):
            folders.sort()
            for name in sorted(names):
                yield Path(folder, name)


def lies_in(where: Place, folder: Place) -> bool:
    """Return whether a path lies below another one, or is that one."""
    return type(where) is type(folder) and where.is_relative_to(folder)  # type: ignore[arg-type]


def name_below(where: Place, folder: Place) -> str:
    """Return the name of a path below a folder in which it lies."""
    return str(where.relative_to(folder))  # type: ignore[arg-type]


def relative_name(where: Place, folder: Place) -> str:
    """Return what leads from a folder to a path, for a link in a page that lies in the folder; the URL, or the absolute
    path, where nothing does.
    """
    if isinstance(where, ObjectPath) and isinstance(folder, ObjectPath) and where.root == folder.root:
        return posixpath.relpath(f"/{where.key}", f"/{folder.key}")
    if isinstance(where, ObjectPath) or isinstance(folder, ObjectPath):
        return str(where)
    return Path(os.path.relpath(where, folder)).as_posix()


def read_buffer(where: Place) -> memoryview:
    """Return all bytes of a file or an object, which nothing copies; of an object by one request."""
    if isinstance(where, ObjectPath):
        return where.read_buffer()
    import numpy as np  # bytearray() would write zeros first

    if not where.is_file():  # to open a pipe would wait for ever
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(where))
    with where.open("rb", buffering=0) as file:
        held = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        size = file.readinto(held.data) if held.size else 0
    return held.data[: size or 0]


def open_whole(where: Place) -> IO[bytes]:
    """Open a file or an object that fits memory; an object is fetched by one request."""
    return io.BytesIO(where.read_bytes()) if isinstance(where, ObjectPath) else where.open("rb")


@contextmanager
def blocks_of(where: Place, block_bytes: int) -> Iterator[tuple[int, Iterator[bytes | memoryview]]]:
    """Open a file or an object to be read once from its beginning to its end: its size, and its bytes, some at a time.
    What reading raises is an :class:`OSError` within the block.
    """
    if isinstance(where, ObjectPath):
        import obstore

        with as_os_errors(where):
            found = obstore.get(client_of(where.root), where.key)
            yield int(found.meta["size"]), (memoryview(block) for block in found.stream(min_chunk_size=block_bytes))
        return
    with where.open("rb", buffering=0) as file:
        yield os.fstat(file.fileno()).st_size, iter(lambda: file.read(block_bytes), b"")


FEW = 4
"""Objects of one folder that are asked for singly; more are listed."""


def at_once(root: Place | None) -> int:
    """Return how many things are looked at below a root at a time: a disk answers at once, and a store after a while
    that does not hang on how much else it is asked.
    """
    return AT_ONCE if isinstance(root, ObjectPath) else 1


def each(root: Place | None, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield what a function returns for each item, in their order; of what lies in a store, while it works on those
    that follow. As of :func:`in_order`, the function must not come here itself.
    """
    return in_order(function, items) if isinstance(root, ObjectPath) else map(function, items)


def says_nothing(where: Place | None, error: OSError) -> bool:
    """Return whether an error of reading leaves open what is there: a store may not have answered."""
    return isinstance(where, ObjectPath) and not isinstance(error, FileNotFoundError)


def sizes(root: Place, names: Iterable[str], *, whole: bool = False) -> dict[str, int]:
    """Return the sizes of the files or objects of some names below a root that are there.

    Parameters
    ----------
    root
        What they lie below.
    names
        The names.
    whole
        Of the folders that they lie in, these are all or most: of a store, folders are listed, by one request for a
        thousand objects, instead of asking for each.
    """
    if not isinstance(root, ObjectPath):
        return {name: size for name in names if (size := _size(root, name)) is not None}
    folders: dict[str, list[str]] = {}
    for name in names:
        # chunks of one array lie in folders of folders: "X/c/3/1"
        folders.setdefault(name.partition("/c/")[0] if "/c/" in name else name.rpartition("/")[0], []).append(name)
    listed = {folder for folder, some in folders.items() if whole and folder and len(some) > FEW}
    single = [name for folder, some in folders.items() if folder not in listed for name in some]
    found: dict[str, int] = {}

    def below(folder: str) -> list[tuple[str, int]]:
        return [(str(path.relative_to(root)), status.st_size) for path, status in (root / folder).objects()]

    for known in each(root, below, listed):
        found.update(known)
    asked = zip(single, each(root, lambda name: _size(root, name), single), strict=True)
    found.update({name: size for name, size in asked if size is not None})
    return found


def _size(root: Place, name: str) -> int | None:
    try:
        status = (root / name).stat()
    except ValueError:  # no name can be like that
        return None
    except OSError as error:
        if says_nothing(root, error):
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def zarr_store(where: Place) -> Any:
    """Return what Zarr opens the array or group at a place from."""
    if isinstance(where, ObjectPath):
        from zarr.storage import ObjectStore, StorePath

        # below a client of the whole bucket: one for each array would share no connection
        return StorePath(ObjectStore(client_of(where.root)), where.key)
    return str(where)
