"""Where data lie: paths of this machine, and objects of a store that is named by a URL, through one interface.

``s3://bucket/key``, ``gs://bucket/key`` and ``az://container/key`` are read and written by obstore (extra ``object``):
of the libraries that were tried it was twice as fast as s3fs, and cheaper where requests fail, as it asks again itself.

An :class:`ObjectPath` does what the code asks of a :class:`pathlib.Path`, so nothing else knows which of both it has.
What differs: folders are there while anything is in them; an object is put in place whole, or not at all; and nothing
can be appended to, renamed or locked. An upload in parts that was cut off leaves parts which nobody sees and the
provider keeps: a rule of the bucket clears them (on S3, AbortIncompleteMultipartUpload).

Here is what both kinds of paths do their own way; ``clients`` reaches buckets, and ``objects`` holds the paths in them.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import shutil
import stat
import threading
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from daskfs.errors import InputError, JobError
from daskfs.storage.clients import (
    Access,
    AccessRows,
    access_rows,
    apply_access,
    as_os_errors,
    configure,
    configured,
    reached_by,
)
from daskfs.storage.objects import (
    AHEAD_BYTES,
    AT_ONCE,
    BUFFER_BYTES,
    PIECES_AT_ONCE,
    SCHEMES,
    Fill,
    ObjectPath,
    Tag,
    delete_objects,
    is_url,
    map_ordered,
)

__all__ = [
    "SCHEMES",
    "Access",
    "AccessRows",
    "Fill",
    "ObjectPath",
    "StoragePath",
    "Tag",
    "access_rows",
    "apply_access",
    "as_output_path",
    "as_path",
    "at_once",
    "blocks_ahead",
    "blocks_of",
    "configure",
    "configured",
    "errors_of",
    "files_below",
    "fill_from",
    "is_inconclusive",
    "is_there",
    "is_url",
    "lies_in",
    "map_concurrent",
    "name_below",
    "open_ranges",
    "open_whole",
    "put",
    "put_first",
    "reached_by",
    "read_buffer",
    "refresh",
    "relative_name",
    "remove",
    "remove_file",
    "sizes",
    "zarr_store",
    "zip_archive",
]

ASIDE = ".aside-"
"""Between the name of a folder that lay where a file should, and digits that no other has."""
CANNOT = (errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK)
"""What file systems without hard links say, and stores that cannot write on a condition."""
FEW = 4
"""Objects of one folder that are asked for singly; more are listed."""
T = TypeVar("T")
R = TypeVar("R")

StoragePath = Path | ObjectPath


def as_path(name: str | Path | ObjectPath) -> StoragePath:
    """Return the path that a name stands for: of a URL an :class:`ObjectPath`, else an absolute one of this machine."""
    if isinstance(name, ObjectPath):
        return name
    return ObjectPath.of(str(name)) if is_url(name) else Path(name).expanduser().absolute()


def as_output_path(name: str | Path) -> StoragePath:
    """Return the path of what is to be written; :class:`JobError` for the name of a URL that nothing is written to."""
    try:
        found = as_path(name)
    except InputError as error:
        raise JobError(str(error)) from None
    if "://" in str(name) and isinstance(found, Path):
        raise JobError(f"{name} cannot be written to: URLs begin with {', '.join(SCHEMES)}.")
    return found


# ---------------------------------------------------------------------------- what both kinds of paths do their own way
def errors_of(where: StoragePath) -> Any:
    """Return a context in which what goes wrong with a place is an :class:`OSError`."""
    return as_os_errors(where) if isinstance(where, ObjectPath) else nullcontext()


def put(where: StoragePath, data: bytes | memoryview, *, synced: bool = True) -> None:
    """Write a file or an object so that readers see the old one or the new one, never a part; `synced`: also after a
    loss of power. A folder of that name gives way to it.
    """
    if isinstance(where, ObjectPath):
        where.write_bytes(data)
        return
    with _written_beside(where, data, synced=synced) as temporary:
        if where.is_dir():
            remove(where)
        temporary.replace(where)


def put_first(where: StoragePath, data: bytes) -> bool:
    """Write a file or an object unless there is one; return whether it is this one that is there now. Where a file
    system or a store cannot tell, the last one stays.
    """
    try:
        if isinstance(where, ObjectPath):
            where.put_if(data, (None, None))
            return True
        with _written_beside(where, data, synced=True) as temporary:
            where.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in CANNOT:
            raise
        put(where, data)
    return True


@contextmanager
def _written_beside(where: Path, data: bytes | memoryview, *, synced: bool) -> Iterator[Path]:
    """Yield a file of the same folder that holds data, and is gone afterwards."""
    where.parent.mkdir(parents=True, exist_ok=True)
    temporary = where.with_name(f".{where.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:  # a part of it would take room on a disk that is full, and nobody would look for it
        temporary.unlink(missing_ok=True)


@contextmanager
def open_ranges(where: StoragePath) -> Iterator[Fill]:
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


def blocks_ahead(where: StoragePath, size: int, block_bytes: int) -> Iterator[bytes | memoryview]:
    """Yield the first bytes of a file or an object, some at a time; of an object the next ones are on their way
    meanwhile, and a block alone is asked for again where a connection breaks.
    """
    if isinstance(where, ObjectPath):
        ranges = [(start, min(start + block_bytes, size)) for start in range(0, size, block_bytes)]
        yield from map_ordered(lambda part: where.read_range(*part), ranges, PIECES_AT_ONCE)
        return
    with where.open("rb", buffering=0) as file:
        yield from iter(lambda: file.read(block_bytes), b"")


@contextmanager
def zip_archive(where: StoragePath, at_once: int = BUFFER_BYTES) -> Iterator[zipfile.ZipFile]:
    """Open a zip file; of an object, so many bytes are asked for at a time."""
    with where.open("rb", at_once if isinstance(where, ObjectPath) else -1) as file, zipfile.ZipFile(file) as archive:
        yield archive


def is_there(where: StoragePath) -> bool:
    """Return whether a name is taken: by a file, a link to nowhere, an object or a folder."""
    return where.exists() if isinstance(where, ObjectPath) else os.path.lexists(where)


def remove(where: StoragePath) -> None:
    """Delete a file or an object, or a folder with all that is in it; nothing happens where there is neither."""
    if isinstance(where, ObjectPath):
        where.unlink()
        delete_objects(path for path, _ in where.objects())
    elif where.is_dir() and not where.is_symlink():
        shutil.rmtree(where)
    else:
        where.unlink(missing_ok=True)


def remove_file(where: StoragePath, root: StoragePath) -> None:
    """Delete a file or an object that lies below a root; nothing happens where there is none. A folder of that name is
    moved aside: who expects a file there knows nothing of what the folder holds.

    Raises
    ------
    OSError
        Where a link leads out of the root.
    """
    if isinstance(where, ObjectPath):
        where.unlink(missing_ok=True)
        return
    if not where.parent.resolve().is_relative_to(Path(str(root)).resolve()):
        raise OSError(errno.EXDEV, f"a link leads out of {root}", str(where))
    if where.is_dir() and not where.is_symlink():
        where.rename(where.with_name(f"{where.name}{ASIDE}{uuid.uuid4().hex[:8]}"))
    else:
        where.unlink(missing_ok=True)


def refresh(folder: StoragePath) -> None:
    """List a folder: a network file system may remember that a file was not there until somebody does. What is put into
    an object store is there for all at once.
    """
    if isinstance(folder, Path):
        with suppress(OSError):
            next(folder.iterdir(), None)


def files_below(where: StoragePath) -> Iterator[StoragePath]:
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


def lies_in(where: StoragePath, folder: StoragePath) -> bool:
    """Return whether a path lies below another one, or is that one."""
    return type(where) is type(folder) and where.is_relative_to(folder)  # type: ignore[arg-type]


def name_below(where: StoragePath, folder: StoragePath) -> str:
    """Return the name of a path below a folder in which it lies."""
    return str(where.relative_to(folder))  # type: ignore[arg-type]


def relative_name(where: StoragePath, folder: StoragePath) -> str:
    """Return what leads from a folder to a path, for a link in a page that lies in the folder; the URL, or the absolute
    path, where nothing does.
    """
    if isinstance(where, ObjectPath) and isinstance(folder, ObjectPath) and where.root == folder.root:
        return posixpath.relpath(f"/{where.key}", f"/{folder.key}")
    if isinstance(where, ObjectPath) or isinstance(folder, ObjectPath):
        return str(where)
    return Path(os.path.relpath(where, folder)).as_posix()


def read_buffer(where: StoragePath) -> memoryview:
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


def open_whole(where: StoragePath) -> IO[bytes]:
    """Open a file or an object that fits memory; an object is fetched by one request."""
    return io.BytesIO(where.read_bytes()) if isinstance(where, ObjectPath) else where.open("rb")


@contextmanager
def blocks_of(where: StoragePath, block_bytes: int) -> Iterator[tuple[int, Iterator[bytes | memoryview]]]:
    """Open a file or an object to be read once from its beginning to its end: its size, and its bytes, some at a time.
    What reading raises is an :class:`OSError` within the block.
    """
    if isinstance(where, ObjectPath):
        with where.stream(block_bytes) as found:
            yield found
        return
    with where.open("rb", buffering=0) as file:
        yield os.fstat(file.fileno()).st_size, iter(lambda: file.read(block_bytes), b"")


def at_once(root: StoragePath | None) -> int:
    """Return how many things are looked at below a root at a time: a disk answers at once, and a store after a while
    that does not hang on how much else it is asked.
    """
    return AT_ONCE if isinstance(root, ObjectPath) else 1


def map_concurrent(
    root: StoragePath | None, function: Callable[[T], R], items: Iterable[T], item_bytes: int = 1
) -> Iterator[R]:
    """Yield what a function returns for each item, in their order; of what lies in a store, while it works on those
    that follow, as many as :data:`AHEAD_BYTES` hold where each takes `item_bytes`.
    """
    if not isinstance(root, ObjectPath):
        return map(function, items)
    return map_ordered(function, items, min(AT_ONCE, 1 + AHEAD_BYTES // max(item_bytes, 1)))


def is_inconclusive(where: StoragePath | None, error: OSError) -> bool:
    """Return whether an error of reading leaves open what is there: a store may not have answered."""
    return isinstance(where, ObjectPath) and not isinstance(error, FileNotFoundError)


def sizes(root: StoragePath, names: Iterable[str], *, whole: bool = False) -> dict[str, int]:
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
        return _sizes_on_disk(root, names)
    folders: dict[str, list[str]] = {}
    for name in names:
        # chunks of one array lie in folders of folders: "X/c/3/1"
        folders.setdefault(name.partition("/c/")[0] if "/c/" in name else name.rpartition("/")[0], []).append(name)
    listed = {folder for folder, some in folders.items() if whole and folder and len(some) > FEW}
    single = [name for folder, some in folders.items() if folder not in listed for name in some]
    found: dict[str, int] = {}

    def below(folder: str) -> list[tuple[str, int]]:
        return [(str(path.relative_to(root)), status.st_size) for path, status in (root / folder).objects()]

    for known in map_concurrent(root, below, listed):
        found.update(known)
    with_retries = zip(single, map_concurrent(root, lambda name: _size(root, name), single), strict=True)
    found.update({name: size for name, size in with_retries if size is not None})
    return found


def _sizes_on_disk(root: Path, names: Iterable[str]) -> dict[str, int]:
    """Return sizes as :func:`sizes` does: of many files of a folder by one pass over it."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, _, own = name.rpartition("/")
        folders.setdefault(folder, []).append(own)
    found: dict[str, int] = {}
    for folder, some in folders.items():
        prefix = f"{folder}/" if folder else ""
        known: dict[str, int] = {}
        if len(some) <= FEW:
            known = {own: size for own in some if (size := _size(root, prefix + own)) is not None}
        else:
            with suppress(FileNotFoundError, NotADirectoryError, ValueError), os.scandir(root / folder) as entries:
                known = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        found.update({prefix + own: known[own] for own in some if own in known})
    return found


def _size(root: StoragePath, name: str) -> int | None:
    try:
        status = (root / name).stat()
    except ValueError:  # no name can be like that
        return None
    except OSError as error:
        if is_inconclusive(root, error):
            raise
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def zarr_store(where: StoragePath) -> Any:
    """Return what Zarr opens the array or group at a place from."""
    return where.zarr_store() if isinstance(where, ObjectPath) else str(where)
